"""
The embedded system: the embedded ledger with SQLite in real files, in one process that crashes
and restarts.
"""

from __future__ import annotations

import shutil
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

from attrs import evolve
from twisted.logger import globalLogPublisher
from twisted.python.failure import Failure

from svcbroker.broker.subscriptions import Subscriptions
from svcbroker.chain import Genesis, Header, Transaction, faultsTolerated
from svcbroker.interfaces import LedgerContext, Submission
from svcbroker.ledgers.pbft import PbftLedger
from svcbroker.ledgers.pbft._keys import ReplicaSigner
from svcbroker.ledgers.pbft._pbftledger import PbftSettings
from svcbroker.ledgers.pbft._protocol import Conditions, Decide, Effect, Send
from svcbroker.ledgers.pbft._replica import Replica
from svcbroker.model import Event
from svcbroker.storage import StorageError, Store

from .adversary import Adversary
from .behaviours import Behaviour
from .byzantine import drawBehaviours, makeByzantine
from .clients import LedgerClient
from .clock import VirtualClock
from .cluster import AFTERWARDS
from .crashingdisk import DATABASE, CrashingDisk
from .embeddedfaults import EMBEDDED_FAULTS
from .faults import Planned, plan
from .genesis import NOW
from .host import MEASURED
from .judge import DURABILITY, ERROR, LIVENESS, Judge, Violation
from .network import MAX_HOSTS, LinkConditions, Obstacle
from .outcome import Outcome
from .process import EmbeddedMachine, LogWatch, ProcessClock, observed
from .readers import LedgerReader
from .trace import Trace, kindOf, roundOf, short

CLIENTS = 3
READING = 60.0
"""Within so many seconds the readers get all events, once all else is over."""
TIMEOUT = (0.5, 1.0)
"""The shortest and the longest timeout of the first round, in seconds."""
LONGEST = 60.0  # the ledger's maximum timeout of a round, in seconds
MEMORY = Path("/dev/shm")
"""A directory in memory, where files cost least; used if it exists."""


class Embedded:
    """
    One run of an embedded ledger.

    @ivar obstacles: the obstacles that block messages now.
    @ivar disk: the disk.
    @ivar ledger: the ledger of the current process, or of the last one.
    @ivar isUp: whether the process runs.
    """

    def __init__(
        self,
        seed: int,
        nodes: int,
        makeReplica: type[Replica] = Replica,
        trace: Trace | None = None,
        script: Sequence[Planned] = (),
    ) -> None:
        """
        @param script: all faults, instead of random ones.
        """
        self.seed = seed
        self.nodes = nodes
        self.trace = Trace() if trace is None else trace
        self.network = self  # as seen by faults
        self.faults: Counter[str] = Counter()
        self.random = Random(f"embedded {nodes} {seed}")
        self.clock = VirtualClock(NOW)
        self.obstacles: list[Obstacle] = []
        self.isUp = False
        self.lasts = self.random.uniform(3.0, 9.0)
        self.judge: Judge | None = None
        self.skew = 0.0
        self.messages = self._steps = 0
        self._kind, self._script = makeReplica, script
        self._conditions = LinkConditions(delay=(0.0, self.random.choice((0.0, 0.01, 0.05))))
        self._active: list[Planned] = []
        self._entropy = 0
        self._acknowledged = 0
        self._error: Violation | None = None
        self._root = Path(mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
        self.disk = CrashingDisk(self.clock, self.random, self._root)
        self.disk.crashed = self._lostPower
        self.disk.stored = self._stored
        self.disk.gaveUp = lambda: self._judge.gaveUp()
        self._settings = PbftSettings(
            nodes=nodes,
            interval=self.random.choice((0.0, 0.01, 0.1)),
            empty=self.random.choice((None, None, 0.5)),
            timeout=self.random.uniform(*TIMEOUT),
            conditions=Conditions(delay=self._conditions.delay),
            seed=seed,
        )
        self._pickByzantine()
        self.clients = [LedgerClient(self, number) for number in range(CLIENTS)]
        topics = [f"topic/{number}" for number in range(CLIENTS)]
        self.readers = [LedgerReader(self, filters) for filters in (["#"], topics, ["topic/+"])]
        self.subscriptions: Subscriptions | None = None

    def _pickByzantine(self) -> None:
        worst = faultsTolerated(self.nodes)
        count = worst if self.random.random() < 0.6 else self.random.randint(0, worst)
        self.adversary = Adversary(self.random, bytes(32), self.nodes, {})
        self.byzantine: dict[int, Sequence[Behaviour]] = {}
        for index in sorted(self.random.sample(range(self.nodes), count)):
            self.byzantine[index] = behaviours = drawBehaviours(self.adversary)
            self.note(
                f"node {index} is Byzantine: {', '.join(type(b).__name__ for b in behaviours)}"
            )

    # Running.

    def run(self) -> Outcome:
        """Run to the end."""
        watch = LogWatch(self._logged)
        globalLogPublisher.addObserver(watch)
        violation: Violation | None = None
        try:
            with self.disk.files.installed():
                try:
                    self._run()
                finally:
                    self._abandon()
        except Violation as found:
            violation = found
        except Exception as error:  # reported as a violation
            self.note(traceback.format_exc())
            violation = Violation(ERROR, repr(error))
        finally:
            globalLogPublisher.removeObserver(watch)
            shutil.rmtree(self._root)
        if violation is not None:
            self.note(f"VIOLATION  {violation}")
        return Outcome(
            system="embedded",
            nodes=self.nodes,
            seed=self.seed,
            violation=violation,
            blocks=self.judge.height if self.judge else 0,
            answered=sum(client.answered for client in self.clients),
            messages=self.messages,
            seconds=self.clock.seconds() - NOW,
            faults=self.faults + self.adversary.actions,
            digest=self.trace.digest(),
        )

    def _run(self) -> None:
        self.boot(0)
        for client in self.clients:
            client.start()
        for reader in self.readers:
            reader.toggle()
        for planned in self._script or plan(self.random, self.nodes, self.lasts, EMBEDDED_FAULTS):
            self.clock.callLater(planned.at, self._begin, planned)
            self.clock.callLater(planned.until, self._end, planned)
        self._pass(self.lasts)
        self._heal()
        goal = self._judge.height + AFTERWARDS
        bound = self._livenessBound()
        self._pass(bound, lambda: self._isDone(goal))
        if not self._isDone(goal):
            raise Violation(
                LIVENESS,
                f"{bound:.0f} seconds after the end of all faults the ledger is at "
                f"{self._judge.height}, not at {goal}",
            )
        self._check()
        for reader in self.readers:
            reader.finish()
        final = self._judge.sequences()
        self._pass(READING, lambda: all(reader.hasRead(final) for reader in self.readers))
        for reader in self.readers:
            self._judge.read(reader.sequences, final)

    def _pass(self, seconds: float, isDone: Callable[[], bool] = lambda: False) -> None:
        """
        Advance the clock.

        @param isDone: whether to stop early.
        """

        def isEnough() -> bool:
            return self._found is not None or isDone()

        self.clock.runUntil(self.clock.seconds() + seconds, isEnough)
        if self._found is not None:
            raise self._found

    @property
    def _judge(self) -> Judge:
        assert self.judge is not None
        return self.judge

    @property
    def _found(self) -> Violation | None:
        """The first violation, even if its exception was lost in a Deferred."""
        return self._judge.verdict or self._error

    def _isDone(self, goal: int) -> bool:
        if not self.isUp or self._judge.height < goal:
            return False
        return all(
            replica.head.height >= goal
            for replica in self.ledger.replicaSet.replicas
            if replica.index not in self.byzantine
        )

    def _livenessBound(self) -> float:
        replicas = self.ledger.replicaSet.replicas
        rounds = max(replica.round - replica._firstRound for replica in replicas)
        return 10 + 1.3 * LONGEST * (rounds + (AFTERWARDS + 1) * (len(self.byzantine) + 2))

    def _logged(self, failure: Failure) -> None:
        """Record a logged failure as an error, unless it is an injected disk failure."""
        if not failure.check(StorageError, Violation):
            self._error = self._error or Violation(ERROR, repr(failure.value))
            self.note(failure.getTraceback())

    # The process.

    def boot(self, index: int) -> None:
        """Start the process with the files on the disk."""
        if self.isUp:
            return
        self.note("the process starts")
        self.disk.directory.parent.mkdir(parents=True, exist_ok=True)
        self._processClock = ProcessClock(self.clock)
        self.ledger = PbftLedger(
            LedgerContext(
                group="1",
                directory=self.disk.directory,
                reactor=self._processClock,
                now=lambda: self.clock.seconds() + self.skew,
                entropy=self._random,
                runInThread=self.disk,
                maxContent=1024,
            ),
            self._settings,
            self._makeReplica,
        )
        self._openJudge()
        starting = self.ledger.start()
        failures: list[Failure] = []
        starting.addErrback(failures.append)
        if failures and (self.disk.files.isFull or self.disk.files.isFailing):
            self.note(f"it cannot start now: {type(failures[0].value).__name__}")
            self._processClock.die()
            self.clock.callLater(1.0, self.boot, 0)
            return
        if failures:
            raise Violation(DURABILITY, f"it does not start again: {failures[0].value}")
        self.isUp = True
        self._watchPool()
        self._startReaders()
        self._setConditions()

    def _openJudge(self) -> None:
        """Check the files on the disk before the ledger opens them."""
        if not (self.disk.directory / DATABASE).exists():
            return
        # In a copy, since opening it changes the files.
        with TemporaryDirectory(dir=self._root.parent) as copy:
            shutil.copytree(self.disk.directory, copy, dirs_exist_ok=True)
            with closing(Store.open(Path(copy) / DATABASE)) as store:
                genesis = Genesis.decode(store.genesis)
                if self.judge is None:
                    self.judge = Judge(genesis)
                rows = store.blockHeads(1, 2**31)
                headers = [genesis.header(), *(Header.decode(row.header) for row in rows)]
        self._judge.found(headers[-1])
        self._judge.loaded(0, headers, self._acknowledged)

    def _makeReplica(self, signer: ReplicaSigner, *arguments: Any) -> Replica:
        if self.judge is None:
            # The first replica of a new chain: the ledger has just made the genesis.
            self.judge = Judge(Genesis.decode(self.ledger._producer._store.genesis))
            self.adversary.chain = self.judge.genesis.chain
        self.adversary.nodes = len(self.ledger._state.validators.keys)
        kind = observed(self._kind, self)
        if signer.index not in self.byzantine:
            return kind(signer, *arguments)
        self.adversary.addKey(signer.index, signer._secret[:32])
        make = makeByzantine(kind, self.adversary, self.byzantine[signer.index])
        return make(signer, *arguments)  # type: ignore[no-any-return]

    def _watchPool(self) -> None:
        pool, judge = self.ledger._pool, self._judge
        add = pool.add

        def watchedAdd(transactions: Sequence[Transaction], since: float) -> Submission:
            for transaction in transactions:
                judge.submitted(transaction)
                self.latest = transaction.hash
            return add(transactions, since)

        setattr(pool, "add", watchedAdd)  # noqa: B010

    def _startReaders(self) -> None:
        """Have the readers subscribe."""
        made = self.subscriptions = Subscriptions(
            ledgers={"1": self.ledger},
            reactor=self._processClock,
            now=self.clock.seconds,
            entropy=self._random,
        )

        def started(_: object) -> None:
            for reader in self.readers:
                reader.start(made)

        made.start().addCallback(started)

    def delivered(self, event: Event, sequence: int) -> None:
        """Check an event that a reader got; its sequence number comes next in its topic."""
        self._judge.delivered(event, sequence)

    def _abandon(self) -> None:
        """End the process: none of its pending calls is made."""
        if self.isUp:
            self.isUp = False
            self._processClock.die()
            left = self.ledger._context.directory
            self.ledger._producer._store.close()
            self.disk.files.forget(left)
            shutil.rmtree(left.parent)

    def crash(self, index: int, downFor: float | None) -> None:
        """Kill the process. Not at once, since one of its calls may be on the stack."""
        self.clock.callLater(0, self._kill, downFor)

    def _kill(self, downFor: float | None) -> None:
        if self.isUp:
            self.note("the process is killed")
            self.disk.crash()
            self._lost(downFor)

    def _lostPower(self) -> None:
        self.note("the power fails at a write")
        self._lost(self.random.uniform(0.05, 2.0))

    def _lost(self, downFor: float | None) -> None:
        self._abandon()
        for client in self.clients:
            client.disconnect()
        for reader in self.readers:
            reader.disconnect()
        if downFor is not None:
            self.clock.callLater(downFor, self.boot, 0)

    def restart(self) -> None:
        """Stop the running process in an orderly way, and start it again."""
        process = self._processClock

        def stopped(_: object) -> None:
            if process is self._processClock and self.isUp:
                self.note("the process ends")
                self.isUp = False
                process.die()
                self.clock.callLater(0.1, self.boot, 0)

        self.ledger.stop().addCallback(stopped)

    def wipe(self, index: int) -> None:
        """Do nothing: there is no other disk."""

    # Faults.

    @property
    def hosts(self) -> Sequence[EmbeddedMachine]:
        """The current replicas, as seen by faults."""
        return [EmbeddedMachine(self, index) for index in range(MAX_HOSTS)]

    @property
    def conditions(self) -> LinkConditions:
        """The conditions of all links."""
        return self._conditions

    @conditions.setter
    def conditions(self, conditions: LinkConditions) -> None:
        self._conditions = conditions
        self._setConditions()

    def _setConditions(self) -> None:
        if self.isUp:
            conditions = self._conditions
            network = self.ledger.replicaSet.network
            network.conditions = evolve(
                network.conditions,
                delay=conditions.delay,
                loss=conditions.loss,
                duplication=conditions.duplication,
            )

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
        self.obstacles.clear()
        self.conditions = LinkConditions(delay=(0.0, 0.01))
        self.disk.arm(None)
        self.boot(0)
        for index in range(len(self.ledger.replicaSet.replicas)):
            self.ledger.replicaSet.startReplica(index)
        self.note("END of all faults")

    # Observing the ledger.

    def isBlocked(self, sender: int, target: int, message: Any) -> bool:
        """Whether an obstacle blocks a message."""
        self.messages += 1
        if not self.obstacles:
            return False
        kind, round = kindOf(message), roundOf(message)
        return any(obstacle.blocks(sender, target, kind, round) for obstacle in self.obstacles)

    def observe(self, replica: Replica, effects: Sequence[Effect]) -> None:
        """Check the effects of a replica."""
        for effect in effects:
            if isinstance(effect, Send):
                fates = [(-1 if effect.target is None else effect.target, 0.0)]
                self.trace.sent(self.clock.seconds(), replica.index, effect.message, fates)
                if replica.index not in self.byzantine:
                    self._judge.sent(replica.index, effect.message)
            elif isinstance(effect, Decide):
                # Also of Byzantine replicas: the ledger stores the first decision of any.
                self._decided(replica.index, effect)
        self._steps += 1
        if not self._steps % MEASURED and replica.index not in self.byzantine:
            self._judge.measured(replica.index, replica)

    def _decided(self, index: int, decide: Decide) -> None:
        header = decide.candidate.header
        self.note(f"node {index} DECIDES h{header.height} {short(header.hash)}")
        isNew = self._judge.isNew(header)
        self._judge.decided(index, header, decide.certificate, decide.candidate.transactions)
        if isNew:
            for planned in list(self._active):
                planned.fault.onDecided(self, index)

    def _stored(self, height: int) -> None:
        self.note(f"block {height} is on disk")
        self._judge.final(height)

    def acknowledged(self, hash: bytes, height: int, sequence: int) -> None:
        """Check an answer to a client that its transaction is final."""
        self._judge.acknowledged(0, hash, sequence)
        self._acknowledged = max(self._acknowledged, height)

    def refused(self, hash: bytes) -> None:
        """Check an answer to a client that its transaction was not executed."""
        self._judge.refused(hash)

    def _check(self) -> None:
        """Check that readers of the ledger see the decided blocks."""
        for header in self._judge.chain[1:]:
            row = self.ledger._producer._store.blockHead(header.height)
            if row is None or row.hash != header.hash:
                raise Violation(DURABILITY, f"block {header.height} is not on the disk")

    def _random(self, size: int) -> bytes:
        self._entropy += 1
        return sha256(b"%d" % self._entropy).digest()[:size]

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        self.trace.note(self.clock.seconds(), text)
