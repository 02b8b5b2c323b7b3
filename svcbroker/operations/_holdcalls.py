"""
The operator calls that keep events from being erased, and what an erasure would do.
"""

from __future__ import annotations

import re
from typing import Final, cast

from msgspec import Struct

from .. import broker, model
from ..errors import (
    EventIdBlank,
    NotAuthorized,
    ParameterInvalid,
    PatternInvalid,
    TransactionFailed,
)
from ._declarations import (
    GROUP,
    OFFSET_ERRORS,
    OMITTED,
    TOPIC_ERRORS,
    Operation,
    Parameter,
    limitOf,
)
from ._results import envelope
from ._types import EventIdType, NumberType, ParameterType

_MAX_PAGE: Final = 100
"""The most holds in an answer: 16 patterns each."""
_PLACE: Final = re.compile(r"(\d{1,15})-(\d{1,9})", re.ASCII)


MAX_EVENT_IDS: Final = 1000
"""The most ids of events in a call."""


class EventIdsType(ParameterType):
    """Ids of events, in a list."""

    def fromJSON(self, value: object) -> tuple[model.EventId, ...]:
        if not isinstance(value, list) or not 1 <= len(value) <= MAX_EVENT_IDS:
            raise ParameterInvalid(f"is not a list of 1 to {MAX_EVENT_IDS} ids")
        return tuple(map(EventIdType().fromJSON, value))


class PatternsType(ParameterType):
    """Topics and patterns, in a list."""

    def fromJSON(self, value: object) -> tuple[str, ...]:
        isList = isinstance(value, list) and all(isinstance(each, str) for each in value)
        if not isList or not value:
            raise ParameterInvalid("is not a list of topics and patterns")
        return tuple(dict.fromkeys(cast(list[str], value)))


class PlaceType(ParameterType):
    """The place of a hold: the height of its block, and the index of its transaction in that."""

    def fromJSON(self, value: object) -> tuple[int, int]:
        found = _PLACE.fullmatch(super().fromJSON(value))
        if found is None:
            raise ParameterInvalid("is not the next of an answer")
        return int(found[1]), int(found[2])


class ReasonType(ParameterType):
    """The reason that the chain keeps of what an operator has done."""

    def fromJSON(self, value: object) -> str:
        text: str = super().fromJSON(value)
        try:
            size = len(text.encode("utf-8"))
        except UnicodeEncodeError:
            raise ParameterInvalid("is not valid Unicode text") from None
        if not text.strip() or size > model.MAX_REASON:
            raise ParameterInvalid(f"is not 1 to {model.MAX_REASON} bytes of text")
        return text


class ChangedHoldResult(Struct, frozen=True):
    """
    A hold or a release that is final: its transaction and block, which prove it.
    """

    transHash: str
    blockNumber: int


class HeldEventResult(Struct, frozen=True):
    """An event by its topic and its number in it."""

    topicName: str
    sequence: int


class ReleaseResult(Struct, frozen=True):
    """
    The release of a hold: who has asked for it and why; and its transaction, with the block and its
    time in milliseconds since the epoch.
    """

    account: str
    reason: str
    transHash: str
    blockNumber: int
    timestamp: int


class HoldResult(Struct, frozen=True):
    """
    A hold: its case, who has asked for it and why; the patterns of topics that it holds, or how
    many events, and these where one case was asked for; its transaction, with the block and its
    time in milliseconds since the epoch; and its release, or C{null} while it is in force.
    """

    case: str
    account: str
    reason: str
    topics: list[str]
    eventCount: int
    events: list[HeldEventResult]
    transHash: str
    blockNumber: int
    timestamp: int
    release: ReleaseResult | None


class HoldsResult(Struct, frozen=True):
    """Holds, and how many there are in all."""

    total: int
    holds: list[HoldResult]


class ReleasedHoldsResult(Struct, frozen=True):
    """Holds that were released, and what the next call gives as C{after}; C{null} at the end."""

    holds: list[HoldResult]
    next: str | None


class HeldRangeResult(Struct, frozen=True):
    """The events of a topic that a hold keeps, from the first number to the last."""

    case: str
    topicName: str
    first: int
    last: int


class ErasurePreviewResult(Struct, frozen=True):
    """
    The preview of an erasure: how many events it would erase, how many are held, and by which
    cases: the first thousand ranges.
    """

    erasable: int
    held: int
    holds: list[HeldRangeResult]


def changedHold(receipt: model.Receipt) -> ChangedHoldResult:
    """Make the record of a hold or a release that is final."""
    return ChangedHoldResult(
        transHash=f"0x{receipt.transactionHash.hex()}", blockNumber=receipt.height
    )


def _holdOf(hold: model.HoldRecord) -> HoldResult:
    release = hold.release
    return HoldResult(
        case=hold.case,
        account=hold.account,
        reason=hold.reason,
        topics=list(hold.patterns),
        eventCount=hold.eventCount,
        events=[HeldEventResult(topic, sequence) for topic, sequence in hold.events],
        transHash=f"0x{hold.hash.hex()}",
        blockNumber=hold.height,
        timestamp=hold.timestamp,
        release=None
        if release is None
        else ReleaseResult(
            account=release.account,
            reason=release.reason,
            transHash=f"0x{release.hash.hex()}",
            blockNumber=release.height,
            timestamp=release.timestamp,
        ),
    )


def _holdsOf(page: model.Page[model.HoldRecord]) -> HoldsResult:
    return HoldsResult(total=page.total, holds=[_holdOf(each) for each in page.items])


def _releasedOf(page: model.ReleasedPage) -> ReleasedHoldsResult:
    return ReleasedHoldsResult(
        holds=[_holdOf(each) for each in page.items],
        next=None if page.next is None else "{}-{}".format(*page.next),
    )


def previewOf(preview: broker.ErasurePreview) -> ErasurePreviewResult:
    """Make the record of what an erasure would do."""
    ranges = [
        HeldRangeResult(each.case, topic, each.first, each.last)
        for topic, some in preview.held.items()
        for each in some
    ]
    return ErasurePreviewResult(erasable=preview.erasable, held=preview.heldCount, holds=ranges)


_CASE: Final = Parameter(
    name="case",
    type=ParameterType(),
    description="The name of the hold: 1 to 64 characters of ASCII without spaces.",
)
_REASON: Final = Parameter(
    name="reason",
    type=ReasonType(),
    description=f"Why, in at most {model.MAX_REASON} bytes, as the chain keeps it.",
)

HOLD_CALLS: Final = (
    Operation(
        name="holds/add",
        summary="Keep events from being erased until the hold is released. It takes the grant "
        "``hold``.",
        parameters=(
            GROUP,
            _CASE,
            _REASON,
            Parameter(
                name="topics",
                type=PatternsType(),
                default=OMITTED,
                argument="patterns",
                description="Patterns of topics, at most "
                f"{model.MAX_HOLD_PATTERNS}: all their events are held, later ones too.",
            ),
            Parameter(
                name="events",
                type=EventIdsType(),
                default=OMITTED,
                description=f"Or the ids of the events, at most {model.MAX_HELD_EVENTS}.",
            ),
        ),
        result=envelope(ChangedHoldResult, changedHold),
        errors=(
            *(EventIdBlank, *OFFSET_ERRORS, *TOPIC_ERRORS),
            *(PatternInvalid, NotAuthorized, TransactionFailed),
        ),
        method=lambda calls: calls.holding.add,
    ),
    Operation(
        name="holds/release",
        summary="End a hold, so that its events may be erased, unless another one holds them. It "
        "takes the grant ``hold``.",
        parameters=(GROUP, _CASE, _REASON),
        result=envelope(ChangedHoldResult, changedHold),
        errors=(NotAuthorized,),
        method=lambda calls: calls.holding.release,
    ),
    Operation(
        name="holds/list",
        summary="List the holds that are in force.",
        parameters=(
            GROUP,
            Parameter(
                name="case",
                type=ParameterType(),
                default=None,
                description="Only that of this case, with the events that it names.",
            ),
            Parameter(
                name="offset",
                type=NumberType(ParameterInvalid, 0, model.MAX_HOLDS),
                default=0,
                description="How many to leave out at the start.",
            ),
            limitOf(_MAX_PAGE),
        ),
        result=envelope(HoldsResult, _holdsOf),
        errors=(NotAuthorized,),
        method=lambda calls: calls.holding.list,
        changedBy=(),
    ),
    Operation(
        name="holds/released",
        summary="List the holds that were released, with their releases, the latest hold first.",
        parameters=(
            GROUP,
            Parameter(
                name="case",
                type=ParameterType(),
                default=None,
                description="Only those of this case, with the events that they name.",
            ),
            Parameter(
                name="after",
                type=PlaceType(),
                default=None,
                argument="before",
                description="The ``next`` of the answer before.",
            ),
            limitOf(_MAX_PAGE),
        ),
        result=envelope(ReleasedHoldsResult, _releasedOf),
        errors=(NotAuthorized,),
        method=lambda calls: calls.holding.listReleased,
        changedBy=(),
    ),
)
"""See L{OPERATOR_CALLS<svcbroker.operations.OPERATOR_CALLS>}."""
