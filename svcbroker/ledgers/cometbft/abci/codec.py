"""
Frames of the ABCI socket, sans-io: a length, then a request or a response.
"""

from __future__ import annotations

from typing import Final

from ....proofs.cometbft.wire import (
    DELIMITED,
    WireMalformed,
    checkTag,
    encodeTag,
    encodeVarint,
    readLength,
    readVarint,
    skipField,
)
from . import messages
from .messages import Request, Response
from .schema import decode, encode

MAX_FRAME: Final = 128 * 1024 * 1024
"""The default bound of a frame's size in bytes: a block has at most 100 MiB."""

_MAX_PREFIX: Final = 10

REQUESTS: Final[dict[int, type[Request]]] = {
    1: messages.EchoRequest,
    2: messages.FlushRequest,
    3: messages.InfoRequest,
    5: messages.InitChainRequest,
    6: messages.QueryRequest,
    8: messages.CheckTxRequest,
    11: messages.CommitRequest,
    12: messages.ListSnapshotsRequest,
    13: messages.OfferSnapshotRequest,
    14: messages.LoadSnapshotChunkRequest,
    15: messages.ApplySnapshotChunkRequest,
    16: messages.PrepareProposalRequest,
    17: messages.ProcessProposalRequest,
    20: messages.FinalizeBlockRequest,
}
"""Requests by their field number in C{Request}."""

RESPONSES: Final[dict[int, type[Response]]] = {
    1: messages.ExceptionResponse,
    2: messages.EchoResponse,
    3: messages.FlushResponse,
    4: messages.InfoResponse,
    6: messages.InitChainResponse,
    7: messages.QueryResponse,
    9: messages.CheckTxResponse,
    12: messages.CommitResponse,
    13: messages.ListSnapshotsResponse,
    14: messages.OfferSnapshotResponse,
    15: messages.LoadSnapshotChunkResponse,
    16: messages.ApplySnapshotChunkResponse,
    17: messages.PrepareProposalResponse,
    18: messages.ProcessProposalResponse,
    21: messages.FinalizeBlockResponse,
}
"""Responses by their field number in C{Response}: the request's plus one."""

_TAGS: Final[dict[type, bytes]] = {
    kind: encodeTag(number, DELIMITED)
    for table in (REQUESTS, RESPONSES)
    for number, kind in table.items()
}


def encodeFrame(value: Request | Response) -> bytes:
    """
    A request or a response as a frame.

    @raise ValueError: a field has a value that cannot be written.
    """
    content = encode(value)
    head = _TAGS[type(value)] + encodeVarint(len(content))
    return b"".join((encodeVarint(len(head) + len(content)), head, content))


_FLUSH: Final = messages.FlushRequest()
_FLUSH_CONTENT: Final = _TAGS[messages.FlushRequest] + b"\x00"


def decodeRequest(data: bytes) -> Request:
    """
    Decode a request from the content of a frame.

    @raise Malformed: it is no request, or an unknown one.
    """
    if data == _FLUSH_CONTENT:
        # A flush follows each call.
        return _FLUSH
    number, start, end = _envelope(data, REQUESTS)
    return decode(REQUESTS[number], data, start, end)


def decodeResponse(data: bytes) -> Response:
    """
    Decode a response from the content of a frame.

    @raise Malformed: it is no response, or an unknown one.
    """
    number, start, end = _envelope(data, RESPONSES)
    return decode(RESPONSES[number], data, start, end)


def _envelope(data: bytes, table: dict[int, type]) -> tuple[int, int, int]:
    """The number of the last known message, and where its content begins and ends."""
    position, size = 0, len(data)
    found: tuple[int, int, int] | None = None
    unknown = 0
    while position < size:
        tag, position = readVarint(data, position, size)
        number, kind = checkTag(tag)
        if number not in table:
            unknown = number
            position = skipField(data, tag, position, size)
            continue
        if kind != DELIMITED:
            raise WireMalformed(f"message {number} has wire type {kind}")
        start, position = readLength(data, position, size)
        found = number, start, position
    if found is None:
        raise WireMalformed(f"message {unknown} is not known" if unknown else "there is no message")
    return found


class FrameParser:
    """
    Cuts a stream of bytes into frames.
    """

    def __init__(self, maxFrame: int = MAX_FRAME) -> None:
        """
        @param maxFrame: the most bytes of a frame's content.
        """
        self._maxFrame = maxFrame
        self._buffer = bytearray()
        self._start = 0

    def feed(self, data: bytes) -> None:
        """Take bytes."""
        if self._start:
            # What was read goes in one piece, not a frame at a time.
            del self._buffer[: self._start]
            self._start = 0
        self._buffer += data

    @property
    def buffered(self) -> int:
        """The number of bytes that are buffered."""
        return len(self._buffer) - self._start

    def nextFrame(self) -> bytes | None:
        """
        The content of the next frame; C{None} while it is incomplete.

        @raise Malformed: the frame is malformed or too large. The stream cannot be read further.
        """
        buffer, start = self._buffer, self._start
        if start == len(buffer):
            return None
        prefix = bytes(buffer[start : start + _MAX_PREFIX])
        if len(prefix) < _MAX_PREFIX and all(byte >= 0x80 for byte in prefix):
            # The length has come in part, or not at all.
            return None
        length, used = readVarint(prefix, 0, len(prefix))
        if length > self._maxFrame:
            raise WireMalformed(f"a frame has at most {self._maxFrame} bytes, not {length}")
        begin = start + used
        end = begin + length
        if end > len(buffer):
            return None
        frame = bytes(memoryview(buffer)[begin:end])
        self._start = end
        return frame
