"""
From bytes to packets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from .packets import (
    MQTT_5,
    MQTT_311,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
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
    Will,
)
from .properties import NO_PROPERTIES, Place, Properties, decodeProperties
from .reasons import MalformedPacket, MqttError, ProtocolError, ReasonCode
from .wire import Reader, decodeText

ACK = TypeVar("ACK", Puback, Pubrec, Pubrel, Pubcomp)

PROTOCOL_NAME: Final = b"MQTT"

_CONNECT: Final = 1
_PUBLISH: Final = 3
_PUBACK: Final = 0x40
_MAX_HEADER = 5
_REMEMBERED_TOPICS: Final = 1024

# What bits 3 to 0 of the first byte must be. Table 2.2.
_FLAGS: Final = {6: 0b0010, 8: 0b0010, 10: 0b0010}


def checkTopicName(topic: str) -> None:
    """
    Refuse a topic name that no PUBLISH may have.

    @raise MqttError: it has wildcards.
    """
    if "+" in topic or "#" in topic:
        # [MQTT-3.3.2-2] [MQTT5-3.3.2-2]
        raise MqttError(ReasonCode.TOPIC_NAME_INVALID, "a topic name has wildcards")


class Decoder:
    """
    Finds the packets in what arrives on one connection, in whatever pieces it arrives.

    @ivar version: the protocol level of the connection, 0 before its CONNECT. A CONNECT sets it.
    @ivar error: what was wrong with the packet after the last one that L{receive} gave. Then
        nothing more is read.
    """

    def __init__(self, maximumPacketSize: int, version: int = 0) -> None:
        """
        @param maximumPacketSize: the most bytes of a packet, all of it.
        """
        self.version = version
        self.error: MqttError | None = None
        self._maximumPacketSize = maximumPacketSize
        # The beginning of a packet that has not yet arrived whole, and what it needs at least.
        self._parts: list[bytes] = []
        self._missing = 0
        self._topics: dict[bytes, str] = {}

    @property
    def isIncomplete(self) -> bool:
        """Whether a packet has begun to arrive."""
        return bool(self._parts)

    def receive(self, data: bytes) -> list[Packet]:
        """
        Take what has arrived.

        @return: the packets that it completes. If L{error} is set then, they came before what
            is wrong.
        """
        if self.error is not None:
            return []
        if self._parts:
            self._parts.append(data)
            self._missing -= len(data)
            if self._missing > 0:
                return []
            data = b"".join(self._parts)
            self._parts.clear()
        packets: list[Packet] = []
        try:
            position = self._readAll(data, packets)
        except MqttError as error:
            self.error = error
        else:
            if position < len(data):
                self._parts.append(data[position:] if position else data)
        return packets

    def _readAll(self, data: bytes, packets: list[Packet]) -> int:
        """Read the whole packets in C{data}; where the one begins that is not whole."""
        position, end = 0, len(data)
        append = packets.append
        while position < end:
            start = position + 2
            if start > end:
                self._missing = 1
                break
            first, length = data[position], data[position + 1]
            if length > 0x7F:
                header = Reader(data, position + 1, min(end, position + _MAX_HEADER))
                try:
                    length = header.variableByteInteger()
                except MalformedPacket:
                    if end - position >= _MAX_HEADER or data[end - 1] < 0x80:
                        raise
                    self._missing = 1
                    break
                start = header.position
            stop = start + length
            if stop - position > self._maximumPacketSize:
                # Known before it has arrived, so that it is never kept.
                raise MqttError(ReasonCode.PACKET_TOO_LARGE, "a packet is too large")
            if stop > end:
                self._missing = stop - end
                if position == 0 and self.version == 0 and first >> 4 != _CONNECT:
                    raise ProtocolError("the first packet is no CONNECT")
                break
            if first >> 4 == _PUBLISH and self.version:
                append(self._publish(data, first, start, stop))
            elif first == _PUBACK and length == 2 and self.version:
                # As hot with many subscribers: no reason, no Reader.
                packetId = data[start] << 8 | data[start + 1]
                if not packetId:
                    # [MQTT-2.3.1-1] [MQTT5-2.2.1-3]
                    raise ProtocolError("a packet identifier is zero")
                append(Puback(packetId))
            else:
                append(self._packet(data, first, start, stop))
            position = stop
        return position

    def _packet(self, data: bytes, first: int, start: int, stop: int) -> Packet:
        kind = first >> 4
        if not self.version and kind != _CONNECT:
            # [MQTT-3.1.0-1] [MQTT5-3.1.0-1]
            raise ProtocolError("the first packet is no CONNECT")
        read = _READERS.get(kind)
        if read is None or (kind == 15 and self.version != MQTT_5):
            raise MalformedPacket("a packet has a type that does not exist")
        if first & 0x0F != _FLAGS.get(kind, 0):
            # [MQTT-2.2.2-2] [MQTT5-2.1.3-1]
            raise MalformedPacket("reserved flags of a packet are set")
        reader = Reader(data, start, stop)
        packet = read(self, reader)
        if not reader.isAtEnd():
            raise MalformedPacket("a packet is longer than its fields")
        return packet

    def _publish(self, data: bytes, first: int, start: int, stop: int) -> Publish:
        # The hot one: no Reader, and names that came before are not decoded again.
        qos = first >> 1 & 3
        if qos == 3:
            # [MQTT-3.3.1-4] [MQTT5-3.3.1-4]
            raise MalformedPacket("a PUBLISH has QoS 3")
        if first & 0x08 and not qos:
            # [MQTT-3.3.1-2] [MQTT5-3.3.1-2]
            raise MalformedPacket("a PUBLISH with QoS 0 is marked as a duplicate")
        position = start + 2
        if position > stop:
            raise MalformedPacket("a packet ends too soon")
        nameStart = position
        position += data[start] << 8 | data[start + 1]
        name = data[nameStart:position]
        packetId = 0
        if qos:
            position += 2
            if position > stop:
                raise MalformedPacket("a packet ends too soon")
            packetId = data[position - 2] << 8 | data[position - 1]
            if not packetId:
                # [MQTT-2.3.1-1] [MQTT5-2.2.1-3]
                raise ProtocolError("a packet identifier is zero")
        if position > stop:
            raise MalformedPacket("a packet ends too soon")
        topic = self._topics.get(name)
        if topic is None:
            topic = self._newTopic(name)
        properties = NO_PROPERTIES
        if self.version == MQTT_5:
            if position < stop and not data[position]:
                position += 1
            else:
                reader = Reader(data, position, stop)
                properties = decodeProperties(reader, Place.PUBLISH)
                position = reader.position
        # No properties come by keyword: this is made for every message.
        return Publish(
            topic, data[position:stop], qos, first & 1 == 1, first & 8 == 8, packetId, properties
        )

    def _newTopic(self, name: bytes) -> str:
        topic = decodeText(name)
        checkTopicName(topic)
        if not topic and self.version != MQTT_5:
            # [MQTT-4.7.3-1]; in MQTT 5 a topic alias may stand for it.
            raise MalformedPacket("a topic name is empty")
        if len(self._topics) >= _REMEMBERED_TOPICS:
            self._topics.clear()
        self._topics[name] = topic
        return topic

    def _properties(self, reader: Reader, place: Place) -> Properties:
        return decodeProperties(reader, place) if self.version == MQTT_5 else NO_PROPERTIES

    def _connect(self, reader: Reader) -> Connect:
        name, version = reader.binary(), reader.byte()
        if name != PROTOCOL_NAME or version not in (MQTT_311, MQTT_5):
            # [MQTT-3.1.2-1] [MQTT-3.1.2-2] [MQTT5-3.1.2-1] [MQTT5-3.1.2-2]. Who is told, is told
            # in the words of the version that is nearer.
            if name == PROTOCOL_NAME:
                self.version = MQTT_5 if version > MQTT_5 else MQTT_311
            raise MqttError(
                ReasonCode.UNSUPPORTED_PROTOCOL_VERSION, "neither MQTT 3.1.1 nor MQTT 5"
            )
        self.version = version
        flags = reader.byte()
        willQos = flags >> 3 & 3
        if flags & 1:
            # [MQTT-3.1.2-3] [MQTT5-3.1.2-3]
            raise MalformedPacket("the reserved flag of CONNECT is set")
        if not flags & 4 and flags & 0x38:
            # [MQTT-3.1.2-11] [MQTT-3.1.2-13] [MQTT-3.1.2-15] [MQTT5-3.1.2-11]
            raise MalformedPacket("there are flags of a will, but no will")
        if willQos == 3:
            # [MQTT-3.1.2-14] [MQTT5-3.1.2-14]
            raise MalformedPacket("the will has QoS 3")
        if version == MQTT_311 and flags & 0xC0 == 0x40:
            # [MQTT-3.1.2-22]
            raise MalformedPacket("there is a password, but no user name")
        keepAlive = reader.twoByteInteger()
        properties = self._properties(reader, Place.CONNECT)
        if properties.authenticationData is not None and properties.authenticationMethod is None:
            raise ProtocolError("there is authentication data, but no method")
        # [MQTT-3.1.3-1] [MQTT5-3.1.3-1]
        clientId = reader.text()
        will = None
        if flags & 4:
            willProperties = self._properties(reader, Place.WILL)
            topic = reader.text()
            checkTopicName(topic)
            if not topic:
                # [MQTT-4.7.3-1] [MQTT5-4.7.3-1]
                raise MalformedPacket("the topic of the will is empty")
            will = Will(topic, reader.binary(), willQos, flags & 0x20 != 0, willProperties)
        return Connect(
            clientId=clientId,
            cleanStart=flags & 2 != 0,
            keepAlive=keepAlive,
            version=version,
            will=will,
            userName=reader.text() if flags & 0x80 else None,
            password=reader.binary() if flags & 0x40 else None,
            properties=properties,
        )

    def _connack(self, reader: Reader) -> Connack:
        flags = reader.byte()
        if flags > 1:
            # [MQTT5-3.2.2-1]
            raise MalformedPacket("reserved flags of CONNACK are set")
        reason = reader.byte()
        return Connack(flags == 1, reason, self._properties(reader, Place.CONNACK))

    def _packetId(self, reader: Reader) -> int:
        packetId = reader.twoByteInteger()
        if not packetId:
            # [MQTT-2.3.1-1] [MQTT5-2.2.1-3]
            raise ProtocolError("a packet identifier is zero")
        return packetId

    def _ack(self, reader: Reader, kind: type[ACK], place: Place) -> ACK:
        packetId = self._packetId(reader)
        if self.version != MQTT_5 or reader.isAtEnd():
            return kind(packetId)
        reason = self._reason(reader, place)
        if reader.isAtEnd():
            return kind(packetId, reason)
        return kind(packetId, reason, decodeProperties(reader, place))

    def _reason(self, reader: Reader, place: Place) -> int:
        reason = reader.byte()
        if reason not in _REASONS[place]:
            # [MQTT5-3.4.2-1] [MQTT5-3.5.2-1] [MQTT5-3.6.2-1] [MQTT5-3.7.2-1] [MQTT5-3.14.2-1]
            raise MalformedPacket("a reason code is not one of this packet")
        return reason

    def _puback(self, reader: Reader) -> Puback:
        return self._ack(reader, Puback, Place.PUBACK)

    def _pubrec(self, reader: Reader) -> Pubrec:
        return self._ack(reader, Pubrec, Place.PUBREC)

    def _pubrel(self, reader: Reader) -> Pubrel:
        return self._ack(reader, Pubrel, Place.PUBREL)

    def _pubcomp(self, reader: Reader) -> Pubcomp:
        return self._ack(reader, Pubcomp, Place.PUBCOMP)

    def _subscribe(self, reader: Reader) -> Subscribe:
        packetId = self._packetId(reader)
        properties = self._properties(reader, Place.SUBSCRIBE)
        subscriptions = []
        while not reader.isAtEnd():
            topicFilter, options = reader.text(), reader.byte()
            # 3.1.1 has the QoS alone [MQTT-3.8.3-4] [MQTT5-3.8.3-5].
            reserved = 0xC0 if self.version == MQTT_5 else 0xFC
            if options & reserved or options & 3 == 3:
                raise MalformedPacket("reserved bits of a subscription's options are set")
            if options >> 4 == 3:
                raise ProtocolError("a subscription has Retain Handling 3")
            subscriptions.append(
                TopicSubscription(
                    topicFilter, options & 3, options & 4 != 0, options & 8 != 0, options >> 4
                )
            )
        if not subscriptions:
            # [MQTT-3.8.3-3] [MQTT5-3.8.3-2]
            raise ProtocolError("a SUBSCRIBE has no topic filter")
        return Subscribe(packetId, tuple(subscriptions), properties)

    def _suback(self, reader: Reader) -> Suback:
        packetId = self._packetId(reader)
        properties = self._properties(reader, Place.SUBACK)
        return Suback(packetId, self._rest(reader), properties)

    def _unsubscribe(self, reader: Reader) -> Unsubscribe:
        packetId = self._packetId(reader)
        properties = self._properties(reader, Place.UNSUBSCRIBE)
        filters = []
        while not reader.isAtEnd():
            filters.append(reader.text())
        if not filters:
            # [MQTT-3.10.3-2] [MQTT5-3.10.3-2]
            raise ProtocolError("an UNSUBSCRIBE has no topic filter")
        return Unsubscribe(packetId, tuple(filters), properties)

    def _unsuback(self, reader: Reader) -> Unsuback:
        packetId = self._packetId(reader)
        properties = self._properties(reader, Place.UNSUBACK)
        return Unsuback(packetId, self._rest(reader), properties)

    @staticmethod
    def _rest(reader: Reader) -> tuple[int, ...]:
        reasons = []
        while not reader.isAtEnd():
            reasons.append(reader.byte())
        return tuple(reasons)

    def _pingreq(self, reader: Reader) -> Pingreq:
        return Pingreq()

    def _pingresp(self, reader: Reader) -> Pingresp:
        return Pingresp()

    def _disconnect(self, reader: Reader) -> Disconnect:
        if self.version != MQTT_5 or reader.isAtEnd():
            return Disconnect()
        reason = self._reason(reader, Place.DISCONNECT)
        if reader.isAtEnd():
            return Disconnect(reason)
        return Disconnect(reason, decodeProperties(reader, Place.DISCONNECT))

    def _auth(self, reader: Reader) -> Auth:
        if reader.isAtEnd():
            return Auth()
        reason = self._reason(reader, Place.AUTH)
        if reader.isAtEnd():
            return Auth(reason)
        return Auth(reason, decodeProperties(reader, Place.AUTH))


_READERS: Final[dict[int, Callable[[Decoder, Reader], Packet]]] = {
    1: Decoder._connect,
    2: Decoder._connack,
    4: Decoder._puback,
    5: Decoder._pubrec,
    6: Decoder._pubrel,
    7: Decoder._pubcomp,
    8: Decoder._subscribe,
    9: Decoder._suback,
    10: Decoder._unsubscribe,
    11: Decoder._unsuback,
    12: Decoder._pingreq,
    13: Decoder._pingresp,
    14: Decoder._disconnect,
    15: Decoder._auth,
}

_PUBLISHED: Final = frozenset({0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99})
_RELEASED: Final = frozenset({0x00, 0x92})
_REASONS: Final = {
    Place.PUBACK: _PUBLISHED,
    Place.PUBREC: _PUBLISHED,
    Place.PUBREL: _RELEASED,
    Place.PUBCOMP: _RELEASED,
    Place.AUTH: frozenset({0x00, 0x18, 0x19}),
    Place.DISCONNECT: frozenset({0x00, 0x04, *range(0x80, 0x84), 0x87, 0x89, *range(0x8B, 0xA3)})
    - {0x8A, 0x8C, 0x91, 0x92},
}
