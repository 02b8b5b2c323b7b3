"""
The common part of ledgers whose blocks others decide: a network of engines, or a chain.

This broker executes what they have ordered. All nodes decide alike: the result of every batch
follows from the chain's state and the batches. L{PendingTransactions} are this broker's that are
not final yet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final, Protocol, TypeAlias

from attrs import define

from ..chain import (
    NONCE_WINDOW,
    ChainState,
    Header,
    Kind,
    Malformed,
    Transaction,
    TransactionReceipt,
    decodeBody,
    decodeReceipts,
    selectTransactions,
)
from ..errors import BrokerError, LedgerUnavailable, Overloaded
from ..histogram import Histogram
from ..interfaces import Submission
from ..model import Execution, LedgerMeasures, Receipt, topicPrefix
from ..storage import StorageDamaged, Store
from ._storedledger import LATENCY_BOUNDS
from ._views import earlierOf

NEWEST: Final = 3
"""The highest version of transactions that this code executes."""

MAX_AHEAD: Final = 24 * 3600 * 1_000_000
"""
The most that a nonce may be ahead of the time, in microseconds. A broker starts with the time as
its nonce; a single nonce near the highest one, sent with a copy of its key, would leave it none.
"""


Report: TypeAlias = Callable[
    [Header, Sequence[Transaction], Sequence[TransactionReceipt], Mapping[int, int]], object
]
"""
C{report(header, transactions, receipts, earlier)} is told of a block; C{earlier} is that of
L{Outcome<svcbroker.chain.Outcome>}.
"""


def reportStored(store: Store, state: ChainState, height: int, report: Report) -> None:
    """
    Report a block that is in the store, as if it had been executed now.

    @param state: the state after it, or after a later block.
    @raise svcbroker.storage.StorageError, Malformed: it cannot be read.
    """
    row = store.block(height)
    if row is None:
        raise StorageDamaged(f"{store.path} has no block {height}: audit it")
    transactions = decodeBody(row.body, mayBeErased=True)
    receipts = decodeReceipts(row.receipts)
    earlier = earlierOf(state, transactions, receipts)
    report(Header.decode(row.header), transactions, receipts, earlier)


class Code(IntEnum):
    """The result of a batch. The engine hashes it into the next header."""

    OK = 0
    MALFORMED = 1
    UNAUTHORIZED = 2
    REPEATED = 3
    CONFLICT = 4
    OUT_OF_ORDER = 5
    AHEAD = 6
    TOO_NEW = 7
    NO_CHAIN = 8


class BlockRefused(Exception):
    """A batch that is not valid in a block now. The text says why."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code


class BrokerBatch(Protocol):
    """
    Transactions of one broker, in order.

    @ivar previous: the nonce before which the batch may not be executed: that of the last
        transaction in the broker's batch before it; 0 where the network keeps them in order.
    """

    @property
    def previous(self) -> int: ...

    @property
    def transactions(self) -> Sequence[Transaction]: ...


class BlockDraft:
    """
    A block under construction, to which batches are added one by one.
    """

    def __init__(
        self, state: ChainState, timestamp: int | None = None, newest: int = NEWEST
    ) -> None:
        """
        @param timestamp: the time in milliseconds since the epoch, which nonces may not be far
            ahead of; C{None} to execute a block that is decided, whatever its nonces.
        @param newest: the highest version of transactions that are valid.
        """
        self._newest = newest
        self._state = state
        self._latest = None if timestamp is None else timestamp * 1000 + MAX_AHEAD
        self._nonces: set[tuple[bytes, int]] = set()
        self._highest: dict[bytes, int] = {}
        self._topics: dict[str, str] = {}
        self.transactions: list[Transaction] = []

    def add(self, batch: BrokerBatch) -> None:
        """
        Add a batch.

        @raise BlockRefused: all of it was executed before, the ids of its events collide with those
            of another topic in the block, a nonce is too far ahead, the batch before it is
            missing, it is of a format that the network does not have yet, or it has what this
            chain does not take.
        """
        newest = max(one.version for one in batch.transactions)
        if newest > self._newest:
            raise BlockRefused(Code.TOO_NEW, f"this network does not have format {newest + 1} yet")
        try:
            self._state.check(batch.transactions)
        except Malformed as error:
            raise BlockRefused(Code.MALFORMED, str(error)) from None
        nonces = {(one.sender, one.nonce) for one in batch.transactions} - self._nonces
        if not any(self._state.nonces(sender).accepts(nonce) for sender, nonce in nonces):
            raise BlockRefused(Code.REPEATED, "everything in the batch was executed already")
        topics = dict(self._topics)
        for one in batch.transactions:
            if one.kind is Kind.PUBLISH:
                prefix = topicPrefix(one.topic)
                if topics.setdefault(prefix, one.topic) != one.topic:
                    raise BlockRefused(Code.CONFLICT, "two topics of the block share event ids")
        # All of a batch's transactions are of one sender.
        sender = batch.transactions[0].sender
        highest = self._highest.get(sender, self._state.nonces(sender).highest)
        last = max(one.nonce for one in batch.transactions)
        # An account that is ahead already, by a clock that was wrong, goes on in small steps.
        near = highest + NONCE_WINDOW + len(batch.transactions)
        if self._latest is not None and last > max(self._latest, near):
            raise BlockRefused(
                Code.AHEAD,
                "a nonce is more than a day ahead of the time: set the clock of this broker's "
                "machine, and restart the broker",
            )
        if batch.previous > highest:
            raise BlockRefused(
                Code.OUT_OF_ORDER, "the broker's batch before it was not executed yet"
            )
        self._highest[sender] = max(highest, last)
        self._topics = topics
        self._nonces |= nonces
        self.transactions += batch.transactions


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
    def transactions(self) -> Sequence[Transaction]:
        """All, in order."""
        return [waiting.transaction for waiting in self._waiting.values()]

    @property
    def oldest(self) -> float | None:
        """The time since which the oldest is pending; C{None} if none is."""
        return next((waiting.since for waiting in self._waiting.values()), None)

    def among(self, hashes: Iterable[bytes]) -> set[bytes]:
        """
        Those of some transactions that are pending, by their hashes.

        Hot path: it takes no longer where many others are pending.
        """
        waiting = self._waiting
        return {hash for hash in hashes if hash in waiting}

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
