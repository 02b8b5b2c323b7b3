"""
A small MQTT client for tests: one blocking connection, both versions, no threads.

Every wait is bounded by L{TIMEOUT}. It does what it is told to and no more: it acknowledges
nothing by itself, so a test sees each packet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from tests.waiting import TIMEOUT as TIMEOUT

from .brokers import IBroker
from .packets import (
    AUTH,
    CONNACK,
    DISCONNECT,
    NAMES,
    PING,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    UNSUBACK,
    V5,
    Packet,
    Property,
    WireError,
    ack,
    connect,
    disconnect,
    parse,
    publish,
    subscribe,
    unsubscribe,
)

MARKER = "marker/"
"""How the topics of L{MqttClient.settle} begin."""

_CHUNK = 65_536


class Closed(AssertionError):
    """The server closed the connection."""


class MqttClient:
    """
    A connection to a broker.

    @ivar version: 4 or 5.
    @ivar clientId: as it was last connected.
    @ivar connack: what CONNECT was answered with.
    @ivar isTold: whether this server tells why it ends a connection, as MQTT 5, 4.13 recommends.
    @ivar aliases: the topic aliases that the server has set.
    @ivar aliasMaximum: how many of them it may set.
    """

    connack: Packet

    def __init__(self, broker: IBroker, version: int) -> None:
        self.version = version
        self.isTold = False
        self.clientId = ""
        self.aliases: dict[int, str] = {}
        self.aliasMaximum = 0
        self._socket = broker.connect(TIMEOUT)
        self._buffer = bytearray()
        self._aside: deque[Packet] = deque()
        self._lastId = 0
        self._markers = 0

    # Bytes

    def send(self, data: bytes) -> None:
        """Send bytes, whatever they are."""
        self._socket.sendall(data)

    def sendSlowly(self, data: bytes) -> None:
        """Send bytes one at a time, each in a segment of its own."""
        for index in range(len(data)):
            self._socket.sendall(data[index : index + 1])

    def close(self) -> None:
        """End the connection without a word, as a crash does."""
        self._socket.close()

    def _fill(self, seconds: float) -> None:
        self._socket.settimeout(seconds)
        try:
            data = self._socket.recv(_CHUNK)
        except ConnectionError:
            data = b""
        finally:
            if self._socket.fileno() >= 0:
                self._socket.settimeout(TIMEOUT)
        if not data:
            raise Closed(f"the server closed the connection; left: {bytes(self._buffer[:64])!r}")
        self._buffer += data

    # Packets

    def _next(self, seconds: float) -> Packet:
        """The next packet as it comes."""
        while True:
            length, at, shift = 0, 1, 0
            while at < len(self._buffer):
                byte = self._buffer[at]
                length |= (byte & 0x7F) << shift
                at, shift = at + 1, shift + 7
                if not byte & 0x80:
                    break
                if shift > 21:
                    raise WireError(f"no remaining length: {bytes(self._buffer[:8])!r}")
            else:
                self._fill(seconds)
                continue
            end = at + length
            if len(self._buffer) < end:
                self._fill(seconds)
                continue
            first = self._buffer[0]
            body = bytes(self._buffer[at:end])
            del self._buffer[:end]
            return self._resolve(parse(self.version, first >> 4, first & 15, body, end))

    def _resolve(self, packet: Packet) -> Packet:
        """Replace a topic alias by its topic. [MQTT5-3.3.2-9]"""
        alias = packet.get("topicAlias")
        if packet.kind != PUBLISH or alias is None:
            if packet.kind == PUBLISH and not packet.topic:
                raise WireError("PUBLISH without a topic")
            return packet
        if not 1 <= alias <= self.aliasMaximum:
            raise WireError(f"the topic alias {alias} of {self.aliasMaximum}")
        if packet.topic:
            self.aliases[alias] = packet.topic
            return packet
        if alias not in self.aliases:
            raise WireError(f"the unknown topic alias {alias}")
        return Packet(
            kind=PUBLISH,
            flags=packet.flags,
            packetId=packet.packetId,
            topic=self.aliases[alias],
            payload=packet.payload,
            properties=packet.properties,
            size=packet.size,
        )

    def receive(self, seconds: float = TIMEOUT) -> Packet:
        """
        The next packet, whatever it is, without old markers.

        @raise TimeoutError: when none comes.
        @raise Closed: when the server ends the connection.
        """
        while True:
            packet = self._aside.popleft() if self._aside else self._next(seconds)
            if not packet.topic.startswith(MARKER):
                return packet

    def expect(self, kind: int, seconds: float = TIMEOUT) -> Packet:
        """
        The next packet of a kind. Publishes that come before another kind are kept for later.
        """
        for index, packet in enumerate(self._aside):
            if packet.kind == kind and not packet.topic.startswith(MARKER):
                del self._aside[index]
                return packet
        while True:
            packet = self._next(seconds)
            if packet.kind == PUBLISH and packet.topic.startswith(MARKER):
                continue
            if packet.kind == kind:
                return packet
            if packet.kind != PUBLISH:
                raise AssertionError(f"{packet}, not {NAMES[kind]}")
            self._aside.append(packet)

    def message(self, seconds: float = TIMEOUT) -> Packet:
        """The next PUBLISH, with its flow completed."""
        packet = self.expect(PUBLISH, seconds)
        self.complete(packet)
        return packet

    def messages(self, count: int) -> list[Packet]:
        """The next so many, each with its flow completed."""
        return [self.message() for _ in range(count)]

    def complete(self, packet: Packet) -> None:
        """Acknowledge a PUBLISH."""
        if packet.qos == 1:
            self.send(ack(PUBACK, packet.packetId))
        elif packet.qos == 2:
            self.send(ack(PUBREC, packet.packetId))
            released = self.expect(PUBREL)
            if released.packetId != packet.packetId:  # [MQTT-2.3.1-6]
                raise WireError(f"{released} after PUBREC {packet.packetId}")
            self.send(ack(PUBCOMP, packet.packetId))

    def closes(self, *reasons: int, seconds: float = TIMEOUT) -> Packet | None:
        """
        Wait until the server ends the connection. Publishes before that are let be.

        @param reasons: the reason codes that DISCONNECT may give; any failure if none is named.
            Where some are, and L{isTold}, there must be a DISCONNECT.
        @return: the DISCONNECT, where there was one.
        """
        last: Packet | None = None
        while True:
            try:
                packet = self._next(seconds)
            except Closed as closed:
                if reasons and self.isTold and last is None:
                    raise AssertionError("no DISCONNECT") from closed
                return last
            if packet.kind == PUBLISH and last is None:
                continue
            if packet.kind != DISCONNECT or last is not None:
                raise AssertionError(f"{packet}, not the end")
            if packet.code < 0x80 or (reasons and packet.code not in reasons):
                raise AssertionError(f"DISCONNECT with {packet.code:#x}")
            last = packet

    # Flows

    def nextId(self) -> int:
        """A packet identifier that is not in use."""
        self._lastId = self._lastId % 0xFFFF + 1
        return self._lastId

    def connect(self, clientId: str = "", **more: Any) -> Packet:
        """Send CONNECT and return CONNACK, whatever it says."""
        self.clientId = clientId
        self.aliasMaximum = dict(more.get("properties_", ())).get("topicAliasMaximum", 0)
        self.send(connect(self.version, clientId, **more))
        self.connack = self.expect(CONNACK)
        return self.connack

    def subscribe(
        self, *filters: str | tuple[str, int], qos: int = 2, properties_: Sequence[Property] = ()
    ) -> Packet:
        """Subscribe and return SUBACK. A filter without options has the given QoS."""
        pairs = [(each, qos) if isinstance(each, str) else each for each in filters]
        packetId = self.nextId()
        self.send(subscribe(self.version, packetId, pairs, properties_=properties_))
        return self._answered(self.expect(SUBACK), packetId)

    def unsubscribe(self, *filters: str) -> Packet:
        """Unsubscribe and return UNSUBACK."""
        packetId = self.nextId()
        self.send(unsubscribe(self.version, packetId, filters))
        return self._answered(self.expect(UNSUBACK), packetId)

    def publish(self, topic: str, payload: bytes = b"", qos: int = 0, **more: Any) -> Packet | None:
        """
        Publish, complete the flow, and return PUBACK or PUBREC, where there is one.
        """
        packetId = self.nextId() if qos else None
        self.send(publish(self.version, topic, payload, qos=qos, packetId=packetId, **more))
        if packetId is None:
            return None
        answer = self._answered(self.expect(PUBACK if qos == 1 else PUBREC), packetId)
        if qos == 2 and answer.code < 0x80:
            self.send(ack(PUBREL, packetId))
            self._answered(self.expect(PUBCOMP), packetId)
        return answer

    @staticmethod
    def _answered(answer: Packet, packetId: int) -> Packet:
        if answer.packetId != packetId:  # [MQTT-2.3.1-6] [MQTT-2.3.1-7]
            raise WireError(f"{answer} for the packet identifier {packetId}")
        return answer

    def ping(self) -> None:
        """PINGREQ, PINGRESP: the server has read and answered all that was sent before."""
        self.send(PING)
        self.expect(PINGRESP)

    def leave(self, reason: int | None = None, properties_: Sequence[Property] = ()) -> None:
        """DISCONNECT, and wait until the server has closed the connection."""
        self.send(disconnect(self.version, reason, properties_))
        self.closes()
        self.close()

    def pending(self) -> list[Packet]:
        """Publishes that have come and were not looked at, as far as a PINGREQ can tell."""
        self.ping()
        found = [each for each in self._aside if not each.topic.startswith(MARKER)]
        self._aside.clear()
        return found

    def settle(self) -> list[Packet]:
        """
        Wait until a message that is published now has come by, twice, and return what came
        before and was not looked at. What was published earlier has come by then, or never will.
        """
        topic = f"{MARKER}{self.clientId}-{id(self)}"
        if not self._markers:
            self.subscribe(topic, qos=0)
        found = [each for each in self._aside if not each.topic.startswith(MARKER)]
        self._aside.clear()
        for _ in range(2):
            self._markers += 1
            text = str(self._markers).encode()
            self.send(publish(self.version, topic, text))
            while True:
                packet = self._next(TIMEOUT)
                if (packet.topic, packet.payload) == (topic, text):
                    break
                if not packet.topic.startswith(MARKER):
                    found.append(packet)
        return found


__all__ = ["AUTH", "TIMEOUT", "V5", "Closed", "MqttClient"]
