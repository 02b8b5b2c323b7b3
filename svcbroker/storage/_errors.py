"""
The errors of a store, and telling SQLite's errors apart.

A module of its own: every module of the room raises these.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

# SQLITE_ERROR: statements of ours are right, so a table is not what it was.
_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})


class StorageError(Exception):
    """
    A store did not do what it was asked. The text is one line for the operator and names the
    file; it is never shown to clients.
    """


class StorageRefused(StorageError):
    """
    A file cannot be opened or made as a store. The line says what to do about it. Nothing was
    changed and nothing is left open.
    """


class StorageOutdated(StorageRefused):
    """
    A file is in the format of an earlier release. Opening it for writing upgrades it.
    """


class StorageUnknown(StorageRefused):
    """
    A file is in a format that this release does not read. That is no damage.
    """


class StorageLost(StorageRefused):
    """
    The end of a chain that had been stored is missing, or is another one now.

    @ivar height: the height of the last block that is left.
    """

    def __init__(self, message: str, height: int) -> None:
        super().__init__(message)
        self.height = height


class StorageFailed(StorageError):
    """
    The disk did not do it: it is full or has failed. What was stored before can still be read,
    and the same call may be tried again.

    @ivar isUncertain: C{False}: what was to be stored is not there and will not be. C{True}:
        the disk failed in the middle of the sync and the trace of it could not be removed. A
        running store neither shows the rows nor builds on them, but the next L{Store.open
        <svcbroker.storage.Store.open>} after a crash may find them. Storing the same rows
        again is always right.
    """

    def __init__(self, message: str, *, isUncertain: bool = False) -> None:
        super().__init__(message)
        self.isUncertain = isUncertain


class StorageDamaged(StorageError):
    """
    The file is damaged: what was read cannot be what was written.
    """


def primaryCode(error: sqlite3.Error) -> int | None:
    """
    SQLite's primary result code; C{None} where the error came from Python's side of it.
    """
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def isDamage(error: sqlite3.Error) -> bool:
    """
    Whether the error says that the file's content is wrong, rather than that the disk is.
    """
    code = primaryCode(error)
    if code is None:
        # The module itself gives no code: it could not decode a text column.
        return isinstance(error, sqlite3.OperationalError)
    return code in _DAMAGE


def translated(error: sqlite3.Error, path: Path) -> Exception:
    """
    The error to raise in place of SQLite's while a store is in use.

    @return: C{error} itself where the caller is at fault, such as a call after close.
    """
    if isDamage(error):
        return StorageDamaged(
            f"{path} is damaged ({error}): stop the broker and restore it from a backup"
        )
    if primaryCode(error) is None:
        return error
    if primaryCode(error) == sqlite3.SQLITE_FULL:
        return StorageFailed(f"no room to store into {path} ({error}): make room on its disk")
    return StorageFailed(f"the disk below {path} failed ({error}): check it")
