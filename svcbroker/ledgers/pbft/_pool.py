"""
Transactions that wait for a block.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice

from msgspec import Struct

from ...chain import Transaction
from ...errors import BrokerError, Overloaded
from ...interfaces import Submission
from ...model import Receipt


class _Claim(Struct):
    """
    Consecutive transactions of one submission that wait.

    @ivar since: when they came, in the clock's seconds.
    @ivar first: the index of the first of them in the submission.
    @ivar end: the index behind the last of them.
    """

    since: float
    submission: Submission
    first: int
    end: int


class TakenTransactions:
    """
    Transactions that are out of the pool, with the submissions that they belong to.
    """

    def __init__(self, claims: Sequence[tuple[Submission, int, int]]) -> None:
        """
        @param claims: in the order of the transactions: a submission, the index of its first
            transaction here, and how many of its transactions are here.
        """
        self._claims = claims

    def settle(self, receipts: Sequence[Receipt]) -> None:
        """Give each submission its receipts."""
        at = 0
        for submission, start, count in self._claims:
            submission.settle(start, receipts[at : at + count])
            at += count

    def fail(self, error: BrokerError) -> None:
        """Fail all of them."""
        for submission, start, count in self._claims:
            submission.settle(start, [error] * count)


class TransactionPool:
    """
    The transactions that wait, in the order in which they came, bounded in bytes.

    Every block holds the first of them, so all replicas can tell whether a proposed block
    leaves something out, puts something first or repeats something.

    @ivar bytes: how many they are, as encoded in a block.
    """

    def __init__(self, maxBytes: int) -> None:
        """
        @param maxBytes: how much may wait, as encoded in a block, unless it is one alone.
        """
        self.bytes = 0
        self._maxBytes = maxBytes
        self._waiting: deque[Transaction] = deque()
        self._claims: deque[_Claim] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def oldest(self) -> float | None:
        """Since when the first one waits; C{None} where none does."""
        return self._claims[0].since if self._claims else None

    def transactions(self) -> Iterator[Transaction]:
        """What waits, in order."""
        return iter(self._waiting)

    def first(self, count: int) -> Sequence[Transaction]:
        """The first C{count} that wait, or all."""
        return list(islice(self._waiting, count))

    def add(self, transactions: Sequence[Transaction], since: float) -> Submission:
        """
        Have transactions wait, one or more. Those for which there is no room fail at once with
        L{Overloaded}, and all that follow them too.

        @return: cancelling it leaves the transactions waiting.
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
            self._claims.append(_Claim(since, submission, 0, count))
        return submission

    def beginsWith(self, transactions: Sequence[Transaction]) -> bool:
        """Whether these are exactly the first that wait."""
        return len(transactions) <= len(self._waiting) and all(
            waiting is transaction or waiting.hash == transaction.hash
            for waiting, transaction in zip(
                islice(self._waiting, len(transactions)), transactions, strict=True
            )
        )

    def take(self, count: int) -> TakenTransactions:
        """Take out the first C{count}."""
        pop = self._waiting.popleft
        self.bytes -= sum([pop().size for _ in range(count)])
        taken = []
        claims = self._claims
        while count:
            claim = claims[0]
            part = min(count, claim.end - claim.first)
            taken.append((claim.submission, claim.first, part))
            claim.first += part
            if claim.first == claim.end:
                claims.popleft()
            count -= part
        return TakenTransactions(taken)

    def fail(self, error: BrokerError) -> None:
        """Fail everything that waits, and forget it."""
        self.take(len(self._waiting)).fail(error)
