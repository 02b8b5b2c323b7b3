"""
What the engine drives: one method for each call.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol, TypeAlias, TypeVar

from twisted.internet.defer import Deferred

from . import requests, responses
from .responses import OfferResult, Verdict

T = TypeVar("T")
Answer: TypeAlias = "T | Deferred[T] | Coroutine[Any, Any, T]"
"""What a method may return: the answer, or something that will be the answer."""


class Application(Protocol):
    """
    A replicated state machine, called by
    L{AbciFactory<svcbroker.ledgers.cometbft.abci.AbciFactory>}.

    C{info}, C{initChain}, C{prepareProposal}, C{processProposal}, C{extendVote},
    C{verifyVoteExtension}, C{finalizeBlock}, C{commit}, C{offerSnapshot} and C{applySnapshotChunk}
    are called one at a time, each after the answer to the one before, also when the engine has
    started again in between. C{checkTx}, C{query}, C{listSnapshots} and C{loadSnapshotChunk} may be
    called at any time, while one of those or of each other is not yet answered.

    An exception from any of them says that the application cannot go on. The engine is told, and
    ends; nothing is called any more. What is merely wrong with a transaction, a question or a
    snapshot is said in the answer.
    """

    def info(self, request: requests.InfoRequest) -> Answer[responses.InfoResponse]:
        """How far the application is. At the start of the engine, and when somebody asks."""

    def initChain(self, request: requests.InitChainRequest) -> Answer[responses.InitChainResponse]:
        """Begin a chain. Again, from nothing, where the engine ended before the first commit."""

    def query(self, request: requests.QueryRequest) -> Answer[responses.QueryResponse]:
        """Answer anybody."""

    def checkTx(self, request: requests.CheckTxRequest) -> Answer[responses.CheckTxResponse]:
        """Whether a transaction may wait for a block."""

    def prepareProposal(
        self, request: requests.PrepareProposalRequest
    ) -> Answer[responses.PrepareProposalResponse]:
        """Choose the transactions of a block, of at most C{maxTxBytes}. Only the proposer."""

    def processProposal(
        self, request: requests.ProcessProposalRequest
    ) -> Answer[responses.ProcessProposalResponse]:
        """Whether a block may be voted for. The same on every node, whatever it knows besides."""

    def extendVote(
        self, request: requests.ExtendVoteRequest
    ) -> Answer[responses.ExtendVoteResponse]:
        """Add to a vote."""

    def verifyVoteExtension(
        self, request: requests.VerifyVoteExtensionRequest
    ) -> Answer[responses.VerifyVoteExtensionResponse]:
        """Whether what was added to a vote is good."""

    def finalizeBlock(
        self, request: requests.FinalizeBlockRequest
    ) -> Answer[responses.FinalizeBlockResponse]:
        """
        Execute a decided block, and keep nothing of it for good. Comes again after the engine has
        ended before C{commit}.
        """

    def commit(self, request: requests.CommitRequest) -> Answer[responses.CommitResponse]:
        """Make what was executed last for good. When this is answered it is on disk."""

    def listSnapshots(
        self, request: requests.ListSnapshotsRequest
    ) -> Answer[responses.ListSnapshotsResponse]:
        """The snapshots that other nodes can have."""

    def offerSnapshot(
        self, request: requests.OfferSnapshotRequest
    ) -> Answer[responses.OfferSnapshotResponse]:
        """Whether to begin from a snapshot. Only before there is any block."""

    def loadSnapshotChunk(
        self, request: requests.LoadSnapshotChunkRequest
    ) -> Answer[responses.LoadSnapshotChunkResponse]:
        """A piece of a snapshot of our own."""

    def applySnapshotChunk(
        self, request: requests.ApplySnapshotChunkRequest
    ) -> Answer[responses.ApplySnapshotChunkResponse]:
        """A piece of the snapshot that was accepted last."""


def framedSize(tx: bytes) -> int:
    """How many bytes the engine counts for a transaction: a field of the block's data."""
    size = len(tx)
    return 1 + (max(size.bit_length(), 1) + 6) // 7 + size


def cutAt(txs: tuple[bytes, ...], maxBytes: int) -> tuple[bytes, ...]:
    """
    The first transactions that have no more bytes than a block may have.

    @param maxBytes: C{maxTxBytes} of a request to prepare a proposal.
    """
    left = maxBytes
    for number, tx in enumerate(txs):
        left -= framedSize(tx)
        if left < 0:
            return txs[:number]
    return txs


class BaseApplication:
    """
    The calls that an application without snapshots and vote extensions need not care about.
    """

    def query(self, request: requests.QueryRequest) -> Answer[responses.QueryResponse]:
        """Nothing can be asked."""
        return responses.QueryResponse(code=1, log="there are no queries")

    def prepareProposal(
        self, request: requests.PrepareProposalRequest
    ) -> Answer[responses.PrepareProposalResponse]:
        """As many as fit, in order."""
        return responses.PrepareProposalResponse(txs=cutAt(request.txs, request.maxTxBytes))

    def processProposal(
        self, request: requests.ProcessProposalRequest
    ) -> Answer[responses.ProcessProposalResponse]:
        """Everything is good."""
        return responses.ProcessProposalResponse(status=Verdict.ACCEPT)

    def extendVote(
        self, request: requests.ExtendVoteRequest
    ) -> Answer[responses.ExtendVoteResponse]:
        """Nothing is added."""
        return responses.ExtendVoteResponse()

    def verifyVoteExtension(
        self, request: requests.VerifyVoteExtensionRequest
    ) -> Answer[responses.VerifyVoteExtensionResponse]:
        """Good where nothing was added."""
        isGood = not request.voteExtension
        return responses.VerifyVoteExtensionResponse(
            status=Verdict.ACCEPT if isGood else Verdict.REJECT
        )

    def listSnapshots(
        self, request: requests.ListSnapshotsRequest
    ) -> Answer[responses.ListSnapshotsResponse]:
        """There are none."""
        return responses.ListSnapshotsResponse()

    def offerSnapshot(
        self, request: requests.OfferSnapshotRequest
    ) -> Answer[responses.OfferSnapshotResponse]:
        """None can be begun from."""
        return responses.OfferSnapshotResponse(result=OfferResult.ABORT)

    def loadSnapshotChunk(
        self, request: requests.LoadSnapshotChunkRequest
    ) -> Answer[responses.LoadSnapshotChunkResponse]:
        """There is none."""
        return responses.LoadSnapshotChunkResponse()

    def applySnapshotChunk(
        self, request: requests.ApplySnapshotChunkRequest
    ) -> Answer[responses.ApplySnapshotChunkResponse]:
        """None was accepted."""
        return responses.ApplySnapshotChunkResponse(result=responses.ApplyResult.ABORT)
