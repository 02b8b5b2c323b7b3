"""
Small things that are kept beside the chains: where subscriptions stand, sessions, webhooks.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Self

from ._errors import StorageRefused, translated

APPLICATION_ID: Final = 0x7376636E
"""Written into the file's header, so that a foreign SQLite database is known as such: svcn."""

VERSION: Final = 1

Key = tuple[str, str]
"""A kind of thing, and its name among those of its kind."""


class NoteStore:
    """
    Bytes by kind and name, in one SQLite file. Every call blocks; one thread at a time.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        """
        Private: call L{open}.
        """
        self.path = path
        self._connection = connection

    @classmethod
    def open(cls, path: Path) -> Self:
        """
        Open the store in a file, or begin one.

        @raise StorageRefused: the file is foreign, damaged or newer, or cannot be written.
        """
        connection: sqlite3.Connection | None = None
        try:
            connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            cls._prepare(path, connection)
        except (sqlite3.Error, StorageRefused) as error:
            if connection is not None:
                connection.close()
            if isinstance(error, StorageRefused):
                raise
            raise StorageRefused(
                f"{path} cannot be used ({error}): restore it from a backup, or move it away "
                "and all subscriptions begin anew"
            ) from error
        return cls(path, connection)

    @staticmethod
    def _prepare(path: Path, connection: sqlite3.Connection) -> None:
        identity = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        if not tables:
            connection.executescript(
                "BEGIN IMMEDIATE;"
                "CREATE TABLE note (kind TEXT NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL,"
                " PRIMARY KEY (kind, name)) WITHOUT ROWID;"
                f"PRAGMA application_id = {APPLICATION_ID};"
                f"PRAGMA user_version = {VERSION};"
                "COMMIT"
            )
        elif identity != APPLICATION_ID:
            raise StorageRefused(f"{path} was not written by this broker: move it away")
        elif version > VERSION:
            raise StorageRefused(f"{path} was written by a newer broker: use that one")

    def load(self) -> dict[Key, bytes]:
        """
        Everything that is kept.

        @raise svcbroker.storage.StorageError: it cannot be read.
        """
        try:
            rows = self._connection.execute("SELECT kind, name, value FROM note")
            return {(kind, name): value for kind, name, value in rows}
        except sqlite3.Error as error:
            raise translated(error, self.path) from error

    def write(self, changes: Mapping[Key, bytes | None]) -> None:
        """
        Keep what is new, forget what is C{None}: all of it or nothing, synced.

        @raise svcbroker.storage.StorageError: it cannot be written.
        """
        kept: Iterable[tuple[str, str, bytes]] = (
            (kind, name, value) for (kind, name), value in changes.items() if value is not None
        )
        forgotten = (key for key, value in changes.items() if value is None)
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.executemany("INSERT OR REPLACE INTO note VALUES (?, ?, ?)", kept)
                connection.executemany("DELETE FROM note WHERE kind = ? AND name = ?", forgotten)
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise translated(error, self.path) from error

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
