"""
The metrics of a daemon, collected when they are scraped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias

from prometheus_client import generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from twisted.internet.defer import CancelledError, Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from ..net.deferreds import asDeferred
from ._families import counter

CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"
"""The type of what L{Metrics.render} gives."""

TIMEOUT: Final = 2.0
"""How long a source may take, in seconds. Prometheus gives up a scrape after 10 by default."""

SLICE: Final = 0.01
"""For how long metrics are collected until the reactor gets its turn, in seconds."""

Source: TypeAlias = Callable[[], Iterable[Metric] | Deferred[Iterable[Metric]]]
"""
Gives metric families with the values of now. Called at each scrape in the reactor thread, so it
answers from memory in some milliseconds, or later by a Deferred, within L{TIMEOUT}.
"""


class _Families(Collector):
    """What C{generate_latest} is given in the place of a registry."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """See C{Collector}."""
        return self._families


class Metrics:
    """
    All metrics, by their sources. Nothing is collected between scrapes.
    """

    _log = Logger()

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._sources: dict[str, Source] = {}
        self._failures: Counter[str] = Counter()

    def add(self, name: str, source: Source) -> None:
        """
        Have a source asked at each scrape. What it exports has names that no other source uses.

        @param name: its name, in the log and in C{svcbroker_scrape_failures_total}.
        """
        self._sources[name] = source
        self._failures[name] = 0

    @asDeferred
    async def render(self) -> bytes:
        """
        Ask all sources.

        @return: fires with the metrics in the text format of Prometheus. A source that fails, or
            does not answer in time, is left out and counted.
        """
        parts: list[bytes] = []
        begun = self._clock.seconds()
        for name, source in self._sources.items():
            asked: Deferred[Any] = maybeDeferred(source).addTimeout(TIMEOUT, self._clock)
            try:
                for family in await asked:
                    parts.append(generate_latest(_Families((family,))))
                    if self._clock.seconds() - begun > SLICE:
                        await deferLater(self._clock, 0)
                        begun = self._clock.seconds()
            except CancelledError:
                raise  # The client has left: no fault of the source.
            except Exception:
                if not self._failures[name]:
                    self._log.failure("The metrics of {source} were not collected", source=name)
                self._failures[name] += 1
        parts.append(generate_latest(_Families(self._scrapeFailures())))
        return b"".join(parts)

    def _scrapeFailures(self) -> Iterator[Metric]:
        yield counter(
            "svcbroker_scrape_failures",
            "How often a source of metrics failed or did not answer in time.",
            ["source"],
            [((name,), count) for name, count in self._failures.items()],
        )
