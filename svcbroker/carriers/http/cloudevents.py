"""
C{cloudevents}: publishing by the HTTP protocol binding of CloudEvents 1.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from twisted.web.server import Request

from ...broker import Calls
from ...errors import BrokerError, ParameterInvalid
from ...net.deferreds import asDeferred
from ...operations import (
    CLOUD_EVENT_EXTENSION,
    CLOUD_EVENTS,
    IDEMPOTENCY_KEY,
    bindText,
    readCloudEvent,
)
from .headers import publishHeadersOf
from .rest import addAfter, addTrace, parseFields
from .routes import Route, connectionOf, encodeError, explain, principalOf, respond, resultEncoder

_EXTENSION = CLOUD_EVENT_EXTENSION.encode("ascii")
_KEY = IDEMPOTENCY_KEY.name.encode("ascii")


def cloudEventsRoute(prefix: str, calls: Calls) -> Route:
    """
    The route that CloudEvents are posted to, one in each request. The query string has the topic,
    the group and more extensions.

    @param prefix: the path above it.
    """
    call, encode = bindText(CLOUD_EVENTS, calls), resultEncoder(CLOUD_EVENTS)

    @asDeferred
    async def handle(request: Request) -> bytes:
        principal = principalOf(request)
        try:
            result = await call(principal, _fieldsOf(request), connectionOf(request))
        except BrokerError as error:
            return respond(request, explain(error, principal, encodeError))
        return respond(request, encode(result))

    return Route(path=f"{prefix}/{CLOUD_EVENTS.name}", methods=("POST",), handler=handle)


def _fieldsOf(request: Request) -> Mapping[bytes, bytes]:
    """
    The parameters of a request: those of its URL, and the event.

    @raise ParameterInvalid: it is no CloudEvent, or the client has given an idempotency key.
    """
    assert request.content is not None
    _, _, query = request.uri.partition(b"?")
    contentType = request.getHeader(b"content-type")
    event = readCloudEvent(_headersOf(request), contentType, request.content.read())
    fields = parseFields(query)
    headers = publishHeadersOf(request)
    if _KEY in fields or (headers is not None and headers.idempotencyKey):
        raise ParameterInvalid("idempotencyKey: source and id are that of a CloudEvent")
    given = {
        **fields,
        b"content": event.content,
        _EXTENSION: event.attributes.encode("utf-8"),
        _KEY: event.idempotencyKey.encode("ascii"),
    }
    return given if headers is None else addAfter(addTrace(given, headers.trace), headers)


def _headersOf(request: Request) -> Iterator[tuple[str, bytes]]:
    for name, values in request.requestHeaders.getAllRawHeaders():
        for value in values:
            yield name.decode("latin-1").lower(), value
