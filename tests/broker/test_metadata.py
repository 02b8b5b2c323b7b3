"""
Tests of what is kept beside the chains.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.broker import MetadataStore
from svcbroker.broker.subscriptions import KeptPositions
from svcbroker.broker.subscriptions._positions import MemoryPositions, StoredPosition
from svcbroker.model import Position
from svcbroker.storage import (
    MetadataFile,
    StorageDamaged,
    StorageFailed,
    StorageRefused,
    readWrites,
)
from svcbroker.storage._metadata import lastPath
from tests.broker.support import MemoryMetadataFile


class NoteStoreTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.path = Path(self.mktemp())
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def test_writtenEntriesSurviveReopening(self) -> None:
        """What is written is there when it is opened again; what is forgotten is not."""
        store = MetadataFile.open(self.path)
        store.write({("a", "1"): b"x", ("a", "2"): b"", ("b", "1"): b"y"})
        store.write({("a", "1"): b"z", ("b", "1"): None, ("b", "2"): None})
        store.close()
        store = MetadataFile.open(self.path)
        self.addCleanup(store.close)
        self.assertEqual(store.load(), {("a", "1"): b"z", ("a", "2"): b""})

    def test_damagedEntriesAreReportedByName(self) -> None:
        """A note that is not the one that was written is told by its name, and none is left out
        in silence."""
        store = MetadataFile.open(self.path)
        self.addCleanup(store.close)
        store.write({("webhook", "w"): b"x", ("position", "p"): b"y"})
        for change in (
            "value = x'79'",
            "name = 'v'",
            "kind = 'webhoo'",
            "checksum = x''",
            "value = 'x'",
        ):
            with self.subTest(change=change):
                store._connection.execute("SAVEPOINT s")
                store._connection.execute(f"UPDATE note SET {change} WHERE kind = 'webhook'")
                error = self.assertRaises(StorageDamaged, store.load)
                self.assertIn("damaged", str(error))
                store._connection.execute("ROLLBACK TO s")
                store._connection.execute("RELEASE s")
        store._connection.execute("UPDATE note SET value = x'00' WHERE kind = 'webhook'")
        error = self.assertRaises(StorageDamaged, store.load)
        self.assertIn("1 of 2 entries are not what was written: webhook 'w'", str(error))

    def test_firstVersionFilesGetChecksums(self) -> None:
        """Values of the first version, without checksums, are kept with checksums."""
        old = sqlite3.connect(self.path)
        old.executescript(
            "CREATE TABLE note (kind TEXT NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL,"
            " PRIMARY KEY (kind, name)) WITHOUT ROWID;"
            "INSERT INTO note VALUES ('a', '1', x'78'), ('a', '2', x'');"
            "PRAGMA application_id = 0x7376636E; PRAGMA user_version = 1"
        )
        old.close()
        for _ in range(2):
            store = MetadataFile.open(self.path)
            self.assertEqual(store.load(), {("a", "1"): b"x", ("a", "2"): b""})
            store.close()

    def written(self) -> MetadataFile:
        """A store with five writes, of which the last four are in its write-ahead log."""
        MetadataFile.open(self.path).close()
        store = MetadataFile.open(self.path)
        self.addCleanup(store.close)
        for number in range(5):
            store.write({("webhook", str(number)): b"%d" % number})
            if not number:
                store._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return store

    def killed(self, name: str) -> Path:
        """The files as they are on disk: those of a broker that is killed now."""
        directory = Path(self.mktemp())
        directory.mkdir(parents=True)
        for path in self.path.parent.glob(f"{self.path.name}*"):
            if path.is_file():
                shutil.copy(path, directory / path.name.replace(self.path.name, name, 1))
        return directory / name

    def test_whatIsLostIsNoticed(self) -> None:
        """A damaged, emptied or missing write-ahead log, and a missing file; until it is accepted,
        also after more writes and after a restart."""
        self.written()

        def flip(path: Path) -> None:
            data = bytearray(path.read_bytes())
            data[100] ^= 1
            path.write_bytes(data)

        def removeAll(path: Path) -> None:
            for each in (
                path,
                path.with_name(f"{path.name[:-4]}-shm"),
                path.with_name(path.name[:-4]),
            ):
                each.unlink()

        for left, damage in (
            (1, flip),
            (1, Path.unlink),
            (1, lambda path: path.write_bytes(b"")),
            (0, removeAll),
        ):
            path = self.killed("notes.sqlite")
            damage(path.with_name("notes.sqlite-wal"))
            for _ in range(3):
                store = MetadataFile.open(path)
                self.addCleanup(store.close)
                self.assertIn(f"of 5 writes {left} were left", store.loss)
                self.assertIn("remove notes.sqlite-last", store.loss)
                for number in range(4):
                    store.write({("webhook", "new"): b"%d" % number})
                store.close()
            store = MetadataFile.open(path)
            self.addCleanup(store.close)
            lastPath(path).unlink()
            self.assertEqual(store.loss, "")
            store.write({("webhook", "new"): b"x"})
            store.close()
            store = MetadataFile.open(path)
            self.assertEqual(store.loss, "")
            store.close()

    def test_killLosesNothing(self) -> None:
        """A store that is killed has all its writes, with or without the file of their number, and
        with a damaged one; a number that was lost is written again."""
        self.written()
        for damage in (
            lambda path: None,
            Path.unlink,
            lambda path: path.write_bytes(path.read_bytes().replace(b"5", b"7")),
            lambda path: path.write_bytes(b""),
        ):
            path = self.killed("notes.sqlite")
            damage(lastPath(path))
            store = MetadataFile.open(path)
            self.addCleanup(store.close)
            self.assertEqual((store.loss, len(store.load())), ("", 5))
            store.write({("webhook", "0"): None})
            self.assertEqual(readWrites(path), (6, None))

    def test_olderFileIsNoticed(self) -> None:
        """Such as one that was restored from a backup, or of the version before."""
        store = self.written()
        older = self.killed("notes.sqlite")
        store.write({("webhook", "0"): None})
        shutil.copy(lastPath(self.path), lastPath(older))
        store = MetadataFile.open(older)
        self.addCleanup(store.close)
        self.assertIn("has lost its latest changes: of 6 writes 5 were left", store.loss)

    def test_foreignFilesAreLeftAlone(self) -> None:
        """Files of others are left alone."""
        self.path.write_text("no database at all, but a text that is long enough to be read")
        with self.assertRaises(StorageRefused):
            MetadataFile.open(self.path)
        self.assertIn("no database", self.path.read_text())
        self.path.unlink()
        foreign = sqlite3.connect(self.path)
        foreign.execute("CREATE TABLE t (x)")
        foreign.close()
        with self.assertRaises(StorageRefused):
            MetadataFile.open(self.path)
        self.path.unlink()
        MetadataFile.open(self.path).close()
        newer = sqlite3.connect(self.path)
        newer.execute("PRAGMA user_version = 99")
        newer.close()
        with self.assertRaises(StorageRefused):
            MetadataFile.open(self.path)


class FakeMetadataFile(MemoryMetadataFile):
    """Keeps in memory, and fails when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.kept[("k", "old")] = b"0"
        self.writes: list[dict[tuple[str, str], bytes | None]] = []
        self.isFailing = False
        self.isClosed = False

    def write(self, changes: dict[tuple[str, str], bytes | None]) -> None:
        if self.isFailing:
            raise StorageFailed("no room")
        self.writes.append(changes)
        super().write(changes)

    def close(self) -> None:
        self.isClosed = True


class HeldThread:
    """Runs calls when it is told to."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], object]] = []

    def __call__(self, call: Callable[..., Any], *args: Any) -> Deferred[Any]:
        answer: Deferred[Any] = Deferred()
        self.calls.append(lambda: maybeDeferred(call, *args).chainDeferred(answer))
        return answer

    def run(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


class MetadataStoreTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.file = FakeMetadataFile()
        self.clock = Clock()
        self.metadata = MetadataStore(self.file, self.clock, maybeDeferred)

    def test_changesAreWrittenAtOnce(self) -> None:
        """Changes are read at once and written together, some moments later."""
        self.metadata.put("k", "a", b"1")
        self.metadata.put("k", "a", b"2")
        self.metadata.put("k", "b", b"3")
        self.metadata.remove("k", "old")
        self.assertEqual(self.metadata.items("k"), [("a", b"2"), ("b", b"3")])
        self.assertEqual(self.file.writes, [])
        self.clock.advance(1)
        self.assertEqual(
            self.file.writes, [{("k", "a"): b"2", ("k", "b"): b"3", ("k", "old"): None}]
        )
        self.metadata.put("k", "a", b"2")
        self.metadata.remove("k", "never")
        self.clock.advance(1)
        self.assertEqual(len(self.file.writes), 1)
        self.assertIsNone(self.metadata.get("k", "old"))

    def test_flushFiresWhenAllIsOnDisk(self) -> None:
        """Who flushes is told when everything is on disk."""
        self.assertIsNone(self.successResultOf(self.metadata.flush()))
        self.metadata.put("k", "a", b"1")
        flushed = self.metadata.flush()
        self.assertNoResult(flushed)
        self.clock.advance(0)
        self.successResultOf(flushed)
        self.assertEqual(self.file.kept[("k", "a")], b"1")

    def test_flushWhileWriting(self) -> None:
        """A change made while others are written is waited for too."""
        thread = HeldThread()
        metadata = MetadataStore(self.file, self.clock, thread)
        metadata.put("k", "a", b"1")
        self.clock.advance(1)
        metadata.put("k", "b", b"2")
        flushed = metadata.flush()
        thread.run()
        self.assertNoResult(flushed)
        self.clock.advance(0)
        thread.run()
        self.successResultOf(flushed)
        self.assertEqual(self.file.kept[("k", "b")], b"2")

    def test_flushDuringTheLastWriteFires(self) -> None:
        """Without another change, the write that is under way is what is waited for."""
        thread = HeldThread()
        metadata = MetadataStore(self.file, self.clock, thread)
        metadata.put("k", "a", b"1")
        self.clock.advance(1)
        flushed = metadata.flush()
        self.assertNoResult(flushed)
        thread.run()
        self.successResultOf(flushed)
        self.assertEqual(self.file.kept[("k", "a")], b"1")
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_flushDuringAFailingWriteWaitsForTheNext(self) -> None:
        thread = HeldThread()
        metadata = MetadataStore(self.file, self.clock, thread)
        metadata.put("k", "a", b"1")
        self.clock.advance(1)
        flushed = metadata.flush()
        self.file.isFailing = True
        thread.run()
        self.assertNoResult(flushed)
        self.file.isFailing = False
        self.clock.advance(1)
        thread.run()
        self.successResultOf(flushed)
        self.assertEqual(self.file.kept[("k", "a")], b"1")
        self.assertEqual(len(self.flushLoggedErrors(StorageFailed)), 1)

    def test_failingDiskLosesNoChange(self) -> None:
        """While the disk fails nothing is lost, and newer changes win."""
        self.file.isFailing = True
        self.metadata.put("k", "a", b"1")
        self.metadata.put("k", "b", b"2")
        flushed = self.metadata.flush()
        self.clock.advance(0)
        self.metadata.put("k", "a", b"3")
        self.clock.advance(1)
        self.assertNoResult(flushed)
        self.file.isFailing = False
        self.clock.advance(1)
        self.successResultOf(flushed)
        self.assertEqual(self.file.kept[("k", "a")], b"3")
        self.assertEqual(self.file.kept[("k", "b")], b"2")
        self.assertEqual(len(self.flushLoggedErrors(StorageFailed)), 2)

    def test_stopWritesPendingChanges(self) -> None:
        """What is not written yet is written when it stops."""
        thread = HeldThread()
        metadata = MetadataStore(self.file, self.clock, thread)
        metadata.put("k", "a", b"1")
        self.clock.advance(1)
        metadata.put("k", "b", b"2")
        stopped = metadata.stop()
        for _ in range(4):
            thread.run()
        self.successResultOf(stopped)
        self.assertEqual((self.file.kept[("k", "b")], self.file.isClosed), (b"2", True))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_contributionsAreCollectedOnceAWrite(self) -> None:
        """Contributions are asked for when a write begins, and one that changes nothing is none."""
        state = [b"1"]
        contribute = lambda: self.metadata.put("k", "a", state[0])  # noqa: E731
        for value in (b"2", b"3"):
            state[0] = value
            self.metadata.beforeWrite(contribute)
        self.clock.advance(1)
        self.assertEqual(self.file.writes, [{("k", "a"): b"3"}])
        self.metadata.beforeWrite(contribute)
        self.clock.advance(1)
        self.assertEqual(len(self.file.writes), 1)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        state[0] = b"4"
        self.metadata.beforeWrite(contribute)
        self.metadata.put("k", "b", b"5")
        self.successResultOf(self.metadata.stop())
        self.assertEqual(self.file.writes[1:], [{("k", "a"): b"4", ("k", "b"): b"5"}])

    def test_writeWithWaitsForTheDisk(self) -> None:
        """For the next write, at once, also while another is under way."""
        thread = HeldThread()
        metadata = MetadataStore(self.file, self.clock, thread)
        state = [b"1"]
        contribute = lambda: metadata.put("k", "a", state[0])  # noqa: E731
        for value in (b"2", b"3"):
            written = metadata.writeWith(contribute)
            self.clock.advance(0)
            state[0] = value
            following = metadata.writeWith(contribute)
            thread.run()
            self.successResultOf(written)
            self.assertNoResult(following)
            self.clock.advance(0)
            thread.run()
            self.successResultOf(following)
            self.assertEqual(self.file.kept[("k", "a")], value)

    def test_contributionsDuringAWriteAreWrittenNext(self) -> None:
        thread = HeldThread()
        metadata = MetadataStore(self.file, self.clock, thread)
        metadata.put("k", "a", b"1")
        self.clock.advance(1)
        metadata.beforeWrite(lambda: metadata.put("k", "b", b"2"))
        thread.run()
        self.clock.advance(1)
        thread.run()
        self.assertEqual(self.file.kept[("k", "b")], b"2")

    def test_positionsComeBackInTheirGroup(self) -> None:
        """Positions come back as they were, and only in their group."""
        stored = StoredPosition(Position(5, 2), (Position(5, 4), Position(6, 0)))
        for positions in (KeptPositions(self.metadata), MemoryPositions()):
            positions.make("id", "1", stored, owner="a", day=1)
            self.assertEqual(positions.get("id", "1"), stored)
            self.assertIsNone(positions.get("id", "2"))
            positions.remove("id")
            positions.remove("id")
            self.assertIsNone(positions.get("id", "1"))
