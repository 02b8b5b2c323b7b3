"""
The HTTP server: the site, its connections and their requests, bounded while they arrive.

The only module of the carrier that uses private attributes of Twisted; C{test_twisted} pins each.
"""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any, Final

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IAddress, IProtocol, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web import http
from twisted.web.http_headers import Headers
from twisted.web.server import Request, Site

from ...errors import BrokerError, NotAuthorized, QueryTooLong
from ...net.addresses import isLoopback
from .bodies import IncompleteBodies, IncompleteBody
from .origins import OriginPolicy
from .routes import CONTENT_TYPE, Routes, encodeError
from .settings import HttpSettings

MAX_HEADERS: Final = 64 * 1024
"""The largest request line and headers together, in bytes."""
LINGER: Final = 2.0
"""How long the rest of a refused request is read and discarded, in seconds."""


class BrokerRequest(Request):
    """
    A request to a L{BrokerSite}.

    Its body stays in memory, within the site's bound. Query and body are not parsed here: C{args}
    is always empty.
    """

    site: BrokerSite
    channel: BrokerChannel
    content: BytesIO
    _body: IncompleteBody | None = None
    _refusal: BrokerError | None = None

    def gotLength(self, length: int | None) -> None:
        """
        All headers are there, the body is not. See C{twisted.web.http.Request.gotLength}.
        """
        if length == 0:
            self.content = BytesIO()
            return
        bodies = self.channel.site.bodies
        self._body = IncompleteBody(bodies, self.channel.bodyTimedOut)
        self.content = self._body.content
        if length is not None and length > bodies.maxBody:
            # Without the header the channel does not ask for the body.
            self.requestHeaders.removeHeader(b"Expect")
            self._refuse(bodies.tooLarge)

    def handleContentChunk(self, data: bytes) -> None:
        """
        A piece of the body is there. See C{twisted.web.http.Request.handleContentChunk}.
        """
        if self._refusal is None:
            assert self._body is not None
            error = self._body.write(data)
            if error is not None:
                self._refuse(error)

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        """
        The body is there too, or is refused. See C{twisted.web.http.Request.requestReceived}.
        """
        self.endBody()
        self.content.seek(0)
        self.method, self.uri, self.clientproto = command, path, version
        self.path = path.partition(b"?")[0]
        self.args = {}
        self.site = self.channel.site
        self.site.allowOrigin(self)
        routes = self.site.routes
        reason = self.site.origins.refusal(self.requestHeaders, self.channel.isOnLoopback())
        if self._refusal is not None:
            isTooLarge = self._refusal is self.site.bodies.tooLarge
            code = http.REQUEST_ENTITY_TOO_LARGE if isTooLarge else http.SERVICE_UNAVAILABLE
            self.answer(*routes.encodeError(self.path, self._refusal, code))
        elif reason is not None:
            _, body = routes.encodeError(self.path, NotAuthorized(reason), http.FORBIDDEN)
            self.answer(http.FORBIDDEN, body)
        else:
            self.process()

    def answer(self, code: int, body: bytes) -> None:
        """Answer with JSON text and finish."""
        self.setResponseCode(code)
        self.setHeader(b"content-type", CONTENT_TYPE)
        self.setHeader(b"content-length", b"%d" % len(body))
        self.write(body)
        self.finish()

    def processingFailed(self, reason: Failure) -> Failure:
        """
        Klein could not handle this failure. See C{twisted.web.server.Request.processingFailed}.
        """
        error = self.site.routes.incidents.explain(reason)
        self.answer(http.INTERNAL_SERVER_ERROR, encodeError(error))
        return reason

    def getRequestHostname(self) -> bytes:
        """
        Not the Host header: no address is made from it here, and Klein's router fails on some
        values of it.
        """
        return b"localhost"

    def connectionLost(self, reason: Failure) -> None:
        """See C{twisted.web.http.Request.connectionLost}."""
        self.endBody()
        super().connectionLost(reason)

    def endBody(self) -> None:
        """The body is complete, or is not received any further."""
        if self._body is not None:
            self._body.end()

    def _refuse(self, error: BrokerError) -> None:
        self._refusal = error
        self.channel.refuseBody()


class BrokerChannel(http.HTTPChannel):
    """
    A connection that can refuse a body before it is there, and can be drained.

    A body is refused by answering, reading on for a moment, and only then closing: a connection
    that is closed with unread bytes is reset, and the client may never see the answer.
    """

    MAX_LENGTH = MAX_HEADERS
    totalHeadersSize = MAX_HEADERS
    site: BrokerSite

    _host: IAddress | None = None
    _peer: IAddress | None = None
    _isTLS: bool | None = None
    _isOnLoopback: bool | None = None
    _isAnswering = False
    _isRefused = False
    _isLingering = False
    _isWebSocket = False

    def connectionMade(self) -> None:
        super().connectionMade()
        self.site.channels.add(self)

    # Addresses and TLS do not change, but every request asks. The first request is late enough to
    # ask: a PROXY header stands before it and names the client.

    def getHost(self) -> IAddress:
        """The server's end of the connection."""
        if self._host is None:
            self._host = super().getHost()
        return self._host

    def getPeer(self) -> IAddress:
        """The client's end of the connection."""
        if self._peer is None:
            self._peer = super().getPeer()
        return self._peer

    def isOnLoopback(self) -> bool:
        """Whether the client has connected to a loopback address."""
        if self._isOnLoopback is None:
            self._isOnLoopback = isLoopback(getattr(self.getHost(), "host", ""))
        return self._isOnLoopback

    def isSecure(self) -> bool:
        """Whether it is a TLS connection."""
        if self._isTLS is None:
            self._isTLS = super().isSecure()
        return self._isTLS

    def writeHeaders(self, version: bytes, code: bytes, reason: bytes, headers: Headers) -> None:
        """
        Write the status line and the headers, as one piece instead of four for each header.
        """
        lines = [b"%b %b %b" % (version, code, reason)]
        for name, values in headers.getAllRawHeaders():
            lines += [b"%b: %b" % (name, value) for value in values]
        self.write(b"\r\n".join(lines) + b"\r\n\r\n")

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]
        super().connectionLost(reason)
        self.release()

    def release(self) -> None:
        """Keep nothing for a connection that is closed, or no longer HTTP."""
        self.site.channelLost(self)

    def refuseBody(self) -> None:
        """
        Have the request that is arriving answered without its body, and then close. Called by
        the request.
        """
        self._isRefused = True
        self._closeAfterAnswer()
        self._isAnswering = True
        super().allContentReceived()

    def drain(self) -> None:
        """
        Close as soon as the request that has arrived is answered. The rest of a request that is
        arriving is not waited for.
        """
        if self._isAnswering:
            self._closeAfterAnswer()
        else:
            self.endBody()
            super().loseConnection()

    def endBody(self) -> None:
        """Abandon the body that is being received, if there is one."""
        for request in self.requests:
            request.endBody()

    def bodyTimedOut(self) -> None:
        """A body arrives too slowly."""
        self.setTimeout(None)
        self.timeoutConnection()

    def dataReceived(self, data: bytes) -> None:
        if not self._isRefused:
            super().dataReceived(data)

    def lineReceived(self, line: bytes) -> None:
        if not self._isRefused:
            super().lineReceived(line)

    def rawDataReceived(self, data: bytes) -> None:
        if not self._isRefused:
            super().rawDataReceived(data)

    def allContentReceived(self) -> None:
        if not self._isRefused:
            self._isAnswering = True
            super().allContentReceived()

    def pauseProducing(self) -> None:
        """
        The client does not read its answers. Its further requests have to wait too: a few bytes
        of request can bring a megabyte of answer.
        """
        super().pauseProducing()
        if not self._isWebSocket:
            self.paused = True
            self.stopReading()

    def resumeProducing(self) -> None:
        """
        The client has read its answers.
        """
        super().resumeProducing()
        if not self._isWebSocket:
            self.paused = False
            self.startReading()
            self.dataReceived(b"")

    def stopReading(self) -> None:
        """Read nothing more from the client."""
        self._networkProducer.pauseProducing()

    def startReading(self) -> None:
        """Read from the client again."""
        self._networkProducer.resumeProducing()

    def isBetweenRequests(self) -> bool:
        """Whether twisted.web answers no request, and has no unparsed bytes."""
        return not self._buffer and not self.requests

    def requestDone(self, request: Any) -> None:
        self._isAnswering = False
        if self._dataBuffer and self._buffer:
            # TLS delivers what it has decrypted even while reading is stopped. What arrived while
            # the client did not read its answers belongs behind what arrived before.
            self._dataBuffer.append(self.clearLineBuffer())
        super().requestDone(request)

    def lineLengthExceeded(self, line: bytes) -> None:
        """
        The request line or a header is too long.
        """
        assert self.transport is not None
        self._isRefused = True
        status, body = self.site.overlong(line)
        self.transport.write(
            b"HTTP/1.1 %b\r\nConnection: close\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b"
            % (status, CONTENT_TYPE, len(body), body)
        )
        self.loseConnection()

    def loseConnection(self) -> None:
        if self._isRefused and not self._isLingering:
            self._isLingering = True
            self.setTimeout(LINGER)
        else:
            self.endBody()
            super().loseConnection()

    def upgrade(self, protocol: IProtocol) -> None:
        """
        Hand the connection over to the protocol of a WebSocket, its end included. An orderly stop
        is then the WebSocket's to do.
        """
        self._protocolUpgradeForWebsockets(protocol)

    def _protocolUpgradeForWebsockets(self, protocol: IProtocol) -> None:
        # Also called by twisted.web's own WebSocketResource.
        self.release()
        self._isWebSocket = True
        super()._protocolUpgradeForWebsockets(protocol)

    def _closeAfterAnswer(self) -> None:
        self.persistent = 0
        self.requests[0].responseHeaders.setRawHeaders(b"Connection", [b"close"])


class BrokerSite(Site):
    """
    The site of a broker: the factory of its connections.

    @ivar routes: the route table.
    @ivar bodies: the bodies that are being received, and their bounds.
    @ivar hasAccessLog: whether answers are logged.
    @ivar channels: the open connections.
    @ivar origins: decides which web pages may use the site.
    """

    requestFactory = BrokerRequest
    noisy = False
    _log = Logger()

    def __init__(
        self,
        routes: Routes,
        settings: HttpSettings,
        reactor: IReactorTime,
        maxBody: int,
        makeChannel: Callable[[], BrokerChannel] = BrokerChannel,
    ) -> None:
        """
        @param maxBody: the largest body of a request, in bytes.
        @param makeChannel: makes the protocol of a connection.
        """
        super().__init__(
            routes.resource(),
            timeout=settings.timeout,
            reactor=reactor,
            parsePOSTFormSubmission=False,
        )
        self.protocol = makeChannel  # type: ignore[assignment]
        self.routes = routes
        self.bodies = IncompleteBodies(reactor, maxBody)
        self.hasAccessLog = settings.accessLog
        self.channels: set[BrokerChannel] = set()
        self.origins = OriginPolicy(settings)
        self._settings = settings
        self._publishByGet = f"GET {settings.basePath}/rest/publish?".encode("ascii")
        self._drained: Deferred[None] | None = None

    def acceptableProtocols(self) -> list[bytes]:
        """See C{IProtocolNegotiationFactory}. HTTP/2 is never offered."""
        return [b"http/1.1", b"http/1.0"]

    def startFactory(self) -> None:
        """Opens no log file, and needs no clock for the dates of its lines: see L{log}."""

    def stopFactory(self) -> None:
        """There is nothing to close."""

    def buildProtocol(self, addr: IAddress | None) -> Any:
        """A connection's protocol; none once the site is drained."""
        return None if self._drained is not None else super().buildProtocol(addr)

    def log(self, request: http.Request) -> None:
        """
        An answer was given. See C{twisted.web.http.HTTPFactory.log}.
        """
        if self.hasAccessLog:
            self.logAnswer(
                request.getClientAddress(),
                request.method.decode("ascii", "replace"),
                request.path.decode("ascii", "replace"),
                request.code,
                request.sentLength,
            )

    def logAnswer(self, peer: IAddress, method: str, path: str, code: int, length: int) -> None:
        """
        Write an answer into the access log. The query string, which may hold content, never
        appears there.
        """
        self._log.info(
            "{peer} {method} {path} {code} {length}",
            peer=getattr(peer, "host", "-"),
            method=method,
            path=path,
            code=code,
            length=length,
        )

    def drain(self) -> Deferred[None]:
        """
        Finish: no new connection is accepted, idle ones are closed, and every request that has
        arrived whole is answered, after which its connection is closed too. Called once, in an
        orderly stop, by a caller that bounds how long it may take.

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

    def allowOrigin(self, request: BrokerRequest) -> None:
        """Let the browser's page read the answer, where the operator allows its origin."""
        for name, value in self._settings.corsHeaders(request.getHeader(b"origin")):
            request.setHeader(name, value)
