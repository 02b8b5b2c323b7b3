"""
Tests for the embedded ledger's fault injection.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from svcbroker.chain import Phase, verifySignature, votePayload
from svcbroker.errors import LedgerUnavailable, ParameterInvalid
from svcbroker.interfaces import IFaultyLedger
from svcbroker.ledgers.pbft._keys import EVIDENCE_NAME
from svcbroker.model import FaultReport
from tests.ledgers.pbft.rig import LedgerRig, newDirectory
from tests.ledgers.pbft.test_faulty import Equivocator


class FaultTests(SynchronousTestCase):
    """
    Four replicas, with an open topic.
    """

    def setUp(self) -> None:
        self.rig = LedgerRig(self, {"delay": "0-0.001"}).start().open()
        self.ledger = self.rig.ledger

    def report(self) -> FaultReport:
        """The current faults."""
        return self.successResultOf(self.ledger.describeFaults())

    def running(self) -> list[bool]:
        """Whether each replica runs."""
        return [node.isRunning for node in self.report().nodes]

    def reason(self) -> str:
        """The reason why the ledger is not ready."""
        return self.successResultOf(self.ledger.getHealth()).reason

    def cut(self, *islands: set[int]) -> None:
        """Cut the network into islands."""
        cut = [
            (sender, target)
            for one in islands
            for other in islands
            if one is not other
            for sender in one
            for target in other
        ]
        self.successResultOf(self.ledger.setNetwork(cut=cut))

    def test_faultInterfaceIsProvided(self) -> None:
        verifyObject(IFaultyLedger, self.ledger)

    def test_stoppedLeaderIsReplaced(self) -> None:
        """The others continue in a higher view, and the leader catches up afterwards."""
        before = self.report()
        [leader] = [node.index for node in before.nodes if node.isLeader]
        self.successResultOf(self.ledger.stopNode(leader))
        self.assertEqual(self.running(), [index != leader for index in range(4)])
        self.rig.publish()
        self.rig.settle()
        self.assertEqual(self.rig.sequences(), [1])
        after = self.report()
        others = [node for node in after.nodes if node.index != leader]
        self.assertGreater(min(node.view for node in others), before.nodes[leader].view)
        self.assertEqual(after.nodes[leader].height, before.nodes[leader].height)
        self.successResultOf(self.ledger.startNode(leader))
        self.rig.publish()
        self.rig.settle()
        self.rig.run(5)
        self.assertEqual({node.height for node in self.report().nodes}, {3})
        self.rig.check()

    def test_cutWithoutQuorumIsReported(self) -> None:
        """Nothing is final until the cut is healed, and the reason is reported at once."""
        self.cut({0, 1}, {2, 3})
        self.assertEqual(self.reason(), "the network is cut: 0 nodes hear a quorum, 3 must")
        self.rig.publish(3)
        self.rig.run(20)
        self.assertEqual(self.rig.sequences(), [])
        self.successResultOf(self.ledger.heal())
        self.rig.settle()
        self.assertEqual(self.rig.sequences(), [1, 2, 3])
        self.assertEqual(self.reason(), "")
        self.rig.check()

    def test_isolatedReplicaDoesNotMatter(self) -> None:
        self.cut({0}, {1, 2, 3})
        self.assertEqual(self.reason(), "")
        self.rig.publish()
        self.rig.settle()
        self.assertEqual(self.rig.sequences(), [1])

    def test_directedCutsCount(self) -> None:
        """A replica that receives from too few others does not count."""
        self.successResultOf(self.ledger.setNetwork(cut=[(0, 1), (2, 1), (0, 2), (3, 2)]))
        self.assertEqual(self.reason(), "the network is cut: 2 nodes hear a quorum, 3 must")
        self.successResultOf(self.ledger.setNetwork(cut=[(0, 1), (2, 1)]))
        self.assertEqual(self.reason(), "")
        self.successResultOf(self.ledger.stopNode(3))
        self.assertEqual(self.reason(), "the network is cut: 2 nodes hear a quorum, 3 must")

    def test_omittedConditionsStay(self) -> None:
        """Healing restores the conditions of the settings."""
        self.successResultOf(self.ledger.setNetwork(delay=(0.1, 0.2), loss=0.25))
        self.successResultOf(self.ledger.setNetwork(duplication=0.5, cut=[(0, 1)]))
        report = self.report()
        self.assertEqual((report.delay, report.loss), ((0.1, 0.2), 0.25))
        self.assertEqual((report.duplication, report.cut), (0.5, {(0, 1)}))
        self.rig.publish()
        self.rig.settle()
        self.assertEqual(self.rig.sequences(), [1])
        self.successResultOf(self.ledger.setNetwork(cut=[]))
        self.assertEqual(self.report().cut, set())
        self.successResultOf(self.ledger.stopNode(0))
        self.successResultOf(self.ledger.heal())
        report = self.report()
        self.assertEqual((report.delay, report.loss), ((0.0, 0.001), 0))
        self.assertEqual((report.duplication, self.running()), (0, [True] * 4))

    def test_unknownNodesAreRefused(self) -> None:
        """Nothing changes then."""
        for index in (-1, 4):
            links: list[tuple[int, int]] = [(0, 1), (0, index)]
            for asked in (
                self.ledger.stopNode(index),
                self.ledger.startNode(index),
                self.ledger.setNetwork(loss=1.0, cut=links),
            ):
                error = self.failureResultOf(asked, ParameterInvalid).value
                self.assertEqual(error.message, f"there is no node {index}, only 0 to 3")
        report = self.report()
        self.assertEqual((report.loss, report.cut, self.running()), (0, set(), [True] * 4))

    def test_stoppedLedgerRefusesFaults(self) -> None:
        stopping = self.ledger.stop()
        self.rig.run(1)
        self.successResultOf(stopping)
        asked: list[Any] = [
            self.ledger.stopNode(0),
            self.ledger.startNode(0),
            self.ledger.setNetwork(loss=1.0),
            self.ledger.heal(),
            self.ledger.describeFaults(),
        ]
        for each in asked:
            self.failureResultOf(each, LedgerUnavailable)


class EvidenceTests(SynchronousTestCase):
    """
    Evidence of double signing.
    """

    def equivocate(self) -> LedgerRig:
        """A ledger whose replica 2 has signed two proposals in one round, several times."""
        rig = LedgerRig(self, worse={2: Equivocator}).start().open()
        for _ in range(6):
            rig.publish()
            rig.settle()
        return rig

    def again(self, rig: LedgerRig) -> LedgerRig:
        """Stop a ledger, and start a correct one in its directory."""
        self.successResultOf(rig.ledger.stop())
        return LedgerRig(self, directory=rig.directory, clock=rig.clock).start()

    def test_evidenceIsReported(self) -> None:
        """With its height and round."""
        rig = self.equivocate()
        evidence = self.successResultOf(rig.ledger.describeFaults()).evidence
        self.assertEqual({each.node for each in evidence}, {2})
        self.assertLessEqual({each.height for each in evidence}, set(range(1, 8)))

    def test_evidenceOnDiskCanBeVerified(self) -> None:
        """One record for each key, with two signatures for one height, round and phase."""
        rig = self.equivocate()
        [line] = (rig.directory / EVIDENCE_NAME).read_text().splitlines()
        record = json.loads(line)
        keys = self.successResultOf(rig.ledger.getNodes()).keys
        key = bytes.fromhex(record["key"])
        self.assertEqual(key, keys[2])
        self.assertNotEqual(record["first"]["digest"], record["second"]["digest"])
        for signed in (record["first"], record["second"]):
            payload = votePayload(
                Phase[signed["phase"]],
                bytes.fromhex(record["chain"]),
                record["height"],
                record["round"],
                bytes.fromhex(signed["digest"]),
            )
            signature = bytes.fromhex(signed["signature"])
            self.assertTrue(verifySignature(key, payload, signature))
        self.assertEqual((rig.directory / EVIDENCE_NAME).stat().st_mode & 0o777, 0o600)

    def test_evidenceOutlivesRestart(self) -> None:
        rig = self.equivocate()
        [first, *_] = self.successResultOf(rig.ledger.describeFaults()).evidence
        rig = self.again(rig)
        self.assertEqual(self.successResultOf(rig.ledger.describeFaults()).evidence, [first])

    def test_damagedEvidenceDoesNotPreventStart(self) -> None:
        """A crash may have torn the last line."""
        rig = self.equivocate()
        with (rig.directory / EVIDENCE_NAME).open("ab") as file:
            file.write(b'{"chain":')
        rig = self.again(rig)
        self.assertEqual(len(self.successResultOf(rig.ledger.describeFaults()).evidence), 1)
        self.assertEqual(len(self.flushLoggedErrors(msgspec.DecodeError)), 1)

    def test_unwrittenEvidenceIsLogged(self) -> None:
        """It does not stop the ledger."""
        directory = newDirectory(self)
        rig = LedgerRig(self, directory=directory, worse={2: Equivocator}).start().open()
        (directory / EVIDENCE_NAME).mkdir()
        for _ in range(6):
            rig.publish()
            rig.settle()
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)
        rig.check()
