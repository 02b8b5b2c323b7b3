"""
Receipts of a block: how each of its transactions ended.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from hashlib import sha256

from msgspec import Struct

from ..model import Execution
from ._encoding import Malformed
from ._merkle import leafHash, merkleRoot

_RECEIPT = struct.Struct(">BQ")

RECEIPT_SIZE = _RECEIPT.size
"""Bytes of one encoded receipt."""


class TransactionReceipt(Struct, frozen=True):
    """
    How a transaction ended.

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
            TransactionReceipt(Execution(execution), sequence)
            for execution, sequence in _RECEIPT.iter_unpack(data)
        ]
    except ValueError:
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
