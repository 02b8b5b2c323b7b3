"""
The command line: the table of all commands, the group that imports each when it is used, and the
way from the words of a command line to an exit code.

C{helptexts.json} keeps the help texts of all commands; C{python -m tools.helptexts} writes it. The
module imports neither Twisted nor a command, so that C{svcbroker --help} and completion are quick.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from inspect import cleandoc
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Final, TextIO

import click
from attrs import field, frozen

from ..version import readVersion
from .arguments import UNEXPECTED, SectionedCommand, makeCommand
from .terminal import CommandError, Console, Exit, didYouMean

PROGRAM: Final = "svcbroker"


@frozen
class Command:
    """
    One command.

    @ivar name: its name on the command line.
    @ivar summary: what it does, in a sentence.
    @ivar group: the group that it is in; empty for one of every day.
    @ivar isHidden: whether it is in no list of commands.
    @ivar example: a line that shows how it is used, where its help text has none.
    @ivar command: a C{click.Command} that is it.
    @ivar place: else the module that has it, by default the one of its name here, and after a
        colon its name there; one in another room begins with a dot, as those of ledgers do.
        Without a colon the module has one of

          - C{command}: a C{click.Command} whose callback takes a L{Console} first and returns the
            exit code,
          - C{COMMANDS}: the table of its own commands, C{HELP}: a text about them, and where they
            ask a daemon C{DEFAULT}: the one that is meant if none is named, or an empty text.
    """

    name: str
    summary: str
    group: str = field(default="", kw_only=True)
    isHidden: bool = field(default=False, kw_only=True)
    example: str = field(default="", kw_only=True)
    place: str = field(default="", kw_only=True)
    command: click.Command | None = field(default=None, kw_only=True)

    @classmethod
    def of(cls, name: str, command: Any, example: str = "") -> Command:
        """A C{click.Command} under a name, with the first sentence of its help text."""
        summary = command.get_short_help_str(limit=200)
        return cls(name, summary, command=command, example=example)

    def load(self) -> click.Command:
        """Import the module, unless the command is known, and make what click runs of it."""
        command = self._load() if self.command is None else self.command
        text = cleandoc(command.help or "")
        if self.example and self.example not in text:
            command.help = f"{text}\n\n\b\n{self.example}"
        return command

    def _load(self) -> click.Command:
        path, _, name = (self.place or self.name).partition(":")
        module = import_module(f".{path}", __package__)
        if name or not hasattr(module, "COMMANDS"):
            found: click.Command = getattr(module, name or "command")
            return found
        return CommandGroup(
            self.name,
            module.COMMANDS,
            default=getattr(module, "DEFAULT", None),
            help=f"{self.summary}\n\n{module.HELP}",
            short_help=self.summary,
        )


class CommandGroup(click.Group):
    """
    A group of commands from a table. The module of a command is imported when it is used.
    """

    def __init__(
        self,
        name: str,
        commands: Sequence[Command],
        *,
        old: Mapping[str, Sequence[str]] = {},
        default: str | None = None,
        **keywords: Any,
    ) -> None:
        """
        @param old: the words for which other first words stand.
        @param default: where the commands ask a daemon, the one that is meant if none is named,
            or an empty text. The daemon may stand before them.
        """
        super().__init__(
            name,
            invoke_without_command=True,
            no_args_is_help=False,
            callback=_requireCommand,
            options_metavar="[options]",
            subcommand_metavar="COMMAND ...",
            **keywords,
        )
        self._table = {command.name: command for command in commands}
        self._old = old
        self._default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """See C{click.Command}."""
        if self._default is not None:
            from .operatorcommand import takeDaemon

            if not (args and args[0] in self._table):
                args = list(takeDaemon(ctx, tuple(args)))
            isNamed = args and (not args[0].startswith("-") or args[0] in ctx.help_option_names)
            if self._default and not isNamed and not ctx.resilient_parsing:
                args = [self._default, *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """See C{click.Group}."""
        return [each.name for each in self._table.values() if not each.isHidden]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """See C{click.Group}."""
        command = self._table.get(cmd_name)
        return None if command is None else command.load()

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """See C{click.Group}."""
        args = [*self._old.get(args[0], args[:1]), *args[1:]]
        if args[0] not in self._table and not ctx.resilient_parsing:
            names = {each: each for each in self._table}
            names |= {each: " ".join(words) for each, words in self._old.items()}
            hint = didYouMean(args[0], names)
            what = "Unknown command" if self._default is None else "No command or data directory"
            raise CommandError(f"{what}: {args[0]}{hint}")
        ctx.meta[PROGRAM] = [*ctx.meta.get(PROGRAM, ()), args[0]]
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See C{click.Group}."""
        names = self.list_commands(ctx)
        width = max(map(len, names))
        sections: dict[str, list[tuple[str, str]]] = {}
        for each in map(self._table.__getitem__, names):
            title = "Groups" if each.name in GROUPS else "Commands"
            sections.setdefault(title, []).append((each.name.ljust(width), each.summary))
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """See C{click.Group}."""
        from click.shell_completion import CompletionItem

        names = [
            CompletionItem(each.name, help=each.summary)
            for each in map(self._table.__getitem__, self.list_commands(ctx))
            if each.name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]


def _requireCommand(**options: Any) -> None:
    context = click.get_current_context()
    if context.invoked_subcommand is None:
        raise CommandError(f"a command is needed; see: {context.command_path} --help")


GROUPS: Final[Mapping[str, str]] = {
    "chain": "Audit, back up, restore, export and copy chains.",
    "proof": "Bundle proofs, watch logs, and sign events.",
    "net": "Networks of several nodes, engines and witnesses.",
    "admin": "Accounts, erasure, subscriptions, contexts and set-up.",
}
"""The groups of commands, and what is in each."""

COMMANDS: Final = (
    Command(
        "run",
        "Run the daemon, until Ctrl-C.",
        place="run:runCommand",
        example="svcbroker run --data-dir /var/lib/svcbroker --http 8080 --mqtt 1883",
    ),
    Command("pub", "Publish an event, or each line of standard input."),
    Command("sub", "Show events as they are published.", place="reading:subCommand"),
    Command("events", "Show stored events.", place="reading:eventsCommand"),
    Command("get", "Show one event.", place="reading:getCommand"),
    Command("topic", "List, open, close and describe topics."),
    Command("webhook", "List, pause, resume, retry and end webhooks, and skip an event of one."),
    Command("prove", "Get the proof of an event, and check it."),
    Command(
        "verify",
        "Check a proof offline, against what is trusted.",
        example="svcbroker verify proof.json --genesis genesis.json",
    ),
    Command(
        "doctor",
        "Say what is wrong with a broker and its machine, and what to do.",
        example="svcbroker doctor --config /etc/svcbroker/svcbroker.toml",
    ),
    Command("top", "Show what a broker does, live.", example="svcbroker top --once"),
    Command("bench", "Measure how fast a broker takes events in."),
    Command(
        "help",
        "Explain a command, or the connection options.",
        place="commandline:helpCommand",
        isHidden=True,
    ),
    Command(
        "audit",
        "Check everything in a data directory, and name the place of any damage.",
        group="chain",
        place="chainfiles:auditCommand",
        example="svcbroker chain audit /var/lib/svcbroker --checkpoint checkpoints.txt",
    ),
    Command(
        "genesis",
        "Write the genesis of a chain, against which its proofs are checked.",
        group="chain",
        place="chainfiles:genesisCommand",
        example="svcbroker chain genesis /var/lib/svcbroker",
    ),
    Command(
        "checkpoint",
        "Print a block's hash, to be kept outside of the broker's reach.",
        group="chain",
        place="chainfiles:checkpointCommand",
        example="svcbroker chain checkpoint /var/lib/svcbroker",
    ),
    Command(
        "export",
        "Write a chain as a stream of blocks with their certificates.",
        group="chain",
        place="chainfiles:exportCommand",
        example="svcbroker chain export /var/lib/svcbroker orders.export",
    ),
    Command(
        "import",
        "Import a chain from a stream, and check every block of it.",
        group="chain",
        place="chainfiles:importCommand",
        example="svcbroker chain import orders.export elsewhere",
    ),
    Command(
        "backup",
        "Copy a data directory, also while a broker runs on it.",
        group="chain",
        place="chainfiles:backupCommand",
        example="svcbroker chain backup /var/lib/svcbroker /var/backups/svcbroker",
    ),
    Command(
        "restore",
        "Restore a chain from a backup, up to a height.",
        group="chain",
        place="chainfiles:restoreCommand",
        example="svcbroker chain restore /var/backups/svcbroker restored --height 40000",
    ),
    Command(
        "replicate",
        "Keep a verified copy of the chains of another broker.",
        group="chain",
        place="replicate:replicateCommand",
        example="svcbroker chain replicate https://broker.example/svcbroker standby --user copier",
    ),
    Command(
        "promote",
        "Continue with a copy, where the original is gone for good.",
        group="chain",
        place="replicate:promoteCommand",
        example="svcbroker chain promote standby --original /mnt/svcbroker",
    ),
    Command(
        "find",
        "Find who has published a document, when and where, with its proof.",
        group="proof",
    ),
    Command(
        "bundle",
        "Put the proofs of events into one file, with a page that verifies them.",
        group="proof",
    ),
    Command(
        "stamp",
        "Add the time stamps of an authority to a bundle.",
        group="proof",
        place="bundle:stampCommand",
    ),
    Command(
        "receipt",
        "Sign a receipt for the events of a topic.",
        group="proof",
        place="receipts:receiptCommand",
        example="svcbroker proof receipt orders 7ba3f518-1-2 --key ann.pem",
    ),
    Command(
        "receipts",
        "Show who has signed receipts for a topic.",
        group="proof",
        place="receipts:receiptsCommand",
        example="svcbroker proof receipts orders",
    ),
    Command(
        "monitor",
        "Follow a log from outside, and say so when it does not only grow.",
        group="proof",
        example="svcbroker proof monitor https://broker.example/svcbroker/log/1 --policy policy",
    ),
    Command(
        "reveal",
        "Open one event for somebody else.",
        group="proof",
        place="prove:revealCommand",
    ),
    Command(
        "contradict",
        "Show that two statements of one chain cannot both be true.",
        group="proof",
        example="svcbroker proof contradict yours.json mine.json",
    ),
    Command(
        "scitt",
        "Check statements of SCITT offline, register them and get receipts.",
        group="proof",
    ),
    Command(
        "sign",
        "Sign an event as its author, offline.",
        group="proof",
        place="sign:signCommand",
        example='svcbroker proof sign 21.5 --key ann.pem --topic weather/zurich --chain "$CHAIN"',
    ),
    Command(
        "keygen",
        "Make a key that signs events, or an identity that opens them.",
        group="proof",
        place="sign:keygenCommand",
        example="svcbroker proof keygen ann.pem",
    ),
    Command(
        "testnet",
        "Run a whole CometBFT network on this machine, to try it out.",
        group="net",
        place=".ledgers.testnet",
        example="svcbroker net testnet net --nodes 4",
    ),
    Command(
        "engine",
        "Found, join and govern a CometBFT network of several organisations.",
        group="net",
        place=".ledgers.cometbft.enginecommands",
    ),
    Command(
        "witness",
        "Run a witness, which cosigns the checkpoints of logs that only grow.",
        group="net",
    ),
    Command(
        "evm",
        "Make an account or a contract for a log on an EVM chain, and look at one.",
        group="net",
        place=".ledgers.evm.evmcommands",
    ),
    Command(
        "nodes",
        "Give a running daemon's replicas new keys, or change their number.",
        group="net",
    ),
    Command(
        "fault",
        "Stop replicas of a running daemon, and cut or slow down their network.",
        group="net",
    ),
    Command(
        "account",
        "Make accounts, their passwords and tokens, and say what they may do.",
        group="admin",
    ),
    Command(
        "erase",
        "Erase the content of events, for good and on all nodes.",
        group="admin",
        place="erasure:eraseCommand",
    ),
    Command(
        "hold",
        "Keep events from being erased, until their case is closed.",
        group="admin",
        place="erasure",
    ),
    Command(
        "retain",
        "Show how long the contents of events are kept, and how far older ones are erased.",
        group="admin",
        place="erasure:retainCommand",
        example="svcbroker admin retain --data-dir /var/lib/svcbroker",
    ),
    Command(
        "reload",
        "Have a running daemon read its accounts and certificates again.",
        group="admin",
        place="nodes:reloadCommand",
        example="svcbroker admin reload --data-dir /var/lib/svcbroker",
    ),
    Command(
        "subscription",
        "List, reset and delete durable subscriptions and MQTT sessions.",
        group="admin",
    ),
    Command(
        "context", "Keep where brokers are, with which credentials, under names.", group="admin"
    ),
    Command(
        "certificates",
        "Make certificates for trying TLS, of an authority of its own.",
        group="admin",
        example="svcbroker admin certificates tls --host broker.example",
    ),
    Command("log", "Show the transparency log's key, and write the log as files.", group="admin"),
    Command(
        "completion",
        "Write a script by which bash, zsh or fish completes commands.",
        group="admin",
        place="commandline:completionCommand",
    ),
    Command(
        "incidents",
        "List the files with what came before alarms.",
        group="admin",
        place="top:incidentsCommand",
        example="svcbroker admin incidents --data-dir /var/lib/svcbroker",
    ),
)
"""Every command, in the order in which help texts show them."""

OLD_NAMES: Final[Mapping[str, Sequence[str]]] = {
    **{each.name: (each.group, each.name) for each in COMMANDS if each.group},
    "tail": ("sub", "--last", "10"),
    "replay": ("sub", "--until-end", "--pace", "1"),
    "status": ("top", "--once"),
}
"""The words for which other first words of a command line stand. Earlier releases had them."""

COMPLETE: Final = "_SVCBROKER_COMPLETE"
"""The environment variable by which a shell asks for completions."""

_HELP: Final = """\
Publish, subscribe, and operate brokers.

\b
svcbroker run              the daemon; as a service: twistd svcbroker
svcbroker help sub         what a command does, with an example
svcbroker help connection  which broker is asked, and with which credentials

Exit codes: 0 good, 1 what was checked is not good, 2 wrong usage.
"""


def _showVersion(context: click.Context, option: click.Parameter, isGiven: bool) -> None:
    if isGiven and not context.resilient_parsing:
        click.echo(f"{PROGRAM} {readVersion().version}")
        context.exit()


def makeGroup(commands: Sequence[Command] = COMMANDS) -> CommandGroup:
    """The whole command line."""
    groups = [
        Command(name, summary, command=CommandGroup(name, those, help=summary))
        for name, summary in GROUPS.items()
        if (those := [each for each in commands if each.group == name])
    ]
    return CommandGroup(
        PROGRAM,
        [*(each for each in commands if not each.group), *groups],
        old=OLD_NAMES if commands is COMMANDS else {},
        help=_HELP,
        params=[
            click.Option(
                ["--traceback"], is_flag=True, help="Show where an unforeseen error comes from."
            ),
            click.Option(
                ["--version"],
                is_flag=True,
                expose_value=False,
                is_eager=True,
                callback=_showVersion,
                help="Show the version and exit.",
            ),
        ],
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )


def main(argv: Sequence[str] | None = None, commands: Sequence[Command] = COMMANDS) -> int:
    """
    Run a command.

    @param argv: the arguments, without the program's name; by default those of the process.
    @param commands: the commands that there are.
    @return: the exit code.
    """
    _prepareStreams()
    console = Console()
    group = makeGroup(commands)
    context = click.Context(group, info_name=PROGRAM, obj=console, **group.context_settings)
    try:
        words = [*(sys.argv[1:] if argv is None else argv)]
        stored = None
        if commands is COMMANDS and len(words) > 1 and words[-1] in ("-h", "--help"):
            stored = _storedHelp(words[:-1], context)
        if stored is None:
            code = _run(group, context, words)
        else:
            code = Exit.GOOD
            console.say(stored)
        # Flushed here, because the interpreter's own flush at exit cannot report an error.
        console.output.flush()
        return code
    except (KeyboardInterrupt, click.Abort):
        return Exit.INTERRUPTED
    except BrokenPipeError:
        return Exit.BROKEN_PIPE
    except click.ClickException as error:
        return _fail(context, console, messageOf(error), Exit.USAGE)
    except CommandError as error:
        return _fail(context, console, str(error), error.code)
    except OSError as error:
        path = "" if error.filename is None else f"{error.filename}: "
        return _fail(context, console, f"{path}{error.strerror or error}", Exit.USAGE)
    except UnicodeEncodeError as error:
        # An argument, as Python has bytes that are not UTF-8.
        return _fail(context, console, f"{ascii(error.object)[:200]} is not UTF-8", Exit.USAGE)
    except Exception as error:
        if context.params.get("traceback"):
            console.warn(traceback.format_exc().rstrip())
        text = f"unforeseen error (see --traceback): {type(error).__name__}: {error}"
        return _fail(context, console, text, Exit.INTERNAL)
    finally:
        _discardUnwritable(console.output)
        _discardUnwritable(console.errors)


def _storedHelp(words: Sequence[str], root: click.Context) -> str | None:
    """The stored help text of a command that is named by these words alone."""
    words = [*OLD_NAMES.get("".join(words[:1]), words[:1]), *words[1:]]
    text = storedHelp(words, root)
    if text is not None:
        root.meta[PROGRAM] = words
    return text


def _prepareStreams() -> None:
    """
    Make standard streams that can be used. One that is closed gets a file that can be neither read
    nor written, so that commands fail as on other errors, and no other file gets its number. What
    the encoding of standard output does not have is written as an escape sequence.
    """
    for name, mode, opposite in (
        ("stdin", "r", os.O_WRONLY),
        ("stdout", "w", os.O_RDONLY),
        ("stderr", "w", os.O_RDONLY),
    ):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, opposite), mode, encoding="utf-8"))
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def _run(group: CommandGroup, context: click.Context, argv: Sequence[str]) -> int:
    instruction = os.environ.get(COMPLETE)
    if instruction is not None:
        from click.shell_completion import shell_complete

        return shell_complete(group, {}, PROGRAM, COMPLETE, instruction)
    try:
        with context:
            group.parse_args(context, list(argv))
            code: int | None = group.invoke(context)
            return code or Exit.GOOD
    except click.exceptions.Exit as ended:
        return ended.exit_code


def messageOf(error: click.ClickException) -> str:
    """Describe the error of a command line in our words."""
    if isinstance(error, click.NoSuchOption):
        known = error.ctx.command.get_params(error.ctx) if error.ctx is not None else []
        names = [name for each in known for name in each.opts if name.startswith("--")]
        return f"option {error.option_name} not recognized" + didYouMean(error.option_name, names)
    isMissing = isinstance(error, click.MissingParameter)
    if isinstance(error, click.BadParameter) and error.param is not None:
        name = next(
            (each for each in error.param.opts if each.startswith("--")),
            error.param.human_readable_name,
        )
        if not isMissing:
            return f"{name}: {error.message[:1].lower()}{error.message[1:].removesuffix('.')}"
        if isinstance(error.param, click.Option):
            return f"{name} is needed"
    if isMissing or UNEXPECTED in error.format_message():
        context = getattr(error, "ctx", None)
        if context is not None:
            return " ".join(context.get_usage().split()).replace("Usage", "usage", 1)
    text = error.format_message().removesuffix(".")
    return text[:1].lower() + text[1:]


def _fail(context: click.Context, console: Console, message: str, code: int) -> int:
    line = " ".join(message.split())
    name = " ".join([PROGRAM, *context.meta.get(PROGRAM, ())])
    # A closed or full standard error leaves the exit code to tell of the failure.
    with suppress(OSError):
        console.warn(f"{name}: {line}")
    return code


def _discardUnwritable(stream: TextIO) -> None:
    # What cannot be written stays in the stream's buffer, and the interpreter would try again at
    # exit: it prints "Exception ignored" and exits with 120.
    try:
        stream.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def allCommands() -> Iterator[tuple[click.Command, click.Context]]:
    """Every command and group of commands, the whole program first, with a context of its name."""
    group = makeGroup()
    return _below(group, click.Context(group, info_name=PROGRAM, **group.context_settings))


def _below(
    command: click.Command, context: click.Context
) -> Iterator[tuple[click.Command, click.Context]]:
    yield command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            each = command.get_command(context, name)
            assert each is not None
            yield from _below(each, click.Context(each, parent=context, info_name=name))


def commandOptions(command: click.Command, context: click.Context) -> dict[str, dict[str, str]]:
    """
    Meanings of the options of a command, by the title of their section in the help text: empty for
    those that have none.
    """
    sections = command.sections if isinstance(command, SectionedCommand) else {}
    found: dict[str, dict[str, str]] = {}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is None or not isinstance(parameter, click.Option):
            continue
        titles = [title for title, names in sections.items() if parameter.name in names]
        found.setdefault(titles[0] if titles else "", {})[record[0]] = record[1]
    return found


@makeCommand(
    """\
    Explain a command, or the connection options.

    \b
    svcbroker help chain backup
    svcbroker help connection
    """
)
@click.argument("words", metavar="COMMAND...|connection", nargs=-1)
def helpCommand(console: Console, words: tuple[str, ...]) -> int:
    """Write a help text."""
    context = click.get_current_context().find_root()
    context.meta.pop(PROGRAM)
    if words == ("connection",):
        from .clientcommand import connectionPage

        context = click.Context(connectionPage, parent=context, info_name="COMMAND")
    stored = _storedHelp(words, context)
    if stored is not None:
        console.say(stored)
        return Exit.GOOD
    rest = [*words]
    while rest and isinstance(context.command, click.Group):
        name, command, rest = context.command.resolve_command(context, rest)
        assert command is not None
        context = click.Context(command, parent=context, info_name=name)
    console.say(context.get_help())
    return Exit.GOOD


SHELLS: Final = ("bash", "zsh", "fish")


@makeCommand(
    """\
    Write a script by which a shell completes commands and options.

    \b
    svcbroker admin completion bash > ~/.local/share/bash-completion/completions/svcbroker
    svcbroker admin completion zsh > "${fpath[1]}/_svcbroker"
    svcbroker admin completion fish > ~/.config/fish/completions/svcbroker.fish
    """
)
@click.argument("shell", type=click.Choice(SHELLS))
def completionCommand(console: Console, shell: str) -> int:
    """Write the script of a shell."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    root = click.get_current_context().find_root().command
    console.say(kind(root, {}, PROGRAM, COMPLETE).source())
    return Exit.GOOD


HELP_TEXTS: Final = Path(__file__).with_name("helptexts.json")


class StoredCommand(click.Command):
    """
    A command that has the help text of another one, and nothing else of it.
    """

    def __init__(self, name: str, record: Mapping[str, Any]) -> None:
        """
        @param record: what L{describeHelp} has made of the other command.
        """
        super().__init__(name, help=record["help"])
        self._record = record

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """See C{click.Command}."""
        return [*self._record["usage"]]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See C{click.Command}."""
        for title, rows in self._record["sections"].items():
            with formatter.section(title):
                formatter.write_dl([(name, text) for name, text in rows])


class _SectionReader(click.HelpFormatter):
    """
    Keeps the rows of each section as they are before they are laid out.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sections: dict[str, list[tuple[str, str]]] = {}
        self._title = ""

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        """See C{click.HelpFormatter}."""
        self._title = name
        yield

    def write_dl(self, rows: Iterable[tuple[str, str]], *_: Any, **__: Any) -> None:
        """See C{click.HelpFormatter}."""
        self.sections[self._title] = [*rows]


def describeHelp(command: click.Command, context: click.Context) -> dict[str, Any]:
    """The parts of a command's help text, which L{StoredCommand} shows in any width."""
    reader = _SectionReader()
    command.format_options(context, reader)
    return {
        "usage": command.collect_usage_pieces(context),
        "help": command.help,
        "sections": reader.sections,
    }


def storedHelp(words: Sequence[str], root: click.Context) -> str | None:
    """
    Look the help text of a command up.

    @param words: the words of the command, without the program's name.
    @param root: the context of the whole program.
    @return: the text, in the width of the terminal; C{None} if no command has these words.
    """
    name = " ".join(words)
    record = json.loads(HELP_TEXTS.read_text("utf-8")).get(name)
    if record is None:
        return None
    command = StoredCommand(name, record)
    return command.get_help(click.Context(command, parent=root, info_name=name))
