"""
Descriptions of the interface for programs and for readers, made from the declarations: OpenAPI,
OpenRPC and AsyncAPI, their paths, and the page that links them, plain HTML without script or style.

AsyncAPI is written in C{asyncapi.json} as clients get it, but for C{{"$use": NAME}}, which stands
for something of C{definitions} or of L{_constants}.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from attrs import evolve, frozen
from msgspec import Raw
from msgspec.json import schema_components
from twisted.internet.defer import succeed
from twisted.web.server import Request
from twisted.web.template import Tag, flattenString, tags

from ... import __version__
from ...errors import BrokerError, NotAuthorized
from ...model import EXTENSION_PREFIX
from ...operations import (
    CLOUD_EVENT_SCHEMA,
    CLOUD_EVENT_TYPE,
    CLOUD_EVENTS,
    COMMON_ERRORS,
    EVENT,
    FOLLOW,
    FRAME_HEADERS,
    SEND_HEADERS,
    ContentType,
    ErrorRecord,
    EventHeader,
    EventPageResult,
    ExtensionsType,
    IdempotencyKeyType,
    Interface,
    LoggedEvent,
    Operation,
    Parameter,
    Result,
)
from .jsonrpc import Failed
from .plain import FORM_TYPE
from .publicroutes import Alive, Readiness
from .routes import Route, encode, respond

SECURITY: Final = {
    "basic": {"type": "http", "scheme": "basic", "description": "An account and its password."},
    "bearer": {"type": "http", "scheme": "bearer", "description": "A token of an account."},
}
"""The ways in which a request of HTTP has credentials."""

_IVAR = re.compile(r"@ivar (\w+):")
_MARKUP = re.compile(r"[A-Z]\{([^{}]*)\}")
_REFERENCE = "#/components/schemas/{name}"
_HIDDEN = re.compile(r"svcbroker\.(?:_?[a-z]+\.)*|(?<!Send)Result(?![A-Za-z])")
"""The parts of the names of records that the documents do not show: modules, and an ending."""


@frozen(kw_only=True)
class ServedPath:
    """
    A context path, and what is served below it.

    @ivar base: the context path.
    @ivar interface: the calls below it, by REST and by JSON-RPC, and the STOMP over WebSocket.
    @ivar isMain: whether it is the broker's own path, below which everything else is served too.
        Otherwise it is the path of a dialect.
    """

    base: str
    interface: Interface
    isMain: bool

    @property
    def title(self) -> str:
        """The title of its documents."""
        dialect = self.interface.dialect
        return "svcbroker" if dialect is None else f"svcbroker (dialect {dialect.name})"


def schemasOf(types: Sequence[Any]) -> tuple[Sequence[dict[str, Any]], Mapping[str, Any]]:
    """
    The JSON Schema of each type.

    @param types: types of the wire, as msgspec knows them.
    @return: the schemas, in the order of the types, and those that they refer to below
        C{#/components/schemas}, by name.
    """
    schemas, components = schema_components(types, ref_template=_REFERENCE)
    page = components.get(EventPageResult.__name__)
    if page is not None:
        # msgspec has no union of two kinds of objects.
        events = page["properties"]["events"]
        events["items"] = {"anyOf": [events["items"], CLOUD_EVENT_SCHEMA]}
    shown = {_HIDDEN.sub("", name): _described(each) for name, each in components.items()}
    return _renamed(schemas), _renamed(shown)


def _renamed(value: Any) -> Any:
    """A part of a schema with the names of records as the documents show them."""
    if isinstance(value, list | tuple):
        return [_renamed(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: _HIDDEN.sub("", inner)
        if name in ("$ref", "title") and isinstance(inner, str)
        else _renamed(inner)
        for name, inner in value.items()
    }


def _described(schema: dict[str, Any]) -> dict[str, Any]:
    """
    A record's schema with what its docstring says of each member at that member, in plain text.
    """
    if "description" not in schema:
        return schema
    text, *members = _IVAR.split(_MARKUP.sub(r"\1", schema["description"]))
    properties = dict(schema.get("properties", {}))
    for name, said in zip(members[::2], members[1::2], strict=True):
        # Beside a reference many readers do not see it.
        if "$ref" not in properties.get(name, {"$ref": ""}):
            properties[name] = {**properties[name], "description": " ".join(said.split())}
    described = {**schema, "description": text.strip()}
    return {**described, "properties": properties} if properties else described


def errorsOf(operation: Operation) -> Sequence[type[BrokerError]]:
    """Every error of an operation: its own, then those that any call can have."""
    return (*operation.errors, *COMMON_ERRORS)


EVENT_STREAM: Final = "text/event-stream"

_ANY_TEXT = {"type": "string"}
_ANYTHING = {"description": "Anything else is answered with a failure."}
"""Accepts everything, as an empty schema does, which some readers take for a mistake."""
_LIMITED = ("publish", "events")
_RETRY_AFTER = {
    "Retry-After": {
        "description": "After a failure because of a limit of the client: when to try again, "
        "in seconds.",
        "schema": {"type": "integer", "minimum": 1},
    }
}
_REFUSALS = {
    "401": (
        "There are no valid credentials.",
        {
            "WWW-Authenticate": {
                "description": "Basic and Bearer.",
                "required": True,
                "schema": {"type": "string"},
            }
        },
    ),
    "403": ("The account may not do this, or the page of the browser must not.", {}),
    "503": (
        "This node of a network does not have a block yet that the call names; or the broker is "
        "overloaded. Another node may answer.",
        _RETRY_AFTER,
    ),
}
_REST_DESCRIPTION = """\
Topics, publishing and reading of events over REST and JSON-RPC 2.0, and queries for operators.
Every answer of REST, of the queries and of JSON-RPC has HTTP status 200, but for 401, 403 and 503.
Of REST and the queries, an object of code and message with a code other than 0 is a failure.

A broker without accounts needs no credentials, and ignores them.

Since HTTP takes every request, the schemas of requests do so too: the first alternative is what
an operation wants, the other what it answers with a failure. What is required is marked by
x-required.\
"""


def openApi(served: ServedPath) -> Mapping[str, Any]:
    """The OpenAPI 3.1 document of a path."""
    base, operations, queries = served.base, served.interface.operations, served.interface.queries
    calls = (*operations, *queries)
    own = [ErrorRecord, Failed, *((Alive, Readiness) if served.isMain else ())]
    schemas, components = schemasOf([*(each.result.type for each in calls), *own])
    answered, (error, failed, *health) = schemas[: len(calls)], schemas[len(calls) :]
    results = dict(zip((each.name for each in operations), answered, strict=False))
    paths: dict[str, Any] = {}
    for each in operations:
        answer = _guarded({"200": {"oneOf": [results[each.name], error]}}, error)
        if each.name in _LIMITED:
            answer["200"]["headers"] = _RETRY_AFTER
        paths[f"{base}/rest/{each.name}"] = {
            "get": _byGet(each, "rest", answer),
            "post": _byPost(each, answer),
        }
    if served.isMain:
        paths[f"{base}/rest/{FOLLOW.name}"] = {"get": _following(error)}
        sent = _guarded({"200": {"oneOf": [results["publish"], error]}}, error)
        sent["200"]["headers"] = _RETRY_AFTER
        paths[f"{base}/rest/{CLOUD_EVENTS.name}"] = {"post": _cloudEvents(sent)}
    for each, result in zip(queries, answered[len(operations) :], strict=True):
        # Both have a code and a message.
        answer = _guarded({"200": {"anyOf": [result, error]}}, error)
        paths[f"{base}/admin/{each.name}"] = {"get": _byGet(each, "admin", answer)}
    paths[f"{base}/jsonrpc"] = {"post": _jsonrpc(operations, list(results.values()), failed, error)}
    if served.isMain:
        paths.update(_health(error, *health))
    return {
        "openapi": "3.1.0",
        "info": {
            "title": served.title,
            "version": __version__,
            "description": _REST_DESCRIPTION,
            "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
        },
        # The one that serves this document, at whatever address.
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": SECURITY},
        # The empty one is for brokers without accounts.
        "security": [{}, *({name: []} for name in SECURITY)],
    }


def _health(
    error: Mapping[str, Any], alive: Mapping[str, Any], readiness: Mapping[str, Any]
) -> dict[str, Any]:
    # The page of a browser must not, or the request names another host.
    live = {"200": alive, "403": error}
    ready = {"200": readiness, "403": error, "503": readiness}
    return {
        "/healthz": {"get": _plain("healthz", "Tell that the broker lives.", live)},
        "/readyz": {"get": _plain("readyz", "Tell whether the broker can be given work.", ready)},
    }


def _answers(schemas: Mapping[str, Any]) -> dict[str, Any]:
    return {
        status: {
            "description": "The answer, or why there is none.",
            "content": {"application/json": {"schema": schema}},
        }
        for status, schema in schemas.items()
    }


def _guarded(schemas: Mapping[str, Any], error: Any) -> dict[str, Any]:
    """The answers of a path that needs credentials where there are accounts."""
    answers = _answers(schemas)
    for status, (description, headers) in _REFUSALS.items():
        answers[status] = {**_answers({status: error})[status], "description": description}
        if headers:
            answers[status]["headers"] = headers
    return answers


def _plain(name: str, summary: str, schemas: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "operationId": name,
        "summary": summary,
        "tags": ["health"],
        "security": [],
        "responses": _answers(schemas),
    }


def _describe(operation: Operation) -> str:
    lines = [
        f"- {error.code} ({error.rpcCode}) {error.__name__}: {error.text}"
        for error in errorsOf(operation)
    ]
    return "Failures, with their JSON-RPC codes:\n" + "\n".join(lines)


def _lenient(wanted: Mapping[str, Any], accepted: Mapping[str, Any]) -> Mapping[str, Any]:
    return wanted if wanted == accepted else {"anyOf": [wanted, accepted]}


def _textSchema(parameter: Parameter) -> Mapping[str, Any]:
    wanted = parameter.type.textSchema or parameter.type.schema
    return _lenient(wanted, _ANYTHING if isinstance(parameter.type, ExtensionsType) else _ANY_TEXT)


def _byGet(operation: Operation, tag: str, answers: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "operationId": f"{tag}.{operation.name.replace('/', '.')}",
        "summary": operation.summary,
        "description": _describe(operation),
        "tags": [tag],
        "parameters": [_queryParameter(each) for each in operation.parameters],
        "responses": answers,
    }


def _following(error: Mapping[str, Any]) -> dict[str, Any]:
    """The call C{follow}, whose answer is a stream."""
    answers = _guarded({"200": error}, error)
    answers["200"]["description"] = (
        "Server-Sent Events of type event, each with an event of the log as JSON; "
        "or why there are none. The stream does not end."
    )
    answers["200"]["content"][EVENT_STREAM] = {"schema": _ANY_TEXT}
    answers["200"]["headers"] = _RETRY_AFTER
    described = _byGet(FOLLOW, "rest", answers)
    described["parameters"].append(
        {
            "name": "Last-Event-ID",
            "in": "header",
            "description": "Where to resume: the last id of an earlier stream.",
            "schema": _ANY_TEXT,
        }
    )
    return described


def _cloudEvents(answers: Mapping[str, Any]) -> dict[str, Any]:
    """The call C{cloudevents}, whose content and idempotency key are in the request."""
    described = _byGet(CLOUD_EVENTS, "rest", answers)
    described["parameters"] = [
        _queryParameter(each)
        for each in CLOUD_EVENTS.parameters
        if not isinstance(each.type, ContentType | IdempotencyKeyType)
    ]
    described["requestBody"] = {
        "description": "The event in structured mode. In binary mode the body, of any other type, "
        "is the data, and the attributes are headers that begin with ce-.",
        "content": {CLOUD_EVENT_TYPE: {"schema": _lenient(CLOUD_EVENT_SCHEMA, _ANYTHING)}},
    }
    return described


def _queryParameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": "query",
        "description": parameter.description,
        "x-required": parameter.isRequired,
        "schema": _textSchema(parameter),
    }


def _byPost(operation: Operation, answers: Mapping[str, Any]) -> dict[str, Any]:
    properties = {
        each.name: {
            **_textSchema(each),
            "description": each.description,
            "x-required": each.isRequired,
        }
        for each in operation.parameters
        if not isinstance(each.type, ExtensionsType)
    }
    schema: dict[str, Any] = {
        "type": "object",
        "properties": properties,
    }
    for each in operation.parameters:
        if isinstance(each.type, ExtensionsType):
            pattern = each.type.schema["propertyNames"]["pattern"]
            schema["patternProperties"] = {pattern: {"type": "string"}}
    return {
        "operationId": f"rest.{operation.name}.form",
        "summary": operation.summary,
        "description": _describe(operation),
        "tags": ["rest"],
        "requestBody": {
            "description": "The parameters. They may stand in the query string as well.",
            "content": {FORM_TYPE.decode("ascii"): {"schema": schema}},
        },
        "responses": answers,
    }


def _jsonrpc(
    operations: Sequence[Operation],
    results: Sequence[Mapping[str, Any]],
    failed: Mapping[str, Any],
    error: Mapping[str, Any],
) -> dict[str, Any]:
    one = {"oneOf": [_success(results), failed]}
    answers = _guarded({"200": {"oneOf": [one, {"type": "array", "items": one}]}}, error)
    answers["204"] = {"description": "There were only notifications."}
    call = {"oneOf": [_call(each) for each in operations]}
    batch = {"type": "array", "minItems": 1, "items": call}
    return {
        "operationId": "jsonrpc",
        "summary": "Call operations by JSON-RPC 2.0, one or a batch.",
        "tags": ["jsonrpc"],
        "requestBody": {
            "x-required": True,
            "content": {
                "application/json": {"schema": _lenient({"anyOf": [call, batch]}, _ANYTHING)}
            },
        },
        "responses": answers,
    }


def _success(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    strings = {"enum": ["true", "false"]}
    return {
        "type": "object",
        "properties": {
            "jsonrpc": {"const": "2.0"},
            "id": {"type": ["string", "number", "null"]},
            "result": {
                "anyOf": [strings, *(each for each in results if each.get("type") != "boolean")]
            },
        },
        "required": ["jsonrpc", "id", "result"],
    }


def _parametersOf(operation: Operation) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            each.name: {**each.type.schema, "description": each.description}
            for each in operation.parameters
        },
        "required": [each.name for each in operation.parameters if each.isRequired],
    }


def _call(operation: Operation) -> dict[str, Any]:
    params = _parametersOf(operation)
    return {
        "type": "object",
        "description": operation.summary,
        "properties": {
            "jsonrpc": {"const": "2.0"},
            "id": {"type": ["string", "number", "null"]},
            "method": {"const": operation.name},
            "params": params,
        },
        "required": ["jsonrpc", "method", *(["params"] if params["required"] else [])],
    }


_RPC_DESCRIPTION = """\
Calls of JSON-RPC 2.0 by POST. Parameters are an object, or an array in the order given here; null
is as good as an absent parameter. Members that a method does not know are ignored.

A required parameter with x-optional may be absent from an object. From an array it may not, since
others follow it: there it is null.\
"""
_BOOLEAN = {"type": "string", "enum": ["true", "false"]}


def openRpc(served: ServedPath) -> Mapping[str, Any]:
    """The OpenRPC 1.3 document of the endpoint of JSON-RPC below a path."""
    interface = served.interface
    operations = interface.operations
    schemas, components = schemasOf([each.result.type for each in operations])
    errors = {error for each in operations for error in _rpcErrorsOf(each)}
    return {
        "openrpc": "1.3.2",
        "info": {"title": served.title, "version": __version__, "description": _RPC_DESCRIPTION},
        "servers": [
            {
                "name": "default",
                "description": "Where a broker listens unless --http says otherwise.",
                "url": f"http://127.0.0.1:8080{served.base}/jsonrpc",
            }
        ],
        "methods": [
            _method(each, schema) for each, schema in zip(operations, schemas, strict=True)
        ],
        "components": {
            "schemas": components,
            "errors": {
                error.__name__: _error(error, interface.exceptionName)
                for error in sorted(errors, key=lambda error: error.code)
            },
        },
    }


def _rpcErrorsOf(operation: Operation) -> Sequence[type[BrokerError]]:
    return (*errorsOf(operation), NotAuthorized)


def _error(error: type[BrokerError], exceptionName: str | None) -> dict[str, Any]:
    data = {
        "exceptionTypeName": exceptionName or error.__name__,
        "message": error.text,
        "code": error.code,
    }
    return {"code": error.rpcCode, "message": error.text, "data": data}


def _method(operation: Operation, result: Mapping[str, Any]) -> dict[str, Any]:
    parameters = operation.parameters
    # Behind the last required one are those that an array can do without.
    last = max((n for n, each in enumerate(parameters) if each.isRequired), default=-1)
    return {
        "name": operation.name,
        "summary": operation.summary,
        "paramStructure": "either",
        "params": [_parameter(each, n <= last) for n, each in enumerate(parameters)],
        "result": {
            "name": "result",
            "schema": _BOOLEAN if operation.result.type is bool else result,
        },
        "errors": [
            {"$ref": f"#/components/errors/{error.__name__}"} for error in _rpcErrorsOf(operation)
        ],
    }


def _parameter(parameter: Parameter, isRequired: bool) -> dict[str, Any]:
    described: dict[str, Any] = {
        "name": parameter.name,
        "description": parameter.description,
        "required": isRequired,
        "schema": parameter.type.schema,
    }
    if isRequired and not parameter.isRequired:
        described["schema"] = {"anyOf": [parameter.type.schema, {"type": "null"}]}
        described["x-optional"] = True
    return described


def withDiscovery(served: ServedPath) -> Interface:
    """
    The interface of a path and the method C{rpc.discover}, which answers with the document of its
    calls.
    """
    interface = served.interface
    # Made with the first call, since that takes long.
    text = cache(lambda: Raw(encode(openRpc(served))))
    discover = Operation(
        name="rpc.discover",
        summary="Read the OpenRPC document.",
        result=Result(type=dict[str, Any], render=lambda text: text),
        method=lambda broker: lambda principal: succeed(text()),
    )
    return evolve(interface, operations=(*interface.operations, discover))


_TEMPLATE: Final = Path(__file__).with_name("asyncapi.json")
_DIALECT: Final = "dialect"
"""The channel of STOMP in a dialect; the names of its operations and messages begin with it."""

_DIALECT_DESCRIPTION = """\
Events by STOMP 1.1 over WebSocket, for clients of another product, and webhooks. The application is
the broker: it receives what clients publish, and sends what they subscribe to. The host and port
are those of a broker without options. A broker without accounts needs no credentials.\
"""


def asyncApi(served: ServedPath) -> Mapping[str, Any]:
    """The AsyncAPI 3.1 document of a path and, if it is the main one, of the carriers beside it."""
    text = _TEMPLATE.read_text("utf-8")
    for name, value in (
        ("base", served.base),
        ("root", served.base or "/"),
        ("title", served.title),
        ("version", __version__),
    ):
        text = text.replace(f"{{{name}}}", value)
    template = json.loads(text)
    if served.interface.dialect is None:
        _keep(template, {"mqtt", "stomp", "webhook", "follow"})
    elif served.isMain:
        template["channels"]["stomp"]["servers"].pop()  # over WebSocket there is the dialect
    else:
        _keep(template, {_DIALECT, "webhook"})
        template["info"]["description"] = _DIALECT_DESCRIPTION
        # It is the only STOMP that is served here.
        text = re.sub(rf'(?<=["/]){_DIALECT}(?=[A-Z"/])', "stomp", json.dumps(template))
        template = json.loads(text)
    uses = {**template.pop("definitions"), **_constants(served)}
    types = [EVENT.type, LoggedEvent, ErrorRecord] if served.isMain else [EVENT.type]
    template["components"]["schemas"] = schemasOf(types)[1]
    made: dict[str, Any] = _expanded(template, uses)
    return made


def _keep(template: dict[str, Any], channels: Collection[str]) -> None:
    """Leave only these channels in a document, with what they need."""
    used: set[str] = set()
    for kind in ("channels", "operations"):
        for name, part in list(template[kind].items()):
            channel = name if kind == "channels" else part["channel"]["$ref"].rpartition("/")[2]
            if channel in channels:
                used |= {each["$ref"].rpartition("/")[2] for each in part.get("servers", ())}
                used |= {*part["messages"]} if kind == "channels" else set()
            else:
                del template[kind][name]
    for parts in (template["servers"], template["components"]["messages"]):
        for name in parts.keys() - used:
            del parts[name]


def _constants(served: ServedPath) -> Mapping[str, Any]:
    """The parts of the document that are made of declarations, by their names."""
    dialect = served.interface.dialect
    frames = {"stomp": (FRAME_HEADERS, EXTENSION_PREFIX)}
    if dialect is not None:
        name = _DIALECT if served.isMain else "stomp"
        frames[name] = (served.interface.frames, dialect.prefix)
    headers = {
        f"{name}{kind}": schema
        for name, (table, prefix) in frames.items()
        for kind, schema in (
            ("Send", _headersSchema(table.send, prefix)),
            ("Subscribe", _headersSchema(table.subscribe)),
            ("Message", _headersSchema(table.message, prefix)),
            ("Receipt", _headersSchema(table.receipt)),
            ("Error", _headersSchema(table.error)),
        )
    }
    return {
        **headers,
        "mqttPublish": _headersSchema(SEND_HEADERS, EXTENSION_PREFIX),
        "followParameters": _parametersOf(FOLLOW),
        "cloudEvent": CLOUD_EVENT_SCHEMA,
    }


def _headersSchema(declared: Collection[EventHeader], prefix: str = "") -> dict[str, Any]:
    """
    The schema of headers.

    @param prefix: the beginning of those that are extensions; empty where there are none.
    """
    required = [each.name for each in declared if each.isRequired]
    headers: dict[str, Any] = {
        "type": "object",
        "properties": {
            each.name: {**_ANY_TEXT, "description": each.description} for each in declared
        },
        "additionalProperties": _ANY_TEXT,
    }
    if prefix:
        extension = {**_ANY_TEXT, "description": "An extension of the event."}
        headers["patternProperties"] = {f"^{prefix}": extension}
    return {**headers, "required": required} if required else headers


def _expanded(value: Any, uses: Mapping[str, Any]) -> Any:
    """A part of the template with what it uses in place."""
    if isinstance(value, list):
        return [_expanded(each, uses) for each in value]
    if not isinstance(value, dict):
        return value
    if "$use" in value:
        return _expanded(uses[value["$use"]], uses)
    return {name: _expanded(each, uses) for name, each in value.items()}


_PAGE_HEADERS = (
    ("Content-Type", "text/html;charset=UTF-8"),
    (
        "Content-Security-Policy",
        "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("Referrer-Policy", "no-referrer"),
)
_DOCUMENTS: Final[Mapping[str, tuple[Callable[[ServedPath], Mapping[str, Any]], str]]] = {
    "openapi.json": (openApi, "OpenAPI: REST, the admin queries and health"),
    "openrpc.json": (openRpc, "OpenRPC: the methods of JSON-RPC"),
    "asyncapi.json": (asyncApi, "AsyncAPI: events besides single calls"),
}
"""The name of each document below a path, with what makes it and its description."""


def descriptionRoutes(served: ServedPath) -> Iterator[Route]:
    """
    The routes of a path's documents, and of the page that shows them. Like calls they require
    credentials, and need no grants.
    """
    for name, (make, _) in _DOCUMENTS.items():
        yield _route(f"{served.base}/{name}", partial(_encode, partial(make, served)))
    yield _route(f"{served.base}/docs", partial(_page, served), _PAGE_HEADERS)


def _page(served: ServedPath) -> bytes:
    """The links to the documents, and a line for each call."""
    base, rest = served.base, openApi(served)
    title = f"{rest['info']['title']} {rest['info']['version']}"
    links = (
        tags.li(tags.a(name, href=f"{base}/{name}"), f" {text}")
        for name, (_, text) in _DOCUMENTS.items()
    )
    body = tags.body(
        tags.h1(title),
        tags.p(
            "Programs that show these documents: Swagger Editor, OpenRPC Playground, AsyncAPI "
            "Studio."
        ),
        tags.ul(*links),
        tags.h2("Calls"),
        tags.dl(*_calls(rest)),
    )
    head = tags.head(
        tags.meta(charset="utf-8"),
        tags.meta(name="viewport", content="width=device-width, initial-scale=1"),
        tags.title(title),
    )
    # Nothing in it has to be waited for.
    texts: list[bytes] = []
    flattenString(None, tags.html(head, body, lang="en")).addCallback(texts.append)
    [text] = texts
    return b"<!DOCTYPE html>\n" + text


def _calls(rest: Mapping[str, Any]) -> Iterator[Tag]:
    for path, methods in rest["paths"].items():
        names = ", ".join(each.upper() for each in methods)
        described = methods.get("get") or methods["post"]
        yield tags.dt(tags.code(f"{names} {path}"))
        yield tags.dd(described["summary"])


def _encode(make: Callable[[], Mapping[str, Any]]) -> bytes:
    return encode(make())


def _route(
    path: str, make: Callable[[], bytes], headers: tuple[tuple[str, str], ...] = ()
) -> Route:
    """
    The route of a text.

    @param make: makes the text. It is called with the first request, since that takes long.
    @param headers: headers besides those of JSON, or in their place.
    """
    make = cache(make)

    def handle(request: Request) -> bytes:
        body = respond(request, make())
        for name, value in headers:
            request.setHeader(name, value)
        return body

    return Route(path=path, methods=("GET",), handler=handle)
