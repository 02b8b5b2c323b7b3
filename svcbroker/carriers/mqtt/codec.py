"""
The control packets as bytes: how the fields of each are read and written; and framing: L{Decoder}
finds the packets in the bytes of a connection.

The packets of the hot path, PUBLISH, CONNECT and acknowledgements without a reason, have functions
of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from struct import Struct, iter_unpack, pack, unpack_from
from sys import maxsize
from typing import Any, Final, TypeAlias, TypeVar

from ...net.budgets import NAME_BYTES, ByteCount
from .fields import (
    NO_PROPERTIES,
    U16,
    FieldReader,
    MalformedPacket,
    MqttError,
    Place,
    Properties,
    ProtocolError,
    ReasonCode,
    decodeProperties,
    decodeText,
    encodeBinary,
    encodeProperties,
    encodeText,
    encodeVariableByteInteger,
)
from .packets import (
    MQTT_5,
    MQTT_311,
    PACKET_TYPES,
    Arrival,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubacks,
    Pubcomp,
    Publish,
    Publishes,
    PublishRun,
    Pubrec,
    Pubrel,
    Pubrels,
    Suback,
    Subscribe,
    TopicSubscription,
    Unsuback,
    Unsubscribe,
    Will,
)

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
    # As frame does, for which there is no call. Hot path.
    size = len(topic) + len(packetIdentifier) + len(properties) + len(payload)
    length = encodeVariableByteInteger(size)
    return b"".join((_BYTES[0x30 | flags], length, topic, packetIdentifier, properties, payload))


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


_CONNECT: Final = 1
_PUBLISH: Final = 3
_OTHERS: Final = frozenset({6, 8, 10, 12})
"""The packets that neither publish nor acknowledge what was delivered: PUBREL, SUBSCRIBE,
UNSUBSCRIBE, PINGREQ."""
_RUNS: Final[dict[int, tuple[bytes, type[Pubacks | Pubrels]]]] = {
    PUBACK: (bytes((PUBACK, 2)), Pubacks),
    PUBREL: (bytes((PUBREL, 2)), Pubrels),
}
"""
Acknowledgements that are read in runs, by their first byte: how one without a reason begins (the
first byte, and the length of the packet identifier), and the run.
"""
_MAX_RUN: Final = 64
"""The most packets that are compared in one piece: those behind a different one are read again."""
_MIN_RUN: Final = 6
"""The number of PUBLISH packets of one size that must follow another to be read at once."""
_MAX_HEADER = 5
_REMEMBERED_TOPICS: Final = 1024

# What bits 3 to 0 of the first byte must be. Table 2.2.
_FLAGS: Final = {6: 0b0010, 8: 0b0010, 10: 0b0010}


def checkTopicName(topic: str) -> None:
    """
    Check the topic name of a PUBLISH.

    @raise MqttError: it has wildcards.
    """
    if "+" in topic or "#" in topic:
        # [MQTT-3.3.2-2] [MQTT5-3.3.2-2]
        raise MqttError(ReasonCode.TOPIC_NAME_INVALID, "a topic name has wildcards")


def _acknowledged(data: bytes, position: int, head: bytes) -> tuple[int, ...]:
    """
    The packet identifiers of a run of acknowledgements without a reason, of one type: those that
    are whole and well-formed, at most L{_MAX_RUN}.

    @param head: the bytes before each packet identifier.
    """
    if not data.startswith(head, position + 4):
        packetId = data[position + 2] << 8 | data[position + 3]
        return (packetId,) if packetId else ()
    count = min((len(data) - position) >> 2, _MAX_RUN)
    words: tuple[int, ...] = unpack_from(f">{2 * count}H", data, position)
    heads, packetIds = words[0::2], words[1::2]
    first = heads[0]
    if heads.count(first) < count or 0 in packetIds:
        pairs = enumerate(zip(heads, packetIds, strict=True))
        return packetIds[: next(n for n, (each, id) in pairs if each != first or not id)]
    return packetIds


def _split(data: memoryview, head: bytes, size: int, empty: bytes, run: PublishRun) -> int:
    """
    Add the PUBLISH packets of one size that some bytes begin with to a run: those that are whole
    and well-formed, at most L{_MAX_RUN}.

    @param head: what each begins with, up to the packet identifier.
    @param empty: what is between packet identifier and payload.
    @return: how many there are.
    """
    count = min(len(data) // size, _MAX_RUN)
    packetId, zero = ("H", 0) if run.first.qos else ("0s", None)
    toPayload = len(head) + len(empty) + (2 if run.first.qos else 0)
    layout = f">{len(head)}s{packetId}{len(empty)}s{size - toPayload}s"
    heads, packetIds, properties, payloads = zip(
        *iter_unpack(layout, data[: count * size]), strict=True
    )
    if heads.count(head) < count or properties.count(empty) < count or zero in packetIds:
        found = enumerate(zip(heads, packetIds, properties, strict=True))
        count = next(n for n, (h, i, p) in found if h != head or i == zero or p != empty)
    run.packetIds.extend(packetIds[:count] if run.first.qos else [0] * count)
    run.payloads.extend(payloads[:count])
    return count


class Decoder:
    """
    Reads the packets of one connection, however its bytes are cut.

    @ivar version: the protocol level of the connection, 0 until a CONNECT has set it.
    @ivar hasMore: whether there may be packets that L{arrivals} has not returned yet.
    @ivar taken: how many bytes the packets had that it has returned last.
    @ivar error: the error of the packet after the last one that was returned. Nothing is read
        after it.
    """

    def __init__(
        self, maximumPacketSize: int, version: int = 0, names: ByteCount | None = None
    ) -> None:
        """
        @param maximumPacketSize: the most bytes of a packet, all of it.
        @param names: counts the names of topics that are remembered; C{None} for one that reads a
            single packet.
        """
        self.version = version
        self.error: MqttError | None = None
        self._maximumPacketSize = maximumPacketSize
        self.hasMore = False
        self.taken = 0
        # What was not looked at yet, and where it begins.
        self._data = b""
        self._position = 0
        # The beginning of an incomplete packet, and the fewest bytes that it lacks.
        self._parts: list[bytes] = []
        self._missing = 0
        self._topics: dict[bytes, str] = {}
        self._names = names

    @property
    def kept(self) -> int:
        """The number of bytes that wait to be read, or for the rest of their packet."""
        return len(self._data) + (sum(map(len, self._parts)) if self._parts else 0)

    def receive(self, data: bytes) -> list[Packet]:
        """
        Read bytes, and return the packets of L{arrivals} one by one.
        """
        packets: list[Packet] = []
        self.feed(data)
        for arrival in self.arrivals():
            if isinstance(arrival, Publishes):
                for run in arrival.runs:
                    packets += run.packets()
            elif isinstance(arrival, Pubacks):
                packets += map(Puback, arrival.packetIds)
            elif isinstance(arrival, Pubrels):
                packets += map(Pubrel, arrival.packetIds)
            else:
                packets.append(arrival)
        return packets

    def feed(self, data: bytes) -> None:
        """Take bytes, which L{arrivals} reads."""
        if self._position < len(self._data):
            data = self._data[self._position :] + data
        elif self._parts:
            self._parts.append(data)
            self._missing -= len(data)
            if self._missing > 0:
                return
            data = b"".join(self._parts)
            self._parts.clear()
        self._data, self._position, self.hasMore = data, 0, bool(data)

    def mayPublish(self, data: bytes = b"") -> bool:
        """
        Whether the next packet may be one that publishes or acknowledges, which come before others.

        @param data: the bytes that come after those that are here.
        """
        if self._position < len(self._data):
            first = self._data[self._position : self._position + 1]
        else:
            first = (self._parts[0] if self._parts else data)[:1]
        return not first or first[0] >> 4 not in _OTHERS

    def arrivals(self, limit: int = maxsize) -> list[Arrival]:
        """
        Read what has arrived.

        @param limit: the reading stops where so many packets were read, or some more:
            L{_MAX_RUN} at the most. What is left is for the next call.
        @return: complete packets, consecutive PUBLISH, PUBACK and PUBREL packets as L{Publishes},
            L{Pubacks} and L{Pubrels}; a PUBLISH that follows no other, and is the last, as it is.
            Where L{error} is set, those before the error.
        """
        data, start = self._data, self._position
        packets: list[Arrival] = []
        if self.error is None and data:
            try:
                self._position, isWhole = self._readAll(data, self._position, packets, limit)
            except MqttError as error:
                # Its frames have this as a local.
                self.error = error.with_traceback(None)
                self._data, self._position, self.hasMore = b"", 0, False
            else:
                self.taken = self._position - start
                if not isWhole:
                    self._parts.append(data[self._position :] if self._position else data)
                if not isWhole or self._position == len(data):
                    self._data, self._position, self.hasMore = b"", 0, False
        return packets

    def _readAll(
        self, data: bytes, position: int, packets: list[Arrival], limit: int
    ) -> tuple[int, bool]:
        """
        Read the complete packets of C{data} from C{position} on, as many as C{limit} says.

        @return: where the next packet begins, and whether that is not known to be incomplete.
        """
        end = len(data)
        append = packets.append
        runs: list[PublishRun] = []
        while position < end and limit > 0:
            start = position + 2
            if start > end:
                self._missing = 1
                return position, False
            first, length = data[position], data[position + 1]
            if length > 0x7F:
                if start < end and 0 < data[start] < 0x80:
                    # Hot path: a length of two bytes.
                    length += (data[start] << 7) - 0x80
                    start += 1
                else:
                    header = FieldReader(data, position + 1, min(end, position + _MAX_HEADER))
                    try:
                        length = header.variableByteInteger()
                    except MalformedPacket:
                        if end - position >= _MAX_HEADER or data[end - 1] < 0x80:
                            raise
                        self._missing = 1
                        return position, False
                    start = header.position
            stop = start + length
            if stop - position > self._maximumPacketSize:
                # Refused before it has arrived, so that it is never buffered.
                raise MqttError(ReasonCode.PACKET_TOO_LARGE, "a packet is too large")
            if stop > end:
                self._missing = stop - end
                if position == 0 and self.version == 0 and first >> 4 != _CONNECT:
                    raise ProtocolError("the first packet is no CONNECT")
                return position, False
            if first >> 4 == _PUBLISH and self.version:
                publish = self._publish(data, first, start, stop)
                if not runs:
                    if stop == end:
                        append(publish)
                        return stop, True
                    append(Publishes(runs))
                run = PublishRun(publish, [publish.packetId], [publish.payload])
                runs.append(run)
                if stop < end and publish.properties is NO_PROPERTIES:
                    stop = self._readSimilar(data, position, start, stop, run, limit)
                limit -= len(run.packetIds)
            elif length == 2 and first in _RUNS and self.version:
                # Hot path with many subscribers, and with QoS 2: no Reader.
                head, kind = _RUNS[first]
                packetIds = _acknowledged(data, position, head)
                if not packetIds:
                    # [MQTT-2.3.1-1] [MQTT5-2.2.1-3]
                    raise ProtocolError("a packet identifier is zero")
                append(kind(packetIds))
                stop = position + 4 * len(packetIds)
                runs, limit = [], limit - len(packetIds)
            else:
                append(self._packet(data, first, start, stop))
                runs, limit = [], limit - 1
            position = stop
        return position, True

    def _packet(self, data: bytes, first: int, start: int, stop: int) -> Packet:
        kind = first >> 4
        if not self.version and kind != _CONNECT:
            # [MQTT-3.1.0-1] [MQTT5-3.1.0-1]
            raise ProtocolError("the first packet is no CONNECT")
        read = READERS.get(kind) if kind != _CONNECT else self._connect
        if read is None or (kind == 15 and self.version != MQTT_5):
            raise MalformedPacket("a packet has a type that does not exist")
        if first & 0x0F != _FLAGS.get(kind, 0):
            # [MQTT-2.2.2-2] [MQTT5-2.1.3-1]
            raise MalformedPacket("reserved flags of a packet are set")
        reader = FieldReader(data, start, stop)
        packet = read(reader, self.version)
        if not reader.isAtEnd():
            raise MalformedPacket("a packet is longer than its fields")
        return packet

    def _publish(self, data: bytes, first: int, start: int, stop: int) -> Publish:
        # Hot path: no Reader, and each topic name is decoded once.
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
                reader = FieldReader(data, position, stop)
                properties = decodeProperties(reader, Place.PUBLISH)
                position = reader.position
        return Publish(
            topic, data[position:stop], qos, first & 1 == 1, first & 8 == 8, packetId, properties
        )

    def _readSimilar(
        self, data: bytes, position: int, start: int, stop: int, run: PublishRun, limit: int
    ) -> int:
        """
        Read the PUBLISH packets behind one that have the same flags and topic. Clients that publish
        in bulk send long runs of them.

        @param position: where the first begins; its fields begin at C{start}, it ends at C{stop}.
        @param run: the packets are added to it.
        @param limit: how many it may have, or some more: L{_MAX_RUN} at the most.
        @return: where the first different packet begins.
        """
        end, first = len(data), data[position]
        name = data[start : start + 2 + (data[start] << 8 | data[start + 1])]
        model, startsWith = run.first, data.startswith
        # An empty list of properties, in MQTT 5.
        empty = b"\0" if self.version == MQTT_5 else b""
        toPayload = len(name) + (2 if model.qos else 0) + len(empty)
        while stop + 2 < end and data[stop] == first and len(run.packetIds) < limit:
            head, size = data[position : start + len(name)], stop - position
            if startsWith(head, stop) and startsWith(head, stop + _MIN_RUN * size):
                count = _split(memoryview(data)[stop:], head, size, empty, run)
                if not count:
                    break
                stop += count * size
                position, start = stop - size, start + count * size
                continue
            length, begin = data[stop + 1], stop + 2
            if length > 0x7F:
                if not 0 < data[begin] < 0x80:
                    break
                length += (data[begin] << 7) - 0x80
                begin += 1
            after, payload = begin + length, begin + toPayload
            packetId = 0
            if (
                not payload <= after <= end
                or after - stop > self._maximumPacketSize
                or not startsWith(name, begin)
                or not startsWith(empty, payload - len(empty))
                or (model.retain and (payload < after) != bool(model.payload))
            ):
                break
            if model.qos:
                place = begin + len(name)
                packetId = data[place] << 8 | data[place + 1]
                if not packetId:
                    break
            run.packetIds.append(packetId)
            run.payloads.append(data[payload:after])
            position, start, stop = stop, begin, after
        return stop

    def _newTopic(self, name: bytes) -> str:
        topic = decodeText(name)
        checkTopicName(topic)
        if not topic and self.version != MQTT_5:
            # [MQTT-4.7.3-1]; in MQTT 5 a topic alias may stand for it.
            raise MalformedPacket("a topic name is empty")
        if len(self._topics) >= _REMEMBERED_TOPICS:
            self._topics.clear()
            if self._names is not None:
                self._names.set(0)
        size = NAME_BYTES + 2 * len(name)
        # Where there is no room, a name is read each time.
        if self._names is not None and self._names.hasRoom(size):
            self._names.add(size)
            self._topics[name] = topic
        return topic

    def _properties(self, reader: FieldReader, place: Place) -> Properties:
        return decodeProperties(reader, place) if self.version == MQTT_5 else NO_PROPERTIES

    def _connect(self, reader: FieldReader, _: int) -> Connect:
        name, version = reader.binary(), reader.byte()
        if name != PROTOCOL_NAME or version not in (MQTT_311, MQTT_5):
            # [MQTT-3.1.2-1] [MQTT-3.1.2-2] [MQTT5-3.1.2-1] [MQTT5-3.1.2-2]. The refusal
            # is encoded in the nearest version.
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
