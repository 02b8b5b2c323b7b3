"""
Work that is put off to the end of a turn of the reactor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

TRY_EVERY: Final = 32
"""How many calls are made at once, after a turn in which there was only one."""

_log = Logger()


class EndOfTurn:
    """
    Makes calls when all that arrived in this turn of the reactor has been handled. One queue,
    and one delayed call of the reactor, serves all connections.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._calls: list[Callable[[], object]] = []
        self._scheduled: IDelayedCall | None = None
        self._untilTry = TRY_EVERY

    def add(self, call: Callable[[], object]) -> None:
        """
        Make a call at the end of this turn. One that is added during such a call is made at the
        end of the next turn. The failure of a call is logged.
        """
        if self._scheduled is None:
            self._scheduled = self._clock.callLater(0, self._end)
        self._calls.append(call)

    def addOrCall(self, call: Callable[[], object]) -> None:
        """
        Make a call at the end of this turn, or at once where turns seldom have more than one.

        A client that is answered wakes up, and to wake another processor costs more than to send
        an answer, so many answers are sent together. A lone answer would only wait: after a turn
        with one call, the next L{TRY_EVERY} are made at once.
        """
        if self._untilTry:
            self._untilTry -= 1
            call()
        else:
            self.add(call)

    def stop(self) -> None:
        """Make none of the calls that wait. Others may still be added."""
        self._calls.clear()
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._scheduled = None

    def _end(self) -> None:
        self._scheduled = None
        calls, self._calls = self._calls, []
        if len(calls) == 1:
            self._untilTry = TRY_EVERY
        for call in calls:
            try:
                call()
            except Exception:
                _log.failure("A call at the end of a turn failed")
