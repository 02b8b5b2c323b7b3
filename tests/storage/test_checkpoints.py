"""
Tests of the checkpoints that are made while blocks are stored.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from threading import Event
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.storage import Store
from svcbroker.storage._checkpoints import BLOCK_PAGES, PAGES_BETWEEN, CheckpointThread
from svcbroker.storage._files import PAGE_SIZE
from tests.storage.chains import Chain, differences, newStore

BLOCK = 200_000
"""Bytes of a block: 57 pages of log with what else it changes."""

LOG = PAGES_BETWEEN * 4120
"""Bytes of the log when a checkpoint is due."""

DUE = (PAGES_BETWEEN - BLOCK_PAGES) * PAGE_SIZE
"""Bytes of the body of a block after which a checkpoint is due."""


class StoreTests(SynchronousTestCase):
    """
    Checkpoints of a store.
    """

    def setUp(self) -> None:
        self.path = Path(self.mktemp()) / "ledger.sqlite"
        self.path.parent.mkdir()
        newStore(self.path).close()
        self.chain = Chain()
        self.connections: list[sqlite3.Connection] = []
        self.mayOpen = 3

    def open(self) -> Store:
        """Open the store with no more than C{mayOpen} connections."""
        store = Store.open(self.path, connect=self.connect)
        self.addCleanup(store.close)
        return store

    def connect(self, *args: Any, **named: Any) -> sqlite3.Connection:
        """Open a connection to the store."""
        if len(self.connections) == self.mayOpen:
            raise sqlite3.OperationalError("unable to open database file")
        self.connections.append(sqlite3.connect(*args, **named))
        return self.connections[-1]

    def logSize(self) -> int:
        """How many bytes of log there are on disk."""
        return self.path.with_name("ledger.sqlite-wal").stat().st_size

    def store(self, store: Store, blocks: int) -> int:
        """
        Store blocks, and wait for the checkpoint wherever one is made.

        @return: the largest size of the log.
        """
        largest = 0
        for _ in range(blocks):
            store.append(self.chain.add([("a", bytes(BLOCK))]))
            largest = max(largest, self.logSize())
            store._checkpoints.wait()
        return largest

    def test_logIsOverwrittenAfterCheckpoint(self) -> None:
        """
        After a checkpoint the next block is stored at the beginning of the log, without a
        checkpoint of SQLite's own.
        """
        store = self.open()
        self.connections[0].execute("PRAGMA wal_autocheckpoint = 0")
        self.assertLess(self.store(store, 100), LOG + 2 * BLOCK)
        self.assertEqual(len(self.connections), 3)
        self.assertGreater(self.path.stat().st_size, 80 * BLOCK)
        store.close()
        self.assertFalse(self.path.with_name("ledger.sqlite-wal").exists())
        self.mayOpen = 5
        self.assertEqual(differences(self.open(), self.chain, 100), [])

    def test_failedCheckpointLeavesTheLogToSqlite(self) -> None:
        """
        Where no checkpoint can be made, blocks are stored, and SQLite keeps the log small.
        """
        self.mayOpen = 2
        store = self.open()
        self.assertLess(self.store(store, 100), 2 * LOG + 2 * BLOCK)
        self.assertEqual(differences(store, self.chain, 100), [])


class ThreadTests(SynchronousTestCase):
    """
    When a checkpoint is made.
    """

    def setUp(self) -> None:
        self.begun, self.mayGoOn = Event(), Event()
        self.count = 0
        self.checkpoints = CheckpointThread(self.connect)
        self.addCleanup(self.checkpoints.close)
        self.addCleanup(self.mayGoOn.set)

    def connect(self) -> sqlite3.Connection:
        """Open the connection, once it may."""
        self.count += 1
        self.begun.set()
        self.mayGoOn.wait()
        raise sqlite3.OperationalError("disk I/O error")

    def test_checkpointIsMadeOnceDue(self) -> None:
        """
        A checkpoint is made after so many pages, and one at a time.
        """
        self.checkpoints.afterBlocks(1, DUE - PAGE_SIZE)
        self.checkpoints.wait()
        self.assertEqual(self.count, 0)
        self.checkpoints.afterBlocks(0, PAGE_SIZE)
        self.begun.wait()
        self.checkpoints.afterBlocks(1, DUE)
        self.mayGoOn.set()
        self.checkpoints.wait()
        self.assertEqual(self.count, 1)
        self.checkpoints.afterBlocks(0, 0)
        self.checkpoints.wait()
        self.assertEqual(self.count, 2)

    def test_blocksWaitForSlowCheckpoint(self) -> None:
        """
        Blocks are stored during a checkpoint until the next one is due.
        """
        self.checkpoints.afterBlocks(1, DUE)
        self.begun.wait()
        thread = self.checkpoints._thread
        assert thread is not None
        self.checkpoints.afterBlocks(1, DUE - PAGE_SIZE)
        self.checkpoints.beforeBlocks()
        self.assertTrue(thread.is_alive())
        self.checkpoints.afterBlocks(0, PAGE_SIZE)
        self.mayGoOn.set()
        self.checkpoints.beforeBlocks()
        self.assertFalse(thread.is_alive())
