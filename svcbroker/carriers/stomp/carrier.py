"""
The STOMP carrier: what makes connections, over TCP and over WebSocket, and closes them in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from typing import Protocol as TypingProtocol

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IAddress, IProtocolNegotiationFactory, IReactorTime
from twisted.internet.protocol import Factory
from twisted.logger import Logger
from zope.interface import implementer

from ...access import Access, Principal
from ...broker import Broker
from ...interfaces import ISubscriber, ISubscription
from ...model import SubscribeRequest
from ...operations import Incidents
from ..websocket import Route, WebSocketResource, routeTo
from .connection import StompProtocol
from .dialects import PLAIN, StompDialect
from .session import Session
from .settings import StompSettings

SUBPROTOCOLS: Final = ("v12.stomp", "v11.stomp", "v10.stomp")


class ISubscriptions(TypingProtocol):
    """What makes subscriptions: C{svcbroker.broker.subscriptions.Subscriptions}."""

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
        self.protocols: set[StompProtocol] = set()
        self._entropy = entropy
        self._server = f"svcbroker/{version}"
        self._drained: Deferred[None] | None = None

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
        return self._drained is not None

    def makeSession(self, remote: str, *, isMessages: bool) -> Session:
        """
        The session of a new connection.

        @param isMessages: whether what is written is a message, as over WebSocket.
        """
        return Session(
            self.settings,
            sessionId=self._entropy(8).hex(),
            server=self._server,
            remote=remote,
            now=self.clock.seconds(),
            budgets=self.broker.budgets,
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
        if not self.protocols:
            self._drained = succeed(None)
            return self._drained
        self._drained = Deferred()
        for protocol in tuple(self.protocols):
            protocol.shutDown()
        return self._drained

    def connectionLost(self, protocol: StompProtocol) -> None:
        """A connection is closed."""
        self.protocols.discard(protocol)
        if self._drained is not None and not self.protocols and not self._drained.called:
            self._drained.callback(None)


def webSocketRoute(factory: StompFactory, basePath: str) -> Route:
    """
    STOMP over WebSocket on the site of HTTP.

    @param basePath: the context path.
    """
    resource = WebSocketResource(factory, SUBPROTOCOLS, factory.clock)
    return routeTo(f"{basePath}/stomp", resource)
