"""
That a transaction is in a block of the engine: Merkle paths in the manner of RFC 6962.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ...chain import leafHash, merkleRoot
from ._hashing import transactionHash
from ._values import Hex, Natural


class Path(Struct, frozen=True, kw_only=True):
    """
    The way from a leaf to its tree's root.

    @ivar index: which leaf it is, from 0.
    @ivar total: how many the tree has.
    @ivar aunts: the hashes to go up with, from the leaf's sibling on.
    """

    index: Natural
    total: Natural
    aunts: tuple[Hex, ...]


class PathInvalid(Exception):
    """A path that no tree has."""


def pathOf(transactions: Sequence[bytes], index: int) -> Path:
    """
    The path of one of a block's transactions.

    @param index: which one, from 0.
    @raise IndexError: there is no such.
    """
    level = [leafHash(transactionHash(each)) for each in transactions]
    if not 0 <= index < len(level):
        raise IndexError(index)
    aunts = []
    position = index
    while len(level) > 1:
        sibling = position ^ 1
        if sibling < len(level):
            aunts.append(Hex(level[sibling]))
        level = [merkleRoot(level[left : left + 2]) for left in range(0, len(level), 2)]
        position >>= 1
    return Path(index=index, total=len(transactions), aunts=tuple(aunts))


def rootOf(transaction: bytes, path: Path) -> bytes:
    """
    The hash of the transactions of the block that a transaction is in, if its path is right:
    to be compared with the header's C{dataHash}.

    @raise PathInvalid: the path is too short or too long, or lies outside its tree.
    """
    if path.index >= path.total:
        raise PathInvalid("the path begins outside its tree")
    node = leafHash(transactionHash(transaction))
    position, width = path.index, path.total
    aunts = iter(path.aunts)
    while width > 1:
        # The last node of a row of odd width has no sibling and moves up as it is.
        if position ^ 1 < width:
            aunt = next(aunts, None)
            if aunt is None:
                raise PathInvalid("the path is too short")
            node = merkleRoot((aunt, node) if position & 1 else (node, aunt))
        position >>= 1
        width = (width + 1) >> 1
    if next(aunts, None) is not None:
        raise PathInvalid("the path is too long")
    return node
