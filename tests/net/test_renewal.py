"""
Certificates that are renewed while an endpoint listens.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock

from svcbroker.commands.certificates import certificatePem, keyPem
from svcbroker.daemon.ports import PortPlan, serverEndpoint
from svcbroker.net import tls
from svcbroker.net.pem import CertificateError
from svcbroker.net.tls import INTERVAL, CertificateReloader, ServerCertificates
from tests.certificates import MemoryClient, makeAuthority, writeAuthority

from .tlsendpoints import EndpointTestCase


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

    def test_endOfServedCertificateIsKnown(self) -> None:
        """Renewed certificates move it; files that cannot be used do not."""
        for kind, text in self.descriptions().items():
            self.renew("a.example")
            endpoint, _ = self.listen(text)
            certificates = endpoint.certificates
            first = certificates.validUntil
            chains = certificates.source.chains()
            self.assertEqual(first, chains[0][0].not_valid_after_utc.timestamp(), kind)
            later = self.patch(tls, "_validUntil", lambda source, first=first: first + 5)
            certificates.use(certificates.read(isForced=True))
            self.assertEqual(certificates.validUntil, first + 5)
            later.restore()
            for path in (self.root / "certs").iterdir():
                path.write_bytes(b"")
            certificates.use(certificates.read(isForced=True))
            self.assertEqual(certificates.validUntil, first + 5)

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
