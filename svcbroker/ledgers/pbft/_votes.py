"""
Votes: the messages that a replica has received and stores, those of one round and those of heights
to come, and the rules of round changes.

The rules are pure functions: which claims are valid, and which block the leader of a later round
may propose. They follow QBFT (arXiv 2002.03613). Every receiver verifies every claim and repeats
the leader's choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TypeAlias

from attrs import frozen
from msgspec import Struct

from ...chain import (
    Candidate,
    CertificateInvalid,
    Header,
    Phase,
    checkCertificate,
    quorum,
    votePayload,
)
from ...probes import probe
from ._keys import SignatureVerifier
from ._protocol import DecidedBlock, Message, PhaseVote, PreparedCertificate, Proposal, RoundChange

Signatures = Sequence[tuple[int, bytes]]
"""Pairs of a replica's index and its signature, by ascending index."""


ROUNDS_AHEAD = 32
"""
The number of rounds beyond its own that a replica stores messages for. Bounds the memory that a
Byzantine replica can fill with votes of far rounds.
"""

HEIGHTS_AHEAD = 10
"""The number of heights beyond its own that a replica stores messages for."""

MESSAGES_KEPT = 16
"""
The number of messages of future heights that are stored for each sender. Bounds what a Byzantine
replica can store here.
"""


Votes: TypeAlias = dict[int, PhaseVote | Proposal]
"""The votes of one phase, by sender: the first one of each."""


class VoteSet(Struct):
    """
    The messages received for one round: at most one of each kind from each replica.

    @ivar proposal: the leader's proposal, once accepted.
    @ivar accepted: the block of that proposal, executed.
    @ivar prepares: the prepares; the leader's proposal is its prepare.
    @ivar commits: the commits.
    @ivar changes: round changes to this round, by sender.
    @ivar accused: the phases and senders against whom evidence was reported.
    """

    proposal: Proposal | None = None
    accepted: Candidate | None = None
    prepares: Votes = {}
    commits: Votes = {}
    changes: dict[int, RoundChange] = {}
    accused: set[tuple[Phase, int]] = set()

    def mayAccuse(self, message: PhaseVote | Proposal) -> bool:
        """Whether no evidence has been reported yet against the sender for this phase."""
        return (message.phase, message.sender) not in self.accused

    def accuse(self, message: PhaseVote | Proposal) -> None:
        """
        Record that evidence against the sender was reported: one report for each phase is enough.
        """
        self.accused.add((message.phase, message.sender))

    def onlyCommits(self) -> VoteSet:
        """The part that still matters after the round: its commits can still decide a block."""
        return VoteSet(commits=self.commits, accused=self.accused)


def quorumOf(votes: Votes, digest: bytes, quorum: int) -> Signatures | None:
    """
    A quorum's signatures for one block, or C{None} if there are fewer.
    """
    found = [(sender, vote.signature) for sender, vote in votes.items() if vote.digest == digest]
    if len(found) < quorum:
        return None
    found.sort()
    return tuple(found[:quorum])


class FutureMessages:
    """
    A bounded store of messages for future heights.
    """

    def __init__(self) -> None:
        self._kept: dict[int, list[Message]] = {}

    def add(self, message: Message, height: int) -> None:
        """
        Store a message, if it may still be needed. The link has authenticated its sender.

        @param height: the height that is being decided.
        """
        if not isinstance(message, Proposal | PhaseVote | RoundChange):
            return
        kept = self._kept.setdefault(message.sender, [])
        if (
            message.height <= height + HEIGHTS_AHEAD
            and len(kept) < MESSAGES_KEPT
            and message not in kept
        ):
            kept.append(message)
        elif len(kept) >= MESSAGES_KEPT:
            probe("replica: no room for messages of later heights")
        elif message not in kept:
            probe("replica: message of a far height")

    def pop(self, height: int) -> Sequence[Message]:
        """
        Remove and return the messages of a height, in the order received from each sender; drop
        those of lower heights.
        """
        popped: list[Message] = []
        for sender, kept in self._kept.items():
            popped += [message for message in kept if message.height == height]
            self._kept[sender] = [message for message in kept if message.height > height]
        return popped


_MAX = 2**64 - 1
_DIGEST_SIZE = 32


class MessageRefused(Exception):
    """The message breaks a rule of the protocol. The text says which."""


@frozen(kw_only=True)
class Rules:
    """
    The rules that all replicas of a chain apply to messages.

    @ivar chain: the chain's id.
    @ivar verifier: the replicas' public keys.
    """

    chain: bytes
    verifier: SignatureVerifier

    @property
    def replicas(self) -> int:
        """The number of replicas."""
        return len(self.verifier.keys)

    @property
    def quorum(self) -> int:
        """The number of replicas that must agree."""
        return quorum(self.replicas)

    def checkSignature(
        self, phase: Phase, sender: int, height: int, round: int, digest: bytes, signature: bytes
    ) -> None:
        """
        @raise Refused: the signature is not the sender's, or a field is out of range.
        """
        if not (0 <= height <= _MAX and 0 <= round <= _MAX and len(digest) == _DIGEST_SIZE):
            raise MessageRefused(f"the {phase.name} is not one")
        payload = votePayload(phase, self.chain, height, round, digest)
        if not self.verifier.verify(sender, payload, signature):
            raise MessageRefused(f"the {phase.name} is not signed by node {sender}")

    def checkVote(self, vote: PhaseVote | Proposal) -> None:
        """
        @raise Refused: the vote is not signed by its sender.
        """
        self.checkSignature(
            vote.phase, vote.sender, vote.height, vote.round, vote.digest, vote.signature
        )
        if isinstance(vote, Proposal):
            self.verifier.proposal = vote
        else:
            self.verifier.addVote(vote)

    def checkDecided(self, decided: DecidedBlock) -> None:
        """
        @raise Refused: the commit certificate is not valid for the block.
        """
        header, certificate, verifier = decided.header, decided.certificate, self.verifier
        if not 0 <= certificate.round <= _MAX:
            raise MessageRefused("the certificate's round is not one")

        def isSigned(index: int, payload: bytes, signature: bytes) -> bool:
            vote = PhaseVote(
                phase=Phase.COMMIT,
                sender=index,
                height=header.height,
                round=certificate.round,
                digest=header.hash,
                signature=signature,
            )
            return vote in verifier.verified or verifier.verify(index, payload, signature)

        try:
            checkCertificate(certificate, header, self.replicas, isSigned)
        except CertificateInvalid as error:
            raise MessageRefused(str(error)) from None

    def checkPrepared(self, height: int, prepared: PreparedCertificate) -> None:
        """
        @raise Refused: it does not hold a quorum of distinct prepares for exactly its height, round
            and digest.
        """
        last = -1
        for sender, signature in prepared.signatures:
            if sender <= last:
                raise MessageRefused("a prepared certificate's signers are not in rising order")
            last = sender
            self.checkPrepare(height, prepared, sender, signature)
        if len(prepared.signatures) < self.quorum:
            raise MessageRefused("a prepared certificate has no quorum")

    def checkPrepare(
        self, height: int, prepared: PreparedCertificate, sender: int, signature: bytes
    ) -> None:
        """
        Check one signature of a prepared certificate. The leader's proposal counts as its prepare,
        since a leader proposes one block in a round.

        @raise Refused: it is neither a prepare nor a proposal signed by its sender.
        """
        for phase in (Phase.PREPARE, Phase.PROPOSE):
            with suppress(MessageRefused):
                self.checkSignature(
                    phase, sender, height, prepared.round, prepared.digest, signature
                )
                return
        raise MessageRefused(f"the PREPARE is not signed by node {sender}")

    def checkRoundChange(self, change: RoundChange) -> None:
        """
        @raise Refused: it is not signed by its sender, or claims a lock on a block that was not
            prepared in an earlier round.
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
                raise MessageRefused("a round change brings a block that it is not bound to")
            return
        if prepared.round >= change.round:
            raise MessageRefused("a round change is bound to a round that is not before its own")
        if change.block is None or change.block.header.hash != prepared.digest:
            raise MessageRefused("a round change does not bring the block that it is bound to")
        self.checkPrepared(change.height, prepared)

    def checkProposal(self, proposal: Proposal, parent: Header) -> None:
        """
        Check that the leader may propose this block in this round. Whether the block is valid is
        checked elsewhere.

        @param parent: the header of the previous block.
        @raise Refused: the leader may not propose it.
        """
        header, round = proposal.block.header, proposal.round
        if proposal is not self.verifier.proposal:
            self.checkVote(proposal)
        if header.height != proposal.height or header.parent != parent.hash:
            raise MessageRefused("the proposed block does not follow the last one")
        if round == 0:
            if header.view != parent.view:
                raise MessageRefused("the first round's block is not of the first view")
            return
        self.checkJustification(proposal.height, round, proposal.justification)
        highest = self.highestPrepared(proposal.justification)
        if highest is None:
            if header.view != parent.view + round:
                raise MessageRefused("a new block is not of its round's view")
        elif highest.prepared is None or header.hash != highest.prepared.digest:
            raise MessageRefused("the round changes bind the leader to another block")

    def checkJustification(
        self, height: int, round: int, justification: Sequence[RoundChange]
    ) -> None:
        """
        @raise Refused: these are not round changes of a quorum of distinct replicas to exactly this
            height and round.
        """
        senders: set[int] = set()
        for change in justification:
            if (change.height, change.round) != (height, round):
                raise MessageRefused("a round change in the justification is for another round")
            if change.sender in senders:
                raise MessageRefused("a replica is counted twice in the justification")
            senders.add(change.sender)
            self.checkRoundChange(change)
        if len(senders) < self.quorum:
            raise MessageRefused("the justification has no quorum")

    def highestPrepared(self, changes: Sequence[RoundChange]) -> RoundChange | None:
        """
        The round change that decides what a new leader must propose: the one prepared in the
        highest round. C{None} if no sender is locked.
        """
        return max(
            (change for change in changes if change.prepared is not None),
            key=lambda change: change.prepared.round if change.prepared else -1,
            default=None,
        )
