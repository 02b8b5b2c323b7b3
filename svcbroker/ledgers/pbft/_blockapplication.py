"""
The application that the replicas run: blocks of the transactions in the pool, and the pool.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TypeAlias

from twisted.logger import Logger

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
from ...errors import BrokerError, Overloaded
from ...histogram import Histogram
from ...interfaces import Submission
from ...model import Receipt
from ...probes import probe
from ...storage import StorageError, Store
from ._protocol import ProposedBlock

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
