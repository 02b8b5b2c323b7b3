"""
Tests of L{svcbroker.storage.TreeFile}: a Merkle tree in a file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import checkGrowth, leafHash, merkleRoot, rootOfPath
from svcbroker.storage import TreeFile, TreeLeaf

SIZE = 600


def leaf(number: int) -> TreeLeaf:
    """One that no other number has."""
    return TreeLeaf(sha256(b"%d" % number).digest(), b"leaf %d" % number, f"event {number}")


class TreeFileTests(SynchronousTestCase):
    """
    A tree of more leaves than one tile has.
    """

    def setUp(self) -> None:
        self.path = Path(self.mktemp()) / "tree.sqlite"
        self.file = self.open()

    def open(self, owner: bytes = b"owner", reason: str = "") -> TreeFile:
        """Open it, as after a restart."""
        file = TreeFile(self.path, owner)
        self.assertIn(reason, file.open())
        self.addCleanup(file.close)
        return file

    def fill(self, size: int = SIZE) -> None:
        """Add leaves, some at a time."""
        for start in range(self.file.size, size, 37):
            leaves = [leaf(each) for each in range(start, min(size, start + 37))]
            self.file.add(leaves, b"state %d" % start)

    def root(self, size: int) -> bytes:
        """The root of so many leaves."""
        return merkleRoot([leafHash(leaf(each).data) for each in range(size)])

    def test_pathsLeadToRoots(self) -> None:
        """From every leaf, to the trees of several sizes, also after a restart."""
        self.fill()
        self.file.close()
        self.file = self.open()
        self.assertEqual((self.file.size, self.file.root), (SIZE, self.root(SIZE)))
        self.assertEqual(self.file.state, b"state %d" % (SIZE - SIZE % 37))
        for size in (1, 2, 255, 256, 257, 512, SIZE):
            root = self.root(size)
            self.assertEqual(self.file.rootAt(size), root)
            for number in {0, size // 2, size - 1}:
                place = self.file.place(leaf(number).name, size)
                assert place is not None
                self.assertEqual((place.number, place.event), (number, f"event {number}"))
                self.assertEqual(rootOfPath(place.hash, number, size, place.path), root)
            path = self.file.growth(size, SIZE)
            checkGrowth(size, root, SIZE, self.root(SIZE), path)
        self.assertIsNone(self.file.place(leaf(300).name, 300))
        self.assertIsNone(self.file.place(leaf(SIZE).name, SIZE))

    def test_nameIsTakenOnce(self) -> None:
        """Within one call, and over several."""
        self.file.add([leaf(0), leaf(1), leaf(0)], b"")
        self.file.add([leaf(1), leaf(2)], b"")
        self.assertEqual((self.file.size, self.file.root), (3, self.root(3)))
        self.assertEqual(self.file.find(leaf(2).name), 2)

    def test_unusableFileIsMadeAnew(self) -> None:
        """One of another owner, another program, without a node, or that is no file of SQLite."""

        def execute(statement: str) -> Callable[[], None]:
            def change() -> None:
                connection = sqlite3.connect(self.path)
                connection.execute(statement)
                connection.commit()
                connection.close()

            return change

        for change, reason in (
            (execute("UPDATE state SET value = 'x' WHERE name = 'owner'"), "of another log"),
            (execute("PRAGMA user_version = 9"), "of another program or version"),
            (execute("DELETE FROM node WHERE position = 1"), "is damaged"),
            (execute("DROP TABLE leaf"), "is damaged"),
            (lambda: self.path.write_bytes(b"no database " * 100), "is damaged"),
        ):
            self.fill()
            self.file.close()
            change()
            self.file = self.open(reason=reason)
            self.assertEqual((self.file.size, self.file.state), (0, b""))
        self.fill()
        self.assertEqual(self.file.root, self.root(SIZE))
