"""
The common part of ledgers that keep their chain in a store: reads from the chain's state and the
store, the comparison of stored events with the headers of their blocks, the bytes of each topic,
the removal of erased contents, the observers of blocks, and L{StoredLedger}, which a ledger
inherits from.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from functools import wraps
from itertools import pairwise
from pathlib import Path
from struct import Struct
from typing import Any, Concatenate, Final, NamedTuple, ParamSpec, TypeVar

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from ..archive import (
    ERASURE_BYTES,
    TREE_BYTES,
    Certificates,
    Eraser,
    Erasing,
    ErasureVerifier,
    Prover,
    exportPart,
    ledgerOf,
)
from ..chain import (
    MAX_HEAD_SIZE,
    RECEIPT_SIZE,
    BodyTable,
    ChainState,
    ErasedRange,
    Genesis,
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
    merkleRoot,
    receiptLeaf,
    receiptLeaves,
    tableSize,
    topicAddress,
    transactionHashes,
)
from ..errors import BrokerError, EventNotFound, HeightUnknown, LedgerUnavailable, ParameterInvalid
from ..interfaces import IBlockObserver, IHoldLedger, ISizedLedger, ITopicRuleLedger, LedgerContext
from ..model import (
    Block,
    BlockRecord,
    ChainPart,
    Event,
    EventId,
    Execution,
    HeldRange,
    HoldRecord,
    Page,
    Position,
    ReleasedPage,
    Statistics,
    Topic,
    TopicRule,
    TransactionRecord,
    filterMatches,
    isPattern,
    topicPrefix,
)
from ..net.deferreds import asDeferred
from ..proofs import Checkpoint, ConsistencyProof, EventProof, GenesisFields, TopicProof
from ..storage import (
    CACHE_BYTES,
    PRINT_SIZE,
    BlockHeadRow,
    BlockRow,
    EventPlace,
    StorageError,
    StorageFailed,
    Store,
    TopicBlockRow,
    findItem,
)
from ._views import (
    blockOf,
    blockRecordOf,
    erasedError,
    eventIdsOf,
    eventOf,
    heldRangesOf,
    holdsOf,
    releasedRecord,
)

ERASING_REST: Final = 2.0
"""
The rest after a step, in units of the time that it took: the disk is for blocks then.
"""

RETRY: Final = 5.0
"""Seconds after which a step is made again that the disk or another process has prevented."""


class ErasingJob:
    """
    Makes the steps of an L{Eraser<svcbroker.archive.Eraser>} in the thread that writes blocks,
    between them. A ledger wakes it once it has started, for what a crash has left, and after each
    block with an erasure.

    @ivar isDone: whether no content of an erased event is left in a file of the chain. Readers do
        not get it from the block of the erasure on.
    """

    _log = Logger()

    def __init__(
        self,
        eraser: Eraser,
        reactor: IReactorTime,
        runInThread: Callable[..., Deferred[Any]],
        removed: Callable[[Collection[str]], object],
    ) -> None:
        """
        @param runInThread: runs blocking disk work, one call after the other.
        @param removed: told of the topics whose contents a step has removed.
        """
        self.isDone = False
        self._eraser = eraser
        self._reactor = reactor
        self._runInThread = runInThread
        self._removed = removed
        self._call: IDelayedCall | None = None
        self._isStepping = self._isWoken = self._isStopped = False
        self._hasRemoved = self._hasWarned = False
        self._waiters: list[Deferred[None]] = []
        self._failure: Failure | None = None

    def wake(self) -> None:
        """Look for something to do."""
        self.isDone, self._failure = False, None
        if self._isStepping:
            self._isWoken = True
        elif not self._isStopped:
            self._schedule(0)

    def stop(self) -> None:
        """
        Make no further step. One that is being made ends before anything else runs in the thread.
        What is left is done after the next start.
        """
        self._isStopped = True
        self._cancel()
        self._end(None)

    def whenDone(self) -> Deferred[None]:
        """
        Fires when no content of an erased event is left in a file of the chain, or when the job is
        stopped. Fails with L{StorageError<svcbroker.storage.StorageError>} where the contents
        cannot be removed; the job then goes on as without it.
        """
        if self._failure is not None:
            return fail(self._failure)
        if self.isDone or self._isStopped:
            return succeed(None)
        done: Deferred[None] = Deferred(self._waiters.remove)
        self._waiters.append(done)
        return done

    def _end(self, result: Failure | None) -> None:
        waiters, self._waiters = self._waiters, []
        for each in waiters:
            each.callback(result)

    def _schedule(self, delay: float) -> None:
        self._cancel()
        self._call = self._reactor.callLater(delay, self._step)

    def _cancel(self) -> None:
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def _step(self) -> None:
        self._call = None
        self._isStepping, self._isWoken = True, False
        started = self._reactor.seconds()
        step = self._runInThread(self._eraser.step)
        step.addCallbacks(self._stepped, self._failed, callbackArgs=(started,))
        step.addErrback(lambda failure: self._log.failure("erasing contents", failure))

    def _stepped(self, progress: Erasing, started: float) -> None:
        self._isStepping = False
        self._removed(self._eraser.takeStripped())
        if progress is Erasing.WAITING:
            self._retry("another process is reading the ledger")
        elif progress is Erasing.MORE or self._isWoken:
            self._hasRemoved = self._hasRemoved or progress is Erasing.MORE
            self._hasWarned = False
            if not self._isStopped:
                self._schedule(ERASING_REST * max(0.0, self._reactor.seconds() - started))
        else:
            self.isDone = True
            if self._hasRemoved:
                self._hasRemoved = False
                self._log.info("the contents of erased events are removed from all files")
            self._end(None)

    def _failed(self, failure: Failure) -> None:
        self._isStepping = False
        if failure.check(StorageFailed):
            self._retry(failure.getErrorMessage())
        else:
            # A damaged block does not mend by itself.
            self._log.failure("the contents of erased events cannot be removed", failure)
            self._failure = failure
        self._end(failure)

    def _retry(self, reason: str) -> None:
        if not self._hasWarned:
            self._hasWarned = True
            self._log.warn(
                "the contents of erased events cannot be removed now, it is tried again: {reason}",
                reason=reason,
            )
        if not self._isStopped:
            self._schedule(RETRY)


CACHED_BYTES: Final = 32 * 1024 * 1024
"""The bytes of blocks that are cached: 8 for each event of a hashed one, 4 of others."""

HOLDS_AT_ONCE: Final = 20
"""The number of stored holds that are read in one turn: up to 1,000 events each, so some 20 ms."""

REST: Final = 20
"""
The rest after a block was hashed, in units of the time that it took. Otherwise
clients that read events all over a long chain would have most of the time spent on it.
"""

_LEAF: Final = Struct(">Q")
_ENTRY_BYTES: Final = 200

# Where the last bytes of the sequence number are in a receipt.
_NUMBER: Final = RECEIPT_SIZE - PRINT_SIZE
_PRINT_MASK: Final = (1 << 8 * PRINT_SIZE) - 1


class _Listed(NamedTuple):
    """
    A block that is not hashed.

    @ivar sums: for each transaction its fingerprint, the end of its sequence number and its
        execution, by exclusive or: as many bytes as the fingerprint alone.
    """

    sums: bytes

    @classmethod
    def of(cls, prints: bytes, receipts: bytes) -> _Listed:
        """
        @param prints: the fingerprints of the block's transactions.
        @param receipts: its encoded receipts. Where there are not as many, the block is damaged,
            and nothing is found in it.
        """
        count = len(receipts) // RECEIPT_SIZE
        if (len(prints), len(receipts)) != (count * PRINT_SIZE, count * RECEIPT_SIZE):
            return cls(b"")
        # In C: the last bytes of the sequence numbers, and the executions above the highest.
        sequences, executions = bytearray(prints), bytearray(len(prints))
        for place in range(PRINT_SIZE):
            sequences[place::PRINT_SIZE] = receipts[_NUMBER + place :: RECEIPT_SIZE]
        executions[::PRINT_SIZE] = receipts[::RECEIPT_SIZE]
        number = int.from_bytes
        total = number(prints, "big") ^ number(sequences, "big") ^ number(executions, "big")
        return cls(total.to_bytes(len(prints), "big"))

    @property
    def size(self) -> int:
        """Bytes in the cache."""
        return len(self.sums) + _ENTRY_BYTES

    def indexes(self, eventId: EventId, hash: bytes) -> Sequence[int]:
        """The indexes that the transaction of an event can have."""
        # The execution of an event is 0.
        wanted = int.from_bytes(hash[:PRINT_SIZE], "big") ^ eventId.sequence & _PRINT_MASK
        return findItem(self.sums, wanted.to_bytes(PRINT_SIZE, "big"))


class _Hashed(NamedTuple):
    """
    A block that is hashed.

    @ivar leaves: the first bytes of the leaves of its receipt tree, as sorted numbers.
    @ivar problem: how it is damaged; empty where it is not.
    """

    leaves: array[int]
    problem: str = ""

    @property
    def size(self) -> int:
        """Bytes in the cache."""
        return len(self.leaves) * _LEAF.size + _ENTRY_BYTES

    def has(self, eventId: EventId, hash: bytes) -> bool:
        """Whether it has an event with a transaction of this hash."""
        receipt = TransactionReceipt(Execution.DONE, eventId.sequence)
        (leaf,) = _LEAF.unpack_from(receiptLeaf(hash, receipt))
        place = bisect_left(self.leaves, leaf)
        return place < len(self.leaves) and self.leaves[place] == leaf


class EventVerifier:
    """
    Verifies that a stored event is the one that its block has, before it is answered.

    The leaves of a block's receipt tree commit to the transactions and the sequence numbers of
    their events, and the block's header has the root. Hashing a block takes 2 to 3 µs a
    transaction, so the first bytes of its leaves are cached. Until a block is hashed, an event is
    compared with the fingerprints and the receipts, which are stored apart from it. That finds the
    same damage of an event, but not the damage of a header.
    """

    def __init__(self, store: Store, seconds: Callable[[], float]) -> None:
        """
        @param seconds: the reactor's clock.
        """
        self._store = store
        self._seconds = seconds
        self._restsUntil = 0.0
        self._blocks: OrderedDict[int, _Listed | _Hashed] = OrderedDict()
        self._cached = 0

    def check(self, eventId: EventId, hash: bytes) -> None:
        """
        Check that a block has an event.

        @param hash: the hash of the event's transaction.
        @raise Malformed: it has not.
        @raise svcbroker.storage.StorageError: the block cannot be read.
        """
        height = eventId.height
        block = self._blocks.get(height)
        if block is not None:
            self._blocks.move_to_end(height)
        if not isinstance(block, _Hashed):
            if self._seconds() < self._restsUntil:
                if block is None:
                    block = self._listed(height)
                    self._cache(height, block)
                if block.indexes(eventId, hash):
                    return
            block = self._hash(height)
        if block.problem:
            raise Malformed(block.problem)
        if not block.has(eventId, hash):
            raise Malformed(f"event {eventId} is not the one that its block commits to")

    def isAt(self, eventId: EventId, hash: bytes, index: int) -> bool:
        """
        Whether an event's transaction has an index in its block.

        @param hash: the hash of the transaction.
        @raise svcbroker.storage.StorageError: the block cannot be read.
        """
        return index in self._listed(eventId.height).indexes(eventId, hash)

    def _listed(self, height: int) -> _Listed:
        return _Listed.of(self._store.fingerprints(height), self._store.receipts(height))

    def _hash(self, height: int) -> _Hashed:
        began = self._seconds()
        row = self._store.block(height)
        if row is None:
            raise Malformed(f"block {height} is missing")
        try:
            hashes = transactionHashes(row.body, decodeTable(row.body))
            leaves = checkReceipts(checkedHeader(row), hashes, row.receipts)
        except Malformed as error:
            # Cached as well: clients may ask for its events without end.
            block = _Hashed(array("Q"), f"block {height}: {error}")
        else:
            block = _Hashed(array("Q", sorted([_LEAF.unpack_from(leaf)[0] for leaf in leaves])))
        self._cache(height, block)
        ended = self._seconds()
        self._restsUntil = ended + REST * (ended - began)
        return block

    def _cache(self, height: int, block: _Listed | _Hashed) -> None:
        replaced = self._blocks.pop(height, None)
        self._blocks[height] = block
        self._cached += block.size - (replaced.size if replaced else 0)
        while self._cached > CACHED_BYTES:
            _, dropped = self._blocks.popitem(last=False)
            self._cached -= dropped.size


def checkedHeader(row: BlockHeadRow) -> Header:
    """
    A block's header, compared with what is stored beside it.

    @raise Malformed: it is damaged.
    """
    header = Header.decode(row.header)
    stored = (row.height, row.hash, row.transactionTotal)
    if (header.height, header.hash, header.transactionTotal) != stored:
        raise Malformed("the header is not the one of the hash that is stored with it")
    return header


def checkReceipts(header: Header, hashes: Sequence[bytes], receipts: bytes) -> Sequence[bytes]:
    """
    Compare a block's transactions and receipts with its header.

    @param hashes: the transactions' hashes.
    @param receipts: the encoded receipts.
    @return: the leaves of the receipt tree.
    @raise Malformed: the block is damaged.
    """
    leaves = receiptLeaves(hashes, receipts)
    if merkleRoot(leaves) != header.receiptRoot:
        raise Malformed("the transactions and receipts are not those of the header")
    return leaves


_MAX_HEIGHT = 2**63 - 1

TOPICS_PER_TURN = 500
"""The number of topics that are counted before the reactor gets its turn."""

ENTRIES_AT_ONCE = 256 * 1024
"""Up to so many bytes, transactions that follow each other are read together."""

STEPS_PER_TURN = 8
"""The number of steps of a long search before the reactor gets its turn."""


class LedgerReader:
    """
    The answers of a ledger from its state and its store. All that can be read is final.
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

    async def listReleased(
        self, limit: int, before: tuple[int, int] | None, case: str | None
    ) -> ReleasedPage:
        """See L{IHoldLedger.listReleased<svcbroker.interfaces.IHoldLedger.listReleased>}."""
        items: list[HoldRecord] = []
        before = before or (_MAX_HEIGHT, 0)
        while True:
            places = self._store.holdPlaces(before, HOLDS_AT_ONCE)
            for place in places:
                before = place.height, place.position
                if place.isReleased and case in (None, place.case):
                    found = self._store.releasedHold(place)
                    items.append(releasedRecord(self._state, found.hold, found.release, case))
                    if len(items) == limit:
                        return ReleasedPage(items=items, next=before)
            if len(places) < HOLDS_AT_ONCE:
                return ReleasedPage(items=items, next=None)
            await self._yieldToReactor()

    def getEvent(self, eventId: EventId) -> Event:
        """See L{ILedger.getEvent<svcbroker.interfaces.ILedger.getEvent>}."""
        with self._store.moment():
            places = self._store.eventPlaces(eventId.prefix, eventId.height, eventId.sequence)
            place = self._onlyPlace(eventId, places)
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
            places = self._store.eventPlaces(eventId.prefix, height, eventId.sequence)
            place = self._onlyPlace(eventId, places)
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

    def _onlyPlace(self, eventId: EventId, places: Sequence[EventPlace | None]) -> EventPlace:
        """
        The place of an event.

        @param places: those where it may stand.
        @raise HeightUnknown: its block is above the chain's height.
        @raise EventNotFound: there is no such event.
        """
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
        with self._store.moment():
            row = self._block(height)
            # Contents may be removed from the body at any time after it is read.
            isErasing = self._store.isErasing()
        try:
            header, transactions = checkedHeader(row), decodeBody(row.body, mayBeErased=True)
            checkReceipts(header, [transaction.hash for transaction in transactions], row.receipts)
            receipts = decodeReceipts(row.receipts)
            if isErasing:
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
            rows = self._topicBlocks(index, first, 1)
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


class Observers:
    """
    Those who follow one ledger's blocks.
    """

    _log = Logger()

    def __init__(self) -> None:
        self._observers: list[IBlockObserver] = []

    def add(self, observer: IBlockObserver) -> None:
        """See L{ILedger.addObserver<svcbroker.interfaces.ILedger.addObserver>}."""
        if observer not in self._observers:
            self._observers.append(observer)

    def remove(self, observer: IBlockObserver) -> None:
        """See L{ILedger.removeObserver<svcbroker.interfaces.ILedger.removeObserver>}."""
        if observer in self._observers:
            self._observers.remove(observer)

    def tell(self, makeBlock: Callable[[], Block]) -> None:
        """
        Tell all of a block. It is only made where somebody listens.
        """
        if not self._observers:
            return
        block = makeBlock()
        for observer in tuple(self._observers):
            try:
                observer.blockCommitted(block)
            except Exception:
                self._log.failure("an observer of blocks failed")


P = ParamSpec("P")
T = TypeVar("T")

IN_MEMORY: Final = 8
"""The memory of the shortest transactions, in multiples of their bytes in a block."""

_ERASURE_VERIFIERS: Final = 4  # of reads, proofs, keys and the removal of contents

LOG_PERIOD = 60.0
"""The period, in seconds, in which each reason why the chain cannot be read is logged once."""

MAX_REASONS = 10
"""The number of reasons that are logged in a period."""


HISTORY_LEVELS = range(0, 64, 8)
"""The levels of the history tree that a store keeps; level 0 are the headers."""

MAX_HASHES = 256
"""The most hashes of the history that are read at a time."""

SYNC_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""The ranges of the time that storing and syncing a block takes, in seconds."""


LATENCY_BOUNDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
"""The ranges of the time until a transaction is final, in seconds."""


PENDING: Final = "pending transactions"
"""The bound of transactions that wait for a block."""

STORED_HOLDERS: Mapping[str, Sequence[str]] = {
    PENDING: ["svcbroker.interfaces._ledger.Submission.outcomes"],
    "blocks that events are verified with": [
        "svcbroker.ledgers._storedledger.EventVerifier._blocks"
    ],
    "trees that proofs are made of": [
        "svcbroker.archive._prover.Prover._trees",
        "svcbroker.archive._prover.BlockTrees.hashes",
        "svcbroker.archive._replay.StoredKeys._counts",
    ],
    "erasures that were verified": ["svcbroker.archive._eraser.ErasureVerifier._verified"],
}
"""The attributes with what L{storedMemory} tells of, by its name."""


def storedMemory(mempool: int, block: int) -> Mapping[str, int]:
    """
    The bounds of what a ledger with a store keeps in memory. See
    L{IBoundedLedgerFactory.memory<svcbroker.interfaces.IBoundedLedgerFactory.memory>}.

    @param mempool: the most bytes of its pending transactions, as they are encoded.
    @param block: the most bytes of a block's, likewise.
    """
    return {
        **({PENDING: IN_MEMORY * mempool} if mempool else {}),
        "blocks being decided": IN_MEMORY * block,
        "pages of the store": CACHE_BYTES,
        "blocks that events are verified with": CACHED_BYTES,
        "trees that proofs are made of": TREE_BYTES,
        "erasures that were verified": _ERASURE_VERIFIERS * ERASURE_BYTES,
    }


def refuseOther(directory: Path, kind: str, found: str | None = None) -> None:
    """
    Refuse to begin, or to go on with, a chain in a directory that has the chain of another kind of
    ledger.

    @param directory: the group's directory.
    @param found: the kind that decided its blocks, where these were read; else its files tell.
    @raise LedgerUnavailable: it has, or is no directory.
    """
    if os.path.lexists(directory) and not directory.is_dir():
        raise LedgerUnavailable(f"{directory} is not a directory: move it away")
    found = ledgerOf(directory) or kind if found is None else found
    if found == "copy" != kind:
        raise LedgerUnavailable(
            f"{directory} is a copy, and the replicas of the original may go on: read it by the "
            "ledger copy, or see svcbroker chain promote (docs/replication.rst)"
        )
    if found != kind:
        raise LedgerUnavailable(
            f"ledger: {directory} has a chain of the ledger {found}, and {kind} cannot go on with "
            f"it: give --ledger {found}, or another data directory"
        )


def _reading(
    read: Callable[Concatenate[LedgerReader, P], T], *, mayWait: bool = True
) -> Callable[Concatenate[StoredLedger, P], Deferred[T]]:
    """
    Make a method of a ledger of one of its reader.

    @param mayWait: whether it waits for what reads wait for.
    """

    @wraps(read)
    def method(ledger: StoredLedger, /, *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        delay = ledger._delay() if mayWait else None
        if delay is not None:
            readNow = _reading(read, mayWait=False)
            return delay.addCallback(lambda _: readNow(ledger, *args, **kwargs))
        try:
            ledger._checkOpen()
            return succeed(read(ledger._reader, *args, **kwargs))
        except BrokerError as error:
            return fail(error)
        except (StorageError, Malformed) as error:
            return fail(ledger._unreadable(error))

    return method


@implementer(IHoldLedger, ISizedLedger, ITopicRuleLedger)
class StoredLedger:
    """
    The reading half of a ledger: of L{ILedger<svcbroker.interfaces.ILedger>} what follows from
    the chain alone, and of L{IProvableLedger<svcbroker.interfaces.IProvableLedger>} and
    L{IExportableLedger<svcbroker.interfaces.IExportableLedger>} all of it.

    @ivar group: the id of the group whose log it is.
    @ivar chain: the id of the chain; empty until there is one.
    @ivar topicRule: the rule of topics' names on it.
    """

    _log = Logger()

    def __init__(self, context: LedgerContext) -> None:
        """
        @param context: what it lives on.
        """
        self.group = context.group
        self.chain = b""
        # Until there is a chain, no name is refused that a chain may have.
        self.topicRule = TopicRule.UTF8
        self._reactor = context.reactor
        self._runInThread = context.runInThread
        self._turn = context.turn
        self._observers = Observers()
        self._logged: set[str] = set()
        self._loggedAt = -LOG_PERIOD

    def _openReads(self, genesis: Genesis, state: ChainState, store: Store) -> None:
        """There is a chain to read, in place of any former one."""
        if self.chain:
            self._erasing.stop()
        self.chain, self.topicRule = genesis.chain, genesis.topics
        self._state = state
        self._directory = store.path.parent
        self._reader = LedgerReader(state, store, self._reactor.seconds, self._yieldToReactor)
        self._topicBytes = TopicBytes(state, store, self._yieldToReactor)
        self._prover = Prover(genesis, store)
        self._erasing: ErasingJob = ErasingJob(
            Eraser(store), self._reactor, self._runInThread, self._topicBytes.forget
        )

    def _stopErasing(self) -> Deferred[None]:
        """Stop removing contents. Fires when nothing writes to the store for it any more."""
        if self.chain:
            self._erasing.stop()
        return self._runInThread(lambda: None)

    def _checkOpen(self) -> None:
        """
        @raise LedgerUnavailable: the store cannot be read now.
        """
        raise NotImplementedError

    def topicState(self, name: str) -> Topic | None:
        self._checkOpen()
        return self._state.topic(name)

    @property
    def latestRelease(self) -> int:
        self._checkOpen()
        return self._state.holds.released

    def heldRanges(
        self, topic: str, ranges: Sequence[tuple[int, int]]
    ) -> Sequence[Iterator[HeldRange]]:
        self._checkOpen()
        return heldRangesOf(self._state, topic, ranges)

    def listHolds(
        self, offset: int, limit: int, *, case: str | None = None
    ) -> Deferred[Page[HoldRecord]]:
        return self._read(lambda: holdsOf(self._state, offset, limit, case))

    def listReleased(
        self, limit: int, *, before: tuple[int, int] | None = None, case: str | None = None
    ) -> Deferred[ReleasedPage]:
        return self._search(lambda: self._reader.listReleased(limit, before, case))

    # Hot path: each is its own way from the call to the reader.
    listTopics = _reading(LedgerReader.listTopics)
    getEvent = _reading(LedgerReader.getEvent)
    locate = _reading(LedgerReader.locate)
    mayHold = _reading(LedgerReader.mayHold)
    readBlock = _reading(LedgerReader.readBlock)
    findBlocks = _reading(LedgerReader.findBlocks)

    def countEvents(self, filters: Sequence[str], first: int) -> Deferred[int]:
        return self._search(lambda: self._reader.countEvents(filters, first))

    def topicBytes(self, names: Sequence[str]) -> Deferred[Sequence[int | None]]:
        return self._search(lambda: self._topicBytes.count(names))

    def getGenesis(self) -> Deferred[GenesisFields]:
        return self._read(lambda: self._prover.genesis())

    def getCheckpoint(self, height: int | None) -> Deferred[Checkpoint]:
        return self._read(lambda: self._prover.checkpoint(height))

    def prove(
        self, eventId: EventId, checkpoint: int | None, *, trusted: int | None = None
    ) -> Deferred[EventProof]:
        return self._prove(
            lambda given: self._prover.event(eventId, checkpoint, given, trusted=trusted)
        )

    def proveConsistency(self, older: int, newer: int) -> Deferred[ConsistencyProof]:
        return self._read(lambda: self._prover.consistency(older, newer))

    @asDeferred
    async def proveTopic(self, name: str) -> TopicProof:
        proof = await self._read(lambda: self._prover.topic(name, self._state))
        return await self._prove(lambda given: self._prover.certified(proof, given))

    def readHistory(self, level: int, first: int, count: int) -> Deferred[Sequence[bytes]]:
        if level not in HISTORY_LEVELS or first < 0 or not 0 <= count <= MAX_HASHES:
            error = f"at most {MAX_HASHES} hashes of every eighth level can be read"
            return fail(ParameterInvalid(error))
        return self._read(lambda: self._prover.history(level, first, count))

    def _privateKey(self) -> bytes:
        """
        The private key that others are derived from.

        @raise LedgerUnavailable: there is none now.
        """
        raise NotImplementedError

    def deriveKey(self, purpose: str) -> bytes:
        info = f"svcbroker {purpose}".encode()
        return HKDF(SHA256(), 32, self.chain, info).derive(self._privateKey())

    def exportBlocks(self, first: int) -> ChainPart:
        # In a thread, so nothing is read of the ledger but the path of its file.
        try:
            return exportPart(self._directory, first)
        except StorageError as error:
            self._log.error("a part of the chain cannot be exported: {error}", error=str(error))
            raise LedgerUnavailable("the ledger's disk cannot be read") from None

    def addObserver(self, observer: IBlockObserver) -> None:
        self._observers.add(observer)

    def removeObserver(self, observer: IBlockObserver) -> None:
        self._observers.remove(observer)

    def listBlocks(
        self, offset: int, limit: int, *, height: int | None = None, hash: bytes | None = None
    ) -> Deferred[Page[BlockRecord]]:
        return self._read(lambda: self._reader.listBlocks(offset, limit, height, hash))

    def listTransactions(
        self, offset: int, limit: int, *, height: int | None = None, hash: bytes | None = None
    ) -> Deferred[Page[TransactionRecord]]:
        return self._search(lambda: self._reader.listTransactions(offset, limit, height, hash))

    def _prove(self, make: Callable[[Certificates], T]) -> Deferred[T]:
        """
        Make a proof.

        @param make: makes it with the certificates that the store does not have.
        """
        return self._read(lambda: make({}))

    def _read(self, read: Callable[[], T]) -> Deferred[T]:
        return _reading(lambda _: read())(self)

    def _delay(self) -> Deferred[None] | None:
        """
        The end of the delay of reads.

        @return: C{None} where they can be made at once.
        """
        return None

    @asDeferred
    async def _search(self, search: Callable[[], Coroutine[Deferred[Any], Any, T]]) -> T:
        await self._whenRead()
        try:
            self._checkOpen()
            return await search()
        except (StorageError, Malformed) as error:
            raise self._unreadable(error) from None

    def _unreadable(self, error: StorageError | Malformed) -> LedgerUnavailable:
        """
        Log why the chain cannot be read, and make the error for the client.
        """
        # Clients may ask for damaged events without end.
        now = self._reactor.seconds()
        if not 0 <= now - self._loggedAt < LOG_PERIOD:
            self._loggedAt = now
            self._logged.clear()
        reason = str(error)
        if reason not in self._logged and len(self._logged) < MAX_REASONS:
            self._logged.add(reason)
            self._log.error(
                "the chain of group {group} cannot be read: {reason}",
                group=self.group,
                reason=reason,
            )
        return LedgerUnavailable("the ledger's disk cannot be read")

    @asDeferred
    async def _yieldToReactor(self) -> None:
        await self._whenRead()
        await self._turn()
        self._checkOpen()

    async def _whenRead(self) -> None:
        delay = self._delay()
        if delay is not None:
            await delay


PIECES_A_CALL: Final = 100
"""
The most pieces of the index that a call reads. Each takes about a millisecond; the next call goes
on where this one has stopped.
"""

TOPICS_A_TURN: Final = 50
"""The number of topics that are looked at before the reactor gets its turn."""


class TopicBytes:
    """
    The bytes that the events of each topic have in the bodies of blocks, counted when somebody
    asks: publishing pays nothing for it, a restart forgets nothing, and an erasure makes them
    fewer.

    What was counted is kept in 16 bytes a topic, with the height up to which it goes. A call reads
    the index of later blocks only.
    """

    def __init__(
        self, state: ChainState, store: Store, yieldToReactor: Callable[[], Deferred[None]]
    ) -> None:
        """
        @param yieldToReactor: gives the reactor its turn in the middle of a long count.
        """
        self._state = state
        self._store = store
        self._yieldToReactor = yieldToReactor
        self._heights = array("Q")
        self._counts = array("Q")

    async def count(self, names: Iterable[str]) -> Sequence[int | None]:
        """
        The bytes of topics; C{None} for one that is not counted up to its end yet, or never was
        opened.

        @raise svcbroker.storage.StorageError: the index cannot be read.
        """
        left = PIECES_A_CALL
        found: list[int | None] = []
        for number, name in enumerate(names, 1):
            if number % TOPICS_A_TURN == 0:
                await self._yieldToReactor()
            index = self._state.topicIndex(name)
            if index is None:
                found.append(None)
                continue
            self._grow(index)
            isWhole = self._isWhole(index)
            while not isWhole and left:
                isWhole = self._readPiece(index)
                left -= not isWhole
                if not isWhole:
                    await self._yieldToReactor()
            found.append(self._counts[index] if isWhole else None)
        return found

    def forget(self, names: Iterable[str]) -> None:
        """Count topics anew: contents were removed from blocks."""
        for name in names:
            index = self._state.topicIndex(name)
            if index is not None and index < len(self._counts):
                self._heights[index] = self._counts[index] = 0

    def _isWhole(self, index: int) -> bool:
        return self._heights[index] >= self._state.topicAt(index).height

    def _readPiece(self, index: int) -> bool:
        """Count the events of some more blocks. Whether that is all that are stored."""
        height, size, isEnd = self._store.eventBytes(index, self._heights[index])
        self._heights[index] = height
        self._counts[index] += size
        return isEnd or self._isWhole(index)

    def _grow(self, index: int) -> None:
        missing = index + 1 - len(self._counts)
        if missing > 0:
            self._heights.extend([0] * missing)
            self._counts.extend([0] * missing)
