"""
Ways to break the protocol on purpose. A simulator that finds none of them proves nothing.

Each one is a set of worse parts (L{Parts}): subclasses at the places where a host takes its
replica, its rules, its application and its disk from. Nothing is patched.
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
from svcbroker.ledgers.pbft._tally import Tally

from .chain import HostChain, StoredBlock
from .cluster import Focus
from .disk import Disk, Record
from .faults import FAULTS, Faults
from .replicas import HostReplica, Parts, Promise
from .traitors import Flooder, Forger, Inventor, SilentLeader, WrongRoot

# Rules that let too much through.


class SmallQuorum(Rules):
    """Half of the nodes are taken for a quorum."""

    @property
    def quorum(self) -> int:
        return self.nodes // 2

    def checkDecided(self, decided: DecidedBlock) -> None:
        certificate, header = decided.certificate, decided.header
        for signer, signature in certificate.signatures:
            self.checkSignature(
                Phase.COMMIT, signer, header.height, certificate.round, header.hash, signature
            )
        if len({signer for signer, _ in certificate.signatures}) < self.quorum:
            raise Refused("no quorum")


class DuplicateSigners(Rules):
    """One signature counts as often as it stands in a certificate."""

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
    """A decided block is taken from anybody, whatever its certificate says."""

    def checkDecided(self, decided: DecidedBlock) -> None:
        pass


class UncheckedBinding(Rules):
    """What a round change says it is bound to is believed."""

    def checkPrepared(self, height: int, prepared: PreparedCertificate) -> None:
        pass


class UnboundCertificate(Rules):
    """A prepared certificate's signatures may be from an earlier round than it says."""

    def checkPrepared(self, height: int, prepared: PreparedCertificate) -> None:
        for round in range(prepared.round, -1, -1):
            with suppress(Refused):
                super().checkPrepared(height, replace(prepared, round=round))
                return
        raise Refused("no quorum in any round")


class UnjustifiedProposal(Rules):
    """The leader of a later round may propose whatever it likes."""

    def checkProposal(self, proposal: Proposal, parent: Header) -> None:
        self.checkVote(proposal)
        if proposal.block.header.parent != parent.hash:
            raise Refused("it does not follow")


class DuplicateSenders(Rules):
    """One round change counts as often as it stands in a justification."""

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
    """Nobody verifies signatures under votes, proposals and round changes."""

    def checkSignature(self, *args: Any) -> None:
        pass


def lowestPrepared(changes: Sequence[RoundChange]) -> RoundChange | None:
    """The round change that was prepared in the lowest round."""
    bound = [change for change in changes if change.prepared is not None]
    return min(bound, key=lambda c: c.prepared.round if c.prepared else -1, default=None)


class LowestRules(Rules):
    """A new leader is held to the block that was prepared first."""

    def checkProposal(self, proposal: Proposal, parent: Header) -> None:
        lowest = lowestPrepared(proposal.justification)
        if lowest is None:
            super().checkProposal(proposal, parent)
            return
        self.checkVote(proposal)
        self.checkJustification(proposal.height, proposal.round, proposal.justification)
        if lowest.prepared is None or lowest.prepared.digest != proposal.digest:
            raise Refused("the round changes bind the leader to another block")


# Replicas that do something wrong.


class LowestLeader(HostReplica):
    """As a leader it proposes the block that was prepared first."""

    def _proposeIfDue(self) -> None:
        changes = self._roundOf(self.round).changes if self.round else {}
        lowest = lowestPrepared(list(changes.values()))
        if lowest is not None:
            # Of those that are bound, only the lowest one is shown to the code below.
            kept = {s: c for s, c in changes.items() if c.prepared is None or c is lowest}
            if len(kept) >= self._rules.quorum:
                changes.clear()
                changes.update(kept)
        super()._proposeIfDue()


class NoCatchUp(HostReplica):
    """It does not tell anybody what was decided."""

    def _answer(self, target: int, height: int) -> None:
        pass


class MixedCommits(HostReplica):
    """It counts the commits of all rounds together."""

    def _onVote(self, vote: Vote) -> None:
        height = self.height
        super()._onVote(vote)
        if vote.phase is not Phase.COMMIT or vote.height != height:
            return
        for tally in self._rounds.values():
            tally.votes(Phase.COMMIT).setdefault(vote.sender, vote)
        for round in list(self._rounds):
            if self.height == height:
                self._decideIfCommitted(round)


class ForgottenLock(HostReplica):
    """It forgets in the next round what it was bound to."""

    def _enterRound(self, round: int) -> bool:
        self._prepared = self._preparedBlock = None
        return super()._enterRound(round)


class StaleView(HostReplica):
    """It goes back to an earlier round when that one's leader proposes something."""

    def _onProposal(self, proposal: Proposal) -> None:
        isStale = proposal.height == self.height and proposal.round < self.round
        if isStale and proposal.sender == leaderIndex(
            self.head.view + proposal.round, self.height, self._rules.nodes
        ):
            self.round = proposal.round
            self._firstRound = min(self._firstRound, self.round)
            self._rounds.setdefault(proposal.round, Tally())
        super()._onProposal(proposal)


class Follower(HostReplica):
    """It follows anybody to any round."""

    def _followOthers(self) -> None:
        ahead = max(self._ahead.values(), default=0)
        if ahead > self.round:
            self._activate()
            self._enterRound(ahead)


class Loner(HostReplica):
    """It follows nobody, and never waits for the others."""

    def _timeRound(self) -> None:
        self._isTimed = True
        timeout = self._timing.roundTimeout(self.round - self._firstRound)
        self._effects.append(StartTimer(Timer.ROUND, timeout))

    def _followOthers(self) -> None:
        pass


class SaysOnce(HostReplica):
    """It says nothing again."""

    def timeOut(self, timer: Timer) -> Sequence[Effect]:
        return () if timer is Timer.RESEND else super().timeOut(timer)


class Hoarder(HostReplica):
    """It keeps whatever it hears, however far ahead."""

    def _roundOf(self, number: int) -> Tally:
        return self._rounds.setdefault(number, Tally())


class RoundUser(Replica):
    """It begins in round 0, whatever has been set aside."""

    def start(self, round: int) -> Sequence[Effect]:
        return super().start(0)


class Trusting(HostChain):
    """It does not look whether a block's header follows from its execution."""

    def execute(self, block: ProposedBlock) -> Candidate:
        header = block.header
        with suppress(InvalidBlock):
            return super().execute(block)
        executed = proposeBlock(
            self.state, self.head, header.view, header.timestamp, block.transactions
        )
        return evolve(executed, header=header)


class Repeater(HostChain):
    """It takes transactions that nobody sent it."""

    def check(self, block: ProposedBlock) -> Candidate | None:
        if self.isStoring or block.header.parent != self.head.hash:
            return None
        return self.execute(block)


# Disks that are believed too early.


class Amnesia(Disk):
    """Promises are not written at all."""

    def write(self, record: Record, done: Callable[[], None]) -> bool:
        if isinstance(record, Promise):
            self._clock.callLater(0, done)
            return True
        return super().write(record, done)


class EagerDisk(Disk):
    """Blocks count as stored before they have been synced."""

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
    A protocol that is broken.

    @ivar parts: what it is built of.
    @ivar schedule: the name of the directed schedule that finds it; empty where there is none.
    @ivar focus: what schedules must be about to find it soon.
    @ivar replica: the class of the embedded ledger's replicas.
    @ivar isEmbedded: whether it can only be found there.
    """

    parts: Parts
    schedule: str = ""
    focus: Focus | None = None
    replica: type[Replica] = Replica
    isEmbedded: bool = False


UNBROKEN = Mutation(Parts())
"""No mutation at all."""


_AMBUSHES: Faults = [fault for fault in FAULTS if fault[0] in ("ambush", "starvation", "power cut")]
_CRASHES: Faults = [fault for fault in FAULTS if fault[0] in ("crash at a write", "power cut")]

MUTATIONS: Mapping[str, Mutation] = {
    # Rules that let too much through.
    "quorum too small": Mutation(Parts(rules=SmallQuorum), "too few signers"),
    "signers counted twice": Mutation(Parts(rules=DuplicateSigners), "duplicate signers"),
    "decided block not checked": Mutation(Parts(rules=BlindSync), "", Focus(vices=[Forger])),
    "certificates not checked": Mutation(Parts(rules=UncheckedBinding), "empty certificate"),
    "certificate of any round": Mutation(Parts(rules=UnboundCertificate), "unbound certificate"),
    "proposal not justified": Mutation(Parts(rules=UnjustifiedProposal), "unjustified"),
    "senders counted twice": Mutation(Parts(rules=DuplicateSenders), "duplicate senders"),
    "signatures not checked": Mutation(Parts(rules=UnsignedVotes), "forged senders"),
    "lowest, not highest": Mutation(
        Parts(rules=LowestRules, replica=LowestLeader), "lowest prepared"
    ),
    # Replicas that forget, or listen to what is over.
    "commits mixed over rounds": Mutation(Parts(replica=MixedCommits)),
    "forgotten lock": Mutation(Parts(replica=ForgottenLock), "", Focus(faults=_AMBUSHES)),
    "lock lost in a crash": Mutation(
        Parts(keep=lambda kept: evolve(kept, prepared=None, block=None)), "lost lock"
    ),
    "promises not written": Mutation(Parts(disk=Amnesia), "", Focus(faults=_CRASHES)),
    "older round after a crash": Mutation(
        Parts(keep=lambda kept: evolve(kept, round=kept.round - 1)), "", Focus(faults=_CRASHES)
    ),
    "stale view accepted": Mutation(Parts(replica=StaleView)),
    "votes after a lost disk": Mutation(Parts(wipedVotes=True), "", Focus(isWiped=True)),
    "rounds used again": Mutation(Parts(), replica=RoundUser, isEmbedded=True),
    "success before the sync": Mutation(Parts(disk=EagerDisk), "", Focus(faults=_CRASHES)),
    # Replicas that believe others.
    "execution not checked": Mutation(Parts(chain=Trusting), "", Focus(vices=[WrongRoot])),
    "anybody's transactions": Mutation(Parts(chain=Repeater), "", Focus(vices=[Inventor])),
    "rounds without bound": Mutation(Parts(replica=Hoarder), "", Focus(vices=[Flooder])),
    "anybody followed": Mutation(Parts(replica=Follower), "", Focus(vices=[Flooder])),
    # Replicas that do not find together.
    "no catching up": Mutation(Parts(replica=NoCatchUp)),
    "nothing said again": Mutation(Parts(replica=SaysOnce)),
    "nobody waited for": Mutation(Parts(replica=Loner)),
    "time-outs without bound": Mutation(
        Parts(longest=1e9), "", Focus(vices=[SilentLeader], isLong=True)
    ),
}
"""Protocols that are broken, by what is wrong with them."""
