"""
TLS endpoints: what is served, what is asked of clients, and what is renewed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from ssl import TLSVersion
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509 import (
    CertificateBuilder,
    Name,
    NameAttribute,
    NameOID,
    random_serial_number,
)
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.endpoints import serverFromString
from twisted.internet.interfaces import IProtocolNegotiationFactory
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from svcbroker.carriers.http import HttpSettings
from svcbroker.carriers.websocket import WebSocketResource, routeTo
from svcbroker.commands.certificates import certificatePem, keyPem
from svcbroker.daemon.ports import GatedFactory, PortPlan, serverEndpoint
from svcbroker.net.certificates import CertificateError
from svcbroker.net.tls import (
    INTERVAL,
    CertificateReloader,
    PeerCertificate,
    ServerCertificates,
    peerCertificate,
)
from tests.carriers.http.support import Client, requestBytes
from tests.carriers.test_websocket import UPGRADE
from tests.certificates import MemoryClient, makeAuthority, writeAuthority, writeIdentity


class Echo(Protocol):
    """Answers with the certificate of the client, as it stands then."""

    def connectionMade(self) -> None:
        assert peerCertificate(self.transport) is None

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
        """What the server says of the client's certificate."""
        client.send(b"?")
        # Twisted writes at the end of the turn.
        self.reactor.advance(0)
        client.exchange()
        return client.received.decode()


class MutualTLSTests(EndpointTestCase):
    """
    C{mtls:} endpoints.
    """

    def test_verifiedCertificateIsGiven(self) -> None:
        identity, fingerprint = self.identity()
        for more in ("", ":require=no", ":require=yes"):
            client = self.connect(self.mtls + more, identity=identity)
            self.assertEqual(self.answer(client), f"me {fingerprint}")

    def test_ambiguousNameIsNone(self) -> None:
        """A subject with two common names has the name that a reader picks."""
        key = generate_private_key(SECP256R1())
        names = [NameAttribute(NameOID.COMMON_NAME, name) for name in ("me", "you")]
        issuer = self.clients.certificate
        builder = CertificateBuilder(
            issuer.subject,
            Name(names),
            key.public_key(),
            random_serial_number(),
            issuer.not_valid_before_utc,
            issuer.not_valid_after_utc,
        )
        certificate = builder.sign(self.clients.key, SHA256())
        identity = writeIdentity(self.root / "both.pem", (certificate, key))
        client = self.connect(self.mtls, identity=identity)
        self.assertEqual(self.answer(client), f" {certificate.fingerprint(SHA256()).hex()}")

    def test_certificateIsOptionalUnlessRequired(self) -> None:
        self.assertEqual(self.answer(self.connect(self.mtls)), "none")
        refused = self.connect(self.mtls + ":require=yes")
        self.assertIn("CERTIFICATE_REQUIRED", str(refused.error))
        self.assertFalse(refused.transport.connected)

    def test_foreignCertificateIsRefused(self) -> None:
        """One of another authority, and a server's of the right one."""
        for made in (
            makeAuthority().client("me"),
            self.authority.client("me"),
            self.clients.server(["me"]),
        ):
            identity = writeIdentity(self.root / "me.pem", made)
            client = self.connect(self.mtls, identity=identity)
            self.assertRegex(str(client.error), "ALERT_(UNKNOWN_CA|UNSUPPORTED_CERTIFICATE)")
            self.assertFalse(client.transport.connected)

    def test_certificateIsVerifiedForEveryName(self) -> None:
        """The context that SNI chooses verifies as the first one does."""
        self.renew("b.example", "b.pem")
        identity, fingerprint = self.identity()
        for host in ("a.example", "b.example"):
            _, factory = self.listen(self.mtls + ":require=yes")
            client = MemoryClient(factory, self.trusted, host, identity)
            self.assertEqual(self.answer(client), f"me {fingerprint}")
            refused = MemoryClient(factory, self.trusted, host)
            self.assertIn("CERTIFICATE_REQUIRED", str(refused.error))

    def test_protocolIsNegotiated(self) -> None:
        client = self.connect(self.mtls, protocols=["h2", "mqtt"])
        self.assertEqual(client.negotiated, "mqtt")
        self.assertIsNone(self.connect(self.mtls).negotiated)

    def test_proxyHeaderKeepsCertificate(self) -> None:
        """The header comes inside of TLS."""
        identity, fingerprint = self.identity()
        client = self.connect(f"haproxy:{self.mtls}", identity=identity)
        client.send(b"PROXY TCP4 192.0.2.7 192.0.2.8 7 8\r\n")
        self.assertEqual(self.answer(client), f"me {fingerprint}")

    def test_otherServersKnowIt(self) -> None:
        """C{serverFromString} finds the plugin."""
        serverFromString(self.reactor, self.mtls)

    def test_parametersAreUsed(self) -> None:
        self.listen(self.mtls)
        self.listen(self.mtls + ":interface=\\:\\:1:backlog=7")
        found = [(each[0], *each[2:4]) for each in self.reactor.tcpServers]
        self.assertEqual(found, [(8883, 1024, ""), (8883, 7, "::1")])

    def test_badDescriptionIsExplained(self) -> None:
        certs, clients = f"certs={self.root}/certs", f"clients={self.root}/clients.pem"
        for text, reason in (
            ("", "missing 1 required positional argument: 'port'; the parameters are mtls:PORT:"),
            ("1", "missing 2 required keyword-only arguments: 'certs' and 'clients'; the param"),
            (f"1:{certs}", "missing 1 required keyword-only argument: 'clients'; the param"),
            (f"1:{certs}:{clients}:no=1", "got an unexpected keyword argument 'no'; the param"),
            (f"1:{certs}:{clients}:require=maybe", "require is yes or no, not 'maybe'"),
            (f"no:{certs}:{clients}", "port is a number from 0 to 65535, not 'no'"),
            (f"65536:{certs}:{clients}", "port is a number from 0 to 65535, not '65536'"),
            (f"1:{certs}:{clients}:backlog=-1", "backlog is a number from 0 to "),
            (f"1:{certs}:clients={self.root}/no", f"No such file or directory: {self.root}/no"),
            (f"1:certs={self.root}/no:{clients}", f"No such file or directory: {self.root}/no"),
            (f"1:{certs}:clients=/dev/null", "/dev/null has no certificate"),
        ):
            text = f"mtls:{text}" if text else "mtls"
            error = self.assertRaises(ValueError, serverEndpoint, self.reactor, text)
            self.assertTrue(str(error).startswith(reason), str(error))
            self.assertNotIn("\n", str(error))


class Recorder(Protocol):
    """
    A protocol above a WebSocket.

    @ivar found: the client's certificate, when the WebSocket is opened.
    """

    found: PeerCertificate | None = None

    def connectionMade(self) -> None:
        self.found = peerCertificate(self.transport)


class SlowClient(MemoryClient):
    """
    A client whose bytes arrive one by one.

    @ivar shown: for each byte, whether OpenSSL has a certificate of the client, and whether we
        give it.
    """

    def deliver(self, data: bytes) -> None:
        self.shown: list[tuple[bool, bool]] = []
        for number in range(len(data)):
            self.protocol.dataReceived(data[number : number + 1])
            shown = self.protocol.getPeerCertificate() is not None
            self.shown.append((shown, peerCertificate(self.protocol) is not None))


class HandshakeTests(EndpointTestCase):
    """
    A client's certificate while it has not proved that it has the private key.
    """

    def test_certificateIsGivenAfterTheHandshake(self) -> None:
        """With the last byte, which is that of the client's Finished."""
        identity, _ = self.identity()
        for version in (TLSVersion.TLSv1_2, TLSVersion.TLSv1_3):
            _, factory = self.listen(self.mtls)
            client = SlowClient(factory, self.trusted, None, identity, version=version)
            self.assertIsNone(client.error)
            self.assertIn((True, False), client.shown)
            self.assertEqual(
                [given for _, given in client.shown].index(True) + 1, len(client.shown)
            )


class WebSocketTests(EndpointTestCase):
    """
    The certificate of a client of a WebSocket, through HTTP's channel.
    """

    def check(self, text: str, preamble: bytes) -> None:
        """Open a WebSocket on an endpoint."""
        recorder = Recorder()
        factory = Factory.forProtocol(lambda: recorder)
        route = routeTo("/ws", WebSocketResource(factory, (), self.reactor))
        gated = GatedFactory("http")
        gated.open(Client(HttpSettings(hostNames={"broker"}), (route,)).site)
        self.successResultOf(serverEndpoint(self.reactor, text).listen(gated))
        identity, fingerprint = self.identity()
        listening = self.reactor.tcpServers[-1][1]
        client = MemoryClient(listening, self.trusted, "a.example", identity)
        client.send(preamble + requestBytes("GET", "/ws", headers=UPGRADE))
        self.assertEqual(recorder.found, PeerCertificate(commonName="me", fingerprint=fingerprint))

    def test_certificateIsGiven(self) -> None:
        self.check(self.mtls, b"")

    def test_certificateIsGivenBehindProxy(self) -> None:
        self.check(f"haproxy:{self.mtls}", b"PROXY TCP4 192.0.2.7 192.0.2.8 7 8\r\n")


class PeerCertificateTests(SynchronousTestCase):
    """
    L{peerCertificate}
    """

    def test_transportWithoutTLSHasNone(self) -> None:
        self.assertIsNone(peerCertificate(StringTransport()))

    def test_valueIsFrozen(self) -> None:
        value = PeerCertificate(commonName="a", fingerprint="0" * 64)
        self.assertEqual(len({value, PeerCertificate(commonName="a", fingerprint="0" * 64)}), 1)


class RenewalTests(EndpointTestCase):
    """
    L{CertificateReloader}, and the three types of endpoints.
    """

    def setUp(self) -> None:
        super().setUp()
        self.clock = Clock()

    def descriptions(self) -> Mapping[str, str]:
        """An endpoint of each type, on the same certificate."""
        pem = f"{self.root}/certs/a.pem"
        return {
            "ssl": f"ssl:1:privateKey={pem}:certKey={pem}",
            "tls": f"tls:{self.root}/certs:1",
            "mtls": self.mtls,
        }

    def start(self, text: str) -> tuple[CertificateReloader, Any]:
        """A reloader of an endpoint, and the endpoint's factory."""
        endpoint, factory = self.listen(text)
        plan = PortPlan(name="mqtt", endpoint=endpoint, text=text)
        assert plan.certificates is not None
        reloader = CertificateReloader({"MQTT": plan.certificates}, self.clock, maybeDeferred)
        reloader.start()
        return reloader, factory

    def client(self, factory: Any, **options: Any) -> MemoryClient:
        """A client that has got a certificate it trusts."""
        client = MemoryClient(factory, self.trusted, "a.example", **options)
        self.assertIsNone(client.error)
        return client

    def test_renewedCertificateIsServedWithinAMinute(self) -> None:
        """To new connections; those that are open go on."""
        self.assertLess(INTERVAL, 30)
        for kind, text in self.descriptions().items():
            before = self.renew("a.example")
            reloader, factory = self.start(text)
            old = self.client(factory)
            after = self.renew("a.example")
            self.assertEqual(self.client(factory).serial, before, kind)
            self.clock.advance(INTERVAL)
            self.assertEqual(self.client(factory).serial, after, kind)
            self.assertEqual(self.answer(old), "none")
            self.assertEqual(old.serial, before)
            self.successResultOf(reloader.stop())
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_reloadDoesNotWait(self) -> None:
        for kind, text in self.descriptions().items():
            reloader, factory = self.start(text)
            after = self.renew("a.example")
            self.assertEqual(self.successResultOf(reloader.reload()), [])
            self.assertEqual(self.client(factory).serial, after, kind)

    def test_renewedBehindProxy(self) -> None:
        reloader, _ = self.start(f"haproxy:{self.mtls}")
        (self.root / "certs" / "a.pem").write_bytes(b"")
        self.assertEqual(len(self.successResultOf(reloader.reload())), 1)

    def test_clientsAuthoritiesAreRenewed(self) -> None:
        _, factory = self.start(self.mtls)
        old = self.client(factory, identity=self.identity()[0])
        self.clients = makeAuthority()
        writeAuthority(self.root / "clients.pem", self.clients)
        identity, fingerprint = self.identity("you")
        refused = MemoryClient(factory, self.trusted, "a.example", identity)
        self.assertIn("UNKNOWN_CA", str(refused.error))
        self.clock.advance(INTERVAL)
        self.assertEqual(self.answer(self.client(factory, identity=identity)), f"you {fingerprint}")
        self.assertIn("me ", self.answer(old))

    def test_unusableFilesChangeNothing(self) -> None:
        """The reason is logged once, and files that are mended are served."""
        certificate, key = self.authority.server(["a.example"])
        for kind, text in self.descriptions().items():
            before = self.renew("a.example")
            _, factory = self.start(text)
            path = self.root / "certs" / "a.pem"
            for data in (b"-----BEGIN", certificatePem(certificate) + keyPem(self.authority.key)):
                path.write_bytes(data)
                for _ in range(3):
                    self.clock.advance(INTERVAL)
                self.assertEqual(self.client(factory).serial, before, kind)
            path.unlink()
            self.clock.advance(INTERVAL)
            self.clock.advance(INTERVAL)
            self.assertEqual(self.client(factory).serial, before, kind)
            path.write_bytes(certificatePem(certificate) + keyPem(key))
            self.clock.advance(INTERVAL)
            self.assertEqual(self.client(factory).serial, certificate.serial_number, kind)

    def test_reloadSaysWhatCannotBeUsed(self) -> None:
        """Each time that it is asked for."""
        reloader, _ = self.start(self.mtls)
        (self.root / "certs" / "a.pem").write_bytes(b"")
        line = (
            f"The certificates of MQTT stay as they were: {self.root}/certs has no certificate "
            "with its private key in files named *.pem"
        )
        for _ in range(2):
            self.assertEqual(self.successResultOf(reloader.reload()), [line])
        (self.root / "clients.pem").unlink()
        (line,) = self.successResultOf(reloader.reload())
        self.assertIn(f"cannot read {self.root}/clients.pem: No such file or directory", line)

    def test_unchangedFilesAreNotRead(self) -> None:
        for text in self.descriptions().values():
            endpoint, _ = self.listen(text)
            certificates: ServerCertificates = endpoint.certificates
            self.assertIsNone(certificates.read(False))
            self.assertIsNotNone(certificates.read(True))

    def test_filesOfTheSameTimeAreTold(self) -> None:
        """A file that takes the place of another one counts, with the same size and time."""
        endpoint, _ = self.listen(self.mtls)
        path = self.root / "certs" / "a.pem"
        copy = path.with_name("copy")
        copy.write_bytes(path.read_bytes())
        status = path.stat()
        os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))
        copy.rename(path)
        self.assertIsNotNone(endpoint.certificates.read(False))

    def test_readingRunsInTheThread(self) -> None:
        """The certificates change when the reactor has its result, and stopping waits for it."""
        endpoint, factory = self.listen(self.mtls)
        calls: list[tuple[Deferred[Any], Any]] = []

        def run(f: Any, *args: Any) -> Deferred[Any]:
            calls.append((Deferred(), f(*args)))
            return calls[-1][0]

        reloader = CertificateReloader({"MQTT": endpoint.certificates}, self.clock, run)
        reloader.start()
        before, after = self.serial, self.renew("a.example")
        self.clock.advance(INTERVAL)
        self.clock.advance(INTERVAL)
        self.assertEqual(len(calls), 1)
        self.assertEqual(self.client(factory).serial, before)
        stopped = reloader.stop()
        self.assertNoResult(stopped)
        calls[0][0].callback(calls[0][1])
        self.successResultOf(stopped)
        self.assertEqual(self.client(factory).serial, after)

    def test_unforeseenErrorDoesNotEndTheLoop(self) -> None:
        endpoint, factory = self.listen(self.mtls)
        failures = [ZeroDivisionError()]

        def run(f: Any, *args: Any) -> Deferred[Any]:
            def call() -> Any:
                if failures:
                    raise failures.pop()
                return f(*args)

            return maybeDeferred(call)

        CertificateReloader({"MQTT": endpoint.certificates}, self.clock, run).start()
        after = self.renew("a.example")
        self.clock.advance(INTERVAL)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.clock.advance(INTERVAL)
        self.assertEqual(self.client(factory).serial, after)

    def test_badSourceIsRaisedAtTheStart(self) -> None:
        (self.root / "certs" / "a.pem").write_bytes(b"")
        error = self.assertRaises(ValueError, serverEndpoint, self.reactor, self.mtls)
        self.assertIsInstance(error.__cause__, CertificateError)
        self.assertTrue(str(error).endswith("in files named *.pem"), str(error))
