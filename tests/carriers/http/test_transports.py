"""
The fast path on every kind of transport, over real sockets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import (
    TCP4ClientEndpoint,
    UNIXClientEndpoint,
    connectProtocol,
    wrapClientTLS,
)
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.ssl import CertificateOptions
from twisted.logger import ILogObserver, LogEvent, globalLogPublisher
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from svcbroker.carriers.http.fastpath import FastChannel
from svcbroker.carriers.http.logins import HttpSettings
from svcbroker.daemon.ports import serverEndpoint
from tests.broker.support import makeFixture
from tests.certificates import makeCertificate
from tests.directories import shortDirectory

from .support import BASE, FORM, Answer, Client, parseAnswers, requestBytes

CONTENT = 100_000
MANY = 150
"""This many answers with such a content fill every socket's buffer."""

reactor: Any = _reactor


class Reader(Protocol):
    """
    Collects what a server sends.
    """

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.lost: Deferred[bytes] = Deferred()

    def dataReceived(self, data: bytes) -> None:
        self.received.append(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.lost.callback(b"".join(self.received))


def lastRequest() -> bytes:
    """A request that goes to twisted.web, after whose answer the connection is closed."""
    return requestBytes("GET", "/healthz", headers={"Connection": "close"})


class TransportTests(TestCase):
    """
    Pipelined requests whose answers no socket holds, on each kind of transport.
    """

    def setUp(self) -> None:
        fixture = makeFixture(maxContent=CONTENT)
        self.client = Client(HttpSettings(accessLog=True, hostNames={"broker"}), fixture=fixture)
        self.root = shortDirectory(self)
        self.pauses = 0
        pause = FastChannel.pauseProducing

        def count(channel: FastChannel) -> None:
            self.pauses += 1
            pause(channel)

        self.patch(FastChannel, "pauseProducing", count)

    async def listen(self, text: str) -> Any:
        """Serve on an endpoint."""
        port = await serverEndpoint(reactor, text).listen(self.client.site)
        self.addCleanup(port.stopListening)
        return port.getHost()

    async def ask(self, endpoint: Any, *pieces: bytes) -> Sequence[Answer]:
        """Send, and read until the server closes the connection."""
        reader = await connectProtocol(endpoint, Reader())
        assert reader.transport is not None
        for piece in pieces:
            reader.transport.write(piece)
        return parseAnswers(await reader.lost)

    async def check(self, endpoint: Any, first: bytes = b"") -> None:
        """
        Whatever is asked is answered, in order, over this client's endpoint.

        @param first: what is sent before anything else.
        """
        self.client.rest("open?topic=t")
        body = b"topic=t&content=" + b"x" * CONTENT
        publish = requestBytes("POST", f"{BASE}/rest/publish", body, {"Content-Type": FORM})
        sent, alive = await self.ask(endpoint, first, publish, lastRequest())
        eventId = sent.json()["eventId"]
        self.assertEqual(alive.json(), {"status": "alive"})
        get = requestBytes("GET", f"{BASE}/rest/getEvent?eventId={eventId}")
        exist = requestBytes("GET", f"{BASE}/rest/exist?topic=t")
        answers = await self.ask(endpoint, first, (get + exist) * MANY + lastRequest())
        self.assertEqual(len(answers), 2 * MANY + 1)
        for event, true in zip(answers[:-1:2], answers[1::2], strict=True):
            self.assertEqual(len(event.json()["content"]), (CONTENT + 2) // 3 * 4)
            self.assertIs(true.json(), True)
        self.assertGreater(self.pauses, 0)

    async def test_pipeliningOverTCP(self) -> None:
        host = await self.listen("tcp:0:interface=127.0.0.1")
        await self.check(TCP4ClientEndpoint(reactor, "127.0.0.1", host.port))

    async def test_pipeliningOverUNIXSocket(self) -> None:
        path = str(self.root / "s")
        await self.listen(f"unix:{path}")
        await self.check(UNIXClientEndpoint(reactor, path))

    async def test_pipeliningOverTLS(self) -> None:
        key, certificate = makeCertificate(self.root)
        host = await self.listen(
            f"ssl:0:interface=127.0.0.1:privateKey={key}:certKey={certificate}"
        )
        plain = TCP4ClientEndpoint(reactor, "127.0.0.1", host.port)
        await self.check(wrapClientTLS(CertificateOptions(verify=False), plain))

    async def test_pipeliningBehindPROXYHeader(self) -> None:
        host = await self.listen("haproxy:tcp:0:interface=127.0.0.1")
        await self.checkProxied(TCP4ClientEndpoint(reactor, "127.0.0.1", host.port))

    async def test_pipeliningBehindPROXYHeaderInsideTLS(self) -> None:
        key, certificate = makeCertificate(self.root)
        host = await self.listen(
            f"haproxy:ssl:0:interface=127.0.0.1:privateKey={key}:certKey={certificate}"
        )
        options = CertificateOptions(verify=False, acceptableProtocols=[b"http/1.1"])
        plain = TCP4ClientEndpoint(reactor, "127.0.0.1", host.port)
        await self.checkProxied(wrapClientTLS(options, plain))

    async def checkProxied(self, endpoint: Any) -> None:
        """The client that the PROXY header names is the one that the log names."""
        events: list[LogEvent] = []
        observer = cast(ILogObserver, events.append)
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)
        await self.check(endpoint, b"PROXY TCP4 192.0.2.7 192.0.2.8 7 8\r\n")
        peers = {event["peer"] for event in events if "path" in event and event["peer"] != "-"}
        self.assertIn("192.0.2.7", peers)
        self.assertNotIn("127.0.0.1", peers)
