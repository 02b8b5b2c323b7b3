"""
Tests for what operators and followers see of the embedded ledger.
"""

from __future__ import annotations

from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from svcbroker.errors import LedgerUnavailable
from svcbroker.interfaces import IBlockObserver
from svcbroker.ledgers.pbft._pbftledger import PROGRESS_TIMEOUT
from svcbroker.ledgers.pbft._protocol import Conditions
from svcbroker.model import Block
from svcbroker.storage import StorageDamaged, StorageFailed
from tests.ledgers.pbft.rig import LedgerRig


@implementer(IBlockObserver)
class Recorder:
    """Records the heights of blocks, and how many receipts there were by then."""

    def __init__(self, rig: LedgerRig, *, isFailing: bool = False) -> None:
        self.rig = rig
        self.heights: list[int] = []
        self._isFailing = isFailing

    def blockCommitted(self, block: Block) -> None:
        self.heights.append(block.height)
        if self._isFailing:
            raise RuntimeError("this one always fails")


class LedgerTestCase(SynchronousTestCase):
    """
    Shared by these tests.
    """

    def rig(self, **settings: str) -> LedgerRig:
        """A ledger with an open topic, at height 1."""
        return LedgerRig(self, settings).start().open()

    def reason(self, rig: LedgerRig) -> str:
        """The reason why the ledger is not ready."""
        health = self.successResultOf(rig.ledger.getHealth())
        self.assertEqual(health.isReady, not health.reason)
        return health.reason


class HealthTests(LedgerTestCase):
    def test_quorumMustRun(self) -> None:
        rig = self.rig()
        self.assertEqual(self.reason(rig), "")
        rig.replicaSet.stopReplica(0)
        self.assertEqual(self.reason(rig), "")
        rig.replicaSet.stopReplica(3)
        self.assertEqual(self.reason(rig), "2 of 4 nodes run, 3 are needed")
        nodes = self.successResultOf(rig.ledger.listNodes(0, 9)).items
        self.assertEqual([node.isActive for node in nodes], [False, True, True, False])
        rig.replicaSet.startReplica(0)
        self.assertEqual(self.reason(rig), "")

    def test_longWaitIsReported(self) -> None:
        rig = self.rig(interval="0.01")
        rig.replicaSet.network.conditions = Conditions(loss=1.0)
        rig.publish()
        rig.run(PROGRESS_TIMEOUT - 0.1)
        self.assertEqual(self.reason(rig), "")
        rig.run(0.2)
        self.assertIn("waited for more than 5.01 seconds", self.reason(rig))

    def test_waitingForIntervalIsReady(self) -> None:
        rig = self.rig(interval="60")
        rig.publish()
        rig.run(59, step=1)
        self.assertEqual(self.reason(rig), "")
        rig.settle()
        self.assertEqual(rig.sequences(), [1])


class ObserverTests(LedgerTestCase):
    def test_observersSeeStoredBlocks(self) -> None:
        """Each block once, in order, and only stored ones."""
        rig = self.rig()
        first, failing = Recorder(rig), Recorder(rig, isFailing=True)
        last = Recorder(rig)
        for observer in (first, failing, last, first):
            rig.ledger.addObserver(observer)
        rig.publish()
        rig.settle()
        rig.disk.isHeld = True
        rig.publish()
        rig.run(0.1)
        self.assertEqual(last.heights, [2])
        rig.disk.error = StorageFailed("full")
        rig.disk.release()
        self.assertEqual(last.heights, [2])
        rig.disk.error, rig.disk.isHeld = None, False
        rig.run(2)
        self.failureResultOf(rig.receipts.pop(), LedgerUnavailable)
        rig.ledger.removeObserver(failing)
        rig.publish()
        rig.settle()
        self.assertEqual([o.heights for o in (first, failing, last)], [[2, 3], [2], [2, 3]])
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.assertEqual(len(self.flushLoggedErrors(StorageFailed)), 1)


class ReadingTests(LedgerTestCase):
    def test_failedReadHidesTheCause(self) -> None:
        """The error names neither the file nor the cause."""
        rig = self.rig()

        def fail(*args: object) -> None:
            raise StorageDamaged("/the/path is damaged")

        self.patch(rig.store, "blockHeads", fail)
        self.patch(rig.store, "tip", fail)
        with capturedLogs() as events:
            for answer in (rig.ledger.listBlocks(0, 9), rig.ledger.listTransactions(0, 9)):
                error = self.failureResultOf(answer, LedgerUnavailable)
                self.assertEqual(error.value.message, "the ledger's disk cannot be read")
        self.assertEqual(
            [formatEvent(event) for event in events],
            ["the chain of group 1 cannot be read: /the/path is damaged"],
        )

    def test_unreadableBlockIsNotSent(self) -> None:
        """A replica that is behind gets no answer; the others are not affected."""
        rig = self.rig()
        rig.replicaSet.stopReplica(0)
        for _ in range(3):
            rig.publish()
            rig.settle()

        def fail(height: int) -> None:
            raise StorageFailed("the disk failed")

        patch = self.patch(rig.store, "blockHead", fail)
        rig.replicaSet.startReplica(0)
        self.assertEqual(rig.replicaSet.replicas[0].height, 2)
        self.assertGreaterEqual(len(self.flushLoggedErrors(StorageFailed)), 3)
        rig.publish()
        rig.settle(step=0.01)
        patch.restore()
        self.flushLoggedErrors(StorageFailed)
        rig.publish()
        rig.settle()
        self.assertEqual(rig.sequences(), [1, 2, 3, 4, 5])
        rig.check()

    def test_cancellingDoesNotUndoSubmission(self) -> None:
        rig = self.rig(interval="1")
        rig.publish(3)
        cancelled = rig.receipts.pop(1)
        cancelled.addErrback(lambda _: None)
        cancelled.cancel()
        rig.settle()
        self.assertEqual(rig.sequences(), [1, 3])


class MemoryTests(LedgerTestCase):
    def test_memoryDoesNotGrowWithChain(self) -> None:
        rig = self.rig(interval="0")
        for _ in range(60):
            rig.publish()
            rig.clock.advance(0)
        application = rig.ledger._producer._application
        self.assertEqual(len(application._candidates), 0)
        for signer in rig.replicaSet._signers:
            self.assertEqual(len(signer._signed), 0)
        for replica in rig.replicaSet.replicas:
            self.assertEqual((len(replica._rounds), len(replica._candidates)), (0, 0))
            self.assertLessEqual(sum(map(len, replica._future._kept.values())), 0)
        rig.check()
