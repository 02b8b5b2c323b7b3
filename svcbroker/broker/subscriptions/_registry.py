"""
All live subscriptions of this node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from ...errors import (
    EventNotFound,
    HeightUnknown,
    SubscriptionExists,
    SubscriptionIdInvalid,
    TopicNotFound,
)
from ...interfaces import ILedger, ISubscriber, ISubscription
from ...model import (
    Edge,
    EventId,
    Offset,
    Position,
    SubscribeRequest,
    SubscriptionRecord,
    checkFilter,
    isPattern,
)
from .._groups import Groups
from .._subscriptions import ISubscriptionDirectory
from ._follower import Follower
from ._positions import IPositions, MemoryPositions, StoredPosition
from ._subscription import LogSubscription


@implementer(ISubscriptionDirectory)
class Subscriptions:
    """
    Makes subscriptions and knows them all. Carriers call L{subscribe}; the daemon starts and
    stops it.
    """

    def __init__(
        self,
        ledgers: Mapping[str, ILedger],
        reactor: IReactorTime,
        now: Callable[[], float],
        entropy: Callable[[int], bytes],
        positions: IPositions | None = None,
    ) -> None:
        """
        @param ledgers: the ledgers by the id of their group.
        @param now: the wall clock: seconds since the epoch.
        @param entropy: C{entropy(n)} gives C{n} unguessable bytes.
        @param positions: keeps the positions of durable subscriptions.
        """
        self._groups = Groups(ledgers)
        self._followers = {
            group: Follower(ledger, reactor) for group, ledger in self._groups.items()
        }
        self._reactor = reactor
        self._now = now
        self._entropy = entropy
        self._positions: IPositions = MemoryPositions() if positions is None else positions
        self._live: dict[str, LogSubscription] = {}
        self._reserved: set[str] = set()

    def start(self) -> Deferred[None]:
        """
        Begin to follow. The ledgers have started.
        """

        async def start() -> None:
            for follower in self._followers.values():
                await follower.start()

        return Deferred.fromCoroutine(start())

    def stop(self) -> None:
        """
        End all subscriptions; durable ones keep their positions. The ledgers still run.
        """
        for subscription in tuple(self._live.values()):
            subscription.close()
        for follower in self._followers.values():
            follower.stop()

    def subscribe(
        self, request: SubscribeRequest, subscriber: ISubscriber
    ) -> Deferred[ISubscription]:
        """
        Subscribe. What is given is paused until its carrier resumes it.

        A durable subscription whose id is known resumes where it stopped; the offset only
        counts for a new one.

        @raise GroupUnknown: the broker does not serve the group.
        @raise TopicBlank: a filter is blank.
        @raise TopicTooLong: a filter has more than 256 characters.
        @raise TopicInvalid: a filter has a character that no topic may have.
        @raise PatternInvalid: a filter is no pattern of MQTT.
        @raise TopicNotFound: a plain topic does not exist, and must.
        @raise EventNotFound: the offset is the id of no event.
        @raise HeightUnknown: the offset is a block above the chain's next one.
        @raise SubscriptionIdInvalid: the id is no UUID.
        @raise SubscriptionExists: the id is in use.
        """
        return Deferred.fromCoroutine(self._subscribe(request, subscriber))

    async def _subscribe(self, request: SubscribeRequest, subscriber: ISubscriber) -> ISubscription:
        request = evolve(request, group=self._groups.resolve(request.group))
        follower = self._followers[request.group]
        for filter in request.filters:
            checkFilter(filter)
        subscriptionId = self._idFor(request.subscriptionId)
        self._reserved.add(subscriptionId)
        try:
            if request.mustExist:
                await self._checkTopics(follower.ledger, request.filters)
            start = None
            if request.isDurable:
                start = self._positions.get(subscriptionId, request.group)
            if start is None:
                start = StoredPosition(await self._place(follower, request.offset))
        finally:
            self._reserved.discard(subscriptionId)
        subscription = LogSubscription(
            subscriptionId=subscriptionId,
            request=request,
            subscriber=subscriber,
            follower=follower,
            reactor=self._reactor,
            now=self._now,
            start=start,
            closed=self._closed,
            moved=self._moved,
        )
        self._live[subscriptionId] = subscription
        self._moved(subscription)
        return subscription

    def _idFor(self, asked: str | None) -> str:
        if asked is None:
            return str(UUID(bytes=self._entropy(16), version=4))
        try:
            subscriptionId = str(UUID(asked))
        except ValueError:
            raise SubscriptionIdInvalid() from None
        if len(asked) != len(subscriptionId):
            raise SubscriptionIdInvalid()
        if subscriptionId in self._live or subscriptionId in self._reserved:
            raise SubscriptionExists()
        return subscriptionId

    async def _checkTopics(self, ledger: ILedger, filters: Sequence[str]) -> None:
        for filter in filters:
            if not isPattern(filter):
                topic = await ledger.getTopic(filter)
                if topic is None or not topic.isOpen:
                    raise TopicNotFound()

    async def _place(self, follower: Follower, offset: Offset) -> Position:
        if offset is Edge.FIRST:
            return Position(1, -1)
        if isinstance(offset, Position):
            if offset.height > follower.committed + 1:
                raise HeightUnknown("the offset names a block above the chain's height")
            return offset
        if isinstance(offset, EventId):
            try:
                return (await follower.ledger.getEvent(offset)).position
            except HeightUnknown:
                raise EventNotFound() from None
        return Position(follower.committed + 1, -1)

    def forget(self, subscriptionId: str) -> None:
        """
        Forget the position of a durable subscription that is not live.
        """
        self._positions.remove(subscriptionId)

    def _moved(self, subscription: LogSubscription) -> None:
        if subscription.request.isDurable:
            self._positions.put(
                subscription.subscriptionId, subscription.request.group, subscription.stored
            )

    def _closed(self, subscription: LogSubscription, forget: bool) -> None:
        self._live.pop(subscription.subscriptionId, None)
        if not subscription.request.isDurable:
            return
        if forget:
            self._positions.remove(subscription.subscriptionId)
        else:
            self._moved(subscription)

    def listSubscriptions(self, group: str | None) -> Deferred[Sequence[SubscriptionRecord]]:
        """See L{ISubscriptionDirectory}."""

        async def records() -> Sequence[SubscriptionRecord]:
            return [
                await subscription.record()
                for subscription in tuple(self._live.values())
                if group in (None, subscription.request.group)
            ]

        return Deferred.fromCoroutine(records())
