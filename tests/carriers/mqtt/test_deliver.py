"""
SUBSCRIBE, and what is delivered.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.broker.subscriptions._eventreading import WAIT
from svcbroker.carriers.mqtt.context import MqttSettings
from svcbroker.carriers.mqtt.fields import Properties, ReasonCode
from svcbroker.carriers.mqtt.packets import (
    MQTT_5,
    MQTT_311,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    TopicSubscription,
    Unsuback,
    Unsubscribe,
)

from .support import Client, Server

VERSIONS = (MQTT_311, MQTT_5)


def user(**pairs: str) -> Properties:
    """User properties; an underscore stands for a minus sign."""
    return Properties(
        userProperties=tuple((key.replace("_", "-"), value) for key, value in pairs.items())
    )


class SubscribeTests(SynchronousTestCase):
    """
    What is granted.
    """

    def test_malformedFilterEndsConnection(self) -> None:
        """Filters that are none end the connection."""
        for topicFilter in ("", "a/#/b", "a#", "a+/b", "#/", "$share/x", "$share//t", "$share/+/t"):
            for version in VERSIONS:
                client = Server().connected(version=version)
                client.send(Subscribe(9, (TopicSubscription(topicFilter),)))
                self.assertTrue(client.isClosed, topicFilter)
            self.assertEqual(client.reasonOfEnd(), ReasonCode.MALFORMED_PACKET)
        client = Server().connected()
        client.send(Unsubscribe(9, ("a/#/b",)))
        self.assertEqual(client.reasonOfEnd(), ReasonCode.MALFORMED_PACKET)

    def test_impossibleFilterIsRefused(self) -> None:
        """Filters that no topic can match here are refused, the others granted."""
        asked = (
            TopicSubscription("a", 1),
            TopicSubscription("\u00e9/+"),
            TopicSubscription("x" * 257),
        )
        client = Server().connected()
        client.send(Subscribe(9, asked))
        suback = client.takeOne(Suback)
        self.assertEqual(suback.reasons, (1, 0x8F, 0x8F))
        self.assertTrue(suback.properties.reasonString)
        client = Server().connected(version=MQTT_311)
        client.send(Subscribe(9, asked))
        self.assertEqual(client.takeOne(Suback).reasons, (1, 0x80, 0x80))

    def test_subscriptionsAreBounded(self) -> None:
        """A session has so many subscriptions and no more; replacing one is always possible."""
        client = Server(MqttSettings(maxSubscriptions=2)).connected()
        client.subscribe("a")
        client.subscribe("b")
        self.assertEqual(client.subscribe("c").reasons, (ReasonCode.QUOTA_EXCEEDED,))
        self.assertEqual(client.subscribe("b", 1).reasons, (1,))
        client.unsubscribe("a")
        self.assertEqual(client.subscribe("c").reasons, (0,))

    def test_filterBytesAreBounded(self) -> None:
        """All filters of a session have a bound in bytes."""
        client = Server(MqttSettings(maxFilterBytes=10)).connected()
        self.assertEqual(client.subscribe("a" * 8).reasons, (0,))
        self.assertEqual(client.subscribe("bbb").reasons, (ReasonCode.QUOTA_EXCEEDED,))
        client.unsubscribe("a" * 8)
        self.assertEqual(client.subscribe("bbb").reasons, (0,))

    def test_deepPatternIsRefused(self) -> None:
        """A pattern has at most 128 levels."""
        client = Server().connected()
        self.assertEqual(client.subscribe("/" * 127 + "#").reasons, (0,))
        self.assertEqual(client.subscribe("/" * 128 + "#").reasons, (0x8F,))

    def test_earlierPublishIsNotDelivered(self) -> None:
        """What a client has published before its SUBSCRIBE does not come, however slow the log."""
        server = Server()
        client = server.connected()
        client.publish("t")
        server.ledger.isHolding = True
        client.send(
            Publish("t", b"before", 1, packetId=1),
            Subscribe(2, (TopicSubscription("t"),)),
            Publish("t", b"after", 1, packetId=3),
        )
        self.assertEqual(client.take(), [])
        server.ledger.isHolding = False
        server.ledger.release()
        server.pump()
        packets = client.take()
        self.assertEqual(packets[:2], [Puback(1), Suback(2, (0,))])
        messages = [each.payload for each in packets if isinstance(each, Publish)]
        self.assertEqual(messages, [b"after"])

    def test_shareWorksIn311(self) -> None:
        """Shared subscriptions work for 3.1.1 clients too."""
        server = Server()
        client = server.connected(version=MQTT_311)
        self.assertEqual(client.subscribe("$share/g/t", 1).reasons, (1,))
        server.event("t", b"x")
        self.assertEqual(client.payloads(), [b"x"])

    def test_packetsBehindSubscribeWait(self) -> None:
        """Packets behind a SUBSCRIBE are handled after it, in order."""
        client = Server().connected()
        client.send(
            Subscribe(1, (TopicSubscription("t", 1),)),
            Unsubscribe(2, ("t",)),
            Subscribe(3, (TopicSubscription("t", 2),)),
            Publish("t", b"x", 1, packetId=4),
        )
        kinds = [type(each) for each in client.take()]
        self.assertEqual(kinds[:3], [Suback, Unsuback, Suback])
        self.assertEqual(sorted(kind.__name__ for kind in kinds[3:]), ["Puback", "Publish"])


class DeliverTests(SynchronousTestCase):
    """
    Messages.
    """

    def test_lowerQosCounts(self) -> None:
        """The lower one of the publish and the subscription counts."""
        for version in VERSIONS:
            for granted in range(3):
                server = Server()
                client = server.connected(version=version)
                client.subscribe("t", granted)
                publisher = server.connected("p", version)
                for qos in range(3):
                    publisher.publish("t", b"x", qos)
                server.event("t", b"x")  # by another carrier, which has no QoS
                self.assertEqual(
                    [each.qos for each in client.takeMessages()],
                    [min(0, granted), min(1, granted), granted, granted],
                )

    def test_messageCarriesEventIdAndExtensions(self) -> None:
        """The event's own topic, its bytes, and in MQTT 5 its id and extensions."""
        server = Server()
        new, old = server.connected("a"), server.connected("b", MQTT_311)
        new.subscribe("a/#", 1)
        old.subscribe("a/#", 1)
        server.event("a/b", b"\x00\xff", svc_color="red", svc_a="1")
        (message,) = new.takeMessages()
        self.assertEqual(
            (message.topic, message.payload, message.retain), ("a/b", b"\x00\xff", False)
        )
        *extensions, (key, eventId) = message.properties.userProperties
        self.assertEqual(extensions, [("svc-a", "1"), ("svc-color", "red")])
        self.assertEqual(key, "svc-eventId")
        self.assertRegex(eventId, "^[0-9a-f]{8}-1-2$")
        (message,) = old.takeMessages()
        self.assertEqual((message.topic, message.payload), ("a/b", b"\x00\xff"))

    def test_plainClientGetsNoEventId(self) -> None:
        """The user property svc-plain of CONNECT leaves out svc-eventId, and nothing else."""
        server = Server()
        client = server.connected(properties=user(svc_plain="1"))
        other = server.connected("other", properties=user(svc_plain="0"))
        client.subscribe("t", 1)
        other.subscribe("t", 1)
        server.event("t", b"x", svc_color="red")
        server.event("t", b"y")
        first, second = client.takeMessages()
        self.assertEqual(first.properties.userProperties, (("svc-color", "red"),))
        self.assertEqual(second.properties, Properties())
        for message in other.takeMessages():
            self.assertEqual(message.properties.userProperties[-1][0], "svc-eventId")

    def test_propertiesArriveUnaltered(self) -> None:
        """What MQTT 5 hands on arrives as it was sent."""
        sent = Properties(
            payloadFormatIndicator=1,
            contentType="text/plain",
            responseTopic="answers/7",
            correlationData=b"\x00\x01",
            userProperties=(("b", "1"), ("svc-z", "2"), ("a", "3"), ("b", "4"), ("svc-a", "5")),
        )
        server = Server()
        client, old = server.connected("a"), server.connected("b", MQTT_311)
        client.subscribe("t", 1)
        old.subscribe("t", 1)
        client.publish("t", b"x", 1, properties=sent)
        (message,) = client.takeMessages()
        got = message.properties
        self.assertEqual(got.userProperties[:-1], sent.userProperties)
        self.assertEqual(got.userProperties[-1][0], "svc-eventId")
        for name in ("payloadFormatIndicator", "contentType", "responseTopic", "correlationData"):
            self.assertEqual(getattr(got, name), getattr(sent, name))
        self.assertEqual(old.payloads(), [b"x"])
        extensions = server.ledger.submitted[-1].extensions
        self.assertEqual((extensions["svc-z"], extensions["svc-a"]), ("2", "5"))

    def test_expiryIsCountedDown(self) -> None:
        """A message is delivered with what is left of its time, or not at all."""
        server = Server()
        client = server.connected(expiry=100)
        client.subscribe("t", 1)
        client.lose()
        publisher = server.connected("p")
        publisher.publish("t", b"short", 1, properties=Properties(messageExpiryInterval=2))
        publisher.publish("t", b"long", 1, properties=Properties(messageExpiryInterval=20))
        publisher.publish("t", b"ever", 1)
        server.wait(5)
        client = server.connected(cleanStart=False, expiry=100)
        long, ever = client.takeMessages()
        self.assertEqual((long.payload, ever.payload), (b"long", b"ever"))
        self.assertEqual(long.properties.messageExpiryInterval, 15)
        self.assertIsNone(ever.properties.messageExpiryInterval)

    def test_serverSetsAllowedAliases(self) -> None:
        """A client that allows aliases gets them, as many as it allows."""
        server = Server()
        client = server.connected(properties=Properties(topicAliasMaximum=1))
        client.subscribe("#", 2)
        for topic in ("a", "a", "b", "a"):
            server.event(topic, b"x")
        told = [(each.topic, each.properties.topicAlias) for each in client.takeMessages()]
        self.assertEqual(told, [("a", 1), ("", 1), ("b", None), ("", 1)])

    def test_refusedMessageIsNotRepeated(self) -> None:
        """A message that the client refuses is not sent again."""
        for qos, answer in ((1, Puback), (2, Pubrec)):
            server = Server()
            client = server.connected(expiry=100)
            client.subscribe("t", qos)
            server.event("t", b"x")
            message = client.takeOne(Publish)
            client.send(answer(message.packetId, 0x80))
            self.assertEqual(client.take(), [])
            client.lose()
            client = server.connected(cleanStart=False, expiry=100)
            self.assertEqual(client.take(), [])

    def test_unknownAcknowledgementsAreIgnored(self) -> None:
        """Acknowledgements of nothing do no harm."""
        for version in VERSIONS:
            client = Server().connected(version=version)
            client.send(Puback(5), Pubcomp(5), Pubrec(5))
            (pubrel,) = client.take()
            assert isinstance(pubrel, Pubrel)
            self.assertEqual(pubrel.packetId, 5)
            self.assertFalse(client.isClosed)


class WindowTests(SynchronousTestCase):
    """
    How much a client is sent before it acknowledges.
    """

    def received(self, client: Client) -> list[Publish]:
        """Messages that have come, without acknowledging them."""
        return [each for each in client.take() if isinstance(each, Publish)]

    def test_receiveMaximumBoundsUnacknowledged(self) -> None:
        """No more than Receive Maximum are unacknowledged; QoS 0 is not counted."""
        server = Server()
        client = server.connected(properties=Properties(receiveMaximum=2))
        client.subscribe("t", 2)
        for number in range(5):
            server.event("t", b"%d" % number)
        first, second = self.received(client)
        client.send(Puback(first.packetId))
        self.assertEqual(client.take(), [])
        client.send(Pubrec(first.packetId))
        self.assertEqual(client.take(), [Pubrel(first.packetId)])
        client.send(Pubcomp(first.packetId))
        (third,) = self.received(client)
        client.send(Pubrec(second.packetId, 0x80), Pubrec(third.packetId, 0x80))
        self.assertEqual([each.payload for each in self.received(client)], [b"3", b"4"])

    def test_backlogFlowsThroughSmallWindow(self) -> None:
        """A backlog is worked off in order through a small window."""
        server = Server()
        for number in range(300):
            server.event("t", b"%d" % number)
        for version in VERSIONS:
            client = server.connected(version=version, properties=Properties(receiveMaximum=10))
            client.subscribe("t", 1, user(svc_offset="OFFSET_FIRST"))
            if version == MQTT_5:
                self.assertEqual(client.payloads(), [b"%d" % number for number in range(300)])

    def test_subscriptionBeginsAtATime(self) -> None:
        """A malformed time is refused, and the reason string names the user property."""
        server = Server()
        times = []
        for number in range(3):
            server.clock.advance(1)
            times.append(int(server.clock.seconds() * 1000))
            server.event("t", b"%d" % number)
        client = server.connected()
        client.subscribe("t", 0, user(svc_offset=f"OFFSET_TIME:{times[1]}"))
        self.assertEqual(client.payloads(), [b"1", b"2"])
        subscribe = Subscribe(2, (TopicSubscription("t", 0),), user(svc_offset="OFFSET_TIME:noon"))
        client.send(subscribe)
        refused = client.takeOne(Suback)
        self.assertEqual(refused.reasons, (ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,))
        self.assertIn("svc-offset: OFFSET_TIME:", refused.properties.reasonString or "")

    def test_placeThatIsNotReachedIsWaitedForOnce(self) -> None:
        """Another node of the network has told of it. The time is that of the packet."""
        server = Server()
        server.subscriptions._followers["1"].isOfNetwork = True
        height = server.subscriptions.end("1").height + 1
        filters = (TopicSubscription("t", 0), TopicSubscription("u", 0))
        client = server.connected()
        for packetId in (1, 2):
            client.send(Subscribe(packetId, filters, user(svc_offset=str(height))))
            self.assertEqual(client.take(), [])
            if packetId == 1:
                server.clock.advance(WAIT)
                refused = client.takeOne(Suback)
                reasons = (ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,) * 2
                self.assertEqual(refused.reasons, reasons)
                self.assertIn("this node has", refused.properties.reasonString or "")
        server.event("t", b"x")
        suback, publish = client.take()
        self.assertEqual((suback.reasons, publish.payload), ((0, 0), b"x"))

    def test_bytesInFlightAreBounded(self) -> None:
        """The bytes that are unacknowledged have a bound too."""
        server = Server(MqttSettings(maxInFlightBytes=1000))
        client = server.connected()
        client.subscribe("t", 1)
        for _ in range(5):
            server.event("t", bytes(600))
        self.assertEqual(len(self.received(client)), 2)

    def test_unreadingClientIsHeldBack(self) -> None:
        """A client that does not read is sent nothing more; it gets all when it reads."""
        server = Server()
        client = server.connected()
        client.subscribe("t", 0)
        server.event("t", b"0")
        assert client.transport.producer is not None
        client.transport.producer.pauseProducing()
        for number in range(1, 50):
            server.event("t", b"%d" % number)
        self.assertEqual([each.payload for each in self.received(client)], [b"0"])
        client.transport.producer.resumeProducing()
        self.assertEqual(
            [each.payload for each in self.received(client)],
            [b"%d" % number for number in range(1, 50)],
        )

    def test_packetIdentifiersWrapAround(self) -> None:
        """Identifiers go round, without those that are in use."""
        server = Server()
        client = server.connected()
        client.subscribe("t", 1)
        session = server.carrier.sessions.find("1", "client")
        assert session is not None and session.delivery is not None
        session.delivery._window._lastId = 65534
        for _ in range(3):
            server.event("t", b"x")
        self.assertEqual([each.packetId for each in self.received(client)], [65535, 1, 2])
        session.delivery._window._lastId = 65534
        server.event("t", b"x")
        server.event("t", b"x")
        self.assertEqual([each.packetId for each in self.received(client)], [3, 4])

    def test_blockIsOneWrite(self) -> None:
        """What one block has for a client is one write."""
        server = Server()
        client = server.connected()
        client.subscribe("t", 1)
        for _ in range(20):
            server.event("t", b"x")
        client.take()
        replay = server.connected("r")
        writes = replay.transport.writes
        writes.clear()
        replay.send(Subscribe(1, (TopicSubscription("t", 0),), user(svc_offset="OFFSET_FIRST")))
        server.pump()
        self.assertLessEqual(len(writes), 22)
