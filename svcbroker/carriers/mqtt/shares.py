"""
Shared subscriptions: one reader of the log, whose events are handed out in turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from msgspec import structs
from twisted.internet.defer import Deferred, DeferredLock
from zope.interface import implementer

from ...broker.subscriptions import Subscriptions
from ...errors import BrokerError
from ...interfaces import Batch, ISubscriber, ISubscription
from ...model import Event, InterfaceType, Offset, Position, SubscribeRequest
from .subscription import KeptSubscription, SessionSubscription, parseShare, startOf

ShareKey = tuple[str, str, str | None]
"""What names a share group: the broker's group, the filter with C{$share/}, the tag."""


@implementer(ISubscriber)
class ShareGroup:
    """
    All who subscribe to one share name and topic filter.

    Each event goes to one member: to the next in turn that can take it. What was sent with
    QoS 1 to a member that leaves goes to another; what was sent with QoS 2 stays with that
    member's session [MQTT5-4.8.2-4].

    @ivar sessions: how many sessions subscribe, those of absent clients included.
    @ivar kept: what its members ask for in common: the filter, the id, the start, the tag.
    """

    def __init__(self, group: str, kept: KeptSubscription, subscriptions: Subscriptions) -> None:
        self.kept = kept
        self.sessions = 0
        self._group = group
        self._subscriptions = subscriptions
        self._core: ISubscription | None = None
        self._lock = DeferredLock()
        self._members: deque[SessionSubscription] = deque()
        self._waiting: deque[Event] = deque()
        self._held: set[Position] = set()
        self._isFlowing = False

    def join(
        self, member: SessionSubscription, remote: str, offset: Offset | None
    ) -> Deferred[None]:
        """
        A member is connected.

        @param offset: where the group begins, if it is new.

        @raise BrokerError: the log cannot be subscribed to.
        """
        return Deferred.fromCoroutine(self._join(member, remote, offset))

    async def _join(self, member: SessionSubscription, remote: str, offset: Offset | None) -> None:
        await self._lock.acquire()
        try:
            if self._core is None:
                await self._open(remote, offset)
        finally:
            self._lock.release()
        member.isAcknowledged = True
        member.kept = structs.replace(member.kept, start=self.kept.start)
        if member.session.delivery is not None:
            self._members.append(member)

    async def _open(self, remote: str, offset: Offset | None) -> None:
        share = parseShare(self.kept.topicFilter)
        assert share is not None
        self._core = await self._subscriptions.subscribe(
            SubscribeRequest(
                interfaceType=InterfaceType.MQTT,
                group=self._group,
                filters=(share.topicFilter,),
                offset=startOf(self.kept, offset),
                tag=self.kept.tag,
                subscriptionId=self.kept.subscriptionId,
                remote=remote,
                mustExist=False,
                isDurable=True,
                isAcknowledged=True,
            ),
            self,
        )
        if self.kept.start is None:
            self.kept = structs.replace(self.kept, start=self._core.position)

    def leave(self, member: SessionSubscription, unfinished: Iterable[Event]) -> None:
        """
        A member is no longer connected.

        @param unfinished: what was sent to it and may go to another.
        """
        if member in self._members:
            self._members.remove(member)
        again = sorted(unfinished, key=lambda event: event.position, reverse=True)
        self._waiting.extendleft(again)
        if self._members:
            self.deal()
        else:
            self._close(forget=False)

    def hold(self, event: Event) -> None:
        """An event stays with an absent member's session until it is acknowledged."""
        self._held.add(event.position)

    def acknowledge(self, events: Sequence[Event]) -> None:
        """Members have these for good."""
        self._held.difference_update(event.position for event in events)
        if self._core is not None:
            self._core.acknowledge(events)

    def end(self) -> None:
        """The last session has unsubscribed or ended."""
        if self._core is not None:
            self._close(forget=True)
        else:
            self._subscriptions.forget(self.kept.subscriptionId)

    def _close(self, *, forget: bool) -> None:
        # The log keeps what waits: it was not acknowledged.
        self._waiting.clear()
        self._isFlowing = False
        core, self._core = self._core, None
        if core is not None:
            core.close(forget=forget)

    def deliver(self, batch: Batch) -> None:
        """See L{ISubscriber.deliver}."""
        self._waiting.extend(event for event in batch.events if event.position not in self._held)
        self.deal()

    def deal(self) -> None:
        """Hand out what waits, while somebody can take it."""
        while self._waiting:
            member = self._next()
            if member is None:
                break
            delivery = member.session.delivery
            assert delivery is not None
            # [MQTT5-4.8.2-3]: each with its own granted QoS.
            delivery.offer(member, self._waiting.popleft())
        wantsMore = not self._waiting and bool(self._members)
        if self._core is not None and wantsMore != self._isFlowing:
            self._isFlowing = wantsMore
            if wantsMore:
                self._core.resume()
            else:
                self._core.pause()

    def _next(self) -> SessionSubscription | None:
        members = self._members
        for _ in range(len(members)):
            member = members[0]
            members.rotate(-1)
            delivery = member.session.delivery
            if delivery is None:
                continue
            if delivery.canTake:
                return member
            # It asks again when it has room.
            delivery.halt()
        return None

    def subscriptionEnded(self, error: BrokerError) -> None:
        """See L{ISubscriber.subscriptionEnded}."""
        self._core = None
        self._waiting.clear()
        self._isFlowing = False
        for member in tuple(self._members):
            member.session.subscriptionLost(error)
