"""
Tests of L{svcbroker.chain._merkle}.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import Malformed, MerkleTree, leafHash, merklePath, merkleRoot, rootOfPath
from svcbroker.chain._merkle import EMPTY_ROOT, nodeHash

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
