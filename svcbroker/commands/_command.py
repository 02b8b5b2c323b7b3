"""
What a command is: its line in the table, its options, its exit codes and where it writes.
"""

from __future__ import annotations

import getopt
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from enum import IntEnum
from getpass import getpass
from importlib import import_module
from typing import Any, TextIO

from attrs import field, frozen
from twisted.python import usage

from ..version import readVersion


class Exit(IntEnum):
    """
    The exit codes of every command.
    """

    GOOD = 0
    """It was done, or what was checked is good."""
    BAD = 1
    """What was checked is not good, or a daemon refused what it was asked."""
    USAGE = 2
    """Wrong usage, or nothing could be tried: no such file, no running daemon."""
    INTERNAL = 70
    """An unexpected exception: a bug."""
    INTERRUPTED = 130
    """Ctrl-C."""
    BROKEN_PIPE = 141
    """The reader of the output has closed it."""


class CommandError(Exception):
    """
    A command cannot go on. The text is one line for the operator.

    @ivar code: the exit code.
    """

    def __init__(self, message: str, code: int = Exit.USAGE) -> None:
        super().__init__(message)
        self.code = code


@frozen(kw_only=True)
class Console:
    """
    Where a command writes: results to C{output}, everything else to C{errors}.

    Bytes go to C{output.buffer}.
    """

    output: TextIO = field(factory=lambda: sys.stdout)
    errors: TextIO = field(factory=lambda: sys.stderr)

    def say(self, line: str) -> None:
        """Write a line of the results."""
        self.output.write(f"{line}\n")

    def warn(self, line: str) -> None:
        """Write a line that belongs to no result."""
        self.errors.write(f"{line}\n")


def didYouMean(word: str, known: Sequence[str], prefix: str = "") -> str:
    """The end of a message about an unknown word: the known one that is nearest, if any is near."""
    nearest = get_close_matches(word, known, 1)
    return f"; did you mean {prefix}{nearest[0]}?" if nearest else ""


class VersionedOptions(usage.Options):
    """
    Options that know our version, and borrow no help text from elsewhere.
    """

    longdesc = ""

    opt_h = usage.Options.opt_help

    def opt_version(self) -> None:
        """Show the version and exit."""
        sys.stdout.write(f"svcbroker {readVersion().version}\n")
        raise SystemExit(0)


def readLine(prompt: str, stdin: TextIO | None = None, ask: Callable[[str], str] = getpass) -> str:
    """
    A secret: asked for on a terminal, else the first line of standard input.

    @raise CommandError: there is none.
    """
    source = sys.stdin if stdin is None else stdin
    line = ask(prompt) if source.isatty() else source.readline(_MAX_LINE).rstrip("\r\n")
    if not line:
        raise CommandError("there is no password")
    return line


def readChain(text: str) -> bytes:
    """
    The id of a chain, as the option C{--chain} has it.

    @raise usage.UsageError: it is not one.
    """
    digits = text.removeprefix("0x")
    try:
        value = bytes.fromhex(digits)
    except ValueError:
        value = b""
    if len(value) != 32 or len(digits) != 64:
        raise usage.UsageError("--chain: a hash has 64 hexadecimal digits")
    return value


_MAX_LINE = 64 * 1024
_TWISTED_COUNTS = "Wrong number of arguments."
"""All that C{usage.Options} says of it."""


class CommandOptions(VersionedOptions):
    """
    The options of a command. Bad values raise C{usage.UsageError} with one line. Options may
    stand behind arguments, too.

    @cvar synopsis: the arguments, for the help text.
    """

    synopsis = "[options]"

    def parseOptions(self, options: Sequence[str] | None = None) -> None:
        """See C{usage.Options}."""
        try:
            given, arguments = getopt.gnu_getopt(list(options or ()), self.shortOpt, self.longOpt)
        except getopt.GetoptError as error:
            names = [name.removesuffix("=") for name in self.longOpt]
            raise usage.UsageError(error.msg + didYouMean(error.opt, names, "--")) from None
        sorted = [
            f"{name}={value}" if f"{name[2:]}=" in self.longOpt else name + value
            for name, value in given
        ]
        try:
            super().parseOptions([*sorted, "--", *arguments])
        except usage.UsageError as error:
            if str(error) != _TWISTED_COUNTS:
                raise
            raise usage.UsageError(f"Wrong number of arguments: {self.synopsis}") from None


class ProgressOptions(CommandOptions):
    """
    Options of a command that shows how far it is; see
    L{progressBar<svcbroker.commands._progress.progressBar>}.
    """

    optFlags = [
        ["progress", None, "Show a progress bar on standard error although it is no terminal."]
    ]


@frozen
class Command:
    """
    One command.

    @ivar name: its name on the command line.
    @ivar summary: what it does, in a sentence.
    @ivar module: the module that has its C{Options} and its C{run(options, console)}, which
        returns the exit code or raises L{CommandError}; by default the one of its name here.
    """

    name: str
    summary: str
    module: str = field(default="", kw_only=True)

    def load(self) -> Any:
        """Import its module."""
        return import_module(self.module or f"{__package__}.{self.name}")
