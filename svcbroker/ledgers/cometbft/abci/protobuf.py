"""
Protobuf messages as frozen values: fields are declared with their numbers, the codec follows.

    >>> @frozen(kw_only=True)
    ... class Vote:
    ...     height: int = int64(2)
    ...     blockId: BlockId | None = message(4, BlockId)

Encoding is canonical, byte for byte what the engine's own encoder makes: fields by number, and
none that has its default, but those that it always writes (L{part}, L{time}).

Decoding follows proto3: unknown fields are skipped, of a field that comes twice the last counts,
messages that come twice are merged, lists of numbers may be packed or not. Two things are
stricter: text is UTF-8, and an enumeration has only values that are known.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final, TypeVar

import attrs
from attrs import frozen

from ....proofs.cometbft.wire import (
    DELIMITED,
    VARINT,
    WireMalformed,
    checkTag,
    delimited,
    encodeTag,
    encodeVarint,
    readLength,
    readVarint,
    signed32,
    signed64,
    skipField,
    unsigned32,
)

T = TypeVar("T")

_META: Final = "svcbroker.field"
SECOND: Final = 1_000_000_000
"""Nanoseconds."""

# The years 1 to 9999, which are all that a timestamp can hold.
_MIN_TIME: Final = -62_135_596_800
_MAX_TIME: Final = 253_402_300_799


@frozen
class _Field:
    """
    The form of a field on the wire.

    @ivar number: of the field.
    @ivar kind: the wire type of one value.
    @ivar encode: the content of one value, without tag; what is equal to C{default} is left out.
    @ivar convert: a number as it was read, to the value (wire type C{VARINT}).
    @ivar take: bytes and where the content begins and ends, to the value (C{DELIMITED}).
    @ivar isList: whether there are any number of values.
    @ivar isMessage: whether one that comes twice is merged.
    @ivar group: the name of the C{oneof} that the field belongs to.
    """

    number: int
    kind: int
    encode: Callable[[Any], bytes]
    convert: Callable[[int], Any] = int
    take: Callable[[bytes, int, int], Any] = lambda data, start, end: data[start:end]
    default: object = None
    isAlways: bool = False
    isList: bool = False
    isMessage: bool = False
    group: str = ""


def _declare(field: _Field) -> Any:
    default: Any = () if field.isList else field.default
    return attrs.field(default=default, metadata={_META: field})


def _number(
    number: int, low: int, high: int, convert: Callable[[int], Any], isList: bool = False
) -> Any:
    def encode(value: int) -> bytes:
        if not low <= value <= high:
            raise ValueError(f"field {number} cannot be {value}")
        return encodeVarint(value)

    return _declare(_Field(number, VARINT, encode, convert, default=0, isList=isList))


def uint64(number: int) -> Any:
    """A number from 0 to 2**64 - 1."""
    return _number(number, 0, (1 << 64) - 1, int)


def int64(number: int) -> Any:
    """A number of 64 bits with a sign."""
    return _number(number, -(1 << 63), (1 << 63) - 1, signed64)


def uint32(number: int) -> Any:
    """A number from 0 to 2**32 - 1."""
    return _number(number, 0, (1 << 32) - 1, unsigned32)


def uint32s(number: int) -> Any:
    """A tuple of numbers from 0 to 2**32 - 1, which are packed."""
    return _number(number, 0, (1 << 32) - 1, unsigned32, isList=True)


def int32(number: int) -> Any:
    """A number of 32 bits with a sign."""
    return _number(number, -(1 << 31), (1 << 31) - 1, signed32)


def enumeration(number: int, kind: type[IntEnum]) -> Any:
    """A value of C{kind}, whose 0 is the default."""

    def convert(value: int) -> IntEnum:
        try:
            return kind(signed32(value))
        except ValueError:
            raise WireMalformed(f"{kind.__name__} has no value {signed32(value)}") from None

    return _declare(_Field(number, VARINT, encodeVarint, convert, default=kind(0)))


def binary(number: int) -> Any:
    """Bytes."""
    return _declare(_Field(number, DELIMITED, delimited, default=b""))


def binaries(number: int) -> Any:
    """A tuple of bytes."""
    return _declare(_Field(number, DELIMITED, delimited, isList=True))


def choice(number: int, group: str) -> Any:
    """Bytes that are one of several; C{None} where it is another one, or none at all."""
    return _declare(_Field(number, DELIMITED, delimited, group=group))


def _takeText(data: bytes, start: int, end: int) -> str:
    try:
        return data[start:end].decode("utf-8")
    except UnicodeDecodeError:
        raise WireMalformed("a text is not UTF-8") from None


def _encodeText(value: str) -> bytes:
    return delimited(value.encode("utf-8"))


def text(number: int) -> Any:
    """Text."""
    return _declare(_Field(number, DELIMITED, _encodeText, take=_takeText, default=""))


def texts(number: int) -> Any:
    """A tuple of texts."""
    return _declare(_Field(number, DELIMITED, _encodeText, take=_takeText, isList=True))


def _nested(number: int, kind: type, **options: Any) -> Any:
    def take(data: bytes, start: int, end: int) -> object:
        return _decode(kind, data, start, end)

    def encoded(value: object) -> bytes:
        return delimited(encode(value))

    return _declare(_Field(number, DELIMITED, encoded, take=take, **options))


def message(number: int, kind: type) -> Any:
    """A message of C{kind}; C{None} where there is none."""
    return _nested(number, kind, isMessage=True)


def part(number: int, kind: type) -> Any:
    """A message of C{kind} that is always written; all defaults where there is none."""
    return _nested(number, kind, isMessage=True, isAlways=True, default=kind())


def messages(number: int, kind: type) -> Any:
    """A tuple of messages of C{kind}."""
    return _nested(number, kind, isList=True)


def time(number: int) -> Any:
    """A time in nanoseconds since 1970, which is always written."""

    def encoded(value: int) -> bytes:
        return delimited(encodeTime(value))

    return _declare(
        _Field(number, DELIMITED, encoded, take=_takeTime, default=0, isAlways=True, isMessage=True)
    )


@frozen(kw_only=True)
class _Timestamp:
    """C{google.protobuf.Timestamp}."""

    seconds: int = int64(1)
    nanos: int = int32(2)


def encodeTime(value: int) -> bytes:
    """
    The message C{google.protobuf.Timestamp}, without tag or length.

    @param value: nanoseconds since 1970.
    @raise ValueError: the year has more than four digits, or less than one.
    """
    seconds, nanos = divmod(value, SECOND)
    if not _MIN_TIME <= seconds <= _MAX_TIME:
        raise ValueError("a time is out of range")
    return encode(_Timestamp(seconds=seconds, nanos=nanos))


def _takeTime(data: bytes, start: int, end: int) -> int:
    stamp = _decode(_Timestamp, data, start, end)
    if not (_MIN_TIME <= stamp.seconds <= _MAX_TIME and 0 <= stamp.nanos < SECOND):
        raise WireMalformed("a time is out of range")
    return stamp.seconds * SECOND + stamp.nanos


# What one class of messages looks like: (name, tag, field) by number, and by tag as it is read.
_Plan = tuple[list[tuple[str, bytes, _Field]], dict[int, tuple[str, _Field]], frozenset[int]]


_plans: dict[type, _Plan] = {}


def _planOf(kind: type) -> _Plan:
    try:
        return _plans[kind]
    except KeyError:
        return _plans.setdefault(kind, _makePlan(kind))


def _makePlan(kind: type) -> _Plan:
    declared = [
        (attribute.name, attribute.metadata[_META])
        for attribute in attrs.fields(kind)
        if _META in attribute.metadata
    ]
    declared.sort(key=lambda each: int(each[1].number))
    byNumber: list[tuple[str, bytes, _Field]] = []
    byTag: dict[int, tuple[str, _Field]] = {}
    for name, field in declared:
        isPacked = field.isList and field.kind == VARINT
        kinds = [field.kind, DELIMITED] if isPacked else [field.kind]
        byTag.update({field.number << 3 | each: (name, field) for each in kinds})
        byNumber.append((name, encodeTag(field.number, kinds[-1]), field))
    numbers = frozenset(field.number for _, field in declared)
    if len(numbers) != len(declared):
        raise TypeError(f"{kind.__name__} has a number twice")
    return byNumber, byTag, numbers


def encode(value: object) -> bytes:
    """
    A message as bytes.

    @param value: of a class whose fields are declared with the functions of this module.
    @raise ValueError: a field has a value that cannot be written.
    """
    out: list[bytes] = []
    for name, tag, field in _planOf(type(value))[0]:
        content = getattr(value, name)
        if field.isList:
            if content and field.kind == VARINT:
                out += (tag, delimited(b"".join(map(field.encode, content))))
            elif content:
                for each in content:
                    out += (tag, field.encode(each))
        elif field.isAlways or content != field.default:
            out += (tag, field.encode(content))
    return b"".join(out)


def decode(kind: type[T], data: bytes, start: int = 0, end: int | None = None) -> T:
    """
    Read a message.

    @param kind: its class.
    @param start: where in C{data} it begins.
    @param end: where it ends; the end of C{data} where that is not said.
    @raise WireMalformed: this is no such message.
    """
    return _decode(kind, data, start, len(data) if end is None else end)


def _decode(kind: type[T], data: bytes, position: int, end: int) -> T:
    _, byTag, numbers = _planOf(kind)
    values: dict[str, Any] = {}
    merged: dict[str, tuple[_Field, list[bytes]]] = {}
    while position < end:
        tag, position = readVarint(data, position, end)
        found = byTag.get(tag)
        if found is None:
            number, wireType = checkTag(tag)
            if number in numbers:
                raise WireMalformed(f"field {number} of {kind.__name__} has wire type {wireType}")
            position = skipField(data, tag, position, end)
            continue
        name, field = found
        start = position
        if tag & 7 == DELIMITED:
            start, position = readLength(data, position, end)
            if field.isMessage:
                merged.setdefault(name, (field, []))[1].append(data[start:position])
                continue
            if field.kind == VARINT:
                values.setdefault(name, []).extend(_unpack(field, data, start, position))
                continue
            value = field.take(data, start, position)
        else:
            bare, position = readVarint(data, position, end)
            value = field.convert(bare)
        if field.isList:
            values.setdefault(name, []).append(value)
            continue
        if field.group:
            _leave(field.group, byTag, values)
        values[name] = value
    for name, (field, pieces) in merged.items():
        # Messages one after the other are the message that they make together.
        whole = b"".join(pieces)
        values[name] = field.take(whole, 0, len(whole))
    for name, value in values.items():
        if type(value) is list:
            values[name] = tuple(value)
    return kind(**values)


def _unpack(field: _Field, data: bytes, position: int, end: int) -> list[Any]:
    out: list[Any] = []
    while position < end:
        bare, position = readVarint(data, position, end)
        out.append(field.convert(bare))
    return out


def _leave(group: str, byTag: dict[int, tuple[str, _Field]], values: dict[str, Any]) -> None:
    """Another member of a C{oneof} has come: those before it do not count."""
    for name, field in byTag.values():
        if field.group == group:
            values.pop(name, None)
