"""
Tests for the delays of webhooks.
"""

from __future__ import annotations

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.webhook.posting import WebhookSettings


class DelayTests(SynchronousTestCase):
    """
    How long to wait after a failure.
    """

    settings = WebhookSettings(firstDelay=1.0, maxDelay=60.0)

    @given(st.integers(1, 10**9), st.floats(0, 1, exclude_max=True), st.integers(0, 10**6))
    def test_delayIsBoundedByBothSides(self, failures: int, chance: float, retryAfter: int) -> None:
        """Never more than the operator's most, never less than the receiver asks within it."""
        delay = self.settings.delay(failures, retryAfter, lambda: chance)
        self.assertLessEqual(0.5, delay)
        self.assertLessEqual(delay, 60.0)
        self.assertGreaterEqual(delay, min(retryAfter, 60.0))

    def test_delayDoublesWithJitter(self) -> None:
        """It spreads over its upper half."""
        lowest = [self.settings.delay(n, 0, lambda: 0.0) for n in range(1, 9)]
        self.assertEqual(lowest, [0.5, 1, 2, 4, 8, 16, 30, 30])
        highest = [self.settings.delay(n, 0, lambda: 1.0) for n in range(1, 9)]
        self.assertEqual(highest, [1, 2, 4, 8, 16, 32, 60, 60])

    def test_oneHostHasAQuarter(self) -> None:
        """And always one request."""
        for total, part in [(64, 16), (4, 1), (1, 1)]:
            self.assertEqual(evolve(self.settings, connections=total).connectionsPerHost, part)
