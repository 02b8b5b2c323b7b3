"""
The production of blocks: the pool of transactions, the application of it that the replicas run,
when a block is made, how it is stored, and who gets its receipts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from itertools import islice
from typing import Any, TypeAlias

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from ...archive import appendOf
from ...chain import (
    Candidate,
    Certificate,
    ChainState,
    Header,
    InvalidBlock,
    Malformed,
    Transaction,
    checkBlock,
    proposeBlock,
    selectTransactions,
)
from ...errors import BrokerError, LedgerUnavailable, Overloaded
from ...histogram import Histogram
from ...interfaces import Submission
from ...model import Receipt
from ...net.turns import LazyTimer
from ...probes import probe
from ...storage import StorageError, StorageFailed, Store
from .._storedledger import LATENCY_BOUNDS, SYNC_BOUNDS, ErasingJob, Observers
from .._views import blockOf, eventIdsOf, receiptsOf
from ._protocol import ProposedBlock
from ._replicaset import ReplicaSet

_Claim: TypeAlias = tuple[float, Submission, int, int]
"""
Consecutive waiting transactions of one submission: when they were added, in the clock's seconds;
the submission; the index of the first of them there; how many there are.
"""


class RemovedTransactions:
    """
    Transactions removed from the pool, with the submissions that they belong to.
    """

    def __init__(self, claims: Sequence[_Claim]) -> None:
        """
        @param claims: in the order of the transactions.
        """
        self._claims = claims

    def settle(self, receipts: Sequence[Receipt]) -> None:
        """Settle each submission with its receipts."""
        at = 0
        for _, submission, start, count in self._claims:
            submission.settle(start, receipts[at : at + count])
            at += count

    def measure(self, latency: Histogram, now: float) -> None:
        """Add the time since each transaction was added, in seconds."""
        latency.observeSince(now, [(since, count) for since, _, _, count in self._claims])

    def fail(self, error: BrokerError) -> None:
        """Settle each submission with an error."""
        for _, submission, start, count in self._claims:
            submission.settle(start, [error] * count)


class TransactionPool:
    """
    The waiting transactions in order of arrival, bounded in bytes.

    Every block holds the first of them, so all replicas can tell whether a proposed block omits,
    reorders, repeats or invents a transaction.

    @ivar bytes: their size, as encoded in a block.
    """

    def __init__(self, maxBytes: int) -> None:
        """
        @param maxBytes: the maximum size of the waiting transactions, as encoded in a block; a
            single one may be larger.
        """
        self.bytes = 0
        self._maxBytes = maxBytes
        self._waiting: deque[Transaction] = deque()
        self._claims: deque[_Claim] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def oldest(self) -> float | None:
        """The time at which the first transaction was added, or C{None} if the pool is empty."""
        return self._claims[0][0] if self._claims else None

    def transactions(self) -> Iterator[Transaction]:
        """The waiting transactions, in order."""
        return iter(self._waiting)

    def first(self, count: int) -> Sequence[Transaction]:
        """The first C{count} transactions, or all if there are fewer."""
        return list(islice(self._waiting, count))

    def add(self, transactions: Sequence[Transaction], since: float) -> Submission:
        """
        Add transactions. If there is no room for one, it and those after it fail at once with
        L{Overloaded}.

        @return: their submission. Cancelling it leaves them in the pool.
        """
        count = len(transactions)
        submission = Submission(count)
        after = self.bytes
        for number, transaction in enumerate(transactions):
            size = transaction.size
            if after + size > self._maxBytes and after:
                submission.settle(number, [Overloaded()] * (count - number))
                count = number
                break
            after += size
            self._waiting.append(transaction)
        if count:
            self.bytes = after
            self._claims.append((since, submission, 0, count))
        return submission

    def beginsWith(self, transactions: Sequence[Transaction]) -> bool:
        """Whether these are exactly the first transactions."""
        return len(transactions) <= len(self._waiting) and all(
            waiting is transaction or waiting.hash == transaction.hash
            for waiting, transaction in zip(
                islice(self._waiting, len(transactions)), transactions, strict=True
            )
        )

    def take(self, count: int) -> RemovedTransactions:
        """Remove the first C{count} transactions."""
        pop = self._waiting.popleft
        self.bytes -= sum([pop().size for _ in range(count)])
        removed = []
        claims = self._claims
        while count:
            since, submission, start, waiting = claims.popleft()
            if waiting > count:
                claims.appendleft((since, submission, start + count, waiting - count))
                waiting = count
            removed.append((since, submission, start, waiting))
            count -= waiting
        return RemovedTransactions(removed)

    def fail(self, error: BrokerError) -> None:
        """Remove all transactions, and settle their submissions with an error."""
        self.take(len(self._waiting)).fail(error)


MAX_TRANSACTIONS = 1100
"""The maximum number of transactions in a block. To execute and to answer them takes some 10 ms of
one turn of the reactor. A batch of a thousand publishes, or 1,024 of MQTT clients, fit into one."""

MAX_DRIFT = 60_000
"""Milliseconds that a block's time may be ahead of the replicas' clock."""

ROUNDS_RESERVED = 8
"""The number of rounds of a height that are reserved on disk at a time."""


class BlockApplication:
    """
    The L{ReplicaApplication<svcbroker.ledgers.pbft._replica.ReplicaApplication>} that all replicas
    of a set share.

    Each block is executed once in this process, for all replicas. The state is the one after the
    last stored block, so only a block on top of that one can be checked.

    @ivar head: the header of the last stored block.
    @ivar isStoring: whether a decided block is being written to disk.
    @ivar mayBeEmpty: whether a block without transactions is due.
    """

    _log = Logger()

    def __init__(
        self,
        state: ChainState,
        store: Store,
        pool: TransactionPool,
        now: Callable[[], float],
        head: Header,
        maxBytes: int,
        takesEmpty: bool,
    ) -> None:
        """
        @param now: the wall clock: seconds since the epoch.
        @param head: the header of the last stored block.
        @param maxBytes: the maximum size of a block's transactions in bytes; a single transaction
            may be larger.
        @param takesEmpty: whether blocks without transactions are accepted.
        """
        self.head = head
        self.isStoring = False
        self.mayBeEmpty = False
        self._state = state
        self._store = store
        self._pool = pool
        self._now = now
        self._maxBytes = maxBytes
        self._takesEmpty = takesEmpty
        self._candidates: dict[bytes, Candidate] = {}
        self._decided: tuple[Header, Certificate] | None = None
        self._reserved = (0, 0)

    def firstRound(self) -> int:
        """
        The first round of the next height in which no earlier run of this set can have signed. It
        is reserved on disk for this run.

        @raise svcbroker.storage.StorageError: it could not be reserved.
        """
        height = self.head.height + 1
        reservedHeight, reservedRound = self._store.reservation()
        if reservedHeight == height:
            probe("application: start after rounds of this height")
            first = reservedRound
        elif reservedHeight == 0:
            first = 0
        else:
            # A later height may have used the first rounds without reserving them.
            first = ROUNDS_RESERVED
            probe("application: start after rounds of another height")
        self.setAside(height, first)
        # It has to survive the loss of the write-ahead log.
        self._store.foldLog()
        return first

    def setAside(self, height: int, round: int) -> None:
        """
        Reserve C{ROUNDS_RESERVED} rounds on disk, starting with this one. Blocks; may be called in
        any thread while nothing else is written.

        @raise svcbroker.storage.StorageError: they could not be reserved.
        """
        self._store.reserve(height, round + ROUNDS_RESERVED)
        self._reserved = (height, round + ROUNDS_RESERVED)

    def reserve(self, height: int, round: int) -> bool:
        """
        See L{Application.reserve<svcbroker.ledgers.pbft._replica.ReplicaApplication.reserve>}.
        """
        reservedHeight, reservedRound = self._reserved
        limit = reservedRound if reservedHeight == height else ROUNDS_RESERVED
        if round < limit:
            return True
        if self.isStoring or height != self.head.height + 1:
            probe("application: round not reserved while a block is stored")
            return False
        try:
            self.setAside(height, round)
        except StorageError:
            probe("application: disk fails to reserve rounds")
            return False
        return True

    def propose(self, view: int) -> Candidate | None:
        """
        See L{Application.propose<svcbroker.ledgers.pbft._replica.ReplicaApplication.propose>}.
        """
        if self.isStoring or not (self._pool or self.mayBeEmpty):
            return None
        candidate = proposeBlock(
            self._state,
            self.head,
            view,
            self._milliseconds(),
            selectTransactions(self._pool.transactions(), self._maxBytes, MAX_TRANSACTIONS),
        )
        self._candidates[candidate.header.hash] = candidate
        return candidate

    def check(self, block: ProposedBlock) -> Candidate | None:
        """See L{Application.check<svcbroker.ledgers.pbft._replica.ReplicaApplication.check>}."""
        header, transactions = block.header, block.transactions
        known = self._candidates.get(header.hash)
        if known is not None:
            return known
        if self.isStoring or header.parent != self.head.hash:
            return None
        if not transactions and not self._takesEmpty:
            raise InvalidBlock("it is empty")
        if not self._pool.beginsWith(transactions):
            probe("application: transactions that are not the first that wait")
            raise InvalidBlock("its transactions are not the first that wait")
        # Use the pool's objects: their contents match their hashes.
        transactions = self._pool.first(len(transactions))
        size = sum(transaction.size for transaction in transactions)
        if len(transactions) > 1 and (
            size > self._maxBytes or len(transactions) > MAX_TRANSACTIONS
        ):
            raise InvalidBlock("it is too large")
        # If the clock was set back, the parent's time counts as now.
        now = self._milliseconds()
        if now < self.head.timestamp:
            probe("application: clock set back")
            now = self.head.timestamp
        if header.timestamp > now + MAX_DRIFT:
            raise InvalidBlock("its time is too far ahead")
        candidate = checkBlock(self._state, self.head, header, transactions)
        self._candidates[header.hash] = candidate
        return candidate

    def decided(self, height: int) -> tuple[Header, Certificate] | None:
        """
        See L{Application.decided<svcbroker.ledgers.pbft._replica.ReplicaApplication.decided>}.
        """
        if self._decided is not None and self._decided[0].height == height:
            return self._decided
        try:
            row = self._store.blockHead(height)
            if row is None:
                return None
            return Header.decode(row.header), Certificate.decode(row.certificate)
        except (StorageError, Malformed):
            self._log.failure("block {height} cannot be read for a replica", height=height)
            return None

    def beginStoring(self, header: Header, certificate: Certificate) -> None:
        """Note that a decided block is being written to disk."""
        self.isStoring = True
        self._decided = (header, certificate)

    def endStoring(self, isStored: bool) -> None:
        """
        Note that the decided block is on stable storage, or that it is not and will not be.
        """
        self.isStoring = False
        self.mayBeEmpty = False
        if isStored and self._decided is not None:
            self.head = self._decided[0]
        self._decided = None
        self._candidates.clear()

    def _milliseconds(self) -> int:
        return int(self._now() * 1000)


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
