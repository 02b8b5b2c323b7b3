"""
Subscribing with a URL, and all operations together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from ..errors import (
    EventIdInvalid,
    EventIdTooLong,
    EventNotFound,
    HeightUnknown,
    Overloaded,
    ParameterInvalid,
    PatternInvalid,
    SubscriptionExists,
    SubscriptionIdBlank,
    SubscriptionIdInvalid,
    SubscriptionNotFound,
    TopicBlank,
    TopicInvalid,
    TopicNotFound,
    TopicTooLong,
    UrlInvalid,
)
from ..model import Edge, Offset, checkFilter, parseOffset
from . import _operations
from ._declarations import Operation
from ._operations import GROUP
from ._parameters import Kind, Parameter
from ._proving import PROVING
from ._results import BOOLEAN, STRING

MAX_FILTERS: Final = 100
"""The most topics and patterns that one subscription may have."""
MAX_TAG: Final = 8192
"""The longest tag in bytes: as long as extensions may be."""

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)


class FiltersKind(Kind):
    """
    Topics and patterns with commas between them. So a topic with a comma in its name is
    subscribed to with a pattern only.
    """

    schema: Mapping[str, Any] = {"type": "string", "minLength": 1}

    def fromText(self, raw: bytes) -> tuple[str, ...]:
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError:
            raise TopicInvalid() from None
        return self.fromJSON(text)

    def fromJSON(self, value: object) -> tuple[str, ...]:
        text: str = super().fromJSON(value)
        if text.count(",") >= MAX_FILTERS:
            raise ParameterInvalid(f"there are more than {MAX_FILTERS} topics")
        filters = tuple(dict.fromkeys(text.split(",")))
        for filter in filters:
            checkFilter(filter)
        return filters


class SubscriptionIdKind(Kind):
    """A subscription's id: a UUID, of either case."""

    schema: Mapping[str, Any] = {"type": "string", "format": "uuid"}

    def fromText(self, raw: bytes) -> str | None:
        return self.fromJSON(super().fromText(raw))

    def fromJSON(self, value: object) -> str | None:
        text: str = super().fromJSON(value).lower()
        if not text.strip():
            return self.blank()
        if _UUID.fullmatch(text) is None:
            raise SubscriptionIdInvalid()
        return text

    def blank(self) -> str | None:
        """What only spaces are."""
        raise SubscriptionIdBlank()


class OptionalSubscriptionIdKind(SubscriptionIdKind):
    """A subscription's id, where only spaces are none."""

    def blank(self) -> str | None:
        return None


class OffsetKind(Kind):
    """Where a subscription starts."""

    def fromText(self, raw: bytes) -> Offset:
        return parseOffset(super().fromText(raw))

    def fromJSON(self, value: object) -> Offset:
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        return parseOffset(super().fromJSON(value))


class TagKind(Kind):
    """A tag: any text that an extension can hold."""

    def fromText(self, raw: bytes) -> str:
        return self.fromJSON(super().fromText(raw))

    def fromJSON(self, value: object) -> str:
        text: str = super().fromJSON(value)
        try:
            size = len(text.encode("utf-8"))
        except UnicodeEncodeError:
            raise ParameterInvalid("tag is not valid Unicode text") from None
        if size > MAX_TAG:
            raise ParameterInvalid(f"tag is longer than {MAX_TAG} bytes")
        return text


_FILTERS = Parameter(
    name="topic",
    kind=FiltersKind(),
    absent=TopicBlank,
    description="A topic, a pattern of MQTT's kind, or several with commas between them.",
)
_OWN_ID = Parameter(
    name="subscriptionId",
    kind=OptionalSubscriptionIdKind(),
    default=None,
    description="A UUID to know the subscription by; absent or blank has one made.",
)
_URL = Parameter(
    name="url",
    kind=Kind(),
    absent=UrlInvalid,
    description="Where events are sent by POST: http or https.",
)
_OFFSET = Parameter(
    name="offset",
    kind=OffsetKind(),
    default=Edge.LAST,
    description="Where it starts: OFFSET_FIRST, OFFSET_LAST, after an event's id, or at a height.",
)
_TAG = Parameter(
    name="tag",
    kind=TagKind(),
    default=None,
    description="Only events whose extension svc-tag equals it.",
)
_ID = Parameter(
    name="subscriptionId",
    kind=SubscriptionIdKind(),
    absent=SubscriptionIdBlank,
    description="The id that subscribe answered.",
)

SUBSCRIBE: Final = Operation(
    name="subscribe",
    summary="Have events sent to a URL.",
    parameters=(_FILTERS, GROUP, _OWN_ID, _URL, _OFFSET, _TAG),
    result=STRING,
    errors=(
        TopicBlank,
        TopicTooLong,
        TopicInvalid,
        PatternInvalid,
        SubscriptionIdInvalid,
        SubscriptionExists,
        UrlInvalid,
        EventIdTooLong,
        EventIdInvalid,
        EventNotFound,
        HeightUnknown,
        TopicNotFound,
        Overloaded,
    ),
    method=lambda broker: broker.webhooks.subscribe,
    isByInterface=True,
)
UNSUBSCRIBE: Final = Operation(
    name="unSubscribe",
    summary="Have events sent to a URL no more.",
    parameters=(_ID,),
    result=BOOLEAN,
    errors=(SubscriptionIdBlank, SubscriptionIdInvalid, SubscriptionNotFound),
    method=lambda broker: broker.webhooks.unSubscribe,
)

OPERATIONS: Final = (*_operations.OPERATIONS, SUBSCRIBE, UNSUBSCRIBE, *PROVING)
"""All operations."""
