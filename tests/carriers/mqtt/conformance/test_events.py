"""
MQTT beside the rest of the broker: events, topics, groups, offsets, tags.
"""

from __future__ import annotations

from twisted.trial.unittest import SkipTest

from svcbroker.carriers.mqtt.context import MqttSettings
from svcbroker.interfaces import submit
from svcbroker.model import OpenTopic

from ..support import Server
from .brokers import IBroker, MemoryBroker
from .client import Closed, MqttClient
from .packets import PUBACK, PUBREC, V4, V5, Packet, Property, publish
from .support import MqttTestCase


def eventId(packet: Packet) -> str:
    """The event that a message is."""
    (found,) = [value for name, value in packet.all("userProperty") if name == "svc-eventId"]
    return str(found)


def offset(value: object) -> list[Property]:
    """Ask for an offset."""
    return [("userProperty", ("svc-offset", str(value)))]


class OurBrokerTestCase(MqttTestCase):
    """
    A test of what only this broker has.
    """

    version = V5
    settings = MqttSettings()

    def makeBroker(self) -> IBroker:
        """The broker under test."""
        if not isinstance(super().makeBroker(), MemoryBroker):
            raise SkipTest("only for this broker")
        self.server = Server(self.settings)
        return MemoryBroker(self.server)


class EventTests(OurBrokerTestCase):
    """
    Events as MQTT messages.
    """

    def test_offsetChoosesTheStart(self) -> None:
        """C{svc-offset}: from the first, after an event, from a height, from now."""
        client = self.client()
        client.subscribe(self.topic("a"), qos=1)
        for number in range(4):
            client.publish(self.topic("a"), str(number).encode(), 1)
        ids = [eventId(each) for each in client.messages(4)]
        height = int(ids[2].split("-")[2])
        for value, first in (
            ("OFFSET_FIRST", 0),
            (ids[1], 2),
            (ids[3], 4),
            (height, 2),
            ("OFFSET_LAST", 4),
        ):
            reader = self.client()
            reader.subscribe(self.topic("a"), qos=1, properties_=offset(value))
            got = [int(each.payload) for each in reader.messages(4 - first)]
            self.assertEqual(got, list(range(first, 4)), value)
            self.assertNothing(reader)
            reader.leave()

    def test_historyComesBeforeLive(self) -> None:
        """What is published while history is read comes after it, once and in order."""
        publisher = self.client()
        for number in range(300):
            publisher.send(publish(V5, self.topic("a"), str(number).encode()))
        publisher.ping()
        reader = self.client()
        reader.subscribe(self.topic("a"), qos=1, properties_=offset("OFFSET_FIRST"))
        for number in range(300, 600):
            publisher.send(publish(V5, self.topic("a"), str(number).encode()))
        got = [int(each.payload) for each in reader.messages(600)]
        self.assertEqual(got, list(range(600)))
        self.assertNothing(reader)

    def test_wrongOffsetIsRefused(self) -> None:
        """An offset that is none is refused."""
        client = self.client()
        for value in ("00000000-1-1", "nonsense", "-1", "99"):
            answer = client.subscribe(self.topic("a"), properties_=offset(value))
            self.assertEqual(answer.code, 0x83, value)
        client.ping()

    def test_newOffsetBeginsAnew(self) -> None:
        """The same filter with an offset begins anew."""
        client = self.client()
        client.publish(self.topic("a"), b"1", 1)
        client.subscribe(self.topic("a"))
        self.assertNothing(client)
        client.subscribe(self.topic("a"), properties_=offset("OFFSET_FIRST"))
        self.assertEqual(client.message().payload, b"1")
        self.assertNothing(client)

    def test_tagFiltersEvents(self) -> None:
        """C{svc-tag}: only events that have it."""
        client, other = self.client(), self.client()
        wanted: list[Property] = [("userProperty", ("svc-tag", "yes"))]
        client.subscribe(self.topic("a"), qos=1, properties_=wanted)
        for tag in ("no", "yes", None, "yes!"):
            items = [] if tag is None else [("userProperty", ("svc-tag", tag))]
            other.publish(self.topic("a"), str(tag).encode(), 1, properties_=items)
        self.assertEqual(client.message().payload, b"yes")
        self.assertNothing(client)

    def refused(self, topic: str, payload: bytes, *items: Property) -> int:
        """The reason why a publish with QoS 1, and one with QoS 2, is refused."""
        codes = set()
        for qos, kind in ((1, PUBACK), (2, PUBREC)):
            client = self.client()
            # With QoS 0 there is no answer.
            client.send(publish(V5, topic, payload, properties_=items))
            client.send(publish(V5, topic, payload, qos=qos, packetId=1, properties_=items))
            codes.add(client.expect(kind).code)
            client.ping()
            # The identifier is free at once: section 4.3.3.
            client.send(publish(V5, self.topic("ok"), b"x", qos=qos, packetId=1))
            self.assertEqual(client.expect(kind).code, 0)
        (code,) = codes
        return code

    def test_impossibleTopicIsRefused(self) -> None:
        """A topic has at most 256 characters in [32,128]: 0x90, and the connection goes on."""
        longest = self.topic("").ljust(256, "x")
        self.client().publish(longest, b"x", 1)
        self.assertEqual(self.refused(longest + "x", b"x"), 0x90)
        self.assertEqual(self.refused(self.topic("ü"), b"x"), 0x90)
        self.assertEqual(self.refused(self.topic("\t"), b"x"), 0x90)
        self.assertEqual(self.refused(self.topic("\x1f"), b"x"), 0x90)
        self.assertEqual(self.refused("  ", b"x"), 0x90)

    def test_oversizedContentIsRefused(self) -> None:
        """Content is at most one MiB: 0x97."""
        client = self.client()
        answer = client.publish(self.topic("a"), bytes(1024 * 1024), 1)
        assert answer is not None
        self.assertEqual(answer.code, 0)
        self.assertEqual(self.refused(self.topic("a"), bytes(1024 * 1024 + 1)), 0x97)

    def test_oversizedExtensionsAreRefused(self) -> None:
        """Extensions have at most 8 KiB together: 0x97."""
        for name in ("svc-x", "a"):
            item: Property = ("userProperty", (name, "x" * 9000))
            self.assertEqual(self.refused(self.topic("a"), b"x", item), 0x97)

    def test_refusalEnds311Connection(self) -> None:
        """3.1.1 has no reason codes: the connection ends, and nothing was published."""
        watcher = self.client()
        watcher.subscribe(self.topic("#"))
        for qos in range(3):
            client = self.client(version=V4)
            topic = self.topic("x" * 300)
            client.send(publish(V4, topic, b"x", qos=qos, packetId=qos or None))
            client.closes()
        self.assertNothing(watcher)

    def test_unknownGroupIsRefused(self) -> None:
        """A group that is not served is refused."""
        for version, codes in ((V4, (4, 5)), (V5, (0x86, 0x87, 0x84, 0x8A))):
            client = self.open(version)
            answer = client.connect(self.id_(), user="nobody/me")
            self.assertIn(answer.code, codes)
            self.assertRaises(Closed, client.receive)


class GroupTests(OurBrokerTestCase):
    """
    Two groups, topics that must be opened.
    """

    settings = MqttSettings(openTopics=False)

    def member(self, user: str | None = None, version: int = V5) -> MqttClient:
        """A client of a group."""
        client = self.open(version)
        self.assertEqual(client.connect("same", user=user).code, 0)
        return client

    def openTopic(self, topic: str, group: str = "1") -> None:
        """Open a topic by another carrier."""
        self.successResultOf(submit(self.server.ledgers[group], OpenTopic(topic=topic)))

    def test_groupsAreSeparate(self) -> None:
        """Groups have topics, retained messages and client identifiers of their own."""
        for group in ("1", "2"):
            self.openTopic("a", group)
        one, two = self.member("1/me"), self.member("2/me")
        one.subscribe("#")
        two.subscribe("#")
        one.publish("a", b"one", 1, retain=True)
        self.assertEqual(one.message().payload, b"one")
        two.publish("a", b"two", 1)
        self.assertEqual(two.message().payload, b"two")
        one.ping()
        self.assertEqual(one.pending() + two.pending(), [])
