"""
MQTT publishes and their acknowledgements: section 3.3 to 3.7, 4.3, 4.6 of both specifications.
"""

from __future__ import annotations

from .client import MqttClient
from .packets import PING, PINGRESP, PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL, V5, ack, publish
from .support import MqttTestCase

KIB = 1024


class PublishTests(MqttTestCase):
    """
    Both versions.
    """

    def pair(self, qos: int = 2) -> tuple[MqttClient, MqttClient]:
        """A publisher, and a subscriber to all that it publishes."""
        subscriber = self.client()
        subscriber.subscribe(self.topic("#"), qos=qos)
        return self.client(), subscriber

    def test_qos0IsNotAcknowledged(self) -> None:
        """[MQTT-4.3.1-1] [MQTT-2.3.1-5] No acknowledgement, no packet identifier."""
        publisher, subscriber = self.pair()
        publisher.publish(self.topic("a"), b"1")
        publisher.send(PING)
        self.assertEqual(publisher.receive().kind, PINGRESP)
        packet = subscriber.receive()
        self.assertEqual((packet.kind, packet.topic), (PUBLISH, self.topic("a")))
        self.assertEqual((packet.payload, packet.flags, packet.packetId), (b"1", 0, 0))

    def test_qos1IsAcknowledged(self) -> None:
        """[MQTT-4.3.2-1] [MQTT-4.3.2-2] [MQTT-2.3.1-6] PUBACK with the same identifier."""
        publisher, subscriber = self.pair()
        publisher.send(publish(self.version, self.topic("a"), b"1", qos=1, packetId=0xFFFF))
        self.assertEqual(publisher.expect(PUBACK).packetId, 0xFFFF)
        packet = subscriber.message()
        self.assertEqual((packet.payload, packet.flags), (b"1", 2))
        self.assertNothing(subscriber)

    def test_qos2TakesFourPackets(self) -> None:
        """[MQTT-4.3.3-1] [MQTT-4.3.3-2] [MQTT-3.6.1-1] The four packets, both ways."""
        publisher, subscriber = self.pair()
        publisher.send(publish(self.version, self.topic("a"), b"1", qos=2, packetId=300))
        self.assertEqual(publisher.expect(PUBREC).packetId, 300)
        publisher.send(ack(PUBREL, 300))
        self.assertEqual(publisher.expect(PUBCOMP).packetId, 300)
        packet = subscriber.message()
        self.assertEqual((packet.payload, packet.flags), (b"1", 4))
        self.assertNothing(subscriber)

    def test_lowerQosCounts(self) -> None:
        """[MQTT-3.8.4-6] [MQTT5-3.8.4-8] The QoS is the smaller of both."""
        publisher = self.client()
        for granted in range(3):
            subscriber = self.client()
            topic = self.topic(str(granted))
            self.assertEqual(subscriber.subscribe(topic, qos=granted).codes, (granted,))
            for qos in range(3):
                publisher.publish(topic, b"x", qos)
                self.assertEqual(subscriber.message().qos, min(qos, granted))

    def test_publishWithoutSubscriberIsAnswered(self) -> None:
        """[MQTT-3.3.4-1] Who publishes to nobody is answered alike."""
        publisher = self.client()
        for qos in (1, 2):
            answer = publisher.publish(self.topic("nobody"), b"x", qos)
            assert answer is not None
            self.assertIn(answer.code, (0, 0x10))

    def test_clientGetsItsOwnMessages(self) -> None:
        """Section 3.3.5: a client gets its own messages too."""
        client = self.client()
        client.subscribe(self.topic("a"))
        client.publish(self.topic("a"), b"x", 2)
        self.assertEqual(client.message().payload, b"x")

    def test_everySubscriberGetsTheMessage(self) -> None:
        """[MQTT-3.3.2-3] Each subscriber gets each message, with its own topic."""
        subscribers = [self.client() for _ in range(10)]
        for subscriber in subscribers:
            subscriber.subscribe(self.topic("+/b"))
        self.client().publish(self.topic("a/b"), b"x", 1)
        for subscriber in subscribers:
            packet = subscriber.message()
            self.assertEqual((packet.topic, packet.payload), (self.topic("a/b"), b"x"))

    def test_dupIsNotHandedOn(self) -> None:
        """[MQTT-3.3.1-3] DUP is of one connection."""
        publisher, subscriber = self.pair()
        data = publish(self.version, self.topic("a"), b"1", qos=1, packetId=5, dup=True)
        publisher.send(data)
        publisher.expect(PUBACK)
        self.assertFalse(subscriber.message().dup)

    def test_retainIsNotHandedOn(self) -> None:
        """[MQTT-3.3.1-9] [MQTT5-3.3.1-12] RETAIN is for subscriptions that are made later."""
        publisher, subscriber = self.pair()
        publisher.publish(self.topic("a"), b"1", 1, retain=True)
        self.assertFalse(subscriber.message().retain)

    def test_repeatedQos2IsDeliveredOnce(self) -> None:
        """[MQTT-4.3.3-2] The same identifier before PUBREL is the same message."""
        publisher, subscriber = self.pair()
        for dup in (False, True):
            data = publish(self.version, self.topic("a"), b"1", qos=2, packetId=9, dup=dup)
            publisher.send(data)
            self.assertEqual(publisher.expect(PUBREC).packetId, 9)
        publisher.send(ack(PUBREL, 9))
        self.assertEqual(publisher.expect(PUBCOMP).packetId, 9)
        self.assertEqual(subscriber.message().payload, b"1")
        self.assertNothing(subscriber)

    def test_repeatedQos2InOneWriteIsDeliveredOnce(self) -> None:
        """[MQTT-4.3.3-2] The same, when it is sent again before PUBREC came."""
        publisher, subscriber = self.pair()
        first = publish(self.version, self.topic("a"), b"1", qos=2, packetId=9)
        again = publish(self.version, self.topic("a"), b"1", qos=2, packetId=9, dup=True)
        publisher.send(first + again)
        publisher.expect(PUBREC)
        publisher.expect(PUBREC)
        publisher.send(ack(PUBREL, 9))
        self.assertEqual(publisher.expect(PUBCOMP).packetId, 9)
        self.assertEqual(subscriber.message().payload, b"1")
        self.assertNothing(subscriber)

    def test_identifierIsFreeAfterItsFlow(self) -> None:
        """[MQTT-2.3.1-4] After its flow an identifier is free for another message."""
        publisher, subscriber = self.pair()
        for text in (b"1", b"2", b"3"):
            publisher.send(publish(self.version, self.topic("a"), text, qos=1, packetId=1))
            publisher.expect(PUBACK)
            publisher.send(publish(self.version, self.topic("a"), text, qos=2, packetId=1))
            publisher.expect(PUBREC)
            publisher.send(ack(PUBREL, 1))
            publisher.expect(PUBCOMP)
        got = [each.payload for each in subscriber.messages(6)]
        self.assertEqual(got, [b"1", b"1", b"2", b"2", b"3", b"3"])
        self.assertNothing(subscriber)

    def test_serverIdentifiersDiffer(self) -> None:
        """[MQTT-2.3.1-1] [MQTT-2.3.1-4] The server's are not 0, and differ while in use."""
        publisher, subscriber = self.pair()
        for number in range(10):
            publisher.publish(self.topic("a"), b"x", 1 + number % 2)
        packets = [subscriber.expect(PUBLISH) for _ in range(10)]
        self.assertEqual(len({each.packetId for each in packets}), 10)
        self.assertNotIn(0, {each.packetId for each in packets})
        for packet in reversed(packets):
            subscriber.complete(packet)
        self.assertNothing(subscriber)

    def test_bothSidesMayUseAnIdentifier(self) -> None:
        """Section 2.3.1: client and server may use the same identifier at the same time."""
        client = self.client()
        client.subscribe(self.topic("a"), qos=2)
        self.client().publish(self.topic("a"), b"from", 2)
        packet = client.expect(PUBLISH)
        number = packet.packetId
        client.send(publish(self.version, self.topic("to"), b"x", qos=2, packetId=number))
        self.assertEqual(client.expect(PUBREC).packetId, number)
        client.complete(packet)
        client.send(ack(PUBREL, number))
        self.assertEqual(client.expect(PUBCOMP).packetId, number)

    def test_unknownPubrelIsAnswered(self) -> None:
        """[MQTT-4.3.3-2] PUBREL is answered, known or not; MQTT 5 has a code for it."""
        client = self.client()
        client.send(ack(PUBREL, 77))
        answer = client.expect(PUBCOMP)
        self.assertEqual(answer.packetId, 77)
        expected = 0x92 if self.version == V5 else 0
        self.assertIn(answer.code, (0, 0x92) if self.broker.isForeign else (expected,))
        client.ping()

    def test_repeatedPubrelIsAnswered(self) -> None:
        """[MQTT-4.3.3-2] Also a second time."""
        client = self.client()
        client.publish(self.topic("a"), b"x", 2)
        client.send(ack(PUBREL, 1))
        self.assertEqual(client.expect(PUBCOMP).packetId, 1)

    def test_unknownAcknowledgementsHarmNoOtherClient(self) -> None:
        """Section 4.3: what was never sent may be acknowledged; nobody else is hurt."""
        publisher, subscriber = self.pair()
        for kind in (PUBACK, PUBREC, PUBCOMP):
            client = self.client()
            client.send(ack(kind, 4711) + PING)
            # It may be ignored, answered, or called an error.
            self.assertIn(client.receive().kind, (PINGRESP, PUBREL, 14))
        publisher.publish(self.topic("a"), b"x", 1)
        self.assertEqual(subscriber.message().payload, b"x")

    def test_payloadMayBeEmpty(self) -> None:
        """Section 3.3.3: a payload may have no bytes."""
        publisher, subscriber = self.pair()
        for qos in range(3):
            publisher.publish(self.topic("a"), b"", qos)
            packet = subscriber.message()
            self.assertEqual((packet.payload, packet.qos), (b"", qos))

    def test_payloadIsAnyBytes(self) -> None:
        """Section 3.3.3: a payload is any bytes."""
        publisher, subscriber = self.pair()
        publisher.publish(self.topic("a"), bytes(range(256)), 1)
        self.assertEqual(subscriber.message().payload, bytes(range(256)))

    def test_lengthBoundariesAreEncoded(self) -> None:
        """Section 2.2.3: remaining lengths on both sides of where they grow by a byte."""
        publisher, subscriber = self.pair()
        for length in (127, 128, 16_383, 16_384):
            for payload in (bytes(length), bytes(length - 2 - len(self.topic("a")))):
                publisher.publish(self.topic("a"), payload)
                self.assertEqual(subscriber.message().payload, payload)

    def test_largePayloadArrives(self) -> None:
        """Section 2.2.3: almost one MiB, which is what the broker takes by default."""
        publisher, subscriber = self.pair()
        payload = bytes(range(256)) * (4 * KIB - 1)
        for qos in range(3):
            publisher.publish(self.topic("a"), payload, qos)
            self.assertTrue(subscriber.message().payload == payload)

    def test_deliveryKeepsPublishOrder(self) -> None:
        """[MQTT-4.6.0-5] [MQTT-4.6.0-6] What is published in order arrives in order."""
        for qos in range(3):
            publisher, subscriber = self.pair()
            for number in range(50):
                publisher.publish(self.topic("a"), str(number).encode(), qos)
            got = [int(each.payload) for each in subscriber.messages(50)]
            self.assertEqual(got, list(range(50)))

    def test_manyPublishesInOneWriteKeepOrder(self) -> None:
        """[MQTT-4.6.0-2] Many packets in one write: acknowledged in order, delivered in order."""
        publisher, subscriber = self.pair(qos=0)
        topic = self.topic("a")
        publisher.send(
            b"".join(
                publish(self.version, topic, str(each).encode(), qos=1, packetId=each)
                for each in range(1, 501)
            )
            + PING
        )
        answers = [publisher.receive() for _ in range(501)]
        acked = [each.packetId for each in answers if each.kind == PUBACK]
        self.assertEqual(acked, list(range(1, 501)))
        got = [int(each.payload) for each in subscriber.messages(500)]
        self.assertEqual(got, list(range(1, 501)))

    def test_pubrecsKeepPublishOrder(self) -> None:
        """[MQTT-4.6.0-3] PUBRECs in the order of their publishes, all waiting at once."""
        publisher, subscriber = self.pair()
        numbers = list(range(1, 16))
        topic = self.topic("a")
        publisher.send(
            b"".join(
                publish(self.version, topic, str(each).encode(), qos=2, packetId=each)
                for each in numbers
            )
        )
        self.assertEqual([publisher.expect(PUBREC).packetId for _ in numbers], numbers)
        publisher.send(b"".join(ack(PUBREL, each) for each in numbers))
        self.assertEqual([publisher.expect(PUBCOMP).packetId for _ in numbers], numbers)
        got = [int(each.payload) for each in subscriber.messages(15)]
        self.assertEqual(got, numbers)

    def test_pubrelsKeepPubrecOrder(self) -> None:
        """[MQTT-4.6.0-4] The server's PUBRELs are in the order of the client's PUBRECs."""
        publisher, subscriber = self.pair()
        for number in range(5):
            publisher.publish(self.topic("a"), str(number).encode(), 2)
        numbers = [subscriber.expect(PUBLISH).packetId for _ in range(5)]
        subscriber.send(b"".join(ack(PUBREC, each) for each in numbers))
        self.assertEqual([subscriber.expect(PUBREL).packetId for _ in range(5)], numbers)
        subscriber.send(b"".join(ack(PUBCOMP, each) for each in numbers))
        self.assertNothing(subscriber)

    def test_publishBeforeDisconnectCounts(self) -> None:
        """[MQTT-4.3.1-1] A PUBLISH sent before DISCONNECT is published."""
        _, subscriber = self.pair()
        publisher = self.client()
        publisher.send(publish(self.version, self.topic("a"), b"last") + b"\xe0\0")
        publisher.close()
        self.assertEqual(subscriber.message().payload, b"last")

    def test_topicsAreComparedExactly(self) -> None:
        """[MQTT-4.7.3-4] Topics are compared byte by byte; slashes and case count."""
        subscriber = self.client()
        names = ["a", "A", "a/", "/a", "a//b", "a b", "a/ b"]
        topics = [self.topic(each) for each in names]
        for topic in topics:
            subscriber.subscribe(topic)
        publisher = self.client()
        for topic in topics:
            publisher.publish(topic, topic.encode(), 1)
            self.assertEqual(subscriber.message().payload, topic.encode())
        self.assertNothing(subscriber)

    def test_nonAsciiTopicIsServedOrRefused(self) -> None:
        """Section 4.7.3: a topic beyond ASCII is served as it is, or refused, and never bent."""
        topic = self.topic("höi/\N{SNOWMAN}/\N{GRINNING FACE}")
        subscriber = self.client()
        granted = subscriber.subscribe(topic)
        publisher = self.client()
        publisher.send(publish(self.version, topic, b"x", qos=1, packetId=1) + PING)
        answer = publisher.receive() if granted.code < 0x80 and self.version == V5 else None
        if answer is None:
            return
        self.assertIn(answer.kind, (PUBACK, 14))
        if answer.code in (0, 0x10):
            self.assertEqual(subscriber.message().topic, topic)
        else:
            self.assertIn(answer.code, (0x90, 0x83, 0x87))


class Publish5Tests(PublishTests):
    """
    What both versions have, with 5.
    """

    version = V5

    def test_acknowledgementsMayCarryReasons(self) -> None:
        """Section 3.4.2.1: acknowledgements may be written with a reason, or without one."""
        publisher, subscriber = self.pair()
        publisher.send(publish(V5, self.topic("a"), b"1", qos=2, packetId=4))
        publisher.expect(PUBREC)
        publisher.send(ack(PUBREL, 4, 0))
        self.assertEqual(publisher.expect(PUBCOMP).code, 0)
        packet = subscriber.expect(PUBLISH)
        subscriber.send(ack(PUBREC, packet.packetId, 0))
        self.assertEqual(subscriber.expect(PUBREL).code, 0)
        subscriber.send(ack(PUBCOMP, packet.packetId, 0))
        publisher.publish(self.topic("a"), b"2", 1)
        packet = subscriber.expect(PUBLISH)
        # Reason and no properties at all, and with an empty list of them: section 3.4.2.2.1.
        subscriber.send(b"\x40\4" + packet.packetId.to_bytes(2, "big") + b"\x10\0")
        self.assertNothing(subscriber)

    def test_refusalByClientEndsTheFlow(self) -> None:
        """[MQTT5-4.3.3-4] PUBREC with a failure ends the flow, and frees the identifier."""
        publisher, subscriber = self.pair()
        publisher.publish(self.topic("a"), b"1", 2)
        packet = subscriber.expect(PUBLISH)
        subscriber.send(ack(PUBREC, packet.packetId, 0x83))
        publisher.publish(self.topic("a"), b"2", 1)
        packet = subscriber.expect(PUBLISH)
        self.assertEqual(packet.payload, b"2")
        subscriber.send(ack(PUBACK, packet.packetId, 0x80))
        self.assertNothing(subscriber)

    def test_unknownPubrecIsAnswered(self) -> None:
        """Section 3.6.2.1: PUBREC for what was not sent: PUBREL says 0x92, or nothing does."""
        client = self.client()
        client.send(ack(PUBREC, 4711) + PING)
        answer = client.receive()
        if answer.kind == PUBREL:
            self.assertEqual(answer.packetId, 4711)
            self.notForeign("mosquitto 2.0.11 says 0x00")
            self.assertEqual(answer.code, 0x92)
