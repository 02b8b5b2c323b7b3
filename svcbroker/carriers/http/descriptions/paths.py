"""
The paths of the descriptions.
"""

from __future__ import annotations

from collections.abc import Iterator

from twisted.web.server import Request

from ....operations import Interface
from ..routes import Route, encode, respond
from . import asyncapi, openapi, openrpc


def descriptionRoutes(base: str, interface: Interface) -> Iterator[Route]:
    """
    The route of each document. Like calls they require credentials, and need no grants.

    @param base: the site's base path.
    @param interface: the calls below it.
    """
    documents = {
        "openapi.json": openapi.document(base),
        "openrpc.json": openrpc.document(f"{base}/jsonrpc", interface),
        "asyncapi.json": asyncapi.document(base),
    }
    for name, document in documents.items():
        yield _jsonRoute(f"{base}/{name}", encode(document))


def _jsonRoute(path: str, text: bytes) -> Route:
    def handle(request: Request) -> bytes:
        return respond(request, text)

    return Route(path=path, methods=("GET",), handler=handle)
