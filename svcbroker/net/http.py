"""
Requests over HTTP: treq on an agent whose connections, requests and answers are bounded in time and
size, and go to permitted addresses only.

No redirects are followed, no cookies kept, no answers unpacked and no proxies used.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Hashable
from enum import Enum
from pathlib import Path
from typing import Any, Final, NoReturn
from weakref import WeakSet

from attrs import frozen
from hyperlink import EncodedURL
from OpenSSL import SSL
from OpenSSL.crypto import X509
from service_identity import VerificationError
from treq.client import HTTPClient
from treq.cookies import IndexableCookieJar
from twisted.internet.defer import CancelledError, Deferred, maybeDeferred, succeed
from twisted.internet.error import (
    ConnectError,
    ConnectingCancelledError,
    ConnectionClosed,
    DNSLookupError,
)
from twisted.internet.interfaces import (
    IConsumer,
    IDelayedCall,
    IHostnameResolver,
    IOpenSSLClientConnectionCreator,
    IProtocol,
    IReactorTime,
    IStreamClientEndpoint,
)
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.ssl import Certificate, optionsForClientTLS, trustRootFromCertificates
from twisted.python.components import proxyForInterface
from twisted.python.failure import Failure
from twisted.web.client import (
    Agent,
    BrowserLikePolicyForHTTPS,
    HTTPConnectionPool,
    RequestTransmissionFailed,
    ResponseDone,
    ResponseFailed,
    ResponseNeverReceived,
)
from twisted.web.http import PotentialDataLoss
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IBodyProducer, IPolicyForHTTPS, IResponse
from zope.interface import implementer

from .endpoints import AddressPolicy, AddressRefused, BoundedEndpoints, TooMuchReceived
from .pem import ClientIdentity, readCertificates

IDLE: Final = 4
"""Seconds that a connection is kept for the next request. Widely used servers close theirs
after five, and a request that meets the closing is lost."""

CONNECT_TIMEOUT: Final = 30.0
"""Seconds that connecting may take by default."""

_MARGIN: Final = 128 * 1024
"""
The bytes that are received beside a body: headers, and the rest of the piece that was too much.
"""
_BROKEN: Final = (RequestTransmissionFailed, ResponseFailed, ResponseNeverReceived)
_UNANSWERED: Final = (RequestTransmissionFailed, ResponseNeverReceived)
_NOT_VERIFIED: Final = "certificate verify failed"
"""A part of the error that OpenSSL raises for a certificate of the other side."""


@implementer(IPolicyForHTTPS)
@frozen
class CertificatePolicy:
    """
    Shows a certificate of ours to servers, where there is one, and verifies theirs: with a trust
    root of ours, or with those of the system.
    """

    _certificate: ClientIdentity | None
    _trustRoot: Any = None

    @classmethod
    def load(cls, certificate: Path | None, authorities: Path | None) -> CertificatePolicy:
        """
        Read certificates. Blocks.

        @param certificate: see L{ClientIdentity.load}; C{None} where none is shown.
        @param authorities: a PEM file with the trusted ones; C{None} for those of the system.
        @raise CertificateError, OSError: a file cannot be used.
        """
        shown = None if certificate is None else ClientIdentity.load(certificate)
        if authorities is None:
            return cls(shown)
        trusted = readCertificates(authorities)
        found = [Certificate(X509.from_cryptography(each)) for each in trusted]
        return cls(shown, trustRootFromCertificates(found))

    def creatorForNetloc(self, hostname: bytes, port: int) -> IOpenSSLClientConnectionCreator:
        """See C{IPolicyForHTTPS}."""
        creator: IOpenSSLClientConnectionCreator = optionsForClientTLS(
            hostname.decode("ascii"),
            trustRoot=self._trustRoot,
            extraCertificateOptions=dict(self._certificate.options) if self._certificate else None,
        )
        return creator


class Problem(Enum):
    """
    A reason for having no answer; the value is the end of a sentence that begins with the server.
    """

    BAD_HOST = "cannot be found: its URL has no host that there can be"
    NO_ADDRESS = "cannot be found: its name has no address"
    NOT_PERMITTED = "has no address and port that may be connected to"
    UNREACHABLE = "cannot be reached"
    NOT_TRUSTED = "has a certificate of an unknown authority, or one that is not valid at this time"
    OTHER_NAME = "has a certificate of another name"
    TLS = "speaks no TLS, or requires a certificate of ours"
    CLOSED = "closed the connection before it had answered"
    NOT_HTTP = "answered with something that is not HTTP"
    PACKED = "packed its answer, which it was not asked to"
    TOO_LARGE = "answered with more than any answer has"
    TIMEOUT = "gave no answer in time"


# The first of these that one of the reasons is of.
_KINDS: Final[tuple[tuple[Problem, type[Exception]], ...]] = (
    (Problem.NOT_PERMITTED, AddressRefused),
    (Problem.NO_ADDRESS, DNSLookupError),
    (Problem.UNREACHABLE, ConnectError),
    (Problem.OTHER_NAME, VerificationError),
    (Problem.TLS, SSL.Error),
    (Problem.TOO_LARGE, TooMuchReceived),
    (Problem.CLOSED, ConnectionClosed),
)


class HttpError(Exception):
    """
    A request has no answer that can be used. The text is the end of a sentence that begins with
    the server: C{cannot be reached}.

    @ivar problem: what kind of error it is.
    @ivar detail: what the transport says; the text where it says nothing.
    """

    def __init__(self, problem: Problem, text: str = "", detail: str = "") -> None:
        super().__init__(text or problem.value)
        self.problem = problem
        self.detail = detail or str(self)


class ConnectionPool(HTTPConnectionPool):
    """
    The connections that are kept for the next request to the same server.

    None is kept on which the last answer was of HTTP/1.0 or said C{Connection: close}, in any
    spelling: its server closes it, and the next request would meet the closing.
    """

    def __init__(
        self, reactor: Any, *, keep: int, idle: int = IDLE, isRepeatable: bool = False
    ) -> None:
        """
        @param keep: how many idle connections are kept for each server; 0 for none.
        @param idle: how long one is kept, in seconds.
        @param isRepeatable: whether a request is sent again, on a new connection, if it failed on
            a kept one before a byte of the answer came. The connections must be those of
            L{BoundedEndpoints}.
        """
        super().__init__(reactor, persistent=keep > 0)
        self.maxPersistentPerHost = keep
        self.cachedConnectionTimeout = idle
        # Twisted would repeat GET alone, and not when a part of the answer's head had come.
        self.retryAutomatically = False
        self._isRepeatable = isRepeatable
        self._kept: WeakSet[Any] = WeakSet()

    def getConnection(self, key: Hashable, endpoint: IStreamClientEndpoint) -> Deferred[Any]:
        """See C{HTTPConnectionPool}."""
        getting: Deferred[Any] = super().getConnection(key, endpoint)
        return getting.addCallback(self._repeating, lambda: self._newConnection(key, endpoint))

    def _repeating(self, connection: Any, connect: Callable[[], Deferred[Any]]) -> Any:
        if self._isRepeatable and connection in self._kept:
            return _KeptConnection(connection, connect)
        return connection

    def _putConnection(self, key: Hashable, connection: Any) -> None:
        """A request was answered in full. Called by the connection."""
        parser = connection._parser
        said = b",".join(parser.connHeaders.getRawHeaders(b"Connection", ())).lower().split(b",")
        if parser.response.version < (b"HTTP", 1, 1) or b"close" in map(bytes.strip, said):
            connection.transport.loseConnection()
            return
        self._kept.add(connection)
        super()._putConnection(key, connection)


@frozen
class _KeptConnection:
    """
    A kept connection, which its server may be closing.
    """

    _connection: Any
    _connect: Callable[[], Deferred[Any]]

    def request(self, request: Any) -> Deferred[IResponse]:
        """Send a request here, or on a new connection if the server closed this one."""
        asking: Deferred[IResponse] = self._connection.request(request)
        return asking.addErrback(self._repeat, request)

    def _repeat(self, failure: Failure, request: Any) -> Any:
        # What a request that was given up fails with has that in its list of reasons.
        reasons: list[Failure] = getattr(failure.value, "reasons", None) or []
        if (
            not failure.check(*_UNANSWERED)
            or self._connection.transport.received
            or any(each.check(CancelledError, TooMuchReceived) for each in reasons)
        ):
            return failure
        return self._connect().addCallback(lambda connection: connection.request(request))


class _BoundedBody(Protocol):
    """
    Passes on an answer's body as far as it keeps its bounds; then closes the connection.
    """

    transport: Any

    def __init__(self, reader: IProtocol, limit: int, isPacked: bool) -> None:
        self._reader: IProtocol | None = reader
        self._limit = limit
        self._isPacked = isPacked
        self._received = 0
        self._timer: IDelayedCall | None = None

    def start(self, clock: IReactorTime, seconds: float) -> None:
        """Give the body some time, where it has not ended yet."""
        if self._reader is not None:
            late = HttpError(Problem.TIMEOUT, detail="the rest of the answer did not come in time")
            self._timer = clock.callLater(seconds, self._refuse, late)

    def connectionMade(self) -> None:
        assert self._reader is not None
        self._reader.makeConnection(self.transport)
        if self._isPacked:
            # What is packed can be a thousand times as large as it looks.
            self._refuse(HttpError(Problem.PACKED))

    def dataReceived(self, data: bytes) -> None:
        self._received += len(data)
        if self._received > self._limit:
            text = f"answered with more than {self._limit} bytes"
            self._refuse(HttpError(Problem.TOO_LARGE, text))
        elif self._reader is not None:
            self._reader.dataReceived(data)

    def _refuse(self, error: HttpError) -> None:
        self._end(Failure(error))
        self.transport.loseConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self._reader is not None and not reason.check(ResponseDone, PotentialDataLoss):
            try:
                explain(reason)
            except Exception:
                reason = Failure()
        self._end(reason)

    def _end(self, reason: Failure) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.connectionLost(reason)


class BoundedResponse(proxyForInterface(IResponse)):  # type: ignore[misc]
    """
    An answer whose headers have arrived. Reading its body fails with L{HttpError} where it is
    too long, broken off, late or packed.
    """

    original: IResponse

    def __init__(
        self, original: IResponse, clock: IReactorTime, deadline: float, limit: int
    ) -> None:
        super().__init__(original)
        self._clock = clock
        self._deadline = deadline
        self._limit = limit
        # Without the header, nothing above unpacks the body.
        self._isPacked = original.headers.hasHeader(b"Content-Encoding")
        original.headers.removeHeader(b"Content-Encoding")

    def deliverBody(self, protocol: IProtocol) -> None:
        """See C{IResponse}."""
        body = _BoundedBody(protocol, self._limit, self._isPacked)
        self.original.deliverBody(body)
        body.start(self._clock, max(0.0, self._deadline - self._clock.seconds()))


@implementer(IAgent)
@frozen
class BoundedAgent:
    """
    Bounds the requests of another agent in time, and their answers in size.

    @ivar agent: connects: what L{makeAgent} gives, or a test's over memory.
    @ivar timeout: how long a request may take, reading the answer's body included, in seconds.
    @ivar maxBody: the most that the body of an answer may have, in bytes.
    """

    agent: IAgent
    clock: IReactorTime
    timeout: float
    maxBody: int

    def request(
        self,
        method: bytes,
        uri: bytes,
        headers: Headers | None = None,
        bodyProducer: IBodyProducer | None = None,
    ) -> Deferred[IResponse]:
        """
        See C{IAgent}. No packed answers are asked for.

        @param headers: changed here. treq gives a copy of those that it was given.
        @return: fires when the answer's headers have arrived, whatever its status. Cancelling
            ends the request.
        @raise HttpError: there is no answer.
        """
        deadline = self.clock.seconds() + self.timeout
        if headers is not None:
            headers.removeHeader(b"Accept-Encoding")
        # An agent raises at once what it finds in the URL.
        asking: Deferred[Any] = maybeDeferred(
            self.agent.request, method, uri, headers, bodyProducer
        )
        # The time-out is outermost: what a cancelled request fails with depends on how far it is.
        asking.addErrback(explain).addTimeout(self.timeout, self.clock, _timedOut)
        return asking.addCallback(BoundedResponse, self.clock, deadline, self.maxBody)


def makeAgent(
    reactor: Any,
    pool: HTTPConnectionPool,
    *,
    maxBody: int,
    connectTimeout: float = CONNECT_TIMEOUT,
    tls: IPolicyForHTTPS | None = None,
    policy: AddressPolicy | None = None,
    resolver: IHostnameResolver | None = None,
    path: Path | None = None,
) -> IAgent:
    """
    An agent over the network, whose connections are bounded in what they receive. It follows no
    redirects and uses no proxies. What it returns is to be bounded in time by L{BoundedAgent}.

    @param pool: keeps connections.
    @param maxBody: the longest body that is ever read, in bytes; with 128 KiB more, for headers,
        it bounds what is received in answer to a request.
    @param connectTimeout: how long connecting may take, in seconds.
    @param tls: verifies certificates; by default with the trust roots of the system.
    @param policy: the addresses that may be connected to; C{None} for any.
    @param resolver: resolves the names that a policy is for; the reactor's by default.
    @param path: the Unix socket that is connected to, whatever the URL.
    """
    endpoints = BoundedEndpoints(
        reactor,
        BrowserLikePolicyForHTTPS() if tls is None else tls,
        maxReceived=maxBody + _MARGIN,
        timeout=connectTimeout,
        policy=policy,
        resolver=resolver,
        path=path,
    )
    agent: IAgent = Agent.usingEndpointFactory(reactor, endpoints, pool)
    return agent


def _timedOut(outcome: Any, timeout: float) -> NoReturn:
    raise HttpError(Problem.TIMEOUT, detail=f"no answer within {timeout:g} seconds")


def explain(failure: Failure) -> NoReturn:
    """
    Say what went wrong.

    @param failure: what a request failed with.
    @raise HttpError: an error of the network, or of the server.
    @raise CancelledError: the request was cancelled.
    """
    # A request that fails half-way has its reasons in a list.
    reasons: list[Failure] = getattr(failure.value, "reasons", None) or [failure]
    if any(each.check(CancelledError, ConnectingCancelledError) for each in reasons):
        raise CancelledError()
    known = (each for each, kind in _KINDS if any(reason.check(kind) for reason in reasons))
    problem = next(known, None)
    if problem is Problem.TLS and any(_NOT_VERIFIED in str(each.value) for each in reasons):
        problem = Problem.NOT_TRUSTED
    elif problem is None and failure.check(*_BROKEN):
        problem = Problem.CLOSED if reasons == [failure] else Problem.NOT_HTTP
    elif problem is None and failure.check(ValueError):
        problem = Problem.BAD_HOST
    if problem is None:
        failure.raiseException()
    raise HttpError(problem, detail=reasons[0].getErrorMessage()) from None


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
        <svcbroker.net.http.IDLE>} seconds.
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
