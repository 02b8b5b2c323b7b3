"""
Tests for how blocks are made and stored: when, how large, on a disk that fails, and at the end.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import Header
from svcbroker.errors import BrokerError, LedgerUnavailable, Overloaded
from svcbroker.ledgers.pbft._producer import MAX_GATHERING, Stage
from svcbroker.storage import StorageDamaged, StorageFailed
from tests.ledgers.pbft.rig import LedgerRig


class ProducerTestCase(SynchronousTestCase):
    """
    What these tests share.
    """

    def rig(self, **settings: str) -> LedgerRig:
        """A ledger with an open topic, at height 1."""
        return LedgerRig(self, settings).start().open()

    def failed(self, rig: LedgerRig, error: type[BrokerError] = LedgerUnavailable) -> list[str]:
        """What those are told whose submission has failed; nobody else waits."""
        receipts, rig.receipts = rig.receipts, []
        return [self.failureResultOf(receipt, error).value.message for receipt in receipts]

    def stage(self, rig: LedgerRig) -> Stage:
        """Where the next block is."""
        return rig.ledger._producer.stage

    def reason(self, rig: LedgerRig) -> str:
        """Why the ledger is not ready."""
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
    def test_interval(self) -> None:
        """Blocks come no sooner than the interval; all that came meanwhile is in the next."""
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

    def test_afterPause(self) -> None:
        """After a pause a block is made at once."""
        rig = self.rig(interval="1")
        rig.run(5)
        rig.publish()
        rig.clock.advance(0)
        self.assertEqual(rig.sequences(), [1])

    def test_noInterval(self) -> None:
        """Without interval, what is submitted in one turn of the reactor is in one block."""
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

    def test_gathering(self) -> None:
        """As long as each turn of the reactor brings something, the block waits for the next."""
        rig = self.rig(interval="0")
        self.keepPublishing(rig, 20)
        rig.clock.advance(0)
        self.assertEqual((len(rig.sequences()), rig.height), (20, 2))

    def test_gatheringEnds(self) -> None:
        """However much comes, the first are not held up for long."""
        rig = self.rig(interval="0")
        passed = []

        def step() -> None:
            rig.publish()
            passed.append(rig.clock.seconds())
            rig.clock.rightNow += MAX_GATHERING / 10
            if not rig.sequences():
                rig.clock.callLater(0, step)

        step()
        rig.clock.advance(0)
        self.assertTrue(10 <= len(passed) <= 13, passed)

    def test_groupCommit(self) -> None:
        """While a block is being stored the next one fills, and nobody is answered."""
        rig = self.rig(interval="0")
        rig.disk.isHeld = True
        for _ in range(3):
            rig.publish()
            rig.clock.advance(1)
        self.assertEqual((self.stage(rig), rig.height, rig.sequences()), (Stage.STORING, 1, []))
        topic = self.successResultOf(rig.ledger.getTopic("t"))
        assert topic is not None
        self.assertEqual(topic.sequence, 0)
        rig.disk.release()
        self.assertEqual((rig.sequences(), rig.height), ([1], 2))
        rig.clock.advance(0)
        rig.disk.release()
        self.assertEqual((rig.sequences(), rig.height), ([2, 3], 3))
        rig.check()

    def test_noEmptyBlocks(self) -> None:
        """Where nothing waits no block is made, and nothing is left with the reactor to do."""
        rig = self.rig()
        rig.run(600, step=10)
        self.assertEqual(rig.height, 1)
        self.assertEqual(rig.clock.getDelayedCalls(), [])

    def test_heartbeat(self) -> None:
        """With C{empty} a block is made that long after the last one, whatever happens."""
        rig = self.rig(empty="10")
        rig.run(9)
        rig.publish()
        rig.run(9.5)
        self.assertEqual(rig.height, 2)
        rig.run(20)
        self.assertEqual(rig.height, 4)
        self.assertEqual(self.header(rig, 4).transactionCount, 0)
        rig.check()

    def test_heartbeatGoesOn(self) -> None:
        """Heartbeats go on after one could not be stored, and with the first leader down."""
        rig = self.rig(empty="10")
        rig.disk.error = StorageFailed("full")
        rig.run(12)
        self.assertEqual(len(self.flushLoggedErrors(StorageFailed)), 1)
        rig.disk.error = None
        rig.nodes.stopNode(3)
        rig.run(30)
        self.assertGreaterEqual(rig.height, 3)
        rig.check()

    def test_clockGoesBack(self) -> None:
        """A block's time never falls, and a clock that goes back, however far, holds nobody
        up."""
        rig = self.rig()
        for now in (1_800_000_000.0, 1_700_000_000.0, 1_000.0, 1_900_000_000.0):
            rig.now = lambda now=now: now  # type: ignore[misc]
            rig.nodes.stopNode(rig.height % 4)
            rig.publish()
            rig.settle()
            rig.nodes.startNode(rig.nodes._stopped.pop())
        times = [self.header(rig, height).timestamp for height in range(2, rig.height + 1)]
        self.assertEqual(times, [1_800_000_000_000] * 3 + [1_900_000_000_000])
        rig.check()


class BoundTests(ProducerTestCase):
    def test_overloaded(self) -> None:
        """Above the pool's bound submissions are refused at once; what waits is not harmed."""
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

    def test_largeOne(self) -> None:
        """One that is larger than the pool and a block alone is taken."""
        rig = self.rig(mempool="1024", block="1024")
        rig.publish(content=b"x" * 5000)
        rig.settle()
        self.assertEqual(rig.sequences(), [1])
        rig.check()

    def test_blockSize(self) -> None:
        """A block holds as much as it may, in order; the rest is in the next ones."""
        rig = self.rig(block="1024", interval="1")
        rig.publish(10, content=b"x" * 300)
        rig.settle()
        self.assertEqual(rig.sequences(), list(range(1, 11)))
        counts = [self.header(rig, h).transactionCount for h in range(2, rig.height + 1)]
        self.assertEqual(counts, [2] * 5)
        rig.check()


class FailingDiskTests(ProducerTestCase):
    def test_full(self) -> None:
        """On a full disk publishes fail and reads go on; when there is room it goes on without
        a gap, in a round never used."""
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
        self.assertEqual(self.stage(rig), Stage.FAILING)
        self.assertEqual(self.reason(rig), "the ledger's disk is full or failing")
        rig.publish()
        self.assertEqual(self.failed(rig), ["the ledger's disk is full or failing"])
        self.assertEqual(self.successResultOf(rig.ledger.getStatistics()).transactionCount, 2)
        self.assertEqual(len(self.successResultOf(rig.ledger.readBlock(2)).events), 1)
        self.assertEqual(len(self.successResultOf(rig.ledger.listNodes(0, 9)).items), 4)
        rig.disk.error = None
        rig.run(2)
        self.assertEqual((self.stage(rig), self.reason(rig)), (Stage.IDLE, ""))
        rig.publish(2)
        rig.settle()
        self.assertEqual(rig.sequences(), [2, 3])
        self.assertEqual(self.round(rig, 3), 1)
        self.assertEqual(len(self.flushLoggedErrors(StorageFailed)), 1)
        rig.check()

    def test_againAndAgain(self) -> None:
        """Each failure costs a round, also beyond those set aside at first."""
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

    def test_stoppedMeanwhile(self) -> None:
        """A node that is stopped over the failure does not come back into an old round."""
        rig = self.rig()
        rig.nodes.network.conditions = rig.nodes.network.conditions.partition({0}, {1, 2, 3})
        rig.disk.isHeld = True
        rig.publish()
        rig.run(0.1)
        rig.nodes.stopNode(2)
        rig.disk.error = StorageFailed("full")
        rig.disk.release()
        rig.run(0.1)
        rig.disk.error, rig.disk.isHeld = None, False
        rig.disk.release()
        rig.run(2)
        self.assertEqual(self.stage(rig), Stage.IDLE)
        self.assertEqual(len(self.failed(rig)), 1)
        rig.nodes.network.conditions = rig.nodes.network.conditions.__class__()
        rig.nodes.startNode(2)
        self.assertEqual({replica.round for replica in rig.nodes.replicas}, {1})
        rig.publish()
        rig.settle()
        self.assertEqual(rig.sequences(), [1])
        self.assertEqual(len(self.flushLoggedErrors(StorageFailed)), 1)
        rig.check()

    def test_slowRecovery(self) -> None:
        """While rounds are being set aside, nothing is signed in them, however long that
        takes."""
        rig = self.rig()
        rig.nodes.network.conditions = rig.nodes.network.conditions.partition({0}, {1, 2, 3})
        rig.disk.error = StorageFailed("full")
        rig.publish()
        rig.clock.advance(0.01)
        rig.disk.error, rig.disk.isHeld = None, True
        rig.run(100)
        rig.disk.isHeld = False
        rig.disk.release()
        self.assertEqual(rig.disk.done[-1], "setAside")
        rig.nodes.network.conditions = rig.nodes.network.conditions.__class__()
        self.assertEqual(len(self.failed(rig)), 1)
        rig.publish()
        rig.settle()
        self.assertEqual((rig.sequences(), self.round(rig, 2)), ([1], 1))
        self.assertEqual(len(self.flushLoggedErrors(StorageFailed)), 1)
        rig.check()

    def test_uncertain(self) -> None:
        """Where it is not known whether a block is stored, it is that block or none: those who
        wait go on waiting, and it is stored later."""
        rig = self.rig()
        rig.disk.error = StorageFailed("broken", isUncertain=True)
        rig.publish(2)
        rig.run(5)
        decided = next(iter(rig.journal.decided[2]))
        self.assertEqual((self.stage(rig), rig.sequences(), rig.height), (Stage.STORING, [], 1))
        self.assertNotEqual(self.reason(rig), "")
        rig.publish()
        self.failureResultOf(rig.receipts.pop(), LedgerUnavailable)
        rig.disk.error = None
        rig.run(2)
        self.assertEqual((rig.sequences(), self.header(rig, 2).hash), ([1, 2], decided))
        self.assertEqual(self.reason(rig), "")
        self.assertGreater(len(self.flushLoggedErrors(StorageFailed)), 3)
        rig.check()

    def test_damaged(self) -> None:
        """A file that is damaged in use takes no more blocks, and is still read."""
        rig = self.rig()
        rig.disk.error = StorageDamaged("removed")
        rig.publish()
        rig.run(5)
        self.assertEqual(len(self.failed(rig)), 1)
        self.assertNotEqual(self.reason(rig), "")
        self.assertEqual(self.successResultOf(rig.ledger.getStatistics()).height, 1)
        self.assertEqual(len(self.flushLoggedErrors(StorageDamaged)), 1)
