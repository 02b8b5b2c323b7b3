"""
The queries of operators, and the accounts and their grants, for operators and for the accounts
themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

from attrs import frozen
from twisted.internet.defer import Deferred, succeed

from ..access import Access, AccountStatus, Principal
from ..errors import BrokerError, ParameterInvalid
from ..interfaces import (
    TOPIC_ACTIONS,
    Action,
    Decision,
    GrantLine,
    Identity,
    ILedger,
    IMeasuredLedger,
    ISizedLedger,
)
from ..model import (
    BlockRecord,
    Disk,
    GroupMeasures,
    Health,
    NodeRecord,
    Page,
    Statistics,
    SubscriptionRecord,
    Topic,
    TransactionRecord,
)
from ..net.alarms import Alarm, Alarms, Incident
from ..net.budgets import WorkBudget
from ..net.deferreds import asDeferred
from ..net.history import HistoryPart, MeasureHistory
from ..version import VersionRecord
from ._collaborators import ISubscriptionDirectory, NumberedPage, T, appliedSize, pageOffset
from ._groups import Groups, TimeoutQueue, checkTopic

_FIRST_PAGE = 1
_MAX_QUOTED: Final = 300
_BLOCKS_AT_ONCE: Final = 16
"""The blocks that are read for a page of topics in a unit of work: about a millisecond."""


@frozen
class TopicActivity:
    """
    A topic, when its latest event came, and how many bytes its events take.

    @ivar lastAt: the time of the block of that event, in milliseconds since the epoch; C{None}
        where there is none.
    @ivar bytes: the bytes of its events in the log; C{None} where they are not known (yet).
    """

    topic: Topic
    lastAt: int | None
    bytes: int | None


class Administration:
    """
    The admin queries. They only read, from the ledgers' own truth.

    Paged ones count pages from 1, take a page size of 1 to 99 (anything else means 10) and
    fail with L{PageIndexInvalid<svcbroker.errors.PageIndexInvalid>} where there can be no such
    page. Otherwise what L{Broker} says of principals and failures holds here too.
    """

    def __init__(
        self,
        groups: Groups,
        timeouts: TimeoutQueue,
        *,
        version: VersionRecord,
        nodeAddress: str,
        subscriptions: ISubscriptionDirectory,
        listTopics: Callable[..., Deferred[NumberedPage[Topic]]],
        work: WorkBudget,
        metadataLoss: Callable[[], str] = lambda: "",
        measureDisk: Callable[[], Deferred[Disk | None]] = lambda: succeed(None),
        alarms: Alarms | None = None,
        history: MeasureHistory | None = None,
    ) -> None:
        """
        @param version: what L{getVersion} tells.
        @param nodeAddress: this broker's address, C{host:port}.
        @param subscriptions: those of this broker.
        @param listTopics: lists open topics as L{Broker.list<svcbroker.broker.Broker.list>}.
        @param work: says when there is time for more.
        @param metadataLoss: tells what the metadata store has lost, in one line.
        @param measureDisk: measures the disk of the data directory.
        @param alarms: what is wrong; C{None} where nothing looks.
        @param history: what was measured; C{None} where nothing is.
        """
        self._groups = groups
        self._timeouts = timeouts
        self._version = version
        self._address = nodeAddress
        self._subscriptions = subscriptions
        self._listTopics = listTopics
        self._work = work
        self._measureDisk = measureDisk
        self._alarms = alarms
        self._history = history
        self._metadataLoss = metadataLoss

    @asDeferred
    async def listGroups(self, principal: Principal) -> Sequence[str]:
        """The ids of the groups in which the principal may do something, in their order."""
        return [group for group in self._groups if principal.seesGroup(group)]

    @asDeferred
    async def listAddresses(self, principal: Principal) -> Sequence[str]:
        """
        The address of this broker, C{host:port}, which is one: each broker answers for itself.
        """
        principal.requireAny(Action.ADMIN, None)
        return [self._address]

    @asDeferred
    async def getVersion(self, principal: Principal) -> VersionRecord:
        """The version of this svcbroker."""
        principal.requireAny(Action.ADMIN, None)
        return self._version

    @asDeferred
    async def listSubscriptions(
        self, principal: Principal, groupId: str | None, nodeIp: Sequence[str]
    ) -> Mapping[str, Sequence[SubscriptionRecord]]:
        """
        The live subscriptions of this broker, by its address: the principal's own, and in groups
        that it may operate those of others too.

        @param groupId: only those of this group; C{None} or blank asks for all.
        @param nodeIp: the addresses that are asked for; none means this broker's.
        @raise ParameterInvalid: one of them is not this broker's.
        """
        group = self._groups.resolve(principal, groupId) if groupId and groupId.strip() else None
        for address in nodeIp:
            if address != self._address:
                raise ParameterInvalid(
                    f"nodeIp: this broker is {self._address}, and tells of no other; ask "
                    f"{address[:_MAX_QUOTED]} at its own URL"
                )
        return {self._address: await self._subscriptions.listSubscriptions(principal, group)}

    @asDeferred
    async def getStatistics(self, principal: Principal, groupId: str | None) -> Statistics:
        """A group's ledger in numbers."""
        return await self._timeouts.wait(self._ledger(principal, groupId).getStatistics())

    @asDeferred
    async def getMeasures(self, principal: Principal, groupId: str | None) -> GroupMeasures:
        """The measures of a group's ledger, as far as it has some, and of the disk."""
        ledger = self._ledger(principal, groupId)
        measured: IMeasuredLedger | None = IMeasuredLedger(ledger, None)
        return GroupMeasures(
            ledger=None if measured is None else measured.measure(),
            disk=await self._timeouts.wait(self._measureDisk()),
            auditedAt=None if self._alarms is None else self._alarms.auditedAt(ledger.group),
        )

    @asDeferred
    async def listAlarms(self, principal: Principal) -> Sequence[Alarm]:
        """
        The alarms of the broker and of the groups that the principal may query, as they are now.
        """
        principal.requireAny(Action.ADMIN, None)
        return await self.alarmsFor(principal)

    @asDeferred
    async def alarmsFor(self, principal: Principal) -> Sequence[Alarm]:
        """The same; none for a principal that may query no group."""
        if self._alarms is None or not principal.mayAny(Action.ADMIN, None):
            return ()
        raised = await self._alarms.look()
        return [
            each for each in raised if not each.group or principal.may(Action.ADMIN, each.group)
        ]

    @asDeferred
    async def listIncidents(self, principal: Principal) -> Sequence[Incident]:
        """The files that are kept of alarms that the principal may see, the newest first."""
        principal.requireAny(Action.ADMIN, None)
        kept = () if self._alarms is None else self._alarms.incidents
        return [each for each in kept if not each.group or principal.may(Action.ADMIN, each.group)]

    @asDeferred
    async def getHistory(self, principal: Principal, seconds: int) -> HistoryPart:
        """
        The measures of the whole broker in the last seconds.

        @param seconds: at most a day.
        """
        principal.requireAny(Action.ADMIN, None)
        history = self._history or MeasureHistory((), lambda: 0.0)
        return history.part(seconds)

    def listTransactions(
        self,
        principal: Principal,
        groupId: str | None,
        pageNumber: int,
        pageSize: int,
        transactionHash: bytes | None = None,
        blockNumber: int | None = None,
    ) -> Deferred[NumberedPage[TransactionRecord]]:
        """
        The transactions of the whole chain, newest first.

        @param transactionHash: only the one of this hash.
        @param blockNumber: only those of this block.
        """

        def read(ledger: ILedger, offset: int, limit: int) -> Deferred[Page[TransactionRecord]]:
            return ledger.listTransactions(offset, limit, height=blockNumber, hash=transactionHash)

        return self._page(principal, groupId, pageNumber, pageSize, read)

    def listBlocks(
        self,
        principal: Principal,
        groupId: str | None,
        pageNumber: int,
        pageSize: int,
        pkHash: bytes | None = None,
        blockNumber: int | None = None,
    ) -> Deferred[NumberedPage[BlockRecord]]:
        """
        The blocks from height 1, newest first.

        @param pkHash: only the block of this hash.
        @param blockNumber: only the block of this height.
        """

        def read(ledger: ILedger, offset: int, limit: int) -> Deferred[Page[BlockRecord]]:
            return ledger.listBlocks(offset, limit, height=blockNumber, hash=pkHash)

        return self._page(principal, groupId, pageNumber, pageSize, read)

    @asDeferred
    async def listTopics(
        self, principal: Principal, groupId: str | None, pageNumber: int, pageSize: int
    ) -> NumberedPage[TopicActivity]:
        """
        The open topics in the order of their creation that the principal may know of, when the
        latest event of each came, and how many bytes its events take.
        """
        ledger = self._ledger(principal, groupId)
        index = pageNumber - _FIRST_PAGE
        found = await self._listTopics(principal, index, pageSize, groupId)
        times: dict[int, int] = {}
        lane = self._work.lane()
        heights = {each.height for each in found.page.items if each.height}
        for number, height in enumerate(heights, 1):
            blocks = await self._timeouts.wait(ledger.listBlocks(0, 1, height=height))
            times.update((block.height, block.timestamp) for block in blocks.items)
            if not number % _BLOCKS_AT_ONCE:
                await lane.turn(isWrite=False)
        lane.end()
        names = [each.name for each in found.page.items]
        sized: ISizedLedger | None = ISizedLedger(ledger, None)
        sizes: Sequence[int | None] = [None] * len(names)
        if sized is not None:
            sizes = await self._timeouts.wait(sized.topicBytes(names))
        items = [
            TopicActivity(each, times.get(each.height), size)
            for each, size in zip(found.page.items, sizes, strict=True)
        ]
        page = Page(items=items, total=found.page.total)
        return NumberedPage(page=page, index=pageNumber, size=found.size)

    def listNodes(
        self,
        principal: Principal,
        groupId: str | None,
        pageNumber: int,
        pageSize: int,
        nodeName: str | None = None,
    ) -> Deferred[NumberedPage[NodeRecord]]:
        """
        The nodes that hold a group's ledger, in the order of their indexes.

        @param nodeName: only those of this name.
        """

        def read(ledger: ILedger, offset: int, limit: int) -> Deferred[Page[NodeRecord]]:
            return ledger.listNodes(offset, limit, name=nodeName)

        return self._page(principal, groupId, pageNumber, pageSize, read)

    @asDeferred
    async def getHealth(self) -> Mapping[str, Health]:
        """
        Whether each group's ledger makes progress, by the group's id; none is ready while it is not
        accepted that webhooks, positions or sessions were lost. Never fails.
        """
        asked = [
            (group, self._timeouts.wait(ledger.getHealth()))
            for group, ledger in self._groups.items()
        ]
        found = {group: await _orNot(answer) for group, answer in asked}
        lost = self._metadataLoss()
        if not lost:
            return found
        return {
            group: Health(isReady=False, reason="; ".join(filter(None, (health.reason, lost))))
            for group, health in found.items()
        }

    @asDeferred
    async def _page(
        self,
        principal: Principal,
        groupId: str | None,
        pageNumber: int,
        pageSize: int,
        read: Callable[[ILedger, int, int], Deferred[Page[T]]],
    ) -> NumberedPage[T]:
        ledger = self._ledger(principal, groupId)
        size = appliedSize(pageSize)
        offset = pageOffset(pageNumber, _FIRST_PAGE, size)
        page = await self._timeouts.wait(read(ledger, offset, size))
        return NumberedPage(page=page, index=pageNumber, size=size)

    def _ledger(self, principal: Principal, groupId: str | None) -> ILedger:
        """
        The ledger of a group that the principal may query.

        @raise GroupUnknown, NotAuthorized: there is none.
        """
        group, ledger = self._groups.find(principal, groupId)
        principal.require(Action.ADMIN, group)
        return ledger


async def _orNot(answer: Deferred[Health]) -> Health:
    try:
        return await answer
    except BrokerError as error:
        return Health(isReady=False, reason=error.message)


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
    The grants of accounts, and their use of their quotas.

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
        group, ledger = self._groups.find(principal, groupId)
        if action in TOPIC_ACTIONS:
            checkTopic(ledger, topic)
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
