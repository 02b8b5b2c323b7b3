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
from twisted.protocols.haproxy._info import ProxyInfo
from twisted.protocols.haproxy._v1parser import V1Parser
from twisted.protocols.haproxy._wrapper import HAProxyProtocolWrapper, HAProxyWrappingFactory
from zope.interface import implementer

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
    """Reads the PROXY header of a connection."""

    def readConnectionLost(self) -> None:
        """See C{IHalfCloseableProtocol}."""
        inner = IHalfCloseableProtocol(self.wrappedProtocol, None)
        if inner is None or self._proxyInfo is None:
            self.loseConnection()
        else:
            inner.readConnectionLost()

    def writeConnectionLost(self) -> None:
        """See C{IHalfCloseableProtocol}."""

    def dataReceived(self, data: bytes) -> None:
        if self._proxyInfo is None and self._parser is None and data.startswith(_UNKNOWN[:8]):
            self._parser = _HeaderParser()
        super().dataReceived(data)


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
