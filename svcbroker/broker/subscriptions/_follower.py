"""
The follower of one group's blocks; the dispatcher, which finds the receivers of their events; and
the reading of the group's past: for one subscription, and for many together, in bounded pieces of
time.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Generic, Protocol, TypeVar

from attrs import Factory, define, frozen
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from ...access import Principal
from ...errors import LedgerUnavailable
from ...interfaces import Action, Batch, IBlockObserver, ILedger, INetworkLedger
from ...model import TAG, Block, Event, Position, eventSize, isPattern
from ...net.budgets import TimedWork, WorkBudget
from ...net.deferreds import asDeferred
from ...net.turns import EndOfTurn
from ...probes import probe
from ._topictree import FilterTrie, TopicMatches

MAX_BATCH_BYTES = 256 * 1024
MAX_BATCH_EVENTS = 1000

REMEMBERED_TOPICS = 10_000
"""For how many topics it is remembered whose filters match."""

REMEMBERED_MATCHES = 500_000
"""The number of matches that are remembered. Subscriptions with different tags are different
audiences, so a client can have a thousand for each topic."""


class Receiver(Protocol):
    """
    A receiver of new events that its principal may read.

    @ivar group: the id of the group whose events these are.
    @ivar hasTombstones: whether it is told of erased events too.
    """

    principal: Principal
    group: str
    hasTombstones: bool

    def offer(self, batches: Sequence[Batch], height: int) -> None:
        """
        The matching events of the block of a height, which comes after the last one offered.
        """


M = TypeVar("M", bound=Receiver)


@define(eq=False)
class Audience(Generic[M]):
    """
    All who subscribe with the same filter and the same tag. What they get is the same, so it is put
    together once.

    @ivar hasTombstones: whether they get erased events too.
    @ivar receivers: those that have no other filter.
    @ivar mergers: those that have other filters, too: they get an event once.
    """

    filter: str
    tag: str | None
    hasTombstones: bool
    receivers: dict[M, None] = Factory(dict)
    mergers: dict[M, None] = Factory(dict)


class Dispatcher(Generic[M]):
    """
    Knows whose filters match which topics.
    """

    def __init__(self) -> None:
        self._trie: FilterTrie[Audience[M]] = FilterTrie()
        self._audiences: dict[tuple[str, str | None, bool], Audience[M]] = {}
        self._remembered: TopicMatches[Sequence[Audience[M]]] = TopicMatches(
            REMEMBERED_TOPICS, REMEMBERED_MATCHES
        )

    def add(self, filter: str, tag: str | None, receiver: M, *, isMerging: bool = False) -> None:
        """
        Tell a receiver of what matches a filter.

        @param isMerging: whether the receiver has other filters, too. The same holds for all of
            its filters.
        """
        key = (filter, tag, receiver.hasTombstones)
        audience = self._audiences.get(key)
        if audience is None:
            audience = self._audiences[key] = Audience(*key)
            self._trie.add(filter, audience)
            self._remembered.clear()
        (audience.mergers if isMerging else audience.receivers)[receiver] = None

    def remove(self, filter: str, tag: str | None, receiver: M) -> None:
        """Tell a receiver no more of what matches a filter."""
        key = (filter, tag, receiver.hasTombstones)
        audience = self._audiences.get(key)
        if audience is None:
            return
        audience.receivers.pop(receiver, None)
        audience.mergers.pop(receiver, None)
        if not (audience.receivers or audience.mergers):
            del self._audiences[key]
            self._trie.remove(filter, audience)
            self._remembered.clear()

    @property
    def audienceCount(self) -> int:
        """The number of different filters of the receivers."""
        return len(self._audiences)

    def receivers(self) -> Sequence[M]:
        """All receivers."""
        receivers: dict[M, None] = {}
        for audience in self._audiences.values():
            receivers.update(audience.receivers)
            receivers.update(audience.mergers)
        return list(receivers)

    def dispatch(self, block: Block, size: int) -> None:
        """
        Offer a block's events to all whom they concern.

        @param size: the sum of their L{eventSize}.
        """
        if self._audiences:
            for receiver, batches in self.offers(block.events, block.timestamp, size):
                receiver.offer(batches, block.height)

    def offers(
        self, events: Sequence[Event], timestamp: int, size: int | None = None
    ) -> Iterator[tuple[M, Sequence[Batch]]]:
        """
        Yield receivers and their batches of a block. Receivers may come and go meanwhile.

        @param timestamp: the block's time.
        @param size: the sum of the events' L{eventSize}, where it is known.
        """
        found: dict[Audience[M], list[Event]] = {}
        topic: str | None = None
        audiences: Sequence[Audience[M]] = ()
        for event in events:
            # Hot path: most blocks have events of one topic, whose name is one object.
            if event.topic is not topic:
                topic = event.topic
                audiences = self._match(topic)
            isErased = event.isErased
            for audience in audiences:
                if isErased and not audience.hasTombstones:
                    continue
                if audience.tag is None or event.extensions.get(TAG) == audience.tag:
                    found.setdefault(audience, []).append(event)
        isSmall = size is not None and size <= MAX_BATCH_BYTES
        merging = [audience for audience in found if audience.mergers]
        for audience, matching in found.items():
            # Receivers of a single audience of these have nothing to merge.
            both = (
                (audience.receivers, audience.mergers)
                if len(merging) == 1
                else (audience.receivers,)
            )
            if not any(both):
                continue
            batches = _batchesOf(matching, timestamp, isSmall=isSmall)
            readable: _Readable | None = None
            for receivers in both:
                for receiver in tuple(receivers):
                    if receiver not in receivers:
                        continue
                    if receiver.principal.isEverything:
                        yield receiver, batches
                        continue
                    readable = readable or _Readable(matching, batches)
                    if theirs := readable.by(receiver):
                        yield receiver, theirs
        if len(merging) > 1:
            yield from self._offersToMergers(found, merging, timestamp, isSmall=isSmall)

    def _offersToMergers(
        self,
        found: Mapping[Audience[M], Sequence[Event]],
        merging: Sequence[Audience[M]],
        timestamp: int,
        *,
        isSmall: bool,
    ) -> Iterator[tuple[M, Sequence[Batch]]]:
        audiencesOf: dict[M, list[Audience[M]]] = {}
        for audience in merging:
            for receiver in audience.mergers:
                audiencesOf.setdefault(receiver, []).append(audience)
        # Those that get the same share a batch.
        together: dict[tuple[Audience[M], ...], dict[M, None]] = {}
        for receiver, audiences in audiencesOf.items():
            together.setdefault(tuple(audiences), {})[receiver] = None
        for group, mergers in together.items():
            merged = _merged([found[audience] for audience in group])
            batches = _batchesOf(merged, timestamp, isSmall=isSmall)
            readable = _Readable(merged, batches)
            for receiver in mergers:
                if any(receiver in audience.mergers for audience in group):
                    theirs = readable.by(receiver)
                    if theirs:
                        yield receiver, theirs

    def _match(self, topic: str) -> Sequence[Audience[M]]:
        audiences = self._remembered.get(topic)
        if audiences is None:
            # A tuple takes a quarter of the memory of a set.
            audiences = tuple(self._trie.match(topic))
            self._remembered.keep(topic, audiences, len(audiences))
        return audiences


def _batchesOf(matching: Sequence[Event], timestamp: int, *, isSmall: bool) -> Sequence[Batch]:
    """Events of a block in batches of bounded size."""
    if isSmall and len(matching) <= MAX_BATCH_EVENTS:
        return (Batch(matching, timestamp),)
    return tuple(inBatches(matching, timestamp))


class _Readable:
    """The parts of the same events that principals may read, worked out once for each."""

    def __init__(self, events: Sequence[Event], batches: Sequence[Batch]) -> None:
        self._events = events
        self._batches = batches
        self._found: dict[Principal, Sequence[Batch]] = {}

    def by(self, receiver: Receiver) -> Sequence[Batch]:
        """The part that the principal of a receiver may read."""
        principal = receiver.principal
        if principal.isEverything:
            return self._batches
        theirs = self._found.get(principal)
        if theirs is None:
            theirs = _readable(principal, receiver.group, self._events, self._batches)
            self._found[principal] = theirs
        return theirs


def _merged(found: Sequence[Sequence[Event]]) -> Sequence[Event]:
    """The events of a block that any of several filters matches, each once and in their order."""
    if len(found) == 1:
        return found[0]
    events = {event.index: event for matching in found for event in matching}
    return [events[index] for index in sorted(events)]


def _readable(
    principal: Principal, group: str, events: Sequence[Event], batches: Sequence[Batch]
) -> Sequence[Batch]:
    """
    The part of a block's events that a principal may read.

    @param batches: all of them, as others get them.
    """
    allowed = {
        topic: principal.may(Action.SUBSCRIBE, group, topic)
        for topic in {event.topic for event in events}
    }
    if all(allowed.values()):
        return batches
    theirs = [event for event in events if allowed[event.topic]]
    return tuple(inBatches(theirs, batches[0].timestamp))


def inBatches(events: Sequence[Event], timestamp: int, size: int | None = None) -> Iterator[Batch]:
    """
    Events of a block in batches of bounded size.

    @param timestamp: the block's time.
    @param size: their L{eventSize} together or more, where it is known.
    """
    isSmall = size is not None and size <= MAX_BATCH_BYTES and len(events) <= MAX_BATCH_EVENTS
    if events and isSmall:
        yield Batch(events, timestamp)
        return
    batch: list[Event] = []
    size = 0
    for event in events:
        weight = eventSize(event)
        size += weight
        if batch and (size > MAX_BATCH_BYTES or len(batch) == MAX_BATCH_EVENTS):
            yield Batch(batch, timestamp)
            batch, size = [], weight
        batch.append(event)
    if batch:
        yield Batch(batch, timestamp)


CACHED_BYTES = 16 * 1024 * 1024
"""The bytes of the blocks read last that are kept for the next who reads them."""

_EVENT_BYTES = 512
"""The cost of an event beside what its publisher made it of, roughly."""

SLICE: Final = 0.001
"""Seconds that history is read for in one turn of the reactor, apart from the last step."""

PAUSE: Final = 1.0
"""While events are being published, the pause after a slice: so many times as long as the slice."""

PUBLISHING: Final = 0.25
"""For so many seconds after a block, events are said to be being published."""

BLOCKS_A_TURN: Final = 16
"""The most blocks that a walk looks at in one turn."""

MAX_MATCHES: Final = 20_000
"""The most matches of events with filters that are looked for without a look at the clock."""

MERGE_DISTANCE: Final = 64
"""Walks closer than this many blocks are joined: the one ahead waits, for at most so many turns."""

BLOCKS_A_STEP = 16
"""The most blocks that are looked at in one step."""

_HEIGHTS_AHEAD = 64

SKIP_AFTER = 256
"""After so many blocks and events of which a pattern matches none, such blocks are skipped."""

_log = Logger()


@implementer(IBlockObserver)
class Follower:
    """
    Takes a ledger's blocks as they become final, and hands them to the dispatcher in turns of
    its own: no subscriber is called inside the call that made a block.

    @ivar ledger: the ledger followed.
    @ivar dispatcher: who is told.
    @ivar turns: when history may be read.
    @ivar walks: those who read history block by block.
    @ivar height: the height of the last block that was dispatched.
    @ivar committed: the height of the last block that is final; it may wait for its turn.
    @ivar isOfNetwork: whether other nodes may have blocks that are still to come here.
    """

    def __init__(self, ledger: ILedger, reactor: IReactorTime, turns: HistoryTurns) -> None:
        """
        @param turns: when history may be read.
        """
        self.ledger = ledger
        self.dispatcher: Dispatcher[Receiver] = Dispatcher()
        self.turns = turns
        self.walks = Walks(self, turns)
        self.height = self.committed = 0
        self.isOfNetwork = INetworkLedger.providedBy(ledger)
        self._turn = EndOfTurn(reactor)
        self._waiting: deque[Block] = deque()
        self._cache: OrderedDict[int, tuple[Block, int]] = OrderedDict()
        self._cached = 0
        self._readers = 0
        self._awaited: dict[int, dict[Deferred[None], None]] = {}

    @asDeferred
    async def start(self) -> None:
        """
        Begin with the first block that comes now.
        """
        self.ledger.addObserver(self)
        self.height = (await self.ledger.getStatistics()).height
        self.committed = max(self.committed, self.height)

    def stop(self) -> None:
        """
        Follow no more.
        """
        self.ledger.removeObserver(self)
        self._waiting.clear()
        self._turn.stop()

    def awaitHeight(self, height: int) -> Deferred[None]:
        """
        A Deferred that fires when the block of a height is final, which it is not now.
        L{forgetHeight} must follow.
        """
        waiting: Deferred[None] = Deferred()
        self._awaited.setdefault(height, {})[waiting] = None
        return waiting

    def forgetHeight(self, height: int, waiting: Deferred[None]) -> None:
        """Nobody waits for what L{awaitHeight} has given."""
        others = self._awaited.get(height, {})
        others.pop(waiting, None)
        if not others:
            self._awaited.pop(height, None)

    def join(self) -> None:
        """Somebody subscribes, who may want to read again what was dispatched."""
        self._readers += 1

    def leave(self) -> None:
        """Somebody who joined is gone."""
        self._readers -= 1

    def blockCommitted(self, block: Block) -> None:
        self.committed = block.height
        self.turns.published()
        for awaiting in self._awaited.pop(block.height, ()):
            awaiting.callback(None)
        if self._waiting:
            self._waiting.append(block)
        elif self._readers:
            self._waiting.append(block)
            self._turn.add(self._dispatch)
        else:
            # Nothing is called for it, so it needs no turn.
            self._take(block)

    def _dispatch(self) -> None:
        while self._waiting:
            self._take(self._waiting.popleft())

    def _take(self, block: Block) -> None:
        # What was final before this began is history.
        if block.height > self.height:
            self.height = block.height
            if block.erasures:
                self._cache.clear()
                self._cached = 0
            # Without subscriptions a block costs nothing.
            if self._readers:
                size = sum(map(eventSize, block.events))
                self._keep(block, size)
                self.dispatcher.dispatch(block, size)

    def readBlock(self, height: int) -> Deferred[Block]:
        """
        A block of the past; one that somebody else read lately is at hand.
        """
        kept = self._cache.get(height)
        if kept is not None:
            probe("follower: block read from the cache")
            self._cache.move_to_end(height)
            return succeed(kept[0])
        reading = self.ledger.readBlock(height)
        reading.addCallback(self._read)
        return reading

    def _read(self, block: Block) -> Block:
        self._keep(block, sum(map(eventSize, block.events)))
        return block

    def _keep(self, block: Block, size: int) -> None:
        replaced = self._cache.pop(block.height, None)
        if replaced is not None:
            self._cached -= _weight(*replaced)
        self._cached += _weight(block, size)
        self._cache[block.height] = (block, size)
        while self._cached > CACHED_BYTES:
            probe("follower: block dropped from the cache")
            _, dropped = self._cache.popitem(last=False)
            self._cached -= _weight(*dropped)

    def sizeOf(self, block: Block) -> int | None:
        """The sum of the L{eventSize} of a block's events, where it was read lately."""
        kept = self._cache.get(block.height)
        return None if kept is None else kept[1]


def _weight(block: Block, size: int) -> int:
    """The bytes of memory of a block, about, given the sum of the L{eventSize} of its events."""
    return size + len(block.events) * _EVENT_BYTES


class HistoryTurns:
    """
    Shares out the time in which history is read. Everybody who reads waits for a turn, one after
    the other; when the slice is over, the others get theirs in a later turn of the reactor.
    Publishers come first: while blocks are made, there is a pause between slices. A slice is a unit
    of the budget of time, so it waits like the reads of clients where they take long.
    """

    def __init__(self, reactor: IReactorTime, work: WorkBudget) -> None:
        self._reactor = reactor
        self._work = work
        self._queue: deque[Deferred[None]] = deque()
        self._call: TimedWork | None = None
        self._deadline = 0.0
        self._publishedUntil = 0.0

    def turn(self) -> Deferred[None]:
        """Fires when the caller may read, until L{isOver}. Cancelling it gives the turn up."""
        waiting: Deferred[None] = Deferred()
        self._queue.append(waiting)
        if self._call is None:
            self._schedule(0.0)
        return waiting

    @property
    def isOver(self) -> bool:
        """Whether who has the turn should wait for another one."""
        return self._reactor.seconds() >= self._deadline

    def published(self) -> None:
        """A block was made."""
        self._publishedUntil = self._reactor.seconds() + PUBLISHING

    def stop(self) -> None:
        """Give no more turns."""
        self._queue.clear()
        if self._call is not None:
            self._call.cancel()
        self._call = None

    def _schedule(self, delay: float) -> None:
        self._call = self._work.after(delay, self._run)

    def _run(self) -> None:
        began = self._reactor.seconds()
        self._deadline = began + SLICE
        # Each who waits now gets one turn at most.
        for _ in range(len(self._queue)):
            waiting = self._queue.popleft()
            if not waiting.called:
                waiting.callback(None)
                if self.isOver:
                    break
        self._call = None
        if self._queue:
            now = self._reactor.seconds()
            self._schedule(PAUSE * (now - began) if now < self._publishedUntil else 0.0)


class BlockHistory(Protocol):
    """
    The blocks of a group: L{Follower<svcbroker.broker.subscriptions._follower.Follower>}.

    @ivar height: the height of the last block that is history.
    """

    height: int

    def readBlock(self, height: int) -> Deferred[Block]:
        """Read a block."""

    def sizeOf(self, block: Block) -> int | None:
        """The size of what was read, where it is known."""


class Walker(Receiver, Protocol):
    """A subscription that reads history along a walk."""

    def followWalk(self, walk: Walk) -> None:
        """Follow this walk from now on, after its last block, and of no other."""

    def follows(self, walk: Walk) -> bool:
        """Whether it follows this walk."""

    def endWalk(self, height: int) -> None:
        """The walk has come to the end of the log; C{height} was its last block."""

    def failWalk(self, failure: Failure) -> None:
        """The log cannot be read."""


class Walk:
    """
    Subscriptions that read the same blocks of the past, one after the other.

    @ivar height: the height of the last block that all its walkers were offered.
    @ivar dispatcher: its walkers.
    """

    def __init__(self, height: int) -> None:
        self.height = height
        self.dispatcher: Dispatcher[Walker] = Dispatcher()
        self.waited = 0


class Walks:
    """
    The walks through one group's log. A block is read once for all subscriptions of a walk, and
    an event is looked up once in all their filters. Walks that meet become one; a walk waits
    for another that is close behind it.
    """

    def __init__(self, history: BlockHistory, turns: HistoryTurns) -> None:
        self._history = history
        self._turns = turns
        # Those that are between two blocks, by the height of the next one.
        self._walks: dict[int, Walk] = {}

    def join(self, walker: Walker, height: int) -> None:
        """
        Have a subscription walk along from the block of a height on.
        """
        walk = self._walks.get(height)
        if walk is None:
            walk = self._walks[height] = Walk(height - 1)
            self._go(walk).addErrback(self._failed, walk)
        walker.followWalk(walk)

    @asDeferred
    async def _go(self, walk: Walk) -> None:
        while True:
            await self._turns.turn()
            for _ in range(BLOCKS_A_TURN):
                if not walk.dispatcher.audienceCount:
                    del self._walks[walk.height + 1]
                    return
                if walk.height >= self._history.height:
                    del self._walks[walk.height + 1]
                    for walker in walk.dispatcher.receivers():
                        walker.endWalk(walk.height)
                    return
                if self._waitsForAnother(walk):
                    break
                await self._step(walk)
                other = self._walks.setdefault(walk.height + 1, walk)
                if other is not walk:
                    for walker in walk.dispatcher.receivers():
                        walker.followWalk(other)
                    return
                if self._turns.isOver:
                    break

    def _waitsForAnother(self, walk: Walk) -> bool:
        following = walk.height + 1
        if len(self._walks) > 1 and walk.waited < MERGE_DISTANCE:
            for height in range(max(1, following - MERGE_DISTANCE), following):
                if height in self._walks:
                    walk.waited += 1
                    return True
        walk.waited = 0
        return False

    async def _step(self, walk: Walk) -> None:
        """Offer the next block to all walkers."""
        block = await self._history.readBlock(walk.height + 1)
        del self._walks[block.height]
        # An event may concern every walker, so there is a bound for both together.
        count = max(1, MAX_MATCHES // max(1, walk.dispatcher.audienceCount))
        size = self._history.sizeOf(block)
        for start in range(0, len(block.events), count):
            events = block.events[start : start + count]
            for walker, batches in walk.dispatcher.offers(events, block.timestamp, size):
                if self._turns.isOver:
                    await self._turns.turn()
                    if not walker.follows(walk):
                        continue  # it has left meanwhile
                walker.offer(batches, block.height)
        walk.height = block.height

    def _failed(self, failure: Failure, walk: Walk) -> None:
        if self._walks.get(walk.height + 1) is walk:
            del self._walks[walk.height + 1]
        for walker in walk.dispatcher.receivers():
            walker.failWalk(failure)


@frozen(kw_only=True)
class HistoryStep:
    """
    The result of one step through history.

    @ivar batch: the next events, where there were any.
    @ivar position: the place up to which everything was looked at.
    """

    batch: Batch | None
    position: Position


class LogHistory:
    """
    Finds a subscription's next events in the log, one bounded step at a time.

    Plain topics are found by the ledger's index. Patterns are looked for block by block.
    """

    def __init__(self, follower: Follower, topics: tuple[str, ...] | None) -> None:
        """
        @param topics: all filters; C{None} where any is a pattern.
        """
        self._follower = follower
        self._topics = topics
        self._heights: list[int] = []
        self._known = 0

    async def step(
        self, position: Position, skip: frozenset[Position], wants: Callable[[Event], bool]
    ) -> HistoryStep:
        """
        The next events after a place, as far as the follower has come.

        @param skip: places of events to leave out.
        @param wants: whether an event is meant for the subscription, and its principal may read it.
        @raise LedgerUnavailable: the ledger is damaged: going on would leave out events.
        """
        last = self._follower.height
        for _ in range(BLOCKS_A_STEP):
            height = await self._nextHeight(position.height, last)
            if height is None:
                return HistoryStep(batch=None, position=Position(last + 1, -1))
            if height > position.height:
                position = Position(height, -1)
            block = await self._follower.readBlock(height)
            checkIndex(self._follower, block, self._topics)
            events = [
                event
                for event in block.events
                if event.index > position.index
                and wants(event)
                and (not skip or event.position not in skip)
            ]
            size = self._follower.sizeOf(block)
            batch = next(inBatches(events, block.timestamp, size), None)
            if batch is not None:
                rest = len(events) > len(batch.events)
                end = batch.events[-1].position if rest else Position(height + 1, -1)
                return HistoryStep(batch=batch, position=end)
            position = Position(height + 1, -1)
            if self._follower.turns.isOver:
                break
        return HistoryStep(batch=None, position=position)

    async def _nextHeight(self, height: int, last: int) -> int | None:
        """The height of the next block to look at, from C{height} up to C{last}."""
        height = max(height, 1)
        if height > last:
            return None
        if self._topics is None:
            return height
        while self._heights and self._heights[0] < height:
            del self._heights[0]
        if not self._heights and self._known <= last:
            first = max(height, self._known)
            found = await self._follower.ledger.findBlocks(self._topics, first, _HEIGHTS_AHEAD)
            self._heights.extend(found)
            # Fewer than asked for: that was all up to the height that the ledger has now.
            self._known = found[-1] + 1 if len(found) == _HEIGHTS_AHEAD else last + 1
        if not self._heights or self._heights[0] > last:
            return None
        return self._heights[0]


class HeightsBelow:
    """
    The heights of blocks that may hold events of topics, the highest first.

    A ledger finds blocks from a height on only. So this looks into one range of heights below the
    other, which becomes wider while there are no events, and narrower where there are more than one
    read answers. For a pattern it counts the events of such ranges, once it has met none for a
    while.
    """

    def __init__(self, ledger: ILedger, filter: str) -> None:
        """
        @param filter: a topic or a pattern.
        """
        self._ledger = ledger
        self._filters = (filter,)
        self._isPattern = isPattern(filter)
        self._found: list[int] = []
        self._lowest: int | None = None
        self._width = _HEIGHTS_AHEAD
        # Since the last event of the pattern: the blocks that were read, and their events.
        self._blocks = self._events = 0

    def note(self, count: int, isFound: bool) -> None:
        """
        Note what was in the last block.

        @param count: the number of its events.
        @param isFound: whether the pattern matches one.
        """
        self._blocks, self._events = (0, 0) if isFound else (self._blocks + 1, self._events + count)

    async def next(self, before: Position) -> int | None:
        """
        The height of the highest block that may hold such events before a position; C{None} where
        there is none. The position is never above the last one that was asked for.
        """
        # The block of the position holds events before it, unless it is that of its first one.
        end = before.height + (before.index > 0)
        if self._isPattern:
            return await self._belowOf(end)
        while self._found and self._found[-1] >= end:
            self._found.pop()
        while not self._found:
            top = end if self._lowest is None else min(end, self._lowest)
            if top <= 1:
                return None
            first = max(1, top - self._width)
            found = await self._ledger.findBlocks(self._filters, first, _HEIGHTS_AHEAD)
            below = [height for height in found if height < top]
            if len(below) == _HEIGHTS_AHEAD and below[-1] < top - 1:
                # These are the lowest ones of the range.
                self._width //= 2
                continue
            if len(below) < _HEIGHTS_AHEAD // 4:
                self._width *= 2
            self._lowest, self._found = first, below
        return self._found[-1]

    async def _belowOf(self, end: int) -> int | None:
        """The height of the highest block below one that may hold events of the pattern."""
        if self._blocks + self._events >= SKIP_AFTER:
            # Counted first: what is published meanwhile only makes the other counts larger.
            above = await self._count(end)
            if await self._count(1) == above:
                return None
            # To read so many blocks takes no longer than to count again.
            few = width = self._blocks
            self._blocks = self._events = 0
            while end > 1:
                first = max(1, end - width)
                if await self._count(first) == above:
                    end, width = first, 4 * width
                elif width > few:
                    width = max(few, width // 4)
                else:
                    break
        return end - 1 if end > 1 else None

    def _count(self, first: int) -> Deferred[int]:
        return self._ledger.countEvents(self._filters, first)


def checkIndex(follower: Follower, block: Block, topics: tuple[str, ...] | None) -> None:
    """
    Check that a block has events of the topics whose index led to it.

    @param topics: C{None} where no index was used.
    @raise LedgerUnavailable: it has none: the index is damaged, and may leave out other events.
    """
    if topics and not any(event.topic in topics for event in block.events):
        _log.error(
            "the index of group {group} is damaged: block {height} has none of the events "
            "that it leads to",
            group=follower.ledger.group,
            height=block.height,
        )
        raise LedgerUnavailable("the ledger's disk cannot be read")
