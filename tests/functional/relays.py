"""
What stands between the daemons of a test: relays whose addresses are known before the daemons
start, and servers that are no brokers.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import Factory, Protocol
from twisted.protocols.portforward import ProxyFactory
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from .daemon import TIMEOUT, reactor


def listen(test: TestCase, factory: Any) -> int:
    """Listen on a port of loopback until the test ends; the port."""
    listening: IListeningPort = reactor.listenTCP(0, factory, interface="127.0.0.1")
    test.addCleanup(lambda: maybeDeferred(listening.stopListening))
    address: Any = listening.getHost()
    port: int = address.port
    return port


class Relay(ProxyFactory):
    """
    Hands connections on to a daemon that is told later.

    @ivar url: the daemon's base URL, through here.
    """

    noisy = False

    def __init__(self, test: TestCase) -> None:
        super().__init__("127.0.0.1", 0)
        self.name = f"127.0.0.1:{listen(test, self)}"
        self.url = f"http://{self.name}/svcbroker"

    def leadTo(self, base: str) -> None:
        """
        From now on connections lead to this daemon.

        @param base: its base address.
        """
        self.port = int(base.removeprefix("http://").partition("/")[0].rpartition(":")[2])


class _Speaker(Protocol):
    """Says its piece to who has said something, and goes on with the rest for ever."""

    factory: Stranger
    transport: Any

    def connectionMade(self) -> None:
        self.factory.open.add(self)

    def dataReceived(self, data: bytes) -> None:
        self.factory.hear()
        if self.factory.says:
            self.transport.write(self.factory.says)
        if self.factory.rest:
            self.transport.registerProducer(self, False)

    def resumeProducing(self) -> None:
        self.transport.write(self.factory.rest)

    def stopProducing(self) -> None:
        """The other side is gone."""

    def connectionLost(self, reason: Failure | None = None) -> None:
        self.factory.open.discard(self)


class Stranger(Factory):
    """
    A server that is no broker.

    @ivar says: what it says once somebody speaks to it.
    @ivar rest: what it says then, again and again.
    @ivar heard: how often somebody has spoken to it.
    @ivar url: what could be a broker's base URL.
    @ivar option: makes it the peer of a daemon.
    """

    protocol = _Speaker  # type: ignore[assignment]
    noisy = False

    def __init__(self, test: TestCase, says: bytes = b"", rest: bytes = b"") -> None:
        self.says = says
        self.rest = rest
        self.heard = 0
        self.open: set[_Speaker] = set()
        self._waiting: list[Deferred[None]] = []
        self.name = f"127.0.0.1:{listen(test, self)}"
        self.url = f"http://{self.name}/svcbroker"
        self.option = f"--peer={self.name}={self.url}"
        test.addCleanup(self.leave)

    def leave(self) -> None:
        """End every connection."""
        for each in list(self.open):
            each.transport.abortConnection()

    def hear(self) -> None:
        """Somebody speaks."""
        self.heard += 1
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.callback(None)

    def spokenTo(self) -> Deferred[None]:
        """Fires when somebody speaks to it."""
        waiting: Deferred[None] = Deferred()
        self._waiting.append(waiting)
        return waiting.addTimeout(TIMEOUT, reactor)


def makeCertificate(directory: Path) -> Sequence[Path]:
    """
    A certificate for 127.0.0.1 that nobody has signed but its own key.

    @return: the files of the key and of the certificate.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    files = directory / "key.pem", directory / "certificate.pem"
    files[0].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    files[1].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return files
