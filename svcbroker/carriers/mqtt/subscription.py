"""
A session's subscription to one topic filter, and the readers of the log: one position for the
filters of a session, or for the group that members of a shared subscription form.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, Protocol

from msgspec import Struct, structs
from zope.interface import implementer

from ...access import Principal, Usage
from ...broker.subscriptions import FilterTrie, Holder, Subscriptions, TopicMatches
from ...errors import BrokerError
from ...interfaces import Batch, ISubscriber, ISubscription
from ...model import Edge, Event, InterfaceType, Offset, Position, SubscribeRequest
from ...net.deferreds import asDeferred
from ...net.turns import Lock
from ...operations import sourceOf
from .delivery import Delivery, DeliveryOptions, makeOptions, optionsOfAll
from .kept import KeptSubscription, Key
from .messages import CloudEventForm, MqttMessage, formOf
from .packets import MQTT_5

REMEMBERED_TOPICS: Final = 1000
"""For how many topics a reader remembers which of its subscriptions match."""
REMEMBERED_MATCHES: Final = 50_000
"""The most matches it remembers. A session may have a thousand filters that match each topic."""
_TOPICS: Final = "mqtt-topics"


def _topicsOf(events: Sequence[Event]) -> Collection[str]:
    return {event.topic for event in events}


class _Found(Struct, frozen=True):
    """
    The subscriptions whose filters match a topic.

    @ivar options: those of a message that all of them get; C{None} where there are none.
    """

    members: Sequence[SessionSubscription]
    options: DeliveryOptions | None


class SubscribedSession(Protocol):
    """
    A session, as its subscriptions know it.

    @ivar group: the group whose log it uses.
    @ivar clientId: the client identifier.
    @ivar account: the account that it belongs to; empty where there were no credentials.
    @ivar principal: the account, once the client has connected.
    @ivar isPersistent: whether it outlives connections.
    @ivar mark: the L{publisherMark} of its client.
    @ivar delivery: sends to the client; C{None} while it is absent.
    """

    group: str
    clientId: str
    account: str
    principal: Principal
    isPersistent: bool
    mark: str
    delivery: Delivery | None

    def forgetAcknowledged(
        self, subscriptionId: str, isAcknowledged: Callable[[Position], bool]
    ) -> None:
        """Forget messages that a subscription of the log will not hand over."""

    def subscriptionLost(self, error: BrokerError) -> None:
        """Close the connection, since the log cannot be read any further."""


@implementer(ISubscriber)
class LogReader:
    """
    A subscription of the log for one or more subscriptions of a session. An event that several of
    them match is one message, with all their identifiers and the highest granted QoS
    [MQTT-3.3.5-1] [MQTT5-3.3.4-2] [MQTT5-3.3.4-4].

    A subscription that begins now joins the others without a change of the position: its events
    are those after its own start.

    @ivar always: see L{Source}: set where it is single and has begun.
    @ivar isJoinable: whether subscriptions without an offset, a tag or a format of their own join
        it.
    @ivar members: the subscriptions, by topic filter.
    @ivar waiting: how many of them wait for their retained messages.
    """

    isShared = False

    def __init__(
        self,
        session: SubscribedSession,
        subscriptions: Subscriptions,
        first: KeptSubscription,
    ) -> None:
        """
        @param first: its first member.
        """
        self.subscriptionId = first.subscriptionId
        self.isJoinable = first.isJoined
        self.isAcknowledged = False
        self.members: dict[str, SessionSubscription] = {}
        self.waiting = 0
        self._session = session
        self._subscriptions = subscriptions
        self._core: ISubscription | None = None
        # Members beyond the first, which count for the account that opened it as well.
        self._usage: Usage | None = None
        self._counted = 0
        self._trie: FilterTrie[SessionSubscription] | None = None
        # Made for several members.
        self._remembered: TopicMatches[_Found] | None = None
        # All members have begun at this height; None where it must be worked out.
        self._allBegun: int | None = None
        # Whether it reads for its only member, and for no other that has ended.
        self._isSingle = True
        self.always: DeliveryOptions | None = None

    # Members.

    @property
    def form(self) -> CloudEventForm | None:
        """See L{Source.form}. Subscriptions with one do not share a reader."""
        return next((each.form for each in self.members.values()), None)

    def add(self, member: SessionSubscription) -> None:
        """Add a subscription, which is opened after."""
        self.members[member.topicFilter] = member
        self._isSingle = len(self.members) == 1
        if self._trie is not None:
            self._trie.add(member.topicFilter, member)
        self.changed()

    def remove(self, member: SessionSubscription) -> None:
        """Remove a subscription. Its messages may still be acknowledged."""
        member.endWait()
        del self.members[member.topicFilter]
        if self._trie is not None:
            self._trie.remove(member.topicFilter, member)
        self.changed()
        if self.members and self._core is not None and member.kept.start is not None:
            self._core.removeFilter(member.topicFilter)
            self._count(len(self.members) - 1)

    def changed(self) -> None:
        """Look at the members anew: their options have changed."""
        self._remembered = None
        self.always = None
        self._allBegun = None

    @property
    def _starts(self) -> Sequence[tuple[int, int]]:
        return [each.kept.start for each in self.members.values() if each.kept.start is not None]

    def _hasBegun(self, event: Event) -> bool:
        """Whether an event is beyond the starts of all members."""
        if self._allBegun is None:
            self._allBegun = max(
                (height + (index >= 0) for height, index in self._starts), default=0
            )
        return event.eventId.height >= self._allBegun

    # Its place in the log.

    @property
    def isOpen(self) -> bool:
        """Whether it has a subscription of the log."""
        return self._core is not None

    async def open(
        self, member: SessionSubscription, remote: str, offset: Offset | None = None
    ) -> None:
        """
        Open it for a member, from the position on. It is paused.

        @param offset: where a new one begins; from now on by default.
        @raise BrokerError: the log refuses it.
        """
        if self._core is None:
            await self._open(remote, offset)
        elif member.kept.start is None:
            self._count(len(self.members) - 1)
            try:
                start = self._core.addFilter(member.topicFilter)
            except BrokerError:
                self._count(len(self.members) - 2)
                raise
            member.kept = structs.replace(member.kept, start=start)
        self.changed()

    def _count(self, wanted: int) -> None:
        """
        Count members for the account.

        @raise QuotaExceeded: it has as many subscriptions as it may have.
        """
        assert self._usage is not None
        if wanted > self._counted:
            self._usage.take("subscriptions", wanted - self._counted)
        elif wanted < self._counted:
            self._usage.free("subscriptions", self._counted - wanted)
        self._counted = wanted

    async def _open(self, remote: str, offset: Offset | None) -> None:
        session = self._session
        isDurable = session.isPersistent
        kept = next(iter(self.members.values())).kept
        core = await self._subscriptions.subscribe(
            session.principal,
            SubscribeRequest(
                interfaceType=InterfaceType.MQTT,
                kind="mqtt",
                group=session.group,
                filters=tuple(self.members),
                offset=self._begin(offset),
                tag=kept.tag,
                hasTombstones=kept.hasTombstones,
                subscriptionId=self.subscriptionId,
                remote=remote,
                mustExist=False,
                isResumed=all(each.kept.start is not None for each in self.members.values()),
                isDurable=isDurable,
                # A session that ends with its connection has nothing to resume.
                isAcknowledged=isDurable,
            ),
            self,
        )
        if session.delivery is None:
            # The connection has ended meanwhile.
            core.close()
            return
        self._usage = session.principal.usage
        try:
            self._count(len(self.members) - 1)
        except BrokerError:
            self._count(0)
            core.close()
            raise
        self._core = core
        self._isSingle = len(self.members) == 1
        end = self._subscriptions.end(session.group)
        for member in self.members.values():
            start = member.kept.start
            if start is None:
                member.kept = structs.replace(member.kept, start=core.position)
            elif start > end:
                # The log was put back from a backup.
                member.kept = structs.replace(member.kept, start=end)
        self.isAcknowledged = core.request.isAcknowledged
        session.forgetAcknowledged(self.subscriptionId, core.isAcknowledged)

    def _begin(self, offset: Offset | None) -> Offset:
        """The offset where it begins if the log does not know its position."""
        starts = self._starts
        if starts:
            return Position(*min(starts))
        return Edge.LAST if offset is None else offset

    def resume(self) -> None:
        """See L{Source.resume}. It waits for the retained messages of its members."""
        if self._core is not None and not self.waiting:
            self._core.resume()

    def pause(self) -> None:
        """See L{Source.pause}."""
        if self._core is not None:
            self._core.pause()

    def acknowledge(self, events: Sequence[Event]) -> None:
        """See L{Source.acknowledge}."""
        if self._core is not None:
            self._core.acknowledge(events)

    def storePosition(self) -> None:
        """See L{Source.storePosition}."""
        if self._core is not None:
            self._core.storePosition()

    def close(self, *, forget: bool) -> None:
        """Close the subscription of the log."""
        for member in self.members.values():
            member.endWait()
        core, self._core = self._core, None
        if core is not None:
            self._count(0)
            core.close(forget=forget)

    # Messages.

    def keyOf(self, event: Event) -> Key:
        """See L{Source.keyOf}."""
        return (self.subscriptionId, event.eventId.height, event.index)

    def optionsOf(self, batch: Batch) -> DeliveryOptions | None:
        """See L{Source.optionsOf}."""
        options: DeliveryOptions | None = None
        if not self._hasBegun(batch.events[0]):
            return None
        if self._isSingle:
            for member in self.members.values():
                options = self.always = member.options
            return options
        for topic in batch.encoded(_TOPICS, _topicsOf):
            found = self._find(topic).options
            if options is None:
                options = found
            if found is None or found != options:
                return None
        return options

    def optionsFor(self, message: MqttMessage) -> DeliveryOptions | None:
        """See L{Source.optionsFor}."""
        event, publisher = message.event, message.publisher
        found = self._find(event.topic)
        isOwn = publisher is not None and publisher == self._session.mark
        if not isOwn and self._hasBegun(event):
            return found.options
        position = event.position
        return optionsOfAll(
            member.options
            for member in found.members
            # [MQTT5-3.8.3-3]: each for itself.
            if not (isOwn and member.noLocal)
            and (member.kept.start is None or position > member.kept.start)
        )

    def _find(self, topic: str) -> _Found:
        if self._remembered is None:
            self._remembered = TopicMatches(REMEMBERED_TOPICS, REMEMBERED_MATCHES)
        found = self._remembered.get(topic)
        if found is None:
            members = tuple(self._matching(topic))
            found = _Found(members, optionsOfAll(each.options for each in members))
            self._remembered.keep(topic, found, len(members))
        return found

    def _matching(self, topic: str) -> Iterable[SessionSubscription]:
        if self._trie is None:
            self._trie = FilterTrie()
            for topicFilter, member in self.members.items():
                self._trie.add(topicFilter, member)
        return sorted(self._trie.match(topic), key=lambda member: member.kept.identifier)

    # ISubscriber

    def deliver(self, batch: Batch) -> None:
        """See L{ISubscriber.deliver}."""
        if self._session.delivery is not None:
            self._session.delivery.deliver(self, batch)

    def subscriptionEnded(self, error: BrokerError) -> None:
        """See L{ISubscriber.subscriptionEnded}."""
        self._core = None
        self._count(0)
        self._session.subscriptionLost(error)


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
    A subscription of a session. The log is read for it by a L{LogReader}, or by the group of a
    shared one. It is the source of its retained messages, and of a share's events.

    @ivar kept: its state on disk.
    @ivar options: the options that its frames depend on.
    @ivar topicFilter: the filter without the prefix of a shared one.
    @ivar isWaiting: whether it is paused until retained messages were sent.
    @ivar isRemoved: whether it has ended.
    @ivar reader: reads the log for an ordinary one.
    @ivar group: the group of a shared one.
    """

    isShared = True
    always: DeliveryOptions | None = None

    def __init__(
        self,
        session: SubscribedSession,
        kept: KeptSubscription,
        *,
        reader: LogReader | None = None,
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
        self.options = makeOptions(
            version, kept.qos, kept.retainAsPublished, identifiers, isPlain, form
        )
        if self.reader is not None:
            self.reader.changed()

    @property
    def holder(self) -> Holder:
        """The holder of its position: its session, or the group of a shared one."""
        reader = self.reader
        if reader is None:
            return Holder("mqtt", self.kept.topicFilter, lambda: (self.topicFilter,))
        return Holder("mqtt", self.session.clientId, lambda: tuple(reader.members))

    def wait(self) -> None:
        """Pause until the retained messages were sent."""
        if self.reader is not None:
            self.reader.waiting += not self.isWaiting
            self.reader.pause()
        self.isWaiting = True

    def endWait(self) -> None:
        """They were sent, or it ends."""
        if self.reader is not None:
            self.reader.waiting -= self.isWaiting
        self.isWaiting = False

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

    def optionsOf(self, batch: Batch) -> DeliveryOptions | None:
        """See L{Source.optionsOf}."""
        return self.options

    def optionsFor(self, message: MqttMessage) -> DeliveryOptions | None:
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


def shareKeyOf(session: SubscribedSession, kept: KeptSubscription) -> ShareKey:
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
                kind="mqtt",
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
