"""
From packets to bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct, pack
from typing import Any, Final

from .decoder import PROTOCOL_NAME
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
    Unsuback,
    Unsubscribe,
)
from .properties import NO_PROPERTIES, Properties, encodeProperties
from .reasons import ReasonCode
from .wire import U16, encodeBinary, encodeText, encodeVariableByteInteger

_TYPES: Final = {packet: number << 4 for number, packet in enumerate(PACKET_TYPES, 1)}
_BYTES: Final = [bytes((byte,)) for byte in range(256)]
_SHORT_ACK: Final = Struct(">BBH")

DUP: Final = 0x08
"""The flag of a PUBLISH that was sent before, in the first byte of its frame."""

PUBACK: Final = 0x40
PUBREC: Final = 0x50
PUBREL: Final = 0x62
PUBCOMP: Final = 0x70


def frame(first: int, *parts: bytes) -> bytes:
    """
    A packet, with the length of what follows its first byte.
    """
    return b"".join((_BYTES[first], encodeVariableByteInteger(sum(map(len, parts))), *parts))


def encodeSuccess(first: int, packetId: int) -> bytes:
    """
    An acknowledgement without more words, in both versions. Made for every message.

    @param first: L{PUBACK}, L{PUBREC}, L{PUBREL} or L{PUBCOMP}.
    """
    return _SHORT_ACK.pack(first, 2, packetId)


def encodeSuccesses(first: int, packetIds: Sequence[int]) -> bytes:
    """
    L{encodeSuccess} of several, one after the other.
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
    A PUBLISH of which the parts are encoded already.

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
    Any packet.

    @param version: the protocol level; what it does not know is left out.
    """
    kind = type(packet)
    return _WRITERS[kind](packet, version, _TYPES[kind])


def _properties(properties: Properties, version: int) -> bytes:
    return encodeProperties(properties) if version == MQTT_5 else b""


def _connect(packet: Connect, version: int, first: int) -> bytes:
    will = packet.will
    flags = 0x02 if packet.cleanStart else 0
    fields = [encodeText(packet.clientId)]
    if will is not None:
        flags |= 0x04 | will.qos << 3 | (0x20 if will.retain else 0)
        fields += (
            _properties(will.properties, version),
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
        _properties(packet.properties, version),
        *fields,
    )


def _connack(packet: Connack, version: int, first: int) -> bytes:
    return frame(
        first,
        bytes((packet.sessionPresent, packet.reason)),
        _properties(packet.properties, version),
    )


def _publish(packet: Publish, version: int, first: int) -> bytes:
    return encodePublish(
        encodeText(packet.topic),
        packet.payload,
        (DUP if packet.dup else 0) | packet.qos << 1 | packet.retain,
        packet.packetId,
        _properties(packet.properties, version),
    )


def _ack(packet: Puback | Pubrec | Pubrel | Pubcomp, version: int, first: int) -> bytes:
    if type(packet) is Pubrel:
        first |= 0x02  # [MQTT-3.6.1-1] [MQTT5-3.6.1-1]
    packetId = U16.pack(packet.packetId)
    return frame(first, packetId, *_reason(packet.reason, packet.properties, version))


def _reason(reason: int, properties: Properties, version: int) -> tuple[bytes, ...]:
    """A reason and properties, as short as they can be."""
    if version != MQTT_5 or (reason == ReasonCode.SUCCESS and properties is NO_PROPERTIES):
        return ()
    if properties is NO_PROPERTIES:
        return (bytes((reason,)),)
    return (bytes((reason,)), encodeProperties(properties))


def _subscribe(packet: Subscribe, version: int, first: int) -> bytes:
    fields: list[bytes] = []
    for each in packet.subscriptions:
        options = (
            each.qos | each.noLocal << 2 | each.retainAsPublished << 3 | each.retainHandling << 4
        )
        fields += (encodeText(each.topicFilter), bytes((options,)))
    return frame(
        first | 0x02,  # [MQTT-3.8.1-1] [MQTT5-3.8.1-1]
        U16.pack(packet.packetId),
        _properties(packet.properties, version),
        *fields,
    )


def _suback(packet: Suback, version: int, first: int) -> bytes:
    properties = _properties(packet.properties, version)
    return frame(first, U16.pack(packet.packetId), properties, bytes(packet.reasons))


def _unsubscribe(packet: Unsubscribe, version: int, first: int) -> bytes:
    return frame(
        first | 0x02,  # [MQTT-3.10.1-1] [MQTT5-3.10.1-1]
        U16.pack(packet.packetId),
        _properties(packet.properties, version),
        *map(encodeText, packet.topicFilters),
    )


def _unsuback(packet: Unsuback, version: int, first: int) -> bytes:
    properties = _properties(packet.properties, version)
    reasons = bytes(packet.reasons) if version == MQTT_5 else b""
    return frame(first, U16.pack(packet.packetId), properties, reasons)


def _empty(packet: Pingreq | Pingresp, version: int, first: int) -> bytes:
    return frame(first)


def _disconnect(packet: Disconnect | Auth, version: int, first: int) -> bytes:
    return frame(first, *_reason(packet.reason, packet.properties, version))


_WRITERS: Final[dict[type, Callable[[Any, int, int], bytes]]] = {
    Connect: _connect,
    Connack: _connack,
    Publish: _publish,
    Puback: _ack,
    Pubrec: _ack,
    Pubrel: _ack,
    Pubcomp: _ack,
    Subscribe: _subscribe,
    Suback: _suback,
    Unsubscribe: _unsubscribe,
    Unsuback: _unsuback,
    Pingreq: _empty,
    Pingresp: _empty,
    Disconnect: _disconnect,
    Auth: _disconnect,
}
