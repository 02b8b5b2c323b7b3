"""
The rules of round changes, as pure functions: what may be claimed, and what a leader of a later
round may propose.

They follow QBFT (arXiv 2002.03613). Whoever receives a claim computes it again; nobody's choice
is believed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from attrs import frozen

from ...chain import (
    CertificateInvalid,
    Header,
    Phase,
    checkCertificate,
    quorum,
    votePayload,
)
from ._keys import Verifier
from ._messages import DecidedBlock, PreparedCertificate, Proposal, RoundChange, Vote

_MAX = 2**64 - 1
_DIGEST_SIZE = 32


class Refused(Exception):
    """A message that a correct replica does not follow. The text says why."""


@frozen(kw_only=True)
class Rules:
    """
    What holds for all replicas of a chain.

    @ivar chain: the chain's id.
    @ivar verifier: the replicas' public keys.
    """

    chain: bytes
    verifier: Verifier

    @property
    def nodes(self) -> int:
        """How many replicas there are."""
        return len(self.verifier.keys)

    @property
    def quorum(self) -> int:
        """How many of them must agree."""
        return quorum(self.nodes)

    def checkSignature(
        self, phase: Phase, sender: int, height: int, round: int, digest: bytes, signature: bytes
    ) -> None:
        """
        @raise Refused: the signature is not the sender's, or nothing can be signed like that.
        """
        if not (0 <= height <= _MAX and 0 <= round <= _MAX and len(digest) == _DIGEST_SIZE):
            raise Refused(f"the {phase.name} is not one")
        payload = votePayload(phase, self.chain, height, round, digest)
        if not self.verifier.verify(sender, payload, signature):
            raise Refused(f"the {phase.name} is not signed by node {sender}")

    def checkVote(self, vote: Vote | Proposal) -> None:
        """
        @raise Refused: it is not signed by its sender.
        """
        # The same vote comes to each replica, and to pack it costs more than all else.
        if isinstance(vote, Vote) and self.verifier.isKnown(vote):
            return
        self.checkSignature(
            vote.phase, vote.sender, vote.height, vote.round, vote.digest, vote.signature
        )
        if isinstance(vote, Vote):
            self.verifier.know(vote)

    def checkDecided(self, decided: DecidedBlock) -> None:
        """
        @raise Refused: it is not decided.
        """
        if not 0 <= decided.certificate.round <= _MAX:
            raise Refused("the certificate's round is not one")
        try:
            checkCertificate(decided.certificate, decided.header, self.nodes, self.verifier.verify)
        except CertificateInvalid as error:
            raise Refused(str(error)) from None

    def checkPrepared(self, height: int, prepared: PreparedCertificate) -> None:
        """
        @raise Refused: it is not a quorum of distinct prepares for exactly its height, round
            and digest.
        """
        last = -1
        for sender, signature in prepared.signatures:
            if sender <= last:
                raise Refused("a prepared certificate's signers are not in rising order")
            last = sender
            self.checkPrepare(height, prepared, sender, signature)
        if len(prepared.signatures) < self.quorum:
            raise Refused("a prepared certificate has no quorum")

    def checkPrepare(
        self, height: int, prepared: PreparedCertificate, sender: int, signature: bytes
    ) -> None:
        """
        A leader's proposal is its prepare: it says no less, and there is one in a round.

        @raise Refused: it is neither, or not signed by its sender.
        """
        for phase in (Phase.PREPARE, Phase.PROPOSE):
            with suppress(Refused):
                self.checkSignature(
                    phase, sender, height, prepared.round, prepared.digest, signature
                )
                return
        raise Refused(f"the PREPARE is not signed by node {sender}")

    def checkRoundChange(self, change: RoundChange) -> None:
        """
        @raise Refused: it is not signed by its sender, or it claims to be bound to a block
            that was not prepared before its round.
        """
        self.checkSignature(
            Phase.ROUND_CHANGE,
            change.sender,
            change.height,
            change.round,
            change.digest,
            change.signature,
        )
        prepared = change.prepared
        if prepared is None:
            if change.block is not None:
                raise Refused("a round change brings a block that it is not bound to")
            return
        if prepared.round >= change.round:
            raise Refused("a round change is bound to a round that is not before its own")
        if change.block is None or change.block.header.hash != prepared.digest:
            raise Refused("a round change does not bring the block that it is bound to")
        self.checkPrepared(change.height, prepared)

    def checkProposal(self, proposal: Proposal, parent: Header) -> None:
        """
        Whether a leader may propose this block in this round. Whether the block itself is
        valid is another question.

        @param parent: the header of the block before.
        @raise Refused: it may not.
        """
        header, round = proposal.block.header, proposal.round
        self.checkVote(proposal)
        if header.height != proposal.height or header.parent != parent.hash:
            raise Refused("the proposed block does not follow the last one")
        if round == 0:
            if header.view != parent.view:
                raise Refused("the first round's block is not of the first view")
            return
        self.checkJustification(proposal.height, round, proposal.justification)
        bound = highestPrepared(proposal.justification)
        if bound is None:
            if header.view != parent.view + round:
                raise Refused("a new block is not of its round's view")
        elif bound.prepared is None or header.hash != bound.prepared.digest:
            raise Refused("the round changes bind the leader to another block")

    def checkJustification(
        self, height: int, round: int, justification: Sequence[RoundChange]
    ) -> None:
        """
        @raise Refused: these are not round changes of a quorum of distinct replicas to exactly
            this height and round.
        """
        senders: set[int] = set()
        for change in justification:
            if (change.height, change.round) != (height, round):
                raise Refused("a round change in the justification is for another round")
            if change.sender in senders:
                raise Refused("a replica is counted twice in the justification")
            senders.add(change.sender)
            self.checkRoundChange(change)
        if len(senders) < self.quorum:
            raise Refused("the justification has no quorum")


def highestPrepared(changes: Sequence[RoundChange]) -> RoundChange | None:
    """
    The round change that binds a new leader: the one prepared in the highest round.
    """
    return max(
        (change for change in changes if change.prepared is not None),
        key=lambda change: change.prepared.round if change.prepared else -1,
        default=None,
    )
