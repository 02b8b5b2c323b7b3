"""
Ten kills of the real daemon, under publishers and durable subscribers on all carriers.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from random import Random
from typing import Any
from uuid import UUID

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.protocol import Protocol

from svcbroker.carriers.mqtt.codec import Decoder, encode
from svcbroker.carriers.mqtt.fields import Properties
from svcbroker.carriers.mqtt.packets import (
    MQTT_5,
    Connack,
    Connect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    TopicSubscription,
)
from svcbroker.carriers.stomp.frames import (
    Frame,
    FrameLimits,
    StompParser,
    StompVersion,
    encodeFrame,
)

from .daemon import LOCAL, TIMEOUT, Daemon, DaemonTestCase, reactor
from .test_durability import Publishers
from .test_webhooks import SECRET, Receiver

KILLS = int(os.environ.get("SVCBROKER_TEST_KILLS", "10"))
LEDGER = "pbft:nodes=1"
TOPICS = "topic/+"
OVERLAPPING = "topic/#"
"""Sessions subscribe to both, and receive an event once all the same."""
END = "the last event"
MAX_PACKET = 1024 * 1024
WINDOW = 8
"""How many publishes of an MQTT client wait for their acknowledgement."""


class MqttWire(Protocol):
    """A connection of an MQTT client that outlives its connections."""

    transport: Any

    def __init__(self, client: MqttClient) -> None:
        self._client = client
        self._decoder = Decoder(MAX_PACKET, MQTT_5)

    def connectionMade(self) -> None:
        self._client.connected(self)

    def dataReceived(self, data: bytes) -> None:
        for packet in self._decoder.receive(data):
            self._client.received(packet)

    def send(self, *packets: Packet) -> None:
        """Send packets."""
        self.transport.write(b"".join(encode(packet, MQTT_5) for packet in packets))


class MqttClient:
    """
    A client with a session that is kept.

    @ivar ready: fires when it is connected, and has subscribed if it wants to.
    @ivar wire: its connection.
    """

    wire: MqttWire

    def __init__(self, name: str, expiry: int = 3600) -> None:
        self.name = name
        self.expiry = expiry
        self.wasConnected = False
        self.ready: Deferred[None] = Deferred()

    def connected(self, wire: MqttWire) -> None:
        """Connect over a new connection."""
        self.wire = wire
        properties = Properties(sessionExpiryInterval=self.expiry)
        wire.send(Connect(self.name, False, version=MQTT_5, properties=properties))

    def received(self, packet: Packet) -> None:
        """Handle a packet."""
        if isinstance(packet, Connack):
            assert packet.reason == 0, packet
            # What was confirmed once is there after every kill.
            assert packet.sessionPresent or not self.wasConnected, self.name
            isNew, self.wasConnected = not self.wasConnected, True
            self.resumed(isNew=isNew)

    def resumed(self, *, isNew: bool) -> None:
        """Called with CONNACK."""
        self.ready.callback(None)


class MqttSubscriber(MqttClient):
    """
    A subscriber.

    @ivar onceOrMore: the ids of the events that it has received with less than QoS 2, since they
        were published so.
    """

    def __init__(
        self, name: str, qos: int, got: Callable[[str], None], offset: str | None = None
    ) -> None:
        super().__init__(name, 3600 if offset is None else 0)
        self._qos = qos
        self._offset = offset
        self._got = got
        self._unreleased: set[int] = set()
        self.onceOrMore: set[str] = set()

    def resumed(self, *, isNew: bool) -> None:
        if not isNew:
            self.ready.callback(None)
            return
        properties = Properties(
            userProperties=(("svc-offset", self._offset),) if self._offset else ()
        )
        filters = (TOPICS,) if self._offset else (TOPICS, OVERLAPPING)
        asked = tuple(TopicSubscription(each, self._qos) for each in filters)
        self.wire.send(Subscribe(1, asked, properties))

    def received(self, packet: Packet) -> None:
        super().received(packet)
        if isinstance(packet, Suback):
            assert set(packet.reasons) == {self._qos}, packet
            self.ready.callback(None)
        elif isinstance(packet, Publish):
            eventId = dict(packet.properties.userProperties)["svc-eventId"]
            if packet.qos < 2:
                self.onceOrMore.add(eventId)
            if packet.packetId not in self._unreleased:
                self._got(eventId)
            if packet.qos == 1:
                self.wire.send(Puback(packet.packetId))
            elif packet.qos == 2:
                self._unreleased.add(packet.packetId)
                self.wire.send(Pubrec(packet.packetId))
        elif isinstance(packet, Pubrel):
            self._unreleased.discard(packet.packetId)
            self.wire.send(Pubcomp(packet.packetId))


class MqttPublisher(MqttClient):
    """
    A publisher, which repeats what is not acknowledged.

    @ivar acknowledged: how many publishes are.
    """

    def __init__(self, qos: int) -> None:
        super().__init__(f"publisher-{qos}")
        self.acknowledged = 0
        self._qos = qos
        self._lastId = 0
        # Without PUBACK or PUBREC, and with PUBREC.
        self._sent: dict[int, Publish] = {}
        self._released: set[int] = set()

    def resumed(self, *, isNew: bool) -> None:
        self.wire.send(*self._sent.values(), *(Pubrel(each) for each in self._released))
        while len(self._sent) < WINDOW:
            self.publish()
        self.ready.callback(None)

    def publish(self) -> None:
        """Publish an event."""
        self._lastId = packetId = self._lastId % 60_000 + 1
        content = f"{self.name}: {packetId}".encode()
        packet = Publish(f"topic/{self._qos}", content, self._qos, packetId=packetId)
        self._sent[packetId] = packet
        self.wire.send(packet)

    def received(self, packet: Packet) -> None:
        super().received(packet)
        if isinstance(packet, Puback | Pubrec):
            assert packet.reason < 0x80, packet
            if self._sent.pop(packet.packetId, None) is not None:
                self.acknowledged += 1
                self.publish()
            if isinstance(packet, Pubrec):
                self._released.add(packet.packetId)
                self.wire.send(Pubrel(packet.packetId))
        elif isinstance(packet, Pubcomp):
            self._released.discard(packet.packetId)


class StompSubscriber(Protocol):
    """
    A connection of a durable subscriber that acknowledges each message.

    @ivar ready: fires when it has subscribed.
    """

    transport: Any

    def __init__(self, got: Callable[[str], None]) -> None:
        self.ready: Deferred[None] = Deferred()
        self._got = got
        self._parser = StompParser(FrameLimits())

    def connectionMade(self) -> None:
        self.send("CONNECT", {"accept-version": "1.2", "host": "x"})
        headers = {"id": "1", "destination": TOPICS, "ack": "client-individual"}
        headers.update({"svc-subscriptionId": str(UUID(int=7)), "receipt": "subscribed"})
        self.send("SUBSCRIBE", headers)

    def send(self, command: str, headers: dict[str, str]) -> None:
        """Send a frame."""
        self.transport.write(encodeFrame(command, headers.items(), version=StompVersion.V12))

    def dataReceived(self, data: bytes) -> None:
        self._parser.feed(data)
        while (frame := self._parser.nextFrame()) is not None:
            self._received(frame)

    def _received(self, frame: Frame) -> None:
        assert frame.command != "ERROR", frame
        if frame.command == "RECEIPT":
            self.ready.callback(None)
        elif frame.command == "MESSAGE":
            self._got(frame.headers["eventId"])
            self.send("ACK", {"id": frame.headers["ack"]})


class KillTests(DaemonTestCase):
    """
    The daemon is killed in the middle of everything, and is started again.
    """

    timeout = 6 * TIMEOUT

    def until(self, condition: Callable[[], bool]) -> Deferred[None]:
        """Fires when a condition holds, which is looked at with each received event."""
        self._condition = condition
        self._met: Deferred[None] = Deferred()
        self._look()
        return self._met.addTimeout(TIMEOUT, reactor)

    def _look(self) -> None:
        if self._condition() and not self._met.called:
            self._met.callback(None)

    def collector(self, name: str) -> Callable[[str], None]:
        """Collects the ids of the events that a subscriber receives."""
        got = self.got[name] = []

        def collect(eventId: str) -> None:
            got.append(eventId)
            self._look()

        return collect

    async def begin(self) -> Daemon:
        """Start the daemon, and connect all clients."""
        daemon = await self.start(
            *("--webhook-allow=127.0.0.0/8", f"--webhook-secret-file={self.secret}"),
            *(f"--mqtt={LOCAL}", f"--stomp={LOCAL}"),
            ledger=LEDGER,
        )
        ports = {}
        for name in ("MQTT", "STOMP"):
            found = await daemon.protocol.waitFor(rf"{name} on 127\.0\.0\.1:(\d+)")
            ports[name] = TCP4ClientEndpoint(reactor, "127.0.0.1", int(found[1]))
        self.mqttPort = ports["MQTT"]
        if not self.clients[0].wasConnected:
            for number in range(2):
                await daemon.call("/rest/open", topic=f"topic/{number}")
            url = f"http://127.0.0.1:{self.receiver.port}/"
            await daemon.call("/rest/subscribe", topic=TOPICS, url=url)
        stomp = StompSubscriber(self.collectStomp)
        await connectProtocol(ports["STOMP"], stomp)
        await stomp.ready.addTimeout(TIMEOUT, reactor)
        # Those that subscribe come first: nothing is published before all have.
        for client in self.clients:
            await self.connect(client)
        return daemon

    async def connect(self, client: MqttClient) -> None:
        """Connect an MQTT client."""
        client.ready = Deferred()
        await connectProtocol(self.mqttPort, MqttWire(client))
        await client.ready.addTimeout(TIMEOUT, reactor)

    async def test_killsLoseNothingAndQos2IsExact(self) -> None:
        """
        Every answered event is in the log. Each subscriber receives every event of the log in its
        order, and those with QoS 2 exactly once.
        """
        random = Random(12)
        self.secret = self.root / "secret"
        self.secret.write_text(SECRET + "\n")
        self.got: dict[str, list[str]] = {}
        self._condition = lambda: False
        self.collectStomp = self.collector("STOMP")
        self.receiver = Receiver(self)
        publishers = [MqttPublisher(qos) for qos in (1, 2)]
        atLeast, exactly = (
            MqttSubscriber(f"QoS {qos}", qos, self.collector(f"QoS {qos}")) for qos in (1, 2)
        )
        self.clients: list[MqttClient] = [atLeast, exactly, *publishers]
        answered: dict[str, str] = {}
        for _ in range(KILLS):
            daemon = await self.begin()
            rest = Publishers(daemon, random.randrange(1, 60))
            running = rest.run(4)
            await DeferredList(
                [running, rest.enough], fireOnOneCallback=True, fireOnOneErrback=True
            )
            code = await daemon.stop(signal.SIGKILL)
            self.assertEqual(code, -signal.SIGKILL, daemon.protocol.output)
            await running
            answered.update(rest.answered)
        del self.clients[2:]
        daemon = await self.begin()
        last = (await daemon.call("/rest/publish", topic="topic/0", content=END))["eventId"]
        reader = MqttSubscriber("reader", 0, self.collector("log"), "OFFSET_FIRST")
        await self.connect(reader)
        await self.until(lambda: all(last in got for got in self.got.values()))
        log = self.got.pop("log")
        await self.receiver.until(lambda: END in self.receiver.accepted)
        self.got["webhook"] = [told["event"]["eventId"] for _, told in self.receiver.seen]
        self.assertEqual(len(log), len(set(log)))
        self.assertEqual(answered.keys() - set(log), set())
        acknowledged = sum(each.acknowledged for each in publishers)
        self.assertGreaterEqual(len(log), len(answered) + acknowledged + 1)
        exact = [each for each in self.got["QoS 2"] if each not in exactly.onceOrMore]
        self.assertEqual(exact, [each for each in log if each not in exactly.onceOrMore])
        for name, got in self.got.items():
            self.assertEqual(list(dict.fromkeys(got)), log, name)
        self.assertEqual(await daemon.stop(), 0)
