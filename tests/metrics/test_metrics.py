"""
Tests of how metrics are collected.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from prometheus_client.core import Metric
from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.histogram import Histogram
from svcbroker.net.budgets import READS_A_TURN, WorkBudget
from svcbroker.net.metrics import TIMEOUT, Metrics, counter, gauge, histogram, only

from ..net.countingclock import CountingClock
from .support import parsed


class MetricsTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = CountingClock()
        self.metrics = Metrics(self.clock, WorkBudget(self.clock))

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

    def test_longScrapeTakesSeveralTurns(self) -> None:
        def work() -> Iterable[Metric]:
            for number in range(3):
                self.clock.rightNow += READS_A_TURN
                yield gauge(f"level{number}", "A level.", values=only(1))

        self.metrics.add("work", work)
        scrape = self.metrics.render()
        for _ in range(3):
            self.assertNoResult(scrape)
            self.clock.turn()
        self.assertEqual(len(parsed(self.successResultOf(scrape))), 4)

    def test_scrapesOfOneMomentAreCollectedOnce(self) -> None:
        """Those that come while one is under way share the next one, with its values."""
        asked: list[Deferred[Iterable[Metric]]] = []

        def ask() -> Deferred[Iterable[Metric]]:
            asked.append(Deferred())
            return asked[-1]

        self.metrics.add("slow", ask)
        scrapes = [self.metrics.render() for _ in range(50)]
        for number in (0, 1):
            self.assertEqual(len(asked), number + 1)
            asked[number].callback([gauge("level", "A level.", values=only(number))])
        texts = [parsed(self.successResultOf(each)) for each in scrapes]
        self.assertEqual([each[("level",)] for each in texts], [0] + [1] * 49)

    def test_aClientThatLeavesEndsNoScrapeOfOthers(self) -> None:
        asked: Deferred[Iterable[Metric]] = Deferred()
        self.metrics.add("slow", lambda: asked)
        scrapes = [self.metrics.render(), self.metrics.render(), self.metrics.render()]
        for each in scrapes[:2]:
            each.cancel()
            self.failureResultOf(each, CancelledError)
        asked.callback([gauge("level", "A level.", values=only(1))])
        self.assertEqual(parsed(self.successResultOf(scrapes[2]))[("level",)], 1)

    def test_answersToManyTakeSeveralTurns(self) -> None:
        self.metrics.add("one", lambda: [gauge("level", "A level.", values=only(1))])
        blocked: Deferred[Iterable[Metric]] = Deferred()
        self.metrics.add("slow", lambda: blocked if not blocked.called else [])

        def write(_: bytes) -> None:
            self.clock.rightNow += READS_A_TURN
            self.written += 1

        self.written = 0
        for _ in range(4):
            self.metrics.render().addCallback(write)
        blocked.callback([])
        counts = [self.written]
        while self.clock.getDelayedCalls():
            self.clock.turn()
            counts.append(self.written)
        self.assertEqual(self.written, 4)
        self.assertTrue(all(b - a <= 1 for a, b in pairwise(counts)), counts)
