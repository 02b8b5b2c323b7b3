"""
MQTT on transports: TCP, and WebSocket.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress, IDelayedCall, IPushProducer, ITCPTransport
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from ...net.addresses import peerText
from ...net.sending import sender
from ..websocket import Route, WebSocketResource, routeTo
from .connection import Connection
from .context import Context
from .output import Output, Outputs
from .sessions import Sessions

SUBPROTOCOL: Final = "mqtt"

CLOSE_TIMEOUT: Final = 10.0
"""How long a closing connection may take to take what is left, in seconds."""


class MqttCarrier:
    """
    MQTT, as the daemon sees it: starts, serves connections of all kinds, drains, stops.
    """

    _log = Logger()

    def __init__(self, context: Context) -> None:
        self.context = context
        self.sessions = Sessions(context)
        self.outputs = Outputs(context.clock, context.keeper)
        self._links: set[Link] = set()
        self._drained: Deferred[None] | None = None

    def start(self) -> Deferred[None]:
        """
        Take what is kept from the disk, and read what retained messages there are. The
        ledgers and the subscriptions have started.
        """

        async def start() -> None:
            self.sessions.start()
            for group in self.context.groups.values():
                await group.retained.start()

        return Deferred.fromCoroutine(start())

    def drain(self) -> Deferred[None]:
        """
        Answer what is on its way to the log, disconnect everybody, and publish the wills that
        are due; fires when that is done. Cancelling it cuts off who is still there. The ledgers
        still run.
        """
        return Deferred.fromCoroutine(self._drain())

    async def _drain(self) -> None:
        self._drained = Deferred()
        for link in tuple(self._links):
            link.connection.shutDown()
        try:
            if self._links:
                await self._drained
            await self.sessions.wills.published()
        finally:
            for link in tuple(self._links):
                link.abort()
            self.sessions.stop()
            self.outputs.stop()
            for group in self.context.groups.values():
                group.retained.stop()

    @property
    def connections(self) -> int:
        """How many connections there are."""
        return len(self._links)

    @property
    def isDraining(self) -> bool:
        """Whether nobody new is let in."""
        return self._drained is not None

    def opened(self, link: Link) -> None:
        """There is a new connection."""
        self._links.add(link)

    def closed(self, link: Link) -> None:
        """A connection is gone."""
        self._links.discard(link)
        if self._drained is not None and not self._links and not self._drained.called:
            self._drained.callback(None)


@implementer(IPushProducer)
class Link:
    """
    Joins a connection to a transport: the only place that touches one.
    """

    _log = Logger()

    def __init__(self, carrier: MqttCarrier, transport: Any, remote: str) -> None:
        """
        @param transport: has C{write}, C{loseConnection}, C{abortConnection},
            C{registerProducer}, and is a push producer.
        """
        self._carrier = carrier
        self._transport = transport
        self._pauses = 0
        self._timeout: IDelayedCall | None = None
        self._isClosing = False
        self._isGone = False
        self._send = sender(transport)
        self.connection = self._makeConnection(carrier, remote)
        if ITCPTransport.providedBy(transport):
            # Acknowledgements are small, and somebody waits for them.
            transport.setTcpNoDelay(True)
        transport.registerProducer(self, True)
        carrier.opened(self)

    def _makeConnection(self, carrier: MqttCarrier, remote: str) -> Connection:
        output = Output(carrier.outputs, self)
        return Connection(carrier.context, carrier.sessions, output, self, remote)

    def received(self, data: bytes) -> None:
        """Bytes have arrived."""
        try:
            self.connection.receive(data)
        except Exception:
            self._log.failure("A connection has failed")
            self.abort()

    def abort(self) -> None:
        """Close at once, whatever is still to be sent."""
        self.gone()
        self._transport.abortConnection()

    def gone(self) -> None:
        """The transport is closed."""
        if self._isGone:
            return
        self._isGone = True
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None
        self._carrier.closed(self)
        self.connection.lost()

    # IWire

    def write(self, data: bytes) -> None:
        """Send, now rather than in the next turn: what is sent is gathered before."""
        if not self._isGone:
            self._send(data)

    def close(self) -> None:
        """Send what is left, then close; not for ever."""
        if self._isClosing or self._isGone:
            return
        self._isClosing = True
        self._timeout = self._carrier.context.clock.callLater(CLOSE_TIMEOUT, self._abort)
        self._transport.unregisterProducer()
        self._transport.loseConnection()

    def _abort(self) -> None:
        self._timeout = None
        self._transport.abortConnection()

    def pauseReading(self) -> None:
        """Take nothing from the client for now. May be called for several reasons at once."""
        self._pauses += 1
        if self._pauses == 1 and not self._isClosing:
            self._transport.pauseProducing()

    def resumeReading(self) -> None:
        """One of the reasons is gone."""
        self._pauses -= 1
        if not self._pauses and not self._isClosing and not self._isGone:
            self._transport.resumeProducing()

    # IPushProducer

    def pauseProducing(self) -> None:
        """The transport takes no more for now."""
        self.connection.hold()

    def resumeProducing(self) -> None:
        """The transport takes more."""
        self.connection.release()

    def stopProducing(self) -> None:
        """The transport is closing."""


class MqttProtocol(Protocol):
    """A client over TCP, or whatever else an endpoint listens on."""

    _link: Link

    def __init__(self, carrier: MqttCarrier) -> None:
        self._carrier = carrier

    def connectionMade(self) -> None:
        """See C{IProtocol}."""
        assert self.transport is not None
        self._link = Link(self._carrier, self.transport, peerText(self.transport.getPeer()))
        # The hot one is called without a detour.
        self.dataReceived = self._link.received  # type: ignore[method-assign]

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """See C{IProtocol}."""
        self._link.gone()


class MqttFactory(Factory):
    """Makes a protocol for each connection, over TCP and over WebSocket."""

    noisy = False

    def __init__(self, carrier: MqttCarrier) -> None:
        self.carrier = carrier

    def buildProtocol(self, addr: IAddress | None) -> MqttProtocol | None:
        """None once the carrier is drained."""
        return None if self.carrier.isDraining else MqttProtocol(self.carrier)


def webSocketRoute(factory: MqttFactory, basePath: str, origins: Iterable[str] = ()) -> Route:
    """
    MQTT over WebSocket on the site of HTTP.

    @param basePath: the context path.
    @param origins: the origins whose pages may come, beside the site's own.
    """
    resource = WebSocketResource(
        factory,
        (SUBPROTOCOL,),  # [MQTT-6.0.0-4] [MQTT5-6.0.0-4]
        factory.carrier.context.clock,
        origins=origins,
        isBinary=True,  # [MQTT-6.0.0-1] [MQTT5-6.0.0-1]
    )
    return routeTo(f"{basePath}/mqtt", resource)
