"""
The HTTP server: the site, its connections, and their requests, which are authenticated, then
received, then answered. Bodies are bounded together until they are answered, and each has a
deadline to arrive.

The only module of the carrier that uses private attributes of Twisted; C{test_twisted} pins each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from io import BytesIO
from typing import Any, Final

from attrs import evolve
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import (
    IAddress,
    IDelayedCall,
    IHalfCloseableProtocol,
    IProtocol,
    IReactorTime,
)
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web import http
from twisted.web.http_headers import Headers
from twisted.web.server import Request, Site
from zope.interface import implementer

from ...access import ANYBODY, Access, Principal
from ...broker import ClientConnection
from ...errors import (
    BrokerError,
    ContentTooLarge,
    NotAuthorized,
    Overloaded,
    ParameterInvalid,
    QueryTooLong,
    QuotaExceeded,
)
from ...net.addresses import isLoopback, networkOf, ownerKey, peerText
from ...net.budgets import Budgets, ByteBudget, ByteCount, Lane, Stranger, Unsent
from ...net.transports import ClosingAtStop, OpenConnections, hasEnded, isLost
from .logins import (
    SESSION_CHALLENGE,
    ClientAuthenticator,
    Credentials,
    HttpSettings,
    LogIns,
    OriginPolicy,
    isHost,
    isOfOwnPage,
    portOf,
)
from .operator import Authorizer
from .routes import CONTENT_TYPE, NO_SNIFFING, HttpRefusal, Routes, encodeError, refuse, respond

GRACE: Final = 60.0
"""The time that a body may take to arrive, however slowly, in seconds."""
MIN_RATE: Final = 16 * 1024
"""The least average rate of a body that takes longer than that, in bytes a second."""


class IncompleteBodies:
    """
    All request bodies of a site that came in more than one piece and are not answered yet. The
    bound is for clients that send many large bodies slowly, do not send them to their end, or send
    what takes long.

    @ivar maxBody: the largest body, in bytes.
    @ivar budget: what bounds their bytes, together with those of other carriers.
    @ivar tooLarge: the error for a body that is too large.
    @ivar overloaded: the error for a body for which there is no room.
    """

    def __init__(self, clock: IReactorTime, maxBody: int, budget: ByteBudget) -> None:
        self.clock = clock
        self.maxBody = maxBody
        self.budget = budget
        self.tooLarge = ContentTooLarge(f"a request has at most {maxBody} bytes")
        self.overloaded = Overloaded("too many bytes of requests are being received; try later")


class IncompleteBody:
    """
    One request body that is being received, or was.

    @ivar content: what has arrived of it.
    """

    def __init__(self, bodies: IncompleteBodies, owner: str, timeOut: Callable[[], object]) -> None:
        """
        @param owner: whose it is: see L{ownerKey<svcbroker.net.addresses.ownerKey>}.
        @param timeOut: called when the body arrives too slowly.
        """
        self.content = BytesIO()
        self._bodies = bodies
        self._count = bodies.budget.count(owner)
        self._timeOut: Callable[[], object] | None = timeOut
        self._started = bodies.clock.seconds()
        self._timer = bodies.clock.callLater(GRACE, self._check)

    def write(self, data: bytes) -> BrokerError | None:
        """
        Add a piece that has arrived.

        @return: why there is no room for it; C{None} where there is.
        """
        size, bodies = self._count.size + len(data), self._bodies
        if size > bodies.maxBody:
            return bodies.tooLarge
        if not self._count.set(size):
            return bodies.overloaded
        self.content.write(data)
        return None

    def received(self) -> None:
        """All of it has arrived. It counts until L{end}."""
        self._timeOut = None
        if self._timer.active():
            self._timer.cancel()

    def end(self) -> None:
        """The body is answered, refused or abandoned. Called once or more."""
        self._count.close()
        self.received()

    def _check(self) -> None:
        clock = self._bodies.clock
        left = self._started + GRACE + self._count.size / MIN_RATE - clock.seconds()
        if left > 0:
            self._timer = clock.callLater(left, self._check)
        elif self._timeOut is not None:
            self._timeOut()


class BrokerRequest(Request):
    """
    A request to a L{BrokerSite}.

    Its credentials are checked before its body is received. The body stays in memory, within the
    site's bound. Query and body are not parsed here: C{args} is always empty.

    @ivar principal: who makes the request; C{None} where its path requires no credentials and it
        has none.
    @ivar sessionToken: the token in the cookie of a session, which may have ended; C{None} where
        there is none.
    @ivar isEndless: whether its answer ends with its client only.
    @ivar isOfSession: whether it is made by a page of this server, in the name of its session.
    """

    site: BrokerSite
    channel: BrokerChannel
    content: BytesIO
    principal: Principal | None = None
    sessionToken: bytes | None = None
    isEndless = False
    isOfSession = False
    _body: IncompleteBody | None = None
    _reason: str | None = None
    _refusal: BrokerError | None = None
    _loggingIn: Deferred[Principal] | None = None
    _expectsContinue = False
    _isReceived = False

    def gotLength(self, length: int | None) -> None:
        """
        All headers are there, the body is not. See C{twisted.web.http.Request.gotLength}.
        """
        channel = self.channel
        bodies = channel.site.bodies
        self.content = BytesIO()
        site = channel.site
        self._reason = site.origins.refusal(
            self.requestHeaders,
            channel.isOnLoopback(),
            site.routes.isLinked(*channel.requestLine()),
        )
        if site.userSessions is not None:
            self.sessionToken = site.userSessions.tokenOf(self.requestHeaders, portOf(channel))
        if length != 0:
            self._body = IncompleteBody(bodies, channel.owner, channel.bodyTimedOut)
            self.content = self._body.content
        if self._reason is None:
            self._authenticate()
        if self._refusal is None and length is not None and length > bodies.maxBody:
            self._refuse(bodies.tooLarge)

    def _authenticate(self) -> None:
        """Find the principal of the request, and refuse it where there is none."""
        channel = self.channel
        channel.countFor("")
        site = channel.site
        method, path = channel.requestLine()
        needed = site.routes.credentials(method, path)
        values = self.requestHeaders.getRawHeaders(b"authorization")
        # Repeated headers are joined, which makes them invalid.
        authorization = None if values is None else b", ".join(values)
        if needed is Credentials.IGNORED:
            return
        if needed is Credentials.OPTIONAL and authorization is None:
            return
        if site.authorizer is not None and site.authorizer.knows(path, authorization):
            self.principal = ANYBODY
            return
        principal = self.sessionPrincipal() if authorization is None else None
        self.isOfSession = principal is not None
        if principal is None:
            principal = channel.authenticator.recall(authorization)
        if principal is not None:
            self._admit(principal)
            if self._refusal is not None:
                self._refuse(self._refusal)
            return
        self._loggingIn = channel.authenticator.logIn(authorization)
        self._loggingIn.addCallbacks(self._loggedIn, self._loginFailed)
        if self._loggingIn is not None and self._body is not None:
            self._expectsContinue = self._forgetExpectation()
            channel.pauseForLogin()

    def sessionPrincipal(self) -> Principal | None:
        """The principal of its session; C{None} where it has none, or is of another page."""
        sessions = self.channel.site.userSessions
        if sessions is None or not self.sessionToken or not isOfOwnPage(self.requestHeaders):
            return None
        return sessions.find(self.sessionToken)

    def _admit(self, principal: Principal) -> None:
        """Let a principal make the request, if it may have this connection."""
        try:
            self.channel.authenticator.count(principal)
            self.channel.countFor(principal.name)
            self.principal = principal
        except QuotaExceeded as error:
            self._refusal = error.with_traceback(None)

    def _loggedIn(self, principal: Principal) -> None:
        if self._loggingIn is not None:
            self._admit(principal)
            self._loginEnded()

    def _loginFailed(self, failure: Failure) -> None:
        # A client that leaves cancels its log-in.
        if self._loggingIn is not None:
            self._refusal = self.channel.site.routes.incidents.explain(failure)
            self._loginEnded()

    def _loginEnded(self) -> None:
        channel = self.channel
        self._loggingIn = None
        if self._isReceived:
            self._respond()
        elif self._refusal is not None:
            self._refuse(self._refusal)
        channel.resumeAfterLogin(self._expectsContinue)

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
        if self._body is not None:
            self._body.received()
        self.content.seek(0)
        self.method, self.uri, self.clientproto = command, path, version
        self.path = path.partition(b"?")[0]
        self.args = {}
        self.site = self.channel.site
        self.site.allowOrigin(self)
        self.setHeader(*NO_SNIFFING)
        self._isReceived = True
        if self._loggingIn is None:
            self._respond()

    def _respond(self) -> None:
        """Answer the request, whose body is there or refused."""
        routes, error = self.site.routes, self._refusal or self._overload()
        if error is not None:
            isTooLarge = isinstance(error, ContentTooLarge)
            code = http.REQUEST_ENTITY_TOO_LARGE if isTooLarge else http.SERVICE_UNAVAILABLE
            refusal = refuse(error)
            if refusal is None or isinstance(error, QuotaExceeded):
                headers = () if refusal is None else refusal.headers
                refusal = HttpRefusal(*routes.encodeError(self.path, error, code), headers)
            elif self.sessionToken is not None and refusal.code == http.UNAUTHORIZED:
                refusal = evolve(refusal, headers=((b"WWW-Authenticate", SESSION_CHALLENGE),))
            self.answer(refusal)
        elif self._reason is not None:
            _, body = routes.encodeError(self.path, NotAuthorized(self._reason), http.FORBIDDEN)
            self.answer(HttpRefusal(http.FORBIDDEN, body))
        else:
            channel = self.channel
            self.process()
            # Unless a WebSocket has taken its place.
            channel.known()

    def _overload(self) -> BrokerError | None:
        """The error where too many answers wait to be read; those without credentials are small."""
        try:
            self.channel.unsent.check(isSmall=self.principal is None)
        except Overloaded as error:
            return error.with_traceback(None)
        return None

    def answer(self, refusal: HttpRefusal) -> None:
        """Answer with JSON text and finish."""
        self.write(respond(self, refusal))
        self.finish()

    def processingFailed(self, reason: Failure) -> Failure:
        """
        Klein could not handle this failure. See C{twisted.web.server.Request.processingFailed}.
        """
        error = self.site.routes.incidents.explain(reason)
        self.answer(HttpRefusal(http.INTERNAL_SERVER_ERROR, encodeError(error)))
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
        loggingIn, self._loggingIn = self._loggingIn, None
        if loggingIn is not None:
            loggingIn.cancel()
        super().connectionLost(reason)
        self.answered()

    def endBody(self) -> None:
        """The body is answered, refused or abandoned."""
        if self._body is not None:
            self._body.end()

    def answered(self) -> None:
        """
        The request is answered, or its client has left. Klein leaves cycles behind, with its
        adapters and its own callbacks: they keep neither the connection nor the body.
        """
        self.endBody()
        self._adapterCache.clear()
        self.transport = None
        # A stream, which has the request.
        self.producer = None

    def _refuse(self, error: BrokerError) -> None:
        self._refusal = error
        if self._body is not None:
            self._forgetExpectation()
            self.channel.refuseBody()

    def _forgetExpectation(self) -> bool:
        """
        Have the channel not ask for the body.

        @return: whether the client waits to be asked.
        """
        values = self.requestHeaders.getRawHeaders(b"Expect", [])
        self.requestHeaders.removeHeader(b"Expect")
        return [each.lower() for each in values[:1]] == [b"100-continue"]


MAX_HEADERS: Final = 64 * 1024
"""The largest request line and headers together, in bytes."""
FREE_HEAD: Final = 4 * 1024
"""Fewer unread bytes of a connection are not counted in the budget of input: every client has some
now and then."""
LOOK_EVERY: Final = 1.0
"""The seconds from one look for clients that have left while they are answered to the next."""
LOOKED_AT: Final = 2000
"""The most connections that are looked at in one turn of the reactor: 3 ms where they are idle."""
CLOSED_AT_ONCE: Final = 50
"""The most of them that are closed in it: 6 ms where they are streams."""
LEFT_AFTER: Final = 5
"""A client that has ended its own direction has left, once so many looks found the same call."""
LINGER: Final = 2.0
"""The time for which the rest of a refused request is read and discarded, in seconds."""
_MALFORMED: Final = encodeError(
    ParameterInvalid("this is no request of HTTP/1.1; a URL has ASCII only, and all else as %XX")
)
_NO_HOST: Final = encodeError(
    ParameterInvalid(
        "a request of HTTP/1.1 has one header Host: a host's name or address, and a port or none"
    )
)
_USER_INFORMATION: Final = re.compile(rb"\A([A-Za-z][A-Za-z0-9+.-]*://)?[^/]*@")
"""The beginning of a target that is no path, up to the end of its user information."""


@implementer(IHalfCloseableProtocol)
class BrokerChannel(http.HTTPChannel):
    """
    A connection that can refuse a body before it is there, and can be drained.

    @ivar authenticator: finds the principals of its requests.
    @ivar lane: its share of the time in which requests are answered.
    @ivar unsent: the bytes of its answers that are not sent yet.
    @ivar stranger: its place until it has made a request that is let in.

    A body is refused by answering, reading on for a moment, and only then closing: a connection
    that is closed with unread bytes is reset, and the client may never see the answer.
    """

    MAX_LENGTH = MAX_HEADERS
    totalHeadersSize = MAX_HEADERS
    site: BrokerSite
    authenticator: ClientAuthenticator
    lane: Lane
    unsent: Unsent
    stranger: Stranger | None = None

    _host: IAddress | None = None
    _peer: IAddress | None = None
    _isTLS: bool | None = None
    _isOnLoopback: bool | None = None
    _isAnswering = False
    _isRefused = False
    _isLingering = False
    _isWebSocket = False
    _isInputEnded = False
    _isStalled = False
    _isLoggingIn = False
    _waitsForTurn = False
    _waiter: Deferred[None] | None = None
    _closing: ClosingAtStop | None = None
    # The bytes of heads, and of what waits behind a request, where they are many.
    _unreadCount: ByteCount | None = None
    _headSize = 0

    def connectionMade(self) -> None:
        super().connectionMade()
        self.authenticator = ClientAuthenticator(self.site.access, self)
        budgets = self.site.budgets
        self.lane = budgets.work.lane()
        self.unsent = budgets.output.unsent(
            *("", self.transport, self._pauseAnswers, self._resumeAnswers)
        )
        self.site.channelMade(self)

    @property
    def unreadDuring(self) -> object:
        """The request that is answered while the client is not read from; C{None} for none."""
        if self._isAnswering and (self.paused or self._dataBuffer or self._isInputEnded):
            return self.requests[0] if self.requests else None
        return None

    # Every request asks for these. By the first one a PROXY header has named the client.

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

    def client(self) -> ClientConnection:
        """The connection, for operators."""
        transport: Any = self.transport
        return ClientConnection(
            protocol="http",
            remote=peerText(self.getPeer()),
            unsent=self.unsent,
            close=transport.abortConnection,
            sent=self.unsent.eventsSent,
        )

    def known(self) -> None:
        """A request of the client is let in."""
        if self.stranger is not None:
            self.stranger.leave()
            self.stranger = None

    @property
    def owner(self) -> str:
        """The owner of the connection, as far as is known."""
        return self.unsent.owner or ownerKey("", peerText(self.getPeer()))

    def countFor(self, account: str) -> None:
        """
        Count the answers from now on as those of an account.

        @param account: its name; empty for those of the client's address.
        """
        self.unsent.belongTo(ownerKey(account, peerText(self.getPeer())))

    def writeHeaders(self, version: bytes, code: bytes, reason: bytes, headers: Headers) -> None:
        """Write the status line and the headers, as one piece instead of four for each header."""
        lines = [b"%b %b %b" % (version, code, reason)]
        for name, values in headers.getAllRawHeaders():
            lines += [b"%b: %b" % (name, value) for value in values]
        self.write(b"\r\n".join(lines) + b"\r\n\r\n")

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]
        super().connectionLost(reason)
        self.release()
        # What else would be a cycle with this.
        self._transferDecoder = None

    def readConnectionLost(self) -> None:
        """
        The client sends nothing more, and may still read what it has asked for. A stream without an
        end ends: most of its clients have left.
        """
        self._isInputEnded = True
        if self.requests and self.requests[0].isEndless:
            self.loseConnection()
        else:
            self.closeIfAnswered()

    def writeConnectionLost(self) -> None:
        """Never called: nothing here ends the own direction alone."""

    def closeIfAnswered(self) -> None:
        """Close once a client that sends nothing more has the answers to all it has sent."""
        isReading = self._busyReceiving or self.paused
        if self._isInputEnded and not self._isAnswering and not isReading:
            self.loseConnection()

    def release(self) -> None:
        """Keep nothing for a connection that is closed, or no longer HTTP."""
        self.lane.stop()
        self.unsent.close()
        self.countUnread(0)
        self.known()
        if self._waiter is not None:
            self._waiter.cancel()
        if self._closing is not None:
            self._closing.cancel()
        self.authenticator.close()
        self.site.channelLost(self)

    def refuseBody(self) -> None:
        """Have the request that is arriving answered without its body, and close. Called by it."""
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
            self._close()

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
            hasWork = bool(data or self._buffer) and not self.paused
            if hasWork and not self.lane.begin(isWrite=False):
                self.readInLaterTurn()
            super().dataReceived(data)
            self.lane.end()
            self._countHead()

    def _countHead(self) -> None:
        """Count the head that twisted.web has, and what waits behind its request."""
        waiting = len(self._buffer) + sum(map(len, self._dataBuffer))
        if self.countUnread(self._headSize + self._receivedHeaderSize + waiting):
            return
        if self._isAnswering:
            # Until it is answered: see requestDone.
            self.stopReading()
        elif not self._headSize and not self._isRefused:
            self.refuseHead()

    def countUnread(self, size: int) -> bool:
        """
        Count the bytes of heads that arrive, or wait behind a request, with those of others.

        @return: C{False} where there is no room for them.
        """
        if size <= FREE_HEAD:
            if self._unreadCount is not None:
                self._unreadCount.close()
                self._unreadCount = None
            return True
        if self._unreadCount is None:
            self._unreadCount = self.site.budgets.input.count(self.owner)
        return self._unreadCount.set(size)

    def refuseHead(self) -> None:
        """Refuse a request whose head arrives, since there is no room for it."""
        self.clearLineBuffer()
        self._refuse(b"503 Service Unavailable", encodeError(self.site.bodies.overloaded))

    def lineReceived(self, line: bytes) -> None:
        if not self._isRefused:
            super().lineReceived(line)

    def rawDataReceived(self, data: bytes) -> None:
        if not self._isRefused:
            super().rawDataReceived(data)

    def allHeadersReceived(self) -> None:
        hosts = self.requests[-1].requestHeaders.getRawHeaders(b"host", [])
        # RFC 9112, 3.2. Only HTTP/1.0 knows requests without the header.
        isMissing = not hosts and self._version != b"HTTP/1.0"
        if isMissing or len(hosts) > 1 or not all(map(isHost, hosts)):
            self._refuse(b"400 Bad Request", _NO_HOST)
        else:
            # Until its request is answered.
            self._headSize, self._receivedHeaderSize = self._receivedHeaderSize, 0
            super().allHeadersReceived()

    def allContentReceived(self) -> None:
        if not self._isRefused:
            self._isAnswering = True
            super().allContentReceived()

    def write(self, data: bytes) -> None:
        """Write a piece of an answer."""
        super().write(data)
        self.unsent.written()

    def writeSequence(self, iovec: Iterable[bytes]) -> None:
        """Write pieces of an answer."""
        super().writeSequence(iovec)
        self.unsent.written()

    def pauseProducing(self) -> None:
        """The transport's buffer is full."""
        self.unsent.pauseProducing()

    def resumeProducing(self) -> None:
        """The transport's buffer is empty."""
        self.unsent.resumeProducing()

    def _pauseAnswers(self) -> None:
        """
        The client does not read its answers. Its further requests have to wait too: a few bytes
        of request can bring a megabyte of answer.
        """
        super().pauseProducing()
        if not self._isWebSocket:
            self._isStalled = True
            self._updateReading()

    def _resumeAnswers(self) -> None:
        """The client has read its answers."""
        super().resumeProducing()
        if not self._isWebSocket:
            self._isStalled = False
            self._updateReading()

    def pauseForLogin(self) -> None:
        """Receive no body before its request is let in. Called by the request."""
        self._isLoggingIn = True
        self._updateReading()

    def resumeAfterLogin(self, isAsked: bool) -> None:
        """
        Receive the body of the request whose log-in has ended.

        @param isAsked: whether the client waits to be asked for it.
        """
        if self._isLoggingIn:
            self._isLoggingIn = False
            if isAsked and not self._isRefused and self._version == b"HTTP/1.1":
                self._send100Continue()
            self._updateReading()

    def readInLaterTurn(self, isWrite: bool = False, size: int = 0, events: int = 1) -> None:
        """
        Read no further request in this turn of the reactor.

        @param isWrite: whether the next one publishes.
        @param size: the length of its body, in bytes, where that is known.
        @param events: how many events it may publish.
        """
        if not self._waitsForTurn:
            self._waitsForTurn = True
            self.lane.wait(self._readOn, isWrite, size, events)
            self._updateReading()

    def _readOn(self) -> None:
        self._waitsForTurn = False
        self._updateReading()

    def mayReadStranger(self) -> bool:
        """
        Ask whether a request may be read now of a client that is not known.

        @return: C{False} where nothing is read before its turn.
        """
        access = self.site.access
        lane = networkOf(getattr(self.getPeer(), "host", ""))
        if access.isOpen or access.turns.take(lane):
            return True
        self._waiter = access.turns.wait(lane)
        self._waiter.addCallbacks(self._readStranger, lambda failure: failure.trap(CancelledError))
        self._updateReading()
        return False

    def _readStranger(self, _: None) -> None:
        self._waiter = None
        self._updateReading()

    def _updateReading(self) -> None:
        self.paused = (
            self._isStalled or self._isLoggingIn or self._waitsForTurn or self._waiter is not None
        )
        if self.paused:
            self.stopReading()
        else:
            self.startReading()
            self.dataReceived(b"")
            self.closeIfAnswered()

    def stopReading(self) -> None:
        """Read nothing more from the client."""
        self._networkProducer.pauseProducing()

    def startReading(self) -> None:
        """Read from the client again."""
        self._networkProducer.resumeProducing()

    def requestLine(self) -> tuple[bytes, bytes]:
        """The method and the path of the request whose headers have arrived."""
        return self._command, self._path.partition(b"?")[0]

    def isBetweenRequests(self) -> bool:
        """Whether twisted.web answers no request, and has no unparsed bytes."""
        return not self._buffer and not self.requests

    def requestDone(self, request: Any) -> None:
        self._isAnswering = False
        self._headSize = 0
        self.countUnread(0)
        request.answered()
        if self._dataBuffer and self._buffer:
            # TLS delivers what it has decrypted even while reading is stopped. What arrived while
            # the client did not read its answers belongs behind what arrived before.
            self._dataBuffer.append(self.clearLineBuffer())
        super().requestDone(request)
        # twisted.web goes on to the next request only where it is called from within: otherwise it
        # has read all there is already, and what is left is the beginning of a request.
        if (
            self._busyReceiving
            and self._buffer
            and not self.paused
            and not self.lane.begin(isWrite=False)
        ):
            self.readInLaterTurn()
        self.closeIfAnswered()

    def lineLengthExceeded(self, line: bytes) -> None:
        """The request line or a header is too long."""
        self._refuse(*self.site.overlong(line))

    def _respondToBadRequestAndDisconnect(self) -> None:
        # Twisted's own answer has no body, so many clients would show nothing.
        self._refuse(b"400 Bad Request", _MALFORMED)

    def _refuse(self, status: bytes, body: bytes) -> None:
        """Answer what cannot be read as a request, and close."""
        assert self.transport is not None
        self._isRefused = True
        self.transport.write(
            b"HTTP/1.1 %b\r\nConnection: close\r\n%b: %b\r\n"
            b"Content-Type: %b\r\nContent-Length: %d\r\n\r\n%b"
            % (status, *NO_SNIFFING, CONTENT_TYPE, len(body), body)
        )
        self.loseConnection()

    def loseConnection(self) -> None:
        if self._isRefused and not self._isLingering and not self._isInputEnded:
            self._isLingering = True
            self.setTimeout(LINGER)
        else:
            self._close()

    def _close(self) -> None:
        self.endBody()
        if self.site.isDraining and self._closing is None:
            self._closing = ClosingAtStop(self.transport, self.site.budgets.work.after)
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
        # As twisted.web does with what it hands over.
        half = IHalfCloseableProtocol(protocol, None)
        ended = self.transport.loseConnection if half is None else half.readConnectionLost
        self.readConnectionLost = ended  # type: ignore[method-assign]
        # The request is never finished.
        for request in self.requests:
            request.answered()
            request.channel = None
        self.requests.clear()

    def _closeAfterAnswer(self) -> None:
        self.persistent = 0
        self.requests[0].responseHeaders.setRawHeaders(b"Connection", [b"close"])


class BrokerSite(Site):
    """
    The site of a broker: the factory of its connections.

    @ivar routes: the route table.
    @ivar access: who may use the site.
    @ivar userSessions: the log-ins of the console's users; C{None} where there is no console.
    @ivar authorizer: decides which requests are operator calls of this machine.
    @ivar bodies: the bodies that are being received, and their bounds.
    @ivar hasAccessLog: whether answers are logged.
    @ivar channels: the open connections.
    @ivar budgets: what all connections share.
    @ivar origins: decides which web pages may use the site.
    """

    requestFactory = BrokerRequest
    noisy = False
    _log = Logger()

    def __init__(
        self,
        routes: Routes,
        settings: HttpSettings,
        access: Access,
        reactor: IReactorTime,
        budgets: Budgets,
        maxBody: int,
        makeChannel: Callable[[], BrokerChannel] = BrokerChannel,
        authorizer: Authorizer | None = None,
        sessions: LogIns | None = None,
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
        self.access = access
        self.budgets = budgets
        self.authorizer = authorizer
        self.userSessions = sessions
        self.bodies = IncompleteBodies(reactor, maxBody, budgets.input)
        self.hasAccessLog = settings.accessLog
        self.channels: OpenConnections[BrokerChannel] = OpenConnections(budgets.work.makeAll)
        self.origins = OriginPolicy(settings)
        self._settings = settings
        self._publishByGet = f"GET {settings.basePath}/rest/publish?".encode("ascii")
        # What was answered by which channel at the last look, and for how many looks; the next one.
        self._answered: dict[BrokerChannel, tuple[object, int]] = {}
        self._looking: IDelayedCall | None = None

    def acceptableProtocols(self) -> list[bytes]:
        """See C{IProtocolNegotiationFactory}. HTTP/2 is never offered."""
        return [b"http/1.1", b"http/1.0"]

    def startFactory(self) -> None:
        """Opens no log file, and needs no clock for the dates of its lines: see L{log}."""

    def stopFactory(self) -> None:
        """There is nothing to close."""

    def buildProtocol(self, addr: IAddress | None) -> Any:
        """A connection's protocol; none once the site is drained."""
        return None if self.isDraining else super().buildProtocol(addr)

    @property
    def isDraining(self) -> bool:
        """Whether connections are closed as soon as they are idle."""
        return self.channels.isDraining

    def log(self, request: http.Request) -> None:
        """An answer was given. See C{twisted.web.http.HTTPFactory.log}."""
        if self.hasAccessLog:
            self.logAnswer(
                request.getClientAddress(),
                request.method.decode("ascii", "replace"),
                _USER_INFORMATION.sub(rb"\1", request.path).decode("ascii", "replace"),
                request.code,
                request.sentLength,
            )

    def logAnswer(self, peer: IAddress, method: str, path: str, code: int, length: int) -> None:
        """
        Write an answer into the access log. The query string, which may hold content, never
        appears there, nor does the user information of a target, which may hold a password.
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
        return self.channels.drain(lambda each: each.drain())

    def channelMade(self, channel: BrokerChannel) -> None:
        """A client has connected."""
        self.channels.add(channel)
        if self._looking is None:
            self._looking = self.reactor.callLater(LOOK_EVERY, self._look)

    def channelLost(self, channel: BrokerChannel) -> None:
        """A connection is closed, or is no longer HTTP."""
        self._answered.pop(channel, None)
        if self._looking is not None and self.channels.keys() == {channel}:
            self._looking.cancel()
            self._looking = None
        self.channels.discard(channel)

    def _look(self) -> None:
        """
        Close connections whose clients have left in the middle of a long call. What is read from
        finds out by itself; who asks for more and more, or has ended its own direction, is not.
        """
        before, self._answered = self._answered, {}
        self._lookOn(self.channels.inTurns(), before)

    def _lookOn(
        self,
        channels: Iterator[BrokerChannel],
        before: Mapping[BrokerChannel, tuple[object, int]],
    ) -> None:
        """
        Look at the next connections, and at the others in the following turns.

        @param before: what the last look has found.
        """
        self._looking = None
        closed = 0
        following: tuple[Any, ...] = (LOOK_EVERY, self._look)
        for looked, channel in enumerate(channels, 1):
            closed += self._closeIfLeft(channel, *before.get(channel, (None, 0)))
            if looked == LOOKED_AT or closed == CLOSED_AT_ONCE:
                following = (0, self._lookOn, channels, before)
                break
        if self.channels:
            self._looking = self.reactor.callLater(*following)

    def _closeIfLeft(self, channel: BrokerChannel, last: object, looks: int) -> bool:
        """
        Close a connection whose client has left in the middle of a long call.

        @param last: the call that the last look has found.
        @param looks: how many looks have found it.
        @return: whether it is closed.
        """
        current = channel.unreadDuring
        if current is None:
            return False
        looks = looks + 1 if last is current else 1
        self._answered[channel] = (current, looks)
        transport: Any = channel.transport
        hasLeft = isLost(transport) or (looks > LEFT_AFTER and hasEnded(transport))
        if hasLeft:
            transport.abortConnection()
        return hasLeft

    def overlong(self, line: bytes) -> tuple[bytes, bytes]:
        """The status line and the JSON text for a request line or a header that is too long."""
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
