"""
That a transaction is in a block of the engine.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ...chain import leafHash, merklePath, rootOfPath
from ...proofs.cometbft import Hex, Natural, transactionHash


class Path(Struct, frozen=True, kw_only=True):
    """
    The way from a transaction to the hash of all of its block's.

    @ivar index: which one it is, from 0.
    @ivar total: how many there are.
    @ivar aunts: the hashes to go up with, from its neighbour's on.
    """

    index: Natural
    total: Natural
    aunts: tuple[Hex, ...]


def pathOf(transactions: Sequence[bytes], index: int) -> Path:
    """
    The path of one of a block's transactions.

    @param index: which one, from 0.
    @raise IndexError: there is no such.
    """
    if not 0 <= index < len(transactions):
        raise IndexError(index)
    leaves = [leafHash(transactionHash(each)) for each in transactions]
    aunts = tuple(map(Hex, merklePath(leaves, index)))
    return Path(index=index, total=len(leaves), aunts=aunts)


def rootOf(transaction: bytes, path: Path) -> bytes:
    """
    The hash of the transactions of the block that a transaction is in, if its path is right:
    to be compared with the header's C{dataHash}.

    @raise Malformed: no block has such a path.
    """
    return rootOfPath(leafHash(transactionHash(transaction)), path.index, path.total, path.aunts)
