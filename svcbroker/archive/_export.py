"""
The export of a stored chain as a stream; the headers of an exported chain, of which one can be
proved; and the transparency log of a group as files, for any static web server
(c2sp.org/tlog-tiles).

The stream's format is framed records with a terminator, specified in C{docs/backup.rst}.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from struct import Struct
from typing import BinaryIO, Final, TypeAlias

from attrs import frozen

from ..chain import (
    OLD_FORMAT,
    Genesis,
    Header,
    History,
    Kind,
    Malformed,
    ValidatorChange,
    checkGrowth,
    decodeBody,
    growthPath,
    leafHash,
    merklePath,
    merkleRoot,
)
from ..files import openFile, readFile
from ..model import ChainPart
from ..proofs import (
    AnyCertificate,
    Checkpoint,
    EarlierHeader,
    FinalHeader,
    GenesisFields,
    HeaderFields,
    HeaderProof,
    NodeChange,
    storedCertificate,
)
from ..proofs.tlog import (
    TILE_HEIGHT,
    TILE_WIDTH,
    Note,
    Tile,
    Tiles,
    TreeHead,
    decodeEntries,
    encodeEntries,
    encodeTile,
    hashEntries,
    neededTiles,
    parseTilePath,
    splitTile,
    tilesBetween,
)
from ..storage import HEADS, Snapshot, StorageDamaged, wholeHeader, writeFile
from ._findings import Report, noReport
from ._layout import METADATA_NAME, STORE_NAME, groupDirectory
from ._prover import Prover, readChain
from ._replay import BATCH_BLOCKS, BATCH_BYTES, checkFormat

MAGIC: Final = b"svcbroker/export"

_PLAIN: Final = 1
_WITH_RECEIPTS: Final = 2

MAX_RECORD: Final = 1 << 30
"""Bytes of the longest record."""

_KIND_BEGIN: Final = 1
_KIND_BLOCK: Final = 2
_KIND_END: Final = 3
_RECORD: Final = Struct(">BI")
_RANGE: Final = Struct(">QQ")
_SIZE: Final = Struct(">I")
_END: Final = Struct(">Q32s")
_PIECE: Final = 1024 * 1024


class StreamBroken(Exception):
    """
    A stream is not what an export writes, or not all of it. The text is one line that says
    where it breaks.
    """


@frozen(kw_only=True)
class Begin:
    """
    The first record of a stream.

    @ivar first: the height of its first block.
    @ivar last: the height of its last block, one below C{first} where there is none.
    """

    genesis: Genesis
    first: int
    last: int


@frozen(kw_only=True)
class StreamedBlock:
    """
    A block in a stream, in its encodings.

    @ivar receipts: its receipts; empty in a stream of version 1.
    """

    header: bytes
    certificate: bytes
    body: bytes
    receipts: bytes = b""


@frozen
class End:
    """
    The last record of a stream.

    @ivar height: the height of its last block.
    @ivar hash: that block's hash.
    """

    height: int
    hash: bytes


class StreamWriter:
    """
    Writes a stream.
    """

    def __init__(self, file: BinaryIO, *, hasReceipts: bool = False) -> None:
        """
        @param hasReceipts: whether it has the blocks' receipts, without which contents must not be
            missing. Older releases do not read it then.
        """
        self._file = file
        self._version = _WITH_RECEIPTS if hasReceipts else _PLAIN

    def begin(self, begin: Begin) -> None:
        """Write what it begins with."""
        self._file.write(MAGIC + bytes([self._version]))
        self._record(_KIND_BEGIN, _RANGE.pack(begin.first, begin.last), begin.genesis.encoded)

    def block(self, block: StreamedBlock) -> None:
        """Write a block."""
        parts = [block.header, block.certificate]
        if self._version == _WITH_RECEIPTS:
            parts.append(block.receipts)
        sized = [each for part in parts for each in (_SIZE.pack(len(part)), part)]
        self._record(_KIND_BLOCK, *sized, block.body)

    def end(self, end: End) -> None:
        """Write what it ends with."""
        self._record(_KIND_END, _END.pack(end.height, end.hash))

    def _record(self, kind: int, *parts: bytes) -> None:
        self._file.write(_RECORD.pack(kind, sum(map(len, parts))))
        for part in parts:
            self._file.write(part)


class StreamReader:
    """
    Reads a stream, and never more of it at a time than one record.

    @ivar offset: how many bytes were read.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.offset = 0
        self._file = file
        self._version = _PLAIN

    def begin(self) -> Begin:
        """
        The first record.

        @raise StreamBroken: it is no such stream.
        """
        start = self._take(len(MAGIC) + 1, "the stream")
        if not start.startswith(MAGIC):
            raise StreamBroken("this is not a chain that svcbroker has exported")
        self._version = start[-1]
        if self._version not in (_PLAIN, _WITH_RECEIPTS):
            raise StreamBroken(
                f"the stream has version {start[-1]}, and only versions {_PLAIN} and "
                f"{_WITH_RECEIPTS} are known"
            )
        kind, payload = self._record()
        if kind != _KIND_BEGIN or len(payload) < _RANGE.size:
            raise StreamBroken("the stream does not begin with a genesis")
        first, last = _RANGE.unpack_from(payload)
        try:
            genesis = Genesis.decode(payload[_RANGE.size :])
        except Malformed as error:
            raise StreamBroken(f"the genesis is not one: {error}") from None
        if not 1 <= first <= last + 1 < 2**63:
            raise StreamBroken(f"the stream says that it goes from block {first} to {last}")
        return Begin(genesis=genesis, first=first, last=last)

    def rest(self) -> Iterator[StreamedBlock | End]:
        """
        The blocks, and the end.

        @raise StreamBroken: it breaks here.
        """
        while True:
            start = self.offset
            kind, payload = self._record()
            if kind == _KIND_BLOCK:
                yield self._block(payload, start)
            elif kind == _KIND_END and len(payload) == _END.size:
                yield End(*_END.unpack(payload))
                break
            else:
                raise StreamBroken(f"at byte {start} is no record of a known kind")
        if self._file.read(1):
            raise StreamBroken(f"there are bytes behind its end, from byte {self.offset} on")

    def _block(self, payload: bytes, start: int) -> StreamedBlock:
        parts = []
        position = 0
        for _ in range(3 if self._version == _WITH_RECEIPTS else 2):
            stop = position + _SIZE.size
            size = int.from_bytes(payload[position:stop], "big")
            position = stop + size
            if position > len(payload):
                raise StreamBroken(f"the record at byte {start} is no block")
            parts.append(payload[stop:position])
        header, certificate, *rest = parts
        return StreamedBlock(
            header=header,
            certificate=certificate,
            body=payload[position:],
            receipts=rest[0] if rest else b"",
        )

    def _record(self) -> tuple[int, bytes]:
        start = self.offset
        kind, size = _RECORD.unpack(self._take(_RECORD.size, f"the record at byte {start}"))
        if size > MAX_RECORD:
            raise StreamBroken(f"the record at byte {start} says that it has {size} bytes")
        return kind, self._take(size, f"the record at byte {start}")

    def _take(self, size: int, what: str) -> bytes:
        # In pieces, so that a size that is not true costs no memory.
        pieces = bytearray()
        while len(pieces) < size:
            piece = self._file.read(min(_PIECE, size - len(pieces)))
            if not piece:
                raise StreamBroken(f"{what} is cut off at byte {self.offset + len(pieces)}")
            pieces += piece
        self.offset += size
        return bytes(pieces)


PART_BYTES: Final = 1024 * 1024
"""The size of blocks after which a part of a chain ends."""

MAX_PART: Final = 64 * 1024 * 1024
"""
The size of blocks after which a part ends although its last block has no certificate. On an
engine's chain only blocks with transactions have one.
"""


_HASH: Final = 32


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
        last = snapshot.reader().tip()
    try:
        genesis = Genesis.decode(rows[0][0])
    except (Malformed, LookupError, TypeError) as error:
        raise _damaged(snapshot, f"its genesis: {error}") from None
    if last is None:
        return genesis, 0, False
    try:
        # Nothing is erased in a chain of the old format.
        return genesis, last.height, Header.decode(last.header).version != OLD_FORMAT
    except Malformed as error:
        raise _damaged(snapshot, f"block {last.height}: {error}") from None


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
            certificate, body, receipts, header = parts
            block = StreamedBlock(
                header=header, certificate=certificate, body=body, receipts=receipts
            )
            yield height, hash, block
            following += 1


def _batch(
    snapshot: Snapshot, first: int, last: int, maxSize: int
) -> list[tuple[int, bytes, bytes, bytes, bytes, bytes]]:
    """Height, hash, certificate, body, receipts and header of some blocks, of any type."""
    batch: list[tuple[int, bytes, bytes, bytes, bytes, bytes]] = []
    size = 0
    with snapshot.moment():
        rows = snapshot.rows(
            "SELECT head.height, hash, certificate, body, receipts, header, shared "
            f"FROM {HEADS} LEFT JOIN body USING (height) "
            "WHERE head.height BETWEEN ? AND ? "
            "ORDER BY head.height LIMIT ?",
            first,
            last,
            BATCH_BLOCKS,
        )
        for height, hash, certificate, body, receipts, part, shared in rows:
            header = wholeHeader(part, shared, height)
            batch.append((height, hash, certificate, body, receipts, header))
            size += len(body) if isinstance(body, bytes) else 0
            if size > maxSize:
                rows.close()
                break
    return batch


def _damaged(snapshot: Snapshot, what: str) -> StorageDamaged:
    return StorageDamaged(f"{snapshot.path} is damaged ({what}): audit it")


class ExportedHeaders:
    """
    The headers of an exported chain, in a file.

    Only headers are checked: that each follows the one before. Bodies and certificates are read
    where a header is proved.

    @ivar genesis: the chain's genesis.
    @ivar first: the height of the first block.
    @ivar last: the height of the last block.
    """

    def __init__(self, path: Path) -> None:
        """
        @raise StreamBroken: it is no whole export, or its headers are not those of one chain.
        """
        self._path = path
        # Not a list: 32 bytes for each of millions of blocks.
        self._hashes = bytearray()
        with self._blocks() as (begin, blocks):
            self.genesis, self.first, self.last = begin.genesis, begin.first, begin.last
            parent = begin.genesis.header().hash if begin.first == 1 else None
            for height, (header, _) in enumerate(blocks, start=begin.first):
                isNext = (header.chain, header.height) == (begin.genesis.chain, height)
                if not isNext or parent not in (None, header.parent):
                    raise StreamBroken(f"block {height} does not follow the block before it")
                parent = header.hash
                self._hashes += parent
        if len(self._hashes) != (self.last - self.first + 1) * _HASH:
            raise StreamBroken(f"the export does not have blocks {self.first} to {self.last}")

    @staticmethod
    def isExport(start: bytes) -> bool:
        """Whether a file that begins with some bytes may be an export."""
        return start.startswith(MAGIC)

    def checkpoint(self, height: int) -> Checkpoint | None:
        """A block of it; C{None} where it does not have the block."""
        if not self.first <= height <= self.last:
            return None
        return Checkpoint(height, self._hash(height))

    def firstDifference(self, other: ExportedHeaders) -> int | None:
        """The lowest height at which two exports have different blocks, if there is one."""
        for height in range(max(self.first, other.first), min(self.last, other.last) + 1):
            if self._hash(height) != other._hash(height):
                return height
        return None

    def prove(self, height: int) -> HeaderProof:
        """
        A proof of a header: with its own certificate, or with that of a later one.

        @raise StreamBroken: there is no such certificate, or the validator set is not known.
        """
        changes: list[NodeChange] = []
        wanted: HeaderFields | None = None
        with self._blocks() as (begin, blocks):
            for header, block in blocks:
                if not changes and header.height == begin.first:
                    self._checkSet(header)
                certificate = _certificateOf(block)
                fields = HeaderFields.of(header)
                if header.height == height:
                    wanted = fields
                if wanted is not None and certificate is not None:
                    return HeaderProof(
                        format="svcbroker/header-proof/1",
                        block=FinalHeader(header=fields, certificate=certificate),
                        genesis=GenesisFields.of(self.genesis),
                        changes=changes,
                        earlier=self._earlier(wanted, header),
                    )
                if header.nextValidators != header.validators:
                    nodes = _nodesAfter(header, block)
                    changes.append(NodeChange(header=fields, certificate=certificate, nodes=nodes))
        raise StreamBroken(f"there is no certificate of block {height}, nor of a later one")

    def _checkSet(self, first: Header) -> None:
        if first.validators != self.genesis.validatorSet.hash:
            raise StreamBroken(
                f"an export from block {self.first} on does not have the changes of the validators "
                "before it: export the chain from block 1 on"
            )

    def _earlier(self, wanted: HeaderFields, last: Header) -> EarlierHeader | None:
        if wanted.height == last.height:
            return None
        if self.first > 1:
            raise StreamBroken(f"block {wanted.height} is proved from an export of all blocks only")
        hashes = [self.genesis.header().hash, *map(self._hash, range(1, last.height))]
        path = merklePath([leafHash(each) for each in hashes], wanted.height)
        return EarlierHeader(header=wanted, path=[each.hex() for each in path])

    def _hash(self, height: int) -> bytes:
        start = (height - self.first) * _HASH
        return bytes(self._hashes[start : start + _HASH])

    @contextmanager
    def _blocks(self) -> Iterator[tuple[Begin, Iterator[tuple[Header, StreamedBlock]]]]:
        with openFile(self._path) as file:
            reader = StreamReader(file)
            yield reader.begin(), _decoded(reader)


def _decoded(reader: StreamReader) -> Iterator[tuple[Header, StreamedBlock]]:
    for each in reader.rest():
        if isinstance(each, StreamedBlock):
            try:
                yield Header.decode(each.header), each
            except Malformed as error:
                raise StreamBroken(f"a header is not one: {error}") from None


def _certificateOf(block: StreamedBlock) -> AnyCertificate | None:
    try:
        return storedCertificate(block.certificate)
    except Malformed as error:
        raise StreamBroken(f"a certificate is not one: {error}") from None


def _nodesAfter(header: Header, block: StreamedBlock) -> Sequence[str]:
    """The public keys of the set that decides after a block that changed it."""
    try:
        for transaction in decodeBody(block.body, mayBeErased=True):
            if transaction.kind is Kind.VALIDATORS:
                with suppress(Malformed):
                    following = ValidatorChange.decode(transaction.content).following
                    if following.hash == header.nextValidators:
                        return [key.hex() for key in following.keys]
    except Malformed as error:
        raise StreamBroken(f"the body of block {header.height} is not one: {error}") from None
    raise StreamBroken(f"block {header.height} does not have the change that its header names")


CHECKPOINT: Final = "checkpoint"
"""The file of the checkpoint."""


LogSource: TypeAlias = Callable[[str], bytes]
"""Reads a file of a log by its path below the URL of the log."""


class LogUnreadable(Exception):
    """A log that cannot be read. The text says why."""


class LogRefused(Exception):
    """A log that contradicts itself, or what was written of it before. The text says why."""


@contextmanager
def storedLog(dataDir: Path, group: str) -> Iterator[LogSource]:
    """
    The log of a group in a data directory, also while a broker runs on it. Its checkpoint is the
    one that the broker has signed last.

    @raise LogUnreadable: the broker has signed none.
    @raise StorageError: a file cannot be read.
    """
    with Snapshot.ofMetadata(dataDir / METADATA_NAME) as snapshot:
        rows = list(
            snapshot.rows(
                "SELECT value FROM note WHERE kind = 'log' AND name = ?", f"{group}/checkpoint"
            )
        )
    if not rows:
        raise LogUnreadable(f"{dataDir}: no checkpoint of group {group} was ever asked for")
    [[checkpoint]] = rows
    with readChain(groupDirectory(dataDir, group)) as prover:

        def read(path: str) -> bytes:
            return checkpoint if path == CHECKPOINT else _readTile(prover, path)

        yield read


def _readTile(prover: Prover, path: str) -> bytes:
    tile, isEntries = parseTilePath(path.removeprefix("tile/"))
    hashes = prover.history(TILE_HEIGHT * tile.level, tile.first, tile.width)
    if len(hashes) < tile.width:
        raise LogUnreadable(f"the chain is shorter than its checkpoint: there is no {path}")
    return encodeEntries(hashes) if isEntries else encodeTile(tile, hashes)


def exportLog(read: LogSource, directory: Path) -> tuple[TreeHead, int]:
    """
    Write a log as files: all of it, or those that an earlier export lacks. Files are complete as
    soon as they have their names, and the checkpoint comes last, so a web server may serve the
    directory the whole time.

    Every hash is checked against the root in the checkpoint before it is written, and that the log
    has grown from the checkpoint that was written before. Signatures are not checked.

    @return: what the checkpoint says, and how many files were written.
    @raise LogRefused: the log is not consistent. What contradicts its checkpoint, or the one
        before, was not written.
    @raise LogUnreadable, StorageError: it cannot be read.
    @raise OSError: a file cannot be written.
    """
    note = read(CHECKPOINT)
    path = directory / CHECKPOINT
    kept = readFile(path) if path.exists() else None
    try:
        head = TreeHead.parse(Note.decode(note).text)
        before = None if kept is None else TreeHead.parse(Note.decode(kept).text)
    except Malformed as error:
        raise LogRefused(f"a checkpoint is malformed: {error}") from None
    older, size = 0 if before is None else before.size, head.size
    files = _Files(directory, read, size)
    try:
        needed = neededTiles(size, *([older - 1] if 0 < older <= size else ()))
        tiles = Tiles({tile: files.find(tile) for tile in needed}).source
        if History.load(size, tiles).root != head.root:
            raise LogRefused(f"the tiles have not the root of the checkpoint of size {size}")
        if before is not None:
            growth = growthPath(older, size, tiles)
            checkGrowth(older, before.root, size, head.root, growth)
    except Malformed as error:
        raise LogRefused(
            f"the log of size {size} has not grown from the one of size {older} that is in "
            f"{directory}: {error}"
        ) from None
    # From the top: each tile is checked against the one above it.
    for tile in reversed(list(tilesBetween(older, size))):
        files.write(tile)
    if note != kept:
        files.put(CHECKPOINT, note)
    files.removePartial(older)
    return head, files.count


class _Files:
    """
    The files of a log of a size.

    @ivar count: how many were written.
    """

    def __init__(self, directory: Path, read: LogSource, size: int) -> None:
        self.count = 0
        self._directory = directory
        self._read = read
        self._size = size
        # Those of the right edge, from which the root was computed, and one of a path.
        self._found: dict[Tile, bytes] = {}

    def find(self, tile: Tile) -> bytes:
        """A tile that is needed to check the checkpoint."""
        path = f"tile/{tile.path}"
        target = self._directory / path
        data = readFile(target) if target.exists() else self._read(path)
        self._found[tile] = data
        return data

    def write(self, tile: Tile) -> None:
        """
        Write a tile, and its entries, unless that was done before.

        @raise LogRefused: it has not the hash that the tile above it says, or its entries have not
            its hashes.
        """
        path = f"tile/{tile.path}"
        if (self._directory / path).exists():
            return
        data = self._found.get(tile) or self._read(path)
        try:
            if tile.width == TILE_WIDTH and merkleRoot(splitTile(tile, data)) != self._hash(tile):
                raise LogRefused(f"{path} has not the hash that the tile above it says")
            if not tile.level:
                entries = self._read(f"tile/{tile.entriesPath}")
                if hashEntries(decodeEntries(entries)) != data:
                    raise LogRefused(f"{path} has not the hashes of its entries")
                self.put(f"tile/{tile.entriesPath}", entries)
        except Malformed as error:
            raise LogRefused(str(error)) from None
        self.put(path, data)

    def _hash(self, tile: Tile) -> bytes:
        """The hash of a full tile, from the tile above it, which was written before."""
        count = self._size >> TILE_HEIGHT * (tile.level + 1)
        index = tile.index // TILE_WIDTH
        above = Tile(tile.level + 1, index, min(TILE_WIDTH, count - index * TILE_WIDTH))
        data = readFile(self._directory / "tile" / above.path)
        return splitTile(above, data)[tile.index % TILE_WIDTH]

    def put(self, path: str, data: bytes) -> None:
        """Write a file, so that it is there as a whole or not at all, also after a crash."""
        target = self._directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        writeFile(target, data)
        self.count += 1

    def removePartial(self, older: int) -> None:
        """Remove the partial tiles in whose place there is a full one now."""
        for tile in tilesBetween(older, self._size):
            if tile.width == TILE_WIDTH:
                paths = [tile.path] if tile.level else [tile.path, tile.entriesPath]
                for path in paths:
                    with suppress(FileNotFoundError):
                        shutil.rmtree(self._directory / "tile" / f"{path}.p")
