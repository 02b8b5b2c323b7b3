"""
The headers of events besides their content, declared once: those of STOMP frames, by which the
carrier goes and which the AsyncAPI document describes, and those of W3C Trace Context,
C{traceparent} and C{tracestate}, which tracing programs add to requests and messages.

Traces are kept as the extensions C{svc-traceparent} and C{svc-tracestate}. HTTP, STOMP, MQTT 5 and
CloudEvents have them under their own names. Malformed ones are ignored, as the W3C demands. To a
signed event nothing is added: its extensions are what its author has signed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from attrs import evolve, frozen

from ..model import EXTENSION_PREFIX, MAX_EXTENSIONS_SIZE, TAG
from ._declarations import ERASED, PUBLISH_HEADERS

TRACEPARENT: Final = "svc-traceparent"
TRACESTATE: Final = "svc-tracestate"
TRACE_NAMES: Final[Mapping[str, str]] = {TRACEPARENT: "traceparent", TRACESTATE: "tracestate"}
"""The extensions, and their names on other wires."""


@frozen
class EventHeader:
    """
    A header of a frame.

    @ivar description: what it means, in a sentence.
    @ivar isRequired: whether it is always there, or has to be.
    """

    name: str
    description: str
    isRequired: bool = False


@frozen(kw_only=True)
class FrameHeaders:
    """
    The headers of the frames that carry events, in one dialect. Other headers that begin as keys of
    extensions do are extensions.

    @ivar send: those of SEND. Others are the user's.
    @ivar subscribe: those of SUBSCRIBE.
    @ivar message: those that the broker sets on MESSAGE. A user's headers never take their place.
    @ivar receipt: those of RECEIPT.
    @ivar error: those of ERROR.
    @ivar keepsOthers: whether MESSAGE has the user's headers of SEND.
    @ivar isText: whether the body of MESSAGE is made text.
    """

    send: tuple[EventHeader, ...]
    subscribe: tuple[EventHeader, ...]
    message: tuple[EventHeader, ...]
    receipt: tuple[EventHeader, ...]
    error: tuple[EventHeader, ...]
    keepsOthers: bool = True
    isText: bool = False


_GROUP: Final = EventHeader("groupId", "The group; by default 1.")
_OWN_ID: Final = f"{EXTENSION_PREFIX}subscriptionId"
_RECEIPT: Final = EventHeader("receipt", "Asks for a RECEIPT.")

EVENT_HEADERS: Final = (
    EventHeader(
        "svc-author", "The public key of the author who has signed the event: 64 hex digits."
    ),
    EventHeader("svc-signature", "The author's signature: 128 hex digits."),
    EventHeader("svc-signed-at", "The author's own time, in milliseconds since the epoch."),
    EventHeader("svc-erased", "true where the content was erased."),
)
"""The author of an event, and whether it was erased: of MESSAGE, and of PUBLISH of MQTT 5."""
SEND_HEADERS: Final = tuple(
    EventHeader(name, each.description) for name, each in PUBLISH_HEADERS.items()
)
"""The parameters of a publish that are headers of SEND, and user properties of MQTT 5."""
ERASED_HEADER: Final = EventHeader(f"{EXTENSION_PREFIX}{ERASED.name}", ERASED.description)
"""The treatment of erased events: of SUBSCRIBE of STOMP and MQTT 5."""

FRAME_HEADERS: Final = FrameHeaders(
    send=(
        EventHeader("destination", "The topic. It must be open.", isRequired=True),
        _GROUP,
        EventHeader("receipt", "Asks for a RECEIPT, which has the event's id."),
        EventHeader("transaction", "The transaction whose COMMIT the frame waits for."),
        EventHeader(
            "content-length", "The size of the body. Without it the body ends at the first NUL."
        ),
        *SEND_HEADERS,
    ),
    subscribe=(
        EventHeader("id", "What the client calls the subscription. STOMP 1.0 can do without."),
        EventHeader(
            "destination",
            "A topic, a pattern, or up to 100 of them with commas between.",
            isRequired=True,
        ),
        _GROUP,
        EventHeader(
            "eventId",
            "Where it begins: OFFSET_FIRST, OFFSET_LAST, after an event's id, at a height, or at "
            "OFFSET_TIME: with a time; by default with the next event.",
        ),
        EventHeader(TAG, "Only events whose extension of this name has this value."),
        EventHeader(
            _OWN_ID,
            "A UUID to know the subscription by; absent has one made. With acknowledgement it "
            "resumes where it stopped.",
        ),
        ERASED_HEADER,
        EventHeader("ack", "auto, client or client-individual; by default auto."),
        EventHeader(
            "prefetch-count",
            "How many events are sent ahead of acknowledgements: by default 1000, 0 for 10,000.",
        ),
        _RECEIPT,
    ),
    message=(
        EventHeader("subscription", "The id of SUBSCRIBE, where it had one."),
        EventHeader("subscription-id", "The subscription's UUID.", isRequired=True),
        EventHeader(
            "message-id",
            "Unique in the connection for each event and subscription.",
            isRequired=True,
        ),
        EventHeader(
            "destination",
            "The event's topic, also where a pattern was subscribed to.",
            isRequired=True,
        ),
        EventHeader("eventId", "The event's id.", isRequired=True),
        EventHeader("content-length", "The size of the body in bytes.", isRequired=True),
        EventHeader(
            "ack",
            "The id for ACK and NACK of STOMP 1.2, where the subscription has acknowledgement.",
        ),
        EventHeader("redelivered", "true where the event was sent before."),
        *EVENT_HEADERS,
    ),
    receipt=(
        EventHeader("receipt-id", "The receipt that was asked for.", isRequired=True),
        EventHeader("eventId", "For SEND the event's id, for COMMIT the ids with commas between."),
        EventHeader("subscription-id", "For SUBSCRIBE the subscription's UUID."),
    ),
    error=(
        EventHeader("message", "What is wrong.", isRequired=True),
        EventHeader("code", "The code of the error.", isRequired=True),
        EventHeader("receipt-id", "The receipt that the refused frame asked for."),
        EventHeader("version", "The versions that the broker speaks, before one was agreed on."),
        EventHeader("content-type", "text/plain.", isRequired=True),
        EventHeader("content-length", "The size of the body in bytes.", isRequired=True),
    ),
)
"""The headers of the published interface."""


def weeventHeaders(shownKey: Callable[[str], str]) -> FrameHeaders:
    """
    The headers in the dialect of WeEvent 1.1.

    @param shownKey: makes the name that it has for an extension.
    """
    changed = {
        "message-id": "The id of SUBSCRIBE.",
        "subscription": "The id of SUBSCRIBE.",
        "id": "What the client calls the subscription. RECEIPT has it where there is no receipt.",
        "ack": "auto, which is the default.",
        _OWN_ID: "A UUID to know the subscription by; absent has one made.",
        "receipt-id": "The receipt that was asked for, or the id of SUBSCRIBE or UNSUBSCRIBE; 0 "
        "for CONNECT.",
    }

    def adapted(headers: tuple[EventHeader, ...], *absent: str) -> tuple[EventHeader, ...]:
        return tuple(
            evolve(
                each,
                name=shownKey(each.name),
                description=changed.get(each.name, each.description),
                isRequired=each.isRequired or each.name == "id",
            )
            for each in headers
            if each.name not in absent
        )

    return FrameHeaders(
        send=adapted(FRAME_HEADERS.send),
        subscribe=adapted(FRAME_HEADERS.subscribe, "prefetch-count"),
        message=adapted(FRAME_HEADERS.message, "ack", "redelivered"),
        receipt=adapted(FRAME_HEADERS.receipt),
        error=adapted(FRAME_HEADERS.error),
        keepsOthers=False,
        isText=True,
    )


_MAX_STATE: Final = 512
_MAX_MEMBERS: Final = 32

_PARENT = re.compile(
    "(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2})(-.*)?"
)
_MEMBER = re.compile(
    r"(?:[a-z0-9][a-z0-9_\-*/]{0,240}@[a-z][a-z0-9_\-*/]{0,13}|[a-z][a-z0-9_\-*/]{0,255})"
    r"=[ -+\--<>-~]{0,255}[!-+\--<>-~]"
)


def readTrace(traceparent: str | None, tracestate: str | None = None) -> dict[str, str]:
    """
    Read the headers C{traceparent} and C{tracestate}.

    @return: the extensions; none where there is no valid C{traceparent}. Of a version that is
        newer than 00 there are the fields of that.
    """
    found = _PARENT.fullmatch(traceparent) if traceparent else None
    if found is None or (found[1] == "00" and found[3] is not None):
        return {}
    extensions = {TRACEPARENT: f"00-{found[2]}"}
    if tracestate and _isState(tracestate):
        extensions[TRACESTATE] = tracestate
    return extensions


def _isState(text: str) -> bool:
    members = [each.strip(" \t") for each in text.split(",")]
    keys = [each.partition("=")[0] for each in members if each]
    return (
        len(text) <= _MAX_STATE
        and 0 < len(keys) <= _MAX_MEMBERS
        and len(set(keys)) == len(keys)
        and all(_MEMBER.fullmatch(each) is not None for each in members if each)
    )


def shownTrace(extensions: Mapping[str, str]) -> dict[str, str]:
    """
    The valid trace context among extensions, C{traceparent} and C{tracestate}: clients can publish
    any text as an extension.
    """
    trace = readTrace(extensions.get(TRACEPARENT), extensions.get(TRACESTATE))
    return {TRACE_NAMES[key]: value for key, value in trace.items()}


def traceNames(extensions: Mapping[str, str]) -> Mapping[str, str]:
    """The extensions that are a valid trace context, with their names on STOMP and MQTT 5."""
    if TRACEPARENT not in extensions:
        return {}
    trace = readTrace(extensions[TRACEPARENT], extensions.get(TRACESTATE))
    return {key: TRACE_NAMES[key] for key in trace}


def withTrace(extensions: Mapping[str, str], trace: Mapping[str, str]) -> Mapping[str, str]:
    """
    Extensions with a trace context, unless they have one, or too little room for one.

    @param trace: what L{readTrace} gives.
    """
    if TRACEPARENT in extensions or TRACESTATE in extensions:
        return extensions
    both = {**extensions, **trace}
    size = sum(len(key.encode("utf-8", "replace")) for pair in both.items() for key in pair)
    return both if size <= MAX_EXTENSIONS_SIZE else extensions
