"""
The Klein application: routes, and JSON answers where there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from attrs import field, frozen
from klein import Klein
from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure
from twisted.web import http
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from ...errors import BrokerError, NoSuchCall
from ...operations import Incidents
from .encoding import CONTENT_TYPE, encodeError
from .request import BrokerRequest

_CONTENT_TYPES = [CONTENT_TYPE]


@frozen(kw_only=True)
class Route:
    """
    One path of the site.

    @ivar path: the whole path, as Klein takes it.
    @ivar methods: the methods it is served by; HEAD comes with GET.
    @ivar handler: answers a request with what Klein takes: bytes, a Deferred of bytes, or an
        C{IResource} that takes over (a WebSocket).
    @ivar isBranch: whether all paths below belong to it too.
    @ivar isDirect: whether exactly this path need not pass Klein's router, which takes a third of
        such a request's time. The handler answers with a Deferred of bytes that does not fail.
    """

    path: str
    methods: tuple[str, ...]
    handler: Callable[..., Any]
    isBranch: bool = False
    isDirect: bool = False


@frozen(kw_only=True)
class Area:
    """
    A part of the site where every answer has HTTP status 200, failures included.

    @ivar prefix: its path.
    @ivar methods: the methods that its paths are served by.
    @ivar encodeError: tells of a failure.
    @ivar isTree: whether the paths below belong to it.
    """

    prefix: str
    methods: tuple[str, ...]
    encodeError: Callable[[BrokerError], bytes]
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


def respond(request: BrokerRequest, body: bytes, code: int = http.OK) -> bytes:
    """
    Set the headers of a JSON answer.

    @return: the body, for Klein to write.
    """
    headers = request.responseHeaders
    headers.setRawHeaders(b"Content-Type", _CONTENT_TYPES)
    headers.setRawHeaders(b"Content-Length", [b"%d" % len(body)])
    if code != http.OK:
        request.setResponseCode(code)
    return body


def findArea(areas: Iterable[Area], path: bytes) -> Area | None:
    """The area that a path lies in."""
    return next((area for area in areas if area.covers(path)), None)


def makeApp(routes: Iterable[Route], areas: Sequence[Area], incidents: Incidents) -> Klein:
    """
    A Klein application with these routes, which answers everything else in JSON.
    """
    app = Klein()
    app.url_map.merge_slashes = False
    for route in routes:
        app.route(
            route.path, methods=list(route.methods), endpoint=route.path, branch=route.isBranch
        )(route.handler)
    _installErrorHandlers(app, areas, incidents)
    return app


def _refuseMethod(request: BrokerRequest, methods: Iterable[str]) -> bytes:
    allowed = {*methods, "OPTIONS"}
    if "GET" in allowed:
        allowed.add("HEAD")
    allow = ", ".join(sorted(allowed)).encode("ascii")
    request.setHeader(b"allow", allow)
    if request.method == b"OPTIONS":
        request.site.allowPreflight(request, allow)
        request.setResponseCode(http.NO_CONTENT)
        return b""
    error = NoSuchCall("this path is not served by this method")
    return respond(request, encodeError(error), http.NOT_ALLOWED)


def _notFound(request: BrokerRequest, area: Area | None) -> bytes:
    if area is None:
        return respond(request, encodeError(NoSuchCall()), http.NOT_FOUND)
    if request.method.decode("ascii") not in (*area.methods, "HEAD"):
        return _refuseMethod(request, area.methods)
    return respond(request, area.encodeError(NoSuchCall()))


def _installErrorHandlers(app: Klein, areas: Sequence[Area], incidents: Incidents) -> None:
    # Klein says IRequest; it is always a BrokerRequest.

    @app.handle_errors(MethodNotAllowed)
    def methodNotAllowed(request: Any, failure: Failure) -> bytes:
        assert isinstance(failure.value, MethodNotAllowed)
        return _refuseMethod(request, failure.value.valid_methods or ())

    # Not only NotFound: there are no redirects to nicer paths here.
    @app.handle_errors(HTTPException)
    def notFound(request: Any, failure: Failure) -> bytes:
        return _notFound(request, findArea(areas, request.path))

    @app.handle_errors(Exception)
    def unexpected(request: Any, failure: Failure) -> bytes:
        error = incidents.explain(failure)
        area = findArea(areas, request.path)
        if area is None:
            return respond(request, encodeError(error), http.INTERNAL_SERVER_ERROR)
        return respond(request, area.encodeError(error))


class Root(Resource):
    """
    The whole site.
    """

    isLeaf = True

    def __init__(self, app: Klein, routes: Iterable[Route]) -> None:
        super().__init__()
        self._routes = app.resource()
        self._direct = {
            (method.encode("ascii"), route.path.encode("ascii")): route.handler
            for route in routes
            if route.isDirect
            for method in route.methods
        }

    def render(self, request: BrokerRequest) -> Any:
        """
        Have a request answered by its route.
        """
        handler = self._direct.get((request.method, request.path))
        if handler is not None:
            return _renderDirectly(request, handler)
        try:
            b"/".join(request.postpath or ()).decode("utf-8")
        except UnicodeDecodeError:
            # Klein would answer in its own words.
            request.postpath = [b"", b"not UTF-8"]
        return self._routes.render(request)


def _renderDirectly(request: BrokerRequest, handler: Callable[..., Deferred[bytes]]) -> Any:
    answering = handler(request)
    # A client that leaves cancels the handler, as under Klein; then nobody is to be answered.
    request.notifyFinish().addErrback(lambda _: answering.cancel())
    answering.addCallback(_finish, request)
    answering.addErrback(_passOver, request)
    return NOT_DONE_YET


def _finish(body: bytes, request: BrokerRequest) -> None:
    request.write(body)
    request.finish()


def _passOver(failure: Failure, request: BrokerRequest) -> None:
    if not failure.check(CancelledError):
        request.processingFailed(failure)
