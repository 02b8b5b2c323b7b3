"""
Transactions, and the body of a block that holds them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import lru_cache
from hashlib import sha256
from itertools import accumulate, pairwise

from msgspec import Struct

from ..errors import BrokerError
from ..model import checkExtensions, checkTopicName
from ._encoding import U16, U32, Malformed, Reader
from ._merkle import leafHash

VERSION = 1
NO_CONTENT = sha256(b"").digest()

_FIXED = struct.Struct(">BB20sQQ32sH")
_PAIR = struct.Struct(">HH")

_SHORT = 64
_SIZE = U32.size

MAX_HEAD_SIZE = 20480
"""No transaction's head is longer: a name and extensions at their limits stay far below."""


class Kind(IntEnum):
    """What a transaction does. The numbers are part of the encoding."""

    OPEN = 1
    CLOSE = 2
    PUBLISH = 3
    VALIDATORS = 4


class Transaction(Struct, frozen=True, kw_only=True):
    """
    One request, as the chain holds it. Made for every event, so it is a C{msgspec} structure, which
    is made in a ninth of the time of another frozen value; so are other values here.

    Its I{head} is everything but the content, which it holds the hash of; so a transaction can
    be listed, and its place in a block proved, without its content.

    @ivar sender: the sender's address: 20 bytes.
    @ivar topic: the name of the topic that it is about; empty for a change of validators.
    @ivar content: the event's, or an encoded
        L{ValidatorChange<svcbroker.chain.ValidatorChange>}.
    @ivar nonce: the sender's number for it, from 1. The chain executes no number twice.
    @ivar timestamp: when it was submitted, in milliseconds since the epoch.
    @ivar head: its canonical encoding without the content.
    @ivar hash: the Merkle leaf hash of C{head}.
    @ivar size: how many bytes it takes in a block's body.
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
    size: int

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
            hash=leafHash(head),
            size=_SIZE + len(head) + len(content),
        )

    @classmethod
    def decode(cls, entry: bytes) -> Transaction:
        """
        Read a transaction as it stands in a body: its head, and the content up to the end.

        @raise Malformed: the head is not canonical, its name or extensions are not valid, or
            the content is not the one that the head names.
        """
        head = _Head.read(entry)
        content = entry[head.size :]
        if sha256(content).digest() != head.contentHash:
            raise Malformed("the content is not the one that the transaction names")
        head.check(hasContent=bool(content))
        encoded = entry[: head.size]
        return cls(
            kind=head.kind,
            sender=head.sender,
            nonce=head.nonce,
            timestamp=head.timestamp,
            topic=head.topic,
            extensions=head.extensions,
            content=content,
            head=encoded,
            hash=leafHash(encoded),
            size=_SIZE + len(entry),
        )


class _Head(Struct, frozen=True, kw_only=True):
    """A transaction's head, taken apart."""

    kind: Kind
    sender: bytes
    nonce: int
    timestamp: int
    contentHash: bytes
    topic: str
    extensions: Mapping[str, str]
    size: int

    @classmethod
    def read(cls, entry: bytes) -> _Head:
        reader = Reader(entry)
        version, number, sender, nonce, timestamp, contentHash, length = _FIXED.unpack(
            reader.take(_FIXED.size)
        )
        if version != VERSION:
            raise Malformed(f"transaction version {version} is not known")
        try:
            kind = Kind(number)
        except ValueError:
            raise Malformed(f"transaction kind {number} is not known") from None
        return cls(
            kind=kind,
            sender=sender,
            nonce=nonce,
            timestamp=timestamp,
            contentHash=contentHash,
            topic=reader.text(length),
            extensions=_decodeExtensions(reader),
            size=reader.position,
        )

    def check(self, hasContent: bool) -> None:
        """
        @raise Malformed: it is not valid for its kind.
        """
        if self.kind is Kind.VALIDATORS:
            if self.topic or self.extensions:
                raise Malformed("a change of validators has neither topic nor extensions")
            return
        if self.kind is not Kind.PUBLISH and (hasContent or self.extensions):
            raise Malformed("only a publish has content and extensions")
        try:
            checkTopicName(self.topic)
            checkExtensions(self.extensions)
        except BrokerError as error:
            raise Malformed(error.message) from None


class TransactionSummary(Struct, frozen=True, kw_only=True):
    """
    What can be said of a transaction without its content.

    @ivar sender: the sender's address: 20 bytes.
    @ivar topic: the name of the topic that it is about.
    @ivar hash: its hash.
    """

    sender: bytes
    topic: str
    hash: bytes

    @classmethod
    def decode(cls, entry: bytes) -> TransactionSummary:
        """
        Read the head of a transaction in a body.

        @param entry: its bytes, of which the first L{MAX_HEAD_SIZE} are enough.
        @raise Malformed: they do not begin with a head.
        """
        head = _Head.read(entry)
        return cls(sender=head.sender, topic=head.topic, hash=leafHash(entry[: head.size]))


def _encodeExtensions(extensions: Mapping[str, str] | None) -> bytes:
    if not extensions:
        return b"\x00\x00"
    if len(extensions) == 1:
        # Often, and then always the same: carriers mark their events.
        ((name, text),) = extensions.items()
        if len(name) + len(text) <= _SHORT:
            return _encodeShort(name, text)
    parts = [U16.pack(len(extensions))]
    for key, value in sorted(
        (key.encode("utf-8"), value.encode("utf-8")) for key, value in extensions.items()
    ):
        parts += (_PAIR.pack(len(key), len(value)), key, value)
    return b"".join(parts)


@lru_cache(maxsize=256)
def _encodeShort(key: str, value: str) -> bytes:
    name, text = key.encode("utf-8"), value.encode("utf-8")
    return b"\x00\x01" + _PAIR.pack(len(name), len(text)) + name + text


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
    The body of a block: how many transactions there are, how long each is, and they themselves.

    @return: the bytes, and where in them each transaction starts, and after the last of these
        the end.
    """
    count = len(transactions)
    parts: list[bytes] = []
    sizes: list[int] = []
    for transaction in transactions:
        head, content = transaction.head, transaction.content
        parts += (head, content)
        sizes.append(len(head) + len(content))
    table = struct.pack(f">I{count}I", count, *sizes)
    return table + b"".join(parts), list(accumulate(sizes, initial=len(table)))


def tableSize(count: int) -> int:
    """How many bytes a body has before the first of C{count} transactions."""
    return U32.size * (count + 1)


def decodeTable(table: bytes) -> Sequence[int]:
    """
    Where the transactions of a body start, and after the last of these the end.

    @param table: the first L{tableSize} bytes of the body, or more.
    @raise Malformed: that is no such beginning.
    """
    if len(table) < U32.size:
        raise Malformed("the body ends early")
    count: int = U32.unpack_from(table)[0]
    if len(table) < tableSize(count):
        raise Malformed("the body ends early")
    sizes = struct.unpack_from(f">{count}I", table, U32.size)
    return list(accumulate(sizes, initial=tableSize(count)))


def transactionHashes(body: bytes, offsets: Sequence[int]) -> Sequence[bytes]:
    """
    The hashes of the transactions of a block that is known to be good.

    @param offsets: what L{decodeTable} gave.
    @raise Malformed: it is not good.
    """
    hashes = []
    try:
        for start, end in pairwise(offsets):
            at = start + _FIXED.size
            at += U16.unpack_from(body, at - U16.size)[0]
            (extensions,) = U16.unpack_from(body, at)
            at += U16.size
            for _ in range(extensions):
                keySize, valueSize = _PAIR.unpack_from(body, at)
                at += _PAIR.size + keySize + valueSize
            if at > end:
                raise Malformed("a transaction ends early")
            hashes.append(sha256(b"\x00" + body[start:at]).digest())
    except struct.error:
        raise Malformed("the body ends early") from None
    return hashes


def decodeBody(body: bytes) -> Sequence[Transaction]:
    """
    The transactions of a block.

    @raise Malformed: the bytes are not a body.
    """
    offsets = decodeTable(body)
    if offsets[-1] != len(body):
        raise Malformed("the body is not as long as it says")
    return [Transaction.decode(body[start:end]) for start, end in pairwise(offsets)]
