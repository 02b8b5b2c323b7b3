"""
Retained messages: section 3.3.1.3 of both specifications, retain handling of MQTT 5.
"""

from __future__ import annotations

from .client import MqttClient
from .packets import PUBLISH, V5, Packet, Property
from .support import MqttTestCase


class RetainedTests(MqttTestCase):
    """
    Both versions.
    """

    def keep(self, name: str, payload: bytes, qos: int = 1, **more: object) -> None:
        """Publish with RETAIN."""
        publisher = self.client()
        publisher.publish(self.topic(name), payload, qos, retain=True, **more)
        publisher.ping()
        publisher.leave()

    def late(self, *filters: str | tuple[str, int], qos: int = 2) -> MqttClient:
        """A subscriber that comes when all is published."""
        client = self.client()
        client.subscribe(*filters, qos=qos)
        return client

    def assertKept(self, packets: list[Packet], *expected: tuple[str, bytes]) -> None:
        """These are retained messages of these topics, in any order."""
        self.assertEqual([each.retain for each in packets], [True] * len(packets))
        got = sorted((each.topic, each.payload) for each in packets)
        self.assertEqual(got, sorted((self.topic(name), text) for name, text in expected))

    def test_retainedIsSentWithFlag(self) -> None:
        """[MQTT-3.3.1-5] [MQTT-3.3.1-6] [MQTT-3.3.1-8] The last one comes, with RETAIN."""
        self.keep("a", b"1")
        client = self.late(self.topic("a"))
        self.assertKept([client.message()], ("a", b"1"))
        self.assertNothing(client)

    def test_lowerQosCounts(self) -> None:
        """[MQTT-3.8.4-6] Its QoS is the smaller of both, as ever."""
        for qos in range(3):
            self.keep(str(qos), b"x", qos)
        for granted in range(3):
            packets = self.late(self.topic("#"), qos=granted).messages(3)
            got = {each.topic[-1]: each.qos for each in packets}
            self.assertEqual(got, {str(qos): min(qos, granted) for qos in range(3)})

    def test_lastRetainedReplaces(self) -> None:
        """[MQTT-3.3.1-5] [MQTT5-3.3.1-5] Only the last one is kept, whatever its QoS."""
        for number, qos in enumerate((2, 1, 0)):
            self.keep("a", str(number).encode(), qos)
            client = self.late(self.topic("a"))
            self.assertKept([client.message()], ("a", str(number).encode()))
            self.assertNothing(client)

    def test_emptyPayloadClears(self) -> None:
        """[MQTT-3.3.1-10] [MQTT-3.3.1-11] [MQTT5-3.3.1-6] An empty one clears, and is not kept."""
        for qos in range(3):
            self.keep("a", b"1")
            self.keep("a", b"", qos)
            self.assertNothing(self.late(self.topic("a")))

    def test_subscribersSeeTheClearing(self) -> None:
        """[MQTT-3.3.1-10] Who is subscribed already gets the empty one, as a live message."""
        self.keep("a", b"1")
        client = self.late(self.topic("a"))
        client.message()
        self.keep("a", b"")
        packet = client.message()
        self.assertEqual((packet.payload, packet.retain), (b"", False))

    def test_nothingToClearIsHarmless(self) -> None:
        """[MQTT-3.3.1-11] There may be nothing to clear."""
        self.keep("a", b"")
        self.assertNothing(self.late(self.topic("a")))

    def test_messageWithoutRetainIsNotKept(self) -> None:
        """[MQTT-3.3.1-12] [MQTT5-3.3.1-8] What has no RETAIN is not kept, and replaces nothing."""
        publisher = self.client()
        publisher.publish(self.topic("never"), b"x", 1)
        self.keep("a", b"1")
        publisher.publish(self.topic("a"), b"2", 1)
        publisher.publish(self.topic("a"), b"", 1)
        client = self.late(self.topic("#"))
        self.assertKept([client.message()], ("a", b"1"))
        self.assertNothing(client)

    def test_filterGetsEveryMatchingTopic(self) -> None:
        """[MQTT-3.3.1-6] A filter gets the last one of each topic that it matches."""
        for name in ("a", "a/b", "a/b/c", "d"):
            self.keep(name, name.encode())
        client = self.late(self.topic("a/#"))
        expected = (("a", b"a"), ("a/b", b"a/b"), ("a/b/c", b"a/b/c"))
        self.assertKept(client.messages(3), *expected)
        self.assertNothing(client)
        client = self.late(self.topic("+"))
        self.assertKept(client.messages(2), ("a", b"a"), ("d", b"d"))
        self.assertNothing(client)
        client = self.late(self.topic("+/b/+"))
        self.assertKept(client.messages(1), ("a/b/c", b"a/b/c"))
        self.assertNothing(client)

    def test_eachFilterGetsItsOwn(self) -> None:
        """[MQTT-3.8.4-4] Each filter of a SUBSCRIBE gets its own."""
        self.keep("a", b"1")
        self.keep("b", b"2")
        client = self.late(self.topic("a"), self.topic("b"))
        self.assertKept(client.messages(2), ("a", b"1"), ("b", b"2"))
        self.assertNothing(client)

    def test_subscribingAgainRepeatsRetained(self) -> None:
        """[MQTT-3.8.4-3] Who subscribes again gets it again."""
        self.keep("a", b"1")
        client = self.late(self.topic("a"))
        client.message()
        client.subscribe(self.topic("a"))
        self.assertKept([client.message()], ("a", b"1"))
        client.unsubscribe(self.topic("a"))
        client.subscribe(self.topic("a"))
        self.assertKept([client.message()], ("a", b"1"))

    def test_resumedSessionGetsNoRetained(self) -> None:
        """[MQTT-3.3.1-6] Who comes back to its session does not subscribe: nothing comes."""
        client = self.persistent("s")
        client.subscribe(self.topic("a"))
        client.leave()
        self.keep("a", b"1")
        client = self.persistent("s")
        packet = client.message()
        self.assertEqual((packet.payload, packet.retain), (b"1", False))
        client.leave()
        client = self.persistent("s")
        self.assertNothing(client)

    def test_retainedSurvivesPublisher(self) -> None:
        """[MQTT-3.1.2-7] It is not part of the publisher's session."""
        publisher = self.persistent("s")
        publisher.publish(self.topic("a"), b"1", 1, retain=True)
        publisher.leave()
        self.client("s", clean=True).leave()
        self.assertKept([self.late(self.topic("a")).message()], ("a", b"1"))

    def test_liveFollowsRetainedInOrder(self) -> None:
        """[MQTT-3.3.1-9] After the retained one come live ones, in order, without RETAIN."""
        self.keep("a", b"0")
        client = self.late(self.topic("a"))
        publisher = self.client()
        for number in range(1, 10):
            publisher.publish(self.topic("a"), str(number).encode(), 1, retain=number % 2 == 0)
        packets = client.messages(10)
        self.assertEqual([int(each.payload) for each in packets], list(range(10)))
        self.assertEqual([each.retain for each in packets], [True] + [False] * 9)
        self.assertNothing(client)

    def test_wildcardsHideDollarTopics(self) -> None:
        """[MQTT-4.7.2-1] Wildcards at the beginning do not find retained $-topics."""
        topic = f"$kept/{self.prefix}"
        self.client().publish(topic, b"x", 0, retain=True)
        client = self.late("#", f"+/{self.prefix}")
        got = [each for each in client.settle() if each.topic.startswith("$")]
        self.assertEqual(got, [])
        self.assertEqual(self.late("$kept/#").message().topic, topic)

    def test_unacknowledgedRetainedIsRepeated(self) -> None:
        """[MQTT-4.4.0-1] One that was not acknowledged comes again, with RETAIN and DUP."""
        self.keep("a", b"1")
        client = self.persistent("s")
        client.subscribe(self.topic("a"))
        first = client.expect(PUBLISH)
        client.close()
        client = self.persistent("s")
        again = client.message()
        self.assertEqual(again.packetId, first.packetId)
        self.assertEqual((again.payload, again.dup, again.retain), (b"1", True, True))
        self.assertNothing(client)

    def test_everyRetainedTopicComesOnce(self) -> None:
        """[MQTT-3.3.1-6] A hundred topics, each once."""
        publisher = self.client()
        for number in range(100):
            publisher.publish(self.topic(f"m/{number}"), str(number).encode(), 0, retain=True)
        publisher.ping()
        client = self.late(self.topic("m/+"), qos=1)
        got = sorted(int(each.payload) for each in client.messages(100))
        self.assertEqual(got, list(range(100)))
        self.assertNothing(client)


class Retained5Tests(RetainedTests):
    """
    What both versions have, with 5; retain handling and retain as published, section 3.8.3.1.
    """

    version = V5

    def test_retainAsPublishedKeepsFlag(self) -> None:
        """[MQTT5-3.3.1-13] Retain As Published: live ones keep the flag."""
        client = self.late((self.topic("a"), 0x08 | 1))
        publisher = self.client()
        publisher.publish(self.topic("a"), b"1", 1, retain=True)
        publisher.publish(self.topic("a"), b"2", 1)
        packets = client.messages(2)
        self.assertEqual([each.retain for each in packets], [True, False])

    def test_flagIsClearedOtherwise(self) -> None:
        """[MQTT5-3.3.1-12] Without it they lose it; what is retained always has it."""
        self.keep("a", b"0")
        client = self.late((self.topic("a"), 1))
        self.assertTrue(client.message().retain)
        self.keep("a", b"1")
        self.assertFalse(client.message().retain)

    def test_handling0SendsAlways(self) -> None:
        """[MQTT5-3.3.1-9] Retain handling 0: with every SUBSCRIBE."""
        self.keep("a", b"1")
        client = self.late((self.topic("a"), 0x00))
        self.assertKept([client.message()], ("a", b"1"))
        client.subscribe((self.topic("a"), 0x00))
        self.assertKept([client.message()], ("a", b"1"))

    def test_handling1SendsOnlyIfNew(self) -> None:
        """[MQTT5-3.3.1-10] Retain handling 1: only where there was no such subscription."""
        self.keep("a", b"1")
        client = self.late((self.topic("a"), 0x10))
        self.assertKept([client.message()], ("a", b"1"))
        client.subscribe((self.topic("a"), 0x11))
        self.assertNothing(client)
        client.unsubscribe(self.topic("a"))
        client.subscribe((self.topic("a"), 0x10))
        self.assertKept([client.message()], ("a", b"1"))

    def test_resumedSubscriptionIsNotNew(self) -> None:
        """[MQTT5-3.3.1-10] A subscription of a session that was resumed is not new."""
        self.keep("a", b"1")
        client = self.persistent("s")
        client.subscribe((self.topic("a"), 0x11))
        client.message()
        client.leave()
        client = self.persistent("s")
        client.subscribe((self.topic("a"), 0x11))
        self.assertNothing(client)

    def test_handling2SendsNever(self) -> None:
        """[MQTT5-3.3.1-11] Retain handling 2: never; live ones come."""
        self.keep("a", b"1")
        client = self.late((self.topic("a"), 0x20))
        self.assertNothing(client)
        self.keep("a", b"2")
        self.assertEqual(client.message().payload, b"2")

    def test_sharedSubscriptionsGetNoRetained(self) -> None:
        """Section 4.8.2: a shared subscription gets no retained messages."""
        self.notForeign("mosquitto 2.0.11 sends them")
        self.keep("a", b"1")
        client = self.late(f"$share/g/{self.topic('a')}")
        self.assertNothing(client)
        self.keep("a", b"2")
        self.assertEqual(client.message().payload, b"2")

    def test_noLocalLeavesOutOwnRetained(self) -> None:
        """Section 3.8.3.1: No Local is about its own messages, retained ones of others come."""
        self.keep("a", b"1")
        client = self.late((self.topic("a"), 0x04))
        self.assertKept([client.message()], ("a", b"1"))
        client.publish(self.topic("a"), b"own", 1, retain=True)
        client.subscribe((self.topic("a"), 0x04))
        if not self.broker.isForeign:
            self.assertNothing(client)

    def test_propertiesAreKept(self) -> None:
        """[MQTT5-3.3.2-17] Section 3.3.2.3: its properties are kept with it."""
        items: list[Property] = [
            ("payloadFormat", 1),
            ("contentType", "text/plain"),
            ("responseTopic", "reply"),
            ("correlationData", b"\0\xff"),
            ("userProperty", ("b", "1")),
            ("userProperty", ("a", "2")),
        ]
        self.keep("a", b"1", properties_=items)
        packet = self.late(self.topic("a")).message()
        for name, value in items[:4]:
            self.assertEqual(packet.get(name), value)
        self.assertEqual(packet.user, [("b", "1"), ("a", "2")])

    def test_subscriptionIdIsAdded(self) -> None:
        """[MQTT5-3.3.4-3] It carries the identifier of the subscription that it came for."""
        self.keep("a", b"1")
        client = self.client()
        client.subscribe(self.topic("a"), properties_=[("subscriptionId", 9)])
        self.assertEqual(client.message().all("subscriptionId"), [9])

    def test_retainedAgesAndExpires(self) -> None:
        """[MQTT5-3.3.2-5] [MQTT5-3.3.2-6] It ages, and is gone when it has expired."""
        self.keep("a", b"1", properties_=[("messageExpiry", 100)])
        self.keep("b", b"2", properties_=[("messageExpiry", 2)])
        packet = self.late(self.topic("b")).message()
        self.assertIn(packet.get("messageExpiry"), (1, 2))
        self.broker.sleep(2.6)
        client = self.late(self.topic("+"))
        packet = client.message()
        self.assertEqual(packet.payload, b"1")
        self.assertIn(packet.get("messageExpiry"), (95, 96, 97, 98))
        self.assertNothing(client)
