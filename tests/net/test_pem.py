"""
Certificates in PEM files, as servers read them.
"""

from __future__ import annotations

from base64 import encodebytes
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509 import (
    AuthorityKeyIdentifier,
    BasicConstraints,
    CertificateBuilder,
    DNSName,
    KeyUsage,
    Name,
    NameAttribute,
    NameOID,
    SubjectAlternativeName,
    SubjectKeyIdentifier,
    random_serial_number,
)
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.commands.certificates import certificatePem, keyPem
from svcbroker.net.pem import (
    MAX_PEM,
    CertificateDirectory,
    CertificateError,
    CertificateFiles,
    CertificateSource,
    ClientAuthorities,
)
from svcbroker.net.tls import ServerCertificates
from tests.certificates import MemoryClient, makeAuthority, writeAuthority, writeIdentity

DATES = datetime(2026, 1, 1, tzinfo=UTC), datetime(2099, 1, 1, tzinfo=UTC)


def pem(name: str, data: bytes) -> bytes:
    """A block of a PEM file."""
    text = encodebytes(data).decode("ascii")
    return f"-----BEGIN {name}-----\n{text}-----END {name}-----\n".encode("ascii")


def damage(rng: Random, data: bytes) -> bytes:
    """Bytes of which up to three are changed."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


class SourceTestCase(SynchronousTestCase):
    """
    Certificates of one authority in a directory.
    """

    def setUp(self) -> None:
        self.root = Path(self.mktemp())
        self.certs = self.root / "certs"
        self.certs.mkdir(parents=True)
        self.authority = makeAuthority()
        self.trusted = writeAuthority(self.root / "ca.pem", self.authority)

    def source(self) -> CertificateSource:
        """The reader of the files."""
        return CertificateDirectory(path=self.certs)

    def served(self, host: str | None) -> int:
        """The serial number of the certificate that a client gets, and takes."""
        factory = TLSMemoryBIOFactory(
            ServerCertificates(self.source()), False, Factory.forProtocol(Protocol), clock=Clock()
        )
        client = MemoryClient(factory, self.trusted, host)
        self.assertIsNone(client.error)
        return client.serial

    def write(self, path: str, *hosts: str, year: int = 0) -> int:
        """Write a certificate and its key; the serial number."""
        authority = self.authority
        if year:
            authority = makeAuthority(year)
            with self.trusted.open("ab") as file:
                file.write(certificatePem(authority.certificate))
        made = authority.server(hosts)
        writeIdentity(self.certs / path, made)
        return made[0].serial_number

    def assertRefused(self, expected: str) -> None:
        """The files cannot be used, for a reason that is one line."""
        error = self.assertRaises(CertificateError, self.source().load)
        self.assertNotIn("\n", str(error))
        self.assertIn(expected, str(error))


class CertificateDirectoryTests(SourceTestCase):
    """
    L{CertificateDirectory}
    """

    def test_nameChoosesCertificate(self) -> None:
        first = self.write("a.pem", "a.example", "also.example")
        second = self.write("deep/b.pem", "b.example", "*.b.example")
        for host, expected in (
            ("a.example", first),
            ("also.example", first),
            ("b.example", second),
            ("B.example", second),
            ("www.b.example", second),
        ):
            self.assertEqual(self.served(host), expected, host)

    def test_firstFileServesOtherNames(self) -> None:
        self.write("b.pem", "b.example")
        first = self.write("a.pem", "a.example", "127.0.0.1")
        for host in (None, "127.0.0.1"):
            self.assertEqual(self.served(host), first, host)

    def test_lastIssuedCertificateWins(self) -> None:
        """The one with the latest start, whatever the order of the files."""
        self.write("a.pem", "a.example", year=2024)
        newest = self.write("b.pem", "a.example", year=2025)
        self.write("c.pem", "a.example", year=2023)
        for host in ("a.example", None):
            self.assertEqual(self.served(host), newest)

    def test_certificateAndKeyMayBeApart(self) -> None:
        """As certbot has them: the certificate alone, and again with its chain."""
        certificate, key = self.authority.server(["a.example"])
        for name in ("cert.pem", "fullchain.pem"):
            (self.certs / name).write_bytes(certificatePem(certificate))
        (self.certs / "privkey.pem").write_bytes(keyPem(key))
        (self.certs / "README").write_bytes(b"-----BEGIN")
        self.assertEqual(self.served("a.example"), certificate.serial_number)

    def test_linksAreFollowedOnce(self) -> None:
        live = self.root / "live"
        writeIdentity(live / "a.pem", self.authority.server(["a.example"]))
        (self.certs / "live").symlink_to(live.absolute())
        (live / "again").symlink_to(self.certs.absolute())
        (live / "gone.pem").symlink_to(self.root / "nothing")
        self.assertEqual(len(self.source().files()), 1)
        self.served("a.example")

    def test_authorityIsNotTheDefault(self) -> None:
        """An authority's certificate and key may lie beside those that it has signed."""
        writeIdentity(self.certs / "a.pem", (self.authority.certificate, self.authority.key))
        serial = self.write("b.pem", "b.example")
        self.assertEqual(self.served(None), serial)

    def test_intermediateCertificatesAreSent(self) -> None:
        """The client knows the root only; two intermediate certificates have the same name."""
        keys = [generate_private_key(SECP256R1()) for _ in range(3)]
        name = Name([NameAttribute(NameOID.COMMON_NAME, "between")])
        own = Name([NameAttribute(NameOID.COMMON_NAME, "a.example")])
        root = self.makeRoot()
        between = [
            self.signAuthority(name, key.public_key(), root[0].subject, root[1]) for key in keys[:2]
        ]
        leaf = (
            CertificateBuilder(name, own, keys[2].public_key(), random_serial_number(), *DATES)
            .add_extension(SubjectAlternativeName([DNSName("a.example")]), critical=False)
            .add_extension(
                AuthorityKeyIdentifier.from_issuer_public_key(keys[1].public_key()), critical=False
            )
            .sign(keys[1], SHA256())
        )
        writeIdentity(self.certs / "leaf.pem", (leaf, keys[2]))
        (self.certs / "chain.pem").write_bytes(b"".join(map(certificatePem, between)))
        self.trusted.write_bytes(certificatePem(root[0]))
        self.assertEqual(self.served("a.example"), leaf.serial_number)

    def makeRoot(self) -> tuple[Any, Any]:
        """An authority that may sign others, and its key."""
        key = generate_private_key(SECP256R1())
        name = Name([NameAttribute(NameOID.COMMON_NAME, "root")])
        return self.signAuthority(name, key.public_key(), name, key), key

    def signAuthority(self, name: Name, public: Any, issuer: Name, key: Any) -> Any:
        """The certificate of an authority that may sign others, as Python 3.13 requires it."""
        usages = dict.fromkeys(
            (
                *("digital_signature", "content_commitment", "key_encipherment", "crl_sign"),
                *("data_encipherment", "key_agreement", "encipher_only", "decipher_only"),
            ),
            False,
        )
        own = AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
        return (
            CertificateBuilder(issuer, name, public, random_serial_number(), *DATES)
            .add_extension(BasicConstraints(True, None), critical=True)
            .add_extension(KeyUsage(key_cert_sign=True, **usages), critical=True)
            .add_extension(SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(own, critical=False)
            .sign(key, SHA256())
        )

    def test_unusableFilesAreExplained(self) -> None:
        certificate, key = self.authority.server(["a.example"])
        good = certificatePem(certificate) + keyPem(key)
        encrypted = key.private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x")
        )
        self.assertRefused("certs has no certificate with its private key in files named *.pem")
        for data, reason in (
            (certificatePem(certificate), "certs has no certificate with its private key"),
            (good[:-30], "a.pem is cut off"),
            (good.replace(b"MII", b"AAA"), "a.pem has a certificate that cannot be read"),
            (good.replace(b"MIG", b"AAA"), "a.pem has a private key that cannot be read"),
            (keyPem(key), "a.pem has a private key that matches no certificate in"),
            (certificatePem(certificate) + encrypted, "a.pem has a private key that needs a pass"),
            (b" " * (MAX_PEM + 1), f"a.pem has more than {MAX_PEM} bytes"),
        ):
            (self.certs / "a.pem").write_bytes(data)
            self.assertRefused(reason)

    def test_damagedFilesAreRefusedInOneLine(self) -> None:
        """400 seeded changes of bytes, in the text and below, in certificates and keys."""
        rng = Random(13)
        certificate, key = self.authority.server(["a.example"])
        parts = {
            "CERTIFICATE": certificate.public_bytes(Encoding.DER),
            "PRIVATE KEY": key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()),
        }
        trusted = self.authority.certificate.public_bytes(Encoding.DER)
        path, authorities = self.certs / "a.pem", self.root / "clients.pem"
        sources: tuple[CertificateSource, ...] = (
            CertificateDirectory(path=self.certs, clients=ClientAuthorities(authorities, True)),
            CertificateFiles(privateKey=path, certKey=path),
        )
        refused = 0
        for round in range(400):
            damaged = ("CERTIFICATE", "PRIVATE KEY", "text", "authority")[round % 4]
            text = b"".join(
                pem(name, damage(rng, data) if name == damaged else data)
                for name, data in parts.items()
            )
            path.write_bytes(damage(rng, text) if damaged == "text" else text)
            data = damage(rng, trusted) if damaged == "authority" else trusted
            authorities.write_bytes(pem("CERTIFICATE", data))
            for source in sources:
                try:
                    source.load()
                except CertificateError as error:
                    refused += 1
                    self.assertNotIn("\n", str(error))
        self.assertGreater(refused, 400)

    def test_missingDirectoryIsRefused(self) -> None:
        source = CertificateDirectory(path=self.root / "nothing")
        error = self.assertRaises(FileNotFoundError, source.load)
        self.assertTrue(str(error.filename).endswith("/nothing"))


class CertificateFilesTests(SourceTestCase):
    """
    L{CertificateFiles}
    """

    def source(self) -> CertificateSource:
        return CertificateFiles(
            privateKey=self.certs / "key.pem",
            certKey=self.certs / "cert.pem",
            extraCertChain=self.certs / "chain.pem",
        )

    def setUp(self) -> None:
        super().setUp()
        made = self.authority.server(["a.example"])
        self.serial = made[0].serial_number
        (self.certs / "cert.pem").write_bytes(certificatePem(made[0]))
        (self.certs / "key.pem").write_bytes(keyPem(made[1]))
        (self.certs / "chain.pem").write_bytes(certificatePem(self.authority.certificate))

    def test_certificateIsServed(self) -> None:
        for host in ("a.example", None):
            self.assertEqual(self.served(host), self.serial)

    def test_allFilesAreNamed(self) -> None:
        self.assertEqual(
            [path.name for path in self.source().files()], ["key.pem", "cert.pem", "chain.pem"]
        )

    def test_unusableFilesAreExplained(self) -> None:
        (self.certs / "chain.pem").write_bytes(b"")
        self.assertRefused("chain.pem has no certificate")
        (self.certs / "key.pem").write_bytes(keyPem(self.authority.key))
        self.assertRefused("does not match the certificate in")
        (self.certs / "key.pem").write_bytes(keyPem(self.authority.key) * 2)
        self.assertRefused("key.pem has 2 private keys instead of one")
        (self.certs / "key.pem").unlink()
        self.assertRaises(FileNotFoundError, self.source().load)
