"""
The STOMP carrier: the factory that makes connections, over TCP and over WebSocket, and closes them
in order; the protocol of a connection, the one thing here that touches a transport; and STOMP as a
feature of the daemon: its port, settings and metrics.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final
from typing import Protocol as TypingProtocol

from attrs import evolve, frozen
from twisted.internet.defer import Deferred, gatherResults, maybeDeferred
from twisted.internet.interfaces import (
    IAddress,
    IHalfCloseableProtocol,
    IProtocolNegotiationFactory,
    IReactorTime,
    ITCPTransport,
)
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from ...access import Access, Admission, Principal, credentialsOf
from ...broker import Answers, Broker, Calls, ClientConnection, PublishPolicy, SendResult
from ...broker.features import Feature, RunningFeature, Services, carrierMetrics
from ...errors import BrokerError, NotAuthenticated, Overloaded, TopicNotFound
from ...interfaces import Batch, ISubscriber, ISubscription
from ...model import InterfaceType, SubscribeRequest
from ...net.addresses import networkOf, ownerKey, peerText
from ...net.bounds import (
    CONNECTIONS,
    INPUT,
    SUBSCRIPTIONS,
    WINDOWS,
    Bound,
    Sizing,
    cacheBound,
    within,
)
from ...net.budgets import FEW, LARGE, SMALL, Stranger, TimedWork, eventsIn
from ...net.deferreds import asDeferred
from ...net.metrics import Metric
from ...net.settings import Endpoint, declareSetting
from ...net.transports import ClosingAtStop, OpenConnections, endSending, hasEnded
from ...net.turns import LazyTimer, ReadsInTurn
from ...operations import WEEVENT, Incidents
from ..websocket import Route, WebSocketResource, WebSocketTransport, routeTo
from .answers import (
    Acknowledge,
    Close,
    Effect,
    EndSubscription,
    FrameAnswer,
    LogInAccount,
    OpenSubscription,
    Pause,
    Proceed,
    PublishAll,
    PublishEvents,
    Resume,
    Write,
)
from .frames import FrameLimits, StompSettings, _shareHeaders
from .requests import PLAIN, WEEVENT_1_1, PublicationReader, StompDialect
from .session import StompSession

SUBPROTOCOLS: Final = ("v12.stomp", "v11.stomp", "v10.stomp")

LINGER: Final = 2.0
"""
Seconds for which a refused client is read from after the ERROR. A connection that is closed with
unread bytes is reset, and the client may never see the ERROR ("Connection Lingering").
"""

ABORT: Final = 5.0
"""The time that a client may take to read the last bytes, in seconds."""

_POLICY: Final = PublishPolicy(carrier="stomp", mayBeEmpty=True)
_COMMIT_POLICY: Final = evolve(_POLICY, isWhole=True)

_ENDED_AT_ONCE: Final = 50
"""The number of subscriptions that are closed between two looks at the time."""


class ISubscriptions(TypingProtocol):
    """The maker of subscriptions: C{svcbroker.broker.subscriptions.Subscriptions}."""

    def subscribe(
        self, principal: Principal, request: SubscribeRequest, subscriber: ISubscriber
    ) -> Deferred[ISubscription]:
        """Subscribe. What is given is paused until it is resumed."""


@implementer(IProtocolNegotiationFactory)
class StompFactory(Factory):
    """
    Makes the protocol of each connection, over TCP and over WebSocket.

    @ivar protocols: the open connections.
    """

    noisy = False
    log = Logger()

    def __init__(
        self,
        broker: Broker,
        subscriptions: ISubscriptions,
        access: Access,
        entropy: Callable[[int], bytes],
        *,
        version: str,
        settings: StompSettings | None = None,
        dialect: StompDialect = PLAIN,
        incidents: Incidents | None = None,
    ) -> None:
        """
        @param access: logs clients in.
        @param entropy: C{entropy(n)} gives C{n} unguessable bytes.
        @param version: the version of the broker, which CONNECTED tells.
        @param dialect: how the STOMP of its clients differs from the specification's.
        @param incidents: keeps the causes of unexpected failures.
        """
        self.broker = broker
        self.subscriptions = subscriptions
        self.access = access
        self.clock: IReactorTime = broker.clock
        self.settings = StompSettings() if settings is None else settings
        self._dialect = dialect
        self.incidents = Incidents() if incidents is None else incidents
        self.protocols: OpenConnections[StompProtocol]
        self.protocols = OpenConnections(broker.budgets.work.makeAll)
        self._entropy = entropy
        self._server = f"svcbroker/{version}"
        self._publications = PublicationReader(dialect.readPublication)

    def acceptableProtocols(self) -> list[bytes]:
        """
        See C{IProtocolNegotiationFactory}. STOMP has no registered name; clients that offer only
        names of other protocols are refused.
        """
        return [b"stomp"]

    def buildProtocol(self, addr: IAddress | None) -> StompProtocol | None:  # type: ignore[override]
        """A connection's protocol; none once the carrier is drained."""
        return None if self.isDraining else StompProtocol(self)

    @property
    def isDraining(self) -> bool:
        """Whether the carrier closes its connections."""
        return self.protocols.isDraining

    def makeSession(self, remote: str, *, isMessages: bool) -> StompSession:
        """
        The session of a new connection.

        @param isMessages: whether what is written is a message, as over WebSocket.
        """
        return StompSession(
            self.settings,
            sessionId=self._entropy(8).hex(),
            server=self._server,
            remote=remote,
            now=self.clock.seconds(),
            budgets=self.broker.budgets,
            publications=self._publications,
            dialect=self._dialect,
            isMessages=isMessages,
        )

    def drain(self) -> Deferred[None]:
        """
        Finish: no new connection is accepted, every publish that has arrived is answered, and all
        connections are closed. Called once, for an orderly stop, by who bounds how long it may
        take.

        Fires when the last connection is closed.
        """
        return self.protocols.drain(lambda each: each.shutDown())

    def connectionLost(self, protocol: StompProtocol) -> None:
        """A connection is closed."""
        self.protocols.discard(protocol)


def webSocketRoute(factory: StompFactory, basePath: str) -> Route:
    """
    STOMP over WebSocket on the site of HTTP.

    @param basePath: the context path.
    """
    resource = WebSocketResource(factory, SUBPROTOCOLS)
    return routeTo(f"{basePath}/stomp", resource)


@implementer(ISubscriber)
class StompSubscriber:
    """
    The subscriber of one subscription of a connection.
    """

    def __init__(self, protocol: StompProtocol, number: int) -> None:
        self._protocol = protocol
        self._number = number

    def deliver(self, batch: Batch) -> None:
        """See L{ISubscriber.deliver}."""
        self._protocol.deliver(self._number, batch)

    def subscriptionEnded(self, error: BrokerError) -> None:
        """See L{ISubscriber.subscriptionEnded}."""
        self._protocol.subscriptionEnded(self._number, error)


@implementer(IHalfCloseableProtocol)
class StompProtocol(Protocol):
    """
    One connection: carries out what its session wants, and keeps it from wanting too much.

    It is the producer of its transport: while the client does not read what it was sent, its
    subscriptions are paused; when it goes on to ask for answers, it is not read from either.
    While too many of its publishes wait for the chain, it is not read from.
    """

    factory: StompFactory
    stranger: Stranger | None = None

    def __init__(self, factory: StompFactory) -> None:
        self.factory = factory
        self._clock = factory.clock
        self._admission: Admission | None = None
        self._subscriptions: dict[int, ISubscription] = {}
        self._todo: deque[Effect] = deque()
        self._isBusy = False
        # Whether effects wait for a turn of the reactor that has time for them.
        self._isLate = False
        self._late = 0
        self._isStalled = False
        self._isReading = True
        self._isClosed = False
        self._unread = 0
        # Until the client has logged in.
        self._early: ReadsInTurn | None = None
        self._isEarly = False
        self._timer = LazyTimer(self._clock, self._tick)
        self._closing: TimedWork | ClosingAtStop | None = None

    # What the transport says.

    def connectionMade(self) -> None:
        """See C{IProtocol}."""
        transport: Any = self.transport
        if ITCPTransport.providedBy(transport):
            transport.setTcpNoDelay(True)
            transport.setTcpKeepAlive(True)
        peer, access = transport.getPeer(), self.factory.access
        budgets, self._remote = self.factory.broker.budgets, peerText(peer)
        self._work = budgets.work
        self._lane = budgets.work.lane()
        self._kept = budgets.input.count(ownerKey("", self._remote))
        self._reads = ReadsInTurn(
            partial(self._lane.begin, True),
            partial(self._lane.turn, True),
            self.dataReceived,
            self._setReading,
            self._keep,
        )
        self._unsent = budgets.output.unsent(
            *(ownerKey("", self._remote), transport, self.pauseProducing, self.resumeProducing)
        )
        transport.registerProducer(self._unsent, True)
        self._address: str = getattr(peer, "host", "")
        if not access.isOpen:
            turns, network = access.turns, networkOf(self._address)
            self._early = ReadsInTurn(
                partial(turns.take, network),
                partial(turns.wait, network),
                self.dataReceived,
                self._setReading,
                self._keep,
            )
        isMessages = isinstance(transport, WebSocketTransport)
        self._session = self.factory.makeSession(self._remote, isMessages=isMessages)
        self.factory.protocols.add(self)
        self._look()

    def dataReceived(self, data: bytes) -> None:
        """See C{IProtocol}."""
        if self._isClosed or (self._early is not None and not self._early.mayHandle(data)):
            return
        if self._reads.mayHandle(data, eventsIn(len(data))):
            now, publish = self._clock.seconds(), None
            if self._isReading and not (self._todo or self._isBusy):
                publish = self._session.onlyPublish(data, now)
            if publish is None:
                if len(data) > SMALL and hasEnded(self.transport):
                    self._session.leaving()
                self._perform(self._session.receive(data, now))
            else:
                self._publish(publish)
                if not self._session.wantsInput:
                    self._look()
            self._lane.end()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """See C{IProtocol}."""
        self._isClosed = True
        self._todo.clear()
        if self._early is not None:
            self._early.stop()
        self._reads.stop()
        self._kept.close()
        self._known()
        self._session.close()
        self._lane.stop()
        self._unsent.close()
        self._endSubscriptions()
        if self._admission is not None:
            self._admission.release()
        self._timer.close()
        if self._closing is not None:
            self._closing.cancel()
        self.factory.connectionLost(self)

    def client(self) -> ClientConnection:
        """The connection, for operators."""
        transport: Any = self.transport
        return ClientConnection(
            protocol="stomp",
            remote=self._remote,
            unsent=self._unsent,
            close=transport.abortConnection,
            window=self._session.window,
            sent=self._unsent.eventsSent,
        )

    def readConnectionLost(self) -> None:
        """The client sends nothing more, and may still read the answers to what it has sent."""
        if self._isClosed:
            transport: Any = self.transport
            transport.loseConnection()
        else:
            self._perform(self._session.inputEnded(self._clock.seconds()))

    def writeConnectionLost(self) -> None:
        """See C{IHalfCloseableProtocol}: an own direction that is ended needs nothing more."""

    def _known(self) -> None:
        if self.stranger is not None:
            self.stranger.leave()

    def pauseProducing(self) -> None:
        """The client does not read."""
        self._isStalled = True
        self._perform(self._session.stall(True, self._clock.seconds()))

    def resumeProducing(self) -> None:
        """The client has read everything."""
        self._isStalled = False
        self._unread = 0
        self._perform(self._session.stall(False, self._clock.seconds()))

    # What the broker says.

    def deliver(self, number: int, batch: Batch) -> None:
        """The next events of a subscription. Some may not be closed yet after the connection is."""
        if self._isClosed:
            return
        now = self._clock.seconds()
        # Effects that wait may be frames that come before.
        data = None if self._todo or self._isBusy else self._session.frames(number, batch, now)
        if data is None:
            self._perform(self._session.deliver(number, batch, now))
        else:
            self._unsent.send(data)

    def subscriptionEnded(self, number: int, error: BrokerError) -> None:
        """A subscription has ended."""
        self._subscriptions.pop(number, None)
        if self._isClosed:
            return
        self._perform(self._session.end(error, self._clock.seconds()))

    def _accountEnded(self) -> None:
        """The client's account is gone."""
        self._perform(self._session.end(NotAuthenticated(), self._clock.seconds()))

    def shutDown(self) -> None:
        """The broker stops: answer what came, and close."""
        if not self._isClosed:
            self._perform(self._session.shutDown(self._clock.seconds()))
        elif self._closing is not None:
            self._closing.cancel()
            self._closing = ClosingAtStop(self.transport, self._work.after, wasClosing=True)

    # What the session wants.

    def _perform(self, effects: Iterable[Effect]) -> None:
        """
        Carry out effects in order. What they bring about at once is carried out after them, not
        inside them.
        """
        self._todo.extend(effects)
        if self._isBusy or self._isLate:
            return
        self._isBusy = True
        try:
            while self._todo:
                effect = self._todo[0]
                events = _LONG.get(type(effect))
                if events is not None and not self._isClosed:
                    count = events(effect)
                    # A few publishes belong to the unit that has read them.
                    isLong, isWrite = count > FEW or type(effect) is not PublishEvents, count > 0
                    if isLong and not self._lane.begin(isWrite, count):
                        self._isLate = True
                        self._keepLate(effect)
                        self._lane.wait(self._performLate, isWrite, events=count)
                        break
                del self._todo[0]
                if not self._isClosed:
                    _PERFORM[type(effect)](self, effect)
        finally:
            self._isBusy = False
        if not self._isClosed:
            self._look()

    def _keep(self, change: int) -> bool:
        isRoom = self._kept.set(self._kept.size + change)
        if not isRoom:
            busy = Overloaded("too many bytes of frames wait for a turn")
            self._perform(self._session.end(busy, self._clock.seconds()))
        return isRoom

    def _keepLate(self, effect: Effect) -> None:
        """Count the events of an effect that waits for a turn."""
        published = effect.publications if isinstance(effect, PublishEvents | PublishAll) else ()
        self._late = sum(len(each.content) for each in published)
        self._keep(self._late)

    def _performLate(self) -> None:
        """Go on with effects that have waited for a turn."""
        self._isLate = False
        self._keep(-self._late)
        self._perform(())

    def _proceed(self, effect: Proceed) -> None:
        self._perform(self._session.resumeFrames(self._clock.seconds()))

    def _look(self) -> None:
        """Read or do not read, and look at the clock again in time."""
        wantsInput = (
            self._session.wantsInput
            and self._unread <= self.factory.settings.maxUnread
            and not self._isEarly
            and not self._isLate
        )
        if wantsInput is not self._isReading:
            self._isReading = wantsInput
            transport: Any = self.transport
            if wantsInput:
                transport.resumeProducing()
            else:
                transport.pauseProducing()
        deadline = self._session.deadline
        if deadline is None:
            self._timer.stop()
        else:
            self._timer.startAt(deadline)

    def _setReading(self, isOn: bool) -> None:
        self._isEarly = not isOn
        if not self._isClosed:
            self._look()

    def _tick(self) -> None:
        self._perform(self._session.tick(self._clock.seconds()))

    def _write(self, effect: Write) -> None:
        if self._isStalled:
            self._unread += len(effect.data)
        self._unsent.send(effect.data)

    @property
    def _principal(self) -> Principal:
        assert self._admission is not None
        return self._admission.principal

    def _logIn(self, effect: LogInAccount) -> None:
        login, passcode, transport = effect.login, effect.passcode, self.transport
        assert transport is not None
        credentials = credentialsOf(
            transport,
            None if login is None else login.encode("utf-8"),
            None if passcode is None else passcode.encode("utf-8"),
        )

        def admitted(admission: Admission) -> Iterable[Effect]:
            if self._isClosed:
                admission.release()
                return ()
            self._admission = admission
            self._known()
            self._early = None
            owner = ownerKey(admission.principal.name, self._remote)
            self._unsent.belongTo(owner)
            self._kept.belongTo(owner)
            self._session.belongTo(owner)
            return self._session.loggedIn(effect.answer, self._clock.seconds())

        admitting = self.factory.access.admit(
            credentials, self._address, self._accountEnded, carrier="stomp"
        )
        self._settle(effect.answer, admitting, admitted)

    def _publish(self, effect: PublishEvents) -> None:
        publications = effect.publications
        self._unsent.eventsSent += len(publications)
        answered = partial(self._published, effect.answers)
        self.factory.broker.publishInTurn(self._principal, publications, _POLICY, answered)

    def _published(
        self, answers: Sequence[FrameAnswer], outcomes: Sequence[SendResult | BrokerError] | Failure
    ) -> None:
        """Take the outcomes of a L{PublishEvents}."""
        if isinstance(outcomes, Failure):
            outcomes = [self.factory.incidents.explain(outcomes)] * len(answers)
        try:
            now, data = self._clock.seconds(), None
            if self._isReading and not (self._todo or self._isBusy or self._isClosed):
                data = self._session.receipt(answers, outcomes, now)
            if data is None:
                self._perform(self._session.publishedEach(answers, outcomes, now))
            elif data:
                self._unsent.send(data)
        except Exception:
            self._crashed(Failure())

    def _publishAll(self, effect: PublishAll) -> None:
        self._settle(
            effect.answer,
            self._commit(effect),
            lambda results: self._session.published(effect.answer, results, self._clock.seconds()),
        )

    @asDeferred
    async def _commit(self, effect: PublishAll) -> Sequence[SendResult]:
        # All or nothing, as far as can be seen before.
        for group, topic in {(each.groupId, each.topic): None for each in effect.publications}:
            if not await self.factory.broker.exist(self._principal, group, topic):
                raise TopicNotFound()
        self._unsent.eventsSent += len(effect.publications)
        submitted = self.factory.broker.publish(
            self._principal, effect.publications, _COMMIT_POLICY
        )
        self._perform(self._session.proceed(effect.answer, self._clock.seconds()))
        results = []
        for outcome in await submitted:
            if isinstance(outcome, BrokerError):
                raise outcome
            results.append(outcome)
        return results

    def _subscribe(self, effect: OpenSubscription) -> None:
        number = effect.number

        def made(subscription: ISubscription) -> Iterable[Effect]:
            if self._isClosed:
                subscription.close()
                return ()
            self._subscriptions[number] = subscription
            return self._session.subscribed(
                effect.answer, number, subscription, self._clock.seconds()
            )

        def subscribe() -> Deferred[ISubscription]:
            return self.factory.subscriptions.subscribe(
                self._principal, effect.request, StompSubscriber(self, number)
            )

        self._settle(effect.answer, maybeDeferred(subscribe), made)

    def _settle(
        self,
        answer: FrameAnswer,
        pending: Deferred[Any],
        succeeded: Callable[[Any], Iterable[Effect]],
    ) -> None:
        """Tell the session what comes of something."""

        def failed(failure: Failure) -> Iterable[Effect]:
            error = self.factory.incidents.explain(failure)
            return self._session.failed(answer, error, self._clock.seconds())

        pending.addCallbacks(succeeded, failed)
        pending.addCallback(self._perform)
        pending.addErrback(self._crashed)

    def _crashed(self, failure: Failure) -> None:
        self.factory.log.failure("A STOMP connection failed", failure=failure)
        self._drop(Close(isAbrupt=False))

    # A subscription may have ended by itself: the session says so in the last ERROR.

    def _resume(self, effect: Resume) -> None:
        subscription = self._subscriptions.get(effect.number)
        if subscription is not None:
            subscription.resume()

    def _pause(self, effect: Pause) -> None:
        subscription = self._subscriptions.get(effect.number)
        if subscription is not None:
            subscription.pause()

    def _acknowledge(self, effect: Acknowledge) -> None:
        subscription = self._subscriptions.get(effect.number)
        if subscription is not None:
            subscription.acknowledge(effect.events)

    def _unsubscribe(self, effect: EndSubscription) -> None:
        subscription = self._subscriptions.pop(effect.number, None)
        if subscription is not None:
            subscription.close(forget=effect.isForgotten)

    def _drop(self, effect: Close) -> None:
        if self._isClosed:
            return
        self._isClosed = True
        self._endSubscriptions()
        transport: Any = self.transport
        # A transport with a producer waits for it.
        transport.unregisterProducer()
        if self.factory.isDraining:
            self._closing = ClosingAtStop(transport, self._work.after)
            if effect.isAbrupt:
                endSending(transport)
            else:
                transport.loseConnection()
        elif not effect.isAbrupt:
            self._lose()
        else:
            self._closing = self._work.after(LINGER, self._lose)
            endSending(transport)

    def _lose(self) -> None:
        self._closing = self._work.after(ABORT, self._abort)
        transport: Any = self.transport
        transport.loseConnection()

    def _abort(self) -> None:
        self._closing = None
        transport: Any = self.transport
        transport.abortConnection()

    def _endSubscriptions(self) -> None:
        """Close all subscriptions, a few at a time: many connections may end at the same moment."""
        while self._subscriptions:
            if not self._lane.begin(isWrite=False):
                self._lane.wait(self._endMore, isWrite=False)
                return
            self._endSome()
            self._lane.end()

    def _endMore(self) -> None:
        self._endSome()
        self._endSubscriptions()

    def _endSome(self) -> None:
        for number in [*islice(self._subscriptions, _ENDED_AT_ONCE)]:
            self._subscriptions.pop(number).close()


_LONG: Final[dict[type[Any], Callable[[Any], int]]] = {
    # They may be of any kind.
    Proceed: lambda effect: LARGE + 1,
    PublishEvents: lambda effect: len(effect.publications),
    PublishAll: lambda effect: len(effect.publications),
    OpenSubscription: lambda effect: 0,
    EndSubscription: lambda effect: 0,
}
"""The effects that take time, and how many events each publishes; 0 where it publishes none."""

_PERFORM: Final[dict[type[Any], Callable[[StompProtocol, Any], None]]] = {
    Write: StompProtocol._write,
    Proceed: StompProtocol._proceed,
    LogInAccount: StompProtocol._logIn,
    PublishEvents: StompProtocol._publish,
    PublishAll: StompProtocol._publishAll,
    OpenSubscription: StompProtocol._subscribe,
    Resume: StompProtocol._resume,
    Pause: StompProtocol._pause,
    Acknowledge: StompProtocol._acknowledge,
    EndSubscription: StompProtocol._unsubscribe,
    Close: StompProtocol._drop,
}


PORT: Final = "stomp"
"""The name of the port, and of its setting."""

_ROOM: Final = "svcbroker.carriers.stomp"


@frozen(kw_only=True)
class StompOptions:
    """The settings of STOMP."""

    endpoint: str = declareSetting(
        PORT,
        Endpoint(),
        "tcp:61613:interface=127.0.0.1",
        "where STOMP is served: a port of loopback, or a Twisted endpoint string; empty "
        "switches its port off",
    )


class StompFeature(RunningFeature):
    """STOMP on its port and over WebSocket, and that of a dialect over WebSocket."""

    def __init__(self, options: StompOptions, services: Services) -> None:
        make = partial(
            StompFactory,
            *(services.broker, services.subscriptions, services.access, services.entropy),
            version=services.version.version,
            settings=StompSettings(frames=FrameLimits(maxBody=services.broker.limits.maxContent)),
        )
        self._services = services
        self._factory = make()
        # By context path. That of the dialect may be that of the interface.
        self._webSockets = {services.basePath: self._factory}
        self._all = [self._factory]
        if services.dialect == WEEVENT.name:
            self._webSockets[WEEVENT.basePath] = make(dialect=WEEVENT_1_1)
            self._all.append(self._webSockets[WEEVENT.basePath])
        self.answers: Answers = {InterfaceType.STOMP: services.subscriptions}

    def routes(self, calls: Calls) -> Iterable[Any]:
        """See L{RunningFeature}."""
        return [webSocketRoute(factory, path) for path, factory in self._webSockets.items()]

    def factories(self, calls: Calls, routes: Sequence[Any]) -> Mapping[str, Any]:
        """See L{RunningFeature}."""
        return {PORT: self._factory}

    def connections(self) -> Iterable[ClientConnection]:
        """See L{RunningFeature}."""
        return (each.client() for factory in self._all for each in factory.protocols.inTurns())

    def connected(self) -> int:
        """See L{RunningFeature}."""
        return sum(len(each.protocols) for each in self._all)

    def metrics(self) -> Iterator[Metric]:
        """See L{RunningFeature}."""
        return carrierMetrics("stomp", self._services, self.connected())

    def drain(self) -> Deferred[Any]:
        """See L{RunningFeature}."""
        return gatherResults([each.drain() for each in self._all], consumeErrors=True)


def stompBounds(options: StompOptions, sizing: Sizing) -> Iterator[Bound]:
    """The memory of STOMP's connections, in the budgets that all connections share."""
    yield Bound(name=INPUT, holders=[f"{_ROOM}.session.StompTransaction.publications"])
    yield Bound(name=WINDOWS, holders=within(f"{_ROOM}.messages.AckWindow", "_sent", "_waiting"))
    yield Bound(
        name=SUBSCRIPTIONS, holders=within(f"{_ROOM}.session.Deliveries", "_byKey", "_byNumber")
    )
    yield Bound(name=CONNECTIONS, holders=[f"{_ROOM}.carrier.StompFactory.protocols"])
    yield cacheBound("STOMP", [_shareHeaders])


FEATURE: Final = Feature(name="stomp", settings=StompOptions, make=StompFeature, bounds=stompBounds)
