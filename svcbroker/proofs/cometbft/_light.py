"""
Light verification: a block is final if its validators have signed its header.

Everything here is pure: no Twisted, no clock, no network. A L{Trust} begins with the genesis, or
with a trusted header, and follows light blocks: each header names the validator set of the next
block.

The assumption is that of each set on the way, less than a third of the power ever signs a fork,
also after it has left the set. The engine's own light client limits this to a trusting period.
There is none here, because proofs may be years old.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from hashlib import sha512
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from attrs import frozen
from nacl.bindings import crypto_sign_open
from nacl.exceptions import BadSignatureError

from ._values import (
    ED25519,
    BadAnswer,
    Base64,
    BlockFlag,
    BlockId,
    Commit,
    EngineHeader,
    Hex,
    Instant,
    Member,
    Natural,
    PartSetHeader,
    Validator,
    Wire,
    fromBuiltins,
    headerHash,
    toBuiltins,
    validatorsHash,
    votePayload,
)

Point: TypeAlias = "tuple[int, int, int, int]"

P: Final = 2**255 - 19
ORDER: Final = 2**252 + 27742317777372353535851937790883648493
"""The order of the base point."""

_D: Final = -121665 * pow(121666, P - 2, P) % P
_ROOT: Final = pow(2, (P - 1) // 4, P)
"""A square root of -1."""

_IDENTITY: Final[Point] = (0, 1, 1, 0)
_SIGN: Final = 1 << 255


KEY_SIZE = 32
SIGNATURE_SIZE = 64
MAX_MEMBERS = 10_000
"""The most validators that the engine can have."""

MARK = b"light\n"
"""The first bytes of a light block on disk."""

MAX_SIZE = 8 * 1024 * 1024
"""The most bytes of a light block in JSON, for the largest validator set."""


def verifyZip215(key: bytes, payload: bytes, signature: bytes) -> bool:
    """Whether an Ed25519 signature is valid by ZIP-215."""
    if len(key) != 32 or len(signature) != 64:
        return False
    public, commitment = decompress(key), decompress(signature[:32])
    scalar = int.from_bytes(signature[32:], "little")
    if public is None or commitment is None or scalar >= ORDER:
        return False
    digest = sha512(signature[:32] + key + payload).digest()
    challenge = int.from_bytes(digest, "little") % ORDER
    # S B - k A - R, times 8, is the identity.
    sum = _add(_multiplyBoth(scalar, _BASE, challenge, _negate(public)), _negate(commitment))
    for _ in range(3):
        sum = _add(sum, sum)
    x, y, z, _ = sum
    return x % P == 0 and (y - z) % P == 0


def decompress(data: bytes) -> Point | None:
    """
    The point of an encoding, also of one that is not canonical: C{y} is taken modulo C{P}, and the
    sign of an C{x} of 0 is ignored. C{None} where there is none on the curve.
    """
    encoded = int.from_bytes(data, "little")
    y = (encoded & (_SIGN - 1)) % P
    square = (y * y - 1) * pow(_D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * _ROOT % P
    if x * x % P != square:
        return None
    if x & 1 != encoded >> 255:
        x = -x % P
    return x, y, 1, x * y % P


def _add(one: Point, other: Point) -> Point:
    x1, y1, z1, t1 = one
    x2, y2, z2, t2 = other
    a = (y1 - x1) * (y2 - x2) % P
    b = (y1 + x1) * (y2 + x2) % P
    c = 2 * t1 * t2 * _D % P
    d = 2 * z1 * z2 % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def _negate(point: Point) -> Point:
    x, y, z, t = point
    return -x % P, y, z, -t % P


def _multiplyBoth(first: int, one: Point, second: int, other: Point) -> Point:
    """The sum of two multiples, by Shamir's trick."""
    both = _add(one, other)
    result = _IDENTITY
    for bit in range(max(first.bit_length(), second.bit_length()) - 1, -1, -1):
        result = _add(result, result)
        chosen = (first >> bit & 1) | (second >> bit & 1) << 1
        if chosen:
            result = _add(result, (one, other, both)[chosen - 1])
    return result


def _base() -> Point:
    point = decompress((4 * pow(5, P - 2, P) % P).to_bytes(32, "little"))
    assert point is not None
    return point


_BASE: Final = _base()


class LightBlockInvalid(Exception):
    """A light block that does not verify. The text says why."""


class Vote(NamedTuple):
    """
    A validator's vote for a block.

    @ivar time: the validator's own time of it.
    @ivar signature: over L{votePayload}.
    """

    time: Instant
    signature: Base64


class LightBlock(Wire, frozen=True, kw_only=True):
    """
    A header, the votes that make its block final, and the validator set.

    @ivar round: the round of the votes.
    @ivar parts: the block's part set header, which votes cover.
    @ivar votes: the votes in the order of the validators; C{None} for an absent one.
    @ivar validators: the set that decided the block.
    """

    header: EngineHeader
    round: Natural
    parts: PartSetHeader
    votes: tuple[Vote | None, ...]
    validators: tuple[Member, ...]

    @property
    def power(self) -> int:
        """The voting power of the first validator, the same as of the others on our chains."""
        return self.validators[0].power if self.validators else 0

    @property
    def hash(self) -> bytes:
        """The block's hash."""
        return headerHash(self.header)

    def toJson(self) -> dict[str, Any]:
        """
        The light block as JSON values, with the engine's names. C{votes} are pairs of time and
        signature, C{validators} pairs of key and power.
        """
        value: dict[str, Any] = toBuiltins(self)
        return value

    @classmethod
    def fromJson(cls, value: Any) -> LightBlock:
        """
        Decode the result of L{toJson}.

        @raise LightBlockInvalid: the value is not exactly such a result.
        """
        try:
            return fromBuiltins(value, cls)
        except BadAnswer as error:
            raise LightBlockInvalid(f"it is not a light block: {error}") from error

    def encode(self) -> bytes:
        """
        The encoding on disk.
        """
        return MARK + zlib.compress(msgspec.json.encode(self.toJson()))

    @classmethod
    def decode(cls, data: bytes) -> LightBlock:
        """
        Decode the result of L{encode}.

        @raise LightBlockInvalid: the data is malformed.
        """
        inflate = zlib.decompressobj()
        try:
            text = inflate.decompress(data.removeprefix(MARK), MAX_SIZE)
            value = msgspec.json.decode(text)
        except (zlib.error, msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise LightBlockInvalid(f"it is not a light block: {error}") from error
        if not data.startswith(MARK) or not inflate.eof or inflate.unused_data:
            raise LightBlockInvalid("it is not a light block, or not a whole one")
        return cls.fromJson(value)


def membersOf(validators: Sequence[Validator]) -> tuple[Member, ...]:
    """
    Validators as the hash of their set covers them.

    @raise LightBlockInvalid: one has a key of another kind than Ed25519.
    """
    for validator in validators:
        if validator.pubKey.type != ED25519 or len(validator.pubKey.value) != KEY_SIZE:
            raise LightBlockInvalid("a validator's key is not of the kind Ed25519")
    return tuple(Member(validator.pubKey.value, validator.power) for validator in validators)


def makeLightBlock(
    header: EngineHeader, commit: Commit, validators: Sequence[Validator]
) -> LightBlock:
    """
    Make a light block from an engine's answers to C{commit} and C{validators} for one height.

    Votes that do not count are left out, and so are invalid signatures. Nothing else is checked.

    @raise LightBlockInvalid: one of the keys is of another kind than Ed25519.
    """
    members = membersOf(validators)
    block = LightBlock(
        header=header,
        round=commit.round,
        parts=commit.blockId.parts,
        votes=(None,) * len(members),
        validators=members,
    )
    holds = _verifierOf(block)
    votes: list[Vote | None] = [None] * len(members)
    for index, entry in enumerate(commit.signatures[: len(members)]):
        if entry.flag == BlockFlag.COMMIT and entry.signature is not None:
            vote = Vote(entry.timestamp, entry.signature)
            if holds(members[index], vote):
                votes[index] = vote
    return msgspec.structs.replace(block, votes=tuple(votes))


@lru_cache(maxsize=1024)
def _holds(key: bytes, payload: bytes, signature: bytes) -> bool:
    """
    Whether a vote is valid by the engine's rule, ZIP-215. libsodium is fast; it refuses some valid
    votes, and accepts no others.

    The same votes are verified when a block is made from answers, and when it is checked.
    """
    if len(key) == KEY_SIZE and len(signature) == SIGNATURE_SIZE:
        try:
            crypto_sign_open(signature + payload, key)
        except BadSignatureError:
            pass
        else:
            return True
    return verifyZip215(key, payload, signature)


def _verifierOf(block: LightBlock) -> Callable[[Member, Vote], bool]:
    """A function that verifies a vote for this block."""
    header = block.header
    payloadAt = partial(
        votePayload,
        header.chainId,
        header.height,
        block.round,
        BlockId(hash=Hex(block.hash), parts=block.parts),
    )
    return lambda member, vote: _holds(member.key, payloadAt(vote.time), vote.signature)


def verifyLightBlock(block: LightBlock, chainId: str, validators: bytes) -> None:
    """
    Verify that a validator set has made a block final.

    @param chainId: the engine's chain.
    @param validators: the hash of the set that is trusted to decide this block.
    @raise LightBlockInvalid: it has not, or a vote is invalid.
    """
    header, members = block.header, block.validators
    if header.chainId != chainId:
        raise LightBlockInvalid("it is a block of another chain")
    if not 0 < len(members) <= MAX_MEMBERS:
        raise LightBlockInvalid("it names no validators, or more than there can be")
    if any(len(member.key) != KEY_SIZE for member in members):
        raise LightBlockInvalid("one of its validators has no Ed25519 key")
    if len({member.key for member in members}) != len(members):
        raise LightBlockInvalid("it names one validator twice")
    if validatorsHash(members) != validators:
        raise LightBlockInvalid("its validators are not those that decide it")
    if header.validatorsHash != validators:
        raise LightBlockInvalid("its header names other validators than those that decide it")
    if len(block.votes) != len(members):
        raise LightBlockInvalid("it has more votes than validators, or fewer")
    holds = _verifierOf(block)
    voted = 0
    for index, (member, vote) in enumerate(zip(members, block.votes, strict=True)):
        if vote is None:
            continue
        if not holds(member, vote):
            raise LightBlockInvalid(f"the vote of validator {index} does not hold")
        voted += member.power
    total = sum(member.power for member in members)
    if 3 * voted <= 2 * total:
        raise LightBlockInvalid(f"votes of power {voted} are not more than two thirds of {total}")


@frozen(kw_only=True)
class Trust:
    """
    A trusted height of an engine's chain.

    @ivar chainId: the engine's name of the chain.
    @ivar height: the trusted height; 0 for the genesis.
    @ivar time: the time of its block.
    @ivar hash: the hash of its block; empty for the genesis.
    @ivar validators: the hash of the set that decides the next block.
    """

    chainId: str
    height: int
    time: int
    hash: bytes
    validators: bytes

    @classmethod
    def beginning(cls, chainId: str, time: int, members: Sequence[Member]) -> Trust:
        """
        Trust a genesis whose validators the application does not replace.

        @param time: the genesis time in nanoseconds since the epoch, or an earlier one.
        @param members: the first validators, in the engine's order.
        """
        return cls(
            chainId=chainId,
            height=0,
            # The first block has the genesis' own time.
            time=time - 1,
            hash=b"",
            validators=validatorsHash(members),
        )

    @classmethod
    def ofHeader(cls, header: EngineHeader) -> Trust:
        """
        Trust a header.
        """
        return cls(
            chainId=header.chainId,
            height=header.height,
            time=header.time,
            hash=headerHash(header),
            validators=header.nextValidatorsHash,
        )

    def follow(self, block: LightBlock) -> Trust:
        """
        Verify a later block, and trust it from then on.

        Heights may be skipped while the validator set stays the same. A block that changes it
        (C{nextValidatorsHash} differs from C{validatorsHash}) may not be skipped.

        @raise LightBlockInvalid: it does not follow.
        """
        header = block.header
        if header.height <= self.height:
            raise LightBlockInvalid(f"block {header.height} is not after block {self.height}")
        verifyLightBlock(block, self.chainId, self.validators)
        if header.time <= self.time:
            raise LightBlockInvalid(f"block {header.height} is older than what it follows")
        if (
            self.height
            and header.height == self.height + 1
            and header.lastBlockId.hash != self.hash
        ):
            raise LightBlockInvalid(f"block {header.height} does not follow block {self.height}")
        return self.ofHeader(header)
