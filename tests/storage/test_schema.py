"""
Tests for schema numbers and upgrades.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.storage import HistoryRow, StorageRefused, Store, ValidatorsRow
from svcbroker.storage._files import LOG_LIMIT, openWriting
from svcbroker.storage._schema import APPLICATION_ID, schemaSteps
from tests.storage.chains import differences, makeFirst, newStore, seededChain

NEXT = "CREATE TABLE extra (id INTEGER PRIMARY KEY);\nINSERT INTO extra VALUES (7);\n"


class SchemaTests(SynchronousTestCase):
    """
    Tests for files of other schema numbers, with a step that does not exist yet.
    """

    def setUp(self) -> None:
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        self.path = self.directory / "ledger.sqlite"
        self.chain = seededChain(5, 10)
        store = newStore(self.path)
        for append in self.chain.appends:
            store.append(append)
        store.close()
        self.steps = [*schemaSteps(), NEXT]
        self.backup = self.path.with_name(f"ledger.sqlite.v{len(schemaSteps())}.backup")

    def test_newerSchemaIsRefused(self) -> None:
        """
        A file of a newer schema is refused and stays as it is.
        """
        Store.open(self.path, steps=self.steps).close()
        before = self.path.read_bytes()
        refused = self.assertRaises(StorageRefused, Store.open, self.path)
        self.assertIn(str(self.path), str(refused))
        self.assertIn("newer svcbroker", str(refused))
        self.assertEqual(self.path.read_bytes(), before)

    def test_olderFileIsUpgraded(self) -> None:
        """
        An older file is upgraded, and what it was is beside it, whole and usable.
        """
        for _ in range(2):
            store = Store.open(self.path, steps=self.steps)
            self.assertEqual(differences(store, self.chain, 10), [])
            store.close()
        with closing(sqlite3.connect(self.path)) as connection:
            self.assertEqual(connection.execute("SELECT id FROM extra").fetchall(), [(7,)])
        names = [self.path.name, f"{self.path.name}-tip", self.backup.name]
        self.assertEqual(sorted(os.listdir(self.directory)), names)
        store = Store.open(self.backup)
        self.assertEqual(differences(store, self.chain, 10), [])
        store.close()

    def test_failedUpgradeChangesNothing(self) -> None:
        """
        An upgrade that fails half-way leaves the file as it was.
        """
        steps = [*self.steps, "CREATE TABLE other (id);\nINSERT INTO nowhere VALUES (1)"]
        refused = self.assertRaises(StorageRefused, Store.open, self.path, steps=steps)
        self.assertIn(str(self.path), str(refused))
        store = Store.open(self.path)
        self.assertEqual(differences(store, self.chain, 10), [])
        store.close()

    def test_upgradeNeedsABackup(self) -> None:
        """
        Without a backup there is no upgrade.
        """
        self.backup.mkdir()
        refused = self.assertRaises(StorageRefused, Store.open, self.path, steps=self.steps)
        self.assertIn("cannot be backed up", str(refused))
        store = Store.open(self.path)
        self.assertEqual(differences(store, self.chain, 10), [])
        store.close()

    def test_newFileRunsAllSteps(self) -> None:
        """
        A new file goes through all steps.
        """
        path = self.directory / "other.sqlite"
        Store.create(path, chainId=b"", genesis=b"", steps=self.steps).close()
        self.assertRaises(StorageRefused, Store.open, path)
        Store.open(path, steps=self.steps).close()
        self.assertFalse(self.backup.exists())


class SecondStepTests(SynchronousTestCase):
    """
    Tests for files of schema 1, which know neither a history nor validator sets.
    """

    def setUp(self) -> None:
        self.path = Path(self.mktemp()) / "ledger.sqlite"
        self.path.parent.mkdir()
        self.backup = self.path.with_name("ledger.sqlite.v1.backup")
        self.chain = seededChain(6, 12)
        store = newStore(self.path)
        for append in self.chain.appends[:10]:
            store.append(append)
        store.reserve(11, 16)
        store.close()
        makeFirst(self.path)
        self.before = self.read(self.path)

    def read(self, path: Path) -> list[object]:
        """
        All that is in a file of schema 1.
        """
        with closing(sqlite3.connect(path)) as connection:
            self.assertEqual(connection.execute("PRAGMA user_version").fetchone(), (1,))
            return list(connection.iterdump())

    def test_upgradeKeepsRowsAndCopy(self) -> None:
        """
        The file has the new tables and all that it had; what it was lies beside it.
        """
        store = Store.open(self.path)
        self.addCleanup(lambda: store.close())
        self.assertEqual(differences(store, self.chain, 10), [])
        self.assertEqual(store.reservation(), (11, 16))
        self.assertEqual(list(store.validatorSets()), [])
        self.assertEqual(list(store.historyNodes(8, 0, 9)), [])
        node = HistoryRow(level=8, position=0, hash=b"h" * 32)
        nodes = ValidatorsRow(generation=1, height=11, encoded=b"set")
        store.append(replace(self.chain.appends[10], history=[node], validators=nodes))
        store.close()
        store = Store.open(self.path)
        self.assertEqual(differences(store, self.chain, 11), [])
        self.assertEqual(list(store.historyNodes(8, 0, 9)), [b"h" * 32])
        self.assertEqual(list(store.validatorSets()), [nodes])
        self.assertEqual(self.read(self.backup), self.before)

    def test_interruptedUpgradeIsRepeated(self) -> None:
        """
        An upgrade that was cut off after its backup is done again.
        """
        self.backup.write_bytes(b"of an upgrade that did not end")
        self.backup.with_name(self.backup.name + ".new").write_bytes(b"half a copy")
        Store.open(self.path).close()
        self.assertEqual(self.read(self.backup), self.before)
        names = [self.path.name, f"{self.path.name}-tip", self.backup.name]
        self.assertEqual(sorted(os.listdir(self.path.parent)), names)


class FourthStepTests(SynchronousTestCase):
    """
    Tests for files of schema 3, which were written without C{secure_delete}.
    """

    def test_upgradeLeavesNoCopiesOfFirstRows(self) -> None:
        """
        SQLite has left the first bodies in the free space of the table's first page. After the
        upgrade each content is in the file once, and all rows are as they were.
        """
        path = Path(self.mktemp()) / "ledger.sqlite"
        path.parent.mkdir()
        rows = [(height, b"", b"content %6d," % height * 20) for height in range(1, 200)]
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA secure_delete = OFF")
            connection.executescript("".join(schemaSteps()[:3]))
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute("PRAGMA user_version = 3")
            connection.executemany("INSERT INTO body VALUES (?, ?, ?)", rows)
        counts = [path.read_bytes().count(body[:15]) for _, _, body in rows]
        self.assertGreater(max(counts), 20)
        connection = openWriting(
            path, steps=schemaSteps(), connect=sqlite3.connect, logLimit=LOG_LIMIT
        )
        with closing(connection):
            found = connection.execute("SELECT height, receipts, body FROM body").fetchall()
            self.assertEqual(found, rows)
            check = connection.execute("PRAGMA integrity_check").fetchall()
            self.assertEqual(check, [("ok",)])
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            self.assertEqual(version, len(schemaSteps()))
        counts = [path.read_bytes().count(body[:15]) for _, _, body in rows]
        self.assertLessEqual(max(counts), 20)
