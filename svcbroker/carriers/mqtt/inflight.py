"""
What was sent to a client with QoS 1 or 2 and is not acknowledged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from ...model import Event
from .batches import FrameTemplate, Sent
from .settings import MAX_U16

if TYPE_CHECKING:
    from .session import Session
    from .subscription import SessionSubscription


class InFlight(Struct, frozen=True):
    """
    A message that was sent with QoS 1 or 2 and is not acknowledged.

    @ivar subscription: whose position moves on when it is; C{None} for one that does not come
        from there: a retained one, or one whose subscription has ended.
    """

    subscription: SessionSubscription | None
    sent: Sent


class _Run(Struct, frozen=True):
    """
    Messages with packet identifiers that follow each other. It stands for each of them, so that
    a batch of messages makes one object and not as many.

    @ivar first: the packet identifier of the first.
    """

    subscription: SessionSubscription | None
    first: int
    sent: Sequence[Sent]


class Window:
    """
    The messages on their way to a client, and the packet identifiers that they have.
    """

    def __init__(self, session: Session, count: int, maxBytes: int) -> None:
        """
        @param count: how many messages may be unacknowledged.
        @param maxBytes: how many bytes those may have together, apart from a single one.
        """
        self._session = session
        self._count = count
        self._maxBytes = maxBytes
        self._runs: dict[int, _Run] = {}
        self._bytes = 0
        self._lastId = 0

    # Room.

    @property
    def _used(self) -> int:
        return len(self._runs) + len(self._session.released)

    @property
    def hasRoom(self) -> bool:
        """Whether another message may be sent."""
        # [MQTT5-3.3.4-9] [MQTT5-4.9.0-1] [MQTT5-4.9.0-2]
        return self._used < self._count and self._bytes < self._maxBytes

    @property
    def isHalfEmpty(self) -> bool:
        """Whether it pays to let more come."""
        return 2 * self._used <= self._count and 2 * self._bytes <= self._maxBytes

    def fits(self, count: int, size: int) -> bool:
        """Whether so many messages may be sent together, of so many bytes."""
        return not count or (
            self._used + count <= self._count and self._bytes + size <= self._maxBytes
        )

    # Packet identifiers.

    def newId(self) -> int:
        """A packet identifier that is not in use [MQTT-2.3.1-4] [MQTT5-2.2.1-4]."""
        packetId = self._lastId
        while True:
            packetId = packetId % MAX_U16 + 1
            if packetId not in self._runs and not self._session.usesId(packetId):
                self._lastId = packetId
                return packetId

    def newIds(self, count: int, wanted: range | None) -> Sequence[int]:
        """
        Several packet identifiers that are not in use.

        @param wanted: these are taken if they are free.
        """
        following = range(self._lastId + 1, self._lastId + 1 + count)
        for packetIds in (following,) if wanted is None else (wanted, following):
            if packetIds[-1] <= MAX_U16 and self._areFree(packetIds):
                self._lastId = packetIds[-1]
                return packetIds
        return [self.newId() for _ in range(count)]

    def _areFree(self, packetIds: range) -> bool:
        return self._runs.keys().isdisjoint(packetIds) and not self._session.usesAny(packetIds)

    # Messages.

    def add(self, packetId: int, subscription: SessionSubscription | None, sent: Sent) -> None:
        """A message was sent."""
        self._runs[packetId] = _Run(subscription, packetId, (sent,))
        self._bytes += sent.size

    def addAll(
        self, packetIds: Sequence[int], subscription: SessionSubscription, template: FrameTemplate
    ) -> None:
        """A template's messages were sent, with packet identifiers from L{newIds}."""
        messages = template.sent
        if isinstance(packetIds, range):
            run = _Run(subscription, packetIds[0], messages)
            self._runs.update(dict.fromkeys(packetIds, run))
            self._bytes += template.size
        else:
            for packetId, sent in zip(packetIds, messages, strict=True):
                self.add(packetId, subscription, sent)

    def get(self, packetId: int) -> InFlight | None:
        """The message with a packet identifier."""
        run = self._runs.get(packetId)
        return None if run is None else InFlight(run.subscription, run.sent[packetId - run.first])

    def remove(self, packetId: int) -> None:
        """The client has a message, or is not going to."""
        run = self._runs.pop(packetId)
        self._bytes -= run.sent[packetId - run.first].size

    def acknowledge(
        self, packetIds: Sequence[int], done: dict[SessionSubscription, list[Event]]
    ) -> None:
        """
        The client has messages with QoS 1; whatever else is named so is left alone.

        @param done: gets what subscriptions want to know of.
        """
        runs = self._runs
        for packetId in packetIds:
            run = runs.get(packetId)
            if run is None:
                continue
            sent = run.sent[packetId - run.first]
            if sent.qos == 1:
                del runs[packetId]
                self._bytes -= sent.size
                subscription = run.subscription
                if subscription is not None and subscription.isAcknowledged:
                    done.setdefault(subscription, []).append(sent.message.event)

    def orphan(self, subscription: SessionSubscription) -> None:
        """A subscription ends; what was sent for it is still to be acknowledged."""
        for packetId, run in self._runs.items():
            if run.subscription is subscription:
                # [MQTT-3.10.4-3] [MQTT5-3.10.4-3]
                self._runs[packetId] = _Run(None, run.first, run.sent)

    def all(self) -> dict[int, InFlight]:
        """All messages, by packet identifier."""
        return {
            packetId: InFlight(run.subscription, run.sent[packetId - run.first])
            for packetId, run in self._runs.items()
        }
