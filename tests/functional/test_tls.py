"""
TLS on every port, with clients of other makes that negotiate a protocol (ALPN, RFC 7301).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from twisted.internet.utils import getProcessOutputAndValue

from tests.certificates import NAME, makeCertificate
from tests.needed import neededProgram

from .daemon import DaemonTestCase, reactor

PROTOCOLS = {"http": "http/1.1", "mqtt": "mqtt", "stomp": "stomp"}
"""The protocol that each port negotiates."""


class TLSTests(DaemonTestCase):
    """
    The three ports of a daemon, each on a TLS endpoint.
    """

    async def serve(self, endpoint: str) -> Mapping[str, str]:
        """
        Start a daemon.

        @return: the addresses, by what is served there.
        """
        # Clients behind a proxy may come from anywhere.
        options = [f"--host-name={NAME}", f"--mqtt={endpoint}", f"--stomp={endpoint}"]
        options.append("--anonymous=everything")
        daemon = await self.start(*options, http=endpoint)
        return {
            name: (await daemon.protocol.waitFor(rf"{name.upper()} on (\S+:\d+)"))[1]
            for name in PROTOCOLS
        }

    async def runCommand(self, name: str, *arguments: str) -> str:
        """The output of a program, its errors included."""
        # With standard input closed, s_client ends after the handshake.
        output, errors, _ = await getProcessOutputAndValue(
            neededProgram(name), arguments, reactor=reactor, stdinBytes=b""
        )
        text: str = (output + errors).decode("utf-8", "replace")
        return text

    async def negotiated(self, address: str, *offers: str) -> str:
        """
        The protocol that is negotiated: C{none} where the handshake goes without, C{refused} where
        it fails.
        """
        alpn = ("-alpn", ",".join(offers)) if offers else ()
        output = await self.runCommand(
            "openssl", "s_client", "-connect", address, "-servername", NAME, *alpn
        )
        if "Cipher is (NONE)" in output:
            return "refused"
        found = re.search(r"ALPN protocol: (\S+)", output)
        return "none" if found is None else found[1]

    async def check(self, endpoint: str) -> None:
        """Every port negotiates its protocol, and serves clients that offer none."""
        addresses = await self.serve(endpoint)
        for name, protocol in PROTOCOLS.items():
            address = addresses[name]
            self.assertEqual(await self.negotiated(address, "h2", protocol), protocol, name)
            self.assertEqual(await self.negotiated(address), "none", name)
            self.assertEqual(await self.negotiated(address, "other"), "refused", name)
        host, _, port = addresses["http"].rpartition(":")
        for version in ("--http1.0", "--http1.1", "--http2"):
            output = await self.runCommand(
                *("curl", "-sSk", version, "--resolve", f"{NAME}:{port}:{host}"),
                f"https://{NAME}:{port}/svcbroker/rest/exist?topic=t",
            )
            self.assertEqual(output, "false", version)
        operator = json.loads((self.dataDir / "operator.json").read_text())
        self.assertTrue(operator["url"].startswith("https://"), operator["url"])

    async def checkProxied(self, endpoint: str) -> None:
        """Every port negotiates its protocol, though it waits for a PROXY header."""
        addresses = await self.serve(f"haproxy:{endpoint}")
        for name, protocol in PROTOCOLS.items():
            address = addresses[name]
            self.assertEqual(await self.negotiated(address, "h2", protocol), protocol, name)
            self.assertEqual(await self.negotiated(address), "none", name)
            self.assertEqual(await self.negotiated(address, "other"), "refused", name)

    async def test_proxiedSslEndpointsNegotiate(self) -> None:
        key, certificate = makeCertificate(self.root)
        await self.checkProxied(f"ssl:0:interface=127.0.0.1:privateKey={key}:certKey={certificate}")

    async def test_proxiedTlsEndpointsNegotiate(self) -> None:
        makeCertificate(self.root)
        await self.checkProxied(f"tls:{self.root}:0:interface=\\:\\:1")

    async def test_sslEndpointsNegotiate(self) -> None:
        key, certificate = makeCertificate(self.root)
        await self.check(f"ssl:0:interface=127.0.0.1:privateKey={key}:certKey={certificate}")

    async def test_tlsEndpointsNegotiate(self) -> None:
        makeCertificate(self.root)
        await self.check(f"tls:{self.root}:0:interface=\\:\\:1")
