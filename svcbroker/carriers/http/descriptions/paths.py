"""
The paths of the descriptions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any

from twisted.web.server import Request

from ....operations import Interface
from ..routes import Route, encode, respond
from . import asyncapi, openapi, openrpc
from .page import CONTENT_SECURITY_POLICY, makePage

_PAGE_HEADERS = (
    ("Content-Type", "text/html;charset=UTF-8"),
    ("Content-Security-Policy", CONTENT_SECURITY_POLICY),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
)


def descriptionRoutes(base: str, interface: Interface) -> Iterator[Route]:
    """
    The route of each document, and of the page that shows them. Like calls they require
    credentials, and need no grants.

    @param base: the site's base path.
    @param interface: the calls below it.
    """
    makers: Mapping[str, Callable[[], Mapping[str, Any]]] = {
        "openapi.json": partial(openapi.document, base),
        "openrpc.json": partial(openrpc.document, f"{base}/jsonrpc", interface),
        "asyncapi.json": partial(asyncapi.document, base),
    }

    def page() -> bytes:
        return makePage(base, {name: make() for name, make in makers.items()})

    for name, make in makers.items():
        yield _route(f"{base}/{name}", partial(_encode, make))
    yield _route(f"{base}/docs", page, _PAGE_HEADERS)


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
