"""
Tests for C{svcbroker admin certificates}. Other programs use what it makes in
L{tests.functional.test_tls}.
"""

from __future__ import annotations

import json
import os
import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from stat import S_IMODE

from cryptography.x509 import (
    Certificate,
    DNSName,
    IPAddress,
    SubjectAlternativeName,
    load_pem_x509_certificate,
)
from twisted.internet.testing import MemoryReactorClock

from svcbroker.commands.terminal import Exit
from svcbroker.daemon.ports import serverEndpoint
from tests.commands.support import CommandTestCase


class CertificatesTests(CommandTestCase):
    """
    What is made, and what is printed.
    """

    def setUp(self) -> None:
        self.root = Path(self.mktemp()) / "certificates"

    def run_(self, *words: object, stdin: bytes | None = None) -> tuple[int, str, str]:
        return super().run_("certificates", *words, stdin=stdin)

    def made(self, *words: str) -> str:
        """The output of the command, run on the directory."""
        return self.good(self.root, *words)

    def files(self) -> dict[str, int]:
        """The mode of each file, by its path."""
        return {
            str(path.relative_to(self.root)): S_IMODE(path.stat().st_mode)
            for path in self.root.rglob("*.pem")
        }

    def certificate(self, path: str) -> Certificate:
        """A certificate that was made."""
        return load_pem_x509_certificate((self.root / path).read_bytes())

    def test_filesArePrivate(self) -> None:
        mask = os.umask(0)
        self.addCleanup(os.umask, mask)
        self.made("--client", "me", "--client", "you@example.org")
        people = [f"clients/{name}" for name in ("me", "you@example.org")]
        made = [f"{path}/{name}.pem" for path in ("server", *people) for name in ("cert", "key")]
        self.assertEqual(self.files(), dict.fromkeys(["ca.pem", "ca-key.pem", *made], 0o600))
        for path in (self.root, self.root / "clients" / "me"):
            self.assertEqual(S_IMODE(path.stat().st_mode), 0o700)

    def test_namesAreInCertificates(self) -> None:
        self.made("--host", "a.example", "--host", "*.b.example", "--host", "::1", "--client", "me")
        server = self.certificate("server/cert.pem")
        names = server.extensions.get_extension_for_class(SubjectAlternativeName).value
        self.assertEqual(names.get_values_for_type(DNSName), ["a.example", "*.b.example"])
        self.assertEqual(names.get_values_for_type(IPAddress), [ip_address("::1")])
        me = self.certificate("clients/me/cert.pem")
        self.assertEqual(me.subject.rfc4514_string(), "CN=me")
        authority = self.certificate("ca.pem")
        for certificate in (server, me, authority):
            certificate.verify_directly_issued_by(authority)

    def test_filesAreToldAsJson(self) -> None:
        told = json.loads(self.made("--json", "--host=a.example", "--client=x", "--client=y"))
        self.assertEqual(told["hosts"], ["a.example"])
        self.assertEqual([*told["clients"]], ["x", "y"])
        for directory in (told["server"], *told["clients"].values()):
            self.assertTrue((Path(directory) / "cert.pem").is_file())
        self.assertTrue(Path(told["ca"]).is_file() and Path(told["caKey"]).is_file())

    def test_daysAreUsed(self) -> None:
        self.made("--days", "3")
        left = self.certificate("server/cert.pem").not_valid_after_utc - datetime.now(UTC)
        self.assertTrue(timedelta(days=2.9) < left <= timedelta(days=3))

    def test_existingFilesAreKept(self) -> None:
        self.made()
        before = {path: path.read_bytes() for path in self.root.rglob("*.pem")}
        (self.root / "ca.pem").unlink()
        code, _, errors = self.run_(str(self.root))
        self.assertIn("ca-key.pem exists already; nothing was made", errors)
        self.assertEqual(code, Exit.USAGE)
        self.assertFalse((self.root / "ca.pem").exists())
        for path in self.root.rglob("*.pem"):
            self.assertEqual(path.read_bytes(), before[path])

    def test_printedEndpointsCanBeUsed(self) -> None:
        """Also where the directory has a colon and a space in its name."""
        self.root = Path(self.mktemp() + ": x")
        lines = self.made().splitlines()
        endpoints = [line.split("'")[1] for line in lines if line.startswith("    --")]
        self.assertEqual(len(endpoints), 3)
        for text in endpoints:
            serverEndpoint(MemoryReactorClock(), text + ":require=yes")
            self.assertIn(":interface=127.0.0.1", text)
        (curl,) = [line for line in lines if " curl " in line]
        self.assertTrue(curl.endswith(" https://localhost:8443/healthz"), curl)

    def test_otherHostsAreNotOnLoopback(self) -> None:
        output = self.made("--host", "2001:db8::1", "--host", "localhost")
        self.assertNotIn("interface=", output)
        self.assertIn("'https://[2001:db8::1]:8443/healthz'", output)

    def test_strictClientsTakeThem(self) -> None:
        """Python from 3.13 on checks every extension (RFC 5280)."""
        self.made()
        context = ssl.create_default_context(cafile=str(self.root / "ca.pem"))
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        server.load_cert_chain(self.root / "server" / "cert.pem", self.root / "server" / "key.pem")
        one, other = ssl.MemoryBIO(), ssl.MemoryBIO()
        ends = [
            context.wrap_bio(one, other, server_hostname="localhost"),
            server.wrap_bio(other, one, server_side=True),
        ]
        waiting = list(ends)
        for _ in range(4):
            for end in list(waiting):
                try:
                    end.do_handshake()
                    waiting.remove(end)
                except ssl.SSLWantReadError:
                    continue
        self.assertEqual(waiting, [])

    def test_badValuesAreRefused(self) -> None:
        for words, reason in (
            ("", "usage: svcbroker admin certificates [options] DIR"),
            ("a b", "usage: svcbroker admin certificates [options] DIR"),
            ("a --host a_b", "--host: 'a_b' is not a host name or an IP address"),
            ("a --host=-a", "--host: '-a' is not a host name"),
            ("a --host=" + "a." * 127 + "a", "is not a host name"),
            ("a --client ..", "--client: '..' is not a name of at most 64 letters"),
            ("a --client a/b", "--client: 'a/b' is not a name"),
            ("a --days 0", "--days: '0' is not a number from 1 to 36500"),
            ("a --days x", "--days: 'x' is not a number"),
            ("a --days 99999999999", "--days: '99999999999' is not a number"),
        ):
            code, _, errors = self.run_(*words.split())
            self.assertEqual(code, Exit.USAGE)
            self.assertIn(reason, errors)
