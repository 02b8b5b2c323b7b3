"""
The requests of the HTTP server: authenticated, then received, then answered.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.web import http
from twisted.web.server import Request

from ...access import ANYBODY, Principal
from ...errors import BrokerError, ContentTooLarge, NotAuthorized, Overloaded, QuotaExceeded
from .authentication import SESSION_CHALLENGE, Credentials
from .bodies import IncompleteBody
from .routes import NO_SNIFFING, HttpRefusal, encodeError, refuse, respond
from .sessions import isOfOwnPage, portOf

if TYPE_CHECKING:
    from .server import BrokerChannel, BrokerSite


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
            self._refusal = error

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
            return error
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
