"""
The backlog of durable subscriptions, as operators watch it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from heapq import nsmallest
from typing import Final

from attrs import define, field, frozen
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from ...errors import BrokerError
from ...model import Position, filterExpression, isPattern
from ...net.deferreds import asDeferred
from ._follower import Follower
from ._logsubscription import LogSubscription
from ._positions import OWN_KIND, KeptPositions
from ._topictree import FilterSet

SLICE: Final = 0.005
"""For how long subscriptions are looked at without a pause, in seconds."""

PAUSE: Final = 200
"""The length of the pause in units of that time: looking takes half a per cent of the time."""

MAX_NAMED: Final = 20
"""The number of subscriptions that a survey names."""

_MAX_CANDIDATES: Final = 1000

TOPICS_AT_ONCE: Final = 1000
"""The number of topics that are listed in one step."""

MATCHED_AT_ONCE: Final = 200
"""The number of topics that are compared with filters in one step."""

_FEW: Final = 8
"""So many filters are one regular expression. Of a thousand it tries one after the other."""

LOOKED_UP_AT_ONCE: Final = 50
"""In how many topics the first event is looked up in one step."""

MIN_PERIOD: Final = 1.0
"""The least time from the end of a survey to the next one, in seconds."""


@frozen
class Holder:
    """
    The holder of a position, with an end of its own: a session or a webhook.

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


@define
class Total:
    """
    The events that wait for the durable subscriptions of a group and a kind.

    @ivar count: how many events.
    @ivar behind: for how many subscriptions.
    @ivar oldest: the time of the oldest event's block, in milliseconds since the epoch; C{None}
        where none waits.
    """

    count: int = 0
    behind: int = 0
    oldest: int | None = None


@define
class Survey:
    """
    The events that wait for all durable subscriptions whose filters are known.

    @ivar totals: by group and kind.
    @ivar worst: the L{MAX_NAMED} subscriptions whose first event has waited longest.
    """

    totals: dict[tuple[str, str], Total] = field(factory=dict)
    worst: Sequence[WaitingEvents] = ()
    _candidates: list[WaitingEvents] = field(factory=list)

    def add(self, waiting: WaitingEvents) -> None:
        """Add a subscription."""
        total = self.totals.setdefault((waiting.group, waiting.kind), Total())
        if waiting.count:
            total.count += waiting.count
            total.behind += 1
            if waiting.oldest is not None:
                total.oldest = min(total.oldest or waiting.oldest, waiting.oldest)
            self._candidates.append(waiting)
            if len(self._candidates) > _MAX_CANDIDATES:
                self.rank()

    def rank(self) -> None:
        """Find the worst of those that were added."""
        self._candidates = nsmallest(MAX_NAMED, self._candidates, key=_byAge)
        self.worst = self._candidates


def _byAge(waiting: WaitingEvents) -> int:
    return waiting.oldest or 0


class _LogSearch:
    """
    The search of one survey in the log of a group, made once for all that subscribe alike.
    """

    def __init__(self, follower: Follower, pace: Callable[[], Awaitable[None]]) -> None:
        """
        @param pace: called between steps that take some milliseconds; waits where it is time to.
        """
        self._follower = follower
        self._ledger = follower.ledger
        self._pace = pace
        self._open: list[str] | None = None
        self._topics: dict[Sequence[str], Sequence[str]] = {}
        self._counts: dict[tuple[Sequence[str], int], int] = {}
        self._heights: dict[tuple[Sequence[str], int], int] = {}

    async def count(self, filters: Sequence[str], first: int) -> int:
        """The number of events from a height on. Those of closed topics match no pattern."""
        if first > self._follower.height:
            return 0
        key = (filters, first)
        if key not in self._counts:
            topics = await self._matching(filters)
            self._counts[key] = await self._ledger.countEvents(topics, first)
        return self._counts[key]

    async def firstHeight(self, filters: Sequence[str], first: int) -> int:
        """The height of the first of these events. There is one."""
        key = (filters, first)
        if key not in self._heights:
            topics = await self._matching(filters)
            heights: list[int] = []
            for start in range(0, len(topics), LOOKED_UP_AT_ONCE):
                if start:
                    await self._pace()
                some = topics[start : start + LOOKED_UP_AT_ONCE]
                heights += await self._ledger.findBlocks(some, first, 1)
            self._heights[key] = min(heights, default=first)
        return self._heights[key]

    async def timeOf(self, height: int) -> int | None:
        """The time of a block, in milliseconds since the epoch."""
        page = await self._ledger.listBlocks(0, 1, height=height)
        return page.items[0].timestamp if page.items else None

    async def among(self, filters: Sequence[str], topics: Sequence[str]) -> Sequence[str]:
        """Those of some topics that filters match."""
        matches: Callable[[str], object] = FilterSet(filters).matches
        if len(filters) <= _FEW:
            matches = re.compile("|".join(map(filterExpression, filters)), re.DOTALL).fullmatch
        found: list[str] = []
        for start in range(0, len(topics), MATCHED_AT_ONCE):
            found += filter(matches, topics[start : start + MATCHED_AT_ONCE])
            await self._pace()
        return found

    async def _matching(self, filters: Sequence[str]) -> Sequence[str]:
        """The open topics that filters match."""
        if not any(map(isPattern, filters)):
            return filters
        found = self._topics.get(filters)
        if found is None:
            if self._open is None:
                self._open = await self._listTopics()
            found = await self.among(filters, self._open)
            # Thousands of patterns that match everything must not take up the memory.
            if len(found) <= TOPICS_AT_ONCE:
                self._topics[filters] = found
        return found

    async def _listTopics(self) -> list[str]:
        names: list[str] = []
        while True:
            page = await self._ledger.listTopics(len(names), TOPICS_AT_ONCE)
            names += [topic.name for topic in page.items]
            if len(page.items) < TOPICS_AT_ONCE:
                return names
            await self._pace()


@define
class _Known:
    """
    The known state of a subscription, valid as long as its position stays.

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

    Live ones with nothing to do cost some microseconds, those that are behind or absent some tens,
    and each pattern what it takes to look through the topics.
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
        self._last: Survey | None = None
        self._next = Survey()
        self._endedAt = 0.0
        self._known: dict[str, _Known] = {}
        self._searches: Mapping[str, _LogSearch] = {}
        self._begun = 0.0
        self._running: Deferred[None] | None = None

    def stop(self) -> None:
        """End the survey that is under way."""
        if self._running is not None:
            self._running.cancel()

    def survey(self) -> Survey:
        """
        The last survey; of the first one what is known so far. Begins the next one: where that
        takes less than C{SLICE}, it is the last one now.
        """
        isDue = self._clock.seconds() - self._endedAt >= MIN_PERIOD
        if self._running is None and isDue:
            self._running = running = self._look()
            running.addErrback(self._failed).addCallback(self._ended)
        if self._last is None:
            self._next.rank()
            return self._next
        return self._last

    def _failed(self, failure: Failure) -> None:
        if not failure.check(CancelledError, BrokerError):
            self._log.failure("What waits for subscriptions was not counted", failure)

    def _ended(self, _: None) -> None:
        self._running = None

    @asDeferred
    async def _look(self) -> None:
        self._next = survey = Survey()
        self._searches = {
            group: _LogSearch(follower, self._pace) for group, follower in self._followers.items()
        }
        known, positions = self._known, self._positions
        self._begun = self._clock.seconds()
        for subscriptionId in positions.ids():
            waiting = await self._lookAt(subscriptionId)
            if waiting is not None:
                survey.add(waiting)
            await self._pace()
        survey.rank()
        for subscriptionId in [each for each in known if not positions.has(each)]:
            del known[subscriptionId]
        self._searches = {}
        self._last, self._endedAt = survey, self._clock.seconds()

    async def _pace(self) -> None:
        """Pause where this has worked for long enough."""
        elapsed = self._clock.seconds() - self._begun
        if elapsed > SLICE:
            await deferLater(self._clock, elapsed * PAUSE)
            self._begun = self._clock.seconds()

    async def _lookAt(self, subscriptionId: str) -> WaitingEvents | None:
        """
        Count what waits for a subscription.

        @return: C{None} where its filters are not known, or it has gone.
        """
        live, holder = self._live.get(subscriptionId), self._held.get(subscriptionId)
        filters: Sequence[str]
        if live is not None:
            group, filters, position = live.group, live.request.filters, live.stored.position
        else:
            kept = self._positions.find(subscriptionId)
            if kept is None or kept.group not in self._followers:
                return None
            group, position = kept.group, kept.position
            if holder is not None:
                filters = tuple(holder.filters())
            else:
                filters = self._positions.filtersOf(subscriptionId)
        if not filters:
            return None
        known = self._known.get(subscriptionId)
        if known is None or known.position != position or known.filters != filters:
            known = _Known(position, filters, await self._countRest(group, filters, position))
            self._known[subscriptionId] = known
        search = self._searches[group]
        first = max(1, position.height + (position.index >= 0))
        count = known.rest + await search.count(filters, first)
        if count and known.oldest is None:
            height = position.height
            if not known.rest:
                height = await search.firstHeight(filters, first)
            known.oldest = await search.timeOf(height)
        kind, name = OWN_KIND, subscriptionId
        if holder is not None:
            kind, name = holder.kind, holder.name
        return WaitingEvents(group=group, kind=kind, name=name, count=count, oldest=known.oldest)

    async def _countRest(self, group: str, filters: Sequence[str], position: Position) -> int:
        """The number of events that wait in the block in which a position lies."""
        follower, height = self._followers[group], position.height
        if position.index < 0 or not 0 < height <= follower.height:
            return 0
        events = (await follower.readBlock(height)).events
        topics = [event.topic for event in events if event.index > position.index]
        return len(await self._searches[group].among(filters, topics))
