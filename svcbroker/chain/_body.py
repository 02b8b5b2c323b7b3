"""
The body of a block: its transactions, one after the other.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from hashlib import sha256
from itertools import accumulate, pairwise

from ._encoding import U16, U32, Malformed
from ._extensions import PAIR
from ._head import endOfClaims
from ._transaction import Transaction


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
    """How many bytes a body has before the first of C{count} transactions."""
    return U32.size * (count + 1)


def decodeTable(table: bytes) -> Sequence[int]:
    """
    Where the transactions of a body start, and after the last of these the end.

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
    decode = Transaction.decode
    return [decode(body[start:end], mayBeErased) for start, end in pairwise(offsets)]
