"""
Transactions of the connection that writes a store, and what is done after a failed one.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ..probes import probe
from ._checkpoints import CheckpointThread
from ._errors import StorageDamaged, StorageError, StorageFailed, primaryCode, translated
from ._files import companions


class Transactions:
    """
    Runs transactions on the writing connection of a store.

    @ivar connection: the connection.
    """

    def __init__(
        self, path: Path, connection: sqlite3.Connection, checkpoints: CheckpointThread
    ) -> None:
        """
        @param path: the store's file.
        """
        self.connection = connection
        self._path = path
        self._checkpoints = checkpoints
        # A string, since it is looked at before each transaction.
        self._wal = str(companions(path)[0])
        self._walInode = os.stat(self._wal).st_ino
        self._isUncertain = False

    def run(self, work: Callable[[], object]) -> None:
        """
        Do C{work} in a transaction that is synced when this returns.

        @raise ValueError: rows contradict what is stored. Nothing was stored.
        @raise StorageFailed: the disk is full or failed.
        @raise StorageDamaged: the file cannot be written to any more.
        """
        self._checkLog()
        if self._isUncertain:
            probe("storage: transaction after an uncertain one")
            self._removeTrace()
        self._rollBack()
        try:
            self.connection.execute("BEGIN IMMEDIATE")
            work()
        except sqlite3.IntegrityError as error:
            self._rollBack()
            raise ValueError(f"rows contradict what is stored: {error}") from error
        except sqlite3.Error as error:
            self._rollBack()
            raise translated(error, self._path) from error
        except BaseException:
            self._rollBack()
            raise
        try:
            self.connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._afterFailedCommit(error) from error

    def _afterFailedCommit(self, error: sqlite3.Error) -> Exception:
        """
        Come to a clean state after a failed COMMIT.

        Where there was no room, the log lacks at least the end of the transaction, so it never
        happened. After any other failure, such as one of fsync, all of it may be in the log: SQLite
        has forgotten it, but would take it up again when it recovers the log after a crash.
        So the log is cut off behind what was synced before. If the disk does not do that
        either, nothing more is appended until it does.
        """
        self._rollBack()
        self._isUncertain = primaryCode(error) != sqlite3.SQLITE_FULL
        if not self._isUncertain:
            probe("storage: no room at a commit")
        else:
            probe("storage: uncertain commit")
            with suppress(StorageError):  # it is told by isUncertain, and tried again
                self._removeTrace()
        failure = translated(error, self._path)
        if isinstance(failure, StorageFailed):
            failure.isUncertain = self._isUncertain
        return failure

    def foldLog(self) -> bool:
        """
        Fold the write-ahead log in, and truncate it.

        @return: C{False} where another process is reading, so that it stays.
        @raise sqlite3.Error: the disk is full or failed, or the file is damaged.
        """
        self._checkpoints.wait()
        row = self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not row[0]

    def _removeTrace(self) -> None:
        """
        Fold in what was stored and cut the log off.
        """
        self._rollBack()
        try:
            isBusy = not self.foldLog()
        except sqlite3.Error as error:
            probe("storage: trace of a commit not removed")
            failure = translated(error, self._path)
            if isinstance(failure, StorageFailed):
                failure.isUncertain = True
            raise failure from error
        if isBusy:
            raise StorageFailed(
                f"{self._path} is held by another process: stop that one", isUncertain=True
            )
        probe("storage: trace of a commit removed")
        self._isUncertain = False

    def _rollBack(self) -> None:
        # SQLite has often rolled back by itself. What it cannot do now is tried again before the
        # next transaction.
        if self.connection.in_transaction:
            with suppress(sqlite3.Error):
                self.connection.execute("ROLLBACK")

    def _checkLog(self) -> None:
        """
        See that the write-ahead log is still the file that SQLite appends to.
        """
        try:
            inode = os.stat(self._wal).st_ino
        except OSError as error:
            raise self._vanished() from error
        if inode != self._walInode:
            raise self._vanished()

    def _vanished(self) -> StorageDamaged:
        # Appending would go on, into a file without a name, and be gone after a restart.
        return StorageDamaged(
            f"{self._wal} was removed while in use: stop the broker, copy what is left and "
            "restore a backup"
        )
