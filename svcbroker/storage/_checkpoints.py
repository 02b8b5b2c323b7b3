"""
Checkpoints of the write-ahead log, made in a thread while blocks are appended.

SQLite makes a checkpoint as part of a commit, which then takes some 2 ms longer. Here a thread
copies the pages of the log into the file, on a connection of its own. Where all of them are copied,
the next commit begins the log again; where commits came in between, the thread copies their pages,
too. Nothing depends on it: from a longer log, SQLite copies what is left as part of a commit.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from threading import Thread
from typing import Final

from ._errors import StorageError
from ._files import PAGE_SIZE

PAGES_BETWEEN: Final = 1000
"""After how many pages of log a checkpoint is made."""

BLOCK_PAGES: Final = 8
"""About how many pages a block adds to the log, besides those of its body."""

ATTEMPTS: Final = 5
"""How many times pages are copied that came while others were copied."""


class CheckpointThread:
    """
    Makes the checkpoints of one store.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        """
        @param connect: opens the connection. Called in the thread, at the first checkpoint.
        """
        self._connect = connect
        self._connection: sqlite3.Connection | None = None
        self._thread: Thread | None = None
        self._pages = 0

    def beforeBlocks(self) -> None:
        """
        Wait where a checkpoint takes so long that the next one is due, so that the log stays
        bounded: SQLite copies what is left at the next commit. Called before blocks are stored,
        in the thread that writes.
        """
        if self._pages >= PAGES_BETWEEN:
            self.wait()

    def afterBlocks(self, count: int, size: int) -> None:
        """
        Begin a checkpoint where one is due. Called after blocks were stored, in the thread that
        writes.

        @param size: how many bytes their bodies have.
        """
        self._pages += BLOCK_PAGES * count + size // PAGE_SIZE
        if self._pages >= PAGES_BETWEEN and (self._thread is None or not self._thread.is_alive()):
            self._pages = 0
            # A disk that hangs must not keep the process from ending.
            self._thread = Thread(target=self._run, name="checkpoint", daemon=True)
            self._thread.start()

    def wait(self) -> None:
        """Wait until no checkpoint is being made. Called in the thread that writes."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def close(self) -> None:
        """Wait until no checkpoint is being made, and close the connection."""
        self.wait()
        if self._connection is not None:
            self._connection.close()

    def _run(self) -> None:
        try:
            if self._connection is None:
                self._connection = self._connect()
            before = 0
            for _ in range(ATTEMPTS):
                # Of the log as it was when the checkpoint began.
                checkpoint = self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
                _, pages, _ = checkpoint.fetchone()
                if pages == before:
                    break
                before = pages
        except (sqlite3.Error, StorageError):
            pass  # The disk is full or failing: what was not copied stays in the log.
