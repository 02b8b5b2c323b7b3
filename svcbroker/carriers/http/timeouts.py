"""
Time-outs that cost a connection nothing while it is in use.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall
from twisted.protocols.policies import TimeoutMixin


class LazyTimeouts(TimeoutMixin):
    """
    Does what its parent does, to the same moment. But hearing from the client moves no timer: the
    timer looks, when it fires, whether that is too early, and waits for the rest.

    @ivar timeOut: how long the client may be silent, in seconds; C{None} for ever.
    @ivar now: the time that is measured by; set before the first time-out.
    """

    timeOut: float | None  # type: ignore[assignment]
    now: Callable[[], float]

    _timer: IDelayedCall | None = None
    _heard = 0.0
    _isSuspended = False

    def setTimeout(self, period: float | None) -> float | None:
        """See C{TimeoutMixin}."""
        previous, self.timeOut = self.timeOut, period
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if period is not None:
            self._heard = self.now()
            self._timer = self.callLater(period, self._look)
        return previous

    def resetTimeout(self) -> None:
        """See C{TimeoutMixin}."""
        self._heard = self.now()

    def suspendTimeout(self) -> None:
        """It is not the client who is waited for."""
        self._isSuspended = True

    def resumeTimeout(self) -> None:
        """It is the client's turn, from now."""
        self._isSuspended = False
        self._heard = self.now()

    def _look(self) -> None:
        self._timer = None
        assert self.timeOut is not None
        left = self.timeOut
        if not self._isSuspended:
            left += self._heard - self.now()
        if left > 0:
            self._timer = self.callLater(left, self._look)
        else:
            self.timeoutConnection()
