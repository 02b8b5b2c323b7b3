"""
What reads the log for a session's subscriptions: one position for one topic filter or for many.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct, structs
from zope.interface import implementer

from ...access import Usage
from ...broker.subscriptions import FilterTrie, Subscriptions, TopicMatches
from ...errors import BrokerError
from ...interfaces import Batch, ISubscriber, ISubscription
from ...model import Edge, Event, InterfaceType, Offset, Position, SubscribeRequest
from .cloudevents import CloudEventForm
from .frames import Options, optionsOfAll
from .messages import Message

if TYPE_CHECKING:
    from .session import Session
    from .subscription import KeptSubscription, Key, SessionSubscription

REMEMBERED_TOPICS: Final = 1000
"""For how many topics a reader remembers which of its subscriptions match."""
REMEMBERED_MATCHES: Final = 50_000
"""How many matches it remembers. A session may have a thousand filters that match each topic."""
_TOPICS: Final = "mqtt-topics"


def _topicsOf(events: Sequence[Event]) -> Collection[str]:
    return {event.topic for event in events}


class Source(Protocol):
    """
    What messages come from and are acknowledged to: a L{Reader}, or a member of a share.

    @ivar isAcknowledged: whether it waits for acknowledgements.
    @ivar isShared: whether others read from the same position.
    @ivar always: the options of all events; C{None} where it must be asked for them. Hot path:
        saves a call for each batch.
    """

    isAcknowledged: bool
    isShared: bool
    always: Options | None

    @property
    def subscriptionId(self) -> str:
        """The id of its subscription of the log."""

    @property
    def form(self) -> CloudEventForm | None:
        """How its events are written as CloudEvents; C{None} as they were published."""

    def optionsOf(self, batch: Batch) -> Options | None:
        """The options of all events of a batch; C{None} where they differ."""

    def optionsFor(self, message: Message) -> Options | None:
        """The options of a message; C{None} where it is not to be delivered, or not any more."""

    def keyOf(self, event: Event) -> Key:
        """The key of an event."""

    def acknowledge(self, events: Sequence[Event]) -> None:
        """Acknowledge events to the log."""

    def storePosition(self) -> None:
        """Store the position together with the session's changes of this turn."""

    def resume(self) -> None:
        """Receive events."""

    def pause(self) -> None:
        """Receive no events."""


class _Found(Struct, frozen=True):
    """
    The subscriptions whose filters match a topic.

    @ivar options: those of a message that all of them get; C{None} where there are none.
    """

    members: Sequence[SessionSubscription]
    options: Options | None


@implementer(ISubscriber)
class Reader:
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
    """

    isShared = False

    def __init__(
        self,
        session: Session,
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
        self._session = session
        self._subscriptions = subscriptions
        self._core: ISubscription | None = None
        # Members beyond the first, which count for the account that opened it as well.
        self._usage: Usage | None = None
        self._counted = 0
        self._trie: FilterTrie[SessionSubscription] | None = None
        self._remembered: TopicMatches[_Found] = TopicMatches(REMEMBERED_TOPICS, REMEMBERED_MATCHES)
        # All members have begun at this height; None where it must be worked out.
        self._allBegun: int | None = None
        # Whether it reads for its only member, and for no other that has ended.
        self._isSingle = True
        self.always: Options | None = None

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
        del self.members[member.topicFilter]
        if self._trie is not None:
            self._trie.remove(member.topicFilter, member)
        self.changed()
        if self.members and self._core is not None and member.kept.start is not None:
            self._core.removeFilter(member.topicFilter)
            self._count(len(self.members) - 1)

    def changed(self) -> None:
        """Look at the members anew: their options have changed."""
        self._remembered.clear()
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
        """Where it begins if the log does not know its position."""
        starts = self._starts
        if starts:
            return Position(*min(starts))
        return Edge.LAST if offset is None else offset

    def resume(self) -> None:
        """See L{Source.resume}. It waits for the retained messages of its members."""
        if self._core is not None and not any(each.isWaiting for each in self.members.values()):
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
            member.isWaiting = False
        core, self._core = self._core, None
        if core is not None:
            self._count(0)
            core.close(forget=forget)

    # Messages.

    def keyOf(self, event: Event) -> Key:
        """See L{Source.keyOf}."""
        return (self.subscriptionId, event.eventId.height, event.index)

    def optionsOf(self, batch: Batch) -> Options | None:
        """See L{Source.optionsOf}."""
        options: Options | None = None
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

    def optionsFor(self, message: Message) -> Options | None:
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
