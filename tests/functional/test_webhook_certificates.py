"""
Webhooks that show a client certificate: the real daemon, the certificates of C{svcbroker
admin certificates}, and receivers that demand one.
"""

from __future__ import annotations

import signal
from pathlib import Path
from shutil import copytree
from typing import Any

from twisted.internet.ssl import Certificate, PrivateCertificate
from twisted.web.http import Request

from svcbroker.commands.certificates import certificatePem, keyPem
from tests.certificates import makeAuthority, writeAuthority

from .daemon import Daemon, reactor, until
from .test_certificates import CertificatesTestCase
from .test_webhooks import SECRET, Receiver

PARAMETER_INVALID = 100600


class TLSReceiver(Receiver):
    """
    A receiver by HTTPS that demands a certificate of its authority.

    @ivar serials: the serial number of the certificate of each request.
    """

    def __init__(self, test: CertificatesTestCase, root: Path) -> None:
        """
        @param root: what the command has made.
        """
        authority = Certificate.loadPEM((root / "ca.pem").read_bytes())
        self._options = PrivateCertificate.loadPEM(joined(root / "server")).options(authority)
        self.serials: list[int] = []
        super().__init__(test)

    def listen(self) -> Any:
        return reactor.listenSSL(self.port, self._site, self._options, interface="127.0.0.1")

    def render_POST(self, request: Request) -> Any:
        transport: Any = request.transport
        self.serials.append(transport.getPeerCertificate().get_serial_number())
        return super().render_POST(request)


def joined(directory: Path) -> bytes:
    """A certificate and its private key in one."""
    return b"".join((directory / name).read_bytes() for name in ("cert.pem", "key.pem"))


def write(directory: Path, identity: tuple[Any, Any]) -> None:
    """Write a certificate and its private key as the command does."""
    certificate, key = identity
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "cert.pem").write_bytes(certificatePem(certificate))
    (directory / "key.pem").write_bytes(keyPem(key))


def serialOf(directory: Path) -> int:
    """The serial number of the certificate in a directory."""
    serial: int = Certificate.loadPEM((directory / "cert.pem").read_bytes()).serialNumber()
    return serial


class WebhookCertificateTests(CertificatesTestCase):
    """
    One daemon whose operator names certificates.
    """

    async def begin(self, *lines: str) -> Daemon:
        """A daemon with these lines in its file, that tries again soon."""
        self.secrets = self.root / "secrets"
        self.secrets.write_text("\n".join((SECRET, *lines)))
        daemon = await self.start(
            *("--webhook-allow=127.0.0.0/8", f"--webhook-secret-file={self.secrets}"),
            "--webhook-max-delay=1",
        )
        await daemon.call("/rest/open", topic="a")
        return daemon

    async def subscribe(self, daemon: Daemon, port: int, **options: Any) -> Any:
        """The answer of C{subscribe}."""
        url = f"https://localhost:{port}/"
        offset = "OFFSET_FIRST"
        return await daemon.call("/rest/subscribe", topic="a", url=url, offset=offset, **options)

    async def makeTwo(self) -> Path:
        """An authority that the daemon trusts, and certificates of its client and of a stranger."""
        made, other = await self.make(), await self.make("other")
        self.environment["SSL_CERT_FILE"] = str(made.root / "ca.pem")
        copytree(other.root / "clients" / "client", made.root / "clients" / "stranger")
        return made.root

    async def test_receiverGetsTheCertificateOfEachWebhook(self) -> None:
        """Webhooks at one host with different certificates, or none, share no connection."""
        root = await self.makeTwo()
        clients = root / "clients"
        pem = self.root / "bank.pem"
        pem.write_bytes(joined(clients / "client"))
        receiver = TLSReceiver(self, root)
        daemon = await self.begin(
            "bank = certificate:bank.pem", f"stranger = certificate: {clients / 'stranger'}"
        )
        good = await self.subscribe(daemon, receiver.port, certificate="bank")
        bad = [
            await self.subscribe(daemon, receiver.port, certificate="stranger"),
            await self.subscribe(daemon, receiver.port),
        ]
        for content in ("1", "2", "3"):
            await daemon.call("/rest/publish", topic="a", content=content)
            await receiver.until(lambda: receiver.accepted[-1:] == [content])  # noqa: B023
        self.assertEqual(receiver.accepted, ["1", "2", "3"])
        self.assertEqual(set(receiver.serials), {serialOf(clients / "client")})

        async def shown(id: str) -> Any:
            [found] = (await daemon.call("/rest/listWebhooks", subscriptionId=id))["webhooks"]
            return found

        async def areRefused() -> bool:
            errors = [(await shown(id))["lastError"] for id in bad]
            return all("requires a certificate of ours" in each for each in errors)

        await until(areRefused)
        found = await shown(good)
        self.assertEqual((found["certificate"], found["lastError"]), ("bank", ""))

    async def test_renewedCertificateIsShownAfterReload(self) -> None:
        """Before it the webhook shows the old one; files that cannot be used change nothing."""
        root, authority = self.root / "made", makeAuthority()
        client = root / "clients" / "client"
        for directory, identity in (
            (root / "server", authority.server(["localhost"])),
            (client, authority.client("bank")),
        ):
            write(directory, identity)
        writeAuthority(root / "ca.pem", authority)
        self.environment["SSL_CERT_FILE"] = str(root / "ca.pem")
        receiver = TLSReceiver(self, root)
        daemon = await self.begin(f"bank = certificate:{client}")
        await self.subscribe(daemon, receiver.port, certificate="bank")
        old = serialOf(client)

        async def sent(content: str) -> int:
            await daemon.call("/rest/publish", topic="a", content=content)
            await receiver.until(lambda: receiver.accepted[-1:] == [content])
            return receiver.serials[-1]

        self.assertEqual(await sent("1"), old)
        write(client, authority.client("bank"))
        self.assertNotEqual(serialOf(client), old)
        self.assertEqual(await sent("2"), old)
        daemon.process.signalProcess(signal.SIGHUP)
        await daemon.protocol.waitFor("read again")
        self.assertEqual(await sent("3"), serialOf(client))
        (client / "key.pem").write_bytes(b"")
        daemon.process.signalProcess(signal.SIGHUP)
        await daemon.protocol.waitFor("names a certificate that cannot be used")
        self.assertEqual(await sent("4"), serialOf(client))

    async def test_unknownCertificateIsRefused(self) -> None:
        """The error names the parameter, and the certificates that the account may use."""
        client = await self.makeTwo() / "clients" / "client"
        daemon = await self.begin(
            f"bank = certificate:{client}", f"alice/own = certificate:{client}"
        )
        for name in ("other", "alice/own"):
            refused = await self.subscribe(daemon, 443, certificate=name)
            self.assertEqual(refused["code"], PARAMETER_INVALID)
            self.assertIn("certificate: those that this account may use are bank", str(refused))
