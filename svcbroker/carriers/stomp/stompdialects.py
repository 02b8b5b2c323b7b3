"""
Dialects: how the STOMP of particular clients differs from the specification's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from attrs import frozen

from ...broker import Publication
from ...errors import ParameterInvalid
from ...model import EXTENSION_PREFIX, Event, SubscribeRequest
from ...operations import WEEVENT
from .frames import Frame, StompSettings, StompVersion, encodeHeader
from .messages import AckMode, EncodedEvent, encodeEvent, shownHeaders
from .requests import BROKER_HEADERS, readAckMode, readPublication, readSubscribe

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
