"""
How far a long command is: the one place that knows a progress bar.

What does the work, in rooms below, takes a callable of two numbers and knows nothing of bars.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeAlias, TypeVar

from ._command import Console

T = TypeVar("T")

Report: TypeAlias = Callable[[int, int | None], None]
"""C{report(done, total)}: how much is done by now, of how much in all where that is known."""


@contextmanager
def progressBar(
    console: Console,
    label: str,
    unit: str = "blocks",
    *,
    isWanted: bool = False,
    isResultShown: bool = False,
) -> Iterator[Report]:
    """
    While the context lasts, show how far a command is: on standard error, where that is a
    terminal or C{--progress} was given.

    @param label: what is going on, in a word or two.
    @param isWanted: whether C{--progress} was given.
    @param isResultShown: whether results that go to a terminal show how far the command is.
    @return: what is to be called, as often as one likes: drawing is bounded.
    """
    isSeen = isResultShown and console.output.isatty()
    if not isWanted and (isSeen or not console.errors.isatty()):
        yield _ignore
        return
    from rich.console import Console as Terminal
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn(unit), Remaining())
    terminal = Terminal(file=console.errors, force_terminal=True)
    with Progress(TextColumn("{task.description}"), *columns, console=terminal) as bars:
        bar = bars.add_task(label, total=None)

        def report(done: int, total: int | None) -> None:
            bars.update(bar, completed=done, total=total)

        yield report


def counted(items: Iterable[T], report: Report, total: int | None = None) -> Iterator[T]:
    """
    The same items; reports after each that has been taken care of.
    """
    report(0, total)
    for done, item in enumerate(items, 1):
        yield item
        report(done, total)


def _ignore(done: int, total: int | None) -> None:
    pass
