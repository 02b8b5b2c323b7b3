"""
The export of a stored chain as a stream, and the headers of an exported chain, of which one can be
proved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Final

from ..chain import (
    OLD_FORMAT,
    Genesis,
    Header,
    Kind,
    Malformed,
    ValidatorChange,
    decodeBody,
    leafHash,
    merklePath,
)
from ..files import openFile
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
from ..storage import Snapshot, StorageDamaged
from ._findings import Report, noReport
from ._layout import STORE_NAME
from ._replay import BATCH_BLOCKS, BATCH_BYTES, checkFormat
from ._stream import MAGIC, Begin, End, StreamBroken, StreamedBlock, StreamReader, StreamWriter

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
