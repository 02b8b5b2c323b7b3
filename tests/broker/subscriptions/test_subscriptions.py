"""
Tests of subscriptions: what arrives is exactly the matching part of the log, in order.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from svcbroker import errors
from svcbroker.access import ANYBODY, Principal, Usage
from svcbroker.access._grants import EVERYTHING
from svcbroker.broker import ISubscriptionDirectory
from svcbroker.broker.subscriptions import (
    Holder,
    KeptPositions,
    Subscriptions,
    _follower,
    _positions,
    _registry,
)
from svcbroker.broker.subscriptions._logsubscription import SUBSCRIPTION_BYTES
from svcbroker.broker.subscriptions._positions import MemoryPositions, StoredPosition
from svcbroker.interfaces import Batch, Identity, ISubscriber, ISubscription, Quotas, submit
from svcbroker.model import (
    Block,
    BlockRecord,
    CloseTopic,
    Edge,
    EraseEvents,
    Event,
    EventId,
    InterfaceType,
    Moment,
    Offset,
    OpenTopic,
    Page,
    Position,
    PublishEvent,
    SubscribeRequest,
    filterMatches,
    parseOffset,
)
from svcbroker.net.budgets import Budgets
from svcbroker.testing._fixtures import memoryLedger
from tests import examples
from tests.access.support import principalOf

UUID = "0b7b1e0c-5b7a-4c7a-9b0e-0123456789ab"
ABSENT = "00000000-1-1"
TO_COME = "00000000-1-999"


@implementer(ISubscriber)
class Reader:
    """
    Takes events, and pauses after as many batches as it is told.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.batches: list[Batch] = []
        self.left: int | None = None
        self.error: errors.BrokerError | None = None
        self.subscription: ISubscription

    def deliver(self, batch: Batch) -> None:
        self.batches.append(batch)
        self.events += batch.events
        if self.left is not None:
            self.left -= 1
            if self.left <= 0:
                self.subscription.pause()

    def subscriptionEnded(self, error: errors.BrokerError) -> None:
        self.error = error

    @property
    def contents(self) -> Sequence[bytes]:
        return [event.content for event in self.events]


HOLDER = Holder("mqtt", "m", lambda: ("t",))


class Fixture:
    """A memory ledger, subscriptions on it, and a clock."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.clock.advance(1000)
        numbers = itertools.count()
        self.ledger = memoryLedger(self.clock, maxContent=1024)
        self.positions: KeptPositions = MemoryPositions()
        self.entropy = lambda size: next(numbers).to_bytes(size, "big")
        self.restart()

    def restart(self) -> None:
        """Other subscriptions on the same ledger and positions, as after a restart."""
        self.budgets = Budgets.of(self.clock)
        self.begin()

    def begin(self, **bounds: int) -> None:
        """Start the subscriptions."""
        self.subscriptions = Subscriptions(
            {"1": self.ledger},
            self.clock,
            self.clock.seconds,
            self.entropy,
            self.positions,
            budgets=self.budgets,
            **bounds,
        )
        result(self.subscriptions.start())

    def turn(self) -> None:
        """Let everything happen that is due."""
        for _ in range(60):
            self.clock.advance(0)

    def open(self, *topics: str) -> None:
        for topic in topics:
            result(submit(self.ledger, OpenTopic(topic=topic)))

    def publish(self, topic: str, content: bytes, tag: str | None = None) -> str:
        extensions = {} if tag is None else {"svc-tag": tag}
        receipt = result(
            submit(self.ledger, PublishEvent(topic=topic, content=content, extensions=extensions))
        )
        return str(receipt.eventId)

    def subscribe(
        self,
        *filters: str,
        offset: Offset = Edge.LAST,
        tag: str | None = None,
        id: str | None = None,
        isDurable: bool = False,
        isAcknowledged: bool = False,
        mustExist: bool = False,
        flow: bool = True,
        principal: Principal = ANYBODY,
    ) -> Reader:
        reader = Reader()
        request = SubscribeRequest(
            interfaceType=InterfaceType.STOMP,
            group="1",
            filters=filters,
            offset=offset,
            tag=tag,
            subscriptionId=id,
            remote="10.0.0.1:2",
            isDurable=isDurable,
            isAcknowledged=isAcknowledged,
            mustExist=mustExist,
        )
        reader.subscription = result(self.subscriptions.subscribe(principal, request, reader))
        if flow:
            reader.subscription.resume()
        return reader


def result(answer: Deferred):  # type: ignore[no-untyped-def, type-arg]
    results: list[object] = []
    answer.addBoth(results.append)
    [value] = results
    if isinstance(value, Failure):
        value.raiseException()
    return value


class SubscriptionTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.fixture = Fixture()
        self.fixture.open("a", "b", "c/d")

    def test_interfacesAreProvided(self) -> None:
        verifyObject(ISubscriptionDirectory, self.fixture.subscriptions)
        verifyObject(ISubscription, self.fixture.subscribe("a").subscription)

    def test_liveSubscriptionsCountInBudget(self) -> None:
        """With their filters. A further one is refused, and room that one leaves is used."""
        fixture, budget = self.fixture, self.fixture.budgets.subscriptions
        first = fixture.subscribe("a", "c/#")
        self.assertEqual(budget.used, SUBSCRIPTION_BYTES + 4)
        budget.total = budget.used + 4
        self.assertRaises(errors.Overloaded, fixture.subscribe, "a", id=UUID, isDurable=True)
        self.assertEqual((fixture.positions.count(), budget.refused), (0, 1))
        self.assertEqual(budget.used, SUBSCRIPTION_BYTES + 4)
        first.subscription.close()
        self.assertEqual(budget.used, 0)
        fixture.subscribe("a")

    def test_resumedWebhooksAreNeverRefused(self) -> None:
        """They had room when they were made, and their operator does not ask again."""
        fixture, budget = self.fixture, self.fixture.budgets.subscriptions
        budget.total = 0
        request = SubscribeRequest(
            interfaceType=InterfaceType.RESTFUL, group="1", filters=("a",), isResumed=True
        )
        result(fixture.subscriptions.subscribe(ANYBODY, request, Reader()))
        self.assertEqual(budget.used, SUBSCRIPTION_BYTES + 1)

    def test_liveEventsComeInATurnOfTheirOwn(self) -> None:
        """From now on, what matches, in a turn of its own."""
        fixture = self.fixture
        fixture.publish("a", b"before")
        reader = fixture.subscribe("a", "c/#")
        for topic, content in (("a", b"1"), ("b", b"no"), ("c/d", b"2"), ("a", b"3")):
            fixture.publish(topic, content)
        self.assertEqual(reader.contents, [])
        fixture.turn()
        self.assertEqual(reader.contents, [b"1", b"2", b"3"])

    def test_blockWithoutSubscriptionsTakesNoTurn(self) -> None:
        """A subscription that comes then begins after it."""
        fixture = self.fixture
        fixture.publish("a", b"before")
        self.assertEqual(fixture.clock.getDelayedCalls(), [])
        reader = fixture.subscribe("a")
        fixture.publish("a", b"after")
        fixture.turn()
        self.assertEqual(reader.contents, [b"after"])

    def test_offsetWithinABlockThatWaitsForItsTurn(self) -> None:
        """What the block has up to the offset is not delivered once more."""
        fixture = self.fixture
        fixture.subscribe("b")
        self.patch(_follower, "MAX_BATCH_EVENTS", 2)
        # One block of five events, as ledgers make them that decide on many requests at once.
        contents = [b"%d" % number for number in range(5)]
        height = fixture.subscriptions._followers["1"].height + 1
        events = [
            Event(topic="a", content=c, extensions={}, eventId=EventId("0", n + 1, height), index=n)
            for n, c in enumerate(contents)
        ]
        block = Block(height=height, timestamp=7, hash=bytes(32), events=events)
        fixture.subscriptions._followers["1"].blockCommitted(block)
        readers = [
            [fixture.subscribe(*filters, offset=event.position) for event in events]
            for filters in (("a",), ("+",), ("a", "b"))
        ]
        fixture.turn()
        for alike in readers:
            for number, reader in enumerate(alike, 1):
                self.assertEqual(reader.contents, contents[number:])

    def test_offsetsChooseTheFirstEvent(self) -> None:
        """From the first event, after an event, from a block, from now."""
        fixture = self.fixture
        ids = [fixture.publish("ab"[n % 2], b"%d" % n) for n in range(6)]
        height = int(ids[3].rpartition("-")[2])
        for text, first in (
            ("OFFSET_FIRST", 0),
            (ids[0], 1),
            (ids[3], 4),
            (str(height), 3),
            ("0", 0),
            ("OFFSET_LAST", 6),
            ("", 6),
        ):
            offset = parseOffset(text)
            readers = [
                fixture.subscribe("+", offset=offset),
                fixture.subscribe("a", "b", offset=offset),
            ]
            fixture.turn()
            for reader in readers:
                self.assertEqual(reader.contents, [b"%d" % n for n in range(first, 6)], text)
                reader.subscription.close()

    def test_timesChooseTheFirstBlockNotBefore(self) -> None:
        """Of blocks of the same time it is the first one; after the last time, the next block."""
        fixture = self.fixture
        for number in range(10):
            if number % 3 == 0:
                fixture.clock.advance(1)
            fixture.publish("a", b"%d" % number)
        # The blocks' times are 1001, 1002, 1003 and 1004 seconds.
        for text, first in (
            ("0", 0),
            ("1001000", 0),
            ("1001001", 3),
            ("1002000", 3),
            ("1970-01-01T00:16:43Z", 6),
            ("1970-01-01T01:16:43.000+01:00", 6),
            ("1970-01-01T00:16:43.0001Z", 9),
            ("1004000", 9),
            ("1004001", 10),
            ("9" * 18, 10),
            ("0001-01-01T00:00:00Z", 0),
        ):
            reader = fixture.subscribe("a", offset=parseOffset(f"OFFSET_TIME:{text}"))
            fixture.turn()
            self.assertEqual(reader.contents, [b"%d" % n for n in range(first, 10)], text)
            reader.subscription.close()
        last = fixture.subscribe("a", offset=parseOffset("OFFSET_TIME:1004001"))
        fixture.publish("a", b"next")
        fixture.turn()
        self.assertEqual(last.contents, [b"next"])

    def test_timeOfAnEmptyChainIsItsNextBlock(self) -> None:
        fixture = Fixture()
        reader = fixture.subscribe("+", offset=Moment(0))
        fixture.open("a")
        fixture.publish("a", b"1")
        fixture.turn()
        self.assertEqual(reader.contents, [b"1"])

    def test_timeIsFoundWhereFirstBlocksAreAbsent(self) -> None:
        """It is never one of the absent blocks, and takes a logarithm of the chain's height."""
        fixture = self.fixture
        for number in range(100):
            fixture.publish("a", b"%d" % number)
            fixture.clock.advance(1)
        listBlocks, heights = fixture.ledger.listBlocks, list[int]()

        def pruned(offset: int, limit: int, *, height: int) -> Deferred[Page[BlockRecord]]:
            heights.append(height)
            if height <= 50:
                return succeed(Page(total=0, items=()))
            return listBlocks(offset, limit, height=height)

        self.patch(fixture.ledger, "listBlocks", pruned)
        # The first block of an event has height 4, and the time 1000.
        for seconds, height in ((0, 51), (1000, 51), (1046.5, 51), (1047.001, 52), (1090, 94)):
            heights.clear()
            moment = Moment(int(seconds * 1000))
            located = result(fixture.subscriptions.locate("1", moment))
            self.assertEqual(located, Position(height, -1), seconds)
            self.assertLessEqual(len(heights), 7)

    def test_timesAreReadAsRFC3339(self) -> None:
        for text, milliseconds in (
            ("0", 0),
            ("1795334400123", 1795334400123),
            ("2026-11-22T08:00:00Z", 1795334400000),
            ("2026-11-22t08:00:00z", 1795334400000),
            ("2026-11-22 08:00:00.5Z", 1795334400500),
            ("2026-11-22T08:00:00.123456Z", 1795334400124),
            ("2026-11-22T09:30:00+01:30", 1795334400000),
            ("2026-11-22T00:00:00-08:00", 1795334400000),
            ("2016-12-31T23:59:60Z", 1483228800000),
            ("1969-12-31T23:59:59.5Z", -500),
        ):
            self.assertEqual(parseOffset(f"OFFSET_TIME:{text}"), Moment(milliseconds), text)
        for text in (
            *("", "x", "-1", "1.5", "1" * 19, "2026-11-22", "2026-11-22T08:00:00"),
            *("2026-11-22T08:00:00 01:00", "2026-13-22T08:00:00Z", "2026-02-29T08:00:00Z"),
            *("2026-11-22T24:00:00Z", "2026-11-22T08:00:61Z", "2026-11-22T08:00:00+24:00"),
            *("2026-11-22T08:00:00.Z", "0000-01-01T00:00:00Z", "2026-11-22T08:00Z", " 1"),
        ):
            with self.assertRaisesRegex(errors.ParameterInvalid, "RFC 3339"):
                parseOffset(f"OFFSET_TIME:{text}")

    def test_refusedSubscriptionLeavesNothing(self) -> None:
        """What cannot be subscribed to is said, and leaves nothing behind."""
        fixture = self.fixture
        fixture.subscribe("a", id=UUID)
        for error, subscribe in (
            (errors.TopicNotFound, lambda: fixture.subscribe("nowhere", mustExist=True)),
            (errors.PatternInvalid, lambda: fixture.subscribe("a#")),
            (errors.TopicBlank, lambda: fixture.subscribe("")),
            (errors.SubscriptionIdInvalid, lambda: fixture.subscribe("a", id="x")),
            (errors.SubscriptionExists, lambda: fixture.subscribe("a", id=UUID)),
            (errors.EventNotFound, lambda: fixture.subscribe("a", offset=parseOffset(ABSENT))),
            (errors.EventNotFound, lambda: fixture.subscribe("a", offset=parseOffset(TO_COME))),
            (errors.HeightUnknown, lambda: fixture.subscribe("a", offset=Position(999, -1))),
        ):
            self.assertRaises(error, subscribe)
        self.assertEqual(len(result(fixture.subscriptions.listSubscriptions(ANYBODY, None))), 1)
        for text in ("x", "-1", "OFFSET_MIDDLE", "1" * 19, "1.5"):
            with self.assertRaises(errors.EventIdInvalid):
                parseOffset(text)

    def test_ofSeveralTopicsTheMissingOneIsNamed(self) -> None:
        with self.assertRaisesRegex(errors.TopicNotFound, "^topic does not exist: nowhere$"):
            self.fixture.subscribe("a", "nowhere", mustExist=True)
        with self.assertRaisesRegex(errors.TopicNotFound, "^topic does not exist$"):
            self.fixture.subscribe("nowhere", mustExist=True)

    def test_offsetsTellNothingOfEventsThatMayNotBeRead(self) -> None:
        fixture = self.fixture
        secret = parseOffset(fixture.publish("b", b"x"))
        mine = parseOffset(fixture.publish("a", b"y"))
        ann = principalOf("subscribe 1 a")
        for offset in (secret, parseOffset(ABSENT), parseOffset(TO_COME)):
            with self.assertRaises(errors.EventNotFound):
                fixture.subscribe("a", offset=offset, principal=ann)
        fixture.subscribe("a", offset=mine, principal=ann)

    def test_blankGroup(self) -> None:
        """No group means the default one, also for what is kept of it."""
        request = SubscribeRequest(
            interfaceType=InterfaceType.STOMP,
            group=" ",
            filters=("a",),
            subscriptionId=UUID,
            isDurable=True,
        )
        subscription = result(self.fixture.subscriptions.subscribe(ANYBODY, request, Reader()))
        self.assertEqual(subscription.request.group, "1")
        self.assertIsNotNone(self.fixture.positions.get(UUID, "1"))

    def test_closedTopic(self) -> None:
        """A plain topic must be open where it must exist; its past can be read all the same."""
        fixture = self.fixture
        fixture.publish("a", b"1")
        result(submit(fixture.ledger, CloseTopic(topic="a")))
        with self.assertRaises(errors.TopicNotFound):
            fixture.subscribe("a", mustExist=True)
        reader = fixture.subscribe("#", offset=Edge.FIRST)
        fixture.turn()
        self.assertEqual(reader.contents, [b"1"])

    def test_onlyTaggedEventsAreDelivered(self) -> None:
        """Only events of the tag, from the past and live."""
        fixture = self.fixture
        fixture.publish("a", b"1", tag="x")
        fixture.publish("a", b"2")
        reader = fixture.subscribe("a", offset=Edge.FIRST, tag="x")
        fixture.turn()
        fixture.publish("a", b"3", tag="y")
        fixture.publish("a", b"4", tag="x")
        fixture.turn()
        self.assertEqual(reader.contents, [b"1", b"4"])

    def test_slowReader(self) -> None:
        """A reader that pauses falls behind, keeps nothing, and misses nothing."""
        fixture = self.fixture
        reader = fixture.subscribe("a")
        reader.left = 1
        for n in range(20):
            fixture.publish("a", b"%d" % n)
            fixture.turn()
        self.assertEqual(reader.contents, [b"0"])
        [record] = result(fixture.subscriptions.listSubscriptions(ANYBODY, "1"))
        self.assertEqual((record.notified, record.notifying), (1, 19))
        reader.left = None
        reader.subscription.resume()
        fixture.turn()
        self.assertEqual(reader.contents, [b"%d" % n for n in range(20)])
        [record] = result(fixture.subscriptions.listSubscriptions(ANYBODY, "1"))
        self.assertEqual((record.notified, record.notifying), (20, 0))

    def test_subscriptionsAreListedInSteps(self) -> None:
        """Those that end meanwhile are left out."""
        self.patch(_registry, "LISTED_AT_ONCE", 2)
        readers = [self.fixture.subscribe("a") for _ in range(5)]
        listing = self.fixture.subscriptions.listSubscriptions(ANYBODY, "1")
        self.assertNoResult(listing)
        readers[3].subscription.close()
        self.fixture.turn()
        listed = [each.subscriptionId for each in self.successResultOf(listing)]
        del readers[3]
        self.assertEqual(listed, [each.subscription.subscriptionId for each in readers])

    def test_blocksWithoutSubscribersAreDropped(self) -> None:
        """Where nobody subscribes, blocks pass by and nothing of them is kept."""
        fixture = self.fixture
        follower = fixture.subscriptions._followers["1"]
        follower._cache.clear()
        fixture.publish("a", b"1")
        fixture.turn()
        self.assertEqual(len(follower._cache), 0)
        reader = fixture.subscribe("a", offset=Edge.FIRST)
        fixture.turn()
        follower._cache.clear()
        fixture.publish("a", b"2")
        fixture.turn()
        self.assertEqual(reader.contents, [b"1", b"2"])
        self.assertEqual(len(follower._cache), 1)
        for _ in range(2):
            reader.subscription.close()
        fixture.publish("a", b"3")
        fixture.turn()
        self.assertEqual(len(follower._cache), 1)

    def test_erasedEventsAreReadAgain(self) -> None:
        """What was read before an erasure is not given to who reads later."""
        fixture = self.fixture
        follower = fixture.subscriptions._followers["1"]
        fixture.subscribe("a")
        height = EventId.parse(fixture.publish("a", b"gone")).height
        fixture.turn()
        erasure = EraseEvents(topic="a", ranges=[(1, 1)], account="", reason="asked for")
        fixture.ledger.submitMany([erasure])
        fixture.turn()
        [event] = result(follower.readBlock(height)).events
        self.assertEqual((event.content, event.isErased), (b"", True))

    def test_batchesAreBounded(self) -> None:
        """The events of one block come in batches of bounded size, whole."""
        fixture = self.fixture
        reader = fixture.subscribe("a")
        for count, batches in ((1000, [1000]), (1001, [1000, 1]), (300, [256, 44])):
            content = bytes(1024 if count == 300 else 0)
            del reader.batches[:]
            events = [
                Event(topic="a", content=content, extensions={}, eventId=EventId("0", n + 1, 1))
                for n in range(count)
            ]
            block = Block(height=1_000_000, timestamp=7, hash=bytes(32), events=events)
            size = count * len(content)
            fixture.subscriptions._followers["1"].dispatcher.dispatch(block, size)
            self.assertEqual([len(batch.events) for batch in reader.batches], batches)

    def test_batchesHaveTheTimesOfTheirBlocks(self) -> None:
        """Those that are live, found by the index, and found block by block."""
        fixture = self.fixture
        restricted = principalOf("subscribe 1 a")

        def readers() -> Sequence[Reader]:
            return [
                *(fixture.subscribe(filter, offset=Edge.FIRST) for filter in ("a", "+")),
                fixture.subscribe("+", offset=Edge.FIRST, principal=restricted),
            ]

        live = readers()
        for number in range(3):
            fixture.clock.advance(1)
            fixture.publish("a", b"%d" % number)
        fixture.turn()
        fixture.restart()
        past = readers()
        fixture.turn()
        for reader in (*live, *past):
            times = [batch.timestamp for batch in reader.batches]
            self.assertEqual(times, [1_001_000, 1_002_000, 1_003_000])

    def test_equalSubscriptionsShareBatches(self) -> None:
        """Those who subscribe to the same are given the same batch, encoded once."""
        fixture = self.fixture
        readers = [fixture.subscribe("a") for _ in range(3)]
        fixture.publish("a", b"1")
        fixture.turn()
        first = readers[0].batches[0]
        self.assertTrue(all(reader.batches[0] is first for reader in readers))
        made: list[Sequence[Event]] = []

        def encode(events: Sequence[Event]) -> bytes:
            made.append(events)
            return b"x"

        for reader in readers:
            self.assertEqual(reader.batches[0].encoded("form", encode), b"x")
        self.assertEqual(len(made), 1)

    def test_slowAndLeavingSubscribersHarmNoOther(self) -> None:
        """Ten thousand who wait, one who never reads and one who comes and goes harm nobody, and
        nothing is left of those who have gone."""
        fixture = self.fixture
        idle = [fixture.subscribe(f"idle/{n}", "idle/+/x") for n in range(10_000)]
        deaf = fixture.subscribe("a", flow=False)
        reader = fixture.subscribe("a")
        for n in range(100):
            restless = fixture.subscribe("a", offset=Edge.FIRST)
            fixture.publish("a", b"%d" % n)
            fixture.clock.advance(0)
            restless.subscription.close()
        fixture.turn()
        self.assertEqual(reader.contents, [b"%d" % n for n in range(100)])
        self.assertEqual((deaf.batches, [each for each in idle if each.batches]), ([], []))
        for each in (*idle, deaf, reader):
            each.subscription.close()
        fixture.turn()
        follower = fixture.subscriptions._followers["1"]
        self.assertEqual(follower.dispatcher._audiences, {})
        self.assertEqual(follower.dispatcher._trie._plain, {})
        self.assertEqual(fixture.clock.getDelayedCalls(), [])

    def test_closeInDelivery(self) -> None:
        """Who ends a subscription in the middle of a block gets nothing more."""
        fixture = self.fixture
        leaving, stayer = fixture.subscribe("a"), fixture.subscribe("a")
        leaving.deliver = lambda batch: stayer.subscription.close()  # type: ignore[method-assign]
        fixture.publish("a", b"1")
        fixture.publish("a", b"2")
        fixture.turn()
        self.assertEqual(stayer.contents, [])

    def test_damagedIndexEndsSubscription(self) -> None:
        """An index that leads to other blocks leaves out events."""
        fixture = self.fixture
        fixture.publish("a", b"1")
        fixture.publish("b", b"2")
        fixture.turn()
        height = fixture.subscriptions._followers["1"].height
        self.patch(fixture.ledger, "findBlocks", lambda *args: succeed([height]))
        reader = fixture.subscribe("a", offset=Edge.FIRST)
        with capturedLogs() as events:
            fixture.turn()
        self.assertEqual(reader.contents, [])
        self.assertIsInstance(reader.error, errors.LedgerUnavailable)
        [line] = map(formatEvent, events)
        self.assertIn(f"the index of group 1 is damaged: block {height}", line)

    def test_ledgerFails(self) -> None:
        """A log that cannot be read ends the subscription, with the reason."""
        fixture = self.fixture
        fixture.publish("a", b"1")
        fixture.turn()
        reader = fixture.subscribe("a", offset=Edge.FIRST, flow=False)
        fixture.subscriptions._followers["1"]._cache.clear()
        failing = errors.LedgerUnavailable()

        def readBlock(height: int) -> Deferred[object]:
            raise failing

        self.patch(fixture.ledger, "readBlock", readBlock)
        reader.subscription.resume()
        fixture.turn()
        self.assertIs(reader.error, failing)
        self.assertEqual(self.flushLoggedErrors(), [])
        self.assertEqual(result(fixture.subscriptions.listSubscriptions(ANYBODY, None)), [])

    # Acknowledgement and resuming.

    def durable(self) -> Reader:
        """The one durable reader of a topic."""
        return self.fixture.subscribe("a", id=UUID, isDurable=True, isAcknowledged=True)

    def test_durableSubscriptionResumes(self) -> None:
        """A durable subscription resumes with what was not acknowledged, in order, leaving out
        what was acknowledged beyond it."""
        fixture = self.fixture
        reader = self.durable()
        for n in range(6):
            fixture.publish("a", b"%d" % n)
        fixture.turn()
        events = reader.events
        reader.subscription.acknowledge([events[0], events[1], events[3]])
        [record] = result(fixture.subscriptions.listSubscriptions(ANYBODY, None))
        self.assertEqual((record.notified, record.notifying), (3, 3))
        fixture.subscriptions.stop()
        fixture.publish("a", b"6")
        fixture.restart()
        again = self.durable()
        fixture.turn()
        self.assertEqual(again.contents, [b"2", b"4", b"5", b"6"])
        again.subscription.acknowledge(again.events)
        again.subscription.acknowledge(again.events)
        [record] = result(fixture.subscriptions.listSubscriptions(ANYBODY, None))
        self.assertEqual((record.notified, record.notifying), (4, 0))

    def test_onDiskFirst(self) -> None:
        """A durable subscription is on disk before its client is told of it."""
        flushed: Deferred[None] = Deferred()
        self.patch(self.fixture.positions, "flush", lambda: flushed)
        request = SubscribeRequest(
            interfaceType=InterfaceType.STOMP, group="1", filters=("a",), isDurable=True
        )
        subscribed = self.fixture.subscriptions.subscribe(ANYBODY, request, Reader())
        self.assertNoResult(subscribed)
        self.assertEqual(self.fixture.positions.count(), 1)
        flushed.callback(None)
        self.successResultOf(subscribed)

    def test_accountThatEndsMeanwhileGetsNoSubscription(self) -> None:
        """A webhook subscribes again as soon as its account is back."""
        flushed: Deferred[None] = Deferred()
        self.patch(self.fixture.positions, "flush", lambda: flushed)
        ann = principalOf("subscribe 1 #")
        request = SubscribeRequest(
            interfaceType=InterfaceType.STOMP, group="1", filters=("a",), isDurable=True
        )
        subscribed = self.fixture.subscriptions.subscribe(ann, request, Reader())
        ann.revoke()
        flushed.callback(None)
        self.failureResultOf(subscribed, errors.NotAuthenticated)
        self.assertEqual(ann.usage.used("subscriptions"), 0)

    def test_olderLog(self) -> None:
        """A position beyond the log's end, as after restoring a backup, misses nothing new."""
        fixture = self.fixture
        beyond = StoredPosition(Position(1000, 3), (Position(1000, 5),))
        fixture.positions.make(UUID, "1", beyond, owner="10.0.0.1", day=0)
        reader = self.durable()
        fixture.publish("a", b"1")
        fixture.turn()
        self.assertEqual(reader.contents, [b"1"])
        self.assertLess(reader.subscription.position, beyond.position)

    def test_tooMany(self) -> None:
        """Positions are bounded; those that are kept still resume."""
        self.durable().subscription.close()
        self.patch(_positions, "MAX_POSITIONS", 1)
        with self.assertRaises(errors.Overloaded):
            self.fixture.subscribe("a", isDurable=True)
        self.durable()

    def test_accountsHaveAsManyAsTheirQuota(self) -> None:
        """Those of sessions and webhooks do not count; one that is known resumes."""
        fixture = self.fixture
        usage = Usage(Quotas(sessions=1), fixture.clock.seconds)
        ann = Principal(Identity(name="ann", grants=EVERYTHING), usage)
        first, second, held = (f"0b7b1e0c-5b7a-4c7a-9b0e-00000000000{n}" for n in "123")
        fixture.subscriptions.hold(held, HOLDER)
        for id in (held, first, first):
            fixture.subscribe("a", id=id, isDurable=True, principal=ann).subscription.close()
        with self.assertRaises(errors.QuotaExceeded):
            fixture.subscribe("a", id=second, isDurable=True, principal=ann)
        fixture.subscribe("a", id=second, principal=ann)
        self.durable()
        fixture.subscriptions.forget(first)
        fixture.subscribe("b", isDurable=True, principal=ann)

    def test_whatIsAcknowledgedBeyondStaysSo(self) -> None:
        """Through several comings, in each of which another event behind the first is done."""
        fixture = self.fixture
        reader = self.durable()
        for n in range(6):
            fixture.publish("a", b"%d" % n)
        fixture.turn()
        for done, left in zip("13250", ("02345", "0245", "045", "04", "4"), strict=True):
            place = reader.contents.index(done.encode())
            reader.subscription.acknowledge([reader.events[place]])
            reader.subscription.close()
            reader = self.durable()
            fixture.turn()
            self.assertEqual(b"".join(reader.contents).decode(), left)
            reader.subscription.rewind()
            reader.events.clear()
            fixture.turn()
            self.assertEqual(b"".join(reader.contents).decode(), left)
        reader.subscription.acknowledge(reader.events)
        reader.subscription.close()
        reader = self.durable()
        fixture.turn()
        self.assertEqual(reader.contents, [])

    def test_acknowledgementsAreStoredTogether(self) -> None:
        """Many acknowledgements are one change of what is kept."""
        fixture = self.fixture
        reader = self.durable()
        for n in range(50):
            fixture.publish("a", b"%d" % n)
        fixture.turn()
        puts: list[StoredPosition] = []
        self.patch(fixture.positions, "move", lambda id, position, day: puts.append(position))
        for event in reader.events[:30]:
            reader.subscription.acknowledge([event])
        fixture.clock.advance(1)
        self.assertEqual(puts, [StoredPosition(Position(reader.events[30].eventId.height, -1))])

    def test_positionsAreStoredInSteps(self) -> None:
        """One takes milliseconds where 10,000 events were acknowledged beyond the first."""
        fixture, positions = self.fixture, self.fixture.positions
        stored: list[str] = []

        def move(subscriptionId: str, position: StoredPosition, day: int) -> None:
            fixture.clock.rightNow += 0.004
            stored.append(subscriptionId)

        ids = [f"{UUID[:-1]}{number}" for number in range(6)]
        readers = [
            fixture.subscribe("a", id=each, isDurable=True, isAcknowledged=True) for each in ids
        ]
        fixture.publish("a", b"1")
        fixture.turn()
        fixture.clock.advance(1)
        self.patch(positions, "move", move)
        for reader in readers:
            reader.subscription.acknowledge(reader.events)
        fixture.clock.advance(_registry.GATHER)
        self.assertEqual(stored, ids[:2])
        fixture.clock.advance(_registry.GATHER)
        self.assertEqual(stored, ids[:4])
        # One that ends meanwhile is stored at once.
        readers[4].subscription.close()
        self.assertEqual(stored, ids[:5])
        fixture.clock.advance(1)
        self.assertEqual(stored, ids)

    def test_forgottenPositionIsNotResumed(self) -> None:
        """A forgotten position is not resumed."""
        fixture = self.fixture
        reader = self.durable()
        fixture.publish("a", b"1")
        fixture.turn()
        reader.subscription.close(forget=True)
        again = self.durable()
        fixture.turn()
        self.assertEqual(again.contents, [])

    def test_rewindRedeliversUnacknowledged(self) -> None:
        """What was not acknowledged is handed over again, before anything else."""
        fixture = self.fixture
        reader = fixture.subscribe("a", isAcknowledged=True)
        for n in range(4):
            fixture.publish("a", b"%d" % n)
        fixture.turn()
        reader.subscription.acknowledge([reader.events[1]])
        reader.subscription.rewind()
        fixture.publish("a", b"4")
        fixture.turn()
        self.assertEqual(reader.contents[4:], [b"0", b"2", b"3", b"4"])


class LogMachine(RuleBasedStateMachine):
    """
    Random publishes, pauses, closes and restarts. Whatever happens, a reader has got exactly
    the matching part of the log from where it began, in order.
    """

    FILTERS = (("a",), ("a", "b"), ("#",), ("a/+",), ("+", "a/#"), ("a/b", "b"))
    TOPICS = ("a", "b", "a/b", "a/c")

    def __init__(self) -> None:
        super().__init__()
        self.fixture = Fixture()
        self.fixture.open(*self.TOPICS)
        self.published: list[tuple[str, bytes]] = []
        self.readers: list[tuple[Reader, tuple[str, ...], int]] = []
        self.durable: list[bytes] = []
        self.durableReader: Reader | None = None

    @rule(topic=st.sampled_from(TOPICS), size=st.integers(0, 3))
    def publish(self, topic: str, size: int) -> None:
        content = b"%d" % len(self.published) + b"x" * size * 100_000
        self.fixture.publish(topic, content)
        self.published.append((topic, content))

    @rule(
        filters=st.sampled_from(FILTERS),
        fromFirst=st.booleans(),
        left=st.one_of(st.none(), st.integers(1, 3)),
    )
    def subscribe(self, filters: tuple[str, ...], fromFirst: bool, left: int | None) -> None:
        offset = Edge.FIRST if fromFirst else Edge.LAST
        self.fixture.turn()
        reader = self.fixture.subscribe(*filters, offset=offset, flow=False)
        reader.left = left
        reader.subscription.resume()
        start = 0 if fromFirst else len(self.published)
        self.readers.append((reader, filters, start))

    @precondition(lambda self: self.readers)
    @rule(data=st.data(), left=st.one_of(st.none(), st.integers(1, 3)))
    def goOn(self, data: st.DataObject, left: int | None) -> None:
        reader, _, _ = data.draw(st.sampled_from(self.readers))
        reader.left = left
        reader.subscription.resume()

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def pause(self, data: st.DataObject) -> None:
        reader, _, _ = data.draw(st.sampled_from(self.readers))
        reader.subscription.pause()

    @rule(steps=st.integers(1, 5))
    def turn(self, steps: int) -> None:
        for _ in range(steps):
            self.fixture.clock.advance(0)

    @rule(acknowledged=st.integers(0, 4), isCrash=st.booleans())
    def durableReads(self, acknowledged: int, isCrash: bool) -> None:
        """One durable reader of everything that acknowledges some, and goes."""
        reader = self.fixture.subscribe(
            "#", offset=Edge.FIRST, id=UUID, isDurable=True, isAcknowledged=True
        )
        self.fixture.turn()
        missing = [content for _, content in self.published][len(self.durable) :]
        assert reader.contents == missing, (reader.contents, missing)
        taken = reader.events[:acknowledged]
        reader.subscription.acknowledge(taken)
        self.durable += [event.content for event in taken]
        reader.subscription.close()

    @invariant()
    def inOrder(self) -> None:
        for reader, filters, start in self.readers:
            expected = self.expected(filters, start)
            assert reader.contents == expected[: len(reader.contents)]

    def expected(self, filters: tuple[str, ...], start: int) -> Sequence[bytes]:
        return [
            content
            for topic, content in self.published[start:]
            if any(filterMatches(filter, topic) for filter in filters)
        ]

    def teardown(self) -> None:
        for reader, filters, start in self.readers:
            reader.left = None
            reader.subscription.resume()
            for _ in range(20):
                self.fixture.turn()
            assert reader.contents == self.expected(filters, start)
        self.fixture.subscriptions.stop()


class LogTests(SynchronousTestCase):
    def test_randomSubscribersMissNothing(self) -> None:
        """See L{LogMachine}."""
        machine = LogMachine.TestCase
        machine.settings = settings(
            max_examples=examples(60), stateful_step_count=30, deadline=None
        )
        machine("runTest").debug()
