"""
Exporting a stored chain as a stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Final

from ..chain import OLD_FORMAT, Genesis, Header, Malformed
from ..model import ChainPart
from ..proofs import Checkpoint
from ..storage import Snapshot, StorageDamaged
from ._findings import Report, noReport
from ._layout import STORE_NAME
from ._replay import BATCH_BLOCKS, BATCH_BYTES, checkFormat
from ._stream import Begin, End, StreamedBlock, StreamWriter

PART_BYTES: Final = 1024 * 1024
"""The size of blocks after which a part of a chain ends."""

MAX_PART: Final = 64 * 1024 * 1024
"""
The size of blocks after which a part ends although its last block has no certificate. On an
engine's chain only blocks with transactions have one.
"""


class RangeUnknown(Exception):
    """
    The chain does not have the requested blocks. The text is one line.
    """


def exportChain(
    directory: Path,
    file: BinaryIO,
    *,
    first: int = 1,
    last: int | None = None,
    report: Report = noReport,
) -> Checkpoint:
    """
    Write the chain in a group's directory as a stream of headers, certificates and bodies. A
    broker may be running on it. Nothing is checked; the import checks every block.

    @param file: the stream is written to it.
    @param first: the first height.
    @param last: the last height; C{None} for that of the latest block.
    @param report: called with the number of written blocks, and of all.
    @return: the last block.
    @raise RangeUnknown: the chain does not have these blocks.
    @raise StorageError: the chain cannot be read.
    """
    with Snapshot.ofLedger(directory / STORE_NAME, mayBeOlder=True) as snapshot:
        checkFormat(snapshot)
        genesis, tip, hasReceipts = _limits(snapshot)
        last = tip if last is None else last
        if not 1 <= first <= last + 1 or last > tip:
            raise RangeUnknown(f"there are no blocks {first} to {last}: the chain has {tip}")
        writer = StreamWriter(file, hasReceipts=hasReceipts)
        writer.begin(Begin(genesis=genesis, first=first, last=last))
        end = Checkpoint(0, genesis.header().hash)
        if first > 1:
            end = Checkpoint(first - 1, _hashOf(snapshot, first - 1))
        report(0, last - first + 1)
        for height, hash, block in _blocks(snapshot, first, last):
            writer.block(block)
            end = Checkpoint(height, hash)
            report(height - first + 1, last - first + 1)
        writer.end(End(end.height, end.hash))
        snapshot.checkUnchanged()
        return end


def exportPart(directory: Path, first: int) -> ChainPart:
    """
    Export the next blocks of the chain in a group's directory, up to one with a certificate, and up
    to a bounded size. A broker may be running on it. Called in any thread.

    @param first: the first height, from 1.
    @return: the part, without a stream where the chain ends more than one block before C{first}.
    @raise StorageError: the chain cannot be read.
    """
    with Snapshot.ofLedger(directory / STORE_NAME) as snapshot:
        genesis, tip, hasReceipts = _limits(snapshot)
        if first > tip + 1:
            return ChainPart(stream=b"", last=tip, height=_certified(snapshot), tip=tip)
        found: list[tuple[int, bytes, StreamedBlock]] = []
        count = size = 0
        for height, hash, block in _blocks(snapshot, first, tip, PART_BYTES):
            found.append((height, hash, block))
            size += sum(map(len, (block.header, block.certificate, block.receipts, block.body)))
            if block.certificate:
                count = len(found)
            if size > (PART_BYTES if count == len(found) else MAX_PART):
                break
        # What was erased while the blocks were read is erased by a block up to this height.
        _, tip, _ = _limits(snapshot)
        end = Checkpoint(0, genesis.header().hash)
        if first > 1:
            end = Checkpoint(first - 1, _hashOf(snapshot, first - 1))
        file = BytesIO()
        writer = StreamWriter(file, hasReceipts=hasReceipts)
        writer.begin(Begin(genesis=genesis, first=first, last=first + count - 1))
        for height, hash, block in found[:count]:
            writer.block(block)
            end = Checkpoint(height, hash)
        writer.end(End(end.height, end.hash))
        certified = _certified(snapshot)
        return ChainPart(stream=file.getvalue(), last=end.height, height=certified, tip=tip)


def _limits(snapshot: Snapshot) -> tuple[Genesis, int, bool]:
    """
    The genesis, the height of the last block, and whether contents may be missing.
    """
    with snapshot.moment():
        rows = list(snapshot.rows("SELECT genesis FROM chain"))
        heads = list(snapshot.rows("SELECT height, header FROM head ORDER BY height DESC LIMIT 1"))
    try:
        genesis = Genesis.decode(rows[0][0])
    except (Malformed, LookupError, TypeError) as error:
        raise _damaged(snapshot, f"its genesis: {error}") from None
    for height, header in heads:
        try:
            # Nothing is erased in a chain of the old format.
            mayBeErased = Header.decode(header).version != OLD_FORMAT
        except (Malformed, TypeError) as error:
            raise _damaged(snapshot, f"block {height}: {error}") from None
        return genesis, height, mayBeErased
    return genesis, 0, False


def _certified(snapshot: Snapshot) -> int:
    """The height of the last block that has a certificate; 0 where none has."""
    statement = "SELECT height FROM head WHERE certificate != x'' ORDER BY height DESC LIMIT 1"
    heights: list[int] = [height for (height,) in snapshot.rows(statement)]
    return heights[0] if heights else 0


def _hashOf(snapshot: Snapshot, height: int) -> bytes:
    for (hash,) in snapshot.rows("SELECT hash FROM head WHERE height = ?", height):
        if isinstance(hash, bytes) and len(hash) == 32:
            return hash
    raise _damaged(snapshot, f"block {height} is missing")


def _blocks(
    snapshot: Snapshot, first: int, last: int, size: int = BATCH_BYTES
) -> Iterator[tuple[int, bytes, StreamedBlock]]:
    following = first
    while following <= last:
        # The read transaction ends before the batch is written: the reader may be slow.
        batch = _batch(snapshot, following, last, size)
        if not batch:
            raise _damaged(snapshot, f"block {following} is missing")
        for height, hash, *parts in batch:
            if height != following or not all(isinstance(each, bytes) for each in (hash, *parts)):
                raise _damaged(snapshot, f"block {following} is missing or not whole")
            header, certificate, body, receipts = parts
            block = StreamedBlock(
                header=header, certificate=certificate, body=body, receipts=receipts
            )
            yield height, hash, block
            following += 1


def _batch(
    snapshot: Snapshot, first: int, last: int, maxSize: int
) -> list[tuple[int, bytes, bytes, bytes, bytes, bytes]]:
    batch: list[tuple[int, bytes, bytes, bytes, bytes, bytes]] = []
    size = 0
    with snapshot.moment():
        rows = snapshot.rows(
            "SELECT head.height, hash, header, certificate, body, receipts FROM head "
            "LEFT JOIN body USING (height) WHERE head.height BETWEEN ? AND ? "
            "ORDER BY head.height LIMIT ?",
            first,
            last,
            BATCH_BLOCKS,
        )
        for row in rows:
            batch.append((row[0], row[1], row[2], row[3], row[4], row[5]))
            size += len(row[4]) if isinstance(row[4], bytes) else 0
            if size > maxSize:
                rows.close()
                break
    return batch


def _damaged(snapshot: Snapshot, what: str) -> StorageDamaged:
    return StorageDamaged(f"{snapshot.path} is damaged ({what}): audit it")
