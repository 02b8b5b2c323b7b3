"""
What the engine asks of the application.
"""

from __future__ import annotations

from enum import IntEnum

from attrs import frozen

from .._schema import (
    binaries,
    binary,
    boolean,
    enumeration,
    int64,
    message,
    messages,
    part,
    text,
    time,
    uint32,
    uint64,
)
from .types import (
    CommitInfo,
    ConsensusParams,
    ExtendedCommitInfo,
    Misbehavior,
    Snapshot,
    ValidatorUpdate,
)


@frozen(kw_only=True)
class EchoRequest:
    """Say this again."""

    message: str = text(1)


@frozen(kw_only=True)
class FlushRequest:
    """Send what was answered."""


@frozen(kw_only=True)
class InfoRequest:
    """Say how far you are. The engine plays to the application what it has more."""

    version: str = text(1)
    blockVersion: int = uint64(2)
    p2pVersion: int = uint64(3)
    abciVersion: str = text(4)


@frozen(kw_only=True)
class InitChainRequest:
    """
    A chain begins. Once for each chain, and again where the application says that it has no block.
    """

    time: int = time(1)
    chainId: str = text(2)
    consensusParams: ConsensusParams | None = message(3, ConsensusParams)
    validators: tuple[ValidatorUpdate, ...] = messages(4, ValidatorUpdate)
    appState: bytes = binary(5)
    initialHeight: int = int64(6)


@frozen(kw_only=True)
class QueryRequest:
    """Anybody who reaches the engine's RPC asks."""

    data: bytes = binary(1)
    path: str = text(2)
    height: int = int64(3)
    prove: bool = boolean(4)


class CheckTxType(IntEnum):
    """Why a transaction is checked."""

    NEW = 0
    RECHECK = 1


@frozen(kw_only=True)
class CheckTxRequest:
    """May this transaction wait for a block?"""

    tx: bytes = binary(1)
    type: CheckTxType = enumeration(2, CheckTxType)


@frozen(kw_only=True)
class CommitRequest:
    """Make what was executed last for good."""


@frozen(kw_only=True)
class ListSnapshotsRequest:
    """A new node asks for snapshots."""


@frozen(kw_only=True)
class OfferSnapshotRequest:
    """
    Begin from this?

    @ivar appHash: which the engine has verified; the state must have it in the end.
    """

    snapshot: Snapshot | None = message(1, Snapshot)
    appHash: bytes = binary(2)


@frozen(kw_only=True)
class LoadSnapshotChunkRequest:
    """A new node asks for a piece of a snapshot."""

    height: int = uint64(1)
    format: int = uint32(2)
    chunk: int = uint32(3)


@frozen(kw_only=True)
class ApplySnapshotChunkRequest:
    """A piece of the snapshot that was offered."""

    index: int = uint32(1)
    chunk: bytes = binary(2)
    sender: str = text(3)


@frozen(kw_only=True)
class PrepareProposalRequest:
    """
    Make a block.

    @ivar maxTxBytes: how many bytes the transactions may have.
    @ivar txs: those that wait, in order.
    """

    maxTxBytes: int = int64(1)
    txs: tuple[bytes, ...] = binaries(2)
    localLastCommit: ExtendedCommitInfo = part(3, ExtendedCommitInfo)
    misbehavior: tuple[Misbehavior, ...] = messages(4, Misbehavior)
    height: int = int64(5)
    time: int = time(6)
    nextValidatorsHash: bytes = binary(7)
    proposerAddress: bytes = binary(8)


@frozen(kw_only=True)
class ProcessProposalRequest:
    """May this become a block?"""

    txs: tuple[bytes, ...] = binaries(1)
    proposedLastCommit: CommitInfo = part(2, CommitInfo)
    misbehavior: tuple[Misbehavior, ...] = messages(3, Misbehavior)
    hash: bytes = binary(4)
    height: int = int64(5)
    time: int = time(6)
    nextValidatorsHash: bytes = binary(7)
    proposerAddress: bytes = binary(8)


@frozen(kw_only=True)
class ExtendVoteRequest:
    """Add something to a vote. Comes only where extensions are enabled."""

    hash: bytes = binary(1)
    height: int = int64(2)
    time: int = time(3)
    txs: tuple[bytes, ...] = binaries(4)
    proposedLastCommit: CommitInfo = part(5, CommitInfo)
    misbehavior: tuple[Misbehavior, ...] = messages(6, Misbehavior)
    nextValidatorsHash: bytes = binary(7)
    proposerAddress: bytes = binary(8)


@frozen(kw_only=True)
class VerifyVoteExtensionRequest:
    """Is this what a vote may have? Comes only where extensions are enabled."""

    hash: bytes = binary(1)
    validatorAddress: bytes = binary(2)
    height: int = int64(3)
    voteExtension: bytes = binary(4)


@frozen(kw_only=True)
class FinalizeBlockRequest:
    """Execute this block. It is decided."""

    txs: tuple[bytes, ...] = binaries(1)
    decidedLastCommit: CommitInfo = part(2, CommitInfo)
    misbehavior: tuple[Misbehavior, ...] = messages(3, Misbehavior)
    hash: bytes = binary(4)
    height: int = int64(5)
    time: int = time(6)
    nextValidatorsHash: bytes = binary(7)
    proposerAddress: bytes = binary(8)


Request = (
    EchoRequest
    | FlushRequest
    | InfoRequest
    | InitChainRequest
    | QueryRequest
    | CheckTxRequest
    | CommitRequest
    | ListSnapshotsRequest
    | OfferSnapshotRequest
    | LoadSnapshotChunkRequest
    | ApplySnapshotChunkRequest
    | PrepareProposalRequest
    | ProcessProposalRequest
    | ExtendVoteRequest
    | VerifyVoteExtensionRequest
    | FinalizeBlockRequest
)
"""Any of them."""
