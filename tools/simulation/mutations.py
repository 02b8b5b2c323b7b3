"""
Mutations: unsafe variants of the protocol, which the simulator has to find.

Each is a set of faulty L{Components}: subclasses of the replica, the rules, the application or the
disk of a host. Nothing is patched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from attrs import evolve, frozen
from msgspec.structs import replace

from svcbroker.chain import (
    Candidate,
    Header,
    InvalidBlock,
    Phase,
    faultsTolerated,
    leaderIndex,
    proposeBlock,
)
from svcbroker.ledgers.pbft._effects import Effect, StartTimer, Timer
from svcbroker.ledgers.pbft._messages import (
    DecidedBlock,
    PreparedCertificate,
    Proposal,
    ProposedBlock,
    RoundChange,
    Vote,
)
from svcbroker.ledgers.pbft._replica import Replica
from svcbroker.ledgers.pbft._rounds import Refused, Rules
from svcbroker.ledgers.pbft._votes import VoteSet

from .behaviours import (
    FalseRoundChanges,
    Flooder,
    Forger,
    SilentLeader,
    Strategist,
    TransactionInventor,
    UnjustifiedProposer,
    WrongRoot,
)
from .chain import HostChain, StoredBlock
from .cluster import Focus
from .disk import Disk, Record
from .faults import FAULTS, Faults
from .replicas import Components, HostReplica, Promise

# Rules that accept too much.


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
            raise Refused("no quorum")


class DuplicateSigners(Rules):
    """Counts repeated signatures of a certificate."""

    def checkPrepared(self, height: int, prepared: PreparedCertificate) -> None:
        for sender, signature in prepared.signatures:
            self.checkPrepare(height, prepared, sender, signature)
        if len(prepared.signatures) < self.quorum:
            raise Refused("no quorum")

    def checkDecided(self, decided: DecidedBlock) -> None:
        certificate, header = decided.certificate, decided.header
        for sender, signature in certificate.signatures:
            self.checkSignature(
                Phase.COMMIT, sender, header.height, certificate.round, header.hash, signature
            )
        if len(certificate.signatures) < self.quorum:
            raise Refused("no quorum")


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
            with suppress(Refused):
                super().checkPrepared(height, replace(prepared, round=round))
                return
        raise Refused("no quorum in any round")


class UnjustifiedProposal(Rules):
    """Accepts any proposal in later rounds."""

    def checkProposal(self, proposal: Proposal, parent: Header) -> None:
        self.checkVote(proposal)
        if proposal.block.header.parent != parent.hash:
            raise Refused("it does not follow")


class DuplicateSenders(Rules):
    """Counts repeated round changes of a justification."""

    def checkJustification(
        self, height: int, round: int, justification: Sequence[RoundChange]
    ) -> None:
        for change in justification:
            if (change.height, change.round) != (height, round):
                raise Refused("it is for another round")
            self.checkRoundChange(change)
        if len(justification) < self.quorum:
            raise Refused("no quorum")


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
                raise Refused("it is for another round")
            self.checkRoundChange(change)
        if len({change.sender for change in justification}) <= faultsTolerated(self.replicas):
            raise Refused("no correct replica")


class UnsignedCommits(Rules):
    """Does not verify the signatures of commits."""

    def checkVote(self, vote: Vote | Proposal) -> None:
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
        except Refused:
            self.checkPrepared(header.height, prepared)


# Faulty replicas.


class NoCatchUp(HostReplica):
    """Sends no decided blocks to others."""

    def _answer(self, target: int, height: int) -> None:
        pass


class MixedCommits(HostReplica):
    """Counts the commits of all rounds together."""

    def _onVote(self, vote: Vote) -> None:
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
        return replace(executed, header=header)


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


@frozen
class Mutation:
    """
    An unsafe variant of the protocol.

    @ivar components: its components.
    @ivar schedule: the name of the directed schedule that finds it; empty if there is none.
    @ivar focus: what random schedules must concentrate on to find it soon.
    @ivar replica: the class of the embedded ledger's replicas.
    @ivar isEmbedded: whether it can only be found in the embedded system.
    """

    components: Components
    schedule: str = ""
    focus: Focus | None = None
    replica: type[Replica] = Replica
    isEmbedded: bool = False


UNBROKEN = Mutation(Components())
"""The correct protocol."""


_AMBUSHES: Faults = [
    fault for fault in FAULTS if fault[0] in ("ambush", "late ambush", "starvation", "power cut")
]
_CRASHES: Faults = [fault for fault in FAULTS if fault[0] in ("crash at a write", "power cut")]

_LOCKS = Focus(behaviours=[Strategist, UnjustifiedProposer, FalseRoundChanges], faults=_AMBUSHES)

MUTATIONS: Mapping[str, Mutation] = {
    # Rules that accept too much.
    "quorum too small": Mutation(Components(rules=SmallQuorum), "too few signers"),
    "signers counted twice": Mutation(Components(rules=DuplicateSigners), "duplicate signers"),
    "decided block not checked": Mutation(
        Components(rules=BlindSync), "", Focus(behaviours=[Forger])
    ),
    "certificates not checked": Mutation(
        Components(rules=UncheckedBinding), "empty certificate", _LOCKS
    ),
    "certificate of any round": Mutation(
        Components(rules=UnboundCertificate), "unbound certificate"
    ),
    "proposal not justified": Mutation(
        Components(rules=UnjustifiedProposal), "unjustified", _LOCKS
    ),
    "senders counted twice": Mutation(
        Components(rules=DuplicateSenders), "duplicate senders", _LOCKS
    ),
    "signatures not checked": Mutation(Components(rules=UnsignedVotes), "forged senders"),
    "lowest, not highest": Mutation(Components(rules=LowestPrepared), "lowest prepared", _LOCKS),
    "highest by view": Mutation(Components(rules=HighestView), "highest view", _LOCKS),
    "justified by f+1": Mutation(Components(rules=FewRoundChanges), "few round changes", _LOCKS),
    "commits not verified": Mutation(Components(rules=UnsignedCommits), "unsigned commit"),
    "prepared is decided": Mutation(Components(rules=PreparedIsDecided), "prepares as commits"),
    # Replicas that forget, or act on past rounds.
    "commits mixed over rounds": Mutation(Components(replica=MixedCommits)),
    "first lock kept": Mutation(Components(replica=FirstLock), "first lock", _LOCKS),
    "forgotten lock": Mutation(Components(replica=ForgottenLock), "", Focus(faults=_AMBUSHES)),
    "lock lost in a crash": Mutation(
        Components(keep=lambda kept: evolve(kept, prepared=None, block=None)), "lost lock"
    ),
    "promises not written": Mutation(Components(disk=VolatilePromises), "", Focus(faults=_CRASHES)),
    "older round after a crash": Mutation(
        Components(keep=lambda kept: evolve(kept, round=kept.round - 1)), "", Focus(faults=_CRASHES)
    ),
    "stale view accepted": Mutation(Components(replica=StaleView)),
    "votes after a lost disk": Mutation(Components(wipedVotes=True), "", Focus(isWiped=True)),
    "rounds used again": Mutation(Components(), replica=RoundReuser, isEmbedded=True),
    "success before the sync": Mutation(
        Components(disk=UnsyncedAcknowledgement), "", Focus(faults=_CRASHES)
    ),
    # Replicas that trust others.
    "execution not checked": Mutation(
        Components(chain=NoExecutionCheck), "", Focus(behaviours=[WrongRoot])
    ),
    "unsent transactions": Mutation(
        Components(chain=AnyTransaction), "", Focus(behaviours=[TransactionInventor])
    ),
    "rounds without bound": Mutation(
        Components(replica=UnboundedRounds), "", Focus(behaviours=[Flooder])
    ),
    "one replica followed": Mutation(
        Components(replica=FollowsAnyone), "", Focus(behaviours=[Flooder])
    ),
    # Replicas that fail to agree on a round.
    "no catching up": Mutation(Components(replica=NoCatchUp)),
    "no retransmission": Mutation(Components(replica=NoRetransmission)),
    "no waiting for others": Mutation(Components(replica=NeverWaits)),
    "timeouts without bound": Mutation(
        Components(longest=1e9), "", Focus(behaviours=[SilentLeader], isLong=True)
    ),
}
"""All mutations, by name."""
