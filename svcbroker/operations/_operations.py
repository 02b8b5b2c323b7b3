"""
The seven operations on topics and events.
"""

from __future__ import annotations

from typing import Final

from ..broker import DEFAULT_PAGE_SIZE, Publication
from ..errors import (
    ContentBlank,
    ContentTooLarge,
    EventIdBlank,
    EventIdInvalid,
    EventIdTooLong,
    EventNotFound,
    ExtensionKeyInvalid,
    ExtensionsTooLarge,
    GroupUnknown,
    HeightUnknown,
    LedgerUnavailable,
    Overloaded,
    PageIndexInvalid,
    PageSizeInvalid,
    ParameterInvalid,
    TopicBlank,
    TopicInvalid,
    TopicNotFound,
    TopicTooLong,
    TransactionFailed,
    TransactionTimeout,
    UnknownError,
)
from ._declarations import BatchMethod, Operation
from ._parameters import (
    ContentKind,
    EventIdKind,
    ExtensionsKind,
    GroupKind,
    NumberKind,
    Parameter,
    TopicKind,
)
from ._results import BOOLEAN, EVENT, SEND_RESULT, TOPIC_PAGE, TOPIC_STATE

COMMON_ERRORS: Final = (
    ParameterInvalid,
    GroupUnknown,
    LedgerUnavailable,
    TransactionTimeout,
    UnknownError,
)
"""What every operation can answer."""

_TOPIC_ERRORS = (TopicBlank, TopicTooLong, TopicInvalid)
_WRITE_ERRORS = (Overloaded, TransactionFailed)

GROUP: Final = Parameter(
    name="groupId",
    kind=GroupKind(),
    default=None,
    description="The group; absent or blank means 1.",
)
TOPIC: Final = Parameter(
    name="topic",
    kind=TopicKind(),
    absent=TopicBlank,
    description="The topic's name: 1 to 256 characters in [32,128], none of them + or #.",
)
CONTENT: Final = Parameter(
    name="content",
    kind=ContentKind(),
    absent=ContentBlank,
    description="The event's content: any bytes, kept exactly as they are.",
)
EXTENSIONS: Final = Parameter(
    name="extensions",
    kind=ExtensionsKind(),
    default={},
    description="What the publisher adds: texts under keys that start with svc-.",
)
EVENT_ID: Final = Parameter(
    name="eventId",
    kind=EventIdKind(),
    absent=EventIdBlank,
    description="The event's id, as publish answered it.",
)
PAGE_INDEX: Final = Parameter(
    name="pageIndex",
    kind=NumberKind(PageIndexInvalid, 0),
    default=0,
    description="The page, counted from 0.",
)
PAGE_SIZE: Final = Parameter(
    name="pageSize",
    kind=NumberKind(PageSizeInvalid),
    default=DEFAULT_PAGE_SIZE,
    description="How many items a page has: 1 to 99; another number means 10.",
)

OPERATIONS: Final = (
    Operation(
        name="open",
        summary="Create a topic, or open it again.",
        parameters=(TOPIC, GROUP),
        result=BOOLEAN,
        errors=(*_TOPIC_ERRORS, *_WRITE_ERRORS),
        method=lambda broker: broker.open,
    ),
    Operation(
        name="close",
        summary="Close an open topic.",
        parameters=(TOPIC, GROUP),
        result=BOOLEAN,
        errors=(*_TOPIC_ERRORS, TopicNotFound, *_WRITE_ERRORS),
        method=lambda broker: broker.close,
    ),
    Operation(
        name="exist",
        summary="Tell whether there is such an open topic.",
        parameters=(TOPIC, GROUP),
        result=BOOLEAN,
        errors=_TOPIC_ERRORS,
        method=lambda broker: broker.exist,
    ),
    Operation(
        name="publish",
        summary="Publish an event to an open topic.",
        parameters=(TOPIC, GROUP, CONTENT, EXTENSIONS),
        result=SEND_RESULT,
        errors=(
            *_TOPIC_ERRORS,
            ContentBlank,
            ContentTooLarge,
            ExtensionKeyInvalid,
            ExtensionsTooLarge,
            TopicNotFound,
            *_WRITE_ERRORS,
        ),
        method=lambda broker: broker.publish,
        batch=BatchMethod(item=Publication, method=lambda broker: broker.publishTogether),
    ),
    Operation(
        name="getEvent",
        summary="Read one event.",
        parameters=(EVENT_ID, GROUP),
        result=EVENT,
        errors=(EventIdBlank, EventIdTooLong, EventIdInvalid, EventNotFound, HeightUnknown),
        method=lambda broker: broker.getEvent,
    ),
    Operation(
        name="list",
        summary="List the open topics in the order of their creation.",
        parameters=(PAGE_INDEX, PAGE_SIZE, GROUP),
        result=TOPIC_PAGE,
        errors=(PageIndexInvalid, PageSizeInvalid),
        method=lambda broker: broker.list,
        isGroupFirst=False,
    ),
    Operation(
        name="state",
        summary="Tell what the chain knows of an open topic.",
        parameters=(TOPIC, GROUP),
        result=TOPIC_STATE,
        errors=(*_TOPIC_ERRORS, TopicNotFound),
        method=lambda broker: broker.state,
    ),
)
