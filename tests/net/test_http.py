"""
Tests of L{svcbroker.net.http}: requests with treq, over memory.
"""

from __future__ import annotations

from typing import Any

from OpenSSL import SSL
from service_identity import VerificationError
from treq.testing import RequestTraversalAgent
from twisted.internet.address import IPv4Address
from twisted.internet.defer import CancelledError, Deferred, fail
from twisted.internet.error import (
    ConnectingCancelledError,
    ConnectionAborted,
    ConnectionDone,
    ConnectionLost,
    ConnectionRefusedError,
    DNSLookupError,
)
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.logger import globalLogPublisher
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web._newclient import ParseError
from twisted.web.client import ResponseFailed, ResponseNeverReceived
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IResponse
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET
from zope.interface import implementer
from zope.interface.verify import verifyObject

from svcbroker.net.endpoints import AddressRefused
from svcbroker.net.http import (
    IDLE,
    BoundedAgent,
    BoundedResponse,
    ConnectionPool,
    HttpClient,
    HttpError,
    Problem,
    discardBody,
    headerOf,
    makeAgent,
    makeClient,
    readBody,
)
from tests.carriers.webhook.support import PUBLIC, SETTINGS, FakeResolver

URL = "http://a.example/x?y=%20"
TIMEOUT = 10.0


class Server(Resource):
    """
    Answers as it is told.
    """

    isLeaf = True

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[Any] = []
        self.bodies: list[bytes] = []
        self.headers: dict[bytes, bytes] = {}
        self.status = 202
        self.answer: bytes | int = b"answer"

    def render(self, request: Any) -> bytes | int:
        self.requests.append(request)
        self.bodies.append(request.content.read())
        for name, value in self.headers.items():
            request.setHeader(name, value)
        request.setResponseCode(self.status)
        return self.answer


@implementer(IAgent)
class FailingAgent:
    """An agent whose requests fail."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def request(self, *args: Any, **kwargs: Any) -> Deferred[Any]:
        return fail(self.error)


class ClientTestCase(SynchronousTestCase):
    """
    A client and a server.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.server = Server()
        self.agent: Any = RequestTraversalAgent(self.server)
        self.client = HttpClient(self.agent, self.clock)

    def request(self, **more: Any) -> Deferred[Any]:
        """Make a request."""
        more.setdefault("maxBody", 100)
        return self.client.request("POST", URL, timeout=TIMEOUT, **more)

    def answer(self, **more: Any) -> Any:
        """The answer, whose body is not read yet."""
        return self.successResultOf(self.request(**more))

    def problem(self, asking: Deferred[Any]) -> Problem:
        """The reason for having no answer."""
        error = self.failureResultOf(asking, HttpError).value
        assert isinstance(error, HttpError)
        return error.problem

    def isClosed(self) -> bool:
        """Whether the server has lost the connection of the last request."""
        self.agent.flush()
        return bool(self.server.requests[-1]._disconnected)


class RequestTests(ClientTestCase):
    """
    The requests that are sent.
    """

    def test_requestIsSentAsGiven(self) -> None:
        """Method, URL, headers and body, and no header that asks for more."""
        self.answer(headers=Headers({b"X-A": [b"b"]}), data=b"body")
        [request] = self.server.requests
        self.assertEqual((request.method, request.uri), (b"POST", b"/x?y=%20"))
        self.assertEqual(self.server.bodies, [b"body"])
        names = {name.lower() for name, _ in request.requestHeaders.getAllRawHeaders()}
        self.assertEqual(names - {b"connection"}, {b"host", b"x-a", b"content-length"})

    def test_urlsAreSentAsGiven(self) -> None:
        """Also those that Hyperlink, treq's parser, refuses or writes differently."""
        for host, path in (
            ("[::1]:8080", "/a"),
            ("ho_st", "/?x"),
            ("10.0.0.1:80", "/a//b/../c%2f%2F?x={y}&&z=%zz;"),
        ):
            url = f"http://{host}{path}"
            asking = self.client.request("GET", url, timeout=TIMEOUT, maxBody=100)
            self.assertEqual(self.successResultOf(asking).code, 202)
            request = self.server.requests[-1]
            self.assertEqual(request.uri, path.encode())
            self.assertEqual(request.getHeader("host"), host.removesuffix(":80"))

    def test_redirectsAreNotFollowed(self) -> None:
        """They are answers."""
        self.server.headers = {b"Location": b"http://127.0.0.1/inside"}
        for status in (301, 302, 303, 307, 308):
            self.server.status = status
            self.assertEqual(self.answer().code, status)
        self.assertEqual(len(self.server.requests), 5)

    def test_cookiesAreNotKept(self) -> None:
        """Neither for the next request, nor for the answer's."""
        self.server.headers = {b"Set-Cookie": b"a=b"}
        self.assertEqual(list(self.answer().cookies()), [])
        self.answer()
        self.assertIsNone(self.server.requests[1].getHeader("cookie"))

    def test_answerHasStatusAndHeaders(self) -> None:
        """The first value of a header counts."""
        self.server.headers = {b"X-A": b"b"}
        answer = self.answer()
        self.assertEqual(
            (answer.code, headerOf(answer, "x-a"), headerOf(answer, "x-b")), (202, "b", None)
        )


class BodyTests(ClientTestCase):
    """
    The answers that are read.
    """

    def test_bodyIsReadUpToLimit(self) -> None:
        """No timer is left behind."""
        self.assertEqual(self.successResultOf(readBody(self.answer(maxBody=6))), b"answer")
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_longerBodyFailsAndCloses(self) -> None:
        """It is told how long it may be."""
        reading = readBody(self.answer(maxBody=5))
        failure = self.failureResultOf(reading, HttpError)
        self.assertEqual(str(failure.value), "answered with more than 5 bytes")

    def test_packedBodyIsNotUnpacked(self) -> None:
        """The client did not ask for one."""
        self.server.headers = {b"Content-Encoding": b"gzip"}
        self.assertIs(self.problem(readBody(self.answer())), Problem.PACKED)

    def test_brokenOffBodyFails(self) -> None:
        """Whatever it looks like."""
        self.server.answer = NOT_DONE_YET
        asking = self.request()
        self.server.requests[0].write(b"half")
        self.agent.flush()
        reading = readBody(self.successResultOf(asking))
        self.server.requests[0].transport.loseConnection()
        self.agent.flush()
        self.assertIs(self.problem(reading), Problem.CLOSED)

    def test_discardedBodyClosesConnection(self) -> None:
        """The server need not send the rest."""
        self.server.answer = NOT_DONE_YET
        asking = self.request()
        self.server.requests[0].write(b"half")
        self.agent.flush()
        discardBody(self.successResultOf(asking))
        self.assertTrue(self.isClosed())


class TimeoutTests(ClientTestCase):
    """
    Time-outs, and cancelling before.
    """

    def setUp(self) -> None:
        super().setUp()
        self.server.answer = NOT_DONE_YET

    def test_silentServerTimesOut(self) -> None:
        """The connection is closed."""
        asking = self.request()
        self.clock.advance(TIMEOUT - 0.1)
        self.assertNoResult(asking)
        self.clock.advance(0.1)
        self.assertIs(self.problem(asking), Problem.TIMEOUT)
        self.assertTrue(self.isClosed())

    def test_bodyHasTheRestOfTheTime(self) -> None:
        """The time-out is for the whole request."""
        asking = self.request()
        self.clock.advance(TIMEOUT - 1)
        self.server.requests[0].write(b"half")
        self.agent.flush()
        reading = readBody(self.successResultOf(asking))
        self.clock.advance(0.9)
        self.assertNoResult(reading)
        self.clock.advance(0.1)
        self.assertIs(self.problem(reading), Problem.TIMEOUT)
        self.assertTrue(self.isClosed())

    def test_cancelledReadingClosesConnection(self) -> None:
        """No timer is left behind."""
        asking = self.request()
        self.server.requests[0].write(b"half")
        self.agent.flush()
        reading = readBody(self.successResultOf(asking))
        reading.cancel()
        self.failureResultOf(reading, CancelledError)
        self.assertTrue(self.isClosed())
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_treqsOwnReadingIsBounded(self) -> None:
        """Whoever reads the body, the agent bounds it."""
        asking = self.request(maxBody=5)
        self.server.requests[0].write(b"four")
        self.agent.flush()
        reading = self.successResultOf(asking).content()
        self.server.requests[0].write(b"more")
        self.agent.flush()
        self.assertIs(self.problem(reading), Problem.TOO_LARGE)
        self.assertTrue(self.isClosed())
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_cancellingClosesConnection(self) -> None:
        """No timer is left behind."""
        asking = self.request()
        asking.cancel()
        self.failureResultOf(asking, CancelledError)
        self.assertTrue(self.isClosed())
        self.assertEqual(self.clock.getDelayedCalls(), [])


class ProblemTests(ClientTestCase):
    """
    The reason for having no answer.
    """

    def test_errorsOfTheNetworkHaveWords(self) -> None:
        """Also those that stand in a list of reasons."""
        gone, tls = [Failure(ConnectionLost())], [Failure(SSL.Error())]
        failed = ("SSL routines", "", "certificate verify failed")
        for error, problem in (
            (ValueError("invalid hostname"), Problem.BAD_HOST),
            (DNSLookupError(), Problem.NO_ADDRESS),
            (AddressRefused(), Problem.NOT_PERMITTED),
            (ConnectionRefusedError(), Problem.UNREACHABLE),
            (ResponseNeverReceived([Failure(ConnectionRefusedError())]), Problem.UNREACHABLE),
            (ResponseNeverReceived(gone), Problem.CLOSED),
            (ResponseNeverReceived([]), Problem.CLOSED),
            (ResponseNeverReceived(tls), Problem.TLS),
            (ResponseNeverReceived([Failure(SSL.Error([failed]))]), Problem.NOT_TRUSTED),
            (ResponseNeverReceived([Failure(VerificationError([]))]), Problem.OTHER_NAME),
            (ResponseFailed([Failure(ParseError("x", b""))], None), Problem.NOT_HTTP),
            (ResponseFailed([Failure(ValueError())], None), Problem.NOT_HTTP),
        ):
            self.client = HttpClient(FailingAgent(error), self.clock)
            self.assertIs(self.problem(self.request()), problem)

    def test_impossibleUrlsFailTheRequest(self) -> None:
        """An error that the agent raises at once is an error of the request, too."""
        client = makeClient(MemoryReactorClock(), maxBody=1)
        for url in ("http://a b/", "http://[::1/", "http://[zz]/", "http:///x"):
            asking = client.request("GET", url, timeout=TIMEOUT, maxBody=1)
            failure = self.failureResultOf(asking, HttpError)
            self.assertIs(failure.value.problem, Problem.BAD_HOST, url)

    def test_cancelledRequestIsCancelled(self) -> None:
        """However far it was."""
        for error in (
            ConnectingCancelledError(None),
            ResponseNeverReceived([Failure(CancelledError())]),
        ):
            self.client = HttpClient(FailingAgent(error), self.clock)
            self.failureResultOf(self.request(), CancelledError)

    def test_otherErrorsStayWhatTheyAre(self) -> None:
        """A mistake of ours is not told as the server's."""
        self.client = HttpClient(FailingAgent(ZeroDivisionError()), self.clock)
        self.failureResultOf(self.request(), ZeroDivisionError)


class InterimTests(SynchronousTestCase):
    """
    A server that answers C{100 Continue} without end.
    """

    def test_endlessInterimResponsesAreNotLogged(self) -> None:
        """twisted.web would log each of them."""
        events: list[Any] = []
        observer: Any = events.append
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)
        reactor = MemoryReactorClock()
        client = makeClient(reactor, maxBody=64 * 1024)
        asking = client.request("POST", "http://127.0.0.1/", timeout=TIMEOUT, maxBody=1, data=b"x")
        reactor.advance(0)
        [(_, _, factory, _, _)] = reactor.tcpClients
        protocol: Any = factory.buildProtocol(IPv4Address("TCP", "127.0.0.1", 80))
        transport = StringTransport()
        protocol.makeConnection(transport)
        for _ in range(1000):
            if transport.disconnected:
                break
            protocol.dataReceived(b"HTTP/1.1 100 Continue\r\n\r\n" * 10)
        protocol.connectionLost(Failure(ConnectionAborted()))
        failure = self.failureResultOf(asking, HttpError)
        self.assertIs(failure.value.problem, Problem.TOO_LARGE)
        self.assertEqual([each for each in events if "code" in each], [])


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
        """The reason for having no answer."""
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
    Refusals, through all layers.
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
