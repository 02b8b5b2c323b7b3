"""
Will messages: section 3.1.2.5 of both specifications, and will delay of MQTT 5.
"""

from __future__ import annotations

from .client import Closed, MqttClient
from .packets import PUBLISH, V5, Property, Will, disconnect, frame
from .support import MqttTestCase


class WillTests(MqttTestCase):
    """
    Both versions.
    """

    def setUp(self) -> None:
        super().setUp()
        self.watcher = self.client()
        self.watcher.subscribe(self.topic("#"))

    def will(self, name: str = "w", **more: object) -> Will:
        """A will."""
        fields: dict[str, object] = {"topic": self.topic("w"), "payload": name.encode(), **more}
        return Will(**fields)  # type: ignore[arg-type]

    def test_lostConnectionPublishesWill(self) -> None:
        """[MQTT-3.1.2-8] [MQTT5-3.1.2-8] A connection that ends without DISCONNECT."""
        self.client(will=self.will("1", qos=1)).close()
        packet = self.watcher.message()
        self.assertEqual((packet.topic, packet.payload), (self.topic("w"), b"1"))
        self.assertEqual((packet.qos, packet.retain, packet.dup), (1, False, False))

    def test_willHasItsOwnQos(self) -> None:
        """[MQTT-3.1.2-9] [MQTT5-3.1.2-9] A will has a QoS of its own."""
        for qos in range(3):
            self.client(will=self.will(str(qos), qos=qos)).close()
            packet = self.watcher.message()
            self.assertEqual((packet.payload, packet.qos), (str(qos).encode(), qos))

    def test_willMayBeEmpty(self) -> None:
        """Section 3.1.3.3: a will may have no bytes."""
        self.client(will=self.will("")).close()
        self.assertEqual(self.watcher.message().payload, b"")

    def test_willIsAnyBytes(self) -> None:
        """Section 3.1.3.3: a will is bytes, not text."""
        self.client(will=self.will(payload=b"\0\xff\xfe")).close()
        self.assertEqual(self.watcher.message().payload, b"\0\xff\xfe")

    def test_disconnectDropsWill(self) -> None:
        """[MQTT-3.14.4-3] [MQTT5-3.14.4-3] After DISCONNECT there is none."""
        self.client(will=self.will()).leave()
        self.assertNothing(self.watcher)

    def test_silencePublishesWill(self) -> None:
        """Section 3.1.2.5: silence of 1.5 times the keep-alive is an end without DISCONNECT."""
        self.client(will=self.will(), keepAlive=1)
        self.assertEqual(self.watcher.message().payload, b"w")

    def test_protocolErrorPublishesWill(self) -> None:
        """Section 3.1.2.5: the server closes it because of a protocol error."""
        client = self.client(will=self.will())
        client.send(frame(0, 0, b""))
        client.closes()
        self.assertEqual(self.watcher.message().payload, b"w")

    def test_malformedDisconnectPublishesWill(self) -> None:
        """[MQTT-3.14.1-1] A DISCONNECT with reserved bits is none."""
        client = self.client(will=self.will())
        client.send(frame(14, 1, b""))
        client.closes()
        self.assertEqual(self.watcher.message().payload, b"w")

    def test_takeOverPublishesWill(self) -> None:
        """Section 3.1.4: the old connection of a take-over is closed, and left no DISCONNECT."""
        self.client("same", will=self.will())
        new = self.client("same")
        self.assertEqual(self.watcher.message().payload, b"w")
        new.leave()
        self.assertNothing(self.watcher)

    def test_willIsItsConnections(self) -> None:
        """[MQTT-3.1.2-10] A session that comes back without a will has none."""
        self.persistent("s", will=self.will("1")).leave()
        self.persistent("s").close()
        self.persistent("s", will=self.will("2")).close()
        self.assertEqual(self.watcher.message().payload, b"2")
        self.assertNothing(self.watcher)

    def test_willIsPublishedOnce(self) -> None:
        """[MQTT-3.1.2-10] Once published it is gone."""
        self.persistent("s", will=self.will()).close()
        self.assertEqual(self.watcher.message().payload, b"w")
        self.persistent("s").close()
        self.persistent("s").leave()
        self.assertNothing(self.watcher)

    def test_willIsNotRetainedUnasked(self) -> None:
        """[MQTT-3.1.2-16] [MQTT5-3.1.2-14] A will without retain is not kept."""
        self.client(will=self.will()).close()
        self.watcher.message()
        late = self.client()
        late.subscribe(self.topic("#"))
        self.assertNothing(late)

    def test_willMayBeRetained(self) -> None:
        """[MQTT-3.1.2-17] [MQTT5-3.1.2-15] A will with retain is."""
        self.client(will=self.will(retain=True)).close()
        self.assertFalse(self.watcher.message().retain)
        late = self.client()
        late.subscribe(self.topic("#"))
        packet = late.message()
        self.assertEqual((packet.payload, packet.retain), (b"w", True))

    def test_ownSessionGetsTheWill(self) -> None:
        """Section 3.1.2.5: a will is a message like others, for its own session too."""
        client = self.persistent("s", will=self.will(qos=1))
        client.subscribe(self.topic("w"))
        client.close()
        self.watcher.message()
        client = self.persistent("s")
        self.assertEqual(client.message().payload, b"w")

    def test_willTopicHasNoWildcards(self) -> None:
        """[MQTT-3.3.2-2] A will is published to a topic name, in which there are no wildcards."""
        client = self.open()
        try:
            answer = client.connect(self.id_(), will=Will(topic=self.topic("+")))
        except Closed:
            return
        self.assertNotEqual(answer.code, 0)
        self.assertRaises(Closed, client.receive)


class Will5Tests(WillTests):
    """
    What both versions have, with 5; and the rest of section 3.1.3.2.
    """

    version = V5

    def delayed(self, delay: int, expiry: int, name: str = "s", clean: bool = False) -> MqttClient:
        """A client whose will is delayed."""
        return self.client(
            name,
            clean=clean,
            will=self.will(properties=[("willDelay", delay)]),
            properties=[("sessionExpiry", expiry)],
        )

    def test_disconnect4PublishesWill(self) -> None:
        """Section 3.14.2.1: DISCONNECT with 0x04 wants it published."""
        client = self.client(will=self.will())
        client.send(disconnect(V5, 0x04))
        client.closes()
        self.assertEqual(self.watcher.message().payload, b"w")

    def test_disconnectWithErrorPublishesWill(self) -> None:
        """[MQTT5-3.14.4-3] Only 0x00 takes a will back; a client may leave with a failure."""
        self.notForeign("mosquitto 2.0.11 publishes with 0x04 only")
        client = self.client(will=self.will())
        client.send(disconnect(V5, 0x80))
        client.closes()
        self.assertEqual(self.watcher.message().payload, b"w")

    def test_willPropertiesArrive(self) -> None:
        """Section 3.1.3.2: a will's properties are its message's."""
        items: list[Property] = [
            ("payloadFormat", 1),
            ("messageExpiry", 100),
            ("contentType", "text/plain"),
            ("responseTopic", "reply/here"),
            ("correlationData", b"\0\1"),
            ("userProperty", ("b", "1")),
            ("userProperty", ("a", "2")),
            ("userProperty", ("b", "1")),
        ]
        self.client(will=self.will(properties=[("willDelay", 0), *items])).close()
        packet = self.watcher.message()
        self.assertEqual(packet.get("payloadFormat"), 1)
        self.assertIn(packet.get("messageExpiry"), (98, 99, 100))
        self.assertEqual(packet.get("contentType"), "text/plain")
        self.assertEqual(packet.get("responseTopic"), "reply/here")
        self.assertEqual(packet.get("correlationData"), b"\0\1")
        self.assertEqual(packet.user, [("b", "1"), ("a", "2"), ("b", "1")])
        self.assertNotIn("willDelay", dict(packet.properties))

    def test_willWaitsForItsDelay(self) -> None:
        """Section 3.1.3.2.2: it is published when the delay has passed, and not before."""
        started = self.broker.seconds()
        self.delayed(1, 300).close()
        self.assertNothing(self.watcher)
        self.assertEqual(self.watcher.message(5).payload, b"w")
        self.assertGreaterEqual(self.broker.seconds() - started, 0.9)

    def test_sessionEndEndsTheDelay(self) -> None:
        """Section 3.1.3.2.2: or when the session ends, whichever comes first."""
        self.delayed(300, 1).close()
        self.assertNothing(self.watcher)
        self.assertEqual(self.watcher.message(5).payload, b"w")

    def test_willWithoutSessionIsImmediate(self) -> None:
        """Section 3.1.3.2.2: a session that ends with its connection leaves no time."""
        self.notForeign("mosquitto 2.0.11 waits for the delay")
        self.delayed(300, 0).close()
        self.assertEqual(self.watcher.message(5).payload, b"w")

    def test_returnCancelsDelayedWill(self) -> None:
        """[MQTT5-3.1.3-9] Who comes back before the delay has passed has had no accident."""
        self.delayed(1, 300).close()
        client = self.persistent("s")
        self.assertTrue(client.connack.sessionPresent)
        self.assertRaises(TimeoutError, self.watcher.receive, 2.1)
        client.leave()
        self.assertNothing(self.watcher)

    def test_cleanStartPublishesDelayedWill(self) -> None:
        """[MQTT5-3.1.2-8] A clean start ends the old session, and so its delay."""
        self.notForeign("mosquitto 2.0.11 forgets the will")
        self.delayed(300, 300).close()
        self.client("s", clean=True)
        self.assertEqual(self.watcher.message(5).payload, b"w")

    def test_disconnectDropsDelayedWill(self) -> None:
        """[MQTT5-3.14.4-3] DISCONNECT with 0x00 takes a delayed will back too."""
        self.delayed(1, 300).leave()
        self.assertRaises(TimeoutError, self.watcher.receive, 1.6)

    def test_delayHoldsNothingUp(self) -> None:
        """Section 3.1.3.2.2: the delay does not hold up other messages."""
        self.delayed(300, 300).close()
        self.client().publish(self.topic("other"), b"x", 1)
        self.assertEqual(self.watcher.expect(PUBLISH).payload, b"x")
