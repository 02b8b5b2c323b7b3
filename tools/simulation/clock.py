"""
A virtual clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any

from twisted.internet.error import AlreadyCalled, AlreadyCancelled
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from zope.interface import implementer


@implementer(IDelayedCall)
class Alarm:
    """
    A delayed call of a L{VirtualClock}.

    @ivar ticket: identifies the current entry in the clock's heap; -1 if there is none.
    """

    __slots__ = ("_arguments", "_call", "_clock", "_isCancelled", "_time", "ticket")

    def __init__(
        self, clock: VirtualClock, time: float, call: Callable[..., Any], arguments: Sequence[Any]
    ) -> None:
        self._clock = clock
        self._time = time
        self._call = call
        self._arguments = arguments
        self._isCancelled = False
        self.ticket = clock.enqueue(time, self)

    def active(self) -> bool:
        return self.ticket >= 0

    def getTime(self) -> float:
        return self._time

    def cancel(self) -> None:
        self._checkActive()
        self._isCancelled = True
        self.ticket = -1

    def delay(self, secondsLater: float) -> None:
        self._move(self._time + secondsLater)

    def reset(self, secondsFromNow: float) -> None:
        self._move(self._clock.seconds() + secondsFromNow)

    def ring(self) -> None:
        """Make the call."""
        self.ticket = -1
        self._call(*self._arguments)

    def _move(self, time: float) -> None:
        self._checkActive()
        self._time = time
        self.ticket = self._clock.enqueue(time, self)

    def _checkActive(self) -> None:
        if self.ticket < 0:
            raise AlreadyCancelled() if self._isCancelled else AlreadyCalled()


@implementer(IReactorTime)
class VirtualClock:
    """
    A reactor's clock on a heap. C{twisted.internet.task.Clock} sorts a list instead, which is too
    slow for thousands of delayed calls. Calls due at the same time are made in the order in which
    they were scheduled.
    """

    def __init__(self, now: float = 0.0) -> None:
        self._now = now
        self._heap: list[tuple[float, int, Alarm]] = []
        self._tickets = count()

    def seconds(self) -> float:
        return self._now

    def callLater(self, delay: float, callable: Callable[..., Any], *args: Any, **kw: Any) -> Alarm:
        call = partial(callable, **kw) if kw else callable
        return Alarm(self, self._now + delay, call, args)

    def getDelayedCalls(self) -> Sequence[Alarm]:
        return [alarm for _, ticket, alarm in self._heap if alarm.ticket == ticket]

    def enqueue(self, time: float, alarm: Alarm) -> int:
        """
        Put a delayed call into the heap, again if it was moved.

        @return: a ticket that tells this entry from earlier ones of the same call.
        """
        ticket = next(self._tickets)
        heappush(self._heap, (time, ticket, alarm))
        return ticket

    def runUntil(self, end: float, isEnough: Callable[[], bool] | None = None) -> None:
        """
        Make all calls due up to a time, and advance to that time.

        @param isEnough: called after each call; C{True} stops at once.
        """
        heap = self._heap
        while heap and heap[0][0] <= end:
            time, ticket, alarm = heappop(heap)
            if alarm.ticket != ticket:
                continue  # moved or cancelled
            if time > self._now:
                self._now = time
            alarm.ring()
            if isEnough is not None and isEnough():
                return
        self._now = max(self._now, end)
