"""
TLS endpoints on a memory reactor.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.hashes import SHA256
from twisted.internet.interfaces import IProtocolNegotiationFactory
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from svcbroker.daemon.ports import GatedFactory, serverEndpoint
from svcbroker.net.tls import TLSConnection, peerCertificate
from tests.certificates import MemoryClient, makeAuthority, writeAuthority, writeIdentity


class Echo(Protocol):
    """Answers with the certificate of the client, as it stands then."""

    def connectionMade(self) -> None:
        # Behind a proxy the handshake is over: the header has come inside of TLS.
        isProxied = not isinstance(self.transport, TLSConnection)
        assert isProxied or peerCertificate(self.transport) is None

    def dataReceived(self, data: bytes) -> None:
        transport: Any = self.transport
        found = peerCertificate(transport)
        text = "none" if found is None else f"{found.commonName} {found.fingerprint}"
        transport.write(text.encode())


@implementer(IProtocolNegotiationFactory)
class NegotiatingFactory(Factory):
    """A carrier's factory."""

    protocol = Echo

    def acceptableProtocols(self) -> list[bytes]:
        return [b"mqtt"]


class EndpointTestCase(SynchronousTestCase):
    """
    Endpoints on a memory reactor, with an authority for the server and one for its clients.
    """

    def setUp(self) -> None:
        self.root = Path(self.mktemp()).absolute()
        self.root.mkdir()
        self.reactor = MemoryReactorClock()
        self.authority, self.clients = makeAuthority(), makeAuthority()
        self.trusted = writeAuthority(self.root / "ca.pem", self.authority)
        writeAuthority(self.root / "clients.pem", self.clients)
        self.serial = self.renew("a.example")
        self.mtls = f"mtls:8883:certs={self.root}/certs:clients={self.root}/clients.pem"

    def renew(self, name: str, file: str = "a.pem") -> int:
        """Write a new certificate; its serial number."""
        made = self.authority.server([name])
        path = writeIdentity(self.root / "certs" / "new", made)
        path.rename(path.with_name(file))
        return made[0].serial_number

    def identity(self, name: str = "me") -> tuple[Path, str]:
        """A client's certificate and key, and its fingerprint as OpenSSL shows it."""
        made = self.clients.client(name)
        return writeIdentity(self.root / "me.pem", made), made[0].fingerprint(SHA256()).hex()

    def listen(self, text: str) -> tuple[Any, Any]:
        """An endpoint, and the factory that its port was given."""
        gated = GatedFactory("mqtt")
        gated.open(NegotiatingFactory())
        endpoint = serverEndpoint(self.reactor, text)
        self.successResultOf(endpoint.listen(gated))
        return endpoint, self.reactor.tcpServers[-1][1]

    def connect(self, text: str, **options: Any) -> MemoryClient:
        """A client of an endpoint."""
        return MemoryClient(self.listen(text)[1], self.trusted, "a.example", **options)

    def answer(self, client: MemoryClient) -> str:
        """The certificate of the client as the server sees it."""
        client.send(b"?")
        # Twisted writes at the end of the turn.
        self.reactor.advance(0)
        client.exchange()
        return client.received.decode()
