"""
Connections to other machines: bounded in what is read, and only to permitted addresses.

The tables of refused addresses are IANA's registries of special-purpose addresses. They are spelled
out here since C{ipaddress.is_global} has changed its mind between releases of Python, and lets
addresses through that lead inside: the wire server of a cloud, or IPv6 forms with an IPv4 address.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint, UNIXClientEndpoint, wrapClientTLS
from twisted.internet.error import DNSLookupError
from twisted.internet.interfaces import (
    IAddress,
    IDelayedCall,
    IHostnameResolver,
    IHostResolution,
    IProtocol,
    IProtocolFactory,
    IReactorPluggableNameResolver,
    IReactorTime,
    IResolutionReceiver,
    IStreamClientEndpoint,
)
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.python.failure import Failure
from twisted.web.iweb import IAgentEndpointFactory, IPolicyForHTTPS
from zope.interface import implementer

if TYPE_CHECKING:
    from twisted.web.client import URI

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

_REFUSED_4: Final = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this host: on many systems the same as loopback
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared by carriers; some clouds keep their metadata here
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # public by its number, yet inside of every machine on Azure
        "169.254.0.0/16",  # link-local: most clouds keep their metadata here
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # AMT
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarking
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
)

PUBLIC_6: Final = IPv6Network("2000::/3")
"""All that is handed out so far. Whatever lies outside is refused: loopback, unspecified,
link-local, unique local, site-local, multicast, discard-only, segment routing, IPv4-compatible
(C{::/96}), IPv4-translated (C{::ffff:0:0:0/96}), local NAT64 (C{64:ff9b:1::/48})."""

_REFUSED_6: Final = tuple(
    IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments: Teredo, benchmarking, AMT, ORCHID
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: leads to the IPv4 address in it
        "2620:4f:8000::/48",  # AS112
        "3ffe::/16",  # the 6bone, given back
        "3fff::/20",  # documentation
    )
)

_MAPPED: Final = IPv6Network("::ffff:0:0/96")
NAT64: Final = IPv6Network("64:ff9b::/96")
"""The form of every IPv4 address where there is only IPv6. It leads to the IPv4 address
in it, which is the one to judge."""

_WEB_PORTS: Final = frozenset({80, 443})
_FIRST_UNPRIVILEGED_PORT: Final = 1024

_ISATAP: Final = frozenset({0x00005EFE, 0x02005EFE})

_LABEL = r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*", re.ASCII)
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9a-fA-F]*", re.ASCII)
_MAX_NAME = 253


def parseAddress(text: str) -> Address | None:
    """
    An address in its usual form; C{None} for anything else, also for the forms that only
    C{inet_aton} knows. A zone is left out: it does not make an address another one.
    """
    try:
        return ip_address(text.partition("%")[0])
    except ValueError:
        return None


def isHostName(text: str) -> bool:
    """
    Whether a text is a name, and by no resolver's reading an address: C{127.1}, C{0x7f.1} and
    C{2130706433} are none.
    """
    if len(text) > _MAX_NAME or _NAME.fullmatch(text) is None:
        return False
    return _NUMBER.fullmatch(text.rpartition(".")[2]) is None


def normaliseHost(text: str) -> str:
    """A host as it is compared: in lower case, without the dot of the root."""
    return text.lower().removesuffix(".")


def _unwrapped(address: Address) -> Address:
    """The address that is meant: an IPv4 address for one that IPv6 is only the envelope of."""
    if isinstance(address, IPv6Address) and (address in _MAPPED or address in NAT64):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def isPublic(address: Address) -> bool:
    """
    Whether an address leads out into the Internet, as far as its number can tell.
    """
    meant = _unwrapped(address)
    if isinstance(meant, IPv4Address):
        return not any(meant in network for network in _REFUSED_4)
    # Not the zone: a network does not hold an address that has one, in some releases of Python.
    meant = IPv6Address(int(meant))
    if meant not in PUBLIC_6 or any(meant in network for network in _REFUSED_6):
        return False
    # An ISATAP interface leads to the IPv4 address in it.
    return (int(meant) >> 32) & 0xFFFFFFFF not in _ISATAP


def _isOpenPort(port: int) -> bool:
    """Whether a port is one of the web's, or needs no privileges to listen on."""
    return port in _WEB_PORTS or port >= _FIRST_UNPRIVILEGED_PORT


def _holds(network: Network, address: Address) -> bool:
    return network.version == address.version and (
        int(address) & int(network.netmask) == int(network.network_address)
    )


@frozen
class AddressPolicy:
    """
    The permitted targets: the web's ports and those that need no privileges of public
    addresses, and what the operator allows beside them. Services on other privileged ports (mail,
    SSH) do not expect requests that a stranger has composed.

    @ivar networks: networks whose addresses are allowed, at all ports.
    @ivar hosts: names that are allowed, whatever they resolve to, at all ports.
    """

    networks: tuple[Network, ...] = ()
    hosts: frozenset[str] = frozenset()

    @classmethod
    def allowing(cls, allowed: Iterable[str]) -> Self:
        """
        A policy that allows these networks, addresses and host names.

        @raise ValueError: one of them is none of the three. The text goes after its name.
        """
        networks: list[Network] = []
        hosts = set()
        for text in allowed:
            what = parseAllowed(text)
            if isinstance(what, str):
                hosts.add(what)
            else:
                networks.append(what)
        return cls(tuple(networks), frozenset(hosts))

    def permits(self, host: str, address: str, port: int) -> bool:
        """
        Whether events may be sent to an address.

        @param host: the host that the URL names: a name, or the address itself.
        @param address: the address that is connected to.
        @param port: the port of it.
        """
        parsed = parseAddress(address)
        if parsed is None:
            return False
        if normaliseHost(host) in self.hosts or (_isOpenPort(port) and isPublic(parsed)):
            return True
        meant = _unwrapped(parsed)
        return any(_holds(each, parsed) or _holds(each, meant) for each in self.networks)


def parseAllowed(text: str) -> Network | str:
    """
    A target that an operator allows: a network, an address as the smallest network, or a host's
    name in its normal form.

    @raise ValueError: it is none of the three. The text goes after its name.
    """
    try:
        return ip_network(text)
    except ValueError:
        name = normaliseHost(text)
    if not isHostName(name):
        raise ValueError(f"is neither a network such as 10.1.0.0/16 nor a host's name: {text!r}")
    return name


LINGER: Final = 5.0
"""Seconds that the other side may take to close a connection."""


MAX_INTERIM: Final = 8
"""The most interim responses (1xx) to one request."""

_HEAD_END = re.compile(rb"\n\r?\n")


class AddressRefused(Exception):
    """None of a host's addresses may be connected to."""


class TooMuchReceived(Exception):
    """The other side sends more than the connection allows."""


class _BoundedProtocol(ProtocolWrapper):
    """
    Aborts a connection whose other side answers too much, or does not close it.

    Interim responses (1xx) are discarded here: twisted.web logs each of them, so a server that
    sends them without end would fill the log.

    @ivar received: how much was received since the last write, in bytes.
    """

    factory: _BoundedFactory
    transport: Any
    received = 0
    _interim = 0
    _isAwaited = False
    _isLost = False
    _head = b""
    _lingering: IDelayedCall | None = None
    _reason: Failure | None = None

    def write(self, data: bytes) -> None:
        self._begin()
        super().write(data)

    def writeSequence(self, data: Sequence[bytes]) -> None:
        self._begin()
        super().writeSequence(data)

    def _begin(self) -> None:
        """A request is sent."""
        self.received = self._interim = 0
        self._isAwaited = True

    def dataReceived(self, data: bytes) -> None:
        self.received += len(data)
        if self._isAwaited:
            data = self._discardInterim(self._head + data)
        if self.received > self.factory.maxReceived or self._interim > MAX_INTERIM:
            self._reason = Failure(TooMuchReceived())
            self.transport.abortConnection()
        elif data:
            super().dataReceived(data)

    def _discardInterim(self, data: bytes) -> bytes:
        """The bytes after the interim responses; empty while that is not known."""
        while True:
            line, end, _ = data.partition(b"\n")
            if not end:
                break
            if not _isInterim(line):
                self._head, self._isAwaited = b"", False
                return data
            found = _HEAD_END.search(data)
            if found is None:
                break
            self._interim += 1
            data = data[found.end() :]
        self._head = data
        return b""

    def loseConnection(self) -> None:
        # TLS waits for the other side's close_notify, which may never come.
        if self._lingering is None and not self._isLost:
            self._lingering = self.factory.clock.callLater(LINGER, self._abort)
        super().loseConnection()

    def _abort(self) -> None:
        self._lingering = None
        self.transport.abortConnection()

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]
        # A client of HTTP closes a connection that ends in the middle of a response, too.
        self._isLost = True
        lingering, self._lingering = self._lingering, None
        if lingering is not None:
            lingering.cancel()
        super().connectionLost(reason if self._reason is None else self._reason)


def _isInterim(line: bytes) -> bool:
    """Whether a status line is of an informational response, as twisted.web reads it."""
    try:
        return 100 <= int(line.split(b" ", 2)[1]) < 200
    except (IndexError, ValueError):
        return False


class _BoundedFactory(WrappingFactory[_BoundedProtocol]):
    """
    Makes bounded connections.

    @ivar maxReceived: the most that may be received after each write, in bytes: headers without
        end are bounded by nothing else.
    """

    protocol = _BoundedProtocol
    noisy = False

    def __init__(self, factory: IProtocolFactory, clock: IReactorTime, maxReceived: int) -> None:
        super().__init__(factory)
        self.clock = clock
        self.maxReceived = maxReceived

    def doStart(self) -> None:
        """Nothing is logged for each connection."""

    def doStop(self) -> None:
        """Nothing is logged for each connection."""


def _permits(policy: AddressPolicy, host: str, address: Any) -> bool:
    return policy.permits(host, getattr(address, "host", ""), getattr(address, "port", 0))


@implementer(IResolutionReceiver)
class _FilteringReceiver:
    """Passes on those of a host's addresses that are permitted."""

    def __init__(self, receiver: IResolutionReceiver, policy: AddressPolicy, host: str) -> None:
        self._receiver = receiver
        self._policy = policy
        self._host = host
        self.hasRefused = False

    def resolutionBegan(self, resolutionInProgress: IHostResolution) -> None:
        self._receiver.resolutionBegan(resolutionInProgress)

    def addressResolved(self, address: IAddress) -> None:
        if _permits(self._policy, self._host, address):
            self._receiver.addressResolved(address)
        else:
            self.hasRefused = True

    def resolutionComplete(self) -> None:
        self._receiver.resolutionComplete()


@implementer(IHostnameResolver)
class FilteringResolver:
    """
    A resolver that answers permitted addresses only.

    @ivar hasRefused: whether the last resolution found an address that is not permitted.
    """

    def __init__(self, resolver: IHostnameResolver, policy: AddressPolicy) -> None:
        self._resolver = resolver
        self._policy = policy
        self._receiver: _FilteringReceiver | None = None

    @property
    def hasRefused(self) -> bool:
        return self._receiver is not None and self._receiver.hasRefused

    def resolveHostName(
        self,
        resolutionReceiver: IResolutionReceiver,
        hostName: str,
        portNumber: int = 0,
        addressTypes: Sequence[type[IAddress]] | None = None,
        transportSemantics: str = "TCP",
    ) -> IHostResolution:
        """See C{IHostnameResolver}."""
        self._receiver = _FilteringReceiver(resolutionReceiver, self._policy, hostName)
        return self._resolver.resolveHostName(
            self._receiver, hostName, portNumber, addressTypes, transportSemantics
        )


@implementer(IResolutionReceiver)
class _ExistenceReceiver:
    """Fires with whether there was any address."""

    def __init__(self) -> None:
        self.found: Deferred[bool] = Deferred()
        self._has = False

    def resolutionBegan(self, resolutionInProgress: IHostResolution) -> None:
        """Nothing to prepare."""

    def addressResolved(self, address: IAddress) -> None:
        self._has = True

    def resolutionComplete(self) -> None:
        # It may have been cancelled.
        if not self.found.called:
            self.found.callback(self._has)


def hasPermittedAddress(
    resolver: IHostnameResolver, policy: AddressPolicy, host: str, port: int
) -> Deferred[bool]:
    """
    Resolve a host, and tell whether one of its addresses is permitted. It may have others later,
    so each connection is checked again.

    @param host: a name, not an address.
    """
    receiver = _ExistenceReceiver()
    FilteringResolver(resolver, policy).resolveHostName(receiver, host, port)
    return receiver.found


@implementer(IReactorPluggableNameResolver)
class _ReactorWithResolver:
    """A reactor with another resolver."""

    def __init__(self, reactor: Any, resolver: IHostnameResolver) -> None:
        self._reactor = reactor
        self.nameResolver = resolver

    def installNameResolver(self, resolver: IHostnameResolver) -> IHostnameResolver:
        raise NotImplementedError("this reactor keeps its resolver")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reactor, name)


@implementer(IStreamClientEndpoint)
class _BoundedEndpoint:
    """
    Makes bounded connections through another endpoint.
    """

    def __init__(
        self, endpoint: IStreamClientEndpoint, clock: IReactorTime, maxReceived: int
    ) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._maxReceived = maxReceived

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """See C{IStreamClientEndpoint}."""
        factory = _BoundedFactory(protocolFactory, self._clock, self._maxReceived)
        connecting: Deferred[Any] = self._endpoint.connect(factory)
        return connecting.addCallback(self.connected)

    def connected(self, protocol: _BoundedProtocol) -> IProtocol:
        """The protocol that the connection is for."""
        wrapped: IProtocol = protocol.wrappedProtocol
        return wrapped


class _CheckedEndpoint(_BoundedEndpoint):
    """
    Makes bounded connections to the permitted ones of a host's addresses.

    The name is resolved for each connection, and the addresses are checked then: a name whose
    addresses were public at first may lead inside later (DNS rebinding).
    """

    def __init__(
        self,
        endpoint: IStreamClientEndpoint,
        clock: IReactorTime,
        maxReceived: int,
        host: str,
        policy: AddressPolicy,
        resolver: FilteringResolver,
    ) -> None:
        """
        @param endpoint: resolves the host with C{resolver}.
        """
        super().__init__(endpoint, clock, maxReceived)
        self._host = host
        self._policy = policy
        self._resolver = resolver

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """See C{IStreamClientEndpoint}."""
        return super().connect(protocolFactory).addErrback(self._failed)

    def connected(self, protocol: _BoundedProtocol) -> IProtocol:
        """The same, where the address that was really connected to is permitted."""
        if not _permits(self._policy, self._host, protocol.getPeer()):
            protocol.transport.abortConnection()
            raise AddressRefused()
        return super().connected(protocol)

    def _failed(self, failure: Failure) -> Failure:
        if failure.check(DNSLookupError) and self._resolver.hasRefused:
            return Failure(AddressRefused())
        return failure


@implementer(IStreamClientEndpoint)
@frozen
class _LazyEndpoint:
    """
    An endpoint that is made when it connects. A request on a kept connection needs none, and its
    TLS context would cost more than the request.
    """

    _make: Callable[[], IStreamClientEndpoint]

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """See C{IStreamClientEndpoint}."""
        connecting: Deferred[IProtocol] = self._make().connect(protocolFactory)
        return connecting


@implementer(IAgentEndpointFactory)
class BoundedEndpoints:
    """
    Makes the endpoints of an HTTP agent whose connections are bounded.
    """

    def __init__(
        self,
        reactor: Any,
        tls: IPolicyForHTTPS,
        *,
        maxReceived: int,
        timeout: float,
        policy: AddressPolicy | None = None,
        resolver: IHostnameResolver | None = None,
        path: Path | None = None,
    ) -> None:
        """
        @param tls: verifies certificates for HTTPS.
        @param maxReceived: the most that may be received in answer to a request, headers
            included, in bytes.
        @param timeout: how long connecting may take, in seconds.
        @param policy: the addresses that may be connected to; C{None} for any.
        @param resolver: resolves the names that a policy is for; the reactor's by default.
        @param path: the Unix socket that is connected to, whatever the URL.
        """
        self._reactor = reactor
        self._tls = tls
        self._maxReceived = maxReceived
        self._timeout = timeout
        self._policy = policy
        self._resolver = resolver
        self._path = path

    def endpointForURI(self, uri: URI) -> IStreamClientEndpoint:
        """See C{IAgentEndpointFactory}."""
        return _LazyEndpoint(lambda: self._make(uri))

    def _make(self, uri: URI) -> _BoundedEndpoint:
        if self._path is not None:
            local = UNIXClientEndpoint(self._reactor, str(self._path), timeout=self._timeout)
            return _BoundedEndpoint(local, self._reactor, self._maxReceived)
        host = uri.host.decode("ascii")
        if self._policy is None:
            remote = self._remote(self._reactor, host, uri)
            return _BoundedEndpoint(remote, self._reactor, self._maxReceived)
        names = self._reactor.nameResolver if self._resolver is None else self._resolver
        resolver = FilteringResolver(names, self._policy)
        host = normaliseHost(host)
        remote = self._remote(_ReactorWithResolver(self._reactor, resolver), host, uri)
        return _CheckedEndpoint(
            remote, self._reactor, self._maxReceived, host, self._policy, resolver
        )

    def _remote(self, reactor: Any, host: str, uri: URI) -> IStreamClientEndpoint:
        endpoint: IStreamClientEndpoint = HostnameEndpoint(
            reactor, host, uri.port, timeout=self._timeout
        )
        if uri.scheme != b"https":
            return endpoint
        secure: IStreamClientEndpoint = wrapClientTLS(
            self._tls.creatorForNetloc(uri.host, uri.port), endpoint
        )
        return secure
