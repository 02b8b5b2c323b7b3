"""
Tests of L{svcbroker.net.http}: the connections that are kept, and what becomes of requests on
them.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.iweb import IAgent, IResponse
from zope.interface.verify import verifyObject

from svcbroker.net.http import (
    IDLE,
    BoundedAgent,
    BoundedResponse,
    ConnectionPool,
    HttpError,
    Problem,
    makeAgent,
    makeClient,
    readBody,
)
from tests.carriers.webhook.support import PUBLIC, SETTINGS, FakeResolver

TIMEOUT = 10.0
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
BODY = b"the request"


class Connection:
    """
    The server's end of a connection.
    """

    def __init__(self, factory: Any) -> None:
        address = IPv4Address("TCP", PUBLIC, 80)
        self.transport = StringTransport(peerAddress=address)
        self._protocol = factory.buildProtocol(address)
        self._protocol.makeConnection(self.transport)

    def take(self) -> bytes:
        """The request that was sent here."""
        sent: bytes = self.transport.value()
        self.transport.clear()
        return sent

    def send(self, data: bytes) -> None:
        """Send a part of an answer."""
        self._protocol.dataReceived(data)

    def lose(self) -> None:
        """Be gone."""
        self._protocol.connectionLost(Failure(ConnectionDone()))

    @property
    def isClosed(self) -> bool:
        """Whether the client closed it."""
        return bool(self.transport.disconnecting or self.transport.disconnected)


class ConnectionTestCase(SynchronousTestCase):
    """
    A client that keeps a connection, on a reactor of memory.
    """

    isRepeatable = True

    def setUp(self) -> None:
        self.reactor = MemoryReactorClock()
        self.client = makeClient(self.reactor, maxBody=100, keep=1, isRepeatable=self.isRepeatable)

    def ask(self) -> Deferred[bytes]:
        """Make a request, and read its answer."""
        asking = self.client.request(
            "POST", "http://127.0.0.1/", timeout=TIMEOUT, maxBody=100, data=BODY
        )
        self.reactor.advance(0)
        return asking.addCallback(readBody)

    def connections(self) -> list[Connection]:
        """The connections that were made since the last look."""
        self.reactor.advance(0)
        made = [Connection(factory) for _, _, factory, _, _ in self.reactor.tcpClients]
        self.reactor.tcpClients.clear()
        return made

    def answered(self, answer: bytes) -> Connection:
        """The connection of a request that was answered."""
        asking = self.ask()
        [connection] = self.connections()
        self.assertIn(BODY, connection.take())
        connection.send(answer)
        self.assertEqual(self.successResultOf(asking), b"ok")
        return connection

    def problem(self, asking: Deferred[Any]) -> Problem:
        """Why there is no answer."""
        error = self.failureResultOf(asking, HttpError).value
        assert isinstance(error, HttpError)
        return error.problem


class KeepingTests(ConnectionTestCase):
    """
    Connections that are kept for the next request, or are not.
    """

    def test_connectionIsUsedAgain(self) -> None:
        """For some seconds."""
        connection = self.answered(ANSWER)
        asking = self.ask()
        self.assertEqual(self.connections(), [])
        self.assertIn(BODY, connection.take())
        connection.send(ANSWER)
        self.assertEqual(self.successResultOf(asking), b"ok")
        self.assertFalse(connection.isClosed)
        self.reactor.advance(IDLE)
        self.assertTrue(connection.isClosed)

    def test_connectionsThatServersCloseAreNotUsedAgain(self) -> None:
        """After an answer of HTTP/1.0, or with C{Connection: close} in any spelling."""
        for head in (
            b"HTTP/1.0 200 OK",
            b"HTTP/1.0 200 OK\r\nConnection: keep-alive",
            b"HTTP/1.1 200 OK\r\nConnection: close",
            b"HTTP/1.1 200 OK\r\nConnection: Close",
            b"HTTP/1.1 200 OK\r\nconnection: keep-alive , CLOSE",
            b"HTTP/1.1 200 OK\r\nConnection: foo\r\nConnection: close",
        ):
            connection = self.answered(head + b"\r\nContent-Length: 2\r\n\r\nok")
            self.assertTrue(connection.isClosed, head)
            connection.lose()

    def test_emptyAnswersOfOldServersEndConnections(self) -> None:
        """Such an answer is complete with its headers."""
        asking = self.ask()
        [connection] = self.connections()
        connection.send(b"HTTP/1.0 204 No Content\r\n\r\n")
        self.assertEqual(self.successResultOf(asking), b"")
        self.assertTrue(connection.isClosed)

    def test_poolsAreBounded(self) -> None:
        """They are not kept for long, and none is by default."""
        pool = ConnectionPool(self.reactor, keep=2)
        self.assertEqual((pool.persistent, pool.maxPersistentPerHost), (True, 2))
        self.assertLess(pool.cachedConnectionTimeout, 5)
        self.assertFalse(pool.retryAutomatically)
        self.assertFalse(ConnectionPool(self.reactor, keep=0).persistent)

    def test_interfacesAreImplemented(self) -> None:
        agent = makeAgent(self.reactor, ConnectionPool(self.reactor, keep=0), maxBody=1)
        verifyObject(IAgent, BoundedAgent(agent, self.reactor, TIMEOUT, 1))
        self.assertTrue(IResponse.implementedBy(BoundedResponse))


class BoundTests(ConnectionTestCase):
    """
    What is refused, through all layers.
    """

    def setUp(self) -> None:
        super().setUp()
        self.resolver = FakeResolver()
        self.client = makeClient(
            self.reactor,
            maxBody=100,
            keep=1,
            isRepeatable=True,
            policy=SETTINGS.policy,
            resolver=self.resolver,
        )

    def ask(self, host: str = "public.example") -> Deferred[bytes]:
        """Make a request to a host, and read its answer."""
        asking = self.client.request(
            "POST", f"http://{host}/", timeout=TIMEOUT, maxBody=100, data=BODY
        )
        self.reactor.advance(0)
        return asking.addCallback(readBody)

    def test_privateAddressIsNotConnectedTo(self) -> None:
        for host in ("10.9.9.9", "127.0.0.1", "[::1]"):
            self.assertIs(self.problem(self.ask(host)), Problem.NOT_PERMITTED, host)
        self.assertEqual(self.connections(), [])

    def test_headersWithoutEndAreRefused(self) -> None:
        """The connection is aborted."""
        self.resolver.names["public.example"] = [PUBLIC]
        asking = self.ask()
        [connection] = self.connections()
        connection.send(b"HTTP/1.1 200 OK\r\n")
        for _ in range(200):
            connection.send(b"X: " + b"x" * 1000 + b"\r\n")
        self.assertTrue(connection.isClosed)
        connection.lose()
        self.assertIs(self.problem(asking), Problem.TOO_LARGE)

    def test_newConnectionIsCheckedAgain(self) -> None:
        """A name that leads inside by then is not followed there."""
        self.resolver.names["public.example"] = [PUBLIC]
        kept = self.answered(ANSWER)
        asking = self.ask()
        self.assertIn(BODY, kept.take())
        self.resolver.names["public.example"] = ["10.9.9.9"]
        kept.lose()
        self.assertEqual(self.connections(), [])
        self.assertIs(self.problem(asking), Problem.NOT_PERMITTED)


class RepeatingTests(ConnectionTestCase):
    """
    A kept connection that its server closes just then.
    """

    def setUp(self) -> None:
        super().setUp()
        self.kept = self.answered(ANSWER)

    def askKept(self) -> Deferred[bytes]:
        """Make a request on the kept connection."""
        asking = self.ask()
        self.assertEqual(self.connections(), [])
        self.assertIn(BODY, self.kept.take())
        return asking

    def test_requestIsSentAgain(self) -> None:
        """In full, on a new connection."""
        asking = self.askKept()
        self.kept.lose()
        self.assertNoResult(asking)
        [connection] = self.connections()
        self.assertIn(BODY, connection.take())
        connection.send(ANSWER)
        self.assertEqual(self.successResultOf(asking), b"ok")

    def test_requestIsSentAgainOnce(self) -> None:
        """A new connection that closes is an answer of its server."""
        asking = self.askKept()
        self.kept.lose()
        [connection] = self.connections()
        connection.lose()
        self.assertIs(self.problem(asking), Problem.CLOSED)
        self.assertEqual(self.connections(), [])

    def test_newConnectionIsNoReasonToSendAgain(self) -> None:
        """Of a request on a connection of its own, the server may have closed it on purpose."""
        self.kept.lose()
        asking = self.ask()
        [connection] = self.connections()
        connection.lose()
        self.assertIs(self.problem(asking), Problem.CLOSED)
        self.assertEqual(self.connections(), [])

    def test_begunAnswerIsNotAskedForAgain(self) -> None:
        """One byte of it is enough, and an interim answer is one."""
        for part in (b"H", b"HTTP/1.1 100 Continue\r\n\r\n", ANSWER[:-1]):
            asking = self.askKept()
            self.kept.send(part)
            self.kept.lose()
            self.assertIs(self.problem(asking), Problem.CLOSED, part)
            self.assertEqual(self.connections(), [])
            self.kept = self.answered(ANSWER)

    def test_requestThatIsGivenUpIsNotSentAgain(self) -> None:
        """Neither by the caller, nor by its time-out."""
        asking = self.askKept()
        asking.cancel()
        self.failureResultOf(asking, CancelledError)
        self.assertEqual(self.connections(), [])
        self.kept = self.answered(ANSWER)
        asking = self.askKept()
        self.reactor.advance(TIMEOUT)
        self.assertIs(self.problem(asking), Problem.TIMEOUT)
        self.assertEqual(self.connections(), [])

    def test_bothTriesHaveOneTime(self) -> None:
        """The time-out is for the request, however often it is sent."""
        asking = self.askKept()
        self.reactor.advance(TIMEOUT - 1)
        self.kept.lose()
        [connection] = self.connections()
        self.reactor.advance(0.9)
        self.assertNoResult(asking)
        self.reactor.advance(0.1)
        self.assertIs(self.problem(asking), Problem.TIMEOUT)
        self.assertTrue(connection.isClosed)


class OnceTests(ConnectionTestCase):
    """
    Requests that must not be sent twice.
    """

    isRepeatable = False

    def test_requestIsNotSentAgain(self) -> None:
        """It may have arrived."""
        kept = self.answered(ANSWER)
        asking = self.ask()
        self.assertIn(BODY, kept.take())
        kept.lose()
        self.assertIs(self.problem(asking), Problem.CLOSED)
        self.assertEqual(self.connections(), [])
