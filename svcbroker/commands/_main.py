"""
From a command line to an exit code.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TextIO

from twisted.python import usage

from ._command import (
    Command,
    CommandError,
    CommandOptions,
    Console,
    Exit,
    VersionedOptions,
    didYouMean,
)
from ._table import COMMANDS


class MainOptions(VersionedOptions):
    """
    C{svcbroker [options] COMMAND ...}.
    """

    synopsis = "Usage: svcbroker [options] COMMAND [options] ..."
    longdesc = (
        "The daemon is started by: svcbroker run, or as a service by: twistd svcbroker. "
        "Exit codes: 0 good, 1 what was checked is not good, 2 wrong usage."
    )
    optFlags = [["traceback", None, "Show where an unforeseen error comes from."]]

    def __init__(self, commands: Sequence[Command]) -> None:
        self.commands = {command.name: command for command in commands}
        self.subCommands = [
            [command.name, None, _optionsOf(command), command.summary] for command in commands
        ]
        super().__init__()

    def parseOptions(self, options: Sequence[str] | None = None) -> None:
        """See C{usage.Options}."""
        try:
            super().parseOptions(options)
        except usage.UsageError as error:
            known, colon, name = str(error).partition("Unknown command: ")
            if known or not colon:
                raise
            hint = didYouMean(name, list(self.commands))
            raise usage.UsageError(f"{error}{hint}") from None

    def getSynopsis(self) -> str:
        """See C{usage.Options}. It also precedes the usage of each command."""
        return self.synopsis if self.subCommand is None else "Usage: svcbroker"

    def postOptions(self) -> None:
        """See C{usage.Options}."""
        if self.subCommand is None:
            raise usage.UsageError("which command? See: svcbroker --help")


def _optionsOf(command: Command) -> Callable[[], CommandOptions]:
    def make() -> CommandOptions:
        options: CommandOptions = command.load().Options()
        return options

    return make


def main(argv: Sequence[str] | None = None, commands: Sequence[Command] = COMMANDS) -> int:
    """
    Run a command.

    @param argv: the arguments, without the program's name; by default those of the process.
    @param commands: the commands that there are.
    @return: the exit code.
    """
    console = Console()
    options: Any = MainOptions(commands)
    try:
        code = _run(options, sys.argv[1:] if argv is None else argv, console)
        # Flushed here, because the interpreter's own flush at exit cannot report an error.
        console.output.flush()
        return code
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        return Exit.BROKEN_PIPE
    except (usage.UsageError, CommandError) as error:
        return _fail(options, console, str(error), getattr(error, "code", Exit.USAGE))
    except OSError as error:
        path = "" if error.filename is None else f"{error.filename}: "
        return _fail(options, console, f"{path}{error.strerror or error}", Exit.USAGE)
    except Exception as error:
        if options["traceback"]:
            console.warn(traceback.format_exc().rstrip())
        text = f"unforeseen error (see --traceback): {type(error).__name__}: {error}"
        return _fail(options, console, text, Exit.INTERNAL)
    finally:
        _discardUnwritable(console.output)
        _discardUnwritable(console.errors)


def _run(options: Any, argv: Sequence[str], console: Console) -> int:
    try:
        options.parseOptions(list(argv))
        code: int = options.commands[options.subCommand].load().run(options.subOptions, console)
        return code
    except SystemExit as ended:
        # --help and --version end so, after they have written to standard output.
        return ended.code if isinstance(ended.code, int) else Exit.GOOD


def _fail(options: Any, console: Console, message: str, code: int) -> int:
    name = getattr(options, "subCommand", None)
    line = " ".join(message.split())
    # A closed or full standard error leaves the exit code to tell of the failure.
    with suppress(OSError):
        console.warn(f"svcbroker {name}: {line}" if name else f"svcbroker: {line}")
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
