"""
Merkle trees in the manner of RFC 6962: leaves and inner nodes are hashed apart, and a node that
has no sibling moves up as it is.

B{Frozen bytes}: hashes, roots and paths, pinned by C{merkle} in C{docs/vectors/chain.json}.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256

from msgspec import Struct

from ._encoding import Malformed

EMPTY_ROOT = sha256(b"").digest()


def leafHash(data: bytes) -> bytes:
    """The hash of a leaf that holds C{data}."""
    return sha256(b"\x00" + data).digest()


def nodeHash(left: bytes, right: bytes) -> bytes:
    """The hash of an inner node over two others."""
    return sha256(b"\x01" + left + right).digest()


def merkleRoot(leaves: Sequence[bytes]) -> bytes:
    """
    The root over leaf hashes.

    @param leaves: hashes made by L{leafHash}.
    """
    if not leaves:
        return EMPTY_ROOT
    level = leaves
    while len(level) > 1:
        above = [
            sha256(b"\x01" + level[i] + level[i + 1]).digest() for i in range(0, len(level) - 1, 2)
        ]
        if len(level) % 2:
            above.append(level[-1])
        level = above
    return level[0]


def merklePath(leaves: Sequence[bytes], index: int) -> Sequence[bytes]:
    """
    The path that proves that a leaf is in a tree: the siblings on its way up, from the lowest
    (RFC 6962, 2.1.1).

    @param leaves: hashes made by L{leafHash}.
    @param index: the leaf's place, from 0.
    """
    return MerkleTree(leaves).path(index)


def rootOfPath(leaf: bytes, index: int, size: int, path: Sequence[bytes]) -> bytes:
    """
    The root that a path leads to.

    @param leaf: the leaf's hash.
    @param index: its place, from 0.
    @param size: how many leaves the tree has.
    @raise Malformed: a tree of this size has no such leaf, or not such a path to it.
    """
    if not 0 <= index < size:
        raise Malformed(f"a tree of {size} leaves has no leaf {index}")
    node, position, last = leaf, index, size - 1
    siblings = iter(path)
    try:
        while last:
            if position & 1:
                node = nodeHash(next(siblings), node)
            elif position < last:
                node = nodeHash(node, next(siblings))
            # else it has no sibling and moves up as it is.
            position, last = position >> 1, last >> 1
    except StopIteration:
        raise Malformed("the path is too short") from None
    if next(siblings, None) is not None:
        raise Malformed("the path is too long")
    return node


def checkGrowth(
    older: int, olderRoot: bytes, newer: int, newerRoot: bytes, path: Sequence[bytes]
) -> None:
    """
    Check that a tree is the beginning of a larger one (RFC 9162, 2.1.4.2).

    @param older: how many leaves the smaller tree has.
    @param newer: how many the larger one has.
    @param path: the consistency proof, as L{growthPath<svcbroker.chain.growthPath>} makes it.
    @raise Malformed: it does not follow from the path.
    """
    if not 0 <= older <= newer:
        raise Malformed(f"a tree of {older} leaves is not the beginning of one of {newer}")
    if older in (0, newer):
        if path:
            raise Malformed("the path is too long")
        if olderRoot != (newerRoot if older == newer else EMPTY_ROOT):
            raise Malformed("the trees differ")
        if not newer and newerRoot != EMPTY_ROOT:
            raise Malformed("a tree without leaves has the root of nothing")
        return
    if rootOfGrowth(older, olderRoot, newer, path) != newerRoot:
        raise Malformed("the trees differ")


def rootOfGrowth(older: int, olderRoot: bytes, newer: int, path: Sequence[bytes]) -> bytes:
    """
    The root of the larger tree that a consistency proof leads to from a smaller one.

    @param older: how many leaves the smaller tree has.
    @param newer: how many the larger one has: more.
    @param path: the consistency proof, as L{growthPath<svcbroker.chain.growthPath>} makes it.
    @raise Malformed: the sizes are none, or the path does not lead to the smaller tree's root.
    """
    if not 0 < older < newer:
        raise Malformed(f"a tree of {newer} leaves has not grown from one of {older}")
    position, last = older - 1, newer - 1
    while position & 1:
        position, last = position >> 1, last >> 1
    siblings = iter(path)
    try:
        # The larger one's part that is full in the smaller one; all of that, where it is a power.
        small = large = next(siblings) if position else olderRoot
        while last:
            if position & 1:
                sibling = next(siblings)
                small, large = nodeHash(sibling, small), nodeHash(sibling, large)
            elif position < last:
                large = nodeHash(large, next(siblings))
            # else it has no sibling and moves up as it is.
            position, last = position >> 1, last >> 1
    except StopIteration:
        raise Malformed("the path is too short") from None
    if next(siblings, None) is not None:
        raise Malformed("the path is too long")
    if small != olderRoot:
        raise Malformed("the trees differ")
    return large


class Overlay(Struct, frozen=True, kw_only=True):
    """
    A tree after some changes that are not made yet: only the nodes that differ.

    @ivar size: how many leaves it would have.
    @ivar root: its root.
    @ivar levels: for each level from the leaves up, the changed nodes by their position.
    """

    size: int
    root: bytes
    levels: Sequence[Mapping[int, bytes]]


class MerkleTree:
    """
    A tree whose leaves change and grow in number, at a cost of some hashes a changed leaf.

    @ivar root: the root over all leaves.
    """

    def __init__(self, leaves: Sequence[bytes] = ()) -> None:
        """
        @param leaves: hashes made by L{leafHash}.
        """
        self._levels: list[list[bytes]] = [[]]
        self.root = EMPTY_ROOT
        if leaves:
            self._build(leaves)

    def _build(self, leaves: Sequence[bytes]) -> None:
        level = list(leaves)
        self._levels = [level]
        while len(level) > 1:
            above = [nodeHash(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
            if len(level) % 2:
                above.append(level[-1])
            level = above
            self._levels.append(level)
        self.root = level[0]

    def __len__(self) -> int:
        return len(self._levels[0])

    def path(self, index: int) -> Sequence[bytes]:
        """
        The path that L{merklePath} gives for the same leaves, without hashing anything.
        """
        path: list[bytes] = []
        for level in self._levels[:-1]:
            if index ^ 1 < len(level):
                path.append(level[index ^ 1])
            index >>= 1
        return path

    def preview(self, changes: Mapping[int, bytes]) -> Overlay:
        """
        The tree as it would be with some leaves different. Changes nothing.

        @param changes: new leaf hashes by position. Positions beyond the end are appended and
            must leave no gap.
        """
        if not changes:
            return Overlay(size=len(self), root=self.root, levels=())
        width = size = max(len(self._levels[0]), max(changes) + 1)
        dirty: Mapping[int, bytes] = changes
        levels = [dirty]
        while width > 1:
            base = self._levels[len(levels) - 1] if len(levels) <= len(self._levels) else []
            above: dict[int, bytes] = {}
            # Hot path: for each block, on all levels.
            for position, node in dirty.items():
                sibling = position ^ 1
                if sibling >= width:
                    above[position >> 1] = node
                elif position & 1:
                    left = dirty[sibling] if sibling in dirty else base[sibling]
                    above[position >> 1] = sha256(b"\x01" + left + node).digest()
                elif sibling not in dirty:
                    above[position >> 1] = sha256(b"\x01" + node + base[sibling]).digest()
            levels.append(above)
            dirty = above
            width = width + 1 >> 1
        return Overlay(size=size, root=dirty[0], levels=levels)

    def apply(self, overlay: Overlay) -> None:
        """
        Make the tree what was previewed. Nothing else may have been applied since.
        """
        for depth, changed in enumerate(overlay.levels):
            if depth == len(self._levels):
                self._levels.append([])
            nodes = self._levels[depth]
            for position in sorted(changed):
                if position < len(nodes):
                    nodes[position] = changed[position]
                else:
                    nodes.append(changed[position])
        self.root = overlay.root
