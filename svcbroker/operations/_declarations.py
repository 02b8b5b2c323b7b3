"""
The declaration of an operation: parameters, a result, and the broker's method; and the parameters
that calls of several tables have. Those of a publish say who signed it, and that it is to be
executed once or at one place only; headers of STOMP and user properties of MQTT 5 carry them too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from attrs import field, frozen
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
    MAX_KEY_LENGTH,
    SIGNATURE_SIZE,
    Event,
    EventFormat,
    isIdempotencyKey,
)
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
