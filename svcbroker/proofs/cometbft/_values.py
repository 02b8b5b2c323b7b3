"""
The engine's values: headers, commits, validators, as its JSON gives them.

The names in JSON are the engine's own. Its JSON writes 64-bit numbers as text, hashes in
hexadecimal and keys and signatures in base64. What is written here has numbers as numbers.

Many names: they are the values of the engine's header, commit and validators.
"""

from __future__ import annotations

import binascii
import re
import struct
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from functools import lru_cache
from hashlib import sha256
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec import Meta, Struct, field

from ...chain import leafHash, merkleRoot
from .wire import DELIMITED, FIXED64, VARINT, delimited, encodeTag, encodeVarint

T = TypeVar("T")

ADDRESS_SIZE = 20
ED25519 = "tendermint/PubKeyEd25519"
"""The engine's name of a public key of the one kind that this ledger uses."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z", re.ASCII)
_CAPITAL = re.compile("[A-Z]")


Natural = Annotated[int, Meta(ge=0, le=2**63 - 1)]
"""A number that the engine keeps in 64 bits with a sign, and that is never below 0."""
Power = Annotated[int, Meta(ge=1, le=2**60)]
"""The weight of a vote; the engine bounds the sum of all by 2**60."""


class BadAnswer(ValueError):
    """JSON that is not what the engine writes. The text says where it is not."""


class Hex(bytes):
    """Bytes that are written as hexadecimal digits, in capitals."""


class Base64(bytes):
    """Bytes that are written in base64."""


class Instant(int):
    """A time in nanoseconds since the epoch, written as RFC 3339 says."""

    def __str__(self) -> str:
        seconds, nanos = divmod(int(self), 10**9)
        moment = _EPOCH + timedelta(seconds=seconds)
        fraction = f".{nanos:09}".rstrip("0") if nanos else ""
        # strftime does not fill up years of fewer than four digits.
        return f"{moment.replace(tzinfo=None).isoformat()}{fraction}Z"

    @classmethod
    def parse(cls, text: str) -> Instant:
        """
        Read one.

        @raise ValueError: it is not a time in UTC.
        """
        match = _TIME.fullmatch(text)
        if match is None:
            raise ValueError("not a time in UTC")
        whole = datetime.fromisoformat(match[1]).replace(tzinfo=UTC) - _EPOCH
        seconds = whole.days * 86400 + whole.seconds
        return cls(seconds * 10**9 + int((match[2] or "").ljust(9, "0")))


def engineName(name: str) -> str:
    """The name of a field of ours in the engine's JSON."""
    return _CAPITAL.sub(lambda match: f"_{match[0].lower()}", name)


class Wire(Struct, frozen=True, kw_only=True, rename=engineName):
    """A value that the engine writes as an object. Unused fields are left out."""


class PartSetHeader(Wire, frozen=True, kw_only=True):
    """The parts that a block was sent in."""

    total: Natural
    hash: Hex


class BlockId(Wire, frozen=True, kw_only=True):
    """The id of a block, for which votes are."""

    hash: Hex
    parts: PartSetHeader


class Version(Wire, frozen=True, kw_only=True):
    """The versions of the engine's blocks and of the application."""

    block: Natural
    app: Natural = 0


class EngineHeader(Wire, frozen=True, kw_only=True):
    """
    An engine's block header.

    @ivar appHash: what the application said after the block before.
    """

    version: Version
    chainId: str
    height: Natural
    time: Instant
    lastBlockId: BlockId
    lastCommitHash: Hex
    dataHash: Hex
    validatorsHash: Hex
    nextValidatorsHash: Hex
    consensusHash: Hex
    appHash: Hex
    lastResultsHash: Hex
    evidenceHash: Hex
    proposerAddress: Hex


class BlockFlag(IntEnum):
    """The kind of a validator's entry in a commit."""

    ABSENT = 1
    COMMIT = 2
    NIL = 3


class CommitSignature(Wire, frozen=True, kw_only=True):
    """
    A validator's entry in a commit.

    @ivar flag: a L{BlockFlag}.
    """

    flag: int = field(name="block_id_flag")
    validatorAddress: Hex
    timestamp: Instant
    signature: Base64 | None


class Commit(Wire, frozen=True, kw_only=True):
    """
    The votes that make a block final, in the order of its validators.
    """

    height: Natural
    round: Natural
    blockId: BlockId
    signatures: tuple[CommitSignature, ...]


class PublicKey(Wire, frozen=True, kw_only=True):
    """A validator's key."""

    type: str
    value: Base64


class Validator(Wire, frozen=True, kw_only=True):
    """
    A node that decides.

    @ivar power: the weight of its vote.
    """

    pubKey: PublicKey
    power: Power = field(name="voting_power")

    @property
    def address(self) -> bytes:
        """The address, as the engine calls it elsewhere."""
        return addressOf(self.pubKey.value)


class Member(NamedTuple):
    """
    A validator as the hash of its set covers it.

    @ivar key: its Ed25519 public key.
    @ivar power: the weight of its vote.
    """

    key: Base64
    power: Power


def addressOf(key: bytes) -> bytes:
    """
    The address of a public key: also the id of a node, in hexadecimal, for a node's key.
    """
    return sha256(key).digest()[:ADDRESS_SIZE]


def inOrder(members: Iterable[Member]) -> tuple[Member, ...]:
    """
    Validators in the engine's order: the strong first, then by address.
    """
    return tuple(sorted(members, key=lambda each: (-each.power, addressOf(each.key))))


def engineOrder(keys: Iterable[bytes]) -> tuple[bytes, ...]:
    """
    Public keys in the engine's order of validators of equal power: by address.
    """
    return tuple(sorted(keys, key=addressOf))


def _read(kind: type, value: Any) -> Any:
    """A value of a kind that JSON does not have."""
    if not isinstance(value, str):
        raise ValueError("not text")
    if kind is Hex:
        return Hex.fromhex(value)
    if kind is Base64:
        try:
            data = b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise ValueError("not base64") from None
        return Base64(data)
    if kind is Instant:
        return Instant.parse(value)
    raise NotImplementedError(kind)


def _write(value: Any) -> Any:
    if isinstance(value, Hex):
        return value.hex().upper()
    if isinstance(value, Base64):
        return b64encode(value).decode("ascii")
    if isinstance(value, Instant):
        return str(value)
    raise NotImplementedError(type(value))


def makeDecoder(kind: type[T]) -> Callable[[bytes], T]:
    """
    Make a reader of one kind of the engine's answers in JSON.

    @return: a function that raises L{BadAnswer}.
    """
    decoder = msgspec.json.Decoder(kind, strict=False, dec_hook=_read)

    def decode(data: bytes) -> T:
        try:
            return decoder.decode(data)
        except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
            raise BadAnswer(str(error)) from error

    return decode


def fromBuiltins(value: Any, kind: type[T]) -> T:
    """
    Read what L{toBuiltins} gave.

    @raise BadAnswer: it is not that.
    """
    try:
        read = msgspec.convert(value, kind, strict=True, dec_hook=_read)
        # There is one way to write a value, so a proof has one encoding only.
        if _canonical(toBuiltins(read)) != _canonical(value):
            raise BadAnswer("it is not written the way it is always written")
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
        raise BadAnswer(str(error)) from error
    return read


def _canonical(value: Any) -> bytes:
    return msgspec.json.encode(value, order="deterministic")


def toBuiltins(value: Any) -> Any:
    """A value as what JSON has: objects, lists, text and numbers."""
    return msgspec.to_builtins(value, enc_hook=_write)


_PRECOMMIT = 2
_FIXED = struct.Struct("<q")


def _number(field: int, value: int) -> bytes:
    """A number field, left out where it is 0. Negative ones take ten bytes."""
    return encodeTag(field, VARINT) + encodeVarint(value) if value else b""


def _fixed(field: int, value: int) -> bytes:
    return encodeTag(field, FIXED64) + _FIXED.pack(value) if value else b""


def _message(field: int, data: bytes) -> bytes:
    """An embedded message, written even if it is empty."""
    return encodeTag(field, DELIMITED) + delimited(data)


def _bytes(field: int, data: bytes) -> bytes:
    """A field of bytes, left out if it is empty."""
    return _message(field, data) if data else b""


def _text(field: int, text: str) -> bytes:
    return _bytes(field, text.encode("utf-8"))


def _instant(time: int) -> bytes:
    seconds, nanos = divmod(time, 10**9)
    return _number(1, seconds) + _number(2, nanos)


def _blockId(value: BlockId) -> bytes:
    """A block id, encoded alike in headers and in votes."""
    parts = _number(1, value.parts.total) + _bytes(2, value.parts.hash)
    return _bytes(1, value.hash) + _message(2, parts)


@lru_cache(maxsize=64)
def headerHash(header: EngineHeader) -> bytes:
    """
    The hash of a block: the root over its header's fields. A block is hashed when it is made from
    answers, and when it is checked.
    """
    fields = (
        _number(1, header.version.block) + _number(2, header.version.app),
        _text(1, header.chainId),
        _number(1, header.height),
        _instant(header.time),
        _blockId(header.lastBlockId),
        _bytes(1, header.lastCommitHash),
        _bytes(1, header.dataHash),
        _bytes(1, header.validatorsHash),
        _bytes(1, header.nextValidatorsHash),
        _bytes(1, header.consensusHash),
        _bytes(1, header.appHash),
        _bytes(1, header.lastResultsHash),
        _bytes(1, header.evidenceHash),
        _bytes(1, header.proposerAddress),
    )
    return merkleRoot([leafHash(field) for field in fields])


def validatorsHash(members: Sequence[Member]) -> bytes:
    """
    The hash of a validator set, in the engine's order.
    """
    return merkleRoot(
        [
            leafHash(_message(1, _message(1, member.key)) + _number(2, member.power))
            for member in members
        ]
    )


def votePayload(chainId: str, height: int, round: int, blockId: BlockId, time: int) -> bytes:
    """
    The sign bytes of a precommit.
    """
    before, after = _aroundTime(chainId, height, round, blockId)
    return delimited(before + _message(5, _instant(time)) + after)


@lru_cache(maxsize=64)
def _aroundTime(chainId: str, height: int, round: int, blockId: BlockId) -> tuple[bytes, bytes]:
    """The fields of a precommit before and after its time, which all votes for a block share."""
    before = (
        _number(1, _PRECOMMIT),
        _fixed(2, height),
        _fixed(3, round),
        _message(4, _blockId(blockId)),
    )
    return b"".join(before), _text(6, chainId)
