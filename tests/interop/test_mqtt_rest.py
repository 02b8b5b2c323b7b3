"""
MQTT and REST at one daemon.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

from tests.carriers.mqtt.conformance.client import TIMEOUT, MqttClient
from tests.carriers.mqtt.conformance.packets import (
    DISCONNECT,
    PUBLISH,
    V4,
    V5,
    Packet,
    Property,
    frame,
)

from .daemon import Daemon, DaemonTestCase


def eventId(packet: Packet) -> str:
    """The event that a message is."""
    (found,) = [value for name, value in packet.all("userProperty") if name == "svc-eventId"]
    return str(found)


class RestTests(DaemonTestCase):
    """
    One group, the defaults.
    """

    version = V5

    def ask(self, path: str, **parameters: Any) -> Any:
        """What the daemon answers over REST."""
        host, port = self.daemon.http
        url = f"http://{host}:{port}/svcbroker{path}?{urlencode(parameters)}"
        with urlopen(url, timeout=TIMEOUT) as response:
            return json.load(response)

    def test_restPublishReachesSubscribers(self) -> None:
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

    def test_acknowledgedPublishIsReadable(self) -> None:
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

    def test_publishOpensTopic(self) -> None:
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

    def test_subscriptionsAreListed(self) -> None:
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

    def test_refusedClientCanFinishItsWrite(self) -> None:
        """A client that is refused in the middle of a long write reads the reason after it."""
        client = self.client()
        client.send(frame(0, 0, b"") + bytes(30_000_000))
        self.assertIsNotNone(client.closes(0x81))

    def test_sigtermDisconnectsClients(self) -> None:
        """[MQTT5-3.14.2-1] A daemon that ends tells its clients: 0x8B."""
        root = Path(self.mktemp()).absolute()
        root.mkdir()
        daemon = Daemon(root / "data")
        self.addCleanup(daemon.stop, signal.SIGKILL)
        client = MqttClient(daemon, V5)
        self.addCleanup(client.close)
        client.connect("c")
        daemon.process.send_signal(signal.SIGTERM)
        last = client.closes(0x8B)
        assert last is not None
        self.assertEqual((last.kind, last.code), (DISCONNECT, 0x8B))
        # A second signal might meet a process that has let its handlers go.
        self.assertEqual(daemon.process.wait(60), 0)
        self.assertNotIn("Traceback", "".join(daemon.output))
