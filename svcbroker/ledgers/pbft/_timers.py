"""
Timers that are started far more often than they fire.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime


class LazyTimer:
    """
    A timer that is restarted at every block and almost never fires. Restarting it does not touch
    the reactor's heap: a delayed call that comes too early is scheduled again.
    """

    def __init__(self, reactor: IReactorTime, fire: Callable[[], None]) -> None:
        """
        @param fire: called when the time has passed.
        """
        self._reactor = reactor
        self._fire = fire
        self._deadline: float | None = None
        self._call: IDelayedCall | None = None
        self._isClosed = False

    def start(self, delay: float) -> None:
        """Fire after C{delay} seconds. Replaces an earlier start."""
        if self._isClosed:
            return
        deadline = self._deadline = self._reactor.seconds() + delay
        if self._call is None:
            self._call = self._reactor.callLater(delay, self._look)
        elif self._call.getTime() > deadline:
            self._call.reset(delay)

    def stop(self) -> None:
        """Cancel the timer."""
        self._deadline = None

    def close(self) -> None:
        """Cancel the timer for good, and remove its call from the reactor."""
        self.stop()
        self._isClosed = True
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def _look(self) -> None:
        self._call = None
        if self._deadline is None:
            return
        left = self._deadline - self._reactor.seconds()
        if left > 0:
            self._call = self._reactor.callLater(left, self._look)
        else:
            self._deadline = None
            self._fire()
