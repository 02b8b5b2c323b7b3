"""
What waits for durable subscriptions, as operators watch it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from attrs import define, frozen
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from ...errors import BrokerError
from ...interfaces import ILedger
from ...model import Position, filterMatches
from ...net.deferreds import asDeferred
from ._follower import Follower
from ._positions import KeptPositions
from ._subscription import LogSubscription

SLICE: Final = 0.005
"""For how long subscriptions are looked at without a pause, in seconds."""

PAUSE: Final = 200
"""How many times as long as that the pause is: looking takes half a per cent of the time."""

MIN_PERIOD: Final = 1.0
"""The least time from the end of a survey to the next one, in seconds."""


@frozen
class Holder:
    """
    What a position belongs to that has an end of its own: a session or a webhook.

    @ivar kind: C{mqtt} or C{webhook}.
    @ivar name: what operators call it.
    @ivar filters: tells what it subscribes to now.
    """

    kind: str
    name: str
    filters: Callable[[], Sequence[str]]


@frozen(kw_only=True)
class WaitingEvents:
    """
    The events that wait for a durable subscription.

    @ivar kind: C{stomp}, C{mqtt} or C{webhook}.
    @ivar name: its id, the client id of its MQTT session, or the filter of a shared subscription.
    @ivar count: how many events match its filters and are not acknowledged. Those count too that
        are erased, have another tag, or may not be read by its account.
    @ivar oldest: the time of the first one's block, in milliseconds since the epoch; C{None} where
        none waits.
    """

    group: str
    kind: str
    name: str
    count: int
    oldest: int | None


@frozen(kw_only=True)
class Survey:
    """
    The events that wait for all durable subscriptions of which the filters are known.

    @ivar endedAt: when it ended, in the clock's seconds.
    """

    waiting: Sequence[WaitingEvents] = ()
    endedAt: float = 0.0


@define
class _Known:
    """
    What is known of a subscription as long as its position stays.

    @ivar rest: how many events wait in the block of the position.
    @ivar oldest: the time of the first waiting event; C{None} where none has waited so far.
    """

    position: Position
    filters: Sequence[str]
    rest: int
    oldest: int | None = None


class Backlog:
    """
    Surveys the durable subscriptions when it is asked, a few at a time.

    Live ones with nothing to do cost some microseconds; those that are behind or absent some tens,
    or with patterns as much as all topics take to look through.
    """

    _log = Logger()

    def __init__(
        self,
        followers: Mapping[str, Follower],
        positions: KeptPositions,
        live: Mapping[str, LogSubscription],
        held: Mapping[str, Holder],
        clock: IReactorTime,
    ) -> None:
        """
        @param live: the live subscriptions, by their ids.
        @param held: what positions belong to, by their ids.
        """
        self._followers = followers
        self._positions = positions
        self._live = live
        self._held = held
        self._clock = clock
        self._survey = Survey()
        self._known: dict[str, _Known] = {}
        self._running: Deferred[None] | None = None

    def stop(self) -> None:
        """End the survey that is under way."""
        if self._running is not None:
            self._running.cancel()

    def survey(self) -> Survey:
        """
        The last survey. Begins the next one; where that takes less than L{SLICE}, it is the one.
        """
        isDue = self._clock.seconds() - self._survey.endedAt >= MIN_PERIOD
        if self._running is None and isDue:
            self._running = running = self._look()
            running.addErrback(self._failed).addCallback(self._ended)
        return self._survey

    def _failed(self, failure: Failure) -> None:
        if not failure.check(CancelledError, BrokerError):
            self._log.failure("What waits for subscriptions was not counted", failure)

    def _ended(self, _: None) -> None:
        self._running = None

    @asDeferred
    async def _look(self) -> None:
        waiting, known = [], self._known
        begun = self._clock.seconds()
        for subscriptionId in self._positions.ids():
            found = await self._lookAt(subscriptionId)
            if found is not None:
                waiting.append(found)
            elapsed = self._clock.seconds() - begun
            if elapsed > SLICE:
                await deferLater(self._clock, elapsed * PAUSE)
                begun = self._clock.seconds()
        for subscriptionId in [each for each in known if not self._positions.has(each)]:
            del known[subscriptionId]
        self._survey = Survey(waiting=waiting, endedAt=self._clock.seconds())

    async def _lookAt(self, subscriptionId: str) -> WaitingEvents | None:
        """
        Count what waits for a subscription.

        @return: C{None} where its filters are not known, or it has gone.
        """
        kept, live = self._positions.find(subscriptionId), self._live.get(subscriptionId)
        if kept is None or kept.group not in self._followers:
            return None
        holder = self._held.get(subscriptionId)
        kind, name = ("stomp", subscriptionId) if holder is None else (holder.kind, holder.name)
        filters: Sequence[str]
        if live is not None:
            filters, position = live.request.filters, live.stored.position
        elif holder is not None:
            filters, position = tuple(holder.filters()), kept.position
        else:
            filters, position = self._positions.filtersOf(subscriptionId), kept.position
        if not filters:
            return None
        known = self._known.get(subscriptionId)
        if known is None or known.position != position or known.filters != filters:
            known = _Known(position, filters, await self._countRest(kept.group, filters, position))
            self._known[subscriptionId] = known
        count = await self._count(kept.group, known)
        return WaitingEvents(
            group=kept.group, kind=kind, name=name, count=count, oldest=known.oldest
        )

    async def _countRest(self, group: str, filters: Sequence[str], position: Position) -> int:
        """How many events wait in the block in which a position lies."""
        follower, height = self._followers[group], position.height
        if position.index < 0 or not 0 < height <= follower.height:
            return 0
        events = (await follower.readBlock(height)).events
        return sum(
            event.index > position.index
            and any(filterMatches(filter, event.topic) for filter in filters)
            for event in events
        )

    async def _count(self, group: str, known: _Known) -> int:
        """Count what waits, and find out since when."""
        follower = self._followers[group]
        ledger, position = follower.ledger, known.position
        first = max(1, position.height + (position.index >= 0))
        later = 0
        if first <= follower.height:
            later = await ledger.countEvents(known.filters, first)
        count = known.rest + later
        if count and known.oldest is None:
            height = position.height
            if not known.rest:
                height = await _firstHeight(ledger, known.filters, first, follower.height, later)
            page = await ledger.listBlocks(0, 1, height=height)
            known.oldest = page.items[0].timestamp if page.items else None
        return count


async def _firstHeight(
    ledger: ILedger, filters: Sequence[str], low: int, high: int, count: int
) -> int:
    """
    The height of the first block with matching events.

    @param low: a height from which on there are C{count} matching events.
    @param high: the height of the last block.
    """
    while low < high:
        middle = (low + high + 1) // 2
        if await ledger.countEvents(filters, middle) == count:
            low = middle
        else:
            high = middle - 1
    return low
