"""
Probes: names for branches that are rarely taken.

Each says that its branch was taken. Nobody listens but the simulator, which fails at night where no
run has taken one of them. A probe belongs where it costs nothing else: in a branch that healthy
systems do not take for each block or event.

A module of its own: every room may name its rare branches, and the simulator reads them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_listeners: list[Callable[[str], object]] = []


def probe(name: str) -> None:
    """
    Say that a rare branch was taken.

    @param name: the room and the branch, unique in the package: a literal, so that all can be found
        in the source.
    """
    for listener in _listeners:
        listener(name)


@contextmanager
def listening(listener: Callable[[str], object]) -> Iterator[None]:
    """Call a listener with the name of each probe that is reached meanwhile."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
