"""
The file of the metadata store: positions of subscriptions, sessions, webhooks; and beside it the
file with the number of its writes, so that a loss is noticed.

SQLite takes a damaged or missing write-ahead log for the end of what was written, and a missing
file for a new one. The number is a row of the store, too. It is written beside it after each commit
and never synced: it survives every death of the process. After a power failure it may be less than
that of the store, which is harmless; it is never more.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final, Self
from zlib import crc32

from ..files import readFile
from ._errors import StorageDamaged, StorageRefused, StorageUnknown, isDamage, translated
from ._files import refuseSpecial
from ._schema import Contents, contentsOf, makePrivateFile, versionOf, writeFile

LAST_SUFFIX: Final = "-last"
"""The suffix of the file's name, after that of the metadata store."""

# Within one sector, so that a power failure leaves the old one or the new one.
_SIZE: Final = 96
_TEXT: Final = re.compile(rb"svcbroker-writes/1 ([0-9]{1,20})(?: lost ([0-9]{1,20}))? ", re.ASCII)


APPLICATION_ID: Final = 0x7376636E
"""The application id in the file's header, by which foreign SQLite files are refused: svcn."""

VERSION: Final = 2

_TABLE: Final = (
    "CREATE TABLE note (kind TEXT NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL,"
    " checksum BLOB NOT NULL, PRIMARY KEY (kind, name)) WITHOUT ROWID"
)

_FIRST_TABLE: Final = (
    "CREATE TABLE note (kind TEXT NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL,"
    " PRIMARY KEY (kind, name)) WITHOUT ROWID"
)
"""The table of version 1, which has no checksums."""

_CHECKSUM_SIZE: Final = 8

_SHOWN: Final = 5

ADVICE: Final = (
    "restore it from a backup, or move it and its companions away and all subscriptions begin anew"
)
"""The advice about a file that cannot be used, where losing it loses no event."""

METADATA_WRITES: Final = ("", "writes")
"""The kind and name of the row with the number of writes, which is no entry."""

_COMPATIBLE: Final = ("", "compatible")
"""
The kind and name of the row with the version of the file, the oldest version whose software may use
it, and the release that brought that version. It is no entry. A file without it is compatible since
its own version.
"""

_SINCE: Final = b"2 2 0.1.0"

_SINCE_TEXT: Final = re.compile(rb"([0-9]{1,4}) ([0-9]{1,4}) ([0-9.]{3,19})", re.ASCII)

Key = tuple[str, str]
"""The kind of an entry, and its name among those of its kind."""


class MetadataFile:
    """
    Entries by kind and name, in one SQLite file. Every call blocks; one thread at a time.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, advice: str = ADVICE) -> None:
        """
        Private: call L{open}.
        """
        self.path = path
        self._connection = connection
        self._advice = advice
        # Counted where the write-ahead log may get lost.
        self._writes: int | None = None
        self._writesFile = WritesFile(path)
        self._loss = ""

    @classmethod
    def open(cls, path: Path, *, journal: str | None = "WAL", advice: str = ADVICE) -> Self:
        """
        Open the file, or make it. With a write-ahead log, writes are counted: L{loss} tells of
        those that are missing.

        @param journal: the journal mode of SQLite. C{"DELETE"}, where a write is rare and a lost
            one does harm, syncs the directory, too, and leaves one file; C{None} leaves the file as
            it is.
        @param advice: what errors say to do about a file that cannot be used; may be empty.
        @raise StorageRefused: the file is foreign, damaged or newer, or cannot be written.
        """
        refuseSpecial(path)
        connection: sqlite3.Connection | None = None
        known = readWrites(path)
        try:
            makePrivateFile(path)
            connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            if journal is not None:
                mode = connection.execute(f"PRAGMA journal_mode = {journal}").fetchone()[0]
                if journal == "DELETE" and mode != "delete":
                    raise StorageRefused(f"{path} is in use by another process: stop that one")
                level = "FULL" if journal == "WAL" else "EXTRA"
                connection.execute(f"PRAGMA synchronous = {level}")
            cls._prepare(path, connection)
        except (sqlite3.Error, UnicodeDecodeError, OSError, StorageRefused) as error:
            # SQLite quotes what is damaged in the schema, which need not be text.
            if connection is not None:
                connection.close()
            if isinstance(error, StorageRefused):
                raise
            raise StorageRefused(f"{path} cannot be used ({error}){_after(advice)}") from error
        file = cls(path, connection, advice)
        if journal == "WAL":
            file._findLoss(known)
        return file

    def _findLoss(self, known: tuple[int, int | None] | None) -> None:
        try:
            row = self._connection.execute(
                "SELECT value FROM note WHERE kind = ? AND name = ?", METADATA_WRITES
            ).fetchone()
            self._writes = 0 if row is None else int(row[0])
        except (sqlite3.Error, ValueError, TypeError):
            self._writes = 0  # L{load} reports the damage.
        self._loss = findLostWrites(self.path, known, self._writes)
        if self._loss and known is not None:
            total, left = known
            self._writesFile.write(total, self._writes if left is None else left)

    @property
    def loss(self) -> str:
        """
        The loss before the file was opened, in one line; empty where nothing was, or where an
        operator has accepted it, by removing the file with the number of writes.
        """
        if self._loss and not self._writesFile.isThere():
            self._writesFile.close()
            self._loss = ""
        return self._loss

    @staticmethod
    def _prepare(path: Path, connection: sqlite3.Connection) -> None:
        identity = connection.execute("PRAGMA application_id").fetchone()[0]
        version = versionOf(connection)
        tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        if not tables:
            connection.executescript(
                f"BEGIN IMMEDIATE; {_TABLE};"
                f"INSERT INTO note VALUES ('{_COMPATIBLE[0]}', '{_COMPATIBLE[1]}', "
                f"x'{_SINCE.hex()}', x'{metadataChecksum(*_COMPATIBLE, _SINCE).hex()}');"
                f"PRAGMA application_id = {APPLICATION_ID};"
                f"PRAGMA user_version = {VERSION};"
                "COMMIT"
            )
        elif identity != APPLICATION_ID:
            raise StorageRefused(f"{path} was not written by this broker: move it away")
        elif version > VERSION:
            needed = whatMetadataNeeds(connection, VERSION)
            if needed:
                raise StorageUnknown(
                    f"{path} was written by a newer svcbroker (version {version}, this one knows "
                    f"{VERSION}): use {needed}"
                )
        elif version < VERSION:
            _addChecksums(connection)

    def load(self) -> dict[Key, bytes]:
        """
        All entries.

        @raise svcbroker.storage.StorageError: the file cannot be read, or an entry does not match
            its checksum. No entry is left out silently.
        """
        try:
            return readEntries(self.path, self._connection, self._advice)
        except sqlite3.Error as error:
            raise self._translated(error) from error

    def write(self, changes: Mapping[Key, bytes | None]) -> None:
        """
        Write entries, and delete those that are C{None}: all or none, synced on return.

        @raise svcbroker.storage.StorageError: it cannot be written.
        """
        writes = None if self._writes is None else self._writes + 1
        if writes is not None:
            changes = {**changes, METADATA_WRITES: b"%d" % writes}
        kept: Iterable[tuple[str, str, bytes, bytes]] = (
            (*key, value, metadataChecksum(*key, value))
            for key, value in changes.items()
            if value is not None
        )
        forgotten = (key for key, value in changes.items() if value is None)
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.executemany("INSERT OR REPLACE INTO note VALUES (?, ?, ?, ?)", kept)
                connection.executemany("DELETE FROM note WHERE kind = ? AND name = ?", forgotten)
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise self._translated(error) from error
        if writes is not None:
            self._writes = writes
            if not self.loss:
                self._writesFile.write(writes)

    def _translated(self, error: sqlite3.Error) -> Exception:
        if isDamage(error) and self._advice != ADVICE:
            return StorageDamaged(f"{self.path} is damaged ({error}){_after(self._advice)}")
        return translated(error, self.path)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
        self._writesFile.close()


def readEntries(
    path: Path, connection: sqlite3.Connection, advice: str = ADVICE
) -> dict[Key, bytes]:
    """
    All entries of a metadata store.

    @param path: what it is called in errors.
    @param advice: as for L{MetadataFile.open}.
    @raise StorageDamaged: an entry does not match its checksum.
    @raise sqlite3.Error: the file cannot be read.
    """
    # A changed count of a page's rows would hide some of them.
    ((problem,),) = connection.execute("PRAGMA integrity_check(1)").fetchall()
    if problem != "ok":
        raise StorageDamaged(f"{path} is damaged ({problem}){_after(advice)}")
    entries: dict[Key, bytes] = {}
    damaged: list[str] = []
    try:
        for kind, name, value, checksum in connection.execute(
            "SELECT kind, name, value, checksum FROM note"
        ):
            if checksum == metadataChecksum(kind, name, value):
                entries[kind, name] = value
            else:
                damaged.append(f"{kind} {name!r}")
    except (AttributeError, TypeError, ValueError) as error:
        raise StorageDamaged(f"{path} is damaged (an entry is not one){_after(advice)}") from error
    for key in (METADATA_WRITES, _COMPATIBLE):
        entries.pop(key, None)
    total = len(damaged) + len(entries)
    if damaged:
        shown = ", ".join(damaged[:_SHOWN]) + (", ..." if len(damaged) > _SHOWN else "")
        advice = advice.replace(", or", ", remove these entries, or")
        raise StorageDamaged(
            f"{path} is damaged ({len(damaged)} of {total} entries are not what was "
            f"written: {shown}){_after(advice)}"
        )
    return entries


def metadataChecksum(kind: str, name: str, value: bytes) -> bytes:
    """
    The checksum of an entry, which is stored beside it.
    """
    parts = (kind.encode("utf-8", "surrogateescape"), name.encode("utf-8", "surrogateescape"))
    head = b"".join(b"%d:%s" % (len(part), part) for part in parts)
    return sha256(head + value).digest()[:_CHECKSUM_SIZE]


def metadataContents(version: int = VERSION) -> Contents:
    """
    The schema of a file, as L{contentsOf} returns it.
    """
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute(_TABLE if version == VERSION else _FIRST_TABLE)
        return contentsOf(connection)
    finally:
        connection.close()


def standInMetadata(connection: sqlite3.Connection) -> None:
    """
    Let queries read a file of version 1 as one of this version, which stays as it is: as if its
    entries had checksums. See L{svcbroker.storage._schema.standIn}.
    """
    connection.create_function("checksum_of", 3, metadataChecksum, deterministic=True)
    connection.execute(
        "CREATE TEMP VIEW note AS SELECT *, checksum_of(kind, name, value) AS checksum "
        "FROM main.note"
    )


def whatMetadataNeeds(connection: sqlite3.Connection, known: int) -> str:
    """
    The oldest release that may use a file of a newer version, for the words of a refusal; empty
    where this one may.

    @param known: the newest version that this software knows.
    """
    version = versionOf(connection)
    try:
        row = connection.execute(
            "SELECT value, checksum FROM note WHERE kind = ? AND name = ?", _COMPATIBLE
        ).fetchone()
    except (sqlite3.Error, UnicodeDecodeError):
        row = None
    value, checksum = row or (b"", b"")
    if not isinstance(value, bytes) or checksum != metadataChecksum(*_COMPATIBLE, value):
        return "a newer svcbroker"
    found = _SINCE_TEXT.fullmatch(value)
    if found is None or int(found[1]) != version:
        return "a newer svcbroker"
    return "" if int(found[2]) <= known else f"svcbroker {found[3].decode()} or later"


def lastPath(path: Path) -> Path:
    """
    The file with the number of writes of a metadata store.
    """
    return path.with_name(path.name + LAST_SUFFIX)


def readWrites(path: Path) -> tuple[int, int | None] | None:
    """
    Read how many writes a metadata store had.

    @param path: the store.
    @return: the number, and where a loss was found before, how many of them were left then;
        C{None} where nothing is known: there is no such file, or it is damaged.
    """
    try:
        data = readFile(lastPath(path))
    except OSError:
        return None
    found = _TEXT.match(data)
    if found is None:
        return None
    writes, left = int(found[1]), None if found[2] is None else int(found[2])
    return (writes, left) if data == _encode(writes, left) else None


def writeWrites(path: Path, writes: int) -> None:
    """
    Write how many writes a metadata store had, and sync it. Nobody has the store open.

    @raise OSError: it cannot be written.
    """
    writeFile(lastPath(path), _encode(writes, None), 0o600)


def _encode(writes: int, left: int | None) -> bytes:
    lost = "" if left is None else f" lost {left}"
    text = f"svcbroker-writes/1 {writes}{lost} ".encode("ascii")
    return (text + b"%08x" % crc32(text)).ljust(_SIZE - 1) + b"\n"


def findLostWrites(path: Path, known: tuple[int, int | None] | None, writes: int) -> str:
    """
    Find the writes that a metadata store has lost.

    @param known: what L{readWrites} gave, before the store was read.
    @param writes: how many writes it says it had; 0 where it is missing.
    @return: one line; empty where nothing is lost.
    """
    if known is None:
        return ""
    total, left = known
    if left is None:
        left = writes
        if left >= total:
            return ""
    what = "is missing or was begun anew" if not left else "has lost its latest changes"
    return (
        f"{path} {what}: of {total} writes {left} were left, so webhooks, positions of "
        "subscriptions and sessions are missing or old; restore it from a backup; to go on without "
        f"them, remove {lastPath(path).name}"
    )


class WritesFile:
    """
    Writes the file. A failure is ignored: it then says less than the store.
    """

    def __init__(self, path: Path) -> None:
        """
        @param path: the metadata store.
        """
        self._path = lastPath(path)
        self._descriptor: int | None = None

    def write(self, writes: int, left: int | None = None) -> None:
        """
        Replace the number. Called after each commit.

        @param left: where writes were lost, how many are left. That stays until the file is
            removed.
        """
        try:
            if self._descriptor is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
                self._descriptor = os.open(self._path, flags, 0o600)
            os.pwrite(self._descriptor, _encode(writes, left), 0)
        except OSError:
            return

    def isThere(self) -> bool:
        """Whether nobody has removed it."""
        return self._path.exists()

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _after(advice: str) -> str:
    return f": {advice}" if advice else ""


def _addChecksums(connection: sqlite3.Connection) -> None:
    """Upgrade a file of version 1, which has no checksums."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        rows = connection.execute("SELECT kind, name, value FROM note").fetchall()
        connection.execute("DROP TABLE note")
        connection.execute(_TABLE)
        connection.executemany(
            "INSERT INTO note VALUES (?, ?, ?, ?)",
            [(*row, metadataChecksum(*row)) for row in (*rows, (*_COMPATIBLE, _SINCE))],
        )
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
