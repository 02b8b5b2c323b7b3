"""
The calls about what clients have: accounts, with their grants and quotas, and durable
subscriptions. Accounts see and delete their own subscriptions; operators list, reset and delete
any.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

from attrs import evolve
from msgspec import Struct
from twisted.internet.defer import Deferred

from .. import broker, model
from ..access import AccountStatus, Principal
from ..broker import Calls
from ..errors import (
    EventIdInvalid,
    EventIdTooLong,
    EventNotFound,
    HeightUnknown,
    ParameterInvalid,
    SubscriptionExists,
    SubscriptionNotFound,
    TopicInvalid,
)
from ..interfaces import Action, GrantLine
from ._declarations import AFTER, GROUP, TOPIC_ERRORS, Operation, Parameter, Result, limitOf
from ._results import BOOLEAN, envelope, recordOf, utc
from ._types import NumberType, OffsetType, ParameterType

_ACTIONS: Final = {each.value: each for each in Action}


class _ActionType(ParameterType):
    """Something that is granted."""

    schema = {"enum": list(_ACTIONS)}

    def fromText(self, raw: bytes) -> Action:
        return self.fromJSON(super().fromText(raw))

    def fromJSON(self, value: object) -> Action:
        if not isinstance(value, str) or value not in _ACTIONS:
            raise ParameterInvalid(f"is none of {', '.join(_ACTIONS)}")
        return _ACTIONS[value]


class _TopicNameType(ParameterType):
    """A topic's name, which is checked where the action needs one."""

    def fromText(self, raw: bytes) -> str:
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise TopicInvalid() from None


class GrantResult(Struct, frozen=True):
    """
    One line of what is granted to an account, and the role that has it, which is empty where the
    line is of no role.
    """

    line: str
    role: str


class AccountLimits(Struct, frozen=True):
    """The quotas of an account; null is unlimited. The first two are a second."""

    publishes: float | None
    bytes: float | None
    connections: int | None
    subscriptions: int | None
    sessions: int | None
    retained: int | None
    inflight: int | None


class AccountResult(Struct, frozen=True):
    """
    An account: the grants that are about the group, its quotas, and what it uses now: open
    connections, live subscriptions, and, where that is limited, publishes that wait for their
    answer. The name is empty for clients without credentials.
    """

    account: str
    grants: list[GrantResult]
    limits: AccountLimits
    connections: int
    subscriptions: int
    inflight: int


class AccountsResult(Struct, frozen=True):
    """
    A page of accounts, in the order of their names. The next page begins after the name in next,
    which is null on the last page.
    """

    accounts: list[AccountResult]
    next: str | None


class AccessExplanation(Struct, frozen=True):
    """
    Whether something is granted to an account, the line that decides or why there is none, and the
    role that has the line, which is empty where there is none.
    """

    account: str
    action: str
    groupId: str
    topic: str
    granted: bool
    reason: str
    role: str


def _accountsOf(page: broker.AccountPage) -> AccountsResult:
    """Make the record of a page."""
    return AccountsResult(
        accounts=[_account(status, [*lines]) for status, lines in page.items], next=page.next
    )


def _account(status: AccountStatus, lines: list[GrantLine]) -> AccountResult:
    return AccountResult(
        account=status.name,
        grants=[GrantResult(each.text, each.role) for each in lines],
        limits=recordOf(AccountLimits)(status.quotas),
        **status.used,
    )


def _explanationOf(answer: broker.AccessAnswer) -> AccessExplanation:
    """Make the record of an answer."""
    return AccessExplanation(
        account=answer.account,
        action=answer.action.value,
        groupId=answer.group,
        topic=answer.topic,
        granted=answer.decision.isGranted,
        reason=answer.decision.reason,
        role=answer.decision.role,
    )


ACCOUNT_OPERATIONS: Final = (
    Operation(
        name="listAccounts",
        summary="List the accounts that have grants in the group, with their quotas: this account "
        "alone; of an operator's account, all.",
        parameters=(
            GROUP,
            AFTER,
            limitOf(broker.MAX_ACCOUNTS),
        ),
        result=Result(type=AccountsResult, render=_accountsOf),
        method=lambda calls: calls.accounts.listAccounts,
    ),
    Operation(
        name="explainAccess",
        summary="Tell whether something is granted to this account, and why; an operator's account "
        "may ask about others.",
        parameters=(
            GROUP,
            Parameter(
                name="action",
                type=_ActionType(),
                description=f"What is to be done: {', '.join(_ACTIONS)}.",
            ),
            Parameter(
                name="topic",
                type=_TopicNameType(),
                default="",
                description="The topic's name; absent for admin, operate and metrics.",
            ),
            Parameter(
                name="account",
                type=ParameterType(),
                default=None,
                description="The account; by default the one that asks.",
            ),
            Parameter(
                name="clientId",
                type=ParameterType(),
                default=None,
                description="The MQTT client id, where grants depend on it.",
            ),
        ),
        result=Result(type=AccessExplanation, render=_explanationOf),
        errors=TOPIC_ERRORS,
        method=lambda calls: calls.accounts.explainAccess,
    ),
)
"""See L{OPERATIONS<svcbroker.operations.OPERATIONS>}."""


class ConnectionResult(Struct, frozen=True):
    """
    A connection of a client: its protocol and address, the MQTT client id, which is empty for other
    protocols, the account that it acts for, which is empty for none, since when it is there, in
    milliseconds since the epoch, how many bytes its client has not read yet, how many deliveries
    may wait for its acknowledgement, 0 where it acknowledges nothing, and how many events the
    client has sent to be published, refused ones included.
    """

    protocol: Literal["http", "mqtt", "stomp"]
    remote: str
    clientId: str
    account: str
    connectedTimestamp: int
    unreadBytes: int
    window: int
    sentEvents: int


class ConnectionsResult(Struct, frozen=True):
    """Some connections of clients, and how many match in all."""

    connections: list[ConnectionResult]
    total: int


def _connectionsOf(page: broker.ConnectionPage) -> ConnectionsResult:
    """Make the record of a page."""
    return ConnectionsResult(
        connections=[
            ConnectionResult(
                each.protocol,  # type: ignore[arg-type]
                each.remote,
                each.client,
                each.account,
                int(each.unsent.openedAt * 1000),
                each.unsent.size,
                each.window,
                each.sent,
            )
            for each in page.items
        ],
        total=page.total,
    )


CONNECTION_CALLS: Final = (
    Operation(
        name="connections/list",
        summary="List the connections of clients to this broker.",
        parameters=(
            limitOf(broker.MAX_CONNECTIONS),
            Parameter(
                name="search",
                type=ParameterType(),
                default="",
                description="A part of the account, the address, the protocol or the MQTT client "
                "id.",
            ),
        ),
        result=envelope(ConnectionsResult, _connectionsOf),
        method=lambda calls: calls.operator.listConnections,
        changedBy=(),
    ),
    Operation(
        name="connections/close",
        summary="Close a connection of a client, which may connect again. Tells whether there was "
        "one.",
        parameters=(
            Parameter(
                name="protocol",
                type=ParameterType(),
                description="Its protocol: http, mqtt or stomp.",
            ),
            Parameter(name="remote", type=ParameterType(), description="The client's address."),
        ),
        result=envelope(bool),
        method=lambda calls: calls.operator.closeConnection,
    ),
)
"""Those of operators; see L{OPERATOR_CALLS<svcbroker.operations.OPERATOR_CALLS>}."""


_MAX_DURABLE: Final = 1000
"""The most durable subscriptions that a call may name, and that a page may have."""

_GONE_ERRORS = (SubscriptionNotFound, SubscriptionExists)
_PROTOCOLS = (model.InterfaceType.STOMP, model.InterfaceType.MQTT)


class _DurableType(ParameterType):
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


class _IdsType(ParameterType):
    """Ids of durable subscriptions, or client ids."""

    def fromJSON(self, value: object) -> tuple[str, ...]:
        if not isinstance(value, list) or not 1 <= len(value) <= _MAX_DURABLE:
            raise ParameterInvalid(f"is not a list of 1 to {_MAX_DURABLE} ids")
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


def _durableOf(page: model.DurablePage) -> DurableSubscriptions:
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


_DURABLE = envelope(DurableSubscriptions, _durableOf)
_TYPE = Parameter(
    name="interfaceType",
    type=_DurableType(),
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
            type=NumberType(ParameterInvalid, 1, _MAX_DURABLE),
            default=100,
            description=f"The most on a page, {_MAX_DURABLE} at most. There may be fewer though "
            "there is a next page.",
        ),
    ),
    result=envelope(DurableSubscriptions, _durableOf),
    method=lambda calls: calls.operator.listDurable,
    changedBy=(),
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
    result=envelope(bool),
    errors=(
        *_GONE_ERRORS,
        EventIdInvalid,
        EventIdTooLong,
        EventNotFound,
        HeightUnknown,
    ),
    method=lambda calls: calls.operator.resetDurable,
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
                type=_IdsType(),
                description=f"The ids of the subscriptions, or of the clients, {_MAX_DURABLE} at "
                "most.",
            ),
        ),
        result=envelope(int),
        errors=_GONE_ERRORS,
        method=lambda calls: calls.operator.deleteDurable,
    ),
)
"""Those of operators; see L{OPERATOR_CALLS<svcbroker.operations.OPERATOR_CALLS>}."""


def _deletingOne(calls: Calls) -> Callable[..., Deferred[bool]]:
    def delete(principal: Principal, id: str, **given: Any) -> Deferred[bool]:
        deleting = calls.operator.deleteDurable(principal, ids=(id,), **given)
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
        result=Result(type=DurableSubscriptions, render=_durableOf),
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
