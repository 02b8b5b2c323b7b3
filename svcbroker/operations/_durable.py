"""
The calls about durable subscriptions and MQTT sessions, for those who have made them and for
operators: list, reset, delete.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from attrs import evolve
from msgspec import Struct
from twisted.internet.defer import Deferred

from .. import model
from ..access import Principal
from ..broker import Broker
from ..errors import (
    EventIdInvalid,
    EventIdTooLong,
    EventNotFound,
    HeightUnknown,
    ParameterInvalid,
    SubscriptionExists,
    SubscriptionNotFound,
)
from ._declarations import Operation, Parameter, Result
from ._parameters import AFTER, GROUP
from ._results import BOOLEAN, envelope, same, utc
from ._types import NumberType, OffsetType, ParameterType

MAX_DURABLE: Final = 1000
"""The most durable subscriptions that a call may name, and that a page may have."""

_GONE_ERRORS = (SubscriptionNotFound, SubscriptionExists)
_PROTOCOLS = (model.InterfaceType.STOMP, model.InterfaceType.MQTT)


class DurableType(ParameterType):
    """A protocol whose subscriptions outlive connections."""

    schema = {"enum": [each.value for each in _PROTOCOLS]}

    def fromText(self, raw: bytes) -> model.InterfaceType:
        return self.fromJSON(super().fromText(raw))

    def fromJSON(self, value: object) -> model.InterfaceType:
        for each in _PROTOCOLS:
            if value == each.value:
                return each
        raise ParameterInvalid(
            "is neither STOMP nor MQTT (for webhooks see listWebhooks and unSubscribe, or the "
            "command svcbroker webhook)"
        )


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

_LIST = Operation(
    name="subscriptions/list",
    summary="List durable subscriptions of STOMP, or sessions of MQTT, with or without a client.",
    parameters=(
        GROUP,
        _TYPE,
        AFTER,
        Parameter(
            name="limit",
            type=NumberType(ParameterInvalid, 1, MAX_DURABLE),
            default=100,
            description=f"The most on a page, {MAX_DURABLE} at most. There may be fewer though "
            "there is a next page.",
        ),
    ),
    result=envelope(DurableSubscriptions, durableOf),
    method=lambda broker: broker.operator.listDurable,
)
_ID = Parameter(
    name="id",
    type=ParameterType(),
    description="The id of the subscription, or of the client.",
)
_RESET = Operation(
    name="subscriptions/reset",
    summary="Have a durable subscription, or all of a session but its shared ones, resume "
    "elsewhere. Refused while a client uses it.",
    parameters=(
        GROUP,
        _TYPE,
        _ID,
        Parameter(
            name="offset",
            type=OffsetType(),
            description="Where it resumes: OFFSET_FIRST, OFFSET_LAST, after an event's id, at a "
            "height, or at OFFSET_TIME: with a time.",
        ),
    ),
    result=envelope(bool, same),
    errors=(
        *_GONE_ERRORS,
        EventIdInvalid,
        EventIdTooLong,
        EventNotFound,
        HeightUnknown,
    ),
    method=lambda broker: broker.operator.resetDurable,
)

DURABLE_CALLS: Final = (
    _LIST,
    _RESET,
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
"""Those of operators; see L{OPERATOR_CALLS<svcbroker.operations.OPERATOR_CALLS>}."""


def _deletingOne(broker: Broker) -> Callable[..., Deferred[bool]]:
    def delete(principal: Principal, id: str, **given: Any) -> Deferred[bool]:
        deleting = broker.operator.deleteDurable(principal, ids=(id,), **given)
        answer: Deferred[bool] = deleting.addCallback(bool)
        return answer

    return delete


DURABLE_OPERATIONS: Final = (
    evolve(
        _LIST,
        name="listDurableSubscriptions",
        summary="List durable subscriptions of STOMP, or sessions of MQTT, with or without a "
        "client: those that this account has made, or without accounts clients of this address; of "
        "an operator's account, all of the group.",
        result=Result(type=DurableSubscriptions, render=durableOf),
        isByAddress=True,
    ),
    evolve(_RESET, name="resetDurableSubscription", result=BOOLEAN, isByAddress=True),
    Operation(
        name="deleteDurableSubscription",
        summary="End a durable subscription, or a session, and forget where it stands. Refused "
        "while a client uses it.",
        parameters=(GROUP, _TYPE, _ID),
        result=BOOLEAN,
        errors=_GONE_ERRORS,
        method=_deletingOne,
        isByAddress=True,
    ),
)
"""
Those of clients, about their own; see L{OPERATIONS<svcbroker.operations.OPERATIONS>}.
"""
