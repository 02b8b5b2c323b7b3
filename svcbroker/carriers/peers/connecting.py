"""
Connections to peers: pooled and bounded. The one module here that makes any.
"""

from __future__ import annotations

from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint, wrapClientTLS
from twisted.internet.interfaces import IProtocol, IProtocolFactory, IStreamClientEndpoint
from twisted.web.client import URI, Agent, HTTPConnectionPool
from twisted.web.iweb import IAgent, IAgentEndpointFactory, IPolicyForHTTPS
from zope.interface import implementer

from ..bounded import BoundedFactory, BoundedProtocol
from .asking import MAX_SUBSCRIPTIONS, MAX_UNDER_WAY

IDLE: Final = 4
"""How long a connection is kept for the next question, in seconds. Widely used servers close
theirs after five."""

MAX_RECEIVED: Final = MAX_SUBSCRIPTIONS + 1024 * 1024
"""The most that comes over a connection in answer to a question, headers included, in bytes."""


@implementer(IStreamClientEndpoint)
class _BoundedEndpoint:
    def __init__(self, reactor: Any, endpoint: IStreamClientEndpoint) -> None:
        self._reactor = reactor
        self._endpoint = endpoint

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """See C{IStreamClientEndpoint}."""
        factory = BoundedFactory(protocolFactory, self._reactor, MAX_RECEIVED)
        connecting: Deferred[Any] = self._endpoint.connect(factory)
        return connecting.addCallback(_unwrap)


def _unwrap(protocol: BoundedProtocol) -> IProtocol:
    wrapped: IProtocol = protocol.wrappedProtocol
    return wrapped


@implementer(IAgentEndpointFactory)
class BoundedEndpoints:
    """Makes the endpoints of an agent whose connections are bounded."""

    def __init__(self, reactor: Any, tls: IPolicyForHTTPS) -> None:
        """
        @param tls: how HTTPS is verified.
        """
        self._reactor = reactor
        self._tls = tls

    def endpointForURI(self, uri: URI) -> IStreamClientEndpoint:
        """See C{IAgentEndpointFactory}."""
        endpoint: Any = HostnameEndpoint(self._reactor, uri.host.decode("ascii"), uri.port)
        if uri.scheme == b"https":
            endpoint = wrapClientTLS(self._tls.creatorForNetloc(uri.host, uri.port), endpoint)
        return _BoundedEndpoint(self._reactor, endpoint)


def makePool(reactor: Any) -> HTTPConnectionPool:
    """The connections that are kept for the next question. Closed by who has it made."""
    pool = HTTPConnectionPool(reactor)
    pool.maxPersistentPerHost = MAX_UNDER_WAY
    pool.cachedConnectionTimeout = IDLE
    return pool


def makeAgent(reactor: Any, tls: IPolicyForHTTPS, pool: HTTPConnectionPool) -> IAgent:
    """
    An agent with bounded connections that knows no proxies.

    @param tls: how HTTPS is verified.
    """
    agent: IAgent = Agent.usingEndpointFactory(reactor, BoundedEndpoints(reactor, tls), pool)
    return agent
