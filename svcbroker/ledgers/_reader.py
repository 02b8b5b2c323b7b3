"""
Reading a chain that is in a store.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from itertools import pairwise

from twisted.internet.defer import Deferred

from ..archive import ErasureVerifier
from ..chain import (
    MAX_HEAD_SIZE,
    BodyTable,
    ChainState,
    ErasedRange,
    Header,
    Kind,
    Malformed,
    Transaction,
    TransactionReceipt,
    TransactionSummary,
    bodyCount,
    decodeBody,
    decodeReceipts,
    decodeTable,
    encodeReceipts,
    tableSize,
    topicAddress,
)
from ..errors import EventNotFound, HeightUnknown
from ..model import (
    Block,
    BlockRecord,
    Event,
    EventId,
    Execution,
    Page,
    Position,
    Statistics,
    Topic,
    TransactionRecord,
    filterMatches,
    isPattern,
    topicPrefix,
)
from ..storage import BlockHeadRow, BlockRow, EventPlace, Store, TopicBlockRow, findItem
from ._verifying import EventVerifier, checkedHeader, checkReceipts
from ._views import blockOf, blockRecordOf, erasedError, eventIdsOf, eventOf

_MAX_HEIGHT = 2**63 - 1

TOPICS_PER_TURN = 500
"""How many topics are counted before the reactor gets its turn."""

ENTRIES_AT_ONCE = 256 * 1024
"""Up to so many bytes, transactions that follow each other are read together."""

STEPS_PER_TURN = 8
"""How many steps of a long search are made before the reactor gets its turn."""


class ChainReader:
    """
    What a ledger answers from its state and its store. All that can be read is final.
    """

    def __init__(
        self,
        state: ChainState,
        store: Store,
        seconds: Callable[[], float],
        yieldToReactor: Callable[[], Deferred[None]],
    ) -> None:
        """
        @param seconds: the reactor's clock.
        @param yieldToReactor: gives the reactor its turn in the middle of a long search.
        """
        self._state = state
        self._store = store
        self._verifier = EventVerifier(store, seconds)
        self._erasures = ErasureVerifier(store)
        self._yieldToReactor = yieldToReactor

    def listTopics(self, offset: int, limit: int) -> Page[Topic]:
        """See L{ILedger.listTopics<svcbroker.interfaces.ILedger.listTopics>}."""
        return Page(total=self._state.openCount, items=self._state.openTopics(offset, limit))

    def getEvent(self, eventId: EventId) -> Event:
        """See L{ILedger.getEvent<svcbroker.interfaces.ILedger.getEvent>}."""
        with self._store.moment():
            place = self._place(eventId)
            entry = self._store.bodySlice(eventId.height, place.offset, place.length)
            try:
                transaction = Transaction.decode(entry, mayBeErased=True)
            except Malformed as error:
                raise Malformed(f"event {eventId}: {error}") from None
            # Also while its content is not removed yet.
            erased = self._erasure(transaction.topic, eventId.sequence)
            isRemoved = erased is not None and not self._store.isErasing()
        self._check(eventId, transaction.topic, transaction.hash)
        if erased is not None:
            erasure = self._erasures.check(erased)
            if isRemoved and (transaction.content or transaction.seal):
                raise Malformed(f"event {eventId} is erased, and still has its content")
            raise erasedError(erasure.header, erasure.transaction, erased)
        if transaction.isErased:
            raise Malformed(f"event {eventId} has no content, and nothing has erased it")
        return eventOf(transaction, eventId, 0)

    def _erasure(self, topic: str, sequence: int) -> ErasedRange | None:
        index = self._state.topicIndex(topic)
        return None if index is None else self._store.erasure(index, sequence)

    def locate(self, eventId: EventId) -> Position:
        """See L{ILedger.locate<svcbroker.interfaces.ILedger.locate>}."""
        height = eventId.height
        with self._store.moment():
            place = self._place(eventId)
            size = min(place.length, MAX_HEAD_SIZE)
            entry = self._store.bodySlice(height, place.offset, size)
            count = bodyCount(self._store.bodySlice(height, 0, tableSize(0)))
            index = place.number
            if place.count != count:
                table = self._store.bodySlice(height, 0, tableSize(count))
                index = BodyTable(table).index(place.offset)
        try:
            summary = TransactionSummary.decode(entry)
        except Malformed as error:
            raise Malformed(f"event {eventId}: {error}") from None
        self._check(eventId, summary.topic, summary.hash)
        if not self._verifier.isAt(eventId, summary.hash, index):
            raise Malformed(f"event {eventId} is not where the table of its block says")
        return Position(height, index)

    def _check(self, eventId: EventId, topic: str, hash: bytes) -> None:
        """
        Check that a transaction is the one that published an event.

        @param topic: the transaction's topic.
        @param hash: its hash.
        @raise Malformed: it is not.
        """
        if topicPrefix(topic) != eventId.prefix:
            raise Malformed(f"event {eventId} is one of another topic")
        self._verifier.check(eventId, hash)

    def _place(self, eventId: EventId) -> EventPlace:
        """
        Where an event stands.

        @raise HeightUnknown: its block is above the chain's height.
        @raise EventNotFound: there is no such event.
        """
        places = self._store.eventPlaces(eventId.prefix, eventId.height, eventId.sequence)
        for place in filter(None, places):
            return place
        if not places and eventId.height > self._height():
            raise HeightUnknown()
        self._checkAbsent(eventId)
        raise EventNotFound()

    def _checkAbsent(self, eventId: EventId) -> None:
        """
        Check that a block has no event that the index does not have.

        @raise Malformed: the index is damaged.
        """
        if not eventId.sequence:
            return
        receipt = encodeReceipts([TransactionReceipt(Execution.DONE, eventId.sequence)])
        indexes = findItem(self._store.receipts(eventId.height), receipt)
        row = self._store.block(eventId.height) if indexes else None
        if row is None:
            return
        entries = list(pairwise(decodeTable(row.body)))
        for index in indexes:
            if index >= len(entries):
                raise Malformed(f"block {eventId.height} has more receipts than transactions")
            start, end = entries[index]
            topic = TransactionSummary.decode(row.body[start:end]).topic
            if topicPrefix(topic) == eventId.prefix:
                raise Malformed(f"event {eventId} is not in the index")

    def mayHold(self, height: int, extension: str) -> bool:
        """
        See L{ILedger.mayHold<svcbroker.interfaces.ILedger.mayHold>}. A body has each extension's
        name as it is, so a block whose body has it nowhere needs no decoding.
        """
        return extension.encode("utf-8") in self._block(height).body

    def readBlock(self, height: int) -> Block:
        """See L{ILedger.readBlock<svcbroker.interfaces.ILedger.readBlock>}."""
        row = self._block(height)
        try:
            header, transactions = checkedHeader(row), decodeBody(row.body, mayBeErased=True)
            checkReceipts(header, [transaction.hash for transaction in transactions], row.receipts)
            receipts = decodeReceipts(row.receipts)
            if self._store.isErasing():
                transactions = self._withoutErased(transactions, receipts)
            return blockOf(header, transactions, eventIdsOf(height, transactions, receipts))
        except Malformed as error:
            raise Malformed(f"block {height}: {error}") from None

    def _withoutErased(
        self, transactions: Sequence[Transaction], receipts: Sequence[TransactionReceipt]
    ) -> Sequence[Transaction]:
        """Leave out contents that are erased and not removed from the body yet."""
        events: dict[str, dict[int, int]] = {}
        for place, (transaction, receipt) in enumerate(zip(transactions, receipts, strict=True)):
            if transaction.kind is Kind.PUBLISH and receipt.execution is Execution.DONE:
                events.setdefault(transaction.topic, {})[receipt.sequence] = place
        left = list(transactions)
        for topic, places in events.items():
            index = self._state.topicIndex(topic)
            if index is None:
                continue
            first, last = min(places), max(places)
            for erased in self._store.erasures(index, first, last):
                self._erasures.check(erased)
                for sequence in range(max(first, erased.first), min(last, erased.last) + 1):
                    place = places[sequence]
                    left[place] = Transaction.decode(left[place].head, mayBeErased=True)
        return left

    def _block(self, height: int) -> BlockRow:
        row = self._store.block(height) if 1 <= height <= _MAX_HEIGHT else None
        if row is None:
            if 1 <= height <= self._height():
                raise Malformed(f"block {height} is missing")
            raise HeightUnknown()
        return row

    def findBlocks(self, topics: Sequence[str], first: int, limit: int) -> Sequence[int]:
        """See L{ILedger.findBlocks<svcbroker.interfaces.ILedger.findBlocks>}."""
        heights: set[int] = set()
        for name in set(topics):
            index = self._state.topicIndex(name)
            if index is not None:
                rows = self._topicBlocks(index, first, limit)
                heights.update(row.height for row in rows)
        return sorted(heights)[:limit]

    def _topicBlocks(self, index: int, first: int, limit: int) -> Sequence[TopicBlockRow]:
        """
        The index of a topic from a height on.

        @raise Malformed: it leaves out events.
        """
        topic = self._state.topicAt(index)
        before = self._store.lastTopicBlock(index, first - 1) if first > 1 else None
        rows = self._store.topicBlocks(index, first - 1, limit)
        sequence = 0 if before is None else before.firstSequence + before.count - 1
        height = first - 1
        for row in rows:
            if row.firstSequence != sequence + 1 or row.height <= height:
                raise Malformed(f"the index of topic {topic.name} leaves out events")
            sequence, height = sequence + row.count, row.height
        isLast = sequence == topic.sequence and rows
        if (isLast and height != topic.height) or (len(rows) < limit and sequence < topic.sequence):
            raise Malformed(f"the index of topic {topic.name} does not lead to its last event")
        return rows

    async def countEvents(self, filters: Sequence[str], first: int) -> int:
        """See L{ILedger.countEvents<svcbroker.interfaces.ILedger.countEvents>}."""
        indexes: Iterable[int | None] = range(self._state.topicCount)
        if not any(map(isPattern, filters)):
            indexes = map(self._state.topicIndex, set(filters))
        count = 0
        for number, index in enumerate(indexes, 1):
            if number % TOPICS_PER_TURN == 0:
                await self._yieldToReactor()
            if index is None:
                continue
            topic = self._state.topicAt(index)
            if topic.height < first or not any(filterMatches(f, topic.name) for f in filters):
                continue
            rows = self._store.topicBlocks(index, first - 1, 1)
            if rows:
                count += self._state.topicAt(index).sequence - rows[0].firstSequence + 1
        return count

    def getStatistics(self, nodeCount: int) -> Statistics:
        """See L{ILedger.getStatistics<svcbroker.interfaces.ILedger.getStatistics>}."""
        tip = self._store.tip()
        return Statistics(
            nodeCount=nodeCount,
            height=tip.height if tip else 0,
            transactionCount=tip.transactionTotal if tip else 0,
        )

    def listBlocks(
        self, offset: int, limit: int, height: int | None, hash: bytes | None
    ) -> Page[BlockRecord]:
        """See L{ILedger.listBlocks<svcbroker.interfaces.ILedger.listBlocks>}."""
        if height is None and hash is None:
            total = self._height()
            last = total - offset
            rows = self._store.blockHeads(max(1, last - limit + 1), last) if last >= 1 else ()
            return Page(total=total, items=[_record(row) for row in reversed(rows)])
        if hash is not None:
            found = self._store.heightOfHash(hash)
            height = found if height in (None, found) else None
        row = None if height is None else self._head(height)
        items = [] if row is None else [_record(row)]
        return Page(total=len(items), items=items[offset : offset + limit])

    async def listTransactions(
        self, offset: int, limit: int, height: int | None, hash: bytes | None
    ) -> Page[TransactionRecord]:
        """See L{ILedger.listTransactions<svcbroker.interfaces.ILedger.listTransactions>}."""
        if hash is not None:
            found = [
                record
                async for record in self._transactionsOfHash(hash)
                if height in (None, record.height)
            ]
            return Page(total=len(found), items=found[offset : offset + limit])
        if height is not None:
            row = self._head(height)
            if row is None:
                return Page(total=0, items=())
            total = Header.decode(row.header).transactionCount
            return Page(total=total, items=self._before(row, total - offset, limit))
        tip = self._store.tip()
        total = tip.transactionTotal if tip else 0
        items: list[TransactionRecord] = []
        place = self._store.locateTransaction(total - 1 - offset)
        if place is not None:
            at, end = place.height, place.index + 1
            while at >= 1 and len(items) < limit:
                row = self._head(at)
                if row is None:
                    break
                count = Header.decode(row.header).transactionCount if end < 0 else end
                items += self._before(row, count, limit - len(items))
                at, end = at - 1, -1
        return Page(total=total, items=items)

    async def _transactionsOfHash(self, hash: bytes) -> AsyncIterator[TransactionRecord]:
        for number, places in enumerate(self._store.findTransaction(hash)):
            for place in places:
                row = self._head(place.height)
                if row is not None:
                    for record in self._before(row, place.index + 1, 1):
                        if record.hash == hash:
                            yield record
            if number % STEPS_PER_TURN == STEPS_PER_TURN - 1:
                await self._yieldToReactor()

    def _before(self, row: BlockHeadRow, end: int, limit: int) -> Sequence[TransactionRecord]:
        """Up to C{limit} transactions of a block before the C{end}-th, newest first."""
        start = max(0, end - limit)
        if end <= start:
            return ()
        header = checkedHeader(row)
        records = []
        with self._store.moment():
            entries = self._entries(row.height, header.transactionCount, start, end)
        for entry in reversed(entries):
            summary = TransactionSummary.decode(entry)
            records.append(
                TransactionRecord(
                    height=header.height,
                    timestamp=header.timestamp,
                    hash=summary.hash,
                    sender=summary.sender,
                    recipient=topicAddress(header.chain, summary.topic),
                )
            )
        return records

    def _entries(self, height: int, count: int, first: int, end: int) -> Sequence[bytes]:
        """Some of a block's transactions, with as much of each as is sure to hold its head."""
        bounds = BodyTable(self._store.bodySlice(height, 0, tableSize(count))).bounds(first, end)
        begin, size = bounds[0][0], bounds[-1][1] - bounds[0][0]
        if size <= ENTRIES_AT_ONCE:
            run = self._store.bodySlice(height, begin, size)
            return [run[start - begin : stop - begin] for start, stop in bounds]
        return [
            self._store.bodySlice(height, start, min(stop - start, MAX_HEAD_SIZE))
            for start, stop in bounds
        ]

    def _height(self) -> int:
        tip = self._store.tip()
        return tip.height if tip else 0

    def _head(self, height: int) -> BlockHeadRow | None:
        return self._store.blockHead(height) if 1 <= height <= _MAX_HEIGHT else None


def _record(row: BlockHeadRow) -> BlockRecord:
    return blockRecordOf(checkedHeader(row))
