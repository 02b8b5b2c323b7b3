"""
Bounds that the two sides of a MQTT 5 connection set each other: section 3.1.2.11, 4.9.
"""

from __future__ import annotations

from .client import MqttClient
from .packets import (
    DISCONNECT,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    V5,
    Packet,
    ack,
    frame,
    publish,
    u16,
    varint,
)
from .support import MqttTestCase


class ReceiveMaximumTests(MqttTestCase):
    """
    How many may be unacknowledged.
    """

    version = V5

    def slow(self, maximum: int, qos: int = 1, count: int = 10) -> MqttClient:
        """A client that takes few at a time, and has many to get."""
        client = self.client(properties=[("receiveMaximum", maximum)])
        client.subscribe(self.topic("a"), qos=qos)
        witness = self.client()
        witness.subscribe(self.topic("a"), qos=0)
        publisher = self.client()
        for number in range(count):
            publisher.publish(self.topic("a"), str(number).encode(), qos)
        witness.messages(count)
        return client

    def assertWaiting(self, client: MqttClient, *expected: int) -> list[Packet]:
        """Just these come before something is acknowledged."""
        packets = [client.expect(PUBLISH) for _ in expected]
        self.assertEqual([int(each.payload) for each in packets], list(expected))
        self.assertHeld(client)
        return packets

    def assertHeld(self, client: MqttClient) -> None:
        """
        Nothing comes, though others get all. The client itself cannot be told by a message with
        QoS 0: section 4.9 lets the server hold back those too.
        """
        self.assertNothing(self.client())
        self.assertEqual(client.pending(), [])

    def test_pubackMakesRoom(self) -> None:
        """[MQTT5-3.3.4-9] [MQTT5-4.9.0-2] No more than the client takes; PUBACK makes room."""
        client = self.slow(2)
        first, second = self.assertWaiting(client, 0, 1)
        client.send(ack(PUBACK, first.packetId))
        self.notForeign("mosquitto 2.0.11 sends one too many, now and then")
        (third,) = self.assertWaiting(client, 2)
        client.send(ack(PUBACK, third.packetId) + ack(PUBACK, second.packetId))
        for packet in self.assertWaiting(client, 3, 4):
            client.complete(packet)
        self.assertEqual([int(each.payload) for each in client.messages(5)], list(range(5, 10)))
        self.assertNothing(client)

    def test_pubcompMakesRoom(self) -> None:
        """[MQTT5-4.9.0-2] With QoS 2 it is PUBCOMP that makes room, not PUBREC."""
        client = self.slow(2, qos=2, count=4)
        first, second = self.assertWaiting(client, 0, 1)
        client.send(ack(PUBREC, first.packetId))
        client.expect(PUBREL)
        self.assertHeld(client)
        self.notForeign("mosquitto 2.0.11 sends one too many, now and then")
        client.send(ack(PUBCOMP, first.packetId))
        (third,) = self.assertWaiting(client, 2)
        # A PUBREC that refuses makes room too.
        client.send(ack(PUBREC, second.packetId, 0x80))
        (fourth,) = self.assertWaiting(client, 3)
        client.complete(third)
        client.complete(fourth)
        self.assertNothing(client)

    def test_receiveMaximumMayBeOne(self) -> None:
        """[MQTT5-3.3.4-9] One at a time."""
        client = self.slow(1, count=5)
        for number in range(5):
            (packet,) = self.assertWaiting(client, number)
            client.complete(packet)
        self.assertNothing(client)

    def test_otherPacketsFlowWhileFull(self) -> None:
        """[MQTT5-4.9.0-3] [MQTT5-3.3.4-10] All packets but PUBLISH go on."""
        client = self.slow(1)
        (packet,) = self.assertWaiting(client, 0)
        client.ping()
        client.subscribe(self.topic("zero"), qos=0)
        client.publish(self.topic("zero"), b"zero", 2)
        client.publish(self.topic("one"), b"one", 1)
        client.unsubscribe(self.topic("a"))
        client.complete(packet)

    def test_quotaIsTheConnections(self) -> None:
        """Section 4.9: the quota is the connection's; one that returns may take more or less."""
        client = self.persistent("s", properties=[("receiveMaximum", 5)])
        client.subscribe(self.topic("a"), qos=1)
        publisher = self.client()
        for number in range(10):
            publisher.publish(self.topic("a"), str(number).encode(), 1)
        self.assertWaiting(client, 0, 1, 2, 3, 4)
        client.close()
        client = self.persistent("s", properties=[("receiveMaximum", 2)])
        self.notForeign("mosquitto 2.0.11 sends again without looking at it")
        first, second = self.assertWaiting(client, 0, 1)
        self.assertTrue(first.dup and second.dup)
        client.complete(first)
        client.complete(second)
        self.assertEqual([int(each.payload) for each in client.messages(8)], list(range(2, 10)))
        self.assertNothing(client)

    def test_exceedingServersMaximumEndsConnection(self) -> None:
        """[MQTT5-3.3.4-7] [MQTT5-3.3.4-8] More than the server takes: 0x93, and the end."""
        client = self.client()
        maximum = client.connack.get("receiveMaximum", 65_535)
        topic = self.topic("a")
        client.send(
            b"".join(publish(V5, topic, b"x", qos=2, packetId=each) for each in range(1, maximum))
        )
        for _ in range(1, maximum):
            client.expect(PUBREC)
        client.send(publish(V5, topic, b"x", qos=2, packetId=maximum))
        client.expect(PUBREC)
        client.ping()
        self.notForeign("mosquitto 2.0.11 answers PUBREC with 0x97")
        if maximum < 65_535:
            client.send(publish(V5, topic, b"x", qos=2, packetId=maximum + 1))
            client.closes(0x93)

    def test_exceedingItInOneGoEndsConnection(self) -> None:
        """[MQTT5-3.3.4-8] The same from a client that does not look at answers meanwhile."""
        client = self.client()
        maximum = client.connack.get("receiveMaximum", 65_535)
        self.notForeign("mosquitto 2.0.11 answers PUBREC with 0x97")
        topic = self.topic("a")
        for number in range(1, maximum + 2):
            client.send(publish(V5, topic, b"x", qos=2, packetId=number))
        received = 0
        while True:
            packet = client.receive()
            if packet.kind != PUBREC:
                break
            received += 1
        self.assertEqual((packet.kind, packet.code), (DISCONNECT, 0x93))
        self.assertLessEqual(received, maximum)

    def test_pubcompGivesRoomBack(self) -> None:
        """Section 4.9: PUBCOMP gives the client its room back."""
        client = self.client()
        count = client.connack.get("receiveMaximum", 65_535)
        count = min(count, 2000)
        topic = self.topic("a")
        for _ in range(3):
            client.send(
                b"".join(
                    publish(V5, topic, b"x", qos=2, packetId=each) for each in range(1, count + 1)
                )
            )
            for _ in range(count):
                client.expect(PUBREC)
            client.send(b"".join(ack(PUBREL, each) for each in range(1, count + 1)))
            for _ in range(count):
                client.expect(PUBCOMP)
        client.ping()


class PacketSizeTests(MqttTestCase):
    """
    How large a packet may be.
    """

    version = V5

    def test_oversizedMessageCountsAsDelivered(self) -> None:
        """[MQTT5-3.1.2-24] [MQTT5-3.1.2-25] Too large for the client: as if it was delivered."""
        for qos in range(3):
            client = self.client(properties=[("maximumPacketSize", 400)])
            client.subscribe(self.topic("a"), qos=qos)
            publisher = self.client()
            publisher.publish(self.topic("a"), b"1", qos)
            publisher.publish(self.topic("a"), b"x" * 400, qos)
            publisher.publish(self.topic("a"), b"2", qos)
            packets = client.messages(2)
            self.assertEqual([each.payload for each in packets], [b"1", b"2"])
            self.assertLessEqual(max(each.size for each in packets), 400)
            self.assertNothing(client)

    def test_othersGetOversizedMessage(self) -> None:
        """[MQTT5-3.1.2-25] Others get it."""
        small = self.client(properties=[("maximumPacketSize", 300)])
        large = self.client()
        for client in (small, large):
            client.subscribe(self.topic("a"), qos=1)
        large.publish(self.topic("a"), b"x" * 1000, 1)
        self.assertEqual(large.message().payload, b"x" * 1000)
        self.assertNothing(small)

    def test_ownPropertyNeverMakesOversized(self) -> None:
        """[MQTT5-3.1.2-24] What the broker adds to a message does not make it too large."""
        topic = self.topic("a")
        size = len(publish(V5, topic, bytes(32), qos=1, packetId=1))
        client = self.client(properties=[("maximumPacketSize", size)])
        client.subscribe(topic, qos=1)
        self.client().publish(topic, bytes(32), 1)
        self.assertEqual(client.message().payload, bytes(32))
        self.notForeign("mosquitto 2.0.11 does not count the fixed header")
        self.client().publish(topic, bytes(33), 1)
        self.client().publish(topic, bytes(31), 1)
        self.assertEqual(client.message().payload, bytes(31))

    def test_oversizedRetainedIsSkipped(self) -> None:
        """[MQTT5-3.1.2-24] Retained ones too."""
        publisher = self.client()
        publisher.publish(self.topic("large"), b"x" * 1000, 1, retain=True)
        publisher.publish(self.topic("small"), b"x", 1, retain=True)
        client = self.client(properties=[("maximumPacketSize", 400)])
        client.subscribe(self.topic("+"), qos=1)
        self.assertEqual(client.message().topic, self.topic("small"))
        self.assertNothing(client)

    def test_oversizedTakesNoRoom(self) -> None:
        """[MQTT5-3.1.2-25] With few in flight, those that are too large take no room."""
        self.notForeign("mosquitto 2.0.11 gets stuck")
        items = [("maximumPacketSize", 400), ("receiveMaximum", 1)]
        client = self.persistent("s", properties=items)
        client.subscribe(self.topic("a"), qos=1)
        client.leave()
        publisher = self.client()
        for number in range(5):
            publisher.publish(self.topic("a"), b"x" * 400, 1)
            publisher.publish(self.topic("a"), str(number).encode(), 1)
        client = self.persistent("s", properties=items)
        got = [int(each.payload) for each in client.messages(5)]
        self.assertEqual(got, list(range(5)))
        self.assertNothing(client)

    def test_packetAboveServersMaximumEndsConnection(self) -> None:
        """[MQTT5-3.2.2-15] Too large for the server: 0x95, before all of it has come."""
        client = self.client()
        maximum = client.connack.get("maximumPacketSize")
        if maximum is None:
            self.notForeign("it takes everything")
        self.assertIsNotNone(maximum)
        head = b"\0\1a\0"
        client.send(b"\x30" + varint(maximum) + head)
        client.closes(0x95)

    def test_packetAtServersMaximumIsRead(self) -> None:
        """[MQTT5-3.2.2-15] Just as large as the server takes is read; content may be refused."""
        client = self.client()
        maximum = client.connack.get("maximumPacketSize", 1_000_000)
        topic = self.topic("a").encode()
        head = u16(len(topic)) + topic + u16(1) + b"\0"
        body = head + bytes(maximum - 4 - len(head) - (0 if maximum < 2_097_156 else 1))
        packet = frame(PUBLISH, 2, body)
        self.assertEqual(len(packet), maximum)
        client.send(packet)
        answer = client.expect(PUBACK)
        self.assertIn(answer.code, (0, 0x10, 0x97, 0x95))
        client.ping()
