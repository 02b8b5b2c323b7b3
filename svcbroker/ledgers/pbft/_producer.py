"""
From a transaction that waits to a receipt: when a block is made, how it gets to the disk, and
who is told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from ...archive import appendOf
from ...chain import Candidate, Certificate, ChainState, Header, Transaction
from ...errors import LedgerUnavailable
from ...interfaces import Submission
from ...net.timers import LazyTimer
from ...storage import StorageError, StorageFailed, Store
from .._observers import Observers
from .._views import blockOf, receiptsOf
from ._application import BlockApplication
from ._nodeset import NodeSet
from ._pool import TransactionPool

RETRY = 1.0
"""Seconds from one try to write to a failing disk to the next."""

MAX_GATHERING = 0.005
"""Seconds that a block may wait for the next requests of clients that were just answered."""

STOP_PATIENCE = 5.0
"""Seconds that what was accepted may take to become final once the ledger stops."""


class Stage(Enum):
    """Where the next block is."""

    IDLE = "idle"
    """Nothing waits, or it is not yet time."""
    DECIDING = "deciding"
    """The replicas are at it."""
    STORING = "storing"
    """It is decided and on its way to the disk."""
    FAILING = "failing"
    """The disk did not take the last one."""
    STOPPED = "stopped"
    """There will not be one."""


class BlockProducer:
    """
    Makes one block after the other out of what waits.

    While one is being decided and synced, the next one fills: so one sync serves all that came
    meanwhile. The state that others read changes only when a block is on stable storage.

    @ivar stage: where the next block is.
    @ivar trouble: why nothing can be stored now, for an operator; empty where it can.
    """

    _log = Logger()

    def __init__(
        self,
        *,
        reactor: IReactorTime,
        runInThread: Callable[..., Deferred[Any]],
        state: ChainState,
        store: Store,
        pool: TransactionPool,
        application: BlockApplication,
        observers: Observers,
        interval: float,
        empty: float | None,
        reform: Callable[[Header], None],
    ) -> None:
        """
        @param runInThread: runs blocking disk work, one call after the other.
        @param interval: seconds from one block to the next at least.
        @param empty: seconds after which a block is made although nothing waits.
        @param reform: has another set of replicas decide, after the header of a stored block
            that brought it.
        """
        self.stage = Stage.IDLE
        self.trouble = ""
        self._reactor = reactor
        self._runInThread = runInThread
        self._state = state
        self._store = store
        self._pool = pool
        self._application = application
        self._observers = observers
        self._interval = interval
        self._empty = empty
        self._reform = reform
        self._heartbeat = LazyTimer(reactor, self._beat)
        self._call: IDelayedCall | None = None
        self._lastBlock = reactor.seconds() - interval
        # How many waited one turn ago, and until when that is looked at; how many waited when the
        # last block was stored, its own included, and until when as many are expected again.
        self._gathered = self._expected = 0
        self._gatherUntil = self._expectUntil = 0.0
        self._stopping: Deferred[None] | None = None
        self._patience: IDelayedCall | None = None

    def start(self, nodes: NodeSet) -> None:
        """
        Have the replicas begin.

        @param nodes: the replicas; they were made with L{decided}.
        @raise svcbroker.storage.StorageError: the disk cannot be written.
        """
        self._nodes = nodes
        nodes.start(self._application.head, self._application.firstRound())
        self._armHeartbeat()

    def submitMany(self, transactions: Sequence[Transaction]) -> Submission:
        """
        Have transactions executed, in their order and with no other between them.

        @return: settled when they are final and on stable storage.
        @raise LedgerUnavailable: the ledger stops, or its disk is failing.
        """
        if self._stopping is not None:
            raise LedgerUnavailable("the ledger is stopping")
        if self.trouble:
            raise LedgerUnavailable(self.trouble)
        submission = self._pool.add(transactions, self._reactor.seconds())
        if self._call is None:
            self._schedule()
        return submission

    def stop(self) -> Deferred[None]:
        """
        Take nothing more, give what was accepted a bounded time to become final, end.
        """
        stopped: Deferred[None] = Deferred()
        self._stopping = stopped
        if self.stage in (Stage.IDLE, Stage.FAILING) and not self._pool:
            self._end()
        else:
            self._patience = self._reactor.callLater(STOP_PATIENCE, self._losePatience)
        return stopped

    # When a block is made.

    def _schedule(self) -> None:
        if self.stage is Stage.IDLE and self._call is None and self._pool:
            now = self._reactor.seconds()
            wait = self._lastBlock + self._interval - now
            # Not longer than that where the reactor's clock went back.
            wait = min(max(0.0, wait), self._interval)
            self._gathered = 0
            self._gatherUntil = now + wait + MAX_GATHERING
            self._call = self._reactor.callLater(wait, self._gather)

    def _gather(self) -> None:
        # What came in one turn of the reactor shares a block and a sync. Clients that were just
        # answered often have more: until as many transactions wait as did for the last block,
        # and as long as each turn brings some, there is another turn.
        waiting = len(self._pool)
        if self._gathered < waiting < self._expected:
            now = self._reactor.seconds()
            if now < self._gatherUntil and now < self._expectUntil:
                self._gathered = waiting
                self._call = self._reactor.callLater(0, self._gather)
                return
        self._produce()

    def _produce(self) -> None:
        self._call = None
        self.stage = Stage.DECIDING
        self._lastBlock = self._reactor.seconds()
        self._nodes.propose()

    def _armHeartbeat(self) -> None:
        if self._empty is not None:
            self._heartbeat.start(self._empty)

    def _beat(self) -> None:
        if self.stage is Stage.IDLE and self._stopping is None and self._call is None:
            self._application.mayBeEmpty = True
            self._produce()
        else:
            self._armHeartbeat()

    # How it gets to the disk.

    def decided(self, candidate: Candidate, certificate: Certificate) -> None:
        """
        A block is decided. Called by the set of nodes.
        """
        self._cancelCall()
        self.stage = Stage.STORING
        self._application.beginStoring(candidate.header, certificate)
        self._storeBlock(candidate, certificate)

    def _storeBlock(self, candidate: Candidate, certificate: Certificate) -> None:
        self._call = None
        storing = self._runInThread(self._store.append, appendOf(candidate, certificate.encode()))
        storing.addCallbacks(
            lambda _: self._stored(candidate),
            lambda failure: self._notStored(failure, candidate, certificate),
        )
        storing.addErrback(lambda failure: self._log.failure("a stored block", failure))

    def _stored(self, candidate: Candidate) -> None:
        header = candidate.header
        self.trouble = ""
        self._state.apply(candidate.outcome, candidate.history)
        self._application.endStoring(isStored=True)
        self._nodes.stored(header.height)
        if header.nextValidators != header.validators:
            self._reform(header)
        self.stage = Stage.IDLE
        self._armHeartbeat()
        self._expected = len(self._pool)
        self._expectUntil = self._reactor.seconds() + MAX_GATHERING
        done = self._pool.take(len(candidate.transactions))
        self._schedule()
        block = (candidate.transactions, candidate.outcome.receipts)
        done.settle(receiptsOf(header.height, *block))
        self._observers.tell(lambda: blockOf(header, *block))
        self._endIfDrained()

    def _notStored(self, failure: Failure, candidate: Candidate, certificate: Certificate) -> None:
        self._log.failure(
            "block {height} could not be stored", failure, height=candidate.header.height
        )
        self.trouble = "the ledger's disk is full or failing"
        error = failure.value
        if isinstance(error, StorageFailed) and error.isUncertain:
            # It may come back after a crash, so it is this block or none.
            if self._stopping is not None and self._patience is None:
                self._end()
            else:
                self._call = self._reactor.callLater(
                    RETRY, self._storeBlock, candidate, certificate
                )
            return
        # Nothing of it has left this process and nothing of it will come back: as after a
        # crash, another block may be decided, in a round that was never used.
        self._application.endStoring(isStored=False)
        self._nodes.stop()
        self.stage = Stage.FAILING
        self._pool.fail(LedgerUnavailable(f"{self.trouble}: nothing was executed"))
        if self._stopping is not None:
            self._end()
        else:
            self._call = self._reactor.callLater(0, self._recover)

    def _recover(self) -> None:
        self._call = None
        height = self._application.head.height + 1
        round = self._nodes.nextRound(height)
        writing = self._runInThread(self._application.setAside, height, round)
        writing.addCallbacks(lambda _: self._recovered(round), self._tryAgain)
        writing.addErrback(lambda failure: self._log.failure("a recovery", failure))

    def _recovered(self, round: int) -> None:
        if self._stopping is None:
            self._log.info("the ledger's disk can be written again")
            self.trouble = ""
            self.stage = Stage.IDLE
            self._nodes.start(self._application.head, round)
            self._armHeartbeat()
            self._schedule()

    def _tryAgain(self, failure: Failure) -> None:
        if not failure.check(StorageError):
            self._log.failure("a recovery", failure)
        if self._stopping is None:
            self._call = self._reactor.callLater(RETRY, self._recover)

    # The end.

    def _losePatience(self) -> None:
        self._patience = None
        # What is being written is waited for: it may be stored by now.
        if self.stage is not Stage.STORING or self._call is not None:
            self._end()

    def _endIfDrained(self) -> None:
        if self._stopping is not None and (not self._pool or self._patience is None):
            self._end()

    def _end(self) -> None:
        stopped = self._stopping
        if stopped is None or self.stage is Stage.STOPPED:
            return
        self.stage = Stage.STOPPED
        self._heartbeat.close()
        self._cancelCall()
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        self._nodes.stop()
        self._pool.fail(
            LedgerUnavailable(
                "the ledger stopped while this could not be stored: it may have been executed"
                if self._application.isStoring
                else "the ledger stopped before this was executed"
            )
        )
        closing = self._runInThread(self._store.close)
        closing.addCallbacks(stopped.callback, stopped.errback)

    def _cancelCall(self) -> None:
        if self._call is not None:
            self._call.cancel()
            self._call = None

    @property
    def isStopping(self) -> bool:
        """Whether nothing is taken any more."""
        return self._stopping is not None

    @property
    def head(self) -> Header:
        """The header of the last stored block."""
        return self._application.head
