"""
Timers that are moved far more often than they fire.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime

NEVER: Final = float("inf")


class LazyTimer:
    """
    A timer whose deadline is moved with every packet, request or block, and seldom reached.

    Moving it to a later time is an assignment to L{deadline}, and stopping it, too: when the
    reactor's call comes, it looks at the deadline, and waits for the rest.

    @ivar deadline: when it fires, by the clock; L{NEVER} where it does not. While it is running it
        may be set to a later time, or to L{NEVER}; to an earlier one only by L{start} or
        L{startAt}.
    """

    def __init__(self, clock: IReactorTime, fire: Callable[[], object]) -> None:
        """
        @param fire: called when the deadline is reached. The timer does not run any more by then,
            and may be started again.
        """
        self.deadline = NEVER
        self._clock = clock
        self._fire: Callable[[], object] | None = fire
        self._call: IDelayedCall | None = None
        # When the reactor's call comes.
        self._due = NEVER

    def start(self, delay: float) -> None:
        """Fire after C{delay} seconds, and not when it was to fire before."""
        if self._fire is None:
            return
        deadline = self.deadline = self._clock.seconds() + delay
        if self._due > deadline:
            self._schedule(delay)

    def startAt(self, deadline: float) -> None:
        """Fire at a time by the clock, and not when it was to fire before."""
        if self._fire is None:
            return
        self.deadline = deadline
        if self._due > deadline:
            self._schedule(max(0.0, deadline - self._clock.seconds()))

    def stop(self) -> None:
        """Do not fire."""
        self.deadline = NEVER

    def close(self) -> None:
        """
        Do not fire, leave nothing with the reactor, and ignore later starts. What would have been
        called is dropped, so that no cycle with its owner is left for the garbage collector.
        """
        self.deadline = self._due = NEVER
        self._fire = None
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def _schedule(self, delay: float) -> None:
        # Twisted's reset searches all delayed calls for one that is moved to an earlier time: with
        # ten thousand connections that takes 2 ms.
        if self._call is not None:
            self._call.cancel()
        self._due = self.deadline
        self._call = self._clock.callLater(delay, self._look)

    def _look(self) -> None:
        self._call = None
        self._due = NEVER
        if self.deadline == NEVER or self._fire is None:
            return
        left = self.deadline - self._clock.seconds()
        if left > 0:
            self._schedule(left)
        else:
            self.deadline = NEVER
            self._fire()
