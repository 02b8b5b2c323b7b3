"""
Tests for bugs that other implementations of PBFT have or had.

Those that concern one rule or one class are tests of that rule or class, in C{tests/ledgers/pbft}:

 - one sender counted twice in a new view (FISCO-BCOS, C{isValidNewViewMsg}):
   C{test_sendersMustBeDistinct}; the leader's choice trusted (there, "TODO: check the prePrepared
   message"): C{test_lockedBlockIsProposedAgain}, C{test_highestLockDecides}; a prepared proof that
   signs the block and not the view: C{test_certificateIsForOneRound}; blocks without transactions
   accepted before their signatures are checked: C{test_invalidCertificateIsRefused}, whose block is
   empty; one node's huge view followed (issue 2211): C{test_oneReplicaIsNotFollowed};
 - a round change with duplicate prepares (Besu, issue 2449): C{test_signersMustBeDistinct}; round
   numbers that fill memory (GHSA-23rh-rrqg-wq82): C{test_roundOutOfRangeIsIgnored},
   C{test_farRoundsAreFollowed}; timeouts that double without bound (issue 7642):
   C{test_timeoutsDoubleUpToBound};
 - a proposal that is larger than what can be sent (polygon-edge): C{test_oversizedBlockIsRefused}.

The tests here need a whole set of replicas.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.ledgers.pbft._protocol import Proposal
from tests.ledgers.pbft.rig import LedgerRig
from tools.simulation.behaviours import SilentLeader
from tools.simulation.cluster import Cluster, Focus
from tools.simulation.directed import lockedApart
from tools.simulation.disk import Moment
from tools.simulation.embedded import Embedded
from tools.simulation.faults import CrashAtWrite, Planned
from tools.simulation.harness import A, B, C, Harness
from tools.simulation.replicas import CORRECT


class KnownBugTests(SynchronousTestCase):
    def test_replicasLockedApartDecide(self) -> None:
        """
        Replicas locked on different blocks decide one of them. In IBFT 1 (EIP-650; Saltini and
        Hyland-Wood, arXiv 1901.07160) they block each other for ever, or decide both.
        """
        harness = Harness(CORRECT)
        x, y = lockedApart(harness)
        self.assertNotEqual(x.header.hash, y.header.hash)
        heads = {harness.replicas[node].head.hash for node in (A, B, C)}
        self.assertEqual(heads, {y.header.hash})

    def test_lostDiskIsRecovered(self) -> None:
        """
        A replica that has lost its disk catches up, and does not contradict its earlier votes
        (Besu, issue 8307: restarts without data that stall).
        """
        for seed in range(25):
            outcome = Cluster(seed, 4, focus=Focus(isWiped=True)).run()
            self.assertIsNone(outcome.violation, outcome.replay)
            self.assertEqual(outcome.faults["lost disk"], 1)

    def test_longOutageEndsQuickly(self) -> None:
        """
        After a long time without decisions, the next one takes at most one longest round for each
        Byzantine replica (Besu, issue 7642: "round 10 will expire in 4096 seconds"), and a block
        proposed long ago may be proposed again (Besu, pull request 7875).
        """
        for seed in range(3):
            focus = Focus(behaviours=[SilentLeader], isLong=True)
            outcome = Cluster(seed, 4, focus=focus).run()
            self.assertIsNone(outcome.violation, outcome.replay)

    def test_crashAtEveryWrite(self) -> None:
        """
        A host crashes at each of its first writes in turn. It never signs twice, and never starts
        in a round in which it may have voted (CometBFT, issue 5668: C{double_sign_check_height} off
        by one; radix babylon-node, pull request 243: recovered into an older round).
        """
        for moment in Moment:
            for write in range(16):
                crash = Planned("crash", 0.0, 4.0, CrashAtWrite(1, moment, write))
                outcome = Cluster(write, 4, focus=Focus(script=[crash])).run()
                self.assertIsNone(outcome.violation, f"{moment}, write {write}")

    def test_crashAtEveryWriteOfTheLedger(self) -> None:
        """The embedded ledger is killed before, inside and after each write."""
        for moment in Moment:
            for write in range(8):
                crash = Planned("crash", 0.0, 4.0, CrashAtWrite(0, moment, write))
                outcome = Embedded(write, 4, script=[crash]).run()
                self.assertIsNone(outcome.violation, f"{moment}, write {write}")
        self.flushLoggedErrors()

    def test_timeoutShorterThanInterval(self) -> None:
        """
        It costs no views (FISCO-BCOS: C{consensus_timeout} must be longer than C{min_seal_time}, or
        the view changes for ever).
        """
        rig = LedgerRig(self, {"interval": "5", "timeout": "0.05"}).start().open()
        for _ in range(3):
            rig.publish()
            rig.settle()
        self.assertEqual({replica.view for replica in rig.replicaSet.replicas}, {0})

    def test_lockedReplicasSendTheBlock(self) -> None:
        """A leader that has never seen the locked block can propose it."""
        harness = Harness(CORRECT)
        lockedApart(harness)
        sent = harness.sent("proposal", 3, A)
        assert isinstance(sent, Proposal)
        self.assertEqual(sent.digest, harness.replicas[A].head.hash)
