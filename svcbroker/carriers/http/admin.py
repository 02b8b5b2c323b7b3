"""
The admin queries: by GET, with query strings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from twisted.internet.defer import Deferred

from ...broker import Broker
from ...operations import QUERIES, Incidents
from .request import BrokerRequest
from .resource import Route, respond
from .textcalls import TextCall, tie


def _handler(call: TextCall) -> Callable[[BrokerRequest], Deferred[bytes]]:
    async def answer(request: BrokerRequest) -> bytes:
        return respond(request, await call.answer(request.query))

    def handle(request: BrokerRequest) -> Deferred[bytes]:
        return Deferred.fromCoroutine(answer(request))

    return handle


def routes(prefix: str, broker: Broker, incidents: Incidents) -> Iterator[Route]:
    """
    The routes of all queries.

    @param prefix: the path above them.
    """
    for name, call in tie(QUERIES, broker, incidents).items():
        yield Route(path=f"{prefix}/{name}", methods=("GET",), handler=_handler(call))
