"""
Delivering messages to a client over one connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
from twisted.internet.defer import Deferred, succeed

from ...interfaces import Action, Batch
from ...model import Event
from ...net.budgets import NAME_BYTES, ByteCount
from .codec import DUP, PUBREL, encode, encodeSuccess
from .fields import NO_PROPERTIES, Properties
from .frames import (
    FrameTemplate,
    InFlight,
    Options,
    Sent,
    Window,
    encodeWithin,
    messagesOf,
    sentOf,
    templateOf,
)
from .messages import Message, messageOf
from .packets import MQTT_5, Puback, Pubacks, Pubcomp, Pubrec, Pubrel
from .reasons import ReasonCode

if TYPE_CHECKING:
    from .reader import Source
    from .session import Session
    from .subscription import Key

_NO_TOPIC: Final = b"\0\0"


class _Waiting(msgspec.Struct, frozen=True):
    """A message that waits for room in the window."""

    source: Source
    message: Message
    flags: int
    isFromLog: bool


class Delivery:
    """
    Sends messages to one client, within its window and the broker's bounds.

    Called by the session's subscriptions with events of the log, and by the connection with the
    client's acknowledgements. Messages beyond the window wait here, at most one batch of each
    subscription: subscriptions are paused until there is room.
    """

    def __init__(
        self,
        session: Session,
        *,
        version: int,
        send: Callable[[bytes], None],
        window: int,
        maxBytes: int,
        counted: ByteCount,
        names: ByteCount,
        maximumPacketSize: int,
        topicAliasMaximum: int,
        now: Callable[[], float],
    ) -> None:
        """
        @param send: sends one or more encoded packets.
        @param window: the most unacknowledged messages.
        @param maxBytes: the most bytes of those, unless it is a single one.
        @param counted: counts them with those of all clients.
        @param names: counts the topics of aliases.
        @param maximumPacketSize: the most bytes of a packet that the client accepts.
        @param topicAliasMaximum: the most topic aliases that may be set.
        """
        self._session = session
        self._version = version
        self._send = send
        self._window = Window(session, window, maxBytes, counted)
        self._maximumPacketSize = maximumPacketSize
        self._topicAliasMaximum = topicAliasMaximum
        self._now = now
        self._pending: deque[_Waiting] = deque()
        self._aliases: dict[bytes, int] = {}
        self._names = names
        self._acknowledged: dict[Source, list[Event]] = {}
        self._waiters: list[Deferred[None]] = []
        self._isPaused = False
        self._isHalted = False

    # Messages.

    @property
    def isFlowing(self) -> bool:
        """Whether subscriptions may deliver events."""
        return not self._isHalted

    @property
    def canTake(self) -> bool:
        """Whether another message could be sent at once."""
        return not self._isPaused and not self._pending and self._window.hasRoom

    def deliver(self, source: Source, batch: Batch) -> None:
        """Send a batch. Messages beyond the window wait."""
        options = source.always or source.optionsOf(batch)
        template = None
        isPlain = not (self._pending or self._topicAliasMaximum or self._session.isRedelivering)
        if options is not None and isPlain:
            template = templateOf(batch, options)
        if template is not None and options is not None and self._fits(template):
            self._sendAll(source, template, options.qos)
        else:
            for message in messagesOf(batch, self._version, source.form):
                self._offer(source, message, 0, True)
        if self._pending or self._isPaused:
            self.halt()
        self.settle()

    def offer(
        self,
        source: Source,
        event: Event,
        flags: int = 0,
        *,
        isFromLog: bool = True,
    ) -> None:
        """
        Send one message as soon as it may be sent.

        @param isFromLog: whether the subscription waits for its acknowledgement.
        """
        message = messageOf(event, hasProperties=self._version == MQTT_5, form=source.form)
        self._offer(source, message, flags, isFromLog)

    def _fits(self, template: FrameTemplate) -> bool:
        return template.largest <= self._maximumPacketSize and self._window.fits(
            len(template.sent), template.size
        )

    def _sendAll(self, source: Source, template: FrameTemplate, qos: int) -> None:
        """Hot path: send all frames of a batch in one piece."""
        messages = template.sent
        if not messages:
            self._send(template.data)
        else:
            packetIds = self._window.newIds(len(messages), template.packetIds)
            self._window.addAll(packetIds, source, template)
            if qos == 1:
                self._session.sentOnce(packetIds)
            else:
                for packetId, sent in zip(packetIds, messages, strict=True):
                    self._sent(source, packetId, sent)
            self._send(template.filled(packetIds))
        if template.others:
            self._done(source, template.others)

    def _offer(self, source: Source, message: Message, flags: int, isFromLog: bool) -> None:
        if self._pending or self._mustWait(source, message):
            self._pending.append(_Waiting(source, message, flags, isFromLog))
        else:
            self._sendOne(source, message, flags, isFromLog)

    def _mustWait(self, source: Source, message: Message) -> bool:
        if self._window.hasRoom:
            return False
        options = source.optionsFor(message)
        return options is not None and min(message.qos, options.qos) > 0

    def mayRead(self, event: Event) -> bool:
        """Whether the client may read an event that had to wait, or was read for others too."""
        session = self._session
        principal = session.principal
        return principal.isEverything or principal.may(Action.SUBSCRIBE, session.group, event.topic)

    def _sendOne(self, source: Source, message: Message, flags: int, isFromLog: bool) -> None:
        options = source.optionsFor(message)
        if options is None or not self.mayRead(message.event):
            if isFromLog:
                key = source.keyOf(message.event)
                if not self._session.takeReleased(key):
                    self._session.takeUnacknowledged(key)
                self._done(source, (message.event,))
            return
        qos = min(message.qos, options.qos)
        packetId = 0
        if qos and isFromLog:
            key = source.keyOf(message.event)
            if self._session.takeReleased(key):
                self._done(source, (message.event,))
                return
            # [MQTT-4.4.0-1] [MQTT5-4.4.0-1]
            packetId = self._session.takeUnacknowledged(key)
        isRepeated = packetId != 0
        extra = self._extra(message, isRepeated)
        if extra is None:
            if isFromLog:
                self._done(source, (message.event,))
            return
        if qos and not isRepeated:
            packetId = self._window.newId()
        if not self._sendFrame(message, options, packetId, flags, isRepeated, extra):
            # Too large for the client: as if it had been delivered [MQTT5-3.1.2-28].
            if isFromLog:
                self._done(source, (message.event,))
            return
        if not qos:
            if isFromLog:
                self._done(source, (message.event,))
            return
        sent = sentOf(message, options, flags)
        self._window.add(packetId, source if isFromLog else None, sent)
        if isFromLog:
            self._sent(source, packetId, sent)

    def _sent(self, source: Source, packetId: int, sent: Sent) -> None:
        if sent.qos == 2:
            self._session.sent(packetId, source.keyOf(sent.message.event))
        else:
            self._session.sentOnce((packetId,))

    def _extra(self, message: Message, isRepeated: bool) -> Properties | None:
        """The properties of one delivery; C{None} where the message must not be delivered."""
        if isRepeated:
            # [MQTT5-4.3.3-7]
            remaining = message.remaining(self._now)
            return NO_PROPERTIES if remaining is None else _expiring(max(1, remaining))
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
        """Send a message; False where it is too large for the client."""
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
            self._names.add(NAME_BYTES + len(message.topic))
            self._aliases[message.topic] = alias
        self._send(encoded)
        return True

    def _aliasOf(self, topic: bytes) -> tuple[bytes, int, bool]:
        """The topic to send, its alias or 0, and whether the alias is new."""
        alias = self._aliases.get(topic)
        if alias is not None:
            return _NO_TOPIC, alias, False
        alias = len(self._aliases) + 1
        # [MQTT5-3.1.2-29] [MQTT5-3.1.2-30] [MQTT5-3.3.2-8] [MQTT5-3.3.2-11]
        if alias > self._topicAliasMaximum or not self._names.hasRoom(NAME_BYTES + len(topic)):
            return topic, 0, False
        return topic, alias, True

    # Acknowledgements.

    def puback(self, packet: Puback) -> None:
        """Handle a PUBACK; one with a failure ends the delivery too [MQTT5-4.4.0-2]."""
        self._window.acknowledge((packet.packetId,), self._acknowledged)

    def pubacks(self, arrived: Pubacks) -> None:
        """Handle a run of PUBACKs."""
        self._window.acknowledge(arrived.packetIds, self._acknowledged)

    def pubrec(self, packet: Pubrec) -> None:
        """Handle a PUBREC; one with a failure ends the delivery [MQTT5-4.4.0-2]."""
        packetId = packet.packetId
        flight = self._window.get(packetId)
        if flight is None or flight.sent.qos != 2:
            if packetId in self._session.released or self._version != MQTT_5:
                self._send(encodeSuccess(PUBREL, packetId))
            else:
                unknown = Pubrel(packetId, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)
                self._send(encode(unknown, self._version))
            return
        self._window.remove(packetId)
        if flight.source is not None:
            self._done(flight.source, (flight.sent.message.event,))
        if packet.reason >= ReasonCode.UNSPECIFIED_ERROR:
            self._session.completed(packetId)
            return
        # [MQTT-4.3.3-1] [MQTT5-4.3.3-4] [MQTT5-4.3.3-6]
        self._session.release(packetId)
        self._send(encodeSuccess(PUBREL, packetId))

    def pubcomp(self, packet: Pubcomp) -> None:
        """Handle a PUBCOMP: the exchange is complete."""
        self._session.completed(packet.packetId)

    def _done(self, source: Source, events: Sequence[Event]) -> None:
        if source.isAcknowledged:
            self._acknowledged.setdefault(source, []).extend(events)

    def settle(self) -> None:
        """
        Acknowledge events to the log, and send waiting messages. Called once after all packets
        of a read.
        """
        self.acknowledgeEvents()
        if self._pending and not self._isPaused:
            self._sendPending()
        if self._pending or self._isPaused:
            return
        if self._waiters:
            self._tellRoom()
        if self._isHalted and self._window.isHalfEmpty:
            self._isHalted = False
            self._session.resumeSubscriptions()

    def acknowledgeEvents(self) -> None:
        """Acknowledge to the log what the client has acknowledged."""
        if self._acknowledged:
            acknowledged, self._acknowledged = self._acknowledged, {}
            for source, events in acknowledged.items():
                source.acknowledge(events)

    def _sendPending(self) -> None:
        while self._pending:
            first = self._pending[0]
            if self._mustWait(first.source, first.message):
                break
            self._pending.popleft()
            self._sendOne(first.source, first.message, first.flags, first.isFromLog)

    # Flow.

    @property
    def hasRoom(self) -> bool:
        """Whether no message waits for room."""
        return not self._pending and not self._isPaused

    def room(self) -> Deferred[None]:
        """Fires when no message waits for room, or when the connection has ended."""
        if self.hasRoom:
            return succeed(None)
        waiter: Deferred[None] = Deferred()
        self._waiters.append(waiter)
        return waiter

    def _tellRoom(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.callback(None)

    def pauseProducing(self) -> None:
        """Stop sending messages: the client does not read."""
        self._isPaused = True
        self.halt()

    def resumeProducing(self) -> None:
        """Send messages again."""
        self._isPaused = False
        self.settle()

    def halt(self) -> None:
        """Pause the subscriptions until there is room."""
        if not self._isHalted:
            self._isHalted = True
            self._session.pauseSubscriptions()

    def start(self) -> None:
        """
        Send again what the log does not deliver again: PUBREL, and messages whose subscription
        has ended [MQTT-4.4.0-1] [MQTT5-4.4.0-1].
        """
        for packetId in self._session.released:
            self._send(encodeSuccess(PUBREL, packetId))
        for packetId, flight in self._session.takeOrphans().items():
            sent = flight.sent
            if not self.mayRead(sent.message.event):
                continue
            options = msgspec.structs.replace(sent.options, version=self._version)
            message = messageOf(
                sent.message.event, hasProperties=self._version == MQTT_5, form=options.form
            )
            if self._sendFrame(message, options, packetId, sent.flags, True, NO_PROPERTIES):
                again = msgspec.structs.replace(sent, options=options)
                self._window.add(packetId, flight.source, again)

    def keysOf(self, packetIds: range) -> dict[int, Key]:
        """The keys of the unacknowledged messages with these packet identifiers."""
        return {
            packetId: key
            for packetId, flight in self._window.among(packetIds)
            if (key := flight.key) is not None
        }

    def orphan(self, source: Source, *, isOver: bool) -> None:
        """
        Detach what a source does not want any more. Its messages may still be acknowledged.

        @param isOver: whether the source has ended. Otherwise those messages are done for it.
        """
        events = self._window.orphan(source)
        if isOver:
            self._acknowledged.pop(source, None)
            self._pending = deque(each for each in self._pending if each.source is not source)
        else:
            self._done(source, events)

    def end(self) -> dict[int, InFlight]:
        """
        End, since the connection is closed.

        @return: the unacknowledged messages, by packet identifier.
        """
        self._isPaused = True
        self.acknowledgeEvents()
        self._pending.clear()
        self._tellRoom()
        self._window.close()
        return self._window.all()


def _expiring(seconds: int) -> Properties:
    return Properties(messageExpiryInterval=seconds)
