"""
Tests for schema numbers and upgrades.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.storage import StorageRefused, Store
from svcbroker.storage._schema import schemaSteps
from tests.storage.chains import differences, newStore, seededChain

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

    def test_newer(self) -> None:
        """
        A file of a newer schema is refused and stays as it is.
        """
        Store.open(self.path, steps=self.steps).close()
        before = self.path.read_bytes()
        refused = self.assertRaises(StorageRefused, Store.open, self.path)
        self.assertIn(str(self.path), str(refused))
        self.assertIn("newer svcbroker", str(refused))
        self.assertEqual(self.path.read_bytes(), before)

    def test_upgrade(self) -> None:
        """
        An older file is upgraded, and what it was is beside it, whole and usable.
        """
        for _ in range(2):
            store = Store.open(self.path, steps=self.steps)
            self.assertEqual(differences(store, self.chain, 10), [])
            store.close()
        with closing(sqlite3.connect(self.path)) as connection:
            self.assertEqual(connection.execute("SELECT id FROM extra").fetchall(), [(7,)])
        self.assertEqual(sorted(os.listdir(self.directory)), [self.path.name, self.backup.name])
        store = Store.open(self.backup)
        self.assertEqual(differences(store, self.chain, 10), [])
        store.close()

    def test_upgradeFails(self) -> None:
        """
        An upgrade that fails half-way leaves the file as it was.
        """
        steps = [*self.steps, "CREATE TABLE other (id);\nINSERT INTO nowhere VALUES (1)"]
        refused = self.assertRaises(StorageRefused, Store.open, self.path, steps=steps)
        self.assertIn(str(self.path), str(refused))
        store = Store.open(self.path)
        self.assertEqual(differences(store, self.chain, 10), [])
        store.close()

    def test_noBackup(self) -> None:
        """
        Without a backup there is no upgrade.
        """
        self.backup.mkdir()
        refused = self.assertRaises(StorageRefused, Store.open, self.path, steps=self.steps)
        self.assertIn("cannot be backed up", str(refused))
        store = Store.open(self.path)
        self.assertEqual(differences(store, self.chain, 10), [])
        store.close()

    def test_new(self) -> None:
        """
        A new file goes through all steps.
        """
        path = self.directory / "other.sqlite"
        Store.create(path, chainId=b"", genesis=b"", steps=self.steps).close()
        self.assertRaises(StorageRefused, Store.open, path)
        Store.open(path, steps=self.steps).close()
        self.assertFalse(self.backup.exists())
