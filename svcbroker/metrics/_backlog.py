"""
Metrics of what waits for durable subscriptions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from heapq import nsmallest
from typing import Final

from attrs import frozen
from prometheus_client.core import Metric

from ..broker.subscriptions import Backlog, WaitingEvents
from ._families import gauge

MAX_NAMED: Final = 20
"""
How many subscriptions are told by their names: those whose first event has waited longest. Each
name is a time series of its own in Prometheus.
"""

_TOTAL: Final = ("group", "kind")
_EACH: Final = ("group", "kind", "name")


@frozen
class BacklogMetrics:
    """
    What waits: for all durable subscriptions together, and for the worst ones by name.

    @ivar now: the wall clock: seconds since the epoch.
    """

    backlog: Backlog
    now: Callable[[], float]

    def collect(self) -> Iterator[Metric]:
        """The families. See L{Source<svcbroker.metrics.Source>}."""
        counts: Counter[tuple[str, str]] = Counter()
        behind: Counter[tuple[str, str]] = Counter()
        ages: dict[tuple[str, str], float] = {}
        now, waiting = self.now(), self.backlog.survey().waiting
        for each in waiting:
            key = (each.group, each.kind)
            counts[key] += each.count
            behind[key] += each.count > 0
            ages[key] = max(ages.get(key, 0.0), _age(each, now))
        yield gauge(
            "svcbroker_backlog_events",
            "Events that wait for durable subscriptions, webhooks and MQTT sessions.",
            _TOTAL,
            counts.items(),
        )
        yield gauge(
            "svcbroker_backlog_subscriptions",
            "Durable subscriptions for which events wait.",
            _TOTAL,
            behind.items(),
        )
        yield gauge(
            "svcbroker_backlog_oldest_seconds",
            "The age of the oldest event that waits for a durable subscription; 0 for none.",
            _TOTAL,
            ages.items(),
        )
        worst = nsmallest(
            MAX_NAMED, (each for each in waiting if each.count), key=lambda each: -_age(each, now)
        )
        yield gauge(
            "svcbroker_subscription_backlog_events",
            f"Events that wait, for the {MAX_NAMED} subscriptions that are furthest behind.",
            _EACH,
            [((each.group, each.kind, each.name), each.count) for each in worst],
        )
        yield gauge(
            "svcbroker_subscription_oldest_seconds",
            "The age of the oldest event that waits, for the same subscriptions.",
            _EACH,
            [((each.group, each.kind, each.name), _age(each, now)) for each in worst],
        )


def _age(waiting: WaitingEvents, now: float) -> float:
    """How long the first event has waited, in seconds."""
    return 0.0 if waiting.oldest is None else max(0.0, now - waiting.oldest / 1000)
