"""
Reading of canonical bytes.
"""

from __future__ import annotations

import struct


class Malformed(ValueError):
    """Bytes that are not the canonical encoding of anything."""


class VersionUnknown(Malformed):
    """Bytes of a format that this code does not know."""


class Reader:
    """
    Takes fields off the front of some bytes, and never more than there are.

    @ivar position: how many bytes were taken.
    """

    __slots__ = ("_data", "_end", "position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0
        self._end = len(data)

    def take(self, count: int) -> bytes:
        """
        The next C{count} bytes.

        @raise Malformed: there are fewer.
        """
        stop = self.position + count
        if stop > self._end:
            raise Malformed("the data ends early")
        taken = self._data[self.position : stop]
        self.position = stop
        return taken

    def number(self, form: struct.Struct) -> int:
        """
        The next field, one number in a fixed form.

        @raise Malformed: the data ends early.
        """
        value: int = form.unpack(self.take(form.size))[0]
        return value

    def text(self, count: int) -> str:
        """
        The next C{count} bytes, which are UTF-8.

        @raise Malformed: they are not, or the data ends early.
        """
        try:
            return self.take(count).decode("utf-8")
        except UnicodeDecodeError:
            raise Malformed("a text is not UTF-8") from None

    def finish(self) -> None:
        """
        Say that nothing may follow.

        @raise Malformed: something does.
        """
        if self.position != self._end:
            raise Malformed("there are bytes after the end")


U16 = struct.Struct(">H")
U32 = struct.Struct(">I")
U64 = struct.Struct(">Q")
