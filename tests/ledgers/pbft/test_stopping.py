"""
Tests for the end of the embedded ledger, in every stage that it can be in.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred

from svcbroker.errors import LedgerUnavailable
from svcbroker.ledgers.pbft._producer import STOP_PATIENCE, Stage
from svcbroker.model import Receipt
from svcbroker.storage import StorageFailed
from tests.ledgers.pbft.rig import LedgerRig
from tests.ledgers.pbft.test_producer import ProducerTestCase


class StopTests(ProducerTestCase):
    def stop(self, rig: LedgerRig) -> Deferred[None]:
        """Stop the ledger; from then on it takes nothing."""
        stopped = rig.ledger.stop()
        rig.publish()
        message = self.failureResultOf(rig.receipts.pop(), LedgerUnavailable).value.message
        self.assertIn("stop", message)
        self.assertIn("stop", self.reason(rig))
        return stopped

    def ended(self, rig: LedgerRig, stopped: Deferred[None]) -> None:
        """Make sure that everything is over, and nothing left with the reactor."""
        self.assertIsNone(self.successResultOf(stopped))
        self.assertEqual(rig.disk.done[-1], "close")
        self.assertEqual(self.stage(rig), Stage.STOPPED)
        self.assertEqual(rig.clock.getDelayedCalls(), [])
        self.failureResultOf(rig.ledger.getStatistics(), LedgerUnavailable)
        self.failureResultOf(rig.ledger.listTransactions(0, 9), LedgerUnavailable)
        self.assertEqual(self.reason(rig), "the ledger is stopped")

    def test_idle(self) -> None:
        """With nothing to do it ends at once."""
        for settings in ({}, {"empty": "5"}, {"delay": "0.1"}):
            rig = self.rig(**settings)
            self.ended(rig, self.stop(rig))

    def test_waiting(self) -> None:
        """What was accepted before is still executed."""
        rig = self.rig(interval="1", block="1024")
        rig.publish(8, content=b"x" * 300)
        stopped = self.stop(rig)
        self.assertNoResult(stopped)
        rig.settle()
        self.assertEqual(rig.sequences(), list(range(1, 9)))
        self.ended(rig, stopped)

    def test_deciding(self) -> None:
        """So is what is being decided."""
        rig = self.rig(delay="0.1")
        rig.publish(2)
        rig.run(0.1)
        self.assertEqual(self.stage(rig), Stage.DECIDING)
        stopped = self.stop(rig)
        rig.run(2)
        self.assertEqual(rig.sequences(), [1, 2])
        self.ended(rig, stopped)

    def test_undecidable(self) -> None:
        """What cannot be decided is waited for, but not for ever."""
        rig = self.rig()
        rig.nodes.stopNode(0)
        rig.nodes.stopNode(1)
        rig.publish(2)
        rig.run(1)
        stopped = self.stop(rig)
        rig.run(STOP_PATIENCE - 0.1)
        self.assertNoResult(stopped)
        rig.run(0.2)
        self.assertEqual(set(self.failed(rig)), {"the ledger stopped before this was executed"})
        self.ended(rig, stopped)

    def test_storing(self) -> None:
        """What is being stored is waited for, however long it takes."""
        rig = self.rig()
        rig.disk.isHeld = True
        rig.publish()
        rig.run(0.1)
        rig.publish()
        stopped = self.stop(rig)
        rig.run(STOP_PATIENCE + 1)
        self.assertNoResult(stopped)
        self.assertEqual(rig.sequences(), [])
        rig.disk.isHeld = False
        rig.disk.release()
        self.successResultOf(rig.receipts.pop(0))
        self.assertEqual(self.failed(rig), ["the ledger stopped before this was executed"])
        self.ended(rig, stopped)

    def test_full(self) -> None:
        """A disk that is full at the end does not hold it up."""
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

    def test_failing(self) -> None:
        """Nor does one that was full before, whatever is under way."""
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

    def test_uncertain(self) -> None:
        """Where it stays unknown whether the last block is stored, nobody is told that it is
        not."""
        for isHeld in (False, True):
            rig = self.rig()
            rig.disk.error = StorageFailed("broken", isUncertain=True)
            rig.publish()
            rig.run(1.5)
            rig.disk.isHeld = isHeld
            stopped = self.stop(rig)
            rig.run(STOP_PATIENCE + 1)
            rig.disk.isHeld = False
            rig.disk.release()
            [message] = self.failed(rig)
            self.assertIn("may have been executed", message)
            self.ended(rig, stopped)
            self.flushLoggedErrors(StorageFailed)

    def test_uncertainAtLast(self) -> None:
        """It may get better while it is waited for."""
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

    def test_stoppedByReceipt(self) -> None:
        """Who is given a receipt may stop the ledger on the spot."""
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
