"""
The index of one group, which follows its log, and the call C{find}, of events by their content,
their author or an extension.

Blocks that the index does not have yet are read while there is time, and rows of erased events are
removed. It says where to look; every event is read, and compared with what is looked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

from attrs import field, frozen
from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from zope.interface import implementer

from ...access import Principal
from ...errors import (
    BrokerError,
    EventErased,
    EventNotFound,
    HeightUnknown,
    LedgerUnavailable,
    ParameterInvalid,
    TopicNotFound,
)
from ...interfaces import Action, IBlockObserver, ILedger
from ...model import (
    Block,
    Edge,
    Event,
    EventId,
    Moment,
    Offset,
    Position,
    filterMatches,
    isPattern,
    topicPrefix,
)
from ...net.addresses import ownerKey
from ...net.budgets import OutputBudget
from ...net.deferreds import asDeferred, cancelAll
from .._collaborators import ReadPage
from .._groups import Groups, checkTopicFilter
from ..subscriptions import MAX_SEARCH, EventPage, HistoryTurns, Subscriptions, checkLogIn
from ._eventindex import (
    FINGERPRINT_SIZE,
    MAX_HEIGHT,
    RUN_ROWS,
    Coverage,
    EventIndex,
    IndexDamaged,
    authorFingerprint,
    contentFingerprint,
    eventIdOf,
    extensionFingerprint,
    placeOf,
    startOf,
)

RETRY: Final = 30.0
"""Seconds after which it is tried again to go on with a log or a disk that has failed."""

WAIT: Final = 1.0
"""The longest time, in seconds, that a call waits for the rows of the last blocks."""

NEAR: Final = 1000
"""The most blocks that a call waits for. An index that is being made takes longer."""

EVENTS_A_LOOK: Final = 64
"""The number of events after which there is a look at the clock."""

MAX_RANGES: Final = 100_000
"""The most ranges of erased events that are remembered before their rows are removed."""


@implementer(IBlockObserver)
class GroupIndex:
    """
    The index of a group's log, and what keeps it up to date.

    Rows of the last blocks are in memory, until there are enough of them for a run. After a restart
    these blocks are read again.

    @ivar names: the names of the extensions that it has rows of.
    @ivar height: the height of the last block that it has rows of.
    @ivar committed: the height of the last block that is final.
    """

    _log = Logger()

    def __init__(
        self,
        ledger: ILedger,
        makeIndex: Callable[[], EventIndex],
        names: Sequence[str],
        turns: HistoryTurns,
        run: Callable[..., Deferred[Any]],
        reactor: IReactorTime,
    ) -> None:
        """
        @param makeIndex: makes its files, once the ledger has started.
        @param turns: say when blocks may be read.
        @param run: runs a function in the thread of the files.
        """
        self.names = names
        self.height = self.committed = 0
        self._ledger = ledger
        self._makeIndex = makeIndex
        self._made: EventIndex | None = None
        self._index: EventIndex | None = None
        self._turns = turns
        self._run = run
        self._reactor = reactor
        self._rows: dict[bytes, list[bytes]] = {}
        self._count = 0
        self._hash = bytes(32)
        self._erased: dict[bytes, list[tuple[int, int]]] = {}
        self._ranges = 0
        self._damage: IndexDamaged | None = None
        self._waiting: dict[Deferred[None], int] = {}
        self._news: Deferred[None] = Deferred()
        self._running: Deferred[None] | None = None

    @property
    def size(self) -> int:
        """The size of its files, in bytes."""
        return 0 if self._index is None else self._index.size

    @asDeferred
    async def start(self) -> None:
        """Begin. The ledger has started."""
        self._ledger.addObserver(self)
        self.committed = max(self.committed, (await self._ledger.getStatistics()).height)
        self._running = self._follow()

    @asDeferred
    async def stop(self) -> None:
        """Write what is in memory, and close the files."""
        self._ledger.removeObserver(self)
        if self._running is not None:
            cancelAll([self._running])
        for waiting in tuple(self._waiting):
            waiting.callback(None)
        if self._index is not None and self._damage is None and not self._erased:
            try:
                await self._flush()
            except OSError as error:
                self._tell(error)
        if self._made is not None:
            await self._run(self._made.close)

    def blockCommitted(self, block: Block) -> None:
        """See L{IBlockObserver}."""
        self.committed = block.height
        if not self._news.called:
            self._news.callback(None)

    @asDeferred
    async def reach(self, height: int) -> None:
        """Wait, for a short time, until there are the rows of a block that is not far."""
        if self.height >= height or height - self.height > NEAR or self._running is None:
            return
        waiting: Deferred[None] = Deferred()
        self._waiting[waiting] = height
        waiting.addTimeout(WAIT, self._reactor)
        try:
            await waiting
        except TimeoutError:
            pass
        finally:
            del self._waiting[waiting]

    @asDeferred
    async def find(
        self, fingerprint: bytes, after: bytes, before: bytes, limit: int
    ) -> Sequence[EventId]:
        """
        The first events of a fingerprint, in the order of the log. Some may be other ones.

        @param after: the place behind which they are.
        @param before: the place before which they are.
        @param limit: the most to give.
        @raise LedgerUnavailable: the index is not open yet, or damaged.
        """
        if self._index is None:
            raise LedgerUnavailable("the index of this group is being opened: try again")
        # A run may be written meanwhile, which has these rows, too.
        recent = [*self._rows.get(fingerprint, ())]
        try:
            rows = await self._run(self._index.find, fingerprint, after, before, limit)
        except IndexDamaged as error:
            self._damage = error
            if not self._news.called:
                self._news.callback(None)
            raise LedgerUnavailable(
                "the index of this group is damaged, and is made again: try again"
            ) from None
        recent += self._rows.get(fingerprint, ())
        rows += [each for each in recent if after < each[FINGERPRINT_SIZE:] < before]
        return [eventIdOf(each) for each in sorted(set(rows))[:limit]]

    # The log

    @asDeferred
    async def _follow(self) -> None:
        while True:
            try:
                if self._index is None:
                    await self._open()
                while True:
                    await self._catchUp()
                    await self._news
                    self._news = Deferred()
            except (BrokerError, OSError) as error:
                self._tell(error)
                await deferLater(self._reactor, RETRY)
            except IndexDamaged as error:
                self._damage = error

    async def _open(self) -> None:
        index = self._made = self._makeIndex()
        for line in await self._run(index.open):
            self._log.warn(
                "the index of group {group} is made again: {line}",
                group=self._ledger.group,
                line=line,
            )
        while index.coverage.height and not await self._isOurs(index.coverage):
            await self._run(index.drop, index.coverage.height)
        self._index = index
        self.height, self._hash = index.coverage.height, index.coverage.hash

    async def _isOurs(self, coverage: Coverage) -> bool:
        """Whether the log has the last block of a run."""
        if coverage.height > self.committed:
            return False
        try:
            return (await self._ledger.readBlock(coverage.height)).hash == coverage.hash
        except HeightUnknown:
            return False

    async def _catchUp(self) -> None:
        """Add the rows of all blocks that are final."""
        assert self._index is not None
        while True:
            if self._damage is not None:
                await self._drop(self._damage)
            if self.height >= self.committed:
                break
            await self._turns.turn()
            while self.height < self.committed and not self._turns.isOver and not self._damage:
                await self._take(self.height + 1)
            if self._count >= RUN_ROWS or self._ranges > MAX_RANGES:
                await self._remove()
                await self._flush()
                await self._inSteps(self._index.merge())
        await self._remove()

    async def _drop(self, damage: IndexDamaged) -> None:
        """Remove the damaged run, and what comes after it: the log has it all."""
        assert self._index is not None
        self._tell(damage)
        await self._run(self._index.drop, damage.first)
        self._rows, self._count = {}, 0
        self.height, self._hash = self._index.coverage.height, self._index.coverage.hash
        self._damage = None

    async def _take(self, height: int) -> None:
        try:
            block = await self._ledger.readBlock(height)
        except HeightUnknown:
            # A ledger that does not have its first blocks any more.
            self.height = height
            return
        rows: list[bytes] = []
        for number, event in enumerate(block.events, 1):
            if not event.isErased:
                place = placeOf(event.eventId)
                rows += [each + place for each in self._fingerprints(event)]
            if number % EVENTS_A_LOOK == 0 and self._turns.isOver:
                await self._turns.turn()
        for topic, ranges in block.erasures:
            self._erased.setdefault(bytes.fromhex(topicPrefix(topic)), []).extend(ranges)
            self._ranges += len(ranges)
        # All at once: a run has the rows of whole blocks.
        for row in rows:
            self._rows.setdefault(row[:FINGERPRINT_SIZE], []).append(row)
        self._count += len(rows)
        self.height, self._hash = block.height, block.hash
        for waiting, awaited in tuple(self._waiting.items()):
            if awaited <= height and not waiting.called:
                waiting.callback(None)

    def _fingerprints(self, event: Event) -> Iterator[bytes]:
        yield contentFingerprint(sha256(event.content).digest())
        if event.author is not None:
            yield authorFingerprint(event.author.key)
        for name in self.names:
            value = event.extensions.get(name)
            if value is not None:
                yield extensionFingerprint(name, value)

    async def _flush(self) -> None:
        """Write a run with the rows in memory."""
        assert self._index is not None
        if self.height == self._index.coverage.height:
            return
        rows = [row for each in self._rows.values() for row in each]
        await self._run(self._index.add, rows, Coverage(height=self.height, hash=self._hash))
        self._rows, self._count = {}, 0

    async def _inSteps(self, steps: Iterator[Any]) -> None:
        """Have long work done in the thread, between what others have it do."""
        while await self._run(next, steps, _END) is not _END:
            pass

    # Erasures

    async def _remove(self) -> None:
        """Remove the rows of erased events."""
        if not self._erased:
            return
        assert self._index is not None
        erased, self._erased, self._ranges = self._erased, {}, 0
        try:
            candidates = [row for rows in self._rows.values() for row in rows if _isIn(erased, row)]
            steps = self._index.scan(erased)
            while (found := await self._run(next, steps, _END)) is not _END:
                candidates += found
            gone = await self._erasedOf(candidates)
            self._forget(gone)
            await self._inSteps(self._index.remove(gone))
        except BaseException:
            for prefix, ranges in erased.items():
                self._erased.setdefault(prefix, []).extend(ranges)
                self._ranges += len(ranges)
            raise

    async def _erasedOf(self, rows: Iterable[bytes]) -> set[bytes]:
        """The rows of which the events are erased: two topics may have one prefix."""
        known: dict[bytes, bool] = {}
        gone = set()
        await self._turns.turn()
        for row in rows:
            place = row[FINGERPRINT_SIZE:]
            if place not in known:
                known[place] = await self._isErased(eventIdOf(row))
            if known[place]:
                gone.add(row)
            if self._turns.isOver:
                await self._turns.turn()
        return gone

    async def _isErased(self, eventId: EventId) -> bool:
        try:
            await self._ledger.getEvent(eventId)
        except EventErased:
            return True
        return False

    def _forget(self, gone: set[bytes]) -> None:
        for row in gone:
            fingerprint = row[:FINGERPRINT_SIZE]
            rows = self._rows.get(fingerprint)
            if rows is not None and row in rows:
                rows.remove(row)
                self._count -= 1
                if not rows:
                    del self._rows[fingerprint]

    def _tell(self, error: Exception) -> None:
        self._log.error(
            "the index of group {group} cannot go on, it is tried again: {reason}",
            group=self._ledger.group,
            reason=getattr(error, "message", None) or str(error),
        )


_END: Final = object()


def _isIn(erased: dict[bytes, list[tuple[int, int]]], row: bytes) -> bool:
    """Whether a row may be that of an erased event."""
    sequence = int.from_bytes(row[18:24], "big")
    return any(first <= sequence <= last for first, last in erased.get(row[14:18], ()))


ROWS_AT_ONCE = 100
"""The number of events that are looked up in the index together."""


@frozen(kw_only=True)
class FindRequest:
    """
    A search for events. At least one of content, author and extensions is given.

    @ivar group: the id of the group.
    @ivar hash: the SHA-256 of the content; C{None} for any.
    @ivar author: the public key of the author; C{None} for any.
    @ivar extensions: extensions that they have, of which the index has rows.
    @ivar filter: a topic or a pattern; empty for all topics.
    @ivar offset: where the search begins.
    @ivar until: before which height or time it ends; C{None} for the end of the log.
    @ivar limit: the most events to give.
    @ivar remote: the address of the client.
    """

    group: str
    hash: bytes | None = None
    author: bytes | None = None
    extensions: Mapping[str, str] = field(factory=dict)
    filter: str = ""
    offset: Offset = Edge.FIRST
    until: Offset | None = None
    limit: int
    remote: str = ""

    def fingerprint(self) -> bytes:
        """The fingerprint of what is likely to be rarest."""
        if self.hash is not None:
            return contentFingerprint(self.hash)
        if self.extensions:
            return extensionFingerprint(*next(iter(self.extensions.items())))
        if self.author is not None:
            return authorFingerprint(self.author)
        raise ParameterInvalid("give hash, author, or an extension")

    def matches(self, event: Event) -> bool:
        """Whether an event is one of those that are looked for."""
        author = None if event.author is None else event.author.key
        return (
            (not self.filter or filterMatches(self.filter, event.topic))
            and (self.author is None or self.author == author)
            and self.extensions.items() <= event.extensions.items()
            and (self.hash is None or self.hash == sha256(event.content).digest())
        )


@frozen(kw_only=True)
class FoundPage:
    """
    Some events that were found.

    @ivar page: the events; its C{next} is where the search goes on.
    @ivar height: the height of the last block of which the index had rows.
    @ivar committed: the height of the last block of the log.
    """

    page: ReadPage
    height: int
    committed: int


class EventSearch:
    """
    Finds events in the groups that have an index.
    """

    def __init__(
        self,
        groups: Groups,
        indexes: Mapping[str, GroupIndex],
        subscriptions: Subscriptions | None = None,
        turns: HistoryTurns | None = None,
        output: OutputBudget | None = None,
        reactor: IReactorTime | None = None,
    ) -> None:
        """
        @param indexes: the indexes by the ids of their groups. Where there are none, nothing else
            is needed.
        @param subscriptions: find the places of times.
        @param turns: say when events may be read.
        @param output: bounds what is read for answers.
        """
        self._groups = groups
        self._indexes = indexes
        self._subscriptions = subscriptions
        self._turns = turns
        self._output = output
        self._reactor = reactor

    @asDeferred
    async def find(self, principal: Principal, request: FindRequest) -> FoundPage:
        """
        Find events that a principal may read, in the order of the log.

        @raise ParameterInvalid: nothing is looked for that the index has, or there is no index.
        @raise TopicNotFound: the topic was never opened.
        @raise NotAuthorized: the principal may read nothing that the pattern matches.
        @raise EventNotFound, HeightUnknown: the search begins or ends at no place in the log.
        @raise Overloaded: too much waits to be sent.
        @raise LedgerUnavailable: the index is being opened, or is damaged.
        """
        index, ledger = self._check(principal, request)
        assert self._output is not None
        await index.reach(index.committed)
        after = await self._placeOf(index, request.group, request.offset)
        before = startOf(MAX_HEIGHT)
        if request.until is not None:
            before = await self._placeOf(index, request.group, request.until)
        height = index.height
        unsent = self._output.unsent(ownerKey(principal.name, request.remote))
        unsent.check()
        page = EventPage(request.limit, unsent, hasTombstones=False)
        try:
            following = await self._search(principal, request, ledger, index, page, after, before)
            checkLogIn(principal)
            batches = page.readableBy(principal, request.group)
        finally:
            page.release()
        isAtEnd = following is None
        found = ReadPage(batches=batches, next=following or height + 1, isAtEnd=isAtEnd)
        return FoundPage(page=found, height=height, committed=index.committed)

    def _check(self, principal: Principal, request: FindRequest) -> tuple[GroupIndex, ILedger]:
        group, ledger = self._groups.find(principal, request.group)
        index = self._indexes.get(group)
        if index is None:
            raise ParameterInvalid("this broker keeps no index: its operator sets find")
        for name in request.extensions:
            if name not in index.names:
                known = ", ".join(index.names) or "none"
                raise ParameterInvalid(f"{name[:100]} is not in the index, which has: {known}")
        request.fingerprint()
        if request.filter:
            checkTopicFilter(ledger, request.filter)
            principal.requireAny(Action.SUBSCRIBE, group, request.filter)
            if not isPattern(request.filter) and ledger.topicState(request.filter) is None:
                raise TopicNotFound()
        return index, ledger

    async def _placeOf(self, index: GroupIndex, group: str, offset: Offset) -> bytes:
        """The place after which events are that come after an offset."""
        assert self._subscriptions is not None
        if isinstance(offset, EventId):
            if offset.height > index.committed:
                raise HeightUnknown()
            if offset.sequence > MAX_HEIGHT:
                raise EventNotFound()
            return placeOf(offset)
        if isinstance(offset, Moment):
            offset = await self._subscriptions.locate(group, offset)
        if isinstance(offset, Position):
            if offset.height > index.committed + 1:
                raise HeightUnknown("the offset names a block above the chain's height")
            return startOf(offset.height)
        return startOf(0 if offset is Edge.FIRST else index.committed + 1)

    async def _search(
        self,
        principal: Principal,
        request: FindRequest,
        ledger: ILedger,
        index: GroupIndex,
        page: EventPage,
        after: bytes,
        before: bytes,
    ) -> EventId | None:
        """
        Fill a page.

        @return: the last event that was looked at; C{None} where all were.
        """
        assert self._reactor is not None and self._turns is not None
        deadline = self._reactor.seconds() + MAX_SEARCH
        fingerprint, looked = request.fingerprint(), None
        await self._turns.turn()
        while True:
            rows = await index.find(fingerprint, after, before, ROWS_AT_ONCE)
            for eventId in rows:
                event = await _read(ledger, eventId)
                if (
                    event is not None
                    and request.matches(event)
                    and principal.may(Action.SUBSCRIBE, request.group, event.topic)
                ):
                    page.add([event], await _timeOf(ledger, eventId.height))
                    if page.isCut:
                        return looked
                looked = eventId
                if page.isFull or self._reactor.seconds() >= deadline:
                    return looked
                if self._turns.isOver:
                    await self._turns.turn()
            if len(rows) < ROWS_AT_ONCE:
                return None
            after = placeOf(rows[-1])


async def _read(ledger: ILedger, eventId: EventId) -> Event | None:
    """An event of which the index has a row; C{None} where that is wrong or erased by now."""
    try:
        return await ledger.getEvent(eventId)
    except (EventErased, EventNotFound, HeightUnknown):
        return None


async def _timeOf(ledger: ILedger, height: int) -> int:
    """The time of a block, in milliseconds since the epoch."""
    page = await ledger.listBlocks(0, 1, height=height)
    return page.items[0].timestamp
