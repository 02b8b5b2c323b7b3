"""
The pool of transactions that wait for a block.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TypeAlias

from ...chain import Transaction
from ...errors import BrokerError, Overloaded
from ...histogram import Histogram
from ...interfaces import Submission
from ...model import Receipt

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
        """When the first transaction was added, or C{None} if the pool is empty."""
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
