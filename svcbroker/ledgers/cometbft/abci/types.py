"""
What requests and answers of ABCI 2.0 are made of.

Names are those of the engine's C{types.proto} in our spelling; times and durations are in
nanoseconds.
"""

from __future__ import annotations

from enum import IntEnum

from attrs import frozen

from .._schema import (
    binary,
    boolean,
    choice,
    duration,
    enumeration,
    int32,
    int64,
    message,
    messages,
    part,
    text,
    texts,
    time,
    uint32,
    uint64,
)

OK = 0
"""The code of whatever is good. Any other is the application's own."""


@frozen(kw_only=True)
class PublicKey:
    """
    The key of a validator, of one of two kinds. Without either it is no key.
    """

    ed25519: bytes | None = choice(1, "sum")
    secp256k1: bytes | None = choice(2, "sum")


@frozen(kw_only=True)
class ValidatorUpdate:
    """
    The power that a validator has from now on; 0 takes it out of the set.
    """

    publicKey: PublicKey = part(1, PublicKey)
    power: int = int64(2)


@frozen(kw_only=True)
class Validator:
    """
    @ivar address: the first 20 bytes of the SHA-256 of its key.
    """

    address: bytes = binary(1)
    power: int = int64(3)


class BlockIdFlag(IntEnum):
    """What a validator did when a block was decided."""

    UNKNOWN = 0
    ABSENT = 1
    COMMIT = 2
    NIL = 3


@frozen(kw_only=True)
class VoteInfo:
    """What one validator did."""

    validator: Validator = part(1, Validator)
    blockIdFlag: BlockIdFlag = enumeration(3, BlockIdFlag)


@frozen(kw_only=True)
class CommitInfo:
    """
    Who decided a block.

    @ivar round: in which round.
    @ivar votes: in the order of the validator set.
    """

    round: int = int32(1)
    votes: tuple[VoteInfo, ...] = messages(2, VoteInfo)


@frozen(kw_only=True)
class ExtendedVoteInfo:
    """What one validator did, with the extension of its vote."""

    validator: Validator = part(1, Validator)
    voteExtension: bytes = binary(3)
    extensionSignature: bytes = binary(4)
    blockIdFlag: BlockIdFlag = enumeration(5, BlockIdFlag)


@frozen(kw_only=True)
class ExtendedCommitInfo:
    """Who decided a block, with the extensions of votes."""

    round: int = int32(1)
    votes: tuple[ExtendedVoteInfo, ...] = messages(2, ExtendedVoteInfo)


class MisbehaviorType(IntEnum):
    """What a validator did that it must not."""

    UNKNOWN = 0
    DUPLICATE_VOTE = 1
    LIGHT_CLIENT_ATTACK = 2


@frozen(kw_only=True)
class Misbehavior:
    """
    Evidence against a validator.

    @ivar height: of the offence, as C{time} is.
    """

    type: MisbehaviorType = enumeration(1, MisbehaviorType)
    validator: Validator = part(2, Validator)
    height: int = int64(3)
    time: int = time(4)
    totalVotingPower: int = int64(5)


@frozen(kw_only=True)
class EventAttribute:
    """A pair that an event has; the engine may index it."""

    key: str = text(1)
    value: str = text(2)
    index: bool = boolean(3)


@frozen(kw_only=True)
class Event:
    """What the engine tells those who subscribe to it. No part of consensus."""

    type: str = text(1)
    attributes: tuple[EventAttribute, ...] = messages(2, EventAttribute)


@frozen(kw_only=True)
class TransactionResult:
    """
    What came of a transaction (C{ExecTxResult}). C{code}, C{data}, C{gasWanted} and C{gasUsed} are
    hashed into the next header, and must be the same on every node.
    """

    code: int = uint32(1)
    data: bytes = binary(2)
    log: str = text(3)
    info: str = text(4)
    gasWanted: int = int64(5)
    gasUsed: int = int64(6)
    events: tuple[Event, ...] = messages(7, Event)
    codespace: str = text(8)


@frozen(kw_only=True)
class Snapshot:
    """
    A state that a new node can begin from.

    @ivar format: the application's own number of how it is written.
    @ivar chunks: how many pieces it comes in.
    @ivar hash: equal only where all of it is.
    """

    height: int = uint64(1)
    format: int = uint32(2)
    chunks: int = uint32(3)
    hash: bytes = binary(4)
    metadata: bytes = binary(5)


@frozen(kw_only=True)
class ProofOp:
    """One step of a proof in the engine's own form."""

    type: str = text(1)
    key: bytes = binary(2)
    data: bytes = binary(3)


@frozen(kw_only=True)
class ProofOps:
    """A proof in the engine's own form."""

    ops: tuple[ProofOp, ...] = messages(1, ProofOp)


@frozen(kw_only=True)
class BlockParams:
    """
    @ivar maxBytes: of a block; -1 for as many as the engine can take.
    @ivar maxGas: of a block; -1 for any.
    """

    maxBytes: int = int64(1)
    maxGas: int = int64(2)


@frozen(kw_only=True)
class EvidenceParams:
    """For how long evidence counts, and how much of it a block can have."""

    maxAgeNumBlocks: int = int64(1)
    maxAgeDuration: int = duration(2)
    maxBytes: int = int64(3)


@frozen(kw_only=True)
class ValidatorParams:
    """The kinds of keys that validators can have."""

    publicKeyTypes: tuple[str, ...] = texts(1)


@frozen(kw_only=True)
class VersionParams:
    """The version of the application, as headers have it."""

    app: int = uint64(1)


@frozen(kw_only=True)
class AbciParams:
    """From which height votes have extensions; 0 for never."""

    voteExtensionsEnableHeight: int = int64(1)


@frozen(kw_only=True)
class ConsensusParams:
    """What all nodes agree on. In a change, C{None} leaves a part as it is."""

    block: BlockParams | None = message(1, BlockParams)
    evidence: EvidenceParams | None = message(2, EvidenceParams)
    validator: ValidatorParams | None = message(3, ValidatorParams)
    version: VersionParams | None = message(4, VersionParams)
    abci: AbciParams | None = message(5, AbciParams)
