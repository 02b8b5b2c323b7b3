"""
Byte streams over WebSockets, and STOMP on them, through the site's real channels.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from twisted.internet.interfaces import IConsumer, IProtocol, IPushProducer, ITransport
from twisted.internet.protocol import Protocol
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase
from wsproto.connection import Connection as WebSocket
from wsproto.connection import ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, Pong, TextMessage
from zope.interface.verify import verifyObject

from svcbroker.access import Access
from svcbroker.carriers.http import Route
from svcbroker.carriers.http.logins import HttpSettings
from svcbroker.carriers.stomp.carrier import StompProtocol, webSocketRoute
from svcbroker.carriers.websocket import (
    CLOSE_TIMEOUT,
    WebSocketResource,
    WebSocketTransport,
    WebSocketWire,
)
from svcbroker.net.budgets import FEW, READS_AT_ONCE, WRITES_A_TURN
from tests.access.support import FakeAuthenticator, account
from tests.carriers.http.support import BASE, Answer, Client, Connection, requestBytes
from tests.carriers.stomp.support import Received, Server, event, frame, readFrames

UPGRADE = {
    "Connection": "keep-alive, Upgrade",
    "Upgrade": "WebSocket",
    "Sec-WebSocket-Version": "13",
    # The example of RFC 6455, 1.3.
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
STOMP = {"Sec-WebSocket-Protocol": "v13.stomp, v12.stomp, v11.stomp"}
CONNECT = frame("CONNECT", {"accept-version": "1.2"})


class Site:
    """
    A site with STOMP over WebSocket.

    @ivar server: the STOMP carrier.
    """

    def __init__(self, *origins: str) -> None:
        self.server = Server()
        route = webSocketRoute(self.server.factory, BASE)
        self.http = Client(HttpSettings(corsOrigins=origins), (route,), self.server.fixture)

    def ask(self, headers: dict[str, str]) -> Answer:
        """The answer to a handshake that is refused."""
        return self.http.ask("GET", f"{BASE}/stomp", headers=headers)

    def open(self) -> WebSocketClient:
        """Open a WebSocket."""
        return WebSocketClient(self.http.connect())


class WebSocketClient:
    """
    The client's end of a WebSocket.

    @ivar handshake: the answer to the handshake.
    @ivar events: what has come.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        connection.send(requestBytes("GET", f"{BASE}/stomp", headers={**UPGRADE, **STOMP}))
        self.handshake = connection.transport.value()
        connection.transport.clear()
        self.socket = WebSocket(ConnectionType.CLIENT)
        self.events: list[Event] = []

    def send(self, *events: Event) -> None:
        """Send messages, all in one read."""
        self.connection.send(b"".join(self.socket.send(event) for event in events))

    def read(self) -> list[Event]:
        """What has come since the last time."""
        data = self.connection.transport.value()
        self.connection.transport.clear()
        self.socket.receive_data(data)
        return list(self.socket.events())

    def frames(self) -> list[Received]:
        """The STOMP frames that have come."""
        data = b""
        for message in self.read():
            assert isinstance(message, TextMessage | BytesMessage), message
            text: Any = message.data
            data += text.encode() if isinstance(text, str) else bytes(text)
        return readFrames(data)[0]

    @property
    def transport(self) -> Any:
        """The transport below."""
        return self.connection.transport


class HandshakeTests(SynchronousTestCase):
    """Opening a WebSocket."""

    def test_firstKnownSubprotocolIsChosen(self) -> None:
        """With the key of the RFC's example."""
        answer = Site().open().handshake
        self.assertTrue(answer.startswith(b"HTTP/1.1 101 Switching Protocols\r\n"))
        self.assertIn(b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n", answer)
        self.assertIn(b"Sec-WebSocket-Protocol: v12.stomp\r\n", answer)

    def test_otherSubprotocolsAreRefused(self) -> None:
        """A client that names none is served."""
        site = Site()
        connection = site.http.connect()
        connection.send(requestBytes("GET", f"{BASE}/stomp", headers=UPGRADE))
        self.assertNotIn(b"Sec-WebSocket-Protocol", connection.transport.value())
        self.assertIn(b" 101 ", connection.transport.value())
        answer = site.ask({**UPGRADE, "Sec-WebSocket-Protocol": "mqtt"})
        self.assertEqual((answer.status, answer.json()["code"]), (400, 100600))

    def test_wrongCredentialsAreRefused(self) -> None:
        """None are needed: clients log in inside."""
        server = Server()
        clock = server.fixture.clock
        access = Access([FakeAuthenticator(account("ann"))], clock, clock.seconds)
        self.addCleanup(access.stop)
        route = webSocketRoute(server.factory, BASE)
        client = Client(None, (route,), server.fixture, access)
        right, wrong = (b64encode(pair).decode() for pair in (b"ann:ann", b"ann:x"))
        for headers in ({}, {"Authorization": f"Basic {right}"}):
            connection = client.connect()
            request = requestBytes("GET", f"{BASE}/stomp", headers={**UPGRADE, **headers})
            connection.send(request)
            self.assertIn(b" 101 ", connection.transport.value())
        answer = client.ask(
            "GET", f"{BASE}/stomp", headers={**UPGRADE, "Authorization": f"Basic {wrong}"}
        )
        self.assertEqual((answer.status, answer.json()["code"]), (401, 101015))

    def test_subprotocolCanBeRequired(self) -> None:
        server = Server()
        resource = WebSocketResource(server.factory, ["x"], isRequired=True)
        route = Route(path="/ws", methods=("GET",), handler=lambda request: resource)
        answer = Client(routes=(route,)).ask("GET", "/ws", headers=UPGRADE)
        self.assertEqual(answer.status, 400)

    def test_badHandshakesAreRefused(self) -> None:
        for change, status in (
            ({"Upgrade": "h2c"}, 426),
            ({"Connection": "close"}, 426),
            ({"Sec-WebSocket-Version": "8"}, 426),
            ({"Sec-WebSocket-Key": "short"}, 400),
            ({"Sec-WebSocket-Key": b64encode(b"x" * 15).decode()}, 400),
        ):
            answer = Site().ask({**UPGRADE, **change})
            self.assertEqual(answer.status, status, change)
            self.assertIn("message", answer.json())
        answer = Site().ask({})
        self.assertEqual((answer.status, answer.headers["upgrade"]), (426, "websocket"))

    def test_onlyAllowedOriginsConnect(self) -> None:
        """The site itself is one."""
        for origin, allowed, isGood in (
            ("http://broker", (), True),
            ("http://evil", (), False),
            ("null", (), False),
            ("http://[", (), False),
            ("http://good", ("http://good",), True),
            ("http://evil", ("http://good",), False),
            ("null", ("*",), True),
        ):
            site = Site(*allowed)
            connection = site.http.connect()
            headers = {**UPGRADE, "Origin": origin}
            connection.send(requestBytes("GET", f"{BASE}/stomp", headers=headers))
            status = b" 101 " if isGood else b" 403 "
            self.assertIn(status, connection.transport.value().partition(b"\r\n")[0], origin)

    def test_stoppingBrokerRefuses(self) -> None:
        site = Site()
        site.server.factory.drain()
        self.assertEqual(site.ask(UPGRADE).status, 503)


class StreamTests(SynchronousTestCase):
    """STOMP over a WebSocket."""

    def test_stompSessionOverWebSocket(self) -> None:
        site = Site()
        client = site.open()
        client.send(TextMessage(CONNECT.decode()))
        self.assertEqual([each.command for each in client.frames()], ["CONNECTED"])
        client.send(TextMessage(frame("SUBSCRIBE", {"id": "1", "destination": "a"}).decode()))
        [made] = site.server.fake.made
        made.publish(event(1, content="ä".encode()))
        [message] = client.frames()
        self.assertEqual(message.body, "ä".encode())
        self.assertEqual(made.request.remote, "192.168.1.1:54321")

    def test_messagesNeedNotMatchFrames(self) -> None:
        """A frame over several messages and fragments, several frames in one message."""
        site = Site()
        client = site.open()
        data = CONNECT + b"\n" + frame("BEGIN", {"transaction": "1", "receipt": "2"})
        for number in range(len(data)):
            client.send(BytesMessage(data[number : number + 1], message_finished=number % 3 == 2))
        client.send(BytesMessage(b"", message_finished=True))
        self.assertEqual([each.command for each in client.frames()], ["CONNECTED", "RECEIPT"])

    def test_answersHaveTheClientsKind(self) -> None:
        """Text as far as it is text, else bytes."""
        site = Site()
        client = site.open()
        client.send(TextMessage(CONNECT.decode()))
        self.assertIsInstance(client.read()[0], TextMessage)
        client.send(TextMessage(frame("SUBSCRIBE", {"id": "1", "destination": "a"}).decode()))
        [made] = site.server.fake.made
        made.publish(event(1, content=b"\xff"))
        self.assertIsInstance(client.read()[0], BytesMessage)
        made.publish(event(2))
        self.assertIsInstance(client.read()[0], TextMessage)
        client.send(BytesMessage(b"\n"))
        made.publish(event(3))
        self.assertIsInstance(client.read()[0], BytesMessage)

    def test_onlyLastPingIsAnswered(self) -> None:
        """And none while the client does not read."""
        client = Site().open()
        client.send(Ping(b"1"), Ping(b"2"))
        self.assertEqual(client.read(), [Pong(b"2")])
        client.transport.producer.pauseProducing()
        client.send(Ping(b"3"))
        self.assertEqual(client.read(), [])
        client.transport.producer.resumeProducing()
        client.send(Ping(b"4"))
        self.assertEqual(client.read(), [Pong(b"4")])

    def test_clientClosesInOrder(self) -> None:
        site = Site()
        client = site.open()
        client.send(TextMessage(CONNECT.decode()), CloseConnection(1000))
        events = client.read()
        self.assertIsInstance(events[-1], CloseConnection)
        self.assertFalse(client.connection.isOpen)
        self.assertEqual(site.server.factory.protocols, {})
        self.assertEqual(site.server.fixture.clock.getDelayedCalls(), [])

    def test_serverClosesWithinBound(self) -> None:
        """It waits a bounded time for the client."""
        for agrees in (True, False):
            site = Site()
            client = site.open()
            client.send(TextMessage(CONNECT.decode()))
            client.send(TextMessage(frame("DISCONNECT", {"receipt": "1"}).decode()))
            *_, last = client.read()
            assert isinstance(last, CloseConnection)
            self.assertEqual(last.code, 1000)
            self.assertTrue(client.connection.isOpen)
            if agrees:
                client.send(last.response())
            else:
                client.connection.send(b"\x81\x80")
                site.server.fixture.clock.advance(CLOSE_TIMEOUT)
            self.assertFalse(client.connection.isOpen)
            self.assertEqual(site.server.fixture.clock.getDelayedCalls(), [])

    def test_violationsCloseWithTheirCode(self) -> None:
        for data, code in (
            (b"\x81\x05hello", 1002),
            (b"\xf1\x80abcd", 1002),
            (b"\x83\x80abcd", 1002),
            (b"\x81\x81\0\0\0\0\xff", 1007),
            (b"\x89\xfe\x00\xff", 1002),
        ):
            site = Site()
            client = site.open()
            client.connection.send(data)
            *_, last = client.read()
            assert isinstance(last, CloseConnection)
            self.assertEqual(last.code, code, data)
            self.assertFalse(client.connection.isOpen)
            self.assertEqual(site.server.factory.protocols, {})

    def test_endlessMessageIsNotCollected(self) -> None:
        """It is bounded by the protocol that it carries."""
        client = Site().open()
        client.connection.send(b"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0" + CONNECT)
        self.assertEqual([each.command for each in client.frames()], ["CONNECTED"])

    def test_flowControlWorksBothWays(self) -> None:
        site = Site()
        site.server.fixture.ledger.isHolding = True
        client = site.open()
        client.send(BytesMessage(CONNECT))
        client.send(BytesMessage(frame("SUBSCRIBE", {"id": "1", "destination": "a"})))
        [made] = site.server.fake.made
        client.transport.producer.pauseProducing()
        self.assertFalse(made.isFlowing)
        client.transport.producer.resumeProducing()
        self.assertTrue(made.isFlowing)
        client.send(BytesMessage(frame("SEND", {"destination": "a"}, b"x") * 1024))
        self.assertEqual(client.transport.producerState, "paused")
        site.server.fixture.ledger.release()
        self.assertEqual(client.transport.producerState, "producing")

    def test_messagesAreReadAsTheyAreTaken(self) -> None:
        """Tiny messages of one read wait with the protocol above, and for their turn."""
        wire, taken, socket = self.makeWire()
        wire.dataReceived(b"".join(socket.send(BytesMessage(b"%d" % n)) for n in range(100)))
        self.assertEqual(len(taken), 10)
        wire.resumeReading()
        self.assertEqual(len(taken), 20)
        work, clock = wire._lane._budget, self.clock
        other = work.lane()
        other.begin(isWrite=True)
        clock.rightNow += 2 * WRITES_A_TURN
        other.end()
        wire.resumeReading()
        self.assertEqual(len(taken), 20)
        clock.advance(0)
        self.assertEqual(len(taken), 30)
        for _ in range(7):
            wire.resumeReading()
        self.assertEqual(taken, [b"%d" % n for n in range(100)])

    def test_manyMessagesWaitWithReads(self) -> None:
        """Thousands may be pings, which do not come before the publishes of others."""
        wire, taken, socket = self.makeWire()
        work = wire._lane._budget
        work.submitted(1)
        other = work.lane()
        other.begin(isWrite=False)
        self.clock.rightNow += READS_AT_ONCE
        other.end()
        wire.dataReceived(socket.send(BytesMessage(b"x")))
        self.assertEqual(len(taken), 1)
        wire.dataReceived(b"".join(socket.send(Ping(b"")) for _ in range(100)))
        self.assertTrue(wire._waitsForTurn)
        self.assertEqual(wire._handled, FEW)

    def test_messagesThatWaitAreCounted(self) -> None:
        """Until they are read; where there is no room for them, the WebSocket is closed."""
        wire, taken, socket = self.makeWire()
        budget, transport = wire._counted._budget, wire._transport
        data = b"".join(socket.send(BytesMessage(b"%d" % n)) for n in range(25))
        wire.dataReceived(data)
        self.assertEqual(budget.used, len(data))
        for used in (len(data), 0):
            wire.resumeReading()
            self.assertEqual(budget.used, used)
        self.assertEqual(len(taken), 25)
        budget.total = len(data) - 1
        transport.clear()
        wire.dataReceived(data)
        self.assertEqual((budget.used, budget.refused, len(taken)), (0, 1, 30))
        socket.receive_data(transport.value())
        self.assertEqual([*socket.events()], [CloseConnection(code=1013, reason="")])
        wire.dataReceived(data)
        self.assertEqual((budget.used, len(taken)), (0, 30))
        wire.connectionLost()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_lostConnectionKeepsNoMessages(self) -> None:
        """What has waited is counted no more."""
        wire, _, socket = self.makeWire()
        budget = wire._counted._budget
        wire.dataReceived(b"".join(socket.send(BytesMessage(b"x")) for _ in range(20)))
        self.assertGreater(budget.used, 0)
        wire.connectionLost()
        self.assertEqual(budget.used, 0)

    def makeWire(self) -> tuple[Any, list[bytes], WebSocket]:
        """A wire whose protocol stops reading after each ten messages; these; and its client."""
        site = Site()
        taken: list[bytes] = []

        class Taker(Protocol):
            def dataReceived(self, data: bytes) -> None:
                taken.append(data)
                if len(taken) % 10 == 0:
                    wire.pauseReading()

        self.clock, budgets = site.server.fixture.clock, site.server.fixture.broker.budgets
        wire = WebSocketWire(Taker(), budgets.work, budgets.input.count("a"))
        transport = StringTransport()
        transport.registerProducer(wire, True)
        wire.makeConnection(transport)
        return wire, taken, WebSocket(ConnectionType.CLIENT)

    def test_messagesHaveAFewFrames(self) -> None:
        """Frames are joined up to 4 KiB, since common clients close at a longer message."""
        for ack in ("auto", "client-individual"):
            site = Site()
            client = site.open()
            client.send(TextMessage(CONNECT.decode()))
            subscribe = {"id": "1", "destination": "a", "ack": ack, "prefetch-count": "1000"}
            client.send(TextMessage(frame("SUBSCRIBE", subscribe).decode()))
            client.read()
            [made] = site.server.fake.made
            sizes = (10, 10, 5000, 10, *(100,) * 500)
            made.publish(*(event(n, content=b"x" * size) for n, size in enumerate(sizes, 1)))
            messages = [event.data for event in client.read() if isinstance(event, TextMessage)]
            counts = [each.count("MESSAGE\n") for each in messages]
            self.assertEqual((counts[:2], sum(counts)), ([2, 1], len(sizes)))
            for message, count in zip(messages, counts, strict=True):
                self.assertTrue(len(message) <= 4096 or count == 1)
                self.assertTrue(message.startswith("MESSAGE\n") and message.endswith("\0"))
            self.assertGreater(min(len(each) for each in messages[2:-1]), 3500)

    def test_stopClosesWebSockets(self) -> None:
        site = Site()
        client = site.open()
        drained = site.server.factory.drain()
        self.assertIsInstance(client.read()[-1], CloseConnection)
        self.assertNoResult(drained)
        site.server.fixture.clock.advance(CLOSE_TIMEOUT)
        self.successResultOf(drained)

    def test_wireImplementsInterfaces(self) -> None:
        site = Site()
        fixture = site.server.fixture
        budgets = fixture.broker.budgets
        wire = WebSocketWire(
            *(StompProtocol(site.server.factory), budgets.work, budgets.input.count("a"))
        )
        for interface in (IProtocol, IPushProducer):
            verifyObject(interface, wire)
        transport = WebSocketTransport(wire, None)
        for each in (ITransport, IConsumer, IPushProducer):
            verifyObject(each, transport)
