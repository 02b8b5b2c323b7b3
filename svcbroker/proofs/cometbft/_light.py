"""
Light verification: that the engine's validators have made a block final, from the block's header
and their votes alone.

Everything here is pure: no Twisted, no clock, no network. A L{Trust} begins with the genesis, or
with a header that somebody trusts, and goes on from light block to light block: each names the
set of validators that decides the next one.

What is trusted is that of each set that is passed fewer than a third, by power, ever sign for a
fork: also later, when they have left. The engine's own light client bounds that by a trusting
period; what is verified here may be years old, so there is none.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import msgspec
from attrs import frozen

from ...chain import verifySignature
from ._hashing import headerHash, validatorsHash, votePayload
from ._values import (
    ED25519,
    BadAnswer,
    Base64,
    BlockId,
    Commit,
    Flag,
    Header,
    Hex,
    Instant,
    Member,
    Natural,
    PartSetHeader,
    Validator,
    Wire,
    fromBuiltins,
    toBuiltins,
)

KEY_SIZE = 32
MAX_MEMBERS = 10_000
"""The most validators that the engine can have."""


MARK = b"light\n"
"""What light blocks on disk begin with."""

MAX_SIZE = 8 * 1024 * 1024
"""Bytes of the longest light block in JSON: that of as many validators as there can be."""


class LightBlockInvalid(Exception):
    """A light block that proves nothing. The text says why."""


class Vote(NamedTuple):
    """
    A validator's vote for a block.

    @ivar time: when it was given; each validator says its own.
    @ivar signature: over what L{votePayload} makes of it.
    """

    time: Instant
    signature: Base64


class LightBlock(Wire, frozen=True, kw_only=True):
    """
    A header, the votes that make its block final, and who voted.

    @ivar round: the round of the votes.
    @ivar parts: the parts that the block was sent in: they are voted for too.
    @ivar votes: the votes in the order of the validators; C{None} where there is none.
    @ivar validators: the set that decided the block.
    """

    header: Header
    round: Natural
    parts: PartSetHeader
    votes: tuple[Vote | None, ...]
    validators: tuple[Member, ...]

    @property
    def hash(self) -> bytes:
        """The block's hash."""
        return headerHash(self.header)

    def toJson(self) -> dict[str, Any]:
        """
        Itself as what JSON has; the names are the engine's. C{votes} are pairs of time and
        signature, C{validators} pairs of key and power.
        """
        value: dict[str, Any] = toBuiltins(self)
        return value

    @classmethod
    def fromJson(cls, value: Any) -> LightBlock:
        """
        Read what L{toJson} gave.

        @raise LightBlockInvalid: it is not that, to the letter.
        """
        try:
            return fromBuiltins(value, cls)
        except BadAnswer as error:
            raise LightBlockInvalid(f"it is not a light block: {error}") from error

    def encode(self) -> bytes:
        """
        Itself as it is kept on disk.
        """
        return MARK + zlib.compress(msgspec.json.encode(self.toJson()))

    @classmethod
    def decode(cls, data: bytes) -> LightBlock:
        """
        Read what L{encode} gave.

        @raise LightBlockInvalid: it is not that.
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
    The validators of an answer, as their hash covers them.

    @raise LightBlockInvalid: one has a key of another kind than Ed25519.
    """
    for validator in validators:
        if validator.pubKey.type != ED25519 or len(validator.pubKey.value) != KEY_SIZE:
            raise LightBlockInvalid("a validator's key is not of the kind Ed25519")
    return tuple(Member(validator.pubKey.value, validator.power) for validator in validators)


def makeLightBlock(header: Header, commit: Commit, validators: Sequence[Validator]) -> LightBlock:
    """
    Make a light block of what an engine answers to C{commit} and C{validators} for one height.

    Votes that do not count are left out, and so are signatures that do not hold here: engines
    take some that a stricter verification does not. Nothing else is checked.

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
        if entry.flag == Flag.COMMIT and entry.signature is not None:
            vote = Vote(entry.timestamp, entry.signature)
            if holds(members[index], vote):
                votes[index] = vote
    return msgspec.structs.replace(block, votes=tuple(votes))


_holds = lru_cache(maxsize=1024)(verifySignature)
"""The same votes are looked at when a block is made of answers, and when it is verified."""


def _verifierOf(block: LightBlock) -> Callable[[Member, Vote], bool]:
    """What says whether a vote is for this block, and its validator's."""
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
    Make sure that a set of validators has made a block final.

    @param chainId: the engine's chain.
    @param validators: the hash of the set that is trusted to decide this block.
    @raise LightBlockInvalid: it has not, or a vote does not hold.
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
    What is trusted of an engine's chain.

    @ivar chainId: the engine's name of the chain.
    @ivar height: the height that is trusted; 0 with the genesis.
    @ivar time: the time of that height's block.
    @ivar hash: its hash; empty with the genesis.
    @ivar validators: the hash of the set that decides what comes next.
    """

    chainId: str
    height: int
    time: int
    hash: bytes
    validators: bytes

    @classmethod
    def beginning(cls, chainId: str, time: int, members: Sequence[Member]) -> Trust:
        """
        Trust a genesis, of an application that leaves its validators as they are.

        @param time: the genesis' own, in nanoseconds since the epoch, or one before it.
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
    def ofHeader(cls, header: Header) -> Trust:
        """
        Trust a header, which somebody has vouched for.
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

        Heights may be left out as long as the set of validators stays. A block where it changes
        (its header's C{nextValidatorsHash} differs from its C{validatorsHash}) is needed.

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
