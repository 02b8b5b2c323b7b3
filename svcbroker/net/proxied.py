"""
Listening behind a proxy that sends a PROXY header: it names the client of each connection.
"""

from __future__ import annotations

from typing import Any, Final

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import (
    IAddress,
    IHalfCloseableProtocol,
    IListeningPort,
    IProtocolFactory,
    IProtocolNegotiationFactory,
    IStreamServerEndpoint,
)
from twisted.internet.protocol import Protocol, connectionDone
from twisted.protocols.haproxy._exceptions import InvalidProxyHeader
from twisted.protocols.haproxy._info import ProxyInfo
from twisted.protocols.haproxy._v1parser import V1Parser
from twisted.protocols.haproxy._v2parser import V2Parser
from twisted.protocols.haproxy._wrapper import HAProxyProtocolWrapper, HAProxyWrappingFactory
from twisted.python.failure import Failure
from zope.interface import directlyProvides, implementer, providedBy

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
        Protocol.makeConnection(self, transport)
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
