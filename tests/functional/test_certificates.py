"""
Certificates of C{svcbroker admin certificates}: used by the programs that it names, and renewed
while the daemon runs.
"""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from attrs import frozen
from twisted.internet.utils import getProcessOutputAndValue

from tests.needed import neededProgram

from .daemon import Daemon, DaemonTestCase, reactor

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----\n", re.DOTALL)


@frozen
class Made:
    """
    What one run of the command has made.

    @ivar output: what it has printed.
    """

    root: Path
    output: str

    @property
    def trust(self) -> Sequence[str]:
        """The file of the authority."""
        return (str(self.root / "ca.pem"),)

    def identity(self, certificate: str, key: str, directory: str = "clients/client") -> list[str]:
        """Options of a program, with the files of a certificate and its private key."""
        path = self.root / directory
        return [certificate, str(path / "cert.pem"), key, str(path / "key.pem")]

    def endpoint(self, **parameters: str) -> str:
        """An C{mtls:} endpoint on a free port."""
        more = "".join(f":{name}={value}" for name, value in parameters.items())
        return (
            f"mtls:0:certs={self.root}/server:clients={self.root}/ca.pem:interface=127.0.0.1{more}"
        )


class CertificatesTestCase(DaemonTestCase):
    """
    A daemon, and programs that are run against it.
    """

    async def make(self, name: str = "certificates", *options: str) -> Made:
        """Run the command."""
        root = self.root / name
        words = ("-m", "svcbroker.commands", "certificates", *options, root)
        process = self.spawn(sys.executable, *words)
        self.assertEqual(await process.exits(), 0, process.protocol.errors)
        return Made(root, process.protocol.output)

    async def runCommand(self, name: str, *arguments: str) -> tuple[int, str]:
        """The exit code and the output of a program, its errors included."""
        output, errors, code = await getProcessOutputAndValue(
            neededProgram(name), arguments, reactor=reactor, stdinBytes=b""
        )
        return code, (output + errors).decode("utf-8", "replace")

    async def portOf(self, daemon: Daemon, name: str) -> str:
        """The port on which something is served."""
        return (await daemon.protocol.waitFor(rf"{name} on \S+:(\d+)"))[1]


class ClientTests(CertificatesTestCase):
    """
    curl and mosquitto, with the options that the command prints.
    """

    async def test_curlShowsItsCertificate(self) -> None:
        made = await self.make()
        daemon = await self.start(http=made.endpoint(require="yes"))
        url = f"https://localhost:{await self.portOf(daemon, 'HTTP')}/healthz"
        curl = ("curl", "-sS", "--cacert", *made.trust)
        self.assertIn(f"curl --cacert {made.root}/ca.pem --cert ", made.output)
        code, answer = await self.runCommand(*curl, *made.identity("--cert", "--key"), url)
        self.assertEqual((code, answer), (0, '{"status":"alive"}'))
        code, answer = await self.runCommand(*curl, url)
        self.assertNotEqual(code, 0)
        self.assertIn("certificate required", answer)
        server = made.identity("--cert", "--key", "server")
        code, answer = await self.runCommand(*curl, *server, url)
        self.assertNotEqual(code, 0)
        self.assertIn("unsupported certificate", answer)

    async def test_certificateIsOptionalByDefault(self) -> None:
        made = await self.make()
        daemon = await self.start(http=made.endpoint())
        url = f"https://127.0.0.1:{await self.portOf(daemon, 'HTTP')}/healthz"
        code, answer = await self.runCommand("curl", "-sS", "--cacert", *made.trust, url)
        self.assertEqual((code, answer), (0, '{"status":"alive"}'))

    async def test_mosquittoShowsItsCertificate(self) -> None:
        made = await self.make()
        daemon = await self.start(f"--mqtt={made.endpoint(require='yes')}")
        port = await self.portOf(daemon, "MQTT")
        to = ("-h", "localhost", "-p", port, "--cafile", *made.trust, "-t", "a/b", "-q", "1")
        own = made.identity("--cert", "--key")
        code, output = await self.runCommand("mosquitto_pub", *to, *own, "-m", "over mtls", "-r")
        self.assertEqual((code, output), (0, ""))
        code, output = await self.runCommand("mosquitto_sub", *to, *own, "-C", "1", "-W", "30")
        self.assertEqual((code, output), (0, "over mtls\n"))
        code, _ = await self.runCommand("mosquitto_pub", *to, "-m", "without")
        self.assertNotEqual(code, 0)

    async def test_oldTLSIsRefused(self) -> None:
        made = await self.make()
        daemon = await self.start(http=made.endpoint())
        port = await self.portOf(daemon, "HTTP")
        connect = ("s_client", "-connect", f"127.0.0.1:{port}", "-cipher", "ALL@SECLEVEL=0")
        for version, isAccepted in (("-tls1_1", False), ("-tls1_2", True), ("-tls1_3", True)):
            _, output = await self.runCommand("openssl", *connect, version)
            self.assertEqual("Cipher is (NONE)" not in output, isAccepted, version)


class RenewalTests(CertificatesTestCase):
    """
    Certificates that are renewed on disk, seen by C{openssl s_client}.
    """

    async def served(self, address: str) -> str:
        """The server's certificate, as a new session gets it."""
        _, output = await self.runCommand("openssl", "s_client", "-connect", address, "-showcerts")
        # The authorities of clients are not sent.
        (found,) = _PEM.findall(output)
        return str(found)

    async def check(self, made: Made, http: str, host: str = "127.0.0.1") -> None:
        """Renew the certificate of an endpoint, while a session is open."""
        path = made.root / "server"
        daemon = await self.start(http=http)
        address = f"{host}:{await self.portOf(daemon, 'HTTP')}"
        before = (path / "cert.pem").read_text()
        self.assertEqual(await self.served(address), before)
        old = self.spawn(neededProgram("openssl"), "s_client", "-connect", address, "-quiet")
        old.process.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await old.protocol.waitFor("alive")

        other = await self.make("other")
        renewed = other.root / "server"
        (path / "cert.pem").write_bytes((renewed / "cert.pem").read_bytes())
        daemon.process.signalProcess(signal.SIGHUP)
        await daemon.protocol.waitFor("certificates of HTTP stay as they were: .*key.* match")
        self.assertEqual(await self.served(address), before)

        (renewed / "key.pem").replace(path / "key.pem")
        daemon.process.signalProcess(signal.SIGHUP)
        await daemon.protocol.waitFor("certificates of HTTP were read again")
        self.assertEqual(await self.served(address), (path / "cert.pem").read_text())
        self.assertNotEqual(await self.served(address), before)

        old.protocol.output = ""
        old.process.write(b"GET /svcbroker/rest/exist?topic=t HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await old.protocol.waitFor("false")
        self.assertFalse(old.protocol.ended.called)
        self.assertEqual(await daemon.stop(), 0)

    async def test_mtlsCertificateIsRenewed(self) -> None:
        made = await self.make()
        await self.check(made, made.endpoint())

    async def test_sslCertificateIsRenewed(self) -> None:
        made = await self.make()
        path = made.root / "server"
        files = f"privateKey={path}/key.pem:certKey={path}/cert.pem"
        await self.check(made, f"ssl:0:{files}:interface=127.0.0.1")

    async def test_tlsCertificateIsRenewed(self) -> None:
        made = await self.make()
        await self.check(made, f"tls:{made.root}/server:0:interface=\\:\\:1", "[::1]")

    async def test_reloadWithoutTLSDoesNothing(self) -> None:
        daemon = await self.start()
        daemon.process.signalProcess(signal.SIGHUP)
        self.assertIs(await daemon.call("/rest/exist", topic="t"), False)
        self.assertEqual(await daemon.stop(), 0)
