"""
The file beside the metadata store that has the number of its writes, so that a loss is noticed.

SQLite takes a damaged or missing write-ahead log for the end of what was written, and a missing
file for a new one. The number is a row of the store, too. It is written here after each commit and
never synced: it survives every death of the process. After a power failure it may be less than
that of the store, which is harmless; it is never more.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final
from zlib import crc32

from ..files import readFile
from ._schema import writeFile

LAST_SUFFIX: Final = "-last"
"""The suffix of the file's name, after that of the metadata store."""

# Within one sector, so that a power failure leaves the old one or the new one.
_SIZE: Final = 96
_TEXT: Final = re.compile(rb"svcbroker-writes/1 ([0-9]{1,20})(?: lost ([0-9]{1,20}))? ", re.ASCII)


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
    What a metadata store has lost.

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
