"""
Rules that accept too much, for L{mutations}.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from svcbroker.chain import Header, Phase, faultsTolerated
from svcbroker.ledgers.pbft._protocol import (
    DecidedBlock,
    PhaseVote,
    PreparedCertificate,
    Proposal,
    RoundChange,
)
from svcbroker.ledgers.pbft._votes import MessageRefused, Rules


class SmallQuorum(Rules):
    """Takes half of the replicas for a quorum."""

    @property
    def quorum(self) -> int:
        return self.replicas // 2

    def checkDecided(self, decided: DecidedBlock) -> None:
        certificate, header = decided.certificate, decided.header
        for signer, signature in certificate.signatures:
            self.checkSignature(
                Phase.COMMIT, signer, header.height, certificate.round, header.hash, signature
            )
        if len({signer for signer, _ in certificate.signatures}) < self.quorum:
            raise MessageRefused("no quorum")


class DuplicateSigners(Rules):
    """Counts repeated signatures of a certificate."""

    def checkPrepared(self, height: int, prepared: PreparedCertificate) -> None:
        for sender, signature in prepared.signatures:
            self.checkPrepare(height, prepared, sender, signature)
        if len(prepared.signatures) < self.quorum:
            raise MessageRefused("no quorum")

    def checkDecided(self, decided: DecidedBlock) -> None:
        certificate, header = decided.certificate, decided.header
        for sender, signature in certificate.signatures:
            self.checkSignature(
                Phase.COMMIT, sender, header.height, certificate.round, header.hash, signature
            )
        if len(certificate.signatures) < self.quorum:
            raise MessageRefused("no quorum")


class BlindSync(Rules):
    """Adopts a decided block whatever its certificate."""

    def checkDecided(self, decided: DecidedBlock) -> None:
        pass


class UncheckedBinding(Rules):
    """Does not check the prepared certificates of round changes."""

    def checkPrepared(self, height: int, prepared: PreparedCertificate) -> None:
        pass


class UnboundCertificate(Rules):
    """Accepts signatures of an earlier round in a prepared certificate."""

    def checkPrepared(self, height: int, prepared: PreparedCertificate) -> None:
        for round in range(prepared.round, -1, -1):
            with suppress(MessageRefused):
                super().checkPrepared(height, replace(prepared, round=round))
                return
        raise MessageRefused("no quorum in any round")


class UnjustifiedProposal(Rules):
    """Accepts any proposal in later rounds."""

    def checkProposal(self, proposal: Proposal, parent: Header) -> None:
        self.checkVote(proposal)
        if proposal.block.header.parent != parent.hash:
            raise MessageRefused("it does not follow")


class DuplicateSenders(Rules):
    """Counts repeated round changes of a justification."""

    def checkJustification(
        self, height: int, round: int, justification: Sequence[RoundChange]
    ) -> None:
        for change in justification:
            if (change.height, change.round) != (height, round):
                raise MessageRefused("it is for another round")
            self.checkRoundChange(change)
        if len(justification) < self.quorum:
            raise MessageRefused("no quorum")


class UnsignedVotes(Rules):
    """Does not verify the signatures of votes, proposals and round changes."""

    def checkSignature(self, *args: Any) -> None:
        pass


class LowestPrepared(Rules):
    """Requires a new leader to propose the block that was prepared first."""

    def highestPrepared(self, changes: Sequence[RoundChange]) -> RoundChange | None:
        bound = [change for change in changes if change.prepared is not None]
        return min(bound, key=lambda c: c.prepared.round if c.prepared else -1, default=None)


class HighestView(Rules):
    """Requires a new leader to propose the prepared block that was first proposed last."""

    def highestPrepared(self, changes: Sequence[RoundChange]) -> RoundChange | None:
        bound = [change for change in changes if change.prepared is not None]
        return max(bound, key=lambda c: c.block.header.view if c.block else -1, default=None)


class FewRoundChanges(Rules):
    """Accepts a justification by f+1 replicas."""

    def checkJustification(
        self, height: int, round: int, justification: Sequence[RoundChange]
    ) -> None:
        for change in justification:
            if (change.height, change.round) != (height, round):
                raise MessageRefused("it is for another round")
            self.checkRoundChange(change)
        if len({change.sender for change in justification}) <= faultsTolerated(self.replicas):
            raise MessageRefused("no correct replica")


class UnsignedCommits(Rules):
    """Does not verify the signatures of commits."""

    def checkVote(self, vote: PhaseVote | Proposal) -> None:
        if vote.phase is not Phase.COMMIT:
            super().checkVote(vote)


class PreparedIsDecided(Rules):
    """Accepts a quorum's prepares in place of a commit certificate."""

    def checkDecided(self, decided: DecidedBlock) -> None:
        certificate, header = decided.certificate, decided.header
        prepared = PreparedCertificate(
            round=certificate.round, digest=header.hash, signatures=certificate.signatures
        )
        try:
            super().checkDecided(decided)
        except MessageRefused:
            self.checkPrepared(header.height, prepared)


class EarlierRoundChanges(Rules):
    """Accepts round changes to earlier rounds in a justification."""

    def checkJustification(
        self, height: int, round: int, justification: Sequence[RoundChange]
    ) -> None:
        for change in justification:
            if change.height != height or change.round > round:
                raise MessageRefused("it is for another round")
            self.checkRoundChange(change)
        if len({change.sender for change in justification}) < self.quorum:
            raise MessageRefused("no quorum")


class LaterRoundChanges(Rules):
    """Accepts round changes to later rounds in a justification."""

    def checkJustification(
        self, height: int, round: int, justification: Sequence[RoundChange]
    ) -> None:
        for change in justification:
            if change.height != height or change.round < round:
                raise MessageRefused("it is for another round")
            self.checkRoundChange(change)
        if len({change.sender for change in justification}) < self.quorum:
            raise MessageRefused("no quorum")


class MisledLeader(Rules):
    """Does not compare the certificate of a round change with the block beside it."""

    def checkRoundChange(self, change: RoundChange) -> None:
        prepared = change.prepared
        try:
            super().checkRoundChange(change)
        except MessageRefused:
            if prepared is None or change.block is None or prepared.round >= change.round:
                raise
            self.checkSignature(
                Phase.ROUND_CHANGE,
                change.sender,
                change.height,
                change.round,
                change.digest,
                change.signature,
            )
            self.checkPrepared(change.height, prepared)


class UncomparedBlock(MisledLeader):
    """Neither compares the block that a leader proposes with the certificate that binds it."""

    def checkProposal(self, proposal: Proposal, parent: Header) -> None:
        try:
            super().checkProposal(proposal, parent)
        except MessageRefused:
            highest = self.highestPrepared(proposal.justification)
            if highest is None or highest.block != proposal.block:
                raise


class JustifiedByLeader(Rules):
    """Counts the leader in each justification, whether its round change is in it or not."""

    def checkJustification(
        self, height: int, round: int, justification: Sequence[RoundChange]
    ) -> None:
        for change in justification:
            if (change.height, change.round) != (height, round):
                raise MessageRefused("it is for another round")
            self.checkRoundChange(change)
        if len({change.sender for change in justification}) + 1 < self.quorum:
            raise MessageRefused("no quorum")


class ChosenView(Rules):
    """Accepts a new block of any view."""

    def checkProposal(self, proposal: Proposal, parent: Header) -> None:
        self.checkVote(proposal)
        header = proposal.block.header
        if header.height != proposal.height or header.parent != parent.hash:
            raise MessageRefused("it does not follow")
        if proposal.round:
            self.checkJustification(proposal.height, proposal.round, proposal.justification)
            highest = self.highestPrepared(proposal.justification)
            bound = None if highest is None else highest.prepared
            if bound is not None and header.hash != bound.digest:
                raise MessageRefused("another block")


class TwoFPlusOne(SmallQuorum):
    """Takes 2f+1 replicas for a quorum, however many there are."""

    @property
    def quorum(self) -> int:
        return 2 * faultsTolerated(self.replicas) + 1


class LeaderTwiceInCertificate(Rules):
    """Counts the leader's proposal and its prepare as two in a prepared certificate."""

    def checkPrepared(self, height: int, prepared: PreparedCertificate) -> None:
        for sender, signature in prepared.signatures:
            self.checkPrepare(height, prepared, sender, signature)
        if len(set(prepared.signatures)) < self.quorum:
            raise MessageRefused("no quorum")


class EmptyRoundChanges(Rules):
    """Does not verify the signature of a round change without a lock."""

    def checkRoundChange(self, change: RoundChange) -> None:
        if change.prepared is not None or change.block is not None:
            super().checkRoundChange(change)


class AnyNumber(Rules):
    """Takes the number of a sender modulo the number of replicas."""

    def checkSignature(
        self, phase: Phase, sender: int, height: int, round: int, digest: bytes, signature: bytes
    ) -> None:
        super().checkSignature(phase, sender % self.replicas, height, round, digest, signature)


class CertificateOfAnyHeight(Rules):
    """Accepts prepares of the height before in a prepared certificate."""

    def checkPrepared(self, height: int, prepared: PreparedCertificate) -> None:
        try:
            super().checkPrepared(height, prepared)
        except MessageRefused:
            super().checkPrepared(height - 1, prepared)


class MostClaimed(Rules):
    """Requires a new leader to propose the block that most replicas are locked on."""

    def highestPrepared(self, changes: Sequence[RoundChange]) -> RoundChange | None:
        bound = [change for change in changes if change.prepared is not None]
        count = Counter(change.digest for change in bound)
        return max(bound, key=lambda change: count[change.digest], default=None)


class LastOfEqual(Rules):
    """Takes the last one of equally high locks, not the first."""

    def highestPrepared(self, changes: Sequence[RoundChange]) -> RoundChange | None:
        return super().highestPrepared(changes[::-1])


class LockOfSameRound(Rules):
    """Accepts a lock of the round that a round change enters."""

    def checkRoundChange(self, change: RoundChange) -> None:
        prepared = change.prepared
        if prepared is None or prepared.round != change.round:
            super().checkRoundChange(change)
            return
        self.checkSignature(
            Phase.ROUND_CHANGE,
            change.sender,
            change.height,
            change.round,
            change.digest,
            change.signature,
        )
        if change.block is None or change.block.header.hash != prepared.digest:
            raise MessageRefused("another block")
        self.checkPrepared(change.height, prepared)


class ParentNotCompared(Rules):
    """Does not compare a proposed block's height and parent; the application does."""

    def checkProposal(self, proposal: Proposal, parent: Header) -> None:
        try:
            super().checkProposal(proposal, parent)
        except MessageRefused:
            header = proposal.block.header
            if header.parent == parent.hash and header.height == proposal.height:
                raise


class SmallLockRules(Rules):
    """Accepts the prepared certificate of a quorum but one."""

    def checkPrepared(self, height: int, prepared: PreparedCertificate) -> None:
        for sender, signature in prepared.signatures:
            self.checkPrepare(height, prepared, sender, signature)
        if len({sender for sender, _ in prepared.signatures}) < self.quorum - 1:
            raise MessageRefused("no quorum")
