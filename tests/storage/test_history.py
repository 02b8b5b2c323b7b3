"""
Tests for the rows that proofs are made of: the history's nodes and the validator sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.archive import storedHistory
from svcbroker.chain import History, Malformed, historyPath, leafHash, merkleRoot, rootOfPath
from svcbroker.storage import Append, HistoryRow, Store, ValidatorsRow
from tests.storage.chains import Chain, differences, newStore

BEGINNING = b"g" * 32
"""The hash of the header of height 0."""


class RowsTestCase(SynchronousTestCase):
    """
    A store, and a chain to fill it with.
    """

    def setUp(self) -> None:
        self.path = Path(self.mktemp()) / "ledger.sqlite"
        self.path.parent.mkdir()
        self.store = newStore(self.path)
        self.addCleanup(lambda: self.store.close())
        self.chain = Chain()

    def append(
        self, history: Sequence[HistoryRow] = (), validators: ValidatorsRow | None = None
    ) -> None:
        """
        Store the next block, with these rows.
        """
        self.store.append(self.next(history, validators))

    def next(
        self, history: Sequence[HistoryRow] = (), validators: ValidatorsRow | None = None
    ) -> Append:
        """
        The next block, with these rows.
        """
        return replace(self.chain.add([("a", b"x")]), history=history, validators=validators)

    def reopen(self) -> None:
        """
        Close the store and open it again.
        """
        self.store.close()
        self.store = Store.open(self.path)

    def refused(self, append: Append) -> None:
        """
        A block is refused and leaves nothing; without these rows it is stored.
        """
        height = append.block.height - 1
        sets = self.store.validatorSets()
        self.assertRaises(ValueError, self.store.append, append)
        self.reopen()
        self.assertEqual(differences(self.store, self.chain, height), [])
        self.assertEqual(self.store.validatorSets(), sets)
        self.store.append(replace(append, history=(), validators=None))
        self.assertEqual(differences(self.store, self.chain, height + 1), [])


class HistoryTests(RowsTestCase):
    def test_newStoreHasNoNodes(self) -> None:
        """
        A new store has none.
        """
        self.assertEqual(list(self.store.historyNodes(8, 0, 100)), [])
        self.assertEqual(list(self.store.blockHashes(0, 100)), [])

    def test_nodesByLevelAndPosition(self) -> None:
        """
        Nodes come back by level and position, as many as are asked for and there.
        """
        rows = [
            HistoryRow(level=level, position=position, hash=bytes([level, position]) * 16)
            for level in (8, 16)
            for position in range(6)
        ]
        for row in rows[:-2]:
            self.append([row])
        self.append(rows[-2:])
        self.reopen()

        def hashes(level: int, *positions: int) -> list[bytes]:
            return [bytes([level, position]) * 16 for position in positions]

        for level in (8, 16):
            self.assertEqual(list(self.store.historyNodes(level, 0, 6)), hashes(level, *range(6)))
            self.assertEqual(list(self.store.historyNodes(level, 2, 3)), hashes(level, 2, 3, 4))
            self.assertEqual(list(self.store.historyNodes(level, 4, 9)), hashes(level, 4, 5))
            self.assertEqual(list(self.store.historyNodes(level, 6, 9)), [])
            self.assertEqual(list(self.store.historyNodes(level, 2, 0)), [])
        self.assertEqual(list(self.store.historyNodes(24, 0, 6)), [])

    def test_hashesOfBlocksAreRead(self) -> None:
        """
        The hashes of consecutive blocks are read, up to the last one.
        """
        for _ in range(5):
            self.append()
        hashes = [append.block.hash for append in self.chain.appends]
        self.assertEqual(list(self.store.blockHashes(1, 5)), hashes)
        self.assertEqual(list(self.store.blockHashes(0, 3)), hashes[:2])
        self.assertEqual(list(self.store.blockHashes(3, 9)), hashes[2:])
        self.assertEqual(list(self.store.blockHashes(6, 9)), [])
        self.assertEqual(list(self.store.blockHashes(3, 0)), [])

    def test_nodeIsStoredOnce(self) -> None:
        """
        A node is stored once: another one in its place is a mistake, and so is the same.
        """
        row = HistoryRow(level=8, position=0, hash=b"a" * 32)
        self.append([row])
        for again in (row, replace(row, hash=b"b" * 32)):
            fresh = HistoryRow(level=8, position=1, hash=b"c" * 32)
            self.refused(self.next([fresh, again]))
            self.assertEqual(list(self.store.historyNodes(8, 0, 9)), [b"a" * 32])


class ValidatorsTests(RowsTestCase):
    def test_setsComeBackInOrder(self) -> None:
        """
        Sets come back in order, beside the blocks that brought them.
        """
        rows = [
            ValidatorsRow(generation=number, height=height, encoded=b"set %d" % number)
            for number, height in ((1, 2), (2, 3), (3, 5))
        ]
        for height in range(1, 7):
            self.append(validators={row.height: row for row in rows}.get(height))
        self.assertEqual(list(self.store.validatorSets()), rows)
        self.reopen()
        self.assertEqual(list(self.store.validatorSets()), rows)

    def test_oneSetPerGeneration(self) -> None:
        """
        There is one set of each generation.
        """
        row = ValidatorsRow(generation=1, height=1, encoded=b"set")
        self.append(validators=row)
        for again in (row, replace(row, height=2), replace(row, encoded=b"another")):
            self.refused(self.next(validators=again))
            self.assertEqual(list(self.store.validatorSets()), [row])


class StoredHistoryTests(RowsTestCase):
    """
    Tests for L{storedHistory} on the rows of a long chain.
    """

    def setUp(self) -> None:
        super().setUp()
        self.history = History.of([BEGINNING])
        self.leaves = [leafHash(BEGINNING)]
        for _ in range(1100):
            append = self.chain.add([])
            self.history = self.history.after(append.block.hash)
            self.leaves.append(leafHash(append.block.hash))
            rows = [
                HistoryRow(level=level, position=position, hash=hash)
                for level, position, hash in self.history.completed
            ]
            self.store.append(replace(append, history=rows))
        self.source = storedHistory(self.store, BEGINNING)

    def test_storedHistoryContinues(self) -> None:
        """
        The history of a stored chain goes on, and any header of it can be proved.
        """
        self.reopen()
        self.source = storedHistory(self.store, BEGINNING)
        loaded = History.load(1101, self.source)
        self.assertEqual((loaded.peaks, loaded.root), (self.history.peaks, self.history.root))
        for size in (1, 2, 255, 256, 257, 600, 1101):
            root = merkleRoot(self.leaves[:size])
            self.assertEqual(History.load(size, self.source).root, root)
            for height in {0, 1, size // 3, size - 1} & set(range(size)):
                path = historyPath(height, size, self.source)
                self.assertEqual(rootOfPath(self.leaves[height], height, size, path), root)

    def test_nothingIsBeyondTheLastBlock(self) -> None:
        """
        Nothing is made up beyond the last block.
        """
        for size in (1102, 1280, 5000):
            self.assertRaises(Malformed, History.load, size, self.source)

    def test_leavesAreHeaderHashes(self) -> None:
        """
        The leaves are those of the headers, that of height 0 included, from anywhere.
        """
        for first, count in ((0, 1), (0, 5), (1, 3), (1099, 2), (0, 1101)):
            self.assertEqual(list(self.source(0, first, count)), self.leaves[first : first + count])
        self.assertEqual(list(self.source(0, 1100, 5)), self.leaves[1100:])
