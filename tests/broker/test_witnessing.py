"""
Tests for having witnesses cosign a log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from twisted.internet.defer import Deferred, fail, maybeDeferred, succeed
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.access import ANYBODY
from svcbroker.broker import MetadataStore
from svcbroker.broker.transparency._cosigning import (
    MAX_DELAY,
    WitnessFailed,
    Witnessing,
    WitnessingRule,
    checkWitnesses,
)
from svcbroker.broker.transparency._transparencylog import (
    CheckpointLines,
    CosignedCheckpoints,
    LogCheckpoint,
    TransparencyLog,
    logGroup,
)
from svcbroker.broker.transparency.feature import WitnessMetrics, witnessAlarms
from svcbroker.errors import ParameterInvalid
from svcbroker.proofs import ProofInvalid, verifyWitnessed
from svcbroker.proofs.tlog import LogKey, Note, Policy, TreeHead, WitnessKey
from tests.broker.support import makeFixture
from tests.broker.witnesses import KEYS, NAMES, FakeWitnesses, policyOf
from tests.carriers.mqtt.support import MetadataFile
from tests.ledgers.pbft.rig import LedgerRig
from tests.proofs.tlog.support import MemoryLog


class WitnessingTests(SynchronousTestCase):
    """
    Tests for L{Witnessing}, on a chain of the embedded ledger.
    """

    def setUp(self) -> None:
        self.rig = LedgerRig(self).start().open()
        self.clock = self.rig.clock
        self.file = MetadataFile()
        self.witnesses = FakeWitnesses(self.clock.seconds)
        self.lines: Sequence[str] = ()
        self.serve()

    def serve(self, quorum: str = "two", **rule: Any) -> None:
        """Begin, as a broker that has just started."""
        self.metadata = MetadataStore(self.file, self.clock, maybeDeferred)
        self.cosigned = CosignedCheckpoints("1", policyOf(quorum), self.metadata)
        lines = CheckpointLines()
        lines.add("1", lambda: succeed(self.lines))
        lines.add("2", lambda: fail(AssertionError("of another group")))
        self.log = TransparencyLog(
            self.rig.ledger,
            self.metadata,
            self.clock.seconds,
            cosigned=self.cosigned,
            lines=lines,
        )
        certified = self.log.certified()
        self.rig.run(1)
        self.key: LogKey = self.successResultOf(certified).key
        self.witnesses.trust(self.key.verifier)
        self.witnessing = Witnessing(
            self.log,
            self.cosigned,
            self.witnesses,
            self.metadata,
            self.clock,
            self.clock.seconds,
            lambda: 0.5,
            WitnessingRule(**rule),
        )
        self.successResultOf(self.witnessing.start())
        self.addCleanup(self.witnessing.stop)

    def restart(self, **options: Any) -> None:
        """Stop it, and begin again with what is kept."""
        self.witnessing.stop()
        self.successResultOf(self.metadata.stop())
        self.serve(**options)

    def publish(self, count: int = 1) -> None:
        """Make blocks."""
        for _ in range(count):
            self.rig.publish()
            self.rig.settle()

    @property
    def size(self) -> int:
        """How many entries the log has."""
        return self.rig.height + 1

    def served(self) -> LogCheckpoint:
        """What is served."""
        return self.successResultOf(self.log.serve())

    def cosigners(self) -> list[str]:
        """Who has cosigned what is served."""
        found = policyOf().cosignatures(self.served().note)
        return sorted(each.witness for each in found)

    def alarms(self) -> list[str]:
        """The alarms, and the witnesses that they name."""
        found = witnessAlarms({"1": self.witnessing}, self.clock.seconds())
        return [f"{each.condition.name} {each.text.partition(':')[0]}" for each in found]

    def metrics(self) -> dict[str, float]:
        """The metrics of each witness."""
        source = WitnessMetrics({"1": self.witnessing}, self.clock.seconds)
        return {
            f"{family.name} {sample.labels.get('witness', '')}".strip(): sample.value
            for family in source.collect()
            for sample in family.samples
        }

    def test_manyMayWaitForTheKey(self) -> None:
        """Until the chain certifies it."""
        rig = LedgerRig(self).start().open()
        metadata = MetadataStore(MetadataFile(), rig.clock, maybeDeferred)
        log = TransparencyLog(rig.ledger, metadata, rig.clock.seconds)
        waiting = [log.certified() for _ in range(300)]
        self.assertNoResult(waiting[0])
        rig.run(1)
        self.assertEqual(len({self.successResultOf(each).eventId for each in waiting}), 1)

    def test_clockThatIsSetBackHidesNoEntries(self) -> None:
        """A checkpoint that was signed at a later time is old."""
        before = self.successResultOf(self.log.sign())
        self.rig.publish()
        self.rig.run(1)
        self.clock.rightNow -= 1_000_000
        after = self.successResultOf(self.log.sign())
        self.assertGreater(after.head.size, before.head.size)

    def test_quorumIsServed(self) -> None:
        """All witnesses are asked at the start, and what they have cosigned is served."""
        self.assertEqual(self.served().head.size, self.size)
        self.assertEqual(self.cosigners(), ["a", "b", "c"])
        for each in self.witnesses.all.values():
            self.assertEqual(each.asked, [(0, self.size)])
        policyOf(log=self.key.verifier).check(self.served().note)

    def test_linesOfFeaturesAreCosigned(self) -> None:
        """They are signed beside the tree; and a checkpoint with them is of the chain later."""
        self.assertEqual(self.served().head.extensions, ())
        self.lines = ("svcbroker/scitt topic 2 root", "other")
        self.publish(1)
        self.rig.run(61)
        served = self.served()
        self.assertEqual(served.head.extensions, self.lines)
        self.assertEqual(self.cosigners(), ["a", "b", "c"])
        policyOf(log=self.key.verifier).check(served.note)
        self.restart()
        self.rig.run(2)
        self.assertEqual(self.served().note.text, served.note.text)

    def test_askedOnlyWhereTheLogHasGrown(self) -> None:
        """After the interval, from the size before; and not while nothing is published."""
        first = self.size
        self.rig.run(200)
        self.publish(3)
        self.rig.run(1)
        second = self.size
        self.assertEqual(self.witnesses["a"].asked, [(0, first), (first, second)])
        self.publish(1)
        self.rig.run(55)
        self.assertEqual(len(self.witnesses["a"].asked), 2)
        self.assertEqual(self.served().head.size, second)
        self.rig.run(6)
        self.assertEqual(self.witnesses["a"].asked[2:], [(second, self.size)])
        self.assertEqual(self.served().head.size, self.size)

    def test_manyBlocksAreCosignedEarlier(self) -> None:
        """Before the interval is over."""
        self.restart(blocks=5)
        for count, asked in ((1, 2), (4, 2), (1, 3)):
            self.publish(count)
            self.rig.run(2)
            self.assertEqual(len(self.witnesses["a"].asked), asked)

    def test_witnessThatHangsHoldsUpNobody(self) -> None:
        """The others make the quorum, again and again."""
        self.witnesses["a"].answer = lambda request: Deferred()
        for _ in range(3):
            self.publish(1)
            self.rig.run(61)
            self.assertEqual(self.served().head.size, self.size)
            self.assertEqual(self.cosigners(), ["b", "c"])
        self.assertEqual(len(self.witnesses["a"].asked), 2)

    def test_witnessThatIsAwayIsAskedAgainLater(self) -> None:
        """Ever later, up to ten minutes; and it goes on from where it was."""
        witness, size = self.witnesses["a"], self.size
        witness.answer = lambda request: fail(WitnessFailed("cannot be reached"))
        self.publish(1)
        times: list[float] = []
        asked = len(witness.asked)
        for _ in range(4000):
            self.clock.advance(1)
            if len(witness.asked) > asked:
                asked = len(witness.asked)
                times.append(self.clock.seconds())
        gaps = [later - earlier for earlier, later in pairwise(times)]
        self.assertEqual(gaps, sorted(gaps))
        self.assertLess(gaps[0], 3)
        self.assertTrue(MAX_DELAY / 2 <= gaps[-1] <= MAX_DELAY)
        [status] = [each for each in self.witnessing.witnesses if each.party.name == "a"]
        self.assertEqual((status.lastError, status.refusals), ("cannot be reached", 0))
        self.assertEqual(self.metrics()["svcbroker_witness_lag_blocks a"], 1)
        self.assertGreater(self.metrics()["svcbroker_witness_lag_seconds a"], 3000)
        self.clock.advance(700)
        self.assertEqual(self.alarms(), ["witness-behind a"])
        witness.answer = None
        for _ in range(700):
            self.clock.advance(1)
        self.assertEqual(witness.asked[-1], (size, self.size))
        self.assertEqual((status.lastError, status.failures, status.size), ("", 0, self.size))
        self.assertEqual(self.metrics()["svcbroker_witness_lag_seconds a"], 0)
        self.assertEqual(self.alarms(), [])
        self.assertEqual(self.cosigners(), ["a", "b", "c"])

    def test_answersThatAreNoCosignatureAreRefused(self) -> None:
        """Of another key, of another text, without a time, malformed, or with another status."""
        own, other = KEYS["a"], WitnessKey("a.example/w", b"o" * 32)
        text: list[str] = []

        def answering(make: Callable[[str], tuple[int, bytes]]) -> Any:
            return lambda request: succeed(make(request.checkpoint.text))

        for make, words in (
            (lambda text: (200, b""), "no cosignature"),
            (lambda text: (200, b"\xff\n"), "no cosignature"),
            (lambda text: (200, other.cosign(text, 5).line.encode()), "without a cosignature"),
            (lambda text: (200, own.cosign(text, 0).line.encode()), "without"),
            (lambda text: (200, own.cosign("x\n", 5).line.encode()), "not valid"),
            (lambda text: (500, b"broken\x1b[31m\nmore"), "answered 500: broken[31m"),
            (lambda text: (409, b"many\n"), "answered 409: many"),
            (lambda text: (409, b"0\n"), "changes its mind"),
        ):
            self.setUp()
            self.witnesses["a"].answer = answering(make)
            self.publish(1)
            self.rig.run(61)
            [status] = [each for each in self.witnessing.witnesses if each.party.name == "a"]
            self.assertIn(words, status.lastError)
            self.assertEqual((status.refusals, self.cosigners()), (0, ["b", "c"]))
            text.append(status.lastError)
        self.assertEqual(len(set(text)), len(text) - 1)

    def test_conflictIsFollowedOnce(self) -> None:
        """A witness that has cosigned more than is known here is asked from there."""
        size = self.size
        self.file = MetadataFile()
        self.serve()
        self.assertEqual(self.witnesses["a"].asked, [(0, size), (0, size), (size, size)])
        self.assertEqual(self.cosigners(), ["a", "b", "c"])

    def test_restartGoesOn(self) -> None:
        """Cosignatures are kept; nobody is asked again before the log has grown."""
        served, size = self.served(), self.size
        self.restart()
        self.rig.run(100)
        self.assertEqual(self.served(), served)
        self.assertEqual(self.witnesses["a"].asked, [(0, size)])
        self.publish(1)
        self.rig.run(2)
        self.assertEqual(self.witnesses["a"].asked, [(0, size), (size, self.size)])
        for kind in ("log", "log-cosigned", "log-witness"):
            for name in self.metadata.names(kind):
                self.assertEqual(logGroup(kind, name, b""), "1")

    def test_policyThatHasChangedCounts(self) -> None:
        """What has no quorum by a stricter policy is not served."""
        self.witnesses["a"].answer = lambda request: fail(WitnessFailed("is away"))
        self.publish(1)
        self.rig.run(61)
        before, size = self.served(), self.size
        self.assertEqual(before.head.size, size)
        self.restart(quorum="a")
        self.assertLess(self.served().head.size, size)
        self.restart()
        self.assertEqual(self.served(), before)

    def test_forkIsShouted(self) -> None:
        """A refusal is an error in the log and a metric; the broker goes on."""
        fork = MemoryLog(300, self.key.verifier.name)
        for name in ("a", "b"):
            self.witnesses[name].latest = fork.head(self.size)
        self.publish(1)
        with capturedLogs() as events:
            self.rig.run(120)
        shouted = [formatEvent(each) for each in events]
        for name in ("a", "b"):
            said = f"WITNESS {name} REFUSES THE LOG of group 1: it answered 422"
            self.assertTrue(any(said in each and "older backup" in each for each in shouted))
        # The others have had their quorum before.
        self.assertEqual(self.metrics()["svcbroker_witness_refusing a"], 1)
        self.assertEqual(self.metrics()["svcbroker_witness_refusing c"], 0)
        self.assertEqual(self.alarms(), ["witness-refuses a", "witness-refuses b"])
        self.assertGreater(self.metrics()["svcbroker_witness_refusals a"], 2)
        self.assertLess(self.served().head.size, self.size)
        answer = self.successResultOf(self.fixture().calls.transparency.witnesses(ANYBODY, None))
        self.assertEqual([each.isRefusing for each in answer.witnesses], [True, True, False])
        self.assertIn("answered 422", answer.witnesses[0].lastError)
        # That it is away afterwards changes nothing about that.
        self.witnesses["a"].answer = lambda request: fail(WitnessFailed("is away"))
        self.rig.run(400)
        self.assertEqual(self.witnessing.witnesses[0].lastError, "is away")
        self.assertEqual(self.metrics()["svcbroker_witness_refusing a"], 1)
        self.publish(1)

    def test_wrongBlockIsShouted(self) -> None:
        """The refusal of a witness that executes is told with what it has found."""
        answer = (422, b"block 4 does not hold\n")
        self.witnesses["c"].answer = lambda request: succeed(answer)
        self.publish(1)
        with capturedLogs() as events:
            self.rig.run(120)
        [said] = [each for each in map(formatEvent, events) if "REFUSES THE LOG" in each]
        self.assertIn("it answered 422: block 4 does not hold. This witness has executed", said)
        self.assertNotIn("older backup", said)

    def test_rolledBackLogIsShouted(self) -> None:
        """A witness that stays ahead refuses, and what was cosigned of more is set aside."""
        fork = MemoryLog(300, self.key.verifier.name)
        text = fork.head(200).text
        cosigned = [KEYS[name].cosign(text, 5) for name in NAMES]
        note = Note(text).signedBy(self.key.sign(text), *cosigned)
        self.metadata.put("log-cosigned", "1/200", b"5\n" + note.encode())
        for each in self.witnesses.all.values():
            each.latest = fork.head(200)
        size = self.size
        self.restart()
        self.assertEqual(self.served().head.size, size)
        self.assertEqual(self.metadata.names("log-forked"), ("1/200",))
        self.publish(1)
        self.rig.run(120)
        for status in self.witnessing.witnesses:
            self.assertIn("has cosigned size 200", status.lastError)
            self.assertTrue(status.isRefusing)

    def test_proofsHaveTheEarliestCosignatures(self) -> None:
        """Their time is the nearest to that of the event."""
        calls = self.fixture().calls
        policy = policyOf(log=self.key.verifier)
        self.publish(1)
        event = self.successResultOf(self.rig.receipts[-1]).eventId
        assert event is not None
        proof = self.successResultOf(calls.transparency.prove(ANYBODY, "1", event))
        # No witness has seen it yet.
        self.assertRaises(ProofInvalid, verifyWitnessed, proof.encode(), policy)
        self.rig.run(61)
        seen = self.size
        for _ in range(3):
            self.publish(1)
            self.rig.run(61)
        proof = self.successResultOf(calls.transparency.prove(ANYBODY, "1", event))
        proved = verifyWitnessed(proof.encode(), policy)
        self.assertEqual(proved.witnessed.head.size, seen)
        self.assertEqual(len(proved.witnessed.cosignatures), 3)

    def test_groupsWithoutWitnessesAreListed(self) -> None:
        """A log without a policy has none, and a group without a log is refused."""
        calls = makeFixture(ledgers={"1": self.rig.ledger}, logs={"1": self.log}).calls
        answer = self.successResultOf(calls.transparency.witnesses(ANYBODY, "1"))
        self.assertEqual((answer.size, answer.witnesses, answer.quorum), (self.size, (), ""))
        refused = calls.transparency.witnesses(ANYBODY, "2")
        self.failureResultOf(refused, ParameterInvalid)

    def test_nothingIsAskedAfterTheStop(self) -> None:
        """Requests under way are cancelled."""
        cancelled: list[Any] = []
        self.witnesses["a"].answer = lambda request: Deferred(cancelled.append)
        self.publish(1)
        self.rig.run(61)
        self.witnessing.stop()
        self.assertEqual(len(cancelled), 1)
        asked = len(self.witnesses["b"].asked)
        self.publish(1)
        self.rig.run(200)
        self.assertEqual(len(self.witnesses["b"].asked), asked)

    def fixture(self) -> Any:
        """A broker over the log."""
        return makeFixture(
            ledgers={"1": self.rig.ledger},
            logs={"1": self.log},
            witnessings={"1": self.witnessing},
        )


class ThinningTests(SynchronousTestCase):
    """
    Tests for L{CosignedCheckpoints}.
    """

    def test_oldCheckpointsAreThinned(self) -> None:
        """All of the last day, then one an hour, then one a day."""
        clock = Clock()
        metadata = MetadataStore(MetadataFile(), clock, maybeDeferred)
        cosigned = CosignedCheckpoints("1", policyOf("a"), metadata)
        log = MemoryLog(1)
        now, size, times = 0.0, 0, {}
        for step in range(40 * 24 * 2):
            now, size = step * 1800.0, size + 1
            head = TreeHead("log.example", size, bytes(32))
            note = Note(head.text).signedBy(log.key.sign(head.text))
            cosigned.propose(LogCheckpoint(head, note))
            self.assertTrue(cosigned.add(size, KEYS["a"].cosign(note.text, int(now)), now))
            times[size] = now
        kept = sorted(int(name.rpartition("/")[2]) for name in metadata.names("log-cosigned"))
        day = [each for each in kept if now - times[each] <= 86400]
        month = [each for each in kept if 86400 < now - times[each] <= 31 * 86400]
        rest = [each for each in kept if now - times[each] > 31 * 86400]
        self.assertEqual(len(day), 24 * 2 + 1)
        self.assertEqual(len(month), 30 * 24)
        self.assertIn(len(rest), (8, 9, 10))
        found = cosigned.after(1)
        assert found is not None
        self.assertEqual(found.head.size, min(each for each in kept if each > 1))
        again = CosignedCheckpoints("1", policyOf("a"), metadata)
        self.assertEqual(again.newest, cosigned.newest)
        self.assertEqual(CosignedCheckpoints("2", policyOf("a"), metadata).newest, None)

    def test_damagedCheckpointsAreLeftOut(self) -> None:
        """Those that are not notes are logged, and the one before is served."""
        metadata = MetadataStore(MetadataFile(), Clock(), maybeDeferred)
        metadata.put("log-cosigned", "1/7", b"5\nnonsense")
        self.assertIsNone(CosignedCheckpoints("1", policyOf(), metadata).newest)


class PolicyTests(SynchronousTestCase):
    """
    Tests for L{checkWitnesses}.
    """

    def test_policyNeedsWitnessesThatCanBeAsked(self) -> None:
        """A policy without witnesses, or with one without a URL, is refused."""
        checkWitnesses(policyOf())
        key = KEYS["a"].verifier.text
        for text, words in (
            ("quorum none\n", "no witness"),
            (f"witness a {key}\nquorum a\n", "no URL for the witness a"),
            (f"witness a {key} ftp://a.example\nquorum a\n", "no URL"),
        ):
            error = self.assertRaises(ValueError, checkWitnesses, Policy.parse(text.encode()))
            self.assertIn(words, str(error))
