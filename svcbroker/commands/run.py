"""
C{svcbroker run}: the daemon in the foreground. The service and its options are those of
C{twistd svcbroker}.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
from twisted.application.service import ServiceMaker
from twisted.python import usage
from twisted.scripts.twistd import ServerOptions, runApp  # type: ignore[attr-defined]

from .. import tap
from ..daemon.config import SETTINGS, Config
from ..daemon.dependencies import StartError
from ..daemon.plan import Plan
from ..daemon.settings import List
from ._arguments import SectionedCommand
from ._command import CommandError, Console, Exit
from ._group import PROGRAM

_OWN: Final = ("check", "pidfile", "logfile", "help")
"""The parameters that are not the daemon's settings."""


class RunCommand(SectionedCommand):
    """
    A command with an option for each one of C{twistd svcbroker}, which parses their values.
    """

    def __init__(self, **keywords: Any) -> None:
        """
        @param keywords: those of C{click.Command}; C{params} are more options.
        """
        self._options = tap.Options()
        settings = [*_settings(self._options)]
        super().__init__(**{**keywords, "params": [*keywords["params"], *settings]})
        self.sections = {"Settings": [str(each.name) for each in settings]}

    def invoke(self, ctx: click.Context) -> int:
        """
        Have the options parse what was given.

        @raise CommandError: it is refused, or the daemon cannot start.
        """
        words = []
        for parameter in self.params:
            given = ctx.params.get(str(parameter.name))
            if parameter.name in _OWN or given in (None, False, ()):
                continue
            name = parameter.opts[-1]
            if given is True:
                words.append(name)
            else:
                words += [f"{name}={each}" for each in (given if parameter.multiple else [given])]
        try:
            self._options.parseOptions(words)
        except usage.UsageError as error:
            raise CommandError(str(error)) from None
        except SystemExit as ended:
            # --help-ledger ends so, after it has written to standard output.
            ctx.exit(ended.code if isinstance(ended.code, int) else Exit.GOOD)
        own = {name: ctx.params[name] for name in _OWN if name in ctx.params}
        return _run(ctx.obj, self._options, **own)


def _settings(options: Any) -> Iterator[click.Option]:
    """The options of C{twistd svcbroker}, as click has them."""
    takeValue = {name.removesuffix("=") for name in options.longOpt if name.endswith("=")}
    repeated = {each.name for each in SETTINGS if isinstance(each.kind, List)}
    for name in sorted({each.removesuffix("=") for each in options.longOpt}):
        if options.synonyms.get(name, name) != name or name in ("help", "version"):
            continue
        # The names of parameters are of no use here, but must be identifiers.
        yield click.Option(
            [f"--{name}", "option_" + name.replace("-", "_")],
            is_flag=name not in takeValue,
            multiple=name in repeated,
            metavar="VALUE" if name in takeValue else None,
            help=" ".join((options.docs.get(name) or "").split()),
        )


command = RunCommand(
    name="run",
    help="""\
    Run the daemon, until Ctrl-C.

    Every setting can also stand in a TOML file, under the same name. An option given here wins
    over the file. An ENDPOINT may be a port number, which is served on loopback.
    """,
    options_metavar="[options]",
    params=[
        click.Option(
            ["--check"],
            is_flag=True,
            help="Read the configuration, say what would be served, and end.",
        ),
        click.Option(
            ["--pidfile"],
            default="",
            metavar="FILE",
            help="A file for the process's number. [default: none]",
        ),
        click.Option(
            ["--logfile", "-l"],
            default="",
            metavar="FILE",
            help="Where the log goes. [default: standard output]",
        ),
    ],
)


def _run(console: Console, options: Any, check: bool, pidfile: str, logfile: str) -> int:
    """
    Run the daemon until a signal stops it.

    @raise CommandError: it cannot start.
    """
    if check:
        for line in describe(options["config"], options["plan"]):
            console.say(line)
        refusal = options["plan"].access.refusal
        if refusal:
            raise CommandError(refusal, Exit.BAD)
        return Exit.GOOD
    # What twistd makes of its own command line; the service's options are parsed already.
    twistd: Any = ServerOptions()
    twistd.parseOptions(["--nodaemon", "--no_save", f"--pidfile={pidfile}", f"--logfile={logfile}"])
    twistd.subCommand, twistd.subOptions, options.parent = PROGRAM, options, twistd
    twistd.loadedPlugins = {PROGRAM: ServiceMaker(PROGRAM, tap.__name__, "", PROGRAM)}
    try:
        runApp(twistd)
    except StartError as error:
        raise CommandError(str(error), Exit.BAD) from None
    return Exit.GOOD


def describe(config: Config, plan: Plan) -> Iterator[str]:
    """What a configuration has served, in lines for people."""
    yield f"svcbroker {plan.version} would serve"
    for port in plan.ports:
        where = f", under {plan.basePath or '/'}" if port.name == "http" else ""
        yield f"  {port.name.upper()} at {port.text}{where}"
    for group in config.groups:
        yield f"  group {group.id} from the ledger {group.ledger or config.ledger}"
    for line in plan.access.describe():
        yield f"  to {line}"
    yield f"with its data in {Path(plan.dataDir).absolute()}"
