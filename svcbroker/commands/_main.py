"""
From a command line to an exit code.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from io import TextIOWrapper
from typing import Final, TextIO

import click

from ..version import readVersion
from ._arguments import UNEXPECTED
from ._command import Command, CommandError, Console, Exit, didYouMean
from ._group import PROGRAM, CommandGroup
from ._table import COMMANDS, SECTIONS

COMPLETE: Final = "_SVCBROKER_COMPLETE"
"""The environment variable by which a shell asks for completions."""

_HELP: Final = """\
Publish, subscribe, and operate brokers.

The daemon is started by: svcbroker run, or as a service by: twistd svcbroker. Exit codes: 0 good,
1 what was checked is not good, 2 wrong usage.
"""


def _showVersion(context: click.Context, option: click.Parameter, isGiven: bool) -> None:
    if isGiven and not context.resilient_parsing:
        click.echo(f"{PROGRAM} {readVersion().version}")
        context.exit()


def makeGroup(commands: Sequence[Command] = COMMANDS) -> CommandGroup:
    """The whole command line."""
    return CommandGroup(
        PROGRAM,
        commands,
        sections=SECTIONS if commands is COMMANDS else None,
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
        code = _run(group, context, sys.argv[1:] if argv is None else argv)
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
            code: int = group.invoke(context)
            return code
    except click.exceptions.Exit as ended:
        return ended.exit_code


def messageOf(error: click.ClickException) -> str:
    """What is wrong with a command line, in our words."""
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
            pieces = " ".join(context.command.collect_usage_pieces(context))
            return f"Wrong number of arguments: {pieces}"
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
