"""
The paths of the descriptions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any

from twisted.web.server import Request

from ..routes import Route, encode, respond
from . import asyncapi, openapi, openrpc
from .declared import ServedPath
from .page import CONTENT_SECURITY_POLICY, makePage

_PAGE_HEADERS = (
    ("Content-Type", "text/html;charset=UTF-8"),
    ("Content-Security-Policy", CONTENT_SECURITY_POLICY),
    ("Referrer-Policy", "no-referrer"),
)


def descriptionRoutes(served: ServedPath) -> Iterator[Route]:
    """
    The routes of a path's documents, and of the page that shows them. Like calls they require
    credentials, and need no grants.
    """
    makers: Mapping[str, Callable[[], Mapping[str, Any]]] = {
        "openapi.json": partial(openapi.document, served),
        "openrpc.json": partial(openrpc.document, served),
        "asyncapi.json": partial(asyncapi.document, served),
    }

    def page() -> bytes:
        return makePage(served.base, {name: make() for name, make in makers.items()})

    for name, make in makers.items():
        yield _route(f"{served.base}/{name}", partial(_encode, make))
    yield _route(f"{served.base}/docs", page, _PAGE_HEADERS)


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
