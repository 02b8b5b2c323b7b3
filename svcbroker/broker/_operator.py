"""
The changes that an operator may make.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import permutations, product
from typing import Final

from attrs import frozen
from twisted.internet.defer import Deferred

from ..access import Principal
from ..chain import ValidatorChange, ValidatorSet
from ..errors import NoSuchCall, NotAuthorized, ParameterInvalid
from ..interfaces import Action, IFaultyLedger, ILedger, IValidatorSetLedger
from ..model import (
    ConfigurationReport,
    DurablePage,
    FaultReport,
    InterfaceType,
    Offset,
    Owner,
    ReloadDifference,
)
from ..net.addresses import accountOf, ownerOf
from ..net.budgets import Unsent, WorkBudget
from ..net.deferreds import asDeferred
from ._collaborators import IDurableSubscriptions, IJobs, IRetention, JobReport, RetentionReport
from ._groups import Groups, TimeoutQueue

MAX_CONNECTIONS: Final = 1000
"""The most connections that are listed."""

_LOOKED_AT_ONCE: Final = 500
"""The number of connections that are looked at in one turn of the reactor."""


@frozen(kw_only=True)
class ClientConnection:
    """
    A connection of a client, as a carrier has it.

    @ivar protocol: C{http}, C{mqtt} or C{stomp}.
    @ivar remote: the client's address.
    @ivar client: the name that the client has given itself: its MQTT client id; empty for none.
    @ivar window: how many deliveries may wait for its acknowledgement; 0 where it acknowledges
        nothing.
    @ivar sent: how many events its client has sent to be published, refused ones included.
    @ivar unsent: counts its bytes, and knows whose they are and since when it is there.
    @ivar close: closes it at once.
    """

    protocol: str
    remote: str
    unsent: Unsent
    close: Callable[[], object]
    client: str = ""
    window: int = 0
    sent: int = 0

    @property
    def account(self) -> str:
        """The name of the account that it acts for; empty for none."""
        return accountOf(self.unsent.owner)

    def matches(self, search: str) -> bool:
        """Whether a text is a part of its account, address, protocol or name."""
        known = (self.account, self.remote, self.protocol, self.client)
        return any(search in each for each in known)


@frozen(kw_only=True)
class ConnectionPage:
    """
    Some of the connections.

    @ivar items: them.
    @ivar total: how many match in all.
    """

    items: Sequence[ClientConnection]
    total: int


class Operator:
    """
    The operator calls, for principals that may operate the group.

    All calls about faults answer how things are afterwards. They fail with
    L{NotAuthorized<svcbroker.errors.NotAuthorized>} where faults were not allowed at the start,
    and with L{ParameterInvalid<svcbroker.errors.ParameterInvalid>} where the group's ledger is
    no L{IFaultyLedger<svcbroker.interfaces.IFaultyLedger>}.
    """

    def __init__(
        self,
        groups: Groups,
        timeouts: TimeoutQueue,
        *,
        hasFaults: bool,
        durable: Mapping[InterfaceType, IDurableSubscriptions],
        reload: Callable[[], Deferred[Sequence[str]]],
        preview: Callable[[], Deferred[ReloadDifference]] | None,
        configuration: Callable[[], ConfigurationReport] | None,
        connections: Callable[[], Iterable[ClientConnection]],
        jobs: IJobs | None,
        retention: IRetention | None,
        work: WorkBudget,
    ) -> None:
        """
        @param hasFaults: whether faults may be made.
        @param durable: the durable subscriptions of each protocol.
        @param reload: reads accounts, secrets and certificates again.
        @param preview: tells what that would change; C{None} where the broker is not configured by
            settings.
        @param configuration: tells all settings that are in force.
        @param connections: all connections of clients.
        @param jobs: runs commands; C{None} where the broker runs none.
        @param retention: erases old events; C{None} where nothing does.
        @param work: says when there is time for more.
        """
        self._groups = groups
        self._timeouts = timeouts
        self._hasFaults = hasFaults
        self._durable = durable
        self._reload = reload
        self._preview = preview
        self._describeConfiguration = configuration
        self._connections = connections
        self._jobs = jobs
        self._retention = retention
        self._work = work

    @asDeferred
    async def reload(self, principal: Principal) -> Sequence[str]:
        """
        Read accounts, secrets and certificates again.

        @return: fires with a line for each file that cannot be used, and so changes nothing.
        """
        principal.requireAny(Action.OPERATE, None)
        return await self._timeouts.wait(self._reload())

    @asDeferred
    async def previewReload(self, principal: Principal) -> ReloadDifference:
        """
        Compare what is in force with what L{reload} would read. Nothing changes.

        @raise NoSuchCall: the broker is not configured by settings.
        """
        principal.requireAny(Action.OPERATE, None)
        if self._preview is None:
            raise NoSuchCall("this broker is not configured by settings")
        return await self._timeouts.wait(self._preview())

    @asDeferred
    async def showConfiguration(self, principal: Principal) -> ConfigurationReport:
        """
        All settings as they are in force, without secrets.

        @raise NoSuchCall: the broker is not configured by settings.
        """
        principal.requireAny(Action.OPERATE, None)
        if self._describeConfiguration is None:
            raise NoSuchCall("this broker is not configured by settings")
        return self._describeConfiguration()

    @asDeferred
    async def listJobs(self, principal: Principal) -> Sequence[JobReport]:
        """
        The commands that run for operators, or have run.

        @raise NoSuchCall: the broker runs none.
        """
        return self._jobsOf(principal).reports()

    @asDeferred
    async def startJob(self, principal: Principal, name: str) -> Sequence[JobReport]:
        """
        Start a command.

        @return: fires with what L{listJobs} gives.
        @raise ParameterInvalid: there is no such job, or one runs.
        @raise NoSuchCall: the broker runs none.
        """
        jobs = self._jobsOf(principal)
        jobs.start(name)
        return jobs.reports()

    def _jobsOf(self, principal: Principal) -> IJobs:
        principal.requireAny(Action.OPERATE, None)
        if self._jobs is None:
            raise NoSuchCall("this broker runs no commands")
        return self._jobs

    @asDeferred
    async def listRetention(
        self, principal: Principal, groupId: str | None
    ) -> Sequence[RetentionReport]:
        """The progress of erasing the old events of a group, by the rules that are in force."""
        group = self._groups.resolve(principal, groupId)
        principal.require(Action.OPERATE, group)
        return () if self._retention is None else self._retention.reports(group)

    @asDeferred
    async def listConnections(
        self, principal: Principal, limit: int = 100, search: str = ""
    ) -> ConnectionPage:
        """
        The connections of clients to this broker.

        @param limit: the most to answer.
        @param search: a part of the account, the address, the protocol or the client's name.
        """
        principal.requireAny(Action.OPERATE, None)
        found: list[ClientConnection] = []
        total = 0
        lane = self._work.lane()
        for number, each in enumerate(self._connections(), 1):
            if each.matches(search):
                total += 1
                if len(found) < limit:
                    each.unsent.measure()
                    found.append(each)
            if not number % _LOOKED_AT_ONCE:
                await lane.turn(isWrite=False)
        lane.end()
        return ConnectionPage(items=found, total=total)

    @asDeferred
    async def closeConnection(self, principal: Principal, protocol: str, remote: str) -> bool:
        """
        Close a connection of a client. It may connect again.

        @return: fires with whether there was one.
        """
        principal.requireAny(Action.OPERATE, None)
        lane = self._work.lane()
        for number, each in enumerate(self._connections(), 1):
            if each.remote == remote and each.protocol == protocol:
                each.close()
                return True
            if not number % _LOOKED_AT_ONCE:
                await lane.turn(isWrite=False)
        lane.end()
        return False

    @asDeferred
    async def listDurable(
        self,
        principal: Principal,
        groupId: str | None,
        interfaceType: InterfaceType,
        after: str | None = None,
        limit: int = 100,
        remote: str | None = None,
    ) -> DurablePage:
        """
        Durable subscriptions of STOMP, or sessions of MQTT, those in use included.

        This call and the next two may also be made by clients, about their own: an operator calls
        them without C{remote}, which is the address of a client.

        @param after: only those with an id greater than this one; C{None} for all.
        @param limit: the most to answer.
        """
        group, durable, owner = self._durableOf(principal, groupId, interfaceType, remote)
        return durable.listDurable(group, after or "", limit, owner)

    @asDeferred
    async def resetDurable(
        self,
        principal: Principal,
        groupId: str | None,
        interfaceType: InterfaceType,
        id: str,
        offset: Offset,
        remote: str | None = None,
    ) -> bool:
        """
        Have a durable subscription, or a session, resume at an offset. Always C{True}.

        @raise SubscriptionNotFound, SubscriptionExists, EventNotFound, HeightUnknown: see
            L{IDurableSubscriptions.resetDurable}.
        """
        group, durable, owner = self._durableOf(principal, groupId, interfaceType, remote)
        await self._timeouts.wait(durable.resetDurable(group, id, offset, owner))
        return True

    @asDeferred
    async def deleteDurable(
        self,
        principal: Principal,
        groupId: str | None,
        interfaceType: InterfaceType,
        ids: Sequence[str],
        remote: str | None = None,
    ) -> int:
        """
        End durable subscriptions, or sessions.

        @return: fires with how many were ended.
        @raise SubscriptionNotFound, SubscriptionExists: see
            L{IDurableSubscriptions.deleteDurable}.
        """
        group, durable, owner = self._durableOf(principal, groupId, interfaceType, remote)
        return await self._timeouts.wait(durable.deleteDurable(group, ids, owner))

    def _durableOf(
        self,
        principal: Principal,
        groupId: str | None,
        interfaceType: InterfaceType,
        remote: str | None,
    ) -> tuple[str, IDurableSubscriptions, Owner | None]:
        """The subject of a call, and its owner, if not everybody."""
        group = self._groups.resolve(principal, groupId)
        name, owner = principal.name, None
        if remote is None:
            principal.require(Action.OPERATE, group)
        elif not (name and principal.may(Action.OPERATE, group)):
            # Without accounts everybody may operate, but only operators of this machine do.
            owner = Owner(name or ownerOf(remote), name)
        return group, self._durable[interfaceType], owner

    @asDeferred
    async def showFaults(self, principal: Principal, groupId: str | None) -> FaultReport:
        """The state of a group's nodes and of their network."""
        return await self._report(self._faulty(principal, groupId))

    @asDeferred
    async def stopNode(self, principal: Principal, groupId: str | None, node: int) -> FaultReport:
        """
        Stop a node.

        @raise ParameterInvalid: there is no such node.
        """
        ledger = self._faulty(principal, groupId)
        await self._timeouts.wait(ledger.stopNode(node))
        return await self._report(ledger)

    @asDeferred
    async def startNode(self, principal: Principal, groupId: str | None, node: int) -> FaultReport:
        """
        Let a stopped node go on.

        @raise ParameterInvalid: there is no such node.
        """
        ledger = self._faulty(principal, groupId)
        await self._timeouts.wait(ledger.startNode(node))
        return await self._report(ledger)

    @asDeferred
    async def setNetwork(
        self,
        principal: Principal,
        groupId: str | None,
        delay: tuple[float, float] | None = None,
        loss: float | None = None,
        duplication: float | None = None,
        islands: Sequence[Collection[int]] | None = None,
        links: Collection[tuple[int, int]] | None = None,
    ) -> FaultReport:
        """
        Change the network between the nodes. What is C{None} stays as it is; islands and links
        replace, together, what was cut before.

        @param islands: sets of nodes between which nothing passes; nodes that are in none of
            them are one more.
        @param links: pairs (from, to) of nodes between which nothing passes, in that direction.
        @raise ParameterInvalid: there is no such node, or one is on two islands.
        """
        ledger = self._faulty(principal, groupId)
        cut: set[tuple[int, int]] | None = None
        if islands is not None or links is not None:
            count = len((await self._report(ledger)).nodes)
            cut = _between(islands or (), count) | set(links or ())
        await self._timeouts.wait(
            ledger.setNetwork(delay=delay, loss=loss, duplication=duplication, cut=cut)
        )
        return await self._report(ledger)

    @asDeferred
    async def heal(self, principal: Principal, groupId: str | None) -> FaultReport:
        """End all faults."""
        ledger = self._faulty(principal, groupId)
        await self._timeouts.wait(ledger.heal())
        return await self._report(ledger)

    @asDeferred
    async def changeNodes(
        self,
        principal: Principal,
        groupId: str | None,
        rotate: Sequence[int] = (),
        count: int | None = None,
    ) -> ValidatorSet:
        """
        Give nodes new keys, or change how many there are; without either change nothing.

        @param rotate: the indexes of the nodes that get new keys.
        @param count: how many nodes there are to be.
        @return: fires with the nodes that decide from the next block on.
        @raise ParameterInvalid: there is no such node, nothing would change, there cannot be so
            many, or the group's ledger does not hold the keys or is no
            L{IValidatorSetLedger<svcbroker.interfaces.IValidatorSetLedger>}.
        """
        ledger = self._validatorSet(principal, groupId)
        if not rotate and count is None:
            return await self._timeouts.wait(ledger.getNodes())
        return await self._timeouts.wait(ledger.changeNodes(rotate, count))

    @asDeferred
    async def submitChange(
        self, principal: Principal, groupId: str | None, change: ValidatorChange
    ) -> ValidatorSet:
        """
        Hand in a change of the nodes that those whom it concerns have signed.

        @return: fires with the nodes that decide from the next block on.
        @raise ParameterInvalid: the change does not hold, or the group's ledger holds the keys
            itself or is no L{IValidatorSetLedger<svcbroker.interfaces.IValidatorSetLedger>}.
        """
        return await self._timeouts.wait(
            self._validatorSet(principal, groupId).submitChange(change)
        )

    def _ledger(self, principal: Principal, groupId: str | None) -> ILedger:
        group, ledger = self._groups.find(principal, groupId)
        principal.require(Action.OPERATE, group)
        return ledger

    def _validatorSet(self, principal: Principal, groupId: str | None) -> IValidatorSetLedger:
        ledger: IValidatorSetLedger | None
        ledger = IValidatorSetLedger(self._ledger(principal, groupId), None)
        if ledger is None:
            raise ParameterInvalid("groupId: the ledger of this group has no nodes")
        return ledger

    def _faulty(self, principal: Principal, groupId: str | None) -> IFaultyLedger:
        ledger = self._ledger(principal, groupId)
        if not self._hasFaults:
            raise NotAuthorized("faults are off: start the daemon with --faults")
        faulty: IFaultyLedger | None = IFaultyLedger(ledger, None)
        if faulty is None:
            raise ParameterInvalid("groupId: the ledger of this group has no nodes to make fail")
        return faulty

    async def _report(self, ledger: IFaultyLedger) -> FaultReport:
        return await self._timeouts.wait(ledger.describeFaults())


def _between(islands: Sequence[Collection[int]], count: int) -> set[tuple[int, int]]:
    """The links between islands, the rest of the nodes being one more."""
    named = [node for island in islands for node in island]
    for node in named:
        if named.count(node) > 1:
            raise ParameterInvalid(f"islands: node {node} is there twice")
    rest = [node for node in range(count) if node not in named]
    everything = [*islands, rest] if islands else []
    return {link for one, other in permutations(everything, 2) for link in product(one, other)}
