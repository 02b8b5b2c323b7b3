"""
What of a MQTT session stays: section 3.1.2.4, 3.1.2.5, 4.1, 4.4 of both specifications.
"""

from __future__ import annotations

from .client import MqttClient
from .packets import PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL, V4, V5, ack, disconnect, publish
from .support import MqttTestCase


class SessionTests(MqttTestCase):
    """
    Both versions.
    """

    def offline(self, *messages: tuple[bytes, int], qos: int = 2) -> MqttClient:
        """A session that misses messages, and comes back."""
        client = self.persistent("s")
        client.subscribe(self.topic("a"), qos=qos)
        client.leave()
        self.publish(*messages)
        client = self.persistent("s")
        self.assertTrue(client.connack.sessionPresent)
        return client

    def receivedBefore(self, packetId: int) -> MqttClient:
        """A subscriber, while a session that ends after PUBREC publishes with QoS 2."""
        watcher = self.client()
        watcher.subscribe(self.topic("a"))
        client = self.persistent("s")
        client.send(publish(self.version, self.topic("a"), b"1", qos=2, packetId=packetId))
        client.expect(PUBREC)
        client.close()
        return watcher

    def publish(self, *messages: tuple[bytes, int]) -> None:
        """Publish to the topic of L{offline}, and wait for the acknowledgements."""
        publisher = self.client()
        for payload, qos in messages:
            publisher.publish(self.topic("a"), payload, qos)
        publisher.ping()
        publisher.leave()

    def test_sessionIsNewAtFirst(self) -> None:
        """[MQTT-3.2.2-3] [MQTT5-3.2.2-3] There is no session at first."""
        self.assertFalse(self.persistent("s").connack.sessionPresent)

    def test_sessionIsPresentOnReturn(self) -> None:
        """[MQTT-3.1.2-4] [MQTT-3.2.2-2] [MQTT5-3.1.2-5] It is there when the client returns."""
        self.persistent("s").leave()
        self.assertTrue(self.persistent("s").connack.sessionPresent)

    def test_sessionSurvivesLostConnection(self) -> None:
        """[MQTT-3.1.2-4] Also when it left without a word."""
        self.persistent("s").close()
        self.assertTrue(self.persistent("s").connack.sessionPresent)

    def test_cleanStartDiscardsSession(self) -> None:
        """[MQTT-3.1.2-6] [MQTT5-3.1.2-4] Who asks for a clean one loses the old one."""
        client = self.persistent("s")
        client.subscribe(self.topic("a"))
        client.leave()
        self.publish((b"1", 1))
        client = self.client("s", clean=True)
        self.assertFalse(client.connack.sessionPresent)  # [MQTT-3.2.2-1]
        self.publish((b"2", 1))
        self.assertNothing(client)

    def test_cleanSessionDoesNotStay(self) -> None:
        """[MQTT-3.1.2-6] A clean session ends with its connection."""
        client = self.client("s", clean=True)
        client.subscribe(self.topic("a"))
        client.leave()
        client = self.persistent("s")
        self.assertFalse(client.connack.sessionPresent)
        self.publish((b"1", 1))
        self.assertNothing(client)

    def test_subscriptionsStay(self) -> None:
        """[MQTT-3.1.2-4] Subscriptions are part of the session, with their QoS."""
        client = self.offline(qos=1)
        self.publish((b"1", 2))
        self.assertMessages([client.message()], (b"1", 1))

    def test_unsubscribedStaysUnsubscribed(self) -> None:
        """[MQTT-3.1.2-4] So is their end."""
        client = self.persistent("s")
        client.subscribe(self.topic("a"), self.topic("b"))
        client.unsubscribe(self.topic("a"))
        client.leave()
        self.publish((b"1", 1))
        client = self.persistent("s")
        self.assertNothing(client)

    def test_missedMessagesComeInOrder(self) -> None:
        """[MQTT-3.1.2-5] [MQTT5-3.1.2-23] What was missed comes, once and in order."""
        client = self.offline(*((str(each).encode(), 1 + each % 2) for each in range(20)))
        expected = [(str(each).encode(), 1 + each % 2) for each in range(20)]
        packets = client.messages(20)
        self.assertMessages(packets, *expected)
        self.assertFalse(any(each.dup for each in packets))
        self.assertNothing(client)

    def test_missedQos0ComesInOrder(self) -> None:
        """[MQTT-3.1.2-5] Messages with QoS 0 may come or not; others are not hurt by them."""
        client = self.offline((b"a", 0), (b"1", 1), (b"b", 0), (b"2", 1))
        self.publish((b"3", 1))
        got: list[bytes] = []
        while not got or got[-1] != b"3":
            got.append(client.message().payload)
        if self.broker.isForeign:
            got = [each for each in got if each.isdigit()]
            self.assertEqual(got, [b"1", b"2", b"3"])
        else:
            self.assertEqual(got, [b"a", b"1", b"b", b"2", b"3"])

    def test_acknowledgedIsNotRepeated(self) -> None:
        """[MQTT-4.3.2-1] What was acknowledged does not come again."""
        client = self.offline((b"1", 1), (b"2", 2), (b"3", 1))
        client.messages(2)
        client.ping()
        client.leave()
        client = self.persistent("s")
        self.assertMessages([client.message()], (b"3", 1))
        self.assertNothing(client)

    def test_unacknowledgedQos1IsRepeated(self) -> None:
        """[MQTT-4.4.0-1] [MQTT-3.3.1-1] Unacknowledged: again, with DUP and the same id."""
        client = self.persistent("s")
        client.subscribe(self.topic("a"), qos=1)
        self.publish((b"1", 1), (b"2", 1))
        first, second = client.expect(PUBLISH), client.expect(PUBLISH)
        self.assertEqual((first.dup, second.dup), (False, False))
        client.send(ack(PUBACK, first.packetId))
        client.ping()
        client.close()
        client = self.persistent("s")
        again = client.expect(PUBLISH)
        self.assertEqual((again.payload, again.dup, again.packetId), (b"2", True, second.packetId))
        client.complete(again)
        self.assertNothing(client)

    def test_repeatedMessagesKeepOrder(self) -> None:
        """[MQTT-4.6.0-1] What is sent again keeps its order, and new ones come after it."""
        client = self.persistent("s")
        client.subscribe(self.topic("a"), qos=1)
        self.publish(*((str(each).encode(), 1) for each in range(5)))
        for _ in range(5):
            client.expect(PUBLISH)
        client.close()
        self.publish(*((str(each).encode(), 1) for each in range(5, 10)))
        client = self.persistent("s")
        got = client.messages(10)
        self.assertEqual([int(each.payload) for each in got], list(range(10)))
        self.assertEqual([each.dup for each in got[:5]], [True] * 5)

    def test_unacknowledgedQos2IsRepeated(self) -> None:
        """[MQTT-4.4.0-1] [MQTT-4.3.3-1] QoS 2 before PUBREC: the same again, with DUP."""
        client = self.persistent("s")
        client.subscribe(self.topic("a"))
        self.publish((b"1", 2))
        first = client.expect(PUBLISH)
        client.close()
        client = self.persistent("s")
        again = client.expect(PUBLISH)
        self.assertEqual((again.payload, again.dup), (b"1", True))
        self.assertEqual((again.qos, again.packetId), (2, first.packetId))
        client.complete(again)
        self.assertNothing(client)

    def test_pubrelIsRepeatedAfterPubrec(self) -> None:
        """[MQTT-4.4.0-1] QoS 2 after PUBREC: PUBREL again, and never the message."""
        client = self.persistent("s")
        client.subscribe(self.topic("a"))
        self.publish((b"1", 2))
        first = client.expect(PUBLISH)
        client.send(ack(PUBREC, first.packetId))
        self.assertEqual(client.expect(PUBREL).packetId, first.packetId)
        client.close()
        client = self.persistent("s")
        released = client.receive()
        self.assertEqual((released.kind, released.packetId), (PUBREL, first.packetId))
        client.send(ack(PUBCOMP, first.packetId))
        self.assertNothing(client)

    def test_nothingIsRepeatedOnOneConnection(self) -> None:
        """[MQTT-4.4.0-1] (5) Nothing is sent again while the connection stands."""
        client = self.persistent("s")
        client.subscribe(self.topic("a"))
        self.publish((b"1", 1), (b"2", 2))
        packets = [client.expect(PUBLISH), client.expect(PUBLISH)]
        self.assertNothing(client)
        for packet in packets:
            client.complete(packet)

    def test_takeOverKeepsTheSession(self) -> None:
        """[MQTT-3.1.4-2] The session goes to the new connection, unacknowledged ones too."""
        old = self.persistent("s")
        old.subscribe(self.topic("a"))
        self.publish((b"1", 1))
        packet = old.expect(PUBLISH)
        new = self.persistent("s")
        self.assertTrue(new.connack.sessionPresent)
        again = new.message()
        self.assertEqual((again.payload, again.dup), (b"1", True))
        self.assertEqual(again.packetId, packet.packetId)
        self.publish((b"2", 1))
        self.assertMessages([new.message()], (b"2", 1))
        old.closes(0x8E)

    def test_receivedQos2IsRemembered(self) -> None:
        """[MQTT-4.3.3-2] QoS 2 from a client: once, also when it is sent again later."""
        watcher = self.receivedBefore(7)
        client = self.persistent("s")
        client.send(publish(self.version, self.topic("a"), b"1", qos=2, packetId=7, dup=True))
        self.assertEqual(client.expect(PUBREC).packetId, 7)
        client.send(ack(PUBREL, 7))
        self.assertEqual((client.expect(PUBCOMP).packetId), 7)
        self.assertMessages([watcher.message()], (b"1", 2))
        self.assertNothing(watcher)

    def test_pubrelMayFollowLater(self) -> None:
        """[MQTT-4.4.0-1] A client that had its PUBREC goes on with PUBREL."""
        watcher = self.receivedBefore(9)
        client = self.persistent("s")
        client.send(ack(PUBREL, 9))
        done = client.expect(PUBCOMP)
        self.assertEqual((done.packetId, done.code), (9, 0))
        self.assertMessages([watcher.message()], (b"1", 2))
        self.assertNothing(watcher)

    def test_cleanStartForgetsReceivedIds(self) -> None:
        """[MQTT-3.1.2-6] The ids that were received belong to the session, and end with it."""
        watcher = self.receivedBefore(7)
        client = self.client("s", clean=True)
        client.send(publish(self.version, self.topic("a"), b"2", qos=2, packetId=7))
        client.expect(PUBREC)
        client.send(ack(PUBREL, 7))
        client.expect(PUBCOMP)
        while watcher.message().payload != b"2":
            pass  # the first may come, since a broker may hand it on when it has it


class Session5Tests(SessionTests):
    """
    What both versions have, with 5; and session expiry, section 3.1.2.11.2.
    """

    version = V5

    def expiring(self, seconds: int | None, clean: bool = False) -> MqttClient:
        """A session with an expiry interval."""
        items = () if seconds is None else (("sessionExpiry", seconds),)
        return self.client("s", clean=clean, properties=items)

    def test_sessionWithoutExpiryEnds(self) -> None:
        """Section 3.1.2.11.2: without an interval, or with 0, the connection's end is its end."""
        for seconds in (None, 0):
            self.expiring(seconds).leave()
            client = self.expiring(300)
            self.assertFalse(client.connack.sessionPresent)
            client.leave(0, [("sessionExpiry", 0)])

    def test_cleanStartMayOutliveConnection(self) -> None:
        """Section 3.1.2.4: clean start is about the beginning, the interval about the end."""
        self.expiring(300, clean=True).leave()
        self.assertTrue(self.expiring(300).connack.sessionPresent)

    def test_largestExpiryNeverEnds(self) -> None:
        """Section 3.1.2.11.2: 0xFFFFFFFF does not expire."""
        self.expiring(0xFFFFFFFF).leave()
        client = self.expiring(300)
        self.assertTrue(client.connack.sessionPresent)
        client.leave(0, [("sessionExpiry", 0)])

    def test_sessionExpiresAfterInterval(self) -> None:
        """[MQTT5-4.1.0-2] After the interval it is gone, and not before."""
        early = self.expiring(300)
        early.leave(0, [("sessionExpiry", 2)])
        self.broker.sleep(1.5)
        early = self.expiring(300)
        self.assertTrue(early.connack.sessionPresent)
        early.leave(0, [("sessionExpiry", 1)])
        self.broker.sleep(2.1)
        self.assertFalse(self.expiring(1).connack.sessionPresent)

    def test_returnStopsExpiry(self) -> None:
        """Section 3.1.2.11.2: the interval runs only while there is no connection."""
        client = self.expiring(1)
        client.subscribe(self.topic("a"))
        client.close()
        client = self.expiring(1)
        self.assertTrue(client.connack.sessionPresent)
        self.broker.sleep(2.1)
        client.ping()
        self.publish((b"1", 1))
        self.assertMessages([client.message()], (b"1", 1))

    def test_disconnectMayEndTheSession(self) -> None:
        """Section 3.14.2.2.2: DISCONNECT may set 0, and the session ends at once."""
        client = self.expiring(300)
        client.leave(0, [("sessionExpiry", 0)])
        self.assertFalse(self.expiring(300).connack.sessionPresent)

    def test_disconnectMayLengthenExpiry(self) -> None:
        """Section 3.14.2.2.2: or more than CONNECT had."""
        self.expiring(1).leave(0, [("sessionExpiry", 300)])
        self.broker.sleep(2.1)
        self.assertTrue(self.expiring(300).connack.sessionPresent)

    def test_disconnectMayNotBeginExpiry(self) -> None:
        """Section 3.14.2.2.2: from 0 to more is a protocol error."""
        client = self.expiring(0)
        client.send(disconnect(V5, 0, [("sessionExpiry", 300)]))
        client.closes(0x82)
        self.assertFalse(self.expiring(300).connack.sessionPresent)

    def test_sessionIsSharedByVersions(self) -> None:
        """A session is its client's, whichever version it speaks."""
        client = self.persistent("s", version=V4)
        client.subscribe(self.topic("a"), qos=1)
        client.leave()
        self.publish((b"1", 1))
        client = self.persistent("s", version=V5)
        self.assertTrue(client.connack.sessionPresent)
        self.assertMessages([client.message()], (b"1", 1))
