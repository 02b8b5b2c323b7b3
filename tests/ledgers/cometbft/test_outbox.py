"""
The way of a broker's transactions through an engine, on a clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import Transaction
from svcbroker.errors import LedgerUnavailable, Overloaded, TransactionTimeout
from svcbroker.histogram import Histogram
from svcbroker.ledgers.cometbft._batch import BatchMaker, readBatch
from svcbroker.ledgers.cometbft._outbox import MAX_RENUMBERED, PROPOSED, RESEND, RETRY, Outbox
from svcbroker.ledgers.cometbft._rpc import Broadcast, EngineError, Reason
from svcbroker.ledgers.replicated import Code
from svcbroker.model import Execution, PublishEvent, Receipt
from svcbroker.proofs.cometbft import Hex
from svcbroker.testing._ledgertests import TWINS

from .members import GENESIS, Broker, identityOf

INTERVAL = 0.01


def answer(code: int = Code.OK, log: str = "") -> Broadcast:
    """The engine's answer to a batch."""
    return Broadcast(code=code, log=log, hash=Hex(bytes(32)))


class OutboxTestCase(SynchronousTestCase):
    """
    An outbox, and an engine that answers when it is told to.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.highest = 0
        self.broker = Broker()
        self.handed: list[bytes] = []
        self.asked: list[Deferred[Broadcast]] = []
        self.cancelled: list[Deferred[Broadcast]] = []
        self.outbox = self.make()
        self.outbox.begin(self.broker.batches, 0)

    def make(self, **changes: Any) -> Outbox:
        """An outbox that has not begun."""
        values = {
            "maxBytes": 10**6,
            "batchBytes": 10**5,
            "batchCount": 10,
            "window": 3,
            "interval": INTERVAL,
        }
        return Outbox(
            clock=self.clock,
            broadcast=self.broadcast,
            areUsed=lambda given: all(each.nonce <= self.highest for each in given),
            renumber=self.renumber,
            **(values | changes),
        )

    def renumber(self, transactions: Sequence[Transaction]) -> Sequence[Transaction]:
        """New nonces, above those that the chain has."""
        self.broker.transactions.resume(self.highest)
        return self.broker.transactions.renumber(transactions)

    def broadcast(self, data: bytes) -> Deferred[Broadcast]:
        self.handed.append(data)
        asked: Deferred[Broadcast] = Deferred(self.cancelled.append)
        self.asked.append(asked)
        return asked

    def add(self, content: bytes = b"x", topic: str = "t") -> Deferred[Receipt]:
        """Publish."""
        return self.outbox.add(
            [self.broker.make(PublishEvent(topic=topic, content=content))]
        ).only()

    def contents(self, data: bytes) -> list[bytes]:
        """The contents that a batch publishes."""
        return [each.content for each in self.inside(data)]

    def inside(self, data: bytes) -> Sequence[Transaction]:
        """A batch's transactions."""
        return readBatch(data, GENESIS.chain).transactions

    def take(self, code: int = Code.OK) -> None:
        """The engine takes what was handed in last; then what is to be handed in at once is."""
        self.asked[-1].callback(answer(code))
        self.clock.advance(0)

    def fails(self, reason: Reason) -> None:
        """The engine does not take what was handed in last."""
        self.asked[-1].errback(EngineError(reason, "as the test wants it"))

    def commit(self, *batches: bytes, execution: Execution = Execution.DONE) -> None:
        """A block with these batches is final."""
        self.outbox.committed(
            [
                Receipt(execution=execution, transactionHash=each.hash, height=1, eventId=None)
                for data in batches
                for each in self.inside(data)
            ]
        )
        self.clock.advance(0)


class WayTests(OutboxTestCase):
    """
    From a transaction to its receipt.
    """

    def test_intervalGathersOneBatch(self) -> None:
        """Transactions within the interval go into one batch, in order."""
        receipts = [self.add(b"%d" % number) for number in range(5)]
        self.assertEqual(self.handed, [])
        self.clock.advance(INTERVAL)
        (handed,) = self.handed
        self.assertEqual(self.contents(handed), [b"0", b"1", b"2", b"3", b"4"])
        self.take()
        for receipt in receipts:
            self.assertNoResult(receipt)
        self.commit(self.handed[0])
        hashes = [self.successResultOf(receipt).transactionHash for receipt in receipts]
        self.assertEqual(hashes, [each.hash for each in self.inside(self.handed[0])])
        self.assertEqual((len(self.outbox), self.outbox.oldest), (0, None))
        self.clock.advance(10 * RESEND)
        self.assertEqual(len(self.handed), 1)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_transactionsWaitForChain(self) -> None:
        """Before there is a chain all waits."""
        outbox = self.outbox = self.make()
        self.broker.transactions.resume(5)
        receipt = self.add()
        self.clock.advance(100)
        self.assertEqual(self.handed, [])
        outbox.begin(self.broker.batches, 5)
        self.clock.advance(INTERVAL)
        self.assertEqual(readBatch(self.handed[0], GENESIS.chain).previous, 5)
        self.assertNoResult(receipt)

    def test_batchNamesPredecessor(self) -> None:
        """Each batch names the one before it."""
        for _ in range(3):
            self.add()
            self.clock.advance(INTERVAL)
            self.take()
        batches = [readBatch(data, GENESIS.chain) for data in self.handed]
        self.assertEqual([each.previous for each in batches], [0, 1, 2])
        self.assertEqual([each.transactions[-1].nonce for each in batches], [1, 2, 3])

    def test_batchIsBounded(self) -> None:
        """A batch is bounded in number and bytes, and has one transaction at least."""
        for _ in range(25):
            self.add()
        self.clock.advance(INTERVAL)
        self.take()
        self.take()
        self.take()
        self.assertEqual([len(self.contents(data)) for data in self.handed], [10, 10, 5])
        self.commit(*self.handed)
        for size in (60_000, 60_000, 200_000):
            self.add(b"x" * size)
        self.clock.advance(INTERVAL)
        self.take()
        self.take()
        self.take()
        self.assertEqual([len(self.contents(data)) for data in self.handed[3:]], [1, 1, 1])

    def test_collidingIdsAreSeparated(self) -> None:
        """Events that might get one id are not in one batch."""
        for topic in (*TWINS, TWINS[1]):
            self.add(topic=topic)
        self.clock.advance(INTERVAL)
        self.take()
        self.take()
        self.assertEqual([len(self.contents(data)) for data in self.handed], [1, 2])

    def test_transactionsGatherDuringBroadcast(self) -> None:
        """While one is handed in, what comes is gathered."""
        self.add(b"1")
        self.clock.advance(INTERVAL)
        for number in range(2, 5):
            self.add(b"%d" % number)
        self.clock.advance(1)
        self.assertEqual(len(self.handed), 1)
        self.take()
        self.assertEqual(self.contents(self.handed[1]), [b"2", b"3", b"4"])

    def test_batchesUnderWayAreBounded(self) -> None:
        """Only so many batches are under way; the next one goes when one of them is final."""
        for number in range(3):
            self.add(b"%d" % number)
            self.clock.advance(INTERVAL)
            self.take()
        self.add(b"last")
        self.add(b"of all")
        self.clock.advance(RESEND / 2)
        self.assertEqual(len(self.handed), 3)
        self.commit(self.handed[1])
        self.assertEqual(self.contents(self.handed[3]), [b"last", b"of all"])

    def test_blockMayPrecedeAnswer(self) -> None:
        """A batch may be final before the engine has answered for it."""
        receipt = self.add()
        self.clock.advance(INTERVAL)
        self.commit(self.handed[0])
        self.successResultOf(receipt)
        self.fails(Reason.TIMEOUT)
        self.clock.advance(100)
        self.assertEqual(len(self.handed), 1)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_receiptCallbackMaySubmit(self) -> None:
        """The receiver of an answer may submit at once."""
        added: list[Deferred[Receipt]] = []
        self.add().addCallback(lambda _: added.append(self.add(b"next")))
        self.clock.advance(INTERVAL)
        self.take()
        self.commit(self.handed[0])
        self.assertEqual(self.contents(self.handed[1]), [b"next"])

    def test_refusedTransactionHasReceipt(self) -> None:
        """A refusal of the chain is a receipt as well."""
        receipt = self.add()
        self.clock.advance(INTERVAL)
        self.commit(self.handed[0], execution=Execution.TOPIC_NOT_FOUND)
        self.assertIs(self.successResultOf(receipt).execution, Execution.TOPIC_NOT_FOUND)

    def test_repeatedTransactionFails(self) -> None:
        """A second copy changes nothing; a first one that is not executed never will be."""
        receipt = self.add()
        other = self.add()
        self.clock.advance(INTERVAL)
        first, second = self.inside(self.handed[0])
        done = Receipt(execution=Execution.DONE, transactionHash=first.hash, height=1, eventId=None)
        repeated = [
            Receipt(execution=Execution.REPEATED, transactionHash=each.hash, height=1, eventId=None)
            for each in (first, second)
        ]
        self.outbox.committed([done, *repeated])
        self.assertIs(self.successResultOf(receipt), done)
        error = self.failureResultOf(other, LedgerUnavailable).value
        self.assertIn("copy of this one's key", str(error))

    def test_firstBatchThatIsOvertakenHasNewNonces(self) -> None:
        """Batches of before this start have its nonces; nothing overtakes it."""
        receipts = [self.add(b"1"), self.add(b"2")]
        self.clock.advance(INTERVAL)
        receipts.append(self.add(b"3"))
        self.highest = 50
        self.take(Code.REPEATED)
        old, new = map(self.inside, self.handed)
        self.assertEqual([each.content for each in new], [b"1", b"2", b"3"])
        self.assertEqual([each.nonce for each in new], [51, 52, 53])
        self.assertEqual([each.timestamp for each in new[:2]], [each.timestamp for each in old])
        self.take()
        self.commit(self.handed[1])
        for receipt in receipts:
            self.assertIs(self.successResultOf(receipt).execution, Execution.DONE)
        self.assertEqual(
            (len(self.outbox), self.outbox.measure(Histogram((1.0,))).waitingBytes), (0, 0)
        )

    def test_batchBeforeOthersIsNotMadeAgain(self) -> None:
        """Those behind it would overtake it. It is certain that it is not executed."""
        first = self.add(b"1")
        self.clock.advance(INTERVAL)
        self.take()
        second = self.add(b"2")
        self.clock.advance(INTERVAL)
        self.take()
        self.clock.advance(RESEND)
        self.asked[-1].callback(answer(Code.REPEATED))
        self.failureResultOf(first, LedgerUnavailable)
        self.assertNoResult(second)

    def test_batchThatMayBeInABlockIsNotCalledUnexecuted(self) -> None:
        """Another engine may have it, though this one refuses it now: its clock was put back."""
        for reason in (None, Reason.TIMEOUT, Reason.KNOWN):
            self.setUp()
            receipt = self.add()
            self.clock.advance(INTERVAL)
            if reason is None:
                self.take()
            else:
                self.fails(reason)
            self.clock.advance(RESEND)
            self.asked[-1].callback(answer(Code.AHEAD, "too far"))
            self.failureResultOf(receipt, TransactionTimeout)
        self.setUp()
        receipt = self.add()
        self.outbox.propose()
        self.clock.advance(PROPOSED)
        self.asked[-1].callback(answer(Code.AHEAD, "too far"))
        self.failureResultOf(receipt, TransactionTimeout)
        self.setUp()
        receipt = self.add()
        self.clock.advance(INTERVAL)
        self.take(Code.AHEAD)
        self.failureResultOf(receipt, LedgerUnavailable)

    def test_overtakenTransactionFails(self) -> None:
        """The chain is at a nonce far above, again and again, so it never executes this one."""
        receipt = self.add()
        self.clock.advance(INTERVAL)
        for _ in range(MAX_RENUMBERED):
            self.highest += 10
            self.take(Code.REPEATED)
            self.assertNoResult(receipt)
        self.take(Code.REPEATED)
        error = self.failureResultOf(receipt, LedgerUnavailable).value
        self.assertIn("copy of this one's key", str(error))
        self.assertEqual(len(self.outbox), 0)

    def test_cancelledTransactionStaysSubmitted(self) -> None:
        """A caller that cancels waits no more; the transaction is executed all the same."""
        receipt = self.add()
        receipt.cancel()
        self.failureResultOf(receipt, CancelledError)
        self.clock.advance(INTERVAL)
        self.assertEqual(len(self.handed), 1)
        self.take()
        self.assertEqual(len(self.outbox), 1)
        self.commit(self.handed[0])
        self.assertEqual(len(self.outbox), 0)

    def test_fullOutboxRefuses(self) -> None:
        """So much may wait, and no more; one alone may be larger."""
        self.outbox = self.make(maxBytes=1000)
        self.add(b"x" * 2000)
        self.failureResultOf(self.add(b""), Overloaded)
        self.outbox.begin(self.broker.batches, 0)
        self.clock.advance(INTERVAL)
        self.commit(self.handed[0])
        self.add(b"x" * 500)
        self.failureResultOf(self.add(b"x" * 500), Overloaded)
        self.assertEqual(len(self.outbox), 1)

    def test_oldestIsKnown(self) -> None:
        """Since when the first one waits is known."""
        self.add()
        self.clock.advance(3)
        self.add()
        self.assertEqual(self.outbox.oldest, 0.0)
        self.take()
        self.commit(self.handed[0])
        self.assertEqual(self.outbox.oldest, 3.0)


class FailureTests(OutboxTestCase):
    """
    Engines that do not take what they are handed.
    """

    def test_undecidedBatchIsRetriedFirst(self) -> None:
        """A batch that the engine may not have taken is handed in again, before anything else."""
        for reason in (
            Reason.UNREACHABLE,
            Reason.TIMEOUT,
            Reason.BAD_ANSWER,
            Reason.FULL,
            Reason.REFUSED,
        ):
            self.handed.clear()
            receipt = self.add(reason.value.encode())
            self.clock.advance(INTERVAL)
            later = self.add(b"later")
            for _ in range(3):
                self.fails(reason)
                self.clock.advance(RETRY * 0.9)
                asked = len(self.handed)
                self.clock.advance(RETRY * 0.2)
                self.assertEqual(len(self.handed), asked + 1)
            self.assertEqual(len(set(self.handed)), 1)
            self.take()
            self.assertEqual(self.contents(self.handed[-1]), [b"later"])
            self.take()
            self.commit(self.handed[0], self.handed[-1])
            self.successResultOf(receipt)
            self.successResultOf(later)

    def test_unexpectedErrorIsLoggedAndRetried(self) -> None:
        """An error that is no engine's is told in the log, and tried again."""
        self.add()
        self.clock.advance(INTERVAL)
        self.asked[-1].errback(RuntimeError("a bug"))
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.clock.advance(RETRY)
        self.assertEqual(len(self.handed), 2)

    def test_knownBatchWaitsForBlock(self) -> None:
        """A batch that the engine knows already waits for its block."""
        receipt = self.add()
        self.clock.advance(INTERVAL)
        self.fails(Reason.KNOWN)
        self.clock.advance(RESEND * 0.9)
        self.assertEqual(len(self.handed), 1)
        self.commit(self.handed[0])
        self.successResultOf(receipt)

    def test_missingBatchIsResent(self) -> None:
        """A batch that is in no block is handed in again, the same bytes, until it is."""
        self.add()
        self.clock.advance(INTERVAL)
        for _ in range(4):
            self.take()
            handed = len(self.handed)
            self.clock.advance(RESEND * 0.9)
            self.assertEqual(len(self.handed), handed)
            self.clock.advance(RESEND * 0.2)
            self.assertEqual(len(self.handed), handed + 1)
        self.assertEqual(len(set(self.handed)), 1)
        self.commit(self.handed[0])
        self.take(Code.REPEATED)
        self.clock.advance(10 * RESEND)
        self.assertEqual(len(self.handed), 5)

    def test_engineStartResendsAll(self) -> None:
        """All batches under way are handed in, in order, first, when the engine has started."""
        for number in range(3):
            self.add(b"%d" % number)
            self.clock.advance(INTERVAL)
            self.take()
        self.add(b"new")
        sent = list(self.handed)
        self.commit(sent[1])
        self.take()
        self.outbox.broadcastAgain()
        self.clock.advance(0)
        for _ in range(3):
            self.take()
        self.assertEqual(self.handed[3:], [self.handed[3], sent[0], sent[2], self.handed[3]])
        self.assertEqual(self.contents(self.handed[3]), [b"new"])

    def test_refusedBatchFails(self) -> None:
        """A batch that the application refuses fails, and nothing after it waits for it."""
        first = self.add()
        self.clock.advance(INTERVAL)
        second = self.add()
        self.take(Code.UNAUTHORIZED)
        self.failureResultOf(first, LedgerUnavailable)
        self.assertEqual(readBatch(self.handed[1], GENESIS.chain).previous, 0)
        self.take()
        self.commit(self.handed[1])
        self.successResultOf(second)

    def test_oversizedTransactionFails(self) -> None:
        """A transaction that no block could hold fails."""
        receipt = self.add()
        self.clock.advance(INTERVAL)
        self.fails(Reason.TOO_LARGE)
        self.failureResultOf(receipt, LedgerUnavailable)
        self.clock.advance(10 * RESEND)
        self.assertEqual((len(self.handed), len(self.outbox)), (1, 0))

    def test_oversizedBatchIsSplit(self) -> None:
        """Transactions too large together for one batch go in smaller ones from then on."""
        receipts = [self.add(b"%d" % number * 1000) for number in range(6)]
        self.clock.advance(INTERVAL)
        self.assertEqual(len(self.contents(self.handed[-1])), 6)
        later = self.add(b"later")
        self.fails(Reason.TOO_LARGE)
        self.clock.advance(0)
        del self.handed[0]
        while not self.asked[-1].called:
            self.take()
        batches = [readBatch(data, GENESIS.chain) for data in self.handed]
        contents = [each.content[:1] for batch in batches for each in batch.transactions]
        self.assertEqual(contents, [b"0", b"1", b"2", b"3", b"4", b"5", b"l"])
        self.assertLess(max(map(len, self.handed)), 5000)
        self.assertEqual(batches[0].previous, 0)
        for before, batch in pairwise(batches):
            self.assertEqual(batch.previous, before.transactions[-1].nonce)
        self.commit(*self.handed)
        for receipt in (*receipts, later):
            self.successResultOf(receipt)

    def test_closeFailsPendingDeferreds(self) -> None:
        """At the end all who wait are told, and nothing is left under way."""
        waiting = [self.add()]
        self.clock.advance(INTERVAL)
        waiting.append(self.add())
        self.outbox.close("the end")
        sent, queued = waiting
        self.failureResultOf(sent, TransactionTimeout)
        self.failureResultOf(queued, LedgerUnavailable)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(self.cancelled, self.asked)

    def test_closeStopsRetrying(self) -> None:
        """Nothing is tried any more after the end."""
        receipt = self.add()
        self.clock.advance(INTERVAL)
        self.fails(Reason.UNREACHABLE)
        self.outbox.close("the end")
        self.failureResultOf(receipt, TransactionTimeout)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_newChainFailsPending(self) -> None:
        """A chain that began anew has nothing of what was sent to the one before."""
        receipt = self.add()
        self.clock.advance(INTERVAL)
        chain = bytes(32)
        maker = BatchMaker(chain, identityOf(bytes([100]) * 32, chain=chain))
        self.outbox.begin(maker, 0)
        self.failureResultOf(receipt, LedgerUnavailable)
        self.take(Code.MALFORMED)
        self.clock.advance(10 * RESEND)
        self.assertEqual(len(self.handed), 1)
