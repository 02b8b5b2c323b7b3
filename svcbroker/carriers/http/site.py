"""
The parts of the HTTP carrier put together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from ...access import Access
from ...broker import Calls
from ...net.turns import EndOfTurn
from ...operations import Incidents, Interface
from .connection import BrokerChannel, BrokerSite
from .descriptions import ServedPath, descriptionRoutes, withDiscovery
from .fastpath import CallBatches, FastChannel, FastPath
from .health import healthRoutes
from .jsonrpc import errorEncoder, rpcEndpoint
from .log import logRoutes
from .logins import LogIns
from .operator import Authorizer, operatorRoutes
from .plain import Answers
from .rest import cloudEventsRoute, queryEndpoints, restEndpoints
from .routes import Area, HttpEndpoint, Route, Routes
from .settings import HttpSettings
from .webhookkeys import webhookKeyRoutes

BODY_MARGIN: Final = 64 * 1024
"""The most bytes that a body may hold besides content."""
_PERCENT_ENCODED = 3
_OPERATOR = "/admin/operator"


def largestBody(maxContent: int) -> int:
    """
    The most bytes that the body of a request may have.

    @param maxContent: the largest content of an event.
    """
    return _PERCENT_ENCODED * maxContent + BODY_MARGIN


def makeSite(
    calls: Calls,
    settings: HttpSettings,
    access: Access,
    routes: Iterable[Route] = (),
    incidents: Incidents | None = None,
    operatorToken: str | None = None,
    hasFastPath: bool = True,
    dialects: Mapping[str, Interface] | None = None,
    sessions: LogIns | None = None,
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
    @param dialects: more interfaces by their context paths. One at the path of the settings takes
        the place of the published interface.
    @param sessions: the log-ins of the console's users, where there is a console.
    """
    authorizer = None
    if operatorToken is not None:
        authorizer = Authorizer(f"{settings.basePath}{_OPERATOR}", operatorToken)
    base, interfaces = settings.basePath, {settings.basePath: Interface(), **(dialects or {})}
    table = _makeRoutes(
        calls, access, base, interfaces, routes, incidents or Incidents(), authorizer
    )
    makeChannel: Callable[[], BrokerChannel] = BrokerChannel
    if hasFastPath:
        fastPath = FastPath(
            endpoints=table.endpoints,
            answers=Answers(settings, calls.broker.clock.seconds),
            turnEnd=EndOfTurn(calls.broker.clock),
            batches=CallBatches.of(calls),
        )
        makeChannel = partial(FastChannel, fastPath)
    return BrokerSite(
        *(table, settings, access, calls.broker.clock, calls.broker.budgets),
        *(largestBody(calls.broker.limits.maxContent), makeChannel, authorizer, sessions),
    )


def _makeRoutes(
    calls: Calls,
    access: Access,
    base: str,
    interfaces: Mapping[str, Interface],
    routes: Iterable[Route],
    incidents: Incidents,
    authorizer: Authorizer | None,
) -> Routes:
    others = [
        cloudEventsRoute(f"{base}/rest", calls),
        *healthRoutes(calls, access),
        *logRoutes(f"{base}/log", calls),
        *webhookKeyRoutes(calls),
        *routes,
    ]
    if authorizer is not None:
        others += operatorRoutes(f"{base}{_OPERATOR}", calls, authorizer, incidents)
    endpoints: list[HttpEndpoint] = []
    # The first area that covers a path counts.
    areas = [Area(prefix=f"{base}{_OPERATOR}", methods=("POST",))]
    for path, interface in interfaces.items():
        served = ServedPath(base=path, interface=interface, isMain=path == base)
        others += descriptionRoutes(served)
        endpoints += [
            *restEndpoints(f"{path}/rest", calls, incidents, interface),
            *queryEndpoints(f"{path}/admin", calls, incidents, interface),
            rpcEndpoint(f"{path}/jsonrpc", calls, incidents, withDiscovery(served)),
        ]
        areas += [
            Area(prefix=f"{path}/rest", methods=("GET", "POST")),
            Area(prefix=f"{path}/admin", methods=("GET",)),
            Area(
                prefix=f"{path}/jsonrpc",
                methods=("POST",),
                encodeError=errorEncoder(interface),
                isTree=False,
            ),
        ]
    return Routes(endpoints=endpoints, others=others, areas=areas, incidents=incidents)
