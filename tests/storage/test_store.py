"""
Tests for what a store keeps and answers.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from struct import error as StructError
from typing import cast

from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.model import Topic, topicPrefix
from svcbroker.storage import (
    Append,
    StorageDamaged,
    StorageRefused,
    Store,
    TopicBlockRow,
    TopicRow,
    _reader,
    packPositions,
)
from svcbroker.storage._rows import TransactionPlace
from tests.storage.chains import CHAIN_ID, GENESIS, Chain, differences, headOf, newStore


class StoreTests(SynchronousTestCase):
    """
    Tests for L{Store} on a healthy disk.
    """

    def setUp(self) -> None:
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        self.path = self.directory / "ledger.sqlite"
        self.store = newStore(self.path)
        self.addCleanup(lambda: self.store.close())
        self.chain = Chain()

    def append(self, *events: tuple[str, bytes]) -> Append:
        """
        Store a block with these events.
        """
        append = self.chain.add(events)
        self.store.append(append)
        return append

    def reopen(self) -> None:
        """
        Close the store and open it again.
        """
        self.store.close()
        self.store = Store.open(self.path)

    def test_newStoreIsEmpty(self) -> None:
        """
        A new store knows its chain and has nothing else.
        """
        store = self.store
        self.assertEqual((store.chainId, store.genesis), (CHAIN_ID, GENESIS))
        self.assertIsNone(store.tip())
        self.assertIsNone(store.block(1))
        self.assertIsNone(store.blockHead(0))
        self.assertIsNone(store.heightOfHash(b"h" * 32))
        self.assertIsNone(store.locateTransaction(0))
        self.assertEqual(list(store.findTransaction(b"hash")), [])
        self.assertEqual(list(store.topics()), [])
        self.assertEqual(list(store.senders()), [])
        self.assertEqual(store.reservation(), (0, 0))

    def test_existingStoreIsNotOverwritten(self) -> None:
        """
        Neither a store nor what a crash left of one is overwritten by a new one.
        """
        refused = self.assertRaises(StorageRefused, newStore, self.path)
        self.assertIn(f"{self.path} exists already", str(refused))
        self.store.close()
        log = self.path.with_name("ledger.sqlite-wal")
        log.write_bytes(b"what is left of a chain")
        self.path.unlink()
        refused = self.assertRaises(StorageRefused, newStore, self.path)
        self.assertIn(f"{log} exists already", str(refused))
        log.unlink()
        self.path.with_name("ledger.sqlite.new").write_bytes(b"half of a file")
        self.store = newStore(self.path)
        self.store.close()
        self.assertEqual(os.listdir(self.directory), ["ledger.sqlite"])

    def test_createNeedsADirectory(self) -> None:
        """
        A directory that is not there ends with a line that names the file.
        """
        path = self.directory / "absent" / "ledger.sqlite"
        refused = self.assertRaises(StorageRefused, newStore, path)
        self.assertIn(str(path), str(refused))
        self.assertNotIn("\n", str(refused))

    def test_blocksRoundTrip(self) -> None:
        """
        Blocks come back byte for byte, whole, without bodies and as slices, before and after
        the store was closed.
        """
        blocks = [self.append(("a", bytes(range(256))), ("b", b"")).block, self.append().block]
        for _ in range(2):
            self.assertEqual([self.store.block(height) for height in (1, 2, 3)], [*blocks, None])
            self.assertEqual(self.store.tip(), headOf(blocks[1]))
            self.assertEqual(self.store.blockHead(1), headOf(blocks[0]))
            self.assertEqual(self.store.blockHeads(1, 9), [headOf(block) for block in blocks])
            self.assertEqual(self.store.blockHeads(2, 2), [headOf(blocks[1])])
            self.assertEqual(self.store.heightOfHash(blocks[1].hash), 2)
            self.reopen()

    def test_certificatesAreAddedOnce(self) -> None:
        """
        A certificate may come later, and is never another one then.
        """
        blocks = [self.append(("a", b"x")).block, self.append().block]
        self.store.certify({})
        self.store.certify({1: b"another", 3: b"of no block"})
        self.assertEqual(self.store.block(1), blocks[0])
        self.store.close()
        with closing(sqlite3.connect(self.path)) as connection:
            connection.execute("UPDATE head SET certificate = x''")
            connection.commit()
        self.store = Store.open(self.path)
        self.store.certify({1: b"first", 2: b"second"})
        self.store.certify({2: b"another"})
        self.reopen()
        rows = self.store.blockHeads(1, 9)
        self.assertEqual([row.certificate for row in rows], [b"first", b"second"])

    def test_slicesAreReadWithoutTheRest(self) -> None:
        """
        An event's bytes come out of small and of large bodies, without the rest.
        """
        for size in (10, 65_000, 70_000, 3_000_000):
            first, second = os.urandom(size), os.urandom(300)
            append = self.append(("a", first), ("a", second))
            [row] = append.topicBlocks
            for number, content in enumerate((first, second)):
                position = row.position(row.firstSequence + number)
                assert position is not None
                self.assertEqual(self.store.bodySlice(row.height, *position), content)
            length = len(append.block.body)
            self.assertEqual(self.store.bodySlice(row.height, length, 0), b"")
            for offset in (length - 1, length + 1):
                self.assertRaises(StorageDamaged, self.store.bodySlice, row.height, offset, 2)
            wanted = ((0, 3), (length - 2, 2), (1, 0))
            pieces = [self.store.bodySlice(row.height, *each) for each in wanted]
            self.assertEqual(pieces, [append.block.body[:3], append.block.body[-2:], b""])
        self.assertRaises(LookupError, self.store.bodySlice, 5, 0, 1)

    def test_newFilesHaveAPageMap(self) -> None:
        """
        A new file has the map of pages by which the middle of a large body is reached.
        """
        with closing(sqlite3.connect(self.path)) as connection:
            [(mode,)] = connection.execute("PRAGMA auto_vacuum").fetchall()
        self.assertEqual(mode, 2)

    def test_appendOutOfOrder(self) -> None:
        """
        A block that does not follow the tip, or miscounts, is refused and changes nothing.
        """
        self.append(("a", b"1"))
        append = self.chain.add([("a", b"2")])
        block = append.block
        for wrong in (
            replace(append, block=replace(block, height=1)),
            replace(append, block=replace(block, height=3)),
            replace(append, block=replace(block, transactionTotal=1)),
            replace(append, transactionHashes=[b"abc"]),
            replace(append, topicBlocks=[*append.topicBlocks, *append.topicBlocks]),
        ):
            self.assertRaises(ValueError, self.store.append, wrong)
        self.assertEqual(differences(self.store, self.chain, 1), [])
        self.store.append(append)
        self.assertEqual(differences(self.store, self.chain, 2), [])

    def test_inconsistentAppendStoresNothing(self) -> None:
        """
        A mistake of the caller's that only shows half-way leaves nothing behind.
        """
        append = self.chain.add([("a", b"1")])
        wrong = replace(append, topics=[*append.topics, cast(TopicRow, "no row")])
        self.assertRaises(AttributeError, self.store.append, wrong)
        wrong = replace(append, block=replace(append.block, body=cast(bytes, object())))
        self.assertRaises(sqlite3.Error, self.store.append, wrong)
        self.store.append(append)
        self.reopen()
        self.assertEqual(differences(self.store, self.chain, 1), [])

    def test_topicsAndAccountsAreReadInOrder(self) -> None:
        """
        Topics and accounts come back in the order of creation, as they were stored last.
        """
        self.append(("b", b""), ("a\x80", b""))
        self.append(("a\x80", b""), ("c", b""))
        self.append(("b", b""))
        self.append()
        self.reopen()
        self.assertEqual([row.topic.name for row in self.store.topics()], ["b", "a\x80", "c"])
        self.assertEqual(list(self.store.topics()), list(self.chain.topics.values()))
        self.assertEqual(len(self.chain.accounts), 3)
        self.assertEqual(list(self.store.senders()), list(self.chain.accounts.values()))

    def test_manyTopicsAreReadOnce(self) -> None:
        """
        More topics than are read at once come back, each once.
        """
        names = [f"topic/{number}" for number in range(10_000)]
        self.append(*((name, b"") for name in names))
        self.assertEqual([row.topic.name for row in self.store.topics()], names)

    def test_eventIdsLeadToPlaces(self) -> None:
        """
        An event id's parts lead to the place of the event.
        """
        self.append(("a", b"one"), ("b", b"two"), ("a", b"three"))
        self.append(("a", b"four"))
        prefix = topicPrefix("a")
        [place] = self.store.eventPlaces(prefix, 1, 2)
        assert place is not None
        self.assertEqual((place.number, place.count), (1, 2))
        self.assertEqual(self.store.bodySlice(1, place.offset, place.length), b"three")
        [place] = self.store.eventPlaces(prefix, 2, 3)
        assert place is not None
        self.assertEqual((place.number, place.count), (0, 1))
        for height, sequence in ((1, 0), (1, 3), (1, 2**32 + 1), (1, 2**62 + 1), (2, 2), (2, 4)):
            self.assertEqual(self.store.eventPlaces(prefix, height, sequence), [None])
        self.assertEqual(self.store.eventPlaces(topicPrefix("b"), 2, 1), [])
        self.assertEqual(self.store.eventPlaces(topicPrefix("c"), 1, 1), [])

    def test_topicsOfEqualPrefixAreFound(self) -> None:
        """
        Topics whose names have the same prefix are all found.
        """
        # Two names whose hashes begin alike; found by trying numbers.
        names = ("collision/22774", "collision/116773")
        self.assertEqual(*(topicPrefix(name) for name in names))
        self.append((names[0], b"x"), (names[1], b"y"))
        self.append((names[1], b"z"))
        prefix = topicPrefix(names[0])
        contents = [
            self.store.bodySlice(1, place.offset, place.length)
            for place in self.store.eventPlaces(prefix, 1, 1)
            if place is not None
        ]
        self.assertEqual(contents, [b"x", b"y"])
        self.assertEqual(len(self.store.eventPlaces(prefix, 2, 2)), 1)
        self.append((names[0], b"first"), (names[1], b"third"))
        self.assertIsNone(self.store.eventPlaces(prefix, 3, 3)[0])

    def test_topicBlocksAreReadInPages(self) -> None:
        """
        A topic's history is read in pages, in order, without other topics' blocks.
        """
        for number in range(6):
            self.append(("a" if number % 2 else "b", b"x"))
        index = self.chain.topics["a"].index
        pages = [
            [row.height for row in self.store.topicBlocks(index, after, 2)] for after in (0, 4, 6)
        ]
        self.assertEqual(pages, [[2, 4], [6], []])

    def test_bytesOfEventsAreAddedUpInPieces(self) -> None:
        """
        Those of one topic, from a height on, some blocks at a time.
        """
        for number in range(5):
            self.append(("a", b"x" * number), ("b", b"yy"), ("a", b"z"))
        index = self.chain.topics["a"].index
        self.assertEqual(self.store.eventBytes(index, 0), (5, 15, True))
        self.assertEqual(self.store.eventBytes(index, 3), (5, 9, True))
        self.assertEqual(self.store.eventBytes(index, 5), (5, 0, True))
        for name, most in (("_BLOCKS_A_PIECE", 2), ("_INDEX_BYTES_A_PIECE", 20)):
            patch = self.patch(_reader, name, most)
            self.assertEqual(self.store.eventBytes(index, 0), (2, 3, False))
            self.assertEqual(self.store.eventBytes(index, 2), (4, 7, False))
            self.assertEqual(self.store.eventBytes(index, 4), (5, 5, True))
            patch.restore()

    def test_transactionsAreLocatedByNumber(self) -> None:
        """
        The n-th transaction is found, also beside blocks that have none.
        """
        for count in (0, 3, 0, 0, 1, 2, 0):
            self.append(*[("a", b"")] * count)
        self.assertEqual(
            [self.store.locateTransaction(position) for position in range(-1, 7)],
            [None, *(self.chain.place(position) for position in range(6)), None],
        )

    def test_transactionsAreFoundByHash(self) -> None:
        """
        A hash is found over many segments, newest first or oldest first, in bounded steps.
        Candidates that share four bytes are all given; a match across two hashes is none.
        """
        hashes = [number.to_bytes(4, "big") + bytes(28) for number in range(1, 1301)]
        twins = [0, 511, 512, 700, 1299]
        for position in twins:
            hashes[position] = b"twin" + bytes([position % 256]) * 28
        hashes[600:602] = [b"\xff\xfftw", b"in\xff\xff"]
        for start in range(0, 1300, 260):
            append = self.chain.add([("a", b"")] * 260)
            self.store.append(replace(append, transactionHashes=hashes[start : start + 260]))
        for _ in range(2):
            expected = [self.chain.place(position) for position in twins]
            self.assertEqual(
                list(self.store.findTransaction(b"twin", newestFirst=False, segmentsPerStep=1)),
                [expected[:2], expected[2:4], expected[4:]],
            )
            self.assertEqual(
                list(self.store.findTransaction(hashes[0], segmentsPerStep=2)),
                [expected[:3:-1], expected[3::-1]],
            )
            self.assertEqual(list(self.store.findTransaction(b"none")), [[]])
            self.reopen()
        self.assertRaises(ValueError, self.store.findTransaction, b"abc")

    def test_searchContinuesWhileAppending(self) -> None:
        """
        A search that was begun goes on while blocks are appended.
        """
        self.append(*[("a", b"")] * 600)
        wanted = self.chain.hashes[0]
        search = self.store.findTransaction(wanted, segmentsPerStep=1)
        self.assertEqual(next(search), [])
        self.append(*[("a", b"")] * 600)
        self.assertEqual(list(search), [[TransactionPlace(height=1, index=0)]])

    def test_reservationNeverFalls(self) -> None:
        """
        A reservation is kept, and never falls.
        """
        self.store.reserve(1, 8)
        self.assertEqual(self.store.reservation(), (1, 8))
        self.assertRaises(ValueError, self.store.reserve, 1, 7)
        self.append(("a", b"x"))
        self.store.reserve(2, 0)
        self.reopen()
        self.assertEqual(self.store.reservation(), (2, 0))
        self.assertRaises(ValueError, self.store.reserve, 1, 9)

    def test_cleanCloseLeavesOneFile(self) -> None:
        """
        A clean close leaves one file. A second one changes nothing.
        """
        self.append(("a", b"1" * 10_000))
        self.assertGreater(len(os.listdir(self.directory)), 1)
        before = self.store.size()
        self.assertGreater(before, 10_000)
        self.store.close()
        self.store.close()
        self.assertEqual(sorted(os.listdir(self.directory)), ["ledger.sqlite", "ledger.sqlite-tip"])
        self.assertEqual(self.store.size(), self.path.stat().st_size)
        self.assertRaises(sqlite3.ProgrammingError, self.store.tip)

    def test_logStaysSmall(self) -> None:
        """
        The write-ahead log is used again and again, also where topics are being read in
        pieces all the while.
        """
        self.append(*((f"topic/{number}", b"") for number in range(4_200)))
        reading = self.store.topics()
        next(reading)
        for _ in range(60):
            self.append(("a", bytes(1_000_000)))
        log = self.path.with_name("ledger.sqlite-wal").stat().st_size
        self.assertLess(log, 12_000_000)
        self.assertGreater(self.path.stat().st_size, 50_000_000)
        self.assertEqual(len(list(reading)), 4_200)

    def test_logAfterForeignReader(self) -> None:
        """
        Another program's open snapshot makes the log grow; appends go on, and when it lets
        go the log shrinks to its limit.
        """
        self.store.close()
        self.store = Store.open(self.path, logLimit=1_000_000)
        reader = sqlite3.connect(self.path, isolation_level=None)
        self.addCleanup(reader.close)
        reader.execute("BEGIN")
        reader.execute("SELECT COUNT(*) FROM head").fetchone()
        log = self.path.with_name("ledger.sqlite-wal")
        for _ in range(6):
            self.append(("a", bytes(5_000_000)))
        self.assertGreater(log.stat().st_size, 30_000_000)
        reader.execute("ROLLBACK")
        for _ in range(6):
            self.append(("a", bytes(5_000_000)))
        self.assertLess(log.stat().st_size, 17_000_000)
        self.assertEqual(differences(self.store, self.chain, 12), [])


class RowTests(SynchronousTestCase):
    """
    Tests for the rows' own arithmetic.
    """

    def test_positionsRoundTrip(self) -> None:
        """
        Positions are packed as big-endian pairs and read back by sequence number.
        """
        packed = packPositions([(1, 2), (0xFFFFFFFF, 0)])
        self.assertEqual(packed.hex(), "0000000100000002ffffffff00000000")
        row = TopicBlockRow(topicIndex=0, height=1, firstSequence=5, positions=packed)
        self.assertEqual(
            [row.position(sequence) for sequence in (4, 5, 6, 7)],
            [None, (1, 2), (0xFFFFFFFF, 0), None],
        )
        self.assertEqual(packPositions([]), b"")
        self.assertRaises(StructError, packPositions, [(1 << 32, 0)])

    def test_rowsAreImmutable(self) -> None:
        """
        Rows cannot be changed and have no room for more.
        """
        topic = Topic(
            name="a", address=b"", sender=b"", created=0, isOpen=True, sequence=0, height=0
        )
        row = TopicRow(index=0, topic=topic)
        self.assertRaises(AttributeError, setattr, row, "index", 1)
        self.assertFalse(hasattr(row, "__dict__"))
