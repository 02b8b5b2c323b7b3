"""
HTTP as a feature of the daemon: settings, metrics, and the site on its port, put together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

from attrs import frozen
from twisted.internet.defer import Deferred, succeed

from ...access import Access
from ...broker import Answers, Calls, ClientConnection
from ...broker.features import Feature, RunningFeature, Services, carrierMetrics, sessionMetrics
from ...net.bounds import CHECKED, CONNECTIONS, INPUT, LOGINS, NAMES, Bound, Sizing, within
from ...net.budgets import ENTRY_BYTES
from ...net.findings import Finding, warning
from ...net.metrics import Metric
from ...net.settings import Endpoint, Flag, List, Text, declareSetting
from ...net.turns import EndOfTurn
from ...operations import WEEVENT, WEEVENT_INTERFACE, Incidents, Interface
from .connection import BrokerChannel, BrokerSite
from .descriptions import ServedPath, descriptionRoutes, withDiscovery
from .fastpath import CallBatches, FastChannel, FastPath
from .jsonrpc import errorEncoder, rpcEndpoint
from .logins import MAX_LOGGED, MAX_SESSIONS, HttpSettings, LogIns
from .operator import Authorizer, operatorRoutes
from .plain import MAX_REMEMBERED, PlainAnswers
from .publicroutes import healthRoutes, logRoutes, webhookKeyRoutes
from .rest import cloudEventsRoute, queryEndpoints, restEndpoints
from .routes import Area, HttpEndpoint, Route, Routes

PORT: Final = "http"
"""The name of the port, and of its setting."""

_ROOM: Final = "svcbroker.carriers.http"

_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,253}[A-Za-z0-9])?")


def hostName(text: str) -> str:
    """A host name or an address, without a port, in lower case."""
    if _HOST_NAME.fullmatch(text) is None:
        raise ValueError(f"is not a host name such as broker.example: {text!r}")
    return text.lower()


def origin(text: str) -> str:
    """An origin that browsers may call from, or C{*}."""
    if text == "*":
        return text
    parts = urlsplit(text)
    if (
        len(text) > 512
        or parts.scheme not in {"http", "https"}
        or not parts.netloc
        or text != f"{parts.scheme}://{parts.netloc}"
    ):
        raise ValueError(f"is neither * nor an origin such as https://example.com: {text!r}")
    return text


@frozen(kw_only=True)
class HttpOptions:
    """The settings of HTTP."""

    endpoint: str = declareSetting(
        PORT,
        Endpoint(),
        "tcp:8080:interface=127.0.0.1",
        "where HTTP is served: a port of loopback, or a Twisted endpoint string; empty "
        "switches HTTP off",
    )
    accessLog: bool = declareSetting(
        "access-log",
        Flag(),
        False,
        "log each HTTP request: method, path, status, size; never its query or body",
        shown="off",
    )
    corsOrigins: tuple[str, ...] = declareSetting(
        "cors-origin",
        List(of=Text(metavar="ORIGIN", normalise=origin)),
        (),
        "an origin whose pages may call the interface, or *; may be given more than once",
        shown="none",
    )
    hostNames: tuple[str, ...] = declareSetting(
        "host-name",
        List(of=Text(metavar="NAME", normalise=hostName)),
        (),
        "a name, beside localhost, by which clients reach HTTP on a loopback address, for example "
        "through a proxy; may be given more than once",
        shown="none",
    )


def settingsOf(options: HttpOptions, basePath: str) -> HttpSettings:
    """The settings of a site."""
    # A converter that is a generic class hides from mypy what it takes.
    corsOrigins: Any = options.corsOrigins
    hostNames: Any = options.hostNames
    return HttpSettings(
        basePath=basePath,
        accessLog=options.accessLog,
        corsOrigins=corsOrigins,
        hostNames=hostNames,
    )


def checkHttp(options: HttpOptions) -> Iterator[Finding]:
    """Whether pages of others can use the broker."""
    if "*" in options.corsOrigins:
        yield warning(
            "configuration",
            "cors-origin is *",
            "a page of any site can use the broker from the browser of a user who can reach it",
            "name the origins of your own pages: cors-origin = ['https://app.example.com']",
        )


class HttpFeature(RunningFeature):
    """The site with the interface, and with what other features serve there."""

    def __init__(self, options: HttpOptions, services: Services) -> None:
        self._settings = settingsOf(options, services.basePath)
        self._services = services
        self._sessions = LogIns(services.reactor, services.entropy, services.basePath)
        self._site: BrokerSite | None = None
        self.answers: Answers = {LogIns: self._sessions}

    def factories(self, calls: Calls, routes: Sequence[Any]) -> Mapping[str, Any]:
        """See L{RunningFeature}."""
        services, dialects = self._services, {}
        if services.dialect == WEEVENT.name:
            dialects[WEEVENT.basePath] = WEEVENT_INTERFACE
        self._site = makeSite(
            calls,
            self._settings,
            services.access,
            routes,
            operatorToken=services.operatorToken,
            dialects=dialects,
            sessions=self._sessions,
        )
        return {PORT: self._site}

    def connections(self) -> Iterable[ClientConnection]:
        """See L{RunningFeature}."""
        site = self._site
        return () if site is None else map(BrokerChannel.client, site.channels.inTurns())

    def connected(self) -> int:
        """See L{RunningFeature}."""
        return 0 if self._site is None else len(self._site.channels)

    def metrics(self) -> Iterator[Metric]:
        """See L{RunningFeature}."""
        yield from carrierMetrics("http", self._services, self.connected())
        yield sessionMetrics("console", len(self._sessions))

    def drain(self) -> Deferred[Any]:
        """See L{RunningFeature}."""
        return succeed(None) if self._site is None else self._site.drain()


def httpBounds(options: HttpOptions, sizing: Sizing) -> Iterator[Bound]:
    """The memory of HTTP's connections and log-ins."""
    yield Bound(name=INPUT, holders=[f"{_ROOM}.connection.IncompleteBody.content"])
    yield Bound(name=NAMES, holders=[f"{_ROOM}.fastpath.FastChannel._blocks"])
    yield Bound(name=CONNECTIONS, holders=[f"{_ROOM}.connection.BrokerSite.channels"])
    yield Bound(
        name=LOGINS,
        bytes=MAX_SESSIONS * ENTRY_BYTES,
        how=f"{MAX_SESSIONS:,} of the console",
        holders=within(f"{_ROOM}.logins.LogIns", "_sessions", "_counts"),
    )
    yield Bound(
        name=CHECKED,
        bytes=MAX_LOGGED * ENTRY_BYTES + MAX_REMEMBERED**2,
        how=f"{MAX_LOGGED:,} origins, and {MAX_REMEMBERED:,} heads of requests",
        holders=[f"{_ROOM}.plain._common", f"{_ROOM}.logins.OriginPolicy._logged"],
    )


FEATURE: Final = Feature(
    name="http",
    settings=HttpOptions,
    make=HttpFeature,
    checks=checkHttp,
    bounds=httpBounds,
)


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
            answers=PlainAnswers(settings, calls.broker.clock.seconds),
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
