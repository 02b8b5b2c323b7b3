"""
The requests of the client's frames, in the broker's terms; and dialects: how the STOMP of
particular clients differs from the specification's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from attrs import frozen
from msgspec.json import encode
from msgspec.structs import replace

from ...broker import Publication, makePublication
from ...errors import ParameterInvalid, SubscriptionIdBlank, TopicBlank
from ...model import (
    EXTENSION_PREFIX,
    RESERVED_NAMES,
    TAG,
    WEEVENT_PREFIX,
    Event,
    InterfaceType,
    Offset,
    SubscribeRequest,
    checkExtensions,
    checkTopicName,
    extensionKeyError,
    parseOffset,
)
from ...operations import (
    ERASED,
    FRAME_HEADERS,
    PUBLISH_HEADERS,
    TRACE_NAMES,
    WEEVENT,
    readPublishHeaders,
    readTrace,
    withTrace,
)
from .frames import Frame, SharedHeaders, StompSettings, StompVersion, encodeHeader
from .messages import (
    MESSAGE_HEADERS,
    USER_HEADERS,
    AckMode,
    EncodedEvent,
    encodeEvent,
    shownHeaders,
)

_COUNT = re.compile(r" *([0-9]{1,9}) *", re.ASCII)
_MESSAGE_ID = re.compile(r"([0-9]{1,9})-([0-9a-f]{8}-[0-9]{1,19}-[0-9]{1,19})", re.ASCII)

_ERASED: Final = EXTENSION_PREFIX + ERASED.name
_WEEVENT: Final = WEEVENT_PREFIX.encode("ascii")
BROKER_HEADERS: Final = MESSAGE_HEADERS | {header.name for header in FRAME_HEADERS.send}
"""Headers of SEND for the broker, and those of MESSAGE itself. All others are user headers."""

NEWEST_FIRST: Final = (StompVersion.V12, StompVersion.V11, StompVersion.V10)


@frozen
class Acknowledgement:
    """
    An ACK, or a NACK.

    @ivar number: the number of the subscription.
    @ivar eventId: the event, in the subscription's words.
    @ivar isGood: whether the client has got it for good; otherwise it is to be sent again.
    """

    number: int
    eventId: str
    isGood: bool


def chooseVersion(headers: Mapping[str, str]) -> StompVersion:
    """
    The newest version that the client of a CONNECT frame accepts ("Protocol Negotiation").

    @raise ParameterInvalid: there is none.
    """
    accepted = headers.get("accept-version")
    if accepted is None:
        return StompVersion.V10
    offered = {name.strip() for name in accepted.split(",")}
    for version in NEWEST_FIRST:
        if version.value in offered:
            return version
    raise ParameterInvalid("none of the versions in accept-version is spoken here")


def need(frame: Frame, name: str) -> str:
    """
    A header that a frame must have.

    @raise ParameterInvalid: it has not.
    """
    value = frame.headers.get(name)
    if value is None:
        raise ParameterInvalid(f"{frame.command} needs the header {name}")
    return value


def _checkNames(names: Iterable[str]) -> None:
    """
    Refuse headers that only the dialect of WeEvent 1.1 knows.

    @raise ExtensionKeyInvalid: there is one.
    """
    for name in names:
        if name.startswith(WEEVENT_PREFIX):
            raise extensionKeyError(name)


def readPublication(frame: Frame) -> Publication:
    """
    Read the event of a SEND frame.

    @raise svcbroker.errors.BrokerError: it is not a valid event.
    """
    headers = frame.headers
    topic = headers.get("destination", "")
    # Names beyond ASCII are checked by the rule of their group, when they are published.
    if topic.isascii():
        checkTopicName(topic)
    extensions: dict[str, str] = {}
    user: dict[str, str] = {}
    for name, value in headers.items():
        if name.startswith(EXTENSION_PREFIX):
            extensions[name] = value
        elif name not in BROKER_HEADERS:
            user[name] = value
    if "traceparent" in user and "svc-author" not in extensions:
        extensions = _takeTrace(extensions, user)
    if user:
        kept = encode(user)
        # Faster than to look at each name.
        if _WEEVENT in kept:
            _checkNames(user)
        extensions[USER_HEADERS] = kept.decode("utf-8")
    if not extensions:
        return Publication(
            groupId=headers.get("groupId"), topic=topic, content=frame.body, extensions=extensions
        )
    given = {}
    if not RESERVED_NAMES.isdisjoint(extensions):
        given = readPublishHeaders(extensions)
        for name in PUBLISH_HEADERS:
            extensions.pop(name, None)
    checkExtensions(extensions)
    return makePublication(
        groupId=headers.get("groupId"),
        topic=topic,
        content=frame.body,
        extensions=extensions,
        **given,
    )


class PublicationReader:
    """
    Reads the publications of the SEND frames of all connections. Where consecutive frames have the
    same L{SharedHeaders}, these are read once, and the broker checks them once.
    """

    def __init__(self, read: Callable[[Frame], Publication]) -> None:
        """
        @param read: reads one; what it makes of equal headers differs in the content alone.
        """
        self._read = read
        # Of the last frame with shared headers; the content is left out.
        self._headers: SharedHeaders | None = None
        self._publication = Publication(topic="", content=b"")

    def read(self, frame: Frame) -> Publication:
        """
        Read the event of a SEND frame.

        @raise svcbroker.errors.BrokerError: it is not a valid event.
        """
        if frame.headers is self._headers:
            return replace(self._publication, content=frame.body)
        publication = self._read(frame)
        if isinstance(frame.headers, SharedHeaders):
            self._headers, self._publication = frame.headers, replace(publication, content=b"")
        return publication


def _takeTrace(extensions: dict[str, str], user: dict[str, str]) -> dict[str, str]:
    """
    Make extensions of the trace among the user's headers.

    @return: all extensions. What is among them was removed from C{user}.
    """
    traced = withTrace(extensions, readTrace(user["traceparent"], user.get("tracestate")))
    for key in traced.keys() - extensions.keys():
        del user[TRACE_NAMES[key]]
    return dict(traced)


def readSubscriptionKey(frame: Frame, version: StompVersion) -> tuple[str, str]:
    """
    Read the key of a connection's subscription: its id; in STOMP 1.0, where the id may be left out,
    else its destination.

    @raise ParameterInvalid: the frame has no id.
    @raise ExtensionKeyInvalid: the frame has headers that only a dialect knows.
    """
    _checkNames(frame.headers)
    if version is StompVersion.V10 and "id" not in frame.headers:
        return "destination", need(frame, "destination")
    return "id", need(frame, "id")


def readAckMode(frame: Frame) -> AckMode:
    """
    Read the acknowledgement mode of a SUBSCRIBE frame.

    @raise ParameterInvalid: there is no such way.
    """
    try:
        return AckMode(frame.headers.get("ack", AckMode.AUTO.value))
    except ValueError:
        raise ParameterInvalid("ack is auto, client or client-individual") from None


def readPrefetch(frame: Frame, settings: StompSettings) -> int:
    """
    Read the most events that a SUBSCRIBE frame wants ahead of acknowledgements; 0 stands for as
    many as possible.

    @raise ParameterInvalid: this is no number.
    """
    text = frame.headers.get("prefetch-count")
    if text is None:
        return settings.defaultPrefetch
    found = _COUNT.fullmatch(text)
    if found is None:
        raise ParameterInvalid("prefetch-count is not a number")
    return min(int(found[1]) or settings.maxPrefetch, settings.maxPrefetch)


def readSubscribe(frame: Frame, remote: str, settings: StompSettings) -> SubscribeRequest:
    """
    Read the request of a SUBSCRIBE frame. Topics and patterns are checked by who subscribes.

    @param remote: the client's address.
    @raise svcbroker.errors.BrokerError: the subscription is invalid.
    """
    headers = frame.headers
    destination = headers.get("destination", "")
    if not destination:
        raise TopicBlank()
    # A topic once, however often it is named.
    filters = tuple(dict.fromkeys(destination.split(",")))
    if len(filters) > settings.maxFilters:
        raise ParameterInvalid(f"a subscription has at most {settings.maxFilters} destinations")
    subscriptionId = headers.get("svc-subscriptionId")
    if subscriptionId is not None and not subscriptionId.strip(" "):
        raise SubscriptionIdBlank()
    isAcknowledged = readAckMode(frame) is not AckMode.AUTO
    return SubscribeRequest(
        interfaceType=InterfaceType.STOMP,
        kind="stomp",
        group=headers.get("groupId", ""),
        filters=filters,
        offset=_readOffset(headers),
        tag=headers.get(TAG) or None,
        subscriptionId=subscriptionId,
        remote=remote,
        isDurable=isAcknowledged and subscriptionId is not None,
        isAcknowledged=isAcknowledged,
        hasTombstones=_readErased(headers),
    )


def _readErased(headers: Mapping[str, str]) -> bool:
    text = headers.get(_ERASED)
    try:
        return ERASED.type.fromJSON(text) if text else False
    except ParameterInvalid as error:
        raise ParameterInvalid(f"{_ERASED}: {error.message}") from None


def _readOffset(headers: Mapping[str, str]) -> Offset:
    try:
        return parseOffset(headers.get("eventId", ""))
    except ParameterInvalid as error:
        raise ParameterInvalid(f"eventId: {error.message}") from None


def readAcknowledgement(frame: Frame, version: StompVersion) -> Acknowledgement:
    """
    Read an ACK or NACK frame. STOMP 1.2 names the value of the C{ack} header in C{id}, 1.0 and 1.1
    name the C{message-id}, which is the same here.

    A NACK with C{requeue:false} gives the message up: as an ACK, it is not sent again.

    @raise ParameterInvalid: no message was ever named so.
    """
    if version is StompVersion.V11:
        need(frame, "subscription")
    name = need(frame, "id" if version is StompVersion.V12 else "message-id")
    found = _MESSAGE_ID.fullmatch(name)
    if found is None:
        raise ParameterInvalid(f"{frame.command} names no message of this connection")
    # Clients write a boolean as their language does.
    isGivenUp = frame.headers.get("requeue", "").strip(" ").lower() == "false"
    isGood = frame.command == "ACK" or isGivenUp
    return Acknowledgement(int(found[1]), found[2], isGood)


LISTENER_DELAY: Final = 0.3
"""
The time between the RECEIPT of a SUBSCRIBE and its first MESSAGE in the dialect of WeEvent 1.1, in
seconds. That client reads the RECEIPT in one thread and registers the listener in another, and
discards any MESSAGE that it reads in between.
"""

_CONNECT_RECEIPT: Final = "0"
"""The receipt-id under which a client of WeEvent 1.1 waits for the answer to CONNECT."""


def _messageId(number: int, id: str | None, version: StompVersion) -> str:
    return f"message-id:{number}-"


@frozen(kw_only=True)
class StompDialect:
    """
    The differences of a dialect from others. The defaults are those of the specification.

    @ivar readFrame: makes the frame that the specification has for a client's frame; C{None} where
        they are the same. It cannot fail.
    @ivar readPublication: reads the event of a SEND frame.
    @ivar readSubscribe: reads the request of a SUBSCRIBE frame.
    @ivar encodeEvent: encodes what the MESSAGE frames of an event have in common.
    @ivar messageId: encodes the header C{message-id} of a subscription's MESSAGE frames, given its
        number, the client's id for it and the version. The event's id comes right after it.
    @ivar beginDelay: the time between the RECEIPT of a SUBSCRIBE and its first MESSAGE, in seconds.
    @ivar isErrorFinal: whether the connection closes after the ERROR for a frame that was refused.
    @ivar expectsHeartBeats: whether a client that is silent for too long counts as gone.
    """

    readFrame: Callable[[Frame], Frame] | None = None
    readPublication: Callable[[Frame], Publication] = readPublication
    readSubscribe: Callable[[Frame, str, StompSettings], SubscribeRequest] = readSubscribe
    encodeEvent: Callable[[Event, StompVersion], EncodedEvent] = encodeEvent
    messageId: Callable[[int, str | None, StompVersion], str] = _messageId
    beginDelay: float = 0.0
    isErrorFinal: bool = True
    expectsHeartBeats: bool = True


def _readFrame(frame: Frame) -> Frame:
    headers = {WEEVENT.storedKey(name): value for name, value in frame.headers.items()}
    receipt = frame.receipt
    if receipt is None and frame.command in ("SUBSCRIBE", "UNSUBSCRIBE"):
        receipt = headers.get("id")
    elif receipt is None and frame.command in ("CONNECT", "STOMP"):
        receipt = _CONNECT_RECEIPT
    return Frame(frame.command, headers, frame.body, receipt)


def _readPublication(frame: Frame) -> Publication:
    # That client sends content-type with each SEND, and its broker kept extensions only.
    headers = {
        name: value
        for name, value in frame.headers.items()
        if name in BROKER_HEADERS or name.startswith(EXTENSION_PREFIX)
    }
    publication = readPublication(Frame(frame.command, headers, frame.body))
    WEEVENT.checkTopic(publication.topic)
    WEEVENT.checkContent(publication.content)
    return publication


def _readSubscribe(frame: Frame, remote: str, settings: StompSettings) -> SubscribeRequest:
    if "svc-file" in frame.headers:
        raise ParameterInvalid("this broker transfers no files")
    if readAckMode(frame) is not AckMode.AUTO:
        raise ParameterInvalid("events are not acknowledged in the dialect of WeEvent 1.1")
    request = readSubscribe(frame, remote, settings)
    for filter in request.filters:
        WEEVENT.checkTopic(filter)
    return request


def _weeventMessageId(number: int, id: str | None, version: StompVersion) -> str:
    messageId = encodeHeader("message-id", str(number) if id is None else id, version)
    return f"{messageId}eventId:"


def _encodeEvent(event: Event, version: StompVersion) -> EncodedEvent:
    shown = shownHeaders(event).items()
    headers = "".join(
        [encodeHeader(WEEVENT.shownKey(name), value, version) for name, value in shown]
    )
    # That client discards binary WebSocket messages.
    content = event.content.decode("utf-8", "replace").encode("utf-8")
    eventId = str(event.eventId)
    head = (
        f"{eventId}\n{encodeHeader('destination', event.topic, version)}"
        f"content-length:{len(content)}\n{headers}\n"
    )
    return EncodedEvent(eventId.encode("ascii"), b"%b%b\0" % (head.encode("utf-8"), content))


PLAIN: Final = StompDialect()
"""STOMP as the specification has it."""

WEEVENT_1_1: Final = StompDialect(
    readFrame=_readFrame,
    readPublication=_readPublication,
    readSubscribe=_readSubscribe,
    encodeEvent=_encodeEvent,
    messageId=_weeventMessageId,
    beginDelay=LISTENER_DELAY,
    isErrorFinal=False,
    expectsHeartBeats=False,
)
"""STOMP for the Java client of WeEvent 1.1, over WebSocket."""
