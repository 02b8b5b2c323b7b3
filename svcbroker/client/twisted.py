"""
The client for Twisted, over treq.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, Unpack

import treq.client
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509 import load_pem_x509_certificates
from OpenSSL import SSL
from OpenSSL.crypto import X509
from service_identity import VerificationError
from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.internet.error import (
    ConnectError,
    ConnectingCancelledError,
    ConnectionClosed,
    DNSLookupError,
)
from twisted.internet.error import TimeoutError as ConnectTimeout
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.ssl import Certificate, optionsForClientTLS, trustRootFromCertificates
from twisted.internet.task import deferLater
from twisted.python.failure import Failure
from twisted.web.client import Agent, RequestTransmissionFailed, ResponseDone, ResponseFailed
from twisted.web.http import PotentialDataLoss
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IPolicyForHTTPS
from zope.interface import implementer

from ..files import readFile
from ..net.http import ConnectionPool
from . import _effects
from ._core import Core, Options
from ._effects import (
    Delay,
    Effect,
    Events,
    HttpRequest,
    HttpResponse,
    OpenStream,
    Procedure,
    ReadStream,
    Unreachable,
    answerTooLong,
    iterate,
    run,
)

P = ParamSpec("P")
T = TypeVar("T")

CONNECT_TIMEOUT: Final = 30.0
"""Seconds that connecting may take."""
MAX_BUFFER: Final = 1024 * 1024
"""A stream is paused while this many of its bytes are not yet read."""
MAX_IDLE: Final = 20
"""The most idle connections that are kept for each broker."""
IDLE: Final = 240
"""Seconds that they are kept."""

_NOT_SENT: Final = (ConnectError, DNSLookupError, VerificationError)
_FAILURES: Final = (
    *(ConnectError, ConnectionClosed, DNSLookupError, SSL.Error, TimeoutError, VerificationError),
    *(RequestTransmissionFailed, ResponseFailed, ResponseDone, PotentialDataLoss),
)


def _call(
    method: Callable[Concatenate[Core, P], Procedure[T]],
) -> Callable[Concatenate[TwistedClient, P], Deferred[T]]:
    """A call that returns a Deferred."""

    @wraps(method)
    def call(self: TwistedClient, /, *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        return Deferred.fromCoroutine(run(method(self._core, *args, **kwargs), self._performer()))

    return call


def _iterate(
    method: Callable[Concatenate[Core, P], Procedure[Any]],
) -> Callable[Concatenate[TwistedClient, P], Events]:
    """A call that returns an asynchronous iterator of events."""

    @wraps(method)
    def call(self: TwistedClient, /, *args: P.args, **kwargs: P.kwargs) -> Events:
        return iterate(method(self._core, *args, **kwargs), self._performer())

    return call


class TwistedClient:
    """
    A client of a broker, or of several brokers of one network, whose calls return Deferreds.

    C{events} and C{follow} return asynchronous iterators, for C{async for} in coroutines of
    Twisted. While an iterator is not asked for its next event, its connection is not read, so that
    the broker pauses. The connection of C{follow} is closed with its iterator.
    """

    def __init__(
        self, reactor: Any, *urls: str, agent: IAgent | None = None, **options: Unpack[Options]
    ) -> None:
        """
        @param reactor: the reactor.
        @param urls: the base URLs of the brokers, such as C{http://127.0.0.1:8080/svcbroker}.
        @param agent: makes the requests; by default one that connects over the network.
        @param options: see L{Options<svcbroker.client.Options>}.
        @raise ValueError: a URL or an option is malformed.
        @raise OSError: a file cannot be read.
        """
        self._core = Core(urls, options, now=reactor.seconds)
        self._reactor = reactor
        # The core knows which requests may be repeated.
        self._pool = ConnectionPool(reactor, keep=MAX_IDLE, idle=IDLE)
        if agent is None:
            agent = Agent(reactor, _TlsPolicy(options), CONNECT_TIMEOUT, pool=self._pool)
        self._http = treq.client.HTTPClient(agent)

    publish = _call(Core.publish)
    publishMany = _call(Core.publishMany)
    open = _call(Core.open)
    close = _call(Core.close)
    exist = _call(Core.exist)
    state = _call(Core.state)
    topics = _call(Core.topics)
    getEvent = _call(Core.getEvent)
    find = _call(Core.find)
    events = _iterate(Core.events)
    follow = _iterate(Core.follow)
    receipt = _call(Core.receipt)
    proof = _call(Core.proof)
    topicProof = _call(Core.topicProof)
    checkpoint = _call(Core.checkpoint)
    genesis = _call(Core.genesis)
    readLog = _call(Core.readLog)

    def disconnect(self) -> Deferred[None]:
        """Close all idle connections."""
        closing: Deferred[None] = self._pool.closeCachedConnections()
        return closing

    def _performer(self) -> _Performer:
        return _Performer(self._reactor, self._http)


@implementer(IPolicyForHTTPS)
class _TlsPolicy:
    """
    The authorities that a client trusts in TLS, and the certificate that it shows.
    """

    def __init__(self, options: Options) -> None:
        ca, certificate = options.get("ca"), options.get("certificate")
        self._trustRoot: Any = None
        self._identity: dict[str, Any] = {}
        if ca is not None:
            self._trustRoot = trustRootFromCertificates(
                [Certificate(X509.from_cryptography(each)) for each in _certificates(ca)]
            )
        if certificate is not None:
            own, *chain = _certificates(certificate)
            self._identity = {
                "privateKey": _privateKey(options.get("certificateKey") or certificate),
                "certificate": own,
                "extraCertChain": chain,
            }

    def creatorForNetloc(self, hostname: bytes, port: int) -> IOpenSSLClientConnectionCreator:
        """See C{IPolicyForHTTPS}."""
        return optionsForClientTLS(
            hostname.decode("ascii"),
            trustRoot=self._trustRoot,
            extraCertificateOptions=dict(self._identity),
        )


def _certificates(path: str | Path) -> list[Any]:
    data = readFile(path)
    try:
        return list(load_pem_x509_certificates(data))
    except ValueError:
        raise ValueError(f"{path} has no certificates in PEM") from None


def _privateKey(path: str | Path) -> Any:
    data = readFile(path)
    try:
        return load_pem_private_key(data, None)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} has no private key in PEM: {error}") from None


class _Performer:
    """
    Performs the effects of one procedure. See L{Performer<svcbroker.client._effects.Performer>}.
    """

    def __init__(self, reactor: Any, http: treq.client.HTTPClient) -> None:
        self._reactor = reactor
        self._http = http
        self._stream: _Stream | None = None

    async def perform(self, effect: Effect) -> Any:
        """Perform an effect, and return its outcome."""
        try:
            if isinstance(effect, HttpRequest):
                asking = Deferred.fromCoroutine(self._request(effect))
                return await asking.addTimeout(effect.timeout, self._reactor, _timeOut)
            if isinstance(effect, ReadStream):
                assert self._stream is not None
                return await self._stream.read().addTimeout(effect.timeout, self._reactor)
            if isinstance(effect, OpenStream):
                await self.close()
                sending = self._send(effect.request)
                limit = effect.request.timeout
                response = await sending.addTimeout(limit, self._reactor, _timeOut)
                self._stream = _Stream()
                response.deliverBody(self._stream)
                return _answerOf(response)
        except ConnectingCancelledError as failure:
            raise CancelledError() from failure
        except Exception as failure:
            return _failureOf(failure)
        assert isinstance(effect, Delay)
        await deferLater(self._reactor, effect.seconds)
        return None

    async def _request(self, request: HttpRequest) -> HttpResponse | Unreachable:
        response = await self._send(request)
        stream = _Stream()
        response.deliverBody(stream)
        body = bytearray()
        try:
            while piece := await stream.read():
                body += piece
                if len(body) > _effects.MAX_ANSWER:
                    return answerTooLong()
        finally:
            stream.close()
        return _answerOf(response, bytes(body))

    def _send(self, request: HttpRequest) -> Deferred[Any]:
        sending: Deferred[Any] = self._http.request(
            request.method,
            request.url,
            headers=Headers({name: [value] for name, value in request.headers.items()}),
            data=request.body or None,
            allow_redirects=False,
            unbuffered=True,
            reactor=self._reactor,
        )
        return sending.addErrback(_unwrapCancelled)

    async def close(self) -> None:
        """Close the stream that is open. Does not wait, so that an iterator may be collected."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None


class _Stream(Protocol):
    """
    The body of a stream. It is paused while much of it is not read.
    """

    transport: Any

    def __init__(self) -> None:
        self._data = bytearray()
        self._end: Failure | None = None
        self._isPaused = False
        self._reading: Deferred[bytes] | None = None

    def read(self) -> Deferred[bytes]:
        """
        Read what has arrived, or wait for something.

        @return: fires with some bytes, or none at the end of the stream.
        """
        reading: Deferred[bytes] = Deferred()
        self._reading = reading
        self._answer()
        if self._isPaused and self._end is None:
            self._isPaused = False
            self.transport.resumeProducing()
        return reading

    def close(self) -> None:
        """Close the connection."""
        if self._end is None:
            self.transport.loseConnection()

    def _answer(self) -> None:
        if self._reading is None or not (self._data or self._end):
            return
        reading, self._reading = self._reading, None
        if reading.called:
            # Nobody waits any more.
            return
        if self._data:
            data, self._data = bytes(self._data), bytearray()
            reading.callback(data)
        elif self._end is not None and self._end.check(ResponseDone, PotentialDataLoss):
            reading.callback(b"")
        else:
            reading.errback(self._end)

    def dataReceived(self, data: bytes) -> None:
        self._data += data
        self._answer()
        if len(self._data) > MAX_BUFFER and not self._isPaused:
            self._isPaused = True
            self.transport.pauseProducing()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._end = reason
        self._answer()


def _answerOf(response: Any, body: bytes = b"") -> HttpResponse:
    headers = {
        name.decode("ascii").lower(): values[0].decode("latin-1")
        for name, values in response.headers.getAllRawHeaders()
    }
    return HttpResponse(status=response.code, headers=headers, body=body)


def _reasonsOf(failure: BaseException) -> Sequence[BaseException]:
    """The errors of the network that a failed request has."""
    reasons: Sequence[Any] = getattr(failure, "reasons", None) or ()
    return [each.value for each in reasons] or [failure]


def _unwrapCancelled(failure: Any) -> Any:
    """The error of a request that was cancelled while it was connected, where it has a list."""
    if any(isinstance(each, CancelledError) for each in _reasonsOf(failure.value)):
        raise CancelledError()
    return failure


def _timeOut(result: Any, seconds: float) -> Any:
    """
    The error of a request that was cancelled by its time-out.

    @raise ConnectTimeout: it had no connection yet, so it was not sent.
    @raise TimeoutError: it may have been sent.
    """
    if isinstance(result, Failure):
        if result.check(ConnectingCancelledError):
            raise ConnectTimeout(f"no connection within {seconds:.2f} s")
        if result.check(CancelledError):
            raise TimeoutError(f"no answer within {seconds:.2f} s")
    return result


def _failureOf(failure: Exception) -> Unreachable:
    """
    The error for a request without an answer.

    @raise Exception: the failure is not one of the network.
    """
    reasons = _reasonsOf(failure)
    if not isinstance(failure, _FAILURES):
        raise failure
    detail = "; ".join(str(each) or type(each).__name__ for each in reasons)
    # Nothing is sent to a broker whose certificate is not trusted.
    isFinal = any(_isUntrusted(each) for each in reasons)
    return Unreachable(
        f"{Unreachable.text}: {detail}",
        isSent=not isFinal and not all(isinstance(each, _NOT_SENT) for each in reasons),
        isFinal=isFinal,
    )


def _isUntrusted(reason: BaseException) -> bool:
    """Whether a connection has failed since the broker's certificate is not trusted."""
    return isinstance(reason, VerificationError) or (
        isinstance(reason, SSL.Error) and "certificate verify failed" in str(reason)
    )
