"""
Tests for changing the keys and the number of nodes of a running ledger.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import (
    Certificate,
    CertificateInvalid,
    Header,
    ValidatorSet,
    checkCertificate,
    quorum,
)
from svcbroker.errors import LedgerUnavailable, ParameterInvalid
from svcbroker.ledgers.pbft._keys import MAX_NODES
from svcbroker.ledgers.pbft._protocol import Conditions
from tests.ledgers.pbft.rig import LedgerRig


class ChangeTestCase(SynchronousTestCase):
    """
    Shared by these tests.
    """

    def rig(self, **settings: str) -> LedgerRig:
        """A ledger with an open topic, at height 1."""
        return LedgerRig(self, settings).start().open()

    def again(self, rig: LedgerRig, **settings: str) -> LedgerRig:
        """Stop a ledger, and start another one in its directory."""
        if not rig.ledger._producer.isStopping:
            self.successResultOf(rig.ledger.stop())
        following = LedgerRig(self, settings, rig.directory, rig.clock)
        following.salt = rig.salt + 1
        return following.start()

    def set_(self, rig: LedgerRig) -> ValidatorSet:
        """The validator set of the next block."""
        validators: ValidatorSet = rig.ledger._state.validators
        return validators

    def goesOn(self, rig: LedgerRig, *sequences: int) -> None:
        """Check that events can be published, with all replicas taking part."""
        rig.publish(len(sequences))
        rig.settle()
        self.assertEqual(rig.sequences(), list(sequences))
        for index in rig.replicaSet.running:
            # On a bad network some hear of a block when the next one begins.
            if rig.replicaSet.network.conditions == Conditions():
                self.assertEqual(rig.replicaSet.replicas[index].head.height, rig.height)
        rig.check()

    def files(self, rig: LedgerRig) -> set[bytes]:
        """The seeds in the directory of the keys."""
        return {bytes.fromhex((rig.directory / "keys" / name).read_text()) for name in rig.keyFiles}


class KeysTests(ChangeTestCase):
    """
    New keys.
    """

    def test_oneNewKey(self) -> None:
        """The other keys and the log stay."""
        rig = self.rig()
        self.goesOn(rig, 1, 2)
        before = self.set_(rig)
        after = rig.change((2,))
        self.assertEqual((before.generation, after.generation), (0, 1))
        self.assertEqual(
            [new == old for new, old in zip(after.keys, before.keys, strict=True)],
            [True, True, False, True],
        )
        self.assertEqual(self.set_(rig), after)
        self.assertEqual(rig.height, 3)
        self.goesOn(rig, 3, 4)
        self.assertEqual(
            rig.keyFiles,
            ["node0.key", "node1.key", f"node2-{after.keys[2].hex()[:16]}.key", "node3.key"],
        )
        self.goesOn(self.again(rig), 5)

    def test_allNewKeys(self) -> None:
        """No old key is left on the disk."""
        rig = self.rig()
        before, files = self.set_(rig), self.files(rig)
        after = rig.change((3, 1, 0, 2))
        self.assertFalse(set(before.keys) & set(after.keys))
        self.assertFalse(files & self.files(rig))
        self.assertEqual(len(rig.keyFiles), 4)
        self.goesOn(rig, 1, 2, 3)
        self.goesOn(self.again(rig), 4)

    def test_keysCanChangeManyTimes(self) -> None:
        """Also after restarts."""
        rig = self.rig()
        for generation in range(1, 13):
            after = rig.change((generation % 4,))
            self.assertEqual(after.generation, generation)
            self.goesOn(rig, generation)
            if generation % 4 == 0:
                rig = self.again(rig)
                self.assertEqual(self.set_(rig), after)
        self.assertEqual(len(rig.keyFiles), 4)
        self.assertEqual([row.generation for row in rig.store.validatorSets()], [*range(1, 13)])

    def test_oldCertificatesVerifyWithOldSet(self) -> None:
        """Blocks before a change verify with the set of their time only."""
        rig = self.rig()
        self.goesOn(rig, 1)
        before = self.set_(rig)
        after = rig.change((0, 1, 2, 3))
        self.goesOn(rig, 2)
        for height, decided, other in ((2, before, after), (3, before, after), (4, after, before)):
            row = rig.store.blockHead(height)
            assert row is not None
            header, certificate = Header.decode(row.header), Certificate.decode(row.certificate)
            self.assertEqual(header.validators, decided.hash)
            checkCertificate(certificate, header, len(decided.keys), decided.verify)
            with self.assertRaises(CertificateInvalid):
                checkCertificate(certificate, header, len(other.keys), other.verify)

    def test_changeIsATransaction(self) -> None:
        """It is not an event, and creates no topic."""
        rig = self.rig()
        rig.change((0,))
        self.goesOn(rig, 1)
        page = self.successResultOf(rig.ledger.listTransactions(0, 9))
        self.assertEqual(page.total, 3)
        self.assertEqual(self.successResultOf(rig.ledger.readBlock(2)).events, [])
        self.assertEqual(self.successResultOf(rig.ledger.listTopics(0, 9)).total, 1)


class SizeTests(ChangeTestCase):
    """
    More nodes, and fewer.
    """

    def test_growToSeven(self) -> None:
        """Everything reported about the nodes follows."""
        rig = self.rig()
        before = self.set_(rig)
        after = rig.change(count=7)
        self.assertEqual(after.keys[:4], before.keys)
        self.assertEqual(len(rig.keyFiles), 7)
        self.goesOn(rig, *range(1, 8))
        nodes = self.successResultOf(rig.ledger.listNodes(0, 99))
        self.assertEqual([node.nodeId for node in nodes.items], list(after.keys))
        self.assertEqual([node.isActive for node in nodes.items], [True] * 7)
        self.assertEqual(self.successResultOf(rig.ledger.getStatistics()).nodeCount, 7)
        for index in (4, 5):
            rig.replicaSet.stopReplica(index)
        self.goesOn(rig, 8)
        rig.replicaSet.stopReplica(6)
        health = self.successResultOf(rig.ledger.getHealth())
        self.assertEqual(health.reason, "4 of 7 nodes run, 5 are needed")
        self.goesOn(self.again(rig), 9)

    def test_shrinkToFour(self) -> None:
        """The last nodes and their keys are removed."""
        rig = self.rig(nodes="7")
        self.goesOn(rig, 1)
        before = self.set_(rig)
        after = rig.change(count=4)
        self.assertEqual(after.keys, before.keys[:4])
        self.assertEqual(rig.keyFiles, [f"node{index}.key" for index in range(4)])
        self.goesOn(rig, 2, 3, 4, 5)
        self.assertEqual(self.successResultOf(rig.ledger.listNodes(0, 99)).total, 4)
        self.assertEqual(self.successResultOf(rig.ledger.getStatistics()).nodeCount, 4)
        rig.replicaSet.stopReplica(0)
        rig.replicaSet.stopReplica(1)
        health = self.successResultOf(rig.ledger.getHealth())
        self.assertEqual(health.reason, "2 of 4 nodes run, 3 are needed")
        following = self.again(rig, nodes="7")
        self.assertEqual(self.set_(following), after)
        self.goesOn(following, 6)

    def test_growAndShrinkAgain(self) -> None:
        """Nodes that return have new keys."""
        rig = self.rig()
        before = self.set_(rig)
        for count in (1, 4, 7, 2, 4):
            after = rig.change(count=count)
            self.assertEqual(len(after.keys), count)
            self.assertEqual(len(rig.keyFiles), count)
        self.goesOn(rig, 1, 2)
        self.assertEqual(after.keys[0], before.keys[0])
        self.assertEqual(len({*before.keys, *after.keys}), 7)

    def test_newKeysAndNumberAtOnce(self) -> None:
        rig = self.rig()
        before = self.set_(rig)
        after = rig.change((0, 3), 5)
        self.assertEqual(
            [key in before.keys for key in after.keys], [False, True, True, False, False]
        )
        self.goesOn(rig, 1)
        self.assertEqual(len(self.set_(rig).keys), len(rig.keyFiles))

    def test_growToTheMaximum(self) -> None:
        rig = self.rig(nodes="1")
        self.assertEqual(len(rig.change(count=MAX_NODES).keys), MAX_NODES)
        self.goesOn(rig, 1)


class RefusalTests(ChangeTestCase):
    """
    Changes that are refused.
    """

    def test_invalidParametersAreRefused(self) -> None:
        rig = self.rig()
        for rotate, count in (
            ((4,), None),
            ((-1,), None),
            ((0, 1, 99), None),
            ((3,), 3),
            ((4,), 5),
            ((), 0),
            ((), -1),
            ((), MAX_NODES + 1),
            ((), None),
            ((), 4),
        ):
            changing = rig.ledger.changeNodes(rotate, count)
            self.failureResultOf(changing, ParameterInvalid)
        self.assertEqual((rig.height, self.set_(rig).generation), (1, 0))
        self.assertEqual(rig.keyFiles, [f"node{index}.key" for index in range(4)])
        # Later changes do not wait for these.
        self.assertEqual(rig.change((0,)).generation, 1)

    def test_stoppedLedgerRefusesChanges(self) -> None:
        """So does one that is stopping."""
        rig = self.rig(interval="3600")
        rig.publish()
        stopping = rig.ledger.stop()
        self.failureResultOf(rig.ledger.changeNodes((0,)), LedgerUnavailable)
        rig.run(60, step=1)
        self.successResultOf(stopping)
        self.failureResultOf(rig.ledger.changeNodes((0,)), LedgerUnavailable)
        self.failureResultOf(rig.receipts.pop(), LedgerUnavailable)
        following = self.again(rig)
        self.assertEqual(self.set_(following).generation, 0)
        self.goesOn(following, 1)


class LoadTests(ChangeTestCase):
    """
    Changes while events are published.
    """

    def checkLoad(self, rig: LedgerRig) -> None:
        """Publish continuously, and change the nodes repeatedly."""
        changing: list[Deferred[ValidatorSet]] = []
        for step in range(60):
            rig.publish(3)
            if step % 10 == 5:
                counts = (7, None, 4, None, 5, 3)
                rotate = (step % 3,) if step % 20 == 5 else (0, 1, 2)
                changing.append(rig.ledger.changeNodes(rotate, counts[step // 10]))
            rig.run(0.1)
        rig.settle(limit=600)
        rig.run(60)
        sets = [self.successResultOf(each) for each in changing]
        self.assertEqual([each.generation for each in sets], [1, 2, 3, 4, 5, 6])
        self.assertEqual([len(each.keys) for each in sets], [7, 7, 4, 4, 5, 3])
        self.assertEqual(rig.sequences(), list(range(1, 181)))
        self.goesOn(rig, 181)
        self.assertEqual(len(rig.keyFiles), 3)
        self.goesOn(self.again(rig), 182)

    def test_changesOnPerfectNetwork(self) -> None:
        self.checkLoad(self.rig())

    def test_changeSharesBlockWithEvents(self) -> None:
        """Blocks are so rare that events before and after a change share its block."""
        rig = self.rig(interval="5")
        rig.publish(2)
        changing = rig.ledger.changeNodes((0, 1))
        rig.publish(2)
        rig.settle()
        self.assertEqual(rig.height, 2)
        self.assertEqual(self.successResultOf(changing).generation, 1)
        self.assertEqual(rig.sequences(), [1, 2, 3, 4])
        self.goesOn(rig, 5)

    def test_changesOnBadNetwork(self) -> None:
        """With delayed, lost and duplicated messages."""
        self.checkLoad(self.rig(delay="0.001-0.03", loss="0.05", duplication="0.1", seed="3"))

    def test_emptyBlocksContinueAfterChange(self) -> None:
        rig = self.rig(empty="1")
        rig.run(3)
        rig.change(count=7)
        height = rig.height
        rig.run(10)
        self.assertGreaterEqual(rig.height, height + 7)
        self.goesOn(rig, 1)

    def test_concurrentChangesAreSerialized(self) -> None:
        """The second one starts from the result of the first."""
        rig = self.rig(interval="1")
        first, second = rig.ledger.changeNodes((0,), 5), rig.ledger.changeNodes((0, 4))
        third = rig.ledger.changeNodes((9,))
        rig.publish()
        rig.run(10)
        one, two = self.successResultOf(first), self.successResultOf(second)
        self.failureResultOf(third, ParameterInvalid)
        self.assertEqual((one.generation, two.generation), (1, 2))
        self.assertEqual(one.keys[1:4], two.keys[1:4])
        self.assertFalse({one.keys[0], one.keys[4]} & set(two.keys))
        self.assertEqual(self.set_(rig), two)
        self.assertEqual(rig.sequences(), [1])
        self.goesOn(rig, 2)

    def test_cancellingDoesNotUndoChange(self) -> None:
        """The next change starts from its result."""
        rig = self.rig(interval="1")
        changing = rig.ledger.changeNodes((0,))
        changing.addErrback(lambda _: None)
        changing.cancel()
        rig.run(10)
        self.assertEqual(self.set_(rig).generation, 1)
        after = rig.change((1,))
        self.assertEqual(after.generation, 2)
        self.assertEqual(len(rig.keyFiles), 4)
        self.goesOn(rig, 1)


class NodesTests(ChangeTestCase):
    """
    Changes while some replicas are stopped.
    """

    def test_stoppedNodeStaysStopped(self) -> None:
        """Under its new key, with which it can be started."""
        rig = self.rig()
        rig.replicaSet.stopReplica(3)
        rig.change((3,))
        self.assertEqual(list(rig.replicaSet.running), [0, 1, 2])
        self.goesOn(rig, 1, 2)
        rig.replicaSet.startReplica(3)
        rig.replicaSet.stopReplica(0)
        self.goesOn(rig, 3, 4)
        self.assertEqual(rig.replicaSet.replicas[3].head.height, rig.height)

    def test_removedNodeReturnsAsNewOne(self) -> None:
        """A stopped node is removed, and added again."""
        rig = self.rig(nodes="7")
        rig.replicaSet.stopReplica(5)
        rig.replicaSet.stopReplica(1)
        rig.change(count=4)
        self.assertEqual(list(rig.replicaSet.running), [0, 2, 3])
        self.goesOn(rig, 1)
        rig.change(count=7)
        self.assertEqual(list(rig.replicaSet.running), [0, 2, 3, 4, 5, 6])
        self.goesOn(rig, 2)

    def test_noQuorumNoChange(self) -> None:
        """Without a quorum of the old set nothing changes, however many nodes the new set has."""
        rig = self.rig()
        files = self.files(rig)
        rig.replicaSet.stopReplica(0)
        rig.replicaSet.stopReplica(1)
        changing = rig.ledger.changeNodes((0,), 1)
        rig.publish()
        rig.run(30)
        self.assertNoResult(changing)
        self.assertEqual(len(self.set_(rig).keys), 4)
        self.assertLess(files, self.files(rig))
        rig.replicaSet.startReplica(0)
        rig.settle()
        rig.run(5)
        self.assertEqual(self.successResultOf(changing).generation, 1)
        self.assertEqual(rig.sequences(), [1])
        self.goesOn(rig, 2)

    def test_changeInLaterRound(self) -> None:
        """The change takes more than one round, and so does the next block."""
        rig = self.rig()
        for _ in range(6):
            # The leader of the next height is silent, first in the old set and then in the new.
            silent = (rig.ledger._producer.head.view + rig.height + 1) % len(self.set_(rig).keys)
            rig.replicaSet.stopReplica(silent)
            after = rig.change((0,))
            rig.replicaSet.startReplica(silent)
        self.assertEqual(after.generation, 6)
        self.assertGreaterEqual(rig.ledger._producer.head.view, 6)
        self.goesOn(rig, 1)

    def test_cutLinksOfRemovedNodes(self) -> None:
        """Cut links of removed nodes have no effect."""
        rig = self.rig(nodes="7")
        rig.replicaSet.network.conditions = rig.replicaSet.network.conditions.partition(
            {0, 1, 2, 3, 4}, {5, 6}
        )
        rig.change(count=4)
        self.goesOn(rig, 1)
        self.assertTrue(self.successResultOf(rig.ledger.getHealth()).isReady)
        self.assertEqual(quorum(len(self.set_(rig).keys)), 3)
