"""
A session's subscription to one topic filter, and the group that members of a shared one form.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct, structs
from zope.interface import implementer

from ...access import Principal
from ...broker.subscriptions import Holder, Subscriptions
from ...errors import BrokerError
from ...interfaces import Batch, ISubscriber, ISubscription
from ...model import Edge, Event, InterfaceType, Offset, Position, SubscribeRequest
from ...net.deferreds import asDeferred
from ...net.turns import Lock
from ...operations import sourceOf
from .cloudevents import CloudEventForm, formOf
from .frames import Options
from .messages import Message
from .packets import MQTT_5
from .reader import Reader

if TYPE_CHECKING:
    from .session import Session

Key: TypeAlias = tuple[str, int, int]
"""An event on its way to one subscription: the subscription's id, height, index."""


class KeptSubscription(Struct, frozen=True, kw_only=True):
    """
    A subscription as it stands on disk.

    @ivar topicFilter: the filter as the client wrote it, C{$share/} included.
    @ivar subscriptionId: the id of the subscription of the log.
    @ivar start: the position after which it began; C{None} before it was opened.
    @ivar format: the name of the format of its events; empty where it asks for none.
    @ivar hasTombstones: whether it gets erased events too.
    @ivar isJoined: whether others of its session have the same subscription of the log.
    """

    topicFilter: str
    subscriptionId: str
    start: tuple[int, int] | None = None
    qos: int = 0
    noLocal: bool = False
    retainAsPublished: bool = False
    identifier: int = 0
    tag: str | None = None
    format: str = ""
    hasTombstones: bool = False
    isJoined: bool = False


class ShareName(Struct, frozen=True):
    """
    The parts of a shared subscription's filter. Section 4.8.2 of MQTT 5.

    @ivar name: the share name.
    @ivar topicFilter: the topic filter.
    """

    name: str
    topicFilter: str


def parseShare(topicFilter: str) -> ShareName | None:
    """
    The parts of a shared subscription's filter; C{None} where it is an ordinary one.

    @raise ValueError: it is a malformed shared one [MQTT5-4.8.2-1] [MQTT5-4.8.2-2].
    """
    if not topicFilter.startswith("$share/"):
        return None
    _, name, rest = (*topicFilter.split("/", 2), "")[:3]
    if not name or not rest or "+" in name or "#" in name:
        raise ValueError("not a shared subscription's topic filter")
    return ShareName(name, rest)


class SessionSubscription:
    """
    A subscription of a session: what reads the log for it is a L{Reader}, or the group of a shared
    one. It is the source of its retained messages, and of a share's events.

    @ivar kept: its state on disk.
    @ivar options: the options that its frames depend on.
    @ivar topicFilter: the filter without the prefix of a shared one.
    @ivar isWaiting: whether it is paused until retained messages were sent.
    @ivar isRemoved: whether it has ended.
    @ivar reader: reads the log for an ordinary one.
    @ivar group: the group of a shared one.
    """

    isShared = True
    always: Options | None = None

    def __init__(
        self,
        session: Session,
        kept: KeptSubscription,
        *,
        reader: Reader | None = None,
        group: ShareGroup | None = None,
    ) -> None:
        share = parseShare(kept.topicFilter)
        self.topicFilter = kept.topicFilter if share is None else share.topicFilter
        self.session = session
        self.reader = reader
        self.group = group
        self.isAcknowledged = False
        self.isWaiting = False
        self.isRemoved = False
        self.change(kept)

    def change(self, kept: KeptSubscription) -> None:
        """Replace the options [MQTT-3.8.4-3] [MQTT5-3.8.4-3]."""
        self.kept = kept
        self.noLocal = kept.noLocal
        self.useVersion(MQTT_5)

    def useVersion(self, version: int, *, isPlain: bool = False, base: str = "") -> None:
        """
        Deliver in this protocol level, maybe without the broker's own user property.

        @param base: the base path, with which the C{source} of CloudEvents begins.
        """
        kept = self.kept
        identifiers = (kept.identifier,) if kept.identifier else ()
        form = formOf(kept.format, sourceOf(base, self.session.group)) if kept.format else None
        self.options = Options(
            version, kept.qos, kept.retainAsPublished, identifiers, isPlain, form
        )
        if self.reader is not None:
            self.reader.changed()

    @property
    def holder(self) -> Holder:
        """What keeps its position: its session, or the group of a shared one."""
        reader = self.reader
        if reader is None:
            return Holder("mqtt", self.kept.topicFilter, lambda: (self.topicFilter,))
        return Holder("mqtt", self.session.clientId, lambda: tuple(reader.members))

    def wait(self) -> None:
        """Pause until the retained messages were sent."""
        self.isWaiting = True
        if self.reader is not None:
            self.reader.pause()

    def resume(self) -> None:
        """Receive events."""
        if self.reader is not None:
            self.reader.resume()
        elif self.group is not None and not self.isWaiting:
            self.group.deal()

    # Source

    @property
    def form(self) -> CloudEventForm | None:
        """See L{Source.form}."""
        return self.options.form

    @property
    def subscriptionId(self) -> str:
        """The id of its subscription of the log."""
        return self.kept.subscriptionId

    def pause(self) -> None:
        """See L{Source.pause}. The group passes over a member without room."""

    def optionsOf(self, batch: Batch) -> Options | None:
        """See L{Source.optionsOf}."""
        return self.options

    def optionsFor(self, message: Message) -> Options | None:
        """See L{Source.optionsFor}."""
        isOwn = self.noLocal and message.publisher == self.session.mark
        # [MQTT5-3.8.3-3]
        return None if self.isRemoved or isOwn else self.options

    def keyOf(self, event: Event) -> Key:
        """See L{Source.keyOf}."""
        return (self.kept.subscriptionId, event.eventId.height, event.index)

    def acknowledge(self, events: Sequence[Event]) -> None:
        """See L{Source.acknowledge}."""
        if self.group is not None:
            self.group.acknowledge(events)

    def storePosition(self) -> None:
        """See L{Source.storePosition}."""
        if self.group is not None:
            self.group.storePosition()


ShareKey = tuple[str, str, str, str | None, bool]
"""
The key of a share group: the group, the account, the filter with C{$share/}, the tag, and whether
there are tombstones.
"""


def shareKeyOf(session: Session, kept: KeptSubscription) -> ShareKey:
    """The key of the share group of a subscription."""
    return session.group, session.account, kept.topicFilter, kept.tag, kept.hasTombstones


@implementer(ISubscriber)
class ShareGroup:
    """
    The members of a shared subscription: one reader of the log for one share name and filter of an
    account.

    Each event goes to one member, the next in turn that has room and may read it: rights may differ
    between the clients of an account. The log is read by those of the member that opened it. An
    event that no member may read is left out.

    Messages that were sent with QoS 1 to a member that leaves go to another; with QoS 2 they stay
    with that member's session [MQTT5-4.8.2-4].

    @ivar sessions: the number of sessions that subscribe, those of absent clients included.
    @ivar kept: the state that its members share: filter, id, start, tag.
    """

    def __init__(self, group: str, kept: KeptSubscription, subscriptions: Subscriptions) -> None:
        self.kept = kept
        self.sessions = 0
        self._group = group
        self._subscriptions = subscriptions
        self._core: ISubscription | None = None
        self._lock = Lock()
        self._members: deque[SessionSubscription] = deque()
        self._waiting: deque[Event] = deque()
        self._reserved: set[Position] = set()
        self._isFlowing = False

    @asDeferred
    async def join(self, member: SessionSubscription, remote: str, offset: Offset | None) -> None:
        """
        Add a member that is connected.

        @param offset: where a new group begins.
        @raise BrokerError: the log cannot be subscribed to.
        """
        async with self._lock:
            if self._core is None:
                await self._open(member.session.principal, remote, offset)
        member.isAcknowledged = True
        member.kept = structs.replace(member.kept, start=self.kept.start)
        if member.session.delivery is not None:
            self._members.append(member)

    async def _open(self, principal: Principal, remote: str, offset: Offset | None) -> None:
        share, start = parseShare(self.kept.topicFilter), self.kept.start
        assert share is not None
        if start is not None:
            # Where it began, if the log does not know its position.
            offset = Position(*start)
        self._core = await self._subscriptions.subscribe(
            principal,
            SubscribeRequest(
                interfaceType=InterfaceType.MQTT,
                group=self._group,
                filters=(share.topicFilter,),
                offset=Edge.LAST if offset is None else offset,
                tag=self.kept.tag,
                hasTombstones=self.kept.hasTombstones,
                subscriptionId=self.kept.subscriptionId,
                remote=remote,
                mustExist=False,
                isResumed=start is not None,
                isDurable=True,
                isAcknowledged=True,
            ),
            self,
        )
        if self.kept.start is None:
            self.kept = structs.replace(self.kept, start=self._core.position)

    def leave(self, member: SessionSubscription, unfinished: Iterable[Event]) -> None:
        """
        Remove a member that is no longer connected.

        @param unfinished: events that were sent to it and go to another.
        """
        if member in self._members:
            self._members.remove(member)
        again = sorted(unfinished, key=lambda event: event.position, reverse=True)
        self._waiting.extendleft(again)
        if self._members:
            self.deal()
        else:
            self._close(forget=False)

    def reserve(self, event: Event) -> None:
        """Leave an event to the session of an absent member until it is acknowledged."""
        self._reserved.add(event.position)

    def acknowledge(self, events: Sequence[Event]) -> None:
        """Acknowledge events to the log."""
        self._reserved.difference_update(event.position for event in events)
        if self._core is not None:
            self._core.acknowledge(events)

    def storePosition(self) -> None:
        """Store the position together with a session's changes of this turn."""
        if self._core is not None:
            self._core.storePosition()

    def end(self) -> None:
        """End the group: its last session has unsubscribed or ended."""
        if self._core is not None:
            self._close(forget=True)
        else:
            self._subscriptions.forget(self.kept.subscriptionId)

    def _close(self, *, forget: bool) -> None:
        # The log delivers waiting events again: they are not acknowledged.
        self._waiting.clear()
        self._isFlowing = False
        core, self._core = self._core, None
        if core is not None:
            core.close(forget=forget)

    def deliver(self, batch: Batch) -> None:
        """See L{ISubscriber.deliver}."""
        self._waiting.extend(
            event for event in batch.events if event.position not in self._reserved
        )
        self.deal()

    def deal(self) -> None:
        """Hand out waiting events while a member has room."""
        while self._waiting:
            event = self._waiting[0]
            member, isReadable = self._next(event)
            if member is None and isReadable:
                break
            self._waiting.popleft()
            if member is None:
                self.acknowledge((event,))
                continue
            delivery = member.session.delivery
            assert delivery is not None
            # [MQTT5-4.8.2-3]: each with its own granted QoS.
            delivery.offer(member, event)
        wantsMore = not self._waiting and bool(self._members)
        if self._core is not None and wantsMore != self._isFlowing:
            self._isFlowing = wantsMore
            if wantsMore:
                self._core.resume()
            else:
                self._core.pause()

    def _next(self, event: Event) -> tuple[SessionSubscription | None, bool]:
        """The next member that can take an event, and whether any member may read it."""
        members = self._members
        isReadable = not members
        for _ in range(len(members)):
            member = members[0]
            members.rotate(-1)
            delivery = member.session.delivery
            if delivery is None:
                isReadable = True
                continue
            if not delivery.mayRead(event):
                continue
            isReadable = True
            if delivery.canTake:
                return member, True
            # It calls deal when it has room.
            delivery.halt()
        return None, isReadable

    def subscriptionEnded(self, error: BrokerError) -> None:
        """See L{ISubscriber.subscriptionEnded}."""
        self._core = None
        self._waiting.clear()
        self._isFlowing = False
        for member in tuple(self._members):
            member.session.subscriptionLost(error)
