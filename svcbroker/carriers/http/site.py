"""
The site: every connection, and the parts of the HTTP carrier put together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IAddress, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web import http
from twisted.web.iweb import IRequest
from twisted.web.resource import IResource
from twisted.web.server import Site

from ...broker import Broker
from ...errors import ContentTooLarge, QueryTooLong
from ...net.turns import EndOfTurn
from ...operations import Incidents
from . import admin, health, jsonrpc, openapi, operator, rest, rpcmessages
from .channel import BrokerChannel
from .door import Answers, Door, DoorChannel, hotCalls
from .encoding import encodeError
from .request import BrokerRequest
from .resource import Area, Root, Route, findArea, makeApp
from .settings import KLEIN, HttpSettings

BODY_MARGIN: Final = 64 * 1024
"""What a body may hold besides content, in bytes."""
_PERCENT_ENCODED = 3
_PREFLIGHT_AGE = b"86400"


class BrokerSite(Site):
    """
    The site of the broker.

    @ivar maxBody: the largest body of a request, in bytes.
    @ivar hasAccessLog: whether answers are logged.
    @ivar channels: the open connections.
    """

    requestFactory = BrokerRequest
    noisy = False
    _log = Logger()

    def __init__(
        self,
        resource: IResource,
        settings: HttpSettings,
        areas: Sequence[Area],
        incidents: Incidents,
        reactor: IReactorTime,
        maxBody: int,
        makeChannel: Callable[[], BrokerChannel] = BrokerChannel,
    ) -> None:
        """
        @param makeChannel: makes the protocol of a connection.
        """
        super().__init__(
            resource, timeout=settings.timeout, reactor=reactor, parsePOSTFormSubmission=False
        )
        self.protocol = makeChannel  # type: ignore[assignment]
        self.maxBody = maxBody
        self.hasAccessLog = settings.accessLog
        self.channels: set[BrokerChannel] = set()
        self._settings = settings
        self._areas = areas
        self._incidents = incidents
        self._publishByGet = f"GET {settings.basePath}/rest/publish?".encode("ascii")
        self._drained: Deferred[None] | None = None

    def startFactory(self) -> None:
        """No log file and no clock of log lines: see L{log}."""

    def stopFactory(self) -> None:
        """Nothing to let go of."""

    def buildProtocol(self, addr: IAddress | None) -> Any:
        """A connection's protocol; none once the site is drained."""
        return None if self._drained is not None else super().buildProtocol(addr)

    def log(self, request: http.Request) -> None:
        """
        An answer was given. See C{twisted.web.http.HTTPFactory.log}.
        """
        if self.hasAccessLog:
            peer = request.getClientAddress()
            self.logAnswer(peer, request.method, request.path, request.code, request.sentLength)

    def logAnswer(self, peer: IAddress, method: bytes, path: bytes, code: int, length: int) -> None:
        """
        Tell the access log of an answer. Never says the query string, which may hold content.
        """
        self._log.info(
            "{peer} {method} {path} {code} {length}",
            peer=getattr(peer, "host", "-"),
            method=method.decode("ascii", "replace"),
            path=path.decode("ascii", "replace"),
            code=code,
            length=length,
        )

    def drain(self) -> Deferred[None]:
        """
        Finish: no new connection is accepted, idle ones are closed, and every request that has
        arrived whole is answered, after which its connection is closed too. Called once, for an
        orderly stop, by who bounds how long it may take.

        Fires when the last connection is closed.
        """
        if not self.channels:
            self._drained = succeed(None)
            return self._drained
        self._drained = Deferred()
        for channel in list(self.channels):
            channel.drain()
        return self._drained

    def channelLost(self, channel: BrokerChannel) -> None:
        """A connection is closed, or is no longer HTTP."""
        self.channels.discard(channel)
        if self._drained is not None and not self.channels and not self._drained.called:
            self._drained.callback(None)

    def refusal(self, path: bytes) -> tuple[int, bytes]:
        """The status and the JSON text for a request whose body is too large."""
        error = ContentTooLarge(f"a request has at most {self.maxBody} bytes")
        area = findArea(self._areas, path)
        if area is None:
            return http.REQUEST_ENTITY_TOO_LARGE, encodeError(error)
        return http.OK, area.encodeError(error)

    def overlong(self, line: bytes) -> tuple[bytes, bytes]:
        """
        The status line and the JSON text for a request line or a header that is too long.
        """
        if line.startswith(self._publishByGet):
            return b"200 OK", encodeError(QueryTooLong())
        return (
            b"431 Request Header Fields Too Large",
            encodeError(QueryTooLong("the request line and headers are too long")),
        )

    def explain(self, failure: Failure) -> bytes:
        """The JSON text for a failure that nobody handled."""
        return encodeError(self._incidents.explain(failure))

    def allowOrigin(self, request: IRequest) -> None:
        """Let the browser's page read the answer, where the operator allows its origin."""
        if not self._settings.corsOrigins:
            return
        request.setHeader(b"vary", b"Origin")
        origin = request.getHeader(b"origin")
        if origin and self._settings.allowsOrigin(origin):
            request.setHeader(b"access-control-allow-origin", origin)

    def allowPreflight(self, request: IRequest, methods: bytes) -> None:
        """Let the browser's page send its request, where L{allowOrigin} has allowed it."""
        if request.responseHeaders.hasHeader(b"access-control-allow-origin"):
            request.setHeader(b"access-control-allow-methods", methods)
            request.setHeader(b"access-control-allow-headers", b"Content-Type")
            request.setHeader(b"access-control-max-age", _PREFLIGHT_AGE)


def makeSite(
    broker: Broker,
    settings: HttpSettings,
    routes: Iterable[Route] = (),
    incidents: Incidents | None = None,
    operatorToken: str | None = None,
) -> BrokerSite:
    """
    The site of a broker.

    @param routes: more paths: WebSockets, the console, metrics.
    @param incidents: keeps the causes of unexpected failures.
    @param operatorToken: what operators have to know; C{None} where there are no operator calls.
    """
    if incidents is None:
        incidents = Incidents()
    base = settings.basePath
    areas = (
        Area(prefix=f"{base}/rest", methods=("GET", "POST"), encodeError=encodeError),
        Area(prefix=f"{base}/admin/operator", methods=("POST",), encodeError=encodeError),
        Area(prefix=f"{base}/admin", methods=("GET",), encodeError=encodeError),
        Area(
            prefix=f"{base}/jsonrpc",
            methods=("POST",),
            encodeError=rpcmessages.encodeError,
            isTree=False,
        ),
    )
    everything = tuple(
        chain(
            rest.routes(f"{base}/rest", broker, incidents),
            admin.routes(f"{base}/admin", broker, incidents),
            ()
            if operatorToken is None
            else operator.routes(f"{base}/admin/operator", broker, operatorToken, incidents),
            jsonrpc.routes(f"{base}/jsonrpc", broker, incidents),
            openapi.routes(base),
            health.routes(broker),
            routes,
        )
    )
    app = makeApp(everything, areas, incidents)
    maxBody = _PERCENT_ENCODED * broker.limits.maxContent + BODY_MARGIN
    return BrokerSite(
        Root(app, everything),
        *(settings, areas, incidents, broker.clock, maxBody),
        makeChannel=_channelMaker(broker, settings, incidents),
    )


def _channelMaker(
    broker: Broker, settings: HttpSettings, incidents: Incidents
) -> Callable[[], BrokerChannel]:
    if settings.door == KLEIN:
        return BrokerChannel
    calls = hotCalls(settings.basePath, broker, incidents)
    return partial(
        DoorChannel, Door(calls, Answers(settings, broker.clock.seconds), EndOfTurn(broker.clock))
    )
