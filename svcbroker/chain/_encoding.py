"""
Canonical bytes: reading fields, encoding extensions, and deriving addresses.

B{Frozen bytes}: pinned by C{addresses}, and extensions by C{transactions}, in
C{docs/vectors/chain.json}.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256

U16 = struct.Struct(">H")

U32 = struct.Struct(">I")

U64 = struct.Struct(">Q")

PAIR = struct.Struct(">HH")
"""The lengths of an extension's key and value."""

_SHORT = 64

ADDRESS_SIZE = 20


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


def _derive(tag: bytes, chain: bytes, name: str) -> bytes:
    return sha256(tag + chain + name.encode("utf-8")).digest()[-ADDRESS_SIZE:]


@lru_cache(maxsize=4096)
def topicAddress(chain: bytes, name: str) -> bytes:
    """
    The address of a topic on a chain.

    @param chain: the chain's id: the hash of its genesis.
    """
    return _derive(b"svcbroker/topic\x00", chain, name)


@lru_cache(maxsize=4096)
def accountAddress(chain: bytes, name: str) -> bytes:
    """
    The address of an account that has no key of its own, but a name.

    @param chain: the chain's id: the hash of its genesis.
    """
    return _derive(b"svcbroker/account\x00", chain, name)


@lru_cache(maxsize=4096)
def keyAddress(chain: bytes, key: bytes) -> bytes:
    """
    The address of an account that has a key.

    @param chain: the chain's id: the hash of its genesis.
    @param key: its Ed25519 public key: 32 bytes.
    """
    return sha256(b"svcbroker/key\x00" + chain + key).digest()[-ADDRESS_SIZE:]
