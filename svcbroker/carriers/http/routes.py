"""
The route table of a site: endpoints, other routes, and JSON answers where there is no route.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, wraps
from math import ceil
from typing import Any, Final, TypeAlias

from attrs import field, frozen
from klein import Klein
from msgspec.json import Encoder
from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.python.failure import Failure
from twisted.web import http
from twisted.web.resource import IResource, Resource
from twisted.web.server import NOT_DONE_YET, Request
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from ...access import ANYBODY, Principal
from ...errors import (
    BrokerError,
    NodeBehind,
    NoSuchCall,
    NotAuthenticated,
    NotAuthorized,
    QuotaExceeded,
)
from ...net.budgets import Unsent
from ...net.deferreds import withoutTraceback
from ...operations import (
    Connection,
    ErrorRecord,
    Incidents,
    ManyCall,
    Operation,
    erasureOf,
    readTrace,
    same,
)
from .logins import CHALLENGES, Credentials

CONTENT_TYPE: Final = b"application/json;charset=UTF-8"

NO_SNIFFING: Final = (b"X-Content-Type-Options", b"nosniff")
"""The header of all answers: browsers take none for anything but its content type."""

_CONTENT_TYPES = [CONTENT_TYPE]
_PREFLIGHT_AGE = b"86400"
_ALLOWED_HEADERS = (
    b"Authorization, Content-Type, Idempotency-Key, traceparent, tracestate, svc-after"
)
_encoder = Encoder()


@frozen
class PublishHeaders:
    """
    The header fields of a request that become parameters of its call: those of what it publishes,
    and of what its client has seen.

    @ivar idempotencyKey: C{Idempotency-Key}; empty where there is none.
    @ivar trace: the extensions of C{traceparent} and C{tracestate}; see L{readTrace}.
    @ivar after: C{svc-after}: the id of an event; empty where there is none.
    """

    idempotencyKey: bytes
    trace: Mapping[str, str]
    after: bytes


def publishHeaders(
    idempotencyKey: bytes | None,
    traceparent: bytes | None,
    tracestate: bytes | None,
    after: bytes | None,
) -> PublishHeaders | None:
    """
    Read the header fields that become parameters.

    @return: C{None} where there are none.
    """
    trace: Mapping[str, str] = {}
    if traceparent:
        trace = readTrace(traceparent.decode("latin-1"), (tracestate or b"").decode("latin-1"))
    if not idempotencyKey and not trace and not after:
        return None
    return PublishHeaders(idempotencyKey or b"", trace, after or b"")


def publishHeadersOf(request: Request) -> PublishHeaders | None:
    """
    The header fields of a request that become parameters. Several of one name are joined, which
    makes them invalid.
    """
    names = (b"idempotency-key", b"traceparent", b"tracestate", b"svc-after")
    found = (request.requestHeaders.getRawHeaders(name) for name in names)
    return publishHeaders(*(None if values is None else b", ".join(values) for values in found))


encode: Final[Callable[[Any], bytes]] = _encoder.encode
"""Encodes a record as JSON text."""


def encodeError(error: BrokerError) -> bytes:
    """Encode a failure as REST and the admin queries answer it."""
    return _encoder.encode(ErrorRecord(error.code, error.message, erasureOf(error)))


def resultEncoder(operation: Operation) -> Callable[[Any], bytes]:
    """Make the function that encodes results of an operation as JSON text."""
    render = operation.result.render
    return _encoder.encode if render is same else lambda result: _encoder.encode(render(result))


@frozen
class HttpRefusal:
    """
    An answer with a status or headers of its own: mostly that of a failure.

    @ivar code: the HTTP status.
    @ivar body: the JSON text.
    """

    code: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()


Answer: TypeAlias = bytes | HttpRefusal | None
"""JSON text, with status 200; a L{HttpRefusal}; or C{None} for an answer without a body, with
204."""


def refuse(error: BrokerError) -> HttpRefusal | None:
    """
    The answer to a failure of authentication, authorization or a quota, or of a node that is behind
    others.

    @return: C{None} for any other failure.
    """
    if isinstance(error, NotAuthenticated):
        challenges = tuple((b"WWW-Authenticate", value) for value in CHALLENGES)
        return HttpRefusal(http.UNAUTHORIZED, encodeError(error), challenges)
    if isinstance(error, NotAuthorized):
        return HttpRefusal(http.FORBIDDEN, encodeError(error))
    if isinstance(error, QuotaExceeded):
        delay = b"%d" % max(1, ceil(error.retryAfter))
        return HttpRefusal(http.OK, encodeError(error), ((b"Retry-After", delay),))
    if isinstance(error, NodeBehind):
        # For proxies, which ask another node then.
        delay = b"%d" % error.retryAfter
        body = encodeError(error)
        return HttpRefusal(http.SERVICE_UNAVAILABLE, body, ((b"Retry-After", delay),))
    return None


def explain(
    error: BrokerError, principal: Principal, encodeError: Callable[[BrokerError], bytes]
) -> Answer:
    """
    The answer to a failure of a call. Where there are no accounts, its status is always that of the
    published interface.
    """
    isPlain = principal is ANYBODY and not isinstance(error, QuotaExceeded | NodeBehind)
    refusal = None if isPlain else refuse(error)
    return encodeError(error) if refusal is None else refusal


def respond(request: Request, answer: Answer, code: int = http.OK) -> bytes:
    """
    Set the status and the headers of a JSON answer.

    @param code: the status of JSON text.
    @return: the body, for Klein to write.
    """
    if answer is None:
        request.setResponseCode(http.NO_CONTENT)
        return b""
    refusal = answer if isinstance(answer, HttpRefusal) else HttpRefusal(code, answer)
    headers = request.responseHeaders
    for name, value in refusal.headers:
        headers.addRawHeader(name, value)
    headers.setRawHeaders(b"Content-Type", _CONTENT_TYPES)
    headers.setRawHeaders(b"Content-Length", [b"%d" % len(refusal.body)])
    if refusal.code != http.OK:
        request.setResponseCode(refusal.code)
    return refusal.body


def refused(error: Exception) -> Deferred[Any]:
    """The outcome of a request that has raised an error, as L{HttpEndpoint.make} has it."""
    # A failure would take longer, and clients may have thousands a second refused. The frames of an
    # error would be in a cycle with it.
    return succeed(error.with_traceback(None)) if isinstance(error, BrokerError) else fail(error)


def checkOutput(outcome: Any, unsent: Unsent, isSmall: bool) -> Any:
    """
    Look whether a call that was waited for may be answered.

    @return: the call's outcome.
    @raise Overloaded: too many bytes of answers wait to be read.
    """
    unsent.check(isSmall)
    return outcome


def principalOf(request: Any) -> Principal:
    """The principal of a request, where its path requires credentials."""
    principal: Principal = request.principal
    return principal


def connectionOf(request: Any) -> Connection:
    """The connection that a request came by."""
    channel: Connection = request.channel
    return channel


def ignoreHeaders(argument: Any, headers: PublishHeaders) -> Any:
    """The argument of a call to which no header field belongs."""
    return argument


@frozen(kw_only=True, eq=False)
class HttpEndpoint:
    """
    One call of the interface, under one method and path: from a request's bytes to JSON text.

    @ivar method: GET, which serves HEAD too, or POST.
    @ivar path: exactly this path.
    @ivar parse: makes the call's argument of query string, content type and body, of which a GET
        has neither. May raise a L{BrokerError}.
    @ivar call: makes the call for a principal, by a connection. May raise or fail.
    @ivar addHeaders: adds header fields to the call's argument, as far as they belong to the call;
        may raise a L{BrokerError}. Called where there are some.
    @ivar callMany: makes calls of a principal together; its Deferred fires with all outcomes as
        that of L{make} does. C{None} where each call is made alone.
    @ivar isOneOfMany: whether C{callMany} may make a call with this argument. One that names one of
        several groups is made alone: no group waits for another.
    @ivar isWrite: whether it publishes: such calls come before others.
    @ivar encode: encodes the result as JSON text; C{None} where there is nothing to answer.
    @ivar encodeError: encodes a failure.
    @ivar incidents: logs unexpected failures.
    """

    method: str
    path: str
    parse: Callable[[bytes, bytes | None, bytes], Any]
    call: Callable[[Principal, Any, Connection], Deferred[Any]]
    encode: Callable[[Any], Answer]
    encodeError: Callable[[BrokerError], bytes] = encodeError
    incidents: Incidents
    addHeaders: Callable[[Any, PublishHeaders], Any] = ignoreHeaders
    callMany: ManyCall | None = None
    isOneOfMany: Callable[[Any], bool] = lambda argument: True
    isWrite: bool = field(init=False)

    @isWrite.default
    def _isWrite(self) -> bool:
        return self.callMany is not None

    def make(self, principal: Principal, argument: Any, connection: Connection) -> Deferred[Any]:
        """
        Make the call.

        @param principal: who makes the request.
        @param connection: the connection that it came by.
        @return: fires with the outcome, for L{answerTo}: the result, or the error of a call that
            was refused at once; or fails, for L{explain}.
        """
        try:
            return self.call(principal, argument, connection)
        except Exception as error:
            return refused(error)

    def ask(
        self,
        principal: Principal,
        query: bytes,
        contentType: bytes | None,
        body: bytes,
        connection: Connection,
        headers: PublishHeaders | None = None,
    ) -> Deferred[Any]:
        """
        Parse a request, and make the call as L{make} does.

        @param query: the query string, as it was sent.
        @param headers: those that become parameters; C{None} where there are none.
        """
        try:
            argument = self.parse(query, contentType, body)
            if headers is not None:
                argument = self.addHeaders(argument, headers)
        except Exception as error:
            return refused(error)
        return self.make(principal, argument, connection)

    def answerTo(self, outcome: Any, principal: Principal) -> Answer:
        """The answer to a call that has this outcome."""
        if isinstance(outcome, BrokerError):
            return explain(outcome, principal, self.encodeError)
        try:
            return self.encode(outcome)
        except Exception:
            return self.encodeError(self.incidents.explain(Failure()))

    def explain(self, failure: Failure, principal: Principal) -> Answer:
        """The answer to a call that has failed, or that the broker has cancelled."""
        return explain(self.incidents.explain(failure), principal, self.encodeError)

    def answer(self, asked: Deferred[Any], principal: Principal) -> Deferred[Answer]:
        """
        Make the answer to a request.

        @param asked: what L{ask} has returned for it.
        @return: fires with the answer, which may tell of a failure. It fails only with
            C{CancelledError}, once the call was cancelled.
        """

        def failed(failure: Failure) -> Answer | Failure:
            # Raised here, the error would be a cycle with the frame of this function.
            if isinstance(failure.value, CancelledError):
                return withoutTraceback(failure)
            return self.explain(failure, principal)

        return asked.addCallbacks(self.answerTo, failed, callbackArgs=(principal,))

    def handle(self, request: Request) -> Deferred[bytes]:
        """Answer a request that twisted.web has parsed. Called by L{Routes.resource}."""
        assert request.content is not None
        _, _, query = request.uri.partition(b"?")
        principal, contentType = principalOf(request), request.getHeader(b"content-type")
        body, headers = request.content.read(), publishHeadersOf(request)
        connection = connectionOf(request)
        asked = self.ask(principal, query, contentType, body, connection, headers)
        if not asked.called:
            # Many calls may wait for one thing, and have answers at once.
            asked.addCallback(checkOutput, connection.unsent, self.isWrite)
        return self.answer(asked, principal).addCallback(lambda answer: respond(request, answer))


@frozen(kw_only=True)
class Route:
    """
    A path that is no endpoint: health, the console, a WebSocket.

    @ivar path: the whole path, as Klein takes it.
    @ivar methods: the methods it is served by; HEAD comes with GET.
    @ivar handler: answers a request with what Klein takes: bytes, a Deferred of bytes, or an
        C{IResource} that takes over (a WebSocket).
    @ivar isBranch: whether all paths below belong to it too.
    @ivar credentials: what it makes of credentials.
    @ivar isLinked: whether pages of other sites may link to it.
    @ivar isEndless: whether its answers to GET last as long as their clients stay. It has a path
        without parameters, and gives a Deferred of bytes. Klein has no part in these: what it
        leaves behind of a request that has lasted is only found when all objects are looked at.
    """

    path: str
    methods: tuple[str, ...]
    handler: Callable[..., Any]
    isBranch: bool = False
    credentials: Credentials = Credentials.REQUIRED
    isLinked: bool = False
    isEndless: bool = False


@frozen(kw_only=True)
class Area:
    """
    A part of the site where every answer has HTTP status 200, failures included.

    @ivar prefix: its path.
    @ivar methods: the methods that its paths are served by.
    @ivar encodeError: encodes a failure.
    @ivar isTree: whether the paths below belong to it.
    """

    prefix: str
    methods: tuple[str, ...]
    encodeError: Callable[[BrokerError], bytes] = encodeError
    isTree: bool = True
    _prefix: bytes = field(init=False)

    @_prefix.default
    def _encodePrefix(self) -> bytes:
        return self.prefix.encode("ascii")

    def covers(self, path: bytes) -> bool:
        """Whether a path lies in it."""
        if path == self._prefix:
            return True
        return self.isTree and path.startswith(self._prefix + b"/")


class Routes:
    """
    The route table of a site. It is built once: the fast path looks its endpoints up by request
    line, and L{resource} serves the same endpoints and everything else.

    @ivar endpoints: the endpoints by method and path with a space between.
    @ivar handlers: what answers requests in twisted.web, by the names of the rules.
    @ivar direct: what answers requests without Klein, by method and path with a space between.
    @ivar incidents: logs unexpected failures.
    """

    def __init__(
        self,
        endpoints: Iterable[HttpEndpoint],
        others: Iterable[Route],
        areas: Iterable[Area],
        incidents: Incidents,
    ) -> None:
        self.endpoints = {f"{each.method} {each.path}".encode("ascii"): each for each in endpoints}
        self.incidents = incidents
        self._others = tuple(others)
        self._areas = tuple(areas)
        self.handlers: Mapping[str, Callable[..., Any]] = {
            **{name.decode(): each.handle for name, each in self.endpoints.items()},
            **{each.path: _lean(each.handler) for each in self._others},
        }
        self.direct: Mapping[bytes, Callable[[Any], Deferred[bytes]]] = {
            **{name: each.handle for name, each in self.endpoints.items()},
            **{
                f"GET {each.path}".encode("ascii"): self.handlers[each.path]
                for each in self._others
                if each.isEndless
            },
        }
        self._credentials = {each.path.encode("ascii"): each.credentials for each in self._others}
        # Those below which any name is as public.
        self._public = {
            above.encode("ascii")
            for above, _, name in (
                each.path.rpartition("/")
                for each in self._others
                if each.credentials is Credentials.IGNORED
            )
            if name.startswith("<")
        }
        self._linked = {each.path.encode("ascii") for each in self._others if each.isLinked}

    def credentials(self, method: bytes, path: bytes) -> Credentials:
        """The rule for a request's credentials. Unknown paths require them, too."""
        if method == b"OPTIONS":
            # Browsers send none in a preflight request.
            return Credentials.IGNORED
        if path.rpartition(b"/")[0] in self._public:
            return Credentials.IGNORED
        return self._credentials.get(path, Credentials.REQUIRED)

    def isLinked(self, method: bytes, path: bytes) -> bool:
        """Whether pages of other sites may link to what a request asks for."""
        return method == b"GET" and path in self._linked

    def resource(self) -> IResource:
        """The whole site as twisted.web serves it: every answer in JSON."""
        rules = [
            *((name.decode(), e.path, (e.method,), False) for name, e in self.endpoints.items()),
            *((each.path, each.path, each.methods, each.isBranch) for each in self._others),
        ]
        return _Root(self, _application(tuple(rules)).__get__(self, Routes).resource())

    def encodeError(self, path: bytes, error: BrokerError, code: int) -> tuple[int, bytes]:
        """
        Encode a failure as the area of a path does.

        @param code: the HTTP status of the failure outside of all areas.
        @return: the HTTP status and the JSON text.
        """
        area = self._areaOf(path)
        if area is None:
            return code, encodeError(error)
        return http.OK, area.encodeError(error)

    def _areaOf(self, path: bytes) -> Area | None:
        return next((area for area in self._areas if area.covers(path)), None)

    def methodNotAllowed(self, request: Request, failure: Failure) -> bytes:
        """Answer a request whose path is served by other methods."""
        assert isinstance(failure.value, MethodNotAllowed)
        return _refuseMethod(request, failure.value.valid_methods or ())

    def notFound(self, request: Request, failure: Failure) -> bytes:
        """Answer a request whose path is unknown."""
        area = self._areaOf(request.path)
        if area is not None and request.method.decode("ascii") not in (*area.methods, "HEAD"):
            return _refuseMethod(request, area.methods)
        return self._respondError(request, NoSuchCall(), http.NOT_FOUND)

    def fail(self, request: Request, failure: Failure) -> bytes:
        """Answer a request whose handler has failed, after logging what was not expected."""
        error = self.incidents.explain(failure)
        return self._respondError(request, error, http.INTERNAL_SERVER_ERROR)

    def _respondError(self, request: Request, error: BrokerError, code: int) -> bytes:
        status, body = self.encodeError(request.path, error, code)
        return respond(request, body, status)


@lru_cache(maxsize=16)
def _application(rules: tuple[tuple[str, str, tuple[str, ...], bool], ...]) -> Klein:
    """
    The application of rules, each with a name, a path, methods, and whether the paths below belong
    to it. It calls methods of L{Routes}. Rules take most of the time that a site takes to be made,
    so sites with the same rules share them.
    """

    def handler(name: str) -> Callable[..., Any]:
        return lambda routes, request, **parts: routes.handlers[name](request, **parts)

    app = Klein()
    app.url_map.merge_slashes = False
    _onlyMatch(app.url_map)
    for name, path, methods, isBranch in rules:
        app.route(path, methods=list(methods), endpoint=name, branch=isBranch)(handler(name))
    # Klein says IRequest; it is always a Request.
    handleErrors: Any = app.handle_errors
    handleErrors(MethodNotAllowed)(Routes.methodNotAllowed)
    # Not only NotFound: there are no redirects to nicer paths here.
    handleErrors(HTTPException)(Routes.notFound)
    handleErrors(Exception)(Routes.fail)
    return app


def _onlyMatch(rules: Any) -> None:
    """
    Have rules that are added to a map never build an address. Werkzeug would compile two functions
    for that from each rule: a quarter of the time in which a daemon starts, but for its imports.
    """
    add = rules.add

    def addToMatch(rule: Any) -> None:
        # A Werkzeug that does not have this method compiles them again.
        rule._compile_builder = lambda appendUnknown: _cannotBuild
        add(rule)

    rules.add = addToMatch


def _cannotBuild(rule: object, **values: object) -> tuple[str, str]:
    raise NotImplementedError("rules are only matched")


def _lean(handler: Callable[..., Any]) -> Callable[..., Any]:
    """A handler whose cancelled requests leave nothing to the garbage collector."""

    @wraps(handler)
    def handle(*args: Any, **kwargs: Any) -> Any:
        answered = handler(*args, **kwargs)
        if isinstance(answered, Deferred):
            answered.addErrback(withoutTraceback)
        return answered

    return handle


def _refuseMethod(request: Request, methods: Iterable[str]) -> bytes:
    """Answer OPTIONS, or a method that a path is not served by."""
    allowed = {*methods, "OPTIONS"}
    if "GET" in allowed:
        allowed.add("HEAD")
    allow = ", ".join(sorted(allowed)).encode("ascii")
    request.setHeader(b"allow", allow)
    if request.method == b"OPTIONS":
        # The header is there where the site allows the origin of the browser's page.
        if request.responseHeaders.hasHeader(b"access-control-allow-origin"):
            request.setHeader(b"access-control-allow-methods", allow)
            request.setHeader(b"access-control-allow-headers", _ALLOWED_HEADERS)
            request.setHeader(b"access-control-max-age", _PREFLIGHT_AGE)
        return respond(request, None)
    error = NoSuchCall("this path is not served by this method")
    return respond(request, encodeError(error), http.NOT_ALLOWED)


class _Root(Resource):
    """
    Has an endpoint or an endless route answer a request of exactly its method and path, and Klein
    all others.

    Klein would route a request to the same endpoint, for half of the time that it takes.
    """

    isLeaf = True

    def __init__(self, routes: Routes, klein: IResource) -> None:
        super().__init__()
        self._routes = routes
        self._klein = klein

    def render(self, request: Request) -> Any:
        """Have a request answered by its route."""
        handle = self._routes.direct.get(b"%b %b" % (request.method, request.path))
        if handle is not None:
            self._answer(request, handle)
            return NOT_DONE_YET
        # Klein would not answer in JSON on these.
        try:
            b"/".join(request.postpath or ()).decode("utf-8")
        except UnicodeDecodeError:
            request.postpath = [b"", b"not UTF-8"]
        return self._klein.render(request)

    def _answer(self, request: Request, handle: Callable[[Any], Deferred[bytes]]) -> None:
        # A request has no channel once its client has left.
        def failed(failure: Failure) -> bytes:
            return b"" if request.channel is None else self._routes.fail(request, failure)

        def finish(body: bytes) -> None:
            if request.channel is not None:
                request.write(body)
                request.finish()

        answering = handle(request)
        request.notifyFinish().addErrback(lambda _: answering.cancel())
        answering.addErrback(failed)
        answering.addCallback(finish)
