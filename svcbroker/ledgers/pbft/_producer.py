"""
The production of blocks: when a block is made, how it is stored, and who gets its receipts.
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
from ...histogram import Histogram
from ...interfaces import Submission
from ...net.turns import LazyTimer
from ...probes import probe
from ...storage import StorageError, StorageFailed, Store
from .._erasingjob import ErasingJob
from .._storedledger import LATENCY_BOUNDS, SYNC_BOUNDS, Observers
from .._views import blockOf, eventIdsOf, receiptsOf
from ._blockapplication import BlockApplication, TransactionPool
from ._replicaset import ReplicaSet

RETRY = 1.0
"""Seconds between two attempts to write to a failing disk."""

MAX_BATCH_WAIT = 0.005
"""
The most seconds that a block waits for the next requests of clients that were just answered.
"""

MAX_ANSWER_TIME = 0.02
"""Seconds after a block in which its clients count as just answered."""

STOP_TIMEOUT = 5.0
"""Seconds that accepted transactions have to become final when the ledger stops."""


class ProducerState(Enum):
    """The state of the next block."""

    IDLE = "idle"
    """No transaction waits, or the interval has not passed."""
    DECIDING = "deciding"
    """The replicas are deciding it."""
    STORING = "storing"
    """It is decided and being written to disk."""
    FAILING = "failing"
    """The last block could not be stored."""
    STOPPED = "stopped"
    """There will be none."""


class BlockProducer:
    """
    Makes blocks of the waiting transactions, one after the other.

    While a block is decided and synced, the next one fills, so one sync serves all transactions
    that arrive meanwhile. The chain's state changes only when a block is on stable storage.

    @ivar state: the state of the next block.
    @ivar lastError: the reason why no block can be stored now; empty if there is none.
    @ivar latency: how long transactions took until they were stored, in seconds.
    @ivar sync: how long storing and syncing each block took, in seconds.
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
        erasing: ErasingJob,
    ) -> None:
        """
        @param runInThread: runs blocking disk work, one call after the other.
        @param state: the chain's state.
        @param interval: the minimum number of seconds from one block to the next.
        @param empty: after how many seconds an empty block is made; C{None} for never.
        @param reform: replaces the replicas after a block that changed the validator set; takes the
            block's header.
        @param erasing: removes the contents of erased events from the store.
        """
        self.state = ProducerState.IDLE
        self.lastError = ""
        self.latency = Histogram(LATENCY_BOUNDS)
        self.sync = Histogram(SYNC_BOUNDS)
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
        self._erasing = erasing
        self._heartbeat = LazyTimer(reactor, self._beat)
        self._call: IDelayedCall | None = None
        self._lastBlock = reactor.seconds() - interval
        self._storingSince = 0.0
        # The number of waiting transactions one turn ago, and until when it is compared; their
        # number when the last block was stored, and until when as many are expected again.
        self._lastCount = self._expected = 0
        self._waitUntil = self._expectUntil = 0.0
        self._stopping: Deferred[None] | None = None
        self._stopTimeout: IDelayedCall | None = None

    def start(self, replicas: ReplicaSet) -> None:
        """
        Start the replicas.

        @param replicas: the replicas, which call L{decided}.
        @raise svcbroker.storage.StorageError: the disk cannot be written.
        """
        self._replicas = replicas
        replicas.start(self._application.head, self._application.firstRound())
        self._armHeartbeat()
        self._erasing.wake()

    def submitMany(self, transactions: Sequence[Transaction]) -> Submission:
        """
        Submit transactions, to be executed in their order and with no other between them.

        @return: settled when they are final and on stable storage.
        @raise LedgerUnavailable: the ledger is stopping, or its disk is failing.
        """
        if self._stopping is not None:
            raise LedgerUnavailable("the ledger is stopping")
        if self.lastError:
            raise LedgerUnavailable(self.lastError)
        submission = self._pool.add(transactions, self._reactor.seconds())
        if self._call is None:
            self._schedule()
        return submission

    def stop(self) -> Deferred[None]:
        """
        Refuse further transactions, wait for those accepted to become final, but no longer than
        L{STOP_TIMEOUT}, and stop.
        """
        stopped: Deferred[None] = Deferred()
        self._stopping = stopped
        if self.state in (ProducerState.IDLE, ProducerState.FAILING) and not self._pool:
            self._finishStopping()
        else:
            self._stopTimeout = self._reactor.callLater(STOP_TIMEOUT, self._onStopTimeout)
        return stopped

    # Starting a block.

    def _schedule(self) -> None:
        if self.state is ProducerState.IDLE and self._call is None and self._pool:
            now = self._reactor.seconds()
            wait = self._lastBlock + self._interval - now
            # No longer than the interval, in case the reactor's clock was set back.
            wait = min(max(0.0, wait), self._interval)
            self._lastCount = 0
            self._waitUntil = now + wait + MAX_BATCH_WAIT
            self._call = self._reactor.callLater(wait, self._startOrWait)

    def _startOrWait(self) -> None:
        # Transactions of one turn of the reactor share a block. Clients that were just answered
        # often send more: wait another turn as long as each brings some, until as many
        # transactions wait as for the last block.
        waiting = len(self._pool)
        if self._lastCount < waiting < self._expected:
            now = self._reactor.seconds()
            if now < self._waitUntil and now < self._expectUntil:
                self._lastCount = waiting
                self._call = self._reactor.callLater(0, self._startOrWait)
                return
        self._produce()

    def _produce(self) -> None:
        self._call = None
        self.state = ProducerState.DECIDING
        self._lastBlock = self._reactor.seconds()
        self._replicas.propose()

    def _armHeartbeat(self) -> None:
        if self._empty is not None:
            self._heartbeat.start(self._empty)

    def _beat(self) -> None:
        if self.state is ProducerState.IDLE and self._stopping is None and self._call is None:
            self._application.mayBeEmpty = True
            self._produce()
        else:
            self._armHeartbeat()

    # Storing a block.

    def decided(self, candidate: Candidate, certificate: Certificate) -> None:
        """
        Store a decided block. Called by the replica set.
        """
        self._cancelCall()
        self.state = ProducerState.STORING
        self._application.beginStoring(candidate.header, certificate)
        self._storeBlock(candidate, certificate)

    def _storeBlock(self, candidate: Candidate, certificate: Certificate) -> None:
        self._call = None
        self._storingSince = self._reactor.seconds()
        storing = self._runInThread(self._store.append, appendOf(candidate, certificate.encode()))
        storing.addBoth(self._written, candidate, certificate)

    def _written(self, result: object, candidate: Candidate, certificate: Certificate) -> None:
        try:
            if isinstance(result, Failure):
                self._notStored(result, candidate, certificate)
            else:
                self._stored(candidate)
        except Exception:
            self._log.failure("a stored block")

    def _stored(self, candidate: Candidate) -> None:
        now = self._reactor.seconds()
        self.sync.observe(now - self._storingSince)
        header = candidate.header
        self.lastError = ""
        self._state.apply(candidate.outcome, candidate.history)
        self._application.endStoring(isStored=True)
        self._replicas.stored(header.height)
        if candidate.outcome.erased:
            self._erasing.wake()
        if header.nextValidators != header.validators:
            self._reform(header)
        self.state = ProducerState.IDLE
        self._armHeartbeat()
        self._expected = len(self._pool)
        done = self._pool.take(len(candidate.transactions))
        done.measure(self.latency, now)
        self._schedule()
        transactions, outcome = candidate.transactions, candidate.outcome
        ids = eventIdsOf(header.height, transactions, outcome.receipts)
        self._observers.tell(lambda: blockOf(header, transactions, ids))
        done.settle(receiptsOf(header.height, transactions, outcome.receipts, ids, outcome.earlier))
        # From here, since to answer many clients takes some milliseconds itself.
        self._expectUntil = self._reactor.seconds() + MAX_ANSWER_TIME
        self._stopIfDrained()

    def _notStored(self, failure: Failure, candidate: Candidate, certificate: Certificate) -> None:
        self._log.failure(
            "block {height} could not be stored", failure, height=candidate.header.height
        )
        self.lastError = "the ledger's disk is full or failing"
        error = failure.value
        if isinstance(error, StorageFailed) and error.isUncertain:
            # A crash may bring it back, so no other block may be decided: store it again.
            if self._stopping is not None and self._stopTimeout is None:
                self._finishStopping()
            else:
                probe("producer: uncertain block stored again")
                self._call = self._reactor.callLater(
                    RETRY, self._storeBlock, candidate, certificate
                )
            return
        # Nothing of it has left this process, and no crash brings it back. So another block may
        # be decided, in an unused round.
        probe("producer: block given up")
        self._application.endStoring(isStored=False)
        self._replicas.stop()
        self.state = ProducerState.FAILING
        self._pool.fail(LedgerUnavailable(f"{self.lastError}: nothing was executed"))
        if self._stopping is not None:
            self._finishStopping()
        else:
            self._call = self._reactor.callLater(0, self._recover)

    def _recover(self) -> None:
        self._call = None
        height = self._application.head.height + 1
        round = self._replicas.nextRound(height)
        writing = self._runInThread(self._application.setAside, height, round)
        writing.addCallbacks(lambda _: self._recovered(round), self._retryRecovery)
        writing.addErrback(lambda failure: self._log.failure("a recovery", failure))

    def _recovered(self, round: int) -> None:
        if self._stopping is None:
            probe("producer: recovery in unused rounds")
            self._log.info("the ledger's disk can be written again")
            self.lastError = ""
            self.state = ProducerState.IDLE
            self._replicas.start(self._application.head, round)
            self._armHeartbeat()
            self._schedule()

    def _retryRecovery(self, failure: Failure) -> None:
        probe("producer: recovery fails")
        if not failure.check(StorageError):
            self._log.failure("a recovery", failure)
        if self._stopping is None:
            self._call = self._reactor.callLater(RETRY, self._recover)

    # Stopping.

    def _onStopTimeout(self) -> None:
        probe("producer: stop takes too long")
        self._stopTimeout = None
        # Wait for a write in progress: the block may be stored already.
        if self.state is not ProducerState.STORING or self._call is not None:
            self._finishStopping()

    def _stopIfDrained(self) -> None:
        if self._stopping is not None and (not self._pool or self._stopTimeout is None):
            self._finishStopping()

    def _finishStopping(self) -> None:
        stopped = self._stopping
        if stopped is None or self.state is ProducerState.STOPPED:
            return
        self.state = ProducerState.STOPPED
        self._heartbeat.close()
        self._cancelCall()
        if self._stopTimeout is not None:
            self._stopTimeout.cancel()
            self._stopTimeout = None
        self._replicas.stop()
        self._erasing.stop()
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
        """Whether the ledger is stopping or stopped."""
        return self._stopping is not None

    @property
    def head(self) -> Header:
        """The header of the last stored block."""
        return self._application.head
