"""
The file of a Merkle tree (RFC 9162) that is derived from a log: its leaves by their names, and the
inner nodes of each eighth level.

The log has it all, so nothing is synced, and a file that cannot be used is made anew.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from attrs import frozen

from ..chain import History, Malformed, growthPath, historyPath, leafHash
from ._errors import StorageDamaged, translated
from ._files import refuseSpecial
from ._schema import makePrivateFile

APPLICATION_ID: Final = 0x73766374
"""The application id in the file's header: svct."""

VERSION: Final = 1

_TABLES: Final = (
    "CREATE TABLE leaf (number INTEGER PRIMARY KEY, name BLOB NOT NULL UNIQUE,"
    " hash BLOB NOT NULL, event TEXT NOT NULL)",
    "CREATE TABLE node (level INTEGER NOT NULL, position INTEGER NOT NULL, hash BLOB NOT NULL,"
    " PRIMARY KEY (level, position)) WITHOUT ROWID",
    "CREATE TABLE state (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
)
_ENDS: Final = ("", "-wal", "-shm", "-journal")


@frozen
class TreeLeaf:
    """
    A leaf that is added.

    @ivar name: 32 bytes by which it is found.
    @ivar data: what is hashed.
    @ivar event: the id of the event that it is of.
    """

    name: bytes
    data: bytes
    event: str


@frozen(kw_only=True)
class TreePlace:
    """
    A leaf in a tree.

    @ivar number: its number, from 0.
    @ivar hash: its hash.
    @ivar event: the id of the event that it is of.
    @ivar path: the hashes that lead from it to the root.
    """

    number: int
    hash: bytes
    event: str
    path: Sequence[bytes]


class TreeFile:
    """
    A tree in one SQLite file. Every call blocks; one thread at a time. Each may raise
    L{StorageDamaged} or L{StorageFailed<svcbroker.storage.StorageFailed>}.

    @ivar state: what the caller has kept with the last of them.
    """

    def __init__(self, path: Path, owner: bytes) -> None:
        """
        @param owner: what the tree is of. A file of something else is made anew.
        """
        self.path = path
        self._owner = owner
        self._connection: sqlite3.Connection | None = None
        self._history = History(0, ())
        self.state = b""

    @property
    def size(self) -> int:
        """The number of leaves."""
        return self._history.size

    @property
    def root(self) -> bytes:
        """The root over all leaves."""
        return self._history.root

    def open(self) -> str:
        """
        Open the file, or make it. Called once, before any other method.

        @return: why it was made anew; empty where it was not.
        """
        self.path.parent.mkdir(mode=0o700, exist_ok=True)
        refuseSpecial(self.path)
        try:
            with self._translated():
                self._load()
        except StorageDamaged as error:
            self.clear()
            return str(error)
        return ""

    def clear(self) -> None:
        """Make the file anew, without a leaf."""
        self.discard()
        with self._translated():
            self._load()

    def discard(self) -> None:
        """Remove the file, if there is one."""
        self.close()
        for end in _ENDS:
            self.path.with_name(self.path.name + end).unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def add(self, leaves: Sequence[TreeLeaf], state: bytes) -> None:
        """
        Add leaves. Names that the tree has already are left out.

        @param state: is kept with them.
        """
        history, nodes, rows = self._history, list[tuple[Any, ...]](), list[tuple[Any, ...]]()
        names = set[bytes]()
        for leaf in leaves:
            if leaf.name not in names and self.find(leaf.name) is None:
                names.add(leaf.name)
                rows.append((history.size, leaf.name, leafHash(leaf.data), leaf.event))
                history = history.after(leaf.data)
                nodes += history.completed
        with self._translated(), self._transaction() as connection:
            connection.executemany("INSERT INTO leaf VALUES (?, ?, ?, ?)", rows)
            connection.executemany("INSERT INTO node VALUES (?, ?, ?)", nodes)
            connection.execute("REPLACE INTO state VALUES ('state', ?)", (state,))
        self._history, self.state = history, state

    def find(self, name: bytes) -> int | None:
        """The number of a leaf; C{None} where there is none of this name."""
        row = self._row("SELECT number FROM leaf WHERE name = ?", name)
        return None if row is None else int(row[0])

    def eventOf(self, number: int) -> str | None:
        """The event of a leaf; C{None} where there is none of this number."""
        row = self._row("SELECT event FROM leaf WHERE number = ?", number)
        return None if row is None else str(row[0])

    def place(self, name: bytes, size: int) -> TreePlace | None:
        """
        The place of a leaf in the tree of a size.

        @return: C{None} where that has none of this name.
        """
        row = self._row("SELECT number, hash, event FROM leaf WHERE name = ?", name)
        if row is None or row[0] >= size:
            return None
        with self._translated():
            path = historyPath(row[0], size, self._nodes)
        return TreePlace(number=row[0], hash=row[1], event=row[2], path=path)

    def growth(self, older: int, newer: int) -> Sequence[bytes]:
        """The consistency proof from one size to another, neither of which is above L{size}."""
        with self._translated():
            return growthPath(older, newer, self._nodes)

    def nodes(self, level: int, first: int, count: int) -> Sequence[bytes]:
        """
        Nodes that have all their leaves, as many of them as there are.

        @param level: a multiple of 8; 0 for the leaves.
        @param first: the place of the first one in its level, from 0.
        """
        with self._translated():
            return self._nodes(level, first, count)

    def rootAt(self, size: int) -> bytes:
        """The root of the tree of a size, which is not above L{size}."""
        with self._translated():
            return History.load(size, self._nodes).root

    def _load(self) -> None:
        makePrivateFile(self.path)
        connection = sqlite3.connect(self.path, check_same_thread=False, isolation_level=None)
        self._connection = connection
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")
        id = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if (id, version) == (0, 0):
            with self._transaction():
                for table in _TABLES:
                    connection.execute(table)
                connection.execute("INSERT INTO state VALUES ('owner', ?)", (self._owner,))
                connection.execute("INSERT INTO state VALUES ('state', '')")
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {VERSION}")
        elif (id, version) != (APPLICATION_ID, VERSION):
            raise StorageDamaged(f"{self.path} is of another program or version")
        states = dict(connection.execute("SELECT name, value FROM state").fetchall())
        if states.get("owner") != self._owner:
            raise StorageDamaged(f"{self.path} is of another log")
        size = connection.execute("SELECT count(*) FROM leaf").fetchone()[0]
        self._history = History.load(size, self._nodes)
        self.state = bytes(states.get("state") or b"")

    def _nodes(self, level: int, first: int, count: int) -> Sequence[bytes]:
        """See L{NodeSource<svcbroker.chain.NodeSource>}."""
        assert self._connection is not None
        if level == 0:
            rows = self._connection.execute(
                "SELECT hash FROM leaf WHERE number >= ? AND number < ? ORDER BY number",
                (first, first + count),
            )
        else:
            rows = self._connection.execute(
                "SELECT hash FROM node WHERE level = ? AND position >= ? AND position < ?"
                " ORDER BY position",
                (level, first, first + count),
            )
        return [row[0] for row in rows]

    def _row(self, query: str, *values: Any) -> Any:
        assert self._connection is not None
        with self._translated():
            return self._connection.execute(query, values).fetchone()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        assert self._connection is not None
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield self._connection
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise translated(error, self.path) from error
        except Malformed as error:
            raise StorageDamaged(f"{self.path} is damaged: {error}") from None
