"""
A MQTT carrier on a clock, over the real subscriptions and a memory ledger, and clients for it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from hashlib import shake_256
from typing import Any

from twisted.internet.defer import maybeDeferred
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from svcbroker.access import Access
from svcbroker.broker import Broker, Limits, MetadataStore
from svcbroker.broker.subscriptions import KeptPositions, Subscriptions
from svcbroker.carriers.mqtt.carrier import MqttCarrier, MqttFactory, MqttProtocol
from svcbroker.carriers.mqtt.codec import Decoder, encode
from svcbroker.carriers.mqtt.context import MqttSettings, makeContext
from svcbroker.carriers.mqtt.fields import NO_PROPERTIES, Properties
from svcbroker.carriers.mqtt.packets import (
    MQTT_5,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    TopicSubscription,
    Unsubscribe,
)
from svcbroker.interfaces import IAuthenticator, submit
from svcbroker.model import OpenTopic, PublishEvent
from svcbroker.net.budgets import Budgets
from svcbroker.testing._fixtures import ScriptedLedger, memoryLedger
from tests.broker.support import MemoryMetadataFile
from tests.waiting import passTurns

MAX_PACKET = 10 * 1024 * 1024


class MetadataFile(MemoryMetadataFile):
    """What is on disk, in memory."""

    def __init__(self) -> None:
        super().__init__()
        # Of what is unguessable: none comes twice, restarts or not.
        self.numbers = itertools.count(1)


class Transport(StringTransport):
    """
    A transport that closes, and whose client can stop reading.

    @ivar writes: what was written, piece by piece.
    """

    aborting = False
    protocol: MqttProtocol

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.writes.append(data)
        super().write(data)

    def setTcpNoDelay(self, enabled: bool) -> None:
        """Nothing to set."""

    def loseConnection(self) -> None:
        if not self.disconnecting:
            super().loseConnection()

    def abortConnection(self) -> None:
        self.aborting = True
        self.disconnecting = True


class Client:
    """
    A client, packet by packet.

    @ivar packets: what has arrived and was not taken yet.
    """

    def __init__(self, server: Server, version: int = MQTT_5) -> None:
        self.server = server
        self.version = version
        self.transport = Transport()
        self.packets: list[Packet] = []
        self.isLost = False
        self._decoder = Decoder(MAX_PACKET, version)
        self.protocol: Any = server.factory.buildProtocol(None)
        assert self.protocol is not None
        self.protocol.makeConnection(self.transport)

    def send(self, *packets: Packet) -> None:
        """Send packets in one piece, and let time pass."""
        self.sendBytes(b"".join(encode(packet, self.version) for packet in packets))

    def sendBytes(self, data: bytes) -> None:
        """Send bytes, and let time pass."""
        self.protocol.dataReceived(data)
        self.server.pump()

    def look(self) -> None:
        """Take in what the server has sent."""
        data = self.transport.value()
        self.transport.clear()
        self.packets += self._decoder.receive(data)
        if self._decoder.error is not None:
            raise self._decoder.error

    def take(self) -> list[Any]:
        """What has arrived since the last time, packets of any kind."""
        self.server.pump()
        self.look()
        packets, self.packets = self.packets, []
        return packets

    def takeOne(self, kind: type[Any]) -> Any:
        """The only packet that has arrived, which is of this kind."""
        packets = self.take()
        assert len(packets) == 1 and isinstance(packets[0], kind), packets
        return packets[0]

    def connect(
        self, clientId: str = "client", *, cleanStart: bool = True, **fields: Any
    ) -> Connack:
        """Connect, and give what comes back."""
        properties = fields.pop("properties", NO_PROPERTIES)
        expiry = fields.pop("expiry", None)
        if expiry is not None:
            properties = Properties(sessionExpiryInterval=expiry)
        self.send(
            Connect(
                clientId=clientId,
                cleanStart=cleanStart,
                version=self.version,
                properties=properties,
                **fields,
            )
        )
        self.server.pump()
        self.look()
        connack = self.packets.pop(0)
        assert isinstance(connack, Connack), connack
        return connack

    def subscribe(
        self, topicFilter: str, qos: int = 0, properties: Properties = NO_PROPERTIES, **options: Any
    ) -> Suback:
        """Subscribe to one filter, and give what comes back."""
        self.send(Subscribe(1, (TopicSubscription(topicFilter, qos, **options),), properties))
        self.server.pump()
        self.look()
        place = next(n for n, packet in enumerate(self.packets) if isinstance(packet, Suback))
        suback = self.packets.pop(place)
        assert isinstance(suback, Suback)
        return suback

    def unsubscribe(self, *filters: str) -> None:
        """Unsubscribe."""
        self.send(Unsubscribe(2, filters))

    def publish(
        self,
        topic: str,
        payload: bytes = b"hello",
        qos: int = 0,
        *,
        retain: bool = False,
        packetId: int = 77,
        properties: Properties = NO_PROPERTIES,
    ) -> None:
        """Publish, with the whole exchange."""
        self.send(Publish(topic, payload, qos, retain, False, packetId if qos else 0, properties))
        self.server.pump()
        self.look()
        if qos == 1:
            self._expect(Puback)
        elif qos == 2:
            self._expect(Pubrec)
            self.send(Pubrel(packetId))
            self.server.pump()
            self.look()
            self._expect(Pubcomp)

    def _expect(self, kind: type[Any]) -> None:
        found = next(packet for packet in self.packets if isinstance(packet, kind))
        assert found.reason < 0x80, found
        self.packets.remove(found)

    def takeMessages(self) -> list[Publish]:
        """The messages that have arrived, each acknowledged at once."""
        messages: list[Publish] = []
        while True:
            packets = self.take()
            if not packets:
                return messages
            for packet in packets:
                if isinstance(packet, Publish):
                    messages.append(packet)
                    if packet.qos == 1:
                        self.send(Puback(packet.packetId))
                    elif packet.qos == 2:
                        self.send(Pubrec(packet.packetId))
                elif isinstance(packet, Pubrel):
                    self.send(Pubcomp(packet.packetId))

    def payloads(self) -> list[bytes]:
        """The payloads of L{takeMessages}."""
        return [message.payload for message in self.takeMessages()]

    def disconnect(self, reason: int = 0, properties: Properties = NO_PROPERTIES) -> None:
        """Say good-bye."""
        self.send(Disconnect(reason, properties))
        self.lose()

    def lose(self) -> None:
        """The connection breaks."""
        if not self.isLost:
            self.isLost = True
            self.protocol.connectionLost(Failure(ConnectionDone()))
            self.server.pump()

    @property
    def isClosed(self) -> bool:
        """Whether the server has closed the connection."""
        self.server.pump()
        return self.transport.disconnecting

    def reasonOfEnd(self) -> int:
        """The reason with which the server has closed the connection."""
        *_, last = self.take()
        assert isinstance(last, (Disconnect, Connack)), last
        assert self.isClosed
        return last.reason


class Server:
    """
    A broker with two groups.

    @ivar ledger: the ledger of group 1.
    @ivar budgets: what all connections share.
    """

    def __init__(
        self,
        settings: MqttSettings | None = None,
        file: MetadataFile | None = None,
        ledgers: dict[str, Any] | None = None,
        clock: Clock | None = None,
        authenticators: Sequence[IAuthenticator] = (),
    ) -> None:
        if clock is None:
            clock = Clock()
            clock.advance(1_700_000_000)
        self.clock = clock
        self.file = MetadataFile() if file is None else file
        if ledgers is None:
            ledgers = {group: ScriptedLedger(memoryLedger(clock, group)) for group in ("1", "2")}
        self.ledgers = ledgers
        self.ledger = ledgers["1"]
        entropy = lambda size: shake_256(b"%d" % next(self.file.numbers)).digest(size)  # noqa: E731
        self.store = MetadataStore(self.file, clock, maybeDeferred)
        self.budgets = Budgets.of(clock)
        self.subscriptions = Subscriptions(
            ledgers,
            clock,
            clock.seconds,
            entropy,
            KeptPositions(self.store, self.budgets.subscriptions),
            budgets=self.budgets,
        )
        self.subscriptions.start()
        settings = MqttSettings() if settings is None else settings
        self.broker = Broker(
            ledgers,
            clock,
            Limits(maxContent=settings.maxContent),
            self.subscriptions,
            budgets=self.budgets,
        )
        self.access = Access(authenticators, clock, clock.seconds)
        context = makeContext(
            self.access,
            self.broker,
            ledgers,
            self.subscriptions,
            self.store,
            clock,
            clock.seconds,
            entropy,
            settings,
        )
        self.carrier = MqttCarrier(context)
        self.carrier.start()
        self.factory = MqttFactory(self.carrier)
        self.clients: list[Client] = []
        self.pump()

    def client(self, version: int = MQTT_5) -> Client:
        """A client that has opened a connection."""
        client = Client(self, version)
        self.clients.append(client)
        return client

    def connected(self, clientId: str = "client", version: int = MQTT_5, **fields: Any) -> Client:
        """A client that is connected."""
        client = self.client(version)
        connack = client.connect(clientId, **fields)
        assert connack.reason == 0, connack
        return client

    def published(self) -> list[bytes]:
        """The contents of what was submitted."""
        return [each.content for each in self.ledger.submitted if isinstance(each, PublishEvent)]

    def pump(self) -> None:
        """Let everything happen that needs no time but that of the disk."""
        passTurns(self.clock, 30)
        self.clock.advance(0.05)
        passTurns(self.clock, 10)

    def turn(self) -> bool:
        """One turn of the reactor: make the calls that are due; whether there were any."""
        clock: Any = self.clock
        due = [call for call in clock.getDelayedCalls() if call.getTime() <= clock.seconds()]
        for call in due:
            if call.active():
                run, args, keywords = call.func, call.args, call.kw
                call.cancel()
                run(*args, **keywords)
        return bool(due)

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.advance(seconds)
        self.pump()

    def event(self, topic: str, content: bytes, **extensions: str) -> None:
        """Publish by another carrier."""
        submit(self.ledger, OpenTopic(topic=topic))
        named = {key.replace("_", "-"): value for key, value in extensions.items()}
        submit(self.ledger, PublishEvent(topic=topic, content=content, extensions=named))
        self.pump()

    def stop(self) -> None:
        """Stop in order, except for the ledgers."""
        self.carrier.drain()
        self.pump()
        self.store.flush()
        self.pump()

    def crash(self) -> None:
        """End without any order: what is not on disk is lost. The ledgers stay."""
        for client in self.clients:
            client.isLost = True
        self.subscriptions.stop()
        for call in self.clock.getDelayedCalls():
            call.cancel()

    def restarted(self, settings: MqttSettings | None = None) -> Server:
        """Another broker on the same disk and ledgers, after L{crash}."""
        self.crash()
        return Server(settings, self.file, self.ledgers, self.clock)
