"""
What operators may ask.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from twisted.internet.defer import Deferred, succeed

from ..access import Principal
from ..errors import BrokerError, ParameterInvalid
from ..interfaces import Action, ILedger, IMeasuredLedger
from ..model import (
    BlockRecord,
    Disk,
    GroupMeasures,
    Health,
    NodeRecord,
    Page,
    Statistics,
    SubscriptionRecord,
    TransactionRecord,
)
from ..net.deferreds import asDeferred
from ..version import VersionRecord
from ._dependencies import ISubscriptionDirectory
from ._groups import Groups
from ._timeouts import TimeoutQueue
from ._values import NumberedPage, T, appliedSize, pageOffset

_FIRST_PAGE = 1
_MAX_QUOTED: Final = 300


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
        metadataLoss: Callable[[], str] = lambda: "",
        measureDisk: Callable[[], Deferred[Disk | None]] = lambda: succeed(None),
    ) -> None:
        """
        @param version: what L{getVersion} tells.
        @param nodeAddress: this broker's address, C{host:port}.
        @param subscriptions: those of this broker.
        @param metadataLoss: tells what the metadata store has lost, in one line.
        @param measureDisk: measures the disk of the data directory.
        """
        self._groups = groups
        self._timeouts = timeouts
        self._version = version
        self._address = nodeAddress
        self._subscriptions = subscriptions
        self._measureDisk = measureDisk
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
        """Which svcbroker this is."""
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
        """What a group's ledger tells of itself, as far as it does, and of the disk."""
        ledger = self._ledger(principal, groupId)
        measured: IMeasuredLedger | None = IMeasuredLedger(ledger, None)
        return GroupMeasures(
            ledger=None if measured is None else measured.measure(),
            disk=await self._timeouts.wait(self._measureDisk()),
        )

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
