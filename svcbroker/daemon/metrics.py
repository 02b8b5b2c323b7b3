"""
The metrics as a feature of the daemon: where they are served, and those of the process, the disk,
the ledgers, the access control and the budgets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from attrs import fields, frozen
from prometheus_client.core import Metric
from twisted.internet.defer import Deferred
from twisted.web.server import Request

from ..access import Access, Principal
from ..archive import STORE_NAME
from ..broker import Calls
from ..broker.features import Feature, RunningFeature, Services
from ..carriers.http import BrokerSite, Route
from ..carriers.http.feature import HttpOptions, settingsOf
from ..carriers.http.logins import Credentials
from ..carriers.http.routes import Routes, encodeError, explain, principalOf, respond
from ..errors import NotAuthorized
from ..interfaces import Action, Quotas
from ..ledgers.metrics import LedgerMetrics
from ..net.budgets import Budgets, ByteBudget, OutputBudget
from ..net.deferreds import asDeferred
from ..net.metrics import CONTENT_TYPE, counter, gauge, only
from ..net.settings import Endpoint, declareSetting
from ..operations import Incidents
from .directory import METADATA
from .processmetrics import DiskMetrics, ProcessMetrics, ReactorLag

PATH: Final = "/metrics"

PORT: Final = "metrics"
"""The name of the port of metrics, where they have one of their own, and of its setting."""

ON_HTTP: Final = "http"
"""The place of metrics that are served on the port of HTTP, in the place of an endpoint."""

MAX_BODY: Final = 1024
"""The largest body of a request at the port of metrics, in bytes. None has one."""


@frozen(kw_only=True)
class MetricsOptions:
    """The settings of metrics."""

    endpoint: str = declareSetting(
        PORT,
        Endpoint(metavar="http|PORT|ENDPOINT", others=(ON_HTTP,)),
        ON_HTTP,
        "where /metrics is served for Prometheus: http, on the port of HTTP, to accounts with the "
        "grant metrics for all groups; an endpoint of its own, on loopback without a log-in; empty "
        "for nowhere",
    )


class MetricsRoute:
    """
    Serves the metrics at C{/metrics}: to principals that may read those of all groups, or to
    everybody.
    """

    def __init__(
        self, render: Callable[[], Deferred[bytes]], groups: Sequence[str], *, isOpen: bool
    ) -> None:
        """
        @param render: see L{Metrics.render<svcbroker.net.metrics.Metrics.render>}.
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


class MetricsFeature(RunningFeature):
    """
    The metrics on HTTP's port or on their own. Those of other features are theirs.
    """

    def __init__(self, options: MetricsOptions, services: Services) -> None:
        self._place = options.endpoint
        self._services = services
        self._lag = ReactorLag(services.reactor)
        self._ofLedgers = LedgerMetrics(services.ledgers, services.reactor)
        self._site: BrokerSite | None = None
        metrics = services.metrics
        metrics.add("ledgers", self._ofLedgers.collect)
        metrics.add("disk", self._diskSource(services))
        metrics.add("reactor", self._lag.collect)
        metrics.add("process", ProcessMetrics(services.version, services.now).collect)

    def _diskSource(self, services: Services) -> Callable[[], Deferred[Iterable[Metric]]]:
        directory = services.dataDir
        files = {("", name): directory / name for name in (METADATA, f"{METADATA}-wal")}
        for group in services.ledgers:
            for name in (STORE_NAME, f"{STORE_NAME}-wal"):
                files[group, name] = directory / group / name
        disk = DiskMetrics(directory, files)
        return lambda: services.runInThread(disk.collect)

    def routes(self, calls: Calls) -> Iterable[Any]:
        """See L{RunningFeature}."""
        return [self._route(isOpen=False)] if self._place == ON_HTTP else []

    def factories(self, calls: Calls, routes: Sequence[Any]) -> Mapping[str, Any]:
        """See L{RunningFeature}."""
        if self._place in ("", ON_HTTP):
            return {}
        services = self._services
        route = self._route(isOpen=PORT in services.localPorts)
        self._site = BrokerSite(
            Routes(endpoints=(), others=(route,), areas=(), incidents=Incidents()),
            settingsOf(services.settingsOf(HttpOptions), services.basePath),
            *(services.access, services.reactor, services.budgets, MAX_BODY),
        )
        return {PORT: self._site}

    def _route(self, isOpen: bool) -> Route:
        services = self._services
        groups = tuple(services.ledgers)
        return MetricsRoute(services.metrics.render, groups, isOpen=isOpen).route()

    def metrics(self) -> Iterator[Metric]:
        """See L{RunningFeature}."""
        yield from accessMetrics(self._services.access)
        yield from budgetMetrics(self._services.budgets)

    @asDeferred
    async def start(self) -> None:
        """Begin to measure. The ledgers have started."""
        if self._place:
            self._lag.start()
            await self._ofLedgers.start()

    @asDeferred
    async def drain(self) -> None:
        """Answer the scrapes that have arrived, and measure no more."""
        try:
            if self._site is not None:
                await self._site.drain()
        finally:
            self._lag.stop()
            self._ofLedgers.stop()


def accessMetrics(access: Access) -> Iterator[Metric]:
    """The metrics of refusals to accounts."""
    refusals = access.refusals
    yield counter(
        "svcbroker_access_refusals",
        "Calls that were not granted to the account.",
        ["action"],
        [((name,), refusals[name]) for name in ("any", *(each.value for each in Action))],
    )
    yield counter(
        "svcbroker_quota_refusals",
        "Calls that were refused because a quota of the account was used up.",
        ["quota"],
        [((each.name,), access.exceeded[each.name]) for each in fields(Quotas)],
    )


def budgetMetrics(budgets: Budgets) -> Iterator[Metric]:
    """The metrics of what all connections share."""
    strangers = budgets.strangers
    kinds: Mapping[str, OutputBudget | ByteBudget] = {
        "output": budgets.output,
        "input": budgets.input,
        "windows": budgets.windows,
        "subscriptions": budgets.subscriptions,
        "names": budgets.names,
    }
    yield gauge(
        "svcbroker_budget_used_bytes",
        "Bytes that all connections and sessions together have of each kind.",
        ["budget"],
        [((name,), each.used) for name, each in kinds.items()],
    )
    yield gauge(
        "svcbroker_budget_bytes",
        "How many there may be, over all connections.",
        ["budget"],
        [((name,), each.total) for name, each in kinds.items()],
    )
    refused = [((name,), float(each.refused)) for name, each in kinds.items()]
    yield counter(
        "svcbroker_budget_refused",
        "What was refused because there was no room, and connections before their log-in.",
        ["budget"],
        [*refused, (("strangers",), strangers.refused)],
    )
    yield gauge(
        "svcbroker_strangers",
        "Connections whose clients have not shaken hands or logged in.",
        values=only(len(strangers)),
    )


FEATURE: Final = Feature(name="metrics", settings=MetricsOptions, make=MetricsFeature)
