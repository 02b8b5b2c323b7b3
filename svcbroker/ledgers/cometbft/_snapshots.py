"""
The snapshot format: the chain up to a block, in chunks, for nodes that join.

A snapshot is identified by the hash of its last block's header, which its manifest contains, so
the application hash that the engine has verified authenticates the whole snapshot. A chunk holds
whole blocks, encoded as in an export, and the Merkle path from its last block to the history root
of that header. A chunk that is not part of the snapshot's chain is refused from any peer.
Certificates are included where the sender has them, because the engine of a joined node cannot
supply those of blocks that it never had.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from contextlib import suppress
from io import BytesIO
from struct import Struct
from typing import Final

from attrs import frozen

from ...archive import Begin, End, StreamBroken, StreamedBlock, StreamReader, StreamWriter
from ...chain import OLD_FORMAT as OLD_CHAIN_FORMAT
from ...chain import (
    Genesis,
    Header,
    Kind,
    Malformed,
    Transaction,
    ValidatorChange,
    ValidatorSet,
    decodeBody,
    leafHash,
    merkleRoot,
    rootOfPath,
)
from ...proofs import checkLightBlock
from ...proofs.cometbft import LightBlock, LightBlockInvalid

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
