"""
Transactions, and the body of a block that holds them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from hashlib import sha256

from attrs import frozen

from ..errors import BrokerError
from ..model import checkExtensions, checkTopicName
from ._encoding import U16, U32, Malformed, Reader

VERSION = 1
NO_CONTENT = sha256(b"").digest()

_FIXED = struct.Struct(">BB20sQQ32sH")
_PAIR = struct.Struct(">HH")
_ENTRY = struct.Struct(">II")


class Kind(IntEnum):
    """What a transaction does. The numbers are part of the encoding."""

    OPEN = 1
    CLOSE = 2
    PUBLISH = 3


@frozen(kw_only=True)
class Transaction:
    """
    One request, as the chain holds it.

    Its I{head} is everything but the content, which it holds the hash of; so a transaction can
    be listed, and its place in a block proved, without its content.

    @ivar sender: the sender's address: 20 bytes.
    @ivar nonce: the sender's number for it, from 1. The chain executes no number twice.
    @ivar timestamp: when it was submitted, in milliseconds since the epoch.
    @ivar head: its canonical encoding without the content.
    @ivar hash: the Merkle leaf hash of C{head}.
    """

    kind: Kind
    sender: bytes
    nonce: int
    timestamp: int
    topic: str
    extensions: Mapping[str, str]
    content: bytes
    head: bytes
    hash: bytes

    @classmethod
    def create(
        cls,
        kind: Kind,
        sender: bytes,
        nonce: int,
        timestamp: int,
        topic: str,
        content: bytes = b"",
        extensions: Mapping[str, str] | None = None,
    ) -> Transaction:
        """
        Make a transaction from what it means. Name, content and extensions are valid.
        """
        contentHash = sha256(content).digest() if content else NO_CONTENT
        name = topic.encode("utf-8")
        head = (
            _FIXED.pack(VERSION, kind, sender, nonce, timestamp, contentHash, len(name))
            + name
            + _encodeExtensions(extensions)
        )
        return cls(
            kind=kind,
            sender=sender,
            nonce=nonce,
            timestamp=timestamp,
            topic=topic,
            extensions=extensions or {},
            content=content,
            head=head,
            hash=sha256(b"\x00" + head).digest(),
        )

    @classmethod
    def decode(cls, head: bytes, content: bytes) -> Transaction:
        """
        Read a transaction.

        @raise Malformed: the head is not canonical, its name or extensions are not valid, or
            C{content} is not the content that the head names.
        """
        reader = Reader(head)
        version, number, sender, nonce, timestamp, contentHash, length = _FIXED.unpack(
            reader.take(_FIXED.size)
        )
        if version != VERSION:
            raise Malformed(f"transaction version {version} is not known")
        try:
            kind = Kind(number)
        except ValueError:
            raise Malformed(f"transaction kind {number} is not known") from None
        topic = reader.text(length)
        extensions = _decodeExtensions(reader)
        reader.finish()
        if kind is not Kind.PUBLISH and (content or extensions):
            raise Malformed("only a publish has content and extensions")
        if sha256(content).digest() != contentHash:
            raise Malformed("the content is not the one that the transaction names")
        try:
            checkTopicName(topic)
            checkExtensions(extensions)
        except BrokerError as error:
            raise Malformed(error.message) from None
        return cls(
            kind=kind,
            sender=sender,
            nonce=nonce,
            timestamp=timestamp,
            topic=topic,
            extensions=extensions,
            content=content,
            head=head,
            hash=sha256(b"\x00" + head).digest(),
        )

    @property
    def size(self) -> int:
        """How many bytes it takes in a block's body."""
        return _ENTRY.size + len(self.head) + len(self.content)


def _encodeExtensions(extensions: Mapping[str, str] | None) -> bytes:
    if not extensions:
        return b"\x00\x00"
    parts = [U16.pack(len(extensions))]
    for key, value in sorted(
        (key.encode("utf-8"), value.encode("utf-8")) for key, value in extensions.items()
    ):
        parts += (_PAIR.pack(len(key), len(value)), key, value)
    return b"".join(parts)


def _decodeExtensions(reader: Reader) -> dict[str, str]:
    extensions: dict[str, str] = {}
    last = b""
    for position in range(reader.number(U16)):
        keySize, valueSize = _PAIR.unpack(reader.take(_PAIR.size))
        key = reader.text(keySize)
        encoded = key.encode("utf-8")
        if position and encoded <= last:
            raise Malformed("extensions are not in the order of their keys")
        last = encoded
        extensions[key] = reader.text(valueSize)
    return extensions


def encodeBody(transactions: Sequence[Transaction]) -> tuple[bytes, Sequence[int]]:
    """
    The body of a block.

    @return: the bytes, and the offset of each transaction's entry in them. An entry ends where
        the next one starts; L{decodeEntry} reads one alone.
    """
    parts: list[bytes] = [U32.pack(len(transactions))]
    offsets: list[int] = []
    position = U32.size
    for transaction in transactions:
        offsets.append(position)
        head, content = transaction.head, transaction.content
        parts += (_ENTRY.pack(len(head), len(content)), head, content)
        position += _ENTRY.size + len(head) + len(content)
    return b"".join(parts), offsets


def decodeBody(body: bytes) -> Sequence[Transaction]:
    """
    The transactions of a block.

    @raise Malformed: the bytes are not a body.
    """
    reader = Reader(body)
    count = reader.number(U32)
    transactions = [_readEntry(reader) for _ in range(count)] if count <= len(body) else []
    if len(transactions) != count:
        raise Malformed("the body cannot hold as many transactions as it says")
    reader.finish()
    return transactions


def decodeEntry(entry: bytes) -> Transaction:
    """
    One transaction out of a body.

    @raise Malformed: the bytes are not one transaction.
    """
    reader = Reader(entry)
    transaction = _readEntry(reader)
    reader.finish()
    return transaction


def _readEntry(reader: Reader) -> Transaction:
    headSize, contentSize = _ENTRY.unpack(reader.take(_ENTRY.size))
    return Transaction.decode(reader.take(headSize), reader.take(contentSize))


def bodySize(transactions: Iterable[Transaction]) -> int:
    """How many bytes the body of these transactions has."""
    return U32.size + sum(transaction.size for transaction in transactions)
