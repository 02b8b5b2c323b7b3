"""
MQTT beside the rest of the broker: events, topics, groups, offsets, tags.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from . import brokers
from .mqttpackets import DISCONNECT, PUBACK, PUBLISH, PUBREC, V4, V5, Packet, Property, publish
from .mqttwire import TIMEOUT, Closed, MqttClient
from .support import MqttTestCase


def ask(broker: brokers.Broker, path: str, **parameters: Any) -> Any:
    """What the broker answers over REST."""
    assert broker.http is not None
    host, port = broker.http
    url = f"http://{host}:{port}/svcbroker{path}?{urlencode(parameters)}"
    with urlopen(url, timeout=TIMEOUT) as response:
        return json.load(response)


def eventId(packet: Packet) -> str:
    """The event that a message is."""
    (found,) = [value for name, value in packet.all("userProperty") if name == "svc-eventId"]
    return str(found)


def offset(value: object) -> list[Property]:
    """Ask for an offset."""
    return [("userProperty", ("svc-offset", str(value)))]


class BrokerTests(MqttTestCase):
    """
    One group, the defaults.
    """

    version = V5

    def setUp(self) -> None:
        super().setUp()
        if self.broker.process is None:
            raise SkipTest("only for the daemon itself")

    def ask(self, path: str, **parameters: Any) -> Any:
        """What the broker answers over REST."""
        return ask(self.broker, path, **parameters)

    def test_fromRest(self) -> None:
        """What REST publishes arrives with the QoS that was granted, and its extensions."""
        self.ask("/rest/open", topic=self.topic("a"))
        clients = [self.client(version=version) for version in (V4, V5, V5, V5)]
        for client, qos in zip(clients, (1, 0, 1, 2), strict=True):
            client.subscribe(self.topic("+"), qos=qos)
        parameters: dict[str, Any] = {"svc-tag": "x", "svc-b": "ü"}
        sent = self.ask("/rest/publish", topic=self.topic("a"), content="höi", **parameters)
        for client, qos in zip(clients, (1, 0, 1, 2), strict=True):
            packet = client.message()
            self.assertEqual((packet.topic, packet.qos), (self.topic("a"), qos))
            self.assertEqual(packet.payload, "höi".encode())
            if client.version == V5:
                self.assertEqual(sorted(packet.user), [("svc-b", "ü"), ("svc-tag", "x")])
                self.assertEqual(eventId(packet), sent["eventId"])

    def test_toRest(self) -> None:
        """PUBACK means that the event is there, with its extensions."""
        client = self.client()
        client.subscribe(self.topic("a"), qos=1)
        items: list[Property] = [("userProperty", ("svc-tag", "t")), ("userProperty", ("x", "y"))]
        client.publish(self.topic("a"), b"text", 1, properties_=items)
        state = self.ask("/rest/state", topic=self.topic("a"))
        self.assertEqual(state["sequenceNumber"], 1)
        event = self.ask("/rest/getEvent", eventId=eventId(client.message()))
        self.assertEqual((event["topic"], event["content"]), (self.topic("a"), "dGV4dA=="))
        self.assertEqual(event["extensions"]["svc-tag"], "t")

    def test_opens(self) -> None:
        """The first publish opens a topic, and opens one again that was closed."""
        self.assertFalse(self.ask("/rest/exist", topic=self.topic("a")))
        client = self.client(version=V4)
        client.subscribe(self.topic("a"))
        self.assertFalse(self.ask("/rest/exist", topic=self.topic("a")))
        for text in (b"1", b"2"):
            client.publish(self.topic("a"), text, 1)
            self.assertEqual(client.message().payload, text)
            self.assertTrue(self.ask("/rest/exist", topic=self.topic("a")))
            self.ask("/rest/close", topic=self.topic("a"))

    def test_offsets(self) -> None:
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

    def test_historyThenLive(self) -> None:
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

    def test_wrongOffset(self) -> None:
        """An offset that is none is refused."""
        client = self.client()
        for value in ("00000000-1-1", "nonsense", "-1"):
            answer = client.subscribe(self.topic("a"), properties_=offset(value))
            self.assertGreaterEqual(answer.code, 0x80, value)
        client.ping()

    def test_tag(self) -> None:
        """C{svc-tag}: only events that have it."""
        client, other = self.client(), self.client()
        wanted: list[Property] = [("userProperty", ("svc-tag", "yes"))]
        client.subscribe(self.topic("a"), qos=1, properties_=wanted)
        for tag in ("no", "yes", None, "yes!"):
            items = [] if tag is None else [("userProperty", ("svc-tag", tag))]
            other.publish(self.topic("a"), str(tag).encode(), 1, properties_=items)
        self.assertEqual(client.message().payload, b"yes")
        self.assertNothing(client)

    def test_listed(self) -> None:
        """C{listSubscription} shows who subscribes, and what a session has acknowledged."""
        client = self.persistent("s")
        client.subscribe(self.topic("a"), qos=1)
        client.publish(self.topic("a"), b"1", 1)
        client.message()
        client.publish(self.topic("a"), b"2", 1)
        packet = client.expect(PUBLISH)
        client.ping()
        (record,) = self.listed()
        self.assertEqual((record["interfaceType"], record["groupId"]), ("MQTT", "1"))
        self.assertEqual((record["notifiedEventCount"], record["notifyingEventCount"]), ("1", "1"))
        client.complete(packet)
        client.ping()
        (record,) = self.listed()
        self.assertEqual((record["notifiedEventCount"], record["notifyingEventCount"]), ("2", "0"))
        client.leave()
        self.assertEqual(self.listed(), [])

    def listed(self) -> list[dict[str, str]]:
        """The subscriptions of this test's topic."""
        nodes = self.ask("/admin/listSubscription")
        if "data" in nodes:
            nodes = nodes["data"]
        records = [each for node in nodes.values() for each in node.values()]
        return [each for each in records if each["topicName"] == self.topic("a")]

    def refused(self, topic: str, payload: bytes, *items: Property) -> int:
        """The reason why a publish with QoS 1, and one with QoS 2, is refused."""
        codes = set()
        for qos, kind in ((1, PUBACK), (2, PUBREC)):
            client = self.client()
            client.send(publish(V5, topic, payload, qos=qos, packetId=1, properties_=items))
            codes.add(client.expect(kind).code)
            client.ping()
            # The identifier is free at once: section 4.3.3.
            client.send(publish(V5, self.topic("ok"), b"x", qos=qos, packetId=1))
            self.assertEqual(client.expect(kind).code, 0)
        (code,) = codes
        return code

    def test_topicBounds(self) -> None:
        """A topic has at most 256 characters in [32,128]: 0x90, and the connection goes on."""
        longest = self.topic("").ljust(256, "x")
        self.client().publish(longest, b"x", 1)
        self.assertEqual(self.refused(longest + "x", b"x"), 0x90)
        self.assertEqual(self.refused(self.topic("ü"), b"x"), 0x90)
        self.assertEqual(self.refused(self.topic("\t"), b"x"), 0x90)
        self.assertEqual(self.refused("  ", b"x"), 0x90)

    def test_contentBounds(self) -> None:
        """Content is at most one MiB: 0x97."""
        client = self.client()
        answer = client.publish(self.topic("a"), bytes(1024 * 1024), 1)
        assert answer is not None
        self.assertEqual(answer.code, 0)
        self.assertEqual(self.refused(self.topic("a"), bytes(1024 * 1024 + 1)), 0x97)

    def test_extensionBounds(self) -> None:
        """Extensions have at most 8 KiB together: 0x97."""
        item: Property = ("userProperty", ("svc-x", "x" * 9000))
        self.assertEqual(self.refused(self.topic("a"), b"x", item), 0x97)

    def test_refusedOlder(self) -> None:
        """3.1.1 has no reason codes: the connection ends, and nothing was published."""
        watcher = self.client()
        watcher.subscribe(self.topic("#"))
        for qos in range(3):
            client = self.client(version=V4)
            topic = self.topic("x" * 300)
            client.send(publish(V4, topic, b"x", qos=qos, packetId=qos or None))
            client.closes()
        self.assertNothing(watcher)

    def test_unknownGroup(self) -> None:
        """A group that is not served is refused."""
        for version, codes in ((V4, (4, 5)), (V5, (0x86, 0x87, 0x84, 0x8A))):
            client = self.open(version)
            answer = client.connect(self.id_(), user="nobody/me")
            self.assertIn(answer.code, codes)
            self.assertRaises(Closed, client.receive)

    def test_goingDown(self) -> None:
        """[MQTT5-3.14.2-1] A daemon that ends tells its clients: 0x8B."""
        root = Path(self.mktemp()).absolute()
        root.mkdir()
        broker = brokers.start(root / "data")
        self.addCleanup(lambda: broker.stop(signal.SIGKILL))
        client = MqttClient(broker.mqtt, V5)
        self.addCleanup(client.close)
        client.connect("c")
        assert broker.process is not None
        broker.process.send_signal(signal.SIGTERM)
        last = client.closes(0x8B)
        assert last is not None
        self.assertEqual((last.kind, last.code), (DISCONNECT, 0x8B))
        # A second signal might meet a process that has let its handlers go.
        self.assertEqual(broker.process.wait(60), 0)
        self.assertNotIn("Traceback", "".join(broker.output))


class GroupTests(SynchronousTestCase):
    """
    Two groups, topics that must be opened.
    """

    def setUp(self) -> None:
        root = Path(self.mktemp()).absolute()
        root.mkdir()
        arguments = ("--no-mqtt-open-topics", "--group=1", "--group=2")
        self.broker = brokers.start(root / "data", arguments)
        self.addCleanup(lambda: self.broker.stop(signal.SIGKILL))
        self.addCleanup(lambda: self.assertEqual(self.broker.trouble(), ""))

    def client(self, user: str | None = None, version: int = V5) -> MqttClient:
        """A client of a group."""
        client = MqttClient(self.broker.mqtt, version)
        self.addCleanup(client.close)
        self.assertEqual(client.connect("same", user=user).code, 0)
        return client

    def test_groups(self) -> None:
        """Groups have topics, retained messages and client identifiers of their own."""
        for group in ("1", "2"):
            ask(self.broker, "/rest/open", topic="a", groupId=group)
        one, two = self.client("1/me"), self.client("2/me")
        one.subscribe("#")
        two.subscribe("#")
        one.publish("a", b"one", 1, retain=True)
        self.assertEqual(one.message().payload, b"one")
        two.publish("a", b"two", 1)
        self.assertEqual(two.message().payload, b"two")
        one.ping()
        self.assertEqual(one.pending() + two.pending(), [])

    def test_mustBeOpened(self) -> None:
        """A topic that was not opened: 0x90, and 3.1.1 clients are disconnected."""
        client = self.client()
        client.subscribe("a", qos=1)
        for qos, kind in ((1, PUBACK), (2, PUBREC)):
            client.send(publish(V5, "a", b"x", qos=qos, packetId=1))
            self.assertEqual(client.expect(kind).code, 0x90)
        ask(self.broker, "/rest/open", topic="a")
        answer = client.publish("a", b"x", 1)
        assert answer is not None
        self.assertEqual(answer.code, 0)
        self.assertEqual(client.message().payload, b"x")
        client.leave()
        older = self.client(version=V4)
        older.send(publish(V4, "b", b"x", qos=1, packetId=1))
        older.closes()
