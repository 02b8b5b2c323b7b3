"""
Publishes of clients: into the log, then acknowledged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
from attrs import define
from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from ...broker import Answer, Publication, PublishPolicy
from ...errors import (
    AuthorRefused,
    BrokerError,
    ContentTooLarge,
    ExtensionsTooLarge,
    IdempotencyConflict,
    LedgerUnavailable,
    NotAuthorized,
    Overloaded,
    ParameterInvalid,
    QuotaExceeded,
    SequenceConflict,
    SignatureInvalid,
    TopicBlank,
    TopicInvalid,
    TopicNotFound,
    TopicTooLong,
    TransactionFailed,
)
from ...interfaces import Action
from .codec import PUBACK, PUBCOMP, PUBREC, encode, encodeSuccess, encodeSuccesses
from .context import Context, MqttSettings
from .fields import NO_PROPERTIES
from .handshake import Handshake
from .messages import publicationOf
from .packets import MQTT_5, Puback, Pubcomp, Publish, Publishes, Pubrec, Pubrel
from .reasons import MqttError, ProtocolError, ReasonCode
from .session import Session

if TYPE_CHECKING:
    from .output import IWire

_MAX_WAITING_BYTES: Final = 4 * 1024 * 1024

_REASONS: Final[dict[type[BrokerError], ReasonCode]] = {
    TopicBlank: ReasonCode.TOPIC_NAME_INVALID,
    TopicTooLong: ReasonCode.TOPIC_NAME_INVALID,
    TopicInvalid: ReasonCode.TOPIC_NAME_INVALID,
    TopicNotFound: ReasonCode.TOPIC_NAME_INVALID,
    ContentTooLarge: ReasonCode.QUOTA_EXCEEDED,
    ExtensionsTooLarge: ReasonCode.QUOTA_EXCEEDED,
    Overloaded: ReasonCode.QUOTA_EXCEEDED,
    QuotaExceeded: ReasonCode.QUOTA_EXCEEDED,
    NotAuthorized: ReasonCode.NOT_AUTHORIZED,
    AuthorRefused: ReasonCode.NOT_AUTHORIZED,
    SignatureInvalid: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    IdempotencyConflict: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    SequenceConflict: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    LedgerUnavailable: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    TransactionFailed: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    ParameterInvalid: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
}


def publishReason(error: BrokerError) -> ReasonCode:
    """
    The reason code of PUBACK and PUBREC for an error. Section 3.4.2.1 of MQTT 5.
    """
    return _REASONS.get(type(error), ReasonCode.UNSPECIFIED_ERROR)


def policyOf(settings: MqttSettings, *, stopsAtRefusal: bool) -> PublishPolicy:
    """
    The policy of MQTT: a publish is answered when its outcome is known, without a time-out.
    """
    return PublishPolicy(
        hasTimeout=False,
        opensTopics=settings.openTopics,
        mayBeEmpty=True,
        stopsAtRefusal=stopsAtRefusal,
        wantsResults=False,
        isPaced=True,
    )


@define(eq=False)
class _Unanswered:
    """
    Publishes of one read whose answers are to come.

    @ivar size: the bytes of their payloads.
    @ivar answers: their outcomes, once they are known.
    """

    packets: Sequence[Publish]
    size: int
    answers: Sequence[BrokerError | None] | None = None


class Receiving:
    """
    Handles the PUBLISH and PUBREL packets of one connection.

    Nothing is acknowledged before its event is final [MQTT-4.3.2-2] [MQTT5-4.3.2-4]
    [MQTT5-4.3.3-8], and all are in the order of the messages, refusals included [MQTT-4.6.0-2]
    [MQTT-4.6.0-3] [MQTT5-4.6.0-2] [MQTT5-4.6.0-3]. A client with too many pending publishes is not
    read from until there are fewer.

    @ivar unanswered: the number of pending publishes.
    @ivar isPaused: whether the client is not read from until there are fewer.
    """

    _log = Logger()

    def __init__(
        self,
        context: Context,
        session: Session,
        *,
        handshake: Handshake,
        send: Callable[[bytes], None],
        wire: IWire,
        refuse: Callable[[MqttError], None],
    ) -> None:
        """
        @param send: sends an encoded packet.
        @param refuse: closes the connection.
        """
        self.unanswered = 0
        self._broker = context.broker
        self._retained = context.retained[session.group]
        self._settings = settings = context.settings
        self._now = context.now
        self._session = session
        self._handshake = handshake
        self._version = handshake.version
        # 3.1.1 has no refusals: the connection ends, and nothing behind them is published.
        self._policy = policyOf(settings, stopsAtRefusal=self._version != MQTT_5)
        self._send = send
        self._wire = wire
        self._refuse = refuse
        self._aliases: dict[int, str] = {}
        self._bytes = 0
        self._quota = settings.receiveMaximum
        # Exchanges with QoS 2 that were begun on this connection.
        self._open: set[int] = set()
        # Packet identifiers of messages that were repeated in the same read.
        self._repeated: list[int] = []
        self._order: deque[_Unanswered] = deque()
        self.isPaused = False
        self._hasEnded = self._isOverQuota = False
        self._waiters: list[Deferred[None]] = []

    def delay(self) -> float:
        """
        How long messages must wait before L{publish}, in seconds: 3.1.1 cannot refuse those above
        the account's rate.
        """
        usage = self._session.principal.usage
        return usage.delay() if usage.limitsPublishes and self._version != MQTT_5 else 0.0

    def publish(self, arrived: Publishes) -> bool:
        """
        Publish a run of messages in one call of the broker.

        @return: whether the account is over a quota, so that the client must wait.
        @raise MqttError: one of them violates the protocol. Those before it are published.
        """
        publications: list[Publication] = []
        packets: list[Publish] = []
        refused: dict[int, BrokerError] = {}
        self._repeated.clear()
        self._isOverQuota = False
        try:
            last = self._collect(arrived.packets, publications, packets, refused)
        finally:
            if packets:
                self._submit(publications, packets, refused)
        if last is not None:
            self._refused(*last)
        return self._isOverQuota

    def _collect(
        self,
        arrived: Sequence[Publish],
        publications: list[Publication],
        packets: list[Publish],
        refused: dict[int, BrokerError],
    ) -> tuple[Publish, BrokerError] | None:
        """
        Make publications of messages.

        @param packets: gets the messages that are to be answered.
        @param refused: gets the errors of those that are not published, by their places there.
        @return: the message at which the connection ends, and why, if there is one.
        """
        session, group, now = self._session, self._session.group, self._now
        # 3.1.1 cannot refuse a message with QoS 0: it is dropped.
        principal = session.principal
        dropsSome = self._version != MQTT_5 and not principal.isEverything
        mark = session.mark if session.hasNoLocal else None
        for packet in arrived:
            if packet.properties is not NO_PROPERTIES:
                packet = self._resolve(packet)
            elif not packet.topic:
                raise ProtocolError("there is neither a topic nor an alias")
            qos, topic, payload = packet.qos, packet.topic, packet.payload
            if dropsSome and not (qos or principal.may(Action.PUBLISH, group, topic)):
                principal.recordRefusal(Action.PUBLISH, group, topic)
                continue
            if qos and not self._begin(qos, packet.packetId):
                continue
            try:
                # A client that may not publish learns nothing of the index.
                if packet.retain and payload and principal.may(Action.PUBLISH, group, topic):
                    self._retained.checkRoom(principal, topic, self._settings.maxRetainedBytes)
                publications.append(publicationOf(packet, group, now, mark))
            except BrokerError as error:
                if self._version != MQTT_5:
                    return packet, error
                self._isOverQuota = self._isOverQuota or isinstance(error, QuotaExceeded)
                refused[len(packets)] = error
            packets.append(packet)
        return None

    def _begin(self, qos: int, packetId: int) -> bool:
        """Begin an exchange; return whether its message is to be published."""
        session = self._session
        if qos == 2 and (packetId in session.received or packetId in session.receiving):
            # [MQTT-4.3.3-2] [MQTT5-4.3.3-10]: it was published before.
            if packetId in session.received:
                self._send(encodeSuccess(PUBREC, packetId))
            else:
                self._repeated.append(packetId)
            return False
        if not self._quota and self._version == MQTT_5:
            # Section 3.3.4; 3.1.1 has no such bound, its clients are paused instead.
            raise MqttError(
                ReasonCode.RECEIVE_MAXIMUM_EXCEEDED, "more publishes than Receive Maximum"
            )
        self._quota -= 1
        if qos == 2:
            session.receiving.add(packetId)
            self._open.add(packetId)
        return True

    def _submit(
        self,
        publications: Sequence[Publication],
        packets: Sequence[Publish],
        refused: Mapping[int, BrokerError],
    ) -> None:
        size = sum([len(packet.payload) for packet in packets])
        self.unanswered += len(packets)
        self._bytes += size
        batch = self._broker.submit(self._session.principal, publications, self._policy)
        if batch.hasRefused:
            self._checkRefused(batch.answers, packets)
        unanswered = _Unanswered(packets, size)
        self._order.append(unanswered)
        batch.done.addErrback(self._failed, len(publications))
        if refused:
            batch.done.addCallback(_withRefused, refused)
        batch.done.addCallback(self._answered, unanswered)
        for packetId in self._repeated:
            # Some ledgers need no time: it may be in the log by now.
            if packetId in self._session.received:
                self._send(encodeSuccess(PUBREC, packetId))
        if self.unanswered >= self._settings.receiveMaximum or self._bytes > _MAX_WAITING_BYTES:
            self._pause()

    def _checkRefused(self, answers: Sequence[Answer | None], packets: Sequence[Publish]) -> None:
        """
        Look at what a check has refused. MQTT 5 answers it when its turn comes; a connection of
        3.1.1 ends at once.
        """
        for number, error in enumerate(answers):
            if isinstance(error, BrokerError):
                self._isOverQuota = self._isOverQuota or isinstance(error, QuotaExceeded)
                if self._version != MQTT_5:
                    self._refused(packets[number], error)
                    return

    def _resolve(self, packet: Publish) -> Publish:
        """Replace the topic alias of a packet by its topic."""
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

    def _failed(self, failure: Failure, count: int) -> Sequence[BrokerError]:
        self._log.failure("Publishes could not be submitted", failure)
        return [LedgerUnavailable()] * count

    def _answered(self, answers: Sequence[BrokerError | None], unanswered: _Unanswered) -> None:
        """Answer messages whose outcomes are known, unless others are before them."""
        unanswered.answers = answers
        order = self._order
        while order and (known := order[0].answers) is not None:
            first = order.popleft()
            self._answer(first.packets, known, first.size)

    def _answer(
        self, packets: Sequence[Publish], answers: Sequence[BrokerError | None], size: int
    ) -> None:
        acknowledged: list[int] = []
        for packet, error in zip(packets, answers, strict=True):
            if error is not None:
                self._acknowledge(acknowledged)
                self._refused(packet, error)
            elif packet.qos == 1:
                acknowledged.append(packet.packetId)
            elif packet.qos == 2:
                self._acknowledge(acknowledged)
                # The session may have another connection by now.
                self._session.accepted(packet.packetId)
                if self._session.client is not None:
                    self._session.client.accepted(packet.packetId)
        self._acknowledge(acknowledged)
        self.unanswered -= len(packets)
        self._bytes -= size
        hasRoom = (
            2 * self.unanswered <= self._settings.receiveMaximum
            and 2 * self._bytes <= _MAX_WAITING_BYTES
        )
        if self.isPaused and hasRoom:
            self.isPaused = False
            self._wire.resumeReading()
        if self._waiters and not self.unanswered:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                waiter.callback(None)

    def _acknowledge(self, packetIds: list[int]) -> None:
        """Send PUBACK for publishes that are in the log."""
        if packetIds:
            self._quota += len(packetIds)
            if not self._hasEnded:
                self._send(encodeSuccesses(PUBACK, packetIds))
            packetIds.clear()

    def accepted(self, packetId: int) -> None:
        """Send PUBREC for a publish of the session, maybe of an earlier connection."""
        self._send(encodeSuccess(PUBREC, packetId))

    def _refused(self, packet: Publish, error: BrokerError) -> None:
        """Answer a message that was refused, or close the connection."""
        qos, packetId = packet.qos, packet.packetId
        if qos == 2:
            # [MQTT5-4.3.3-9]
            self._session.receiving.discard(packetId)
            self._open.discard(packetId)
        if qos:
            self._quota += 1
        reason = publishReason(error)
        if self._hasEnded:
            pass  # there is no connection to answer on
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
        Complete an exchange: the client has our PUBREC.
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

    def idle(self) -> Deferred[None]:
        """Fires when every publish is answered. No packet is handled before."""
        if not self.unanswered:
            return succeed(None)
        waiter: Deferred[None] = Deferred()
        self._waiters.append(waiter)
        return waiter

    def end(self) -> None:
        """End: the connection is closed. Pending publishes still enter the log."""
        self._hasEnded = True


def _withRefused(
    answers: Sequence[BrokerError | None], refused: Mapping[int, BrokerError]
) -> Sequence[BrokerError | None]:
    """The answers to all messages, those among them that were not published."""
    merged = list(answers)
    for number, error in refused.items():
        merged.insert(number, error)
    return merged
