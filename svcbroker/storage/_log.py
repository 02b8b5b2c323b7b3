"""
Checking a write-ahead log for damage that SQLite does not report.

To SQLite a log ends at the first frame whose checksum does not hold, whatever follows. That is
right after a crash: the last commit may be torn, because it was never synced. Every commit of ours
is synced before the next one begins, so only the last one can be torn. Where whole commits follow a
frame that does not hold, the frame was damaged later, and blocks are lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from struct import Struct, unpack
from typing import BinaryIO, Final

from ..files import openFile

_HEADER: Final = Struct(">8I")
_FRAME: Final = Struct(">6I")
_MAGIC: Final = (0x377F0682, 0x377F0683)
_PAGE_SIZES: Final = frozenset(1 << bits for bits in range(9, 17))


def logProblem(path: Path) -> str:
    """
    What is wrong with a write-ahead log.

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
    words = iter(unpack(f"{order}{len(data) // 4}I", data))
    for first in words:
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + next(words) + one) & 0xFFFFFFFF
    return one, two
