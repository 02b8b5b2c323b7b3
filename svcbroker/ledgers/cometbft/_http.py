"""
Requests to an engine. The one module here that touches HTTP.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

from twisted.internet import protocol
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.endpoints import UNIXClientEndpoint
from twisted.internet.interfaces import IConsumer, IReactorTime
from twisted.python.failure import Failure
from twisted.web.client import URI, Agent, HTTPConnectionPool, ResponseDone
from twisted.web.http import PotentialDataLoss
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IAgentEndpointFactory, IBodyProducer, IResponse
from zope.interface import implementer

from ._calls import EngineError, Reason

IDLE: Final = 5
"""How long a connection is kept for the next request, in seconds. The engine closes its side
after ten, and a request that meets the closing is lost."""

CONNECTIONS: Final = 32
"""How many connections are kept."""

CONNECT_TIMEOUT: Final = 5.0

_HEADERS: Final = Headers({b"Content-Type": [b"application/json"]})
_MAX_URL: Final = 2048


def checkUrl(text: str) -> str:
    """
    Make sure that something can be an engine's URL.

    @raise ValueError: it cannot.
    """
    parts = urlsplit(text)
    if (
        parts.scheme not in {"http", "https"}
        or not parts.hostname
        or parts.query
        or parts.fragment
        or parts.path not in {"", "/"}
        or not text.isascii()
        or len(text) > _MAX_URL
        # Reading it raises C{ValueError} where it is no number.
        or parts.port == 0
    ):
        raise ValueError("not an engine's URL")
    return text


def makePool(reactor: Any) -> HTTPConnectionPool:
    """The connections that are kept for the next request. Closed by who has it made."""
    pool = HTTPConnectionPool(reactor)
    # What was handed in may have arrived. Who asked decides if it is handed in again.
    pool.retryAutomatically = False
    pool.maxPersistentPerHost = CONNECTIONS
    pool.cachedConnectionTimeout = IDLE
    return pool


@implementer(IAgentEndpointFactory)
class _Socket:
    """Connects to one Unix socket, whatever the URL."""

    def __init__(self, reactor: Any, path: Path) -> None:
        self._reactor = reactor
        self._path = path

    def endpointForURI(self, uri: URI) -> UNIXClientEndpoint:
        """See C{IAgentEndpointFactory}."""
        return UNIXClientEndpoint(self._reactor, str(self._path), timeout=CONNECT_TIMEOUT)


def makeAgent(reactor: Any, pool: HTTPConnectionPool, place: str | Path) -> IAgent:
    """
    What speaks to an engine in the daemon.

    @param pool: connections to this engine and to no other one.
    @param place: the engine's URL, or the path of its Unix socket.
    """
    agent: IAgent
    if isinstance(place, Path):
        agent = Agent.usingEndpointFactory(reactor, _Socket(reactor, place), pool)
    else:
        agent = Agent(reactor, connectTimeout=CONNECT_TIMEOUT, pool=pool)
    return agent


def urlOf(place: str | Path) -> str:
    """The URL to ask an engine at."""
    return "http://localhost" if isinstance(place, Path) else place


@implementer(IBodyProducer)
class _Body:
    """A body that is there."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.length = len(data)

    def startProducing(self, consumer: IConsumer) -> Deferred[None]:
        consumer.write(self._data)
        return succeed(None)

    def stopProducing(self) -> None:
        """Everything is written."""

    def pauseProducing(self) -> None:
        """Everything is written."""

    def resumeProducing(self) -> None:
        """Everything is written."""


class _Gatherer(protocol.Protocol):
    """Gathers an answer's body."""

    transport: Any

    def __init__(self, limit: int) -> None:
        self.done: Deferred[bytes] = Deferred(lambda _: self._leave())
        self._limit = limit
        self._data = bytearray()

    def _leave(self) -> None:
        if self.transport is not None:
            self.transport.loseConnection()

    def dataReceived(self, data: bytes) -> None:
        self._data += data
        if len(self._data) > self._limit and not self.done.called:
            words = f"the answer has more than {self._limit} bytes"
            self.done.errback(EngineError(Reason.BAD_ANSWER, words))
            self._leave()

    def connectionLost(self, reason: Failure = protocol.connectionDone) -> None:
        if self.done.called:
            return
        if reason.check(ResponseDone, PotentialDataLoss):
            self.done.callback(bytes(self._data))
        else:
            self.done.errback(reason)


class EngineDoor:
    """
    Where one engine takes requests.
    """

    def __init__(
        self, agent: IAgent, clock: IReactorTime, url: str, timeout: float, maxAnswer: int
    ) -> None:
        """
        @param timeout: how long a request may take in all, in seconds.
        @param maxAnswer: the most bytes that an answer may have.
        """
        self._agent = agent
        self._clock = clock
        self._url = url.encode("ascii")
        self._timeout = timeout
        self._maxAnswer = maxAnswer

    def post(self, body: bytes) -> Deferred[bytes]:
        """
        Send a request.

        @return: fires with the answer's body, whatever its status: the engine explains itself
            there. Cancelling ends the request.
        @raise EngineError: there is no answer, or it is too large.
        """
        asked: Deferred[IResponse] = self._agent.request(b"POST", self._url, _HEADERS, _Body(body))
        answered: Deferred[bytes] = asked.addCallback(self._gather)
        # The time-out is outermost: what a request that is cancelled fails with depends on how far
        # it has come.
        answered.addErrback(_explain)
        return answered.addTimeout(self._timeout, self._clock, self._giveUp)

    def _gather(self, response: IResponse) -> Deferred[bytes]:
        gatherer = _Gatherer(self._maxAnswer)
        response.deliverBody(gatherer)
        return gatherer.done

    def _giveUp(self, result: object, timeout: float) -> Failure:
        return Failure(EngineError(Reason.TIMEOUT, f"no answer within {timeout:g} seconds"))


def _explain(failure: Failure) -> NoReturn:
    if failure.check(EngineError, CancelledError):
        failure.raiseException()
    # A request that fails half-way has its reasons in a list.
    reasons = getattr(failure.value, "reasons", None) or [failure]
    raise EngineError(Reason.UNREACHABLE, reasons[0].getErrorMessage()) from failure.value
