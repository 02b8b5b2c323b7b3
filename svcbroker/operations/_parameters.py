"""
The parameters that calls of several tables have.
"""

from __future__ import annotations

from typing import Final

from ..broker import DEFAULT_PAGE_SIZE
from ..errors import ContentBlank, PageSizeInvalid, SubscriptionIdBlank, TopicBlank
from ..model import EventFormat
from ._declarations import OMITTED, Parameter
from ._types import (
    ContentType,
    ErasedType,
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
    description="The topic's name: 1 to 256 characters in [32,128], none of them + or #.",
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
