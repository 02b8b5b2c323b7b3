"""
Tests of the metrics of what waits for durable subscriptions.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.broker.subscriptions._backlog import MAX_NAMED, Survey, WaitingEvents
from svcbroker.broker.subscriptions.feature import BacklogMetrics

from .support import Samples, samplesOf

NOW = 10_000.0


class FakeBacklog:
    """A survey that a test has made."""

    def __init__(self, *waiting: WaitingEvents) -> None:
        self._survey = Survey()
        for each in waiting:
            self._survey.add(each)
        self._survey.rank()

    def survey(self) -> Survey:
        return self._survey


def waiting(name: str, count: int, age: float | None = None, kind: str = "stomp") -> WaitingEvents:
    oldest = None if age is None else int((NOW - age) * 1000)
    return WaitingEvents(group="1", kind=kind, name=name, count=count, oldest=oldest)


class BacklogMetricsTests(SynchronousTestCase):
    def scrape(self, *waiting: WaitingEvents) -> Samples:
        backlog: Any = FakeBacklog(*waiting)
        return samplesOf(BacklogMetrics(backlog, lambda: NOW).collect())

    def test_totalsAreByGroupAndKind(self) -> None:
        samples = self.scrape(
            waiting("a", 3, 50), waiting("b", 4, 20), waiting("c", 0), waiting("m", 0, kind="mqtt")
        )
        for kind, events, subscriptions, oldest in (("stomp", 7, 2, 50), ("mqtt", 0, 0, 0)):
            self.assertEqual(samples["svcbroker_backlog_events", "1", kind], events)
            self.assertEqual(samples["svcbroker_backlog_subscriptions", "1", kind], subscriptions)
            self.assertEqual(samples["svcbroker_backlog_oldest_seconds", "1", kind], oldest)

    def test_subscriptionsThatAreFurthestBehindAreNamed(self) -> None:
        samples = self.scrape(*(waiting(str(n), n, n) for n in range(3000)))
        named = {key[3] for key in samples if key[0] == "svcbroker_subscription_oldest_seconds"}
        self.assertEqual(named, {str(n) for n in range(3000 - MAX_NAMED, 3000)})
        self.assertEqual(
            samples["svcbroker_subscription_oldest_seconds", "1", "stomp", "2999"], 2999
        )
        self.assertEqual(
            samples["svcbroker_subscription_backlog_events", "1", "stomp", "2999"], 2999
        )

    def test_subscriptionWithoutBacklogIsNotNamed(self) -> None:
        samples = self.scrape(waiting("a", 0))
        self.assertNotIn(("svcbroker_subscription_oldest_seconds", "1", "stomp", "a"), samples)
