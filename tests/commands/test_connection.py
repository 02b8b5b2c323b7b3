"""
Tests for L{svcbroker.commands._connection}: what people are told while a call is tried again.
"""

from __future__ import annotations

import io
from logging import INFO, getLogger

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.client import Client, Unreachable
from svcbroker.commands._connection import RETRY_INTERVAL, RetryHandler

NOBODY = "http://127.0.0.1:9/svcbroker"


class RetryTests(SynchronousTestCase):
    def test_retriesAreToldNowAndThen(self) -> None:
        """Not at once: most calls succeed soon."""
        stream, times = io.StringIO(), iter((0.0, 0.1, RETRY_INTERVAL, RETRY_INTERVAL + 0.1, 9.0))
        now = next(times)
        handler = RetryHandler(stream, lambda: now)
        logger = getLogger("svcbroker.client")
        level = logger.level
        logger.addHandler(handler)
        self.addCleanup(logger.removeHandler, handler)
        self.addCleanup(logger.setLevel, level)
        logger.setLevel(INFO)
        told = []
        for time in times:
            now = time
            with Client(NOBODY, timeout=0.1) as client, self.assertRaises(Unreachable):
                client.exist("a")
            told.append(len(stream.getvalue().splitlines()))
        self.assertEqual(told, [0, 1, 1, 2])
        line = stream.getvalue().splitlines()[0]
        self.assertRegex(line, f"^{NOBODY}: the broker cannot be reached: .*; trying {NOBODY} in 0")
