"""
The operator call that erases events.
"""

from __future__ import annotations

from typing import Final

from .. import model
from ..errors import (
    EventIdBlank,
    EventIdInvalid,
    EventIdTooLong,
    EventNotFound,
    HeightUnknown,
    NotAuthorized,
    ParameterInvalid,
    TopicBlank,
    TopicInvalid,
    TopicNotFound,
    TopicTooLong,
    TransactionFailed,
)
from ..model import MAX_REASON
from ._declarations import OMITTED, Operation, Parameter
from ._parameters import GROUP
from ._results import envelope, same
from ._types import EventIdType, NumberType, OffsetType, ParameterType, TopicType

MAX_EVENTS: Final = 1000
"""The most ids of events in a call."""


class EventIdsType(ParameterType):
    """Ids of events."""

    def fromJSON(self, value: object) -> tuple[model.EventId, ...]:
        if not isinstance(value, list) or not 1 <= len(value) <= MAX_EVENTS:
            raise ParameterInvalid(f"is not a list of 1 to {MAX_EVENTS} ids")
        return tuple(map(EventIdType().fromJSON, value))


class ReasonType(ParameterType):
    """Why events are erased."""

    def fromJSON(self, value: object) -> str:
        text: str = super().fromJSON(value)
        try:
            size = len(text.encode("utf-8"))
        except UnicodeEncodeError:
            raise ParameterInvalid("is not valid Unicode text") from None
        if not text.strip() or size > MAX_REASON:
            raise ParameterInvalid(f"is not 1 to {MAX_REASON} bytes of text")
        return text


class BeforeType(OffsetType):
    """The end of a part of a topic: an event, or a time."""

    def fromJSON(self, value: object) -> model.EventId | model.Moment:
        offset = super().fromJSON(value)
        if not isinstance(offset, model.EventId | model.Moment):
            raise ParameterInvalid("is neither an event's id nor OFFSET_TIME: with a time")
        return offset


ERASE: Final = Operation(
    name="erase",
    summary="Erase the content of events, for good and on all nodes. The answer is how many events "
    "were named.",
    parameters=(
        GROUP,
        Parameter(
            name="reason",
            type=ReasonType(),
            description=f"Why, in at most {MAX_REASON} bytes. The chain keeps it, and readers of "
            "the events are shown it.",
        ),
        Parameter(
            name="events",
            type=EventIdsType(),
            default=OMITTED,
            description=f"The ids of the events, at most {MAX_EVENTS}.",
        ),
        Parameter(
            name="topic",
            type=TopicType(),
            default=OMITTED,
            description="A topic, open or closed, instead of events.",
        ),
        Parameter(
            name="first",
            type=NumberType(ParameterInvalid, 1),
            default=OMITTED,
            description="The sequence number of the topic's first event to erase; absent means 1.",
        ),
        Parameter(
            name="last",
            type=NumberType(ParameterInvalid, 1),
            default=OMITTED,
            description="The sequence number of the topic's last event to erase.",
        ),
        Parameter(
            name="before",
            type=BeforeType(),
            default=OMITTED,
            description="Instead of last: an event's id, or OFFSET_TIME: with a time. The topic's "
            "events before it are erased.",
        ),
    ),
    result=envelope(int, same),
    errors=(
        EventIdBlank,
        EventIdTooLong,
        EventIdInvalid,
        EventNotFound,
        HeightUnknown,
        TopicBlank,
        TopicTooLong,
        TopicInvalid,
        TopicNotFound,
        NotAuthorized,
        TransactionFailed,
    ),
    method=lambda broker: broker.erasing.erase,
)
"""See L{OPERATOR_CALLS<svcbroker.operations.OPERATOR_CALLS>}."""
