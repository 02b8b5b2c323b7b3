"""
The fields of the packets that do not come with every message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias, TypeVar

from .packets import (
    MQTT_5,
    Auth,
    Connack,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    TopicSubscription,
    Unsuback,
    Unsubscribe,
)
from .properties import NO_PROPERTIES, Place, Properties, decodeProperties
from .reasons import MalformedPacket, ProtocolError
from .wire import Reader

ACK = TypeVar("ACK", Puback, Pubrec, Pubrel, Pubcomp)

BodyReader: TypeAlias = Callable[[Reader, int], Packet]
"""Reads the fields of a packet, given the protocol level."""


def _properties(reader: Reader, version: int, place: Place) -> Properties:
    return decodeProperties(reader, place) if version == MQTT_5 else NO_PROPERTIES


def _connack(reader: Reader, version: int) -> Connack:
    flags = reader.byte()
    if flags > 1:
        # [MQTT5-3.2.2-1]
        raise MalformedPacket("reserved flags of CONNACK are set")
    reason = reader.byte()
    return Connack(flags == 1, reason, _properties(reader, version, Place.CONNACK))


def _packetId(reader: Reader) -> int:
    packetId = reader.twoByteInteger()
    if not packetId:
        # [MQTT-2.3.1-1] [MQTT5-2.2.1-3]
        raise ProtocolError("a packet identifier is zero")
    return packetId


def _ack(reader: Reader, version: int, kind: type[ACK], place: Place) -> ACK:
    packetId = _packetId(reader)
    if version != MQTT_5 or reader.isAtEnd():
        return kind(packetId)
    reason = _reason(reader, place)
    if reader.isAtEnd():
        return kind(packetId, reason)
    return kind(packetId, reason, decodeProperties(reader, place))


def _reason(reader: Reader, place: Place) -> int:
    reason = reader.byte()
    if reason not in _REASONS[place]:
        # [MQTT5-3.4.2-1] [MQTT5-3.5.2-1] [MQTT5-3.6.2-1] [MQTT5-3.7.2-1] [MQTT5-3.14.2-1]
        raise MalformedPacket("a reason code is not one of this packet")
    return reason


def _puback(reader: Reader, version: int) -> Puback:
    return _ack(reader, version, Puback, Place.PUBACK)


def _pubrec(reader: Reader, version: int) -> Pubrec:
    return _ack(reader, version, Pubrec, Place.PUBREC)


def _pubrel(reader: Reader, version: int) -> Pubrel:
    return _ack(reader, version, Pubrel, Place.PUBREL)


def _pubcomp(reader: Reader, version: int) -> Pubcomp:
    return _ack(reader, version, Pubcomp, Place.PUBCOMP)


def _subscribe(reader: Reader, version: int) -> Subscribe:
    packetId = _packetId(reader)
    properties = _properties(reader, version, Place.SUBSCRIBE)
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
    if not subscriptions:
        # [MQTT-3.8.3-3] [MQTT5-3.8.3-2]
        raise ProtocolError("a SUBSCRIBE has no topic filter")
    return Subscribe(packetId, tuple(subscriptions), properties)


def _suback(reader: Reader, version: int) -> Suback:
    packetId = _packetId(reader)
    properties = _properties(reader, version, Place.SUBACK)
    return Suback(packetId, _rest(reader), properties)


def _unsubscribe(reader: Reader, version: int) -> Unsubscribe:
    packetId = _packetId(reader)
    properties = _properties(reader, version, Place.UNSUBSCRIBE)
    filters = []
    while not reader.isAtEnd():
        filters.append(reader.text())
    if not filters:
        # [MQTT-3.10.3-2] [MQTT5-3.10.3-2]
        raise ProtocolError("an UNSUBSCRIBE has no topic filter")
    return Unsubscribe(packetId, tuple(filters), properties)


def _unsuback(reader: Reader, version: int) -> Unsuback:
    packetId = _packetId(reader)
    properties = _properties(reader, version, Place.UNSUBACK)
    return Unsuback(packetId, _rest(reader), properties)


def _rest(reader: Reader) -> tuple[int, ...]:
    reasons = []
    while not reader.isAtEnd():
        reasons.append(reader.byte())
    return tuple(reasons)


def _pingreq(reader: Reader, version: int) -> Pingreq:
    return Pingreq()


def _pingresp(reader: Reader, version: int) -> Pingresp:
    return Pingresp()


def _disconnect(reader: Reader, version: int) -> Disconnect:
    if version != MQTT_5 or reader.isAtEnd():
        return Disconnect()
    reason = _reason(reader, Place.DISCONNECT)
    if reader.isAtEnd():
        return Disconnect(reason)
    return Disconnect(reason, decodeProperties(reader, Place.DISCONNECT))


def _auth(reader: Reader, version: int) -> Auth:
    if reader.isAtEnd():
        return Auth()
    reason = _reason(reader, Place.AUTH)
    if reader.isAtEnd():
        return Auth(reason)
    return Auth(reason, decodeProperties(reader, Place.AUTH))


READERS: Final[dict[int, BodyReader]] = {
    2: _connack,
    4: _puback,
    5: _pubrec,
    6: _pubrel,
    7: _pubcomp,
    8: _subscribe,
    9: _suback,
    10: _unsubscribe,
    11: _unsuback,
    12: _pingreq,
    13: _pingresp,
    14: _disconnect,
    15: _auth,
}
"""What reads the packets of each type, apart from CONNECT and PUBLISH."""

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
