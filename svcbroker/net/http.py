"""
Requests over HTTP: treq on the bounded agent of L{svcbroker.net.agent}.

No redirects are followed, no cookies kept, no answers unpacked and no proxies used.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from attrs import frozen
from hyperlink import EncodedURL
from treq.client import HTTPClient
from treq.cookies import IndexableCookieJar
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.interfaces import IConsumer, IHostnameResolver, IReactorTime
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http import PotentialDataLoss
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IBodyProducer, IPolicyForHTTPS, IResponse
from zope.interface import implementer

from .agent import CONNECT_TIMEOUT, BoundedAgent, ConnectionPool, explain, makeAgent
from .policy import AddressPolicy


@implementer(IBodyProducer)
@frozen
class _Body:
    """A request's body that is known from the beginning, so that it can be sent again."""

    _data: bytes

    @property
    def length(self) -> int:
        return len(self._data)

    def startProducing(self, consumer: IConsumer) -> Deferred[None]:
        consumer.write(self._data)
        return succeed(None)

    def stopProducing(self) -> None:
        """Everything is written."""

    def pauseProducing(self) -> None:
        """Everything is written."""

    def resumeProducing(self) -> None:
        """Everything is written."""


class _ExactUrl(EncodedURL):
    """
    A URL that is sent as it was given. Hyperlink would refuse addresses of IPv6 and names with an
    underscore, and write others differently.
    """

    def __init__(self, text: str) -> None:
        """
        @raise ValueError: it is not ASCII.
        """
        text.encode("ascii")
        self._text = text

    def to_uri(self) -> EncodedURL:
        """This URL."""
        return self

    def to_text(self, with_password: bool = False) -> str:
        """The text as it was given."""
        return self._text


class _NoCookies(IndexableCookieJar):
    """Keeps no cookies, and reads none."""

    def add_cookie_header(self, request: Any) -> None:
        """Nothing is added."""

    def extract_cookies(self, response: Any, request: Any) -> None:
        """Nothing is kept."""


_NO_COOKIES: Final = _NoCookies()


class HttpClient:
    """
    Makes requests with treq.
    """

    def __init__(
        self,
        agent: IAgent,
        clock: IReactorTime,
        close: Callable[[], Deferred[Any]] = lambda: succeed(None),
    ) -> None:
        """
        @param agent: connects: what L{makeAgent} gives, or a test's over memory.
        @param close: closes the connections that are kept.
        """
        self._agent = agent
        self._clock = clock
        self.close = close

    def request(
        self,
        method: str,
        url: str,
        *,
        timeout: float,
        maxBody: int,
        headers: Headers | None = None,
        data: bytes | None = None,
    ) -> Deferred[Any]:
        """
        Make a request.

        @param url: an ASCII URL in its encoded form.
        @param timeout: how long all of it may take, reading the answer's body included, in
            seconds.
        @param maxBody: the most that the answer's body may have, in bytes.
        @param data: the body.
        @return: fires with treq's response when the headers have arrived, whatever its status. Its
            body must be read with L{readBody}, or discarded with L{discardBody}. Cancelling ends
            the request.
        @raise HttpError: there is no answer.
        """
        agent = BoundedAgent(self._agent, self._clock, timeout, maxBody)
        # Without a reactor, treq would import the global one.
        reactor: Any = self._clock
        asking: Deferred[Any] = maybeDeferred(
            HTTPClient(agent, _NO_COOKIES, _Body).request,
            method,
            _ExactUrl(url),
            headers=headers,
            data=data,
            allow_redirects=False,
            unbuffered=True,
            reactor=reactor,
        )
        return asking.addErrback(explain)


class _BodyCollector(Protocol):
    """
    Collects an answer's body.

    @ivar done: fires with it. Cancelling it closes the connection.
    """

    transport: Any

    def __init__(self) -> None:
        self.done: Deferred[bytes] = Deferred(lambda _: self.transport.loseConnection())
        self._data = bytearray()

    def dataReceived(self, data: bytes) -> None:
        self._data += data

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self.done.called:
            return
        if reason.check(ResponseDone, PotentialDataLoss):
            self.done.callback(bytes(self._data))
        else:
            self.done.errback(reason)


class _DiscardingProtocol(Protocol):
    """Closes the connection of an answer that is not read."""

    transport: Any

    def connectionMade(self) -> None:
        self.transport.loseConnection()


def readBody(answer: IResponse) -> Deferred[bytes]:
    """
    Read the body of an answer, in the time that its request has left.

    @return: fires with it. Cancelling ends the request, which treq's own C{content} does not.
    @raise HttpError: it is longer than allowed, broken off, late, or packed.
    """
    collector = _BodyCollector()
    answer.deliverBody(collector)
    return collector.done


def discardBody(answer: IResponse) -> None:
    """Do not read the body of an answer: close the connection."""
    answer.deliverBody(_DiscardingProtocol())


def headerOf(answer: IResponse, name: str) -> str | None:
    """The first value of a header of an answer; C{None} where there is none."""
    values: list[str] | None = answer.headers.getRawHeaders(name)
    return values[0] if values else None


def basicAuthorization(name: str, password: str) -> bytes:
    """The value of the header C{Authorization} for a name and a password (RFC 7617)."""
    return b"Basic " + b64encode(f"{name}:{password}".encode())


def makeClient(
    reactor: Any,
    *,
    maxBody: int,
    keep: int = 0,
    isRepeatable: bool = False,
    connectTimeout: float = CONNECT_TIMEOUT,
    tls: IPolicyForHTTPS | None = None,
    policy: AddressPolicy | None = None,
    resolver: IHostnameResolver | None = None,
    path: Path | None = None,
) -> HttpClient:
    """
    A client over the network.

    @param maxBody: the longest body that is ever read, in bytes.
    @param keep: how many idle connections are kept for each host, for L{IDLE
        <svcbroker.net.agent.IDLE>} seconds.
    @param isRepeatable: whether a request that failed on a kept connection before a byte of the
        answer came is sent again.
    @param connectTimeout: how long connecting may take, in seconds.
    @param tls: verifies certificates; by default with the trust roots of the system.
    @param policy: the addresses that may be connected to; C{None} for any.
    @param resolver: resolves the names that a policy is for; the reactor's by default.
    @param path: the Unix socket that is connected to, whatever the URL.
    """
    pool = ConnectionPool(reactor, keep=keep, isRepeatable=isRepeatable)
    agent = makeAgent(
        reactor,
        pool,
        maxBody=maxBody,
        connectTimeout=connectTimeout,
        tls=tls,
        policy=policy,
        resolver=resolver,
        path=path,
    )
    return HttpClient(agent, reactor, pool.closeCachedConnections)
