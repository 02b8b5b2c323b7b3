"""
What MQTT clients find when a broker has gone down and come up again.

Each scenario is a generator: where it yields, the broker ends and is started again. So one
restart of a daemon can serve all of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from .client import MqttClient
from .packets import PUBCOMP, PUBLISH, PUBREC, PUBREL, V4, V5, Packet, Will, ack, publish
from .support import MqttTestCase


class DurabilityTestCase(MqttTestCase):
    """
    The scenarios.

    @ivar isCrash: whether the broker ends without any order. Then it may have forgotten
        acknowledgements that it did not have to answer: QoS 1 is at least once.
    """

    version = V5
    isCrash = False

    def publishAll(self, topic: str, *payloads: bytes, qos: int = 1, **more: object) -> None:
        """Publish messages, each with its whole exchange."""
        publisher = self.client()
        for payload in payloads:
            publisher.publish(topic, payload, qos, **more)
        publisher.leave()

    def assertPayloads(self, client: MqttClient, *payloads: bytes) -> None:
        """Just these come."""
        got = [each.payload for each in client.messages(len(payloads))]
        self.assertEqual(got, list(payloads))
        self.assertNothing(client)

    def fresh(self, client: MqttClient, *old: bytes) -> Packet:
        """The first message but these, which were acknowledged."""
        packet = client.message()
        while packet.payload in old:
            self.assertTrue(self.isCrash)
            packet = client.message()
        return packet

    def session(self) -> Iterator[None]:
        """[MQTT-4.1.0-1] Sessions, subscriptions, what was missed and what was not acknowledged."""
        topic = self.topic("session/a")
        client = self.persistent("new")
        client.subscribe(topic, qos=1, properties_=[("subscriptionId", 5)])
        older = self.persistent("old", version=V4)
        older.subscribe(self.topic("session/+"), qos=2)
        self.publishAll(topic, b"1", b"2")
        for each in (client, older):
            self.assertMessages(each.messages(2), (b"1",), (b"2",))
            each.leave()
        self.publishAll(topic, b"3")
        yield
        self.publishAll(topic, b"4")
        client = self.persistent("new")
        self.assertTrue(client.connack.sessionPresent)
        packet = self.fresh(client, b"1", b"2")
        self.assertEqual((packet.payload, packet.all("subscriptionId")), (b"3", [5]))
        self.assertPayloads(client, b"4")
        older = self.persistent("old", version=V4)
        self.assertTrue(older.connack.sessionPresent)
        self.assertEqual(self.fresh(older, b"1", b"2").payload, b"3")
        self.assertPayloads(older, b"4")

    def unacknowledged(self) -> Iterator[None]:
        """
        [MQTT-4.4.0-1] What a client did not acknowledge comes again in its order, with its packet
        identifiers and DUP.
        """
        topic = self.topic("unacknowledged")
        client = self.persistent("unacknowledged")
        client.subscribe(topic, qos=1)
        self.publishAll(topic, b"1", b"2", b"3")
        client.message()
        sent = [client.expect(PUBLISH) for _ in range(2)]
        # A SUBACK waits for the disk.
        client.subscribe(self.topic("synced"))
        yield
        client = self.persistent("unacknowledged")
        self.assertTrue(client.connack.sessionPresent)
        again = [self.fresh(client, b"1"), client.message()]
        self.assertNothing(client)
        self.assertEqual([each.payload for each in again], [b"2", b"3"])
        self.assertEqual([each.packetId for each in again], [each.packetId for each in sent])
        self.assertEqual([each.dup for each in again], [True, True])

    def retained(self) -> Iterator[None]:
        """Section 3.3.1.3: retained messages, and that they were cleared."""
        kept = self.topic("retained/kept")
        self.publishAll(kept, b"1", b"2", retain=True, properties_=[("contentType", "x")])
        self.publishAll(self.topic("retained/cleared"), b"gone", b"", retain=True)
        self.publishAll(self.topic("retained/never"), b"never")
        for _ in range(2):
            yield
            client = self.client()
            client.subscribe(self.topic("retained/#"), qos=1)
            packet = client.message()
            self.assertEqual((packet.topic, packet.payload, packet.retain), (kept, b"2", True))
            self.assertEqual(packet.get("contentType"), "x")
            self.assertNothing(client)

    def onceFromClient(self) -> Iterator[None]:
        """[MQTT-4.3.3-2] QoS 2 from a client, whose PUBREL is still to come, is known again."""
        topic = self.topic("from")
        watcher = self.persistent("watchesFrom")
        watcher.subscribe(topic)
        client = self.persistent("from")
        client.send(publish(V5, topic, b"1", qos=2, packetId=7))
        client.expect(PUBREC)
        watcher.message()
        watcher.leave()
        yield
        client = self.persistent("from")
        self.assertTrue(client.connack.sessionPresent)
        client.send(publish(V5, topic, b"1", qos=2, packetId=7, dup=True))
        client.expect(PUBREC)
        client.send(ack(PUBREL, 7))
        client.expect(PUBCOMP)
        self.assertNothing(self.persistent("watchesFrom"))

    def onceToClient(self) -> Iterator[None]:
        """[MQTT-4.4.0-1] QoS 2 to a client after its PUBREC: PUBREL, and never the message."""
        topic = self.topic("to")
        client = self.persistent("to")
        client.subscribe(topic, qos=2)
        self.publishAll(topic, b"1", qos=2)
        packet = client.expect(PUBLISH)
        client.send(ack(PUBREC, packet.packetId))
        client.expect(PUBREL)
        yield
        client = self.persistent("to")
        released = client.receive()
        self.assertEqual((released.kind, released.packetId), (PUBREL, packet.packetId))
        client.send(ack(PUBCOMP, packet.packetId))
        self.publishAll(topic, b"2", qos=2)
        self.assertPayloads(client, b"2")

    def completedBeforeRelease(self) -> Iterator[None]:
        """[MQTT-4.3.3-1] A message whose exchange is complete, while the next one is not."""
        topic = self.topic("next")
        client = self.persistent("next")
        client.subscribe(topic, qos=2)
        self.publishAll(topic, b"1", b"2", qos=2)
        client.complete(client.expect(PUBLISH))
        second = client.expect(PUBLISH)
        client.send(ack(PUBREC, second.packetId))
        client.expect(PUBREL)
        yield
        client = self.persistent("next")
        self.assertEqual(client.receive().packetId, second.packetId)
        client.send(ack(PUBCOMP, second.packetId))
        self.assertNothing(client)

    def ended(self) -> Iterator[None]:
        """[MQTT5-4.1.0-2] A session that ended stays so."""
        client = self.persistent("ended")
        client.subscribe(self.topic("ended"))
        client.leave(0, [("sessionExpiry", 0)])
        self.persistent("other").leave()
        # A SUBACK waits for the disk.
        self.persistent("synced").subscribe(self.topic("synced"))
        yield
        self.assertFalse(self.persistent("ended").connack.sessionPresent)
        self.assertTrue(self.persistent("other").connack.sessionPresent)

    def unsubscribed(self) -> Iterator[None]:
        """[MQTT-3.10.4-2] A subscription that ended stays so."""
        topic = self.topic("unsubscribed")
        client = self.persistent("unsubscribed")
        client.subscribe(topic, self.topic("unsubscribed/b"))
        client.unsubscribe(topic)
        client.leave()
        yield
        self.publishAll(topic, b"1")
        self.assertNothing(self.persistent("unsubscribed"))

    def will(self) -> Iterator[None]:
        """[MQTT-3.1.2-8] A client that was connected at the end has its will published."""
        topic = self.topic("will")
        watcher = self.persistent("watchesWill")
        watcher.subscribe(topic, qos=1)
        watcher.leave()
        self.persistent("will", will=Will(topic=topic, payload=b"last", qos=1))
        yield
        self.assertPayloads(self.persistent("watchesWill"), b"last")

    def shared(self) -> Iterator[None]:
        """Section 4.8.2: a shared subscription goes on where it was."""
        topic = self.topic("shared")
        client = self.persistent("shared")
        client.subscribe(f"$share/g/{topic}", qos=1)
        self.publishAll(topic, b"1", b"2")
        self.assertMessages(client.messages(2), (b"1",), (b"2",))
        client.leave()
        self.publishAll(topic, b"3")
        yield
        self.publishAll(topic, b"4")
        client = self.persistent("shared")
        self.assertEqual(self.fresh(client, b"1", b"2").payload, b"3")
        self.assertPayloads(client, b"4")

    def acknowledged(self) -> Iterator[None]:
        """PUBACK and PUBCOMP come only when the event is on stable storage."""
        topic = self.topic("acknowledged")
        watcher = self.persistent("watchesAcknowledged")
        watcher.subscribe(topic, qos=1)
        watcher.leave()
        publisher = self.client()
        for number in range(40):
            publisher.publish(topic, str(number).encode(), 1 + number % 2)
        yield
        watcher = self.persistent("watchesAcknowledged")
        self.assertPayloads(watcher, *(str(each).encode() for each in range(40)))

    def scenarios(self) -> list[Iterator[None]]:
        """All of them, not begun yet."""
        return [
            self.session(),
            self.unacknowledged(),
            self.retained(),
            self.onceFromClient(),
            self.onceToClient(),
            self.completedBeforeRelease(),
            self.ended(),
            self.unsubscribed(),
            self.will(),
            self.shared(),
            self.acknowledged(),
        ]
