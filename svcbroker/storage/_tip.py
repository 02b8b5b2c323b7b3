"""
The tip file beside a ledger: the last block that the broker stored, so that a loss is noticed at
the next start; and the check of a write-ahead log for damage that SQLite does not report.

SQLite takes a damaged or missing write-ahead log for the end of what was written. The replicas
would then decide heights again that they have signed before, with the same keys. The tip file is
written after each commit and never synced: it survives every death of the process. After a power
failure it may be older than the ledger, which is harmless; it is never newer, because the ledger is
synced before it is written.

To SQLite a log ends at the first frame whose checksum does not hold, whatever follows. That is
right after a crash: the last commit may be torn, because it was never synced. Every commit of ours
is synced before the next one begins, so only the last one can be torn. Where whole commits follow a
frame that does not hold, the frame was damaged later, and blocks are lost.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final
from zlib import crc32

from msgspec import Struct

from ..files import openFile, readFile
from ._errors import StorageFailed, StorageRefused
from ._reader import ChainReader
from ._schema import syncFile

_HEADER: Final = struct.Struct(">8I")
_FRAME: Final = struct.Struct(">6I")
_MAGIC: Final = (0x377F0682, 0x377F0683)
_PAGE_SIZES: Final = frozenset(1 << bits for bits in range(9, 17))


TIP_SUFFIX: Final = "-tip"
"""The suffix of the tip file's name, after that of the ledger."""

# Within one sector, so that a power failure leaves the old one or the new one.
_SIZE: Final = 192

_UNKNOWN: Final = bytes(32)

_TEXT: Final = re.compile(
    rb"svcbroker-tip/1 ([0-9]{1,20}) ((?:[0-9a-f]{2})*) ([0-9]{1,20}):([0-9]{1,20}) ", re.ASCII
)


def tipPath(path: Path) -> Path:
    """
    The tip file of a ledger.
    """
    return path.with_name(path.name + TIP_SUFFIX)


class Tip(Struct, frozen=True):
    """
    The last block and the last reservation that were stored.

    @ivar height: the height of the last block, 0 where there is none.
    @ivar hash: its hash; empty where there is none.
    @ivar reservation: the height and round that were reserved last.
    """

    height: int
    hash: bytes
    reservation: tuple[int, int]

    def encode(self) -> bytes:
        """The content of the file: a line of text, its checksum, padding."""
        text = b"svcbroker-tip/1 %d %s %d:%d " % (
            self.height,
            self.hash.hex().encode("ascii"),
            *self.reservation,
        )
        return (text + b"%08x" % crc32(text)).ljust(_SIZE - 1) + b"\n"


def readTip(path: Path) -> Tip | None:
    """
    Read the tip file of a ledger.

    @param path: the ledger.
    @return: C{None} where there is no tip file: an older svcbroker has written the ledger.
    @raise StorageRefused: the file is damaged, or cannot be read.
    """
    file = tipPath(path)
    try:
        data = readFile(file)
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise StorageRefused(
            f"{path} cannot be written: give the broker access to it, its directory and {file.name}"
        ) from error
    except OSError as error:
        raise StorageRefused(f"{file} cannot be read ({error.strerror})") from error
    found = _TEXT.match(data)
    if found is not None:
        height, hash, reservedHeight, reservedRound = found.groups()
        tip = Tip(
            int(height),
            bytes.fromhex(hash.decode("ascii")),
            (int(reservedHeight), int(reservedRound)),
        )
        if data == tip.encode():
            return tip
    raise StorageRefused(
        f"{file} is damaged, so nothing shows whether {path.name} is whole: compare the end of the "
        "chain with a backup or a checkpoint, and then move the damaged file away"
    )


def findLoss(reader: ChainReader, tip: Tip) -> str:
    """
    Compare a chain with its tip file.

    @param tip: the tip; one of height 0 where there is no tip file.
    @return: what is missing; empty where nothing is.
    """
    last, reserved = reader.tip(), reader.reservation()
    height = 0 if last is None else last.height
    end = f"{reader.path} ends at block {height}"
    if (tip.height, tip.hash) == (height + 1, _UNKNOWN):
        return f"{end}, and blocks may have been decided after it that are not here"
    if tip.height > height:
        count = tip.height - height
        blocks = "1 block is" if count == 1 else f"{count} blocks are"
        return f"{end}, and block {tip.height} had been stored: {blocks} missing"
    if tip.height and reader.blockHashes(tip.height, 1) != [tip.hash]:
        return f"block {tip.height} of {reader.path} is not the one that had been stored"
    if reserved[0] > height + 1:
        return (
            f"{end}, and rounds of block {reserved[0]} had been reserved: "
            f"blocks after {height} are missing"
        )
    if tip.reservation > reserved:
        block = tip.reservation[0]
        return f"{reader.path} has lost the rounds that had been reserved for block {block}"
    return ""


def logProblem(path: Path) -> str:
    """
    Find damage in a write-ahead log.

    @param path: the log. It may be absent.
    @return: one line; empty where nothing is wrong, or where the log was written meanwhile.
    """
    try:
        with openFile(path) as file:
            before = path.stat()
            problem = _findProblem(file)
            after = path.stat()
    except FileNotFoundError:
        return ""
    isSame = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
    return problem if isSame else ""


def _findProblem(file: BinaryIO) -> str:
    start = file.read(_HEADER.size)
    if not start:
        return ""
    if len(start) < _HEADER.size:
        return "it is cut short"
    magic, _, size, _, salt1, salt2, *sums = _HEADER.unpack(start)
    if magic not in _MAGIC or size not in _PAGE_SIZES:
        return "its header is not one, so none of it is read"
    order = ">" if magic & 1 else "<"
    checksum = _checksum(start[:24], (0, 0), order)
    if list(checksum) != sums:
        return "its header does not hold, so none of it is read"
    broken = commits = 0
    for number, (frame, page) in enumerate(_frames(file, size), 1):
        _, commit, *rest = _FRAME.unpack(frame)
        if not broken:
            checksum = _checksum(page, _checksum(frame[:8], checksum, order), order)
            if rest == [salt1, salt2, *checksum]:
                continue
            broken = number
        # Behind the end is what an earlier log has left, with other salts.
        if commit and rest[:2] == [salt1, salt2]:
            commits += 1
    if commits > 1:
        return (
            f"frame {broken} does not hold, so {commits} commits from it on are not read: blocks "
            "that were synced are lost"
        )
    return ""


def _frames(file: BinaryIO, size: int) -> Iterator[tuple[bytes, bytes]]:
    while True:
        frame, page = file.read(_FRAME.size), file.read(size)
        if len(page) < size:
            return
        yield frame, page


def _checksum(data: bytes, before: tuple[int, int], order: str) -> tuple[int, int]:
    one, two = before
    words = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for first in words:
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + next(words) + one) & 0xFFFFFFFF
    return one, two


def suspectedLoss(height: int, reservation: tuple[int, int]) -> Tip:
    """
    The tip of a chain that may have lost blocks, of which nothing is known.

    @param height: the height of the last block that is left.
    @param reservation: the last reservation that is known.
    """
    return Tip(height + 1, _UNKNOWN, reservation)


def logLoss(path: Path) -> str:
    """
    The loss that the write-ahead log of a closed store shows.
    """
    log = path.with_name(path.name + "-wal")
    try:
        problem = logProblem(log)
    except OSError as error:
        raise StorageRefused(f"{log} cannot be read ({error.strerror}): check its disk") from error
    return f"{log} is damaged: {problem}" if problem else ""


class TipFile:
    """
    Writes the tip file. A failure to write is ignored: the file is then older than the ledger.
    """

    def __init__(self, path: Path) -> None:
        """
        @param path: the ledger.
        """
        self._path = tipPath(path)
        self._descriptor: int | None = None

    def write(self, tip: Tip) -> None:
        """
        Replace the content. Hot path: called after each commit.
        """
        try:
            if self._descriptor is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
                self._descriptor = os.open(self._path, flags, 0o600)
            os.pwrite(self._descriptor, tip.encode(), 0)
        except OSError:
            return

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def suspectLoss(path: Path, height: int, reservation: tuple[int, int]) -> None:
    """
    Note on stable storage that blocks may have been decided which a chain does not have. It is then
    opened only with C{mayLose}, until L{Store.acceptLoss} or until it has a further block.

    @param path: the ledger, which is closed.
    @param height: the height of its last block.
    @param reservation: its last reservation.
    @raise StorageFailed: it cannot be written.
    """
    lost, file = suspectedLoss(height, reservation), TipFile(path)
    file.write(lost)
    file.close()
    try:
        if readTip(path) != lost:
            raise StorageFailed(f"{tipPath(path)} cannot be written: is there room on its disk?")
        syncFile(tipPath(path))
    except OSError as error:
        raise StorageFailed(f"{tipPath(path)} cannot be synced: {error.strerror}") from error
