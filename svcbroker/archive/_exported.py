"""
Reading the headers of an exported chain, and proving one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from ..chain import (
    Header,
    Kind,
    Malformed,
    ValidatorChange,
    decodeBody,
    leafHash,
    merklePath,
)
from ..files import openFile
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
from ._stream import MAGIC, Begin, StreamBroken, StreamedBlock, StreamReader

_HASH: Final = 32


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
