"""
A client for HTTP whose requests are bounded in time and size.

It follows no redirects, keeps no cookies, unpacks no answers and uses no proxies. A request is
never sent twice, unless the client is made for requests that may be.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, Final, NoReturn

from attrs import frozen
from OpenSSL import SSL
from OpenSSL.crypto import X509
from twisted.internet import protocol
from twisted.internet.defer import CancelledError, Deferred, fail, maybeDeferred, succeed
from twisted.internet.error import (
    ConnectError,
    ConnectingCancelledError,
    ConnectionClosed,
    DNSLookupError,
)
from twisted.internet.interfaces import (
    IConsumer,
    IHostnameResolver,
    IOpenSSLClientConnectionCreator,
    IReactorTime,
)
from twisted.internet.ssl import Certificate, optionsForClientTLS, trustRootFromCertificates
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

from .certificates import ClientCertificate
from .endpoints import AddressRefused, BoundedEndpoints, TooMuchReceived
from .pem import readCertificates
from .policy import AddressPolicy

IDLE: Final = 4
"""How long a connection is kept for the next request, in seconds. Widely used servers close theirs
after five, and a request that meets the closing is lost."""

CONNECT_TIMEOUT: Final = 30.0
"""How long connecting may take by default, in seconds."""

_MARGIN: Final = 128 * 1024
"""What is received beside a body: headers, and the rest of the piece that was too much."""
_BROKEN: Final = (RequestTransmissionFailed, ResponseFailed, ResponseNeverReceived)


@implementer(IPolicyForHTTPS)
@frozen
class CertificatePolicy:
    """
    Shows a certificate of ours to servers, where there is one, and verifies theirs: with a trust
    root of ours, or with those of the system.
    """

    _certificate: ClientCertificate | None
    _trustRoot: Any = None

    @classmethod
    def load(cls, certificate: Path | None, authorities: Path | None) -> CertificatePolicy:
        """
        Read certificates. Blocks.

        @param certificate: see L{ClientCertificate.load}; C{None} where none is shown.
        @param authorities: a PEM file with the trusted ones; C{None} for those of the system.
        @raise CertificateError, OSError: a file cannot be used.
        """
        shown = None if certificate is None else ClientCertificate.load(certificate)
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
    """Why there is no answer; the value is the end of a sentence that begins with the server."""

    BAD_HOST = "cannot be found: its URL has no host that there can be"
    NO_ADDRESS = "cannot be found: its name has no address"
    NOT_PERMITTED = "has no address and port that may be connected to"
    UNREACHABLE = "cannot be reached"
    TLS = "speaks no TLS, has a certificate that is not trusted, or requires one of ours"
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


@implementer(IBodyProducer)
@frozen
class _Body:
    """A request's body that is known from the beginning."""

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


class _DiscardingProtocol(protocol.Protocol):
    """Closes the connection of an answer that is not read."""

    transport: Any

    def connectionMade(self) -> None:
        self.transport.loseConnection()


class _BodyCollector(protocol.Protocol):
    """
    Collects an answer's body.

    @ivar done: fires with it. Cancelling it closes the connection.
    """

    transport: Any

    def __init__(self, limit: int) -> None:
        self.done: Deferred[bytes] = Deferred(lambda _: self._leave())
        self._limit = limit
        self._data = bytearray()

    def _leave(self) -> None:
        if self.transport is not None:
            self.transport.loseConnection()

    def dataReceived(self, data: bytes) -> None:
        if self.done.called:
            return
        self._data += data
        if len(self._data) > self._limit:
            text = f"answered with more than {self._limit} bytes"
            self.done.errback(HttpError(Problem.TOO_LARGE, text))
            self._leave()

    def connectionLost(self, reason: Failure = protocol.connectionDone) -> None:
        if self.done.called:
            return
        if reason.check(ResponseDone, PotentialDataLoss):
            self.done.callback(bytes(self._data))
        else:
            self.done.errback(reason)


@frozen(eq=False)
class HttpAnswer:
    """
    An answer whose headers have arrived. It must be read or discarded.

    @ivar status: the status.
    """

    status: int
    _response: IResponse
    _clock: IReactorTime
    _deadline: float

    def header(self, name: str) -> str | None:
        """The first value of a header; C{None} where there is none."""
        values: list[str] | None = self._response.headers.getRawHeaders(name)
        return values[0] if values else None

    def read(self, limit: int) -> Deferred[bytes]:
        """
        Read the body, in the time that the request has left.

        @param limit: the most that it may have, in bytes.
        @return: fires with it. Cancelling ends the request.
        @raise HttpError: it is longer, broken off, late, or packed.
        """
        if self.header("Content-Encoding") is not None:
            # What is packed can be a thousand times as large as it looks.
            self.discard()
            return fail(HttpError(Problem.PACKED))
        collector = _BodyCollector(limit)
        self._response.deliverBody(collector)
        reading = collector.done.addErrback(_explain)
        left = max(0.0, self._deadline - self._clock.seconds())
        return reading.addTimeout(left, self._clock, _timedOut)

    def discard(self) -> None:
        """Do not read the body: close the connection."""
        self._response.deliverBody(_DiscardingProtocol())


class HttpClient:
    """
    Makes requests.
    """

    def __init__(
        self,
        agent: IAgent,
        clock: IReactorTime,
        close: Callable[[], Deferred[Any]] = lambda: succeed(None),
    ) -> None:
        """
        @param agent: speaks HTTP: what L{makeClient} gives, or a test's over memory.
        @param close: closes the connections that are kept.
        """
        self._agent = agent
        self._clock = clock
        self.close = close

    def request(
        self,
        method: bytes,
        url: str,
        *,
        timeout: float,
        headers: Headers | None = None,
        body: bytes | None = None,
    ) -> Deferred[HttpAnswer]:
        """
        Make a request.

        @param url: an ASCII URL in its encoded form.
        @param timeout: how long all of it may take, reading the answer's body included, in
            seconds.
        @return: fires when the answer's headers have arrived, whatever its status. Cancelling
            ends the request.
        @raise HttpError: there is no answer.
        """
        deadline = self._clock.seconds() + timeout
        producer = None if body is None else _Body(body)
        # An agent raises at once what it finds in the URL.
        asking: Deferred[Any] = maybeDeferred(
            self._agent.request, method, url.encode("ascii"), headers, producer
        )
        # The time-out is outermost: what a cancelled request fails with depends on how far it is.
        asking.addErrback(_explain).addTimeout(timeout, self._clock, _timedOut)
        return asking.addCallback(
            lambda response: HttpAnswer(response.code, response, self._clock, deadline)
        )


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

    @param maxBody: the longest body that is ever read, in bytes; with 128 KiB more, for headers,
        it bounds what is received in answer to a request.
    @param keep: how many idle connections are kept for each host, for L{IDLE} seconds.
    @param isRepeatable: whether a GET that fails on a kept connection is sent again.
    @param connectTimeout: how long connecting may take, in seconds.
    @param tls: verifies certificates; by default with the trust roots of the system.
    @param policy: the addresses that may be connected to; C{None} for any.
    @param resolver: resolves the names that a policy is for; the reactor's by default.
    @param path: the Unix socket that is connected to, whatever the URL.
    """
    pool = HTTPConnectionPool(reactor, persistent=keep > 0)
    pool.retryAutomatically = isRepeatable
    pool.maxPersistentPerHost = keep
    pool.cachedConnectionTimeout = IDLE
    endpoints = BoundedEndpoints(
        reactor,
        BrowserLikePolicyForHTTPS() if tls is None else tls,
        maxReceived=maxBody + _MARGIN,
        timeout=connectTimeout,
        policy=policy,
        resolver=resolver,
        path=path,
    )
    agent: Any = Agent.usingEndpointFactory(reactor, endpoints, pool)
    return HttpClient(agent, reactor, pool.closeCachedConnections)


def _timedOut(outcome: Any, timeout: float) -> NoReturn:
    raise HttpError(Problem.TIMEOUT, detail=f"no answer within {timeout:g} seconds")


def _explain(failure: Failure) -> NoReturn:
    """
    Say what went wrong.

    @raise HttpError: an error of the network, or of the server.
    @raise CancelledError: the request was cancelled.
    """
    # A request that fails half-way has its reasons in a list.
    reasons: list[Failure] = getattr(failure.value, "reasons", None) or [failure]
    if any(each.check(CancelledError, ConnectingCancelledError) for each in reasons):
        raise CancelledError()
    known = (each for each, kind in _KINDS if any(reason.check(kind) for reason in reasons))
    problem = next(known, None)
    if problem is None and failure.check(*_BROKEN):
        problem = Problem.CLOSED if reasons == [failure] else Problem.NOT_HTTP
    elif problem is None and failure.check(ValueError):
        problem = Problem.BAD_HOST
    if problem is None:
        failure.raiseException()
    raise HttpError(problem, detail=reasons[0].getErrorMessage()) from None
