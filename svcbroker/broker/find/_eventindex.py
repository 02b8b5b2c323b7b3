"""
The index of a group's events by fingerprints, in files that are made from the log.

A row is a fingerprint and what the id of an event is made of. Rows are sorted in runs, each a file
of pages with checksums, of the blocks of a range of heights. A new run is written when there are
enough rows, and neighbouring runs are merged into larger ones, so that a look-up reads a few pages
of a few files. A row only says where to look: who finds one reads the event. So a damaged page can
hide an event, and not make one up; it is recognised by its checksum, and its run is made again.

A row is removed in its page, where the row beside it takes its place. So nothing is left of it.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Container, Generator, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final
from zlib import crc32

from attrs import define, frozen

from ...files import newFile, openFile
from ...model import EventId
from ...storage import syncFile

MAX_HEIGHT: Final = 2**48 - 1
"""The highest height and sequence number that a row can have. No chain comes near."""

FINGERPRINT_SIZE: Final = 8
ROW_SIZE: Final = 24
PAGE_SIZE: Final = 4096
ROWS_A_PAGE: Final = (PAGE_SIZE - 8) // ROW_SIZE

FEW_RUNS: Final = 8
"""The number of neighbouring runs of about one size that are merged."""

RUN_ROWS: Final = 16_384
"""The number of rows that a new run has. To sort them takes some 5 ms, in which nothing runs."""

PAGES_AT_ONCE: Final = 8
"""The number of pages that are read of each run in a step of a merge."""

PAGES_A_SCAN: Final = 256
"""The number of pages in which rows are looked for that are to be removed, in one step."""

_MAGIC: Final = b"svcbroker/find/1"
_HEADER: Final = struct.Struct(">16s32s32s32sQQQ")
_PAGE: Final = struct.Struct(">IHH")
_SUFFIX: Final = ".run"
_UNFINISHED: Final = ".new"


class IndexDamaged(Exception):
    """
    A run is not as it was written. The text is one line for the operator.

    @ivar first: the height of its first block.
    """

    def __init__(self, message: str, first: int) -> None:
        super().__init__(message)
        self.first = first


def contentFingerprint(hash: bytes) -> bytes:
    """
    The fingerprint of a content.

    @param hash: the SHA-256 of it.
    """
    return hash[:FINGERPRINT_SIZE]


def authorFingerprint(key: bytes) -> bytes:
    """The fingerprint of an author's public key."""
    return sha256(b"svcbroker/author\0" + key).digest()[:FINGERPRINT_SIZE]


def extensionFingerprint(name: str, value: str) -> bytes:
    """The fingerprint of an extension."""
    text = f"{name}\0{value}".encode("utf-8", "surrogatepass")
    return sha256(b"svcbroker/extension\0" + text).digest()[:FINGERPRINT_SIZE]


def placeOf(eventId: EventId) -> bytes:
    """The part of a row that says which event it is: places are ordered as heights are."""
    return (
        eventId.height.to_bytes(6, "big")
        + bytes.fromhex(eventId.prefix)
        + eventId.sequence.to_bytes(6, "big")
    )


def eventIdOf(row: bytes) -> EventId:
    """The event of a row."""
    return EventId(
        row[14:18].hex(), int.from_bytes(row[18:24], "big"), int.from_bytes(row[8:14], "big")
    )


def startOf(height: int) -> bytes:
    """The place before all events of a block and of those after it."""
    return height.to_bytes(6, "big") + bytes(10)


@frozen(kw_only=True)
class Coverage:
    """
    The part of a log of which an index has rows.

    @ivar height: the height of its last block; 0 where there is none.
    @ivar hash: the hash of this block.
    """

    height: int = 0
    hash: bytes = bytes(32)


@define(kw_only=True, eq=False)
class Run:
    """
    A file with the rows of a range of blocks.

    @ivar first: the height of the first block.
    @ivar last: the height of the last one.
    @ivar hash: its hash.
    @ivar count: how many rows there are, those included that stand twice.
    @ivar removed: how many of them were removed since it was opened.
    """

    path: Path
    descriptor: int
    first: int
    last: int
    hash: bytes
    count: int
    removed: int = 0

    @property
    def pages(self) -> int:
        """The number of its pages."""
        return -(-self.count // ROWS_A_PAGE)

    @property
    def level(self) -> int:
        """Its size: each level has runs of so many times as many rows."""
        level, size = 0, RUN_ROWS
        while self.count > size:
            level, size = level + 1, size * FEW_RUNS
        return level

    def read(self, number: int) -> list[bytes]:
        """
        The rows of a page, rising.

        @raise IndexDamaged: it is not as it was written.
        """
        return self._rowsOf(self._page(number), number)

    def _page(self, number: int) -> bytes:
        try:
            return os.pread(self.descriptor, PAGE_SIZE, (number + 1) * PAGE_SIZE)
        except OSError as error:
            raise self.damage(error.strerror or str(error)) from error

    def _rowsOf(self, data: bytes, number: int) -> list[bytes]:
        end = self._check(data, number)
        return [data[at : at + ROW_SIZE] for at in range(_PAGE.size, end, ROW_SIZE)]

    def _lastOf(self, number: int) -> bytes:
        """The last row of a page. A look-up asks for many, so the others are not unpacked."""
        data = self._page(number)
        end = self._check(data, number)
        return data[end - ROW_SIZE : end]

    def _check(self, data: bytes, number: int) -> int:
        """Check that a page is as it was written, and give the end of its rows."""
        expected = min(ROWS_A_PAGE, self.count - number * ROWS_A_PAGE)
        if len(data) < PAGE_SIZE:
            raise self.damage("it is cut short")
        checksum, count, place = _PAGE.unpack_from(data)
        if checksum != crc32(data[4:]) or count != expected or place != number & 0xFFFF:
            raise self.damage(f"page {number} is not as it was written")
        return _PAGE.size + expected * ROW_SIZE

    def find(self, low: bytes, high: bytes, limit: int) -> list[bytes]:
        """
        The first rows in a range.

        @param low: the row before the range, or the beginning of one.
        @param high: the beginning of the row behind it.
        """
        found: list[bytes] = []
        for number in range(self._pageOf(low), self.pages):
            rows = self.read(number)
            part = rows[bisect_right(rows, low) : bisect_left(rows, high)]
            # Where rows were removed, others stand twice.
            found += dict.fromkeys(part[: limit + 1])
            if len(found) > limit or rows[-1] >= high:
                break
        return found[:limit]

    def _pageOf(self, row: bytes) -> int:
        """The number of the first page that ends with a row, or behind it."""
        start, end = 0, self.pages
        while start < end:
            middle = (start + end) // 2
            if self._lastOf(middle) < row:
                start = middle + 1
            else:
                end = middle
        return start

    def scan(self, number: int, erased: Mapping[bytes, Sequence[tuple[int, int]]]) -> list[bytes]:
        """
        The rows of erased events in some pages.

        @param number: the first of L{PAGES_A_SCAN} pages.
        @param erased: see L{EventIndex.scan}.
        """
        at = (number + 1) * PAGE_SIZE
        data = os.pread(self.descriptor, PAGES_A_SCAN * PAGE_SIZE, at)
        if not any(prefix in data for prefix in erased):
            return []
        found = []
        for each in range(number, min(number + PAGES_A_SCAN, self.pages)):
            start = (each - number) * PAGE_SIZE
            page = data[start : start + PAGE_SIZE]
            if not any(prefix in page for prefix in erased):
                continue
            for row in self._rowsOf(page, each):
                ranges = erased.get(row[14:18])
                if ranges is not None:
                    sequence = int.from_bytes(row[18:24], "big")
                    if any(first <= sequence <= last for first, last in ranges):
                        found.append(row)
        return found

    def replace(self, rows: Sequence[bytes]) -> Generator[None, None, bool]:
        """
        Remove rows: the rows beside them take their places, and stand twice then.

        @param rows: which; rising.
        @return: whether there is a row that could take their places.
        """
        gone, place, number = frozenset(rows), 0, 0
        while place < len(rows):
            number = max(number, self._pageOf(rows[place]))
            if number == self.pages:
                break
            page = self.read(number)
            if not gone.isdisjoint(page):
                replaced = self._replaced(number, page, gone)
                if replaced is None:
                    return False
                os.pwrite(self.descriptor, encodePage(number, replaced), (number + 1) * PAGE_SIZE)
                self.removed += len(gone.intersection(page))
            # A row that ends the page may stand on the next one, too.
            place = bisect_left(rows, page[-1])
            number += 1
            yield
        os.fsync(self.descriptor)
        return True

    def _replaced(
        self, number: int, page: Sequence[bytes], gone: Container[bytes]
    ) -> list[bytes] | None:
        """A page with rows that stay in the places of others; C{None} where the run has none."""
        row = next((each for each in page if each not in gone), None)
        if row is None and number:
            row = self.read(number - 1)[-1]
        following = number + 1
        while row is None and following < self.pages:
            row = next((each for each in self.read(following) if each not in gone), None)
            following += 1
        if row is None:
            return None
        replaced = []
        for each in page:
            row = row if each in gone else each
            replaced.append(row)
        return replaced

    def clear(self) -> None:
        """Overwrite all its pages."""
        for number in range(self.pages):
            os.pwrite(self.descriptor, bytes(PAGE_SIZE), (number + 1) * PAGE_SIZE)
        os.fsync(self.descriptor)

    def rows(self) -> Iterator[list[bytes]]:
        """All its rows, some pages at a time."""
        for number in range(0, self.pages, PAGES_AT_ONCE):
            found: list[bytes] = []
            for each in range(number, min(number + PAGES_AT_ONCE, self.pages)):
                found += self.read(each)
            yield found

    def damage(self, reason: str) -> IndexDamaged:
        """The error for damage of it."""
        return IndexDamaged(f"{self.path}: {reason}", self.first)

    def close(self) -> None:
        """Close its file."""
        os.close(self.descriptor)

    def remove(self) -> None:
        """Close its file, and remove it."""
        self.close()
        self.path.unlink(missing_ok=True)


def encodePage(number: int, rows: Sequence[bytes]) -> bytes:
    """A page with its checksum."""
    body = _PAGE.pack(0, len(rows), number & 0xFFFF)[4:] + b"".join(rows)
    body += bytes(PAGE_SIZE - 4 - len(body))
    return crc32(body).to_bytes(4, "big") + body


class EventIndex:
    """
    The index of a group's log. All calls take place in one thread; those that take long are
    generators, which do some milliseconds of work between two values.

    @ivar coverage: the blocks whose rows are in runs.
    """

    def __init__(self, directory: Path, chain: bytes, names: Sequence[str]) -> None:
        """
        @param directory: the directory of its files alone.
        @param chain: what tells the log from every other one.
        @param names: the names of the extensions that have rows.
        """
        self._directory = directory
        self._chain = sha256(chain).digest()
        self._names = sha256("\0".join(sorted(names)).encode()).digest()
        self._runs: list[Run] = []

    @property
    def coverage(self) -> Coverage:
        """The blocks whose rows are in runs."""
        if not self._runs:
            return Coverage()
        return Coverage(height=self._runs[-1].last, hash=self._runs[-1].hash)

    @property
    def size(self) -> int:
        """The size of all files, in bytes."""
        return sum((each.pages + 1) * PAGE_SIZE for each in self._runs)

    def open(self) -> Sequence[str]:
        """
        Open the runs that follow each other from the first block on. All others are removed: those
        of another log, with other extensions, damaged, or merged into larger ones.

        @return: a line for each file that is no run of this log.
        @raise OSError: the directory cannot be used.
        """
        self._directory.mkdir(0o700, parents=True, exist_ok=True)
        found, refused = [], []
        for path in sorted(self._directory.iterdir()):
            try:
                found.append(self._openRun(path))
            except ValueError as error:
                path.unlink()
                if path.suffix != _UNFINISHED:
                    refused.append(f"{path}: {error}")
        # Of those that begin with one block, the longest has been made of the others.
        found.sort(key=lambda each: (each.first, -each.last))
        for each in found:
            if each.first == self.coverage.height + 1:
                self._runs.append(each)
            else:
                each.remove()
        return refused

    def _openRun(self, path: Path) -> Run:
        if path.suffix != _SUFFIX:
            raise ValueError("it is no run")
        with openFile(path) as file:
            data = file.read(PAGE_SIZE)
        if len(data) < PAGE_SIZE or crc32(data[:-4]).to_bytes(4, "big") != data[-4:]:
            raise ValueError("it is damaged")
        magic, chain, names, hash, first, last, count = _HEADER.unpack_from(data)
        if magic != _MAGIC:
            raise ValueError("it is of another version")
        if chain != self._chain:
            raise ValueError("it is of another chain")
        if names != self._names:
            raise ValueError("it has other extensions")
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        run = Run(path=path, descriptor=descriptor, first=first, last=last, hash=hash, count=count)
        if os.fstat(descriptor).st_size != (run.pages + 1) * PAGE_SIZE:
            run.close()
            raise ValueError("it is damaged")
        return run

    def close(self) -> None:
        """Close all files."""
        for each in self._runs:
            each.close()
        self._runs = []

    def drop(self, first: int) -> None:
        """Remove the runs with blocks from a height on; the log has them."""
        kept = [each for each in self._runs if each.last < first]
        dropped, self._runs = self._runs[len(kept) :], kept
        # The last one first: those before it are still those of a beginning of the log.
        for each in reversed(dropped):
            each.remove()

    def find(self, fingerprint: bytes, after: bytes, before: bytes, limit: int) -> list[bytes]:
        """
        The first rows of a fingerprint, in the order of the log.

        @param after: the place behind which they are.
        @param before: the place before which they are.
        @raise IndexDamaged: a page is not as it was written.
        """
        found: list[bytes] = []
        for run in self._runs:
            if startOf(run.last + 1) <= after or startOf(run.first) >= before:
                continue
            found += run.find(fingerprint + after, fingerprint + before, limit - len(found))
            if len(found) >= limit:
                break
        return found

    def add(self, rows: list[bytes], coverage: Coverage) -> None:
        """
        Write a run with the rows of the blocks behind those of the last one.

        @param rows: in any order.
        @param coverage: the last block of them.
        @raise OSError: it cannot be written.
        """
        if coverage.height <= self.coverage.height:
            return
        # To sort many at once would hold up other threads.
        for start in range(0, len(rows), RUN_ROWS):
            rows[start : start + RUN_ROWS] = sorted(rows[start : start + RUN_ROWS])
        rows.sort()
        end = len(self._runs)
        for _ in self._write([rows], self.coverage.height + 1, coverage, end, end):
            pass

    def merge(self) -> Iterator[None]:
        """
        Merge the last runs, where there are many of about one size.

        @raise IndexDamaged: a page is not as it was written.
        @raise OSError: the new run cannot be written.
        """
        while (start := self._mergeStart()) is not None:
            runs = self._runs[start:]
            rows = mergedRows(runs)
            yield from self._write(rows, runs[0].first, self.coverage, start, len(self._runs))

    def _mergeStart(self) -> int | None:
        """The first of the runs to merge, all that are behind it included; C{None} for none."""
        for level in range(max((each.level for each in self._runs), default=0) + 1):
            start, count = len(self._runs), 0
            while start and self._runs[start - 1].level <= level:
                start -= 1
                count += self._runs[start].level == level
            # Others that are smaller are merged with them, and never count for larger ones.
            if count >= FEW_RUNS:
                return start
        return None

    def scan(self, erased: Mapping[bytes, Sequence[tuple[int, int]]]) -> Iterator[list[bytes]]:
        """
        Find the rows of erased events, some pages at a time.

        @param erased: the ranges of their sequence numbers, by the prefixes of their ids. Another
            topic may have the same prefix.
        @raise IndexDamaged: a page is not as it was written.
        """
        for run in self._runs:
            for number in range(0, run.pages, PAGES_A_SCAN):
                yield run.scan(number, erased)

    def remove(self, rows: Iterable[bytes]) -> Iterator[None]:
        """
        Remove rows, so that nothing is left of them in the files.

        @raise IndexDamaged: a page is not as it was written.
        @raise OSError: a page cannot be written.
        """
        ordered = sorted(set(rows))
        for run in tuple(self._runs):
            low, high = startOf(run.first), startOf(run.last + 1)
            own = [each for each in ordered if low <= each[FINGERPRINT_SIZE:] < high]
            if not own:
                continue
            place = self._runs.index(run)
            end = Coverage(height=run.last, hash=run.hash)
            if not (yield from run.replace(own)):
                # No row is left that could take their places.
                run.clear()
                yield from self._write([], run.first, end, place, place + 1)
            elif run.removed * FEW_RUNS > run.count:
                yield from self._write(mergedRows([run]), run.first, end, place, place + 1)

    def _write(
        self, parts: Iterable[list[bytes]], first: int, end: Coverage, start: int, stop: int
    ) -> Iterator[None]:
        """
        Write a run, which takes the place of others.

        @param parts: its rows, rising.
        @param first: the height of its first block.
        @param end: its last block.
        @param start: the place of the first of the others.
        @param stop: the place behind the last of them.
        """
        path = self._directory / f"{first:012x}-{end.height:012x}{_SUFFIX}"
        while path.exists():
            path = path.with_name(f"{path.stem}x{_SUFFIX}")
        unfinished = path.with_suffix(_UNFINISHED)
        with newFile(unfinished) as file:
            file.write(bytes(PAGE_SIZE))
            left: list[bytes] = []
            count = number = 0
            for part in parts:
                left += part
                count += len(part)
                whole = len(left) - len(left) % ROWS_A_PAGE
                for at in range(0, whole, ROWS_A_PAGE):
                    file.write(encodePage(number, left[at : at + ROWS_A_PAGE]))
                    number += 1
                left = left[whole:]
                yield
            if left:
                file.write(encodePage(number, left))
            header = _HEADER.pack(
                *(_MAGIC, self._chain, self._names, end.hash, first, end.height, count)
            )
            header += bytes(PAGE_SIZE - 4 - len(header))
            file.seek(0)
            file.write(header + crc32(header).to_bytes(4, "big"))
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(path)
        syncFile(self._directory)
        replaced = self._runs[start:stop]
        self._runs[start:stop] = [self._openRun(path)]
        for each in replaced:
            each.remove()
        yield


def mergedRows(runs: Sequence[Run]) -> Iterator[list[bytes]]:
    """The rows of some runs, rising and each once, in lists."""
    readers = [run.rows() for run in runs]
    waiting: list[list[bytes]] = [[] for _ in runs]
    last = b""
    while True:
        for number, reader in enumerate(readers):
            if not waiting[number]:
                waiting[number] = next(reader, [])
        ends = [rows[-1] for rows in waiting if rows]
        if not ends:
            return
        # Everything up to here has been read of all runs.
        boundary = min(ends)
        merged: list[bytes] = []
        for number, rows in enumerate(waiting):
            cut = bisect_right(rows, boundary)
            merged += rows[:cut]
            waiting[number] = rows[cut:]
        merged.sort()
        unique = [*dict.fromkeys(merged)]
        # A row that stands in two parts of a run.
        yield unique[1:] if unique[0] == last else unique
        last = unique[-1]
