"""
A host of the cluster: a replica with its own disk, clock and clients.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from attrs import define, frozen

from svcbroker.chain import Genesis, InvalidBlock, Transaction
from svcbroker.ledgers.pbft._keys import ReplicaSigner
from svcbroker.ledgers.pbft._protocol import (
    BlockRequest,
    Decide,
    DecidedBlock,
    Effect,
    Message,
    PhaseVote,
    Proposal,
    ProposedBlock,
    RoundChange,
    Send,
    StartTimer,
    Timer,
)
from svcbroker.ledgers.pbft._replica import Timing
from svcbroker.ledgers.pbft._votes import MessageRefused, Rules

from .chain import StoredBlock
from .clock import Alarm, VirtualClock
from .disk import Disk
from .replicas import Components, HostReplica, Promise

MEASURED = 16
"""After how many inputs of a replica the judge looks at what it stores."""


class HostDependencies(Protocol):
    """
    What a host calls on its environment.

    @ivar signed: the hashes of all transactions that clients have sent.
    """

    signed: set[bytes]

    def send(self, index: int, target: int | None, message: Message) -> None:
        """Send a message; to all others where C{target} is C{None}."""

    def fetch(self, hash: bytes) -> Sequence[Transaction] | None:
        """
        The transactions of a block, from any host that has them. The header's hash identifies them.
        """

    def decided(self, index: int, block: StoredBlock) -> None:
        """Report that a decided block is on this host's disk."""

    def answer(self, index: int, hash: bytes, sequence: int) -> None:
        """Tell clients that a transaction is final."""

    def loaded(self, index: int) -> None:
        """Report that the chain was read from disk."""

    def stepped(self, index: int) -> None:
        """Report that the replica has handled some inputs."""


@define
class _Batch:
    """
    Messages that wait for the disk.

    @ivar writes: how many writes must be synced before they are sent.
    """

    sends: Sequence[Send]
    writes: int = 0


@frozen(kw_only=True)
class Identity:
    """
    What a host keeps when it loses its disk.

    @ivar drift: the speed of its clock; 1 is correct.
    @ivar isByzantine: whether its replica is Byzantine.
    @ivar makeReplica: makes its replica.
    """

    index: int
    seed: bytes
    genesis: Genesis
    timing: Timing
    drift: float
    isByzantine: bool
    makeReplica: Callable[..., HostReplica]


class ReplicaHost:
    """
    Runs one replica as a separate machine would. A promise is on disk before any message that
    follows from it is sent; a decided block is on disk before a client is answered; after a crash
    the host knows only what is on its disk.

    @ivar isUp: whether it runs.
    @ivar isPaused: whether its process is suspended: it receives nothing and its timers do not run.
    @ivar acknowledged: the height up to which it has answered clients.
    @ivar votesFrom: the first height at which it votes. Above 0 after its disk was lost: an
        operator has looked up the height of the others.
    @ivar skew: how many seconds its wall clock is ahead.
    """

    def __init__(
        self,
        identity: Identity,
        components: Components,
        rules: Rules,
        dependencies: HostDependencies,
        clock: VirtualClock,
        disk: Disk,
    ) -> None:
        self.identity = identity
        self.index = identity.index
        self.disk = disk
        self.isUp = False
        self.isPaused = False
        self.acknowledged = 0
        self.votesFrom = 0
        self.skew = 0.0
        self._components = components
        self._rules = rules
        self._dependencies = dependencies
        self._clock = clock
        self._timers: dict[Timer, Alarm] = {}
        self._outbox: deque[_Batch] = deque()
        self._promised: set[tuple[type, int, int, int]] = set()
        # The height of the last block that was reported.
        self._reported = 0
        self._steps = 0
        # The number of crashes: the results of earlier writes are ignored.
        self._life = 0

    # Starting and stopping.

    def boot(self) -> None:
        """Read the disk and start."""
        identity = self.identity
        self.isUp, self.isPaused = True, False
        self.chain = self._components.chain(
            identity.genesis, self._clock, self.skew, self._dependencies.signed
        )
        promise: Promise | None = None
        for record in self.disk.read():
            if isinstance(record, StoredBlock):
                self._report(record)
                self.chain.load(record)
            else:
                promise = record
        verifier = self._rules.verifier
        self.replica = identity.makeReplica(
            ReplicaSigner(self.index, identity.seed, identity.genesis.chain, verifier),
            self._rules,
            self.chain,
            identity.timing,
            self.chain.head,
        )
        self._dependencies.loaded(self.index)
        if promise is not None and promise.height == self.replica.height:
            self._perform(self.replica.recall(promise))
        else:
            self._perform(self.replica.start(0))

    def crash(self) -> None:
        """Lose everything that is not on the disk."""
        self.isUp = False
        self._life += 1
        self._stopTimers()
        self._outbox.clear()
        self._promised.clear()
        self.disk.crash()

    def wipe(self, votesFrom: int) -> None:
        """
        Lose the disk; only while it is down.

        @param votesFrom: a height at which it cannot have voted.
        """
        self.disk.wipe()
        self.acknowledged = self._reported = 0
        self.votesFrom = 0 if self._components.wipedVotes else votesFrom

    def pause(self) -> None:
        """Suspend the process."""
        self.isPaused = True
        self._stopTimers()

    def resume(self) -> None:
        """Continue the process."""
        if self.isUp and self.isPaused:
            self.isPaused = False
            self._flush()
            self._perform(self.replica.resume())
            self.work()

    def jumpClock(self, seconds: float) -> None:
        """Move its wall clock."""
        self.skew += seconds
        if self.isUp:
            self.chain.skew = self.skew

    # Inputs.

    @property
    def _isRunning(self) -> bool:
        return self.isUp and not self.isPaused

    @property
    def _isMute(self) -> bool:
        return self.replica.height < self.votesFrom

    def receive(self, messages: Sequence[Message]) -> None:
        """Handle messages that have arrived together."""
        batch: list[Message] = []
        for message in messages:
            if not self._isRunning:
                return
            if isinstance(message, DecidedBlock):
                self._receive(batch)
                batch.clear()
                self._adopt(message)
            elif not self._isMute or isinstance(message, BlockRequest):
                batch.append(message)
            elif message.height > self.replica.height:
                request = BlockRequest(sender=self.index, height=self.replica.height)
                self._dependencies.send(self.index, message.sender, request)
        self._receive(batch)

    def _receive(self, messages: Sequence[Message]) -> None:
        if messages and self._isRunning:
            self._perform(self.replica.receive(messages))

    def submit(self, transaction: Transaction) -> None:
        """Handle a client's transaction."""
        if not self.isUp or self.isPaused:
            return
        executed = self.chain.executed.get(transaction.hash)
        if executed is not None:
            self._answer(transaction.hash)
            return
        self.chain.add(transaction)
        self.work()

    def work(self) -> None:
        """Have the waiting transactions decided."""
        if self.isUp and not self.isPaused and not self._isMute and self.chain.pool:
            self._perform(self.replica.propose(self.chain.head.height + 1))

    def _adopt(self, message: DecidedBlock) -> None:
        """
        Adopt a decided block of another host: fetch and execute its transactions before the replica
        advances.
        """
        header, isAdopted = message.header, False
        if header.height == self.replica.height and header.parent == self.chain.head.hash:
            transactions = self._dependencies.fetch(header.hash)
            with suppress(MessageRefused, InvalidBlock):
                self._rules.checkDecided(message)
                if transactions is not None and not self.chain.isStoring:
                    self.chain.execute(ProposedBlock(header=header, transactions=transactions))
                    block = StoredBlock(
                        header=header, certificate=message.certificate, transactions=transactions
                    )
                    self.chain.beginStoring(block)
                    isAdopted = True
        effects = self.replica.receive([message])
        if isAdopted and not any(isinstance(effect, Decide) for effect in effects):
            self._store(block)
        self._perform(effects)

    # Effects.

    def _perform(self, effects: Sequence[Effect]) -> None:
        if not self.isUp:
            return
        self._steps += 1
        if not self._steps % MEASURED:
            self._dependencies.stepped(self.index)
        if not effects:
            return
        sends: list[Send] = []
        block: StoredBlock | None = None
        isNew = False
        for effect in effects:
            if isinstance(effect, Send):
                sends.append(effect)
                if isinstance(effect.message, Proposal | PhaseVote | RoundChange):
                    isNew = self._promise(effect.message) or isNew
            elif isinstance(effect, StartTimer):
                self._startTimer(effect.timer, effect.delay)
            elif isinstance(effect, Decide):
                block = StoredBlock(
                    header=effect.candidate.header,
                    certificate=effect.certificate,
                    transactions=effect.candidate.transactions,
                )
        batch = _Batch(sends)
        if sends:
            self._outbox.append(batch)
        if block is not None:
            # The block replaces all promises of its height.
            self._store(block, batch)
        if isNew:
            promise = self._components.keep(self.replica.promise)
            self._write(promise, lambda: None, batch)
        self._flush()

    def _promise(self, message: Proposal | PhaseVote | RoundChange) -> bool:
        """
        Record a message that is a promise.

        @return: whether it was not sent before.
        """
        phase = 0 if isinstance(message, RoundChange) else int(message.phase)
        place = (type(message), message.height, message.round, phase)
        if place in self._promised:
            return False
        self._promised.add(place)
        return True

    def _flush(self) -> None:
        while self._outbox and not self._outbox[0].writes and not self.isPaused:
            for send in self._outbox.popleft().sends:
                self._dependencies.send(self.index, send.target, send.message)

    def _store(self, block: StoredBlock, batch: _Batch | None = None) -> None:
        self.chain.beginStoring(block)
        self._write(block, lambda: self._stored(block), batch)

    def _stored(self, block: StoredBlock) -> None:
        self._report(block)
        self.chain.load(block)
        height = block.header.height
        self._promised = {place for place in self._promised if place[1] > height}
        self._acknowledge(block)
        self.work()

    def _report(self, block: StoredBlock) -> None:
        """Report each block once, when it is on disk."""
        if block.header.height > self._reported:
            self._reported = block.header.height
            self._dependencies.decided(self.index, block)

    def _acknowledge(self, block: StoredBlock) -> None:
        self.acknowledged = max(self.acknowledged, block.header.height)
        for transaction in block.transactions:
            self._answer(transaction.hash)

    def _answer(self, hash: bytes) -> None:
        executed = self.chain.executed.get(hash)
        if executed is not None:
            self._dependencies.answer(self.index, hash, executed.sequence)

    def _write(
        self, record: StoredBlock | Promise, done: Callable[[], None], batch: _Batch | None
    ) -> None:
        """
        @param done: called once the record is on stable storage.
        @param batch: messages that are not sent before that.
        """
        life = self._life
        if batch is not None:
            batch.writes += 1

        def synced() -> None:
            if life == self._life:
                if batch is not None:
                    batch.writes -= 1
                done()
                self._flush()

        if not self.disk.write(record, synced):
            # A full disk: stop, since promises could not be kept.
            self.disk.crashed()

    def _startTimer(self, kind: Timer, delay: float) -> None:
        self._stopTimer(kind)
        if not self.isPaused:
            self._timers[kind] = self._clock.callLater(
                delay / self.identity.drift, self._timeOut, kind
            )

    def _timeOut(self, kind: Timer) -> None:
        del self._timers[kind]
        self._perform(self.replica.timeOut(kind))

    def _stopTimer(self, kind: Timer) -> None:
        alarm = self._timers.pop(kind, None)
        if alarm is not None:
            alarm.cancel()

    def _stopTimers(self) -> None:
        for kind in list(self._timers):
            self._stopTimer(kind)
