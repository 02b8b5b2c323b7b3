"""
The mapping between MQTT's application messages and the log's events.

Fields of a message that an event lacks are kept in two extensions: C{svc-retain} marks a publish
with the RETAIN flag, C{svc-mqtt} holds the others as a small JSON object. So they survive
restarts, and reach subscribers at every broker of the same ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Final, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from ...broker import Publication, makePublication
from ...errors import ParameterInvalid
from ...model import EXTENSION_PREFIX, RESERVED_NAMES, Event, EventFormat
from ...net.budgets import NAME_BYTES, ByteCount
from ...operations import (
    BROKER_ATTRIBUTES,
    CLOUD_EVENT_EXTENSION,
    CLOUD_EVENT_TYPE,
    CloudEvent,
    binaryAttributes,
    cloudEvent,
    eventHeaders,
    isAttributeName,
    isStructured,
    publishedCloudEvent,
    readBinary,
    readPublishHeaders,
    readStructured,
    readTrace,
    storedAttributes,
    traceNames,
)
from .fields import (
    NO_PROPERTIES,
    U16,
    MqttError,
    Properties,
    ProtocolError,
    ReasonCode,
    encodeProperties,
    encodeText,
    withoutLength,
)
from .packets import Publish, Will

_SPECVERSION: Final = "specversion"
_UTF_8: Final = 1


class ReceivedCloudEvent(Struct, frozen=True):
    """
    A message that is a CloudEvent.

    @ivar names: the names of the user properties that are attributes; C{None} in structured mode.
    """

    event: CloudEvent
    names: Container[str] | None


def findCloudEvent(message: Publish | Will) -> ReceivedCloudEvent | None:
    """
    Read a message as a CloudEvent, in structured or in binary mode. In binary mode the attributes
    are those user properties that have the name of one.

    @return: C{None} where it is none, or no valid one: it is a message like others.
    """
    properties, payload = message.properties, message.payload
    contentType = properties.contentType or ""
    isBinary = bool(properties.userProperties) and _SPECVERSION in dict(properties.userProperties)
    if not isBinary and "cloudevents" not in contentType.lower():
        # Most messages: nothing else is looked at.
        return None
    try:
        if isStructured(contentType):
            event = readStructured(contentType, payload)
            # A retained message without content would remove the one before it.
            return ReceivedCloudEvent(event, None) if event.content or not message.retain else None
        named = [each for each in properties.userProperties if isAttributeName(each[0])]
        attributes = dict(named)
        if not isBinary or len(attributes) < len(named):
            return None
        event = readBinary(attributes, contentType, payload)
        return ReceivedCloudEvent(event, attributes.keys() - BROKER_ATTRIBUTES)
    except ParameterInvalid:
        return None


def structuredPayload(event: Event) -> bytes | None:
    """The payload of an event as its publisher sent it in structured mode."""
    published = publishedCloudEvent(event)
    return None if published is None else msgspec.json.encode(published)


class CloudEventForm(Struct, frozen=True):
    """
    The form of a subscriber's events as CloudEvents.

    @ivar isBinary: in binary mode; otherwise structured.
    @ivar source: what C{source} begins with: the base path and the group.
    """

    isBinary: bool
    source: str

    def write(self, event: Event, timestamp: int | None) -> CloudEventContent:
        """
        Write an event.

        @param timestamp: the time of its block; C{None} where it is not known.
        """
        if self.isBinary:
            contentType, attributes = binaryAttributes(event, self.source, timestamp)
            return CloudEventContent(event.content, contentType, tuple(attributes.items()))
        payload = msgspec.json.encode(cloudEvent(event, self.source, timestamp))
        return CloudEventContent(payload, CLOUD_EVENT_TYPE, (), _UTF_8)


class CloudEventContent(Struct, frozen=True):
    """
    The parts of a PUBLISH for an event as a CloudEvent.

    @ivar indicator: the payload format indicator.
    """

    payload: bytes
    contentType: str | None
    userProperties: tuple[tuple[str, str], ...]
    indicator: int | None = None


_FORMS: Final = {EventFormat.CLOUD_EVENTS.value: False, EventFormat.BINARY_CLOUD_EVENTS.value: True}


def formOf(format: str, source: str) -> CloudEventForm | None:
    """The form with the name of an L{EventFormat}; C{None} where its events are no CloudEvents."""
    isBinary = _FORMS.get(format)
    return None if isBinary is None else CloudEventForm(isBinary, source)


T = TypeVar("T")

RETAIN: Final = "svc-retain"
ENVELOPE: Final = "svc-mqtt"
EVENT_ID: Final = "svc-eventId"
_BROKER_EXTENSIONS: Final = frozenset({RETAIN, ENVELOPE})
_OURS: Final = frozenset({*_BROKER_EXTENSIONS, EVENT_ID, *RESERVED_NAMES})

_QOS_OF_OTHERS: Final = 2
_MILLISECONDS: Final = 1000
_MAX_TIME: Final = 10**14
_MAX_INTERVAL: Final = 0xFFFFFFFF


class MessageEnvelope(Struct, frozen=True, omit_defaults=True):
    """
    The value of C{svc-mqtt}, version 1. Absent fields were not published.

    @ivar v: the version of this form.
    @ivar q: the QoS of the publish.
    @ivar n: the publisher's L{publisherMark}, where it subscribes with No Local.
    @ivar x: when the message expires, in milliseconds since the epoch.
    @ivar f: the payload format indicator.
    @ivar t: the content type.
    @ivar r: the response topic.
    @ivar c: the correlation data.
    @ivar u: the user properties in their order: a pair, the key of an extension that has the
        value, or the name of an attribute of the CloudEvent that the message is.
    @ivar s: whether the payload was a CloudEvent in structured mode.
    """

    v: int = 0
    q: int = _QOS_OF_OTHERS
    n: str | UnsetType = UNSET
    x: int | UnsetType = UNSET
    f: int | UnsetType = UNSET
    t: str | UnsetType = UNSET
    r: str | UnsetType = UNSET
    c: bytes | UnsetType = UNSET
    u: tuple[str | tuple[str, str], ...] = ()
    s: bool = False

    @property
    def isValid(self) -> bool:
        """Whether it can be delivered. Clients of other carriers can publish any text here."""
        texts = [self.t, self.r, *(text for each in self.u for text in _texts(each))]
        return (
            self.v == 1
            and 0 <= self.q <= 2
            and (self.x is UNSET or 0 <= self.x <= _MAX_TIME)
            and (self.f is UNSET or self.f in (0, 1))
            and not any(text is not UNSET and "\0" in text for text in texts)
            and (self.r is UNSET or not ("+" in self.r or "#" in self.r))
        )


def _texts(entry: str | tuple[str, str]) -> tuple[str, ...]:
    return (entry,) if isinstance(entry, str) else entry


_NO_ENVELOPE: Final = MessageEnvelope()
_decoder: Final = msgspec.json.Decoder(MessageEnvelope)
_encoder: Final = msgspec.json.Encoder()


@lru_cache(maxsize=256)
def _readEnvelope(text: str) -> MessageEnvelope:
    try:
        envelope = _decoder.decode(text)
    except msgspec.MsgspecError:
        return _NO_ENVELOPE
    return envelope if envelope.isValid else _NO_ENVELOPE


def publisherMark(clientId: str) -> str:
    """
    A digest of a client identifier, by which No Local recognises the publisher of an event
    without disclosing the identifier.
    """
    return sha256(clientId.encode("utf-8")).hexdigest()[:16]


def _makePlain() -> dict[tuple[int, bool], dict[str, str]]:
    plain = {}
    for qos in range(3):
        envelope = MessageEnvelope(v=1, q=qos)
        for retain in (False, True):
            extensions = {} if qos == _QOS_OF_OTHERS else {ENVELOPE: _write(envelope)}
            if retain:
                extensions[RETAIN] = "1"
            plain[qos, retain] = extensions
    return plain


def _write(envelope: MessageEnvelope) -> str:
    return _encoder.encode(envelope).decode("utf-8")


_PLAIN: Final = _makePlain()


def publicationOf(
    message: Publish | Will, group: str, now: Callable[[], float], publisher: str | None = None
) -> Publication:
    """
    The publication that a message becomes.

    User properties that begin with C{svc-} become extensions, apart from those that the broker
    itself writes and those that are parameters, and so does the trace of an unsigned message. The
    caller checks their size. Of a CloudEvent the content is the data, and the attributes are an
    extension.

    @param now: the wall clock: seconds since the epoch.
    @param publisher: the L{publisherMark} of the publisher, if it subscribes with No Local.
    @raise SignatureInvalid, ParameterInvalid: a user property that is a parameter is malformed.
    """
    properties, content = message.properties, message.payload
    if properties is NO_PROPERTIES and publisher is None:
        extensions = _PLAIN[message.qos, message.retain]
        return Publication(
            groupId=group, topic=message.topic, content=content, extensions=extensions
        )
    extensions = {}
    attributes: Container[str] = ()
    received = findCloudEvent(message)
    isStructured = received is not None and received.names is None
    if received is not None:
        content, attributes = received.event.content, received.names or ()
        extensions[CLOUD_EVENT_EXTENSION] = received.event.attributes
    # Of several properties of one name the first counts.
    named = dict(reversed(properties.userProperties))
    given = readPublishHeaders(named)
    trace: Mapping[str, str] = {}
    if "traceparent" in named and "author" not in given:
        trace = readTrace(named["traceparent"], named.get("tracestate"))
    user: list[str | tuple[str, str]] = []
    isOrdered = False
    for key, value in properties.userProperties:
        if key in _OURS:
            continue
        if key.startswith(EXTENSION_PREFIX) and key not in extensions:
            extensions[key] = value
            user.append(key)
        elif key in attributes:
            user.append(key)
        elif (
            trace
            and trace.get(name := f"{EXTENSION_PREFIX}{key}") == value
            and name not in extensions
        ):
            extensions[name] = value
            user.append(name)
        else:
            user.append((key, value))
            isOrdered = True
    if not isOrdered and user == sorted(extensions):
        user = []  # the order of the extensions tells the same
    envelope = MessageEnvelope(
        v=1,
        q=message.qos,
        n=_or(publisher),
        x=_or(_expiryOf(properties.messageExpiryInterval, now, given.get("signedAt"))),
        f=_or(properties.payloadFormatIndicator),
        t=_or(properties.contentType),
        r=_or(properties.responseTopic),
        c=_or(properties.correlationData),
        u=tuple(user),
        s=isStructured,
    )
    extensions[ENVELOPE] = _write(envelope)
    if message.retain:
        extensions[RETAIN] = "1"
    return makePublication(
        groupId=group, topic=message.topic, content=content, extensions=extensions, **given
    )


def publicationsOf(
    first: Publish,
    payloads: Sequence[bytes],
    group: str,
    now: Callable[[], float],
    publisher: str | None = None,
) -> Sequence[Publication]:
    """
    The publications that the messages of a L{PublishRun} become. See L{publicationOf}.

    @param first: the first message of the run; the only one where it has properties.
    @param payloads: of the messages.
    """
    if first.properties is not NO_PROPERTIES:
        return [publicationOf(first, group, now, publisher)]
    # One object for all, which the broker checks once.
    topic, extensions = first.topic, _PLAIN[first.qos, first.retain]
    if publisher is not None:
        extensions = dict(publicationOf(first, group, now, publisher).extensions)
    return [
        Publication(groupId=group, topic=topic, content=payload, extensions=extensions)
        for payload in payloads
    ]


class TopicAliases:
    """
    The topic aliases that a client has set on a connection. Section 3.3.2.3.4.
    """

    def __init__(self, maximum: int, names: ByteCount) -> None:
        """
        @param maximum: the highest alias.
        @param names: counts what the topics take.
        """
        self._names = names
        self._maximum = maximum
        self._topics: dict[int, str] = {}

    def resolve(self, packet: Publish) -> Publish:
        """
        Replace the topic alias of a packet from the client by its topic.

        @raise MqttError: the packet has neither topic nor a known alias, or what only servers send.
        """
        if packet.properties.subscriptionIdentifiers:
            # [MQTT5-3.3.4-6]
            raise ProtocolError("a client must not send a subscription identifier")
        alias = packet.properties.topicAlias
        if alias is None:
            if not packet.topic:
                raise ProtocolError("there is neither a topic nor an alias")
            return packet
        if not 0 < alias <= self._maximum:
            # [MQTT5-3.3.2-8] [MQTT5-3.3.2-9] [MQTT5-3.3.2-12]
            raise MqttError(ReasonCode.TOPIC_ALIAS_INVALID, "the topic alias is out of range")
        if packet.topic:
            self._remember(alias, packet.topic)
            return packet
        topic = self._topics.get(alias)
        if topic is None:
            # [MQTT5-3.3.2-7]
            raise ProtocolError("the topic alias is not known")
        return msgspec.structs.replace(packet, topic=topic)

    def _remember(self, alias: int, topic: str) -> None:
        old = self._topics.get(alias)
        more = NAME_BYTES + len(topic) if old is None else len(topic) - len(old)
        if more > 0 and not self._names.fits(more):
            raise MqttError(
                ReasonCode.QUOTA_EXCEEDED,
                "the topic aliases of all clients together take as much memory as they may",
            )
        self._names.add(more)
        self._topics[alias] = topic


def _expiryOf(interval: int | None, now: Callable[[], float], signedAt: int | None) -> int | None:
    if interval is None:
        return None
    if signedAt is not None:
        # The author must know the extensions before.
        return signedAt + interval * _MILLISECONDS
    return int((now() + interval) * _MILLISECONDS)


def _or(value: T | None) -> T | UnsetType:
    return UNSET if value is None else value


class MqttMessage(Struct, frozen=True, gc=False):
    """
    An event as MQTT delivers it.

    @ivar event: the event.
    @ivar topic: its encoded topic, with its length.
    @ivar qos: the QoS that it was published with; 2 where it came by another carrier, so that
        every subscriber gets the QoS that it asked for.
    @ivar retain: whether it was published with the RETAIN flag.
    @ivar expires: when it expires, in milliseconds since the epoch.
    @ivar publisher: the L{publisherMark} of its publisher, where it is known.
    @ivar properties: the encoded properties of MQTT 5 that all subscribers share, without their
        length.
    @ivar payload: the payload: the event's content, unless it is a CloudEvent in structured mode.
    """

    event: Event
    topic: bytes
    qos: int
    retain: bool
    expires: int | None
    publisher: str | None
    properties: bytes
    payload: bytes

    def remaining(self, now: Callable[[], float]) -> int | None:
        """
        The seconds until it expires, 0 or less once it has expired; C{None} where it does not
        expire.
        """
        if self.expires is None:
            return None
        remaining = -((int(now() * _MILLISECONDS) - self.expires) // _MILLISECONDS)
        return min(remaining, _MAX_INTERVAL)


@lru_cache(maxsize=1024)
def _encodedTopic(topic: str) -> bytes:
    return encodeText(topic)


def messageOf(
    event: Event,
    *,
    hasProperties: bool,
    form: CloudEventForm | None = None,
    timestamp: int | None = None,
) -> MqttMessage:
    """
    Read an event as an MQTT message.

    @param hasProperties: whether to encode the properties of MQTT 5.
    @param form: how it is written as a CloudEvent; C{None} as it was published.
    @param timestamp: the time of its block, in milliseconds since the epoch; C{None} where it is
        not known.
    """
    extensions, payload = event.extensions, event.content
    text = extensions.get(ENVELOPE)
    envelope = _NO_ENVELOPE if text is None else _readEnvelope(text)
    content = None
    if form is not None:
        content = form.write(event, timestamp)
        payload = content.payload
    elif envelope.s:
        payload = structuredPayload(event) or payload
    return MqttMessage(
        event,
        _encodedTopic(event.topic),
        envelope.q,
        RETAIN in extensions,
        None if envelope.x is UNSET else envelope.x,
        None if envelope.n is UNSET else envelope.n,
        _encodeProperties(event, envelope, content) if hasProperties else b"",
        payload,
    )


def withoutEventId(message: MqttMessage) -> MqttMessage:
    """A message as its publisher sent it, without the property that the broker adds."""
    before, _, behind = message.properties.rpartition(_encodeEventId(message.event))
    return msgspec.structs.replace(message, properties=before + behind)


_EVENT_ID_NAME: Final = b"\x26" + encodeText(EVENT_ID)


def _encodeEventId(event: Event) -> bytes:
    text = str(event.eventId).encode("ascii")
    return _EVENT_ID_NAME + U16.pack(len(text)) + text


def _encodeProperties(
    event: Event, envelope: MessageEnvelope, content: CloudEventContent | None
) -> bytes:
    if content is not None:
        return _encodeShared(envelope, content.userProperties, content)
    extensions = event.extensions
    if extensions.keys() <= _BROKER_EXTENSIONS and event.author is None and not event.isErased:
        # Hot path.
        shared = _encodeEnvelope(extensions.get(ENVELOPE))
    else:
        named = (*_userProperties(event, envelope), *eventHeaders(event).items())
        shared = _encodeShared(envelope, named)
    return shared + _encodeEventId(event)


@lru_cache(maxsize=256)
def _encodeEnvelope(text: str | None) -> bytes:
    """The properties of messages with this envelope and without extensions of their own."""
    envelope = _NO_ENVELOPE if text is None else _readEnvelope(text)
    named = [each for each in envelope.u if not isinstance(each, str) and each[0] not in _OURS]
    return _encodeShared(envelope, tuple(named))


def _encodeShared(
    envelope: MessageEnvelope,
    userProperties: tuple[tuple[str, str], ...],
    content: CloudEventContent | None = None,
) -> bytes:
    """Encode the properties of a message, apart from its event id and their length."""
    indicator = None if envelope.f is UNSET else envelope.f
    contentType = None if envelope.t is UNSET else envelope.t
    if content is not None:
        indicator, contentType = content.indicator, content.contentType
    encoded = encodeProperties(
        Properties(
            payloadFormatIndicator=indicator,
            contentType=contentType,
            responseTopic=None if envelope.r is UNSET else envelope.r,
            correlationData=None if envelope.c is UNSET else envelope.c,
            userProperties=userProperties,
        )
    )
    # The length is added with the properties of each subscriber.
    return withoutLength(encoded)


def _userProperties(event: Event, envelope: MessageEnvelope) -> Iterator[tuple[str, str]]:
    """
    The user properties in the order of their publisher [MQTT5-3.3.2-17] [MQTT5-3.3.2-18], then
    extensions that came another way.
    """
    extensions = event.extensions
    names = traceNames(extensions)
    attributes: Mapping[str, object] | None = None
    told = set(_OURS)
    if envelope.s:
        told.add(CLOUD_EVENT_EXTENSION)
    for entry in envelope.u:
        if not isinstance(entry, str):
            # Any publisher may write this extension.
            if entry[0] not in _OURS:
                yield entry
        elif entry in extensions:
            if entry not in told:
                told.add(entry)
                yield names.get(entry, entry), extensions[entry]
        elif entry not in told:
            if attributes is None:
                attributes = storedAttributes(event) or {}
            if entry in attributes:
                told |= {entry, CLOUD_EVENT_EXTENSION}
                yield entry, str(attributes[entry])
    for key, value in sorted(extensions.items()):
        # Other carriers allow U+0000, which an MQTT string cannot hold [MQTT5-1.5.4-2].
        if key not in told and "\0" not in key and "\0" not in value:
            yield names.get(key, key), value
