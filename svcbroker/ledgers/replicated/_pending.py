"""
The transactions of a broker that are not final yet, on a ledger whose blocks others decide.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence

from attrs import define

from ...chain import Transaction, selectTransactions
from ...errors import BrokerError, LedgerUnavailable, Overloaded
from ...histogram import Histogram
from ...interfaces import Submission
from ...model import Execution, LedgerMeasures, Receipt
from .._storedledger import LATENCY_BOUNDS

OVERTAKEN = (
    "the chain has executed another transaction with this one's nonce, or with a much higher one: "
    "does another broker use a copy of this one's key?"
)
"""The reason why a transaction was repeated that had no receipt before."""


@define
class _Waiting:
    """
    A transaction that is not final yet.

    @ivar submission: the submission that it belongs to.
    @ivar index: its index there.
    @ivar since: when it came, in the clock's seconds.
    """

    transaction: Transaction
    submission: Submission
    index: int
    since: float

    def settle(self, outcome: Receipt | BrokerError) -> None:
        """Settle its place in the submission."""
        self.submission.settle(self.index, (outcome,))


class PendingTransactions:
    """
    The transactions of a broker that are not final, in order, bounded in bytes: a queue of those
    that are in no batch yet, and all others.

    A transaction whose submission was cancelled stays.

    @ivar latency: how long transactions took until they were final, in seconds.
    """

    def __init__(self, seconds: Callable[[], float], maxBytes: int) -> None:
        """
        @param seconds: the reactor's clock.
        @param maxBytes: the most bytes of pending transactions, unless it is one alone.
        """
        self._seconds = seconds
        self._maxBytes = maxBytes
        self._bytes = 0
        self._queue: deque[Transaction] = deque()
        self._waiting: dict[bytes, _Waiting] = {}
        self.latency = Histogram(LATENCY_BOUNDS)

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def queued(self) -> int:
        """The number of those that are in no batch."""
        return len(self._queue)

    @property
    def hashes(self) -> Collection[bytes]:
        """The hashes of all."""
        return self._waiting.keys()

    @property
    def transactions(self) -> Sequence[Transaction]:
        """All, in order."""
        return [waiting.transaction for waiting in self._waiting.values()]

    @property
    def oldest(self) -> float | None:
        """The time since which the oldest is pending; C{None} if none is."""
        return next((waiting.since for waiting in self._waiting.values()), None)

    def measure(self, sync: Histogram) -> LedgerMeasures:
        """
        Measures of those that wait now.

        @param sync: how long storing each block took.
        """
        oldest = self.oldest
        return LedgerMeasures(
            waiting=len(self._waiting),
            waitingBytes=self._bytes,
            oldest=0.0 if oldest is None else self._seconds() - oldest,
            latency=self.latency,
            sync=sync,
        )

    def add(self, transactions: Sequence[Transaction]) -> Submission:
        """
        Submit transactions. From the first for which there is no room, they fail at once with
        L{Overloaded}.

        @param transactions: one or more.
        """
        submission = Submission(len(transactions))
        now = self._seconds()
        for index, transaction in enumerate(transactions):
            if self._waiting and self._bytes + transaction.size > self._maxBytes:
                left = len(transactions) - index
                submission.settle(index, [Overloaded()] * left)
                break
            self._bytes += transaction.size
            self._waiting[transaction.hash] = _Waiting(transaction, submission, index, now)
            self._queue.append(transaction)
        return submission

    def take(self, maxBytes: int, maxCount: int) -> Sequence[Transaction]:
        """
        Take the next batch out of the queue; one transaction at least.

        @param maxBytes: the most bytes of its transactions, unless it is one alone.
        @param maxCount: the most transactions.
        """
        chosen = selectTransactions(self._queue, maxBytes, maxCount)
        for _ in chosen:
            self._queue.popleft()
        return chosen

    def putBack(self, hashes: Collection[bytes]) -> None:
        """Put transactions of a batch back to the start of the queue, so far as they wait."""
        left = [each.transaction for hash, each in self._waiting.items() if hash in hashes]
        self._queue.extendleft(reversed(left))

    def replaceAll(self, transactions: Sequence[Transaction]) -> None:
        """
        Replace all transactions, and queue them.

        @param transactions: as many, in the same order.
        """
        waiting = list(self._waiting.values())
        for each, transaction in zip(waiting, transactions, strict=True):
            each.transaction = transaction
        self._waiting = {each.transaction.hash: each for each in waiting}
        self._queue = deque(transactions)

    def settle(
        self, receipts: Iterable[Receipt], before: Callable[[int], object] = lambda count: None
    ) -> None:
        """
        Settle the transactions of a block that is on stable storage.

        @param receipts: the receipts of all transactions of the block, those of others too.
        @param before: called with the number of those that were pending here, after they are not
            any more and before anybody hears of it.
        """
        done: list[tuple[_Waiting, Receipt]] = []
        for receipt in receipts:
            # Of two copies in the chain the first settles the submission.
            waiting = self._waiting.pop(receipt.transactionHash, None)
            if waiting is not None:
                self._bytes -= waiting.transaction.size
                done.append((waiting, receipt))
        before(len(done))
        now = self._seconds()
        for waiting, receipt in done:
            self.latency.observe(now - waiting.since)
            if receipt.execution is Execution.REPEATED:
                # Its own first copy would have settled it.
                waiting.settle(LedgerUnavailable(OVERTAKEN))
            else:
                waiting.settle(receipt)

    def fail(self, hashes: Iterable[bytes], error: BrokerError) -> None:
        """Fail some of the transactions, so far as they wait."""
        for hash in list(hashes):
            waiting = self._waiting.pop(hash, None)
            if waiting is not None:
                self._bytes -= waiting.transaction.size
                waiting.settle(error)
        self._queue = deque(one for one in self._queue if one.hash in self._waiting)

    def failQueued(self, error: BrokerError) -> None:
        """Fail those that are in no batch."""
        self.fail([one.hash for one in self._queue], error)

    def failAll(self, error: BrokerError) -> None:
        """Fail all."""
        self.fail(self._waiting, error)
