"""
Retained messages and wills.
"""

from __future__ import annotations

import tracemalloc
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.access import ANYBODY
from svcbroker.broker import MetadataStore
from svcbroker.carriers.mqtt.codec import encode
from svcbroker.carriers.mqtt.context import REPLAY_STEPS, MqttSettings
from svcbroker.carriers.mqtt.fields import Properties, ReasonCode
from svcbroker.carriers.mqtt.messages import RETAIN
from svcbroker.carriers.mqtt.packets import (
    MQTT_5,
    MQTT_311,
    Puback,
    Publish,
    Subscribe,
    TopicSubscription,
    Will,
)
from svcbroker.carriers.mqtt.retained import RetainedIndex
from svcbroker.errors import LedgerUnavailable, Overloaded
from svcbroker.interfaces import submit
from svcbroker.model import (
    Block,
    EraseEvents,
    Event,
    EventId,
    OpenTopic,
    PublishEvent,
    filterMatches,
)
from svcbroker.testing._fixtures import ScriptedLedger, memoryLedger

from .support import Client, MetadataFile, Server

VERSIONS = (MQTT_311, MQTT_5)


class RetainedTests(SynchronousTestCase):
    """
    Retained messages.
    """

    def retained(self, client: Client, topicFilter: str, **options: Any) -> list[bytes]:
        """The payloads of the retained messages that a subscription gets."""
        client.subscribe(topicFilter, 2, **options)
        messages = client.takeMessages()
        self.assertTrue(all(each.retain for each in messages))
        return [each.payload for each in messages]

    def test_eventWithExtensionIsRetained(self) -> None:
        """The log says it all: an event with the extension is retained."""
        server = Server()
        server.event("t", b"x", svc_retain="1")
        self.assertEqual(self.retained(server.connected(), "t"), [b"x"])

    def test_retainedSurviveRestart(self) -> None:
        """They are still there after a restart, and so is what was published meanwhile."""
        server = Server()
        publisher = server.connected("p")
        publisher.publish("a", b"1", 1, retain=True)
        publisher.publish("b", b"2", 1, retain=True)
        server.wait(1)
        server.crash()
        server.event("b", b"", svc_retain="1")
        server.event("c", b"3", svc_retain="1")
        server = Server(None, server.file, server.ledgers, server.clock)
        self.assertEqual(self.retained(server.connected(), "#"), [b"1", b"3"])

    def test_erasedMessageIsNotRetained(self) -> None:
        """A message whose content was erased is not sent any more, before and after a restart."""
        server = Server()
        for topic, content in (("a", b"1"), ("b", b"2"), ("c", b"3")):
            server.event(topic, content, svc_retain="1")
        erasing = EraseEvents(topic="b", ranges=[(1, 1)], account="", reason="asked")
        submit(server.ledger, erasing)
        self.assertEqual(self.retained(server.connected(), "#"), [b"1", b"3"])
        self.assertEqual(self.retained(server.connected("d"), "b"), [])
        server.crash()
        server = Server(None, server.file, server.ledgers, server.clock)
        self.assertEqual(self.retained(server.connected(), "#"), [b"1", b"3"])

    def test_olderLogIsReadAnew(self) -> None:
        """A log that was put back from a backup is read anew."""
        server = Server()
        server.connected("p").publish("a", b"1", 1, retain=True)
        server.wait(1)
        server.crash()
        server = Server(None, server.file)
        self.assertEqual(self.retained(server.connected(), "#"), [])
        server.connected("p").publish("b", b"2", 1, retain=True)
        self.assertEqual(self.retained(server.connected(), "#"), [b"2"])

    def test_retainedFlowThroughSmallWindow(self) -> None:
        """Many arrive through a small window."""
        server = Server(MqttSettings(sendMaximum=3))
        publisher = server.connected("p")
        for number in range(50):
            publisher.publish(f"t/{number}", b"%d" % number, 1, retain=True)
        client = server.connected()
        client.subscribe("t/+", 1)
        server.event("t/x", b"live")
        payloads = client.payloads()
        self.assertEqual(payloads, [*(b"%d" % number for number in range(50)), b"live"])

    def test_retainedTopicsAreBounded(self) -> None:
        """There is a bound on topics with one; those that have one get new ones."""
        server = Server(MqttSettings(maxRetainedBytes=900))
        publisher = server.connected("p")
        publisher.publish("a", b"1", 1, retain=True)
        publisher.publish("a", b"2", 1, retain=True)
        publisher.send(Publish("b", b"3", 1, True, packetId=1))
        puback = publisher.takeOne(Puback)
        self.assertEqual(puback.reason, ReasonCode.QUOTA_EXCEEDED)
        self.assertIn("no room for another retained message", puback.properties.reasonString)
        publisher.publish("a", b"", 1, retain=True)
        publisher.publish("b", b"4", 1, retain=True)
        self.assertEqual(self.retained(server.connected(), "#"), [b"4"])

    def test_boundHoldsOverAllGroups(self) -> None:
        """What one group has in its index, others have not."""
        server = Server(MqttSettings(maxRetainedBytes=900))
        context = server.carrier.context
        self.assertEqual(context.maxRetained("2"), 900)
        server.connected("p").publish("a", b"1", 1, retain=True)
        self.assertEqual(context.maxRetained("2"), 900 - context.retained["1"].size)
        self.assertEqual(context.maxRetained("1"), 900)
        other = context.retained["2"]
        self.assertRaises(Overloaded, other.checkRoom, ANYBODY, "b", context.maxRetained("2"))

    def replaying(self, count: int) -> tuple[Server, Client]:
        """A broker with retained messages, and a client that asks for them again and again."""
        server = Server()
        publisher = server.connected("p")
        for number in range(count):
            publisher.publish(f"t/{number}", b"x", retain=True)
        client = server.connected()
        wanted = Subscribe(1, (TopicSubscription("#"),))
        client.protocol.dataReceived(encode(wanted, MQTT_5) * 100)
        return server, client

    def test_replaysAreCutIntoSlices(self) -> None:
        """However many are asked for, one turn of the reactor sends a bounded number."""
        server, client = self.replaying(3 * REPLAY_STEPS)
        sent = []
        while server.turn():
            client.look()
            sent.append(sum(isinstance(each, Publish) for each in client.packets))
            client.packets.clear()
        # The slice of one turn may be written with that of the next.
        self.assertLessEqual(max(sent), 2 * REPLAY_STEPS)
        self.assertGreaterEqual(sum(sent), 3 * REPLAY_STEPS)

    def test_replayWaitsForItsReader(self) -> None:
        """A client that does not read is sent no more of a replay."""
        server, client = self.replaying(300)
        client.protocol.transport.producer.pauseProducing()
        server.pump()
        client.look()
        paused = len(client.packets)
        server.pump()
        client.look()
        self.assertEqual(len(client.packets), paused)
        client.protocol.transport.producer.resumeProducing()
        server.pump()
        client.look()
        self.assertGreater(len(client.packets), paused)

    def test_clientMayLeaveDuringReplay(self) -> None:
        """A client that goes while they are sent does no harm."""
        server = Server(MqttSettings(sendMaximum=3))
        publisher = server.connected("p")
        for number in range(10):
            publisher.publish(f"t/{number}", b"x", 1, retain=True)
        client = server.connected()
        client.subscribe("t/+", 1)
        client.lose()
        self.assertEqual(self.retained(server.connected("d"), "t/1"), [b"x"])


topics = st.lists(st.sampled_from(["a", "b", "", "$x"]), min_size=1, max_size=3).map("/".join)
filters = st.lists(st.sampled_from(["a", "b", "", "$x", "+"]), min_size=0, max_size=3).flatmap(
    lambda levels: st.sampled_from(["/".join(levels) or "+", "/".join([*levels, "#"])])
)


class IndexTests(SynchronousTestCase):
    """
    The index of retained messages.
    """

    @given(st.lists(st.tuples(topics, st.booleans()), max_size=20), filters)
    def test_matchesEqualTheModel(self, changes: list[tuple[str, bool]], topicFilter: str) -> None:
        """It finds exactly what the filter matches, whatever was set and removed before."""
        clock = Clock()
        metadata = MetadataStore(MetadataFile(), clock, maybeDeferred)
        index = RetainedIndex(memoryLedger(clock), metadata, clock)
        expected: dict[str, EventId] = {}
        for number, (topic, isSet) in enumerate(changes, 1):
            if isSet:
                expected[topic] = EventId("00000000", 1, number)
                index._set(topic, expected[topic])
            else:
                expected.pop(topic, None)
                index._remove(topic)
        self.assertEqual(len(index), len(expected))
        found = [each for topic, each in expected.items() if filterMatches(topicFilter, topic)]
        found.sort(key=lambda eventId: eventId.height)
        self.assertEqual(
            sorted(filter(None, index.match(topicFilter)), key=lambda each: each.height), found
        )
        self.assertEqual(all(index.has(topic) for topic in expected), True)

    def test_deepTopicsCostWhatIsSaid(self) -> None:
        """The index takes no more memory than it says, however deep the topics are."""
        clock = Clock()
        index = RetainedIndex(
            memoryLedger(clock), MetadataStore(MetadataFile(), clock, maybeDeferred), clock
        )
        topics = [f"{'a/' * 120}{number:04}/{'b/' * 5}" for number in range(2000)]
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        before, _ = tracemalloc.get_traced_memory()
        for number, topic in enumerate(topics, 1):
            index._set(topic, EventId("00000000", 1, number))
        after, _ = tracemalloc.get_traced_memory()
        self.assertLess(after - before, index.size)
        for topic in topics:
            index._remove(topic)
        self.assertEqual((index.size, len(index)), (0, 0))

    def test_blocksWithoutRetainedAreSkipped(self) -> None:
        """Blocks that surely hold none are not read."""
        read: list[int] = []

        class Reader(ScriptedLedger):
            def mayHold(self, height: int, extension: str) -> Deferred[bool]:
                return succeed(extension == RETAIN and height in (3, 5))

            def readBlock(self, height: int) -> Deferred[Block]:
                read.append(height)
                block: Deferred[Block] = super().readBlock(height)
                return block

        clock = Clock()
        ledger = Reader(memoryLedger(clock))
        submit(ledger, OpenTopic(topic="t"))
        clock.advance(1)
        for number in range(2, 7):
            extensions = {RETAIN: "1"} if number == 3 else {}
            submit(ledger, PublishEvent(topic="t", content=b"x", extensions=extensions))
            clock.advance(1)
        index = RetainedIndex(ledger, MetadataStore(MetadataFile(), clock, maybeDeferred), clock)
        self.successResultOf(index.start())
        self.assertEqual((read, index.height), ([3, 5], 6))
        self.assertEqual([each.height for each in index.match("#") if each is not None], [3])

    def test_growingLogIsCaughtUpWith(self) -> None:
        """For each block that is read, the log grows by another: an engine replays its blocks."""
        clock = Clock()

        class Growing(ScriptedLedger):
            def readBlock(self, height: int) -> Deferred[Block]:
                if height < 500:
                    self.publish()
                block: Deferred[Block] = super().readBlock(height)
                return block

            def publish(self) -> None:
                event = PublishEvent(topic="t", content=b"x", extensions={RETAIN: "1"})
                submit(self, event)
                clock.advance(1)

        ledger = Growing(memoryLedger(clock))
        submit(ledger, OpenTopic(topic="t"))
        clock.advance(1)
        for behind in (5, 50):
            for _ in range(behind):
                ledger.publish()
            index = RetainedIndex(
                ledger, MetadataStore(MetadataFile(), clock, maybeDeferred), clock
            )
            started = index.start()
            clock.pump([0] * 20)
            self.successResultOf(started)
            height = self.successResultOf(ledger.getStatistics()).height
            self.assertLess(height, 500)
            ledger.publish()
            self.assertEqual(index.height, height + 1)
            (found,) = index.match("t")
            assert found is not None
            self.assertEqual(found.height, height + 1)

    def test_heightIsKeptAfterManyEvents(self) -> None:
        """How far the log was followed is kept by events too: blocks may be large."""
        clock, file = Clock(), MetadataFile()
        metadata = MetadataStore(file, clock, maybeDeferred)
        ledger = memoryLedger(clock)
        index = RetainedIndex(ledger, metadata, clock)
        self.successResultOf(index.start())
        events = [
            Event(topic="t", content=b"x", extensions={}, eventId=EventId("0" * 8, number, 1))
            for number in range(1, 10_001)
        ]
        heights = []
        for height in range(1, 12):
            index.blockCommitted(Block(height=height, timestamp=0, hash=b"", events=events))
            clock.advance(1)
            heights.append(file.kept.get(("mqtt-followed", ledger.group)))
        self.assertEqual(heights, [None] * 4 + [b"5"] * 5 + [b"10"] * 2)


class WillTests(SynchronousTestCase):
    """
    Wills.
    """

    def test_willIsRetainedWithProperties(self) -> None:
        """It is a message like any other: retained, with properties."""
        server = Server()
        reader = server.connected("r")
        reader.subscribe("will", retainAsPublished=True)
        properties = Properties(contentType="x/y", userProperties=(("a", "1"),))
        server.connected("a", will=Will("will", b"gone", 0, True, properties)).lose()
        (message,) = reader.takeMessages()
        self.assertEqual(message.properties.contentType, "x/y")
        self.assertEqual(message.properties.userProperties[0], ("a", "1"))
        self.assertTrue(message.retain)
        late = server.connected("late")
        late.subscribe("will")
        self.assertEqual(late.payloads(), [b"gone"])

    def test_unpublishableWillIsDropped(self) -> None:
        """A will that cannot be published is logged, and nothing else."""
        server = Server()
        client = server.connected("a", will=Will("will", b"gone"))
        server.ledger.error = LedgerUnavailable()
        client.lose()
        self.assertEqual(len(server.carrier.sessions), 0)

    def test_stopPublishesDueWills(self) -> None:
        """An orderly stop publishes what is due; what waits is published after the next start."""
        server = Server()
        delayed = Will("will", b"delayed", properties=Properties(willDelayInterval=10))
        server.connected("a", will=delayed, expiry=100).lose()
        client = server.connected("b", will=Will("will", b"gone"))
        drained = server.carrier.drain()
        client.lose()
        self.successResultOf(drained)
        self.assertEqual(server.ledger.submitted[-1].content, b"gone")
        self.assertEqual(server.clock.getDelayedCalls(), [])
        server = server.restarted()
        server.wait(9)
        self.assertEqual(server.ledger.submitted[-1].content, b"gone")
        server.wait(2)
        self.assertEqual(server.ledger.submitted[-1].content, b"delayed")

    def test_impossibleWillIsRefused(self) -> None:
        """A will that the log would not take is refused at CONNECT."""
        server = Server(MqttSettings(maxContent=1000))
        properties = Properties(userProperties=(("k", "v" * 9000),))
        for will, reason in (
            (Will("will", b"x" * 1001), ReasonCode.QUOTA_EXCEEDED),
            (Will("will", b"x", properties=properties), ReasonCode.QUOTA_EXCEEDED),
            (Will("\t", b"x"), ReasonCode.TOPIC_NAME_INVALID),
        ):
            self.assertEqual(server.client().connect("a", will=will).reason, reason)
        old = server.client(MQTT_311)
        self.assertEqual(old.connect("a", will=Will("will", b"x" * 1001)).reason, 3)
        self.assertEqual(len(server.carrier.sessions), 0)

    def test_largeWillIsPublished(self) -> None:
        """A will may be as large as its packet allows."""
        server = Server()
        server.connected("a", will=Will("will", b"x" * 60_000)).lose()
        (will,) = (each for each in server.ledger.submitted if isinstance(each, PublishEvent))
        self.assertEqual(len(will.content), 60_000)

    def test_unreadableWillIsSkipped(self) -> None:
        """One that cannot be read keeps neither the broker from starting nor others from it."""
        server = Server()
        server.connected("a", will=Will("will", b"good", 1))
        server.wait(1)
        server.file.kept["mqtt-will", "1/damaged"] = b"{}"
        server = server.restarted()
        self.assertEqual(server.ledger.submitted[-1].content, b"good")
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def test_delayEndsWithSessionAfterCrash(self) -> None:
        """A delayed will waits no longer than its session, also after a crash."""
        server = Server()
        delayed = Will("will", b"gone", 1, properties=Properties(willDelayInterval=100))
        server.connected("a", will=delayed, expiry=5)
        server.connected("b", will=delayed)
        server.wait(1)
        server = server.restarted()
        self.assertEqual(len(server.published()), 1)
        server.wait(6)
        self.assertEqual(len(server.published()), 2)

    def test_willIsPublishedAfterCrash(self) -> None:
        """A client that was connected when the broker broke down is gone when it is back."""
        server = Server()
        server.connected("a", will=Will("will", b"at once", 1, True))
        server.connected("b", will=Will("will", b"taken back")).disconnect()
        server.wait(1)
        server = server.restarted()
        contents = [getattr(each, "content", None) for each in server.ledger.submitted]
        self.assertEqual(contents, [None, b"at once"])
        server.wait(1)
        server = server.restarted()
        self.assertEqual(len(server.ledger.submitted), 2)
        reader = server.connected("r")
        reader.subscribe("will", 1)
        (message,) = reader.takeMessages()
        self.assertEqual((message.payload, message.retain), (b"at once", True))
