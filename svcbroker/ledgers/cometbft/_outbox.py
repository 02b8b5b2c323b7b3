"""
The outbox: this broker's transactions, in batches on their way through the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from attrs import define
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from ...chain import Transaction
from ...errors import LedgerUnavailable, TransactionTimeout
from ...histogram import Histogram
from ...interfaces import Submission
from ...model import LedgerMeasures, Receipt
from ..replicated import OVERTAKEN, Code, PendingTransactions
from ._batch import BatchMaker
from ._rpc import Broadcast, EngineError, Reason

BATCH_BYTES: Final = 128 * 1024
"""The most bytes of transactions in a batch, unless it holds one."""

BATCH_COUNT: Final = 1000
"""The most transactions in a batch."""

WINDOW: Final = 32
"""The most batches that wait for their blocks at once."""

RETRY = 1.0
"""Seconds between attempts to broadcast a batch, while the engine cannot be reached."""

PROPOSED = 0.5
"""Seconds after which a batch that only this node has proposed is broadcast."""

RESEND = 5.0
"""Seconds after which a batch that is in no block is broadcast again."""

MAX_RENUMBERED: Final = 3
"""The most times that transactions get new nonces after a start: with a copy of the key, always."""


@define(eq=False)
class _Sent:
    """
    A batch under way. The same bytes are broadcast until it is in a block: engine and chain
    recognize them, so no transaction is executed twice.

    @ivar hashes: its transactions that are not final.
    @ivar previous: the nonce that it follows.
    @ivar due: the time of the next broadcast.
    @ivar isProposed: whether it is in a proposal of this node, and was never broadcast.
    @ivar isOut: whether it was in a proposal, or an engine may have it: also after another engine,
        or the same one later, has refused it, it may be in a block.
    """

    data: bytes
    hashes: set[bytes]
    previous: int
    due: float
    isProposed: bool = False
    isOut: bool = False


class Outbox:
    """
    The transactions of this broker that are not final, in order, bounded in bytes.

    Batches are broadcast one after the other. A transaction whose submission was cancelled stays
    under way.
    """

    _log = Logger()

    def __init__(
        self,
        *,
        clock: IReactorTime,
        broadcast: Callable[[bytes], Deferred[Broadcast]],
        maxBytes: int,
        interval: float,
        areUsed: Callable[[Sequence[Transaction]], bool],
        renumber: Callable[[Sequence[Transaction]], Sequence[Transaction]],
        batchBytes: int = BATCH_BYTES,
        batchCount: int = BATCH_COUNT,
        window: int = WINDOW,
    ) -> None:
        """
        @param broadcast: sends a batch to the engine.
        @param maxBytes: the most bytes of pending transactions, unless it is one alone.
        @param interval: seconds to gather transactions into a batch. It ends early when as many
            are queued as the last block answered: clients that publish one event after the other
            are all back then.
        @param areUsed: whether the chain has executed others with the nonces of these transactions,
            or with much higher ones, so that it executes none of these.
        @param renumber: gives transactions new nonces, above all that the chain has executed.
        @param batchBytes: the most bytes of transactions in a batch, unless it is one alone.
        @param batchCount: the most transactions in a batch.
        @param window: the most batches under way. Meanwhile, the next one fills.
        """
        self._clock = clock
        self._broadcast = broadcast
        self._pending = PendingTransactions(clock.seconds, maxBytes)
        self._batchBytes = batchBytes
        self._batchCount = batchCount
        self._mostSent = window
        self._interval = interval
        self._areUsed = areUsed
        self._renumber = renumber
        self._renumberings = 0
        # Whether the next nonces may be used by batches of before the start.
        self._mayBeUsed = False
        self._maker: BatchMaker | None = None
        self._previous = 0
        self._expected = 0
        self._sent: list[_Sent] = []
        self._sending: _Sent | None = None
        self._request: Deferred[Broadcast] | None = None
        self._next: IDelayedCall | None = None
        self._retry: IDelayedCall | None = None
        self._isClosed = False
        self._isUrgent = False

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def _isGathered(self) -> bool:
        """Whether as many transactions are queued as the last block answered."""
        return 0 < self._expected <= self._pending.queued

    @property
    def _window(self) -> int:
        """
        The most batches under way. One of which the nonces may be used is alone, since it can have
        others only if nothing has overtaken it.
        """
        return 1 if self._mayBeUsed else self._mostSent

    @property
    def oldest(self) -> float | None:
        """The time since which the oldest transaction is pending; C{None} if none is."""
        return self._pending.oldest

    def measure(self, sync: Histogram) -> LedgerMeasures:
        """See L{PendingTransactions.measure}."""
        return self._pending.measure(sync)

    def begin(self, maker: BatchMaker, highest: int, *, mayBeUsed: bool = False) -> None:
        """
        Start sending to a chain, or continue after a restart.

        @param maker: makes this broker's batches for the chain.
        @param highest: the highest nonce of this broker that the chain has executed.
        @param mayBeUsed: whether batches of before this start, with the next nonces, may still be
            executed.
        """
        if self._maker is not None and self._maker.sender != maker.sender:
            self._sent.clear()
            self._previous = 0
            self._pending.failAll(LedgerUnavailable("the chain began anew"))
        self._maker = maker
        self._renumberings, self._mayBeUsed = MAX_RENUMBERED, mayBeUsed
        self._previous = max(self._previous, highest)
        self._goOn(self._interval)

    def broadcastAgain(self) -> None:
        """Broadcast all batches again: the engine has restarted, and its mempool may be lost."""
        for sent in self._sent:
            sent.due = self._clock.seconds()
        self._goOn(0)

    def add(self, transactions: Sequence[Transaction]) -> Submission:
        """See L{PendingTransactions.add}."""
        submission = self._pending.add(transactions)
        self._goOn(0 if self._isGathered else self._interval)
        return submission

    def propose(self) -> Sequence[bytes]:
        """
        Fill batches for a proposal of this node. They are broadcast only if another block is
        decided.

        @return: all batches that are in no block, in order.
        """
        if self._maker is not None and not self._isClosed:
            while self._pending.queued and len(self._sent) < self._window:
                sent = self._fill()
                sent.isProposed = True
                sent.due = self._clock.seconds() + PROPOSED
            self._goOn(0)
        for sent in self._sent:
            sent.isOut = True
        return [sent.data for sent in self._sent]

    def committed(self, receipts: Sequence[Receipt]) -> None:
        """
        Settle the transactions of a block that is on stable storage. Call it for every block, in
        order.

        @param receipts: the receipts of all its transactions.
        """
        if not self._pending:
            return
        self._isUrgent = len(self._sent) >= self._window
        self._pending.settle(receipts, self._settled)
        self._goOn(0 if self._isUrgent or self._isGathered else self._interval)

    def _settled(self, count: int) -> None:
        """Some transactions have become final, and their submissions are not settled yet."""
        self._mayBeUsed = self._mayBeUsed and not count
        for sent in self._sent:
            sent.hashes = self._pending.among(sent.hashes)
        self._sent = [sent for sent in self._sent if sent.hashes]
        for sent in self._sent:
            if sent.isProposed:
                # Another block was decided.
                sent.isProposed = False
                sent.due = self._clock.seconds()
                self._isUrgent = True
        self._expected = count + self._pending.queued

    def close(self, reason: str) -> None:
        """
        Stop sending, and fail what is pending: with L{LedgerUnavailable} what was never sent, and
        with L{TransactionTimeout} the rest, which may still be executed.
        """
        self._isClosed = True
        for call in (self._next, self._retry):
            if call is not None:
                call.cancel()
        self._next = self._retry = None
        if self._request is not None:
            self._request.cancel()
        self._pending.failQueued(LedgerUnavailable(reason))
        self._pending.failAll(TransactionTimeout(f"{reason}: it may still be executed"))

    # Sending.

    def _goOn(self, delay: float) -> None:
        if self._isClosed or self._maker is None or self._sending is not None:
            return
        due = self._due()
        if due is None:
            return
        wait = max(delay, due)
        if self._next is None:
            self._next = self._clock.callLater(wait, self._step)
        elif self._next.getTime() > self._clock.seconds() + wait:
            self._next.reset(wait)

    def _mayFill(self) -> bool:
        """
        Whether a new batch can be broadcast. Not while a batch is only in this node's proposal:
        no other node could put its successor into a block.
        """
        if not self._pending.queued or len(self._sent) >= self._window:
            return False
        return not any(sent.isProposed for sent in self._sent)

    def _due(self) -> float | None:
        """Seconds until the next broadcast; C{None} if there is none."""
        if self._mayFill():
            return 0.0
        if not self._sent:
            return None
        return max(0.0, min(sent.due for sent in self._sent) - self._clock.seconds())

    def _step(self) -> None:
        self._next = None
        oldest = min(self._sent, key=lambda each: each.due, default=None)
        if oldest is not None and oldest.due <= self._clock.seconds():
            self._send(oldest)
        elif self._mayFill():
            self._send(self._fill())
        else:
            self._goOn(0)

    def _fill(self) -> _Sent:
        assert self._maker is not None
        chosen = self._pending.take(self._batchBytes, self._batchCount)
        previous, self._previous = self._previous, chosen[-1].nonce
        data = self._maker.make(chosen, previous)
        sent = _Sent(data, {one.hash for one in chosen}, previous, self._clock.seconds())
        self._sent.append(sent)
        return sent

    def _send(self, sent: _Sent) -> None:
        sent.isProposed = False
        sent.due = self._clock.seconds() + RESEND
        self._sending = sent
        self._request = self._broadcast(sent.data)
        self._request.addCallbacks(
            lambda answer: self._answered(sent, answer),
            lambda failure: self._broadcastFailed(sent, failure),
        ).addErrback(lambda failure: self._log.failure("a batch", failure))

    def _answered(self, sent: _Sent, answer: Broadcast) -> None:
        self._request = self._sending = None
        if answer.code == Code.OK:
            sent.isOut = True
        elif answer.code == Code.REPEATED:
            # Receipts of its own would have settled it: a block is reported before the
            # application checks the next batch. Nor will it be executed: its nonces are used.
            sent.isOut = False
            if not self._makeAgain(sent):
                self._drop(sent, OVERTAKEN)
        else:
            self._drop(sent, f"the ledger refused this broker's transactions: {answer.log}")
        self._goOn(0)

    def _makeAgain(self, sent: _Sent) -> bool:
        """
        Send all transactions with new nonces, after a batch was refused: theirs were used before
        this broker has started, by batches that came into a block after that. No batch behind it
        may still be executed: it would overtake it.

        @return: whether they are.
        """
        waiting = self._pending.transactions
        underWay = set().union(*(each.hashes for each in self._sent))
        transactions = [each for each in waiting if each.hash in underWay]
        if sent not in self._sent or not self._renumberings or not self._areUsed(transactions):
            return False
        self._renumberings -= 1
        self._previous = min(self._previous, *(each.previous for each in self._sent))
        self._sent.clear()
        made = self._renumber(waiting)
        self._pending.replaceAll(made)
        self._log.info("{count} transactions have new nonces", count=len(made))
        return True

    def _broadcastFailed(self, sent: _Sent, failure: Failure) -> None:
        self._request = self._sending = None
        if self._isClosed:
            return
        error = failure.value
        reason = error.reason if isinstance(error, EngineError) else None
        if not isinstance(error, EngineError) or error.isInDoubt or reason is Reason.KNOWN:
            sent.isOut = True
        if reason is Reason.KNOWN:
            self._goOn(0)
        elif reason is Reason.TOO_LARGE:
            if len(sent.hashes) > 1:
                self._split(sent)
            else:
                self._drop(sent, "the transaction is larger than the ledger accepts")
            self._goOn(0)
        else:
            if reason is None:
                self._log.failure("a batch could not be broadcast", failure)
            # Retried before any new batch: the engine may or may not have it, and the next batch
            # follows it.
            self._sending = sent
            self._retry = self._clock.callLater(RETRY, self._retryNow, sent)

    def _retryNow(self, sent: _Sent) -> None:
        self._retry = None
        self._sending = None
        if sent.hashes:
            self._send(sent)
        else:
            self._goOn(0)

    def _split(self, sent: _Sent) -> None:
        """Make smaller batches: the engine has refused this one, and never had it."""
        if sent in self._sent:
            self._batchBytes = len(sent.data) // 2
            self._log.warn("batches of {size} bytes are too large", size=len(sent.data))
            self._sent.remove(sent)
            self._previous = min(self._previous, sent.previous)
            self._pending.putBack(sent.hashes)

    def _drop(self, sent: _Sent, why: str) -> None:
        if sent not in self._sent:
            return
        self._sent.remove(sent)
        self._previous = min(self._previous, sent.previous)
        hashes = list(sent.hashes)
        if sent.isOut:
            self._pending.fail(hashes, TransactionTimeout(f"{why}: it may still be executed"))
        else:
            self._pending.fail(hashes, LedgerUnavailable(why))
