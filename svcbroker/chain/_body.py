"""
The body of a block: its transactions, one after the other, behind a table of their sizes, by which
some are read and not all; and the receipts, one for each.

B{Frozen bytes}: bodies and receipts, pinned by C{bodies} and C{receipts} in
C{docs/vectors/chain.json}.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Sequence
from hashlib import sha256
from itertools import accumulate, pairwise
from typing import Final

from msgspec import Struct

from ..model import Execution
from ._encoding import PAIR, U16, U32, Malformed
from ._merkle import leafHash, merkleRoot
from ._transaction import Transaction, endOfClaims

_STRIDE: Final = 128

_U32_CODE: Final = next(code for code in "IL" if array(code).itemsize == U32.size)

_RECEIPT = struct.Struct(">BQ")

# Hot path: a look into a table takes a fifth of the time of a call of the enumeration.
_EXECUTIONS: Final = {execution.value: execution for execution in Execution}

RECEIPT_SIZE = _RECEIPT.size
"""Bytes of one encoded receipt."""


def encodeBody(transactions: Sequence[Transaction]) -> tuple[bytes, Sequence[int]]:
    """
    The body of a block: how many transactions there are, how long each is, and they themselves.

    @return: the bytes, and where in them each transaction starts, and after the last of these
        the end.
    """
    count = len(transactions)
    parts: list[bytes] = []
    for transaction in transactions:
        parts += (transaction.head, transaction.seal, transaction.content)
    # Their sizes in the body count the entries of the table, too.
    sizes = [transaction.size - U32.size for transaction in transactions]
    table = struct.pack(f">I{count}I", count, *sizes)
    return table + b"".join(parts), list(accumulate(sizes, initial=len(table)))


def tableSize(count: int) -> int:
    """The number of bytes of a body before the first of C{count} transactions."""
    return U32.size * (count + 1)


def decodeTable(table: bytes) -> Sequence[int]:
    """
    Read the offsets of a body's transactions, and after the last of these the end.

    @param table: the first L{tableSize} bytes of the body, or more.
    @raise Malformed: that is no such beginning.
    """
    if len(table) < U32.size:
        raise Malformed("the body ends early")
    count: int = U32.unpack_from(table)[0]
    if len(table) < tableSize(count):
        raise Malformed("the body ends early")
    sizes = struct.unpack_from(f">{count}I", table, U32.size)
    return list(accumulate(sizes, initial=tableSize(count)))


def transactionHashes(body: bytes, offsets: Sequence[int]) -> Sequence[bytes]:
    """
    The hashes of the transactions of a block that is known to be good.

    @param offsets: what L{decodeTable} gave.
    @raise Malformed: it is not good.
    """
    hashes = []
    try:
        for start, end in pairwise(offsets):
            at = endOfClaims(body, start)
            (extensions,) = U16.unpack_from(body, at)
            at += U16.size
            for _ in range(extensions):
                keySize, valueSize = PAIR.unpack_from(body, at)
                at += PAIR.size + keySize + valueSize
            if at > end:
                raise Malformed("a transaction ends early")
            hashes.append(sha256(b"\x00" + body[start:at]).digest())
    except (struct.error, IndexError):
        raise Malformed("the body ends early") from None
    return hashes


def decodeBody(body: bytes, mayBeErased: bool = False) -> Sequence[Transaction]:
    """
    The transactions of a block.

    @param mayBeErased: whether publishes may stand there without their content.
    @raise Malformed: the bytes are not a body.
    """
    offsets = decodeTable(body)
    if offsets[-1] != len(body):
        raise Malformed("the body is not as long as it says")
    return Transaction.decodeAll(body, offsets, mayBeErased)


class BodyTable:
    """
    The offsets of a body's transactions.

    L{decodeTable<svcbroker.chain.decodeTable>} makes all offsets; this adds sizes up, in C, and
    makes those that are asked for. Of a block of ten thousand transactions it costs a tenth.
    """

    def __init__(self, table: bytes) -> None:
        """
        @param table: the first L{tableSize<svcbroker.chain.tableSize>} bytes of the body, or more.
        @raise Malformed: that is no such beginning.
        """
        count = bodyCount(table)
        if len(table) < tableSize(count):
            raise Malformed("the body ends early")
        self._start = tableSize(count)
        self._sizes = array(_U32_CODE, table[U32.size : self._start])
        if sys.byteorder == "little":
            self._sizes.byteswap()

    def __len__(self) -> int:
        return len(self._sizes)

    def bounds(self, first: int, end: int) -> Sequence[tuple[int, int]]:
        """
        The offsets at which the transactions from the C{first}-th, counted from 0, up to the one
        before the C{end}-th start and end.
        """
        start = self._start + sum(self._sizes[:first])
        return list(pairwise(accumulate(self._sizes[first:end], initial=start)))

    def index(self, offset: int) -> int:
        """
        The number of the first transaction that starts at an offset or after it; that of all where
        none does.
        """
        at = self._start
        for first in range(0, len(self._sizes), _STRIDE):
            stride = self._sizes[first : first + _STRIDE]
            following = at + sum(stride)
            if following > offset:
                for number, size in enumerate(stride, first):
                    if at >= offset:
                        return number
                    at += size
                return first + len(stride)
            at = following
        return len(self._sizes)


def bodyCount(body: bytes) -> int:
    """
    Read the number of a body's transactions.

    @param body: its first 4 bytes, or more.
    @raise Malformed: there are fewer.
    """
    if len(body) < U32.size:
        raise Malformed("the body ends early")
    count: int = U32.unpack_from(body)[0]
    return count


class TransactionReceipt(Struct, frozen=True, gc=False):
    """
    The end of a transaction.

    @ivar execution: what came of it.
    @ivar sequence: for a publish that was done, the event's number in its topic; otherwise 0.
    """

    execution: Execution
    sequence: int


def encodeReceipts(receipts: Sequence[TransactionReceipt]) -> bytes:
    """The receipts of a block, in the order of its transactions."""
    pack = _RECEIPT.pack
    return b"".join([pack(receipt.execution, receipt.sequence) for receipt in receipts])


def decodeReceipts(data: bytes) -> Sequence[TransactionReceipt]:
    """
    Read a block's receipts.

    @raise Malformed: the bytes are not receipts.
    """
    if len(data) % RECEIPT_SIZE:
        raise Malformed("the receipts end early")
    try:
        return [
            TransactionReceipt(_EXECUTIONS[execution], sequence)
            for execution, sequence in _RECEIPT.iter_unpack(data)
        ]
    except KeyError:
        raise Malformed("an execution is not known") from None


def receiptLeaf(transactionHash: bytes, receipt: TransactionReceipt) -> bytes:
    """
    The leaf hash of a transaction's receipt.
    """
    return leafHash(transactionHash + _RECEIPT.pack(receipt.execution, receipt.sequence))


def receiptLeaves(transactionHashes: Sequence[bytes], encoded: bytes) -> Sequence[bytes]:
    """
    The leaf hashes of a block's receipts.

    @param encoded: what L{encodeReceipts} gave.
    @raise Malformed: there are not as many receipts as transactions.
    """
    size = RECEIPT_SIZE
    if len(encoded) != size * len(transactionHashes):
        raise Malformed("there are not as many receipts as transactions")
    return [
        sha256(b"\x00" + hash + encoded[at : at + size]).digest()
        for hash, at in zip(transactionHashes, range(0, len(encoded), size), strict=True)
    ]


def receiptRoot(transactionHashes: Sequence[bytes], encoded: bytes) -> bytes:
    """
    The Merkle root of a block's receipts: a leaf is a transaction's hash and its receipt, so
    that an event's sequence number can be proved.

    @param encoded: what L{encodeReceipts} gave.
    @raise Malformed: there are not as many receipts as transactions.
    """
    return merkleRoot(receiptLeaves(transactionHashes, encoded))
