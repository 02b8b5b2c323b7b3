"""
Certificates for tests of TLS.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509 import (
    BasicConstraints,
    CertificateBuilder,
    DNSName,
    IPAddress,
    Name,
    NameAttribute,
    NameOID,
    SubjectAlternativeName,
    random_serial_number,
)
from twisted.internet.address import IPv4Address
from twisted.internet.interfaces import IProtocolFactory
from twisted.internet.testing import StringTransportWithDisconnection

from svcbroker.commands.certificates import Authority, certificatePem, keyPem

NAME = "broker.example"


def makeCertificate(root: Path, *addresses: str) -> tuple[Path, Path]:
    """PEM files of a new key and of its own certificate, for L{NAME} and addresses."""
    key = generate_private_key(SECP256R1())
    name = Name([NameAttribute(NameOID.COMMON_NAME, NAME)])
    builder = CertificateBuilder(name, name, key.public_key(), random_serial_number())
    names = [DNSName(NAME), *(IPAddress(ip_address(each)) for each in addresses)]
    builder = builder.add_extension(SubjectAlternativeName(names), critical=False)
    builder = builder.add_extension(BasicConstraints(ca=True, path_length=None), critical=True)
    dates = datetime(2020, 1, 1), datetime(2099, 1, 1)
    signed = builder.not_valid_before(dates[0]).not_valid_after(dates[1]).sign(key, SHA256())
    paths = root / "key.pem", root / "certificate.pem"
    paths[0].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    paths[1].write_bytes(signed.public_bytes(Encoding.PEM))
    return paths


def makeAuthority(year: int = 2026) -> Authority:
    """An authority whose certificates are good for a hundred years from the start of a year."""
    return Authority(datetime(year, 1, 1, tzinfo=UTC), 36500)


def writeAuthority(path: Path, authority: Authority) -> Path:
    """A PEM file with the certificate of an authority."""
    path.write_bytes(certificatePem(authority.certificate))
    return path


def writeIdentity(path: Path, made: tuple[Any, Any]) -> Path:
    """One PEM file with a certificate and its private key."""
    certificate, key = made
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(certificatePem(certificate) + keyPem(key))
    return path


class TcpTransport(StringTransportWithDisconnection):
    """A memory transport that HTTP takes for one of TCP."""

    def setTcpNoDelay(self, enabled: bool) -> None:
        """See C{ITCPTransport}."""


class MemoryClient:
    """
    A TLS client of Python's own C{ssl}, connected in memory to a protocol that a factory has made.

    @ivar received: the application's bytes.
    @ivar error: why the connection has failed, as the client sees it.
    @ivar transport: the server's transport.
    """

    def __init__(
        self,
        factory: IProtocolFactory,
        authorities: Path,
        host: str | None = None,
        identity: Path | None = None,
        protocols: Sequence[str] = (),
        version: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED,
    ) -> None:
        """
        @param authorities: the file of the authorities that the client trusts.
        @param host: the name that it asks for; C{None} to ask for none, and accept any.
        @param identity: the file with its own certificate and private key.
        @param protocols: what it offers over ALPN.
        @param version: the highest version of TLS that it offers.
        """
        context = ssl.create_default_context(cafile=str(authorities))
        context.check_hostname = host is not None
        context.maximum_version = version
        if identity is not None:
            context.load_cert_chain(str(identity))
        if protocols:
            context.set_alpn_protocols(list(protocols))
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._client = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self.received = b""
        self.error: Exception | None = None
        self.transport = TcpTransport(peerAddress=IPv4Address("TCP", "127.0.0.1", 5))
        protocol: Any = factory.buildProtocol(self.transport.getPeer())
        self.protocol = self.transport.protocol = protocol
        self.protocol.makeConnection(self.transport)
        self._isUp = False
        self.exchange()

    def exchange(self) -> None:
        """Pass bytes on in both directions until there are none."""
        while self.error is None:
            try:
                if not self._isUp:
                    self._client.do_handshake()
                    self._isUp = True
                while data := self._client.read(65536):
                    self.received += data
            except ssl.SSLWantReadError:
                pass
            except (ssl.SSLError, OSError) as error:
                self.error = error
            sent = self._outgoing.read()
            if sent and self.transport.connected:
                self.deliver(sent)
            answered = self.transport.value()
            self.transport.clear()
            self._incoming.write(answered)
            if not sent and not answered:
                return

    def deliver(self, data: bytes) -> None:
        """Bytes of the network reach the server."""
        self.protocol.dataReceived(data)

    def send(self, data: bytes) -> None:
        """Send bytes of the application."""
        self._client.write(data)
        self.exchange()

    @property
    def serial(self) -> int:
        """The serial number of the server's certificate."""
        certificate = self._client.getpeercert()
        assert certificate is not None
        return int(str(certificate["serialNumber"]), 16)

    @property
    def negotiated(self) -> str | None:
        """The protocol that was negotiated over ALPN."""
        return self._client.selected_alpn_protocol()
