"""
Tests for the small parts of the embedded ledger: timeouts, the pool, signers and settings.
"""

from __future__ import annotations

from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import Kind, Phase, Transaction, votePayload
from svcbroker.errors import LedgerUnavailable, Overloaded
from svcbroker.interfaces import InvalidDescription
from svcbroker.ledgers.pbft import SETTINGS
from svcbroker.ledgers.pbft import _keys as keys
from svcbroker.ledgers.pbft._keys import DoubleSign, ReplicaSigner, SignatureVerifier
from svcbroker.ledgers.pbft._pbftledger import PbftSettings, readSettings
from svcbroker.ledgers.pbft._producer import TransactionPool
from svcbroker.ledgers.pbft._protocol import Conditions
from svcbroker.ledgers.pbft._replica import Timing
from svcbroker.model import Execution, Receipt, TopicRule
from tests.ledgers.pbft.sets import SigningReplicas


class TimingTests(SynchronousTestCase):
    def test_slowNetworkLengthensTimeouts(self) -> None:
        self.assertEqual(Timing.forNetwork(1.0, 0.0), Timing())
        slow = Timing.forNetwork(1.0, 60.0)
        self.assertEqual(slow.roundTimeout(0), 241.0)
        self.assertEqual(slow.roundTimeout(50), 482.0)
        self.assertEqual(slow.resend, 120.0)


RECEIPT = Receipt(execution=Execution.DONE, transactionHash=b"h" * 32, height=1)


class PoolTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.waiting = [
            Transaction.create(Kind.PUBLISH, b"s" * 20, nonce, 0, "t", b"x" * 100)
            for nonce in range(1, 8)
        ]
        self.pool = TransactionPool(3 * self.waiting[0].size)

    def test_firstInFirstOut(self) -> None:
        told: list[object] = []
        for since, transaction in enumerate(self.waiting[:3]):
            self.pool.add([transaction], since).only().addCallback(told.append)
        self.assertEqual((len(self.pool), self.pool.oldest), (3, 0))
        self.assertEqual(list(self.pool.transactions()), self.waiting[:3])
        self.assertEqual(self.pool.first(2), self.waiting[:2])
        removed = self.pool.take(1)
        self.assertEqual(list(self.pool.transactions()), self.waiting[1:3])
        self.assertEqual((self.pool.oldest, told), (1, []))
        removed.settle([RECEIPT])
        self.assertEqual(told, [RECEIPT])

    def test_submissionMayBeSplit(self) -> None:
        """Over several blocks. It is settled in order, once."""
        pool = TransactionPool(10_000)
        told: list[object] = []
        pool.add(self.waiting[:1], 0).only().addCallback(told.append)
        submission = pool.add(self.waiting[1:4], 1)
        pool.add(self.waiting[4:5], 2).only().addCallback(told.append)
        receipts = [replace(RECEIPT, height=height) for height in range(5)]
        pool.take(2).settle(receipts[:2])
        self.assertEqual(pool.oldest, 1)
        self.assertEqual(submission.outcomes, [receipts[1], None, None])
        self.assertNoResult(submission.done)
        pool.take(3).settle(receipts[2:])
        self.assertEqual(self.successResultOf(submission.done).outcomes, receipts[1:4])
        self.assertEqual(told, [receipts[0], receipts[4]])
        self.assertEqual((len(pool), pool.bytes, pool.oldest), (0, 0, None))

    def test_tooLargeSubmissionIsPartlyRefused(self) -> None:
        """The first transactions are accepted, the others refused at once."""
        submission = self.pool.add(self.waiting[:5], 0)
        self.assertEqual(list(self.pool.transactions()), self.waiting[:3])
        self.assertEqual(submission.outcomes[:3], [None] * 3)
        for outcome in submission.outcomes[3:]:
            self.assertIsInstance(outcome, Overloaded)
        none = self.pool.add(self.waiting[5:], 0)
        self.assertIsInstance(self.successResultOf(none.done).outcomes[0], Overloaded)
        error = LedgerUnavailable("it stops")
        self.pool.fail(error)
        self.assertEqual(self.successResultOf(submission.done).outcomes[:3], [error] * 3)

    def assertOverloaded(self, transaction: Transaction) -> None:
        """Check that there is no room for a transaction."""
        [outcome] = self.pool.add([transaction], 0).outcomes
        self.assertIsInstance(outcome, Overloaded)

    def test_fullPoolRefuses(self) -> None:
        """It accepts transactions again once there is room."""
        for transaction in self.waiting[:3]:
            self.pool.add([transaction], 0)
        self.assertOverloaded(self.waiting[3])
        self.pool.take(1)
        self.pool.add([self.waiting[4]], 0)
        self.assertOverloaded(self.waiting[3])

    def test_singleTransactionMayBeLarger(self) -> None:
        large = Transaction.create(Kind.PUBLISH, b"s" * 20, 9, 0, "t", b"x" * 1000)
        self.pool.add([large], 0)
        self.assertOverloaded(self.waiting[0])
        self.pool.take(1)
        self.pool.add([self.waiting[0]], 0)
        self.assertOverloaded(large)

    def test_blockBeginsWithFirstTransactions(self) -> None:
        """In order, each once."""
        a, b, c = self.waiting[:3]
        for transaction in (a, b):
            self.pool.add([transaction], 0)
        for right in ([], [a], [a, b]):
            self.assertTrue(self.pool.beginsWith(right))
        for wrong in ([b], [b, a], [a, a], [a, c], [a, b, c], [a, b, b]):
            self.assertFalse(self.pool.beginsWith(wrong))

    def test_failSettlesAll(self) -> None:
        """Except those that were cancelled."""
        receipts = [self.pool.add([transaction], 0).only() for transaction in self.waiting[:3]]
        receipts[1].addErrback(lambda _: None)
        receipts[1].cancel()
        self.pool.fail(LedgerUnavailable("because"))
        for receipt in (receipts[0], receipts[2]):
            self.failureResultOf(receipt, LedgerUnavailable)
        self.assertEqual((len(self.pool), self.pool.oldest), (0, None))
        self.pool.add([self.waiting[0]], 0)


class SignerTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.set = SigningReplicas()
        self.chain = self.set.genesis.chain
        self.verifier = SignatureVerifier(self.set.genesis.validators)
        self.signer = ReplicaSigner(1, self.set.seeds[1], self.chain, self.verifier)

    def test_signatureIsStandardEd25519(self) -> None:
        """Byte for byte."""
        for phase in Phase:
            expected = self.set.sign(1, phase, 5, 3, b"x" * 32)
            self.assertEqual(self.signer.sign(phase, 5, 3, b"x" * 32), expected)
            payload = votePayload(phase, self.chain, 5, 3, b"x" * 32)
            self.assertTrue(SignatureVerifier(self.verifier.keys).verify(1, payload, expected))

    def test_signingTwiceIsRefused(self) -> None:
        """Two different values for one height, round and phase."""
        first = self.signer.sign(Phase.PREPARE, 5, 0, b"x" * 32)
        self.assertEqual(self.signer.sign(Phase.PREPARE, 5, 0, b"x" * 32), first)
        self.assertRaises(DoubleSign, self.signer.sign, Phase.PREPARE, 5, 0, b"y" * 32)
        for phase, height, round in ((Phase.COMMIT, 5, 0), (Phase.PREPARE, 5, 1)):
            self.signer.sign(phase, height, round, b"y" * 32)
        self.signer.forgetBelow(5)
        self.assertRaises(DoubleSign, self.signer.sign, Phase.PREPARE, 5, 0, b"y" * 32)

    def test_proposalAndPrepareAreOneSlot(self) -> None:
        """A leader's proposal is its prepare."""
        slot = ((Phase.PROPOSE, Phase.PREPARE), (Phase.PREPARE, Phase.PROPOSE))
        for round, (first, second) in enumerate(slot):
            self.signer.sign(first, 5, round, b"x" * 32)
            self.assertRaises(DoubleSign, self.signer.sign, second, 5, round, b"y" * 32)
            signature = self.signer.sign(second, 5, round, b"x" * 32)
            payload = votePayload(second, self.chain, 5, round, b"x" * 32)
            self.assertTrue(
                SignatureVerifier(self.set.genesis.validators).verify(1, payload, signature)
            )

    def test_nextRoundIsUnsigned(self) -> None:
        self.assertEqual(self.signer.nextRound(5), 0)
        for height, round in ((5, 3), (5, 1), (6, 7)):
            self.signer.sign(Phase.PREPARE, height, round, b"x" * 32)
        self.assertEqual(self.signer.nextRound(5), 4)
        self.signer.forgetBelow(6)
        self.assertEqual((self.signer.nextRound(5), self.signer.nextRound(6)), (0, 8))

    def test_signaturesVerify(self) -> None:
        """With the public keys alone."""
        signature = self.signer.sign(Phase.COMMIT, 5, 2, b"x" * 32)
        payload = votePayload(Phase.COMMIT, self.chain, 5, 2, b"x" * 32)
        for verifier in (self.verifier, SignatureVerifier(self.set.genesis.validators)):
            self.assertTrue(verifier.verify(1, payload, signature))
            for index in (0, 2, 4, -3):
                self.assertFalse(verifier.verify(index, payload, signature))
            self.assertFalse(verifier.verify(1, payload + b"x", signature))
            for bad in (b"", signature[:-1], signature + b"x", bytes(64)):
                self.assertFalse(verifier.verify(1, payload, bad))

    def test_verifiedCacheIsBounded(self) -> None:
        """Forgotten signatures are verified again."""
        self.patch(keys, "_CACHE_SIZE", 3)
        votes = [self.signer.vote(Phase.COMMIT, 5, r, b"x" * 32) for r in range(10)]
        self.assertLessEqual(len(self.verifier.verified), 3)
        for round, vote in enumerate(votes):
            payload = votePayload(Phase.COMMIT, self.chain, 5, round, b"x" * 32)
            self.assertTrue(self.verifier.verify(1, payload, vote.signature))
        self.assertLessEqual(len(self.verifier._signatures), 3)


class SettingsTests(SynchronousTestCase):
    def test_defaultsAreInTheHelp(self) -> None:
        self.assertEqual(readSettings({}), PbftSettings())
        self.assertIn(f"default {PbftSettings().interval}", SETTINGS["interval"])
        self.assertIn(f"default {PbftSettings().mempool}", SETTINGS["mempool"])
        self.assertIn(f"default {PbftSettings().block}", SETTINGS["block"])

    def test_allSettingsAreRead(self) -> None:
        values = {
            "nodes": "7",
            "topics": "utf8",
            "interval": "0.5",
            "empty": "30",
            "timeout": "2",
            "mempool": "4096",
            "block": "2048",
            "delay": "0.01-0.2",
            "loss": "0.1",
            "duplication": "0.2",
            "accept-loss": "9",
            "seed": "5",
        }
        self.assertEqual({*values, "resume-at"}, SETTINGS.keys())
        self.assertEqual(
            readSettings(values),
            PbftSettings(
                nodes=7,
                topics=TopicRule.UTF8,
                interval=0.5,
                empty=30.0,
                timeout=2.0,
                mempool=4096,
                block=2048,
                conditions=Conditions(delay=(0.01, 0.2), loss=0.1, duplication=0.2),
                acceptLoss=9,
                seed=5,
            ),
        )
        self.assertEqual(readSettings({"resume-at": "9"}), PbftSettings(acceptLoss=9))
        with self.assertRaisesRegex(InvalidDescription, "accept-loss or resume-at, not both"):
            readSettings({"resume-at": "9", "accept-loss": "9"})
        self.assertEqual(readSettings({"delay": "0.3"}).conditions.delay, (0.0, 0.3))

    def test_badValueNamesTheSetting(self) -> None:
        for key, text in (
            ("nodes", "0"),
            ("nodes", "65"),
            ("nodes", "four"),
            ("nodes", ""),
            ("interval", "-1"),
            ("interval", "nan"),
            ("interval", "inf"),
            ("empty", "0"),
            ("empty", "nan"),
            ("empty", "inf"),
            ("timeout", "0"),
            ("mempool", "1023"),
            ("block", "1e6"),
            ("delay", "0.2-0.1"),
            ("delay", "-1"),
            ("delay", "61"),
            ("loss", "1.1"),
            ("duplication", "x"),
            ("seed", "-1"),
            ("color", "blue"),
        ):
            error = self.assertRaises(InvalidDescription, readSettings, {key: text})
            self.assertTrue(str(error).startswith(f"{key}: "), error)
