"""
Tests for whole replica sets: crashes, lost, duplicated, delayed and reordered messages, and
partitions.

Each ends with L{LedgerRig.check}: the replicas agree, certificates verify, sequence numbers run
from 1 without gaps, and no signer has refused to sign twice, which would be logged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.ledgers.pbft._protocol import Conditions, Effect
from svcbroker.ledgers.pbft._replica import Replica
from tests.ledgers.pbft.rig import LedgerRig

SEEDS = range(12)


class SetTestCase(SynchronousTestCase):
    """
    Shared by these tests.
    """

    def rig(
        self,
        settings: Mapping[str, str] | None = None,
        worse: Mapping[int, type[Replica]] | None = None,
    ) -> LedgerRig:
        """A ledger with an open topic, at height 1."""
        return LedgerRig(self, {"seed": "1", **(settings or {})}, worse=worse).start().open()

    def views(self, rig: LedgerRig) -> list[int]:
        """The replicas' views, as operators see them."""
        page = self.successResultOf(rig.ledger.listNodes(0, 99))
        return [node.view for node in page.items]

    def heights(self, rig: LedgerRig) -> list[int]:
        """The replicas' heights, as operators see them."""
        page = self.successResultOf(rig.ledger.listNodes(0, 99))
        return [node.height for node in page.items]


class NormalTests(SetTestCase):
    def test_leadersTakeTurns(self) -> None:
        """Every block is decided in its first round, by all replicas."""
        rig = self.rig()
        for _ in range(8):
            rig.publish(3)
            rig.settle()
        self.assertEqual(rig.sequences(), list(range(1, 25)))
        self.assertEqual((self.views(rig), self.heights(rig)), ([0] * 4, [9] * 4))
        blocks = self.successResultOf(rig.ledger.listBlocks(0, 9)).items
        self.assertEqual([block.sealer for block in blocks], [1, 0, 3, 2, 1, 0, 3, 2, 1])
        self.assertEqual(list(rig.replicaSet.evidence), [])
        rig.check()

    def test_onlyLeaderIsToldThatABlockIsDue(self) -> None:
        """The others learn it from the proposal."""
        told: list[int] = []

        class Told(Replica):
            def propose(self, height: int) -> Sequence[Effect]:
                told.append(self.index)
                return super().propose(height)

        rig = self.rig(worse=dict.fromkeys(range(4), Told))
        told.clear()
        for _ in range(5):
            rig.publish(1)
            rig.settle()
        self.assertEqual(told, [2, 3, 0, 1, 2])
        rig.check()

    def test_setsTolerateFaults(self) -> None:
        """Sets of any size decide while f of the replicas are down."""
        for nodes in (1, 2, 3, 5, 6, 7, 10):
            rig = self.rig({"nodes": str(nodes)})
            for index in range((nodes - 1) // 3):
                rig.replicaSet.stopReplica(nodes - 1 - index)
            rig.publish(2)
            rig.settle()
            self.assertEqual(rig.sequences(), [1, 2])
            rig.check()

    def test_runsFollowFromSeed(self) -> None:
        """Equal seeds give equal runs, others do not."""

        def run(seed: int) -> str:
            bad = {"delay": "0.001-0.1", "loss": "0.1", "duplication": "0.1", "seed": str(seed)}
            rig = self.rig(bad)
            for _ in range(3):
                rig.publish()
                rig.settle()
            rig.check()
            return rig.journal.digest()

        first = run(7)
        self.assertEqual(run(7), first)
        self.assertNotEqual(run(8), first)


class CrashTests(SetTestCase):
    def test_crashedLeaderCostsOneTimeout(self) -> None:
        """In each of its turns."""
        rig = self.rig()
        rig.replicaSet.stopReplica(2)
        rig.publish()
        rig.run(0.9)
        self.assertFalse(rig.receipts[-1].called)
        rig.run(0.2)
        self.assertEqual(rig.sequences(), [1])
        self.assertEqual(self.views(rig), [1, 1, 0, 1])
        for sequence in (2, 3):
            rig.publish()
            rig.run(0.05)
            self.assertEqual(rig.sequences(), [sequence])
        rig.publish()
        rig.run(0.05)
        self.assertEqual(rig.sequences(), [])
        rig.settle()
        self.assertEqual(self.views(rig), [2, 2, 0, 2])
        blocks = self.successResultOf(rig.ledger.listBlocks(0, 9)).items
        self.assertEqual([block.sealer for block in blocks], [3, 1, 0, 3, 1])
        rig.check()

    def test_crashedFollowerCostsNothing(self) -> None:
        """It catches up afterwards."""
        rig = self.rig()
        rig.replicaSet.stopReplica(0)
        rig.publish()
        rig.run(0.05)
        rig.publish()
        rig.run(0.05)
        self.assertEqual(rig.sequences(), [1, 2])
        self.assertEqual(self.heights(rig), [1, 3, 3, 3])
        rig.replicaSet.startReplica(0)
        rig.run(0.05)
        self.assertEqual(self.heights(rig), [3] * 4)
        rig.publish()
        rig.run(0.05)
        self.assertEqual(rig.sequences(), [3])
        rig.check()

    def test_tooManyCrashed(self) -> None:
        """
        With f+1 replicas down nothing is decided. The waiting transactions are executed once when
        one is back.
        """
        for back in (2, 3):
            rig = self.rig()
            rig.replicaSet.stopReplica(2)
            rig.replicaSet.stopReplica(3)
            rig.publish(3)
            rig.run(30)
            self.assertEqual((rig.height, rig.sequences()), (1, []))
            self.assertFalse(self.successResultOf(rig.ledger.getHealth()).isReady)
            rig.replicaSet.startReplica(back)
            rig.publish()
            rig.settle()
            self.assertEqual(rig.sequences(), [1, 2, 3, 4])
            self.assertTrue(self.successResultOf(rig.ledger.getHealth()).isReady)
            topic = rig.ledger.topicState("t")
            assert topic is not None
            self.assertEqual(topic.sequence, 4)
            rig.check()

    def test_tooManyCrashedForLong(self) -> None:
        """The others wait in one round, so the set continues at once when one comes back."""
        rig = self.rig()
        rig.replicaSet.stopReplica(2)
        rig.replicaSet.stopReplica(3)
        rig.publish()
        rig.run(6000, step=10)
        self.assertEqual([rig.replicaSet.replicas[index].round for index in (0, 1)], [1, 1])
        rig.replicaSet.startReplica(3)
        rig.settle(limit=10)
        self.assertEqual(rig.sequences(), [1])
        rig.check()

    def test_othersCrashedForLong(self) -> None:
        """
        No replica stays ahead of those that were down: when they are back and another one is down,
        the three agree.
        """
        rig = self.rig()
        rig.replicaSet.stopReplica(1)
        rig.replicaSet.stopReplica(2)
        rig.publish()
        rig.run(6000, step=10)
        rig.replicaSet.stopReplica(3)
        rig.replicaSet.startReplica(1)
        rig.replicaSet.startReplica(2)
        rig.settle(limit=10)
        self.assertEqual(rig.sequences(), [1])
        rig.check()

    def test_replicasCrashInTurn(self) -> None:
        """Nothing is lost or duplicated."""
        rig = self.rig()
        for turn in range(12):
            rig.replicaSet.stopReplica(turn % 4)
            rig.publish(2)
            rig.settle()
            rig.replicaSet.startReplica(turn % 4)
        rig.run(2)
        self.assertEqual(rig.sequences(), list(range(1, 25)))
        self.assertEqual(self.heights(rig), [rig.height] * 4)
        rig.check()

    def test_stoppingTwiceChangesNothing(self) -> None:
        """Nor does starting a running replica."""
        rig = self.rig()
        rig.replicaSet.startReplica(1)
        rig.replicaSet.stopReplica(0)
        rig.replicaSet.stopReplica(0)
        self.assertEqual(rig.replicaSet.running, [1, 2, 3])
        rig.replicaSet.startReplica(0)
        rig.replicaSet.startReplica(0)
        rig.publish()
        rig.settle()
        self.assertEqual(rig.sequences(), [1])
        self.assertEqual(rig.replicaSet.running, [0, 1, 2, 3])
        rig.check()

    def test_catchingUpYieldsToReactor(self) -> None:
        rig = self.rig({"interval": "0"})
        rig.replicaSet.stopReplica(0)
        for _ in range(300):
            rig.publish()
            rig.settle(step=0.25)
        rig.replicaSet.startReplica(0)
        at = self.heights(rig)[0]
        self.assertTrue(1 < at < rig.height, at)
        rig.clock.advance(0)
        self.assertEqual(self.heights(rig), [rig.height] * 4)
        rig.check()


class NetworkTests(SetTestCase):
    def publishOver(self, **settings: str) -> None:
        """Publish over a bad network with several seeds, partly while a replica is down."""
        for seed in SEEDS:
            rig = self.rig({**settings, "seed": str(seed)})
            rig.publish(2)
            rig.settle()
            rig.replicaSet.stopReplica(seed % 4)
            rig.publish(2)
            rig.settle()
            rig.replicaSet.startReplica(seed % 4)
            rig.publish()
            rig.settle()
            self.assertEqual(rig.sequences(), [1, 2, 3, 4, 5])
            rig.replicaSet.network.conditions = Conditions()
            rig.publish()
            rig.settle()
            rig.run(2)
            self.assertEqual(self.heights(rig), [rig.height] * 4)
            rig.check()

    def test_lostMessages(self) -> None:
        self.publishOver(loss="0.2")

    def test_duplicatedMessages(self) -> None:
        """And reordered ones."""
        self.publishOver(duplication="0.5", delay="0.2")

    def test_allNetworkFaultsAtOnce(self) -> None:
        self.publishOver(loss="0.1", duplication="0.3", delay="0.01-0.5")

    def test_networkSlowerThanTimeout(self) -> None:
        """It only makes the ledger slow."""
        rig = self.rig({"delay": "20-60", "timeout": "0.01"})
        rig.publish()
        rig.settle(limit=2000, step=5)
        self.assertEqual(rig.sequences(), [1])
        rig.check()

    def test_partitionHealsToAgreement(self) -> None:
        """No island decides without a quorum."""
        for islands in (
            [{0, 1}, {2, 3}],
            [{0}, {1, 2, 3}],
            [{0}, {1}, {2}, {3}],
            [{0, 1, 2}, {3}],
        ):
            rig = self.rig()
            whole = rig.replicaSet.network.conditions
            rig.replicaSet.network.conditions = whole.partition(*islands)
            rig.publish(2)
            rig.run(20)
            isQuorate = any(len(island) >= 3 for island in islands)
            self.assertEqual(rig.height > 1, isQuorate)
            rig.replicaSet.network.conditions = whole
            rig.publish()
            rig.settle()
            self.assertEqual(rig.sequences(), [1, 2, 3])
            rig.run(20)
            self.assertEqual(self.heights(rig), [rig.height] * 4)
            rig.check()

    def test_halfConnectedLeaderIsReplaced(self) -> None:
        """A leader that receives nothing, or whose messages are lost."""
        for cut in ({(2, other) for other in (0, 1, 3)}, {(other, 2) for other in (0, 1, 3)}):
            rig = self.rig()
            rig.replicaSet.network.conditions = Conditions(cut=frozenset(cut))
            rig.publish()
            rig.settle()
            self.assertEqual(rig.sequences(), [1])
            rig.replicaSet.network.conditions = Conditions()
            rig.publish()
            rig.settle()
            rig.run(5)
            self.assertEqual(self.heights(rig), [rig.height] * 4)
            rig.check()

    def test_firstToDecideIsCutOff(self) -> None:
        """The others decide no other block."""
        rig = self.rig({"delay": "0.01", "seed": "2"})
        rig.disk.isHeld = True
        rig.publish()
        only = frozenset((a, b) for a in range(4) for b in range(4) if b != 0 and a != b)
        for _ in range(200):
            rig.clock.advance(0.001)
            replicas = rig.replicaSet.replicas
            if sum(replica._prepared is not None for replica in replicas) >= 3:
                break
        rig.replicaSet.network.conditions = Conditions(delay=(0.0, 0.01), cut=only)
        rig.run(3)
        self.assertEqual(self.heights(rig), [2, 1, 1, 1])
        apart = Conditions(delay=(0.0, 0.01)).partition({0}, {1, 2, 3})
        rig.replicaSet.network.conditions = apart
        rig.run(20)
        self.assertEqual(self.heights(rig), [2] * 4)
        rig.disk.isHeld = False
        rig.disk.release()
        rig.replicaSet.network.conditions = Conditions()
        rig.run(5)
        self.assertEqual(rig.sequences(), [1])
        rig.check()

    def test_onlyReplicaToDecideIsStopped(self) -> None:
        """The others find the block on the shared disk."""
        rig = self.rig({"delay": "0.01"})
        to3 = frozenset((sender, 3) for sender in range(3))
        rig.replicaSet.network.conditions = Conditions(delay=(0.0, 0.01), cut=to3)
        rig.publish()
        for _ in range(200):
            rig.clock.advance(0.001)
            if sum(replica._prepared is not None for replica in rig.replicaSet.replicas) == 3:
                break
        only = frozenset((a, b) for a in range(4) for b in range(4) if b != 0 and a != b)
        rig.replicaSet.network.conditions = Conditions(delay=(0.0, 0.01), cut=only)
        rig.run(0.2)
        self.assertEqual((self.heights(rig), rig.height), ([2, 1, 1, 1], 2))
        rig.replicaSet.stopReplica(0)
        rig.replicaSet.network.conditions = Conditions()
        rig.publish()
        rig.settle(limit=10)
        self.assertEqual(rig.sequences(), [1, 2])
        self.assertEqual(self.heights(rig)[1:], [3, 3, 3])
        rig.check()
