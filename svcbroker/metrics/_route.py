"""
The path that serves the metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.web.server import Request

from ..access import Principal
from ..carriers.http import Route
from ..carriers.http.authentication import Credentials
from ..carriers.http.routes import encodeError, explain, principalOf, respond
from ..errors import NotAuthorized
from ..interfaces import Action
from ..net.deferreds import asDeferred
from ._metrics import CONTENT_TYPE

PATH = "/metrics"


class MetricsRoute:
    """
    Serves the metrics at C{/metrics}: to principals that may read those of all groups, or to
    everybody.
    """

    def __init__(
        self, render: Callable[[], Deferred[bytes]], groups: Sequence[str], *, isOpen: bool
    ) -> None:
        """
        @param render: see L{Metrics.render<svcbroker.metrics.Metrics.render>}.
        @param groups: the ids of all groups.
        @param isOpen: whether requests need no credentials.
        """
        self._render = render
        self._groups = groups
        self._isOpen = isOpen

    def route(self) -> Route:
        """The route, for the table of a site."""
        credentials = Credentials.IGNORED if self._isOpen else Credentials.REQUIRED
        return Route(path=PATH, methods=("GET",), handler=self._handle, credentials=credentials)

    @asDeferred
    async def _handle(self, request: Request) -> bytes:
        if not self._isOpen:
            principal: Principal = principalOf(request)
            try:
                for group in self._groups:
                    principal.require(Action.METRICS, group)
            except NotAuthorized as error:
                return respond(request, explain(error, principal, encodeError))
        text = await self._render()
        headers: Any = request.responseHeaders
        headers.setRawHeaders(b"Content-Type", [CONTENT_TYPE])
        headers.setRawHeaders(b"Content-Length", [b"%d" % len(text)])
        headers.setRawHeaders(b"Cache-Control", [b"no-store"])
        return text
