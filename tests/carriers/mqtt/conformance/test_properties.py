"""
What MQTT 5 hands on with a message: section 3.3.2.3, and reason strings.
"""

from __future__ import annotations

from .client import Closed, MqttClient
from .packets import PUBACK, PUBLISH, SUBACK, V4, V5, Property, publish, subscribe
from .support import MqttTestCase


class PropertyTests(MqttTestCase):
    """
    Properties of messages.
    """

    version = V5

    def setUp(self) -> None:
        super().setUp()
        self.subscriber = self.client()
        self.subscriber.subscribe(self.topic("#"))
        self.publisher = self.client()

    def send(self, *items: Property, qos: int = 1, payload: bytes = b"x") -> None:
        """Publish with these properties."""
        self.publisher.publish(self.topic("a"), payload, qos, properties_=items)

    def test_absentPropertiesStayAbsent(self) -> None:
        """Section 3.3.2.3: what was not published is not delivered."""
        self.send()
        packet = self.subscriber.message()
        others = [each for each in packet.properties if each[0] != "userProperty"]
        self.assertEqual((others, packet.user), ([], []))

    def test_allPropertiesArriveUnaltered(self) -> None:
        """[MQTT5-3.3.2-4] [MQTT5-3.3.2-15] [MQTT5-3.3.2-16] [MQTT5-3.3.2-20] All, unaltered."""
        items: list[Property] = [
            ("contentType", "application/jsön"),
            ("correlationData", bytes(range(256))),
            ("payloadFormat", 1),
            ("responseTopic", "reply/to/ünd"),
        ]
        for qos in range(3):
            self.send(*items, qos=qos)
            packet = self.subscriber.message()
            got = [each for each in packet.properties if each[0] != "userProperty"]
            self.assertEqual(sorted(got), items)

    def test_payloadFormatArrives(self) -> None:
        """[MQTT5-3.3.2-4] 0 and 1 are different, and both from none."""
        for number in (0, 1):
            self.send(("payloadFormat", number))
            self.assertIn(self.subscriber.message().get("payloadFormat"), (number, number or None))

    def test_emptyPropertiesArrive(self) -> None:
        """Section 3.3.2.3: texts and bytes may be empty, and are there nevertheless."""
        self.send(("contentType", ""), ("correlationData", b""), ("userProperty", ("", "")))
        packet = self.subscriber.message()
        self.assertEqual((packet.get("contentType"), packet.get("correlationData")), ("", b""))
        self.assertEqual(packet.user, [("", "")])

    def test_userPropertiesKeepTheirOrder(self) -> None:
        """[MQTT5-3.3.2-17] [MQTT5-3.3.2-18] All user properties, in their order."""
        pairs = [("z", "1"), ("a", "2"), ("z", "1"), ("a", ""), ("", "b"), ("ü", "\U0001f600")]
        self.send(*(("userProperty", each) for each in pairs))
        self.assertEqual(self.subscriber.message().user, pairs)

    def test_manyUserPropertiesArrive(self) -> None:
        """[MQTT5-3.3.2-17] A hundred of them."""
        pairs = [(f"key{each % 7}", str(each)) for each in range(100)]
        self.send(*(("userProperty", each) for each in pairs))
        self.assertEqual(self.subscriber.message().user, pairs)

    def test_311ClientGetsNoProperties(self) -> None:
        """A 3.1.1 client gets the message without them."""
        old = self.client(version=V4)
        old.subscribe(self.topic("a"))
        self.send(("contentType", "x"), ("userProperty", ("a", "b")), payload=b"bytes")
        self.assertEqual(old.message().payload, b"bytes")

    def test_311MessageHasNoProperties(self) -> None:
        """A 3.1.1 client's message has none."""
        self.client(version=V4).publish(self.topic("a"), b"x", 1)
        packet = self.subscriber.message()
        self.assertEqual((packet.payload, packet.user), (b"x", []))

    def test_requestIsAnswered(self) -> None:
        """Section 4.10: a request and its response, by response topic and correlation data."""
        requester, responder = self.client(), self.client()
        requester.subscribe(self.topic("answers/me"))
        responder.subscribe(self.topic("ask"))
        items = [("responseTopic", self.topic("answers/me")), ("correlationData", b"\1\2")]
        requester.publish(self.topic("ask"), b"2+2", 1, properties_=items)
        request = responder.message()
        responder.publish(
            request.get("responseTopic"),
            b"4",
            1,
            properties_=[("correlationData", request.get("correlationData"))],
        )
        answer = requester.message()
        self.assertEqual((answer.payload, answer.get("correlationData")), (b"4", b"\1\2"))

    def test_remainingExpiryIsHandedOn(self) -> None:
        """[MQTT5-3.3.2-6] The interval, less the time that the broker had the message."""
        self.send(("messageExpiry", 1000))
        self.assertIn(self.subscriber.message().get("messageExpiry"), (998, 999, 1000))
        self.send(("messageExpiry", 0xFFFFFFFF))
        self.assertGreater(self.subscriber.message().get("messageExpiry"), 0xFFFFFFF0)

    def test_expiredMessageIsNotDelivered(self) -> None:
        """[MQTT5-3.3.2-5] [MQTT5-3.3.2-6] What has expired while a client was away is gone."""
        client = self.persistent("s")
        client.subscribe(self.topic("a"))
        client.leave()
        self.send(("messageExpiry", 1), payload=b"short")
        self.send(("messageExpiry", 100), payload=b"long")
        self.broker.sleep(2.1)
        client = self.persistent("s")
        packet = client.message()
        self.assertEqual(packet.payload, b"long")
        self.assertIn(packet.get("messageExpiry"), (96, 97, 98))
        self.assertNothing(client)

    def test_expiryZeroIsHarmless(self) -> None:
        """Section 3.3.2.3.3: 0 may be delivered at once or never, and harms nothing."""
        self.send(("messageExpiry", 0), payload=b"0")
        self.send(payload=b"1")
        got = [each.payload for each in self.subscriber.settle()]
        self.assertIn(got, ([b"0", b"1"], [b"1"]))

    def test_reasonStringsNeedConsent(self) -> None:
        """[MQTT5-3.1.2-29] Who does not want problem information gets it at the end only."""
        client = self.client(properties=[("requestProblem", 0)])
        client.send(
            subscribe(V5, 1, [("a/#/b", 0)])
            + publish(V5, self.topic("a"), b"x", qos=1, packetId=2)
            + publish(V5, self.topic("x" * 1000), b"x", qos=1, packetId=3)
        )
        try:
            while True:
                packet = client.receive()
                if packet.kind in (SUBACK, PUBACK):
                    self.assertEqual(packet.properties, ())
                if packet.kind == PUBACK and packet.packetId == 3:
                    break
        except Closed:
            pass

    def test_longTopicIsServedOrRefused(self) -> None:
        """Section 4.7.3: a topic may be long; a broker with a bound says so with a reason."""
        topic = self.topic("y" * 60_000)
        client = self.client()
        client.send(publish(V5, topic, b"x", qos=1, packetId=3))
        answer = client.receive()
        if answer.kind == PUBACK:
            self.assertIn(answer.code, (0, 0x10, 0x90, 0x97))
        else:
            self.assertIn(answer.code, (0x90, 0x95, 0x97))


class AliasTests(MqttTestCase):
    """
    Topic aliases, section 3.3.2.3.4.
    """

    version = V5

    def setUp(self) -> None:
        super().setUp()
        self.subscriber = self.client()
        self.subscriber.subscribe(self.topic("#"))
        self.publisher = self.client()
        self.maximum: int = self.publisher.connack.get("topicAliasMaximum", 0)

    def send(
        self, topic: str, alias: int, payload: bytes, client: MqttClient | None = None
    ) -> None:
        """Publish with an alias; an empty topic is none."""
        name = self.topic(topic) if topic else ""
        data = publish(V5, name, payload, properties_=[("topicAlias", alias)])
        (client or self.publisher).send(data)

    def test_serverOffersAliases(self) -> None:
        """[MQTT5-3.2.2-18] The server takes some."""
        self.assertGreater(self.maximum, 0)

    def test_aliasStandsForTopic(self) -> None:
        """[MQTT5-3.3.2-9] [MQTT5-3.3.2-12] Set, used, and set anew."""
        last = self.maximum
        self.send("a", 1, b"1")
        self.send("b", last, b"2")
        self.send("", 1, b"3")
        self.send("", last, b"4")
        self.send("c", 1, b"5")
        self.send("", 1, b"6")
        got = [(each.topic, each.payload) for each in self.subscriber.messages(6)]
        expected = zip("ababcc", range(1, 7), strict=True)
        self.assertEqual(got, [(self.topic(name), str(text).encode()) for name, text in expected])

    def test_aliasWorksWithAnyQos(self) -> None:
        """Section 3.3.2.3.4: the QoS has nothing to do with it."""
        for qos in range(3):
            items = [("topicAlias", 1)]
            self.publisher.publish(self.topic("a"), b"1", qos, properties_=items)
            self.publisher.publish("", b"2", qos, properties_=items)
            for packet in self.subscriber.messages(2):
                self.assertEqual((packet.topic, packet.qos), (self.topic("a"), qos))

    def test_aliasIsNotHandedOn(self) -> None:
        """[MQTT5-3.1.2-27] Who takes no aliases gets none."""
        self.send("a", 1, b"1")
        self.assertIsNone(self.subscriber.message().get("topicAlias"))

    def test_aliasEndsWithConnection(self) -> None:
        """[MQTT5-3.3.2-7] An alias ends with its connection, also where the session goes on."""
        client = self.persistent("s")
        self.send("a", 1, b"1", client)
        self.assertEqual(self.subscriber.message().payload, b"1")
        client.leave()
        client = self.persistent("s")
        self.send("", 1, b"2", client)
        client.closes(*((0x82, 0x94) if self.broker.isForeign else (0x82,)))
        self.assertNothing(self.subscriber)

    def test_unknownAliasEndsConnection(self) -> None:
        """Section 3.3.2.3.4: no topic, and an alias that was never set, or none at all."""
        self.send("", 1, b"x")
        self.publisher.closes(0x82, 0x94)
        for items in ([], [("contentType", "x")]):
            client = self.client()
            client.send(publish(V5, "", b"x", properties_=items))
            client.closes(*((0x82, 0x90, 0x81) if self.broker.isForeign else (0x82,)))

    def test_aliasZeroEndsConnection(self) -> None:
        """[MQTT5-3.3.2-8] 0 is no alias."""
        self.send("a", 0, b"x")
        self.publisher.closes(*((0x94, 0x82, 0x81) if self.broker.isForeign else (0x94,)))

    def test_aliasAboveMaximumEndsConnection(self) -> None:
        """[MQTT5-3.3.2-9] Nor is more than the server takes."""
        self.send("a", self.maximum + 1, b"x")
        self.publisher.closes(0x94)

    def test_serverAliasesStayWithinMaximum(self) -> None:
        """[MQTT5-3.1.2-26] [MQTT5-3.3.2-10] The server's are at most what the client takes."""
        client = self.client(properties=[("topicAliasMaximum", 2)])
        client.subscribe(self.topic("x/#"))
        topics = [self.topic(f"x/{each % 4}") for each in range(12)]
        for topic in topics:
            self.publisher.publish(topic, topic.encode(), 1)
        # The client itself checks and resolves them.
        for packet in client.messages(12):
            self.assertEqual(packet.topic.encode(), packet.payload)

    def test_serverAliasReplacesTopic(self) -> None:
        """Section 3.3.2.3.4: the first message sets the alias, later ones do without the topic."""
        self.notForeign("a server need not use aliases")
        client = self.client(properties=[("topicAliasMaximum", 1)])
        topic = self.topic("a")
        client.subscribe(topic, qos=0)
        for _ in range(3):
            self.publisher.publish(topic, b"x", 1)
        first, *others = client.messages(3)
        self.assertEqual([each.get("topicAlias") for each in (first, *others)], [1, 1, 1])
        self.assertEqual([first.size - each.size for each in others], [len(topic)] * 2)

    def test_redeliveryUsesFreshAliases(self) -> None:
        """[MQTT5-3.3.2-7] What is sent again on another connection can be understood there."""
        client = self.persistent("s", properties=[("topicAliasMaximum", 5)])
        client.subscribe(self.topic("x"), qos=1)
        for _ in range(3):
            self.publisher.publish(self.topic("x"), b"1", 1)
            client.expect(PUBLISH)
        client.close()
        client = self.persistent("s", properties=[("topicAliasMaximum", 5)])
        self.assertEqual([each.topic for each in client.messages(3)], [self.topic("x")] * 3)
