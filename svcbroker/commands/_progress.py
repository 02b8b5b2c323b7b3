"""
How far a long command is: the one place that knows a progress bar.

What does the work, in rooms below, takes a callable of two numbers and knows nothing of bars.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar

from ._command import Console

T = TypeVar("T")

Report: TypeAlias = Callable[[int, int | None], None]
"""C{report(done, total)}: how much is done by now, of how much in all where that is known."""


@contextmanager
def progressBar(
    console: Console, options: Mapping[str, Any], label: str, unit: str = "blocks"
) -> Iterator[Report]:
    """
    While the context lasts, show how far a command is: on standard error, where that is a
    terminal or C{--progress} was given.

    @param options: the command's
        L{ProgressOptions<svcbroker.commands._command.ProgressOptions>}.
    @param label: what is going on, in a word or two.
    @return: what is to be called, as often as one likes: drawing is bounded.
    """
    if not (options.get("progress") or console.errors.isatty()):
        yield _ignore
        return
    from tqdm import tqdm

    with tqdm(desc=label, unit=f" {unit}", file=console.errors, dynamic_ncols=True) as bar:

        def report(done: int, total: int | None) -> None:
            bar.total = total
            bar.update(done - bar.n)

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
