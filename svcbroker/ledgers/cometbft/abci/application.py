"""
The contract of an ABCI application: one method for each call of the engine.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol, TypeAlias, TypeVar

from twisted.internet.defer import Deferred

from . import messages

T = TypeVar("T")
Answer: TypeAlias = "T | Deferred[T] | Coroutine[Any, Any, T]"
"""What a method may return: the answer, or a Deferred or coroutine of it."""


class Application(Protocol):
    """
    A replicated state machine, called by
    L{AbciFactory<svcbroker.ledgers.cometbft.abci.AbciFactory>}.

    C{info}, C{initChain}, C{prepareProposal}, C{processProposal}, C{finalizeBlock}, C{commit},
    C{offerSnapshot} and C{applySnapshotChunk} are called one at a time, each after the answer to
    the call before, also across a restart of the engine. C{checkTx}, C{query}, C{listSnapshots}
    and C{loadSnapshotChunk} may be called at any time, while any other call is not yet answered.

    An exception from any method means that the application has failed: the engine is told and
    exits, and no method is called again. An invalid transaction, query or snapshot is refused in
    the answer instead.
    """

    def info(self, request: messages.InfoRequest) -> Answer[messages.InfoResponse]:
        """Report the last height. Called when the engine starts, and for clients of its RPC."""

    def initChain(self, request: messages.InitChainRequest) -> Answer[messages.InitChainResponse]:
        """Begin a chain. Called again if the engine ended before the first commit."""

    def query(self, request: messages.QueryRequest) -> Answer[messages.QueryResponse]:
        """Answer a client of the engine's RPC."""

    def checkTx(self, request: messages.CheckTxRequest) -> Answer[messages.CheckTxResponse]:
        """Decide whether a transaction may wait for a block."""

    def prepareProposal(
        self, request: messages.PrepareProposalRequest
    ) -> Answer[messages.PrepareProposalResponse]:
        """Choose the transactions of a block, of at most C{maxTxBytes}. Only the proposer."""

    def processProposal(
        self, request: messages.ProcessProposalRequest
    ) -> Answer[messages.ProcessProposalResponse]:
        """Decide whether to vote for a block. Deterministic: every node decides the same."""

    def finalizeBlock(
        self, request: messages.FinalizeBlockRequest
    ) -> Answer[messages.FinalizeBlockResponse]:
        """
        Execute a decided block without persisting it. Called again if the engine ended before
        C{commit}.
        """

    def commit(self, request: messages.CommitRequest) -> Answer[messages.CommitResponse]:
        """Persist the block that was executed last. The answer means that it is on disk."""

    def listSnapshots(
        self, request: messages.ListSnapshotsRequest
    ) -> Answer[messages.ListSnapshotsResponse]:
        """List the snapshots that other nodes can fetch."""

    def offerSnapshot(
        self, request: messages.OfferSnapshotRequest
    ) -> Answer[messages.OfferSnapshotResponse]:
        """Decide whether to start from a snapshot. Called only before there is any block."""

    def loadSnapshotChunk(
        self, request: messages.LoadSnapshotChunkRequest
    ) -> Answer[messages.LoadSnapshotChunkResponse]:
        """Return one chunk of a snapshot of this node."""

    def applySnapshotChunk(
        self, request: messages.ApplySnapshotChunkRequest
    ) -> Answer[messages.ApplySnapshotChunkResponse]:
        """Take one chunk of the snapshot that was accepted last."""


def framedSize(tx: bytes) -> int:
    """The bytes that the engine counts for a transaction: a field of the block's data."""
    size = len(tx)
    return 1 + (max(size.bit_length(), 1) + 6) // 7 + size
