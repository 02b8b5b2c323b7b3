"""
From a transaction of this broker to its receipt: batches, on their way through the engine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from attrs import define
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from ...chain import Candidate, Transaction, selectTransactions
from ...errors import BrokerError, LedgerUnavailable, Overloaded
from ...model import Execution, Receipt
from .._views import receiptsOf
from ._answers import Broadcast
from ._batch import BatchMaker
from ._calls import EngineError, Reason
from ._machine import Code

RETRY = 1.0
"""Seconds from one try to hand a batch in to the next, where the engine cannot be reached."""

RESEND = 5.0
"""Seconds after which a batch that is in no block is handed in again."""


@define
class _Waiting:
    """A transaction that is not final yet, and who waits for it."""

    transaction: Transaction
    receipt: Deferred[Receipt]
    since: float


@define(eq=False)
class _Sent:
    """
    A batch on its way. The same bytes are handed in until it is in a block: the engine and the
    chain know them again, so nothing is executed twice.

    @ivar hashes: its transactions that are not final.
    @ivar isTaken: whether the engine has ever taken it.
    """

    data: bytes
    hashes: set[bytes]
    at: float
    isTaken: bool = False


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
        @param interval: for how long transactions are gathered into a batch, in seconds.
        """
        self._clock = clock
        self._broadcast = broadcast
        self._maxBytes = maxBytes
        self._batchBytes = batchBytes
        self._batchCount = batchCount
        self._window = window
        self._interval = interval
        self._maker: BatchMaker | None = None
        self._bytes = 0
        self._queue: deque[Transaction] = deque()
        self._waiting: dict[bytes, _Waiting] = {}
        self._sent: list[_Sent] = []
        self._handing: _Sent | None = None
        self._next: IDelayedCall | None = None
        self._retry: IDelayedCall | None = None
        self._isClosed = False

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def oldest(self) -> float | None:
        """Since when the first one waits; C{None} where none does."""
        return next((waiting.since for waiting in self._waiting.values()), None)

    def begin(self, maker: BatchMaker) -> None:
        """
        There is a chain to send to.

        @param maker: makes this broker's batches on it.
        """
        self._maker = maker
        self._goOn(self._interval)

    def add(self, transaction: Transaction) -> Deferred[Receipt]:
        """
        Have a transaction executed.

        @return: what fires with its receipt.
        @raise Overloaded: too much waits already.
        """
        if self._waiting and self._bytes + transaction.size > self._maxBytes:
            raise Overloaded()
        self._bytes += transaction.size
        receipt: Deferred[Receipt] = Deferred()
        self._waiting[transaction.hash] = _Waiting(transaction, receipt, self._clock.seconds())
        self._queue.append(transaction)
        self._goOn(self._interval)
        return receipt

    def committed(self, candidate: Candidate) -> None:
        """
        A block is final and on stable storage: tell who waits for something in it.
        """
        if not self._waiting:
            return
        done: list[tuple[_Waiting, Receipt]] = []
        for receipt in receiptsOf(candidate):
            waiting = self._waiting.get(receipt.transactionHash)
            # A second copy in the chain says nothing of the first, which came before it.
            if waiting is not None and receipt.execution is not Execution.REPEATED:
                del self._waiting[receipt.transactionHash]
                self._bytes -= waiting.transaction.size
                done.append((waiting, receipt))
        for sent in self._sent:
            sent.hashes.intersection_update(self._waiting)
        self._sent = [sent for sent in self._sent if sent.hashes]
        for waiting, receipt in done:
            waiting.receipt.callback(receipt)
        self._goOn(0)

    def close(self, error: BrokerError) -> None:
        """Send nothing more, and tell all who wait that they wait in vain."""
        self._isClosed = True
        for call in (self._next, self._retry):
            if call is not None:
                call.cancel()
        self._next = self._retry = None
        self._fail([one.hash for one in self._queue] + list(self._waiting), error)

    def _fail(self, hashes: Sequence[bytes], error: BrokerError) -> None:
        for hash in hashes:
            waiting = self._waiting.pop(hash, None)
            if waiting is not None:
                self._bytes -= waiting.transaction.size
                waiting.receipt.errback(Failure(error))
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

    def _due(self) -> float | None:
        """In how many seconds something is to be done; C{None} where nothing is."""
        if self._queue and len(self._sent) < self._window:
            return 0.0
        if not self._sent:
            return None
        return max(0.0, min(sent.at for sent in self._sent) + RESEND - self._clock.seconds())

    def _step(self) -> None:
        self._next = None
        if self._queue and len(self._sent) < self._window:
            self._hand(self._fill())
            return
        oldest = min(self._sent, key=lambda each: each.at, default=None)
        if oldest is not None and oldest.at + RESEND <= self._clock.seconds():
            self._hand(oldest)
        else:
            self._goOn(0)

    def _fill(self) -> _Sent:
        assert self._maker is not None
        chosen = selectTransactions(self._queue, self._batchBytes, self._batchCount)
        for _ in chosen:
            self._queue.popleft()
        sent = _Sent(self._maker.make(chosen), {one.hash for one in chosen}, self._clock.seconds())
        self._sent.append(sent)
        return sent

    def _hand(self, sent: _Sent) -> None:
        sent.at = self._clock.seconds()
        self._handing = sent
        self._broadcast(sent.data).addCallbacks(
            lambda answer: self._handed(sent, answer), lambda failure: self._troubled(sent, failure)
        ).addErrback(lambda failure: self._log.failure("a batch", failure))

    def _handed(self, sent: _Sent, answer: Broadcast) -> None:
        self._handing = None
        if answer.code in (Code.OK, Code.REPEATED):
            sent.isTaken = True
        elif sent.isTaken:
            # It may still be in a block that somebody else proposes.
            self._log.warn("the engine takes a batch no more: {log}", log=answer.log)
        else:
            self._drop(sent, f"the ledger refused this broker's transactions: {answer.log}")
        self._goOn(0)

    def _troubled(self, sent: _Sent, failure: Failure) -> None:
        self._handing = None
        error = failure.value
        if not isinstance(error, EngineError):
            self._log.failure("a batch could not be handed in", failure)
        elif error.reason is Reason.KNOWN:
            sent.isTaken = True
            self._goOn(0)
            return
        elif error.reason is Reason.TOO_LARGE and not sent.isTaken:
            self._drop(sent, "the transaction is larger than the ledger takes")
            self._goOn(0)
            return
        # Handed in again after a while, before anything else: the order stays.
        self._handing = sent
        if not self._isClosed:
            self._retry = self._clock.callLater(RETRY, self._again, sent)

    def _again(self, sent: _Sent) -> None:
        self._retry = None
        self._handing = None
        if sent.hashes:
            self._hand(sent)
        else:
            self._goOn(0)

    def _drop(self, sent: _Sent, why: str) -> None:
        self._sent.remove(sent)
        self._fail(list(sent.hashes), LedgerUnavailable(why))
