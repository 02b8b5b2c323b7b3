"""
MQTT subscriptions: section 3.8 to 3.11 and 4.7 of both specifications.
"""

from __future__ import annotations

from .client import Closed, MqttClient
from .packets import (
    PUBACK,
    PUBLISH,
    PUBREL,
    SUBACK,
    UNSUBACK,
    V5,
    ack,
    publish,
    subscribe,
    unsubscribe,
)
from .support import MqttTestCase

INVALID = ("", "a#", "#a", "a/#/b", "#/", "a/b#", "a+", "+a", "a/+b", "a/b+/c", "a/##", "++")

# Filter, and the topics of TOPICS that it matches; below a prefix of the test.
TOPICS = ("a", "a/b", "a/b/c", "a/", "a//c", "/a", "b", "a/c")
MATCHES = {
    "a": ("a",),
    "a/b": ("a/b",),
    "+": ("a", "b"),
    "a/+": ("a/b", "a/", "a/c"),
    "a/+/c": ("a/b/c", "a//c"),
    "+/+": ("a/b", "a/", "/a", "a/c"),
    "/+": ("/a",),
    "+/b/+": ("a/b/c",),
    "a/#": ("a", "a/b", "a/b/c", "a/", "a//c", "a/c"),
    "a/b/#": ("a/b", "a/b/c"),
    "+/b/#": ("a/b", "a/b/c"),
    "a/+/#": ("a/b", "a/b/c", "a/", "a//c", "a/c"),
    "#": TOPICS,
    "+/#": TOPICS,
    "/#": ("/a",),
    "A": (),
    "c": (),
}


class SubscribeTests(MqttTestCase):
    """
    Both versions.
    """

    def test_subackAnswersEachFilter(self) -> None:
        """[MQTT-3.8.4-1] [MQTT-3.8.4-2] [MQTT-3.8.4-5] [MQTT-3.9.3-1] A code for each, in order."""
        client = self.client()
        filters = [(self.topic(str(each)), each % 3) for each in range(7)]
        client.send(subscribe(self.version, 0xFFFF, filters))
        answer = client.expect(SUBACK)
        self.assertEqual(answer.packetId, 0xFFFF)
        self.assertEqual(answer.codes, (0, 1, 2, 0, 1, 2, 0))

    def test_wildcardsMatchWholeLevels(self) -> None:
        """[MQTT-4.7.1-1] [MQTT-4.7.1-2] [MQTT-4.7.1-3] Wildcards match whole levels."""
        client, publisher = self.client(), self.client()
        for pattern, expected in MATCHES.items():
            client.subscribe(self.topic(pattern), qos=0)
            for name in TOPICS:
                publisher.publish(self.topic(name), pattern.encode(), 1)
            got = [each.topic for each in client.settle()]
            self.assertEqual(sorted(got), sorted(map(self.topic, expected)), pattern)
            client.unsubscribe(self.topic(pattern))

    def test_wildcardsHideDollarTopics(self) -> None:
        """[MQTT-4.7.2-1] A wildcard at the beginning matches no topic that begins with $."""
        client, publisher = self.client(), self.client()
        client.subscribe("#", "+/#", f"+/{self.prefix}", qos=0)
        publisher.publish(f"$hidden/{self.prefix}", b"x")
        publisher.ping()
        got = [each for each in client.settle() if each.topic.startswith("$")]
        self.assertEqual(got, [])

    def test_dollarTopicsAreFoundByName(self) -> None:
        """Section 4.7.2: who names them gets them."""
        client = self.client()
        client.subscribe("$hidden/#", qos=0)
        client.publish(f"$hidden/{self.prefix}", b"x")
        self.assertEqual([each.topic for each in client.settle()], [f"$hidden/{self.prefix}"])

    def test_hashMatchesEverything(self) -> None:
        """[MQTT-4.7.1-2] # alone matches every topic."""
        client = self.client()
        client.subscribe("#", qos=0)
        topic = self.topic("a/b/c")
        client.publish(topic, b"x", 1)
        self.assertIn(topic, [each.topic for each in client.settle()])

    def test_invalidFilterIsRefused(self) -> None:
        """[MQTT-4.7.1-2] [MQTT-4.7.1-3] [MQTT-4.7.3-1] Filters that there are not."""
        for pattern in INVALID:
            client = self.client()
            client.send(subscribe(self.version, 1, [(pattern, 0)]))
            try:
                answer = client.receive()
            except Closed:
                continue
            if answer.kind == SUBACK:
                self.assertIn(answer.code, (0x8F, 0x80), pattern)
            else:
                self.assertIn(answer.code, (0x81, 0x82, 0x8F), pattern)
                self.assertRaises(Closed, client.receive)

    def test_earlierMessagesDoNotCome(self) -> None:
        """Section 3.8.4: what was published before SUBSCRIBE does not come."""
        client, publisher = self.client(), self.client()
        publisher.publish(self.topic("a"), b"early", 1)
        client.subscribe(self.topic("a"))
        publisher.publish(self.topic("a"), b"late", 1)
        self.assertEqual(client.message().payload, b"late")
        self.assertNothing(client)

    def test_sameFilterReplaces(self) -> None:
        """[MQTT-3.8.4-3] [MQTT5-3.8.4-3] The same filter again replaces; each comes once."""
        client, publisher = self.client(), self.client()
        for qos in (2, 0, 1):
            self.assertEqual(client.subscribe(self.topic("a"), qos=qos).codes, (qos,))
            publisher.publish(self.topic("a"), b"x", 2)
            self.assertEqual(client.message().qos, qos)
            self.assertNothing(client)

    def test_replacingLosesNothing(self) -> None:
        """[MQTT-3.8.4-3] [MQTT5-3.8.4-4] The flow of messages is not interrupted."""
        client, publisher = self.client(), self.client()
        client.subscribe(self.topic("a"), qos=0)
        for number in range(40):
            publisher.publish(self.topic("a"), str(number).encode(), 1)
            if number % 10 == 5:
                client.subscribe(self.topic("a"), qos=0)
        got = [int(each.payload) for each in client.messages(40)]
        self.assertEqual(got, list(range(40)))
        self.assertNothing(client)

    def test_overlappingFiltersDeliver(self) -> None:
        """[MQTT-3.3.5-1] [MQTT5-3.3.4-2] Several that match: one copy or more, the best QoS."""
        client, publisher = self.client(), self.client()
        client.subscribe((self.topic("a/b"), 0), (self.topic("a/+"), 2), (self.topic("#"), 1))
        publisher.publish(self.topic("a/b"), b"x", 2)
        copies = [client.message()]
        copies += client.settle()
        for each in copies[1:]:
            client.complete(each)
        self.assertIn(len(copies), (1, 2, 3))
        self.assertEqual({each.payload for each in copies}, {b"x"})
        self.notForeign("mosquitto 2.0.11 takes the first one's QoS with 3.1.1")
        self.assertEqual([each.qos for each in copies], [2])

    def test_lastOfEqualFiltersCounts(self) -> None:
        """[MQTT-3.8.4-4] A SUBSCRIBE is as if its filters came one by one: the last counts."""
        client, publisher = self.client(), self.client()
        answer = client.subscribe((self.topic("a"), 0), (self.topic("a"), 1))
        self.assertEqual(answer.codes, (0, 1))
        publisher.publish(self.topic("a"), b"x", 1)
        self.assertEqual(client.message().qos, 1)
        self.assertNothing(client)

    def test_manyFiltersAreAnswered(self) -> None:
        """[MQTT-3.8.4-4] A hundred filters in one packet."""
        client = self.client()
        answer = client.subscribe(*(self.topic(str(each)) for each in range(100)), qos=1)
        self.assertEqual(answer.codes, (1,) * 100)
        client.publish(self.topic("99"), b"x", 1)
        self.assertEqual(client.message().topic, self.topic("99"))

    def test_unsubscribeEndsDelivery(self) -> None:
        """[MQTT-3.10.4-2] [MQTT-3.10.4-4] [MQTT-2.3.1-7] Nothing comes after UNSUBACK."""
        client, publisher = self.client(), self.client()
        client.subscribe(self.topic("a"), self.topic("b"))
        client.send(unsubscribe(self.version, 0xFFFF, [self.topic("a")]))
        answer = client.expect(UNSUBACK)
        self.assertEqual(answer.packetId, 0xFFFF)
        self.assertEqual(answer.codes, (0,) if self.version == V5 else ())
        publisher.publish(self.topic("a"), b"x", 2)
        publisher.publish(self.topic("b"), b"y", 2)
        self.assertEqual(client.message().payload, b"y")
        self.assertNothing(client)

    def test_unsubscribeComparesExactly(self) -> None:
        """[MQTT-3.10.4-1] A filter is compared character by character, and matches nothing."""
        client = self.client()
        client.subscribe(self.topic("a/b"))
        client.unsubscribe(self.topic("a/+"), self.topic("#"), self.topic("a/B"))
        client.publish(self.topic("a/b"), b"x", 1)
        self.assertEqual(client.message().payload, b"x")

    def test_unknownUnsubscribeIsAnswered(self) -> None:
        """[MQTT-3.10.4-5] There is an answer, even where there was no subscription."""
        answer = self.client().unsubscribe(self.topic("a"), self.topic("b"))
        self.assertEqual(answer.codes, (0x11, 0x11) if self.version == V5 else ())

    def test_unsubackAnswersEachFilter(self) -> None:
        """[MQTT-3.10.4-6] [MQTT5-3.11.3-1] One answer, a code for each, in order."""
        client = self.client()
        client.subscribe(self.topic("a"), self.topic("c"))
        answer = client.unsubscribe(*map(self.topic, "abc"))
        self.assertEqual(answer.codes, (0, 0x11, 0) if self.version == V5 else ())
        client.publish(self.topic("a"), b"x", 1)
        client.publish(self.topic("c"), b"x", 1)
        self.assertNothing(client)

    def test_inFlightIsCompletedAfterUnsubscribe(self) -> None:
        """[MQTT-3.10.4-3] What is on its way with QoS 1 or 2 is completed."""
        client = self.client()
        client.subscribe(self.topic("a"))
        publisher = self.client()
        publisher.publish(self.topic("a"), b"1", 1)
        publisher.publish(self.topic("a"), b"2", 2)
        packets = [client.expect(PUBLISH), client.expect(PUBLISH)]
        client.unsubscribe(self.topic("a"))
        for packet in packets:
            client.complete(packet)
        self.assertNothing(client)

    def test_othersKeepTheirSubscriptions(self) -> None:
        """Section 3.10.4: what one client ends, another one keeps."""
        one, other = self.client(), self.client()
        one.subscribe(self.topic("a"))
        other.subscribe(self.topic("a"))
        one.unsubscribe(self.topic("a"))
        other.publish(self.topic("a"), b"x", 1)
        self.assertEqual(other.message().payload, b"x")
        self.assertNothing(one)

    def test_publishBehindSubscribeIsDelivered(self) -> None:
        """Section 3.8.4: SUBSCRIBE and PUBLISH in one write: the message is for it."""
        client = self.client()
        client.send(
            subscribe(self.version, 1, [(self.topic("a"), 0)])
            + publish(self.version, self.topic("a"), b"x", qos=1, packetId=2)
        )
        kinds = sorted(client.receive().kind for _ in range(3))
        self.assertEqual(kinds, [PUBLISH, PUBACK, SUBACK])


class Subscribe5Tests(SubscribeTests):
    """
    What both versions have, with 5; and the options and properties of SUBSCRIBE.
    """

    version = V5

    def identified(self, *pairs: tuple[str, int], options: int = 2) -> MqttClient:
        """A client with subscriptions that have identifiers."""
        client = self.client()
        for name, number in pairs:
            items = [("subscriptionId", number)]
            client.subscribe((self.topic(name), options), properties_=items)
        return client

    def test_noLocalHidesOwnMessages(self) -> None:
        """[MQTT5-3.8.3-3] No Local: its own messages do not come, those of others do."""
        client, other = self.client(), self.client()
        client.subscribe((self.topic("a"), 0x04 | 1))
        other.subscribe(self.topic("a"))
        client.publish(self.topic("a"), b"own", 1)
        other.publish(self.topic("a"), b"other", 1)
        self.assertMessages(other.messages(2), (b"own",), (b"other",))
        self.assertEqual(client.message().payload, b"other")
        self.assertNothing(client)

    def test_noLocalIsTheSubscriptions(self) -> None:
        """[MQTT5-3.8.3-3] Another subscription of the client that matches gets it still."""
        client = self.client()
        client.subscribe((self.topic("a/b"), 0x04), (self.topic("a/#"), 0))
        client.publish(self.topic("a/b"), b"own")
        self.assertEqual(client.message().payload, b"own")
        self.assertNothing(client)

    def test_noLocalStaysWithSession(self) -> None:
        """Section 4.1: the options of a subscription are kept with the session."""
        client = self.persistent("s")
        client.subscribe((self.topic("a"), 0x04 | 1))
        client.leave()
        client = self.persistent("s")
        client.publish(self.topic("a"), b"own", 1)
        self.assertNothing(client)

    def test_identifierIsSent(self) -> None:
        """[MQTT5-3.3.4-3] The identifier comes with each message, large ones too."""
        for number in (1, 127, 128, 268_435_455):
            client = self.identified(("a", number))
            client.publish(self.topic("a"), b"x", 1)
            self.assertEqual(client.message().all("subscriptionId"), [number])

    def test_noIdentifierIsSentWithoutOne(self) -> None:
        """[MQTT5-3.3.4-3] Without one, none comes."""
        client = self.client()
        client.subscribe(self.topic("a"))
        client.publish(self.topic("a"), b"x", 1)
        self.assertEqual(client.message().all("subscriptionId"), [])

    def test_allIdentifiersAreSent(self) -> None:
        """[MQTT5-3.3.4-4] [MQTT5-3.3.4-5] Overlapping: all of them, in one copy or several."""
        client = self.identified(("a/b", 1), ("a/+", 2), ("#", 3), ("c", 4))
        client.publish(self.topic("a/b"), b"x")
        copies = client.settle()
        numbers = [id_ for each in copies for id_ in each.all("subscriptionId")]
        self.assertEqual(sorted(numbers), [1, 2, 3])
        self.notForeign("a broker may send several copies")
        self.assertEqual(len(copies), 1)

    def test_identifierIsReplaced(self) -> None:
        """Section 3.8.2.1.2: the same filter again, with another identifier, or none."""
        client = self.identified(("a", 1), ("a", 2))
        client.publish(self.topic("a"), b"x")
        self.assertEqual(client.message().all("subscriptionId"), [2])
        client.subscribe(self.topic("a"))
        client.publish(self.topic("a"), b"x")
        self.assertEqual(client.message().all("subscriptionId"), [])

    def test_identifierIsForAllFilters(self) -> None:
        """Section 3.8.2.1.2: it is for all filters of its SUBSCRIBE."""
        client = self.client()
        filters = [self.topic("a"), self.topic("b")]
        client.subscribe(*filters, properties_=[("subscriptionId", 7)])
        for topic in filters:
            client.publish(topic, b"x")
            self.assertEqual(client.message().all("subscriptionId"), [7])

    def test_identifierStaysWithSession(self) -> None:
        """Section 4.1: it is kept with the session, and comes with what was missed."""
        client = self.persistent("s")
        client.subscribe(self.topic("a"), properties_=[("subscriptionId", 7)])
        client.leave()
        self.client().publish(self.topic("a"), b"x", 1)
        client = self.persistent("s")
        self.assertEqual(client.message().all("subscriptionId"), [7])

    def test_userPropertiesAreAccepted(self) -> None:
        """Section 3.8.2.1.3, 3.10.2.1.2: user properties may be there."""
        client = self.client()
        items = [("userProperty", ("a", "b")), ("userProperty", ("a", "b"))]
        self.assertEqual(client.subscribe(self.topic("a"), properties_=items).codes, (2,))

    def test_qos2CompletesAfterUnsubscribe(self) -> None:
        """[MQTT5-3.10.4-3] After UNSUBSCRIBE a QoS 2 flow goes on to its end."""
        client = self.client()
        client.subscribe(self.topic("a"))
        client.publish(self.topic("a"), b"x", 2)
        packet = client.expect(PUBLISH)
        client.unsubscribe(self.topic("a"))
        client.send(ack(5, packet.packetId, 0))
        self.assertEqual(client.expect(PUBREL).packetId, packet.packetId)
        client.send(ack(7, packet.packetId, 0))
        self.assertNothing(client)
