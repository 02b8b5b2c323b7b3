"""
Transactions that wait for a block.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice

from msgspec import Struct
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from ...chain import Transaction
from ...errors import BrokerError, Overloaded
from ...model import Receipt


class Waiting(Struct, frozen=True):
    """
    A transaction that is not final yet, and who waits for it.

    @ivar since: when it came, in the clock's seconds.
    """

    transaction: Transaction
    receipt: Deferred[Receipt]
    since: float


class TransactionPool:
    """
    The transactions that wait, in the order in which they came, bounded in bytes.

    Every block holds the first of them, so all replicas can tell whether a proposed block
    leaves something out, puts something first or repeats something.
    """

    def __init__(self, maxBytes: int) -> None:
        """
        @param maxBytes: how much may wait, as encoded in a block, unless it is one alone.
        """
        self._maxBytes = maxBytes
        self._bytes = 0
        self._waiting: deque[Waiting] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def oldest(self) -> float | None:
        """Since when the first one waits; C{None} where none does."""
        return self._waiting[0].since if self._waiting else None

    def transactions(self) -> Iterator[Transaction]:
        """What waits, in order."""
        return (waiting.transaction for waiting in self._waiting)

    def first(self, count: int) -> Sequence[Transaction]:
        """The first C{count} that wait, or all."""
        return list(islice(self.transactions(), count))

    def add(self, transaction: Transaction, since: float) -> Deferred[Receipt]:
        """
        Have a transaction wait.

        @return: what fires with its receipt. Cancelling it leaves the transaction waiting.
        @raise Overloaded: too much waits already.
        """
        if self._waiting and self._bytes + transaction.size > self._maxBytes:
            raise Overloaded()
        self._bytes += transaction.size
        receipt: Deferred[Receipt] = Deferred()
        self._waiting.append(Waiting(transaction, receipt, since))
        return receipt

    def beginsWith(self, transactions: Sequence[Transaction]) -> bool:
        """Whether these are exactly the first that wait."""
        return len(transactions) <= len(self._waiting) and all(
            waiting.transaction is transaction or waiting.transaction.hash == transaction.hash
            for waiting, transaction in zip(
                islice(self._waiting, len(transactions)), transactions, strict=True
            )
        )

    def take(self, count: int) -> Sequence[Waiting]:
        """Take out the first C{count}."""
        taken = [self._waiting.popleft() for _ in range(count)]
        self._bytes -= sum(waiting.transaction.size for waiting in taken)
        return taken

    def fail(self, error: BrokerError) -> None:
        """Tell all who wait that it came to nothing, and forget what waits."""
        for waiting in self.take(len(self._waiting)):
            waiting.receipt.errback(Failure(error))
