"""
All live subscriptions of this node.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from heapq import nsmallest
from typing import Any
from uuid import UUID

from attrs import evolve
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from ...access import ANYBODY, Principal
from ...errors import (
    HeightUnknown,
    Overloaded,
    PatternInvalid,
    SubscriptionExists,
    SubscriptionIdInvalid,
    SubscriptionNotFound,
    TopicNotFound,
)
from ...interfaces import Action, ILedger, ISubscriber, ISubscription
from ...model import (
    DurablePage,
    EventId,
    InterfaceType,
    Offset,
    Owner,
    Position,
    SubscribeRequest,
    SubscriptionRecord,
    isPattern,
)
from ...net.addresses import ownerKey, ownerOf
from ...net.budgets import Budgets, ByteCount
from ...net.deferreds import asDeferred
from .._collaborators import IDurableSubscriptions, ISubscriptionDirectory, ReadPage, ReadRequest
from .._groups import Groups, checkTopicFilter
from ._backlog import Backlog, Holder
from ._eventreading import EventReading, HeightWaits, checkLogIn
from ._follower import Follower, HistoryTurns
from ._logsubscription import SUBSCRIPTION_BYTES, LogSubscription
from ._positions import (
    MAX_OWN_POSITIONS,
    KeptPosition,
    KeptPositions,
    MemoryPositions,
    PositionExpiry,
    StoredPosition,
    dayOf,
    locateOffset,
)


def canonicalId(asked: str) -> str:
    """
    The id of a subscription as it is kept: a UUID in lower case with hyphens.

    @raise SubscriptionIdInvalid: it is no UUID, or one without hyphens.
    """
    try:
        canonical = str(UUID(asked))
    except ValueError:
        raise SubscriptionIdInvalid() from None
    if len(asked) != len(canonical):
        raise SubscriptionIdInvalid()
    # Who asks keeps it, too: most have a canonical one, which is one object then.
    return asked if asked == canonical else canonical


GATHER = 0.025
"""Seconds that a position may stand still on its way to the disk, before the disk's own delay."""

KEEPING_SLICE = 0.005
"""Seconds after which a turn of the reactor puts no other position together: one may take 3 ms."""

LISTED_AT_ONCE = 500
"""The number of subscriptions that are listed in one turn of the reactor: some milliseconds."""

MAX_LEVELS = 128
"""The most levels of a pattern. To match one takes time for each of them."""


@implementer(ISubscriptionDirectory, IDurableSubscriptions)
class Subscriptions:
    """
    Makes subscriptions and knows them all. Carriers call L{subscribe}.

    @ivar counts: how many are live, by the C{kind} of their requests and whether
        they are durable.
    @ivar backlog: tells what waits for durable ones.
    """

    _log = Logger()

    def __init__(
        self,
        ledgers: Mapping[str, ILedger],
        reactor: IReactorTime,
        now: Callable[[], float],
        entropy: Callable[[int], bytes],
        positions: KeptPositions | None = None,
        maxOwnPositions: int = MAX_OWN_POSITIONS,
        positionExpiry: int = 0,
        budgets: Budgets | None = None,
    ) -> None:
        """
        @param ledgers: the ledgers by the id of their group.
        @param now: the wall clock: seconds since the epoch.
        @param entropy: C{entropy(n)} gives C{n} unguessable bytes.
        @param positions: keeps the positions of durable subscriptions.
        @param maxOwnPositions: how many positions one owner may have made.
        @param positionExpiry: how many days a position is kept that is not used; 0 for ever.
        @param budgets: bound what is read for answers, and the time that lists take; C{None} makes
            budgets of its own.
        """
        budgets = Budgets.of(reactor) if budgets is None else budgets
        self.counts: Counter[tuple[str, bool]] = Counter()
        self._groups = Groups(ledgers)
        self._turns = HistoryTurns(reactor, budgets.work)
        self._followers = {
            group: Follower(ledger, reactor, self._turns) for group, ledger in self._groups.items()
        }
        self._reactor = reactor
        self._work = budgets.work
        self._bytes = budgets.subscriptions
        self._now = now
        self._entropy = entropy
        self._positions = MemoryPositions() if positions is None else positions
        self._maxOwnPositions = maxOwnPositions
        self._expiry = PositionExpiry(
            self._positions, self._followers, reactor, now, positionExpiry, self._use
        )
        self._heights = HeightWaits(reactor, budgets.work)
        self._reading = EventReading(
            self._followers,
            reactor,
            now,
            self._checkFilter,
            budgets.output,
            self._heights,
            budgets.work,
        )
        self._live: dict[str, LogSubscription] = {}
        self._reserved: set[str] = set()
        # What positions belong to that has an end of its own.
        self._held: dict[str, Holder] = {}
        self.backlog = Backlog(self._followers, self._positions, self._live, self._held, reactor)
        self._advanced: OrderedDict[LogSubscription, None] = OrderedDict()
        # One object each for all subscriptions, of which there are many.
        self._ofAll = (self._moved, self._keep, self._checkFilter)
        self._call: IDelayedCall | None = None

    @asDeferred
    async def start(self) -> None:
        """
        Begin to follow. The ledgers have started.
        """
        for follower in self._followers.values():
            await follower.start()
        self._expiry.start()

    @asDeferred
    async def stop(self) -> None:
        """
        End all subscriptions; durable ones keep their positions. The ledgers still run.
        """
        await self._heights.drain()
        await self._work.makeAll(each.close for each in tuple(self._live.values()))
        if self._call is not None:
            self._call.cancel()
            self._call = None
        self._expiry.stop()
        self.backlog.stop()
        self._turns.stop()
        for follower in self._followers.values():
            follower.stop()

    @asDeferred
    async def subscribe(
        self, principal: Principal, request: SubscribeRequest, subscriber: ISubscriber
    ) -> ISubscription:
        """
        Subscribe. What is given is paused until its carrier resumes it. The principal gets what it
        may read; to make one, it must be able to read something that each filter may match.

        A durable subscription whose id is known resumes where it stopped; the offset only
        counts for a new one.

        @raise GroupUnknown: the broker does not serve the group.
        @raise NotAuthenticated: the log-in has ended meanwhile.
        @raise NotAuthorized: the principal may read nothing that a filter matches.
        @raise QuotaExceeded: the account has as many subscriptions as it may have, or as many
            durable ones.
        @raise TopicBlank: a filter is blank.
        @raise TopicTooLong: a filter has more than 256 characters.
        @raise TopicInvalid: a filter has a character that no topic may have.
        @raise PatternInvalid: a filter is no pattern of MQTT, or has too many levels.
        @raise TopicNotFound: a plain topic does not exist, and must.
        @raise EventNotFound, HeightUnknown: the offset is no event or above the chain's next block.
        @raise NodeBehind: the offset is a place that this node has not reached, nor in the time
            that the call has waited.
        @raise SubscriptionIdInvalid: the id is no UUID.
        @raise SubscriptionExists: the id is in use, or another account's.
        @raise Overloaded: too many positions of durable subscriptions are kept already, or too
            many of this owner, or subscriptions and sessions take too much memory.
        """
        # What is kept is resumed though nothing is granted at the moment.
        group = self._groups.resolve(ANYBODY if request.isResumed else principal, request.group)
        if group != request.group:
            request = evolve(request, group=group)
        for filter in request.filters:
            self._checkFilter(principal, request.group, filter, isResumed=request.isResumed)
        subscriptionId = self._idFor(request.subscriptionId)
        principal.usage.take("subscriptions")
        counted = self._bytes.count(ownerKey(principal.name, request.remote))
        try:
            self._take(counted, request)
            return await self._subscribe(principal, request, subscriber, subscriptionId, counted)
        except BaseException:
            counted.close()
            principal.usage.free("subscriptions")
            raise

    async def _subscribe(
        self,
        principal: Principal,
        request: SubscribeRequest,
        subscriber: ISubscriber,
        subscriptionId: str,
        counted: ByteCount,
    ) -> ISubscription:
        follower = self._followers[request.group]
        self._reserved.add(subscriptionId)
        try:
            start = self._resumed(principal, subscriptionId, request, follower)
            if start is None:
                # Its topics may be as new as the place that another node has told.
                offset, remote = request.offset, request.remote
                await self._heights.reachOffset(follower, principal, offset, remote)
            if request.mustExist:
                self._checkTopics(follower.ledger, request.filters)
            if start is None:
                start = StoredPosition(await locateOffset(follower, principal, request.offset))
                if request.isDurable:
                    account = principal.name
                    owner = Owner(account or ownerOf(request.remote), account)
                    self._positions.checkRoom(owner, self._maxOwnPositions)
                    if subscriptionId not in self._held:
                        self._checkQuota(principal, owner)
                    self._positions.make(
                        subscriptionId,
                        request.group,
                        start,
                        owner=owner.name,
                        account=owner.account,
                        day=self._today,
                    )
                    # From the answer on it resumes, also after a crash.
                    await self._positions.flush()
            if request.isDurable and subscriptionId not in self._held:
                self._positions.keepFilters(subscriptionId, request.group, request.filters)
        finally:
            self._reserved.discard(subscriptionId)
        checkLogIn(principal)
        subscription = LogSubscription(
            subscriptionId=subscriptionId,
            principal=principal,
            request=request,
            subscriber=subscriber,
            follower=follower,
            now=self._now,
            start=start,
            closed=partial(self._closed, counted),
            moved=self._ofAll[0],
            store=self._ofAll[1],
            checkFilter=self._ofAll[2],
        )
        self._live[subscriptionId] = subscription
        self.counts[request.kind, request.isDurable] += 1
        return subscription

    def _take(self, counted: ByteCount, request: SubscribeRequest) -> None:
        """
        Count a subscription that is made.

        @raise Overloaded: there is no room for it. Webhooks had room when they were made.
        """
        size = SUBSCRIPTION_BYTES + sum(map(len, request.filters))
        isKept = request.isResumed and request.interfaceType is not InterfaceType.MQTT
        if not counted.set(size) and not isKept:
            raise Overloaded(
                "all subscriptions and sessions together, or those of one client, take as much "
                "memory as they may: end some"
            )

    def _resumed(
        self,
        principal: Principal,
        subscriptionId: str,
        request: SubscribeRequest,
        follower: Follower,
    ) -> StoredPosition | None:
        """
        The position at which a subscription resumes; C{None} where it begins.

        @raise SubscriptionExists: its position is another account's.
        """
        if not request.isDurable:
            return None
        account = self._positions.accountOf(subscriptionId)
        if account not in ("", principal.name) and principal is not ANYBODY:
            raise SubscriptionExists()
        kept = self._positions.get(subscriptionId, request.group)
        if kept is None:
            return None
        if kept.position.height > follower.committed + 1 and not follower.isOfNetwork:
            self._log.warn(
                "subscription {id} stands beyond the end of the log, which was put back from a "
                "backup: it begins with the next event",
                id=subscriptionId,
            )
            return StoredPosition(Position(follower.committed + 1, -1))
        return kept

    def _checkQuota(self, principal: Principal, owner: Owner) -> None:
        """
        @raise QuotaExceeded: the account has as many durable subscriptions as it may have.
        """
        most = principal.usage.quotas.sessions
        if most is not None and self._positions.countOf(owner) >= most:
            principal.usage.checkRoom("sessions", self._positions.countOf(owner, self._held))

    def _checkFilter(
        self, principal: Principal, group: str, filter: str, *, isResumed: bool = False
    ) -> None:
        checkTopicFilter(self._followers[group].ledger, filter)
        if isResumed:
            return
        if filter.count("/") >= MAX_LEVELS and isPattern(filter):
            raise PatternInvalid(f"a pattern has at most {MAX_LEVELS} levels")
        principal.requireAny(Action.SUBSCRIBE, group, filter)

    def readEvents(self, principal: Principal, request: ReadRequest) -> Deferred[ReadPage]:
        """See L{ISubscriptionDirectory}."""
        return self._reading.read(principal, request)

    def drain(self) -> Deferred[Any]:
        """Answer calls that wait for events or blocks, and have none wait from now on."""
        drains = [self._heights.drain(), self._reading.drain()]
        return gatherResults(drains, consumeErrors=True)

    @asDeferred
    async def reach(
        self, principal: Principal, groupId: str | None, eventId: EventId, remote: str
    ) -> None:
        """See L{ISubscriptionDirectory}."""
        group = self._groups.resolve(principal, groupId)
        follower = self._followers[group]
        await self._heights.reach(follower, principal, eventId.height, remote)
        if eventId.height > follower.committed:
            raise HeightUnknown()

    def end(self, group: str) -> Position:
        """The place after which events begin that are published from now on."""
        return Position(self._followers[group].committed + 1, -1)

    def _idFor(self, asked: str | None) -> str:
        if asked is None:
            return str(UUID(bytes=self._entropy(16), version=4))
        subscriptionId = canonicalId(asked)
        if subscriptionId in self._live or subscriptionId in self._reserved:
            raise SubscriptionExists()
        return subscriptionId

    def _checkTopics(self, ledger: ILedger, filters: Sequence[str]) -> None:
        for filter in filters:
            if not isPattern(filter):
                topic = ledger.topicState(filter)
                if topic is None or not topic.isOpen:
                    which = f": {filter}" if len(filters) > 1 else ""
                    raise TopicNotFound(f"{TopicNotFound.text}{which}")

    def hold(self, subscriptionId: str, holder: Holder) -> None:
        """
        Keep a position until L{forget}, or until its subscription is closed and forgotten.

        @param holder: what it belongs to.
        """
        self._held[subscriptionId] = holder

    def forget(self, subscriptionId: str) -> None:
        """Forget the position of a durable subscription that is not live."""
        self._held.pop(subscriptionId, None)
        self._positions.remove(subscriptionId)

    # What operators do.

    def findDurable(self, subscriptionId: str) -> KeptPosition | None:
        """The position that is kept of a subscription, live or not; C{None} if there is none."""
        return self._positions.find(subscriptionId)

    @asDeferred
    async def locate(self, group: str, offset: Offset) -> Position:
        """
        The position in a group's log after which a subscription begins at an offset.

        @raise EventNotFound: the offset is the id of no event.
        @raise HeightUnknown: the offset is a block above the chain's next one.
        @raise NodeBehind: as L{subscribe} does.
        """
        follower = self._followers[group]
        await self._heights.reachOffset(follower, ANYBODY, offset, "")
        return await locateOffset(follower, ANYBODY, offset)

    def reset(self, subscriptionId: str, position: Position) -> None:
        """
        Have a durable subscription that is not live resume after another position.
        """
        self._positions.move(subscriptionId, StoredPosition(position), day=self._today)

    def listDurable(self, group: str, after: str, limit: int, owner: Owner | None) -> DurablePage:
        """See L{IDurableSubscriptions}."""
        every = self._positions.ids(group, owner)
        ids = nsmallest(limit + 1, (id for id in every if id > after and id not in self._held))
        items = []
        for subscriptionId in ids[:limit]:
            kept = self._positions.find(subscriptionId)
            assert kept is not None
            isLive = subscriptionId in self._live
            items.append(kept.record(subscriptionId, now=self._now() if isLive else None))
        return DurablePage(items=items, next=ids[limit - 1] if len(ids) > limit else None)

    @asDeferred
    async def resetDurable(self, group: str, id: str, offset: Offset, owner: Owner | None) -> None:
        """See L{IDurableSubscriptions}."""
        self._checkAbsent(group, id, owner)
        self._reserved.add(id)
        try:
            self.reset(id, await self.locate(group, offset))
            await self._positions.flush()
        finally:
            self._reserved.discard(id)

    @asDeferred
    async def deleteDurable(self, group: str, ids: Sequence[str], owner: Owner | None) -> int:
        """See L{IDurableSubscriptions}."""
        ids = tuple(dict.fromkeys(ids))
        for each in ids:
            self._checkAbsent(group, each, owner)
        for each in ids:
            self._positions.remove(each)
        await self._positions.flush()
        return len(ids)

    def _checkAbsent(self, group: str, subscriptionId: str, owner: Owner | None) -> None:
        """
        @raise SubscriptionNotFound: there is no such durable subscription of this owner.
        @raise SubscriptionExists: it is live, or about to be.
        """
        kept = self._positions.find(subscriptionId, owner)
        if kept is None or kept.group != group or subscriptionId in self._held:
            raise SubscriptionNotFound(f"there is no durable subscription {subscriptionId[:100]}")
        if subscriptionId in self._live or subscriptionId in self._reserved:
            raise SubscriptionExists(f"a client uses subscription {subscriptionId} now")

    @property
    def _today(self) -> int:
        return dayOf(self._now())

    def _use(self, subscriptionId: str, isDue: bool) -> bool:
        """See L{PositionExpiry}."""
        subscription = self._live.get(subscriptionId)
        if subscription is None:
            return subscriptionId in self._held or subscriptionId in self._reserved
        if isDue and subscription.request.isDurable:
            self._keep(subscription)
        return True

    def _moved(self, subscription: LogSubscription) -> None:
        # What is kept is put together once for all that is acknowledged in these moments.
        self._advanced[subscription] = None
        if self._call is None:
            self._call = self._reactor.callLater(GATHER, self._keepAdvanced)

    def _keepAdvanced(self) -> None:
        self._call = None
        end = self._reactor.seconds() + KEEPING_SLICE
        while self._advanced and self._reactor.seconds() < end:
            self._keep(self._advanced.popitem(last=False)[0])
        if self._advanced:
            self._call = self._reactor.callLater(GATHER, self._keepAdvanced)

    def _keep(self, subscription: LogSubscription) -> None:
        self._positions.move(subscription.subscriptionId, subscription.stored, day=self._today)

    def _closed(self, counted: ByteCount, subscription: LogSubscription, forget: bool) -> None:
        if self._live.pop(subscription.subscriptionId, None) is not None:
            request = subscription.request
            self.counts[request.kind, request.isDurable] -= 1
        counted.close()
        subscription.principal.usage.free("subscriptions")
        self._advanced.pop(subscription, None)
        if not subscription.request.isDurable:
            return
        if forget:
            self.forget(subscription.subscriptionId)
        else:
            self._keep(subscription)

    @asDeferred
    async def listSubscriptions(
        self, principal: Principal, group: str | None
    ) -> Sequence[SubscriptionRecord]:
        """See L{ISubscriptionDirectory}."""
        records = []
        lane = self._work.lane()
        for number, subscription in enumerate(tuple(self._live.values()), 1):
            isOwn = subscription.principal.name == principal.name
            isSeen = isOwn or principal.may(Action.OPERATE, subscription.group)
            isLive = subscription.subscriptionId in self._live
            if isLive and isSeen and group in (None, subscription.group):
                records.append(await subscription.record())
            if not number % LISTED_AT_ONCE:
                await lane.turn(isWrite=False)
        return records
