"""
The encoding of extensions, in heads and in seals.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import lru_cache

from ._encoding import U16, Malformed, Reader

PAIR = struct.Struct(">HH")
"""The lengths of an extension's key and value."""

_SHORT = 64


def encodeExtensions(extensions: Mapping[str, str] | None) -> bytes:
    """Their canonical encoding."""
    if not extensions:
        return b"\x00\x00"
    if len(extensions) == 1:
        # Often, and then always the same: carriers mark their events.
        ((name, text),) = extensions.items()
        if len(name) + len(text) <= _SHORT:
            return _encodeShort(name, text)
    parts = [U16.pack(len(extensions))]
    for key, value in sortedExtensions(extensions):
        parts += (PAIR.pack(len(key), len(value)), key, value)
    return b"".join(parts)


def sortedExtensions(extensions: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Their keys and values in UTF-8, in the order of the keys."""
    return sorted((key.encode("utf-8"), value.encode("utf-8")) for key, value in extensions.items())


@lru_cache(maxsize=256)
def _encodeShort(key: str, value: str) -> bytes:
    name, text = key.encode("utf-8"), value.encode("utf-8")
    return b"\x00\x01" + PAIR.pack(len(name), len(text)) + name + text


def decodeExtensions(reader: Reader) -> dict[str, str]:
    """
    Take extensions off some bytes.

    @raise Malformed: they do not begin with extensions, or these are not in order.
    """
    extensions: dict[str, str] = {}
    last = b""
    for position in range(reader.number(U16)):
        keySize, valueSize = PAIR.unpack(reader.take(PAIR.size))
        key = reader.text(keySize)
        encoded = key.encode("utf-8")
        if position and encoded <= last:
            raise Malformed("extensions are not in the order of their keys")
        last = encoded
        extensions[key] = reader.text(valueSize)
    return extensions
