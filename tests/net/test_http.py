"""
Tests of L{svcbroker.net.http}: requests through a real agent, over memory.
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
from svcbroker.net.http import HttpAnswer, HttpClient, HttpError, Problem, makeClient

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
        self.answer: bytes | int = b"answer"

    def render(self, request: Any) -> bytes | int:
        self.requests.append(request)
        self.bodies.append(request.content.read())
        for name, value in self.headers.items():
            request.setHeader(name, value)
        request.setResponseCode(202)
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

    def request(self, **more: Any) -> Deferred[HttpAnswer]:
        """Make a request."""
        return self.client.request(b"POST", URL, timeout=TIMEOUT, **more)

    def answer(self, **more: Any) -> HttpAnswer:
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
        self.answer(headers=Headers({b"X-A": [b"b"]}), body=b"body")
        [request] = self.server.requests
        self.assertEqual((request.method, request.uri), (b"POST", b"/x?y=%20"))
        self.assertEqual(self.server.bodies, [b"body"])
        names = {name.lower() for name, _ in request.requestHeaders.getAllRawHeaders()}
        self.assertEqual(names - {b"connection"}, {b"host", b"x-a", b"content-length"})

    def test_answerHasStatusAndHeaders(self) -> None:
        """The first value of a header counts."""
        self.server.headers = {b"X-A": b"b"}
        answer = self.answer()
        self.assertEqual(
            (answer.status, answer.header("x-a"), answer.header("x-b")), (202, "b", None)
        )


class BodyTests(ClientTestCase):
    """
    What is read.
    """

    def test_bodyIsReadUpToLimit(self) -> None:
        """No timer is left behind."""
        self.assertEqual(self.successResultOf(self.answer().read(6)), b"answer")
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_longerBodyFailsAndCloses(self) -> None:
        """It is told how long it may be."""
        reading = self.answer().read(5)
        failure = self.failureResultOf(reading, HttpError)
        self.assertEqual(str(failure.value), "answered with more than 5 bytes")

    def test_packedBodyIsNotUnpacked(self) -> None:
        """The client did not ask for one."""
        self.server.headers = {b"Content-Encoding": b"gzip"}
        self.assertIs(self.problem(self.answer().read(100)), Problem.PACKED)

    def test_brokenOffBodyFails(self) -> None:
        """Whatever it looks like."""
        self.server.answer = NOT_DONE_YET
        asking = self.request()
        self.server.requests[0].write(b"half")
        self.agent.flush()
        reading = self.successResultOf(asking).read(100)
        self.server.requests[0].transport.loseConnection()
        self.agent.flush()
        self.assertIs(self.problem(reading), Problem.CLOSED)

    def test_discardedBodyClosesConnection(self) -> None:
        """The server need not send the rest."""
        self.server.answer = NOT_DONE_YET
        asking = self.request()
        self.server.requests[0].write(b"half")
        self.agent.flush()
        self.successResultOf(asking).discard()
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
        reading = self.successResultOf(asking).read(100)
        self.clock.advance(0.9)
        self.assertNoResult(reading)
        self.clock.advance(0.1)
        self.assertIs(self.problem(reading), Problem.TIMEOUT)
        self.assertTrue(self.isClosed())

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
            asking = client.request(b"GET", url, timeout=TIMEOUT)
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
        asking = client.request(b"POST", "http://127.0.0.1/", timeout=TIMEOUT, body=b"x")
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


class PoolTests(SynchronousTestCase):
    """
    Connections that are kept.
    """

    def pool(self, **settings: Any) -> Any:
        """The connections that a client keeps."""
        client: Any = makeClient(MemoryReactorClock(), maxBody=1, **settings)
        return client._agent._pool

    def test_keptConnectionsAreBounded(self) -> None:
        """They are not kept for long, and nothing is sent again by itself."""
        pool = self.pool(keep=2)
        self.assertTrue(pool.persistent)
        self.assertEqual(pool.maxPersistentPerHost, 2)
        self.assertLess(pool.cachedConnectionTimeout, 5)
        self.assertFalse(pool.retryAutomatically)

    def test_noneIsKeptByDefault(self) -> None:
        """Each request has a connection of its own."""
        self.assertFalse(self.pool().persistent)
