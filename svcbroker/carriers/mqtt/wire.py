"""
The data representations that packets are made of (MQTT 5, section 1.5; 3.1.1 has the first four).
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct

from .reasons import MalformedPacket

MAX_VARIABLE_BYTE_INTEGER = 268_435_455
MAX_LENGTH = 65_535
"""The most bytes of a string or of binary data."""

U16 = Struct(">H")
U32 = Struct(">I")


def decodeText(data: bytes) -> str:
    """
    Read the bytes of a UTF-8 encoded string.

    @raise MalformedPacket: they are not well-formed, or have a null character.
    """
    try:
        # Surrogates are refused too [MQTT-1.5.3-1] [MQTT5-1.5.4-1]; U+FEFF stays where it is
        # [MQTT-1.5.3-3] [MQTT5-1.5.4-3].
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise MalformedPacket("a string is not well-formed UTF-8") from None
    if "\0" in text:
        # [MQTT-1.5.3-2] [MQTT5-1.5.4-2]
        raise MalformedPacket("a string has the null character")
    return text


class Reader:
    """
    Takes the fields of one packet, one after the other.
    """

    __slots__ = ("_data", "_end", "position")

    def __init__(self, data: bytes, position: int, end: int) -> None:
        """
        @param data: bytes that hold the packet.
        @param position: where to begin.
        @param end: where the packet ends.
        """
        self._data = data
        self.position = position
        self._end = end

    def isAtEnd(self) -> bool:
        """Whether everything was taken."""
        return self.position >= self._end

    def take(self, length: int) -> bytes:
        """
        The next bytes.

        @raise MalformedPacket: there are not as many. So do all other methods.
        """
        start = self.position
        if start + length > self._end:
            raise MalformedPacket("a packet ends too soon")
        self.position = start + length
        return self._data[start : self.position]

    def part(self, length: int) -> Reader:
        """A reader of the next bytes alone, which counts them as taken here."""
        start = self.position
        if start + length > self._end:
            raise MalformedPacket("a packet ends too soon")
        self.position = start + length
        return Reader(self._data, start, self.position)

    def byte(self) -> int:
        """A number of one byte."""
        start = self.position
        if start >= self._end:
            raise MalformedPacket("a packet ends too soon")
        self.position = start + 1
        return self._data[start]

    def twoByteInteger(self) -> int:
        """A number of two bytes."""
        value: int = U16.unpack(self.take(2))[0]
        return value

    def fourByteInteger(self) -> int:
        """A number of four bytes."""
        value: int = U32.unpack(self.take(4))[0]
        return value

    def variableByteInteger(self) -> int:
        """
        A number of one to four bytes.

        @raise MalformedPacket: also where it has more bytes than it needs.
        """
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 21:
                raise MalformedPacket("a variable byte integer has more than four bytes")
        if shift and not byte:
            # [MQTT5-1.5.5-1]
            raise MalformedPacket("a variable byte integer is longer than it needs to be")
        return value

    def binary(self) -> bytes:
        """Binary data with its length."""
        return self.take(self.twoByteInteger())

    def text(self) -> str:
        """A UTF-8 encoded string."""
        return decodeText(self.take(self.twoByteInteger()))


@lru_cache(maxsize=4096)
def encodeVariableByteInteger(value: int) -> bytes:
    """
    A number in as few bytes as it needs [MQTT5-1.5.5-1].
    """
    if value < 0x80:
        return bytes((value,))
    if value > MAX_VARIABLE_BYTE_INTEGER:
        raise ValueError("too large for a variable byte integer")
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def encodeBinary(data: bytes) -> bytes:
    """Binary data with its length."""
    if len(data) > MAX_LENGTH:
        raise ValueError("longer than 65535 bytes")
    return U16.pack(len(data)) + data


def encodeText(text: str) -> bytes:
    """A UTF-8 encoded string."""
    return encodeBinary(text.encode("utf-8"))


def lengthSize(encoded: bytes, position: int = 0) -> int:
    """How many bytes the variable byte integer has that stands at a place."""
    size = 1
    while encoded[position + size - 1] >= 0x80:
        size += 1
    return size


def withoutLength(encoded: bytes) -> bytes:
    """What stands after the variable byte integer that something begins with."""
    return encoded[lengthSize(encoded) :]
