"""
REST and the admin queries: operations called with the fields of a URL or a form; and publishing by
the HTTP binding of CloudEvents 1.0.

By GET the parameters are in the query string. By POST they are in the query string, in an
C{application/x-www-form-urlencoded} body, or in both, and then the query string's come first.
Of several parameters of one name the first counts; names that an operation does not know are
ignored, except those that the dialect of WeEvent 1.1 has. A body of another type is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.web.http import OK
from twisted.web.server import Request

from ...access import Principal
from ...broker import Calls
from ...errors import BrokerError, ParameterInvalid
from ...model import EXTENSION_PREFIX, WEEVENT_PREFIX, extensionKeyError
from ...net.deferreds import asDeferred
from ...operations import (
    CLOUD_EVENT_EXTENSION,
    CLOUD_EVENTS,
    IDEMPOTENCY_KEY,
    SEEN,
    SIGNED_PARAMETERS,
    Connection,
    ExtensionsType,
    Incidents,
    Interface,
    Operation,
    TextCall,
    bindText,
    bindTextBatch,
    readCloudEvent,
    withTrace,
)
from .plain import parseFields, parseForm, parsePublishQuery, parseQuery
from .routes import (
    Answer,
    HttpEndpoint,
    HttpRefusal,
    PublishHeaders,
    Route,
    connectionOf,
    encodeError,
    explain,
    ignoreHeaders,
    principalOf,
    publishHeadersOf,
    respond,
    resultEncoder,
)

_WEEVENT: Final = WEEVENT_PREFIX.encode("ascii")
_EXTENSION: Final = EXTENSION_PREFIX.encode("ascii")
_KEY: Final = IDEMPOTENCY_KEY.name.encode("ascii")
_AFTER: Final = SEEN.name.encode("ascii")
_SIGNED: Final = tuple(name.encode("ascii") for name in SIGNED_PARAMETERS)


def unquoted(key: bytes) -> bytes:
    """
    The value of the header C{Idempotency-Key}: as it is, or what is between quotation marks, which
    the draft of its specification has.
    """
    return key[1:-1] if len(key) > 2 and key[:1] == key[-1:] == b'"' else key


def differentKeys() -> ParameterInvalid:
    """The error for a request with two idempotency keys."""
    return ParameterInvalid("idempotencyKey: differs from the header Idempotency-Key")


def addAfter(fields: Mapping[bytes, bytes], headers: PublishHeaders) -> Mapping[bytes, bytes]:
    """
    Add the header C{svc-after} to the fields of a request.

    @raise ParameterInvalid: the field C{after} is another one.
    """
    if not headers.after:
        return fields
    if fields.get(_AFTER, b"") not in (b"", headers.after):
        raise ParameterInvalid("after: differs from the header svc-after")
    return {**fields, _AFTER: headers.after}


def _addHeaders(fields: Mapping[bytes, bytes], headers: PublishHeaders) -> Mapping[bytes, bytes]:
    fields = addAfter(fields, headers)
    if headers.idempotencyKey:
        key = unquoted(headers.idempotencyKey)
        if fields.get(_KEY, b"") not in (b"", key):
            raise differentKeys()
        fields = {**fields, _KEY: key}
    return addTrace(fields, headers.trace)


def addTrace(fields: Mapping[bytes, bytes], trace: Mapping[str, str]) -> Mapping[bytes, bytes]:
    """
    Add a trace to the fields of a publish, unless it is signed.

    @param trace: extensions; see L{readTrace<svcbroker.operations.readTrace>}.
    """
    if not trace or any(fields.get(name) for name in _SIGNED):
        return fields
    extensions = {
        name.decode("utf-8", "replace"): value.decode("utf-8", "replace")
        for name, value in fields.items()
        if name.startswith(_EXTENSION)
    }
    if withTrace(extensions, trace) is extensions:
        return fields
    return {**fields, **{name.encode(): value.encode() for name, value in trace.items()}}


_Encode: TypeAlias = Callable[[Any], Answer]
_Parse: TypeAlias = Callable[[bytes, bytes | None, bytes], Mapping[bytes, bytes]]


@frozen
class _Dated:
    """The result of a read, and its group."""

    result: Any
    group: str


def checkNames(names: Iterable[bytes]) -> None:
    """
    Refuse parameters that only a dialect knows, where they would be ignored.

    @raise ExtensionKeyInvalid: there is one.
    """
    for name in names:
        if name.startswith(_WEEVENT):
            raise extensionKeyError(name.decode("utf-8", "replace"))


def _refusing(parse: _Parse) -> _Parse:
    def parseKnown(query: bytes, contentType: bytes | None, body: bytes) -> Mapping[bytes, bytes]:
        fields = parse(query, contentType, body)
        checkNames(fields)
        return fields

    return parseKnown


def _parsers(operation: Operation, interface: Interface) -> tuple[_Parse, _Parse]:
    """The parsers of the fields of an operation's requests, by GET and by POST."""
    byGet = parsePublishQuery if operation.name == "publish" else parseQuery
    # The broker checks extensions itself.
    takesExtensions = any(isinstance(each.type, ExtensionsType) for each in operation.parameters)
    if takesExtensions or not interface.isStrict:
        return byGet, parseForm
    return _refusing(byGet), _refusing(parseForm)


def _dated(call: TextCall, encode: _Encode, calls: Calls) -> tuple[TextCall, _Encode]:
    """
    Have the answers of a network's node tell its height, and how old they may be: C{svc-height} and
    C{svc-age}.

    @return: what makes the call, and what encodes its result.
    """

    def callDated(
        principal: Principal, fields: Mapping[bytes, bytes], connection: Connection
    ) -> Deferred[Any]:
        made = call(principal, fields, connection)
        group = fields.get(b"groupId", b"").decode("utf-8", "replace").strip()
        if calls.broker.freshness(group) is None:
            return made
        return made.addCallback(
            lambda result: result if isinstance(result, BrokerError) else _Dated(result, group)
        )

    def encodeDated(result: Any) -> Answer:
        if not isinstance(result, _Dated):
            return encode(result)
        body, fresh = encode(result.result), calls.broker.freshness(result.group)
        if fresh is None or not isinstance(body, bytes):
            return body
        height, age = fresh
        return HttpRefusal(OK, body, ((b"svc-height", b"%d" % height), (b"svc-age", b"%.1f" % age)))

    return callDated, encodeDated


def restEndpoints(
    prefix: str, calls: Calls, incidents: Incidents, interface: Interface
) -> Iterator[HttpEndpoint]:
    """
    The endpoints of all operations, by GET and by POST.

    @param prefix: the path above them.
    """
    # Calls with these are made alone: no group waits for another, nor for an event that one awaits.
    alone = {_AFTER} if len(calls.broker.groups) == 1 else {_AFTER, b"groupId"}
    for operation in interface.operations:
        addHeaders = addAfter if operation.hasAfter else ignoreHeaders
        if operation.name == "publish":
            addHeaders = _addHeaders
        call, callMany = bindText(operation, calls), bindTextBatch(operation, calls)
        encode: _Encode = resultEncoder(operation)
        if operation.hasAfter and callMany is None and calls.broker.hasNetworks:
            call, encode = _dated(call, encode, calls)
        for method, parse in zip(("GET", "POST"), _parsers(operation, interface), strict=True):
            yield HttpEndpoint(
                method=method,
                path=f"{prefix}/{operation.name}",
                parse=parse,
                call=call,
                encode=encode,
                incidents=incidents,
                callMany=callMany,
                isOneOfMany=alone.isdisjoint,
                addHeaders=addHeaders,
            )


def queryEndpoints(
    prefix: str, calls: Calls, incidents: Incidents, interface: Interface
) -> Iterator[HttpEndpoint]:
    """
    The endpoints of all admin queries, by GET.

    @param prefix: the path above them.
    """
    for query in interface.queries:
        parse, _ = _parsers(query, interface)
        yield HttpEndpoint(
            method="GET",
            path=f"{prefix}/{query.name}",
            parse=parse,
            call=bindText(query, calls),
            encode=resultEncoder(query),
            incidents=incidents,
        )


_CLOUD_EXTENSION: Final = CLOUD_EVENT_EXTENSION.encode("ascii")


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
            result = error
        if isinstance(result, BrokerError):
            return respond(request, explain(result, principal, encodeError))
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
        _CLOUD_EXTENSION: event.attributes.encode("utf-8"),
        _KEY: event.idempotencyKey.encode("ascii"),
    }
    return given if headers is None else addAfter(addTrace(given, headers.trace), headers)


def _headersOf(request: Request) -> Iterator[tuple[str, bytes]]:
    for name, values in request.requestHeaders.getAllRawHeaders():
        for value in values:
            yield name.decode("latin-1").lower(), value
