"""
Waiting for the chain, but not for ever.
"""

from __future__ import annotations

from collections import deque
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from ..errors import BrokerError, TransactionTimeout

T = TypeVar("T")


class TimeoutQueue:
    """
    The Deferreds of callers who wait for the chain, in the order in which they came.

    All wait equally long, so the first of them is the first whose time is over, and one timer is
    enough for all of them. Those that have fired stay in the queue until none before them waits;
    so callers whose answers come in the same order should share one, and others should not.

    A time-out, or a cancelled answer, does not cancel the call of the ledger.
    """

    _log = Logger()

    def __init__(self, clock: IReactorTime, timeout: float) -> None:
        """
        @param clock: measures the time.
        @param timeout: the longest wait, in seconds.
        """
        self._clock = clock
        self._timeout = timeout
        self._queue: deque[tuple[float, Deferred[Any]]] = deque()
        self._timer: IDelayedCall | None = None

    def __len__(self) -> int:
        """How many wait."""
        return sum(not waiter.called for _, waiter in self._queue)

    def wait(self, pending: Deferred[T]) -> Deferred[T]:
        """
        Wait for C{pending}, which belongs to the waiter from now on.

        @return: fires as C{pending} does, or fails with
            L{TransactionTimeout<svcbroker.errors.TransactionTimeout>} after the time-out.
        """
        if pending.called and not pending.paused:
            return pending
        waiter: Deferred[T] = Deferred(_ignoreCancel)
        self.limit(waiter)
        pending.addBoth(self._settle, waiter)
        return waiter

    def limit(self, waiter: Deferred[Any]) -> None:
        """
        Fail C{waiter} itself with C{TransactionTimeout} after the time-out. Only for a Deferred
        that its owner does not fire a second time, such as C{done} of a
        L{Submission<svcbroker.interfaces.Submission>}: this saves another Deferred.
        """
        queue = self._queue
        while queue and queue[0][1].called:
            queue.popleft()
        queue.append((self._clock.seconds() + self._timeout, waiter))
        if self._timer is None:
            self._timer = self._clock.callLater(self._timeout, self._expire)

    def stop(self) -> None:
        """
        Cancel the timer. Called once, after the ledgers have stopped: they have answered
        everything by then.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _settle(self, result: Any, waiter: Deferred[Any]) -> None:
        if not waiter.called:
            waiter.callback(result)
        elif isinstance(result, Failure) and not isinstance(result.value, BrokerError):
            self._log.failure("The chain failed after its caller had left", failure=result)

    def _expire(self) -> None:
        # The spent timer stays in its place until the end, so that a wait() that begins
        # in here does not set one of its own.
        now, queue = self._clock.seconds(), self._queue
        while queue:
            deadline, waiter = queue[0]
            if waiter.called:
                queue.popleft()
            elif deadline > now:
                self._timer = self._clock.callLater(deadline - now, self._expire)
                return
            else:
                queue.popleft()
                waiter.errback(TransactionTimeout())
        self._timer = None


def _ignoreCancel(waiter: Deferred[Any]) -> None:
    """A canceller: what was waited for goes on, and is not given to the waiter."""
