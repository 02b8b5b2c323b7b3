"""
Tests for chains that travel: export and import.
"""

from __future__ import annotations

import io
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO

from attrs import evolve

from svcbroker.archive import (
    Imported,
    ImportRefused,
    RangeUnknown,
    StreamBroken,
    audit,
    exportChain,
    importChain,
)
from svcbroker.archive._export import Begin, End, StreamedBlock, StreamReader, StreamWriter
from svcbroker.archive._replay import ROUNDS_ASIDE
from svcbroker.proofs import Checkpoint
from svcbroker.storage import StorageDamaged, Store
from tests.archive.support import ArchiveTestCase, lines
from tools.vectors.signedchain import SignedChain


class Slow(io.BytesIO):
    """Gives a few bytes at a time, as a pipe does."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(min(7, 7 if size is None or size < 0 else size))


class StreamTestCase(ArchiveTestCase):
    """
    An exported chain, and another data directory.

    @ivar other: another data directory.
    """

    def setUp(self) -> None:
        super().setUp()
        self.other = self.dataDir.with_name("other")
        self.chain = self.makeChain()
        self.tip = Checkpoint.of(self.chain.head)

    def tearDown(self) -> None:
        self.chain.close()

    def export(self, **keywords: Any) -> bytes:
        """The stream of the chain."""
        file = io.BytesIO()
        exportChain(self.directory, file, **keywords)
        return file.getvalue()

    def take(self, data: bytes | BinaryIO, **keywords: Any) -> Imported:
        """Import."""
        self.other.mkdir(exist_ok=True)
        file = io.BytesIO(data) if isinstance(data, bytes) else data
        return importChain(file, self.other, **keywords)

    def records(self, data: bytes) -> tuple[Begin, list[StreamedBlock | End]]:
        """A stream, taken apart."""
        reader = StreamReader(io.BytesIO(data))
        return reader.begin(), list(reader.rest())

    def written(self, begin: Begin, records: list[StreamedBlock | End]) -> bytes:
        """A stream, put together."""
        file = io.BytesIO()
        writer = StreamWriter(file)
        writer.begin(begin)
        for record in records:
            if isinstance(record, End):
                writer.end(record)
            else:
                writer.block(record)
        return file.getvalue()


class RoundTripTests(StreamTestCase):
    """
    Chains are imported as they were exported.
    """

    def test_importedChainEqualsExported(self) -> None:
        """A chain with changes of its nodes, read in small pieces."""
        seen: list[tuple[int, int | None]] = []
        data = self.export(report=lambda done, total: seen.append((done, total)))
        self.assertEqual((seen[0], seen[-1]), ((0, 9), (9, 9)))
        seen.clear()
        imported = self.take(Slow(data), report=lambda *each: seen.append(each))
        self.assertEqual(imported, Imported(group="1", tip=self.tip, known=0, added=9))
        self.assertEqual(seen[-1], (9, 9))
        audited = audit(self.other)
        self.assertTrue(audited.isGood)
        self.assertEqual(
            lines(audited),
            ["note: group 1, keys: there are no keys: the chain can be read, but not go on"],
        )
        file = io.BytesIO()
        exportChain(self.other / "1", file)
        self.assertEqual(file.getvalue(), data)

    def test_importedRowsEqualOriginals(self) -> None:
        """Every row is the one that the original has, but for the rounds set aside."""
        self.take(self.export())
        original, taken = (self.dump(each) for each in (self.dataDir, self.other))
        self.assertEqual(len(original - taken), 1)
        self.assertTrue(all("reservation" in each for each in original ^ taken))

    def dump(self, dataDir: Path) -> set[str]:
        """All rows of a chain."""
        with closing(sqlite3.connect(dataDir / "1" / "ledger.sqlite")) as connection:
            return set(connection.iterdump())

    def test_chainWithoutBlocksIsExported(self) -> None:
        """A chain without blocks is a stream, too."""
        (self.dataDir / "2").mkdir()
        empty = SignedChain(self.dataDir / "2", group="2")
        self.addCleanup(empty.close)
        file = io.BytesIO()
        tip = exportChain(self.dataDir / "2", file)
        self.assertEqual(tip, Checkpoint.of(empty.head))
        imported = self.take(file.getvalue())
        self.assertEqual(imported, Imported(group="2", tip=tip, known=0, added=0))

    def test_adjacentAndOverlappingStreams(self) -> None:
        """Streams that go on where another one ended, or overlap it."""
        for first, last, known, added in ((1, 4, 0, 4), (5, 6, 0, 2), (2, 8, 5, 2), (9, 9, 0, 1)):
            imported = self.take(self.export(first=first, last=last))
            self.assertEqual((imported.known, imported.added), (known, added))
        self.assertEqual(imported.tip, self.tip)
        imported = self.take(self.export(first=10))
        self.assertEqual((imported.tip, imported.known, imported.added), (self.tip, 0, 0))

    def test_streamBehindGapIsRefused(self) -> None:
        """A stream that begins too late."""
        self.take(self.export(last=3))
        error = self.assertRaises(ImportRefused, self.take, self.export(first=5))
        self.assertIn("begins at block 5, and the chain here ends at block 3", str(error))
        self.assertIn("export it from block 4 on", str(error))

    def test_unknownBlocksAreNotExported(self) -> None:
        """Blocks that there are not."""
        for keywords in ({"first": 11}, {"last": 10}, {"first": 0}, {"first": 5, "last": 3}):
            self.assertRaises(RangeUnknown, self.export, **keywords)

    def test_importedChainBeginsInOwnRounds(self) -> None:
        """Whoever goes on with an imported chain begins in rounds far from the original's."""
        self.take(self.export(last=4))
        self.take(self.export(first=5))
        store = Store.open(self.other / "1" / "ledger.sqlite")
        self.addCleanup(store.close)
        self.assertEqual(store.reservation(), (10, ROUNDS_ASIDE))

    def test_importRestoresLostEnd(self) -> None:
        """A chain that has lost its end gets it back."""
        self.take(self.export(last=5))
        store = Store.open(self.other / "1" / "ledger.sqlite")
        store.reserve(10, 1)
        store.close()
        self.assertFalse(audit(self.other).isGood)
        self.assertEqual(self.take(self.export()).tip, self.tip)
        self.assertTrue(audit(self.other).isGood)

    def test_streamOfOtherGroupIsRefused(self) -> None:
        """A stream of another group than the one that is wanted."""
        error = self.assertRaises(ImportRefused, self.take, self.export(), group="2")
        self.assertIn("is the chain of group 1, not of group 2", str(error))
        self.assertEqual(list(self.other.iterdir()), [])
        self.assertEqual(self.take(self.export(), group="1").added, 9)

    def test_streamOfOtherChainIsRefused(self) -> None:
        """A stream of another chain, or of another history of the same one."""
        self.take(self.export())
        third = self.dataDir.with_name("third")
        (third / "1").mkdir(parents=True)
        chain = SignedChain(third / "1", name="stranger")
        self.addCleanup(chain.close)
        file = io.BytesIO()
        exportChain(third / "1", file)
        error = self.assertRaises(ImportRefused, self.take, file.getvalue())
        self.assertIn("is another chain: it has another genesis", str(error))
        twin = self.dataDir.with_name("twin")
        self.addCleanup(self.makeChain(blocks=1, dataDir=twin).close)
        file = io.BytesIO()
        exportChain(twin / "1", file)
        error = self.assertRaises(ImportRefused, self.take, file.getvalue())
        self.assertIn("block 3 of the stream is not the one that is here", str(error))

    def test_damagedChainIsNotExported(self) -> None:
        """A damaged chain is not exported."""
        self.chain.close()
        self.change("DELETE FROM head WHERE height = 4")
        error = self.assertRaises(StorageDamaged, self.export)
        self.assertIn("block 4 is missing", str(error))
        self.change("DELETE FROM body WHERE height = 2")
        error = self.assertRaises(StorageDamaged, self.export)
        self.assertIn("block 2 is missing or not whole", str(error))


class BrokenTests(StreamTestCase):
    """
    Streams that are not what an export writes.
    """

    def broken(self, data: bytes, words: str = "") -> str:
        """Import what does not hold, into a data directory of its own."""
        self.other = self.other.with_name(self.other.name + "x")
        error = self.assertRaises(StreamBroken, self.take, data)
        self.assertIn(words, str(error))
        self.assertNotIn("\n", str(error))
        return str(error)

    def height(self) -> int:
        """The number of blocks that were kept."""
        return audit(self.other).chains[0].tip.height  # type: ignore[union-attr]

    def test_cutStreamKeepsWholeBlocks(self) -> None:
        """Cut off at any byte, it says so, and the blocks before are kept."""
        data = self.export(last=3)
        kept = set()
        for size in range(0, len(data), 41):
            text = self.broken(data[:size], "cut off at byte")
            if "kept" in text:
                kept.add(self.height())
        self.assertEqual(kept, {0, 1, 2, 3})

    def test_interruptedImportContinues(self) -> None:
        """An import that was cut off is continued."""
        data = self.export()
        self.broken(data[: len(data) // 2], "what came before is kept, the chain here ends at")
        before = self.height()
        imported = self.take(data)
        self.assertEqual((imported.known, imported.added), (before, 9 - before))

    def test_everyChangedByteIsFound(self) -> None:
        """Any byte that is changed is found, and what was imported before it is good."""
        data = self.export(last=2)
        for offset in range(0, len(data), 23):
            changed = bytearray(data)
            changed[offset] ^= 1 << offset % 8
            self.other = self.other.with_name(f"other{offset}")
            self.assertRaises((StreamBroken, ImportRefused), self.take, bytes(changed))
            if (self.other / "1").exists():
                self.assertTrue(audit(self.other).isGood)

    def test_invalidBlockIsNamed(self) -> None:
        """The block that does not hold is named, and nothing of it is kept."""
        begin, records = self.records(self.export())
        for number in (0, 3, 4, 7):
            good = records[number]
            assert isinstance(good, StreamedBlock)
            for name in ("header", "certificate", "body"):
                value = getattr(good, name)
                changed = value[:-1] + bytes([value[-1] ^ 1])
                blocks = list(records)
                blocks[number] = evolve(good, **{name: changed})
                self.broken(self.written(begin, blocks), f"block {number + 1} does not hold: ")
                self.assertEqual(self.height(), number)

    def test_reorderedBlocksAreRefused(self) -> None:
        """Blocks that are left out, repeated or swapped."""
        begin, records = self.records(self.export())
        self.broken(self.written(begin, records[1:]), "block 1 does not hold: it says that it is")
        self.broken(self.written(begin, [records[0], *records]), "block 2 does not hold")
        self.broken(self.written(begin, records[:4] + records[-1:]), "ends after block 4, before 9")
        self.broken(
            self.written(evolve(begin, last=3), records), "block 4 does not hold: the stream said"
        )

    def test_knownBlocksAreCompared(self) -> None:
        """Blocks that are there already are compared, not passed over."""
        begin, records = self.records(self.export())
        self.take(self.export())
        block = records[2]
        assert isinstance(block, StreamedBlock)
        records[2] = evolve(block, body=block.body[:-1] + b"?")
        error = self.assertRaises(StreamBroken, self.take, self.written(begin, records))
        self.assertIn("block 3 does not hold: its transactions are not", str(error))
        records[2] = evolve(block, header=block.header[:-1] + b"?")
        error = self.assertRaises(ImportRefused, self.take, self.written(begin, records))
        self.assertIn("two histories of one chain", str(error))

    def test_malformedStreamsAreRefused(self) -> None:
        """Bytes that are no stream."""
        begin, records = self.records(self.export())
        data = self.export()
        self.broken(b"", "the stream is cut off at byte 0")
        self.broken(b"?" * 100, "this is not a chain that svcbroker has exported")
        self.broken(data[:16] + b"\x03" + data[17:], "the stream has version 3")
        self.broken(data + b"?", "there are bytes behind its end")
        self.broken(data[:17] + b"\x02" + data[18:], "does not begin with a genesis")
        self.broken(data[:17] + b"\x01\xff\xff\xff\xff", "says that it has 4294967295 bytes")
        self.broken(self.written(evolve(begin, first=0), records), "goes from block 0 to 9")
        self.broken(self.written(evolve(begin, first=2**63), records), "it goes from block")
        self.broken(
            self.written(begin, [*records[:-1], End(9, bytes(32))]), "its end is not that of its"
        )
        self.broken(
            self.written(begin, [*records[:-1]]) + b"\x09\0\0\0\0", "no record of a known kind"
        )
        block = b"\x02\0\0\0\x05\0\0\xff\0?"
        self.broken(self.written(begin, [*records[:-1]]) + block, "is no block")

    def test_groupOutsideDataDirectoryIsRefused(self) -> None:
        """A genesis that names a group outside of the data directory."""
        begin, records = self.records(self.export())
        for group in ("../up", "", "/tmp/x", ".", "a" * 65):
            genesis = evolve(begin.genesis, group=group)
            self.broken(self.written(evolve(begin, genesis=genesis), records), "names a group")
            self.assertEqual(list(Path(self.other).iterdir()), [])
