"""
Clients of other makes over TLS: paho-mqtt and mosquitto, stomp.py, and a browser on the port of
HTTP. What curl does is in C{tests.functional.test_tls}.

Each test is skipped where its client is not installed.
"""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessExitedAlready
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.threads import deferToThread
from twisted.internet.utils import getProcessOutputAndValue
from twisted.web.resource import Resource
from twisted.web.server import Request, Site

from tests.certificates import makeCertificate
from tests.functional.daemon import LOCAL, TIMEOUT, Daemon, DaemonTestCase, reactor
from tests.needed import neededProgram, needPackage

from .test_mqtt_clients import Paho
from .test_stomp import sendOverTLS

with contextlib.suppress(ImportError):
    from paho.mqtt.enums import MQTTProtocolVersion

PAGE = (Path(__file__).parent / "tls.html").read_bytes()
"""A page that uses the broker over HTTPS and WSS, and posts what it has found to its own site."""


class TLSTestCase(DaemonTestCase):
    """
    A daemon with TLS on each port.
    """

    async def serve(self, *arguments: str, http: str = "") -> Daemon:
        """
        Start it.

        @param http: the endpoint of HTTP, where that is another one.
        """
        key, self.certificate = makeCertificate(self.root, "127.0.0.1")
        endpoint = f"ssl:0:interface=127.0.0.1:privateKey={key}:certKey={self.certificate}"
        options = [f"--mqtt={endpoint}", f"--stomp={endpoint}", *arguments]
        daemon = await self.start(*options, http=http or endpoint)
        self.host = "127.0.0.1"
        self.ports = {
            name: int((await daemon.protocol.waitFor(rf"{name} on 127\.0\.0\.1:(\d+)"))[1])
            for name in ("HTTP", "MQTT", "STOMP")
        }
        self.port = self.ports["MQTT"]
        return daemon


class MqttClientTests(TLSTestCase):
    """
    Clients of MQTT that verify the certificate and offer a protocol (ALPN).
    """

    async def test_pahoPublishes(self) -> None:
        needPackage("paho", "interop")
        await self.serve()
        test: Any = self
        client = Paho(test, MQTTProtocolVersion.MQTTv311, "paho")
        context = ssl.create_default_context(cafile=str(self.certificate))
        context.set_alpn_protocols(["mqtt"])
        client.client.tls_set_context(context)
        await deferToThread(self.withPaho, client)

    def withPaho(self, client: Paho) -> None:
        """Publish to itself, in a thread: paho's calls are waited for."""
        _, reason = client.connect()
        self.assertFalse(reason.is_failure)
        client.client.subscribe("tls/paho", 1)
        client.next("subscribe")
        client.client.publish("tls/paho", b"over TLS", 1)
        self.assertEqual(client.next("message").payload, b"over TLS")
        client.leave()

    async def test_mosquittoPublishes(self) -> None:
        program = neededProgram("mosquitto_pub")
        await self.serve()
        for alpn in ((), ("--tls-alpn", "mqtt")):
            output, errors, code = await getProcessOutputAndValue(
                program,
                [
                    *("-h", "127.0.0.1", "-p", str(self.ports["MQTT"]), "-q", "1"),
                    *("--cafile", str(self.certificate), *alpn, "-t", "tls/one", "-m", "x"),
                ],
                reactor=reactor,
            )
            self.assertEqual((code, output + errors), (0, b""))


class StompClientTests(TLSTestCase):
    """
    stomp.py, which offers no protocol.
    """

    async def test_stompPySends(self) -> None:
        needPackage("stomp", "interop")
        daemon = await self.serve(http=LOCAL)
        self.assertIs(await daemon.call("/rest/open", topic="tls/stomp"), True)
        address, authority = ("127.0.0.1", self.ports["STOMP"]), str(self.certificate)
        body = await deferToThread(
            sendOverTLS, address, "tls/stomp", b"over TLS", ca_certs=authority
        )
        self.assertEqual(body, b"over TLS")


class PageSite(Resource):
    """
    The site of the page: C{/} is the page, and C{/found} is told what it has found.
    """

    isLeaf = True

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self._page = page
        self.found: Deferred[bytes] = Deferred()

    def render_GET(self, request: Request) -> bytes:
        request.setHeader(b"content-type", b"text/html;charset=UTF-8")
        return self._page if request.path == b"/" else b""

    def render_POST(self, request: Request) -> bytes:
        assert request.content is not None
        self.found.callback(request.content.read())
        return b""


class BrowserTests(TLSTestCase):
    """
    Chromium without a screen.
    """

    async def test_pageUsesHttpsAndWss(self) -> None:
        """It publishes by HTTPS, and by MQTT and STOMP over WSS, on the one port."""
        program = neededProgram("chromium")
        resource = PageSite(PAGE)
        port = reactor.listenTCP(0, Site(resource), interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        origin = f"http://127.0.0.1:{port.getHost().port}"
        await self.serve(f"--cors-origin={origin}")
        ended: Deferred[None] = Deferred()
        browser = ProcessProtocol()
        browser.processEnded = lambda reason: ended.callback(None)  # type: ignore[method-assign]
        process = reactor.spawnProcess(
            browser,
            program,
            [
                *(program, "--headless", "--no-sandbox", "--disable-dev-shm-usage"),
                *("--ignore-certificate-errors", f"--user-data-dir={self.root / 'profile'}"),
                f"{origin}/?{self.ports['HTTP']}",
            ],
            env=self.environment,
        )
        try:
            found = await resource.found.addTimeout(TIMEOUT, reactor)
        finally:
            with contextlib.suppress(ProcessExitedAlready):
                process.signalProcess("KILL")
            await ended
        self.assertEqual(found.decode(), "https true SUCCESS, mqtt CONNACK 0, stomp CONNECTED 1.2")
