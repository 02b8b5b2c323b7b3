"""
Output and exit codes of commands: the console, errors, tables, progress bars, and text from
elsewhere escaped for terminals. It imports neither click nor Twisted.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from difflib import get_close_matches
from enum import IntEnum
from getpass import getpass
from hashlib import sha256
from time import monotonic
from typing import Any, TextIO, TypeAlias, TypeVar

from attrs import field, frozen


class Exit(IntEnum):
    """
    The exit codes of every command.
    """

    GOOD = 0
    """It was done, or what was checked is good."""
    BAD = 1
    """The check has found something bad, or a daemon refused a request."""
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
    The output of a command: results to C{output}, everything else to C{errors}.

    Bytes go to C{output.buffer}.
    """

    output: TextIO = field(factory=lambda: sys.stdout)
    errors: TextIO = field(factory=lambda: sys.stderr)

    def say(self, line: str) -> None:
        """Write a line of the results."""
        self.output.write(f"{line}\n")

    def sayJson(self, value: Any) -> None:
        """Write a value as a line of JSON."""
        self.say(json.dumps(value))

    def warn(self, line: str) -> None:
        """Write a line that belongs to no result."""
        self.errors.write(f"{line}\n")


def didYouMean(word: str, known: Sequence[str] | Mapping[str, str]) -> str:
    """
    The end of a message about an unknown word: the known one that is nearest, if any is near.

    @param known: the known words, or what is told for each of them.
    """
    for nearest in get_close_matches(word, [*known], 1):
        return f"; did you mean {known[nearest] if isinstance(known, Mapping) else nearest}?"
    return ""


def readLine(prompt: str) -> str:
    """
    A secret: asked for on a terminal, else the first line of standard input.

    @raise CommandError: there is none.
    """
    isTerminal = sys.stdin.isatty()
    line = getpass(prompt) if isTerminal else sys.stdin.readline(_MAX_LINE).rstrip("\r\n")
    if not line:
        raise CommandError("there is no password")
    return line


_MAX_LINE = 64 * 1024


LONGEST = 500
"""Characters of a text that are shown."""


def printable(text: str) -> str:
    """A text on one line: unprintable characters are escaped."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii")
        for each in text
    )


def quoted(text: str) -> str:
    """The same of a text that is cut short where it is long."""
    return printable(text[:LONGEST] + ("..." if len(text) > LONGEST else ""))


def notProved(console: Console, error: Exception, asJson: bool, says: str = "proved") -> int:
    """
    Tell why something is not proved.

    @param says: the member of the JSON that says whether it is.
    """
    if asJson:
        console.sayJson({says: False, "reason": str(error)})
    else:
        console.say(f"NOT PROVED: {quoted(str(error))}")
    return Exit.BAD


def contentText(content: bytes) -> str:
    """
    An event's content: the text where it is one, its size and its hash.
    """
    size = f"{len(content)} bytes, SHA-256 {sha256(content).hexdigest()}"
    try:
        return f'"{quoted(content.decode("utf-8"))}" ({size})'
    except UnicodeDecodeError:
        return f"binary ({size})"


def timeText(milliseconds: int) -> str:
    """
    A time in UTC. One that no calendar has is its number.
    """
    try:
        moment = datetime.fromtimestamp(milliseconds // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} milliseconds after 1970"
    return f"{moment:%Y-%m-%d %H:%M:%S}.{milliseconds % 1000:03} UTC"


def erasedText(time: int, account: str, reason: str) -> str:
    """
    An erasure: its day in UTC, the account and the reason, as far as they are known.

    @param time: milliseconds since the epoch; 0 where it is not known.
    """
    text = "erased"
    if time:
        # A time that no calendar has is a number of milliseconds.
        shown = timeText(time)
        text += f" {shown.partition(' ')[0] if shown.endswith(' UTC') else f'at {shown}'}"
    if account:
        text += f" by {quoted(account)}"
    return f"{text}: {quoted(reason)}" if reason else text


def counted(count: int, noun: str) -> str:
    """So many of something."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def isPlain(stream: TextIO) -> bool:
    """
    Whether a stream gets no colours and no movements of the cursor: it is no terminal, or
    C{NO_COLOR} is set.
    """
    return not stream.isatty() or bool(os.environ.get("NO_COLOR"))


def showTable(
    console: Console,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    lines: Iterable[str],
) -> None:
    """
    Show records.

    @param rows: the cells of each, for a terminal. Unprintable characters are escaped by now.
    @param lines: each in a line, for everything else.
    """
    if not console.output.isatty():
        for line in lines:
            console.say(line)
        return
    from rich.console import Console as Terminal
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns)
    for row in rows:
        table.add_row(*map(Text, row))
    Terminal(file=console.output, color_system=None if isPlain(console.output) else "auto").print(
        table
    )


def showRecord(console: Console, record: Any, lines: Iterable[str], asJson: bool) -> None:
    """
    Show the result of a command: as a line of JSON, or in lines for people.
    """
    if asJson:
        console.sayJson(record)
    else:
        for line in lines:
            console.say(line)


T = TypeVar("T")

ReportProgress: TypeAlias = Callable[[int, int | None], None]
"""C{report(done, total)}: how much is done by now, of how much in all where that is known."""


@contextmanager
def progressBar(
    console: Console,
    label: str,
    unit: str = "blocks",
    *,
    isWanted: bool = False,
    isResultShown: bool = False,
) -> Iterator[ReportProgress]:
    """
    While the context lasts, show how far a command is: on standard error, where that is a
    terminal or C{--progress} was given.

    @param label: what is going on, in a word or two.
    @param isWanted: whether C{--progress} was given.
    @param isResultShown: whether results that go to a terminal show how far the command is.
    @return: what is to be called, as often as one likes: drawing is bounded.
    """
    isSeen = isResultShown and console.output.isatty()
    if not isWanted and (isSeen or isPlain(console.errors)):
        yield _ignore
        return
    if isPlain(console.errors):
        yield _lineReporter(console, label, unit)
        return
    from rich.console import Console as Terminal
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn(unit), Remaining())
    terminal = Terminal(file=console.errors)
    with Progress(TextColumn("{task.description}"), *columns, console=terminal) as bars:
        bar = bars.add_task(label, total=None)

        def report(done: int, total: int | None) -> None:
            bars.update(bar, completed=done, total=total)

        yield report


def reported(items: Iterable[T], report: ReportProgress, total: int | None = None) -> Iterator[T]:
    """
    The same items; reports after each that has been taken care of.
    """
    report(0, total)
    for done, item in enumerate(items, 1):
        yield item
        report(done, total)


def _ignore(done: int, total: int | None) -> None:
    pass


PROGRESS_INTERVAL = 2.0
"""Seconds between two lines that say how far a command is."""


def _lineReporter(console: Console, label: str, unit: str) -> ReportProgress:
    """Says how far a command is in a line now and then, and at its end."""
    told = monotonic()

    def report(done: int, total: int | None) -> None:
        nonlocal told
        if done == total or monotonic() - told >= PROGRESS_INTERVAL:
            told = monotonic()
            console.warn(f"{label}: {done}{'' if total is None else f'/{total}'} {unit}")
            console.errors.flush()

    return report
