"""
The snapshot format: the chain up to a block, in chunks, for nodes that join.

A snapshot is identified by the hash of its last block's header, which its manifest contains, so
the application hash that the engine has verified authenticates the whole snapshot. A chunk holds
whole blocks, encoded as in an export, and the Merkle path from its last block to the history root
of that header. A chunk that is not part of the snapshot's chain is refused from any peer.
Certificates are included where the sender has them, because the engine of a joined node cannot
supply those of blocks that it never had.

L{SnapshotServer} makes chunks from the stored chain on request; L{SnapshotClient} restores a chain
from those that other nodes send.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from struct import Struct
from typing import Any, Final, Protocol

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from ...archive import (
    Begin,
    End,
    Replay,
    StreamBroken,
    StreamedBlock,
    StreamReader,
    StreamWriter,
    loadChain,
    storedHistory,
)
from ...chain import OLD_FORMAT as OLD_CHAIN_FORMAT
from ...chain import (
    Genesis,
    Header,
    InvalidBlock,
    Kind,
    Malformed,
    Transaction,
    ValidatorChange,
    ValidatorSet,
    decodeBody,
    historyPath,
    leafHash,
    merkleRoot,
    rootOfPath,
)
from ...proofs import checkLightBlock
from ...proofs.cometbft import LightBlock, LightBlockInvalid
from ...storage import (
    HEADER_LENGTH,
    HEADS,
    TIP_SUFFIX,
    Append,
    Snapshot,
    StorageDamaged,
    StorageRefused,
    Store,
    syncFile,
    wholeHeader,
)
from ...storage import Snapshot as Reading
from .abci import messages
from .abci.messages import ApplyResult, OfferedSnapshot, OfferResult

OLD_FORMAT: Final = 1
"""The version of the encoding of manifests and chunks of chains of the old format."""

FORMAT: Final = 2
"""The version of those with receipts, so that contents may be missing in bodies."""

CHUNK_BYTES: Final = 2 * 1024 * 1024
"""
The size at which a chunk ends, unless it is a single block.

The engine fetches four at a time, and retries one that has not arrived after half a minute.
"""

MAX_BLOCK: Final = 15_000_000
"""The largest block in a chunk: the engine's messages have at most 16,000,000 bytes."""

MAX_CHUNKS: Final = 100_000
"""The most chunks: an engine disconnects a peer that offers more."""

_OVERHEAD: Final = 64
_PROOF_BYTES: Final = 1024
_VOTE_BYTES: Final = 128
_HASH: Final = 32
_SIZE: Final = Struct(">I")
_HEIGHT: Final = Struct(">Q")


def proofRoom(validators: int) -> int:
    """
    The bytes reserved in a chunk for a block's certificate. Certificates differ between nodes or
    are missing, but chunks must end at the same blocks on every node.
    """
    return _PROOF_BYTES + _VOTE_BYTES * validators


class SnapshotInvalid(Exception):
    """A snapshot or a chunk that is not valid. The text says why."""


@frozen(kw_only=True)
class Manifest:
    """
    The contents of a snapshot.

    @ivar header: the header of its last block.
    @ivar ends: for each chunk, the height of its last block.
    """

    genesis: Genesis
    header: Header
    ends: Sequence[int]

    def encode(self) -> bytes:
        """The canonical encoding, the same on every node."""
        genesis, header = self.genesis.encoded, self.header.encoded
        return b"".join(
            (
                _SIZE.pack(len(genesis)),
                genesis,
                _SIZE.pack(len(header)),
                header,
                *map(_HEIGHT.pack, self.ends),
            )
        )

    @classmethod
    def decode(cls, data: bytes) -> Manifest:
        """
        @raise SnapshotInvalid: this is none.
        """
        parts, start = [], 0
        for _ in range(2):
            begin = start + _SIZE.size
            start = begin + int.from_bytes(data[start:begin], "big")
            parts.append(data[begin:start])
        if start > len(data) or (len(data) - start) % _HEIGHT.size:
            raise SnapshotInvalid("the manifest is cut off")
        try:
            genesis, header = Genesis.decode(parts[0]), Header.decode(parts[1])
        except Malformed as error:
            raise SnapshotInvalid(f"the manifest cannot be read: {error}") from None
        ends = [end for (end,) in _HEIGHT.iter_unpack(data[start:])]
        if header.chain != genesis.chain:
            raise SnapshotInvalid("the manifest has the genesis of another chain")
        if not 1 <= len(ends) <= MAX_CHUNKS or ends[-1] != header.height:
            raise SnapshotInvalid("its chunks do not end where it ends")
        if any(end <= before for before, end in zip([0, *ends], ends, strict=False)):
            raise SnapshotInvalid("it has empty chunks")
        return cls(genesis=genesis, header=header, ends=ends)

    def range(self, index: int) -> tuple[int, int]:
        """The heights of the first and the last block of a chunk."""
        return (self.ends[index - 1] if index else 0) + 1, self.ends[index]


class ChunkPlan:
    """
    The boundaries of a chain's chunks. They follow from the sizes of its blocks, and are the same
    for every snapshot.

    @ivar height: the height up to which the plan is made.
    @ivar limit: the highest block that a snapshot can contain; C{None}: no limit.
    """

    def __init__(self, chunkBytes: int = CHUNK_BYTES, maxBlock: int = MAX_BLOCK) -> None:
        self.height = 0
        self.limit: int | None = None
        self._chunkBytes = chunkBytes
        self._maxBlock = maxBlock
        self._ends: list[int] = []
        self._size = 0

    def extend(self, sizes: Iterable[int]) -> None:
        """
        Add the next blocks.

        @param sizes: the bytes of header and body of each block, with the L{room<proofRoom>} of
            those with transactions.
        """
        for size in sizes:
            size += _OVERHEAD
            if self._size and self._size + size > self._chunkBytes:
                self._ends.append(self.height)
                self._size = 0
            if self.limit is None and (size > self._maxBlock or len(self._ends) == MAX_CHUNKS):
                self.limit = self.height
            self._size += size
            self.height += 1

    def ends(self, height: int) -> Sequence[int]:
        """
        The last heights of a snapshot's chunks.

        @param height: the height of its last block, up to which the plan is made.
        """
        return [*self._ends[: bisect_left(self._ends, height)], height]


def formatOf(header: Header) -> int:
    """
    The version of the encoding of a snapshot.

    @param header: that of its last block.
    """
    return OLD_FORMAT if header.version == OLD_CHAIN_FORMAT else FORMAT


def encodeChunk(
    genesis: Genesis,
    first: int,
    blocks: Sequence[StreamedBlock],
    hash: bytes,
    path: Sequence[bytes],
    format: int = OLD_FORMAT,
) -> bytes:
    """
    Encode a chunk.

    @param first: the height of its first block.
    @param hash: the hash of its last block.
    @param path: the path from its last block to the history root of the snapshot's header; empty
        for the last chunk.
    @param format: what L{formatOf} gave for the snapshot.
    """
    file = BytesIO()
    file.write(bytes([len(path)]))
    file.writelines(path)
    last = first + len(blocks) - 1
    writer = StreamWriter(file, hasReceipts=format != OLD_FORMAT)
    writer.begin(Begin(genesis=genesis, first=first, last=last))
    for block in blocks:
        writer.block(block)
    writer.end(End(last, hash))
    return file.getvalue()


@frozen
class ProvedBlock:
    """
    A block that is proved to be in the snapshot's chain.

    @ivar transactions: its transactions; contents of publishes may be missing.
    @ivar certificate: its certificate, encoded as in a store; empty if the sender had none.
    @ivar receipts: what the sender says that its receipts are; empty if it did not.
    """

    header: Header
    transactions: Sequence[Transaction]
    certificate: bytes
    receipts: bytes = b""


def readChunk(
    data: bytes, manifest: Manifest, index: int, parent: bytes, nodes: ValidatorSet
) -> Sequence[ProvedBlock]:
    """
    Decode a chunk, and verify all of it.

    @param parent: the hash of the block before.
    @param nodes: the validator set of the first block.
    @raise SnapshotInvalid: it is not this chunk of the snapshot.
    """
    first, last = manifest.range(index)
    start = 1 + _HASH * (data[0] if data else 0)
    path = [data[at : at + _HASH] for at in range(1, start, _HASH)]
    try:
        reader = StreamReader(BytesIO(data[start:]))
        begin = reader.begin()
        if (begin.genesis, begin.first, begin.last) != (manifest.genesis, first, last):
            raise SnapshotInvalid("it is another chunk, or a chunk of another chain")
        blocks = _blocks(reader, first, last)
        _checkLast(blocks[-1].header, manifest.header, path)
    except (StreamBroken, Malformed) as error:
        raise SnapshotInvalid(str(error)) from None
    # From the last block, which is proved, back to the first.
    for before, block in zip(
        [parent, *(each.header.hash for each in blocks)], blocks, strict=False
    ):
        if block.header.parent != before:
            raise SnapshotInvalid(f"block {block.header.height} does not follow the one before")
    _checkFinal(blocks, nodes, manifest.genesis.group)
    return blocks


def _blocks(reader: StreamReader, first: int, last: int) -> Sequence[ProvedBlock]:
    blocks: list[ProvedBlock] = []
    end = None
    for record in reader.rest():
        if isinstance(record, End):
            end = record
            continue
        header = Header.decode(record.header)
        transactions = decodeBody(record.body, mayBeErased=True)
        if header.height != first + len(blocks):
            raise SnapshotInvalid(f"block {first + len(blocks)} is not where it should be")
        if merkleRoot([each.hash for each in transactions]) != header.transactionRoot:
            raise SnapshotInvalid(f"block {header.height} has other transactions")
        blocks.append(ProvedBlock(header, transactions, record.certificate, record.receipts))
    if len(blocks) != last - first + 1 or end != End(last, blocks[-1].header.hash):
        raise SnapshotInvalid("it does not end where it should")
    return blocks


def _checkLast(last: Header, anchor: Header, path: Sequence[bytes]) -> None:
    if last.height == anchor.height:
        isProved = not path and last.hash == anchor.hash
    else:
        root = rootOfPath(leafHash(last.hash), last.height, anchor.height, path)
        isProved = root == anchor.history
    if not isProved:
        raise SnapshotInvalid(f"block {last.height} is not one of the snapshot's chain")


def _checkFinal(blocks: Sequence[ProvedBlock], nodes: ValidatorSet, group: str) -> None:
    """Verify the certificates of blocks that are proved."""
    for block in blocks:
        if block.certificate:
            try:
                checkLightBlock(LightBlock.decode(block.certificate), block.header, nodes, group)
            except LightBlockInvalid as error:
                raise SnapshotInvalid(
                    f"the engine's block after block {block.header.height}: {error}"
                ) from None
        if block.header.nextValidators != nodes.hash:
            nodes = _following(block)


def _following(block: ProvedBlock) -> ValidatorSet:
    for transaction in block.transactions:
        if transaction.kind is Kind.VALIDATORS:
            with suppress(Malformed):
                following = ValidatorChange.decode(transaction.content).following
                if following.hash == block.header.nextValidators:
                    return following
    raise SnapshotInvalid(f"block {block.header.height} does not name the next validator set")


OFFERED: Final = 3
"""The number of snapshots that are offered, the latest ones."""

BLOCKS_AFTER: Final = 2
"""
The number of blocks that must follow a snapshot's last block: the first of them carries the hash
that verifies it, and the second is decided by the validators that the last one may have named.
"""

STEP: Final = 2000
"""Blocks per step in the disk thread; between steps, new blocks can be stored."""


class SnapshotServer:
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

    async def list(self, tip: int) -> Sequence[OfferedSnapshot]:
        """
        List the snapshots. All nodes with the same blocks list the same.

        @param tip: the height of the last block.
        @raise svcbroker.storage.StorageError: the chain cannot be read.
        """
        heights: Sequence[int] = await self._runInThread(self._points, tip)
        if heights:
            await self._planTo(heights[0])
        offered: Sequence[OfferedSnapshot] = await self._runInThread(self._describe, heights)
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
                f"SELECT head.height, {HEADER_LENGTH} + length(body), transaction_total "
                f"FROM {HEADS} JOIN body USING (height) "
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

    def _describe(self, heights: Sequence[int]) -> Sequence[OfferedSnapshot]:
        offered = []
        with Reading.ofLedger(self._path) as reading:
            for height in heights:
                if self._plan.limit is not None and height > self._plan.limit:
                    continue
                header = self._header(reading, height)
                ends = self._plan.ends(height)
                manifest = Manifest(genesis=self._genesis, header=header, ends=ends)
                offered.append(
                    OfferedSnapshot(
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
                    "SELECT header, shared, certificate, body, receipts, hash "
                    f"FROM {HEADS} JOIN body USING (height) "
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
                header=wholeHeader(header, shared, each),
                # A certificate larger than its reserved room would make the chunk too large.
                certificate=proof if len(proof) <= _roomAt(sets, each) else b"",
                body=body,
                receipts=receipts,
            )
            for each, (header, shared, proof, body, receipts, _) in enumerate(rows, first)
        ]
        return encodeChunk(self._genesis, first, blocks, rows[-1][-1], path, format)

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


UNFINISHED: Final = ".joining"
"""The ending of the name of a file whose chain is not complete yet."""

_BATCH_BLOCKS: Final = 256
_BATCH_BYTES: Final = 8 * 1024 * 1024


class RestoreFailed(Exception):
    """A proved snapshot that this version cannot continue. The text is one line."""


class Restoring:
    """
    One snapshot that is being restored.

    A crash leaves an incomplete file under another name, which the next attempt removes.

    @ivar received: the number of chunks in the store.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        """
        @param path: where the store is made.
        @raise svcbroker.storage.StorageError: it cannot be.
        """
        remove(path)
        genesis = manifest.genesis
        self.received = 0
        self._manifest = manifest
        self._store = Store.create(path, chainId=genesis.chain, genesis=genesis.encoded)
        chain = loadChain(self._store)
        self._replay = Replay(chain.state, chain.head)

    @property
    def isWhole(self) -> bool:
        """Whether all chunks are stored."""
        return self.received == len(self._manifest.ends)

    def add(self, data: bytes) -> None:
        """
        Verify and store the next chunk.

        @raise SnapshotInvalid: it is not valid. Nothing has changed.
        @raise RestoreFailed: it is valid, but its blocks do not follow by this version's rules.
        @raise svcbroker.storage.StorageError: it cannot be stored.
        """
        head, validators = self._replay.head, self._replay.state.validators
        blocks = readChunk(data, self._manifest, self.received, head.hash, validators)
        pending: list[Append] = []
        size = 0
        for block in blocks:
            pending.append(self._execute(block))
            size += len(pending[-1].block.body)
            if len(pending) == _BATCH_BLOCKS or size > _BATCH_BYTES:
                self._store.extend(pending)
                pending, size = [], 0
        if pending:
            self._store.extend(pending)
        self.received += 1

    def _execute(self, block: ProvedBlock) -> Append:
        try:
            return self._replay.execute(
                block.header, block.transactions, block.certificate, block.receipts
            )
        except InvalidBlock as error:
            raise RestoreFailed(
                f"block {block.header.height} of the snapshot is proved, and does not follow by "
                f"the rules of this version: {error}"
            ) from None

    def countMissing(self) -> int:
        """
        The number of contents that are missing of events that nothing in the snapshot has erased.
        """
        missing = self._replay.missing.without(self._store.erasures)
        return sum(last - first + 1 for _, first, last in missing)

    def close(self) -> None:
        """Close the store."""
        self._store.close()


def remove(path: Path) -> None:
    """
    Remove a closed store, with the files that SQLite or a crash may have left beside it.
    """
    for ending in ("", "-wal", "-shm", TIP_SUFFIX, ".new", ".new-wal", ".new-shm", ".new-journal"):
        path.with_name(path.name + ending).unlink(missing_ok=True)


def checkHistory(unfinished: Path, head: Header) -> None:
    """
    Check that a restored chain continues the chain that is already here.

    @param unfinished: the restored chain's file, closed.
    @param head: the header of the last block here.
    @raise RestoreFailed: it does not.
    """
    if not head.height:
        return
    with Snapshot.ofLedger(unfinished) as reading:
        row = reading.reader().blockHead(head.height)
    if row is None or row.hash != head.hash:
        raise RestoreFailed(
            f"block {head.height} here is not that of the snapshot: these are two histories"
        )


def putInPlace(unfinished: Path, path: Path) -> None:
    """
    Move a restored chain into place, atomically and durably. Both files are closed.

    @raise svcbroker.storage.StorageRefused: the directory cannot be written.
    """
    try:
        syncFile(unfinished)
        # SQLite would apply the former file's log to the new one; the tip is that file's, too.
        for ending in ("-wal", "-shm", TIP_SUFFIX):
            path.with_name(path.name + ending).unlink(missing_ok=True)
        os.replace(unfinished, path)
        unfinished.with_name(unfinished.name + TIP_SUFFIX).unlink(missing_ok=True)
        syncFile(path.parent)
    except OSError as error:
        raise StorageRefused(f"{path} cannot be put in place: {error.strerror}") from error


class SnapshotTaker(Protocol):
    """The application that continues a restored chain."""

    @property
    def height(self) -> int:
        """The height of the last block here, 0 where there is none."""

    async def begin(self, unfinished: Path) -> None:
        """
        Continue the chain.

        @param unfinished: its file, closed.
        """


class SnapshotClient:
    """
    Answers the engine's snapshot calls while the node joins.

    @ivar progress: a counter that grows with every offer and chunk.
    """

    _log = Logger()

    def __init__(
        self,
        path: Path,
        runInThread: Callable[..., Deferred[Any]],
        taker: SnapshotTaker,
    ) -> None:
        """
        @param path: where the chain is to be.
        @param runInThread: runs blocking disk work, one call after the other.
        """
        self.progress = 0
        self._path = path.with_name(path.name + UNFINISHED)
        self._runInThread = runInThread
        self._taker = taker
        self._manifest: Manifest | None = None
        self._restoring: Restoring | None = None

    async def offer(self, request: messages.OfferSnapshotRequest) -> OfferResult:
        """
        Decide whether to restore a snapshot.

        @raise svcbroker.storage.StorageError: no store can be made.
        """
        await self._drop()
        self.progress += 1
        offered = request.snapshot
        if offered is None or offered.format not in (OLD_FORMAT, FORMAT):
            return OfferResult.REJECT_FORMAT
        try:
            manifest = Manifest.decode(offered.metadata)
            if manifest.header.hash != request.appHash or offered.hash != request.appHash:
                raise SnapshotInvalid("its last block is not the one that the engine has verified")
            if (manifest.header.height, len(manifest.ends)) != (offered.height, offered.chunks):
                raise SnapshotInvalid("its manifest is that of another one")
            if offered.height < self._taker.height:
                raise SnapshotInvalid(
                    f"the chain here goes up to block {self._taker.height}: to begin with less, "
                    "move its file away"
                )
        except SnapshotInvalid as error:
            self._log.warn(
                "the snapshot of block {height} is invalid: {error}",
                height=offered.height,
                error=str(error),
            )
            return OfferResult.REJECT
        self._log.info(
            "restores the snapshot of block {height}, in {count} chunks",
            height=offered.height,
            count=offered.chunks,
        )
        self._restoring = await self._runInThread(Restoring, self._path, manifest)
        self._manifest = manifest
        return OfferResult.ACCEPT

    async def apply(
        self, request: messages.ApplySnapshotChunkRequest
    ) -> messages.ApplySnapshotChunkResponse:
        """
        Take a chunk.

        @raise RestoreFailed: this version cannot continue the snapshot.
        @raise svcbroker.storage.StorageError: it cannot be stored.
        """
        restoring, manifest = self._restoring, self._manifest
        if restoring is None or manifest is None or request.index != restoring.received:
            return messages.ApplySnapshotChunkResponse(result=ApplyResult.REJECT_SNAPSHOT)
        try:
            await self._runInThread(restoring.add, request.chunk)
        except SnapshotInvalid as error:
            self._log.warn(
                "chunk {index} of the snapshot, from {sender}, is invalid: {error}",
                index=request.index,
                sender=request.sender,
                error=str(error),
            )
            return messages.ApplySnapshotChunkResponse(
                result=ApplyResult.RETRY,
                refetchChunks=(request.index,),
                rejectSenders=(request.sender,) if request.sender else (),
            )
        self.progress += 1
        if restoring.isWhole:
            missing = await self._runInThread(restoring.countMissing)
            if missing:
                self._log.warn(
                    "the snapshot of block {height} lacks the contents of {count} events that "
                    "nothing has erased",
                    height=manifest.header.height,
                    count=missing,
                )
                await self._drop()
                return messages.ApplySnapshotChunkResponse(result=ApplyResult.REJECT_SNAPSHOT)
            self._restoring = None
            await self._runInThread(restoring.close)
            await self._taker.begin(self._path)
            self._log.info("has the chain up to block {height}", height=manifest.header.height)
        return messages.ApplySnapshotChunkResponse(result=ApplyResult.ACCEPT)

    async def _drop(self) -> None:
        restoring, self._restoring = self._restoring, None
        if restoring is not None:
            await self._runInThread(restoring.close)

    def close(self) -> None:
        """Remove an incomplete chain. No call is under way."""
        restoring, self._restoring = self._restoring, None
        if restoring is not None:
            restoring.close()
        remove(self._path)
