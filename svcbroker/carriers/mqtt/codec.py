"""
The control packets as bytes: how the fields of each are read and written.

The packets of the hot path, PUBLISH and acknowledgements without a reason, have functions of
their own, here and in L{decoder}.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from struct import Struct, pack
from typing import Any, Final, TypeAlias, TypeVar

from .fields import (
    NO_PROPERTIES,
    U16,
    FieldReader,
    Place,
    Properties,
    decodeProperties,
    encodeBinary,
    encodeProperties,
    encodeText,
    encodeVariableByteInteger,
)
from .packets import (
    MQTT_5,
    PACKET_TYPES,
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
)
from .reasons import MalformedPacket, MqttError, ProtocolError, ReasonCode

PROTOCOL_NAME: Final = b"MQTT"
MAX_FILTERS: Final = 4096
"""The most topic filters of a packet: more would take the reactor too long."""

# Reading.

ACK = TypeVar("ACK", Puback, Pubrec, Pubrel, Pubcomp)

BodyReader: TypeAlias = Callable[[FieldReader, int], Packet]
"""Reads the fields of a packet, given the protocol level."""


def _readProperties(reader: FieldReader, version: int, place: Place) -> Properties:
    return decodeProperties(reader, place) if version == MQTT_5 else NO_PROPERTIES


def _readConnack(reader: FieldReader, version: int) -> Connack:
    flags = reader.byte()
    if flags > 1:
        # [MQTT5-3.2.2-1]
        raise MalformedPacket("reserved flags of CONNACK are set")
    reason = reader.byte()
    return Connack(flags == 1, reason, _readProperties(reader, version, Place.CONNACK))


def _readPacketId(reader: FieldReader) -> int:
    packetId = reader.twoByteInteger()
    if not packetId:
        # [MQTT-2.3.1-1] [MQTT5-2.2.1-3]
        raise ProtocolError("a packet identifier is zero")
    return packetId


def _readAck(reader: FieldReader, version: int, kind: type[ACK], place: Place) -> ACK:
    packetId = _readPacketId(reader)
    if version != MQTT_5 or reader.isAtEnd():
        return kind(packetId)
    reason = _readReason(reader, place)
    if reader.isAtEnd():
        return kind(packetId, reason)
    return kind(packetId, reason, decodeProperties(reader, place))


def _readReason(reader: FieldReader, place: Place) -> int:
    reason = reader.byte()
    if reason not in _REASONS[place]:
        # [MQTT5-3.4.2-1] [MQTT5-3.5.2-1] [MQTT5-3.6.2-1] [MQTT5-3.7.2-1] [MQTT5-3.14.2-1]
        raise MalformedPacket("a reason code is not one of this packet")
    return reason


def _readPuback(reader: FieldReader, version: int) -> Puback:
    return _readAck(reader, version, Puback, Place.PUBACK)


def _readPubrec(reader: FieldReader, version: int) -> Pubrec:
    return _readAck(reader, version, Pubrec, Place.PUBREC)


def _readPubrel(reader: FieldReader, version: int) -> Pubrel:
    return _readAck(reader, version, Pubrel, Place.PUBREL)


def _readPubcomp(reader: FieldReader, version: int) -> Pubcomp:
    return _readAck(reader, version, Pubcomp, Place.PUBCOMP)


def _readSubscribe(reader: FieldReader, version: int) -> Subscribe:
    packetId = _readPacketId(reader)
    properties = _readProperties(reader, version, Place.SUBSCRIBE)
    subscriptions = []
    while not reader.isAtEnd():
        topicFilter, options = reader.text(), reader.byte()
        # 3.1.1 has the QoS alone [MQTT-3.8.3-4] [MQTT5-3.8.3-5].
        reserved = 0xC0 if version == MQTT_5 else 0xFC
        if options & reserved or options & 3 == 3:
            raise MalformedPacket("reserved bits of a subscription's options are set")
        if options >> 4 == 3:
            raise ProtocolError("a subscription has Retain Handling 3")
        subscriptions.append(
            TopicSubscription(
                topicFilter, options & 3, options & 4 != 0, options & 8 != 0, options >> 4
            )
        )
        if len(subscriptions) > MAX_FILTERS:
            raise MqttError(ReasonCode.PACKET_TOO_LARGE, "there are too many topic filters")
    if not subscriptions:
        # [MQTT-3.8.3-3] [MQTT5-3.8.3-2]
        raise ProtocolError("a SUBSCRIBE has no topic filter")
    return Subscribe(packetId, tuple(subscriptions), properties)


def _readSuback(reader: FieldReader, version: int) -> Suback:
    packetId = _readPacketId(reader)
    properties = _readProperties(reader, version, Place.SUBACK)
    return Suback(packetId, _readRest(reader), properties)


def _readUnsubscribe(reader: FieldReader, version: int) -> Unsubscribe:
    packetId = _readPacketId(reader)
    properties = _readProperties(reader, version, Place.UNSUBSCRIBE)
    filters = []
    while not reader.isAtEnd():
        filters.append(reader.text())
        if len(filters) > MAX_FILTERS:
            raise MqttError(ReasonCode.PACKET_TOO_LARGE, "there are too many topic filters")
    if not filters:
        # [MQTT-3.10.3-2] [MQTT5-3.10.3-2]
        raise ProtocolError("an UNSUBSCRIBE has no topic filter")
    return Unsubscribe(packetId, tuple(filters), properties)


def _readUnsuback(reader: FieldReader, version: int) -> Unsuback:
    packetId = _readPacketId(reader)
    properties = _readProperties(reader, version, Place.UNSUBACK)
    return Unsuback(packetId, _readRest(reader), properties)


def _readRest(reader: FieldReader) -> tuple[int, ...]:
    reasons = []
    while not reader.isAtEnd():
        reasons.append(reader.byte())
    return tuple(reasons)


def _readPingreq(reader: FieldReader, version: int) -> Pingreq:
    return Pingreq()


def _readPingresp(reader: FieldReader, version: int) -> Pingresp:
    return Pingresp()


def _readDisconnect(reader: FieldReader, version: int) -> Disconnect:
    if version != MQTT_5 or reader.isAtEnd():
        return Disconnect()
    reason = _readReason(reader, Place.DISCONNECT)
    if reader.isAtEnd():
        return Disconnect(reason)
    return Disconnect(reason, decodeProperties(reader, Place.DISCONNECT))


def _readAuth(reader: FieldReader, version: int) -> Auth:
    if reader.isAtEnd():
        return Auth()
    reason = _readReason(reader, Place.AUTH)
    if reader.isAtEnd():
        return Auth(reason)
    return Auth(reason, decodeProperties(reader, Place.AUTH))


READERS: Final[dict[int, BodyReader]] = {
    2: _readConnack,
    4: _readPuback,
    5: _readPubrec,
    6: _readPubrel,
    7: _readPubcomp,
    8: _readSubscribe,
    9: _readSuback,
    10: _readUnsubscribe,
    11: _readUnsuback,
    12: _readPingreq,
    13: _readPingresp,
    14: _readDisconnect,
    15: _readAuth,
}
"""The readers of each packet type, apart from CONNECT and PUBLISH."""

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


# Writing.

_TYPES: Final = {packet: number << 4 for number, packet in enumerate(PACKET_TYPES, 1)}
_BYTES: Final = [bytes((byte,)) for byte in range(256)]
_SHORT_ACK: Final = Struct(">BBH")

DUP: Final = 0x08
"""The DUP flag in the first byte of a PUBLISH."""

PUBACK: Final = 0x40
PUBREC: Final = 0x50
PUBREL: Final = 0x62
PUBCOMP: Final = 0x70


def frame(first: int, *parts: bytes) -> bytes:
    """
    Assemble a packet: its first byte, the remaining length, its fields.
    """
    return b"".join((_BYTES[first], encodeVariableByteInteger(sum(map(len, parts))), *parts))


def grouped(data: bytes, size: int) -> Iterator[bytes]:
    """
    Split encoded packets into pieces of whole packets.

    @param size: the most bytes of a piece of several packets.
    """
    reader = FieldReader(data, 0, len(data))
    begin = end = 0
    while len(data) - begin > size and not reader.isAtEnd():
        reader.position += 1
        length = reader.variableByteInteger()
        reader.position += length
        if reader.position - begin > size and end > begin:
            yield data[begin:end]
            begin = end
        end = reader.position
    yield data[begin:]


def encodeSuccess(first: int, packetId: int) -> bytes:
    """
    Encode an acknowledgement without a reason, the same in both versions. Hot path.

    @param first: L{PUBACK}, L{PUBREC}, L{PUBREL} or L{PUBCOMP}.
    """
    return _SHORT_ACK.pack(first, 2, packetId)


def encodeSuccesses(first: int, packetIds: Sequence[int]) -> bytes:
    """
    Encode several acknowledgements without a reason, one after the other.
    """
    count = len(packetIds)
    if count == 1:
        return encodeSuccess(first, packetIds[0])
    numbers = pack(f">{count}H", *packetIds)
    frames = bytearray(_SHORT_ACK.pack(first, 2, 0) * count)
    frames[2::4], frames[3::4] = numbers[0::2], numbers[1::2]
    return bytes(frames)


def encodePublish(
    topic: bytes, payload: bytes, flags: int, packetId: int, properties: bytes
) -> bytes:
    """
    Assemble a PUBLISH from encoded parts.

    @param topic: the topic with its length.
    @param flags: DUP, QoS and RETAIN as they stand in the first byte.
    @param packetId: only used where the flags have a QoS.
    @param properties: the properties with their length; nothing in 3.1.1.
    """
    # [MQTT-2.3.1-5] [MQTT5-2.2.1-2]
    packetIdentifier = U16.pack(packetId) if flags & 0x06 else b""
    return frame(0x30 | flags, topic, packetIdentifier, properties, payload)


def encode(packet: Packet, version: int) -> bytes:
    """
    Encode any packet.

    @param version: the protocol level. Fields that it does not have are left out.
    """
    kind = type(packet)
    return _WRITERS[kind](packet, version, _TYPES[kind])


def _writeProperties(properties: Properties, version: int) -> bytes:
    return encodeProperties(properties) if version == MQTT_5 else b""


def _writeConnect(packet: Connect, version: int, first: int) -> bytes:
    will = packet.will
    flags = 0x02 if packet.cleanStart else 0
    fields = [encodeText(packet.clientId)]
    if will is not None:
        flags |= 0x04 | will.qos << 3 | (0x20 if will.retain else 0)
        fields += (
            _writeProperties(will.properties, version),
            encodeText(will.topic),
            encodeBinary(will.payload),
        )
    if packet.userName is not None:
        flags |= 0x80
        fields.append(encodeText(packet.userName))
    if packet.password is not None:
        flags |= 0x40
        fields.append(encodeBinary(packet.password))
    return frame(
        first,
        encodeBinary(PROTOCOL_NAME),
        bytes((packet.version, flags)),
        U16.pack(packet.keepAlive),
        _writeProperties(packet.properties, version),
        *fields,
    )


def _writeConnack(packet: Connack, version: int, first: int) -> bytes:
    return frame(
        first,
        bytes((packet.sessionPresent, packet.reason)),
        _writeProperties(packet.properties, version),
    )


def _writePublish(packet: Publish, version: int, first: int) -> bytes:
    return encodePublish(
        encodeText(packet.topic),
        packet.payload,
        (DUP if packet.dup else 0) | packet.qos << 1 | packet.retain,
        packet.packetId,
        _writeProperties(packet.properties, version),
    )


def _writeAck(packet: Puback | Pubrec | Pubrel | Pubcomp, version: int, first: int) -> bytes:
    if type(packet) is Pubrel:
        first |= 0x02  # [MQTT-3.6.1-1] [MQTT5-3.6.1-1]
    packetId = U16.pack(packet.packetId)
    return frame(first, packetId, *_writeReason(packet.reason, packet.properties, version))


def _writeReason(reason: int, properties: Properties, version: int) -> tuple[bytes, ...]:
    """The shortest form of a reason and properties."""
    if version != MQTT_5 or (reason == ReasonCode.SUCCESS and properties is NO_PROPERTIES):
        return ()
    if properties is NO_PROPERTIES:
        return (bytes((reason,)),)
    return (bytes((reason,)), encodeProperties(properties))


def _writeSubscribe(packet: Subscribe, version: int, first: int) -> bytes:
    fields: list[bytes] = []
    for each in packet.subscriptions:
        options = (
            each.qos | each.noLocal << 2 | each.retainAsPublished << 3 | each.retainHandling << 4
        )
        fields += (encodeText(each.topicFilter), bytes((options,)))
    return frame(
        first | 0x02,  # [MQTT-3.8.1-1] [MQTT5-3.8.1-1]
        U16.pack(packet.packetId),
        _writeProperties(packet.properties, version),
        *fields,
    )


def _writeSuback(packet: Suback, version: int, first: int) -> bytes:
    properties = _writeProperties(packet.properties, version)
    return frame(first, U16.pack(packet.packetId), properties, bytes(packet.reasons))


def _writeUnsubscribe(packet: Unsubscribe, version: int, first: int) -> bytes:
    return frame(
        first | 0x02,  # [MQTT-3.10.1-1] [MQTT5-3.10.1-1]
        U16.pack(packet.packetId),
        _writeProperties(packet.properties, version),
        *map(encodeText, packet.topicFilters),
    )


def _writeUnsuback(packet: Unsuback, version: int, first: int) -> bytes:
    properties = _writeProperties(packet.properties, version)
    reasons = bytes(packet.reasons) if version == MQTT_5 else b""
    return frame(first, U16.pack(packet.packetId), properties, reasons)


def _writeEmpty(packet: Pingreq | Pingresp, version: int, first: int) -> bytes:
    return frame(first)


def _writeDisconnect(packet: Disconnect | Auth, version: int, first: int) -> bytes:
    return frame(first, *_writeReason(packet.reason, packet.properties, version))


_WRITERS: Final[dict[type, Callable[[Any, int, int], bytes]]] = {
    Connect: _writeConnect,
    Connack: _writeConnack,
    Publish: _writePublish,
    Puback: _writeAck,
    Pubrec: _writeAck,
    Pubrel: _writeAck,
    Pubcomp: _writeAck,
    Subscribe: _writeSubscribe,
    Suback: _writeSuback,
    Unsubscribe: _writeUnsubscribe,
    Unsuback: _writeUnsuback,
    Pingreq: _writeEmpty,
    Pingresp: _writeEmpty,
    Disconnect: _writeDisconnect,
    Auth: _writeDisconnect,
}
