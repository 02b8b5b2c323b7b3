"""
The history of a chain: a Merkle tree whose leaves are the hashes of its headers, from genesis on.

Each header holds the root over all headers before it. So a header proves any earlier one with a
path whose length grows with the logarithm of the chain's, and with it everything that the
earlier one stands for.

B{Frozen bytes}: roots and paths, pinned by C{history} in C{docs/vectors/chain.json}.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from ._encoding import Malformed
from ._merkle import EMPTY_ROOT, leafHash, merkleRoot, nodeHash

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
