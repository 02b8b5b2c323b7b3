"""
Tests for the production of blocks: when, how large, and on a failing disk.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import Header
from svcbroker.errors import BrokerError, LedgerUnavailable, Overloaded
from svcbroker.ledgers.pbft._producer import MAX_BATCH_WAIT, ProducerState
from svcbroker.storage import StorageDamaged, StorageFailed
from tests.ledgers.pbft.rig import LedgerRig


class ProducerTestCase(SynchronousTestCase):
    """
    Shared by these tests.
    """

    def rig(self, **settings: str) -> LedgerRig:
        """A ledger with an open topic, at height 1."""
        return LedgerRig(self, settings).start().open()

    def failed(self, rig: LedgerRig, error: type[BrokerError] = LedgerUnavailable) -> list[str]:
        """The errors of all submissions, all of which have failed."""
        receipts, rig.receipts = rig.receipts, []
        return [self.failureResultOf(receipt, error).value.message for receipt in receipts]

    def state(self, rig: LedgerRig) -> ProducerState:
        """The state of the next block."""
        return rig.ledger._producer.state

    def reason(self, rig: LedgerRig) -> str:
        """The reason why the ledger is not ready."""
        return self.successResultOf(rig.ledger.getHealth()).reason

    def header(self, rig: LedgerRig, height: int) -> Header:
        """The header of a stored block."""
        row = rig.store.blockHead(height)
        assert row is not None
        return Header.decode(row.header)

    def round(self, rig: LedgerRig, height: int) -> int:
        """The round in which a stored block was first proposed."""
        return self.header(rig, height).view - (
            self.header(rig, height - 1).view if height > 1 else 0
        )


class IntervalTests(ProducerTestCase):
    def test_intervalSeparatesBlocks(self) -> None:
        """The next block holds everything that came meanwhile."""
        rig = self.rig(interval="1")
        rig.publish()
        rig.run(0.9, step=0.1)
        self.assertEqual(rig.sequences(), [])
        rig.publish(3)
        rig.run(0.2, step=0.1)
        self.assertEqual(rig.sequences(), [1, 2, 3, 4])
        self.assertEqual(rig.height, 2)
        rig.publish()
        rig.run(0.5, step=0.1)
        self.assertEqual(rig.height, 2)

    def test_blockAtOnceAfterPause(self) -> None:
        rig = self.rig(interval="1")
        rig.run(5)
        rig.publish()
        rig.clock.advance(0)
        self.assertEqual(rig.sequences(), [1])

    def test_oneTurnIsOneBlock(self) -> None:
        """Without an interval, what is submitted in one turn of the reactor shares a block."""
        rig = self.rig(interval="0")
        rig.publish(5)
        self.assertEqual(rig.height, 1)
        rig.clock.advance(0)
        self.assertEqual((rig.sequences(), rig.height), ([1, 2, 3, 4, 5], 2))

    def keepPublishing(self, rig: LedgerRig, turns: int) -> None:
        """Publish an event in each of the next turns of the reactor."""
        rig.publish()
        if turns > 1:
            rig.clock.callLater(0, self.keepPublishing, rig, turns - 1)

    def test_lonePublishWaitsOneTurn(self) -> None:
        """A publish is proposed in the next turn of the reactor, whatever comes then."""
        rig = self.rig(interval="0")
        rig.run(1)
        self.keepPublishing(rig, 5)
        rig.clock.advance(0)
        self.assertEqual((len(rig.sequences()), rig.height), (5, 6))

    def test_answeredClientsAreExpected(self) -> None:
        """As long as fewer wait than for the last block, and each turn of the reactor brings
        something, the block waits for the next turn."""
        rig = self.rig(interval="0")
        rig.publish(20)
        rig.clock.advance(0)
        self.assertEqual((len(rig.sequences()), rig.height), (20, 2))
        self.keepPublishing(rig, 20)
        rig.clock.advance(0)
        self.assertEqual((len(rig.sequences()), rig.height), (20, 3))
        self.keepPublishing(rig, 20)
        rig.publish(19)
        rig.clock.advance(0)
        self.assertEqual((len(rig.sequences()), rig.height), (39, 5))

    def test_absentClientsAreNotExpected(self) -> None:
        """A publish after a pause does not wait for others, however many there were before."""
        rig = self.rig(interval="0")
        rig.publish(20)
        rig.clock.advance(0)
        rig.sequences()
        rig.run(1)
        self.keepPublishing(rig, 3)
        rig.clock.advance(0)
        self.assertEqual((len(rig.sequences()), rig.height), (3, 5))

    def test_waitForMoreIsBounded(self) -> None:
        rig = self.rig(interval="0")
        rig.publish(100)
        rig.clock.advance(0)
        rig.sequences()
        passed = []

        def step() -> None:
            rig.publish()
            passed.append(rig.clock.seconds())
            rig.clock.rightNow += MAX_BATCH_WAIT / 10
            if not rig.sequences():
                rig.clock.callLater(0, step)

        step()
        rig.clock.advance(0)
        self.assertTrue(10 <= len(passed) <= 13, passed)

    def test_nextBlockFillsWhileStoring(self) -> None:
        """No submission is answered before its block is stored."""
        rig = self.rig(interval="0")
        rig.disk.isHeld = True
        for _ in range(3):
            rig.publish()
            rig.clock.advance(1)
        self.assertEqual(
            (self.state(rig), rig.height, rig.sequences()), (ProducerState.STORING, 1, [])
        )
        topic = rig.ledger.topicState("t")
        assert topic is not None
        self.assertEqual(topic.sequence, 0)
        rig.disk.release()
        self.assertEqual((rig.sequences(), rig.height), ([1], 2))
        rig.clock.advance(0)
        rig.disk.release()
        self.assertEqual((rig.sequences(), rig.height), ([2, 3], 3))
        rig.check()

    def test_noEmptyBlocks(self) -> None:
        """Without work no block is made, and no call is left with the reactor."""
        rig = self.rig()
        rig.run(600, step=10)
        self.assertEqual(rig.height, 1)
        self.assertEqual(rig.clock.getDelayedCalls(), [])

    def test_emptyBlocksAtIntervals(self) -> None:
        """With C{empty}, a block is made that long after the last one."""
        rig = self.rig(empty="10")
        rig.run(9)
        rig.publish()
        rig.run(9.5)
        self.assertEqual(rig.height, 2)
        rig.run(20)
        self.assertEqual(rig.height, 4)
        self.assertEqual(self.header(rig, 4).transactionCount, 0)
        rig.check()

    def test_emptyBlocksContinueAfterFailures(self) -> None:
        """After a failed write, and with the first leader down."""
        rig = self.rig(empty="10")
        rig.disk.error = StorageFailed("full")
        rig.run(12)
        self.assertEqual(len(self.flushLoggedErrors(StorageFailed)), 1)
        rig.disk.error = None
        rig.replicaSet.stopReplica(3)
        rig.run(30)
        self.assertGreaterEqual(rig.height, 3)
        rig.check()

    def test_clockSetBackDelaysNothing(self) -> None:
        """A block's time never decreases."""
        rig = self.rig()
        for now in (1_800_000_000.0, 1_700_000_000.0, 1_000.0, 1_900_000_000.0):
            rig.now = lambda now=now: now  # type: ignore[misc]
            rig.replicaSet.stopReplica(rig.height % 4)
            rig.publish()
            rig.settle()
            rig.replicaSet.startReplica(rig.replicaSet._stopped.pop())
        times = [self.header(rig, height).timestamp for height in range(2, rig.height + 1)]
        self.assertEqual(times, [1_800_000_000_000] * 3 + [1_900_000_000_000])
        rig.check()


class BoundTests(ProducerTestCase):
    def test_fullPoolRefusesAtOnce(self) -> None:
        """Waiting transactions are not affected."""
        rig = self.rig(mempool="1024", interval="1")
        rig.publish(20)
        refused = [r for r in rig.receipts if r.called]
        self.assertTrue(1 < len(refused) < 19)
        rig.receipts = [r for r in rig.receipts if not r.called]
        waiting = len(rig.receipts)
        for receipt in refused:
            self.failureResultOf(receipt, Overloaded)
        rig.settle()
        self.assertEqual(rig.sequences(), list(range(1, waiting + 1)))
        rig.publish(waiting)
        rig.settle()
        self.assertEqual(rig.sequences(), list(range(waiting + 1, 2 * waiting + 1)))
        rig.check()

    def test_largeTransactionIsAccepted(self) -> None:
        """A single one may exceed the pool and the block."""
        rig = self.rig(mempool="1024", block="1024")
        rig.publish(content=b"x" * 5000)
        rig.settle()
        self.assertEqual(rig.sequences(), [1])
        rig.check()

    def test_blockSizeIsBounded(self) -> None:
        """The rest is in the next blocks, in order."""
        rig = self.rig(block="1024", interval="1")
        rig.publish(10, content=b"x" * 300)
        rig.settle()
        self.assertEqual(rig.sequences(), list(range(1, 11)))
        counts = [self.header(rig, h).transactionCount for h in range(2, rig.height + 1)]
        self.assertEqual(counts, [2] * 5)
        rig.check()


class FailingDiskTests(ProducerTestCase):
    def test_fullDiskFailsPublishes(self) -> None:
        """
        Reads continue. Once there is room, the chain continues without a gap, in an unused round.
        """
        rig = self.rig()
        rig.publish()
        rig.settle()
        self.assertEqual(rig.sequences(), [1])
        rig.disk.error = StorageFailed("full")
        rig.publish(3)
        rig.run(5)
        self.assertEqual(
            set(self.failed(rig)), {"the ledger's disk is full or failing: nothing was executed"}
        )
        self.assertEqual(self.state(rig), ProducerState.FAILING)
        self.assertEqual(self.reason(rig), "the ledger's disk is full or failing")
        rig.publish()
        self.assertEqual(self.failed(rig), ["the ledger's disk is full or failing"])
        self.assertEqual(self.successResultOf(rig.ledger.getStatistics()).transactionCount, 2)
        self.assertEqual(len(self.successResultOf(rig.ledger.readBlock(2)).events), 1)
        self.assertEqual(len(self.successResultOf(rig.ledger.listNodes(0, 9)).items), 4)
        rig.disk.error = None
        rig.run(2)
        self.assertEqual((self.state(rig), self.reason(rig)), (ProducerState.IDLE, ""))
        rig.publish(2)
        rig.settle()
        self.assertEqual(rig.sequences(), [2, 3])
        self.assertEqual(self.round(rig, 3), 1)
        self.assertEqual(len(self.flushLoggedErrors(StorageFailed)), 1)
        rig.check()

    def test_failuresUseUpRounds(self) -> None:
        """Each failure costs a round, also beyond those reserved first."""
        rig = self.rig()
        for _ in range(20):
            rig.disk.error = StorageFailed("full")
            rig.publish()
            rig.run(0.05)
            rig.disk.error = None
            self.assertEqual(len(self.failed(rig)), 1)
            rig.run(1.1)
        rig.publish()
        rig.settle()
        self.assertEqual((rig.sequences(), self.round(rig, 2)), ([1], 20))
        self.assertEqual(len(self.flushLoggedErrors(StorageFailed)), 20)
        rig.check()

    def test_stoppedReplicaSkipsOldRounds(self) -> None:
        """A replica that was stopped during a failure does not return to an old round."""
        rig = self.rig()
        rig.replicaSet.network.conditions = rig.replicaSet.network.conditions.partition(
            {0}, {1, 2, 3}
        )
        rig.disk.isHeld = True
        rig.publish()
        rig.run(0.1)
        rig.replicaSet.stopReplica(2)
        rig.disk.error = StorageFailed("full")
        rig.disk.release()
        rig.run(0.1)
        rig.disk.error, rig.disk.isHeld = None, False
        rig.disk.release()
        rig.run(2)
        self.assertEqual(self.state(rig), ProducerState.IDLE)
        self.assertEqual(len(self.failed(rig)), 1)
        rig.replicaSet.network.conditions = rig.replicaSet.network.conditions.__class__()
        rig.replicaSet.startReplica(2)
        self.assertEqual({replica.round for replica in rig.replicaSet.replicas}, {1})
        rig.publish()
        rig.settle()
        self.assertEqual(rig.sequences(), [1])
        self.assertEqual(len(self.flushLoggedErrors(StorageFailed)), 1)
        rig.check()

    def test_nothingIsSignedWhileReserving(self) -> None:
        """However long the write takes."""
        rig = self.rig()
        rig.replicaSet.network.conditions = rig.replicaSet.network.conditions.partition(
            {0}, {1, 2, 3}
        )
        rig.disk.error = StorageFailed("full")
        rig.publish()
        rig.clock.advance(0.01)
        rig.disk.error, rig.disk.isHeld = None, True
        rig.run(100)
        rig.disk.isHeld = False
        rig.disk.release()
        self.assertEqual(rig.disk.done[-1], "setAside")
        rig.replicaSet.network.conditions = rig.replicaSet.network.conditions.__class__()
        self.assertEqual(len(self.failed(rig)), 1)
        rig.publish()
        rig.settle()
        self.assertEqual((rig.sequences(), self.round(rig, 2)), ([1], 1))
        self.assertEqual(len(self.flushLoggedErrors(StorageFailed)), 1)
        rig.check()

    def test_uncertainBlockIsStoredAgain(self) -> None:
        """
        While it is uncertain whether a block is stored, its submissions wait, and it is stored
        later.
        """
        rig = self.rig()
        rig.disk.error = StorageFailed("broken", isUncertain=True)
        rig.publish(2)
        rig.run(5)
        decided = next(iter(rig.journal.decided[2]))
        self.assertEqual(
            (self.state(rig), rig.sequences(), rig.height), (ProducerState.STORING, [], 1)
        )
        self.assertNotEqual(self.reason(rig), "")
        rig.publish()
        self.failureResultOf(rig.receipts.pop(), LedgerUnavailable)
        rig.disk.error = None
        rig.run(2)
        self.assertEqual((rig.sequences(), self.header(rig, 2).hash), ([1, 2], decided))
        self.assertEqual(self.reason(rig), "")
        self.assertGreater(len(self.flushLoggedErrors(StorageFailed)), 3)
        rig.check()

    def test_damagedFileIsOnlyRead(self) -> None:
        rig = self.rig()
        rig.disk.error = StorageDamaged("removed")
        rig.publish()
        rig.run(5)
        self.assertEqual(len(self.failed(rig)), 1)
        self.assertNotEqual(self.reason(rig), "")
        self.assertEqual(self.successResultOf(rig.ledger.getStatistics()).height, 1)
        self.assertEqual(len(self.flushLoggedErrors(StorageDamaged)), 1)
