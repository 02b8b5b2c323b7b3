"""
Publishes of a client: into the log, then acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
from twisted.internet.defer import Deferred, succeed

from ...errors import BrokerError
from ...interfaces import Submission
from .codec import PUBACK, PUBCOMP, PUBREC, encode, encodeSuccess, encodeSuccesses
from .fields import NO_PROPERTIES
from .handshake import Handshake
from .packets import MQTT_5, Puback, Pubcomp, Publish, Publishes, Pubrec, Pubrel
from .publishing import Publisher, Refused, Together, publishReason
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
        # Those of which a message came again in one piece with what came first.
        self._repeated: list[int] = []
        self.isPaused = False
        self._hasEnded = False
        self._idle: Deferred[None] | None = None

    def publish(self, arrived: Publishes) -> None:
        """
        Messages for the log.

        @raise MqttError: the client must not send one of them. Those before it are published.
        """
        together = self._publisher.gather()
        taken: list[Publish] = []
        self._repeated.clear()
        try:
            fatal = self._take(arrived.packets, together, taken)
        finally:
            if taken:
                self._submit(together, taken)
        if fatal is not None:
            self._refused(*fatal)

    def _take(
        self, packets: Sequence[Publish], together: Together, taken: list[Publish]
    ) -> tuple[Publish, BrokerError] | None:
        """
        Put messages together.

        @return: the one at which the connection ends, and why, if there is one.
        """
        session = self._session
        mark = session.mark if session.hasNoLocal else None
        for packet in packets:
            if packet.properties is not NO_PROPERTIES:
                packet = self._resolve(packet)
            elif not packet.topic:
                raise ProtocolError("there is neither a topic nor an alias")
            if packet.qos and not self._begin(packet.qos, packet.packetId):
                continue
            try:
                together.add(packet, mark)
            except BrokerError as error:
                if self._version != MQTT_5:
                    return packet, error
                self._refused(packet, error)
            else:
                taken.append(packet)
        return None

    def _begin(self, qos: int, packetId: int) -> bool:
        """Begin an exchange; whether there is a message to be published."""
        session = self._session
        if qos == 2 and (packetId in session.received or packetId in session.receiving):
            # [MQTT-4.3.3-2] [MQTT5-4.3.3-10]: it is in the log, or on its way there.
            if packetId in session.received:
                self._send(encodeSuccess(PUBREC, packetId))
            else:
                self._repeated.append(packetId)
            return False
        if not self._quota and self._version == MQTT_5:
            # Section 3.3.4; 3.1.1 knows no bound, its clients are read from more slowly.
            raise MqttError(
                ReasonCode.RECEIVE_MAXIMUM_EXCEEDED, "more publishes than Receive Maximum"
            )
        self._quota -= 1
        if qos == 2:
            session.receiving.add(packetId)
            self._open.add(packetId)
        return True

    def _submit(self, together: Together, taken: Sequence[Publish]) -> None:
        self.unanswered += len(taken)
        self._bytes += together.size
        together.submit().addCallback(self._submitted, together, taken)
        for packetId in self._repeated:
            # Some ledgers need no time: it may be in the log by now.
            if packetId in self._session.received:
                self._send(encodeSuccess(PUBREC, packetId))
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

    def _pause(self) -> None:
        if not self.isPaused and self.unanswered:
            self.isPaused = True
            self._wire.pauseReading()

    def _submitted(
        self, submission: Submission, together: Together, taken: Sequence[Publish]
    ) -> None:
        refused = together.refused(submission)
        if isinstance(refused, Deferred):
            refused.addCallback(self._answered, taken, together.size)
        else:
            self._answered(refused, taken, together.size)

    def _answered(self, refused: Refused, taken: Sequence[Publish], size: int) -> None:
        """It is sure what becomes of some messages."""
        acknowledged: list[int] = []
        for number, packet in enumerate(taken):
            if number in refused:
                self._acknowledge(acknowledged)
                self._refused(packet, refused[number])
            elif packet.qos == 1:
                acknowledged.append(packet.packetId)
            elif packet.qos == 2:
                self._acknowledge(acknowledged)
                # The session remembers, whatever connection it has by now.
                self._session.accepted(packet.packetId)
                if self._session.client is not None:
                    self._session.client.accepted(packet.packetId)
        self._acknowledge(acknowledged)
        self.unanswered -= len(taken)
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

    def _acknowledge(self, packetIds: list[int]) -> None:
        """Publishes with QoS 1 are in the log."""
        if packetIds:
            self._quota += len(packetIds)
            if not self._hasEnded:
                self._send(encodeSuccesses(PUBACK, packetIds))
            packetIds.clear()

    def accepted(self, packetId: int) -> None:
        """A publish of the session with QoS 2 is in the log."""
        self._send(encodeSuccess(PUBREC, packetId))

    def _refused(self, packet: Publish, error: BrokerError) -> None:
        """A message is not going to be in the log."""
        qos, packetId = packet.qos, packet.packetId
        if qos == 2:
            # [MQTT5-4.3.3-9]
            self._session.receiving.discard(packetId)
            self._open.discard(packetId)
        if qos:
            self._quota += 1
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
