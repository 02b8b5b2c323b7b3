"""
Several real daemons that know each other, and peers that are none.
"""

from __future__ import annotations

import signal
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.protocol import Protocol

from .daemon import LOCAL, SERVES, TIMEOUT, Daemon, DaemonTestCase, reactor
from .relays import Relay, Stranger, makeCertificate

NAMES = ("a", "b", "c")
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
UNAVAILABLE = 200215
PARAMETER_INVALID = 100600


class StompClient(Protocol):
    """Gathers what a broker sends."""

    transport: Any

    def __init__(self) -> None:
        self._data = b""
        self._waiting: tuple[bytes, Deferred[None]] | None = None

    def dataReceived(self, data: bytes) -> None:
        self._data += data
        if self._waiting is not None and self._waiting[0] in self._data:
            (_, waiting), self._waiting = self._waiting, None
            waiting.callback(None)

    def ask(self, frame: bytes, answer: bytes) -> Deferred[None]:
        """Send a frame; fires when what it asks for has arrived."""
        waiting: Deferred[None] = Deferred()
        self._waiting = answer, waiting
        self.transport.write(frame)
        return waiting.addTimeout(TIMEOUT, reactor)


class PeersTestCase(DaemonTestCase):
    """
    Daemons with data directories of their own.
    """

    async def begin(self, name: str, *arguments: str, http: str = LOCAL) -> Daemon:
        """A daemon that serves."""
        return await self.start(f"--data-dir={self.root / name}", *arguments, http=http)

    async def nodes(self, daemon: Daemon) -> Any:
        """Whom it knows."""
        answer = await daemon.call("/admin/listNodes")
        self.assertEqual(answer["code"], 0)
        return answer["data"]

    async def subscriptions(self, daemon: Daemon, *names: str) -> Any:
        """What it says of the subscriptions of nodes."""
        parameters: dict[str, Any] = {"nodeIp": ",".join(names)} if names else {}
        answer = await daemon.call("/admin/listSubscription", **parameters)
        self.assertEqual((answer["code"], answer["message"]), (0, "success"))
        return answer["data"]

    async def denied(self, daemon: Daemon, *names: str, code: int = UNAVAILABLE) -> str:
        """Why it does not say that."""
        answer = await daemon.call("/admin/listSubscription", nodeIp=",".join(names))
        self.assertEqual(answer["code"], code, answer)
        self.assertNotIn("data", answer)
        message: str = answer["message"]
        return message

    async def subscribe(self, daemon: Daemon) -> StompClient:
        """Subscribe to a topic by STOMP, until the client leaves."""
        self.assertIs(await daemon.call("/rest/open", topic="t"), True)
        found = await daemon.protocol.waitFor(r"STOMP on 127\.0\.0\.1:(\d+)")
        endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", int(found[1]))
        client: StompClient = await connectProtocol(endpoint, StompClient())
        self.addCleanup(client.transport.abortConnection)
        await client.ask(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0", b"CONNECTED")
        await client.ask(b"SUBSCRIBE\nid:1\ndestination:t\nreceipt:r\n\n\0", b"RECEIPT")
        return client


class NetworkTests(PeersTestCase):
    """
    Three daemons that know each other.
    """

    async def test_peersKnowEachOtherAcrossRestarts(self) -> None:
        """Each knows the others from its start; one is killed and comes back."""
        relays = {name: Relay(self) for name in NAMES}

        def start(name: str) -> Deferred[Daemon]:
            peers = [f"--peer={each}.example:8080={relays[each].url}" for each in NAMES]
            more = [f"--advertise={name}.example:8080", f"--stomp={LOCAL}"]
            return Deferred.fromCoroutine(self.begin(name, *peers, *more))

        daemons = await gatherResults([start(each) for each in NAMES])
        a, b, c = daemons
        for name, daemon in zip(NAMES, daemons, strict=True):
            relays[name].leadTo(daemon.base)
        await self.subscribe(b)

        for daemon, first in zip(daemons, NAMES, strict=True):
            order = [first, *(each for each in NAMES if each != first)]
            self.assertEqual(await self.nodes(daemon), [f"{each}.example:8080" for each in order])
        own = await self.subscriptions(b)
        ((id, record),) = own["b.example:8080"].items()
        self.assertEqual((record["interfaceType"], record["subscribeId"]), ("STOMP", id))
        for daemon in daemons:
            self.assertEqual(await self.subscriptions(daemon, "b.example:8080"), own)
        three = await self.subscriptions(c, "a.example:8080", "b.example:8080", "c.example:8080")
        self.assertEqual(three, {"a.example:8080": {}, **own, "c.example:8080": {}})

        await b.stop(signal.SIGKILL)
        for names in (["b.example:8080"], ["a.example:8080", "b.example:8080"]):
            self.assertIn("node b.example:8080 ", await self.denied(a, *names))
        self.assertIn("b.example:8080", await self.nodes(c))
        self.assertEqual(await self.subscriptions(a, "c.example:8080"), {"c.example:8080": {}})

        b = await start("b")
        relays["b"].leadTo(b.base)
        self.assertEqual(await self.subscriptions(a, "b.example:8080"), {"b.example:8080": {}})
        await self.denied(a, "new.example:1", code=PARAMETER_INVALID)
        for daemon in (a, b, c):
            self.assertEqual(await daemon.stop(), 0)

    async def test_laterBrokerKnowsEarlierOnes(self) -> None:
        """A broker is named by where it listens, its peers as the operator names them."""
        a = await self.begin("a", f"--stomp={LOCAL}")
        b = await self.begin("b")
        c = await self.begin("c", f"--peer=a.x:1={a.base}", f"--peer=b.x:1={b.base}/")
        listening = [each.base.removeprefix("http://").partition("/")[0] for each in (c, a)]
        names = [listening[0], "a.x:1", "b.x:1"]
        await self.subscribe(a)
        self.assertEqual(await self.nodes(c), names)
        self.assertEqual(await self.nodes(a), listening[1:])
        own = await self.subscriptions(a)
        self.assertEqual(len(own[listening[1]]), 1)
        self.assertEqual(await self.subscriptions(c, "a.x:1"), {"a.x:1": own[listening[1]]})
        await self.denied(a, names[0], code=PARAMETER_INVALID)
        await a.stop(signal.SIGKILL)
        self.assertEqual(await self.denied(c, names[1]), f"node {names[1]} cannot be reached")

    async def test_httpsPeerNeedsValidCertificate(self) -> None:
        """A peer is asked over HTTPS only if its certificate is valid for its name."""
        key, certificate = makeCertificate(self.root)
        endpoint = f"ssl:0:interface=127.0.0.1:privateKey={key}:certKey={certificate}"
        data = f"--data-dir={self.root / 'a'}"
        secret = self.run_([f"--http={endpoint}", "--ledger=memory", data, "--advertise=a.x:1"])
        found = await secret.protocol.waitFor(SERVES)
        address, _, path = found[1].partition("/")
        peer = f"--peer=a.x:1=https://{address}/{path}"
        stranger = await self.begin("b", peer)
        self.assertIn("certificate", await self.denied(stranger, "a.x:1"))
        self.environment["SSL_CERT_FILE"] = str(certificate)
        friend = await self.begin("c", peer)
        self.assertEqual(await self.subscriptions(friend, "a.x:1"), {"a.x:1": {}})


class StrangerTests(PeersTestCase):
    """
    Peers that are not brokers, or do not answer.
    """

    async def test_hangingPeerCostsOnlyItsTimeout(self) -> None:
        """A peer that never answers costs its time-out, and does not delay the start."""
        stranger = Stranger(self)
        half = Stranger(self, HEAD + b'Content-Length: 1000\r\n\r\n{"code":0,')
        daemon = await self.begin(
            "a",
            stranger.option,
            half.option,
            "--peer-timeout=0.3",
        )
        self.assertEqual(stranger.heard, 0)
        self.assertEqual((await self.nodes(daemon))[1:], [stranger.name, half.name])
        for each in (stranger, half):
            text = await self.denied(daemon, each.name)
            self.assertEqual(text, f"node {each.name} gave no answer in time")
        self.assertEqual(len(await self.subscriptions(daemon)), 1)

    async def test_malformedAnswersAreRefused(self) -> None:
        """Answers that are not HTTP, not JSON, too long or endless are refused."""
        cases = {
            "that is not HTTP": Stranger(self, b"220 smtp.example ESMTP\r\n"),
            "no answer to this": Stranger(self, HEAD + b"Content-Length: 6\r\n\r\n<html>"),
            "(HTTP status 404)": Stranger(
                self, b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
            ),
            "(HTTP status 302)": Stranger(
                self, b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n"
            ),
            "more than 16777216 bytes": Stranger(self, HEAD + b"\r\n", b" " * 65536),
            # Headers without end, which only the connection can bound.
            "more than any answer has": Stranger(self, HEAD, (b"X: " + b"x" * 1000 + b"\r\n") * 60),
        }
        daemon = await self.begin(
            "a", *(each.option for each in cases.values()), "--peer-timeout=60"
        )
        for words, each in cases.items():
            text = await self.denied(daemon, each.name)
            self.assertTrue(text.startswith(f"node {each.name} "), text)
            self.assertIn(words, text)
        self.assertEqual(len(await self.nodes(daemon)), 1 + len(cases))
        self.assertEqual(await daemon.stop(), 0)

    async def test_stopAnswersClientThatWaitsForPeer(self) -> None:
        """When the daemon stops, a client that waits for a peer is answered."""
        stranger = Stranger(self)
        daemon = await self.begin("a", stranger.option, "--peer-timeout=60")
        spokenTo = stranger.spokenTo()
        asking = Deferred.fromCoroutine(self.denied(daemon, stranger.name))
        await spokenTo
        daemon.process.signalProcess(signal.SIGTERM)
        await daemon.protocol.waitFor("Stopping")
        stranger.leave()
        self.assertIn("closed the connection", await asking)
        self.assertEqual(await daemon.exits(), 0)
