"""
Tests of how metrics are collected.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import Metric
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.histogram import Histogram
from svcbroker.net.metrics import SLICE, TIMEOUT, Metrics, counter, gauge, histogram, only

from .support import parsed


class MetricsTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.metrics = Metrics(self.clock)

    def test_valuesAreThoseOfEachScrape(self) -> None:
        values = iter([1, 2])
        self.metrics.add("one", lambda: [gauge("level", "A level.", values=only(next(values)))])
        for value in (1, 2):
            text = self.successResultOf(self.metrics.render())
            self.assertEqual(parsed(text)[("level",)], value)

    def test_textHasHelpTypeAndLabels(self) -> None:
        hits = counter("hits", "Hits.", ["where"], [(("a",), 1), (('"\\\n',), 2)])
        self.metrics.add("one", lambda: [hits])
        text = self.successResultOf(self.metrics.render()).decode()
        self.assertTrue(
            text.startswith(
                "# HELP hits_total Hits.\n# TYPE hits_total counter\n"
                'hits_total{where="a"} 1.0\nhits_total{where="\\"\\\\\\n"} 2.0\n'
            )
        )

    def test_histogramIsCumulative(self) -> None:
        sizes = Histogram([1, 2])
        for value in (1, 2, 2, 3):
            sizes.observe(value)
        self.metrics.add("one", lambda: [histogram("sizes", "Sizes.", values=[((), sizes)])])
        samples = parsed(self.successResultOf(self.metrics.render()))
        buckets = [samples["sizes_bucket", bound] for bound in ("1.0", "2.0", "+Inf")]
        self.assertEqual(buckets, [1, 3, 4])
        self.assertEqual((samples[("sizes_count",)], samples[("sizes_sum",)]), (4, 8))

    def test_failedSourceIsLeftOutAndCounted(self) -> None:
        def fail() -> Iterable[Metric]:
            raise ValueError("no")

        self.metrics.add("bad", fail)
        self.metrics.add("good", lambda: [gauge("level", "A level.", values=only(1))])
        for count in (1, 2):
            samples = parsed(self.successResultOf(self.metrics.render()))
            self.assertEqual(samples["svcbroker_scrape_failures_total", "bad"], count)
            self.assertEqual(samples["svcbroker_scrape_failures_total", "good"], 0)
            self.assertEqual(samples[("level",)], 1)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def test_slowSourceIsGivenUp(self) -> None:
        asked: Deferred[Iterable[Metric]] = Deferred()
        self.metrics.add("slow", lambda: asked)
        scrape = self.metrics.render()
        self.assertNoResult(scrape)
        self.clock.advance(TIMEOUT)
        samples = parsed(self.successResultOf(scrape))
        self.assertEqual(samples["svcbroker_scrape_failures_total", "slow"], 1)
        self.flushLoggedErrors()

    def test_cancelledScrapeIsNoFailure(self) -> None:
        """A client that leaves cancels its scrape."""
        asked: list[Deferred[Iterable[Metric]]] = []

        def ask() -> Deferred[Iterable[Metric]]:
            asked.append(Deferred())
            return asked[-1]

        self.metrics.add("slow", ask)
        self.metrics.add("next", ask)
        scrape = self.metrics.render()
        scrape.cancel()
        self.failureResultOf(scrape, CancelledError)
        self.assertEqual(len(asked), 1)
        scrape = self.metrics.render()
        for each in (1, 2):
            asked[each].callback([])
        samples = parsed(self.successResultOf(scrape))
        self.assertEqual(samples["svcbroker_scrape_failures_total", "slow"], 0)

    def test_longScrapeYieldsToReactor(self) -> None:
        def work() -> Iterable[Metric]:
            for number in range(3):
                self.clock.rightNow += 2 * SLICE
                yield gauge(f"level{number}", "A level.", values=only(1))

        self.metrics.add("work", work)
        scrape = self.metrics.render()
        self.assertNoResult(scrape)
        self.clock.advance(0)
        self.assertEqual(len(parsed(self.successResultOf(scrape))), 4)
