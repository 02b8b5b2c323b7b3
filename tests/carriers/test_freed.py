"""
Connections of all carriers are freed by their last reference, not by the garbage collector.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from weakref import ref

from twisted.internet import reactor
from twisted.internet.endpoints import TCP4ClientEndpoint, TCP4ServerEndpoint, wrapClientTLS
from twisted.internet.interfaces import IProtocolFactory
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.ssl import CertificateOptions
from twisted.internet.task import deferLater
from twisted.trial.unittest import SynchronousTestCase, TestCase
from wsproto.frame_protocol import FrameProtocol

from svcbroker.access import Access
from svcbroker.broker.subscriptions import Subscriptions
from svcbroker.broker.subscriptions._logsubscription import LogSubscription
from svcbroker.carriers.http import fastpath
from svcbroker.carriers.http.connection import BrokerRequest
from svcbroker.carriers.http.follow import Following
from svcbroker.carriers.http.logins import HttpSettings
from svcbroker.carriers.mqtt.carrier import webSocketRoute as mqttRoute
from svcbroker.carriers.stomp.carrier import webSocketRoute as stompRoute
from svcbroker.commands.bench import connectFrame, connectPacket, packet, publishPacket, text
from svcbroker.errors import Overloaded
from svcbroker.net.pem import CertificateDirectory
from svcbroker.net.tls import ServerCertificates, TLSServerEndpoint
from tests.access.support import FakeAuthenticator, account
from tests.broker.support import Fixture, makeFixture
from tests.certificates import makeCertificate

from .http.accounts import basic
from .http.support import BASE, Client, requestBytes
from .mqtt.support import Server as MqttServer
from .stomp.support import Server as StompServer

POST = b"POST /svcbroker/jsonrpc HTTP/1.1\r\nHost: 127.0.0.1\r\n"
PAUSE = 0.001
TURNS = 200


def get(path: str, **headers: str) -> bytes:
    """A request."""
    return requestBytes("GET", path, headers={"Host": "127.0.0.1", **headers})


async def started(fixture: Fixture) -> Subscriptions:
    """The subscriptions of a broker."""
    ledgers = {"1": fixture.ledger, "2": fixture.second}
    subscriptions = Subscriptions(ledgers, fixture.clock, fixture.clock.seconds, bytes)
    await subscriptions.start()
    return subscriptions


def countOf(*kinds: type[Any]) -> int:
    """The number of objects of some classes that there are, garbage included."""
    return sum(isinstance(each, kinds) for each in gc.get_objects())


class Reader(Protocol):
    """A client that keeps what it was sent."""

    def __init__(self) -> None:
        self.received = b""

    def dataReceived(self, data: bytes) -> None:
        self.received += data


class FreedTests(TestCase):
    """
    A client connects, sends something, waits for what comes of it, and leaves.
    """

    def setUp(self) -> None:
        gc.disable()
        self.addCleanup(gc.enable)
        self.made: list[Callable[[], Any]] = []

    async def turns(self, isOver: Callable[[], object], pump: Callable[[], object]) -> None:
        """Let time pass until a condition holds, or for some turns of the reactor."""
        for _ in range(TURNS):
            await deferLater(reactor, PAUSE)
            pump()
            if isOver():
                return

    def watch(self, factory: IProtocolFactory) -> None:
        """Remember the protocols that a factory makes, weakly."""
        build: Any = factory.buildProtocol

        def record(address: Any) -> Any:
            protocol = build(address)
            self.made.append(ref(protocol))
            return protocol

        self.patch(factory, "buildProtocol", record)

    async def visit(
        self,
        factory: IProtocolFactory,
        *pieces: bytes,
        wanted: bytes = b"",
        isReading: bool = True,
        isAborted: bool = False,
        isTLS: bool = False,
        pump: Callable[[], object] = lambda: None,
    ) -> None:
        """
        Connect, send pieces, and leave.

        @param wanted: what is waited for in what comes.
        @param isReading: whether the client reads.
        @param isAborted: whether it leaves by a reset.
        """
        self.watch(factory)
        server: Any = TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1")
        if isTLS:
            root = Path(self.mktemp())
            root.mkdir()
            certificate, _ = makeCertificate(root)
            source = CertificateDirectory(path=certificate.parent)
            server = TLSServerEndpoint(server, ServerCertificates(source), reactor)
        port: Any = await server.listen(factory)
        self.addCleanup(port.stopListening)
        endpoint: Any = TCP4ClientEndpoint(reactor, "127.0.0.1", port.getHost().port)
        if isTLS:
            endpoint = wrapClientTLS(CertificateOptions(), endpoint)
        client: Any = await endpoint.connect(Factory.forProtocol(Reader))
        self.addCleanup(deferLater, reactor, PAUSE)
        self.addCleanup(lambda: client.transport.connected and client.transport.abortConnection())
        if not isReading:
            client.transport.pauseProducing()
        for piece in pieces:
            client.transport.write(piece)
        # What nobody waits for has some turns.
        left = 20

        def isAnswered() -> bool:
            nonlocal left
            left -= 1
            return wanted in client.received if wanted else left == 0

        await self.turns(isAnswered, pump)
        self.assertIn(wanted, client.received)
        protocol = self.made[-1]()
        if protocol is not None and protocol.transport is not None:
            self.made.append(ref(protocol.transport))
        del protocol
        if isAborted:
            client.transport.abortConnection()
        else:
            client.transport.loseConnection()
        await self.turns(lambda: all(each() is None for each in self.made), pump)
        self.assertEqual([each() for each in self.made if each() is not None], [])


class HTTPFreedTests(FreedTests):
    """
    Connections of HTTP, on the fast path.
    """

    hasFastPath = True

    def setUp(self) -> None:
        super().setUp()
        self.patch(Client, "hasFastPath", self.hasFastPath)
        self.site = Client()

    async def ask(self, *pieces: bytes, **arguments: Any) -> None:
        """Visit the site."""
        clock = self.site.fixture.clock
        await self.visit(self.site.site, *pieces, pump=lambda: clock.advance(0), **arguments)

    async def test_idleConnection(self) -> None:
        await self.ask()

    async def test_answeredRequest(self) -> None:
        await self.ask(get(f"{BASE}/rest/list"), wanted=b"topicInfoList")

    async def test_unknownPath(self) -> None:
        await self.ask(get("/x"), wanted=b"404")

    async def test_malformedRequest(self) -> None:
        await self.ask(b"nothing\r\n\r\n", wanted=b"400")

    async def test_partOfAHead(self) -> None:
        await self.ask(b"GET /svc")

    async def test_partOfABody(self) -> None:
        await self.ask(POST + b"Content-Length: 9\r\n\r\n{")

    async def test_partOfAnUnusualBody(self) -> None:
        await self.ask(POST + b"Transfer-Encoding: chunked\r\n\r\n9")

    async def test_overlongBody(self) -> None:
        await self.ask(POST + b"Content-Length: 99999999\r\n\r\n{", wanted=b"100201")

    async def test_callUnderWay(self) -> None:
        self.site.rest("open?topic=t")
        self.site.fixture.ledger.isHolding = True
        publish = get(f"{BASE}/rest/publish?topic=t&content=x")
        # One that only sends nothing more waits for its answers.
        await self.ask(publish * 3, isAborted=True)

    async def test_unreadAnswers(self) -> None:
        for isAborted in (False, True):
            await self.ask(
                get(f"{BASE}/openapi.json") * 300,
                get(f"{BASE}/rest/genesis") * 3000,
                isReading=False,
                isAborted=isAborted,
            )

    async def test_unreadBatch(self) -> None:
        call = {"jsonrpc": "2.0", "id": 1, "method": "rpc.discover"}
        body = json.dumps([call] * 200).encode()
        request = requestBytes("POST", f"{BASE}/jsonrpc", body, {"Host": "127.0.0.1"})
        await self.ask(request * 3, isReading=False, isAborted=True)

    async def test_batchThatWaitsForItsTurn(self) -> None:
        work = self.site.fixture.broker.budgets.work
        times = count(0.0, 1.0)
        self.patch(work, "seconds", lambda: next(times))
        body = json.dumps([{"jsonrpc": "2.0", "id": 1, "method": "rpc.discover"}] * 200).encode()
        request = requestBytes("POST", f"{BASE}/jsonrpc", body, {"Host": "127.0.0.1"})
        await self.visit(self.site.site, request, isAborted=True)

    async def test_answerForWhichThereIsNoRoom(self) -> None:
        # On the fast path alone: elsewhere there is no room for the request either.
        self.patch(Client, "hasFastPath", True)
        self.site = Client()
        budgets = self.site.fixture.broker.budgets
        times = count(0.0, 1.0)
        self.patch(budgets.work, "seconds", lambda: next(times))
        self.patch(budgets.output, "own", 0)

        def refuse(*arguments: object) -> None:
            raise Overloaded("no room")

        self.patch(fastpath, "checkOutput", refuse)
        body = json.dumps([{"jsonrpc": "2.0", "id": 1, "method": "rpc.discover"}] * 2).encode()
        request = requestBytes("POST", f"{BASE}/jsonrpc", body, {"Host": "127.0.0.1"})
        await self.ask(request, wanted=b"no room")

    async def test_closedByTheServer(self) -> None:
        await self.ask(
            get(f"{BASE}/rest/list", Connection="close"),
            wanted=b"topicInfoList",
        )

    async def test_overTLS(self) -> None:
        list = get(f"{BASE}/rest/list")
        for isAborted in (False, True):
            await self.ask(list, wanted=b"topicInfoList", isTLS=True, isAborted=isAborted)

    async def test_unreadOverTLS(self) -> None:
        asked = get(f"{BASE}/openapi.json") * 100
        await self.ask(asked, isReading=False, isTLS=True, isAborted=True)

    async def test_acceptedCredentials(self) -> None:
        clock = self.site.fixture.clock
        known = FakeAuthenticator(account("ann", "subscribe * #"))
        self.site = Client(access=Access([known], clock, clock.seconds))
        await self.ask(get(f"{BASE}/rest/list", **basic("ann")), wanted=b"total")

    async def test_refusedCredentials(self) -> None:
        clock = self.site.fixture.clock
        self.site = Client(access=Access([FakeAuthenticator()], clock, clock.seconds))
        await self.ask(get(f"{BASE}/rest/list"), wanted=b"401")


class RefusedCallTests(SynchronousTestCase):
    """
    Calls that are refused, of which an attacker may make thousands a second.
    """

    def test_refusedCallsLeaveNothingBehind(self) -> None:
        site = Client().connect()
        unknown = {"jsonrpc": "2.0", "id": 1, "method": "publish", "params": ["none", "eA=="]}
        wrong = {**unknown, "params": {"topic": 5}}
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)
        for calls in ([unknown] * 5, [unknown, wrong], unknown, wrong):
            site.send(requestBytes("POST", f"{BASE}/jsonrpc", json.dumps(calls).encode()))
            self.assertIn(b"error", site.answers()[0].body)
            self.assertEqual(gc.collect(), 0, calls)


class KleinFreedTests(HTTPFreedTests):
    """
    Connections of HTTP without the fast path.
    """

    hasFastPath = False


class FollowFreedTests(FreedTests):
    """
    Streams of Server-Sent Events.
    """

    async def follow(self, **arguments: Any) -> None:
        """Follow a topic."""
        fixture = makeFixture()
        subscriptions = await started(fixture)
        following = Following(fixture.calls, subscriptions, HttpSettings().basePath)
        site = Client(routes=(following.route,), fixture=fixture)
        site.rest("open?topic=t")
        content = "x" * 900
        for _ in range(3):
            site.rest(f"publish?topic=t&content={content}")
        request = get(f"{BASE}/rest/follow?topic=t&from=OFFSET_FIRST")
        pump = partial(fixture.clock.advance, 0)
        before = countOf(BrokerRequest, LogSubscription)
        await self.visit(site.site, request, pump=pump, **arguments)
        self.assertEqual(countOf(BrokerRequest, LogSubscription), before)

    async def test_followedTopic(self) -> None:
        await self.follow(wanted=b"event: event")

    async def test_unreadEvents(self) -> None:
        await self.follow(isReading=False, isAborted=True)


class WebSocketFreedTests(FreedTests):
    """
    Connections of WebSockets.
    """

    async def open(self, path: str, site: Client, pump: Callable[[], object], *data: bytes) -> None:
        """Open a WebSocket, and send messages."""
        upgrade = get(
            f"{BASE}/{path}",
            **{
                "Connection": "Upgrade",
                "Upgrade": "websocket",
                "Sec-WebSocket-Version": "13",
                "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
            },
        )
        frames = b"".join(b"\x82%c\0\0\0\0%b" % (0x80 | len(each), each) for each in data)
        for wanted, isAborted in ((b"101", False), (b"101", True)):
            before = countOf(FrameProtocol)
            await self.visit(
                site.site, upgrade, frames, wanted=wanted, isAborted=isAborted, pump=pump
            )
            self.assertEqual(countOf(FrameProtocol), before)

    async def test_stompInside(self) -> None:
        server = StompServer()
        site = Client(routes=(stompRoute(server.factory, BASE),), fixture=server.fixture)
        await self.open("stomp", site, partial(server.fixture.clock.advance, 0), connectFrame())

    async def test_mqttInside(self) -> None:
        server = MqttServer()
        site = Client(routes=(mqttRoute(server.factory, BASE),))
        subscribe = packet(0x82, b"\0\1", text("a/#") + b"\1")
        await self.open("mqtt", site, server.pump, connectPacket("a"), subscribe)


class MqttFreedTests(FreedTests):
    """
    Connections of MQTT.
    """

    async def ask(self, *pieces: bytes, **arguments: Any) -> None:
        """Visit a carrier."""
        server = MqttServer()
        self.server = server
        await self.visit(server.factory, *pieces, pump=server.pump, **arguments)

    async def test_nothingSent(self) -> None:
        await self.ask()

    async def test_partOfAPacket(self) -> None:
        await self.ask(b"\x10\x80")

    async def test_refusedClient(self) -> None:
        await self.ask(b"xxxxxxxx", isAborted=True)

    async def test_connectedClient(self) -> None:
        await self.ask(connectPacket("a"), wanted=b"\x20\x02")

    async def test_disconnectedClient(self) -> None:
        await self.ask(connectPacket("a"), b"\xe0\0", wanted=b"\x20\x02")

    async def test_subscribedClient(self) -> None:
        subscribe = packet(0x82, b"\0\1", text("a/#") + b"\1")
        await self.ask(connectPacket("a"), subscribe, wanted=b"\x90\x03")

    async def test_publishedEvent(self) -> None:
        publish = publishPacket("t", 1, 1, b"x")
        await self.ask(connectPacket("a"), publish, wanted=b"\x40\x02")

    async def test_unreadAnswers(self) -> None:
        await self.ask(connectPacket("a"), b"\xc0\0" * 3_000_000, isReading=False, isAborted=True)


class StompFreedTests(FreedTests):
    """
    Connections of STOMP.
    """

    async def ask(self, *pieces: bytes, **arguments: Any) -> None:
        """Visit a carrier."""
        fixture = makeFixture()
        clock, subscriptions = fixture.clock, await started(fixture)
        self.server = StompServer(fixture=fixture, subscriptions=subscriptions)
        await self.visit(self.server.factory, *pieces, pump=lambda: clock.advance(0), **arguments)

    async def test_nothingSent(self) -> None:
        await self.ask()

    async def test_refusedClient(self) -> None:
        await self.ask(b"xxx\n\n\0", wanted=b"ERROR")

    async def test_connectedClient(self) -> None:
        await self.ask(connectFrame(), wanted=b"CONNECTED")

    async def test_subscribedClient(self) -> None:
        subscribe = b"SUBSCRIBE\nid:1\ndestination:a\nreceipt:1\n\n\0"
        await self.ask(connectFrame(), subscribe, wanted=b"RECEIPT")

    async def test_sentEvent(self) -> None:
        await self.ask(connectFrame(), b"SEND\ndestination:a\n\nx\0")

    async def test_inATransaction(self) -> None:
        begin = b"BEGIN\ntransaction:1\nreceipt:1\n\n\0"
        await self.ask(connectFrame(), begin, wanted=b"RECEIPT")

    async def test_disconnectedClient(self) -> None:
        await self.ask(connectFrame(), b"DISCONNECT\nreceipt:1\n\n\0", wanted=b"RECEIPT")
