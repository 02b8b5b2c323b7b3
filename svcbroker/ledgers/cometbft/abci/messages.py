"""
The messages of ABCI 2.0 (CometBFT 0.38) that this application exchanges with its engine.

Names are those of the engine's C{types.proto} in our spelling; times are in nanoseconds. Fields
that the application does not read or set are not declared: proto3 skips them. Vote extensions are
off in every genesis that this package makes, so their messages are not declared either.

Many names: the protocol has so many messages.
"""

from __future__ import annotations

from enum import IntEnum

from attrs import frozen

from .protobuf import (
    binaries,
    binary,
    choice,
    enumeration,
    int64,
    message,
    messages,
    part,
    text,
    texts,
    time,
    uint32,
    uint32s,
    uint64,
)

# Parts of messages.


@frozen(kw_only=True)
class ValidatorPublicKey:
    """
    A validator's key, of one of two kinds. One with neither is no key.
    """

    ed25519: bytes | None = choice(1, "sum")
    secp256k1: bytes | None = choice(2, "sum")


@frozen(kw_only=True)
class ValidatorUpdate:
    """
    The new power of a validator; 0 removes it from the set.
    """

    publicKey: ValidatorPublicKey = part(1, ValidatorPublicKey)
    power: int = int64(2)


@frozen(kw_only=True)
class ExecutedTransaction:
    """
    The result of one transaction (C{ExecTxResult}). Both fields are hashed into the next header,
    and must be the same on every node.
    """

    code: int = uint32(1)
    data: bytes = binary(2)


@frozen(kw_only=True)
class OfferedSnapshot:
    """
    A snapshot that a new node can start from.

    @ivar format: the application's own number of the snapshot's encoding.
    @ivar chunks: the number of chunks.
    @ivar hash: equal only where the whole snapshot is equal.
    """

    height: int = uint64(1)
    format: int = uint32(2)
    chunks: int = uint32(3)
    hash: bytes = binary(4)
    metadata: bytes = binary(5)


# Requests.


@frozen(kw_only=True)
class EchoRequest:
    """Echo: return the same text."""

    message: str = text(1)


@frozen(kw_only=True)
class FlushRequest:
    """Flush: send the answers that are buffered."""


@frozen(kw_only=True)
class InfoRequest:
    """Info: report the last height; the engine replays the blocks after it."""

    version: str = text(1)
    blockVersion: int = uint64(2)
    p2pVersion: int = uint64(3)
    abciVersion: str = text(4)


@frozen(kw_only=True)
class InitChainRequest:
    """
    InitChain: begin a chain. Sent as long as the application reports height 0.
    """

    time: int = time(1)
    chainId: str = text(2)
    validators: tuple[ValidatorUpdate, ...] = messages(4, ValidatorUpdate)
    appState: bytes = binary(5)
    initialHeight: int = int64(6)


@frozen(kw_only=True)
class QueryRequest:
    """Query: sent for any client that can reach the engine's RPC."""


class CheckTxType(IntEnum):
    """Whether a transaction is new, or is checked again after a block."""

    NEW = 0
    RECHECK = 1


@frozen(kw_only=True)
class CheckTxRequest:
    """CheckTx: decide whether a transaction may enter the mempool, or stay in it."""

    tx: bytes = binary(1)
    type: CheckTxType = enumeration(2, CheckTxType)


@frozen(kw_only=True)
class CommitRequest:
    """Commit: persist the block that was executed last."""


@frozen(kw_only=True)
class ListSnapshotsRequest:
    """ListSnapshots: a new node asks for the snapshots that there are."""


@frozen(kw_only=True)
class OfferSnapshotRequest:
    """
    OfferSnapshot: decide whether to start from this snapshot.

    @ivar appHash: the application's hash that the engine has verified for its height.
    """

    snapshot: OfferedSnapshot | None = message(1, OfferedSnapshot)
    appHash: bytes = binary(2)


@frozen(kw_only=True)
class LoadSnapshotChunkRequest:
    """LoadSnapshotChunk: a new node asks for one chunk of a snapshot."""

    height: int = uint64(1)
    format: int = uint32(2)
    chunk: int = uint32(3)


@frozen(kw_only=True)
class ApplySnapshotChunkRequest:
    """
    ApplySnapshotChunk: one chunk of the snapshot that was accepted.

    @ivar sender: the id of the node that has sent it.
    """

    index: int = uint32(1)
    chunk: bytes = binary(2)
    sender: str = text(3)


@frozen(kw_only=True)
class PrepareProposalRequest:
    """
    PrepareProposal: choose the transactions of the block that this node proposes.

    @ivar maxTxBytes: the most bytes of them all, framed.
    @ivar txs: those in the mempool, in order.
    """

    maxTxBytes: int = int64(1)
    txs: tuple[bytes, ...] = binaries(2)
    height: int = int64(5)
    time: int = time(6)


@frozen(kw_only=True)
class ProcessProposalRequest:
    """ProcessProposal: decide whether to vote for a block."""

    txs: tuple[bytes, ...] = binaries(1)
    height: int = int64(5)
    time: int = time(6)


@frozen(kw_only=True)
class FinalizeBlockRequest:
    """FinalizeBlock: execute a decided block."""

    txs: tuple[bytes, ...] = binaries(1)
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
    | FinalizeBlockRequest
)
"""Any request."""


# Responses.


@frozen(kw_only=True)
class ExceptionResponse:
    """The application has failed. The engine exits when it reads this."""

    error: str = text(1)


@frozen(kw_only=True)
class EchoResponse:
    """The text of the request."""

    message: str = text(1)


@frozen(kw_only=True)
class FlushResponse:
    """All answers before this one have been sent."""


@frozen(kw_only=True)
class InfoResponse:
    """
    The progress of the application.

    @ivar lastBlockHeight: the height of the last block on stable storage; 0 for none.
    @ivar lastBlockAppHash: the application's hash after it.
    """

    data: str = text(1)
    version: str = text(2)
    appVersion: int = uint64(3)
    lastBlockHeight: int = int64(4)
    lastBlockAppHash: bytes = binary(5)


@frozen(kw_only=True)
class InitChainResponse:
    """
    @ivar appHash: the application's hash before the first block.
    """

    appHash: bytes = binary(3)


@frozen(kw_only=True)
class QueryResponse:
    """The answer to a query; a code other than 0 refuses it."""

    code: int = uint32(1)
    log: str = text(3)


@frozen(kw_only=True)
class CheckTxResponse:
    """Whether a transaction may wait: code 0. Any other code is the application's own."""

    code: int = uint32(1)
    log: str = text(3)


@frozen(kw_only=True)
class CommitResponse:
    """
    The block is on stable storage.

    @ivar retainHeight: the first block that the engine has to keep; 0 for all.
    """

    retainHeight: int = int64(3)


@frozen(kw_only=True)
class ListSnapshotsResponse:
    """The snapshots that there are."""

    snapshots: tuple[OfferedSnapshot, ...] = messages(1, OfferedSnapshot)


class OfferResult(IntEnum):
    """The verdict on a snapshot that was offered."""

    UNKNOWN = 0
    ACCEPT = 1
    ABORT = 2
    REJECT = 3
    REJECT_FORMAT = 4
    REJECT_SENDER = 5


@frozen(kw_only=True)
class OfferSnapshotResponse:
    """Whether the application starts from it."""

    result: OfferResult = enumeration(1, OfferResult)


@frozen(kw_only=True)
class LoadSnapshotChunkResponse:
    """A chunk; empty where there is none."""

    chunk: bytes = binary(1)


class ApplyResult(IntEnum):
    """The verdict on a chunk of a snapshot."""

    UNKNOWN = 0
    ACCEPT = 1
    ABORT = 2
    RETRY = 3
    RETRY_SNAPSHOT = 4
    REJECT_SNAPSHOT = 5


@frozen(kw_only=True)
class ApplySnapshotChunkResponse:
    """
    @ivar refetchChunks: the chunks to fetch again.
    @ivar rejectSenders: the nodes to accept no more chunks from.
    """

    result: ApplyResult = enumeration(1, ApplyResult)
    refetchChunks: tuple[int, ...] = uint32s(2)
    rejectSenders: tuple[str, ...] = texts(3)


@frozen(kw_only=True)
class PrepareProposalResponse:
    """The transactions of the block, in order."""

    txs: tuple[bytes, ...] = binaries(1)


class Verdict(IntEnum):
    """Whether a proposal is valid."""

    UNKNOWN = 0
    ACCEPT = 1
    REJECT = 2


@frozen(kw_only=True)
class ProcessProposalResponse:
    """Whether this validator votes for the block."""

    status: Verdict = enumeration(1, Verdict)


@frozen(kw_only=True)
class FinalizeBlockResponse:
    """
    The results of a block; the same on every node.

    @ivar txResults: one for each transaction, in order.
    @ivar validatorUpdates: they take effect two blocks later.
    @ivar appHash: the application's hash after the block, which the next header carries.
    """

    txResults: tuple[ExecutedTransaction, ...] = messages(2, ExecutedTransaction)
    validatorUpdates: tuple[ValidatorUpdate, ...] = messages(3, ValidatorUpdate)
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
    | FinalizeBlockResponse
)
"""Any response."""
