"""
The operator calls about durable subscriptions and MQTT sessions: list, reset, delete.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from .. import model
from ..errors import (
    EventIdInvalid,
    EventIdTooLong,
    EventNotFound,
    HeightUnknown,
    ParameterInvalid,
    SubscriptionExists,
    SubscriptionNotFound,
)
from ._declarations import Operation, Parameter
from ._parameters import AFTER, GROUP
from ._results import envelope, same, utc
from ._types import OffsetType, ParameterType

MAX_DURABLE: Final = 1000
"""The most durable subscriptions that a call may name, and that a page may have."""

_GONE_ERRORS = (SubscriptionNotFound, SubscriptionExists)


class DurableType(ParameterType):
    """A protocol whose subscriptions outlive connections."""

    def fromJSON(self, value: object) -> model.InterfaceType:
        for each in (model.InterfaceType.STOMP, model.InterfaceType.MQTT):
            if value == each.value:
                return each
        raise ParameterInvalid(
            "is neither STOMP nor MQTT (webhooks are listed by webhooks/list and ended by "
            "webhooks/delete)"
        )


class LimitType(ParameterType):
    """How many items there may be on a page."""

    def fromJSON(self, value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_DURABLE:
            raise ParameterInvalid(f"is not a whole number from 1 to {MAX_DURABLE}")
        return value


class IdsType(ParameterType):
    """Ids of durable subscriptions, or client ids."""

    def fromJSON(self, value: object) -> tuple[str, ...]:
        if not isinstance(value, list) or not 1 <= len(value) <= MAX_DURABLE:
            raise ParameterInvalid(f"is not a list of 1 to {MAX_DURABLE} ids")
        if not all(isinstance(each, str) for each in value):
            raise ParameterInvalid("one of them is not a string")
        return tuple(value)


class DurableSubscription(Struct, frozen=True):
    """
    A durable subscription of STOMP, or a session of MQTT: its id, which of a session is the client
    id; the account or the address that made it; whether a client uses it now, and when one used it
    last; how many subscriptions it has; and the block in which the first event is that is not
    acknowledged, or that comes next.
    """

    id: str
    interfaceType: str
    groupId: str
    owner: str
    live: bool
    usedTimeStamp: str
    subscriptions: int
    blockNumber: int | None


class DurableSubscriptions(Struct, frozen=True):
    """
    A page of durable subscriptions, in the order of their ids. The next page begins after the id in
    next, which the last page has not.
    """

    subscriptions: list[DurableSubscription]
    next: str | None


def durableOf(page: model.DurablePage) -> DurableSubscriptions:
    """Make the record of a page."""
    return DurableSubscriptions(
        subscriptions=[
            DurableSubscription(
                id=each.id,
                interfaceType=each.interfaceType.value,
                groupId=each.group,
                owner=each.owner,
                live=each.isLive,
                usedTimeStamp=utc(each.usedAt),
                subscriptions=each.subscriptions,
                blockNumber=None if each.position is None else each.position.height,
            )
            for each in page.items
        ],
        next=page.next,
    )


_DURABLE = envelope(DurableSubscriptions, durableOf)
_TYPE = Parameter(
    name="interfaceType",
    type=DurableType(),
    description="STOMP: durable subscriptions, whose ids are those that their clients chose. MQTT: "
    "sessions that outlive connections, whose ids are the client ids.",
)

DURABLE_CALLS: Final = (
    Operation(
        name="subscriptions/list",
        summary="List durable subscriptions of STOMP, or sessions of MQTT, with or without a "
        "client.",
        parameters=(
            GROUP,
            _TYPE,
            AFTER,
            Parameter(
                name="limit",
                type=LimitType(),
                default=100,
                description=f"The most on a page, {MAX_DURABLE} at most. There may be fewer though "
                "there is a next page.",
            ),
        ),
        result=_DURABLE,
        method=lambda broker: broker.operator.listDurable,
    ),
    Operation(
        name="subscriptions/reset",
        summary="Have a durable subscription, or all of a session but its shared ones, resume "
        "elsewhere. Refused while a client uses it.",
        parameters=(
            GROUP,
            _TYPE,
            Parameter(
                name="id",
                type=ParameterType(),
                description="The id of the subscription, or of the client.",
            ),
            Parameter(
                name="offset",
                type=OffsetType(),
                description="Where it resumes: ``OFFSET_FIRST``, ``OFFSET_LAST``, after an event "
                "id, or with a block's height.",
            ),
        ),
        result=envelope(bool, same),
        errors=(*_GONE_ERRORS, EventIdInvalid, EventIdTooLong, EventNotFound, HeightUnknown),
        method=lambda broker: broker.operator.resetDurable,
    ),
    Operation(
        name="subscriptions/delete",
        summary="End durable subscriptions, or sessions, and forget where they stand. Refused "
        "while a client uses one of them. Tells how many were ended.",
        parameters=(
            GROUP,
            _TYPE,
            Parameter(
                name="ids",
                type=IdsType(),
                description=f"The ids of the subscriptions, or of the clients, {MAX_DURABLE} at "
                "most.",
            ),
        ),
        result=envelope(int, same),
        errors=_GONE_ERRORS,
        method=lambda broker: broker.operator.deleteDurable,
    ),
)
"""These calls; see L{OPERATOR_CALLS<svcbroker.operations.OPERATOR_CALLS>}."""
