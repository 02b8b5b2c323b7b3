"""
The declaration of an operation: parameters, a result, and the broker's method; and the parameters
that calls of several tables have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
    SubscriptionIdBlank,
    TopicBlank,
    TopicInvalid,
    TopicTooLong,
)
from ..model import EventFormat
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
