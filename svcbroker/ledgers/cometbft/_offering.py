"""
Serving snapshots to nodes that join: chunks are made from the stored chain on request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from twisted.internet.defer import Deferred

from ...archive import StreamedBlock, storedHistory
from ...chain import Genesis, Header, ValidatorSet, historyPath
from ...storage import Snapshot as Reading
from ...storage import StorageDamaged
from ._snapshots import ChunkPlan, Manifest, encodeChunk, formatOf, proofRoom
from .abci.messages import Snapshot

OFFERED: Final = 3
"""The number of snapshots that are offered, the latest ones."""

BLOCKS_AFTER: Final = 2
"""
The number of blocks that must follow a snapshot's last block: the first of them carries the hash
that verifies it, and the second is decided by the validators that the last one may have named.
"""

STEP: Final = 2000
"""Blocks per step in the disk thread; between steps, new blocks can be stored."""


class SnapshotSource:
    """
    Makes snapshots of a stored chain.

    Only the boundaries of chunks are kept in memory. All reading is done in the thread that
    stores blocks, in short steps.
    """

    def __init__(
        self,
        path: Path,
        genesis: Genesis,
        interval: int,
        runInThread: Callable[..., Deferred[Any]],
        plan: ChunkPlan | None = None,
        step: int = STEP,
    ) -> None:
        """
        @param path: the chain's file.
        @param interval: blocks between snapshots; 0: no snapshots.
        @param runInThread: runs blocking disk work, one call after the other.
        """
        self._path = path
        self._genesis = genesis
        self._interval = interval
        self._runInThread = runInThread
        self._plan = ChunkPlan() if plan is None else plan
        self._step = step

    async def list(self, tip: int) -> Sequence[Snapshot]:
        """
        List the snapshots. All nodes with the same blocks list the same.

        @param tip: the height of the last block.
        @raise svcbroker.storage.StorageError: the chain cannot be read.
        """
        heights: Sequence[int] = await self._runInThread(self._points, tip)
        if heights:
            await self._planTo(heights[0])
        offered: Sequence[Snapshot] = await self._runInThread(self._describe, heights)
        return offered

    async def load(self, height: int, format: int, index: int, tip: int) -> bytes:
        """
        Read a chunk of a snapshot; empty where there is none.

        @param tip: the height of the last block.
        @raise svcbroker.storage.StorageError: the chain cannot be read.
        """
        if not self._interval or not 1 <= height <= tip - BLOCKS_AFTER:
            return b""
        await self._planTo(height)
        chunk: bytes = await self._runInThread(self._load, height, format, index)
        return chunk

    async def _planTo(self, height: int) -> None:
        while self._plan.height < height:
            await self._runInThread(self._extend, height)

    # In the thread.

    def _points(self, tip: int) -> Sequence[int]:
        """The heights of the snapshots, the latest first."""
        points: list[int] = []
        if not self._interval:
            return points
        with Reading.ofLedger(self._path) as reading:
            for target in _targets(self._interval, tip - BLOCKS_AFTER):
                point = _firstWithTransactions(reading, target, tip - BLOCKS_AFTER)
                if point is not None and point not in points:
                    points.append(point)
                if len(points) == OFFERED:
                    break
        return points

    def _extend(self, height: int) -> None:
        first = self._plan.height + 1
        last = min(height, first + self._step - 1)
        with Reading.ofLedger(self._path) as reading:
            sets = self._sets(reading)
            total = self._totalAt(reading, first - 1)
            sizes = []
            # SQLite knows a length without reading what has it.
            for each, size, after in reading.rows(
                "SELECT head.height, length(header) + length(body), transaction_total "
                "FROM head JOIN body USING (height) "
                "WHERE head.height BETWEEN ? AND ? ORDER BY head.height",
                first,
                last,
            ):
                room = _roomAt(sets, each) if after > total else 0
                sizes.append(size + room)
                total = after
        if len(sizes) != last - first + 1:
            raise self._damage(f"there are blocks missing from {first} to {last}")
        self._plan.extend(sizes)

    def _sets(self, reading: Reading) -> Sequence[tuple[int, int]]:
        """The sizes of the validator sets, each with its first height, the latest first."""
        rows = reversed(reading.reader().validatorSets())
        changes = [(row.height + 1, len(ValidatorSet.decode(row.encoded).keys)) for row in rows]
        return [*changes, (0, len(self._genesis.validators))]

    def _totalAt(self, reading: Reading, height: int) -> int:
        row = reading.reader().blockHead(height)
        return 0 if row is None else row.transactionTotal

    def _describe(self, heights: Sequence[int]) -> Sequence[Snapshot]:
        offered = []
        with Reading.ofLedger(self._path) as reading:
            for height in heights:
                if self._plan.limit is not None and height > self._plan.limit:
                    continue
                header = self._header(reading, height)
                ends = self._plan.ends(height)
                manifest = Manifest(genesis=self._genesis, header=header, ends=ends)
                offered.append(
                    Snapshot(
                        height=height,
                        format=formatOf(header),
                        chunks=len(ends),
                        hash=header.hash,
                        metadata=manifest.encode(),
                    )
                )
        return offered

    def _load(self, height: int, format: int, index: int) -> bytes:
        ends = self._plan.ends(height)
        if index >= len(ends) or (self._plan.limit is not None and height > self._plan.limit):
            return b""
        first, last = (ends[index - 1] if index else 0) + 1, ends[index]
        with Reading.ofLedger(self._path) as reading:
            if formatOf(self._header(reading, height)) != format:
                return b""
            rows = list(
                reading.rows(
                    "SELECT header, certificate, body, receipts, hash "
                    "FROM head JOIN body USING (height) "
                    "WHERE head.height BETWEEN ? AND ? ORDER BY head.height",
                    first,
                    last,
                )
            )
            if len(rows) != last - first + 1:
                raise self._damage(f"there are blocks missing from {first} to {last}")
            sets = self._sets(reading)
            path: Sequence[bytes] = ()
            if last < height:
                source = storedHistory(reading.reader(), self._genesis.header().hash)
                path = historyPath(last, height, source)
        blocks = [
            StreamedBlock(
                header=header,
                # A certificate larger than its reserved room would make the chunk too large.
                certificate=proof if len(proof) <= _roomAt(sets, each) else b"",
                body=body,
                receipts=receipts,
            )
            for each, (header, proof, body, receipts, _) in enumerate(rows, first)
        ]
        return encodeChunk(self._genesis, first, blocks, rows[-1][4], path, format)

    def _header(self, reading: Reading, height: int) -> Header:
        row = reading.reader().blockHead(height)
        if row is None:
            raise self._damage(f"block {height} is missing")
        return Header.decode(row.header)

    def _damage(self, what: str) -> StorageDamaged:
        return StorageDamaged(f"{self._path} is damaged ({what}): audit it")


def _roomAt(sets: Sequence[tuple[int, int]], height: int) -> int:
    return proofRoom(next(count for since, count in sets if since <= height))


def _targets(interval: int, last: int) -> Iterator[int]:
    """
    The heights from which to search for a block with transactions, the latest first: multiples
    of the interval, and below it powers of two, so that short chains have snapshots as well.
    """
    yield from range(last - last % interval, 0, -interval)
    power = 1 << (min(last, interval - 1)).bit_length()
    while power > 1:
        power >>= 1
        yield power


def _firstWithTransactions(reading: Reading, first: int, last: int) -> int | None:
    rows = reading.rows(
        "SELECT height FROM head WHERE height BETWEEN ? AND ? AND transaction_total > "
        "coalesce((SELECT transaction_total FROM head WHERE height = ?), 0) "
        "ORDER BY height LIMIT 1",
        first,
        last,
        first - 1,
    )
    for (height,) in rows:
        return int(height)
    return None
