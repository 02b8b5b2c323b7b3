"""
An application for tests: the calls that most of them need not care about.
"""

from __future__ import annotations

from svcbroker.ledgers.cometbft.abci import framedSize, messages
from svcbroker.ledgers.cometbft.abci.messages import ApplyResult, OfferResult, Verdict


def cutAt(txs: tuple[bytes, ...], maxBytes: int) -> tuple[bytes, ...]:
    """
    The first transactions that fit into a block.

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
    Queries and snapshots are refused; blocks are what the mempool has.
    """

    def query(self, request: messages.QueryRequest) -> messages.QueryResponse:
        """Nothing can be queried."""
        return messages.QueryResponse(code=1, log="there are no queries")

    def prepareProposal(
        self, request: messages.PrepareProposalRequest
    ) -> messages.PrepareProposalResponse:
        """As many transactions as fit, in order."""
        return messages.PrepareProposalResponse(txs=cutAt(request.txs, request.maxTxBytes))

    def processProposal(
        self, request: messages.ProcessProposalRequest
    ) -> messages.ProcessProposalResponse:
        """Every block is valid."""
        return messages.ProcessProposalResponse(status=Verdict.ACCEPT)

    def listSnapshots(
        self, request: messages.ListSnapshotsRequest
    ) -> messages.ListSnapshotsResponse:
        """There are none."""
        return messages.ListSnapshotsResponse()

    def offerSnapshot(
        self, request: messages.OfferSnapshotRequest
    ) -> messages.OfferSnapshotResponse:
        """None is accepted."""
        return messages.OfferSnapshotResponse(result=OfferResult.ABORT)

    def loadSnapshotChunk(
        self, request: messages.LoadSnapshotChunkRequest
    ) -> messages.LoadSnapshotChunkResponse:
        """There is none."""
        return messages.LoadSnapshotChunkResponse()

    def applySnapshotChunk(
        self, request: messages.ApplySnapshotChunkRequest
    ) -> messages.ApplySnapshotChunkResponse:
        """None was accepted."""
        return messages.ApplySnapshotChunkResponse(result=ApplyResult.ABORT)
