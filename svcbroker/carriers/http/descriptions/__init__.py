"""
Descriptions of the interface for programs and for readers, made from the declarations: their paths,
and the page that links them, plain HTML without script or style.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any, Final

from twisted.web.server import Request
from twisted.web.template import Tag, flattenString, tags

from ..routes import Route, encode, respond
from . import asyncapi, openapi, openrpc
from .openapi import ServedPath
from .openrpc import withDiscovery

_PAGE_HEADERS = (
    ("Content-Type", "text/html;charset=UTF-8"),
    (
        "Content-Security-Policy",
        "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("Referrer-Policy", "no-referrer"),
)
_DOCUMENTS: Final[Mapping[str, tuple[Callable[[ServedPath], Mapping[str, Any]], str]]] = {
    "openapi.json": (openapi.document, "OpenAPI: REST, the admin queries and health"),
    "openrpc.json": (openrpc.document, "OpenRPC: the methods of JSON-RPC"),
    "asyncapi.json": (asyncapi.document, "AsyncAPI: events besides single calls"),
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
    base, rest = served.base, openapi.document(served)
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
