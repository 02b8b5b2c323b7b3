"""
Transactions that wait for a block.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TypeAlias

from msgspec import Struct
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from ...chain import Transaction
from ...errors import BrokerError, Overloaded
from ...interfaces import Submission
from ...model import Receipt


class _One(Struct):
    """
    Who waits for one transaction.

    @ivar since: when it came, in the clock's seconds.
    """

    since: float
    receipt: Deferred[Receipt]


class _Many(Struct):
    """
    Who waits for several transactions that follow each other.

    @ivar since: when they came, in the clock's seconds.
    @ivar first: the first of them that waits still.
    @ivar end: behind the last of them.
    """

    since: float
    submission: Submission
    first: int
    end: int


_Claim: TypeAlias = _One | _Many


class Taken:
    """
    Transactions that are out of the pool, and those who are to be told what came of them.
    """

    def __init__(self) -> None:
        self._claims: list[tuple[_Claim, int, int]] = []

    def add(self, claim: _Claim, start: int, count: int) -> None:
        """
        The next C{count} transactions are a claim's.

        @param start: for one of several transactions, which is the first of these.
        """
        self._claims.append((claim, start, count))

    def settle(self, receipts: Sequence[Receipt]) -> None:
        """Tell all who waited, each their own."""
        at = 0
        for claim, start, count in self._claims:
            if isinstance(claim, _One):
                claim.receipt.callback(receipts[at])
            else:
                claim.submission.settle(start, receipts[at : at + count])
            at += count

    def fail(self, error: BrokerError) -> None:
        """Tell all who waited that it came to nothing."""
        for claim, start, count in self._claims:
            if isinstance(claim, _One):
                claim.receipt.errback(Failure(error))
            else:
                claim.submission.settle(start, [error] * count)


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

    def add(self, transaction: Transaction, since: float) -> Deferred[Receipt]:
        """
        Have a transaction wait.

        @return: what fires with its receipt. Cancelling it leaves the transaction waiting.
        @raise Overloaded: too much waits already.
        """
        size = transaction.size
        if self._waiting and self.bytes + size > self._maxBytes:
            raise Overloaded()
        self.bytes += size
        receipt: Deferred[Receipt] = Deferred()
        self._waiting.append(transaction)
        self._claims.append(_One(since, receipt))
        return receipt

    def addMany(self, transactions: Sequence[Transaction], since: float) -> Submission:
        """
        Have several transactions wait, one or more. Those for which there is no room fail at
        once with L{Overloaded}, and whatever follows them too.

        @return: cancelling it leaves the transactions waiting.
        """
        submission = Submission(len(transactions))
        fitting = self._fitting(transactions)
        if fitting:
            self._waiting.extend(islice(transactions, fitting))
            self._claims.append(_Many(since, submission, 0, fitting))
        if fitting < len(transactions):
            submission.settle(fitting, [Overloaded()] * (len(transactions) - fitting))
        return submission

    def _fitting(self, transactions: Sequence[Transaction]) -> int:
        """How many there is room for; their bytes are counted from now on."""
        for number, transaction in enumerate(transactions):
            after = self.bytes + transaction.size
            if after > self._maxBytes and self.bytes:
                return number
            self.bytes = after
        return len(transactions)

    def beginsWith(self, transactions: Sequence[Transaction]) -> bool:
        """Whether these are exactly the first that wait."""
        return len(transactions) <= len(self._waiting) and all(
            waiting is transaction or waiting.hash == transaction.hash
            for waiting, transaction in zip(
                islice(self._waiting, len(transactions)), transactions, strict=True
            )
        )

    def take(self, count: int) -> Taken:
        """Take out the first C{count}."""
        pop = self._waiting.popleft
        self.bytes -= sum([pop().size for _ in range(count)])
        taken = Taken()
        claims = self._claims
        while count:
            claim = claims[0]
            if isinstance(claim, _One):
                taken.add(claim, 0, 1)
                claims.popleft()
                count -= 1
                continue
            part = min(count, claim.end - claim.first)
            taken.add(claim, claim.first, part)
            claim.first += part
            if claim.first == claim.end:
                claims.popleft()
            count -= part
        return taken

    def fail(self, error: BrokerError) -> None:
        """Tell all who wait that it came to nothing, and forget what waits."""
        self.take(len(self._waiting)).fail(error)
