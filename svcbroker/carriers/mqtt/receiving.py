"""
The receiving of publishes: PUBLISH packets of clients on their way into the log, and the answers to
them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace
from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from ...broker import Outcome, Publication
from ...errors import BrokerError, IdempotencyConflict, LedgerUnavailable, QuotaExceeded
from ...interfaces import Action
from ...net.budgets import ByteCount
from .codec import PUBACK, PUBCOMP, PUBREC, encode, encodeSuccess, encodeSuccesses
from .context import Context, policyOf
from .fields import NO_PROPERTIES, MqttError, ReasonCode, publishReason
from .handshake import Handshake
from .messages import TopicAliases, publicationsOf
from .mqttsession import Session
from .packets import (
    MQTT_5,
    Puback,
    Pubcomp,
    Publish,
    Publishes,
    PublishRun,
    Pubrec,
    Pubrel,
    Pubrels,
)

if TYPE_CHECKING:
    from .output import IWire


class PendingPublishes(Struct, eq=False):
    """
    PUBLISH packets of one read, waiting for outcomes.

    @ivar qos: the QoS of those that are to be answered.
    @ivar packetIds: their packet identifiers.
    @ivar publications: those of them that are to be published.
    @ivar refused: the errors of the others, by their places in C{packetIds}.
    @ivar repeated: packet identifiers of further ones, which were sent before.
    @ivar last: QoS and packet identifier of a message at which the connection ends, and why, if
        there is one.
    @ivar needsDisk: whether idempotency keys must be on disk before they are submitted.
    @ivar size: the bytes of their payloads.
    @ivar isOverQuota: whether a quota of the account had no room for some of them.
    @ivar outcomes: their outcomes, once they are known.
    """

    qos: list[int] = []
    packetIds: list[int] = []
    publications: list[Publication] = []
    refused: dict[int, BrokerError] = {}
    repeated: list[int] = []
    last: tuple[int, int, BrokerError] | None = None
    needsDisk: bool = False
    size: int = 0
    isOverQuota: bool = False
    outcomes: Sequence[BrokerError | None] | None = None

    def settle(self, outcomes: Sequence[BrokerError | None]) -> None:
        """Set the outcomes, given those of the publications."""
        if self.refused:
            merged = list(outcomes)
            for number, error in self.refused.items():
                merged.insert(number, error)
            outcomes = merged
        self.outcomes = outcomes


_MAX_WAITING_BYTES: Final = 4 * 1024 * 1024
_RECHECK: Final = 0.02
"""Seconds until messages are looked at again that wait, which takes time for each of them."""
_NONE: Final = Publishes([])
_EXTENSIONS: Final = 64
"""The most bytes of the extensions of a message of 3.1.1."""


class Receiving:
    """
    Handles the PUBLISH and PUBREL packets of one connection.

    Nothing is acknowledged before its event is final [MQTT-4.3.2-2] [MQTT5-4.3.2-4]
    [MQTT5-4.3.3-8], and all are in the order of the messages, refusals included [MQTT-4.6.0-2]
    [MQTT-4.6.0-3] [MQTT5-4.6.0-2] [MQTT5-4.6.0-3]. A client with too many pending publishes is not
    read from until there are fewer.

    Publishes with QoS 2 wait for their idempotency keys to be on disk, see L{Incoming}, and those
    behind them wait for their turn.

    @ivar unanswered: the number of pending publishes.
    @ivar sent: how many messages were submitted, refused ones included.
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
        overQuota: Callable[[], None],
        counted: ByteCount,
        names: ByteCount,
    ) -> None:
        """
        @param send: sends an encoded packet.
        @param refuse: closes the connection.
        @param overQuota: has the client wait, since its account is over a quota.
        @param counted: counts what is not submitted with that of all connections. What is
            submitted is bounded by the ledger.
        @param names: counts the topics of aliases.
        """
        self.unanswered = self.sent = 0
        self._broker = context.broker
        self._retained = context.retained[session.group]
        self._maxRetained = context.maxRetained
        self._settings = settings = context.settings
        self._now = context.now
        self._entropy = context.entropy
        self._session = session
        self._handshake = handshake
        self._version = handshake.version
        # 3.1.1 has no refusals: the connection ends, and nothing behind them is published.
        self._policy = policyOf(settings, stopsAtRefusal=self._version != MQTT_5)
        self._send = send
        self._wire = wire
        self._refuse = refuse
        self._overQuota = overQuota
        self._aliases: TopicAliases | None = None
        if self._version == MQTT_5:
            self._aliases = TopicAliases(settings.topicAliasMaximum, names)
        self._bytes = 0
        self._quota = settings.receiveMaximum
        # Exchanges with QoS 2 that were begun on this connection; made with the first.
        self._open: set[int] | None = None
        # Those that are not submitted yet, and those that are not answered yet.
        self._unsubmitted: list[PendingPublishes] = []
        self._counted = counted
        self._order: list[PendingPublishes] = []
        self.isPaused = False
        self._hasEnded = False
        self._waiters: list[Deferred[None]] = []

    def split(self, arrived: Publishes) -> tuple[Publishes, Publishes]:
        """
        Messages to L{publish} now, and those that wait for room in the quotas of the account, since
        3.1.1 cannot refuse them.
        """
        usage = self._session.principal.usage
        if self._version == MQTT_5 or not usage.limitsPublishes:
            return arrived, _NONE
        if self._unsubmitted:
            return _NONE, arrived  # They are not counted yet.
        sizes = [len(each) + _EXTENSIONS for run in arrived.runs for each in run.payloads]
        return arrived.split(usage.room(sizes))

    def delay(self) -> float:
        """The seconds that messages wait for room, at least."""
        return max(_RECHECK, self._session.principal.usage.delay())

    def publishOne(self, packet: Publish) -> bool:
        """
        Publish a message that has come alone, where that takes nothing but an answer. Hot path:
        most clients have one under way.

        @return: C{False} where nothing was done, and L{publish} has to be called.
        """
        session = self._session
        principal, isMqtt5 = session.principal, self._version == MQTT_5
        if (
            packet.qos != 1
            or packet.retain
            or packet.properties is not NO_PROPERTIES
            or (isMqtt5 and not (packet.topic and self._quota))
            or session.hasNoLocal
            or principal.usage.limitsPublishes
            or self._unsubmitted
        ):
            return False
        self._quota -= 1
        payload = packet.payload
        made = publicationsOf(packet, (payload,), session.group, self._now)
        run = PendingPublishes([1], [packet.packetId], [*made], size=len(payload))
        self._add(run)
        return True

    def publish(self, arrived: Publishes) -> None:
        """
        Publish a run of messages in one call of the broker.

        @raise MqttError: one of them violates the protocol. Those before it are published.
        """
        run = PendingPublishes()
        try:
            for similar in arrived.runs:
                self._collect(similar, run)
                if run.last is not None:
                    break
        finally:
            if run.packetIds or run.last is not None:
                self._add(run)

    def _collect(self, arrived: PublishRun, run: PendingPublishes) -> None:
        """
        Begin the exchanges of messages, and make publications of them, up to one at which the
        connection ends.
        """
        first = arrived.first
        if self._aliases is not None:
            first = self._aliases.resolve(first)
        packetIds: Sequence[int] = arrived.packetIds
        payloads: Sequence[bytes] = arrived.payloads
        principal, group, isWhole = self._session.principal, self._session.group, True
        if first.qos:
            packetIds, payloads, isWhole = self._begin(arrived, run.repeated)
        elif self._version != MQTT_5 and not principal.may(Action.PUBLISH, group, first.topic):
            # 3.1.1 cannot refuse a message with QoS 0: it is dropped.
            for _ in packetIds:
                principal.recordRefusal(Action.PUBLISH, group, first.topic)
            return
        if packetIds:
            self._makePublications(first, packetIds, payloads, run)
        if not isWhole:
            # Section 3.3.4; 3.1.1 has no such bound, its clients are paused instead.
            raise MqttError(
                ReasonCode.RECEIVE_MAXIMUM_EXCEEDED, "more publishes than Receive Maximum"
            )

    def _makePublications(
        self,
        first: Publish,
        packetIds: Sequence[int],
        payloads: Sequence[bytes],
        run: PendingPublishes,
    ) -> None:
        session, qos, group = self._session, first.qos, self._session.group
        principal = session.principal
        try:
            # A client that may not publish learns nothing of the index.
            if first.retain and first.payload and principal.may(Action.PUBLISH, group, first.topic):
                self._retained.checkRoom(principal, first.topic, self._maxRetained(group))
            mark = session.mark if session.hasNoLocal else None
            made = publicationsOf(first, payloads, group, self._now, mark)
        except BrokerError as error:
            if self._version != MQTT_5:
                run.last = (qos, packetIds[0], error)
                for packetId in packetIds[1:]:
                    session.incoming.interrupted(packetId)
                return
            place = len(run.packetIds)
            run.refused |= dict.fromkeys(range(place, place + len(packetIds)), error)
        else:
            if qos == 2 and session.isPersistent:
                made = self._withKeys(made, packetIds, run)
            run.publications += made
        run.qos += [qos] * len(packetIds)
        run.packetIds += packetIds
        run.size += sum(map(len, payloads))

    def _withKeys(
        self, publications: Sequence[Publication], packetIds: Sequence[int], run: PendingPublishes
    ) -> Sequence[Publication]:
        """
        Give publications idempotency keys, unless they have some or cannot have any. They differ in
        their contents alone.
        """
        if publications[0].idempotencyKey is not None or publications[0].author is not None:
            return publications
        run.needsDisk = True
        keys = self._session.incoming.keysOf(packetIds, self._now(), self._entropy)
        return [
            replace(publication, idempotencyKey=key, isKeyOptional=True)
            for publication, key in zip(publications, keys, strict=True)
        ]

    def _begin(
        self, arrived: PublishRun, repeated: list[int]
    ) -> tuple[Sequence[int], Sequence[bytes], bool]:
        """
        Begin exchanges.

        @return: the packet identifiers and payloads of the messages that are to be published, and
            whether there are no more than Receive Maximum.
        """
        packetIds, payloads = arrived.packetIds, arrived.payloads
        count = len(packetIds)
        quota = self._quota if self._version == MQTT_5 else count
        if arrived.first.qos == 1:
            self._quota -= min(count, quota)
            return packetIds[:quota], payloads[:quota], count <= quota
        incoming = self._session.incoming
        begun, again = incoming.begin(packetIds, payloads, quota)
        for packetId in again:
            # [MQTT-4.3.3-2] [MQTT5-4.3.3-10]: it was published before.
            if packetId in incoming.published:
                self._send(encodeSuccess(PUBREC, packetId))
            else:
                repeated.append(packetId)
        if self._open is None:
            self._open = set()
        self._open.update(begun)
        self._quota -= len(begun)
        return list(begun), list(begun.values()), len(begun) + len(again) == count

    def _add(self, run: PendingPublishes) -> None:
        """Submit messages after those before them."""
        self.unanswered += len(run.packetIds)
        self._bytes += run.size
        hasRoom = self._bytes <= _MAX_WAITING_BYTES
        if run.needsDisk or self._unsubmitted:
            self._unsubmitted.append(run)
            # While the disk fails, they wait on all connections.
            hasRoom = self._counted.set(self._counted.size + run.size) and hasRoom
            if run.needsDisk:
                self._session.storeExchanges().addCallback(self._stored, run)
        else:
            self._submit(run)
        if self.unanswered >= self._settings.receiveMaximum or not hasRoom:
            self._pause()

    def _stored(self, _: object, run: PendingPublishes) -> None:
        """Submit messages whose keys are on disk, and those behind them."""
        run.needsDisk = False
        unsubmitted = self._unsubmitted
        while unsubmitted and not unsubmitted[0].needsDisk:
            following = unsubmitted.pop(0)
            self._counted.add(-following.size)
            self._submit(following)

    def _submit(self, run: PendingPublishes) -> None:
        principal, publications = self._session.principal, run.publications
        refused = partial(self._checkRefused, run)
        self.sent += len(run.packetIds)
        self._order.append(run)
        answered = partial(self._answered, run)
        self._broker.publishInTurn(principal, publications, self._policy, answered, refused)
        for packetId in run.repeated:
            # Some ledgers need no time: it may be in the log by now.
            if packetId in self._session.incoming.published:
                self._send(encodeSuccess(PUBREC, packetId))
        if run.last is not None:
            self._refused(*run.last)
        if run.isOverQuota or (run.refused and any(map(_isQuota, run.refused.values()))):
            self._overQuota()

    def _checkRefused(self, run: PendingPublishes, outcomes: Sequence[Outcome | None]) -> None:
        """
        Look at what a check has refused. MQTT 5 answers it when its turn comes; a connection of
        3.1.1 ends at once.
        """
        run.isOverQuota = any(map(_isQuota, outcomes))
        if self._version != MQTT_5:
            for number, error in enumerate(outcomes):
                if isinstance(error, BrokerError):
                    self._refused(run.qos[number], run.packetIds[number], error)
                    break

    def _pause(self) -> None:
        if not self.isPaused and self.unanswered:
            self.isPaused = True
            self._wire.pauseReading()

    def _answered(
        self, run: PendingPublishes, outcomes: Sequence[BrokerError | None] | Failure
    ) -> None:
        """Answer messages whose outcomes are known, unless others are before them."""
        if isinstance(outcomes, Failure):
            self._log.failure("Publishes could not be submitted", outcomes)
            outcomes = [LedgerUnavailable()] * len(run.publications)
        run.settle(outcomes)
        order = self._order
        while order and (known := order[0].outcomes) is not None:
            self._answer(order.pop(0), known)

    def _answer(self, run: PendingPublishes, answers: Sequence[BrokerError | None]) -> None:
        qos = run.qos[0] if run.qos else 0
        if answers.count(None) == run.qos.count(qos) == len(answers):
            # Hot path.
            self._acknowledge(qos, run.packetIds)
        else:
            self._answerEach(run, answers)
        self._settled(run)

    def _answerEach(self, run: PendingPublishes, answers: Sequence[BrokerError | None]) -> None:
        qos = 0
        published: list[int] = []
        for eachQos, packetId, error in zip(run.qos, run.packetIds, answers, strict=True):
            if error is not None and self._isRepetition(eachQos, packetId, error):
                error = None
            if error is not None or eachQos != qos:
                self._acknowledge(qos, published)
                qos, published = eachQos, []
            if error is None:
                published.append(packetId)
            else:
                self._refused(eachQos, packetId, error)
        self._acknowledge(qos, published)

    def _isRepetition(self, qos: int, packetId: int, error: BrokerError) -> bool:
        """
        Whether a message was refused since an earlier one, that the client has not released, is in
        the log: an exchange publishes once, whatever its repetitions contain.
        """
        return (
            qos == 2
            and isinstance(error, IdempotencyConflict)
            and packetId in self._session.incoming.keys
        )

    def _settled(self, run: PendingPublishes) -> None:
        """Read on from a paused client, once few enough publishes are pending."""
        self.unanswered -= len(run.packetIds)
        self._bytes -= run.size
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

    def _acknowledge(self, qos: int, packetIds: Sequence[int]) -> None:
        """Acknowledge publishes that are in the log, if their QoS has acknowledgements."""
        if not packetIds:
            return
        if qos == 1:
            self._quota += len(packetIds)
            if not self._hasEnded:
                self._send(encodeSuccesses(PUBACK, packetIds))
        elif qos == 2:
            self._session.incoming.accepted(packetIds)
            # The session may have another connection by now.
            if self._session.client is not None:
                self._session.client.accepted(packetIds)

    def _refused(self, qos: int, packetId: int, error: BrokerError) -> None:
        """Answer a message that was refused, or close the connection."""
        incoming = self._session.incoming
        isFinal = True
        if qos == 2 and self._version == MQTT_5:
            # [MQTT5-4.3.3-9]
            isFinal = incoming.refused(packetId, error)
        elif qos == 2:
            incoming.interrupted(packetId)
        if qos:
            self._quota += 1
            if self._open is not None:
                self._open.discard(packetId)
        if self._version != MQTT_5:
            # Nothing behind it is published.
            self._drop()
        reason = publishReason(error)
        if self._hasEnded:
            pass  # there is no connection to answer on
        elif self._version != MQTT_5 or not isFinal:
            # [MQTT-3.3.5-2]
            self._refuse(MqttError(reason, error.message))
        elif qos:
            refusal: Puback | Pubrec
            if qos == 1:
                refusal = self._handshake.explain(Puback(packetId, reason), error.message)
            else:
                refusal = self._handshake.explain(Pubrec(packetId, reason), error.message)
            self._send(encode(refusal, MQTT_5))

    def _drop(self) -> None:
        """Forget the messages that are not submitted yet. The client will send them again."""
        while self._unsubmitted:
            run = self._unsubmitted.pop(0)
            self._counted.add(-run.size)
            for qos, packetId in zip(run.qos, run.packetIds, strict=True):
                if qos == 2:
                    self._session.incoming.interrupted(packetId)
            self._settled(run)

    def pubrel(self, packet: Pubrel) -> None:
        """
        Complete an exchange: the client has our PUBREC.
        """
        self.pubrels(Pubrels((packet.packetId,)))

    def pubrels(self, arrived: Pubrels) -> None:
        """
        Complete exchanges: the client has our PUBRECs.
        """
        packetIds = arrived.packetIds
        if self._open:
            released = self._open.intersection(packetIds)
            self._open -= released
            self._quota += len(released)
        known = self._session.incoming.release(packetIds)
        if self._version != MQTT_5 or all(known):
            # [MQTT-4.3.3-2] [MQTT5-4.3.3-11]
            self._send(encodeSuccesses(PUBCOMP, packetIds))
            return
        for packetId, isKnown in zip(packetIds, known, strict=True):
            success, unknown = ReasonCode.SUCCESS, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
            self._send(encode(Pubcomp(packetId, success if isKnown else unknown), MQTT_5))

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


def _isQuota(outcome: Outcome | None) -> bool:
    return isinstance(outcome, QuotaExceeded)
