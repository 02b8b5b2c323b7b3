"""
Making, inspecting and opening the file below a store.
"""

from __future__ import annotations

import os
import sqlite3
import struct
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, TypeAlias

from ..files import openFile, specialKind
from ..probes import probe
from ._errors import StorageRefused, StorageUnknown, isDamage, primaryCode
from ._schema import (
    APPLICATION_ID,
    backUp,
    makePrivateFile,
    runSteps,
    syncFile,
    versionOf,
    whatIsNeeded,
)
from ._tip import tipPath

Connect: TypeAlias = Callable[..., sqlite3.Connection]
"""The way to SQLite: C{sqlite3.connect}, or what a test has in its place."""

LOG_LIMIT: Final = 64 * 1024 * 1024
"""
Bytes of write-ahead log that stay on disk, by default, after it had to grow beyond.

It grows only while some other program holds a snapshot open, or a thread reads without a pause.
"""

_MAGIC: Final = b"SQLite format 3\0"
_HEADER_SIZE: Final = 100
_BUSY_SECONDS: Final = 1.0

# Measured with 1, 32 and 1000 events of 300 bytes a block. Pages of 8 and 16 KiB make the small
# blocks 10 and 30 % slower and the large ones hardly faster.
PAGE_SIZE: Final = 4096
_FOLD_PAGES: Final = 2000
"""
The number of pages of log that SQLite leaves at a commit, which the folding thread has not
copied.
"""

_WRITE_CACHE_KIB: Final = 16 * 1024
_READ_CACHE_KIB: Final = 8 * 1024

CACHE_BYTES: Final = (_WRITE_CACHE_KIB + _READ_CACHE_KIB) * 1024
"""The pages that the connections of a store keep in memory, in bytes."""

# The schema of files that were written with secure_delete from the beginning.
_FIRST_SECURE: Final = 4

# A page's kind, first free block, number of cells, and where the cells begin (Database File Format,
# 1.6), and the size of an interior page's header.
_PAGE_HEADER: Final = struct.Struct(">BHHH")
_INTERIOR: Final = 5
_INTERIOR_HEADER: Final = 12

_SETTINGS: Final = (
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",
    "PRAGMA checkpoint_fullfsync = ON",
    "PRAGMA secure_delete = ON",  # erased contents are to be gone
    "PRAGMA mmap_size = 0",  # a failing disk is to raise, not to send SIGBUS
)


def companions(path: Path) -> Sequence[Path]:
    """
    The files that SQLite keeps beside an open one.
    """
    return [path.with_name(path.name + ending) for ending in ("-wal", "-shm")]


def makeFile(
    path: Path, *, chainId: bytes, genesis: bytes, steps: Sequence[str], connect: Connect
) -> None:
    """
    Make an empty store. The file appears whole, on stable storage, or not at all.

    @raise StorageRefused: there is something already, or the directory cannot be written.
    """
    for other in (path, *companions(path), tipPath(path)):
        if os.path.lexists(other):
            raise StorageRefused(f"{other} exists already: move it away to begin a new chain")
    unfinished = path.with_name(path.name + ".new")
    try:
        for leftover in (unfinished, *companions(unfinished)):
            leftover.unlink(missing_ok=True)
        makePrivateFile(unfinished)
        with closing(connect(unfinished, isolation_level=None)) as connection:
            connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
            # For the space of what is erased. SQLite then also keeps a map of the pages, by which
            # it gets into the middle of a long body without reading every page before: of a 4 MB
            # body 14 µs instead of 330. An append costs 1 to 2 % more.
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            runSteps(connection, steps, 0)
            connection.execute("INSERT INTO chain VALUES (0, ?, ?)", (chainId, genesis))
            connection.execute("PRAGMA journal_mode = WAL")
        syncFile(unfinished)
        os.rename(unfinished, path)
        syncFile(path.parent)
    except (OSError, sqlite3.Error) as error:
        raise StorageRefused(
            f"{path} cannot be made ({_words(error)}): check that its directory exists, "
            "can be written and has room"
        ) from error


def refuseSpecial(path: Path) -> None:
    """
    Refuse a store of which a file is a FIFO, a socket or a device: SQLite would wait for it. The
    files are not opened, so that no lock on them is dropped.

    @raise StorageRefused: one is.
    """
    for each in (path, *companions(path), path.with_name(path.name + "-journal")):
        kind = specialKind(each)
        if kind:
            raise StorageRefused(f"{each} is {kind}, not a file: move it away")


def inspectFile(
    path: Path, *, applicationId: int | None = APPLICATION_ID, what: str = "a ledger"
) -> None:
    """
    Refuse what is no store of ours, before SQLite touches it.

    @param applicationId: what files of its kind have in their header; C{None} where that may
        still be in the log beside it.
    @param what: what it should be.
    @raise StorageRefused: with the reason.
    """
    refuseSpecial(path)
    try:
        with openFile(path) as file:
            header = file.read(_HEADER_SIZE)
    except OSError as error:
        raise StorageRefused(
            f"{path} cannot be read ({_words(error)}): check the data directory"
        ) from error
    if len(header) < _HEADER_SIZE:
        raise StorageRefused(f"{path} is cut short: restore it from a backup")
    if not header.startswith(_MAGIC):
        raise StorageRefused(
            f"{path} is not {what}: restore it from a backup, or move it away if it was put "
            "there by mistake"
        )
    if applicationId is not None and header[68:72] != applicationId.to_bytes(4, "big"):
        raise foreign(path)


def foreign(path: Path) -> StorageRefused:
    """
    The refusal to open a file of another program.
    """
    return StorageRefused(
        f"{path} is a database of another program: move it away, or choose another data directory"
    )


def openWriting(
    path: Path, *, steps: Sequence[str], connect: Connect, logLimit: int
) -> sqlite3.Connection:
    """
    Open a store's file for writing: fold in what a crash left in the write-ahead log, upgrade
    an older file after a backup, and see that the file is all there.

    @raise StorageRefused: with the reason; nothing is left open.
    """
    inspectFile(path)
    connection = _connect(path, connect)
    try:
        version = _prepareWriting(path, connection, steps, logLimit)
        if version < _FIRST_SECURE <= len(steps):
            root = _rootOfBodies(path, connection)
            # Closing a descriptor of the file drops the locks that the connection has on it.
            connection.close()
            _clearFreeSpace(path, root)
            connection = _connect(path, connect)
            _prepareWriting(path, connection, steps, logLimit)
        if version < len(steps):
            _upgrade(path, connection, steps, version)
    except BaseException:
        connection.close()
        raise
    return connection


def openReading(path: Path, *, connect: Connect) -> sqlite3.Connection:
    """
    Open another connection, which cannot write. It can copy the pages of the write-ahead log.

    @raise StorageRefused: with the reason; nothing is left open.
    """
    connection = _connect(path, connect)
    try:
        _apply(connection, f"PRAGMA cache_size = -{_READ_CACHE_KIB}", "PRAGMA query_only = ON")
    except sqlite3.Error as error:
        connection.close()
        raise refusal(error, path) from error
    return connection


def refusal(error: sqlite3.Error, path: Path) -> StorageRefused:
    """
    The refusal that says why a file could not be opened, from SQLite's error.
    """
    if isDamage(error):
        return StorageRefused(f"{path} is damaged ({error}): restore it from a backup")
    if primaryCode(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StorageRefused(f"{path} is in use by another process: stop that one first")
    if primaryCode(error) in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
        return StorageRefused(
            f"{path} cannot be written: give the broker write access to it and its directory"
        )
    if primaryCode(error) == sqlite3.SQLITE_FULL:
        return StorageRefused(f"{path} cannot be opened, its disk is full: make room")
    return StorageRefused(f"{path} cannot be opened ({error}): check its disk")


def _connect(path: Path, connect: Connect) -> sqlite3.Connection:
    try:
        return connect(
            # Never create: a file that vanished since it was looked at must not come back empty.
            f"{path.absolute().as_uri()}?mode=rw",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            timeout=_BUSY_SECONDS,
        )
    except sqlite3.Error as error:
        raise refusal(error, path) from error


def _apply(connection: sqlite3.Connection, *statements: str) -> None:
    for statement in (*_SETTINGS, *statements):
        try:
            connection.execute(statement)
        except UnicodeDecodeError as error:
            # SQLite quotes what is damaged in the schema, which need not be text.
            raise sqlite3.OperationalError("malformed database schema") from error


def _prepareWriting(
    path: Path, connection: sqlite3.Connection, steps: Sequence[str], logLimit: int
) -> int:
    """
    @return: the file's schema number.
    """
    try:
        _apply(
            connection,
            f"PRAGMA cache_size = -{_WRITE_CACHE_KIB}",
            f"PRAGMA wal_autocheckpoint = {_FOLD_PAGES}",
            f"PRAGMA journal_size_limit = {logLimit}",
        )
        version = versionOf(connection)
        needed = whatIsNeeded(connection, len(steps)) if version > len(steps) else ""
        if needed:
            raise StorageUnknown(
                f"{path} was written by a newer svcbroker (schema {version}, this one knows "
                f"{len(steps)}): run {needed}, or restore an older backup"
            )
        if version < 1:
            raise StorageRefused(f"{path} is damaged (no schema): restore it from a backup")
        checkSchema(path, connection)
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise StorageRefused(f"{path} lies on a file system that SQLite cannot use: move it")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
        if _foldLog(path, connection):
            checkSize(path, connection)
        return version
    except sqlite3.Error as error:
        raise refusal(error, path) from error


def _upgrade(
    path: Path, connection: sqlite3.Connection, steps: Sequence[str], version: int
) -> None:
    try:
        backUp(connection, path, version)
        runSteps(connection, steps, version)
    except sqlite3.Error as error:
        raise refusal(error, path) from error
    except OSError as error:
        raise StorageRefused(
            f"{path} cannot be backed up before its upgrade ({_words(error)}): make room"
        ) from error


def _rootOfBodies(path: Path, connection: sqlite3.Connection) -> int:
    row = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'body'").fetchone()
    if row is None:
        raise StorageRefused(f"{path} is damaged (no bodies): restore it from a backup")
    root: int = row[0]
    return root


def _clearFreeSpace(path: Path, root: int) -> None:
    """
    Overwrite the free space of a table's root page. Without C{secure_delete} SQLite leaves the
    first rows there when the table gets its second page. No connection may be open.

    @param root: the number of the page.
    """
    try:
        with path.open("r+b") as file:
            file.seek((root - 1) * PAGE_SIZE)
            kind, _, cells, end = _PAGE_HEADER.unpack(file.read(_PAGE_HEADER.size))
            start = _INTERIOR_HEADER + 2 * cells
            if kind == _INTERIOR and start < end <= PAGE_SIZE:
                file.seek((root - 1) * PAGE_SIZE + start)
                file.write(bytes(end - start))
                file.flush()
                os.fsync(file.fileno())
    except (OSError, struct.error) as error:
        raise StorageRefused(f"{path} cannot be written: {_words(error)}") from error


def checkSchema(path: Path, connection: sqlite3.Connection) -> None:
    rows = connection.execute(
        "SELECT type, name FROM sqlite_schema WHERE type IN ('trigger', 'view')"
    )
    for kind, name in rows:
        raise StorageRefused(
            f"{path} has a {kind} {ascii(name)[:80]}, which svcbroker does not make: restore it "
            "from a backup"
        )


def _foldLog(path: Path, connection: sqlite3.Connection) -> bool:
    """
    Fold the write-ahead log in. On a full disk it stays beside the file; reads need no more.

    @return: whether it is folded in.
    """
    try:
        isBusy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    except sqlite3.Error as error:
        if primaryCode(error) == sqlite3.SQLITE_FULL:
            probe("storage: opened on a full disk")
            return False
        raise
    if isBusy:
        raise StorageRefused(f"{path} is in use by another process: stop that one first")
    return True


def checkSize(path: Path, connection: sqlite3.Connection) -> None:
    # With the log folded in, the file is exactly what its header says.
    expected = _number(connection, "page_count") * _number(connection, "page_size")
    if path.stat().st_size < expected:
        raise StorageRefused(f"{path} is cut short: restore it from a backup")


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    number: int = connection.execute(f"PRAGMA {pragma}").fetchone()[0]
    return number


def _words(error: Any) -> str:
    # An OSError's own text repeats the path.
    return getattr(error, "strerror", None) or str(error)
