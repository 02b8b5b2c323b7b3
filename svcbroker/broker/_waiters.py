"""
Waiting for the chain, but not for ever.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from ..errors import BrokerError, TransactionTimeout

T = TypeVar("T")


class Waiters:
    """
    Everybody who waits for the chain, in the order in which they came.

    All wait equally long, so the first in the queue is the first to give up, and one timer is
    enough for all of them, however many there are.

    Who gives up, or is cancelled, stops waiting and nothing else: what they waited for is not
    cancelled and takes its course.
    """

    _log = Logger()

    def __init__(self, clock: IReactorTime, timeout: float) -> None:
        """
        @param clock: measures the time.
        @param timeout: the longest wait, in seconds.
        """
        self._clock = clock
        self._timeout = timeout
        self._deadlines: OrderedDict[Deferred[Any], float] = OrderedDict()
        self._timer: IDelayedCall | None = None

    def __len__(self) -> int:
        """How many wait."""
        return len(self._deadlines)

    def wait(self, pending: Deferred[T]) -> Deferred[T]:
        """
        Wait for C{pending}, which belongs to the waiter from now on.

        @return: fires as C{pending} does, or fails with
            L{TransactionTimeout<svcbroker.errors.TransactionTimeout>} after the time-out.
        """
        if pending.called and not pending.paused:
            return pending
        waiter: Deferred[T] = Deferred(self._leave)
        self._deadlines[waiter] = self._clock.seconds() + self._timeout
        if self._timer is None:
            self._timer = self._clock.callLater(self._timeout, self._expire)
        pending.addBoth(self._settle, waiter)
        return waiter

    def stop(self) -> None:
        """
        Let go of the timer. Called once, after the ledgers have stopped: they have answered
        everything by then, so nobody waits any more.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _leave(self, waiter: Deferred[Any]) -> None:
        self._deadlines.pop(waiter, None)

    def _settle(self, result: Any, waiter: Deferred[Any]) -> None:
        if self._deadlines.pop(waiter, None) is not None:
            waiter.callback(result)
        elif isinstance(result, Failure) and not isinstance(result.value, BrokerError):
            self._log.failure("The chain failed after everybody had left", failure=result)

    def _expire(self) -> None:
        # The spent timer stays in its place until the end, so that a wait() that begins
        # in here does not set one of its own.
        now = self._clock.seconds()
        while self._deadlines:
            waiter, deadline = self._deadlines.popitem(last=False)
            if deadline > now:
                self._deadlines[waiter] = deadline
                self._deadlines.move_to_end(waiter, last=False)
                self._timer = self._clock.callLater(deadline - now, self._expire)
                return
            waiter.errback(TransactionTimeout())
        self._timer = None
