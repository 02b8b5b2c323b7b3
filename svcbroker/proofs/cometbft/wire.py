"""
The protobuf encoding, proto3: varints, tags, lengths, and how to skip unknown fields.

Messages are declared with L{svcbroker.ledgers.cometbft.abci.protobuf}. This module knows bytes
only; verifiers use it without a daemon.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

VARINT: Final = 0
FIXED64: Final = 1
DELIMITED: Final = 2
_GROUP: Final = 3
_GROUP_END: Final = 4
_FIXED32: Final = 5

MAX_NUMBER: Final = (1 << 29) - 1
"""The highest number that a field can have."""

_MAX_VARINT: Final = 10
_MAX_DEPTH: Final = 100
_BITS64: Final = (1 << 64) - 1
_BITS32: Final = (1 << 32) - 1


class WireMalformed(ValueError):
    """
    Bytes that are not what they should be. Nothing of them can be used.
    """


def encodeVarint(value: int) -> bytes:
    """
    A whole number as a varint; a negative one as 64 bits in two's complement.

    @raise ValueError: it does not fit into 64 bits.
    """
    if 0 <= value < 0x80:
        return _SMALL[value]
    if not -(1 << 63) <= value <= _BITS64:
        raise ValueError("a number does not fit into 64 bits")
    value &= _BITS64
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_SMALL: Final = tuple(bytes((value,)) for value in range(0x80))


def readVarint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """
    Read a varint.

    @param data: bytes that hold it.
    @param position: where it begins.
    @param end: where the bytes that may be read end.
    @return: the number, below 2**64, and where it ends.
    @raise Malformed: it ends too late or not at all, or has more than 64 bits.
    """
    if position < end and data[position] < 0x80:
        return data[position], position + 1
    value = shift = 0
    for at in range(position, min(end, position + _MAX_VARINT)):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > _BITS64:
                raise WireMalformed("a varint has more than 64 bits")
            return value, at + 1
        shift += 7
    if end - position >= _MAX_VARINT:
        raise WireMalformed("a varint has more than ten bytes")
    raise WireMalformed("a varint ends too soon")


def readLength(data: bytes, position: int, end: int) -> tuple[int, int]:
    """
    Read the length of what follows.

    @return: where it begins, and where it ends.
    @raise Malformed: it does not end where it should.
    """
    length, start = readVarint(data, position, end)
    if length > end - start:
        raise WireMalformed("a field is longer than what it stands in")
    return start, start + length


def signed64(value: int) -> int:
    """The signed number that stands in 64 bits."""
    return value - (1 << 64) if value >> 63 else value


def signed32(value: int) -> int:
    """The signed number that stands in the lowest 32 bits; proto3 drops the rest."""
    value &= _BITS32
    return value - (1 << 32) if value >> 31 else value


def unsigned32(value: int) -> int:
    """The lowest 32 bits; proto3 drops the rest."""
    return value & _BITS32


def skipField(data: bytes, tag: int, position: int, end: int) -> int:
    """
    Pass over the value of a field that is not known.

    @param tag: its number and wire type, as they stand before it.
    @param position: where the value begins.
    @return: where it ends.
    @raise Malformed: it is no field.
    """
    open_: list[int] = []
    while True:
        number, kind = checkTag(tag)
        if kind == VARINT:
            _, position = readVarint(data, position, end)
        elif kind == DELIMITED:
            _, position = readLength(data, position, end)
        elif kind == FIXED64:
            position += 8
        elif kind == _FIXED32:
            position += 4
        elif kind == _GROUP:
            if len(open_) == _MAX_DEPTH:
                raise WireMalformed("groups stand too deep in one another")
            open_.append(number)
        elif kind != _GROUP_END or not open_ or open_.pop() != number:
            raise WireMalformed(f"field {number} has wire type {kind}")
        if position > end:
            raise WireMalformed("a field ends too soon")
        if not open_:
            return position
        tag, position = readVarint(data, position, end)


def checkTag(tag: int) -> tuple[int, int]:
    """
    The number and the wire type that stand in a tag.

    @raise Malformed: no field has such a number.
    """
    number = tag >> 3
    if not 0 < number <= MAX_NUMBER:
        raise WireMalformed("a field has a number out of range")
    return number, tag & 7


def fields(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """
    Walk over the fields of a message, whatever they are.

    @return: of each its number, its wire type, where its content begins and where that ends; the
        content of a delimited one is without the length.
    @raise Malformed: this is no message.
    """
    position, end = 0, len(data)
    while position < end:
        tag, position = readVarint(data, position, end)
        number, kind = checkTag(tag)
        if kind == DELIMITED:
            start, position = readLength(data, position, end)
        else:
            start, position = position, skipField(data, tag, position, end)
        yield number, kind, start, position


def encodeTag(number: int, kind: int) -> bytes:
    """The tag that stands before a field."""
    if not 0 < number <= MAX_NUMBER:
        raise ValueError("a field has a number out of range")
    return encodeVarint(number << 3 | kind)


def delimited(data: bytes) -> bytes:
    """Bytes with their length before them."""
    return encodeVarint(len(data)) + data
