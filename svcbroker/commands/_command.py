"""
What a command is: its line in the table, its exit codes and where it writes. It imports neither
click nor Twisted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from enum import IntEnum
from getpass import getpass
from importlib import import_module
from typing import Any, TextIO

from attrs import field, frozen


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
    CONTRADICTION = 3
    """The validators of a chain have signed two histories of it."""
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


_MAX_LINE = 64 * 1024


@frozen
class Command:
    """
    One command.

    @ivar name: its name on the command line.
    @ivar summary: what it does, in a sentence.
    @ivar command: a C{click.Command} that is it.
    @ivar module: else the module that has it; by default the one of its name here. It has one of

          - C{command}: a C{click.Command} whose callback takes a L{Console} first and returns the
            exit code,
          - C{COMMANDS}: the table of its own commands, C{HELP}: a text about them, and where they
            ask a daemon C{DEFAULT}: the one that is meant if none is named, or an empty text.
    """

    name: str
    summary: str
    module: str = field(default="", kw_only=True)
    command: Any = field(default=None, kw_only=True)

    @classmethod
    def of(cls, name: str, command: Any) -> Command:
        """A C{click.Command} under a name, with the first sentence of its help text."""
        return cls(name, command.get_short_help_str(limit=200), command=command)

    def load(self) -> Any:
        """Import its module, if it has one."""
        if self.command is not None:
            return self
        return import_module(self.module or f"{__package__}.{self.name}")
