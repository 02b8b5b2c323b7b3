"""
Tests for L{svcbroker.histogram}.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.histogram import Histogram, quantile


class HistogramTests(SynchronousTestCase):
    def test_boundsBelongToTheirRange(self) -> None:
        histogram = Histogram([1, 2, 5])
        for value in (0.5, 1, 1.5, 5, 6):
            histogram.observe(value)
        self.assertEqual(histogram.counts, [2, 1, 1, 1])
        self.assertEqual((histogram.count, histogram.sum), (5, 14))

    def test_valueCountsSeveralTimes(self) -> None:
        histogram = Histogram([1])
        histogram.observe(2, 3)
        histogram.observe(2, 0)
        self.assertEqual((histogram.counts, histogram.sum), ([0, 3], 6))

    def test_negativeValueCountsAsZero(self) -> None:
        """The sum never falls, or Prometheus would take it for a restart."""
        histogram = Histogram([0, 1])
        histogram.observe(-3)
        self.assertEqual((histogram.counts, histogram.sum), ([1, 0, 0], 0))

    def test_momentsAreObservedAsTheirAges(self) -> None:
        """Rising moments are falling ages: the same as observing each age."""
        one, other = Histogram([1, 2, 5]), Histogram([1, 2, 5])
        begun = [(90.0, 1), (95.0, 2), (96.5, 3), (98.5, 1), (99.0, 4), (100.0, 1)]
        one.observeSince(100, begun)
        for since, count in begun:
            other.observe(100 - since, count)
        self.assertEqual((one.counts, one.sum), (other.counts, other.sum))
        one.observeSince(100, [])
        self.assertEqual((one.counts, one.sum), (other.counts, other.sum))
        one.observeSince(99, [(100.0, 1)])
        self.assertEqual((one.counts[0], one.sum), (other.counts[0] + 1, other.sum))

    def test_quantilesLieBetweenBounds(self) -> None:
        infinite = float("inf")
        now = [(1.0, 10.0), (2.0, 30.0), (infinite, 40.0)]
        for before, share, expected in (
            ([], 0.5, 1.5),
            ([], 0.25, 1.0),
            ([], 0.99, 2.0),
            ([(1.0, 10.0), (2.0, 10.0), (infinite, 10.0)], 0.5, 1.75),
            (now, 0.5, None),
        ):
            self.assertEqual(quantile(before, now, share), expected)
        self.assertIsNone(quantile([], [], 0.5))
