"""
Replicas, applications and disks with a fault, for L{mutations}.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from msgspec import structs

from svcbroker.chain import (
    Candidate,
    InvalidBlock,
    Phase,
    faultsTolerated,
    leaderIndex,
    proposeBlock,
)
from svcbroker.ledgers.pbft._protocol import (
    Effect,
    Message,
    PhaseVote,
    PreparedCertificate,
    Proposal,
    ProposedBlock,
    RoundChange,
    StartTimer,
    Timer,
)
from svcbroker.ledgers.pbft._replica import Replica
from svcbroker.ledgers.pbft._votes import Rules, VoteSet, quorumOf

from .chain import HostChain, StoredBlock
from .disk import Disk, Record
from .replicas import HostReplica, Promise


class NoCatchUp(HostReplica):
    """Sends no decided blocks to others."""

    def _answer(self, target: int, height: int) -> None:
        pass


class MixedCommits(HostReplica):
    """Counts the commits of all rounds together."""

    def _onVote(self, vote: PhaseVote) -> None:
        height = self.height
        super()._onVote(vote)
        if vote.phase is not Phase.COMMIT or vote.height != height:
            return
        for voteSet in self._rounds.values():
            voteSet.commits.setdefault(vote.sender, vote)
        for round, voteSet in list(self._rounds.items()):
            if self.height == height:
                self._decideIfCommitted(voteSet, round, vote.digest)


class ForgottenLock(HostReplica):
    """Forgets its lock when it enters a round."""

    def _enterRound(self, round: int) -> bool:
        self._prepared = self._preparedBlock = None
        return super()._enterRound(round)


class FirstLock(HostReplica):
    """Returns to its first lock when it enters a round."""

    _first: tuple[int, PreparedCertificate | None, ProposedBlock | None] = (0, None, None)

    def _enterRound(self, round: int) -> bool:
        height, certificate, _ = self._first
        if height != self.height or certificate is None:
            self._first = (self.height, self._prepared, self._preparedBlock)
        _, self._prepared, self._preparedBlock = self._first
        return super()._enterRound(round)


class StaleView(HostReplica):
    """Returns to an earlier round when the leader of that one proposes."""

    def _onProposal(self, proposal: Proposal) -> None:
        isStale = proposal.height == self.height and proposal.round < self.round
        if isStale and proposal.sender == leaderIndex(
            self.head.view + proposal.round, self.height, self._rules.replicas
        ):
            self.round = proposal.round
            self._firstRound = min(self._firstRound, self.round)
            self._rounds.setdefault(proposal.round, VoteSet())
        super()._onProposal(proposal)


class FollowsAnyone(HostReplica):
    """Follows any replica to any round."""

    def _followOthers(self) -> None:
        ahead = max(self._reached.values(), default=0)
        if ahead > self.round:
            self._activate()
            self._enterRound(ahead)


class NeverWaits(HostReplica):
    """Follows no replica, and does not wait for the others."""

    def _startRoundTimer(self) -> None:
        self._isTimed = True
        timeout = self._timing.roundTimeout(self.round - self._firstRound)
        self._effects.append(StartTimer(Timer.ROUND, timeout))

    def _followOthers(self) -> None:
        pass


class NoRetransmission(HostReplica):
    """Does not retransmit."""

    def timeOut(self, timer: Timer) -> Sequence[Effect]:
        return () if timer is Timer.RESEND else super().timeOut(timer)


class UnboundedRounds(HostReplica):
    """Stores the messages of all rounds."""

    def _roundOf(self, number: int) -> VoteSet:
        return self._rounds.setdefault(number, VoteSet())


class RoundReuser(Replica):
    """Starts in round 0, whatever was reserved."""

    def start(self, round: int) -> Sequence[Effect]:
        return super().start(0)


class NoExecutionCheck(HostChain):
    """Does not check a block's header against its execution."""

    def execute(self, block: ProposedBlock) -> Candidate:
        header = block.header
        with suppress(InvalidBlock):
            return super().execute(block)
        executed = proposeBlock(
            self.state, self.head, header.view, header.timestamp, block.transactions
        )
        return structs.replace(executed, header=header)


class AnyTransaction(HostChain):
    """Accepts transactions that no client sent."""

    def check(self, block: ProposedBlock) -> Candidate | None:
        if self.isStoring or block.header.parent != self.head.hash:
            return None
        return self.execute(block)


# Faulty disks.


class VolatilePromises(Disk):
    """Does not write promises."""

    def write(self, record: Record, done: Callable[[], None]) -> bool:
        if isinstance(record, Promise):
            self._clock.callLater(0, done)
            return True
        return super().write(record, done)


class UnsyncedAcknowledgement(Disk):
    """Reports blocks as stored before they are synced."""

    def write(self, record: Record, done: Callable[[], None]) -> bool:
        if not isinstance(record, StoredBlock):
            return super().write(record, done)
        isDone = False

        def once() -> None:
            nonlocal isDone
            if not isDone:
                isDone = True
                done()

        self._clock.callLater(0, once)
        return super().write(record, once)


class LeaderCountedTwice(HostReplica):
    """Counts the leader's proposal and its prepare as two."""

    _second: tuple[int, int, PhaseVote] | None = None

    def _onVote(self, vote: PhaseVote) -> None:
        super()._onVote(vote)
        voteSet = self._rounds.get(vote.round)
        isHere = (vote.height, vote.round) == (self.height, self.round)
        if not isHere or voteSet is None or vote.phase is not Phase.PREPARE:
            return
        proposal = voteSet.proposal
        if proposal is not None and (proposal.sender, proposal.digest) == (
            vote.sender,
            vote.digest,
        ):
            self._second = (vote.height, vote.round, vote)
            self._commitIfPrepared(voteSet)

    def _commitIfPrepared(self, voteSet: VoteSet) -> None:
        super()._commitIfPrepared(voteSet)
        proposal, second = voteSet.proposal, self._second
        if proposal is None or voteSet.accepted is None or self._isPrepared or second is None:
            return
        if second[:2] != (self.height, self.round):
            return
        digest = proposal.digest
        signatures = {
            (sender, vote.signature)
            for sender, vote in voteSet.prepares.items()
            if vote.digest == digest
        } | {(second[2].sender, second[2].signature)}
        if len(signatures) >= self._quorum:
            self._prepared = PreparedCertificate(
                round=self.round, digest=digest, signatures=tuple(sorted(signatures))
            )
            self._preparedBlock = ProposedBlock.of(voteSet.accepted)
            self._toCommit = digest


class CommitWithoutBlock(HostReplica):
    """Commits after a quorum of prepares, even of a block that it does not know."""

    _committed = (0, 0)

    def _commitIfPrepared(self, voteSet: VoteSet) -> None:
        super()._commitIfPrepared(voteSet)
        place = (self.height, self.round)
        if voteSet.accepted is not None or self._committed == place:
            return
        for digest in {vote.digest for vote in voteSet.prepares.values()}:
            if quorumOf(voteSet.prepares, digest, self._quorum) is not None:
                self._committed, self._toCommit = place, digest


class UnlockedLeader(HostReplica):
    """Does not lock on a block that it proposes."""

    def _commitIfPrepared(self, voteSet: VoteSet) -> None:
        before = self._prepared, self._preparedBlock
        super()._commitIfPrepared(voteSet)
        if self.leader == self.index:
            self._prepared, self._preparedBlock = before


class SmallLock(HostReplica):
    """Locks on a block that a quorum but one has prepared."""

    def _commitIfPrepared(self, voteSet: VoteSet) -> None:
        quorum, self._quorum = self._quorum, self._quorum - 1
        super()._commitIfPrepared(voteSet)
        self._quorum = quorum

    def _onVote(self, vote: PhaseVote) -> None:
        super()._onVote(vote)
        voteSet = self._rounds.get(vote.round)
        if voteSet is not None and vote.round == self.round:
            self._commitIfPrepared(voteSet)


class LateCommit(HostReplica):
    """Sends a commit that became due in the round before."""

    def _enterRound(self, round: int) -> bool:
        due, height = self._toCommit, self.height
        hasEntered = super()._enterRound(round)
        if height == self.height:
            self._toCommit = due
        return hasEntered


class LatePrepare(HostReplica):
    """Sends a prepare that became due in the round before."""

    def _enterRound(self, round: int) -> bool:
        due, height = self._toPrepare, self.height
        hasEntered = super()._enterRound(round)
        if height == self.height:
            self._toPrepare = due
        return hasEntered


class LockOfAllHeights(HostReplica):
    """Keeps its lock when it begins a height."""

    def _beginHeight(self) -> None:
        kept = getattr(self, "_prepared", None), getattr(self, "_preparedBlock", None)
        super()._beginHeight()
        self._prepared, self._preparedBlock = kept


class AnyDigest(HostReplica):
    """Counts votes for all blocks of a round together."""

    def _decideIfCommitted(self, voteSet: VoteSet, round: int, digest: bytes) -> None:
        mixed = {
            sender: structs.replace(vote, digest=digest) if isinstance(vote, PhaseVote) else vote
            for sender, vote in voteSet.commits.items()
        }
        super()._decideIfCommitted(structs.replace(voteSet, commits=mixed), round, digest)


class UnsortedCertificate(HostReplica):
    """Lists the signers of a prepared certificate in the order of their prepares."""

    def _commitIfPrepared(self, voteSet: VoteSet) -> None:
        before = self._prepared
        super()._commitIfPrepared(voteSet)
        made = self._prepared
        if made is not None and made is not before:
            order = list(voteSet.prepares)
            signatures = sorted(made.signatures, key=lambda pair: order.index(pair[0]))
            self._prepared = structs.replace(made, signatures=tuple(signatures))


class FollowsFew(HostReplica):
    """Follows f others."""

    def _followOthers(self) -> None:
        ahead = [round for round in self._reached.values() if round > self.round]
        if len(ahead) >= faultsTolerated(self._replicas) > 0:
            self._activate()
            self._enterRound(min(ahead))


class FollowsHighest(HostReplica):
    """Enters the highest round that one of more than f others has entered."""

    def _followOthers(self) -> None:
        ahead = [round for round in self._reached.values() if round > self.round]
        if len(ahead) > faultsTolerated(self._replicas):
            self._activate()
            self._enterRound(max(ahead))


class UnboundedFuture(HostReplica):
    """Keeps all messages of later heights."""

    def _handle(self, messages: Sequence[Message]) -> None:
        for message in messages:
            if message.height > self.height and isinstance(message, PhaseVote):
                self._future._kept.setdefault(message.sender, []).append(message)
        super()._handle(messages)


class AnyProposer(HostReplica):
    """Accepts a proposal of any replica as that of the leader."""

    def _onProposal(self, proposal: Proposal) -> None:
        if proposal.height < self.height or proposal.round < self.round:
            return
        self._rules.checkProposal(proposal, self.head)
        leader = leaderIndex(self.head.view + proposal.round, self.height, self._replicas)
        super()._onProposal(structs.replace(proposal, sender=leader))


class AnyProposerRules(Rules):
    """Accepts a proposal that was signed by any replica."""

    def checkVote(self, vote: PhaseVote | Proposal) -> None:
        if isinstance(vote, PhaseVote):
            super().checkVote(vote)


class SecondProposal(HostReplica):
    """Takes each further proposal of a round for the first one."""

    def _onProposal(self, proposal: Proposal) -> None:
        voteSet = self._rounds.get(proposal.round)
        if voteSet is not None and voteSet.proposal is not None and proposal.height == self.height:
            voteSet.proposal = None
        super()._onProposal(proposal)


class NoLateCommits(HostReplica):
    """Forgets the commits of a round when it leaves it."""

    def _enterRound(self, round: int) -> bool:
        for number, voteSet in self._rounds.items():
            if number < round:
                voteSet.commits.clear()
        return super()._enterRound(round)


class HastyLeader(HostReplica):
    """Proposes in a later round without waiting for a quorum of round changes."""

    def _proposeIfDue(self) -> None:
        quorum, self._quorum = self._quorum, 1
        super()._proposeIfDue()
        self._quorum = quorum


class LeaderIgnoresLocks(HostReplica):
    """Proposes a new block in later rounds, whatever the others are locked on."""

    def _proposeIfDue(self) -> None:
        rules = self._rules
        self._rules = _NoLocks(chain=rules.chain, verifier=rules.verifier)
        super()._proposeIfDue()
        self._rules = rules


class _NoLocks(Rules):
    def highestPrepared(self, changes: Sequence[RoundChange]) -> RoundChange | None:
        return None


class SameRoundAgain(HostReplica):
    """Restarts in the round in which it may have voted."""

    def recall(self, promise: Promise) -> Sequence[Effect]:
        self._prepared, self._preparedBlock = promise.prepared, promise.block
        return self.start(promise.round)


class UnreservedRounds(Replica):
    """Enters rounds that it could not reserve."""

    def _enterRound(self, round: int) -> bool:
        self._application.reserve(self.height, round)
        application = self._application
        self._application = _Reserved()  # type: ignore[assignment]
        try:
            return super()._enterRound(round)
        finally:
            self._application = application


class _Reserved:
    def reserve(self, height: int, round: int) -> bool:
        return True


class RememberedRounds(HostReplica):
    """Keeps the rounds that others had reached at earlier heights."""

    def _beginHeight(self) -> None:
        kept = getattr(self, "_reached", {})
        super()._beginHeight()
        self._reached = kept
