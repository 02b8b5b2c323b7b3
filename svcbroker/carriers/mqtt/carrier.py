"""
MQTT over TCP and WebSocket: the one module here that touches a transport; and MQTT as a feature of
the daemon: its port, settings and metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import (
    IAddress,
    IHalfCloseableProtocol,
    IProtocolNegotiationFactory,
    ITCPTransport,
)
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from ...access import Admission, credentialsOf
from ...broker import Answers, Calls, ClientConnection
from ...broker.features import (
    Feature,
    Records,
    RunningFeature,
    Services,
    carrierMetrics,
    sessionMetrics,
)
from ...broker.subscriptions import SECONDS_A_DAY
from ...broker.subscriptions.feature import SubscriptionOptions
from ...model import InterfaceType
from ...net.addresses import networkOf, ownerKey, peerText
from ...net.bounds import (
    CONNECTIONS,
    DURABLE,
    INPUT,
    KEPT_BYTES,
    NAMES,
    RETAINED,
    SUBSCRIPTIONS,
    WINDOWS,
    Bound,
    Sizing,
    amountText,
    cacheBound,
    within,
)
from ...net.budgets import Stranger, TimedWork, eventsIn
from ...net.deferreds import asDeferred
from ...net.metrics import Metric
from ...net.settings import Endpoint, Flag, declareSetting
from ...net.transports import ClosingAtStop, OpenConnections, endSending, isDirect
from ...net.turns import EndOfTurn, ReadsInTurn
from ..websocket import MESSAGE_BYTES, Route, WebSocketResource, WebSocketTransport, routeTo
from .codec import grouped
from .connection import MqttConnection
from .context import NEVER, Context, MqttSettings, makeContext
from .delivery import makeOptions
from .kept import SUBSCRIPTION, KeptSubscription
from .messages import _encodedTopic, _encodeEnvelope, _readEnvelope
from .mqttsession import SESSION_BYTES
from .output import Output
from .sessions import Sessions, entryGroup

SUBPROTOCOL: Final = "mqtt"

SMALL: Final = 1024
"""The bytes of a read that count as a publish, whatever is in them: they take little time."""

CLOSE_TIMEOUT: Final = 10.0
"""Seconds that a client has to read the last bytes of a closing connection."""


class MqttCarrier:
    """
    The carrier's life: it starts, serves connections over TCP and WebSocket, drains and stops.
    """

    _log = Logger()

    def __init__(self, context: Context) -> None:
        self.context = context
        self.sessions = Sessions(context)
        self.endOfTurn = EndOfTurn(context.clock)
        self._links: OpenConnections[Link] = OpenConnections(context.broker.budgets.work.makeAll)

    @asDeferred
    async def start(self) -> None:
        """
        Load sessions and wills, and index the retained messages. Called once, after the
        ledgers and the subscriptions have started.
        """
        self.sessions.start()
        for index in self.context.retained.values():
            await index.start()

    @asDeferred
    async def drain(self) -> None:
        """
        Answer pending publishes, disconnect all clients, and publish the wills that are due.
        Called once, while the ledgers still run.

        @return: fires when that is done. Cancelling it aborts the remaining connections.
        """
        try:
            await self._links.drain(lambda each: each.shutDown())
            await self.sessions.wills.published()
        finally:
            await self._links.endAll(lambda each: each.abort())
            self.context.cooperator.stop()
            self.sessions.stop()
            self.endOfTurn.stop()
            for index in self.context.retained.values():
                index.stop()

    @property
    def connections(self) -> int:
        """The number of connections."""
        return len(self._links)

    def clients(self) -> Iterator[ClientConnection]:
        """All connections, for operators."""
        return (each.client() for each in self._links.inTurns())

    @property
    def isDraining(self) -> bool:
        """Whether new connections are refused."""
        return self._links.isDraining

    def opened(self, link: Link) -> None:
        """Add a new connection."""
        self._links.add(link)

    def closed(self, link: Link) -> None:
        """Remove a closed connection."""
        self._links.discard(link)


class Link:
    """
    One connection and its transport. Nothing else in this package touches a transport.
    """

    _log = Logger()

    def __init__(
        self, carrier: MqttCarrier, transport: Any, remote: str, stranger: Stranger | None = None
    ) -> None:
        """
        @param stranger: the connection's place until the client has logged in.
        @param transport: has C{write}, C{loseConnection}, C{abortConnection},
            C{registerProducer}, and is a push producer.
        """
        self._carrier = carrier
        self._transport = transport
        self._stranger = stranger
        self._pauses = 0
        self._timeout: TimedWork | ClosingAtStop | None = None
        self._isInputEnded = False
        self._isClosing = False
        self._isGone = False
        context = carrier.context
        budgets = context.broker.budgets
        self._lane = budgets.work.lane()
        self._kept = budgets.input.count(ownerKey("", remote))
        # Made when a turn has no time for the first time: most connections never have to wait.
        self._reads: ReadsInTurn | None = None
        self._unsent = budgets.output.unsent(
            *(ownerKey("", remote), transport, self.pauseProducing, self.resumeProducing)
        )
        self._isMessages = isinstance(transport, WebSocketTransport)
        self._remote = remote
        self._clientId = ""
        self._address: str = getattr(transport.getPeer(), "host", "")
        # Until the client has logged in.
        self._early: ReadsInTurn | None = None
        turns, network = context.access.turns, networkOf(self._address)
        if not context.access.isOpen:
            take, wait = partial(turns.take, network), partial(turns.wait, network)
            self._early = self._makeReads(take, wait)
        self.connection = self._makeConnection(carrier, remote)
        if ITCPTransport.providedBy(transport):
            # Acknowledgements are small, and clients wait for them.
            transport.setTcpNoDelay(True)
        transport.registerProducer(self._unsent, True)
        carrier.opened(self)

    def _makeConnection(self, carrier: MqttCarrier, remote: str) -> MqttConnection:
        context = carrier.context
        output = Output(carrier.endOfTurn, context.store, self)
        return MqttConnection(context, carrier.sessions, output, self, remote)

    def received(self, data: bytes) -> None:
        """Handle bytes from the client; discard them once the connection is closing."""
        if self._isClosing:
            return
        if self._early is not None and not self._early.mayHandle(data):
            return
        connection = self.connection
        # A client that connects is no publisher yet.
        isWrite = connection.session is not None and (
            len(data) <= SMALL or connection.mayPublish(data)
        )
        if not self._mayHandle(data, isWrite, eventsIn(len(data))):
            return
        try:
            connection.receive(data)
        except Exception:
            self._log.failure("A connection has failed")
            self.abort()
        self._lane.end()

    def _mayHandle(self, data: bytes, isWrite: bool, events: int) -> bool:
        """Whether this turn has time for bytes. Otherwise they are kept for a later one."""
        if self._reads is None:
            if self._lane.begin(isWrite, events):
                return True
            self._reads = self._makeReads(self._lane.begin, self._lane.turn)
        return self._reads.mayHandle(data, isWrite, events)

    def _makeReads(
        self, take: Callable[..., bool], wait: Callable[..., Deferred[None]]
    ) -> ReadsInTurn:
        return ReadsInTurn(take, wait, self.received, self._setReading, self._keep)

    def inputEnded(self) -> None:
        """The client sends nothing more, and may still read the answers to what it has sent."""
        self._isInputEnded = True
        if self._isGone:
            return
        if self._isClosing:
            self._transport.loseConnection()
        else:
            self.connection.inputEnded()

    def client(self) -> ClientConnection:
        """The connection, for operators."""
        return ClientConnection(
            protocol="mqtt",
            remote=self._remote,
            unsent=self._unsent,
            close=self.abort,
            client=self._clientId,
            window=self.connection.window,
            sent=self.connection.sent,
        )

    def abort(self) -> None:
        """Close at once, without sending the rest."""
        transport = self._transport
        self.gone()
        transport.abortConnection()

    def gone(self) -> None:
        """End the connection: the transport is closed."""
        if self._isGone:
            return
        self._isGone = self._isClosing = True
        if self._early is not None:
            self._early.stop()
        if self._reads is not None:
            self._reads.stop()
        self._unsent.close()
        if self._stranger is not None:
            self._stranger.leave()
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None
        self._carrier.closed(self)
        self.connection.lost()
        # Otherwise each of these would be a cycle with this.
        del self.connection, self._transport

    # IWire

    def admit(
        self, name: bytes | None, password: bytes | None, clientId: str, ended: Callable[[], object]
    ) -> Deferred[Admission]:
        """Log the client in."""
        self._clientId = clientId
        credentials = credentialsOf(self._transport, name, password)
        return self._carrier.context.access.admit(
            credentials, self._address, ended, clientId, carrier="mqtt"
        ).addCallback(self._admitted)

    def _admitted(self, admission: Admission) -> Admission:
        self._early = None
        if self._stranger is not None:
            self._stranger.leave()
        owner = ownerKey(admission.principal.name, self._remote)
        self._unsent.belongTo(owner)
        self._kept.belongTo(owner)
        return admission

    def write(self, data: bytes) -> None:
        """Send at once: L{Output} has joined the frames of a turn before."""
        if self._isGone:
            return
        if self._isMessages:
            for message in grouped(data, MESSAGE_BYTES):
                self._unsent.send(message)
        else:
            self._unsent.send(data)

    def close(self) -> None:
        """Send the rest, then close, after L{CLOSE_TIMEOUT} at the latest; at a stop sooner."""
        if self._isClosing or self._isGone:
            return
        self._isClosing = True
        later, transport = self._carrier.context.later, self._transport
        transport.unregisterProducer()
        if self._carrier.isDraining:
            self._timeout = ClosingAtStop(transport, later)
        else:
            self._timeout = later(CLOSE_TIMEOUT, self._abort)
        if self._isInputEnded or (isDirect(transport) and self._carrier.isDraining):
            # Everything that was read is answered, and the daemon does not wait for its clients.
            transport.loseConnection()
        else:
            endSending(transport)

    def shutDown(self) -> None:
        """Close in order, since the daemon stops."""
        if not self._isClosing:
            self.connection.shutDown()
        elif self._timeout is not None:
            self._timeout.cancel()
            later = self._carrier.context.later
            self._timeout = ClosingAtStop(self._transport, later, wasClosing=True)

    def _abort(self) -> None:
        self._timeout = None
        self._transport.abortConnection()

    def _setReading(self, isOn: bool) -> None:
        (self.resumeReading if isOn else self.pauseReading)()

    def _keep(self, change: int) -> bool:
        isRoom = self._kept.set(self._kept.size + change)
        if not isRoom:
            self.connection.overloaded()
        return isRoom

    def mayWork(self, events: int = 1, *, isWrite: bool = True) -> bool:
        """Ask whether this turn of the reactor has time for more packets."""
        return self._lane.begin(isWrite, events)

    def turn(self, events: int = 1, *, isWrite: bool = True) -> Deferred[None]:
        """Fires when a later turn has."""
        return self._lane.turn(isWrite, events)

    def pauseReading(self) -> None:
        """Stop reading. Calls nest: reading goes on when each one is undone."""
        self._pauses += 1
        if self._pauses == 1 and not self._isClosing:
            self._transport.pauseProducing()

    def resumeReading(self) -> None:
        """Undo one L{pauseReading}."""
        self._pauses -= 1
        if not self._pauses and not self._isClosing and not self._isGone:
            self._transport.resumeProducing()

    def pauseProducing(self) -> None:
        """The client does not read."""
        self.connection.pauseProducing()

    def resumeProducing(self) -> None:
        """The client has read everything."""
        self.connection.resumeProducing()


@implementer(IHalfCloseableProtocol)
class MqttProtocol(Protocol):
    """A client on any transport that an endpoint or a WebSocket gives."""

    _link: Link
    stranger: Stranger | None = None

    def __init__(self, carrier: MqttCarrier) -> None:
        self._carrier = carrier

    def connectionMade(self) -> None:
        """See C{IProtocol}."""
        assert self.transport is not None
        remote = peerText(self.transport.getPeer())
        self._link = Link(self._carrier, self.transport, remote, self.stranger)
        # Hot path: saves a call for each read.
        self.dataReceived = self._link.received  # type: ignore[method-assign]

    def readConnectionLost(self) -> None:
        """See C{IHalfCloseableProtocol}."""
        self._link.inputEnded()

    def writeConnectionLost(self) -> None:
        """See C{IHalfCloseableProtocol}: an own direction that is ended needs nothing more."""

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """See C{IProtocol}."""
        self._link.gone()


@implementer(IProtocolNegotiationFactory)
class MqttFactory(Factory):
    """Makes the protocols of TCP and WebSocket connections."""

    noisy = False

    def __init__(self, carrier: MqttCarrier) -> None:
        self.carrier = carrier

    def acceptableProtocols(self) -> list[bytes]:
        """See C{IProtocolNegotiationFactory}."""
        return [b"mqtt"]

    def buildProtocol(self, addr: IAddress | None) -> MqttProtocol | None:
        """See C{IProtocolFactory}. C{None} while the carrier drains."""
        return None if self.carrier.isDraining else MqttProtocol(self.carrier)


def webSocketRoute(factory: MqttFactory, basePath: str) -> Route:
    """
    The route of MQTT over WebSocket on the HTTP site.

    @param basePath: the context path.
    """
    resource = WebSocketResource(
        factory,
        (SUBPROTOCOL,),  # [MQTT-6.0.0-4] [MQTT5-6.0.0-4]
        isBinary=True,  # [MQTT-6.0.0-1] [MQTT5-6.0.0-1]
    )
    return routeTo(f"{basePath}/mqtt", resource)


PORT: Final = "mqtt"
"""The name of the port, and of its setting."""

_ROOM: Final = "svcbroker.carriers.mqtt"


@frozen(kw_only=True)
class MqttOptions:
    """The settings of MQTT."""

    endpoint: str = declareSetting(
        PORT,
        Endpoint(),
        "tcp:1883:interface=127.0.0.1",
        "where MQTT is served: a port of loopback, or a Twisted endpoint string; empty "
        "switches its port off",
    )
    openTopics: bool = declareSetting(
        "mqtt-open-topics",
        Flag(),
        True,
        "open a topic with the first MQTT publish to it",
        shown="on",
    )


class MqttFeature(RunningFeature):
    """MQTT on its port and over WebSocket."""

    def __init__(self, options: MqttOptions, services: Services) -> None:
        kept = services.settingsOf(SubscriptionOptions)
        settings = MqttSettings(
            openTopics=options.openTopics,
            maxContent=services.broker.limits.maxContent,
            maxOwnSessions=kept.maxPositions,
            maxRetainedBytes=services.budgets.retained,
            maxSessionExpiry=kept.positionExpiry * SECONDS_A_DAY or NEVER,
        )
        context = makeContext(
            services.access,
            services.broker,
            services.ledgers,
            services.subscriptions,
            services.metadata,
            services.reactor,
            services.now,
            services.entropy,
            settings,
        )
        self._services = services
        self._carrier = MqttCarrier(context)
        self._factory = MqttFactory(self._carrier)
        self.answers: Answers = {InterfaceType.MQTT: self._carrier.sessions}

    def routes(self, calls: Calls) -> Iterable[Any]:
        """See L{RunningFeature}."""
        return [webSocketRoute(self._factory, self._services.basePath)]

    def factories(self, calls: Calls, routes: Sequence[Any]) -> Mapping[str, Any]:
        """See L{RunningFeature}."""
        return {PORT: self._factory}

    def connections(self) -> Iterable[ClientConnection]:
        """See L{RunningFeature}."""
        return self._carrier.clients()

    def connected(self) -> int:
        """See L{RunningFeature}."""
        return self._carrier.connections

    def metrics(self) -> Iterator[Metric]:
        """See L{RunningFeature}."""
        yield from carrierMetrics("mqtt", self._services, self.connected())
        yield sessionMetrics("mqtt", len(self._carrier.sessions))

    def start(self) -> Deferred[Any]:
        """See L{RunningFeature}."""
        return self._carrier.start()

    def drain(self) -> Deferred[Any]:
        """See L{RunningFeature}."""
        return self._carrier.drain()


def sessionOwners(records: Records) -> Mapping[str, tuple[InterfaceType, str]]:
    """The clients of the subscriptions of sessions. Operators do not know their ids."""
    found = {}
    for name, value in records.get(SUBSCRIPTION, {}).items():
        kept = msgspec.json.decode(value, type=KeptSubscription)
        found[kept.subscriptionId] = (InterfaceType.MQTT, msgspec.json.decode(name)[1])
    return found


def mqttBounds(options: MqttOptions, sizing: Sizing) -> Iterator[Bound]:
    """The memory of MQTT's connections and sessions, in the budgets that all connections share."""
    yield Bound(
        name=INPUT,
        holders=[f"{_ROOM}.codec.Decoder._parts", f"{_ROOM}.receiving.Receiving._unsubmitted"],
    )
    yield Bound(name=WINDOWS, holders=[f"{_ROOM}.delivery.Window._runs"])
    yield Bound(
        name=RETAINED, holders=within(f"{_ROOM}.retained.Retainers", "_accounts", "_topics")
    )
    yield Bound(
        name=SUBSCRIPTIONS,
        how=f"MQTT sessions of {amountText(SESSION_BYTES)}, filters and wills",
        holders=(
            *within(
                f"{_ROOM}.sessions.Sessions",
                *("_sessions", "_counts", "_expiring", "_shares"),
            ),
            *within(f"{_ROOM}.wills.Wills", "_counted", "_publishing", "_waiting"),
        ),
    )
    yield Bound(
        name=NAMES,
        holders=(
            f"{_ROOM}.codec.Decoder._topics",
            f"{_ROOM}.delivery.Delivery._aliases",
            f"{_ROOM}.messages.TopicAliases._topics",
        ),
    )
    yield Bound(name=CONNECTIONS, holders=[f"{_ROOM}.carrier.MqttCarrier._links"])
    sessions = MqttSettings().maxSessions
    yield Bound(
        name=DURABLE, bytes=sessions * KEPT_BYTES, how=f"and of each of {sessions:,} MQTT sessions"
    )
    yield cacheBound("MQTT", [_readEnvelope, _encodeEnvelope, _encodedTopic, makeOptions])


FEATURE: Final = Feature(
    name="mqtt",
    settings=MqttOptions,
    make=MqttFeature,
    entries={"mqtt": entryGroup},
    owners=sessionOwners,
    bounds=mqttBounds,
)
