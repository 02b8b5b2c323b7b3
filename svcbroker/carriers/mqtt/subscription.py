"""
One topic filter of one session.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct, structs
from zope.interface import implementer

from ...errors import BrokerError
from ...interfaces import Batch, ISubscriber, ISubscription
from ...model import Edge, Event, InterfaceType, Offset, Position, SubscribeRequest
from .batches import Options
from .packets import MQTT_5

if TYPE_CHECKING:
    from .session import Session
    from .shares import ShareGroup

Key: TypeAlias = tuple[str, int, int]
"""What names an event on its way to one subscription: the subscription's id, height, index."""


class KeptSubscription(Struct, frozen=True, kw_only=True):
    """
    A subscription as it stands on disk.

    @ivar topicFilter: the filter as the client wrote it, C{$share/} included.
    @ivar subscriptionId: the id of the log's subscription.
    @ivar start: the place after which it began; C{None} before it has begun.
    """

    topicFilter: str
    subscriptionId: str
    start: tuple[int, int] | None = None
    qos: int = 0
    noLocal: bool = False
    retainAsPublished: bool = False
    identifier: int = 0
    tag: str | None = None


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

    @raise ValueError: it begins as a shared one but is none [MQTT5-4.8.2-1] [MQTT5-4.8.2-2].
    """
    if not topicFilter.startswith("$share/"):
        return None
    _, name, rest = (*topicFilter.split("/", 2), "")[:3]
    if not name or not rest or "+" in name or "#" in name:
        raise ValueError("not a shared subscription's topic filter")
    return ShareName(name, rest)


def startOf(kept: KeptSubscription, offset: Offset | None) -> Offset:
    """
    Where the log is to be read from, if the subscription's position is not known.

    @param offset: what the client asks for.
    """
    if kept.start is not None:
        return Position(*kept.start)
    return Edge.LAST if offset is None else offset


@implementer(ISubscriber)
class SessionSubscription:
    """
    Takes events from the log for a session's client, while that is connected.

    @ivar kept: what was asked for.
    @ivar options: what its frames depend on.
    @ivar isWaiting: whether retained messages come first.
    @ivar group: the group that it shares with others, if it does.
    """

    def __init__(self, session: Session, kept: KeptSubscription, group: ShareGroup | None) -> None:
        self.session = session
        self.group = group
        self._core: ISubscription | None = None
        self.isAcknowledged = False
        self.isWaiting = False
        self.change(kept)

    def change(self, kept: KeptSubscription) -> None:
        """Other options hold from now on [MQTT-3.8.4-3] [MQTT5-3.8.4-3]."""
        self.kept = kept
        self.noLocal = kept.noLocal
        self.useVersion(MQTT_5)

    def useVersion(self, version: int) -> None:
        """The connection has this protocol level."""
        kept = self.kept
        self.options = Options(version, kept.qos, kept.retainAsPublished, kept.identifier)

    @property
    def topicFilter(self) -> str:
        """The filter without what makes it shared."""
        share = parseShare(self.kept.topicFilter)
        return self.kept.topicFilter if share is None else share.topicFilter

    def keyOf(self, event: Event) -> Key:
        """What names an event on its way here."""
        return (self.kept.subscriptionId, event.eventId.height, event.index)

    # Its place in the log.

    def request(self, remote: str, offset: Offset | None) -> SubscribeRequest:
        """
        What is asked of the log.

        @param offset: where it begins that was nowhere before.
        """
        isDurable = self.session.isPersistent
        return SubscribeRequest(
            interfaceType=InterfaceType.MQTT,
            group=self.session.group,
            filters=(self.topicFilter,),
            offset=startOf(self.kept, offset),
            tag=self.kept.tag,
            subscriptionId=self.kept.subscriptionId,
            remote=remote,
            mustExist=False,
            isDurable=isDurable,
            # A session that ends with its connection has nothing to resume.
            isAcknowledged=isDurable,
        )

    def opened(self, core: ISubscription) -> None:
        """The log's subscription is there, paused."""
        self._core = core
        if self.kept.start is None:
            self.kept = structs.replace(self.kept, start=core.position)
        self.isAcknowledged = core.request.isAcknowledged

    @property
    def isOpen(self) -> bool:
        """Whether there is a log's subscription."""
        return self._core is not None

    def resume(self) -> None:
        """Let events come."""
        if self.isWaiting:
            return
        if self.group is not None:
            self.group.deal()
        elif self._core is not None:
            self._core.resume()

    def pause(self) -> None:
        """Let no more events come for now."""
        if self._core is not None:
            self._core.pause()

    def acknowledge(self, events: Sequence[Event]) -> None:
        """The client has these."""
        if self.group is not None:
            self.group.acknowledge(events)
        elif self._core is not None:
            self._core.acknowledge(events)

    def close(self, *, forget: bool) -> None:
        """Let go of the log."""
        self.isWaiting = False
        core, self._core = self._core, None
        if core is not None:
            core.close(forget=forget)

    # ISubscriber

    def deliver(self, batch: Batch) -> None:
        """See L{ISubscriber.deliver}."""
        if self.session.delivery is not None:
            self.session.delivery.deliver(self, batch)

    def subscriptionEnded(self, error: BrokerError) -> None:
        """See L{ISubscriber.subscriptionEnded}."""
        self._core = None
        self.session.subscriptionLost(error)
