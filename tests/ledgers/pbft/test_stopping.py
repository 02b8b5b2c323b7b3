"""
Tests for stopping the embedded ledger in each of its states.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred

from svcbroker.errors import LedgerUnavailable
from svcbroker.ledgers.pbft._producer import STOP_TIMEOUT, ProducerState
from svcbroker.model import Receipt
from svcbroker.storage import StorageFailed
from tests.ledgers.pbft.rig import LedgerRig
from tests.ledgers.pbft.test_producer import ProducerTestCase


class StopTests(ProducerTestCase):
    def stop(self, rig: LedgerRig) -> Deferred[None]:
        """Stop the ledger, and check that it refuses submissions."""
        stopped = rig.ledger.stop()
        rig.publish()
        message = self.failureResultOf(rig.receipts.pop(), LedgerUnavailable).value.message
        self.assertIn("stop", message)
        self.assertIn("stop", self.reason(rig))
        return stopped

    def ended(self, rig: LedgerRig, stopped: Deferred[None]) -> None:
        """Check that the ledger has stopped, and left no calls with the reactor."""
        self.assertIsNone(self.successResultOf(stopped))
        self.assertEqual(rig.disk.done[-1], "close")
        self.assertEqual(self.state(rig), ProducerState.STOPPED)
        self.assertEqual(rig.clock.getDelayedCalls(), [])
        self.failureResultOf(rig.ledger.getStatistics(), LedgerUnavailable)
        self.failureResultOf(rig.ledger.listTransactions(0, 9), LedgerUnavailable)
        self.assertEqual(self.reason(rig), "the ledger is stopped")

    def test_idleLedgerStopsAtOnce(self) -> None:
        for settings in ({}, {"empty": "5"}, {"delay": "0.1"}):
            rig = self.rig(**settings)
            self.ended(rig, self.stop(rig))

    def test_waitingTransactionsAreExecuted(self) -> None:
        rig = self.rig(interval="1", block="1024")
        rig.publish(8, content=b"x" * 300)
        stopped = self.stop(rig)
        self.assertNoResult(stopped)
        rig.settle()
        self.assertEqual(rig.sequences(), list(range(1, 9)))
        self.ended(rig, stopped)

    def test_blockBeingDecidedIsStored(self) -> None:
        rig = self.rig(delay="0.1")
        rig.publish(2)
        rig.run(0.1)
        self.assertEqual(self.state(rig), ProducerState.DECIDING)
        stopped = self.stop(rig)
        rig.run(2)
        self.assertEqual(rig.sequences(), [1, 2])
        self.ended(rig, stopped)

    def test_waitForDecisionIsBounded(self) -> None:
        rig = self.rig()
        rig.replicaSet.stopReplica(0)
        rig.replicaSet.stopReplica(1)
        rig.publish(2)
        rig.run(1)
        stopped = self.stop(rig)
        rig.run(STOP_TIMEOUT - 0.1)
        self.assertNoResult(stopped)
        rig.run(0.2)
        self.assertEqual(set(self.failed(rig)), {"the ledger stopped before this was executed"})
        self.ended(rig, stopped)

    def test_waitForStoringIsUnbounded(self) -> None:
        rig = self.rig()
        rig.disk.isHeld = True
        rig.publish()
        rig.run(0.1)
        rig.publish()
        stopped = self.stop(rig)
        rig.run(STOP_TIMEOUT + 1)
        self.assertNoResult(stopped)
        self.assertEqual(rig.sequences(), [])
        rig.disk.isHeld = False
        rig.disk.release()
        self.successResultOf(rig.receipts.pop(0))
        self.assertEqual(self.failed(rig), ["the ledger stopped before this was executed"])
        self.ended(rig, stopped)

    def test_fullDiskDoesNotDelayStop(self) -> None:
        rig = self.rig()
        rig.disk.isHeld = True
        rig.publish(2)
        rig.run(0.1)
        stopped = self.stop(rig)
        rig.disk.error = StorageFailed("full")
        rig.disk.isHeld = False
        rig.disk.release()
        self.assertEqual(len(self.failed(rig)), 2)
        self.ended(rig, stopped)
        self.assertEqual(len(self.flushLoggedErrors(StorageFailed)), 1)

    def test_failingDiskDoesNotDelayStop(self) -> None:
        """Whether or not a write is in progress."""
        for isHeld in (False, True):
            rig = self.rig()
            rig.disk.error = StorageFailed("full")
            rig.publish()
            rig.clock.advance(0.01)
            rig.disk.isHeld = isHeld
            rig.run(3)
            self.assertEqual(len(self.failed(rig)), 1)
            stopped = self.stop(rig)
            rig.disk.isHeld = False
            rig.disk.error = None
            rig.disk.release()
            self.ended(rig, stopped)
            self.assertEqual(len(self.flushLoggedErrors(StorageFailed)), 1)

    def test_uncertainBlockIsNotDenied(self) -> None:
        """Submissions are told that they may have been executed."""
        for isHeld in (False, True):
            rig = self.rig()
            rig.disk.error = StorageFailed("broken", isUncertain=True)
            rig.publish()
            rig.run(1.5)
            rig.disk.isHeld = isHeld
            stopped = self.stop(rig)
            rig.run(STOP_TIMEOUT + 1)
            rig.disk.isHeld = False
            rig.disk.release()
            [message] = self.failed(rig)
            self.assertIn("may have been executed", message)
            self.ended(rig, stopped)
            self.flushLoggedErrors(StorageFailed)

    def test_uncertainBlockMayStillBeStored(self) -> None:
        rig = self.rig()
        rig.disk.error = StorageFailed("broken", isUncertain=True)
        rig.publish()
        rig.run(1.5)
        stopped = self.stop(rig)
        rig.disk.error = None
        rig.run(1.5)
        self.assertEqual(rig.sequences(), [1])
        self.ended(rig, stopped)
        self.flushLoggedErrors(StorageFailed)

    def test_receiptHandlerMayStop(self) -> None:
        rig = self.rig()
        stopping: list[Deferred[None]] = []

        def stop(receipt: Receipt) -> Receipt:
            stopping.append(rig.ledger.stop())
            return receipt

        rig.publish()
        rig.receipts[0].addCallback(stop)
        rig.settle()
        self.assertEqual(rig.sequences(), [1])
        self.ended(rig, stopping[0])
