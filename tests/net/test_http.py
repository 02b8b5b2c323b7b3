"""
Tests of L{svcbroker.net.http}: requests with treq, over memory.
"""

from __future__ import annotations

from typing import Any

from OpenSSL import SSL
from treq.testing import RequestTraversalAgent
from twisted.internet.address import IPv4Address
from twisted.internet.defer import CancelledError, Deferred, fail
from twisted.internet.error import (
    ConnectingCancelledError,
    ConnectionAborted,
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
from twisted.web.iweb import IAgent
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET
from zope.interface import implementer

from svcbroker.net.endpoints import AddressRefused
from svcbroker.net.http import (
    HttpClient,
    HttpError,
    Problem,
    discardBody,
    headerOf,
    makeClient,
    readBody,
)

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
        """Why there is no answer."""
        error = self.failureResultOf(asking, HttpError).value
        assert isinstance(error, HttpError)
        return error.problem

    def isClosed(self) -> bool:
        """Whether the server has lost the connection of the last request."""
        self.agent.flush()
        return bool(self.server.requests[-1]._disconnected)


class RequestTests(ClientTestCase):
    """
    What is sent.
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
    What is read.
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
    How long it may take, and giving up before.
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
    Why there is no answer.
    """

    def test_errorsOfTheNetworkHaveWords(self) -> None:
        """Also those that stand in a list of reasons."""
        gone, tls = [Failure(ConnectionLost())], [Failure(SSL.Error())]
        for error, problem in (
            (ValueError("invalid hostname"), Problem.BAD_HOST),
            (DNSLookupError(), Problem.NO_ADDRESS),
            (AddressRefused(), Problem.NOT_PERMITTED),
            (ConnectionRefusedError(), Problem.UNREACHABLE),
            (ResponseNeverReceived([Failure(ConnectionRefusedError())]), Problem.UNREACHABLE),
            (ResponseNeverReceived(gone), Problem.CLOSED),
            (ResponseNeverReceived([]), Problem.CLOSED),
            (ResponseNeverReceived(tls), Problem.TLS),
            (ResponseFailed([Failure(ParseError("x", b""))], None), Problem.NOT_HTTP),
            (ResponseFailed([Failure(ValueError())], None), Problem.NOT_HTTP),
        ):
            self.client = HttpClient(FailingAgent(error), self.clock)
            self.assertIs(self.problem(self.request()), problem)

    def test_impossibleUrlsFailTheRequest(self) -> None:
        """What the agent raises at once is an error of the request, too."""
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
