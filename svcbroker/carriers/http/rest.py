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
from urllib.parse import unquote_to_bytes

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.web.http import OK
from twisted.web.server import Request

from ...access import Principal
from ...broker import Calls
from ...errors import BrokerError, ParameterInvalid, QueryTooLong
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
from .routes import (
    Answer,
    HttpEndpoint,
    HttpRefusal,
    PublishHeaders,
    Route,
    connectionOf,
    encodeError,
    explain,
    principalOf,
    publishHeadersOf,
    respond,
    resultEncoder,
)

FORM_TYPE: Final = b"application/x-www-form-urlencoded"
MAX_FIELDS: Final = 1000
"""The most fields that a URL and a form may have together."""
MAX_PUBLISH_QUERY: Final = 1024
"""The longest query string of a publish by GET, in bytes."""

_WEEVENT: Final = WEEVENT_PREFIX.encode("ascii")
_EXTENSION: Final = EXTENSION_PREFIX.encode("ascii")
_KEY: Final = IDEMPOTENCY_KEY.name.encode("ascii")
_AFTER: Final = SEEN.name.encode("ascii")
_SIGNED: Final = tuple(name.encode("ascii") for name in SIGNED_PARAMETERS)


def decodePercent(text: bytes) -> bytes:
    """
    Decode percent signs as C{unquote_to_bytes} does, which takes six times as long for JSON: Python
    has no other function in C for it than the codec of its own escapes, which is strict.
    """
    if b"%" not in text:
        return text
    escaped = text.replace(b"\\", b"\\\\").replace(b"%", b"\\x")
    try:
        return escaped.decode("unicode_escape").encode("latin-1")
    except UnicodeDecodeError:
        # A percent sign without two hex digits behind it stays.
        return unquote_to_bytes(text)


def parseFields(text: bytes) -> Mapping[bytes, bytes]:
    """
    Read C{name=value&...}: percent signs and C{+} decoded, to exactly the bytes that were sent.
    Of several fields of one name the first counts.

    @raise ParameterInvalid: there are more than L{MAX_FIELDS}.
    """
    pieces = text.replace(b"+", b" ").split(b"&", MAX_FIELDS)
    if len(pieces) > MAX_FIELDS:
        raise ParameterInvalid(f"there are more than {MAX_FIELDS} parameters")
    fields: dict[bytes, bytes] = {}
    add, hasEscapes = fields.setdefault, b"%" in text
    for piece in pieces:
        name, _, value = piece.partition(b"=")
        if hasEscapes:
            name, value = decodePercent(name), decodePercent(value)
        add(name, value)
    return fields


def parseQuery(query: bytes, contentType: bytes | None, body: bytes) -> Mapping[bytes, bytes]:
    """
    The fields of a request by GET. A body is not read.

    @raise ParameterInvalid: there are too many.
    """
    return parseFields(query)


def parsePublishQuery(
    query: bytes, contentType: bytes | None, body: bytes
) -> Mapping[bytes, bytes]:
    """
    The fields of a publish by GET.

    @raise QueryTooLong: the query string is longer than L{MAX_PUBLISH_QUERY}.
    @raise ParameterInvalid: there are too many.
    """
    if len(query) > MAX_PUBLISH_QUERY:
        raise QueryTooLong()
    return parseFields(query)


def parseForm(query: bytes, contentType: bytes | None, body: bytes) -> Mapping[bytes, bytes]:
    """
    The fields of a request by POST.

    @raise ParameterInvalid: there are too many, or the body is no form: its parameters would be
        ignored without a word.
    """
    if not body:
        return parseFields(query)
    if contentType != FORM_TYPE and not _isForm(contentType or b""):
        raise ParameterInvalid(f"a body must be {FORM_TYPE.decode('ascii')}")
    return parseFields(query + b"&" + body if query else body)


def _isForm(contentType: bytes) -> bool:
    return contentType.partition(b";")[0].strip().lower() == FORM_TYPE


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
    hasOneGroup = len(calls.broker.groups) == 1

    def isOneOfMany(fields: Mapping[bytes, bytes]) -> bool:
        return (hasOneGroup or b"groupId" not in fields) and _AFTER not in fields

    for operation in interface.operations:
        addHeaders = addAfter if operation.hasAfter else None
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
                isOneOfMany=isOneOfMany,
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
        _CLOUD_EXTENSION: event.attributes.encode("utf-8"),
        _KEY: event.idempotencyKey.encode("ascii"),
    }
    return given if headers is None else addAfter(addTrace(given, headers.trace), headers)


def _headersOf(request: Request) -> Iterator[tuple[str, bytes]]:
    for name, values in request.requestHeaders.getAllRawHeaders():
        for value in values:
            yield name.decode("latin-1").lower(), value
