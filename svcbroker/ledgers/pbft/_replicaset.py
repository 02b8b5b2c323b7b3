"""
The set of replicas in one process: their network, timers, and which of them run; and the controls
with which operators stop replicas and disturb their network.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Sequence
from random import Random
from typing import Any

from attrs import define, evolve
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from ...chain import Candidate, Certificate, Header, quorum
from ...errors import ParameterInvalid
from ...model import DoubleVote, FaultReport, NodeCondition
from ...net.turns import LazyTimer
from ...probes import probe
from ._keys import ReplicaSigner
from ._protocol import (
    Conditions,
    Decide,
    DecidedBlock,
    Effect,
    Evidence,
    Message,
    Send,
    SimulatedNetwork,
    StartTimer,
    Timer,
)
from ._replica import Replica, ReplicaApplication, Timing
from ._votes import MessageRefused, Rules

EVIDENCE_KEPT = 100


@define
class _Slot:
    """
    A replica with its timers.

    @ivar others: the indexes of all other replicas.
    @ivar timers: by L{Timer}.
    """

    replica: Replica
    others: Sequence[int]
    timers: Sequence[LazyTimer]
    isRunning: bool


class ReplicaSet:
    """
    Runs the replicas of one process: delivers messages and timeouts, and carries out their effects.

    A stopped replica receives nothing and its timers do not run. It keeps its votes and its lock,
    as a node does that stores its votes on disk.

    @ivar network: the network between the replicas; its conditions may be set at any time.
    @ivar evidence: the latest evidence of double signing.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: IReactorTime,
        random: Random,
        rules: Rules,
        signers: Sequence[ReplicaSigner],
        application: ReplicaApplication,
        timing: Timing,
        decided: Callable[[Candidate, Certificate], None],
        conditions: Conditions | None = None,
        makeReplica: Callable[
            [ReplicaSigner, Rules, ReplicaApplication, Timing, Header], Replica
        ] = Replica,
        keepEvidence: Callable[[Evidence], None] = lambda evidence: None,
    ) -> None:
        """
        @param decided: called once for each decided block.
        @param keepEvidence: called for all evidence of double signing.
        @param makeReplica: makes a replica; tests pass faulty ones.
        """
        self.network = SimulatedNetwork(reactor, random, self._deliver, conditions)
        self.evidence: deque[Evidence] = deque(maxlen=EVIDENCE_KEPT)
        self._reactor = reactor
        self._rules = rules
        self._signers = signers
        self._application = application
        self._timing = timing
        self._decided = decided
        self._makeReplica = makeReplica
        self._keepEvidence = keepEvidence
        self._slots: list[_Slot] = []
        self._stopped: set[int] = set()
        self._height = 0
        self._storedHeight = 0
        self._hasWork = False
        self._isStopped = True

    def start(self, head: Header, round: int) -> None:
        """
        Start all replicas, or start them again after a decided block could not be stored.

        @param head: the header of the last stored block.
        @param round: the first round of the next height in which no replica has ever signed.
        """
        self.stop()
        self._isStopped = False
        self._height = self._storedHeight = head.height
        self._hasWork = False
        self._slots = [self._makeSlot(signer, head) for signer in self._signers]
        # Start all replicas before any message is delivered, or some would take the others to be
        # ahead. Stopped ones, too, must know their first round.
        started = [slot.replica.start(round) for slot in self._slots]
        for index in self.running:
            self._perform(index, started[index])

    def reform(self, rules: Rules, signers: Sequence[ReplicaSigner], head: Header) -> None:
        """
        Replace the replicas after a change of the validator set.

        @param head: the header of the last block, which is stored and contains the change.
        """
        round = self.nextRound(head.height + 1)
        self._rules = rules
        self._signers = signers
        if self._stopped:
            probe("replica set: replaced while a replica is stopped")
        self._stopped = {index for index in self._stopped if index < len(signers)}
        self.start(head, round)

    def _makeSlot(self, signer: ReplicaSigner, head: Header) -> _Slot:
        replica = self._makeReplica(signer, self._rules, self._application, self._timing, head)

        def timer(kind: Timer) -> LazyTimer:
            return LazyTimer(self._reactor, lambda: self._timeOut(replica, kind))

        return _Slot(
            replica=replica,
            others=[other.index for other in self._signers if other is not signer],
            timers=[timer(kind) for kind in Timer],
            isRunning=signer.index not in self._stopped,
        )

    def stop(self) -> None:
        """
        Stop all replicas, for good or until L{start}. They can still be inspected.
        """
        self._isStopped = True
        self.network.stop()
        for slot in self._slots:
            for timer in slot.timers:
                timer.close()

    @property
    def running(self) -> Sequence[int]:
        """The indexes of the running replicas."""
        if self._isStopped:
            return []
        return [index for index, slot in enumerate(self._slots) if slot.isRunning]

    @property
    def replicas(self) -> Sequence[Replica]:
        """The replicas by index."""
        return [slot.replica for slot in self._slots]

    def stopReplica(self, index: int) -> None:
        """
        Stop a replica. Stopping a stopped one changes nothing.
        """
        slot = self._slots[index]
        self._stopped.add(index)
        slot.isRunning = False
        for timer in slot.timers:
            timer.stop()

    def startReplica(self, index: int) -> None:
        """
        Start a stopped replica. Starting a running one changes nothing.
        """
        slot = self._slots[index]
        if slot.isRunning:
            return
        self._stopped.discard(index)
        slot.isRunning = True
        self._perform(index, slot.replica.resume())
        if self._hasWork:
            self._perform(index, slot.replica.propose(self._height + 1))

    def propose(self) -> None:
        """
        Have the replicas produce a block. Does nothing while the set is stopped.
        """
        self._hasWork = True
        running = self.running
        # The leader first: on a perfect network the block is decided within its turn, and the
        # others need not be told that one is due.
        first = bisect_left(running, self._slots[running[0]].replica.leader) if running else 0
        for index in (*running[first:], *running[:first]):
            if self._hasWork:
                self._perform(index, self._slots[index].replica.propose(self._height + 1))

    def stored(self, height: int) -> None:
        """
        Record that the block of this height is on stable storage: no replica will vote at this
        height again.
        """
        self._storedHeight = height
        for signer in self._signers:
            signer.forgetBelow(height + 1)

    def nextRound(self, height: int) -> int:
        """The first round of a height in which no replica has signed anything."""
        return max(signer.nextRound(height) for signer in self._signers)

    def _timeOut(self, replica: Replica, timer: Timer) -> None:
        index, height = replica.index, replica.height
        # All replicas share a disk, so a block that this one has missed may be there, even if the
        # only replica that decided it is stopped or faulty.
        decided = self._application.decided(height) if height <= self._storedHeight else None
        if decided is not None:
            probe("replica set: missed block read from the disk")
            header, certificate = decided
            stored = DecidedBlock(sender=index, header=header, certificate=certificate)
            self._perform(index, replica.receive([stored]))
        if replica.height == height:
            self._perform(index, replica.timeOut(timer))

    def _deliver(self, target: int, messages: Sequence[Message]) -> None:
        if 0 <= target < len(self._slots):
            slot = self._slots[target]
            if slot.isRunning:
                self._carryOut(target, slot, slot.replica.receive(messages))

    def _perform(self, index: int, effects: Sequence[Effect]) -> None:
        if not self._isStopped:
            self._carryOut(index, self._slots[index], effects)
            self.network.flush()

    def _carryOut(self, index: int, slot: _Slot, effects: Sequence[Effect]) -> None:
        slots, send = self._slots, self.network.send
        for effect in effects:
            if isinstance(effect, Send):
                targets = slot.others if effect.target is None else (effect.target,)
                send(index, targets, effect.message)
            elif isinstance(effect, StartTimer):
                slot.timers[effect.timer].start(effect.delay)
            elif isinstance(effect, Decide):
                self._decide(index, effect.candidate, effect.certificate)
                # The decision may have stopped or replaced the set.
                if self._isStopped or self._slots is not slots:
                    return
            else:
                self._reportEvidence(effect)

    def _reportEvidence(self, evidence: Evidence) -> None:
        self.evidence.append(evidence)
        self._keepEvidence(evidence)
        first = evidence.first
        self._log.warn(
            "replica {slot} contradicted itself at height {height}, round {round}",
            slot=first.sender,
            height=first.height,
            round=first.round,
        )

    def _decide(self, index: int, candidate: Candidate, certificate: Certificate) -> None:
        header = candidate.header
        if header.height <= self._height:
            return
        try:
            # A faulty replica must not have a block stored that cannot be proved. The signatures
            # of correct ones are verified by now, so this takes some microseconds.
            self._rules.checkDecided(
                DecidedBlock(sender=index, header=header, certificate=certificate)
            )
        except MessageRefused as error:
            self._log.error(
                "replica {index} decided block {height} without a valid certificate: {reason}",
                index=index,
                height=header.height,
                reason=str(error),
            )
            return
        self._height = header.height
        self._hasWork = False
        self._decided(candidate, certificate)


class FaultControls:
    """
    Stops and starts the replicas of a set and changes their network; see
    L{IFaultyLedger<svcbroker.interfaces.IFaultyLedger>}.
    """

    _log = Logger()

    def __init__(
        self,
        group: str,
        replicaSet: ReplicaSet,
        calm: Conditions,
        earlier: Sequence[DoubleVote] = (),
    ) -> None:
        """
        @param group: the group's name, for the log.
        @param replicaSet: the replicas.
        @param calm: the network's conditions without injected faults.
        @param earlier: the evidence of double signing that was on disk when the ledger started.
        """
        self._group = group
        self._replicaSet = replicaSet
        self._calm = calm
        self._earlier = earlier

    def stopNode(self, index: int) -> None:
        """Stop a replica."""
        self._check(index)
        self._replicaSet.stopReplica(index)
        self._warn(f"node {index} was stopped")

    def startNode(self, index: int) -> None:
        """Start a stopped replica."""
        self._check(index)
        self._replicaSet.startReplica(index)
        self._warn(f"node {index} was started")

    def setNetwork(
        self,
        delay: tuple[float, float] | None,
        loss: float | None,
        duplication: float | None,
        cut: Collection[tuple[int, int]] | None,
    ) -> None:
        """Change the network."""
        for index in {index for link in cut or () for index in link}:
            self._check(index)
        given: dict[str, Any] = {
            "delay": delay,
            "loss": loss,
            "duplication": duplication,
            "cut": None if cut is None else frozenset(cut),
        }
        changes = {name: value for name, value in given.items() if value is not None}
        network = self._replicaSet.network
        network.conditions = evolve(network.conditions, **changes)
        text = ", ".join(f"{name} {_text(value)}" for name, value in changes.items())
        self._warn(f"the network has {text}")

    def heal(self) -> None:
        """End all injected faults."""
        self._replicaSet.network.conditions = self._calm
        for index in range(len(self._replicaSet.replicas)):
            self._replicaSet.startReplica(index)
        self._warn("all is well again")

    def describe(self) -> FaultReport:
        """The current faults, and the state of each replica."""
        running = set(self._replicaSet.running)
        replicas = self._replicaSet.replicas
        conditions = self._replicaSet.network.conditions
        return FaultReport(
            nodes=[
                NodeCondition(
                    index=index,
                    isRunning=index in running,
                    isLeader=replica.leader == replica.index,
                    view=replica.view,
                    height=replica.head.height,
                )
                for index, replica in enumerate(replicas)
            ],
            quorum=quorum(len(replicas)),
            delay=conditions.delay,
            loss=conditions.loss,
            duplication=conditions.duplication,
            cut=conditions.cut,
            evidence=[
                *self._earlier,
                *(
                    DoubleVote(
                        node=each.first.sender, height=each.first.height, round=each.first.round
                    )
                    for each in self._replicaSet.evidence
                ),
            ],
        )

    def isolation(self) -> str:
        """
        The reason why nothing can be decided, if cut links leave no quorum; otherwise empty.
        """
        running, cut = self._replicaSet.running, self._replicaSet.network.conditions.cut
        needed = quorum(len(self._replicaSet.replicas))
        # Each replica also counts itself.
        connected = [
            target
            for target in running
            if sum((sender, target) not in cut for sender in running) >= needed
        ]
        if len(connected) >= needed:
            return ""
        return f"the network is cut: {len(connected)} nodes hear a quorum, {needed} must"

    def _check(self, index: int) -> None:
        count = len(self._replicaSet.replicas)
        if not 0 <= index < count:
            raise ParameterInvalid(f"there is no node {index}, only 0 to {count - 1}")

    def _warn(self, what: str) -> None:
        self._log.warn(
            "a fault made on purpose in group {group}: {what}", group=self._group, what=what
        )


def _text(value: Any) -> str:
    return str(sorted(value)) if isinstance(value, frozenset) else str(value)
