"""
The delivery of messages to a client over one connection: PUBLISH frames, and the window of those
that are not acknowledged.

The frames of a batch are encoded once for all subscribers that get the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from struct import Struct as Layout
from typing import Final, Literal, Protocol

import msgspec
from msgspec import Struct
from twisted.internet.defer import Deferred, succeed

from ...access import Principal
from ...interfaces import Action, Batch
from ...model import Event
from ...net.budgets import NAME_BYTES, ByteCount
from ...operations import CLOUD_EVENT_EXTENSION
from .codec import DUP, PUBREL, encode, encodePublish, encodeSuccess
from .context import MAX_U16
from .fields import (
    NO_PROPERTIES,
    Properties,
    ReasonCode,
    encodeProperties,
    encodeVariableByteInteger,
    lengthSize,
    withoutLength,
)
from .kept import Key
from .messages import CloudEventForm, MqttMessage, messageOf, withoutEventId
from .packets import MQTT_5, Puback, Pubacks, Pubcomp, Pubrec, Pubrel

RETAIN_FLAG: Final = 0x01
_QOS_SHIFT: Final = 1
_QOS: Final = 0x06
_PACKET_ID: Final = Layout(">H")
_MESSAGES: Final = "mqtt-messages"


class DeliveryOptions(Struct, frozen=True, cache_hash=True):
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


@lru_cache(maxsize=256)
def makeOptions(
    version: int,
    qos: int,
    retainAsPublished: bool,
    identifiers: tuple[int, ...],
    isPlain: bool,
    form: CloudEventForm | None,
) -> DeliveryOptions:
    """
    The options with these values: one object for most subscriptions, by which their frames are
    found.
    """
    return DeliveryOptions(version, qos, retainAsPublished, identifiers, isPlain, form)


def optionsOfAll(options: Iterable[DeliveryOptions]) -> DeliveryOptions | None:
    """
    The options of a message that several subscriptions of a client match: the highest QoS, all
    identifiers, and the RETAIN flag if any of them keeps it; C{None} where there is none.
    """
    found = tuple(options)
    if len(found) < 2:
        return found[0] if found else None
    return DeliveryOptions(
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

    message: MqttMessage
    options: DeliveryOptions
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
    @ivar first: the first of the packet identifiers that were filled in last.
    """

    data: bytes
    places: Sequence[int]
    sent: Sequence[Sent]
    others: Sequence[Event]
    largest: int
    size: int
    first: int = 0
    _filled: bytes = b""

    def filled(self, first: int) -> bytes:
        """
        The frames with consecutive packet identifiers. Subscribers with the same free identifiers
        share the bytes.
        """
        if first != self.first:
            data = bytearray(self.data)
            for packetId, place in enumerate(self.places, first):
                _PACKET_ID.pack_into(data, place, packetId)
            self.first, self._filled = first, bytes(data)
        return self._filled


def messagesOf(batch: Batch, version: int, form: CloudEventForm | None) -> Sequence[MqttMessage]:
    """The messages of a batch, made once for each version and form."""
    hasProperties = version == MQTT_5
    key = (_MESSAGES, hasProperties, form)
    return batch.encoded(key, _messages, hasProperties, form, batch.timestamp)


def _messages(
    events: Sequence[Event], hasProperties: bool, form: CloudEventForm | None, timestamp: int
) -> Sequence[MqttMessage]:
    messages: list[MqttMessage] = []
    like: MqttMessage | None = None
    for event in events:
        # Hot path: events that were published together differ in their contents alone.
        if (
            like is not None
            and event.extensions is like.event.extensions
            and event.topic is like.event.topic
        ):
            message = MqttMessage(
                *(event, like.topic, like.qos, like.retain, like.expires, like.publisher),
                *(b"", event.content),
            )
        else:
            message = messageOf(event, hasProperties=hasProperties, form=form, timestamp=timestamp)
            isPlain = form is None and CLOUD_EVENT_EXTENSION not in event.extensions
            like = message if isPlain and not hasProperties else None
        messages.append(message)
    return messages


def templateOf(batch: Batch, options: DeliveryOptions) -> FrameTemplate | None:
    """
    The frames of a batch for all subscriptions with the same options, made once. C{None} where
    they differ from subscriber to subscriber: a message expires, or knows its publisher.
    """
    return batch.encoded(options, _template, batch, options) or None


def _template(_: object, batch: Batch, options: DeliveryOptions) -> FrameTemplate | Literal[False]:
    """The template of a batch, for L{templateOf}; C{False} where there is none."""
    messages = messagesOf(batch, options.version, options.form)
    frames = []
    places = []
    identified = []
    others = []
    largest = position = size = place = length = 0
    head = b""
    like: MqttMessage | None = None
    for message in messages:
        if message.expires is not None or message.publisher is not None:
            return False
        if (
            like is not None
            and message.topic is like.topic
            and len(message.payload) == length
            and message.qos == like.qos
            and message.retain == like.retain
        ):
            # Hot path: it differs from the one before it in its payload alone.
            encoded = head + message.payload
        else:
            encoded = encodeMessage(message, options, 0)
            # The packet identifier follows the topic, which follows the length.
            header = 2 if encoded[1] < 0x80 else 1 + lengthSize(encoded, 1)
            place, length = header + len(message.topic), len(message.payload)
            head = encoded[: len(encoded) - length]
            # Properties have the id of the event.
            like = None if options.version == MQTT_5 else message
        if encoded[0] & _QOS:
            places.append(position + place)
            identified.append(sentOf(message, options, 0))
            size += length
        else:
            others.append(message.event)
        frames.append(encoded)
        position += len(encoded)
        largest = max(largest, len(encoded))
    return FrameTemplate(b"".join(frames), places, identified, others, largest, size)


def sentOf(message: MqttMessage, options: DeliveryOptions, flags: int) -> Sent:
    """
    A message as it is sent with these options.

    @param flags: flags beside the QoS.
    """
    qos = min(message.qos, options.qos)
    return Sent(message, options, qos, flags, len(message.payload))


def encodeWithin(
    limit: int,
    message: MqttMessage,
    options: DeliveryOptions,
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
    message: MqttMessage,
    options: DeliveryOptions,
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


class Source(Protocol):
    """
    The source of messages, where they are acknowledged: a log reader, or a member of a share.

    @ivar isAcknowledged: whether it waits for acknowledgements.
    @ivar isShared: whether others read from the same position.
    @ivar always: the options of all events; C{None} where it must be asked for them. Hot path:
        saves a call for each batch.
    """

    isAcknowledged: bool
    isShared: bool
    always: DeliveryOptions | None

    @property
    def subscriptionId(self) -> str:
        """The id of its subscription of the log."""

    @property
    def form(self) -> CloudEventForm | None:
        """The form of its events as CloudEvents; C{None} as they were published."""

    def optionsOf(self, batch: Batch) -> DeliveryOptions | None:
        """The options of all events of a batch; C{None} where they differ."""

    def optionsFor(self, message: MqttMessage) -> DeliveryOptions | None:
        """The options of a message; C{None} where it is not to be delivered, or not any more."""

    def keyOf(self, event: Event) -> Key:
        """The key of an event."""

    def acknowledge(self, events: Sequence[Event]) -> None:
        """Acknowledge events to the log."""

    def storePosition(self) -> None:
        """Store the position together with the session's changes of this turn."""

    def resume(self) -> None:
        """Receive events."""

    def pause(self) -> None:
        """Receive no events."""


class DeliverySession(Protocol):
    """
    A session, as the delivery of its messages knows it.

    @ivar principal: the account.
    @ivar group: the group whose log it uses.
    @ivar released: deliveries with PUBREC and without PUBCOMP, by packet identifier.
    """

    principal: Principal
    group: str
    released: dict[int, Key | None]

    @property
    def isRedelivering(self) -> bool:
        """Whether messages from the log may have been sent before."""

    def usesId(self, packetId: int) -> bool:
        """Whether a packet identifier is in use for a message of an earlier connection."""

    def usesAny(self, packetIds: Iterable[int]) -> bool:
        """Whether any of these packet identifiers is."""

    def takeUnacknowledged(self, key: Key, qos: int) -> int:
        """
        Remove and return the packet identifier of an earlier sending; 0 where there was none that
        serves for this QoS.
        """

    def abandon(self, packetId: int) -> None:
        """Give up a delivery with QoS 2 that was begun: send PUBREL."""

    def takeReleased(self, key: Key) -> bool:
        """Whether the client has released a message on an earlier connection."""

    def takeOrphans(self) -> dict[int, InFlight]:
        """Remove and return sent messages that the log does not deliver again."""

    def sentOnce(self, first: int, count: int) -> None:
        """Record the consecutive packet identifiers of messages that are sent with QoS 1."""

    def sent(self, packetId: int, key: Key) -> None:
        """Record a message that is sent with QoS 2."""

    def release(self, packetId: int) -> None:
        """Record a PUBREC; PUBREL is sent."""

    def completed(self, packetId: int) -> None:
        """Record a PUBCOMP, or a refusal."""

    def resumeSubscriptions(self) -> None:
        """Have the subscriptions deliver events."""

    def pauseSubscriptions(self) -> None:
        """Pause the subscriptions."""


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

    def __init__(
        self, session: DeliverySession, count: int, maxBytes: int, counted: ByteCount
    ) -> None:
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

    def newRun(self, count: int, wanted: int) -> int:
        """
        The first of consecutive packet identifiers that are not in use; 0 where none are found.

        @param wanted: the first of those that are preferred; 0 for none.
        """
        for first in (wanted, self._lastId + 1):
            last = first + count - 1
            if first and last <= MAX_U16 and self._areFree(first, count):
                self._lastId = last
                return first
        return 0

    def _areFree(self, first: int, count: int) -> bool:
        if count == 1:
            return first not in self._runs and not self._session.usesId(first)
        packetIds = range(first, first + count)
        return self._runs.keys().isdisjoint(packetIds) and not self._session.usesAny(packetIds)

    # Messages.

    def add(self, packetId: int, source: Source | None, sent: Sent) -> None:
        """Add a message that was sent."""
        self._runs[packetId] = _Run(source, packetId, (sent,))
        self._bytes.add(sent.size)

    def addRun(self, first: int, source: Source, template: FrameTemplate) -> None:
        """Add the messages of a template, whose packet identifiers L{newRun} has given."""
        run, count = _Run(source, first, template.sent), len(template.sent)
        if count == 1:
            self._runs[first] = run
        else:
            self._runs.update(dict.fromkeys(range(first, first + count), run))
        self._bytes.add(template.size)

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


_NO_TOPIC: Final = b"\0\0"


class _Waiting(msgspec.Struct, frozen=True):
    """A message that waits for room in the window."""

    source: Source
    message: MqttMessage
    flags: int
    isFromLog: bool


class Delivery:
    """
    Sends messages to one client, within its window and the broker's bounds.

    Called by the session's subscriptions with events of the log, and by the connection with the
    client's acknowledgements. Messages beyond the window wait here, at most one batch of each
    subscription: subscriptions are paused until there is room.
    """

    def __init__(
        self,
        session: DeliverySession,
        *,
        version: int,
        send: Callable[[bytes], None],
        window: int,
        maxBytes: int,
        counted: ByteCount,
        names: ByteCount,
        maximumPacketSize: int,
        topicAliasMaximum: int,
        now: Callable[[], float],
    ) -> None:
        """
        @param send: sends one or more encoded packets.
        @param window: the most unacknowledged messages.
        @param maxBytes: the most bytes of those, unless it is a single one.
        @param counted: counts them with those of all clients.
        @param names: counts the topics of aliases.
        @param maximumPacketSize: the most bytes of a packet that the client accepts.
        @param topicAliasMaximum: the most topic aliases that may be set.
        """
        self._session = session
        self._version = version
        self._send = send
        self._window = Window(session, window, maxBytes, counted)
        self._maximumPacketSize = maximumPacketSize
        self._topicAliasMaximum = topicAliasMaximum
        self._now = now
        # Made when something waits: an empty one has 600 bytes, and most connections are idle.
        self._pending: deque[_Waiting] | None = None
        self._aliases: dict[bytes, int] = {}
        self._names = names
        self._acknowledged: dict[Source, list[Event]] = {}
        self._waiters: list[Deferred[None]] = []
        self._isPaused = False
        self._isHalted = False

    # Messages.

    @property
    def isFlowing(self) -> bool:
        """Whether subscriptions may deliver events."""
        return not self._isHalted

    @property
    def canTake(self) -> bool:
        """Whether another message could be sent at once."""
        return not self._isPaused and not self._pending and self._window.hasRoom

    def deliver(self, source: Source, batch: Batch) -> None:
        """Send a batch. Messages beyond the window wait."""
        options = source.always or source.optionsOf(batch)
        isPlain = not (self._pending or self._topicAliasMaximum or self._session.isRedelivering)
        if not (isPlain and options is not None and self._sendAll(source, batch, options)):
            for message in messagesOf(batch, self._version, source.form):
                self._offer(source, message, 0, True)
        if self._pending or self._isPaused:
            self.halt()
        self.settle()

    def offer(
        self,
        source: Source,
        event: Event,
        flags: int = 0,
        *,
        isFromLog: bool = True,
    ) -> None:
        """
        Send one message as soon as it may be sent.

        @param isFromLog: whether the subscription waits for its acknowledgement.
        """
        message = messageOf(event, hasProperties=self._version == MQTT_5, form=source.form)
        self._offer(source, message, flags, isFromLog)

    def _sendAll(self, source: Source, batch: Batch, options: DeliveryOptions) -> bool:
        """
        Send all messages of a batch in one piece. Hot path.

        @return: C{False} where they have to be sent one by one, and none was.
        """
        template = templateOf(batch, options)
        if template is None or template.largest > self._maximumPacketSize:
            return False
        messages, window = template.sent, self._window
        if messages:
            count = len(messages)
            if not window.fits(count, template.size):
                return False
            first = window.newRun(count, template.first)
            if not first:
                return False
            window.addRun(first, source, template)
            if options.qos == 1:
                self._session.sentOnce(first, count)
            else:
                for packetId, sent in enumerate(messages, first):
                    self._sent(source, packetId, sent)
            self._send(template.filled(first))
        else:
            self._send(template.data)
        if template.others:
            self._done(source, template.others)
        return True

    def _offer(self, source: Source, message: MqttMessage, flags: int, isFromLog: bool) -> None:
        if self._pending or self._mustWait(source, message):
            if self._pending is None:
                self._pending = deque()
            self._pending.append(_Waiting(source, message, flags, isFromLog))
        else:
            self._sendOne(source, message, flags, isFromLog)

    def _mustWait(self, source: Source, message: MqttMessage) -> bool:
        if self._window.hasRoom:
            return False
        options = source.optionsFor(message)
        return options is not None and min(message.qos, options.qos) > 0

    def mayRead(self, event: Event) -> bool:
        """Whether the client may read an event that had to wait, or was read for others too."""
        session = self._session
        principal = session.principal
        return principal.isEverything or principal.may(Action.SUBSCRIBE, session.group, event.topic)

    def _sendOne(self, source: Source, message: MqttMessage, flags: int, isFromLog: bool) -> None:
        options = source.optionsFor(message)
        if not self.mayRead(message.event):
            options = None
        qos = 0 if options is None else min(message.qos, options.qos)
        packetId = 0
        if isFromLog and self._session.isRedelivering:
            key = source.keyOf(message.event)
            if self._session.takeReleased(key):
                self._done(source, (message.event,))
                return
            # [MQTT-4.4.0-1] [MQTT5-4.4.0-1]
            packetId = self._session.takeUnacknowledged(key, qos)
        if options is None:
            if isFromLog:
                self._done(source, (message.event,))
            return
        isRepeated = packetId != 0
        extra = self._extra(message, isRepeated)
        if extra is None:
            if isFromLog:
                self._done(source, (message.event,))
            return
        if qos and not isRepeated:
            packetId = self._window.newId()
        if not self._sendFrame(message, options, packetId, flags, isRepeated, extra):
            # Too large for the client: as if it had been delivered [MQTT5-3.1.2-28].
            if isRepeated and qos == 2:
                self._session.abandon(packetId)
            if isFromLog:
                self._done(source, (message.event,))
            return
        if not qos:
            if isFromLog:
                self._done(source, (message.event,))
            return
        sent = sentOf(message, options, flags)
        self._window.add(packetId, source if isFromLog else None, sent)
        if isFromLog:
            self._sent(source, packetId, sent)

    def _sent(self, source: Source, packetId: int, sent: Sent) -> None:
        if sent.qos == 2:
            self._session.sent(packetId, source.keyOf(sent.message.event))
        else:
            self._session.sentOnce(packetId, 1)

    def _extra(self, message: MqttMessage, isRepeated: bool) -> Properties | None:
        """The properties of one delivery; C{None} where the message must not be delivered."""
        if isRepeated:
            # [MQTT5-4.3.3-7]
            remaining = message.remaining(self._now)
            return NO_PROPERTIES if remaining is None else _expiring(max(1, remaining))
        remaining = message.remaining(self._now)
        if remaining is None:
            return NO_PROPERTIES
        if remaining <= 0:
            # [MQTT5-3.3.2-5]
            return None
        # [MQTT5-3.3.2-6]
        return _expiring(remaining)

    def _sendFrame(
        self,
        message: MqttMessage,
        options: DeliveryOptions,
        packetId: int,
        flags: int,
        isRepeated: bool,
        extra: Properties,
    ) -> bool:
        """Send a message; False where it is too large for the client."""
        topic, alias, isNew = message.topic, 0, False
        if self._topicAliasMaximum:
            topic, alias, isNew = self._aliasOf(topic)
            if alias:
                extra = msgspec.structs.replace(extra, topicAlias=alias)
        encoded = encodeWithin(
            self._maximumPacketSize,
            message,
            options,
            packetId,
            flags=flags | (DUP if isRepeated else 0),  # [MQTT-3.3.1-1] [MQTT5-3.3.1-1]
            topic=topic,
            extra=extra,
        )
        if encoded is None:
            return False  # [MQTT5-3.1.2-27]
        if isNew:
            self._names.add(NAME_BYTES + len(message.topic))
            self._aliases[message.topic] = alias
        self._send(encoded)
        return True

    def _aliasOf(self, topic: bytes) -> tuple[bytes, int, bool]:
        """The topic to send, its alias or 0, and whether the alias is new."""
        alias = self._aliases.get(topic)
        if alias is not None:
            return _NO_TOPIC, alias, False
        alias = len(self._aliases) + 1
        # [MQTT5-3.1.2-29] [MQTT5-3.1.2-30] [MQTT5-3.3.2-8] [MQTT5-3.3.2-11]
        if alias > self._topicAliasMaximum or not self._names.hasRoom(NAME_BYTES + len(topic)):
            return topic, 0, False
        return topic, alias, True

    # Acknowledgements.

    def puback(self, packet: Puback) -> None:
        """Handle a PUBACK; one with a failure ends the delivery too [MQTT5-4.4.0-2]."""
        self._window.acknowledge((packet.packetId,), self._acknowledged)

    def pubacks(self, arrived: Pubacks) -> None:
        """Handle a run of PUBACKs."""
        self._window.acknowledge(arrived.packetIds, self._acknowledged)

    def pubrec(self, packet: Pubrec) -> None:
        """Handle a PUBREC; one with a failure ends the delivery [MQTT5-4.4.0-2]."""
        packetId = packet.packetId
        flight = self._window.get(packetId)
        if flight is None or flight.sent.qos != 2:
            if packetId in self._session.released or self._version != MQTT_5:
                self.release(packetId)
            else:
                unknown = Pubrel(packetId, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)
                self._send(encode(unknown, self._version))
            return
        self._window.remove(packetId)
        if flight.source is not None:
            self._done(flight.source, (flight.sent.message.event,))
        if packet.reason >= ReasonCode.UNSPECIFIED_ERROR:
            self._session.completed(packetId)
            return
        # [MQTT-4.3.3-1] [MQTT5-4.3.3-4] [MQTT5-4.3.3-6]
        self._session.release(packetId)
        self.release(packetId)

    def release(self, packetId: int) -> None:
        """Send PUBREL."""
        self._send(encodeSuccess(PUBREL, packetId))

    def pubcomp(self, packet: Pubcomp) -> None:
        """Handle a PUBCOMP: the exchange is complete."""
        self._session.completed(packet.packetId)

    def _done(self, source: Source, events: Sequence[Event]) -> None:
        if source.isAcknowledged:
            self._acknowledged.setdefault(source, []).extend(events)

    def settle(self) -> None:
        """
        Acknowledge events to the log, and send waiting messages. Called once after all packets
        of a read.
        """
        if self._acknowledged:
            self.acknowledgeEvents()
        if self._pending and not self._isPaused:
            self._sendPending()
        if self._pending or self._isPaused:
            return
        if self._waiters:
            self._tellRoom()
        if self._isHalted and self._window.isHalfEmpty:
            self._isHalted = False
            self._session.resumeSubscriptions()

    def acknowledgeEvents(self) -> None:
        """Acknowledge to the log what the client has acknowledged."""
        if self._acknowledged:
            acknowledged, self._acknowledged = self._acknowledged, {}
            for source, events in acknowledged.items():
                source.acknowledge(events)

    def _sendPending(self) -> None:
        while self._pending:
            first = self._pending[0]
            if self._mustWait(first.source, first.message):
                break
            self._pending.popleft()
            self._sendOne(first.source, first.message, first.flags, first.isFromLog)

    # Flow.

    @property
    def hasRoom(self) -> bool:
        """Whether no message waits for room."""
        return not self._pending and not self._isPaused

    def room(self) -> Deferred[None]:
        """Fires when no message waits for room, or when the connection has ended."""
        if self.hasRoom:
            return succeed(None)
        waiter: Deferred[None] = Deferred()
        self._waiters.append(waiter)
        return waiter

    def _tellRoom(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.callback(None)

    def pauseProducing(self) -> None:
        """Stop sending messages: the client does not read."""
        self._isPaused = True
        self.halt()

    def resumeProducing(self) -> None:
        """Send messages again."""
        self._isPaused = False
        self.settle()

    def halt(self) -> None:
        """Pause the subscriptions until there is room."""
        if not self._isHalted:
            self._isHalted = True
            self._session.pauseSubscriptions()

    def start(self) -> None:
        """
        Send again what the log does not deliver again: PUBREL, and messages whose subscription
        has ended [MQTT-4.4.0-1] [MQTT5-4.4.0-1].
        """
        for packetId in self._session.released:
            self.release(packetId)
        for packetId, flight in self._session.takeOrphans().items():
            if not self._repeat(packetId, flight) and flight.sent.qos == 2:
                self._session.abandon(packetId)

    def _repeat(self, packetId: int, flight: InFlight) -> bool:
        """Send a message again; C{False} where the client may not read it, or it is too large."""
        sent = flight.sent
        event = sent.message.event
        if not self.mayRead(event):
            return False
        options = msgspec.structs.replace(sent.options, version=self._version)
        message = messageOf(event, hasProperties=self._version == MQTT_5, form=options.form)
        if not self._sendFrame(message, options, packetId, sent.flags, True, NO_PROPERTIES):
            return False
        again = msgspec.structs.replace(sent, options=options)
        self._window.add(packetId, flight.source, again)
        return True

    def keysOf(self, packetIds: range) -> dict[int, Key]:
        """The keys of the unacknowledged messages with these packet identifiers."""
        return {
            packetId: key
            for packetId, flight in self._window.among(packetIds)
            if (key := flight.key) is not None
        }

    def orphan(self, source: Source, *, isOver: bool) -> None:
        """
        Detach what a source does not want any more. Its messages may still be acknowledged.

        @param isOver: whether the source has ended. Otherwise those messages are done for it.
        """
        events = self._window.orphan(source)
        if isOver:
            self._acknowledged.pop(source, None)
            if self._pending:
                self._pending = deque(each for each in self._pending if each.source is not source)
        else:
            self._done(source, events)

    def end(self) -> dict[int, InFlight]:
        """
        End, since the connection is closed.

        @return: the unacknowledged messages, by packet identifier.
        """
        self._isPaused = True
        self.acknowledgeEvents()
        self._pending = None
        self._tellRoom()
        self._window.close()
        return self._window.all()


def _expiring(seconds: int) -> Properties:
    return Properties(messageExpiryInterval=seconds)
