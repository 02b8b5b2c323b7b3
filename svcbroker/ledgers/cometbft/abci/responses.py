"""
What the application answers to the engine.
"""

from __future__ import annotations

from enum import IntEnum

from attrs import frozen

from .._schema import (
    binaries,
    binary,
    enumeration,
    int64,
    message,
    messages,
    text,
    texts,
    uint32,
    uint32s,
    uint64,
)
from .types import (
    ConsensusParams,
    Event,
    ProofOps,
    Snapshot,
    TransactionResult,
    ValidatorUpdate,
)


@frozen(kw_only=True)
class ExceptionResponse:
    """The application cannot go on. The engine stops when it reads this."""

    error: str = text(1)


@frozen(kw_only=True)
class EchoResponse:
    """What was said, again."""

    message: str = text(1)


@frozen(kw_only=True)
class FlushResponse:
    """Everything before this was sent."""


@frozen(kw_only=True)
class InfoResponse:
    """
    How far the application is.

    @ivar lastBlockHeight: the last block that is for good; 0 for none.
    @ivar lastBlockAppHash: the state after it.
    """

    data: str = text(1)
    version: str = text(2)
    appVersion: int = uint64(3)
    lastBlockHeight: int = int64(4)
    lastBlockAppHash: bytes = binary(5)


@frozen(kw_only=True)
class InitChainResponse:
    """
    @ivar consensusParams: instead of those of the genesis file; C{None} to keep them.
    @ivar validators: instead of those of the genesis file; empty to keep them.
    @ivar appHash: the state before the first block.
    """

    consensusParams: ConsensusParams | None = message(1, ConsensusParams)
    validators: tuple[ValidatorUpdate, ...] = messages(2, ValidatorUpdate)
    appHash: bytes = binary(3)


@frozen(kw_only=True)
class QueryResponse:
    """What was found. A question that makes no sense has a code that is not 0."""

    code: int = uint32(1)
    log: str = text(3)
    info: str = text(4)
    index: int = int64(5)
    key: bytes = binary(6)
    value: bytes = binary(7)
    proofOps: ProofOps | None = message(8, ProofOps)
    height: int = int64(9)
    codespace: str = text(10)


@frozen(kw_only=True)
class CheckTxResponse:
    """Whether a transaction may wait: the code is 0."""

    code: int = uint32(1)
    data: bytes = binary(2)
    log: str = text(3)
    info: str = text(4)
    gasWanted: int = int64(5)
    gasUsed: int = int64(6)
    events: tuple[Event, ...] = messages(7, Event)
    codespace: str = text(8)


@frozen(kw_only=True)
class CommitResponse:
    """
    @ivar retainHeight: the engine may forget blocks before this one; 0 for none.
    """

    retainHeight: int = int64(3)


@frozen(kw_only=True)
class ListSnapshotsResponse:
    """The snapshots that there are."""

    snapshots: tuple[Snapshot, ...] = messages(1, Snapshot)


class OfferResult(IntEnum):
    """What to do about a snapshot that was offered."""

    UNKNOWN = 0
    ACCEPT = 1
    ABORT = 2
    REJECT = 3
    REJECT_FORMAT = 4
    REJECT_SENDER = 5


@frozen(kw_only=True)
class OfferSnapshotResponse:
    """Whether the application begins from it."""

    result: OfferResult = enumeration(1, OfferResult)


@frozen(kw_only=True)
class LoadSnapshotChunkResponse:
    """A piece; empty where there is none."""

    chunk: bytes = binary(1)


class ApplyResult(IntEnum):
    """What to do about a piece of a snapshot."""

    UNKNOWN = 0
    ACCEPT = 1
    ABORT = 2
    RETRY = 3
    RETRY_SNAPSHOT = 4
    REJECT_SNAPSHOT = 5


@frozen(kw_only=True)
class ApplySnapshotChunkResponse:
    """
    @ivar refetchChunks: pieces to get again.
    @ivar rejectSenders: nodes to take no more from.
    """

    result: ApplyResult = enumeration(1, ApplyResult)
    refetchChunks: tuple[int, ...] = uint32s(2)
    rejectSenders: tuple[str, ...] = texts(3)


@frozen(kw_only=True)
class PrepareProposalResponse:
    """The transactions of the block, in order."""

    txs: tuple[bytes, ...] = binaries(1)


class Verdict(IntEnum):
    """Whether a proposal, or the extension of a vote, is good."""

    UNKNOWN = 0
    ACCEPT = 1
    REJECT = 2


@frozen(kw_only=True)
class ProcessProposalResponse:
    """Whether it may become a block."""

    status: Verdict = enumeration(1, Verdict)


@frozen(kw_only=True)
class ExtendVoteResponse:
    """What to add."""

    voteExtension: bytes = binary(1)


@frozen(kw_only=True)
class VerifyVoteExtensionResponse:
    """Whether it is what a vote may have."""

    status: Verdict = enumeration(1, Verdict)


@frozen(kw_only=True)
class FinalizeBlockResponse:
    """
    What came of a block. All of it but events must be the same on every node.

    @ivar txResults: one for each transaction, in order.
    @ivar validatorUpdates: they count from two blocks later on.
    @ivar appHash: the state after the block; the next header has it.
    """

    events: tuple[Event, ...] = messages(1, Event)
    txResults: tuple[TransactionResult, ...] = messages(2, TransactionResult)
    validatorUpdates: tuple[ValidatorUpdate, ...] = messages(3, ValidatorUpdate)
    consensusParamUpdates: ConsensusParams | None = message(4, ConsensusParams)
    appHash: bytes = binary(5)


Response = (
    ExceptionResponse
    | EchoResponse
    | FlushResponse
    | InfoResponse
    | InitChainResponse
    | QueryResponse
    | CheckTxResponse
    | CommitResponse
    | ListSnapshotsResponse
    | OfferSnapshotResponse
    | LoadSnapshotChunkResponse
    | ApplySnapshotChunkResponse
    | PrepareProposalResponse
    | ProcessProposalResponse
    | ExtendVoteResponse
    | VerifyVoteExtensionResponse
    | FinalizeBlockResponse
)
"""Any of them."""
