"""
Comparing stored events with the headers of their blocks.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final

from ..chain import (
    RECEIPT_SIZE,
    Header,
    Malformed,
    TransactionReceipt,
    decodeTable,
    encodeReceipts,
    merkleRoot,
    receiptLeaf,
    receiptLeaves,
    transactionHashes,
)
from ..model import EventId, Execution
from ..storage import PRINT_SIZE, BlockHeadRow, Store, findItem

CACHED_BYTES: Final = 32 * 1024 * 1024
"""How many bytes of verified blocks are cached: 8 for each event."""

REST: Final = 10
"""
How long no other block is hashed after one was, in units of the time that it took. Otherwise
clients that read events all over a long chain would have most of the time spent on it.
"""

_LEAF: Final = Struct(">Q")
_ENTRY_BYTES: Final = 150


class EventVerifier:
    """
    Verifies that a stored event is the one that its block has, before it is answered.

    The leaves of a block's receipt tree commit to the transactions and the sequence numbers of
    their events, and the block's header has the root. Hashing a block takes 2 to 3 µs a
    transaction, so the first bytes of its leaves are cached. While blocks are not hashed, an event
    is compared with the fingerprints and the receipts, which are stored apart from it. That finds
    the same damage of an event, but not the damage of a header.
    """

    def __init__(self, store: Store, seconds: Callable[[], float]) -> None:
        """
        @param seconds: the reactor's clock.
        """
        self._store = store
        self._seconds = seconds
        self._restsUntil = 0.0
        self._leaves: OrderedDict[int, array[int]] = OrderedDict()
        self._cached = 0

    def check(self, eventId: EventId, hash: bytes) -> None:
        """
        Check that a block has an event.

        @param hash: the hash of the event's transaction.
        @raise Malformed: it has not.
        @raise svcbroker.storage.StorageError: the block cannot be read.
        """
        height, receipt = eventId.height, TransactionReceipt(Execution.DONE, eventId.sequence)
        leaves = self._leaves.get(height)
        if leaves is not None:
            self._leaves.move_to_end(height)
        elif self._seconds() < self._restsUntil and self._indexes(height, hash, receipt):
            return
        else:
            leaves = self._hash(height)
        (leaf,) = _LEAF.unpack_from(receiptLeaf(hash, receipt))
        place = bisect_left(leaves, leaf)
        if leaves[place : place + 1] != array("Q", (leaf,)):
            raise Malformed(f"event {eventId} is not the one that its block commits to")

    def isAt(self, eventId: EventId, hash: bytes, index: int) -> bool:
        """
        Whether an event's transaction has an index in its block.

        @param hash: the hash of the transaction.
        @raise svcbroker.storage.StorageError: the block cannot be read.
        """
        return index in self._indexes(
            eventId.height, hash, TransactionReceipt(Execution.DONE, eventId.sequence)
        )

    def _indexes(self, height: int, hash: bytes, receipt: TransactionReceipt) -> Sequence[int]:
        """The indexes that a transaction can have by the fingerprints and receipts of a block."""
        receipts, wanted = self._store.receipts(height), encodeReceipts((receipt,))
        return [
            index
            for index in findItem(self._store.fingerprints(height), hash[:PRINT_SIZE])
            if receipts[index * RECEIPT_SIZE : (index + 1) * RECEIPT_SIZE] == wanted
        ]

    def _hash(self, height: int) -> array[int]:
        """The first bytes of a block's leaves, as sorted numbers."""
        began = self._seconds()
        row = self._store.block(height)
        if row is None:
            raise Malformed(f"block {height} is missing")
        try:
            hashes = transactionHashes(row.body, decodeTable(row.body))
            checked = checkReceipts(checkedHeader(row), hashes, row.receipts)
        except Malformed as error:
            raise Malformed(f"block {height}: {error}") from None
        leaves = array("Q", sorted([_LEAF.unpack_from(leaf)[0] for leaf in checked]))
        self._leaves[height] = leaves
        self._cached += len(leaves) * _LEAF.size + _ENTRY_BYTES
        while self._cached > CACHED_BYTES:
            _, dropped = self._leaves.popitem(last=False)
            self._cached -= len(dropped) * _LEAF.size + _ENTRY_BYTES
        ended = self._seconds()
        self._restsUntil = ended + REST * (ended - began)
        return leaves


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
