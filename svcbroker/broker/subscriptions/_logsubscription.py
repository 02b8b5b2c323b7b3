"""
One reader of a group's log.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from attrs import evolve
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from ...access import Principal
from ...errors import BrokerError, NotAuthenticated, UnknownError
from ...interfaces import Action, Batch, ISubscriber, ISubscription
from ...model import TAG, Event, Position, SubscribeRequest, SubscriptionRecord, isPattern
from ...net.deferreds import asDeferred
from ._follower import Follower, LogHistory, Walk
from ._positions import StoredPosition
from ._topictree import FilterSet

STEPS_A_TURN = 16
"""The most steps through history in one turn. Each gives the events of one block at the most."""

SUBSCRIPTION_BYTES = 4 * 1024
"""The bytes of memory of a live subscription beside its filters, about."""


_NOTHING: Final = frozenset[Position]()
_POSITIONS: Final = "positions"


def _unacknowledged(events: Sequence[Event]) -> Mapping[Position, bool]:
    """The positions of events, none of which is acknowledged."""
    return dict.fromkeys([event.position for event in events], False)


@implementer(ISubscription)
class LogSubscription:
    """
    A cursor on the log. Blocks are offered to it by a feed: the follower while it is live, or a
    walk through history. Without a feed it reads history by itself: plain topics by the ledger's
    index, and what is left of a block in which it stopped. Going from one to the other takes no
    time in which a block could come, so nothing is missed and nothing comes twice.

    What its subscriber does not take now, it does not keep: it falls behind and reads it later.
    """

    _log = Logger()

    def __init__(
        self,
        *,
        subscriptionId: str,
        principal: Principal,
        request: SubscribeRequest,
        subscriber: ISubscriber,
        follower: Follower,
        now: Callable[[], float],
        start: StoredPosition,
        closed: Callable[[LogSubscription, bool], None],
        moved: Callable[[LogSubscription], None],
        store: Callable[[LogSubscription], None],
        checkFilter: Callable[[Principal, str, str], None],
        wentLive: Callable[[], object] | None = None,
    ) -> None:
        """
        @param principal: who subscribes. It gets what it may read when that is handed over.
        @param now: the wall clock: seconds since the epoch.
        @param start: the place after which it begins, and what beyond it is left out.
        @param closed: called when it has ended, with whether to forget its position.
        @param moved: called when what L{stored} gives of a durable one has changed.
        @param store: called to keep what L{stored} gives at once.
        @param checkFilter: raises an error where the principal may not have a filter in the group.
        @param wentLive: called when it L{isLive} from now on.
        """
        self.subscriptionId = subscriptionId
        self.principal = principal
        self.group = request.group
        self.hasTombstones = request.hasTombstones
        self.request = request
        self._subscriber = subscriber
        self._follower = follower
        self._now = now
        self._closed = closed
        self._moved = moved
        self._store = store
        self._checkFilter = checkFilter
        self._wentLive = wentLive
        self._filters = FilterSet(request.filters)
        # While it reads the past by itself.
        self._history: LogHistory | None = None
        self._turn: Deferred[None] | None = None

        self._cursor = start.position
        self._skip = frozenset(start.acknowledged) or _NOTHING
        self._feed: Follower | Walk | None = None
        self._isFlowing = False
        self._isClosed = False
        self._isReading = False
        # Handed over and not acknowledged (False), or acknowledged beyond such a one (True): in the
        # order of the log, so that those that were acknowledged before are in _skip alone.
        self._outstanding: OrderedDict[Position, bool] = OrderedDict()
        self._unacknowledged = 0

        # In seconds since the epoch.
        self._createdAt = self._notifiedAt = now()
        self.notified = 0
        self._releasePrincipal = principal.onEnd(self._revoked)
        follower.join()
        self._goLiveIfThere()

    def _matches(self, event: Event) -> bool:
        tag = self.request.tag
        return self._filters.matches(event.topic) and (
            tag is None or event.extensions.get(TAG) == tag
        )

    def _wants(self, event: Event) -> bool:
        isShown = not event.isErased or self.hasTombstones
        return isShown and self._matches(event) and self.mayRead(event)

    # What is known of it.

    @property
    def isLive(self) -> bool:
        """Whether everything up to the last block that was dispatched was handed over."""
        return self._feed is self._follower

    @property
    def position(self) -> Position:
        """See L{ISubscription}."""
        if self._feed is not None:
            return max(self._cursor, Position(self._feed.height + 1, -1))
        return self._cursor

    @property
    def stored(self) -> StoredPosition:
        """
        The position where it resumes: before the first event that was not acknowledged, leaving out
        those acknowledged beyond it.
        """
        position, beyond = self.position, [p for p, done in self._outstanding.items() if done]
        for place, isAcknowledged in self._outstanding.items():
            if not isAcknowledged:
                position = Position(place.height, place.index - 1)
                break
        if self._skip:
            beyond = sorted([*beyond, *(each for each in self._skip if each > position)])
        return StoredPosition(position, tuple(beyond))

    async def waiting(self) -> int:
        """
        The number of events that wait: those not acknowledged, and those in the log. Erased events
        in the log are counted too, and where there is a tag, those with other tags. Events in the
        log are not counted for a principal that may not read all that patterns match: the number
        would tell of them.
        """
        if self.isLive:
            return self._unacknowledged
        cursor = self.position
        filters = self.request.filters
        if not self.principal.isEverything:
            filters = tuple(filter(self._mayCount, filters))
        if not filters:
            return self._unacknowledged
        inLog = await self._follower.ledger.countEvents(filters, cursor.height)
        if cursor.index >= 0 and 0 < cursor.height <= self._follower.height:
            block = await self._follower.readBlock(cursor.height)
            matches = FilterSet(filters).matches
            inLog -= sum(e.index <= cursor.index and matches(e.topic) for e in block.events)
        return self._unacknowledged + max(0, inLog)

    def _mayCount(self, filter: str) -> bool:
        return not isPattern(filter) and self.principal.may(Action.SUBSCRIBE, self.group, filter)

    async def record(self) -> SubscriptionRecord:
        """The record of it for operators."""
        return SubscriptionRecord(
            subscriptionId=self.subscriptionId,
            interfaceType=self.request.interfaceType,
            group=self.request.group,
            filters=self.request.filters,
            remote=self.request.remote,
            notified=self.notified,
            notifying=await self.waiting(),
            notifiedAt=int(self._notifiedAt * 1000),
            createdAt=int(self._createdAt * 1000),
        )

    # What its carrier says.

    def resume(self) -> None:
        """See L{ISubscription.resume}."""
        if not self._isClosed:
            self._isFlowing = True
            self._read()

    def pause(self) -> None:
        """See L{ISubscription.pause}."""
        self._isFlowing = False

    def acknowledge(self, events: Sequence[Event]) -> None:
        """See L{ISubscription.acknowledge}."""
        outstanding = self._outstanding
        count = 0
        for event in events:
            position = event.position
            if outstanding.get(position) is False:
                outstanding[position] = True
                count += 1
        if not count:
            return
        self._unacknowledged -= count
        self._tell(count)
        if self._unacknowledged == 0:
            outstanding.clear()
            if self.isLive:
                self._skip = _NOTHING
        else:
            while outstanding[next(iter(outstanding))]:
                outstanding.popitem(last=False)
        if self.request.isDurable:
            self._moved(self)

    def storePosition(self) -> None:
        """See L{ISubscription.storePosition}."""
        if not self._isClosed and self.request.isDurable:
            self._store(self)

    def isAcknowledged(self, position: Position) -> bool:
        """See L{ISubscription.isAcknowledged}."""
        return position <= self._cursor or position in self._skip

    def mayRead(self, event: Event) -> bool:
        """See L{ISubscription.mayRead}."""
        principal = self.principal
        return principal.isEverything or principal.may(Action.SUBSCRIBE, self.group, event.topic)

    def rewind(self) -> None:
        """See L{ISubscription.rewind}."""
        if not self._unacknowledged:
            return
        stored = self.stored
        self._leave()
        self._history = None
        self._cursor = stored.position
        self._skip = frozenset(stored.acknowledged)
        self._outstanding.clear()
        self._unacknowledged = 0
        self._read()

    def close(self, *, forget: bool = False) -> None:
        """See L{ISubscription.close}."""
        if not self._isClosed:
            self._isClosed = True
            self._isFlowing = False
            self._releasePrincipal()
            self._closed(self, forget)
            self._leave()
            self._follower.leave()
            if self._turn is not None:
                self._turn.cancel()
            # It may keep this.
            del self._subscriber

    # New blocks.

    def offer(self, batches: Sequence[Batch], height: int) -> None:
        """
        The matching events of a new block. Called by the dispatcher while this is live.
        """
        if height <= self._cursor.height:
            # It began after this block, or within it, when it only waited for its turn.
            batches = tuple(_after(self._cursor, batches))
        for batch in batches:
            if not self._isFlowing:
                if self._feed is not None:
                    self._fallBehind(max(self._cursor, Position(height, -1)))
                return
            if self._feed is not self._follower:
                # A walk may offer a block in several parts.
                self._cursor = batch.events[-1].position
            if not self._handOver(batch) and not self._isClosed:
                self._fallBehind(batch.events[-1].position)

    def _fallBehind(self, position: Position) -> None:
        self._leave()
        self._cursor = position
        if self.request.isDurable:
            self._moved(self)

    def _enter(self, feed: Follower | Walk) -> None:
        self._feed = feed
        self._history = None
        filters, tag = self._filters.filters, self.request.tag
        isMerging = len(filters) > 1
        for filter in filters:
            feed.dispatcher.add(filter, tag, self, isMerging=isMerging)

    def _leave(self) -> None:
        if self._feed is not None:
            for filter in self._filters.filters:
                self._feed.dispatcher.remove(filter, self.request.tag, self)
            self._feed = None

    def _goLiveIfThere(self) -> None:
        if self._feed is None and self._cursor.height > self._follower.height:
            if not self._unacknowledged:
                self._skip = _NOTHING
            self._enter(self._follower)
            if self._wentLive is not None:
                self._wentLive()

    # Filters that come and go.

    def addFilter(self, filter: str) -> Position:
        """See L{ISubscription.addFilter}."""
        self._checkFilter(self.principal, self.group, filter)
        self._changeFilters(self._filters.add, filter)
        return Position(self._follower.committed + 1, -1)

    def removeFilter(self, filter: str) -> None:
        """See L{ISubscription.removeFilter}."""
        self._changeFilters(self._filters.remove, filter)

    def _changeFilters(self, change: Callable[[str], None], filter: str) -> None:
        position, feed, tag = self.position, self._feed, self.request.tag
        wasMerging = len(self._filters.filters) > 1
        if feed is self._follower and wasMerging:
            # Once for each SUBSCRIBE of a client that has many, so the others are left alone.
            feed.dispatcher.remove(filter, tag, self)
            change(filter)
            if len(self._filters.filters) > 1:
                if filter in self._filters.filters:
                    feed.dispatcher.add(filter, tag, self, isMerging=True)
            else:
                self._leave()
                self._enter(feed)
        else:
            self._leave()
            self._cursor = position
            change(filter)
            self._goLiveIfThere()
        self.request = evolve(self.request, filters=tuple(self._filters.filters))
        self._history = None
        self._read()

    # Walks through history.

    def followWalk(self, walk: Walk) -> None:
        """See L{Walker}."""
        self._leave()
        self._enter(walk)

    def follows(self, walk: Walk) -> bool:
        """See L{Walker}."""
        return self._feed is walk

    def endWalk(self, height: int) -> None:
        """See L{Walker}."""
        self._leave()
        self._cursor = max(self._cursor, Position(height + 1, -1))
        self._goLiveIfThere()

    def failWalk(self, failure: Failure) -> None:
        """See L{Walker}."""
        self._failed(failure)

    def _mayWalk(self) -> bool:
        """Whether it stands before a block, of which it is to be offered everything."""
        return (
            self._filters.hasPatterns
            and self._cursor.index < 0
            and (not self._skip or max(self._skip) < self._cursor)
        )

    def _handOver(self, batch: Batch) -> bool:
        """Give a batch to the subscriber; whether it takes more. Hot path."""
        request, count = self.request, len(batch.events)
        if request.isAcknowledged:
            self._outstanding.update(batch.encoded(_POSITIONS, _unacknowledged))
            self._unacknowledged += count
        else:
            self._tell(count)
            if request.isDurable:
                self._moved(self)
        self._subscriber.deliver(batch)
        return self._isFlowing

    def _tell(self, count: int) -> None:
        self.notified += count
        self._notifiedAt = self._now()

    # The past.

    def _wantsPast(self) -> bool:
        return self._isFlowing and self._feed is None

    def _read(self) -> None:
        if self._isReading or not self._wantsPast():
            return
        if self._mayWalk():
            self._walk()
            return
        self._isReading = True
        reading = self._readOn()
        reading.addErrback(self._failed)

    def _walk(self) -> None:
        self._follower.walks.join(self, max(1, self._cursor.height))

    @asDeferred
    async def _readOn(self) -> None:
        try:
            while self._wantsPast():
                if self._mayWalk():
                    self._walk()
                    break
                # Many who read share fairly: each has a turn, which is short.
                self._turn = self._follower.turns.turn()
                await self._turn
                self._turn = None
                for _ in range(STEPS_A_TURN):
                    if self._mayWalk() or not self._wantsPast():
                        break
                    await self._step()
                    if self._follower.turns.isOver:
                        break
        except CancelledError:
            pass  # it was closed
        finally:
            self._isReading = False
            self._turn = None

    async def _step(self) -> None:
        """Hand over the next events of the past."""
        cursor = self._cursor
        if self._history is None:
            topics = None if self._filters.hasPatterns else self.request.filters
            self._history = LogHistory(self._follower, topics)
        step = await self._history.step(cursor, self._skip, self._wants)
        if self._cursor is cursor and self._wantsPast():
            self._cursor = step.position
            if step.batch is not None:
                self._handOver(step.batch)
            self._goLiveIfThere()

    def _revoked(self) -> None:
        """The principal's account is gone."""
        self._end(NotAuthenticated("the log-in has ended"))

    def _failed(self, failure: Failure) -> None:
        error = failure.value
        if not isinstance(error, BrokerError):
            self._log.failure(
                "subscription {id} cannot read the log", failure, id=self.subscriptionId
            )
            error = UnknownError()
        self._end(error)

    def _end(self, error: BrokerError) -> None:
        if not self._isClosed:
            subscriber = self._subscriber
            self.close()
            subscriber.subscriptionEnded(error)


def _after(position: Position, batches: Sequence[Batch]) -> Iterator[Batch]:
    """The events of a block that come after a position; whole batches are shared with others."""
    for batch in batches:
        if batch.events[0].position > position:
            yield batch
        elif batch.events[-1].position > position:
            events = [event for event in batch.events if event.position > position]
            yield Batch(events, batch.timestamp)
