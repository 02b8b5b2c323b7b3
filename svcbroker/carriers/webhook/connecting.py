"""
Connections to receivers: only to addresses that are permitted, and only so much to read from
each. The one module here that touches a transport.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint, wrapClientTLS
from twisted.internet.error import DNSLookupError
from twisted.internet.interfaces import (
    IAddress,
    IHostnameResolver,
    IHostResolution,
    IProtocol,
    IProtocolFactory,
    IReactorPluggableNameResolver,
    IResolutionReceiver,
    IStreamClientEndpoint,
)
from twisted.python.failure import Failure
from twisted.web.client import URI, Agent, HTTPConnectionPool
from twisted.web.iweb import IAgent, IAgentEndpointFactory, IPolicyForHTTPS
from zope.interface import implementer

from ..bounded import BoundedFactory, BoundedProtocol
from .addresses import AddressPolicy, normaliseHost
from .settings import WebhookSettings

MAX_ANSWER: Final = 64 * 1024
"""The most that a receiver may answer to one request, headers included, in bytes."""

IDLE: Final = 4
"""How long a connection is kept for the next event, in seconds. Widely used servers close theirs
after five, and a request that meets the closing is lost."""

_IDLE_PER_HOST = 2


class AddressRefused(Exception):
    """None of a host's addresses may be connected to."""


@implementer(IResolutionReceiver)
class _Sieve:
    """Lets through only those of a host's addresses that are permitted."""

    def __init__(self, receiver: IResolutionReceiver, policy: AddressPolicy, host: str) -> None:
        self._receiver = receiver
        self._policy = policy
        self._host = host
        self.hasRefused = False

    def resolutionBegan(self, resolutionInProgress: IHostResolution) -> None:
        self._receiver.resolutionBegan(resolutionInProgress)

    def addressResolved(self, address: IAddress) -> None:
        if self._policy.permits(self._host, getattr(address, "host", "")):
            self._receiver.addressResolved(address)
        else:
            self.hasRefused = True

    def resolutionComplete(self) -> None:
        self._receiver.resolutionComplete()


@implementer(IHostnameResolver)
class CheckedResolver:
    """
    A resolver that gives only permitted addresses.

    @ivar hasRefused: whether it has kept any back.
    """

    def __init__(self, resolver: IHostnameResolver, policy: AddressPolicy) -> None:
        self._resolver = resolver
        self._policy = policy
        self._sieve: _Sieve | None = None

    @property
    def hasRefused(self) -> bool:
        return self._sieve is not None and self._sieve.hasRefused

    def resolveHostName(
        self,
        resolutionReceiver: IResolutionReceiver,
        hostName: str,
        portNumber: int = 0,
        addressTypes: Sequence[type[IAddress]] | None = None,
        transportSemantics: str = "TCP",
    ) -> IHostResolution:
        """See C{IHostnameResolver}."""
        self._sieve = _Sieve(resolutionReceiver, self._policy, hostName)
        return self._resolver.resolveHostName(
            self._sieve, hostName, portNumber, addressTypes, transportSemantics
        )


@implementer(IResolutionReceiver)
class _Any:
    """Fires with whether there was any address."""

    def __init__(self) -> None:
        self.found: Deferred[bool] = Deferred()
        self._has = False

    def resolutionBegan(self, resolutionInProgress: IHostResolution) -> None:
        """Nothing to prepare."""

    def addressResolved(self, address: IAddress) -> None:
        self._has = True

    def resolutionComplete(self) -> None:
        # Who asked may have given up.
        if not self.found.called:
            self.found.callback(self._has)


def hasPermittedAddress(
    resolver: IHostnameResolver, policy: AddressPolicy, host: str
) -> Deferred[bool]:
    """
    Whether a host has an address now that is permitted. It says nothing of later, so connections
    are checked again, each.

    @param host: a name, not an address.
    """
    receiver = _Any()
    CheckedResolver(resolver, policy).resolveHostName(receiver, host)
    return receiver.found


@implementer(IReactorPluggableNameResolver)
class _ReactorWithResolver:
    """A reactor, but for its resolver."""

    def __init__(self, reactor: Any, resolver: IHostnameResolver) -> None:
        self._reactor = reactor
        self.nameResolver = resolver

    def installNameResolver(self, resolver: IHostnameResolver) -> IHostnameResolver:
        raise NotImplementedError("this reactor keeps its resolver")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reactor, name)


@implementer(IStreamClientEndpoint)
class CheckedEndpoint:
    """
    Connects to the permitted ones of a host's addresses. The name is resolved for each
    connection, and what it resolves to is checked: a name that was harmless when it was
    subscribed with, and is not any more, leads nowhere.
    """

    def __init__(
        self,
        reactor: Any,
        resolver: IHostnameResolver,
        settings: WebhookSettings,
        uri: URI,
        tls: IPolicyForHTTPS,
    ) -> None:
        self._reactor = reactor
        self._policy = settings.policy
        self._host = normaliseHost(uri.host.decode("ascii"))
        self._resolver = CheckedResolver(resolver, settings.policy)
        endpoint: Any = HostnameEndpoint(
            _ReactorWithResolver(reactor, self._resolver),
            self._host,
            uri.port,
            timeout=settings.timeout,
        )
        if uri.scheme == b"https":
            endpoint = wrapClientTLS(tls.creatorForNetloc(uri.host, uri.port), endpoint)
        self._endpoint: IStreamClientEndpoint = endpoint

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """See C{IStreamClientEndpoint}."""
        factory = BoundedFactory(protocolFactory, self._reactor, MAX_ANSWER)
        connecting: Deferred[Any] = self._endpoint.connect(factory)
        return connecting.addCallbacks(self._connected, self._failed)

    def _connected(self, protocol: BoundedProtocol) -> IProtocol:
        # A second look, at what was really connected to.
        if not self._policy.permits(self._host, getattr(protocol.getPeer(), "host", "")):
            protocol.transport.abortConnection()
            raise AddressRefused()
        wrapped: IProtocol = protocol.wrappedProtocol
        return wrapped

    def _failed(self, failure: Failure) -> Failure:
        if failure.check(DNSLookupError) and self._resolver.hasRefused:
            return Failure(AddressRefused())
        return failure


@implementer(IAgentEndpointFactory)
class CheckedEndpoints:
    """Makes the endpoints of an agent that keeps to a policy."""

    def __init__(
        self,
        reactor: Any,
        resolver: IHostnameResolver,
        settings: WebhookSettings,
        tls: IPolicyForHTTPS,
    ) -> None:
        self._reactor = reactor
        self._resolver = resolver
        self._settings = settings
        self._tls = tls

    def endpointForURI(self, uri: URI) -> CheckedEndpoint:
        """See C{IAgentEndpointFactory}."""
        return CheckedEndpoint(self._reactor, self._resolver, self._settings, uri, self._tls)


def makePool(reactor: Any) -> HTTPConnectionPool:
    """The connections that are kept for the next event. Closed by who has it made."""
    pool = HTTPConnectionPool(reactor)
    pool.retryAutomatically = False
    pool.maxPersistentPerHost = _IDLE_PER_HOST
    pool.cachedConnectionTimeout = IDLE
    return pool


def makeAgent(
    reactor: Any,
    resolver: IHostnameResolver,
    settings: WebhookSettings,
    tls: IPolicyForHTTPS,
    pool: HTTPConnectionPool,
) -> IAgent:
    """
    An agent that connects where the settings permit. It follows no redirects, keeps no cookies,
    unpacks nothing and knows no proxies.

    @param tls: how HTTPS is verified.
    """
    endpoints = CheckedEndpoints(reactor, resolver, settings, tls)
    agent: IAgent = Agent.usingEndpointFactory(reactor, endpoints, pool)
    return agent
