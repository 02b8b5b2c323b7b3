"""
Tests of folding the write-ahead log while blocks are stored.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from threading import Event
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.storage import Store
from svcbroker.storage._files import PAGE_SIZE
from svcbroker.storage._store import BLOCK_PAGES, PAGES_BETWEEN, FoldThread
from tests.storage.chains import Chain, differences, newStore

BLOCK = 200_000
"""Bytes of a block: 57 pages of log with what else it changes."""

LOG = PAGES_BETWEEN * 4120
"""Bytes of the log when a fold is due."""

DUE = (PAGES_BETWEEN - BLOCK_PAGES) * PAGE_SIZE
"""Bytes of the body of a block after which a fold is due."""


class StoreTests(SynchronousTestCase):
    """
    Folds of a store.
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
        """The number of bytes of log on disk."""
        return self.path.with_name("ledger.sqlite-wal").stat().st_size

    def store(self, store: Store, blocks: int) -> int:
        """
        Store blocks, and wait for the fold wherever one is made.

        @return: the largest size of the log.
        """
        largest = 0
        for _ in range(blocks):
            store.append(self.chain.add([("a", bytes(BLOCK))]))
            largest = max(largest, self.logSize())
            store._folding.wait()
        return largest

    def test_logIsOverwrittenAfterFold(self) -> None:
        """
        After a fold the next block is stored at the beginning of the log, without a
        fold of SQLite's own.
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

    def test_failedFoldLeavesTheLogToSqlite(self) -> None:
        """
        If the log cannot be folded, blocks are stored, and SQLite keeps the log small.
        """
        self.mayOpen = 2
        store = self.open()
        self.assertLess(self.store(store, 100), 2 * LOG + 2 * BLOCK)
        self.assertEqual(differences(store, self.chain, 100), [])


class ThreadTests(SynchronousTestCase):
    """
    The moments at which the log is folded.
    """

    def setUp(self) -> None:
        self.begun, self.mayGoOn = Event(), Event()
        self.count = 0
        self.folding = FoldThread(self.connect)
        self.addCleanup(self.folding.close)
        self.addCleanup(self.mayGoOn.set)

    def connect(self) -> sqlite3.Connection:
        """Open the connection, once it may."""
        self.count += 1
        self.begun.set()
        self.mayGoOn.wait()
        raise sqlite3.OperationalError("disk I/O error")

    def test_logIsFoldedOnceDue(self) -> None:
        """
        A fold begins after so many pages, and one at a time.
        """
        self.folding.afterBlocks(1, DUE - PAGE_SIZE)
        self.folding.wait()
        self.assertEqual(self.count, 0)
        self.folding.afterBlocks(0, PAGE_SIZE)
        self.begun.wait()
        self.folding.afterBlocks(1, DUE)
        self.mayGoOn.set()
        self.folding.wait()
        self.assertEqual(self.count, 1)
        self.folding.afterBlocks(0, 0)
        self.folding.wait()
        self.assertEqual(self.count, 2)

    def test_blocksWaitForSlowFold(self) -> None:
        """
        Blocks are stored during a fold until the next one is due.
        """
        self.folding.afterBlocks(1, DUE)
        self.begun.wait()
        thread = self.folding._thread
        assert thread is not None
        self.folding.afterBlocks(1, DUE - PAGE_SIZE)
        self.folding.beforeBlocks()
        self.assertTrue(thread.is_alive())
        self.folding.afterBlocks(0, PAGE_SIZE)
        self.mayGoOn.set()
        self.folding.beforeBlocks()
        self.assertFalse(thread.is_alive())
