"""
The outbox: this broker's transactions, in batches on their way through the engine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from attrs import define
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from ...chain import Transaction, selectTransactions
from ...errors import BrokerError, LedgerUnavailable, Overloaded
from ...interfaces import Submission
from ...model import Execution, Receipt
from ._batch import BatchMaker
from ._calls import Broadcast, EngineError, Reason
from ._machine import Code

RETRY = 1.0
"""Seconds between attempts to broadcast a batch, while the engine cannot be reached."""

PROPOSED = 0.5
"""Seconds after which a batch that only this node has proposed is broadcast."""

RESEND = 5.0
"""Seconds after which a batch that is in no block is broadcast again."""


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
        """Tell the submission what came of it."""
        self.submission.settle(self.index, (outcome,))


@define(eq=False)
class _Sent:
    """
    A batch on its way. The same bytes are handed in until it is in a block: the engine and the
    chain know them again, so nothing is executed twice.

    @ivar hashes: its transactions that are not final.
    @ivar previous: the nonce that it follows.
    @ivar due: when it is handed in the next time.
    @ivar isProposed: whether it stands in a proposal of this node, and was never handed in.
    """

    data: bytes
    hashes: set[bytes]
    previous: int
    due: float
    isProposed: bool = False


class Outbox:
    """
    The transactions of this broker that are not final, in order, bounded in bytes.

    One batch after the other is handed to the engine. A transaction that nobody waits for any
    more stays on its way.
    """

    _log = Logger()

    def __init__(
        self,
        *,
        clock: IReactorTime,
        broadcast: Callable[[bytes], Deferred[Broadcast]],
        maxBytes: int,
        batchBytes: int,
        batchCount: int,
        window: int,
        interval: float,
    ) -> None:
        """
        @param broadcast: hands a batch to the engine.
        @param maxBytes: how much may wait, unless it is one alone.
        @param batchBytes: how many bytes of transactions a batch has at most, unless it is one.
        @param batchCount: how many of them it has at most.
        @param window: how many batches may be under way. While they are, the next one fills.
        @param interval: for how long transactions are gathered into a batch, in seconds. It
            ends when as many are there as the last block brought answers for: who publishes one
            after the other, is there again then.
        """
        self._clock = clock
        self._broadcast = broadcast
        self._maxBytes = maxBytes
        self._batchBytes = batchBytes
        self._batchCount = batchCount
        self._window = window
        self._interval = interval
        self._maker: BatchMaker | None = None
        self._previous = 0
        self._bytes = 0
        self._expected = 0
        self._queue: deque[Transaction] = deque()
        self._waiting: dict[bytes, _Waiting] = {}
        self._sent: list[_Sent] = []
        self._handing: _Sent | None = None
        self._request: Deferred[Broadcast] | None = None
        self._next: IDelayedCall | None = None
        self._retry: IDelayedCall | None = None
        self._isClosed = False

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def _isGathered(self) -> bool:
        """Whether as many transactions are here again as waited for the last block."""
        return 0 < self._expected <= len(self._queue)

    @property
    def oldest(self) -> float | None:
        """Since when the first one waits; C{None} where none does."""
        return next((waiting.since for waiting in self._waiting.values()), None)

    def begin(self, maker: BatchMaker, highest: int) -> None:
        """
        There is a chain to send to, or it is there again.

        @param maker: makes this broker's batches on it.
        @param highest: the highest nonce of the broker's that the chain has executed.
        """
        if self._maker is not None and self._maker.sender != maker.sender:
            self._sent.clear()
            self._previous = 0
            self._fail(list(self._waiting), LedgerUnavailable("the chain began anew"))
        self._maker = maker
        self._previous = max(self._previous, highest)
        self._goOn(self._interval)

    def handInAgain(self) -> None:
        """The engine has started: what waited there for a block may be lost."""
        for sent in self._sent:
            sent.due = self._clock.seconds()
        self._goOn(0)

    def add(self, transactions: Sequence[Transaction]) -> Submission:
        """
        Have transactions executed. Those for which there is no room fail at once with
        L{Overloaded}, and all that follow them too.

        @param transactions: one or more.
        """
        submission = Submission(len(transactions))
        now = self._clock.seconds()
        for index, transaction in enumerate(transactions):
            if self._waiting and self._bytes + transaction.size > self._maxBytes:
                left = len(transactions) - index
                submission.settle(index, [Overloaded()] * left)
                break
            self._bytes += transaction.size
            self._waiting[transaction.hash] = _Waiting(transaction, submission, index, now)
            self._queue.append(transaction)
        self._goOn(0 if self._isGathered else self._interval)
        return submission

    def propose(self) -> Sequence[bytes]:
        """
        It is this node's turn to propose a block. What is in that needs no other way to it.

        @return: all batches that are in no block, in order.
        """
        if self._maker is not None and not self._isClosed:
            while self._queue and len(self._sent) < self._window:
                sent = self._fill()
                sent.isProposed = True
                sent.due = self._clock.seconds() + PROPOSED
            self._goOn(0)
        return [sent.data for sent in self._sent]

    def committed(self, receipts: Sequence[Receipt]) -> None:
        """
        A block is final and on stable storage: tell who waits for something in it. To be called
        for every block, in order.

        @param receipts: those of all its transactions.
        """
        if not self._waiting:
            return
        isUrgent = len(self._sent) >= self._window
        done: list[tuple[_Waiting, Receipt]] = []
        for receipt in receipts:
            # Of two copies in the chain, the first counts; when the second comes nobody waits.
            waiting = self._waiting.pop(receipt.transactionHash, None)
            if waiting is not None:
                self._bytes -= waiting.transaction.size
                done.append((waiting, receipt))
        for sent in self._sent:
            sent.hashes.intersection_update(self._waiting)
        self._sent = [sent for sent in self._sent if sent.hashes]
        for sent in self._sent:
            if sent.isProposed:
                # The block was another one.
                sent.isProposed = False
                sent.due = self._clock.seconds()
                isUrgent = True
        self._expected = len(done) + len(self._queue)
        for waiting, receipt in done:
            if receipt.execution is Execution.REPEATED:
                # Not before, for that would have been told: another one had its number.
                waiting.settle(LedgerUnavailable("the chain did not execute it"))
            else:
                waiting.settle(receipt)
        self._goOn(0 if isUrgent or self._isGathered else self._interval)

    def close(self, error: BrokerError) -> None:
        """Stop sending, and fail all pending Deferreds."""
        self._isClosed = True
        for call in (self._next, self._retry):
            if call is not None:
                call.cancel()
        self._next = self._retry = None
        if self._request is not None:
            self._request.cancel()
        self._fail([one.hash for one in self._queue] + list(self._waiting), error)

    def _fail(self, hashes: Sequence[bytes], error: BrokerError) -> None:
        for hash in hashes:
            waiting = self._waiting.pop(hash, None)
            if waiting is not None:
                self._bytes -= waiting.transaction.size
                waiting.settle(error)
        self._queue = deque(one for one in self._queue if one.hash in self._waiting)

    # The way to the engine.

    def _goOn(self, delay: float) -> None:
        if self._isClosed or self._maker is None or self._handing is not None:
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
        Whether there is a new batch to hand in. One that only this node has proposed is decided
        before: what follows it could be in no other node's block.
        """
        if not self._queue or len(self._sent) >= self._window:
            return False
        return not any(sent.isProposed for sent in self._sent)

    def _due(self) -> float | None:
        """In how many seconds something is to be done; C{None} where nothing is."""
        if self._mayFill():
            return 0.0
        if not self._sent:
            return None
        return max(0.0, min(sent.due for sent in self._sent) - self._clock.seconds())

    def _step(self) -> None:
        self._next = None
        oldest = min(self._sent, key=lambda each: each.due, default=None)
        if oldest is not None and oldest.due <= self._clock.seconds():
            self._hand(oldest)
        elif self._mayFill():
            self._hand(self._fill())
        else:
            self._goOn(0)

    def _fill(self) -> _Sent:
        assert self._maker is not None
        chosen = selectTransactions(self._queue, self._batchBytes, self._batchCount)
        for _ in chosen:
            self._queue.popleft()
        previous, self._previous = self._previous, chosen[-1].nonce
        data = self._maker.make(chosen, previous)
        sent = _Sent(data, {one.hash for one in chosen}, previous, self._clock.seconds())
        self._sent.append(sent)
        return sent

    def _hand(self, sent: _Sent) -> None:
        sent.isProposed = False
        sent.due = self._clock.seconds() + RESEND
        self._handing = sent
        self._request = self._broadcast(sent.data)
        self._request.addCallbacks(
            lambda answer: self._handed(sent, answer), lambda failure: self._troubled(sent, failure)
        ).addErrback(lambda failure: self._log.failure("a batch", failure))

    def _handed(self, sent: _Sent, answer: Broadcast) -> None:
        self._request = self._handing = None
        # What is repeated was in a block, of which this broker may not have heard yet.
        if answer.code not in (Code.OK, Code.REPEATED):
            self._drop(sent, f"the ledger refused this broker's transactions: {answer.log}")
        self._goOn(0)

    def _troubled(self, sent: _Sent, failure: Failure) -> None:
        self._request = self._handing = None
        if self._isClosed:
            return
        error = failure.value
        reason = error.reason if isinstance(error, EngineError) else None
        if reason is Reason.KNOWN:
            self._goOn(0)
        elif reason is Reason.TOO_LARGE:
            if len(sent.hashes) > 1:
                self._split(sent)
            else:
                self._drop(sent, "the transaction is larger than the ledger takes")
            self._goOn(0)
        else:
            if reason is None:
                self._log.failure("a batch could not be handed in", failure)
            # Handed in again after a while, before any that is new: whether the engine has it
            # is not known, and the next one follows it.
            self._handing = sent
            self._retry = self._clock.callLater(RETRY, self._again, sent)

    def _again(self, sent: _Sent) -> None:
        self._retry = None
        self._handing = None
        if sent.hashes:
            self._hand(sent)
        else:
            self._goOn(0)

    def _split(self, sent: _Sent) -> None:
        """The engine takes no batch so large, and has never had this one: smaller ones then."""
        if sent in self._sent:
            self._batchBytes = len(sent.data) // 2
            self._log.warn("batches of {size} bytes are too large", size=len(sent.data))
            self._sent.remove(sent)
            self._previous = min(self._previous, sent.previous)
            waiting = [each for hash, each in self._waiting.items() if hash in sent.hashes]
            self._queue.extendleft(each.transaction for each in reversed(waiting))

    def _drop(self, sent: _Sent, why: str) -> None:
        if sent not in self._sent:
            return
        self._sent.remove(sent)
        self._previous = min(self._previous, sent.previous)
        self._fail(list(sent.hashes), LedgerUnavailable(why))
