"""
Delivering messages to a client over one connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from struct import Struct as Layout
from typing import TYPE_CHECKING, Final

import msgspec
from twisted.internet.defer import Deferred, succeed

from ...interfaces import Batch
from ...model import Event
from .batches import FrameTemplate, Options, encodeWithin, messagesOf, templateOf
from .encoder import DUP, PUBREL, encode, encodeSuccess
from .messages import Message, messageOf
from .packets import MQTT_5, Puback, Pubcomp, Pubrec, Pubrel
from .properties import NO_PROPERTIES, Properties
from .reasons import ReasonCode
from .settings import MAX_U16

if TYPE_CHECKING:
    from .session import Session
    from .subscription import SessionSubscription

_PACKET_ID: Final = Layout(">H")
_NO_TOPIC: Final = b"\0\0"


class InFlight(msgspec.Struct, frozen=True):
    """
    A message that was sent with QoS 1 or 2 and is not acknowledged.

    @ivar subscription: whose position moves on when it is; C{None} for one that does not come
        from there: a retained one, or one whose subscription has ended.
    @ivar options: how it was encoded.
    @ivar flags: its flags beside the QoS.
    """

    subscription: SessionSubscription | None
    message: Message
    options: Options
    qos: int
    flags: int


class _Waiting(msgspec.Struct, frozen=True):
    """A message that waits for room."""

    subscription: SessionSubscription
    message: Message
    flags: int
    isFromLog: bool


class Delivery:
    """
    The messages on their way to a client, within what it and the broker bear.

    Called by the session's subscriptions with what the log has for them, and by the connection
    with the client's acknowledgements. What does not fit the window waits here, at most one
    batch of each subscription: they are paused until there is room.
    """

    def __init__(
        self,
        session: Session,
        *,
        version: int,
        send: Callable[[bytes], None],
        window: int,
        maxBytes: int,
        maximumPacketSize: int,
        topicAliasMaximum: int,
        now: Callable[[], float],
    ) -> None:
        """
        @param send: sends a frame, or several.
        @param window: how many messages may be unacknowledged.
        @param maxBytes: how many bytes those may have together, apart from a single one.
        @param maximumPacketSize: the most bytes of a packet that the client takes.
        @param topicAliasMaximum: how many topic aliases may be set.
        """
        self._session = session
        self._version = version
        self._send = send
        self._window = window
        self._maxBytes = maxBytes
        self._maximumPacketSize = maximumPacketSize
        self._topicAliasMaximum = topicAliasMaximum
        self._now = now
        self._inFlight: dict[int, InFlight] = {}
        self._bytes = 0
        self._pending: deque[_Waiting] = deque()
        self._aliases: dict[bytes, int] = {}
        self._acknowledged: dict[SessionSubscription, list[Event]] = {}
        self._lastId = 0
        self._waiters: list[Deferred[None]] = []
        self._isHeld = False
        self._isHalted = False

    # Messages.

    @property
    def isFlowing(self) -> bool:
        """Whether subscriptions may let events come."""
        return not self._isHalted

    @property
    def canTake(self) -> bool:
        """Whether another message could be sent now."""
        return not self._isHeld and not self._pending and self._hasRoom()

    def _hasRoom(self) -> bool:
        # [MQTT5-3.3.4-9] [MQTT5-4.9.0-1] [MQTT5-4.9.0-2]
        return (
            len(self._inFlight) + len(self._session.released) < self._window
            and self._bytes < self._maxBytes
        )

    def deliver(self, subscription: SessionSubscription, batch: Batch) -> None:
        """Send a batch, or as much of it as may be sent now."""
        options = subscription.options
        template = None
        if not (self._pending or self._topicAliasMaximum or self._session.isRedelivering):
            template = templateOf(batch, options)
        if template is not None and self._fits(template):
            self._sendAll(subscription, template)
        else:
            for message in messagesOf(batch, self._version):
                self._offer(subscription, message, 0, True)
        if self._pending or self._isHeld:
            self.halt()
        self.settle()

    def offer(
        self,
        subscription: SessionSubscription,
        event: Event,
        flags: int = 0,
        *,
        isFromLog: bool = True,
    ) -> None:
        """
        Send one message as soon as it may be sent.

        @param isFromLog: whether the subscription waits for its acknowledgement.
        """
        message = messageOf(event, hasProperties=self._version == MQTT_5)
        self._offer(subscription, message, flags, isFromLog)

    def _fits(self, template: FrameTemplate) -> bool:
        used = len(self._inFlight) + len(self._session.released)
        return (
            template.largest <= self._maximumPacketSize
            and used + len(template.places) <= self._window
            and (self._bytes + template.size <= self._maxBytes or not template.places)
        )

    def _sendAll(self, subscription: SessionSubscription, template: FrameTemplate) -> None:
        """The hot one: every frame of a batch in one piece."""
        if not template.places:
            self._send(template.data)
        else:
            data = bytearray(template.data)
            options = subscription.options
            granted = options.qos
            newId, inFlight, fill = self._newId, self._inFlight, _PACKET_ID.pack_into
            for place, message in zip(template.places, template.messages, strict=True):
                packetId = newId()
                fill(data, place, packetId)
                qos = message.qos if message.qos < granted else granted
                inFlight[packetId] = InFlight(subscription, message, options, qos, 0)
                if qos == 2:
                    self._session.sent(packetId, subscription.keyOf(message.event))
            self._bytes += template.size
            self._send(bytes(data))
        if template.others:
            self._done(subscription, template.others)

    def _offer(
        self, subscription: SessionSubscription, message: Message, flags: int, isFromLog: bool
    ) -> None:
        if self._pending or self._mustWait(subscription, message):
            self._pending.append(_Waiting(subscription, message, flags, isFromLog))
        else:
            self._sendOne(subscription, message, flags, isFromLog)

    def _mustWait(self, subscription: SessionSubscription, message: Message) -> bool:
        isCounted = min(message.qos, subscription.options.qos) > 0
        return isCounted and not self._hasRoom()

    def _sendOne(
        self, subscription: SessionSubscription, message: Message, flags: int, isFromLog: bool
    ) -> None:
        options = subscription.options
        qos = min(message.qos, options.qos)
        packetId = 0
        if qos and isFromLog:
            key = subscription.keyOf(message.event)
            if self._session.isReleased(key):
                self._done(subscription, (message.event,))
                return
            # [MQTT-4.4.0-1] [MQTT5-4.4.0-1]
            packetId = self._session.takeUnacknowledged(key)
        isRepeated = packetId != 0
        extra = self._extra(subscription, message, isRepeated)
        if extra is None:
            if isFromLog:
                self._done(subscription, (message.event,))
            return
        if qos and not isRepeated:
            packetId = self._newId()
        if not self._sendFrame(message, options, packetId, flags, isRepeated, extra):
            # Too large for the client: as if it had been delivered [MQTT5-3.1.2-28].
            if isFromLog:
                self._done(subscription, (message.event,))
            return
        if not qos:
            if isFromLog:
                self._done(subscription, (message.event,))
            return
        self._inFlight[packetId] = InFlight(
            subscription if isFromLog else None, message, options, qos, flags
        )
        self._bytes += len(message.event.content)
        if qos == 2 and isFromLog:
            self._session.sent(packetId, subscription.keyOf(message.event))

    def _extra(
        self, subscription: SessionSubscription, message: Message, isRepeated: bool
    ) -> Properties | None:
        """The properties of one delivery; C{None} where there is to be none."""
        if isRepeated:
            # [MQTT5-4.3.3-7]
            remaining = message.remaining(self._now)
            return NO_PROPERTIES if remaining is None else _expiring(max(1, remaining))
        if subscription.noLocal and message.publisher == self._session.mark:
            # [MQTT5-3.8.3-3]
            return None
        remaining = message.remaining(self._now)
        if remaining is None:
            return NO_PROPERTIES
        if remaining <= 0:
            # [MQTT5-3.3.2-5]
            return None
        # [MQTT5-3.3.2-6]
        return _expiring(remaining)

    def _sendFrame(
        self,
        message: Message,
        options: Options,
        packetId: int,
        flags: int,
        isRepeated: bool,
        extra: Properties,
    ) -> bool:
        """Send a message unless it is too large; whether it was sent."""
        topic, alias, isNew = message.topic, 0, False
        if self._topicAliasMaximum:
            topic, alias, isNew = self._aliasOf(topic)
            if alias:
                extra = msgspec.structs.replace(extra, topicAlias=alias)
        encoded = encodeWithin(
            self._maximumPacketSize,
            message,
            options,
            packetId,
            flags=flags | (DUP if isRepeated else 0),  # [MQTT-3.3.1-1] [MQTT5-3.3.1-1]
            topic=topic,
            extra=extra,
        )
        if encoded is None:
            return False  # [MQTT5-3.1.2-27]
        if isNew:
            self._aliases[message.topic] = alias
        self._send(encoded)
        return True

    def _aliasOf(self, topic: bytes) -> tuple[bytes, int, bool]:
        """What stands for a topic, its alias if it has one, and whether that is new."""
        alias = self._aliases.get(topic)
        if alias is not None:
            return _NO_TOPIC, alias, False
        alias = len(self._aliases) + 1
        # [MQTT5-3.1.2-29] [MQTT5-3.1.2-30] [MQTT5-3.3.2-8] [MQTT5-3.3.2-11]
        if alias > self._topicAliasMaximum:
            return topic, 0, False
        return topic, alias, True

    def _newId(self) -> int:
        # [MQTT-2.3.1-4] [MQTT5-2.2.1-4]
        session = self._session
        packetId = self._lastId
        while True:
            packetId = packetId % MAX_U16 + 1
            if packetId not in self._inFlight and not session.usesId(packetId):
                self._lastId = packetId
                return packetId

    # Acknowledgements.

    def puback(self, packet: Puback) -> None:
        """The client has a message with QoS 1, or does not want it [MQTT5-4.4.0-2]."""
        flight = self._inFlight.get(packet.packetId)
        if flight is not None and flight.qos == 1:
            self._remove(packet.packetId, flight)

    def pubrec(self, packet: Pubrec) -> None:
        """The client has a message with QoS 2, or does not want it [MQTT5-4.4.0-2]."""
        packetId = packet.packetId
        flight = self._inFlight.get(packetId)
        if flight is None or flight.qos != 2:
            if packetId in self._session.released or self._version != MQTT_5:
                self._send(encodeSuccess(PUBREL, packetId))
            else:
                unknown = Pubrel(packetId, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)
                self._send(encode(unknown, self._version))
            return
        self._remove(packetId, flight)
        if packet.reason >= ReasonCode.UNSPECIFIED_ERROR:
            self._session.completed(packetId)
            return
        # [MQTT-4.3.3-1] [MQTT5-4.3.3-4] [MQTT5-4.3.3-6]
        self._session.release(packetId)
        self._send(encodeSuccess(PUBREL, packetId))

    def pubcomp(self, packet: Pubcomp) -> None:
        """The exchange of a message with QoS 2 is complete."""
        self._session.completed(packet.packetId)

    def _remove(self, packetId: int, flight: InFlight) -> None:
        del self._inFlight[packetId]
        self._bytes -= len(flight.message.event.content)
        if flight.subscription is not None:
            self._done(flight.subscription, (flight.message.event,))

    def _done(self, subscription: SessionSubscription, events: tuple[Event, ...]) -> None:
        if subscription.isAcknowledged:
            self._acknowledged.setdefault(subscription, []).extend(events)

    def settle(self) -> None:
        """
        Tell the log what was acknowledged, and send what waits for room. Called after
        everything that has arrived together was looked at.
        """
        if self._acknowledged:
            acknowledged, self._acknowledged = self._acknowledged, {}
            for subscription, events in acknowledged.items():
                subscription.acknowledge(events)
        if self._pending and not self._isHeld:
            self._sendPending()
        if self._pending or self._isHeld:
            return
        if self._waiters:
            self._tellRoom()
        if self._isHalted and self._isHalfEmpty():
            self._isHalted = False
            self._session.resumeSubscriptions()

    def _sendPending(self) -> None:
        while self._pending:
            first = self._pending[0]
            if self._mustWait(first.subscription, first.message):
                break
            self._pending.popleft()
            self._sendOne(first.subscription, first.message, first.flags, first.isFromLog)

    def _isHalfEmpty(self) -> bool:
        used = len(self._inFlight) + len(self._session.released)
        return 2 * used <= self._window and 2 * self._bytes <= self._maxBytes

    # Flow.

    def room(self) -> Deferred[None]:
        """Fires when nothing waits to be sent, or when the connection is gone."""
        if not self._pending and not self._isHeld:
            return succeed(None)
        waiter: Deferred[None] = Deferred()
        self._waiters.append(waiter)
        return waiter

    def _tellRoom(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.callback(None)

    def hold(self) -> None:
        """The connection takes no more for now."""
        self._isHeld = True
        self.halt()

    def release(self) -> None:
        """The connection takes more."""
        self._isHeld = False
        self.settle()

    def halt(self) -> None:
        """Let no more come until there is room."""
        if not self._isHalted:
            self._isHalted = True
            self._session.pauseSubscriptions()

    def start(self) -> None:
        """
        Send again what is unacknowledged and does not come from the log again: PUBREL, and
        messages whose subscription has ended [MQTT-4.4.0-1] [MQTT5-4.4.0-1].
        """
        for packetId in self._session.released:
            self._send(encodeSuccess(PUBREL, packetId))
        for packetId, flight in self._session.takeOrphans().items():
            options = msgspec.structs.replace(flight.options, version=self._version)
            message = messageOf(flight.message.event, hasProperties=self._version == MQTT_5)
            if self._sendFrame(message, options, packetId, flight.flags, True, NO_PROPERTIES):
                self._inFlight[packetId] = msgspec.structs.replace(flight, options=options)
                self._bytes += len(message.event.content)

    def orphan(self, subscription: SessionSubscription) -> None:
        """A subscription ends; what was sent for it is still to be acknowledged."""
        for packetId, flight in self._inFlight.items():
            if flight.subscription is subscription:
                # [MQTT-3.10.4-3] [MQTT5-3.10.4-3]
                self._inFlight[packetId] = msgspec.structs.replace(flight, subscription=None)
        self._acknowledged.pop(subscription, None)
        self._pending = deque(
            each for each in self._pending if each.subscription is not subscription
        )

    def end(self) -> dict[int, InFlight]:
        """
        The connection is gone.

        @return: what was sent and is not acknowledged, by packet identifier.
        """
        self._isHeld = True
        if self._acknowledged:
            acknowledged, self._acknowledged = self._acknowledged, {}
            for subscription, events in acknowledged.items():
                subscription.acknowledge(events)
        self._pending.clear()
        self._tellRoom()
        return self._inFlight


def _expiring(seconds: int) -> Properties:
    return Properties(messageExpiryInterval=seconds)
