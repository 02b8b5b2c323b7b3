"""
The parts of the HTTP carrier put together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from ...access import Access
from ...broker import Broker
from ...net.turns import EndOfTurn
from ...operations import Incidents
from .fastpath import FastChannel, FastPath
from .health import healthRoutes
from .jsonrpc import encodeError as encodeRPCError
from .jsonrpc import rpcEndpoint
from .openapi import openapiRoute
from .operator import Authorizer, operatorRoutes
from .plain import Answers
from .rest import queryEndpoints, restEndpoints
from .routes import Area, Route, Routes
from .server import BrokerChannel, BrokerSite
from .settings import HttpSettings

BODY_MARGIN: Final = 64 * 1024
"""What a body may hold besides content, in bytes."""
_PERCENT_ENCODED = 3
_OPERATOR = "/admin/operator"


def makeSite(
    broker: Broker,
    settings: HttpSettings,
    access: Access,
    routes: Iterable[Route] = (),
    incidents: Incidents | None = None,
    operatorToken: str | None = None,
    hasFastPath: bool = True,
) -> BrokerSite:
    """
    The site of a broker.

    @param access: who may use it.
    @param routes: more paths: WebSockets, the console, metrics.
    @param incidents: logs the causes of unexpected failures.
    @param operatorToken: what operators of this machine have to know; C{None} where there are no
        operator calls.
    @param hasFastPath: whether plain requests are answered without twisted.web. Tests compare
        both ways.
    """
    authorizer = None
    if operatorToken is not None:
        authorizer = Authorizer(f"{settings.basePath}{_OPERATOR}", operatorToken)
    table = _makeRoutes(
        broker, access, settings.basePath, routes, incidents or Incidents(), authorizer
    )
    makeChannel: Callable[[], BrokerChannel] = BrokerChannel
    if hasFastPath:
        fastPath = FastPath(
            endpoints=table.endpoints,
            answers=Answers(settings, broker.clock.seconds),
            turnEnd=EndOfTurn(broker.clock),
        )
        makeChannel = partial(FastChannel, fastPath)
    maxBody = _PERCENT_ENCODED * broker.limits.maxContent + BODY_MARGIN
    return BrokerSite(table, settings, access, broker.clock, maxBody, makeChannel, authorizer)


def _makeRoutes(
    broker: Broker,
    access: Access,
    base: str,
    routes: Iterable[Route],
    incidents: Incidents,
    authorizer: Authorizer | None,
) -> Routes:
    others = [openapiRoute(base), *healthRoutes(broker, access), *routes]
    if authorizer is not None:
        others += operatorRoutes(f"{base}{_OPERATOR}", broker, authorizer, incidents)
    return Routes(
        endpoints=[
            *restEndpoints(f"{base}/rest", broker, incidents),
            *queryEndpoints(f"{base}/admin", broker, incidents),
            rpcEndpoint(f"{base}/jsonrpc", broker, incidents),
        ],
        others=others,
        areas=[
            Area(prefix=f"{base}/rest", methods=("GET", "POST")),
            Area(prefix=f"{base}{_OPERATOR}", methods=("POST",)),
            Area(prefix=f"{base}/admin", methods=("GET",)),
            Area(
                prefix=f"{base}/jsonrpc",
                methods=("POST",),
                encodeError=encodeRPCError,
                isTree=False,
            ),
        ],
        incidents=incidents,
    )
