"""
The end of durable positions that nobody uses any more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import islice
from typing import Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from ._positions import SECONDS_A_DAY, KeptPositions, ServedDays

INTERVAL: Final = 3600.0
"""Seconds before the first sweep, in which clients come back after a start, and between sweeps."""

PIECE: Final = 500
"""How many positions a turn of the reactor looks at: some milliseconds."""


def dayOf(seconds: float) -> int:
    """The day of a time since the epoch, counted from 1970-01-01."""
    return int(seconds // SECONDS_A_DAY)


class PositionExpiry:
    """
    Removes positions that were not used for some days.

    Days on which the broker did not serve the chain do not count against a position: after a break
    of more than a day, all days are counted from its end.
    """

    _log = Logger()

    def __init__(
        self,
        positions: KeptPositions,
        groups: Collection[str],
        reactor: IReactorTime,
        now: Callable[[], float],
        days: int,
        use: Callable[[str, bool], bool],
    ) -> None:
        """
        @param groups: the groups that are served; positions of others stay.
        @param now: the wall clock: seconds since the epoch.
        @param days: how many days a position is kept that is not used; 0 for ever.
        @param use: C{use(subscriptionId, isDue)} tells whether a position is in use and stays; if
            so and C{isDue}, it stores that it was used today.
        """
        self._positions = positions
        self._groups = groups
        self._reactor = reactor
        self._now = now
        self._days = days
        self._use = use
        self._served: dict[str, ServedDays] = {}
        self._call: IDelayedCall | None = None
        self._removed = 0

    def start(self) -> None:
        """Begin to count days, and sweep each L{INTERVAL}, unless positions are kept for ever."""
        if self._days:
            self._serve()
            self._call = self._reactor.callLater(INTERVAL, self._sweep)

    def stop(self) -> None:
        """Sweep no more."""
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def _serve(self) -> None:
        today = dayOf(self._now())
        for group in self._groups:
            days = self._positions.servedDays(group)
            isBroken = days is None or today - days.last > 1
            first = today if isBroken or days is None else days.first
            self._served[group] = ServedDays(first, today)
            self._positions.serve(group, self._served[group])

    def _sweep(self) -> None:
        self._serve()
        self._removed = 0
        self._sweepOn(iter(self._positions.ids()))

    def _sweepOn(self, ids: Iterator[str]) -> None:
        """Look at the next positions, a piece a turn of the reactor."""
        today = dayOf(self._now())
        piece = tuple(islice(ids, PIECE))
        for subscriptionId in piece:
            self._check(subscriptionId, today)
        if piece:
            self._call = self._reactor.callLater(0, self._sweepOn, ids)
            return
        if self._removed:
            self._log.info(
                "{count} positions of durable subscriptions are removed: they were not used for "
                "{days} days",
                count=self._removed,
                days=self._days,
            )
        self._call = self._reactor.callLater(INTERVAL, self._sweep)

    def _check(self, subscriptionId: str, today: int) -> None:
        kept = self._positions.find(subscriptionId)
        if kept is None or kept.group not in self._served:
            return
        if self._use(subscriptionId, kept.used < today):
            return
        unused = today - max(kept.used, self._served[kept.group].first)
        if unused > self._days:
            self._positions.remove(subscriptionId)
            self._removed += 1
