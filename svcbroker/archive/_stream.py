"""
The export format: framed records with a terminator. Specified in C{docs/backup.rst}.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import BinaryIO, Final

from attrs import frozen

from ..chain import Genesis, Malformed

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
