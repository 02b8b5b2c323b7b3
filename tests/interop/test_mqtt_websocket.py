"""
MQTT over WebSocket: section 6 of both specifications.
"""

from __future__ import annotations

from typing import Any

from tests.carriers.mqtt.conformance.client import Closed, MqttClient
from tests.carriers.mqtt.conformance.packets import (
    CONNACK,
    PING,
    PINGRESP,
    PUBACK,
    PUBLISH,
    SUBACK,
    V5,
    Will,
    connect,
    frame,
    publish,
    subscribe,
)

from .daemon import DaemonTestCase
from .wsclient import BINARY, CLOSE, CONTINUATION, PONG, TEXT, WebSocketClient
from .wsclient import PING as WS_PING


class WebSocketTests(DaemonTestCase):
    """
    Both versions.
    """

    def upgrade(self, subprotocols: str | None = "mqtt") -> WebSocketClient:
        """A WebSocket on which no packet was sent yet."""
        client = WebSocketClient(self.daemon.http, self.version, subprotocols=subprotocols)
        self.addCleanup(client.close)
        return client

    def web(self, name: str = "w", **more: Any) -> WebSocketClient:
        """A client that is connected over WebSocket."""
        client = self.upgrade()
        self.assertEqual(client.connect(self.id_(name), **more).code, 0)
        return client

    def test_subprotocolIsMqtt(self) -> None:
        """[MQTT-6.0.0-4] The server chooses C{mqtt}."""
        for offered in ("mqtt", "chat, mqtt", "mqtt, mqttv3.1"):
            client = self.upgrade(offered)
            self.assertTrue(client.isUpgraded, client.status)
            self.assertEqual(client.headers["sec-websocket-protocol"], "mqtt")

    def test_otherSubprotocolIsRefused(self) -> None:
        """[MQTT-6.0.0-3] Without C{mqtt} on offer it may refuse, and chooses nothing else."""
        for offered in ("v12.stomp", "chat"):
            try:
                client = self.upgrade(offered)
            except Closed:
                continue
            if client.isUpgraded:
                self.assertNotIn("sec-websocket-protocol", client.headers)
            else:
                self.assertIn(client.status.split()[1], ("400", "426"))

    def test_messagesGoBothWays(self) -> None:
        """[MQTT-6.0.0-1] Everything goes, in binary frames; the client checks that."""
        client, other = self.web(), self.client()
        client.subscribe(self.topic("#"))
        other.subscribe(self.topic("#"))
        for qos in range(3):
            client.publish(self.topic("a"), str(qos).encode(), qos)
            for each in (client, other):
                packet = each.message()
                self.assertEqual((packet.payload, packet.qos), (str(qos).encode(), qos))

    def test_packetMaySpanFrames(self) -> None:
        """[MQTT-6.0.0-2] Packets need not end where frames do: a byte a message."""
        client = self.upgrade()
        client.sendSlowly(connect(self.version, self.id_()))
        self.assertEqual(client.expect(CONNACK).code, 0)
        client.sendSlowly(subscribe(self.version, 7, [(self.topic("a"), 1)]))
        self.assertEqual(client.expect(SUBACK).packetId, 7)
        client.sendSlowly(publish(self.version, self.topic("a"), b"x" * 150))
        self.assertEqual(client.message().payload, b"x" * 150)

    def test_frameMayHoldPackets(self) -> None:
        """[MQTT-6.0.0-2] And there may be many in one."""
        client = self.upgrade()
        client.frame(
            BINARY,
            connect(self.version, self.id_())
            + subscribe(self.version, 1, [(self.topic("a"), 0)])
            + publish(self.version, self.topic("a"), b"x", qos=1, packetId=2)
            + PING,
        )
        kinds = [client.receive().kind for _ in range(5)]
        self.assertEqual(kinds[0], CONNACK)
        self.assertEqual(sorted(kinds[1:]), [PUBLISH, PUBACK, SUBACK, PINGRESP])

    def test_messageMayBeFragmented(self) -> None:
        """RFC 6455, 5.4: a message may be fragmented, with control frames between."""
        client = self.web()
        client.subscribe(self.topic("a"), qos=0)
        data = publish(self.version, self.topic("a"), b"x" * 300)
        client.frame(BINARY, data[:10], isLast=False)
        client.frame(WS_PING, b"there?")
        client.frame(CONTINUATION, data[10:200], isLast=False)
        client.frame(CONTINUATION, b"", isLast=False)
        client.frame(CONTINUATION, data[200:])
        self.assertEqual(client.message().payload, b"x" * 300)
        self.assertEqual(client.controls, [(PONG, b"there?")])

    def test_messageMayBeEmpty(self) -> None:
        """RFC 6455, 5.2: a message may have no bytes."""
        client = self.web()
        client.frame(BINARY, b"")
        client.ping()

    def test_largePayloadArrives(self) -> None:
        """[MQTT-6.0.0-2] Almost one MiB, in many messages and in one."""
        client = self.web()
        client.subscribe(self.topic("a"), qos=1)
        payload = bytes(range(256)) * 4092
        client.publish(self.topic("a"), payload, 1)
        self.assertTrue(client.message().payload == payload)
        client.frame(BINARY, publish(self.version, self.topic("a"), payload))
        self.assertTrue(client.message().payload == payload)

    def test_shortMessagesHoldSeveralPackets(self) -> None:
        """
        Packets share a message of at most 4 KiB, and a longer packet has one of its own: clients
        have limits, as Spring's of STOMP has with 8,192 characters.
        """
        client = self.web()
        topic = self.topic("a")
        client.subscribe(topic, qos=0)
        sizes = [100] * 200 + [5000] + [2000] * 4
        client.send(b"".join(publish(self.version, topic, bytes(size)) for size in sizes))
        self.assertEqual([len(client.message().payload) for _ in sizes], sizes)
        self.assertEqual(len([size for size in client.sizes if size > 4096]), 1)

    def test_textFrameEndsConnection(self) -> None:
        """[MQTT-6.0.0-1] A text frame is no MQTT: the connection ends."""
        watcher = self.client()
        watcher.subscribe(self.topic("a"))
        client = self.web()
        client.frame(TEXT, publish(self.version, self.topic("a"), b"x"))
        self.ends(client)
        self.assertNothing(watcher)
        client = self.upgrade()
        client.frame(TEXT, connect(self.version, self.id_()))
        self.ends(client)

    def test_malformedPacketEndsConnection(self) -> None:
        """[MQTT-4.8.0-1] A malformed packet ends the WebSocket too."""
        client = self.web()
        client.send(frame(0, 0, b""))
        self.ends(client)

    def ends(self, client: MqttClient) -> None:
        """The connection ends, perhaps after DISCONNECT, with a close frame or without."""
        client.closes()

    def test_closeFramePublishesWill(self) -> None:
        """Section 3.1.2.5: a close frame is not DISCONNECT: there is a will."""
        watcher = self.client()
        watcher.subscribe(self.topic("w"), qos=1)
        client = self.web(will=Will(topic=self.topic("w")))
        client.frame(CLOSE, b"\x03\xe8")
        self.assertRaises(Closed, client.receive)
        self.assertEqual(watcher.message().payload, b"will")

    def test_lostConnectionPublishesWill(self) -> None:
        """Section 3.1.2.5: nor is the end of the TCP connection."""
        watcher = self.client()
        watcher.subscribe(self.topic("w"), qos=1)
        self.web(will=Will(topic=self.topic("w"))).close()
        self.assertEqual(watcher.message().payload, b"will")

    def test_disconnectDropsWill(self) -> None:
        """[MQTT-3.14.4-3] DISCONNECT is."""
        watcher = self.client()
        watcher.subscribe(self.topic("w"), qos=1)
        self.web(will=Will(topic=self.topic("w"))).leave()
        self.assertNothing(watcher)

    def test_sessionMovesBetweenTransports(self) -> None:
        """[MQTT-3.1.4-2] A session moves from WebSocket to TCP and back."""
        web = self.web("s", clean=False)
        tcp = self.persistent("s")
        self.ends(web)
        web = self.web("s", clean=False)
        self.ends(tcp)
        web.ping()

    def test_pingFramesDoNotKeepAlive(self) -> None:
        """[MQTT-3.1.2-24] The keep-alive is MQTT's; frames of WebSocket do not count."""
        client = self.web(keepAlive=1)
        client.frame(WS_PING, b"")
        self.ends(client)


class WebSocket5Tests(WebSocketTests):
    """
    The same with 5.
    """

    version = V5
