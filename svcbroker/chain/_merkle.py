"""
Merkle trees in the manner of RFC 6962: leaves and inner nodes are hashed apart, and a node that
has no sibling moves up as it is. And the history of a chain: the tree whose leaves are the hashes
of its headers, from genesis on.

Each header holds the root over all headers before it. So a header proves any earlier one with a
path whose length grows with the logarithm of the chain's, and with it everything that the
earlier one stands for.

B{Frozen bytes}: hashes, roots and paths, pinned by C{merkle} and C{history} in
C{docs/vectors/chain.json}.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple, TypeAlias

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


STEP = 8
"""Inner nodes are kept of every eighth level, which is one hash for 256 blocks."""

NodeSource: TypeAlias = Callable[[int, int, int], Sequence[bytes]]
"""
C{source(level, first, count)} gives nodes that have all their leaves, of a level that is a
multiple of L{STEP}. Level 0 are the leaves: L{leafHash} of the headers' hashes.
"""


class HistoryNode(NamedTuple):
    """
    An inner node that is to be kept.

    @ivar level: a multiple of L{STEP}, above 0.
    @ivar position: its place in its level, from 0.
    """

    level: int
    position: int
    hash: bytes


class History(Struct, frozen=True):
    """
    The history up to a block, as much of it as it takes to go on.

    @ivar size: how many headers are in it, that of genesis included.
    @ivar peaks: the roots of the largest full subtrees, from the left.
    @ivar completed: the nodes to be kept that the last header completed.
    """

    size: int
    peaks: tuple[bytes, ...]
    completed: tuple[HistoryNode, ...] = ()

    @classmethod
    def of(cls, hashes: Iterable[bytes]) -> History:
        """The history of headers of these hashes."""
        history = cls(0, ())
        for hash in hashes:
            history = history.after(hash)
        return history

    @classmethod
    def load(cls, size: int, source: NodeSource) -> History:
        """
        The history of a chain that is kept somewhere.

        @raise Malformed: the source has not all of its nodes.
        """
        peaks: list[bytes] = []
        start = 0
        for level in reversed(range(size.bit_length())):
            if size >> level & 1:
                peaks.append(_node(source, level, start >> level))
                start += 1 << level
        return cls(size, tuple(peaks))

    @property
    def root(self) -> bytes:
        """The root over all of it."""
        if not self.peaks:
            return EMPTY_ROOT
        root = self.peaks[-1]
        for peak in self.peaks[-2::-1]:
            root = sha256(b"\x01" + peak + root).digest()
        return root

    def after(self, hash: bytes) -> History:
        """
        The history with one more header.

        @param hash: that header's hash.
        """
        peaks = list(self.peaks)
        node, level, position = leafHash(hash), 0, self.size
        completed: list[HistoryNode] = []
        while position & 1:
            node, level, position = nodeHash(peaks.pop(), node), level + 1, position >> 1
            if level % STEP == 0:
                completed.append(HistoryNode(level, position, node))
        return History(self.size + 1, (*peaks, node), tuple(completed))


def historyPath(index: int, size: int, source: NodeSource) -> Sequence[bytes]:
    """
    The path that proves, to L{rootOfPath<svcbroker.chain.rootOfPath>}, that a header is in a
    history.

    @param index: the header's height.
    @param size: how many headers the history has: the height of the header that holds its root.
    @raise Malformed: there is no such header in it, or the source has not all of its nodes.
    """
    if not 0 <= index < size:
        raise Malformed(f"a history of {size} headers has none of height {index}")
    path: list[bytes] = []
    level = 0
    while size - 1 >> level:
        position = index >> level ^ 1
        start = position << level
        if start < size:
            path.append(_range(source, start, min(size, start + (1 << level))))
        level += 1
    return path


def growthPath(older: int, newer: int, source: NodeSource) -> Sequence[bytes]:
    """
    The path that proves, to L{checkGrowth<svcbroker.chain.checkGrowth>}, that a history is the
    beginning of
    a longer one: the consistency proof of RFC 6962, 2.1.2.

    @param older: how many headers the shorter history has.
    @param newer: how many the longer one has.
    @raise Malformed: it is not longer, or the source has not all of its nodes.
    """
    if not 0 <= older <= newer:
        raise Malformed(f"a history of {older} headers is not the beginning of one of {newer}")
    path: list[bytes] = []
    start, end, isKnown = 0, newer, True
    # From the root down to the last subtree that is full in the shorter history.
    while 0 < older < end:
        middle = start + (1 << (end - start - 1).bit_length() - 1)
        if older <= middle:
            path.append(_range(source, middle, end))
            end = middle
        else:
            path.append(_range(source, start, middle))
            start, isKnown = middle, False
    if not isKnown:
        path.append(_range(source, start, end))
    return path[::-1]


def _range(source: NodeSource, start: int, end: int) -> bytes:
    """The root over the leaves from C{start}, which begins a subtree that reaches C{end}."""
    level = (end - start - 1).bit_length()
    if end - start == 1 << level:
        return _node(source, level, start >> level)
    middle = start + (1 << level - 1)
    return nodeHash(_range(source, start, middle), _range(source, middle, end))


def _node(source: NodeSource, level: int, position: int) -> bytes:
    """A node that has all its leaves."""
    kept = level - level % STEP
    count = 1 << level - kept
    nodes = source(kept, position * count, count)
    if len(nodes) != count:
        raise Malformed("the history is incomplete")
    return merkleRoot(nodes)
