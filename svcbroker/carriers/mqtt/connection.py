"""
The server's end of one network connection: handles packets, without a transport or a reactor.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from ...access import Admission, Principal
from ...broker import REFUSAL_DELAY
from ...errors import BrokerError
from ...net.addresses import ownerKey
from ...net.budgets import FEW, LARGE
from ...net.turns import NEVER, LazyTimer
from .codec import PUBREC, Decoder, encode, encodeSuccesses
from .context import Context
from .delivery import Delivery
from .fields import RETURN_CODES, MqttError, Properties, ProtocolError, ReasonCode
from .handshake import UNBOUNDED, Handshake, checkGroup, logIn, negotiate, outOfPlace
from .mqttsession import Session
from .output import IWire, Output
from .packets import (
    MQTT_5,
    MQTT_311,
    Arrival,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubacks,
    Pubcomp,
    Publish,
    Publishes,
    PublishRun,
    Pubrec,
    Pubrel,
    Pubrels,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from .receiving import Receiving
from .sessions import Sessions
from .subscribing import Subscriber

_PINGRESP: Final = encode(Pingresp(), MQTT_311)
_KEEP_ALIVE_FACTOR: Final = 1.5

PACKETS_AT_ONCE: Final = 256
"""So many packets are read and handled without a look at the time, which takes 1 to 3 ms. A client
may send 30,000 PINGREQ in what is read at once."""


class MqttConnection:
    """
    A server's end of one network connection.

    Packets are handled one after the other. A packet that waits for the log (SUBSCRIBE) delays
    the packets behind it. PUBLISH packets do not wait; they are acknowledged when they are final.

    @ivar session: the client's session, once it is connected.
    """

    _log = Logger()

    def __init__(
        self, context: Context, sessions: Sessions, output: Output, wire: IWire, remote: str
    ) -> None:
        """
        @param output: joins and sends frames.
        @param wire: the transport.
        @param remote: the client's address, for operators.
        """
        self.session: Session | None = None
        self._context = context
        self._sessions = sessions
        self._output = output
        self._wire = wire
        self._remote = remote
        # Of the decoder, and of the aliases of both directions.
        names = context.broker.budgets.names
        self._names = names.count(ownerKey("", remote)), names.count(ownerKey("", remote))
        self._decoder = Decoder(context.settings.maximumPacketSize, names=self._names[0])
        # Of packets that are not whole, or not handled.
        self._counted = context.broker.budgets.input.count(ownerKey("", remote))
        self._version = MQTT_311
        # The most bytes of a packet that the client accepts.
        self._largest = UNBOUNDED
        self._backlog: list[Arrival] = []
        self._isWaiting = False
        self._isInputEnded = False
        self._isClosed = False
        self._hasEnded = False
        self._admission: Admission | None = None
        self._handshake: Handshake | None = None
        self._isOrderly = False
        # Made with the first PUBLISH, and for as long as it takes to subscribe: most connections
        # are idle.
        self._receiving: Receiving | None = None
        self._subscriber: Subscriber | None = None
        self._delivery: Delivery | None = None
        # Before CONNECT no packet moves the deadline.
        self._keepAlive = NEVER
        self._silence = LazyTimer(context.clock, self._tooSilent)
        self._silence.start(context.settings.connectTimeout)

    # Events of the transport.

    def receive(self, data: bytes) -> None:
        """Handle bytes from the client."""
        self._decoder.feed(data)
        self._read()
        self._afterPackets()

    def mayPublish(self, data: bytes) -> bool:
        """Whether bytes of the client that it has sent now may publish, as far as is seen."""
        return self._decoder.mayPublish(data)

    def lost(self) -> None:
        """End the connection: the transport is closed. Called once."""
        self._isClosed = True
        self._output.end()
        self._end()

    def inputEnded(self) -> None:
        """The client sends nothing more: acknowledge what it has published, and close."""
        self._isInputEnded = True
        self._finishIfAnswered()

    def _finishIfAnswered(self) -> None:
        if not self._isInputEnded or self._isWaiting or self._isClosed:
            return
        if self._receiving is None:
            self._finish()
        else:
            self._receiving.idle().addCallback(lambda _: self._finish())

    def pauseProducing(self) -> None:
        """The client does not read."""
        self._output.pauseProducing()

    def resumeProducing(self) -> None:
        """The client reads again."""
        self._output.resumeProducing()

    def shutDown(self) -> None:
        """Disconnect, since the daemon stops. Pending publishes are acknowledged before."""
        if self._isClosed:
            return
        self._wire.pauseReading()
        self._isWaiting = True

        def close(_: object) -> None:
            self._close(ReasonCode.SERVER_SHUTTING_DOWN, "the server is shutting down")

        if self._receiving is None:
            close(None)
        else:
            self._receiving.idle().addCallback(close)

    # Packets.

    def _read(self) -> None:
        """Handle the packets that have arrived, as far as there is time in this turn."""
        decoder = self._decoder
        while not (self._isWaiting or self._isClosed):
            packets = decoder.arrivals(PACKETS_AT_ONCE)
            if packets and self._keepAlive != NEVER:
                self._silence.deadline = self._context.clock.seconds() + self._keepAlive
            self._handle(packets)
            if not decoder.hasMore:
                break
            events, isWrite = LARGE + 1, decoder.mayPublish()
            if not (
                self._isWaiting or self._isClosed or self._wire.mayWork(events, isWrite=isWrite)
            ):
                self._waitFor(self._nextTurn(events, isWrite=isWrite))

    def _handle(self, packets: Sequence[Arrival]) -> None:
        for number, packet in enumerate(packets):
            find = (_FIRST if self.session is None else _HANDLERS).get(type(packet))
            if find is None:
                self._violated(outOfPlace(packet, self.session is not None))
                return
            try:
                find(self)(packet)
            except MqttError as error:
                self._violated(error)
                return
            if self._isClosed:
                return
            if self._isWaiting:
                self._backlog.extend(packets[number + 1 :])
                return

    def _afterPackets(self) -> None:
        if self._isClosed:
            return
        decoder, counted = self._decoder, self._counted
        kept = decoder.kept + (decoder.taken if self._isWaiting else 0)
        if kept != counted.size and not counted.set(kept):
            self.overloaded()
            return
        if decoder.error is not None and not self._isWaiting and not self._backlog:
            self._violated(decoder.error)
            return
        if self._delivery is not None:
            self._delivery.settle()
        self._output.flush()

    def overloaded(self) -> None:
        """Close: all connections together have no room for what this one sends."""
        busy = "too many bytes of packets wait for their rest, or for a turn"
        self._violated(MqttError(ReasonCode.QUOTA_EXCEEDED, busy))

    async def _nextTurn(self, events: int = 1, *packets: Publishes, isWrite: bool = True) -> None:
        await self._wire.turn(events, isWrite=isWrite)
        self._backlog[:0] = packets

    def _waitFor(self, work: Coroutine[Deferred[Any], Any, None]) -> None:
        """Handle no other packet before this is done."""
        self._isWaiting = True
        waiting = Deferred.fromCoroutine(work)
        waiting.addErrback(self._failed)
        if not waiting.called or waiting.paused:
            self._wire.pauseReading()
            waiting.addCallback(self._resumePackets)
        else:
            self._isWaiting = False

    def _resumePackets(self, _: object) -> None:
        self._isWaiting = False
        if self._isClosed:
            return
        packets, self._backlog = self._backlog, []
        self._handle(packets)
        self._read()
        self._afterPackets()
        if not self._isClosed:
            self._wire.resumeReading()
            self._finishIfAnswered()

    def _failed(self, failure: Failure) -> None:
        if isinstance(failure.value, BrokerError):
            self.subscriptionLost(failure.value)
            return
        self._log.failure("A packet of {remote} could not be handled", failure, remote=self._remote)
        self._close(ReasonCode.UNSPECIFIED_ERROR, "unknown error")

    # CONNECT.

    def _connect(self, packet: Connect) -> None:
        self._version = packet.version
        self._largest = packet.properties.maximumPacketSize or UNBOUNDED
        handshake = negotiate(packet, self._context)
        connack = Connack(False, ReasonCode.SUCCESS, handshake.properties)
        if len(encode(connack, packet.version)) > self._largest:
            text = "the packet size that the client accepts is too small for CONNACK"
            raise MqttError(ReasonCode.PACKET_TOO_LARGE, text)
        self._waitFor(self._logIn(packet, handshake))

    async def _logIn(self, packet: Connect, handshake: Handshake) -> None:
        ended = partial(self._close, ReasonCode.NOT_AUTHORIZED, "the log-in has ended")
        try:
            admission = await logIn(self._wire, packet, handshake, ended)
            if self._isClosed:
                admission.release()
                return
            self._admission = admission
            checkGroup(self._context, admission.principal, handshake.group)
            session = self._open(packet, handshake, admission.principal)
        except MqttError as error:
            self._violated(error)
            return
        if session.subscriptions and not self._hasEnded:
            await self._reopen(session, self._makeSubscriber())

    def _open(self, packet: Connect, handshake: Handshake, principal: Principal) -> Session:
        """Open the session of a client that has logged in, and accept its connection."""
        context, sessions = self._context, self._sessions
        if packet.will is not None:
            owner = ownerKey(principal.name, self._remote)
            sessions.wills.check(principal, handshake.group, packet.will, owner)
        # [MQTT-3.1.4-3] [MQTT5-3.1.4-4]
        opened = sessions.connect(packet, handshake, principal, self._remote)
        session = self.session = opened.session
        owner = ownerKey(principal.name, self._remote)
        for each in (self._counted, *self._names):
            each.belongTo(owner)
        self._handshake = handshake
        self._delivery = Delivery(
            session,
            version=packet.version,
            send=self._output.send,
            window=handshake.window,
            maxBytes=context.settings.maxInFlightBytes,
            counted=context.broker.budgets.windows.count(owner),
            names=self._names[1],
            maximumPacketSize=handshake.maximumPacketSize,
            topicAliasMaximum=handshake.topicAliasMaximum,
            now=context.now,
        )
        self._output.useSession(session, self._delivery)
        sessions.attach(session, self, self._delivery)
        self._startKeepAlive(handshake.keepAlive)
        # [MQTT-3.1.4-4] [MQTT-3.2.2-1] [MQTT-3.2.2-2] [MQTT5-3.1.4-5] [MQTT5-3.2.2-2]
        # [MQTT5-3.2.2-3]
        self._send(Connack(opened.isPresent, ReasonCode.SUCCESS, handshake.properties))
        if opened.isPresent:
            self._delivery.start()
        return session

    async def _reopen(self, session: Session, subscriber: Subscriber) -> None:
        """Open the subscriptions of a resumed session."""
        for subscription in tuple(session.subscriptions.values()):
            try:
                await subscriber.open(subscription)
            except BrokerError as error:
                self._log.warn("{remote} cannot resume: {error}", remote=self._remote, error=error)
                self._close(ReasonCode.SERVER_BUSY, error.message)
                return
        self._dropSubscriber()
        session.resumeSubscriptions()

    # PUBLISH.

    @property
    def _publishes(self) -> Receiving:
        """The receiving of publishes; made when it is needed first."""
        if self._receiving is None:
            assert self.session is not None
            assert self._handshake is not None
            owner = ownerKey(self.session.principal.name, self._remote)
            self._receiving = Receiving(
                self._context,
                self.session,
                handshake=self._handshake,
                send=self._output.send,
                wire=self._wire,
                refuse=self._violated,
                overQuota=self._overQuota,
                counted=self._context.broker.budgets.input.count(owner),
                names=self._names[1],
            )
        return self._receiving

    def _publishOne(self, packet: Publish) -> None:
        receiving = self._receiving or self._publishes
        if receiving.unanswered >= FEW or not receiving.publishOne(packet):
            self._publish(Publishes([PublishRun(packet, [packet.packetId], [packet.payload])]))

    def _publish(self, packets: Publishes) -> None:
        receiving = self._receiving or self._publishes
        if receiving.unanswered + packets.count > FEW:
            events = max(packets.count, FEW + 1)
            if not self._wire.mayWork(events):
                self._waitFor(self._nextTurn(events, packets))
                return
        fitting, others = receiving.split(packets)
        receiving.publish(fitting)
        if others.runs and not self._isClosed:
            self._waitFor(self._wait(receiving.delay(), others))

    def _overQuota(self) -> None:
        if not self._isClosed and not self._isWaiting:
            self._waitFor(self._wait(REFUSAL_DELAY))

    async def _wait(self, delay: float, *packets: Publishes) -> None:
        await deferLater(self._context.clock, delay)
        self._backlog[:0] = packets

    # SUBSCRIBE and UNSUBSCRIBE.

    def _makeSubscriber(self) -> Subscriber:
        """The subscriber; another one where the last one had nothing more to do."""
        if self._subscriber is None:
            assert self.session is not None
            assert self._handshake is not None
            self._subscriber = Subscriber(
                self._context,
                self._sessions,
                self.session,
                version=self._version,
                isPlain=self._handshake.isPlain,
                remote=self._remote,
                wire=self._wire,
                failed=self._failed,
            )
        return self._subscriber

    def _dropSubscriber(self) -> None:
        if self._subscriber is not None and not self._subscriber.isReplaying:
            self._subscriber = None

    def _subscribe(self, packet: Subscribe) -> None:
        subscriber = self._makeSubscriber()
        subscriber.check(packet)
        self._waitFor(self._carryOut(packet, subscriber))

    async def _carryOut(self, packet: Subscribe, subscriber: Subscriber) -> None:
        if self._receiving is not None:
            # What was published before it does not belong to a new subscription.
            await self._receiving.idle()
        if self._isClosed:
            return
        granted = await subscriber.subscribe(packet)
        if self._hasEnded:
            return
        assert self._handshake is not None
        self._send(granted.suback(packet, self._handshake))
        for each in granted.opened:
            await subscriber.pace()
            if self._subscriber is not subscriber:
                return  # The connection has ended.
            subscriber.begin(each)
        self._dropSubscriber()

    def _unsubscribe(self, packet: Unsubscribe) -> None:
        subscriber = self._makeSubscriber()
        subscriber.check(packet)
        self._waitFor(self._endSubscriptions(packet, subscriber))

    async def _endSubscriptions(self, packet: Unsubscribe, subscriber: Subscriber) -> None:
        reasons = await subscriber.unsubscribe(packet)
        if self._hasEnded:
            return
        # [MQTT-3.10.4-4] [MQTT-3.10.4-5] [MQTT5-3.10.4-4] [MQTT5-3.10.4-5] [MQTT5-3.11.3-1]
        self._send(Unsuback(packet.packetId, tuple(reasons)))
        self._dropSubscriber()

    # The rest.

    def _pingreq(self, packet: Pingreq) -> None:
        # [MQTT-3.12.4-1] [MQTT5-3.12.4-1]
        self._output.send(_PINGRESP)

    def _auth(self, packet: Auth) -> None:
        # [MQTT5-4.12.0-7]: none was begun with an authentication method.
        raise ProtocolError("there is no authentication going on")

    def _disconnect(self, packet: Disconnect) -> None:
        assert self.session is not None
        expiry = packet.properties.sessionExpiryInterval
        if expiry is not None:
            if not self.session.isPersistent and expiry:
                # Section 3.14.2.2.2.
                raise ProtocolError("a session without an expiry interval cannot be given one")
            self.session.expiry = min(expiry, self._context.settings.maxSessionExpiry)
        if packet.reason == ReasonCode.SUCCESS:
            # [MQTT-3.1.2-10] [MQTT-3.14.4-3] [MQTT5-3.1.2-10] [MQTT5-3.14.4-3]
            self._isOrderly = True
        # [MQTT-3.14.4-2]
        self._finish()

    def replaced(self) -> None:
        """See C{replaced} of L{svcbroker.carriers.mqtt.mqttsession.IClient}."""
        self._close(ReasonCode.SESSION_TAKEN_OVER, "another client has the same identifier")

    def accepted(self, packetIds: Sequence[int]) -> None:
        """See C{accepted} of L{svcbroker.carriers.mqtt.mqttsession.IClient}."""
        # Of an earlier connection, maybe.
        if not self._hasEnded:
            self._output.send(encodeSuccesses(PUBREC, packetIds))

    def subscriptionLost(self, error: BrokerError) -> None:
        """See C{subscriptionLost} of L{svcbroker.carriers.mqtt.mqttsession.IClient}."""
        self._close(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, error.message)

    @property
    def window(self) -> int:
        """The most deliveries that may wait for an answer; 0 before the client is let in."""
        return 0 if self._handshake is None else self._handshake.window

    @property
    def sent(self) -> int:
        """The number of messages that the client has sent to be published."""
        return 0 if self._receiving is None else self._receiving.sent

    # Keep alive.

    def _startKeepAlive(self, keepAlive: int) -> None:
        # [MQTT-3.1.2-24] [MQTT5-3.1.2-24]
        self._keepAlive = keepAlive * _KEEP_ALIVE_FACTOR if keepAlive else NEVER
        if keepAlive:
            self._silence.start(self._keepAlive)
        else:
            self._silence.stop()

    def _tooSilent(self) -> None:
        if self._isWaiting or (self._receiving is not None and self._receiving.isPaused):
            # A paused client cannot be heard. The check of a CONNECT may take long.
            self._silence.start(self._keepAlive)
        elif self.session is None:
            self._finish()
        elif self._wire.mayWork():
            self._endSilent()
        else:
            # Thousands of connections with many subscriptions may have been silent for as long.
            self._wire.turn().addCallback(self._endSilent)

    def _endSilent(self, _: object = None) -> None:
        self._close(ReasonCode.KEEP_ALIVE_TIMEOUT, "the client was silent for too long")

    # Ends.

    def _violated(self, error: MqttError) -> None:
        """Close after a protocol violation [MQTT-4.8.0-1] [MQTT5-4.13.1-1]."""
        self._log.debug("{remote}: {error}", remote=self._remote, error=error)
        self._close(error.reason, str(error))

    def _close(self, reason: ReasonCode, text: str) -> None:
        """Close, with the reason where the client's version can carry it."""
        if self._isClosed:
            return
        if self._handshake is not None:
            # [MQTT5-3.14.0-1]; a 3.1.1 server has no DISCONNECT.
            if self._version == MQTT_5:
                self._send(self._handshake.explain(Disconnect(reason), text))
        elif self._decoder.version == MQTT_5:
            # [MQTT5-3.2.2-6] [MQTT5-3.2.2-7]
            self._version = MQTT_5
            explained = Connack(False, reason, Properties(reasonString=text))
            fits = len(encode(explained, MQTT_5)) <= self._largest
            self._send(explained if fits else Connack(False, reason))
        elif reason in RETURN_CODES and self._decoder.version:
            # [MQTT-3.1.2-2] [MQTT-3.1.3-8] [MQTT-3.2.2-4] [MQTT-3.2.2-5]
            self._send(Connack(False, RETURN_CODES[reason]))
        self._finish()

    def _finish(self) -> None:
        """Close. [MQTT5-3.14.4-1] [MQTT5-3.14.4-2]: nothing is handled or sent after this."""
        if not self._isClosed:
            self._isClosed = True
            self._output.finish()
            self._end()

    def _end(self) -> None:
        if self._hasEnded:
            return
        self._hasEnded = True
        self._silence.close()
        self._backlog.clear()
        for each in (self._counted, *self._names):
            each.close()
        if self._receiving is not None:
            self._receiving.end()
        if self.session is not None:
            self._sessions.disconnected(self.session, isOrderly=self._isOrderly)
        if self._admission is not None:
            self._admission.release()
        # What calls back this connection. It would be kept for the garbage collector.
        self._receiving = self._subscriber = self._delivery = None

    def _send(self, packet: Packet) -> None:
        encoded = encode(packet, self._version)
        # [MQTT5-3.1.2-24] [MQTT5-3.1.2-25]
        if len(encoded) <= self._largest:
            self._output.send(encoded)


_Find = Callable[[MqttConnection], Callable[[Any], None]]

_FIRST: Final[Mapping[type, _Find]] = {Connect: attrgetter("_connect")}
"""The handler of the packet that comes before there is a session."""

_HANDLERS: Final[Mapping[type, _Find]] = {
    Publish: attrgetter("_publishOne"),
    Publishes: attrgetter("_publish"),
    Puback: attrgetter("_delivery.puback"),
    Pubacks: attrgetter("_delivery.pubacks"),
    Pubrec: attrgetter("_delivery.pubrec"),
    Pubrel: attrgetter("_publishes.pubrel"),
    Pubrels: attrgetter("_publishes.pubrels"),
    Pubcomp: attrgetter("_delivery.pubcomp"),
    Subscribe: attrgetter("_subscribe"),
    Unsubscribe: attrgetter("_unsubscribe"),
    Pingreq: attrgetter("_pingreq"),
    Disconnect: attrgetter("_disconnect"),
    Auth: attrgetter("_auth"),
}
"""The same from then on: one table for all connections, as each costs memory while it is idle."""
