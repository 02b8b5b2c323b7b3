"""
The metrics of the daemon: where they are served, and what they are collected from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from prometheus_client.core import Metric
from twisted.internet.defer import Deferred

from ..access import Access
from ..archive import STORE_NAME
from ..carriers.http import BrokerSite, HttpSettings, Route
from ..carriers.http.routes import Routes
from ..interfaces import ILedger
from ..metrics import (
    BacklogMetrics,
    BrokerMetrics,
    DiskMetrics,
    LedgerMetrics,
    Metrics,
    MetricsRoute,
    ProcessMetrics,
    ReactorLag,
    counter,
    gauge,
    only,
)
from ..net.budgets import Budgets, ByteBudget, OutputBudget
from ..net.deferreds import asDeferred
from ..operations import Incidents
from ..version import readVersion
from .config import Config
from .dependencies import Dependencies
from .ports import METRICS, PortPlan
from .settings import ON_HTTP

MAX_BODY = 1024
"""The largest body of a request at the port of metrics, in bytes. None has one."""


class DaemonMetrics:
    """
    The metrics, and the site of their own port.

    @ivar metrics: what is collected.
    @ivar routes: the routes for the site of HTTP.
    @ivar factories: what makes the protocols of connections to the port of metrics, by its name.
    """

    def __init__(
        self,
        config: Config,
        ports: Sequence[PortPlan],
        access: Access,
        settings: HttpSettings,
        ledgers: Mapping[str, ILedger],
        reactor: Any,
        budgets: Budgets,
    ) -> None:
        """
        @param ports: the ports of the daemon. The one of metrics needs no log-in on loopback.
        @param settings: those of the site of HTTP.
        @param budgets: what all connections share.
        """
        self.metrics = Metrics(reactor)
        self.routes: Sequence[Route] = ()
        self.factories: Mapping[str, BrokerSite] = {}
        self._config = config
        self._ledgers = ledgers
        self._budgets = budgets
        self._certificates = {
            port.name: port.certificates for port in ports if port.certificates is not None
        }
        self._lag = ReactorLag(reactor)
        self._ofLedgers: LedgerMetrics | None = None
        groups = tuple(ledgers)
        if config.metrics == ON_HTTP:
            self.routes = (MetricsRoute(self.metrics.render, groups, isOpen=False).route(),)
        elif config.metrics:
            isOpen = any(port.name == METRICS and port.isLocal for port in ports)
            route = MetricsRoute(self.metrics.render, groups, isOpen=isOpen).route()
            table = Routes(endpoints=(), others=(route,), areas=(), incidents=Incidents())
            self.factories = {
                METRICS: BrokerSite(table, settings, access, reactor, budgets, MAX_BODY)
            }

    def collectFrom(
        self,
        clients: BrokerMetrics,
        dependencies: Dependencies,
        runInThread: Callable[..., Deferred[Iterable[Metric]]],
        metadata: str,
    ) -> None:
        """
        Collect metrics of all parts. Called once, when they are made.

        @param runInThread: runs blocking disk work, one call after the other.
        @param metadata: the file name of the metadata store.
        """
        self._ofLedgers = LedgerMetrics(self._ledgers, dependencies.reactor)
        directory = self._config.dataDir
        files = {("", name): directory / name for name in (metadata, f"{metadata}-wal")}
        for group in self._ledgers:
            for name in (STORE_NAME, f"{STORE_NAME}-wal"):
                files[group, name] = directory / group / name
        disk = DiskMetrics(directory, files)
        process = ProcessMetrics(readVersion(), dependencies.now)
        self.metrics.add("broker", clients.collect)
        backlog = BacklogMetrics(clients.subscriptions.backlog, dependencies.now)
        self.metrics.add("backlog", backlog.collect)
        self.metrics.add("ledgers", self._ofLedgers.collect)
        self.metrics.add("disk", lambda: runInThread(disk.collect))
        self.metrics.add("reactor", self._lag.collect)
        self.metrics.add("process", process.collect)
        self.metrics.add("certificates", self._collectCertificates)
        self.metrics.add("budgets", self._collectBudgets)

    def _collectCertificates(self) -> Iterable[Metric]:
        ends = [((name,), each.validUntil) for name, each in self._certificates.items()]
        name = "svcbroker_certificate_expiry_timestamp_seconds"
        return [gauge(name, "When the certificate of a port expires.", ["port"], ends)]

    def _collectBudgets(self) -> Iterable[Metric]:
        budgets, strangers = self._budgets, self._budgets.strangers
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

    @asDeferred
    async def start(self) -> None:
        """Begin to measure. The ledgers have started."""
        if self._config.metrics and self._ofLedgers is not None:
            self._lag.start()
            await self._ofLedgers.start()

    @asDeferred
    async def drain(self) -> None:
        """Answer the scrapes that have arrived, and measure no more."""
        try:
            for site in self.factories.values():
                await site.drain()
        finally:
            self._lag.stop()
            if self._ofLedgers is not None:
                self._ofLedgers.stop()
