"""
Deliveries as PUBLISH frames, and the window of those that are not acknowledged.

The frames of a batch are encoded once for all subscribers that get the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct as Layout
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from ...interfaces import Batch
from ...model import Event
from ...net.budgets import ByteCount
from .cloudevents import CloudEventForm
from .codec import encodePublish
from .context import MAX_U16
from .fields import (
    NO_PROPERTIES,
    Properties,
    encodeProperties,
    encodeVariableByteInteger,
    lengthSize,
    withoutLength,
)
from .messages import Message, messageOf, withoutEventId
from .packets import MQTT_5

if TYPE_CHECKING:
    from .reader import Source
    from .session import Session
    from .subscription import Key

RETAIN_FLAG: Final = 0x01
_QOS_SHIFT: Final = 1
_PACKET_ID: Final = Layout(">H")
_MESSAGES: Final = "mqtt-messages"
_FRAMES: Final = "mqtt-frames"


class Options(Struct, frozen=True):
    """
    The options of a subscription that its frames depend on.

    @ivar version: the protocol level of the connection.
    @ivar qos: the granted QoS.
    @ivar retainAsPublished: whether the RETAIN flag of the publisher is kept.
    @ivar identifiers: the subscription identifiers.
    @ivar isPlain: whether the broker adds no user property of its own.
    @ivar form: how events are written as CloudEvents; C{None} as they were published.
    """

    version: int
    qos: int
    retainAsPublished: bool = False
    identifiers: tuple[int, ...] = ()
    isPlain: bool = False
    form: CloudEventForm | None = None


def optionsOfAll(options: Iterable[Options]) -> Options | None:
    """
    The options of a message that several subscriptions of a client match: the highest QoS, all
    identifiers, and the RETAIN flag if any of them keeps it; C{None} where there is none.
    """
    found = tuple(options)
    if len(found) < 2:
        return found[0] if found else None
    return Options(
        found[0].version,
        max(each.qos for each in found),
        any(each.retainAsPublished for each in found),
        tuple(identifier for each in found for identifier in each.identifiers),
        found[0].isPlain,
        found[0].form,
    )


class Sent(Struct, frozen=True, gc=False):
    """
    A message as it was sent with QoS 1 or 2.

    @ivar options: how it was encoded.
    @ivar flags: its flags beside the QoS.
    @ivar size: the size of its payload.
    """

    message: Message
    options: Options
    qos: int
    flags: int
    size: int


class FrameTemplate(Struct):
    """
    The PUBLISH frames of a batch, without packet identifiers.

    @ivar data: all frames, one after the other.
    @ivar places: the offsets in C{data} of the packet identifiers, for QoS 1 and 2.
    @ivar sent: the messages with a packet identifier, in the same order.
    @ivar others: the events without one.
    @ivar largest: the size of the largest frame.
    @ivar size: the size of the payloads of C{sent}.
    @ivar packetIds: the packet identifiers that were filled in last.
    """

    data: bytes
    places: Sequence[int]
    sent: Sequence[Sent]
    others: Sequence[Event]
    largest: int
    size: int
    packetIds: range | None = None
    _filled: bytes = b""

    def filled(self, packetIds: Sequence[int]) -> bytes:
        """
        The frames with these packet identifiers. Subscribers with the same free identifiers share
        the bytes.
        """
        if packetIds == self.packetIds:
            return self._filled
        data = bytearray(self.data)
        for place, packetId in zip(self.places, packetIds, strict=True):
            _PACKET_ID.pack_into(data, place, packetId)
        filled = bytes(data)
        if isinstance(packetIds, range):
            self.packetIds, self._filled = packetIds, filled
        return filled


def messagesOf(batch: Batch, version: int, form: CloudEventForm | None) -> Sequence[Message]:
    """The messages of a batch, made once for each version and form."""
    hasProperties = version == MQTT_5

    def make(events: Sequence[Event]) -> Sequence[Message]:
        return [
            messageOf(event, hasProperties=hasProperties, form=form, timestamp=batch.timestamp)
            for event in events
        ]

    return batch.encoded((_MESSAGES, hasProperties, form), make)


def templateOf(batch: Batch, options: Options) -> FrameTemplate | None:
    """
    The frames of a batch for all subscriptions with the same options, made once. C{None} where
    they differ from subscriber to subscriber: a message expires, or knows its publisher.
    """

    def make(events: Sequence[Event]) -> FrameTemplate | bool:
        return _template(messagesOf(batch, options.version, options.form), options) or False

    made = batch.encoded((_FRAMES, options), make)
    return made if isinstance(made, FrameTemplate) else None


def _template(messages: Sequence[Message], options: Options) -> FrameTemplate | None:
    frames = []
    places = []
    identified = []
    others = []
    largest = position = size = 0
    for message in messages:
        if message.expires is not None or message.publisher is not None:
            return None
        encoded = encodeMessage(message, options, 0)
        if min(message.qos, options.qos):
            # The packet identifier follows the topic, which follows the length.
            header = 2 if encoded[1] < 0x80 else 1 + lengthSize(encoded, 1)
            places.append(position + header + len(message.topic))
            identified.append(sentOf(message, options, 0))
            size += identified[-1].size
        else:
            others.append(message.event)
        frames.append(encoded)
        position += len(encoded)
        largest = max(largest, len(encoded))
    return FrameTemplate(b"".join(frames), places, identified, others, largest, size)


def sentOf(message: Message, options: Options, flags: int) -> Sent:
    """
    A message as it is sent with these options.

    @param flags: flags beside the QoS.
    """
    qos = min(message.qos, options.qos)
    return Sent(message, options, qos, flags, len(message.payload))


def encodeWithin(
    limit: int,
    message: Message,
    options: Options,
    packetId: int,
    *,
    flags: int,
    topic: bytes,
    extra: Properties,
) -> bytes | None:
    """
    Encode a PUBLISH of at most C{limit} bytes; C{None} where it is larger. The broker's own
    property is left out before a message is.
    """
    encoded = encodeMessage(message, options, packetId, flags=flags, topic=topic, extra=extra)
    if len(encoded) > limit and options.version == MQTT_5 and not options.isPlain:
        plain = withoutEventId(message)
        encoded = encodeMessage(plain, options, packetId, flags=flags, topic=topic, extra=extra)
    return encoded if len(encoded) <= limit else None


def encodeMessage(
    message: Message,
    options: Options,
    packetId: int,
    *,
    flags: int = 0,
    topic: bytes | None = None,
    extra: Properties = NO_PROPERTIES,
) -> bytes:
    """
    Encode a message as a PUBLISH.

    @param flags: flags beside QoS and the publisher's RETAIN flag.
    @param topic: the encoded topic, if not the message's own.
    @param extra: properties of this delivery alone.
    """
    # [MQTT-3.8.4-6] [MQTT5-3.8.4-8]
    flags |= min(message.qos, options.qos) << _QOS_SHIFT
    if message.retain and options.retainAsPublished:
        # [MQTT5-3.3.1-13], else [MQTT-3.3.1-9] [MQTT5-3.3.1-12]
        flags |= RETAIN_FLAG
    properties = b""
    if options.version == MQTT_5:
        properties = (withoutEventId(message) if options.isPlain else message).properties
        if extra is not NO_PROPERTIES:
            properties = withoutLength(encodeProperties(extra)) + properties
        for identifier in reversed(options.identifiers):
            # [MQTT5-3.3.4-3] [MQTT5-3.3.4-4]
            properties = b"\x0b" + encodeVariableByteInteger(identifier) + properties
        properties = encodeVariableByteInteger(len(properties)) + properties
    return encodePublish(
        message.topic if topic is None else topic,
        message.payload,
        flags,
        packetId,
        properties,
    )


class InFlight(Struct, frozen=True):
    """
    A message that was sent with QoS 1 or 2 and is not acknowledged.

    @ivar source: moves on when it is acknowledged; C{None} for a retained message, or where the
        subscription has ended.
    """

    source: Source | None
    sent: Sent

    @property
    def key(self) -> Key | None:
        """Its key, where the log delivers it to this session again."""
        source = self.source
        if source is None or source.isShared:
            return None
        return source.keyOf(self.sent.message.event)


class _Run(Struct, frozen=True):
    """
    Messages with consecutive packet identifiers: one object for a batch, not one a message.

    @ivar first: the packet identifier of the first.
    """

    source: Source | None
    first: int
    sent: Sequence[Sent]


class Window:
    """
    The unacknowledged messages of a client, by packet identifier.
    """

    def __init__(self, session: Session, count: int, maxBytes: int, counted: ByteCount) -> None:
        """
        @param count: the most unacknowledged messages.
        @param maxBytes: the most bytes of those, unless it is a single one.
        @param counted: counts them with those of all clients.
        """
        self._session = session
        self._count = count
        self._maxBytes = maxBytes
        self._runs: dict[int, _Run] = {}
        self._bytes = counted
        self._lastId = 0

    # Room.

    @property
    def _used(self) -> int:
        return len(self._runs) + len(self._session.released)

    @property
    def hasRoom(self) -> bool:
        """Whether another message may be sent."""
        # [MQTT5-3.3.4-9] [MQTT5-4.9.0-1] [MQTT5-4.9.0-2]
        return (
            self._used < self._count
            and self._bytes.size < self._maxBytes
            and not self._bytes.isFull
        )

    @property
    def isHalfEmpty(self) -> bool:
        """Whether there is room enough for a batch to resume the subscriptions."""
        return 2 * self._used <= self._count and 2 * self._bytes.size <= self._maxBytes

    def fits(self, count: int, size: int) -> bool:
        """Whether this many messages and bytes have room."""
        return not count or (
            self._used + count <= self._count
            and self._bytes.size + size <= self._maxBytes
            and not self._bytes.isFull
        )

    # Packet identifiers.

    def newId(self) -> int:
        """A packet identifier that is not in use [MQTT-2.3.1-4] [MQTT5-2.2.1-4]."""
        packetId = self._lastId
        while True:
            packetId = packetId % MAX_U16 + 1
            if packetId not in self._runs and not self._session.usesId(packetId):
                self._lastId = packetId
                return packetId

    def newIds(self, count: int, wanted: range | None) -> Sequence[int]:
        """
        Packet identifiers that are not in use.

        @param wanted: preferred, if they are free.
        """
        following = range(self._lastId + 1, self._lastId + 1 + count)
        for packetIds in (following,) if wanted is None else (wanted, following):
            if packetIds[-1] <= MAX_U16 and self._areFree(packetIds):
                self._lastId = packetIds[-1]
                return packetIds
        return [self.newId() for _ in range(count)]

    def _areFree(self, packetIds: range) -> bool:
        return self._runs.keys().isdisjoint(packetIds) and not self._session.usesAny(packetIds)

    # Messages.

    def add(self, packetId: int, source: Source | None, sent: Sent) -> None:
        """Add a message that was sent."""
        self._runs[packetId] = _Run(source, packetId, (sent,))
        self._bytes.add(sent.size)

    def addAll(self, packetIds: Sequence[int], source: Source, template: FrameTemplate) -> None:
        """Add the messages of a template that was sent with identifiers of L{newIds}."""
        messages = template.sent
        if isinstance(packetIds, range):
            run = _Run(source, packetIds[0], messages)
            self._runs.update(dict.fromkeys(packetIds, run))
            self._bytes.add(template.size)
        else:
            for packetId, sent in zip(packetIds, messages, strict=True):
                self.add(packetId, source, sent)

    def get(self, packetId: int) -> InFlight | None:
        """The message with a packet identifier."""
        run = self._runs.get(packetId)
        return None if run is None else InFlight(run.source, run.sent[packetId - run.first])

    def among(self, packetIds: range) -> Iterator[tuple[int, InFlight]]:
        """The messages with these packet identifiers."""
        for packetId in self._runs.keys() & packetIds:
            run = self._runs[packetId]
            yield packetId, InFlight(run.source, run.sent[packetId - run.first])

    def remove(self, packetId: int) -> None:
        """Remove a message."""
        run = self._runs.pop(packetId)
        self._bytes.add(-run.sent[packetId - run.first].size)

    def acknowledge(self, packetIds: Sequence[int], done: dict[Source, list[Event]]) -> None:
        """
        Remove messages with QoS 1. Other identifiers are ignored.

        @param done: the events are added to those of their sources.
        """
        runs, size = self._runs, 0
        for packetId in packetIds:
            run = runs.get(packetId)
            if run is None:
                continue
            sent = run.sent[packetId - run.first]
            if sent.qos == 1:
                del runs[packetId]
                size += sent.size
                source = run.source
                if source is not None and source.isAcknowledged:
                    done.setdefault(source, []).append(sent.message.event)
        self._bytes.add(-size)

    def orphan(self, source: Source) -> Sequence[Event]:
        """
        Detach the messages that a source does not want any more. The client may still acknowledge
        them [MQTT-3.10.4-3] [MQTT5-3.10.4-3].

        @return: their events.
        """
        events = []
        for packetId, run in self._runs.items():
            message = run.sent[packetId - run.first].message
            if run.source is source and source.optionsFor(message) is None:
                self._runs[packetId] = _Run(None, run.first, run.sent)
                events.append(message.event)
        return events

    def close(self) -> None:
        """The connection has ended."""
        self._bytes.close()

    def all(self) -> dict[int, InFlight]:
        """All messages, by packet identifier, in the order in which they were sent."""
        return {
            packetId: InFlight(run.source, run.sent[packetId - run.first])
            for packetId, run in self._runs.items()
        }
