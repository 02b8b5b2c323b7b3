"""
Server-Sent Events (WHATWG HTML, section 9.2): from bytes, in pieces of any size, to messages.
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from ._errors import AnswerInvalid

MAX_MESSAGE: Final = 256 * 1024 * 1024
"""Bytes of the longest message: a bound for a server that sends something else without end."""

_BOM: Final = b"\xef\xbb\xbf"


@frozen
class StreamMessage:
    """
    A message of a stream.

    @ivar type: its type; C{message} where it names none.
    @ivar data: its data; empty for a message that only has an id.
    @ivar lastId: the id of this message or of the last one before that has one; C{None} where none
        had.
    """

    type: str
    data: bytes
    lastId: str | None


class MessageParser:
    """
    Parses one stream. A message that is not complete when the stream ends is discarded.
    """

    def __init__(self) -> None:
        self._rest = bytearray()
        # How much of the rest has no end of line.
        self._searched = 0
        self._isStart = True
        self._size = 0
        self._lastId: str | None = None
        self._type = ""
        self._data: list[bytes] = []
        self._hasId = False

    def receive(self, data: bytes) -> list[StreamMessage]:
        """
        Parse a piece of the stream.

        @return: the messages that it completes.
        @raise AnswerInvalid: a message is longer than L{MAX_MESSAGE}.
        """
        self._rest += data
        messages = []
        for line in self._lines():
            if line:
                self._size += len(line)
                self._field(line)
            elif self._data or self._hasId:
                content = b"\n".join(self._data)
                messages.append(StreamMessage(self._type or "message", content, self._lastId))
                self._type, self._data, self._hasId, self._size = "", [], False, 0
            else:
                self._type, self._size = "", 0
        if self._size + len(self._rest) > MAX_MESSAGE:
            raise AnswerInvalid("a message of the stream is too long")
        return messages

    def _lines(self) -> list[bytes]:
        """Take the complete lines. They end with CR, LF or CR LF."""
        rest = self._rest
        if self._isStart:
            if _BOM.startswith(rest) and len(rest) < len(_BOM):
                return []
            self._isStart = False
            if rest.startswith(_BOM):
                del rest[: len(_BOM)]
        # The LF of a CR LF may be in the next piece, so a CR at the end waits for it.
        start = self._searched
        end = max(rest.rfind(b"\n", start), rest.rfind(b"\r", start, len(rest) - 1))
        if end < 0:
            self._searched = max(0, len(rest) - 1)
            return []
        lines = bytes(rest[: end + 1]).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        del rest[: end + 1]
        self._searched = 0
        return lines[:-1].split(b"\n")

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._type = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            self._lastId = value.decode("utf-8", "replace")
            self._hasId = True
