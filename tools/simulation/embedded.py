"""
The world of the daemon: the whole embedded ledger, with SQLite in real files, in one process that
dies and comes back.
"""

from __future__ import annotations

import shutil
import traceback
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from random import Random
from tempfile import mkdtemp
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.logger import globalLogPublisher
from twisted.python.failure import Failure

from svcbroker.chain import Genesis, Header, Transaction, faultsTolerated
from svcbroker.interfaces import LedgerContext
from svcbroker.ledgers.pbft import PbftLedger
from svcbroker.ledgers.pbft._effects import Decide, Effect, Send
from svcbroker.ledgers.pbft._keys import Signer
from svcbroker.ledgers.pbft._network import Conditions
from svcbroker.ledgers.pbft._replica import Replica
from svcbroker.ledgers.pbft._settings import PbftSettings
from svcbroker.storage import StorageError, Store

from .clock import VirtualClock
from .customers import Customer
from .embeddedfaults import EMBEDDED_FAULTS
from .faults import MOST, Planned, plan
from .genesis import NOW
from .judge import DURABILITY, ERROR, LIVENESS, Judge, Violation
from .network import Obstacle, Weather
from .outcome import Outcome
from .platter import DATABASE, Platter
from .plot import Plot
from .process import LogWatch, Node, ProcessClock, watched
from .trace import Trace, kindOf, short
from .traitors import Vice, corrupted, someVices

CUSTOMERS = 3
LONGEST = 60.0  # seconds of the ledger's longest round
AFTERWARDS = 3
"""How many blocks must be decided once all is well again."""
MEMORY = Path("/dev/shm")
"""Where files cost least, if it is there."""


class Embedded:
    """
    One run of an embedded ledger.

    @ivar obstacles: what holds up messages now.
    @ivar platter: the disk.
    @ivar ledger: the ledger of the process that runs, or ran last.
    @ivar isUp: whether a process runs.
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
        @param script: all that goes wrong, in place of what is drawn.
        """
        self.seed = seed
        self.nodes = nodes
        self.trace = Trace() if trace is None else trace
        self.faults: Counter[str] = Counter()
        self.random = Random(f"embedded {nodes} {seed}")
        self.clock = VirtualClock(NOW)
        self.obstacles: list[Obstacle] = []
        self.isUp = False
        self.lasts = self.random.uniform(4.0, 12.0)
        self.judge: Judge | None = None
        self.skew = 0.0
        self.messages = 0
        self._kind, self._script = makeReplica, script
        self._weather = Weather(delay=(0.0, self.random.choice((0.0, 0.01, 0.05))))
        self._active: list[Planned] = []
        self._entropy = 0
        self._acknowledged = 0
        self._mishap: Violation | None = None
        self._root = Path(mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
        self.platter = Platter(self.clock, self.random, self._root)
        self.platter.crashed = self._lostPower
        self.platter.stored = self._stored
        self.platter.gaveUp = lambda: self._judge.gaveUp()
        self._settings = PbftSettings(
            nodes=nodes,
            interval=self.random.choice((0.0, 0.01, 0.1)),
            empty=self.random.choice((None, None, 0.5)),
            timeout=self.random.uniform(0.5, 1.0),
            conditions=Conditions(delay=self._weather.delay),
            seed=seed,
        )
        self._pickTraitors()
        self.customers = [Customer(self, number) for number in range(CUSTOMERS)]

    def _pickTraitors(self) -> None:
        worst = faultsTolerated(self.nodes)
        count = worst if self.random.random() < 0.6 else self.random.randint(0, worst)
        self.plot = Plot(self.random, bytes(32), self.nodes, {})
        self.traitors: dict[int, Sequence[Vice]] = {}
        for index in sorted(self.random.sample(range(self.nodes), count)):
            self.traitors[index] = vices = someVices(self.plot)
            self.note(f"node {index} is a traitor: {', '.join(type(v).__name__ for v in vices)}")

    # The course of a run.

    def run(self) -> Outcome:
        """Let it run to its end."""
        watch = LogWatch(self._logged)
        globalLogPublisher.addObserver(watch)
        violation: Violation | None = None
        try:
            self._run()
        except Violation as found:
            violation = found
        except Exception as error:  # what it is, is for whoever reads the report
            self.note(traceback.format_exc())
            violation = Violation(ERROR, repr(error))
        finally:
            globalLogPublisher.removeObserver(watch)
            self._abandon()
            shutil.rmtree(self._root)
        if violation is not None:
            self.note(f"VIOLATION  {violation}")
        return Outcome(
            world="embedded",
            nodes=self.nodes,
            seed=self.seed,
            violation=violation,
            blocks=self.judge.height if self.judge else 0,
            answered=sum(customer.answered for customer in self.customers),
            messages=self.messages,
            seconds=self.clock.seconds() - NOW,
            faults=self.faults + self.plot.acts,
            digest=self.trace.digest(),
        )

    def _run(self) -> None:
        self.boot(0)
        for customer in self.customers:
            customer.start()
        faults = plan(self.random, self.nodes, self.lasts, EMBEDDED_FAULTS)
        for planned in self._script or faults:
            self.clock.callLater(planned.at, self._begin, planned)
            self.clock.callLater(planned.until, self._end, planned)
        self._pass(self.lasts)
        self._heal()
        goal = self._judge.height + AFTERWARDS
        patience = self._patience()
        self._pass(patience, goal)
        if not self._isDone(goal):
            raise Violation(
                LIVENESS,
                f"{patience:.0f} seconds after all was well again the ledger is at "
                f"{self._judge.height}, not at {goal}",
            )
        self._check()

    def _pass(self, seconds: float, goal: int | None = None) -> None:
        """
        Let time pass.

        @param goal: the height that is enough.
        """

        def isEnough() -> bool:
            return self._found is not None or (goal is not None and self._isDone(goal))

        self.clock.runUntil(self.clock.seconds() + seconds, isEnough)
        if self._found is not None:
            raise self._found

    @property
    def _judge(self) -> Judge:
        assert self.judge is not None
        return self.judge

    @property
    def _found(self) -> Violation | None:
        """What the judge has seen, also where its exception ended in a Deferred."""
        return self._judge.verdict or self._mishap

    def _isDone(self, goal: int) -> bool:
        if not self.isUp or self._judge.height < goal:
            return False
        return all(
            replica.head.height >= goal
            for replica in self.ledger.nodes.replicas
            if replica.index not in self.traitors
        )

    def _patience(self) -> float:
        rounds = [replica.round - replica._firstRound for replica in self.ledger.nodes.replicas]
        return 10 + 1.3 * LONGEST * (max(rounds) + (AFTERWARDS + 1) * (len(self.traitors) + 2))

    def _logged(self, failure: Failure) -> None:
        """Errors that are logged are errors, but for those of the disk that were asked for."""
        if not failure.check(StorageError, Violation):
            self._mishap = self._mishap or Violation(ERROR, repr(failure.value))
            self.note(failure.getTraceback())

    # The process.

    def boot(self, index: int) -> None:
        """The process starts from what is on the disk."""
        if self.isUp:
            return
        self.note("the process starts")
        self.platter.directory.parent.mkdir(parents=True, exist_ok=True)
        self._processClock = ProcessClock(self.clock)
        self.ledger = PbftLedger(
            LedgerContext(
                group="1",
                directory=self.platter.directory,
                reactor=self._processClock,
                now=lambda: self.clock.seconds() + self.skew,
                entropy=self._random,
                runInThread=self.platter,
                maxContent=1024,
            ),
            self._settings,
            self._makeReplica,
        )
        self._openJudge()
        starting = self.ledger.start()
        failures: list[Failure] = []
        starting.addErrback(failures.append)
        if failures:
            raise Violation(DURABILITY, f"it does not start again: {failures[0].value}")
        self.isUp = True
        self._watchPool()
        self._setConditions()

    def _openJudge(self) -> None:
        """Look at what is on the disk, before the ledger does."""
        path = self.platter.directory / DATABASE
        if not path.exists():
            return
        store = Store.open(path)
        try:
            genesis = Genesis.decode(store.genesis)
            if self.judge is None:
                self.judge = Judge(genesis)
            rows = store.blockHeads(1, 2**31)
            headers = [genesis.header(), *(Header.decode(row.header) for row in rows)]
        finally:
            store.close()
        self._judge.found(headers[-1])
        self._judge.loaded(0, headers, self._acknowledged)

    def _makeReplica(self, signer: Signer, *arguments: Any) -> Replica:
        if self.judge is None:
            # The first replica of a new chain: its genesis has just been made.
            self.judge = Judge(Genesis.decode(self.ledger._producer._store.genesis))
            self.plot.chain = self.judge.genesis.chain
        self.plot.nodes = len(self.ledger._state.validators.keys)
        kind = watched(self._kind, self)
        if signer.index not in self.traitors:
            return kind(signer, *arguments)
        self.plot.enlist(signer.index, signer._secret[:32])
        traitor: Replica = corrupted(kind, self.plot, self.traitors[signer.index])(
            signer, *arguments
        )
        return traitor

    def _watchPool(self) -> None:
        pool, judge = self.ledger._pool, self._judge
        add = pool.add

        def watchedAdd(transaction: Transaction, since: float) -> Deferred[Any]:
            judge.submitted(transaction)
            self.latest = transaction.hash
            return add(transaction, since)

        setattr(pool, "add", watchedAdd)  # noqa: B010

    def _abandon(self) -> None:
        """The process is gone: nothing that it had begun happens."""
        if self.isUp:
            self.isUp = False
            self._processClock.die()
            left = self.ledger._context.directory
            self.ledger._producer._store.close()
            shutil.rmtree(left.parent)

    def crash(self, index: int, downFor: float | None) -> None:
        """The process dies at any time."""
        if self.isUp:
            self.note("the process is killed")
            self.platter.crash()
            self._lost(downFor)

    def _lostPower(self) -> None:
        self.note("the power fails at a write")
        self._lost(self.random.uniform(0.05, 2.0))

    def _lost(self, downFor: float | None) -> None:
        self._abandon()
        for customer in self.customers:
            customer.hangUp()
        if downFor is not None:
            self.clock.callLater(downFor, self.boot, 0)

    def restart(self) -> None:
        """The process, which is up, is told to end, and started again."""
        process = self._processClock

        def stopped(_: object) -> None:
            if process is self._processClock and self.isUp:
                self.note("the process ends")
                self.isUp = False
                process.die()
                self.clock.callLater(0.1, self.boot, 0)

        self.ledger.stop().addCallback(stopped)

    def wipe(self, index: int) -> None:
        """There is no other disk to recover from."""

    # Faults.

    @property
    def hosts(self) -> Sequence[Node]:
        """The nodes of now, as faults see them."""
        return [Node(self, index) for index in range(MOST)]

    @property
    def network(self) -> Embedded:
        """What faults see of the network."""
        return self

    @property
    def weather(self) -> Weather:
        """How bad the network is everywhere."""
        return self._weather

    @weather.setter
    def weather(self, weather: Weather) -> None:
        self._weather = weather
        self._setConditions()

    def _setConditions(self) -> None:
        if self.isUp:
            weather = self._weather
            network = self.ledger.nodes.network
            network.conditions = evolve(
                network.conditions,
                delay=weather.delay,
                loss=weather.loss,
                duplication=weather.duplication,
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
        self.weather = Weather(delay=(0.0, 0.01))
        self.platter.arm(None)
        self.boot(0)
        for index in range(len(self.ledger.nodes.replicas)):
            self.ledger.nodes.startNode(index)
        self.note("ALL IS WELL from here on")

    # What is seen of the ledger.

    def isBlocked(self, sender: int, target: int, message: Any) -> bool:
        """Whether a message does not get through."""
        self.messages += 1
        if not self.obstacles:
            return False
        kind = kindOf(message)
        return any(obstacle.blocks(sender, target, kind) for obstacle in self.obstacles)

    def saw(self, replica: Replica, effects: Sequence[Effect]) -> None:
        """A replica wants something done."""
        for effect in effects:
            if isinstance(effect, Send):
                target = -1 if effect.target is None else effect.target
                now = self.clock.seconds()
                self.trace.sent(now, replica.index, target, effect.message, "is sent")
                if replica.index not in self.traitors:
                    self._judge.said(replica.index, effect.message)
            elif isinstance(effect, Decide):
                # A traitor's as well: the ledger stores whatever is decided first.
                self._decided(replica.index, effect)
        if replica.index not in self.traitors:
            self._judge.measured(replica.index, replica)

    def _decided(self, index: int, decide: Decide) -> None:
        header = decide.candidate.header
        self.note(f"node {index} DECIDES h{header.height} {short(header.hash)}")
        isNew = self._judge.isNew(header)
        self._judge.decided(index, header, decide.certificate, decide.candidate.transactions)
        if isNew:
            for planned in list(self._active):
                planned.fault.noticed(self, index)

    def _stored(self, height: int) -> None:
        self.note(f"block {height} is on disk")
        self._judge.final(height)

    def acknowledged(self, hash: bytes, height: int, sequence: int) -> None:
        """A customer was told that its transaction is final."""
        self._judge.acknowledged(0, hash, sequence)
        self._acknowledged = max(self._acknowledged, height)

    def refused(self, hash: bytes) -> None:
        """A customer was told that its transaction was not executed."""
        self._judge.refused(hash)

    def _check(self) -> None:
        """What the readers of the ledger see is what was decided."""
        for header in self._judge.chain[1:]:
            row = self.ledger._producer._store.blockHead(header.height)
            if row is None or row.hash != header.hash:
                raise Violation(DURABILITY, f"block {header.height} is not on the disk")

    def _random(self, size: int) -> bytes:
        self._entropy += 1
        return sha256(b"%d" % self._entropy).digest()[:size]

    def note(self, text: str) -> None:
        """Something happened."""
        self.trace.note(self.clock.seconds(), text)
