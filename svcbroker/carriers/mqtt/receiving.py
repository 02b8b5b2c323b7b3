"""
Publishes of a client: into the log, then acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec
from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from ...errors import BrokerError
from ...model import Receipt
from .encoder import PUBACK, PUBCOMP, PUBREC, encode, encodeSuccess
from .handshake import Handshake
from .packets import MQTT_5, Puback, Pubcomp, Publish, Pubrec, Pubrel
from .properties import NO_PROPERTIES
from .publishing import Publisher, publishReason
from .reasons import MqttError, ProtocolError, ReasonCode
from .session import Session
from .settings import MqttSettings

if TYPE_CHECKING:
    from .connection import IWire

_MAX_WAITING_BYTES: Final = 4 * 1024 * 1024


class Receiving:
    """
    Takes the PUBLISH and PUBREL packets of one connection.

    Nothing is acknowledged before its event is final [MQTT-4.3.2-2] [MQTT5-4.3.2-4]
    [MQTT5-4.3.3-8]. A client that has too much on its way to the log is not read from until
    there is less.

    @ivar unanswered: how many publishes are on their way to the log.
    @ivar isPaused: whether the client is not read from until there are less.
    """

    _log = Logger()

    def __init__(
        self,
        session: Session,
        publisher: Publisher,
        settings: MqttSettings,
        *,
        handshake: Handshake,
        send: Callable[[bytes], None],
        wire: IWire,
        refuse: Callable[[MqttError], None],
    ) -> None:
        """
        @param send: sends a frame.
        @param refuse: closes the connection.
        """
        self.unanswered = 0
        self._session = session
        self._publisher = publisher
        self._settings = settings
        self._handshake = handshake
        self._version = handshake.version
        self._send = send
        self._wire = wire
        self._refuse = refuse
        self._aliases: dict[int, str] = {}
        self._bytes = 0
        self._quota = settings.receiveMaximum
        # Exchanges with QoS 2 that were begun on this connection.
        self._open: set[int] = set()
        self.isPaused = False
        self._hasEnded = False
        self._idle: Deferred[None] | None = None

    def publish(self, packet: Publish) -> None:
        """
        A message for the log.

        @raise MqttError: the client must not send it.
        """
        if packet.properties is not NO_PROPERTIES:
            packet = self._resolve(packet)
        elif not packet.topic:
            raise ProtocolError("there is neither a topic nor an alias")
        session, qos, packetId = self._session, packet.qos, packet.packetId
        if qos:
            if qos == 2 and (packetId in session.received or packetId in session.receiving):
                # [MQTT-4.3.3-2] [MQTT5-4.3.3-10]: it is in the log, or on its way there.
                if packetId in session.received:
                    self._send(encodeSuccess(PUBREC, packetId))
                return
            if not self._quota and self._version == MQTT_5:
                # Section 3.3.4; 3.1.1 knows no bound, its clients are read from more slowly.
                raise MqttError(
                    ReasonCode.RECEIVE_MAXIMUM_EXCEEDED, "more publishes than Receive Maximum"
                )
            self._quota -= 1
            if qos == 2:
                session.receiving.add(packetId)
                self._open.add(packetId)
        self.unanswered += 1
        self._bytes += len(packet.payload)
        mark = session.mark if session.hasNoLocal else None
        published = self._publisher.publish(packet, mark)
        size = len(packet.payload)
        published.addCallbacks(
            self._published,
            self._failed,
            callbackArgs=(qos, packetId, size),
            errbackArgs=(qos, packetId, size),
        )
        if self.unanswered >= self._settings.receiveMaximum or self._bytes > _MAX_WAITING_BYTES:
            self._pause()

    def _resolve(self, packet: Publish) -> Publish:
        """The packet with the topic that its alias stands for."""
        if packet.properties.subscriptionIdentifiers:
            # [MQTT5-3.3.4-6]
            raise ProtocolError("a client must not send a subscription identifier")
        alias = packet.properties.topicAlias
        if alias is None:
            if not packet.topic:
                raise ProtocolError("there is neither a topic nor an alias")
            return packet
        if not 0 < alias <= self._settings.topicAliasMaximum:
            # [MQTT5-3.3.2-8] [MQTT5-3.3.2-9] [MQTT5-3.3.2-12]
            raise MqttError(ReasonCode.TOPIC_ALIAS_INVALID, "the topic alias is out of range")
        if packet.topic:
            self._aliases[alias] = packet.topic
            return packet
        topic = self._aliases.get(alias)
        if topic is None:
            # [MQTT5-3.3.2-7]
            raise ProtocolError("the topic alias is not known")
        return msgspec.structs.replace(packet, topic=topic)

    def _answered(self, size: int) -> None:
        self.unanswered -= 1
        self._bytes -= size
        hasRoom = (
            2 * self.unanswered <= self._settings.receiveMaximum
            and 2 * self._bytes <= _MAX_WAITING_BYTES
        )
        if self.isPaused and hasRoom:
            self.isPaused = False
            self._wire.resumeReading()
        if self._idle is not None and not self.unanswered:
            idle, self._idle = self._idle, None
            idle.callback(None)

    def _pause(self) -> None:
        if not self.isPaused and self.unanswered:
            self.isPaused = True
            self._wire.pauseReading()

    def _published(self, receipt: Receipt, qos: int, packetId: int, size: int) -> None:
        if qos == 1:
            self._quota += 1
            if not self._hasEnded:
                self._send(encodeSuccess(PUBACK, packetId))
        elif qos == 2:
            # The session remembers, whatever connection it has by now.
            self._session.accepted(packetId)
            if self._session.client is not None:
                self._session.client.accepted(packetId)
        self._answered(size)

    def accepted(self, packetId: int) -> None:
        """A publish of the session with QoS 2 is in the log."""
        self._send(encodeSuccess(PUBREC, packetId))

    def _failed(self, failure: Failure, qos: int, packetId: int, size: int) -> None:
        if qos == 2:
            # [MQTT5-4.3.3-9]
            self._session.receiving.discard(packetId)
            self._open.discard(packetId)
        if qos:
            self._quota += 1
        error = failure.value
        if not isinstance(error, BrokerError):
            self._log.failure("A publish failed", failure)
            error = BrokerError()
        reason = publishReason(error)
        if self._hasEnded:
            pass  # nobody is there to be told
        elif self._version != MQTT_5:
            # [MQTT-3.3.5-2]
            self._refuse(MqttError(reason, error.message))
        elif qos:
            refusal: Puback | Pubrec
            if qos == 1:
                refusal = self._handshake.explain(Puback(packetId, reason), error.message)
            else:
                refusal = self._handshake.explain(Pubrec(packetId, reason), error.message)
            self._send(encode(refusal, MQTT_5))
        self._answered(size)

    def pubrel(self, packet: Pubrel) -> None:
        """
        The client has our PUBREC: it will not send that message again.
        """
        packetId = packet.packetId
        if packetId in self._open:
            self._open.discard(packetId)
            self._quota += 1
        isKnown = self._session.forgetReceived(packetId)
        if isKnown or self._version != MQTT_5:
            # [MQTT-4.3.3-2] [MQTT5-4.3.3-11]
            self._send(encodeSuccess(PUBCOMP, packetId))
        else:
            unknown = Pubcomp(packetId, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)
            self._send(encode(unknown, MQTT_5))

    def drain(self) -> Deferred[None]:
        """
        Fires when everything is answered. Nothing more may arrive. Called once.
        """
        if not self.unanswered:
            return succeed(None)
        self._idle = Deferred()
        return self._idle

    def end(self) -> None:
        """The connection is gone. What is on its way to the log gets there."""
        self._hasEnded = True
