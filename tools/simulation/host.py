"""
One host of a cluster: a replica with a disk, a clock and clients of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from attrs import define, frozen

from svcbroker.chain import Genesis, InvalidBlock, Transaction
from svcbroker.ledgers.pbft._effects import (
    Decide,
    Effect,
    Evidence,
    Send,
    StartTimer,
    StopTimers,
    Timer,
)
from svcbroker.ledgers.pbft._keys import Signer
from svcbroker.ledgers.pbft._messages import (
    BlockRequest,
    DecidedBlock,
    Message,
    Proposal,
    ProposedBlock,
    RoundChange,
    Vote,
)
from svcbroker.ledgers.pbft._ports import Timing
from svcbroker.ledgers.pbft._rounds import Refused, Rules

from .chain import StoredBlock
from .clock import Alarm, VirtualClock
from .disk import Disk
from .replicas import HostReplica, Parts, Promise


class Surroundings(Protocol):
    """
    What a host sees of the world, and what the world wants to hear of it.

    @ivar signed: the hashes of all transactions that clients have signed.
    """

    signed: set[bytes]

    def send(self, index: int, target: int | None, message: Message) -> None:
        """Send a message; to all others where C{target} is C{None}."""

    def fetch(self, hash: bytes) -> Sequence[Transaction] | None:
        """The transactions of a block, from whoever has them. A header's hash names them."""

    def decided(self, index: int, block: StoredBlock) -> None:
        """A block is decided, and on this host's disk."""

    def answer(self, index: int, hash: bytes, sequence: int) -> None:
        """Tell clients that a transaction is final."""

    def loaded(self, index: int) -> None:
        """The chain was read from disk."""

    def stepped(self, index: int) -> None:
        """The replica has done something."""


@define
class _Batch:
    """
    Messages that wait for the disk.

    @ivar writes: how many records must be on stable storage before they are sent.
    """

    sends: Sequence[Send]
    writes: int = 0


@frozen(kw_only=True)
class Identity:
    """
    What a host keeps when it loses everything else.

    @ivar drift: how fast its clock runs; 1 is right.
    @ivar isTraitor: whether it is one of those that the protocol has to stand.
    @ivar makeReplica: makes its replica.
    """

    index: int
    seed: bytes
    genesis: Genesis
    timing: Timing
    drift: float
    isTraitor: bool
    makeReplica: Callable[..., HostReplica]


class Host:
    """
    Runs one replica as a machine of its own would: what it has promised is on its disk before
    anybody hears of it, what it has decided is on its disk before a client hears of it, and what
    it knows after a crash is what is on its disk.

    @ivar isUp: whether it runs.
    @ivar isPaused: whether its process is suspended: it hears nothing and its timers stand still.
    @ivar acknowledged: the height up to which it has answered clients.
    @ivar votesFrom: the height from which on it votes. It is above 0 where the disk was lost: an
        operator has looked up what the others are at.
    @ivar skew: how many seconds its wall clock is ahead.
    """

    def __init__(
        self,
        identity: Identity,
        parts: Parts,
        rules: Rules,
        world: Surroundings,
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
        self._parts = parts
        self._rules = rules
        self._world = world
        self._clock = clock
        self._timers: dict[Timer, Alarm] = {}
        self._outbox: deque[_Batch] = deque()
        self._promised: set[tuple[type, int, int, int]] = set()
        # The height of the last block that the world has been told of.
        self._told = 0
        # A disk that tells of a write after a crash is told of by nobody.
        self._life = 0

    # Beginning and ending.

    def boot(self) -> None:
        """Read the disk and begin."""
        identity = self.identity
        self.isUp, self.isPaused = True, False
        self.chain = self._parts.chain(identity.genesis, self._clock, self.skew, self._world.signed)
        promise: Promise | None = None
        for record in self.disk.read():
            if isinstance(record, StoredBlock):
                self._tell(record)
                self.chain.load(record)
            else:
                promise = record
        verifier = self._rules.verifier
        self.replica = identity.makeReplica(
            Signer(self.index, identity.seed, identity.genesis.chain, verifier),
            self._rules,
            self.chain,
            identity.timing,
            self.chain.head,
        )
        self._world.loaded(self.index)
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
        Lose the disk as well; to be called while it is down.

        @param votesFrom: a height at which it cannot have voted.
        """
        self.disk.wipe()
        self.acknowledged = self._told = 0
        self.votesFrom = 0 if self._parts.wipedVotes else votesFrom

    def pause(self) -> None:
        """Suspend the process."""
        self.isPaused = True
        self._stopTimers()

    def resume(self) -> None:
        """Let it go on."""
        if self.isUp and self.isPaused:
            self.isPaused = False
            self._flush()
            self._perform(self.replica.resume())
            self.work()

    def leap(self, seconds: float) -> None:
        """Have its wall clock jump."""
        self.skew += seconds
        if self.isUp:
            self.chain.skew = self.skew

    # What it hears.

    @property
    def _isMute(self) -> bool:
        return self.replica.height < self.votesFrom

    def hear(self, message: Message) -> None:
        """A message has arrived."""
        if not self.isUp or self.isPaused:
            return
        if isinstance(message, DecidedBlock):
            self._takeOver(message)
        elif not self._isMute or isinstance(message, BlockRequest):
            self._perform(self.replica.receive(message))
        elif message.height > self.replica.height:
            request = BlockRequest(sender=self.index, height=self.replica.height)
            self._world.send(self.index, message.sender, request)

    def submit(self, transaction: Transaction) -> None:
        """A client wants a transaction executed."""
        if not self.isUp or self.isPaused:
            return
        executed = self.chain.executed.get(transaction.hash)
        if executed is not None:
            self._answer(transaction.hash)
            return
        self.chain.add(transaction)
        self.work()

    def work(self) -> None:
        """Have what waits decided."""
        if self.isUp and not self.isPaused and not self._isMute and self.chain.pool:
            self._perform(self.replica.propose(self.chain.head.height + 1))

    def _takeOver(self, message: DecidedBlock) -> None:
        """
        A decided block from somebody else: fetch its transactions, execute them, and only then
        let the replica go on from it.
        """
        header, isTaken = message.header, False
        if header.height == self.replica.height and header.parent == self.chain.head.hash:
            transactions = self._world.fetch(header.hash)
            with suppress(Refused, InvalidBlock):
                self._rules.checkDecided(message)
                if transactions is not None and not self.chain.isStoring:
                    self.chain.execute(ProposedBlock(header=header, transactions=transactions))
                    block = StoredBlock(
                        header=header, certificate=message.certificate, transactions=transactions
                    )
                    self.chain.beginStoring(block)
                    isTaken = True
        effects = self.replica.receive(message)
        if isTaken and not any(isinstance(effect, Decide) for effect in effects):
            self._store(block)
        self._perform(effects)

    # What it does.

    def _perform(self, effects: Sequence[Effect]) -> None:
        if not self.isUp:
            return
        said: list[Send] = []
        block: StoredBlock | None = None
        isNew = False
        for effect in effects:
            match effect:
                case StartTimer(kind, delay):
                    self._startTimer(kind, delay)
                case StopTimers():
                    self._stopTimers()
                case Send(Proposal() | Vote() | RoundChange() as message):
                    said.append(effect)
                    isNew = self._promise(message) or isNew
                case Send():
                    said.append(effect)
                case Decide(candidate, certificate):
                    block = StoredBlock(
                        header=candidate.header,
                        certificate=certificate,
                        transactions=candidate.transactions,
                    )
                case Evidence():
                    pass
        batch = _Batch(said)
        self._outbox.append(batch)
        if block is not None:
            # It stands for all that was promised of its height.
            self._store(block, batch)
        if isNew:
            promise = self._parts.keep(self.replica.promise)
            self._write(promise, lambda: None, batch)
        self._flush()
        self._world.stepped(self.index)

    def _promise(self, message: Proposal | Vote | RoundChange) -> bool:
        """Take note of what is said; whether it was not said before."""
        phase = 0 if isinstance(message, RoundChange) else int(message.phase)
        place = (type(message), message.height, message.round, phase)
        if place in self._promised:
            return False
        self._promised.add(place)
        return True

    def _flush(self) -> None:
        while self._outbox and not self._outbox[0].writes and not self.isPaused:
            for send in self._outbox.popleft().sends:
                self._world.send(self.index, send.target, send.message)

    def _store(self, block: StoredBlock, batch: _Batch | None = None) -> None:
        self.chain.beginStoring(block)
        self._write(block, lambda: self._stored(block), batch)

    def _stored(self, block: StoredBlock) -> None:
        self._tell(block)
        self.chain.load(block)
        height = block.header.height
        self._promised = {place for place in self._promised if place[1] > height}
        self._acknowledge(block)
        self.work()

    def _tell(self, block: StoredBlock) -> None:
        """The world hears of each block once it is safe."""
        if block.header.height > self._told:
            self._told = block.header.height
            self._world.decided(self.index, block)

    def _acknowledge(self, block: StoredBlock) -> None:
        self.acknowledged = max(self.acknowledged, block.header.height)
        for transaction in block.transactions:
            self._answer(transaction.hash)

    def _answer(self, hash: bytes) -> None:
        executed = self.chain.executed.get(hash)
        if executed is not None:
            self._world.answer(self.index, hash, executed.sequence)

    def _write(
        self, record: StoredBlock | Promise, done: Callable[[], None], batch: _Batch | None
    ) -> None:
        """
        @param done: called once the record is on stable storage.
        @param batch: what is not sent before.
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
            # A disk that takes nothing more: better to fall silent than to say what it forgets.
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
