"""
The metrics as a feature of the daemon: where they are served, and those of the process, the disk,
the ledgers, the access control and the budgets.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from attrs import fields, frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.web.server import Request

import twisted

from ..access import Access, Principal
from ..archive import STORE_NAME
from ..broker import Calls
from ..broker.features import Feature, RunningFeature, Services
from ..carriers.http import BrokerSite, Route
from ..carriers.http.feature import HttpOptions, settingsOf
from ..carriers.http.logins import Credentials
from ..carriers.http.routes import Routes, encodeError, explain, principalOf, respond
from ..errors import NotAuthorized
from ..histogram import Histogram
from ..interfaces import Action, Quotas
from ..ledgers.measures import LedgerMetrics
from ..net.alarms import Alarm, Condition, RecentCount
from ..net.budgets import Budgets
from ..net.deferreds import asDeferred
from ..net.findings import Level
from ..net.metrics import CONTENT_TYPE, Metric, counter, gauge, histogram, only
from ..net.settings import Endpoint, declareSetting
from ..operations import Incidents
from ..version import VersionRecord
from .directory import METADATA

_TURNS: Final = "it was late by more than {seconds} seconds {count} times in the last minute"
REACTOR_BLOCKED: Final = Condition(
    name="reactor-blocked",
    level=Level.WARNING,
    title="The broker answers late",
    meaning="Every client waits for what holds the broker's only thread.",
    remedy="The processor is used up, or a plugin holds the reactor. Give the broker a processor "
    "of its own, or have clients ask for less.",
    phrases=(_TURNS,),
)

MOST_LATE: Final = 12
"""Timers of the last minute, of 240, that may be later than L{LATE} seconds."""

LATE: Final = 0.25
"""A bound of L{LAG_BOUNDS}."""

LAG_PERIOD: Final = 0.25
"""The time between two measurements of the reactor's lag, in seconds."""

LAG_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""The ranges of the lag, in seconds."""

_DESCRIPTORS: Final = Path("/proc/self/fd")
_MAX_LISTED: Final = 60.0
"""The time for which a count of open files by listing them is used, in seconds."""


class ReactorLag:
    """
    Measures how late the reactor calls a timer: for so long something has held it.

    @ivar lags: the lags, in seconds.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self.lags = Histogram(LAG_BOUNDS)
        self._late = RecentCount(clock, 60.0)
        self._clock = clock
        self._due = 0.0
        self._call: IDelayedCall | None = None

    def start(self) -> None:
        """Measure every L{LAG_PERIOD} seconds."""
        self._due = self._clock.seconds() + LAG_PERIOD
        self._call = self._clock.callLater(LAG_PERIOD, self._measure)

    def stop(self) -> None:
        """Measure no more."""
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def _measure(self) -> None:
        self.lags.observe(self._clock.seconds() - self._due)
        self.start()

    def alarms(self) -> Iterator[Alarm]:
        """Whether it was late more often than once in a while."""
        late = self._late.grown(sum(self.lags.counts[LAG_BOUNDS.index(LATE) + 1 :]))
        if late > MOST_LATE:
            text = _TURNS.format(seconds=f"{LATE:g}", count=round(late))
            yield Alarm(condition=REACTOR_BLOCKED, text=text)

    def collect(self) -> Iterable[Metric]:
        """The families. See L{Source<svcbroker.net.metrics.Source>}."""
        return [
            histogram(
                "svcbroker_reactor_lag_seconds",
                "How late the reactor has called a timer: for so long something has held it.",
                values=[((), self.lags)],
            )
        ]


class ProcessMetrics:
    """
    The operating system's metrics of this process, by the names that all Prometheus clients use.
    """

    def __init__(self, version: VersionRecord, now: Callable[[], float]) -> None:
        """
        @param now: the wall clock: seconds since the epoch.
        """
        self._version = version
        self._now = now
        self._startedAt = now() - time.clock_gettime(time.CLOCK_MONOTONIC) + _startOfProcess()
        self._listed = 0
        self._listedAt = -_MAX_LISTED

    def collect(self) -> Iterator[Metric]:
        """The families. See L{Source<svcbroker.net.metrics.Source>}."""
        yield gauge(
            "svcbroker_build_info",
            "Which svcbroker this is; always 1.",
            ["version", "commit", "python", "twisted"],
            [
                (
                    (
                        self._version.version,
                        self._version.commitHash,
                        sys.version.partition(" ")[0],
                        twisted.__version__,
                    ),
                    1,
                )
            ],
        )
        usage = resource.getrusage(resource.RUSAGE_SELF)
        yield counter(
            "process_cpu_seconds",
            "The user and system CPU time of the process.",
            values=only(usage.ru_utime + usage.ru_stime),
        )
        yield gauge(
            "process_resident_memory_bytes",
            "The memory of the process that is not swapped out.",
            values=only(_residentBytes()),
        )
        yield gauge(
            "process_start_time_seconds",
            "When the process began, since the epoch.",
            values=only(self._startedAt),
        )
        yield gauge(
            "process_open_fds", "The open file descriptors.", values=only(self._openFiles())
        )
        yield gauge(
            "process_max_fds",
            "The most file descriptors that may be open.",
            values=only(resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
        )

    def _openFiles(self) -> int:
        # Linux tells the number since 6.2. Listing 10,000 takes 40 ms.
        size = _DESCRIPTORS.stat().st_size
        if size:
            return size
        now = self._now()
        if not 0 <= now - self._listedAt < _MAX_LISTED:
            self._listed, self._listedAt = len(os.listdir(_DESCRIPTORS)), now
        return self._listed


def _residentBytes() -> int:
    pages = Path("/proc/self/statm").read_bytes().split()[1]
    return int(pages) * resource.getpagesize()


def _startOfProcess() -> float:
    """The start of this process, in seconds after the boot of the machine."""
    _, _, rest = Path("/proc/self/stat").read_bytes().rpartition(b")")
    return float(rest.split()[19]) / os.sysconf("SC_CLK_TCK")


@frozen
class DiskMetrics:
    """
    The room on the disk, and the size of files. What it does blocks.

    @ivar directory: the data directory.
    @ivar files: the files, by the labels C{group} and C{file}.
    """

    directory: Path
    files: Mapping[tuple[str, str], Path]

    def collect(self) -> list[Metric]:
        """The families."""
        disk = os.statvfs(self.directory)
        return [
            gauge(
                "svcbroker_disk_free_bytes",
                "What the file system of the data directory has left for the broker.",
                values=only(disk.f_bavail * disk.f_frsize),
            ),
            gauge(
                "svcbroker_disk_size_bytes",
                "The size of the file system of the data directory.",
                values=only(disk.f_blocks * disk.f_frsize),
            ),
            gauge(
                "svcbroker_file_bytes",
                "The size of a file in the data directory.",
                ["group", "file"],
                list(self._sizes()),
            ),
        ]

    def _sizes(self) -> Iterator[tuple[tuple[str, str], int]]:
        for labels, path in self.files.items():
            try:
                yield labels, path.stat().st_size
            except FileNotFoundError:
                continue


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

    def alarms(self) -> Iterator[Alarm]:
        """See L{RunningFeature}."""
        return self._lag.alarms()

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
    kinds = budgets.ofBytes
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
    yield counter(
        "svcbroker_budget_refused",
        "What was refused because there was no room, and connections before their log-in.",
        ["budget"],
        [((name,), refused) for name, refused in budgets.refusals().items()],
    )
    yield gauge(
        "svcbroker_strangers",
        "Connections whose clients have not shaken hands or logged in.",
        values=only(len(budgets.strangers)),
    )


FEATURE: Final = Feature(
    name="metrics", settings=MetricsOptions, make=MetricsFeature, conditions=(REACTOR_BLOCKED,)
)
