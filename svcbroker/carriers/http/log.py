"""
The transparency log of a group, as C{c2sp.org/tlog-tiles} has it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.web import http
from twisted.web.server import Request

from ...access import Principal
from ...broker import Calls
from ...errors import (
    BrokerError,
    EventNotFound,
    GroupUnknown,
    HeightUnknown,
    LedgerUnavailable,
    NoSuchCall,
    NotAuthenticated,
    NotAuthorized,
    Overloaded,
    TransactionFailed,
    TransactionTimeout,
)
from ...net.deferreds import asDeferred
from ...operations import LOG_PROOF, bindText
from .plain import parseFields
from .routes import (
    HttpRefusal,
    Route,
    connectionOf,
    encode,
    encodeError,
    principalOf,
    refuse,
    respond,
)

_TEXT: Final = b"text/plain; charset=utf-8"
_BYTES: Final = b"application/octet-stream"
_JSON: Final = b"application/json;charset=UTF-8"

_FRESH: Final = b"max-age=1"
"""For what changes with the chain. The broker signs a checkpoint once a second."""
_IMMUTABLE: Final = b"max-age=31536000, immutable"
"""For tiles. A shared cache keeps no answer to a request with credentials, unless told to."""

_MISSING: Final = (GroupUnknown, NoSuchCall, EventNotFound, HeightUnknown)
_UNAVAILABLE: Final = (Overloaded, LedgerUnavailable, TransactionTimeout, TransactionFailed)

_Answer = tuple[bytes, bytes, bytes]
"""The content type, the caching and the body of an answer."""


def logRoutes(prefix: str, calls: Calls) -> Iterator[Route]:
    """
    The routes of the logs. Failures have a status of HTTP of their own, unlike those of calls.

    @param prefix: the path above the ids of groups.
    """
    logs, prove = calls.transparency, bindText(LOG_PROOF, calls)

    async def checkpoint(principal: Principal, request: Request, groupId: str) -> _Answer:
        return _TEXT, _FRESH, await logs.checkpoint(principal, groupId)

    async def key(principal: Principal, request: Request, groupId: str) -> _Answer:
        answer = await logs.key(principal, groupId)
        return _JSON, _FRESH, encode(answer)

    async def tile(principal: Principal, request: Request, groupId: str, path: str) -> _Answer:
        data = await logs.tile(principal, groupId, path)
        if data is None:
            raise NoSuchCall("the log has no such tile yet")
        return _BYTES, _IMMUTABLE, data

    async def proof(principal: Principal, request: Request, groupId: str) -> _Answer:
        _, _, query = request.uri.partition(b"?")
        fields = {**parseFields(query), b"groupId": groupId.encode()}
        found = await prove(principal, fields, connectionOf(request))
        return _TEXT, _FRESH, found.encode()

    for path, answer in (
        ("checkpoint", checkpoint),
        ("keys", key),
        ("tile/<path:path>", tile),
        ("proof", proof),
    ):
        yield Route(path=f"{prefix}/<groupId>/{path}", methods=("GET",), handler=_handler(answer))


def _handler(
    answer: Callable[..., Awaitable[_Answer]],
) -> Callable[..., Deferred[bytes]]:
    @asDeferred
    async def handle(request: Request, **parts: Any) -> bytes:
        try:
            type, caching, body = await answer(principalOf(request), request, **parts)
        except BrokerError as error:
            return _respondError(request, error)
        request.setHeader(b"Content-Type", type)
        request.setHeader(b"Cache-Control", caching)
        request.setHeader(b"Content-Length", b"%d" % len(body))
        return body

    return handle


def _respondError(request: Request, error: BrokerError) -> bytes:
    if isinstance(error, (NotAuthenticated, NotAuthorized)):
        return respond(request, refuse(error))
    if isinstance(error, _MISSING):
        code = http.NOT_FOUND
    elif isinstance(error, _UNAVAILABLE):
        code = http.SERVICE_UNAVAILABLE
    else:
        code = http.BAD_REQUEST
    return respond(request, HttpRefusal(code, encodeError(error)))
