"""
The accounts and their grants, for operators and for the accounts themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from attrs import frozen

from ..access import Access, AccountStatus, Principal
from ..errors import ParameterInvalid
from ..interfaces import TOPIC_ACTIONS, Action, Decision, GrantLine, Identity
from ..model import checkTopicName
from ..net.deferreds import asDeferred
from ._groups import Groups

MAX_ACCOUNTS: Final = 1000
"""The most accounts that a page may have."""

_EVERY_GROUP: Final = "*"
_NO_ACCOUNTS: Final = Decision(True, "there are no accounts: every client may do everything")
_RESERVED: Final = Decision(False, "the topic is the broker's own")


@frozen(kw_only=True)
class AccountPage:
    """
    Some accounts, in the order of their names.

    @ivar items: each account with the lines of its grants that the reader may see.
    @ivar next: the name after which the next page begins; C{None} on the last page.
    """

    items: Sequence[tuple[AccountStatus, Sequence[GrantLine]]]
    next: str | None


@frozen(kw_only=True)
class AccessAnswer:
    """
    Whether an account may do something, and why.

    @ivar account: the account's name; empty for clients without credentials.
    @ivar topic: the topic; empty for actions on a whole group.
    """

    account: str
    action: Action
    group: str
    topic: str
    decision: Decision


class AccountQueries:
    """
    What accounts may do, and what they use of their quotas.

    An account may ask about itself. One that may operate a group may ask about all that have grants
    in it, and one that may operate all groups about all.
    """

    def __init__(
        self, groups: Groups, access: Access | None, reservedTopics: Collection[str]
    ) -> None:
        """
        @param access: knows the accounts; C{None} where there are none.
        @param reservedTopics: topics that only the broker writes to.
        """
        self._groups = groups
        self._access = None if access is None or access.isOpen else access
        self._reservedTopics = reservedTopics

    @asDeferred
    async def listAccounts(
        self,
        principal: Principal,
        groupId: str | None,
        after: str | None = None,
        limit: int = 100,
    ) -> AccountPage:
        """
        The accounts that have grants in a group, with the lines that are about it; of a principal
        that may not operate it, its own account. Without accounts there are none.

        @param after: only names greater than this one; C{None} for all.
        @param limit: the most to answer, 1 or more.
        """
        group = self._groups.resolve(principal, groupId)
        found: list[tuple[AccountStatus, Sequence[GrantLine]]] = []
        for status in self._visible(principal, group, after):
            if len(found) == limit:
                return AccountPage(items=found, next=found[-1][0].name)
            found.append((status, status.lines(None if self._operatesAll(principal) else group)))
        return AccountPage(items=found, next=None)

    def _visible(
        self, principal: Principal, group: str, after: str | None
    ) -> Iterator[AccountStatus]:
        if self._access is None:
            return
        identities: Mapping[str, Identity] = {principal.name: principal.identity}
        if principal.may(Action.OPERATE, group):
            identities = self._access.identities()
        for name in sorted(identities):
            if after is None or name > after:
                status = self._access.status(identities[name])
                if self._mayKnow(principal, group, status):
                    yield status

    def _mayKnow(self, principal: Principal, group: str, status: AccountStatus) -> bool:
        """Whether an operator of a group may know of an account."""
        return (
            status.name == principal.name
            or self._operatesAll(principal)
            or bool(status.lines(group))
        )

    def _operatesAll(self, principal: Principal) -> bool:
        return principal.may(Action.OPERATE, _EVERY_GROUP)

    @asDeferred
    async def explainAccess(
        self,
        principal: Principal,
        groupId: str | None,
        action: Action,
        topic: str = "",
        account: str | None = None,
        clientId: str | None = None,
    ) -> AccessAnswer:
        """
        Whether an account may do something, and the line that decides.

        @param topic: needed for actions on topics; ignored for others.
        @param account: the account's name; C{None} for the principal's own.
        @param clientId: the MQTT client id, on which grants may depend; C{None} for the
            principal's own.
        @raise TopicBlank, TopicTooLong, TopicInvalid: this is no topic's name.
        @raise ParameterInvalid: there is no such account, as far as the principal may know.
        @raise NotAuthorized: the account is another one, and the principal may not operate the
            group.
        """
        group = self._groups.resolve(principal, groupId)
        if action in TOPIC_ACTIONS:
            checkTopicName(topic)
        else:
            topic = ""
        name = principal.name if account is None else account
        if name != principal.name:
            principal.require(Action.OPERATE, group)
        if clientId is None:
            clientId = principal.clientId if name == principal.name else ""
        return AccessAnswer(
            account=name,
            action=action,
            group=group,
            topic=topic,
            decision=self._decide(principal, name, action, group, topic, clientId),
        )

    def _decide(
        self,
        principal: Principal,
        name: str,
        action: Action,
        group: str,
        topic: str,
        clientId: str,
    ) -> Decision:
        decision = _NO_ACCOUNTS
        if self._access is not None:
            identity: Identity | None = principal.identity
            if name != principal.name:
                identity = self._access.identities().get(name)
            status = None if identity is None else self._access.status(identity)
            if status is None or not self._mayKnow(principal, group, status):
                raise ParameterInvalid(f"account: there is no such account: {name[:100]}")
            decision = status.grants.decide(action, group, topic, clientId)
        elif name:
            raise ParameterInvalid("account: this broker has no accounts")
        isReserved = action is not Action.SUBSCRIBE and topic in self._reservedTopics
        return _RESERVED if isReserved and decision.isGranted else decision
