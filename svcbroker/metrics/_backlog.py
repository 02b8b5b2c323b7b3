"""
Metrics of what waits for durable subscriptions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from attrs import frozen
from prometheus_client.core import Metric

from ..broker.subscriptions import MAX_NAMED, Backlog, Total, WaitingEvents
from ._families import gauge

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
        now, survey = self.now(), self.backlog.survey()
        totals = survey.totals.items()
        yield gauge(
            "svcbroker_backlog_events",
            "Events that wait for durable subscriptions, webhooks and MQTT sessions.",
            _TOTAL,
            [(labels, total.count) for labels, total in totals],
        )
        yield gauge(
            "svcbroker_backlog_subscriptions",
            "Durable subscriptions for which events wait.",
            _TOTAL,
            [(labels, total.behind) for labels, total in totals],
        )
        yield gauge(
            "svcbroker_backlog_oldest_seconds",
            "The age of the oldest event that waits for a durable subscription; 0 for none.",
            _TOTAL,
            [(labels, _age(total, now)) for labels, total in totals],
        )
        worst = [((each.group, each.kind, each.name), each) for each in survey.worst]
        yield gauge(
            "svcbroker_subscription_backlog_events",
            f"Events that wait, for the {MAX_NAMED} subscriptions that are furthest behind.",
            _EACH,
            [(labels, each.count) for labels, each in worst],
        )
        yield gauge(
            "svcbroker_subscription_oldest_seconds",
            "The age of the oldest event that waits, for the same subscriptions.",
            _EACH,
            [(labels, _age(each, now)) for labels, each in worst],
        )


def _age(waiting: WaitingEvents | Total, now: float) -> float:
    """How long the first event has waited, in seconds."""
    return 0.0 if waiting.oldest is None else max(0.0, now - waiting.oldest / 1000)
