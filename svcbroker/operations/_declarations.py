"""
The declaration of an operation: parameters, a result, and the broker's method; and the parameters
that calls of several tables have. Those of a publish say who signed it, and that it is to be
executed once or at one place only; headers of STOMP and user properties of MQTT 5 carry them too.

And the headers of events besides their content, declared once: those of STOMP frames, by which the
carrier goes and which the AsyncAPI document describes, and those of W3C Trace Context,
C{traceparent} and C{tracestate}, which tracing programs add to requests and messages. Traces are
kept as the extensions C{svc-traceparent} and C{svc-tracestate}. HTTP, STOMP, MQTT 5 and CloudEvents
have them under their own names. Malformed ones are ignored, as the W3C demands. To a signed event
nothing is added: its extensions are what its author has signed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from attrs import evolve, field, frozen
from twisted.internet.defer import Deferred

from ..broker import DEFAULT_PAGE_SIZE, Calls
from ..errors import (
    BrokerError,
    ContentBlank,
    EventIdInvalid,
    EventIdTooLong,
    EventNotFound,
    HeightUnknown,
    PageSizeInvalid,
    ParameterInvalid,
    SignatureInvalid,
    SubscriptionIdBlank,
    TopicBlank,
    TopicInvalid,
    TopicTooLong,
)
from ..model import (
    AUTHOR_KEY_SIZE,
    EXTENSION_PREFIX,
    MAX_EXTENSIONS_SIZE,
    MAX_KEY_LENGTH,
    SIGNATURE_SIZE,
    Event,
    EventFormat,
    isIdempotencyKey,
)
from ..model import TAG as TAG_EXTENSION
from ._types import (
    ContentType,
    ErasedType,
    EventIdType,
    ExtensionsType,
    FiltersType,
    FormatType,
    GroupType,
    NumberType,
    ParameterType,
    SeenEventType,
    SubscriptionIdType,
    TagType,
    TopicType,
)

_ErrorType: TypeAlias = type[BrokerError]

REQUIRED: Final = object()
"""The default of a required parameter."""
OMITTED: Final = object()
"""
The default of a parameter that the method is not given where it is absent. For calls that are made
often: reading an absent one costs nothing.
"""


@frozen(kw_only=True)
class Parameter:
    """
    One parameter of an operation. An empty text and a JSON C{null} are as good as none.

    @ivar name: its name on every wire.
    @ivar type: how it is read.
    @ivar description: what it means, in a sentence.
    @ivar default: its value where it is absent, unless it is required.
    @ivar absent: the error where it is required and absent.
    @ivar argument: the name of the method's argument: the same, unless that is a word of Python.
    """

    name: str
    type: ParameterType
    description: str
    default: Any = REQUIRED
    absent: _ErrorType = ParameterInvalid
    argument: str = field()

    @argument.default
    def _argument(self) -> str:
        return self.name

    @property
    def isRequired(self) -> bool:
        """Whether a call without it fails."""
        return self.default is REQUIRED

    def fallback(self) -> Any:
        """
        The value of an absent parameter, which is not L{OMITTED}.

        @raise BrokerError: it is required.
        """
        if self.default is REQUIRED:
            if self.absent is ParameterInvalid:
                raise ParameterInvalid("is required")
            raise self.absent()
        return self.default


def same(value: Any) -> Any:
    """The render function of a value that is the same on the wire."""
    return value


@frozen(kw_only=True)
class Result:
    """
    The result of an operation.

    @ivar type: its type on the wire, as msgspec knows types.
    @ivar render: makes a value of that type of the broker's result, unless that is one.
    """

    type: Any
    render: Callable[[Any], Any] = same


@frozen(kw_only=True)
class Operation:
    """
    One call of the interface.

    @ivar name: its name on every wire; for an admin query its path below C{/admin/}.
    @ivar summary: what it does, in a sentence.
    @ivar parameters: in the order of the interface's table, which is the order of positional
        parameters too.
    @ivar result: its result.
    @ivar errors: how it can fail, besides
        L{COMMON_ERRORS<svcbroker.operations._results.COMMON_ERRORS>}.
    @ivar method: finds the broker's method, which takes a principal, and the parameters by name, or
        one record of them.
    @ivar record: makes that record of the parameters, by their names; C{None} where there is none.
    @ivar isForMany: whether the method takes the records of many calls, since that is less work:
        its Deferred fires with the outcome of each, the result or a C{BrokerError}. Then the record
        is also made of the parameters in their order, with C{None} for those that are L{OMITTED}.
    @ivar isTogether: whether calls that follow each other in a batch are with the ledger before the
        first of them is answered, so that one block has them.
    @ivar isGroupFirst: whether the group is looked up before the other parameters are read.
    @ivar isByAddress: whether there is a further parameter C{remote}, the address of the client.
    @ivar isByInterface: whether the record has a further parameter C{interfaceType}: that of the
        two by which the call was made.
    @ivar hasAfter: whether a call may name an event that is to be executed first, by its last
        parameter. The method is not told.
    @ivar namesEvent: whether it is about an event, which this node may not have yet.
    @ivar changedBy: of an operator call, the parameters by which it changes something: a call
        without them reads, and is not in the audit trail; C{None} where every call changes it.
    """

    name: str
    summary: str
    parameters: tuple[Parameter, ...] = ()
    result: Result
    errors: tuple[type[BrokerError], ...] = ()
    method: Callable[[Calls], Callable[..., Deferred[Any]]]
    record: Callable[..., Any] | None = None
    isForMany: bool = False
    isTogether: bool = False
    isGroupFirst: bool = True
    isByAddress: bool = False
    isByInterface: bool = False
    changedBy: tuple[str, ...] | None = None
    checkOrder: tuple[Parameter, ...] = field(init=False)
    hasAfter: bool = field(init=False)
    namesEvent: bool = field(init=False)

    @hasAfter.default
    def _hasAfter(self) -> bool:
        return any(isinstance(each.type, SeenEventType) for each in self.parameters)

    @namesEvent.default
    def _namesEvent(self) -> bool:
        types = {type(each.type) for each in self.parameters}
        return {EventIdType, GroupType} <= types

    @checkOrder.default
    def _checkOrder(self) -> tuple[Parameter, ...]:
        if not self.isGroupFirst:
            return self.parameters
        return tuple(sorted(self.parameters, key=lambda each: not isinstance(each.type, GroupType)))

    def isRead(self, given: Iterable[str]) -> bool:
        """
        Whether a call of it changes nothing.

        @param given: the names of the parameters that the call has.
        """
        return self.changedBy is not None and not set(self.changedBy).intersection(given)


TOPIC_ERRORS: Final = (TopicBlank, TopicTooLong, TopicInvalid)
"""The errors of a call with a topic's name."""
OFFSET_ERRORS: Final = (EventIdTooLong, EventIdInvalid, EventNotFound, HeightUnknown)
"""The errors of a call with a position in the log."""

GROUP: Final = Parameter(
    name="groupId",
    type=GroupType(),
    default=None,
    description="The group; absent or blank means 1.",
)
SEEN: Final = Parameter(
    name="after",
    type=SeenEventType(),
    default=OMITTED,
    description="The id of an event that this node must have executed first. A node of a network "
    "waits for it, up to 10 seconds.",
)
TOPIC: Final = Parameter(
    name="topic",
    type=TopicType(),
    absent=TopicBlank,
    description="The topic's name: 1 to 256 characters in [32,128], none of them + or #. "
    "In a group with topics=utf8 also up to 256 bytes of UTF-8 in normalization form C.",
)
CONTENT: Final = Parameter(
    name="content",
    type=ContentType(),
    absent=ContentBlank,
    description="The event's content: any bytes, kept exactly as they are.",
)
EXTENSIONS: Final = Parameter(
    name="extensions",
    type=ExtensionsType(),
    default={},
    description="What the publisher adds: texts under keys that start with svc-.",
)
PAGE_SIZE: Final = Parameter(
    name="pageSize",
    type=NumberType(PageSizeInvalid),
    default=DEFAULT_PAGE_SIZE,
    description="How many items a page has: 1 to 99; another number means 10.",
)
FILTERS: Final = Parameter(
    name="topic",
    type=FiltersType(),
    absent=TopicBlank,
    description="A topic, a pattern of MQTT's kind, or several with commas between them.",
)
FORMAT: Final = Parameter(
    name="format",
    type=FormatType((EventFormat.SVC, EventFormat.CLOUD_EVENTS)),
    default=EventFormat.SVC,
    description="How events are written: svc (the default), or cloudevents: each one is a "
    "CloudEvent 1.0 in structured mode.",
)
TAG: Final = Parameter(
    name="tag",
    type=TagType(),
    default=None,
    description="Only events whose extension svc-tag equals it.",
)
ERASED: Final = Parameter(
    name="erased",
    argument="hasTombstones",
    type=ErasedType(),
    default=OMITTED,
    description="What becomes of erased events: skip (the default) leaves them out, tombstone has "
    "them without content.",
)
SUBSCRIPTION_ID: Final = Parameter(
    name="subscriptionId",
    type=SubscriptionIdType(),
    absent=SubscriptionIdBlank,
    description="The id that subscribe answered.",
)
AFTER: Final = Parameter(
    name="after",
    type=ParameterType(),
    default=None,
    description="Only those with a greater id: the next of the page before.",
)


def limitOf(most: int, default: int = 100) -> Parameter:
    """The parameter with the most items that a page of a list has."""
    return Parameter(
        name="limit",
        type=NumberType(ParameterInvalid, 1, most),
        default=default,
        description=f"The most to answer: 1 to {most}, by default {default}.",
    )


_HEX = re.compile(r"[0-9a-fA-F]*")


@frozen
class HexType(ParameterType):
    """
    A public key or a signature: hex digits of either case.

    @ivar size: how many bytes it has.
    """

    size: int
    schema: Mapping[str, Any] = field(init=False)

    @schema.default
    def _schema(self) -> Mapping[str, Any]:
        return {"type": "string", "pattern": f"^[0-9a-fA-F]{{{2 * self.size}}}$"}

    def fromText(self, raw: bytes) -> bytes:
        return self.fromJSON(super().fromText(raw))

    def fromJSON(self, value: object) -> bytes:
        text: str = super().fromJSON(value)
        if len(text) != 2 * self.size or _HEX.fullmatch(text) is None:
            raise SignatureInvalid(f"is not {2 * self.size} hex digits")
        return bytes.fromhex(text)


@frozen
class KeysType(ParameterType):
    """
    Public keys: texts of hex digits; as text with commas between them. They are put in order.

    @ivar maximum: the most of them.
    @ivar minimum: the least.
    """

    maximum: int
    minimum: int = 0
    schema: Mapping[str, Any] = field(init=False)
    textSchema: Mapping[str, Any] | None = {"type": "string"}

    @schema.default
    def _schema(self) -> Mapping[str, Any]:
        return {
            "type": "array",
            "items": HexType(AUTHOR_KEY_SIZE).schema,
            "minItems": self.minimum,
            "maxItems": self.maximum,
            "uniqueItems": True,
        }

    def fromText(self, raw: bytes) -> tuple[bytes, ...]:
        return self.fromJSON(super().fromText(raw).split(","))

    def fromJSON(self, value: object) -> tuple[bytes, ...]:
        texts = value.split(",") if isinstance(value, str) else value
        if not isinstance(texts, list) or not self.minimum <= len(texts) <= self.maximum:
            raise ParameterInvalid(f"is not {self.minimum} to {self.maximum} public keys")
        type = HexType(AUTHOR_KEY_SIZE)
        return tuple(sorted({type.fromJSON(each) for each in texts}))


class IdempotencyKeyType(ParameterType):
    """An idempotency key."""

    schema: Mapping[str, Any] = {"type": "string", "pattern": f"^[!-~]{{1,{MAX_KEY_LENGTH}}}$"}

    def fromText(self, raw: bytes) -> str:
        return self.fromJSON(super().fromText(raw))

    def fromJSON(self, value: object) -> str:
        text: str = super().fromJSON(value)
        if not isIdempotencyKey(text):
            raise ParameterInvalid(f"is not 1 to {MAX_KEY_LENGTH} characters from ! to ~")
        return text


AUTHOR: Final = Parameter(
    name="author",
    type=HexType(AUTHOR_KEY_SIZE),
    default=OMITTED,
    description="The Ed25519 public key of the author who has signed the event: 64 hex digits.",
)
SIGNATURE: Final = Parameter(
    name="signature",
    type=HexType(SIGNATURE_SIZE),
    default=OMITTED,
    description="The author's signature of the event's statement: 128 hex digits.",
)
SIGNED_AT: Final = Parameter(
    name="signedAt",
    type=NumberType(ParameterInvalid, 0),
    default=OMITTED,
    description="The author's own time that is in the statement, in milliseconds since the epoch.",
)
IDEMPOTENCY_KEY: Final = Parameter(
    name="idempotencyKey",
    type=IdempotencyKeyType(),
    default=OMITTED,
    description="A key that publishes the event once, however often it is sent: 1 to 64 "
    "characters from ! to ~.",
)
EXPECTED_SEQUENCE: Final = Parameter(
    name="expectedSequence",
    type=NumberType(ParameterInvalid, 0),
    default=OMITTED,
    description="Publish only if this is the sequence number of the topic's latest event; 0 where "
    "it has none.",
)

SIGNED_PARAMETERS: Final = (AUTHOR.name, SIGNATURE.name, SIGNED_AT.name)
"""The parameters of a signed publish."""

PUBLISH_HEADERS: Final[Mapping[str, Parameter]] = {
    "svc-author": AUTHOR,
    "svc-signature": SIGNATURE,
    "svc-signed-at": SIGNED_AT,
    "svc-idempotency-key": IDEMPOTENCY_KEY,
    "svc-expected-sequence": EXPECTED_SEQUENCE,
}
"""The parameters by their names on STOMP and MQTT 5, where they are not extensions."""


def eventHeaders(event: Event) -> dict[str, str]:
    """
    The author of an event, and whether it was erased, as headers of STOMP and user properties of
    MQTT 5.
    """
    headers = {}
    if event.author is not None:
        headers["svc-author"] = event.author.key.hex()
        if event.author.signature:
            headers["svc-signature"] = event.author.signature.hex()
        headers["svc-signed-at"] = str(event.author.signedAt)
    if event.isErased:
        headers["svc-erased"] = "true"
    return headers


def readPublishHeaders(headers: Mapping[str, str]) -> dict[str, Any]:
    """
    Read those headers or user properties of a publish that are parameters.

    @return: the arguments of L{makePublication<svcbroker.broker.makePublication>}.
    @raise SignatureInvalid, ParameterInvalid: one of them cannot be read.
    """
    arguments: dict[str, Any] = {}
    for name, parameter in PUBLISH_HEADERS.items():
        text = headers.get(name)
        if text:
            try:
                arguments[parameter.argument] = parameter.type.fromText(text.encode("utf-8"))
            except (ParameterInvalid, SignatureInvalid) as error:
                raise type(error)(f"{name}: {error.message}") from None
    return arguments


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
        EventHeader(TAG_EXTENSION, "Only events whose extension of this name has this value."),
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
