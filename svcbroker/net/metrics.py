"""
Metrics for Prometheus: families of counts, collected when they are scraped; and the spans of
publishing and delivery, for a tracer where there is one.

What is measured is counted where it happens, in plain numbers; a source makes metric families of
these numbers when it is asked, which is once for each scrape.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar

from twisted.internet.defer import CancelledError, Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from ..histogram import Histogram
from ..model import Event, PublishEvent
from .budgets import WorkBudget
from .deferreds import asDeferred

if TYPE_CHECKING:
    from prometheus_client import core

# What needs prometheus_client imports it, at the first scrape: it is 30 modules.
Metric: TypeAlias = "core.Metric"
"""A metric family of prometheus_client."""

CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"
"""The type of what L{Metrics.render} gives."""

TIMEOUT: Final = 2.0
"""The time that a source may take, in seconds. Prometheus gives up a scrape after 10 by default."""

Source: TypeAlias = Callable[[], Iterable[Metric] | Deferred[Iterable[Metric]]]
"""
Gives metric families with the values of now. Called at each scrape in the reactor thread, so it
answers from memory in some milliseconds, or later by a Deferred, within L{TIMEOUT}.
"""


Labelled: TypeAlias = Iterable[tuple[Sequence[str], float]]
"""The values of labels, in their order, each with the value of the metric."""


def gauge(name: str, help: str, labels: Sequence[str] = (), values: Labelled = ()) -> Metric:
    """Make a metric that goes up and down."""
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(name, help, labels=labels)
    for labelled, value in values:
        family.add_metric(labelled, value)
    return family


def counter(name: str, help: str, labels: Sequence[str] = (), values: Labelled = ()) -> Metric:
    """Make a metric that only grows while the broker runs. The name is exported with C{_total}."""
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(name, help, labels=labels)
    for labelled, value in values:
        family.add_metric(labelled, value)
    return family


def only(value: float) -> Labelled:
    """The value of a metric without labels."""
    return [((), value)]


def histogram(
    name: str,
    help: str,
    labels: Sequence[str] = (),
    values: Iterable[tuple[Sequence[str], Histogram]] = (),
) -> Metric:
    """Histograms, with cumulative counts as Prometheus wants them."""
    from prometheus_client.core import HistogramMetricFamily
    from prometheus_client.utils import floatToGoString

    family = HistogramMetricFamily(name, help, labels=labels)
    for labelled, each in values:
        bounds = [*map(floatToGoString, each.bounds), "+Inf"]
        buckets = list(zip(bounds, accumulate(each.counts), strict=True))
        family.add_metric(labelled, buckets, each.sum)
    return family


class _Family:
    """A metric that C{generate_latest} is given in the place of a registry."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterable[Metric]:
        """See C{prometheus_client.registry.Collector}."""
        return (self._family,)


class Metrics:
    """
    All metrics, by their sources. Nothing is collected between scrapes. Those who ask while a
    scrape is under way have the next one together, so that it does not matter how many ask.
    """

    _log = Logger()

    def __init__(self, clock: IReactorTime, work: WorkBudget) -> None:
        """
        @param work: the time of turns, which each family takes some of.
        """
        self._clock = clock
        self._lane = work.lane()
        self._sources: dict[str, Source] = {}
        self._failures: Counter[str] = Counter()
        # Who waits for the next scrape, and for the one that is under way.
        self._asked: dict[Deferred[bytes], None] = {}
        self._awaited: dict[Deferred[bytes], None] = {}
        self._scraping: Deferred[None] | None = None

    def add(self, name: str, source: Source) -> None:
        """
        Have a source asked at each scrape. Families of one name from several sources are one:
        their labels tell them apart.

        @param name: its name, in the log and in C{svcbroker_scrape_failures_total}.
        """
        self._sources[name] = source
        self._failures[name] = 0

    def render(self) -> Deferred[bytes]:
        """
        Ask all sources.

        @return: fires with the metrics in the text format of Prometheus. A source that fails, or
            does not answer in time, is left out and counted.
        """
        asked: Deferred[bytes] = Deferred(self._leave)
        self._asked[asked] = None
        if self._scraping is None:
            scraping = self._scraping = self._scrape()
            if scraping.called:
                self._scraping = None
            scraping.addErrback(lambda failure: failure.trap(CancelledError))
        return asked

    def _leave(self, asked: Deferred[bytes]) -> None:
        """A client has left. Nothing is collected where it was the last."""
        self._asked.pop(asked, None)
        self._awaited.pop(asked, None)
        if self._scraping is not None and not self._asked and not self._awaited:
            self._scraping.cancel()

    @asDeferred
    async def _scrape(self) -> None:
        """Scrape as long as somebody has asked."""
        try:
            while self._asked:
                self._awaited, self._asked = self._asked, {}
                try:
                    text: bytes | Failure = await self._collect()
                except CancelledError:
                    raise
                except Exception:
                    text = Failure()
                while self._awaited:
                    await self._unit()
                    if self._awaited:
                        self._awaited.popitem()[0].callback(text)
        finally:
            self._lane.end()
            self._scraping = None

    async def _collect(self) -> bytes:
        from prometheus_client import generate_latest

        found: dict[str, Metric] = {}
        for name, source in self._sources.items():
            await self._unit()
            asked: Deferred[Any] = maybeDeferred(source).addTimeout(TIMEOUT, self._clock)
            try:
                for family in await asked:
                    known = found.get(family.name)
                    found[family.name] = family if known is None else _joined(known, family)
                    await self._unit()
            except CancelledError:
                raise  # The clients have left: no fault of the source.
            except Exception:
                if not self._failures[name]:
                    self._log.failure("The metrics of {source} were not collected", source=name)
                self._failures[name] += 1
        parts: list[bytes] = []
        for family in (*found.values(), *self._scrapeFailures()):
            await self._unit()
            collector: Any = _Family(family)
            parts.append(generate_latest(collector))
        return b"".join(parts)

    async def _unit(self) -> None:
        """Wait until there is time for another piece of work."""
        if not self._lane.begin(isWrite=False):
            await self._lane.turn(isWrite=False)

    def _scrapeFailures(self) -> Iterator[Metric]:
        yield counter(
            "svcbroker_scrape_failures",
            "How often a source of metrics failed or did not answer in time.",
            ["source"],
            [((name,), count) for name, count in self._failures.items()],
        )


def _joined(one: Metric, other: Metric) -> Metric:
    """A family with the samples of two of one name."""
    from prometheus_client import core

    joined = core.Metric(one.name, one.documentation, one.type)
    joined.samples = [*one.samples, *other.samples]
    return joined


T = TypeVar("T")


class Span(Protocol):
    """
    Work that is being done.

    @ivar headers: the trace context of those that go on with it: C{traceparent}, C{tracestate}.
    """

    @property
    def headers(self) -> Mapping[str, str]: ...

    def end(self, result: T) -> T:
        """
        The work is done. Called once.

        @param result: what has come of it, or a C{Failure}; it is returned.
        """


class Tracer(Protocol):
    """
    Makes spans of work on events whose publisher has sampled their trace.
    """

    def publishing(self, carrier: str, events: Sequence[PublishEvent]) -> Span | None:
        """
        Events are about to be submitted.

        @param carrier: the name of the carrier.
        @return: the span, which ends with the answers; C{None} where no trace is sampled.
        """

    def delivering(self, target: str, events: Sequence[Event]) -> Span | None:
        """
        Events are about to be sent to the receiver of a webhook.

        @param target: its host and port.
        @return: the span, which ends with the receiver's answer; C{None} where no trace is sampled.
        """
