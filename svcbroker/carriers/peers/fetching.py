"""
One question over HTTP, and what came of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

from hyperlink import EncodedURL
from OpenSSL import SSL
from treq.client import HTTPClient
from twisted.internet import protocol
from twisted.internet.defer import CancelledError, Deferred, maybeDeferred
from twisted.internet.error import ConnectError, ConnectionClosed, DNSLookupError
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web import http
from twisted.web.client import (
    RequestTransmissionFailed,
    ResponseDone,
    ResponseFailed,
    ResponseNeverReceived,
)
from twisted.web.http import PotentialDataLoss
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IBodyProducer, IResponse
from zope.interface import implementer

from ...broker import PeerError

_HEADERS: Final[dict[bytes | str, bytes | str]] = {
    "Accept": "application/json",
    "User-Agent": "svcbroker",
}
_log = Logger()
_BROKEN: Final = (
    ConnectionClosed,
    RequestTransmissionFailed,
    ResponseFailed,
    ResponseNeverReceived,
)


@implementer(IAgent)
class PlainAgent:
    """
    Takes back that treq offers to unpack answers: what is packed can be a thousand times as
    large as it looks.
    """

    def __init__(self, agent: IAgent) -> None:
        self._agent = agent

    def request(
        self,
        method: bytes,
        uri: bytes,
        headers: Headers | None = None,
        bodyProducer: IBodyProducer | None = None,
    ) -> Deferred[IResponse]:
        """See C{IAgent}."""
        plain = Headers() if headers is None else headers.copy()
        plain.removeHeader(b"Accept-Encoding")
        asking: Deferred[IResponse] = self._agent.request(method, uri, plain, bodyProducer)
        return asking.addCallback(_checkPlain)


def _checkPlain(response: IResponse) -> IResponse:
    if response.headers.hasHeader(b"Content-Encoding"):
        leave(response)
        raise PeerError("packed its answer, which it was not asked to")
    return response


class _Leaver(protocol.Protocol):
    """Lets go of an answer that nobody reads."""

    transport: Any

    def connectionMade(self) -> None:
        self.transport.loseConnection()


def leave(response: IResponse) -> None:
    """Read no more of an answer."""
    response.deliverBody(_Leaver())


class _Gatherer(protocol.Protocol):
    """
    Gathers an answer's body.

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
            self.done.errback(PeerError(f"answered with more than {self._limit} bytes"))
            self._leave()

    def connectionLost(self, reason: Failure = protocol.connectionDone) -> None:
        if self.done.called:
            return
        if reason.check(ResponseDone, PotentialDataLoss):
            self.done.callback(bytes(self._data))
        else:
            self.done.errback(reason)


class _PlainURL(EncodedURL):
    """
    A URL that can be sent as it is. Others are encoded before, which fails for addresses of IPv6.
    """

    def to_uri(self) -> EncodedURL:
        """It is one."""
        return self


class Fetcher:
    """
    Asks by GET. It follows no redirects, and keeps no cookies from one question to the next.
    """

    def __init__(self, agent: IAgent, clock: IReactorTime, close: Callable[[], Any]) -> None:
        """
        @param agent: what makes requests.
        @param close: closes its connections, once nothing is under way.
        """
        self._agent = PlainAgent(agent)
        self._clock = clock
        # All that treq would do with it is to call later.
        self._reactor: Any = clock
        self._close = close
        self._underWay: set[Deferred[bytes]] = set()
        self._idle: Deferred[None] | None = None

    def fetch(
        self, url: str, parameters: Mapping[str, str], limit: int, timeout: float
    ) -> Deferred[bytes]:
        """
        Ask a question. Cancelling ends it.

        @param limit: the most that the answer's body may have, in bytes.
        @param timeout: how long all of it may take, in seconds.
        @return: fires with the answer's body, where its status is 200.
        @raise PeerError: there is no such answer.
        """
        asking = Deferred.fromCoroutine(self._fetch(url, parameters, limit))
        self._underWay.add(asking)
        asking.addTimeout(timeout, self._clock, _timedOut)
        asking.addErrback(_explain)
        asking.addBoth(self._finished, asking)
        return asking

    async def _fetch(self, url: str, parameters: Mapping[str, str], limit: int) -> bytes:
        response: Any = await HTTPClient(self._agent).get(
            _PlainURL.from_text(url),
            params=dict(parameters),
            headers=_HEADERS,
            allow_redirects=False,
            unbuffered=True,
            reactor=self._reactor,
        )
        if response.code != http.OK:
            leave(response)
            raise PeerError(_status(response.code))
        gatherer = _Gatherer(limit)
        response.deliverBody(gatherer)
        return await gatherer.done

    def _finished(self, outcome: Any, asking: Deferred[bytes]) -> Any:
        self._underWay.discard(asking)
        if self._idle is not None and not self._underWay:
            if not self._idle.called:
                self._idle.callback(None)
            else:
                # A client that was let in before had one more question.
                maybeDeferred(self._close).addErrback(_logFailure)
        return outcome

    def drain(self) -> Deferred[Any]:
        """
        Close, once what is under way has its answer. Called once. Cancelling ends what is under
        way.
        """
        self._idle = Deferred(lambda _: self._cancel())
        drained = self._idle.addCallback(lambda _: self._close())
        if not self._underWay:
            self._idle.callback(None)
        return drained

    def _cancel(self) -> None:
        for each in list(self._underWay):
            each.cancel()


def _logFailure(failure: Failure) -> None:
    _log.failure("The connections to peers did not close", failure)


def _status(code: int) -> str:
    if 300 <= code < 400:
        return f"sends us elsewhere (HTTP status {code})"
    if code == http.NOT_FOUND:
        return "has nothing under its URL (HTTP status 404): is the context path right?"
    return f"answered with HTTP status {code}"


def _timedOut(outcome: Any, timeout: float) -> NoReturn:
    raise PeerError("gave no answer in time")


def _explain(failure: Failure) -> NoReturn:
    """
    Whatever went wrong, in the operator's words.

    @raise PeerError: mostly. What is no matter of the network stays what it is.
    """
    if failure.check(ValueError):
        raise PeerError("cannot be found: its URL has no host that there can be")
    if failure.check(DNSLookupError):
        raise PeerError("cannot be found: its name has no address")
    if failure.check(ConnectError):
        raise PeerError("cannot be reached")
    if failure.check(*_BROKEN):
        # A request that fails half-way has its reasons in a list.
        reasons: list[Failure] = getattr(failure.value, "reasons", None) or []
        if any(each.check(CancelledError) for each in reasons):
            raise CancelledError()
        if any(each.check(SSL.Error) for each in reasons):
            raise PeerError("speaks no TLS, or has a certificate that is not trusted")
        if any(each.check(ConnectionClosed) for each in reasons) or not reasons:
            raise PeerError("closed the connection before it had answered")
        raise PeerError("answered with something that is not HTTP")
    failure.raiseException()
