"""
Sessions that outlive their connections, and restarts.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.mqtt.fields import Properties
from svcbroker.carriers.mqtt.packets import (
    MQTT_5,
    MQTT_311,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
)
from svcbroker.carriers.mqtt.settings import MqttSettings

from .support import Client, Server

VERSIONS = (MQTT_311, MQTT_5)


def lasting(server: Server, clientId: str = "client", version: int = MQTT_5) -> Client:
    """A client with a session that lasts, resumed if it is there."""
    client = server.client(version)
    fields = {"expiry": 1000} if version == MQTT_5 else {}
    client.connack = client.connect(clientId, cleanStart=False, **fields)  # type: ignore[attr-defined]
    return client


def isPresent(client: Client) -> bool:
    """Whether the session was there."""
    present: bool = client.connack.sessionPresent  # type: ignore[attr-defined]
    return present


class ResumeTests(SynchronousTestCase):
    """
    A client that comes back.
    """

    def test_offline(self) -> None:
        """What was published meanwhile arrives, in order, with the granted QoS."""
        for version in VERSIONS:
            server = Server()
            client = lasting(server, version=version)
            self.assertFalse(isPresent(client))
            client.subscribe("t/#", 2)
            client.disconnect()
            publisher = server.connected("p", version)
            for qos in range(3):
                publisher.publish(f"t/{qos}", b"%d" % qos, qos)
            client = lasting(server, version=version)
            self.assertTrue(isPresent(client))
            messages = client.takeMessages()
            self.assertEqual([each.payload for each in messages], [b"0", b"1", b"2"])
            self.assertEqual([each.qos for each in messages], [0, 1, 2])
            self.assertEqual([each.dup for each in messages], [False] * 3)

    def test_cleanStart(self) -> None:
        """A clean start ends the session that was there."""
        for version in VERSIONS:
            server = Server()
            lasting(server, version=version).subscribe("t", 1)
            client = server.client(version)
            self.assertFalse(client.connect("client", cleanStart=True).sessionPresent)
            server.event("t", b"x")
            self.assertEqual(client.take(), [])

    def test_noExpiry(self) -> None:
        """Without expiry a session ends with its connection."""
        server = Server()
        client = server.connected(cleanStart=False)
        client.subscribe("t", 1)
        client.lose()
        self.assertEqual(len(server.carrier.sessions), 0)
        self.assertFalse(server.client().connect(cleanStart=False).sessionPresent)
        self.assertEqual(server.notes.kept, {})

    def test_expires(self) -> None:
        """A session ends when its interval is over, also through a restart."""
        server = Server()
        for isRestarted in (False, True):
            client = lasting(server)
            client.subscribe("t", 1)
            client.disconnect()
            server.wait(500)
            if isRestarted:
                server = server.restarted()
            server.wait(499)
            self.assertEqual(len(server.carrier.sessions), 1)
            server.wait(2)
            self.assertEqual(len(server.carrier.sessions), 0)
            self.assertEqual(server.notes.kept.keys() & {("mqtt-session", '["1","client"]')}, set())
            client = lasting(server)
            self.assertFalse(isPresent(client))
            client.disconnect(properties=Properties(sessionExpiryInterval=0))
            self.assertEqual(len(server.carrier.sessions), 0)

    def test_expiryOnDisconnect(self) -> None:
        """DISCONNECT can change the interval."""
        server = Server()
        lasting(server).disconnect(properties=Properties(sessionExpiryInterval=5))
        server.wait(4)
        client = lasting(server)
        self.assertTrue(isPresent(client))
        client.disconnect(properties=Properties(sessionExpiryInterval=5))
        server.wait(6)
        self.assertFalse(isPresent(lasting(server)))

    def test_never(self) -> None:
        """The largest interval, and 3.1.1 without Clean Session, never expire."""
        server = Server()
        server.connected("a", expiry=0xFFFFFFFF).lose()
        server.connected("b", MQTT_311, cleanStart=False).lose()
        server.wait(10**9)
        self.assertEqual(len(server.carrier.sessions), 2)

    def test_cappedExpiry(self) -> None:
        """The operator can bound the interval; the client is told."""
        server = Server(MqttSettings(maxSessionExpiry=60))
        client = server.client()
        self.assertEqual(client.connect(expiry=100).properties.sessionExpiryInterval, 60)
        client.lose()
        server.wait(61)
        self.assertEqual(len(server.carrier.sessions), 0)

    def test_redelivery(self) -> None:
        """Unacknowledged messages come again, marked, with their identifiers, in order."""
        for version in VERSIONS:
            server = Server()
            client = lasting(server, version=version)
            client.subscribe("t", 2)
            publisher = server.connected("p", version)
            publisher.publish("t", b"1", 1)
            publisher.publish("t", b"2", 2)
            publisher.publish("t", b"3", 2)
            first = [each for each in client.take() if isinstance(each, Publish)]
            client.send(Pubrec(first[2].packetId))
            self.assertEqual(client.take(), [Pubrel(first[2].packetId)])
            client.lose()
            publisher.publish("t", b"4", 1)
            client = lasting(server, version=version)
            pubrel, *again = client.take()
            self.assertEqual(pubrel, Pubrel(first[2].packetId))
            messages = [each for each in again if isinstance(each, Publish)]
            self.assertEqual(
                [(each.payload, each.dup, each.packetId) for each in messages[:2]],
                [(each.payload, True, each.packetId) for each in first[:2]],
            )
            self.assertEqual([(each.payload, each.dup) for each in messages[2:]], [(b"4", False)])
            client.send(Pubcomp(first[2].packetId), Puback(messages[0].packetId))
            client.send(Pubrec(messages[1].packetId), Pubcomp(messages[1].packetId))
            client.take()
            client.lose()
            messages = lasting(server, version=version).takeMessages()
            self.assertEqual([(each.payload, each.dup) for each in messages], [(b"4", True)])

    def test_expiredAfterSending(self) -> None:
        """What was sent once is sent again, expired or not."""
        server = Server()
        client = lasting(server)
        client.subscribe("t", 2)
        expiring = Properties(messageExpiryInterval=3)
        server.connected("p").publish("t", b"x", 2, properties=expiring)
        client.take()
        client.lose()
        server.wait(10)
        (message,) = lasting(server).takeMessages()
        self.assertTrue(message.dup)

    def test_unsubscribedInFlight(self) -> None:
        """What was sent before UNSUBSCRIBE is completed, also over the next connection."""
        server = Server()
        client = lasting(server)
        client.subscribe("t", 1)
        server.event("t", b"x")
        client.take()
        client.unsubscribe("t")
        client.lose()
        (message,) = lasting(server).takeMessages()
        self.assertEqual((message.payload, message.dup), (b"x", True))
        server.event("t", b"y")

    def test_restart(self) -> None:
        """A session survives the end of the broker, with all that it is owed."""
        for version in VERSIONS:
            server = Server()
            client = lasting(server, version=version)
            client.subscribe("a", 1)
            client.subscribe("b/+", 2)
            for topic, content in (("a", b"1"), ("b/1", b"2"), ("c", b"no"), ("a", b"3")):
                server.event(topic, content)
            first, second, _ = client.take()
            assert isinstance(first, Publish) and isinstance(second, Publish)
            client.send(Puback(first.packetId))
            server.wait(1)
            server = server.restarted()
            server.event("b/2", b"4")
            client = lasting(server, version=version)
            self.assertTrue(isPresent(client))
            messages = client.takeMessages()
            self.assertEqual(sorted(each.payload for each in messages), [b"2", b"3", b"4"])
            # Exactly once needs the identifier.
            (again,) = [each for each in messages if each.payload == b"2"]
            self.assertEqual((again.dup, again.packetId), (True, second.packetId))

    def test_restartBeforeAnything(self) -> None:
        """A subscription that was granted misses nothing, whatever happens then."""
        server = Server()
        client = lasting(server)
        client.subscribe("t", 1)
        server = server.restarted()
        server.event("t", b"x")
        self.assertEqual(lasting(server).payloads(), [b"x"])

    def test_releasedSurvives(self) -> None:
        """After PUBREC a message is never sent again, also after the end of the broker."""
        server = Server()
        client = lasting(server)
        client.subscribe("t", 2)
        server.event("t", b"x")
        message = client.takeOne(Publish)
        client.send(Pubrec(message.packetId))
        self.assertEqual(client.take(), [Pubrel(message.packetId)])
        server = server.restarted()
        client = lasting(server)
        self.assertEqual(client.take(), [Pubrel(message.packetId)])
        client.send(Pubcomp(message.packetId))
        client.lose()
        self.assertEqual(lasting(server).take(), [])

    def test_qos0Subscription(self) -> None:
        """A session with QoS 0 gets what came meanwhile too: the log has it anyway."""
        server = Server()
        client = lasting(server)
        client.subscribe("t", 0)
        server.event("t", b"1")
        self.assertEqual(client.payloads(), [b"1"])
        client.lose()
        server.event("t", b"2")
        self.assertEqual(lasting(server).payloads(), [b"2"])

    def test_groupGone(self) -> None:
        """A session of a group that is no longer served does no harm."""
        server = Server()
        server.connected("a", userName="2/x", expiry=100).lose()
        server.wait(1)
        del server.ledgers["2"]
        server = server.restarted()
        self.assertEqual(len(server.carrier.sessions), 0)

    def test_leavesNothing(self) -> None:
        """An ended session leaves nothing on the disk."""
        server = Server()
        client = lasting(server)
        client.subscribe("t", 2)
        client.subscribe("$share/g/t", 2)
        server.event("t", b"x")
        client.publish("t", b"y", 2)
        client.take()
        client.disconnect(properties=Properties(sessionExpiryInterval=0))
        server.wait(1)
        self.assertEqual(server.notes.kept, {})


class ShareTests(SynchronousTestCase):
    """
    Shared subscriptions.
    """

    def members(self, server: Server, *names: str, qos: int = 1) -> list[Client]:
        """Clients that share."""
        clients = [lasting(server, name) for name in names]
        for client in clients:
            client.subscribe("$share/g/t/#", qos)
        return clients

    def test_shared(self) -> None:
        """Each message goes to one member, in turn; other subscriptions are apart."""
        server = Server()
        one, two = self.members(server, "a", "b")
        other = server.connected("c")
        other.subscribe("$share/h/t/#")
        two.subscribe("t/1")
        for number in range(6):
            server.event(f"t/{number}", b"%d" % number)
        first, second = one.payloads(), two.payloads()
        self.assertEqual(len(first), 3)
        self.assertEqual(sorted(first + second), [b"0", b"1", b"1", b"2", b"3", b"4", b"5"])
        self.assertEqual(len(other.payloads()), 6)

    def test_full(self) -> None:
        """Who cannot take more is passed over; what nobody can take waits in the log."""
        server = Server(MqttSettings(sendMaximum=2))
        one, two = self.members(server, "a", "b")
        for number in range(10):
            server.event("t", b"%d" % number)
        slow = [each for each in one.take() if isinstance(each, Publish)]
        self.assertEqual(len(slow), 2)
        fast = two.payloads()
        self.assertEqual(len(fast), 8)
        self.assertEqual(
            sorted([*fast, *(each.payload for each in slow)]), [b"%d" % n for n in range(10)]
        )

    def test_leave(self) -> None:
        """What a member did not acknowledge goes to another when it leaves."""
        server = Server()
        one, two = self.members(server, "a", "b")
        server.event("t", b"1")
        server.event("t", b"2")
        one.take()
        one.lose()
        self.assertEqual(sorted(two.payloads()), [b"1", b"2"])
        self.assertEqual(lasting(server, "a").take(), [])

    def test_qos2Stays(self) -> None:
        """What was sent with QoS 2 stays with its session."""
        server = Server()
        one, two = self.members(server, "a", "b", qos=2)
        server.event("t", b"1")
        message = one.takeOne(Publish)
        one.lose()
        self.assertEqual(two.take(), [])
        (again,) = lasting(server, "a").takeMessages()
        self.assertEqual((again.packetId, again.dup), (message.packetId, True))

    def test_qos2EndsWithItsSession(self) -> None:
        """If that session ends, nobody gets it."""
        server = Server()
        one, two = self.members(server, "a", "b", qos=2)
        server.event("t", b"1")
        one.take()
        one.disconnect(properties=Properties(sessionExpiryInterval=0))
        self.assertEqual(two.take(), [])
        two.lose()
        self.assertEqual(lasting(server, "b").take(), [])

    def test_allAbsent(self) -> None:
        """What is published while all are absent waits, also through a restart."""
        server = Server()
        for client in self.members(server, "a", "b"):
            client.lose()
        server.event("t", b"1")
        server = server.restarted()
        server.event("t", b"2")
        self.assertEqual(lasting(server, "b").payloads(), [b"1", b"2"])
        self.assertEqual(lasting(server, "a").payloads(), [])

    def test_lastLeaves(self) -> None:
        """When the last session is gone, the share begins anew."""
        server = Server()
        (client,) = self.members(server, "a")
        client.unsubscribe("$share/g/t/#")
        client.take()
        server.event("t", b"missed")
        client.subscribe("$share/g/t/#", 1)
        server.event("t", b"seen")
        self.assertEqual(client.payloads(), [b"seen"])

    def test_noRetained(self) -> None:
        """Retained messages are not sent to shared subscriptions."""
        server = Server()
        server.connected("p").publish("t", b"x", retain=True)
        (client,) = self.members(server, "a")
        self.assertEqual(client.take(), [])

    def test_refused(self) -> None:
        """A member with its own granted QoS; a refusal is not offered to others."""
        server = Server()
        one, two = self.members(server, "a", "b")
        server.event("t", b"x")
        message = one.takeOne(Publish)
        one.send(Puback(message.packetId, 0x80))
        one.lose()
        self.assertEqual(two.take(), [])
