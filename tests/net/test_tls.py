"""
TLS endpoints: what is served, and what is asked of clients.
"""

from __future__ import annotations

from ssl import TLSVersion

from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509 import CertificateBuilder, Name, NameAttribute, NameOID, random_serial_number
from twisted.internet.endpoints import serverFromString
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.http.logins import HttpSettings
from svcbroker.carriers.websocket import WebSocketResource, routeTo
from svcbroker.daemon.ports import GatedFactory, serverEndpoint
from svcbroker.net.tls import PeerCertificate, peerCertificate
from tests.carriers.http.support import Client, requestBytes
from tests.carriers.test_websocket import UPGRADE
from tests.certificates import MemoryClient, makeAuthority, writeIdentity

from .tlsendpoints import EndpointTestCase


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
        route = routeTo("/ws", WebSocketResource(factory, ()))
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
