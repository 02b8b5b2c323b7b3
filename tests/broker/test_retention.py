"""
Tests for erasing events by their age.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from twisted.internet.defer import maybeDeferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.broker import MetadataStore
from svcbroker.broker._eventerasure import erasuresOf
from svcbroker.broker.retention import (
    LONGEST_PERIOD,
    RETRY,
    Retention,
    RetentionRule,
    retentionGroup,
)
from svcbroker.errors import LedgerUnavailable
from svcbroker.interfaces import Submission
from svcbroker.model import (
    AddHold,
    CloseTopic,
    EraseEvents,
    OpenTopic,
    PublishEvent,
    ReleaseHold,
    Request,
)
from svcbroker.testing._fixtures import memoryLedger
from tests.carriers.mqtt.support import MetadataFile

HOUR = 3600


class RetentionTests(SynchronousTestCase):
    """
    Tests for L{Retention}.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.clock.advance(1_000_000)
        self.ledger = memoryLedger(self.clock, maxContent=1024)
        self.metadata = MetadataStore(MetadataFile(), self.clock, maybeDeferred)
        self.erasures: list[EraseEvents] = []
        submitMany = self.ledger.submitMany

        def note(requests: Any) -> Submission:
            self.erasures += [each for each in requests if isinstance(each, EraseEvents)]
            return submitMany(requests)

        self.ledger.submitMany = note  # type: ignore[method-assign]

    def submit(self, *requests: Request) -> None:
        """Have the ledger execute requests, each in a block of its own."""
        for request in requests:
            self.successResultOf(self.ledger.submitMany([request]).done)

    def publish(self, topic: str, *contents: bytes) -> None:
        """Publish to a topic."""
        self.submit(*(PublishEvent(topic=topic, content=content) for content in contents))

    def retain(self, **ages: int) -> Retention:
        """Retention by hours for patterns; C{_} stands for C{/#}."""
        rules = [
            RetentionRule(pattern.replace("_", "/#"), age * HOUR) for pattern, age in ages.items()
        ]
        retention = Retention(self.ledger, rules, self.metadata, self.clock, self.clock.seconds)
        self.successResultOf(retention.start())
        self.addCleanup(retention.stop)
        return retention

    def left(self) -> list[str]:
        """The contents that there are, in the order of the log."""
        found = []
        for height in range(1, self.successResultOf(self.ledger.getStatistics()).height + 1):
            block = self.successResultOf(self.ledger.readBlock(height))
            found += [event.content.decode() for event in block.events if not event.isErased]
        return found

    def test_oldEventsAreErased(self) -> None:
        """Events older than their age are erased, of matching topics, open or closed, and no
        others; later ones in their time."""
        self.submit(*(OpenTopic(topic=topic) for topic in ("a/b", "a", "b", "$a")))
        for topic in ("a/b", "a", "b", "$a"):
            self.publish(topic, topic.encode())
        self.submit(CloseTopic(topic="a"))
        self.clock.advance(HOUR)
        self.publish("a/b", b"later")
        self.retain(a_=10)
        self.clock.advance(9 * HOUR - 1)
        self.assertEqual(self.left(), ["a/b", "a", "b", "$a", "later"])
        self.clock.pump([HOUR / 10] * 2)
        self.assertEqual(self.left(), ["b", "$a", "later"])
        self.clock.pump([HOUR / 10] * 10)
        self.assertEqual(self.left(), ["b", "$a"])
        self.assertEqual(
            [each.reason for each in self.erasures], ["retain: older than 36000 s"] * 3
        )

    def test_wildcardLeavesTopicsWithDollar(self) -> None:
        """Topics that begin with a dollar sign are erased only where a pattern names them."""
        self.submit(OpenTopic(topic="$svc/audit"), OpenTopic(topic="a"))
        self.publish("$svc/audit", b"record")
        self.publish("a", b"event")
        retention = self.retain(**{"#": 1})
        self.clock.pump([HOUR] * 3)
        self.assertEqual(self.left(), ["record"])
        self.successResultOf(retention.stop())
        self.retain(**{"$svc_": 1})
        self.clock.pump([HOUR] * 3)
        self.assertEqual(self.left(), [])

    def hold(self, case: str, *patterns: str) -> None:
        """Hold the events of some topics."""
        self.submit(AddHold(case=case, account="", reason="", patterns=patterns))

    def release(self, case: str) -> None:
        """Release a hold."""
        self.submit(ReleaseHold(case=case, account="", reason=""))

    def test_heldEventsAreErasedOnceReleased(self) -> None:
        """Retention passes over held events, and comes back to them when no hold has them, also
        after a restart; the others are erased in their time."""
        self.submit(*(OpenTopic(topic=topic) for topic in ("a", "b")))
        self.publish("a", b"a1", b"a2")
        self.publish("b", b"b1")
        self.hold("one", "a")
        self.hold("two", "+")
        retention = self.retain(**{"#": 1})
        self.clock.pump([HOUR] * 2)
        self.assertEqual(self.left(), ["a1", "a2", "b1"])
        self.release("two")
        self.publish("b", b"b2")
        self.clock.pump([HOUR] * 2)
        self.assertEqual(self.left(), ["a1", "a2"])
        self.assertEqual(self.erasures[-1].topic, "b")
        self.successResultOf(retention.stop())
        self.release("one")
        retention = self.retain(**{"#": 1})
        self.clock.pump([HOUR] * 2)
        self.assertEqual(self.left(), [])
        [report] = retention.reports()
        self.assertEqual((report.erased, report.problem), (2, ""))

    def test_blocksAreReadAgainAfterReleasesAlone(self) -> None:
        """As long as nothing is released, each block is read once, whatever is held."""
        self.submit(OpenTopic(topic="a"))
        self.publish("a", *(b"%d" % number for number in range(5)))
        self.hold("one", "a")
        self.retain(a=1)
        self.clock.pump([HOUR] * 2)
        reads = []
        readBlock = self.ledger.readBlock

        def note(height: int) -> Any:
            reads.append(height)
            return readBlock(height)

        self.ledger.readBlock = note  # type: ignore[method-assign]
        self.hold("two", "a")
        self.clock.pump([HOUR] * 3)
        self.assertEqual(reads, [8])
        self.release("one")
        self.clock.pump([HOUR] * 2)
        self.assertEqual(reads[:3], [8, 2, 3])

    def test_eventsAreErasedTogether(self) -> None:
        """One erasure names the events of many blocks, and no event is erased twice, neither by
        another rule nor after a restart."""
        self.submit(OpenTopic(topic="a"))
        self.publish("a", *(b"%d" % number for number in range(40)))
        self.submit(EraseEvents(topic="a", ranges=[(5, 6)], account="", reason=""))
        self.erasures.clear()
        retention = self.retain(a=1, a_=2)
        self.clock.pump([HOUR] * 4)
        self.assertEqual([list(each.ranges) for each in self.erasures], [[(1, 4), (7, 40)]])
        self.successResultOf(retention.stop())
        self.retain(a=1, a_=2)
        with patch.object(self.ledger, "readBlock", side_effect=AssertionError):
            self.clock.pump([HOUR] * 2)
        self.retain(**{"#": 1})
        self.clock.pump([HOUR] * 2)
        self.assertEqual(len(self.erasures), 1)

    def test_erasuresAreBounded(self) -> None:
        """An erasure names no more events and ranges than it may, and a search ends there."""
        self.submit(OpenTopic(topic="a"))
        self.publish("a", *(b"%d" % number for number in range(10)))
        with patch("svcbroker.broker.retention.MAX_ERASED", 4):
            self.retain(a=1)
            self.clock.advance(2 * HOUR)
            self.assertEqual([each.ranges for each in self.erasures], [[(1, 4)]])
            self.clock.pump([1] * 3)
        found = [each.ranges for each in self.erasures]
        self.assertEqual(found, [[(1, 4)], [(5, 8)], [(9, 10)]])

        def partsOf(ranges: list[tuple[int, int]]) -> list[Any]:
            return [each.ranges for each in erasuresOf("a", ranges, "", "")]

        with patch("svcbroker.broker._eventerasure.MAX_RANGES", 2):
            parts = partsOf([(1, 1), (3, 65536), (70000, 70005), (80000, 80000)])
        self.assertEqual(parts, [[(1, 1), (3, 65536)], [(70000, 70005), (80000, 80000)]])
        self.assertEqual(partsOf([(1, 65540)]), [[(1, 65536)], [(65537, 65540)]])

    def test_failedSearchIsMadeAgain(self) -> None:
        """Where the ledger does not erase, nothing is taken for erased."""
        self.submit(OpenTopic(topic="a"))
        self.publish("a", b"event")
        submitMany = self.ledger.submitMany
        unavailable = Submission.refused(1, LedgerUnavailable("full"))
        self.ledger.submitMany = lambda requests: unavailable  # type: ignore[method-assign]
        self.retain(a=1)
        self.clock.pump([HOUR] * 2)
        self.assertEqual(self.left(), ["event"])
        self.ledger.submitMany = submitMany  # type: ignore[method-assign]
        self.clock.advance(RETRY)
        self.assertEqual(self.left(), [])

    def test_stoppedRetentionErasesNothing(self) -> None:
        """And leaves nothing with the reactor."""
        self.submit(OpenTopic(topic="a"))
        self.publish("a", b"event")
        retention = self.retain(a=1)
        self.successResultOf(retention.stop())
        self.clock.pump([LONGEST_PERIOD] * 3)
        self.assertEqual(self.left(), ["event"])

    def test_entriesOfOtherRulesAreRemoved(self) -> None:
        """What was kept of rules that are gone is removed; that of other groups stays."""
        for name in ("1/9:other", "2/9:other"):
            self.metadata.put("retention", name, b"7")
        self.retain(a=1)
        self.assertEqual(self.metadata.items("retention"), [("2/9:other", b"7")])
        self.assertEqual(retentionGroup("retention", "2/9:other", b""), "2")

    def test_reportsTellHowFarRulesAreCarriedOut(self) -> None:
        """Each age has the block up to which the log was searched, and what was erased."""
        self.submit(OpenTopic(topic="a"), OpenTopic(topic="b"))
        self.publish("a", b"1", b"2")
        retention = self.retain(b=2, a=1)
        self.clock.advance(0)
        first, second = retention.reports()
        self.assertEqual((first.patterns, first.age, first.erased), (("a",), HOUR, 0))
        self.assertEqual((second.patterns, second.age), (("b",), 2 * HOUR))
        self.assertEqual({each.height for each in (first, second)}, {0})
        self.clock.pump([HOUR] * 2)
        self.assertEqual([each.erased for each in retention.reports()], [2, 0])
        self.assertGreaterEqual(retention.reports()[0].height, 4)

    def test_reportsTellWhyASearchFailed(self) -> None:
        """Until one succeeds."""
        self.submit(OpenTopic(topic="a"))
        self.publish("a", b"event")
        submitMany = self.ledger.submitMany
        unavailable = Submission.refused(1, LedgerUnavailable("full"))
        self.ledger.submitMany = lambda requests: unavailable  # type: ignore[method-assign]
        retention = self.retain(a=1)
        self.clock.pump([HOUR] * 2)
        [report] = retention.reports()
        self.assertEqual((report.problem, report.erased, report.height), ("full", 0, 0))
        self.ledger.submitMany = submitMany  # type: ignore[method-assign]
        self.clock.advance(RETRY)
        [report] = retention.reports()
        self.assertEqual((report.problem, report.erased), ("", 1))
