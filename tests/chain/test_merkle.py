"""
Tests of L{svcbroker.chain._merkle}: trees, L{svcbroker.chain.History} and the paths in it.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import (
    History,
    Malformed,
    MerkleTree,
    NodeSource,
    checkGrowth,
    growthPath,
    historyPath,
    leafHash,
    merklePath,
    merkleRoot,
    rootOfPath,
)
from svcbroker.chain._merkle import EMPTY_ROOT, STEP, HistoryNode, nodeHash

from . import reference
from .support import few

hashes = st.binary(min_size=32, max_size=32)


class RootTests(SynchronousTestCase):
    """
    Roots at once.
    """

    def test_emptyTreeHashesNothing(self) -> None:
        """No leaves: the hash of nothing, as RFC 6962 says."""
        self.assertEqual(merkleRoot([]), EMPTY_ROOT)
        self.assertEqual(EMPTY_ROOT, reference.digest())

    def test_leavesAndInnerNodesDiffer(self) -> None:
        """A hashed leaf cannot be taken for an inner node."""
        left, right = leafHash(b"a"), leafHash(b"b")
        self.assertNotEqual(leafHash(left + right), nodeHash(left, right))
        self.assertEqual(merkleRoot([left, right]), nodeHash(left, right))

    @few
    @given(st.lists(hashes, max_size=70))
    def test_treeEqualsRecursiveDefinition(self, leaves: list[bytes]) -> None:
        """Building level by level gives what the recursive definition gives."""
        expected = reference.root(leaves)
        self.assertEqual(merkleRoot(leaves), expected)
        self.assertEqual(MerkleTree(leaves).root, expected)

    def test_treesMatchRootsAtEverySize(self) -> None:
        """Roots are those of the reference, at each size around the powers of two too."""
        leaves = [leafHash(bytes([number])) for number in range(130)]
        for size in range(131):
            self.assertEqual(merkleRoot(leaves[:size]), reference.root(leaves[:size]), size)


class PathTests(SynchronousTestCase):
    """
    Paths prove that a leaf is in a tree.
    """

    LEAVES = tuple(leafHash(bytes([number])) for number in range(70))

    def test_everyLeafHasItsPath(self) -> None:
        """Each leaf of each tree has the path of RFC 6962, and it leads to the root."""
        for size in range(1, 71):
            leaves = self.LEAVES[:size]
            root = reference.root(leaves)
            for index in range(size):
                path = merklePath(leaves, index)
                self.assertEqual(path, reference.path(leaves, index))
                self.assertEqual(rootOfPath(leaves[index], index, size, path), root)

    def test_everyChangeLeadsToAnotherRoot(self) -> None:
        """With any other leaf, place, size or hash on the way there is another root, or none."""
        for size in (1, 2, 3, 5, 8, 13, 21):
            leaves = self.LEAVES[:size]
            root = reference.root(leaves)
            for index in range(size):
                path = list(merklePath(leaves, index))
                for place in range(-1, size + 3):
                    if place != index:
                        found = self.tried(leaves[index], place, size, path)
                        self.assertNotEqual(found, root, (size, index, place))
                for at in range(len(path)):
                    for byte in (0, 31):
                        flipped = bytearray(path[at])
                        flipped[byte] ^= 0x80
                        changed = [*path[:at], bytes(flipped), *path[at + 1 :]]
                        found = rootOfPath(leaves[index], index, size, changed)
                        self.assertNotEqual(found, root)
                self.assertNotEqual(rootOfPath(self.LEAVES[69], index, size, path), root)

    def tried(self, leaf: bytes, index: int, size: int, path: list[bytes]) -> bytes | None:
        """The root that a path leads to, if any."""
        try:
            return rootOfPath(leaf, index, size, path)
        except Malformed:
            return None

    def test_pathOfWrongLengthIsRefused(self) -> None:
        """A path that is too short or too long leads nowhere."""
        for size in range(1, 71):
            leaves = self.LEAVES[:size]
            for index in range(size):
                path = list(merklePath(leaves, index))
                for more in (1, 2):
                    with self.assertRaises(Malformed):
                        rootOfPath(leaves[index], index, size, [*path, *[bytes(32)] * more])
                for less in range(len(path)):
                    with self.assertRaises(Malformed):
                        rootOfPath(leaves[index], index, size, path[:less])

    def test_indexOutsideTreeIsRefused(self) -> None:
        """There is no leaf outside a tree, and none in an empty one."""
        for index, size in ((-1, 5), (5, 5), (6, 5), (0, 0), (-1, 0), (0, -1), (2**64, 5)):
            with self.assertRaises(Malformed):
                rootOfPath(bytes(32), index, size, [])

    @few
    @given(st.integers(0, 2**70), st.integers(0, 2**70), st.lists(hashes, max_size=80))
    def test_arbitraryNumbersAreMalformed(self, index: int, size: int, path: list[bytes]) -> None:
        """Of numbers from anywhere it makes a hash or says L{Malformed}, at once."""
        try:
            self.assertEqual(len(rootOfPath(bytes(32), index, size, path)), 32)
        except Malformed:
            return
        self.assertLess(index, size)


class TreeTests(SynchronousTestCase):
    """
    Trees that change.
    """

    @few
    @given(
        st.lists(hashes, max_size=20),
        st.lists(
            st.tuples(st.dictionaries(st.integers(0, 63), hashes, max_size=6), st.integers(0, 9)),
            max_size=8,
        ),
    )
    def test_changedTreeEqualsRebuiltTree(
        self, start: list[bytes], steps: list[tuple[dict[int, bytes], int]]
    ) -> None:
        """
        After any changes and additions the tree is the one that would be built of its leaves,
        and a preview has changed nothing.
        """
        tree, leaves = MerkleTree(start), list(start)
        for drawn, added in steps:
            changes = {at % len(leaves): value for at, value in drawn.items() if leaves}
            for number in range(added):
                changes[len(leaves) + number] = leafHash(bytes([number]))
            before = tree.root
            overlay = tree.preview(changes)
            self.assertEqual((tree.root, len(tree)), (before, len(leaves)))
            for at in sorted(changes):
                leaves[at : at + 1] = [changes[at]]
            self.assertEqual(overlay.root, reference.root(leaves))
            self.assertEqual(overlay.size, len(leaves))
            tree.apply(overlay)
            self.assertEqual((tree.root, len(tree)), (overlay.root, len(leaves)))
            # The inner nodes too, since later previews build on them.
            self.assertEqual(tree._levels, MerkleTree(leaves)._levels)

    def test_previewsAreIndependent(self) -> None:
        """Of several previews on one tree, each stands for itself."""
        leaves = [leafHash(bytes([number])) for number in range(5)]
        tree = MerkleTree(leaves)
        first = tree.preview({4: leafHash(b"x")})
        second = tree.preview({5: leafHash(b"y")})
        self.assertEqual(first.root, reference.root([*leaves[:4], leafHash(b"x")]))
        self.assertEqual(second.root, reference.root([*leaves, leafHash(b"y")]))

    def test_emptyChangeKeepsRoot(self) -> None:
        """No change, no difference; also to an empty tree."""
        for leaves in ([], [leafHash(b"a")]):
            tree = MerkleTree(leaves)
            overlay = tree.preview({})
            tree.apply(overlay)
            self.assertEqual((overlay.root, overlay.size), (reference.root(leaves), len(leaves)))
            self.assertEqual((tree.root, len(tree)), (overlay.root, len(leaves)))

    def test_callersListStaysAsItIs(self) -> None:
        """A tree does not change the list that it was made of."""
        leaves = [leafHash(b"a")]
        tree = MerkleTree(leaves)
        tree.apply(tree.preview({0: leafHash(b"b"), 1: leafHash(b"c")}))
        self.assertEqual(leaves, [leafHash(b"a")])


MOST = 5000
HASHES = [reference.digest(number.to_bytes(4, "big")) for number in range(MOST)]
LEAVES = [leafHash(hash) for hash in HASHES]


class Kept:
    """
    The nodes that a chain would keep, as it came to them.

    @ivar histories: the history of each size.
    @ivar read: how many nodes were read.
    """

    def __init__(self, size: int) -> None:
        self.histories = [History(0, ())]
        self.nodes: dict[tuple[int, int], bytes] = {}
        for height in range(size):
            following = self.histories[-1].after(HASHES[height])
            self.histories.append(following)
            self.nodes[0, height] = LEAVES[height]
            for node in following.completed:
                assert (node.level, node.position) not in self.nodes
                self.nodes[node.level, node.position] = node.hash
        self.read = 0

    def source(self, level: int, first: int, count: int) -> Sequence[bytes]:
        """The nodes, as many as there are."""
        found = [
            self.nodes[level, position]
            for position in range(first, first + count)
            if (level, position) in self.nodes
        ]
        self.read += len(found)
        return found


KEPT = Kept(MOST)


def without(level: int, position: int) -> NodeSource:
    """The nodes that are kept, but for one."""

    def source(wanted: int, first: int, count: int) -> Sequence[bytes]:
        nodes = list(KEPT.source(wanted, first, count))
        if wanted == level and first <= position < first + count:
            del nodes[position - first]
        return nodes

    return source


sizes = st.integers(1, MOST) | st.sampled_from([1, 255, 256, 257, 511, 512, 513, 4095, 4096, 4097])


class HistoryTests(SynchronousTestCase):
    """
    The history as a chain goes on.
    """

    def setUp(self) -> None:
        KEPT.read = 0

    def test_rootEqualsRecursiveDefinition(self) -> None:
        """After each header, the root is that of the recursive definition."""
        for size in [*range(140), 255, 256, 257, 1000, MOST]:
            history = KEPT.histories[size]
            self.assertEqual(history.size, size)
            self.assertEqual(history.root, reference.history(HASHES[:size]), size)

    def test_historyAtOnceEqualsOneByOne(self) -> None:
        """A history of headers at once is the one that came header by header."""
        for size in (0, 1, 2, 7, 256):
            self.assertEqual(History.of(HASHES[:size]), KEPT.histories[size])

    def test_sizeGrowsLogarithmically(self) -> None:
        """The nodes that it takes to go on grow with the logarithm."""
        for size, history in enumerate(KEPT.histories):
            self.assertEqual(len(history.peaks), size.bit_count())
            self.assertLessEqual(len(history.completed), 2)

    def test_nodesAreCompletedOnce(self) -> None:
        """Each node of every eighth level is completed once, by its last leaf, and by no other."""
        for size in range(1, MOST + 1):
            completed = KEPT.histories[size].completed
            self.assertEqual([node.level for node in completed], [STEP] if size % 256 == 0 else [])
            for node in completed:
                start, end = node.position << STEP, node.position + 1 << STEP
                self.assertEqual(end, size)
                self.assertEqual(node.hash, reference.root(LEAVES[start:end]))

    def test_nodesOfTheSixteenthLevelAreKept(self) -> None:
        """Header 65536 completes a node of level 16, at its place."""
        history = History.of(HASHES[:1] * 65535)
        self.assertEqual(history.completed, ())
        last = history.after(HASHES[0])
        self.assertEqual([(n.level, n.position) for n in last.completed], [(8, 255), (16, 0)])
        node = LEAVES[0]
        for _ in range(16):
            node = reference.digest(b"\1", node, node)
        self.assertEqual(last.completed[1], HistoryNode(16, 0, node))
        self.assertEqual((last.root, last.peaks), (node, (node,)))

    def test_afterChangesNothing(self) -> None:
        """A history that was gone on from is what it was: two blocks may be tried."""
        history = History.of(HASHES[:6])
        before = history.root
        first, second = history.after(HASHES[6]), history.after(HASHES[7])
        self.assertNotEqual(first.root, second.root)
        self.assertEqual(history.root, before)
        self.assertEqual(second.root, reference.history([*HASHES[:6], HASHES[7]]))

    @few
    @given(sizes)
    def test_loadedHistoryContinuesAlike(self, size: int) -> None:
        """A history that is read back goes on as the one that was never left."""
        kept = KEPT.histories[size]
        loaded = History.load(size, KEPT.source)
        self.assertEqual((loaded.size, loaded.peaks, loaded.root), (size, kept.peaks, kept.root))
        if size < MOST:
            self.assertEqual(loaded.after(HASHES[size]), KEPT.histories[size + 1])

    def test_emptyHistoryReadsNothing(self) -> None:
        """Before genesis there is nothing to read."""
        self.assertEqual(History.load(0, KEPT.source), History(0, ()))
        self.assertEqual(KEPT.read, 0)

    def test_loadingReadsFewHashes(self) -> None:
        """To read a history back takes some hundred hashes, whatever its length."""
        for size in (4095, MOST):
            KEPT.read = 0
            History.load(size, KEPT.source)
            self.assertLess(KEPT.read, 2 * 256)
            for height in (0, 1000, size - 1):
                KEPT.read = 0
                historyPath(height, size, KEPT.source)
                self.assertLess(KEPT.read, 6 * 256)


class HistoryPathTests(SynchronousTestCase):
    """
    Proofs that a header is in a history.
    """

    def checkPath(self, height: int, size: int) -> None:
        """A path is that of the definition and leads to the root."""
        path = historyPath(height, size, KEPT.source)
        self.assertEqual(path, reference.path(LEAVES[:size], height))
        root = KEPT.histories[size].root
        self.assertEqual(rootOfPath(LEAVES[height], height, size, path), root)

    def test_pathsInShortHistories(self) -> None:
        """Each header of each short history."""
        for size in range(1, 40):
            for height in range(size):
                self.checkPath(height, size)

    @few
    @given(sizes, st.data())
    def test_pathsInLongHistories(self, size: int, data: st.DataObject) -> None:
        """Any header of long ones, the first and the last."""
        drawn = data.draw(st.integers(0, size - 1))
        for height in (0, drawn, size - 1):
            self.checkPath(height, size)

    def test_unknownHeaderHasNoPath(self) -> None:
        """A header that is not in the history has no path."""
        for height, size in ((-1, 3), (3, 3), (4, 3), (0, 0)):
            self.assertRaises(Malformed, historyPath, height, size, KEPT.source)


class IncompleteTests(SynchronousTestCase):
    """
    Sources that have not all nodes.
    """

    def test_missingNodeNeverGivesWrongPath(self) -> None:
        """Whichever node is missing that is asked for, nothing wrong comes out."""
        asked: set[tuple[int, int]] = set()

        def watched(level: int, first: int, count: int) -> Sequence[bytes]:
            asked.update((level, position) for position in range(first, first + count))
            return KEPT.source(level, first, count)

        History.load(4821, watched)
        historyPath(700, 4821, watched)
        self.assertGreater(len(asked), 256)
        loads = paths = 0
        for level, position in sorted(asked)[::5]:
            source = without(level, position)
            try:
                loaded = History.load(4821, source)
                self.assertEqual(loaded.root, KEPT.histories[4821].root)
            except Malformed:
                loads += 1
            try:
                path = historyPath(700, 4821, source)
                self.assertEqual(path, reference.path(LEAVES[:4821], 700))
            except Malformed:
                paths += 1
        self.assertGreater(loads, 0)
        self.assertGreater(paths, 0)

    def test_surplusNodesAreRefused(self) -> None:
        """A source that gives more than was asked for is refused as well."""

        def more(level: int, first: int, count: int) -> Sequence[bytes]:
            return KEPT.source(level, first, count + 1)

        self.assertRaises(Malformed, History.load, 300, more)
        self.assertRaises(Malformed, historyPath, 3, 300, more)

    def test_emptyHistoryHasNoPath(self) -> None:
        """A source without nodes is refused."""
        self.assertRaises(Malformed, History.load, 1, lambda level, first, count: [])
        self.assertRaises(Malformed, historyPath, 0, 2, lambda level, first, count: [])


def growthOf(older: int, leaves: Sequence[bytes], isKnown: bool = True) -> list[bytes]:
    """The consistency proof as RFC 6962, 2.1.2 defines it: SUBPROOF."""
    if older == len(leaves):
        return [] if isKnown else [merkleRoot(leaves)]
    middle = 1 << (len(leaves) - 1).bit_length() - 1
    if older <= middle:
        return [*growthOf(older, leaves[:middle], isKnown), merkleRoot(leaves[middle:])]
    return [*growthOf(older - middle, leaves[middle:], False), merkleRoot(leaves[:middle])]


class GrowthTests(SynchronousTestCase):
    """
    L{growthPath} and L{checkGrowth}.
    """

    def test_pathIsThatOfTheRfc(self) -> None:
        """The path is the one that RFC 6962 defines, for all small histories."""
        roots = [KEPT.histories[size].root for size in range(70)]
        for newer in range(70):
            for older in range(newer + 1):
                path = growthPath(older, newer, KEPT.source)
                self.assertEqual(path, growthOf(older, LEAVES[:newer]) if older else [])
                checkGrowth(older, roots[older], newer, roots[newer], path)

    @few
    @given(sizes, sizes, st.data())
    def test_otherPathsAndRootsAreRefused(self, one: int, other: int, data: st.DataObject) -> None:
        """Nothing but the path and the two roots is accepted."""
        older, newer = sorted((one, other))
        path = growthPath(older, newer, KEPT.source)
        roots = KEPT.histories[older].root, KEPT.histories[newer].root
        checkGrowth(older, roots[0], newer, roots[1], path)
        wrong = [(roots[0], bytes(32), path), (roots[0], roots[1], [*path, bytes(32)])]
        if older != newer:
            wrong.append((bytes(32), roots[1], path))
        if path:
            place = data.draw(st.integers(0, len(path) - 1))
            wrong += [
                (*roots, [*path[:place], *path[place + 1 :]]),
                (*roots, [*path[:place], bytes(32), *path[place + 1 :]]),
            ]
        for first, last, tried in wrong:
            with self.assertRaises(Malformed):
                checkGrowth(older, first, newer, last, tried)

    def test_shorterHistoriesAreRefused(self) -> None:
        """A history does not grow from a longer one."""
        for older, newer in ((2, 1), (-1, 5)):
            with self.assertRaises(Malformed):
                growthPath(older, newer, KEPT.source)
            with self.assertRaises(Malformed):
                checkGrowth(older, bytes(32), newer, bytes(32), [])
