"""
Comparing stored events with the headers of their blocks.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final, NamedTuple

from ..chain import (
    RECEIPT_SIZE,
    Header,
    Malformed,
    TransactionReceipt,
    decodeTable,
    merkleRoot,
    receiptLeaf,
    receiptLeaves,
    transactionHashes,
)
from ..model import EventId, Execution
from ..storage import PRINT_SIZE, BlockHeadRow, Store, findItem

CACHED_BYTES: Final = 32 * 1024 * 1024
"""The bytes of blocks that are cached: 8 for each event of a hashed one, 4 of others."""

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
