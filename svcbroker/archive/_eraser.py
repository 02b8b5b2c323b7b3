"""
The eraser: removes the contents of erased events from a stored chain.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import Enum
from operator import itemgetter
from typing import Final

from attrs import frozen

from ..chain import (
    ErasedRange,
    Erasure,
    Header,
    Kind,
    Malformed,
    Transaction,
    TransactionReceipt,
    decodeBody,
    decodeReceipts,
    decodeTable,
    encodeBody,
    merkleRoot,
    receiptLeaves,
    transactionHashes,
)
from ..model import MAX_RANGES, Execution, extendRanges
from ..storage import (
    Append,
    ChainReader,
    ErasableBlock,
    StorageDamaged,
    Store,
    StrippedBlock,
    gapsIn,
    packPositions,
)

VERIFIED_ERASURES: Final = 64
"""The most erasures that are kept after they were verified. Each has at most 1024 ranges."""

ERASURE_BYTES: Final = 128 * MAX_RANGES * VERIFIED_ERASURES
"""The bytes of memory that the ranges of these erasures take."""


class EventRanges:
    """
    Some events, by the ranges of their sequence numbers: most are consecutive.

    @ivar count: how many events there are.
    """

    def __init__(self) -> None:
        self.count = 0
        self._ranges: dict[int, list[tuple[int, int]]] = {}

    def add(self, topic: int, sequence: int) -> None:
        """
        Add an event. The numbers of a topic rise.

        @param topic: the topic's index.
        """
        self.count += 1
        extendRanges(self._ranges.setdefault(topic, []), sequence)

    def without(
        self, erasures: Callable[[int, int, int], Sequence[ErasedRange]]
    ) -> Iterator[tuple[int, int, int]]:
        """
        The events that were not erased: the index of the topic, the first and the last number.

        @param erasures: such as L{ChainReader.erasures<svcbroker.storage.ChainReader.erasures>}.
        """
        for topic, ranges in self._ranges.items():
            for first, last in ranges:
                for start, end in gapsIn(erasures(topic, first, last), first, last):
                    yield topic, start, end


def eventsOf(
    transactions: Sequence[Transaction], append: Append
) -> Iterator[tuple[int, int, Transaction]]:
    """
    The events of a block: topic's index, sequence number and transaction of each.

    @param append: the rows to store for the block.
    """
    indexes = {row.topic.name: row.index for row in append.topics}
    receipts = decodeReceipts(append.block.receipts)
    for transaction, receipt in zip(transactions, receipts, strict=True):
        if _isEvent(transaction, receipt):
            yield indexes[transaction.topic], receipt.sequence, transaction


@frozen
class VerifiedErasure:
    """
    An erasure that a block commits to.

    @ivar header: the header of its block.
    @ivar transaction: the erasure.
    @ivar ranges: pairs of the first and the last sequence number of what it erases, rising.
    """

    header: Header
    transaction: Transaction
    ranges: Sequence[tuple[int, int]]


class ErasureVerifier:
    """
    Compares the erased events that a store's tables name with the erasures in its blocks. A table
    has nothing that shows a changed number, so without this a damaged one would have other events
    removed, or called erased.

    An L{Eraser} asks it before it removes contents, and readers before they answer that an event
    is erased.
    """

    def __init__(self, store: ChainReader) -> None:
        self._store = store
        self._verified: OrderedDict[tuple[int, int], VerifiedErasure] = OrderedDict()

    def check(self, erased: ErasedRange) -> VerifiedErasure:
        """
        Find the erasure that has erased some events. Hashes its block when it comes up first.

        @param erased: what a table says.
        @raise Malformed: its block has no such erasure, or is damaged.
        @raise svcbroker.storage.StorageError: it cannot be read.
        """
        place = erased.height, erased.position
        erasure = self._verified.pop(place, None)
        try:
            if erasure is None:
                erasure = self._read(*place)
            isOfTopic = erasure.transaction.topic == self._store.topicName(erased.topic)
        except Malformed as error:
            raise Malformed(f"{_said(erased)}: {error}") from None
        self._verified[place] = erasure
        if len(self._verified) > VERIFIED_ERASURES:
            self._verified.popitem(last=False)
        if not isOfTopic or not _covers(erasure.ranges, erased.first, erased.last):
            raise Malformed(f"{_said(erased)}: that has erased others")
        return erasure

    def _read(self, height: int, position: int) -> VerifiedErasure:
        row = self._store.block(height) if 0 < height < 2**63 else None
        if row is None:
            raise Malformed("there is no such block")
        header, offsets = Header.decode(row.header), decodeTable(row.body)
        if (header.height, header.hash) != (height, row.hash):
            raise Malformed("the block has the header of another one")
        _checkReceipts(header, transactionHashes(row.body, offsets), row.receipts)
        if not 0 <= position < len(offsets) - 1:
            raise Malformed("the block has no such transaction")
        entry = row.body[offsets[position] : offsets[position + 1]]
        transaction = Transaction.decode(entry, mayBeErased=True)
        receipt = decodeReceipts(row.receipts)[position]
        if transaction.kind is not Kind.ERASE or receipt.execution is not Execution.DONE:
            raise Malformed("that transaction has erased nothing")
        return VerifiedErasure(header, transaction, Erasure.decode(transaction.content).ranges)


def _said(erased: ErasedRange) -> str:
    return (
        f"events {erased.first} to {erased.last} of topic {erased.topic} should be erased by "
        f"transaction {erased.position} of block {erased.height}"
    )


def _checkReceipts(header: Header, hashes: Sequence[bytes], receipts: bytes) -> None:
    """
    @raise Malformed: a block is damaged.
    """
    if merkleRoot(receiptLeaves(hashes, receipts)) != header.receiptRoot:
        raise Malformed("the transactions and receipts are not those of the header")


class Erasing(Enum):
    """The progress of an L{Eraser}."""

    MORE = "more"
    """There is more to do now."""
    WAITING = "waiting"
    """Another process is reading the file: try again later."""
    DONE = "done"
    """No content of an erased event is left in a file of the chain."""


class Eraser:
    """
    Removes the contents of erased events from a store, a part of the work at a time. It continues
    after a crash.

    A ledger calls it where it writes blocks, between them: once it has started, and after each
    block with an erasure, until nothing is left to do.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._verifier = ErasureVerifier(store.written)
        self._stripped: set[str] = set()

    def takeStripped(self) -> Collection[str]:
        """
        The topics whose contents were removed since the last call. Not called during a step.
        """
        stripped, self._stripped = self._stripped, set()
        return stripped

    def step(self) -> Erasing:
        """
        Do a part of the work. It takes some milliseconds, or as long as writing one block.

        @raise StorageFailed: the disk is full or failed. Try again later.
        @raise StorageDamaged: a block is damaged, or what is to be removed is not what the chain
            has erased. So its contents cannot be removed, nor those of later blocks.
        """
        if self._store.eraseSome(self._strip):
            return Erasing.MORE
        if not self._store.endErasing():
            return Erasing.WAITING
        if self._store.compactSome(isBare) or self._store.vacuum():
            return Erasing.MORE
        return Erasing.DONE

    def run(self) -> Erasing:
        """
        Do all of the work.

        @return: L{Erasing.DONE} or L{Erasing.WAITING}.
        @raise StorageError: as for L{step}.
        """
        while (progress := self.step()) is Erasing.MORE:
            pass
        return progress

    def _strip(self, block: ErasableBlock) -> StrippedBlock | None:
        try:
            for each in block.erasures:
                self._verifier.check(each)
            self._stripped.update(block.erased)
            return stripBlock(block, self._store.chainId)
        except Malformed as error:
            raise StorageDamaged(
                f"{self._store.path} is damaged (block {block.height}: {error}), so the contents "
                "that were erased cannot be removed from it: restore it from a backup"
            ) from None


def isBare(body: bytes) -> bool:
    """
    Whether a body has no content that could be erased.
    """
    try:
        transactions = decodeBody(body, mayBeErased=True)
    except Malformed:
        return False
    return not any(
        each.kind is Kind.PUBLISH and (each.seal or each.content) for each in transactions
    )


def stripBlock(block: ErasableBlock, chain: bytes) -> StrippedBlock | None:
    """
    Remove the erased contents from a block. It is checked first, since what is removed
    does not come back.

    @param chain: the chain's id.
    @return: C{None} where it has none of them.
    @raise Malformed: the block is damaged.
    """
    transactions = decodeBody(block.body, mayBeErased=True)
    header = Header.decode(block.header)
    _checkReceipts(header, [each.hash for each in transactions], block.receipts)
    receipts = decodeReceipts(block.receipts)
    erased = {topic: sorted(ranges) for topic, ranges in block.erased.items()}
    keys: list[tuple[bytes, str]] = []
    stripped: list[Transaction] = []
    isChanged = False
    for transaction, receipt in zip(transactions, receipts, strict=True):
        if _isEvent(transaction, receipt) and _isIn(
            erased.get(transaction.topic, ()), receipt.sequence
        ):
            claims = transaction.claims
            if claims is not None and claims.key is not None:
                keys.append((claims.ownerOn(chain), claims.key))
            if transaction.seal or transaction.content:
                transaction = transaction.withoutContent()
                isChanged = True
        stripped.append(transaction)
    if not isChanged:
        return None
    body, offsets = encodeBody(stripped)
    return StrippedBlock(body=body, positions=_positions(stripped, receipts, offsets), keys=keys)


def _isIn(ranges: Sequence[tuple[int, int]], number: int) -> bool:
    """
    Whether a number is in some ranges: one of thousands of events of a block, of which every second
    one may be erased.

    @param ranges: rising, and without overlaps.
    """
    return _covers(ranges, number, number)


def _covers(ranges: Sequence[tuple[int, int]], first: int, last: int) -> bool:
    """Whether one of some ranges, which rise, has all numbers from one to another."""
    place = bisect_right(ranges, first, key=itemgetter(0))
    return place > 0 and last <= ranges[place - 1][1]


def _isEvent(transaction: Transaction, receipt: TransactionReceipt) -> bool:
    return transaction.kind is Kind.PUBLISH and receipt.execution is Execution.DONE


def _positions(
    transactions: Sequence[Transaction],
    receipts: Sequence[TransactionReceipt],
    offsets: Sequence[int],
) -> Mapping[str, bytes]:
    """
    The places of each topic's events in a body.
    """
    places: dict[str, list[tuple[int, int]]] = {}
    for number, (transaction, receipt) in enumerate(zip(transactions, receipts, strict=True)):
        if _isEvent(transaction, receipt):
            start = offsets[number]
            place = start, offsets[number + 1] - start
            places.setdefault(transaction.topic, []).append(place)
    return {topic: packPositions(of) for topic, of in places.items()}
