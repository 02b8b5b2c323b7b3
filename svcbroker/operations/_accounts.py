"""
The calls about accounts: what is granted to them, what they use, and why something is granted.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from .. import broker
from ..access import AccountStatus
from ..errors import ParameterInvalid, TopicBlank, TopicInvalid, TopicTooLong
from ..interfaces import Action, GrantLine
from ._declarations import Operation, Parameter, Result
from ._parameters import AFTER, GROUP
from ._types import NumberType, ParameterType

_ACTIONS: Final = {each.value: each for each in Action}


class ActionType(ParameterType):
    """Something that is granted."""

    schema = {"enum": list(_ACTIONS)}

    def fromText(self, raw: bytes) -> Action:
        return self.fromJSON(super().fromText(raw))

    def fromJSON(self, value: object) -> Action:
        if not isinstance(value, str) or value not in _ACTIONS:
            raise ParameterInvalid(f"is none of {', '.join(_ACTIONS)}")
        return _ACTIONS[value]


class TopicNameType(ParameterType):
    """A topic's name, which is checked where the action needs one."""

    def fromText(self, raw: bytes) -> str:
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise TopicInvalid() from None


class Grant(Struct, frozen=True):
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


class Account(Struct, frozen=True):
    """
    An account: the grants that are about the group, its quotas, and what it uses now: open
    connections, live subscriptions, and, where that is limited, publishes that wait for their
    answer. The name is empty for clients without credentials.
    """

    account: str
    grants: list[Grant]
    limits: AccountLimits
    connections: int
    subscriptions: int
    inflight: int


class Accounts(Struct, frozen=True):
    """
    A page of accounts, in the order of their names. The next page begins after the name in next,
    which is null on the last page.
    """

    accounts: list[Account]
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


def accountsOf(page: broker.AccountPage) -> Accounts:
    """Make the record of a page."""
    return Accounts(
        accounts=[_account(status, [*lines]) for status, lines in page.items], next=page.next
    )


def _account(status: AccountStatus, lines: list[GrantLine]) -> Account:
    quotas = status.quotas
    return Account(
        account=status.name,
        grants=[Grant(each.text, each.role) for each in lines],
        limits=AccountLimits(
            publishes=quotas.publishes,
            bytes=quotas.bytes,
            connections=quotas.connections,
            subscriptions=quotas.subscriptions,
            sessions=quotas.sessions,
            retained=quotas.retained,
            inflight=quotas.inflight,
        ),
        **status.used,
    )


def explanationOf(answer: broker.AccessAnswer) -> AccessExplanation:
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
            Parameter(
                name="limit",
                type=NumberType(ParameterInvalid, 1, broker.MAX_ACCOUNTS),
                default=100,
                description="The most on a page.",
            ),
        ),
        result=Result(type=Accounts, render=accountsOf),
        method=lambda broker: broker.accounts.listAccounts,
    ),
    Operation(
        name="explainAccess",
        summary="Tell whether something is granted to this account, and why; an operator's account "
        "may ask about others.",
        parameters=(
            GROUP,
            Parameter(
                name="action",
                type=ActionType(),
                description=f"What is to be done: {', '.join(_ACTIONS)}.",
            ),
            Parameter(
                name="topic",
                type=TopicNameType(),
                default="",
                description="The topic's name; absent for admin, operate and metrics.",
            ),
            Parameter(
                name="account",
                type=ParameterType(),
                default=None,
                description="The account; absent means the one that asks.",
            ),
            Parameter(
                name="clientId",
                type=ParameterType(),
                default=None,
                description="The MQTT client id, where grants depend on it.",
            ),
        ),
        result=Result(type=AccessExplanation, render=explanationOf),
        errors=(TopicBlank, TopicTooLong, TopicInvalid),
        method=lambda broker: broker.accounts.explainAccess,
    ),
)
"""See L{OPERATIONS<svcbroker.operations.OPERATIONS>}."""
