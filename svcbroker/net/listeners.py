"""
Endpoints that listen in place of Twisted's: on sockets that systemd has opened
(C{systemd:name=http}, C{systemd:index=0}), and behind a proxy whose PROXY header names the
client of each connection.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from attrs import evolve, frozen
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.endpoints import _SystemdParser
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import (
    IAddress,
    IHalfCloseableProtocol,
    IListeningPort,
    IProtocolFactory,
    IProtocolNegotiationFactory,
    IStreamServerEndpoint,
)
from twisted.internet.protocol import Protocol as TransportProtocol
from twisted.internet.protocol import connectionDone
from twisted.internet.unix import Port as UNIXPort
from twisted.protocols.haproxy._exceptions import InvalidProxyHeader
from twisted.protocols.haproxy._info import ProxyInfo
from twisted.protocols.haproxy._v1parser import V1Parser
from twisted.protocols.haproxy._v2parser import V2Parser
from twisted.protocols.haproxy._wrapper import HAProxyProtocolWrapper, HAProxyWrappingFactory
from twisted.python.failure import Failure
from zope.interface import directlyProvides, implementer, providedBy

_DOMAINS: Final[Mapping[int, str]] = {
    socket.AF_INET: "INET",
    socket.AF_INET6: "INET6",
    socket.AF_UNIX: "UNIX",
}


class InheritedSockets(Protocol):
    """The listening sockets of this process, as C{twisted.python.systemd.ListenFDs} has them."""

    def inheritedDescriptors(self) -> Sequence[int]: ...

    def inheritedNamedDescriptors(self) -> Mapping[str, int]: ...


@implementer(IStreamServerEndpoint)
@frozen
class InheritedEndpoint:
    """
    Listens on a socket that systemd has opened.

    Twisted's own endpoint of this kind does not know where the socket listens. It lets everybody
    write to a UNIX socket, shuts that down at the end and deletes its file, so that no client
    reaches the next daemon.

    @ivar reactor: the reactor.
    @ivar descriptor: the number of the socket.
    @ivar family: its address family.
    @ivar address: where it listens; C{None} where that is not known.
    @ivar reason: why it cannot be listened on, in one line; empty where it can.
    """

    reactor: Any
    descriptor: int = -1
    family: int = socket.AF_UNSPEC
    address: IAddress | None = None
    reason: str = ""

    def listen(self, protocolFactory: IProtocolFactory) -> Deferred[IListeningPort]:
        """See C{IStreamServerEndpoint}. Works once."""
        if self.reason:
            error: Any = CannotListenError
            return fail(error(None, None, self.reason))
        os.set_blocking(self.descriptor, False)
        port: Any
        if self.family == socket.AF_UNIX:
            unixPort: Any = UNIXPort
            port = unixPort._fromListeningDescriptor(self.reactor, self.descriptor, protocolFactory)
            # As that of an abstract socket, so that Twisted leaves the file alone.
            port._bindPath = b"\0" + port._bindPath
            port._shouldShutdown = False
            port.backlog = socket.SOMAXCONN
            port.startListening()
        else:
            port = self.reactor.adoptStreamPort(self.descriptor, self.family, protocolFactory)
        os.close(self.descriptor)
        listening: IListeningPort = port
        return succeed(listening)


def inheritedEndpoint(
    reactor: Any,
    domain: str = "",
    index: str = "",
    name: str = "",
    *,
    sockets: InheritedSockets = _SystemdParser._sddaemon,  # It was given the only copy.
) -> InheritedEndpoint:
    """
    A C{systemd:} endpoint. A socket that is not there, or cannot be listened on, is found when it
    is listened on: C{--check} runs without the sockets.

    @param domain: C{INET}, C{INET6} or C{UNIX}: what the socket must be; empty for any.
    @param index: the place of the socket among those that were passed, from 0.
    @param name: its name: C{FileDescriptorName} of the socket unit.
    @raise ValueError: the description cannot be used.
    """
    if domain not in {"", *_DOMAINS.values()}:
        raise ValueError(f"domain is one of {', '.join(_DOMAINS.values())}, not {domain!r}")
    if bool(index) == bool(name):
        raise ValueError("a socket of systemd has either a name or an index")
    named, indexed = sockets.inheritedNamedDescriptors(), sockets.inheritedDescriptors()
    place = int(index or -1)
    descriptor = named.get(name, -1)
    if 0 <= place < len(indexed):
        descriptor = indexed[place]
    endpoint = InheritedEndpoint(reactor, descriptor)
    if descriptor < 0:
        passed = ", ".join(named) or f"{len(indexed)} without names" if indexed else "none"
        return evolve(endpoint, reason=f"systemd has not passed this socket, but {passed}")
    try:
        family, address = _examine(descriptor)
    except OSError as error:
        return evolve(endpoint, reason=f"systemd has passed no socket: {error.strerror}")
    if address is None:
        return evolve(endpoint, reason="the socket of systemd does not listen for streams")
    if domain not in {"", _DOMAINS[family]}:
        reason = f"the socket of systemd is of {_DOMAINS[family]}, not {domain}"
        return evolve(endpoint, reason=reason)
    return evolve(endpoint, family=family, address=address)


def _examine(descriptor: int) -> tuple[int, IAddress | None]:
    """
    The family and the address of a socket. The address is C{None} where no stream server can listen
    on the socket.

    @raise OSError: it is no socket.
    """
    with socket.socket(fileno=os.dup(descriptor)) as inherited:
        family, name = inherited.family, inherited.getsockname()
        isListening = inherited.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        address: IAddress | None = None
        if inherited.type == socket.SOCK_STREAM and isListening:
            if family == socket.AF_INET:
                address = IPv4Address("TCP", *name)
            elif family == socket.AF_INET6:
                address = IPv6Address("TCP", *name)
            elif family == socket.AF_UNIX:
                address = UNIXAddress(name)
    return family, address


_UNKNOWN: Final = b"PROXY UNKNOWN"
"""A header without addresses, which the PROXY protocol allows (section 2.1) for a connection whose
client the proxy does not know, such as one of its own checks. Twisted asks for a space after it."""


class _HeaderParser(V1Parser):
    """Reads a PROXY header of version 1."""

    @classmethod
    def parse(cls, line: bytes) -> ProxyInfo:
        return super().parse(line + b" " if line == _UNKNOWN else line)


@implementer(IHalfCloseableProtocol)
class _ProxiedProtocol(HAProxyProtocolWrapper):
    """
    Reads the PROXY header of a connection, and then connects the wrapped protocol, which asks for
    its client's address at once. Until then the connection has its place among the strangers.
    """

    transport: Any
    wrappedProtocol: Any
    _isConnected = False

    def makeConnection(self, transport: Any) -> None:
        """See C{IProtocol}."""
        directlyProvides(self, providedBy(transport))
        TransportProtocol.makeConnection(self, transport)
        self.factory.registerProtocol(self)
        # By it the stranger is dropped who sends no header in time.
        self.wrappedProtocol.transport = self

    def readConnectionLost(self) -> None:
        """See C{IHalfCloseableProtocol}."""
        inner = IHalfCloseableProtocol(self.wrappedProtocol, None)
        if inner is None or not self._isConnected:
            self.loseConnection()
        else:
            inner.readConnectionLost()

    def writeConnectionLost(self) -> None:
        """See C{IHalfCloseableProtocol}."""

    def dataReceived(self, data: bytes) -> None:
        """See C{IProtocol}."""
        if not self._isConnected:
            rest = self._readHeader(data)
            if rest is None:
                return
            self._isConnected = True
            self.wrappedProtocol.makeConnection(self)
            data = rest
        if data:
            self.wrappedProtocol.dataReceived(data)

    def _readHeader(self, data: bytes) -> bytes | None:
        """The bytes after the header; C{None} where it is not complete, or is refused."""
        if self._parser is None:
            if len(data) >= 16 and data.startswith(V2Parser.PREFIX) and data[12] >> 4 == 2:
                self._parser = V2Parser()
            elif len(data) >= 8 and data.startswith(V1Parser.PROXYSTR):
                self._parser = _HeaderParser()
            else:
                self.loseConnection()
                return None
        try:
            self._proxyInfo, rest = self._parser.feed(data)
        except InvalidProxyHeader:
            self.loseConnection()
            return None
        return rest

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """See C{IProtocol}."""
        if self._isConnected:
            super().connectionLost(reason)
            return
        self.factory.unregisterProtocol(self)
        stranger = getattr(self.wrappedProtocol, "stranger", None)
        if stranger is not None:
            stranger.leave()
        self.wrappedProtocol = None


@implementer(IProtocolNegotiationFactory)
class ProxiedFactory(HAProxyWrappingFactory):
    """
    Reads the PROXY header of each connection before the wrapped factory's protocol sees any byte.

    Twisted's wrapper hides from TLS which protocols the wrapped factory negotiates, and TLS then
    refuses every client that offers some.
    """

    protocol = _ProxiedProtocol  # type: ignore[assignment]

    def buildProtocol(self, addr: IAddress | None) -> Any:
        """See C{IProtocolFactory}: C{None} where the wrapped factory accepts no connection."""
        inner = self.wrappedFactory.buildProtocol(addr)
        if inner is None:
            return None
        wrap: Any = self.protocol
        return wrap(self, inner)

    def acceptableProtocols(self) -> list[bytes]:
        """See C{IProtocolNegotiationFactory}."""
        if not IProtocolNegotiationFactory.providedBy(self.wrappedFactory):
            return []
        return list(self.wrappedFactory.acceptableProtocols())


@implementer(IStreamServerEndpoint)
@frozen
class ProxiedEndpoint:
    """
    Listens on another endpoint for connections that begin with a PROXY header.

    @ivar endpoint: the other endpoint; on one of TLS, the header is sent inside of TLS.
    """

    endpoint: IStreamServerEndpoint

    def listen(self, protocolFactory: IProtocolFactory) -> Deferred[IListeningPort]:
        """See C{IStreamServerEndpoint}."""
        listening: Deferred[IListeningPort] = self.endpoint.listen(ProxiedFactory(protocolFactory))
        return listening
