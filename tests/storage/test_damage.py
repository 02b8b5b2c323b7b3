"""
Tests for files that are not what was written.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from random import Random

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.storage import Snapshot, StorageDamaged, StorageError, StorageRefused, Store, tipPath
from tests.storage.chains import Chain, differences, newStore, seededChain


class DamageTests(SynchronousTestCase):
    """
    Tests for L{Store} on a file that something happened to.
    """

    def setUp(self) -> None:
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        self.path = self.directory / "ledger.sqlite"
        self.chain = seededChain(3, 30, size=600)
        store = newStore(self.path)
        for append in self.chain.appends:
            store.append(append)
        store.close()

    def refused(self) -> str:
        """
        The reason for which the file is refused, which leaves it as it is.
        """
        before = self.path.read_bytes() if self.path.is_file() else None
        reason = str(self.assertRaises(StorageRefused, Store.open, self.path))
        self.assertIn(str(self.path), reason)
        self.assertNotIn("\n", reason)
        self.assertEqual(self.path.read_bytes() if self.path.is_file() else None, before)
        return reason

    def execute(self, statement: str) -> None:
        """
        Change the file behind the store's back.
        """
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute(statement)

    def test_absentFileIsNotCreated(self) -> None:
        """
        A file that is not there is not made by opening it.
        """
        self.path.unlink()
        self.assertIn("No such file", self.refused())
        self.assertEqual(os.listdir(self.directory), ["ledger.sqlite-tip"])

    def test_directoryIsRefused(self) -> None:
        """
        A directory in the file's place is refused.
        """
        self.path.unlink()
        self.path.mkdir()
        self.assertIn("cannot be read", self.refused())

    def test_truncatedFileIsRefused(self) -> None:
        """
        A file that is cut short is refused, wherever it was cut.
        """
        whole = self.path.read_bytes()
        for size in (0, 50, 100, 4000, 4096, len(whole) // 2, len(whole) - 4096, len(whole) - 1):
            self.path.write_bytes(whole[:size])
            self.assertRegex(self.refused(), "cut short|damaged")

    def test_textFileIsRefused(self) -> None:
        """
        A text file is refused.
        """
        self.path.write_text("Dear diary, " * 1000)
        self.assertIn("not a ledger", self.refused())

    def test_foreignDatabaseIsRefused(self) -> None:
        """
        A database of another program is refused and not touched.
        """
        self.path.unlink()
        self.execute("CREATE TABLE head (height INTEGER PRIMARY KEY)")
        self.assertIn("another program", self.refused())
        self.assertEqual(sorted(os.listdir(self.directory)), ["ledger.sqlite", "ledger.sqlite-tip"])

    def test_overwrittenFirstPageIsRefused(self) -> None:
        """
        A first page that was overwritten is refused.
        """
        whole = self.path.read_bytes()
        for start, end in ((0, 16), (16, 18), (28, 32), (60, 64), (68, 72), (100, 4096)):
            broken = bytes(255 - byte for byte in whole[start:end])
            self.path.write_bytes(whole[:start] + broken + whole[end:])
            self.refused()

    def test_inconsistentTablesAreRefused(self) -> None:
        """
        A file whose tables do not fit together is refused.
        """
        whole = self.path.read_bytes()
        for statement in (
            "DELETE FROM chain",
            "DELETE FROM reservation",
            "DELETE FROM head WHERE height = 1",
            "DELETE FROM head WHERE height = 30",
            "DELETE FROM body WHERE height = 30",
            "DELETE FROM fingerprint",
            "UPDATE fingerprint SET prints = substr(prints, 5)",
            "DROP TABLE head",
            "PRAGMA user_version = 0",
        ):
            self.execute(statement)
            self.assertIn("damaged", self.refused())
            self.path.write_bytes(whole)
        Store.open(self.path).close()

    def test_triggersAndViewsAreRefused(self) -> None:
        """
        SQL that is not ours would run with each write, or stand in for a table.
        """
        whole = self.path.read_bytes()
        for statement in (
            "CREATE TRIGGER t AFTER INSERT ON head BEGIN UPDATE topic SET is_open = 1; END",
            "CREATE VIEW v AS SELECT * FROM head",
        ):
            self.execute(statement)
            self.assertIn("which svcbroker does not make", self.refused())
            self.path.write_bytes(whole)
        Store.open(self.path).close()

    def test_laterDamageIsFoundByReads(self) -> None:
        """
        Damage that opening does not look at is noticed when it is read.
        """
        self.execute("DELETE FROM body WHERE height = 7")
        self.execute("UPDATE body SET body = x'00' WHERE height = 8")
        self.execute("UPDATE topic SET name = CAST(x'ff' AS TEXT) WHERE idx = 1")
        store = Store.open(self.path)
        self.addCleanup(store.close)
        self.assertRaises(StorageDamaged, store.block, 7)
        self.assertRaises(StorageDamaged, store.bodySlice, 7, 0, 1)
        self.assertRaises(LookupError, store.bodySlice, 99, 0, 1)
        self.assertRaises(StorageDamaged, store.bodySlice, 8, 0, 2)
        self.assertRaises(StorageDamaged, list, store.topics())
        self.assertEqual(store.block(6), self.chain.appends[5].block)

    def test_schemaThatIsNoTextIsDamage(self) -> None:
        """
        A schema that is not even text is damage.
        """
        with closing(sqlite3.connect(self.path)) as connection:
            connection.execute("PRAGMA writable_schema = ON")
            connection.execute(
                "UPDATE sqlite_master SET sql = CAST(x'435245b6' AS TEXT) WHERE name = 'topic'"
            )
            connection.commit()
        self.assertIn("damaged", self.refused())

    def test_flippedBytesRaiseStorageErrors(self) -> None:
        """
        Whatever byte is wrong, nothing but the store's own errors comes out of it.
        """
        whole = self.path.read_bytes()
        random = Random(11)
        seen = {"refused": 0, "noticed": 0, "unnoticed": 0}
        for _ in range(250):
            broken = bytearray(whole)
            at = random.randrange(len(broken))
            broken[at] ^= random.randrange(1, 256)
            self.path.write_bytes(broken)
            try:
                store = Store.open(self.path)
            except StorageRefused:
                seen["refused"] += 1
                continue
            try:
                differences(store, self.chain, self.chain.height)
                list(store.topics()), list(store.senders())
            except (StorageError, LookupError):
                seen["noticed"] += 1
            else:
                seen["unnoticed"] += 1
            finally:
                store.close()
        self.assertEqual(sum(seen.values()), 250)
        self.assertGreater(seen["refused"] + seen["noticed"], 0)

    def test_tornLogLeavesWholeBlocks(self) -> None:
        """
        However much of the write-ahead log a power failure took, what opens is the chain up
        to some block, whole.
        """
        self.path.unlink()
        tipPath(self.path).unlink()
        store = newStore(self.path)
        chain = Chain()
        for append in self.chain.appends:
            chain.appends.append(append)
            store.append(append)
        log = Path(f"{self.path}-wal").read_bytes()
        whole = self.path.read_bytes()
        store.close()
        random = Random(12)
        heights: list[int] = []
        for size in sorted(random.randrange(len(log)) for _ in range(25)):
            directory = self.directory / str(len(heights))
            directory.mkdir()
            torn = directory / "ledger.sqlite"
            torn.write_bytes(whole)
            Path(f"{torn}-wal").write_bytes(log[:size])
            store = Store.open(torn)
            tip = store.tip()
            heights.append(0 if tip is None else tip.height)
            self.assertEqual(differences(store, chain, heights[-1]), [])
            if heights[-1] < chain.height:
                store.append(chain.appends[heights[-1]])
                self.assertEqual(differences(store, chain, heights[-1] + 1), [])
            store.close()
            shutil.rmtree(directory)
        self.assertEqual(heights, sorted(heights))
        self.assertGreater(len(set(heights)), 10)

    def test_removedLogRefusesAppends(self) -> None:
        """
        Nothing is taken any more when the write-ahead log was removed or replaced in use: it
        would be gone after a restart.
        """
        store = Store.open(self.path)
        self.addCleanup(store.close)
        log = Path(f"{self.path}-wal")
        append = self.chain.add([("a", b"x")])
        log.rename(log.with_name("moved"))
        self.assertRaises(StorageDamaged, store.append, append)
        self.assertRaises(StorageDamaged, store.reserve, 1, 1)
        log.write_bytes(b"")
        self.assertRaises(StorageDamaged, store.append, append)
        self.assertEqual(store.block(30), self.chain.appends[29].block)

    def test_snapshotsKeepTheLocksOfAStore(self) -> None:
        """
        Another process that has read the file does not take itself for the last one that has it
        open, which would remove the write-ahead log, also where this process has read the file.
        """
        store = Store.open(self.path)
        self.addCleanup(store.close)
        store.append(self.chain.add([("a", b"x")]))
        with Snapshot.ofLedger(self.path) as snapshot:
            self.assertIsNotNone(snapshot.reader().tip())
        reading = f"connection = sqlite3.connect({str(self.path)!r})"
        script = f"import sqlite3; {reading}; connection.execute('SELECT * FROM chain').fetchall()"
        subprocess.run([sys.executable, "-c", f"{script}; connection.close()"], check=True)
        store.append(self.chain.add([("a", b"y")]))

    def test_snapshotsRefuseOtherFiles(self) -> None:
        """
        A file that is no ledger is refused with the reason.
        """
        other = self.directory / "other"
        for data, reason in (
            (None, "No such file"),
            (b"", "is cut short"),
            (b"x" * 200, "is not a ledger"),
        ):
            if data is not None:
                other.write_bytes(data)
            with (
                self.assertRaisesRegex(StorageRefused, reason),
                Snapshot.ofLedger(other),
            ):
                pass
        with closing(sqlite3.connect(self.directory / "foreign")) as connection:
            connection.execute("CREATE TABLE t (x)")
            connection.commit()
        with (
            self.assertRaisesRegex(StorageRefused, "another program"),
            Snapshot.ofLedger(self.directory / "foreign"),
        ):
            pass

    def test_fileInUseIsRefused(self) -> None:
        """
        A file that another program writes to is refused.
        """
        with closing(sqlite3.connect(self.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            refused = self.assertRaises(
                StorageRefused,
                Store.open,
                self.path,
                connect=lambda *args, **named: sqlite3.connect(*args, **{**named, "timeout": 0}),
            )
            self.assertIn("in use by another process", str(refused))

    def test_readOnlyFileIsRefused(self) -> None:
        """
        A file or a directory that cannot be written is refused.
        """
        self.directory.parent.chmod(0o755)  # mktemp's own is for its owner only
        for file in (self.path, self.directory):
            mode = file.stat().st_mode
            file.chmod(mode & ~0o222)
            isRoot = os.geteuid() == 0
            if isRoot:
                os.seteuid(65534)
            try:
                refused = self.assertRaises(StorageRefused, Store.open, self.path)
            finally:
                if isRoot:
                    os.seteuid(0)
                file.chmod(mode)
            self.assertRegex(str(refused), f"{self.path} cannot be written")
        Store.open(self.path).close()
