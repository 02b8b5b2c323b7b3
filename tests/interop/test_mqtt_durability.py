"""
What MQTT clients find when the daemon has gone down and come up again, in order or by SIGKILL.
"""

from __future__ import annotations

import signal
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from . import brokers
from .mqttpackets import (
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    V4,
    V5,
    Packet,
    Property,
    Will,
    ack,
    publish,
)
from .mqttwire import MqttClient

LEDGER = "pbft:nodes=1"
FOREVER: tuple[Property, ...] = (("sessionExpiry", 0xFFFFFFFF),)


class DurabilityTests(SynchronousTestCase):
    """
    A daemon whose end is SIGTERM.
    """

    end: int = signal.SIGTERM
    timeout = 180

    def setUp(self) -> None:
        root = Path(self.mktemp()).absolute()
        root.mkdir()
        self.dataDir = root / "data"
        self._start()
        self.addCleanup(lambda: self.broker.stop(signal.SIGKILL))

    def _start(self) -> None:
        self.broker = brokers.start(self.dataDir, ledger=LEDGER)

    def restart(self) -> None:
        """Down and up again."""
        self.assertEqual(self.broker.trouble(), "")
        code = self.broker.stop(self.end)
        self.assertEqual(code, -self.end if self.end == signal.SIGKILL else 0)
        self.assertNotIn("Traceback", "".join(self.broker.output))
        self._start()

    def client(self, clientId: str = "", version: int = V5, **more: object) -> MqttClient:
        """A client that is connected. With a name it has a session that stays."""
        client = MqttClient(self.broker.mqtt, version)
        self.addCleanup(client.close)
        if clientId and version == V5:
            more = {"properties_": FOREVER, **more}
        answer = client.connect(clientId, clean=not clientId, **more)
        self.assertEqual(answer.code, 0)
        return client

    def publish(self, *payloads: bytes, qos: int = 1, **more: object) -> None:
        """Publish to the topic C{a}."""
        publisher = self.client()
        for payload in payloads:
            publisher.publish("a", payload, qos, **more)
        publisher.leave()

    def assertMessages(self, client: MqttClient, *payloads: bytes) -> None:
        """Just these come."""
        got = [each.payload for each in client.messages(len(payloads))]
        self.assertEqual(got, list(payloads))
        self.assertEqual(client.settle(), [])

    def fresh(self, client: MqttClient, *old: bytes) -> Packet:
        """
        The first message but these, which were acknowledged: with SIGKILL the broker may have
        forgotten that. QoS 1 is at least once.
        """
        packet = client.message()
        while packet.payload in old:
            self.assertEqual(self.end, signal.SIGKILL)
            packet = client.message()
        return packet

    def settled(self) -> None:
        """All that sessions keep is on disk: a SUBACK waits for that."""
        self.client("settled").subscribe("settled")

    def test_session(self) -> None:
        """[MQTT-4.1.0-1] Sessions, subscriptions, what was missed and what was not acknowledged."""
        client = self.client("new")
        client.subscribe("a", qos=1, properties_=[("subscriptionId", 5)])
        older = self.client("old", V4)
        older.subscribe("+", qos=2)
        self.publish(b"1", b"2")
        self.assertEqual([each.payload for each in client.messages(2)], [b"1", b"2"])
        self.assertEqual([each.payload for each in older.messages(2)], [b"1", b"2"])
        client.leave()
        older.leave()
        self.publish(b"3")
        self.restart()
        self.publish(b"4")
        client = self.client("new")
        self.assertTrue(client.connack.sessionPresent)
        packet = self.fresh(client, b"1", b"2")
        self.assertEqual((packet.payload, packet.all("subscriptionId")), (b"3", [5]))
        self.assertMessages(client, b"4")
        older = self.client("old", V4)
        self.assertTrue(older.connack.sessionPresent)
        self.assertEqual(self.fresh(older, b"1", b"2").payload, b"3")
        self.assertMessages(older, b"4")

    def test_unacknowledged(self) -> None:
        """[MQTT-4.4.0-1] What a client did not acknowledge comes again; it may be known by DUP."""
        client = self.client("s")
        client.subscribe("a", qos=1)
        self.publish(b"1", b"2", b"3")
        client.message()
        client.expect(PUBLISH)
        client.expect(PUBLISH)
        client.ping()
        self.restart()
        client = self.client("s")
        self.assertTrue(client.connack.sessionPresent)
        self.assertEqual(self.fresh(client, b"1").payload, b"2")
        self.assertMessages(client, b"3")

    def test_retained(self) -> None:
        """Section 3.3.1.3: retained messages, and that they were cleared."""
        self.publish(b"first", b"kept", retain=True, properties_=[("contentType", "x")])
        publisher = self.client()
        publisher.publish("b", b"gone", 1, retain=True)
        publisher.publish("b", b"", 1, retain=True)
        publisher.publish("c", b"never", 1)
        for _ in range(2):
            self.restart()
            client = self.client()
            client.subscribe("#", qos=1)
            packet = client.message()
            self.assertEqual((packet.topic, packet.payload, packet.retain), ("a", b"kept", True))
            self.assertEqual(packet.get("contentType"), "x")
            self.assertEqual(client.settle(), [])

    def test_exactlyOnceFromClient(self) -> None:
        """[MQTT-4.3.3-2] QoS 2 from a client, whose PUBREL is still to come, is known again."""
        watcher = self.client("w")
        watcher.subscribe("a")
        client = self.client("s")
        client.send(publish(V5, "a", b"1", qos=2, packetId=7))
        client.expect(PUBREC)
        watcher.message()
        watcher.leave()
        self.restart()
        client = self.client("s")
        self.assertTrue(client.connack.sessionPresent)
        client.send(publish(V5, "a", b"1", qos=2, packetId=7, dup=True))
        client.expect(PUBREC)
        client.send(ack(PUBREL, 7))
        client.expect(PUBCOMP)
        watcher = self.client("w")
        self.assertEqual(watcher.settle(), [])

    def test_exactlyOnceToClient(self) -> None:
        """[MQTT-4.4.0-1] QoS 2 to a client after its PUBREC: PUBREL, and never the message."""
        client = self.client("s")
        client.subscribe("a", qos=2)
        self.publish(b"1", qos=2)
        packet = client.expect(PUBLISH)
        client.send(ack(PUBREC, packet.packetId))
        client.expect(PUBREL)
        self.restart()
        client = self.client("s")
        released = client.receive()
        self.assertEqual((released.kind, released.packetId), (PUBREL, packet.packetId))
        client.send(ack(PUBCOMP, packet.packetId))
        self.publish(b"2", qos=2)
        self.assertMessages(client, b"2")

    def test_ended(self) -> None:
        """[MQTT5-4.1.0-2] A session that ended stays so."""
        client = self.client("s")
        client.subscribe("a")
        client.leave(0, [("sessionExpiry", 0)])
        self.client("other").leave()
        self.settled()
        self.restart()
        self.assertFalse(self.client("s").connack.sessionPresent)
        self.assertTrue(self.client("other").connack.sessionPresent)

    def test_unsubscribed(self) -> None:
        """[MQTT-3.10.4-2] So does a subscription that ended."""
        client = self.client("s")
        client.subscribe("a", "b")
        client.unsubscribe("a")
        client.leave()
        self.restart()
        self.publish(b"1")
        client = self.client("s")
        self.assertEqual(client.settle(), [])

    def test_will(self) -> None:
        """[MQTT-3.1.2-8] Whoever was connected when the daemon ended: the will is published."""
        watcher = self.client("w")
        watcher.subscribe("will", qos=1)
        watcher.leave()
        self.client("s", will=Will(topic="will", payload=b"last", qos=1))
        self.restart()
        watcher = self.client("w")
        self.assertMessages(watcher, b"last")

    def test_shared(self) -> None:
        """Section 4.8.2: a shared subscription goes on where it was."""
        client = self.client("s")
        client.subscribe("$share/g/a", qos=1)
        self.publish(b"1", b"2")
        self.assertEqual([each.payload for each in client.messages(2)], [b"1", b"2"])
        client.leave()
        self.publish(b"3")
        self.restart()
        self.publish(b"4")
        client = self.client("s")
        self.assertEqual(self.fresh(client, b"1", b"2").payload, b"3")
        self.assertMessages(client, b"4")


class KillTests(DurabilityTests):
    """
    The same, with SIGKILL.
    """

    end = signal.SIGKILL

    def test_acknowledgedIsThere(self) -> None:
        """PUBACK and PUBCOMP come only when the event is on stable storage."""
        watcher = self.client("w")
        watcher.subscribe("a", qos=1)
        watcher.leave()
        publisher = self.client()
        for number in range(40):
            publisher.publish("a", str(number).encode(), 1 + number % 2)
        self.restart()
        self.assertMessages(self.client("w"), *(str(each).encode() for each in range(40)))
