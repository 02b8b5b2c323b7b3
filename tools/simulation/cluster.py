"""
The cluster: each replica on a host of its own, with its own state, clock and disk.

This is the test of agreement: the hosts share nothing but the network.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from attrs import frozen

from svcbroker.chain import Transaction, faultsTolerated
from svcbroker.ledgers.pbft._keys import DoubleSign
from svcbroker.ledgers.pbft._protocol import Message
from svcbroker.ledgers.pbft._replica import Timing

from .adversary import Adversary
from .behaviours import Behaviour
from .byzantine import drawBehaviours, makeByzantine
from .chain import StoredBlock
from .clients import Client
from .clock import VirtualClock
from .faults import FAULTS, Faults, Planned, longOutage, lostDisks, plan
from .genesis import NOW, SigningVerifier, genesisOf, seedsOf
from .host import Identity, ReplicaHost
from .judge import ERROR, LIVENESS, SIGNATURE, Judge, Violation
from .network import Envelope, LinkConditions, Network
from .outcome import Outcome
from .replicas import CORRECT, Components
from .trace import Trace, short

CLIENTS = 2
LONGEST = 8.0
"""The maximum timeout of a round, in seconds."""
TIMEOUT = (0.6, 1.2)
"""The shortest and the longest timeout of a host's first round, in seconds."""
RESEND = 0.4
"""The interval of retransmissions, in seconds."""
SYNC = 0.002
"""How long a healthy disk takes to sync, in seconds."""
TURNS = (0.0, 0.002, 0.01, 0.04)
"""Seconds of a turn of the hosts' event loops; one is drawn for each run."""
OUTAGE = 300.0
"""How long the longest fault lasts, in seconds."""
AFTERWARDS = 3
"""How many blocks must be decided once all faults are over."""


@frozen(kw_only=True)
class Focus:
    """
    What the schedules of a run concentrate on.

    @ivar behaviours: the behaviours of all Byzantine replicas, of which there are f.
    @ivar faults: the other faults to draw from.
    @ivar isLong: whether there is a long outage.
    @ivar isWiped: whether disks are lost, in place of Byzantine replicas.
    @ivar script: all faults, instead of random ones.
    """

    behaviours: Sequence[Callable[[], Behaviour]] = ()
    faults: Faults = FAULTS
    isLong: bool = False
    isWiped: bool = False
    script: Sequence[Planned] = ()


class Cluster:
    """
    One run of a cluster.

    @ivar faults: how often each kind of fault was injected.
    @ivar byzantine: the indexes of the Byzantine replicas.
    """

    def __init__(
        self,
        seed: int,
        nodes: int,
        components: Components = CORRECT,
        trace: Trace | None = None,
        focus: Focus | None = None,
    ) -> None:
        self.seed = seed
        self.nodes = nodes
        self.components = components
        self.trace = Trace() if trace is None else trace
        self.faults: Counter[str] = Counter()
        self.random = Random(f"cluster {nodes} {seed}")
        self.clock = VirtualClock(NOW)
        self.genesis = genesisOf(nodes)
        self._verifier = SigningVerifier(nodes)
        self.judge = Judge(self.genesis, self._verifier)
        turn = self.random.choice(TURNS)
        self.network = Network(self.clock, self.random, self.trace, self._deliver, turn)
        self._others = [[n for n in range(nodes) if n != index] for index in range(nodes)]
        self.lasts = self.random.uniform(4.0, 10.0)
        self.focus = Focus(isLong=self.random.random() < 0.004) if focus is None else focus
        if self.focus.isLong:
            self.lasts += OUTAGE
        self.signed: set[bytes] = set()
        self._bodies: dict[bytes, Sequence[Transaction]] = {}
        self._active: list[Planned] = []
        self._isHealed = False
        self._pickByzantine()
        self.hosts = [self._makeHost(index) for index in range(nodes)]
        self._clients = [
            Client(number, self.genesis.chain, self.clock, self.random, self.trace, self._submit)
            for number in range(CLIENTS)
        ]

    def _pickByzantine(self) -> None:
        random, nodes, focus = self.random, self.nodes, self.focus
        worst = faultsTolerated(nodes)
        count = worst if focus.behaviours or random.random() < 0.7 else random.randint(0, worst)
        if focus.isWiped:
            count = 0
        bad = random.sample(range(nodes), worst)
        self.byzantine = sorted(bad[:count])
        # A host that loses its disk counts as Byzantine until it has caught up.
        self._mayBeWiped = bad[count:] if focus.isWiped or random.random() < 0.5 else []
        seeds = {index: seedsOf(nodes)[index] for index in self.byzantine}
        self.adversary = Adversary(random, self.genesis.chain, nodes, seeds)
        self.adversary.signed = self._verifier.addSigned

    def _makeHost(self, index: int) -> ReplicaHost:
        random, isByzantine = self.random, index in self.byzantine
        make = self.components.replica
        if isByzantine:
            focused = [behaviour() for behaviour in self.focus.behaviours]
            behaviours = focused or drawBehaviours(self.adversary)
            self.note(
                f"node {index} is Byzantine: {', '.join(type(b).__name__ for b in behaviours)}"
            )
            make = makeByzantine(make, self.adversary, behaviours)  # type: ignore[assignment]
        drift = random.choice((1.0, 1.0, random.uniform(0.8, 1.25)))
        if drift != 1.0:
            self.faults["clock drift"] += 1
        longest = LONGEST if self.components.longest is None else self.components.longest
        identity = Identity(
            index=index,
            seed=seedsOf(self.nodes)[index],
            genesis=self.genesis,
            timing=Timing(round=random.uniform(*TIMEOUT), longest=longest, resend=RESEND),
            drift=drift,
            isByzantine=isByzantine,
            makeReplica=make,
        )
        rules = self.components.rules(chain=self.genesis.chain, verifier=self._verifier)
        disk = self.components.disk(self.clock, random)
        disk.latency = SYNC
        disk.crashed = partial(self._lostPower, index)
        host = ReplicaHost(identity, self.components, rules, self, self.clock, disk)
        host.skew = random.uniform(-5.0, 5.0) if drift != 1.0 else 0.0
        return host

    # Running.

    def run(self) -> Outcome:
        """Run to the end."""
        violation: Violation | None = None
        try:
            self._run()
        except Violation as found:
            violation = found
        except DoubleSign as error:
            violation = Violation(SIGNATURE, f"a replica tried to sign twice: {error}")
        except Exception as error:  # reported as a violation
            self.trace.note(self.clock.seconds(), traceback.format_exc())
            violation = Violation(ERROR, repr(error))
        if violation is not None:
            self.note(f"VIOLATION  {violation}")
        return Outcome(
            system="cluster",
            nodes=self.nodes,
            seed=self.seed,
            violation=violation,
            blocks=self.judge.height,
            answered=sum(client.answered for client in self._clients),
            messages=self.network.carried,
            seconds=self.clock.seconds() - NOW,
            faults=self.faults + self.adversary.actions,
            digest=self.trace.digest(),
        )

    def _run(self) -> None:
        for host in self.hosts:
            host.boot()
        for client in self._clients:
            client.start()
        for planned in self.focus.script or (
            *plan(self.random, self.nodes, self.lasts, self.focus.faults),
            *lostDisks(self.random, self._mayBeWiped, self.lasts),
            *(longOutage(self.lasts) if self.focus.isLong else ()),
        ):
            self.clock.callLater(planned.at, self._begin, planned)
            self.clock.callLater(planned.until, self._end, planned)
        self.clock.runUntil(NOW + self.lasts)
        self._heal()
        goal = self.judge.height + AFTERWARDS
        bound = self._livenessBound()
        self.clock.runUntil(self.clock.seconds() + bound, lambda: self._isDone(goal))
        if not self._isDone(goal):
            heights = [host.chain.head.height for host in self._correct]
            raise Violation(
                LIVENESS,
                f"{bound:.0f} seconds after the end of all faults the nodes are at {heights}, "
                f"not at {goal}",
            )
        self.judge.finish([(host.index, host.chain.headers) for host in self._correct], goal)

    @property
    def _correct(self) -> Sequence[ReplicaHost]:
        return [host for host in self.hosts if not host.identity.isByzantine]

    def _isDone(self, goal: int) -> bool:
        return all(host.isUp and host.chain.head.height >= goal for host in self._correct)

    def _livenessBound(self) -> float:
        """
        The time within which the replicas must catch up and decide, in seconds: enough for the last
        one to reach the round of the first, and for each block a round of every Byzantine leader
        and two more.
        """
        spread = max((host.replica.round for host in self._correct), default=0)
        rounds = spread + (AFTERWARDS + 1) * (len(self.byzantine) + 2)
        return 1.3 * LONGEST * rounds

    # Faults.

    def _begin(self, planned: Planned) -> None:
        self.faults[planned.kind] += 1
        self.note(f"FAULT {planned.kind}: {planned.fault}")
        self._active.append(planned)
        planned.fault.begin(self)

    def _end(self, planned: Planned) -> None:
        if planned in self._active:
            self._active.remove(planned)
            self.note(f"END of {planned.kind}")
            planned.fault.end(self)

    def _heal(self) -> None:
        for planned in list(self._active):
            self._end(planned)
        self._isHealed = True
        self.network.obstacles.clear()
        self.network.conditions = LinkConditions()
        for host in self.hosts:
            host.disk.arm(None)
            if not host.isUp:
                self.boot(host.index)
            host.resume()
        self.note("END of all faults")

    def _lostPower(self, index: int) -> None:
        self.crash(index, self.random.uniform(0.05, 3.0))

    def crash(self, index: int, downFor: float | None) -> None:
        """Take the power from a host, for some seconds or until L{boot}."""
        host = self.hosts[index]
        if host.isUp:
            self.note(f"node {index} crashes")
            host.crash()
            if downFor is not None:
                self.clock.callLater(downFor, self.boot, index)

    def wipe(self, index: int) -> None:
        """Erase the disk of a host that is down."""
        heights = [host.replica.height for host in self.hosts]
        self.hosts[index].wipe(max(heights) + 1)

    def boot(self, index: int) -> None:
        """Start a host that is down."""
        if not self.hosts[index].isUp:
            self.note(f"node {index} starts")
            self.hosts[index].boot()

    # Calls of the hosts.

    def send(self, index: int, target: int | None, message: Message) -> None:
        host = self.hosts[index]
        if not host.identity.isByzantine:
            self.judge.sent(index, message)
        others = self._others[index]
        self.network.send(index, others if target is None else (target,), message)

    def _deliver(self, target: int, envelopes: Sequence[Envelope]) -> None:
        messages = [message for sender, message in envelopes if message.sender == sender]
        self.hosts[target].receive(messages)

    def fetch(self, hash: bytes) -> Sequence[Transaction] | None:
        known = self.adversary.blocks.get(hash)
        return self._bodies.get(hash) if known is None else known.transactions

    def decided(self, index: int, block: StoredBlock) -> None:
        header = block.header
        self._bodies.setdefault(header.hash, block.transactions)
        self.note(
            f"node {index} DECIDES h{header.height} r{block.certificate.round} "
            f"{short(header.hash)} of {len(block.transactions)}"
        )
        if self.hosts[index].identity.isByzantine:
            return
        isNew = self.judge.isNew(header)
        self.judge.decided(index, header, block.certificate, block.transactions)
        self.judge.final(header.height)
        if isNew:
            for planned in self._active:
                planned.fault.onDecided(self, index)

    def answer(self, index: int, hash: bytes, sequence: int) -> None:
        if self.hosts[index].identity.isByzantine:
            return
        self.judge.acknowledged(index, hash, sequence)
        for client in self._clients:
            client.onAnswer(hash)

    def loaded(self, index: int) -> None:
        host = self.hosts[index]
        if not host.identity.isByzantine:
            self.judge.loaded(index, host.chain.headers, host.acknowledged)

    def stepped(self, index: int) -> None:
        host = self.hosts[index]
        if not host.identity.isByzantine:
            self.judge.measured(index, host.replica)

    def _submit(self, transaction: Transaction) -> None:
        self.judge.submitted(transaction)
        self.signed.add(transaction.hash)
        for host in self.hosts:
            if self._isHealed or self.random.random() > 0.1:
                delay = self.random.uniform(0.001, 0.02)
                self.clock.callLater(delay, host.submit, transaction)

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        self.trace.note(self.clock.seconds(), text)
