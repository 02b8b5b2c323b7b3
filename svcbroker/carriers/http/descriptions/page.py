"""
The page that shows the descriptions to readers: static HTML, made of the documents themselves.

It has no script and loads nothing. Calls are C{<details>}, which browsers open by keyboard too.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, TypeAlias

from twisted.web.template import Flattenable, Tag, flattenString, tags

from ..routes import encode
from . import openapi, openrpc
from .style import STYLE

_Schema: TypeAlias = Mapping[str, Any]

_STYLE_HASH = b64encode(sha256(STYLE.encode("utf-8")).digest()).decode("ascii")
CONTENT_SECURITY_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""Nothing but the page's own style sheet."""
_TAGS = {"rest": "Calls", "admin": "Admin queries", "health": "Health"}
"""The headings of the paths by their tags; JSON-RPC has a section of its own."""


def makePage(base: str, documents: Mapping[str, Mapping[str, Any]]) -> bytes:
    """
    The page, as UTF-8.

    @param base: the site's base path.
    @param documents: the three documents by their names below the base path.
    """
    rest, rpc, events = (documents[f"{name}.json"] for name in ("openapi", "openrpc", "asyncapi"))
    records = {
        name: schema
        for document in documents.values()
        for name, schema in document["components"]["schemas"].items()
    }
    sections: Sequence[tuple[str, str, str, Iterable[Flattenable]]] = (
        ("rest", "REST", openapi.ABOUT, _rest(rest)),
        ("json-rpc", "JSON-RPC", f"POST {base}/jsonrpc: {openrpc.ABOUT}", _jsonrpc(rpc)),
        ("events", "Events", events["info"]["description"], _events(events)),
        ("records", "Records", "", (_record(*each) for each in sorted(records.items()))),
    )
    links = [(f"#{id}", name) for id, name, _, _ in sections]
    links += [(f"{base}/{name}", name) for name in documents]
    title = f"{rest['info']['title']} {rest['info']['version']}"
    contents = tags.ul(*(tags.li(tags.a(name, href=address)) for address, name in links))
    body = tags.body(
        tags.header(tags.h1(title), tags.nav(contents, **{"aria-label": "Contents"})),
        Tag("main")(*(_section(*each) for each in sections)),
    )
    head = tags.head(
        tags.meta(charset="utf-8"),
        tags.meta(name="viewport", content="width=device-width, initial-scale=1"),
        tags.title(title),
        tags.style(STYLE),
    )
    # Nothing in it has to be waited for.
    texts: list[bytes] = []
    flattenString(None, tags.html(head, body, lang="en")).addCallback(texts.append)
    [text] = texts
    return b"<!DOCTYPE html>\n" + text


def _section(id: str, title: str, description: str, content: Iterable[Flattenable]) -> Tag:
    return tags.section(tags.h2(title), *_paragraphs(description), *content, id=id)


def _paragraphs(text: str) -> Iterator[Tag]:
    """Paragraphs of plain text; lines that begin with a dash are a list."""
    for part in filter(None, text.split("\n\n")):
        lines = part.split("\n")
        items = [line[2:] for line in lines if line.startswith("- ")]
        yield tags.p(" ".join(line for line in lines if not line.startswith("- ")))
        if items:
            yield tags.ul(*(tags.li(each) for each in items))


def _call(id: str, heading: Flattenable, summary: str, *content: Flattenable) -> Tag:
    return tags.details(tags.summary(heading, " ", tags.span(summary)), *content, id=id)


def _fields(fields: Iterable[tuple[str, str, Flattenable, str]]) -> Flattenable:
    """
    A list of parameters, headers or members.

    @param fields: of each the name, a remark, its type and a description.
    """
    items = []
    for name, remark, type, description in fields:
        items.append(tags.dt(tags.code(name), " ", type, tags.em(" ", remark) if remark else ""))
        items.append(tags.dd(description))
    return tags.dl(*items) if items else ""


def _rest(document: Mapping[str, Any]) -> Iterator[Tag]:
    shown = ""
    for path, methods in document["paths"].items():
        names = ", ".join(each.upper() for each in methods)
        described = methods.get("get") or methods["post"]
        [tag] = described["tags"]
        if tag not in _TAGS:
            continue
        if tag != shown:
            shown = tag
            yield tags.h3(_TAGS[tag])
        fields = [
            (
                each["name"],
                "required" if each.get("x-required") else _place(each),
                _type(_wanted(each["schema"])),
                each["description"],
            )
            for each in described.get("parameters", ())
        ]
        yield _call(
            described["operationId"],
            tags.code(f"{names} {path}"),
            described["summary"],
            _fields(fields),
            *_body(described.get("requestBody")),
            tags.h3("Answer"),
            *(
                tags.p(tags.code(name), ": ", _type(content["schema"]))
                for name, content in described["responses"]["200"]["content"].items()
            ),
            *_paragraphs(described.get("description", "")),
        )


def _body(body: Mapping[str, Any] | None) -> Iterator[Tag]:
    """The body of requests, where it is more than a form of the same parameters."""
    if body is not None:
        yield tags.h3("Body")
        yield tags.p(body["description"])
        for name, content in body["content"].items():
            schema = _wanted(content["schema"])
            yield tags.p(tags.code(name), ": ", _type(schema))
            yield tags.div(_members(schema))


def _place(parameter: Mapping[str, Any]) -> str:
    return "a header" if parameter["in"] == "header" else ""


def _wanted(schema: _Schema) -> _Schema:
    """What an operation wants, of a schema that takes everything."""
    return schema["anyOf"][0] if "anyOf" in schema else schema


def _jsonrpc(document: Mapping[str, Any]) -> Iterator[Tag]:
    errors = document["components"]["errors"]
    for method in document["methods"]:
        params = method["params"]
        isOptional = [not each["required"] or "x-optional" in each for each in params]
        names = [
            f"{each['name']}?" if optional else each["name"]
            for each, optional in zip(params, isOptional, strict=True)
        ]
        fields = [
            (
                each["name"],
                "" if optional else "required",
                _type(_wanted(each["schema"])),
                each["description"],
            )
            for each, optional in zip(params, isOptional, strict=True)
        ]
        failures = [errors[each["$ref"].rpartition("/")[2]] for each in method["errors"]]
        yield _call(
            f"jsonrpc.{method['name']}",
            tags.code(f"{method['name']}({', '.join(names)})"),
            method["summary"],
            _fields(fields),
            tags.h3("Result"),
            tags.p(_type(method["result"]["schema"])),
            tags.h3("Errors"),
            tags.ul(
                *(tags.li(tags.code(str(each["code"])), f" {each['message']}") for each in failures)
            ),
        )


def _events(document: Mapping[str, Any]) -> Iterator[Flattenable]:
    yield tags.h3("Servers")
    yield _fields(
        (name, "", tags.code(_address(server)), server["description"])
        for name, server in document["servers"].items()
    )
    messages = document["components"]["messages"]
    for name, channel in document["channels"].items():
        yield tags.h3(channel["title"])
        yield tags.p(channel["description"])
        for id, operation in document["operations"].items():
            if operation["channel"]["$ref"] == f"#/channels/{name}":
                arrow = "to the broker" if operation["action"] == "receive" else "from the broker"
                used = [("", each) for each in operation["messages"]]
                replies = operation.get("reply", {}).get("messages", ())
                used += [("Answer: ", each) for each in replies]
                query = operation.get("bindings", {}).get("http", {}).get("query", {})
                yield _call(
                    f"events.{id}",
                    tags.code(f"{id}: {arrow}"),
                    operation["summary"],
                    _members(query),
                    *(
                        part
                        for prefix, each in used
                        for part in _message(messages[each["$ref"].rpartition("/")[2]], prefix)
                    ),
                )


def _address(server: Mapping[str, Any]) -> str:
    return f"{server['protocol']}://{server['host']}{server.get('pathname', '')}"


def _message(message: Mapping[str, Any], prefix: str) -> Iterator[Flattenable]:
    """
    @param prefix: what stands before its title.
    """
    type = message.get("contentType")
    yield tags.h4(prefix, message["title"], *((" ", tags.code(type)) if type else ()))
    yield tags.p(message["summary"])
    payload = message.get("payload")
    if payload is not None:
        yield tags.p("Payload: ", _type(payload))
        yield _members(payload["oneOf"][0] if "oneOf" in payload else payload)
    properties, headers = message.get("x-properties"), message["headers"]
    if properties is not None:
        yield tags.p("Properties:")
        yield _members(properties)
    if headers["properties"] or "patternProperties" in headers:
        yield tags.p("Headers:" if properties is None else "User properties:")
        yield _members(headers)


def _members(schema: _Schema) -> Flattenable:
    """The members of an object, where the schema lists them, or says how their names begin."""
    required = schema.get("required", ())
    members = {
        **schema.get("properties", {}),
        **{f"{start[1:]}…": each for start, each in schema.get("patternProperties", {}).items()},
    }
    return _fields(
        (name, "" if name in required else "optional", _type(member), member.get("description", ""))
        for name, member in members.items()
    )


def _record(name: str, schema: _Schema) -> Tag:
    # Not folded: a link to it would not open it in every browser.
    return tags.article(
        tags.h3(tags.code(name)),
        *_paragraphs(schema.get("description", "")),
        _members(schema),
        id=f"record.{name}",
    )


def _type(schema: _Schema) -> Flattenable:
    """A type in words. Names of records are links."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return tags.a(name, href=f"#record.{name}")
    for key in ("oneOf", "anyOf"):
        if key in schema:
            return _joined([_type(each) for each in schema[key]])
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if values is not None:
        return _joined([tags.code(encode(each).decode("utf-8")) for each in values])
    type = schema.get("type", "any value")
    if type == "array":
        return ["array of ", _type(schema.get("items", {}))]
    if type == "object":
        inner = schema.get("additionalProperties")
        if isinstance(inner, Mapping) and "properties" not in schema:
            return ["object of ", _type(inner)]
        return "object"
    return " or ".join([type] if isinstance(type, str) else type) + _limits(schema)


def _joined(parts: Iterable[Flattenable]) -> Flattenable:
    joined: list[Flattenable] = []
    for part in parts:
        joined += [" or ", part] if joined else [part]
    return joined


def _limits(schema: _Schema) -> str:
    """What a schema says besides its type."""
    said = []
    if "contentEncoding" in schema or "format" in schema:
        said.append(schema.get("contentEncoding") or schema["format"])
    for low, high, unit in (("minLength", "maxLength", " characters"), ("minimum", "maximum", "")):
        if high in schema:
            said.append(f"{schema.get(low, 0)} to {schema[high]}{unit}")
        elif schema.get(low) == 1 and unit:
            said.append("not empty")
        elif low in schema:
            said.append(f"at least {schema[low]}{unit}")
    if "pattern" in schema:
        said.append(schema["pattern"])
    return f" ({', '.join(said)})" if said else ""
