"""
Tests for L{svcbroker.commands.clientcommand}: lines about calls that are tried again, and about
calls whose outcome is not known.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager
from logging import INFO, getLogger
from typing import NoReturn

from twisted.trial.unittest import SynchronousTestCase

import svcbroker.client
from svcbroker.client import BrokerError, Client, Publication, Unreachable
from svcbroker.commands import main
from svcbroker.commands.clientcommand import RETRY_INTERVAL, RetryHandler
from svcbroker.errors import TopicNotFound, TransactionTimeout

NOBODY = "http://127.0.0.1:9/svcbroker"


class ClientDouble(AbstractContextManager[None]):
    """A client whose publishes fail."""

    def __init__(self, error: BrokerError) -> None:
        self.error = error

    def __exit__(self, *about: object) -> None:
        pass

    def publish(self, topic: str, content: bytes, **given: object) -> NoReturn:
        """See the client's."""
        raise self.error

    def publishMany(self, publications: Iterable[Publication]) -> list[BrokerError]:
        """See the client's."""
        return [self.error for _ in publications]


class UnknownOutcomeTests(SynchronousTestCase):
    """
    What C{svcbroker pub} says of a publish of which the outcome is not known.
    """

    def publish(self, error: BrokerError, *words: str) -> tuple[int, str]:
        """The exit code, and why it failed."""
        errors = io.StringIO()
        double = ClientDouble(error)
        self.patch(svcbroker.client, "Client", lambda *urls, **options: double)
        self.patch(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\nb\n")))
        self.patch(sys, "stdout", io.StringIO())
        self.patch(sys, "stderr", errors)
        return main(["pub", "topic", *words]), errors.getvalue()

    def test_unknownOutcomeIsTold(self) -> None:
        for error in (Unreachable(isSent=True), TransactionTimeout()):
            code, told = self.publish(error, "x")
            self.assertEqual(code, 1)
            self.assertIn("whether the event was published is not known", told)
            code, told = self.publish(error, "--lines")
            self.assertEqual(code, 1)
            self.assertIn("2 lines not known to be published, the first is line 1", told)

    def test_refusalIsNoUnknownOutcome(self) -> None:
        for error, code in ((Unreachable(isSent=False), 2), (TopicNotFound(), 1)):
            found, told = self.publish(error, "x")
            self.assertEqual(found, code)
            self.assertNotIn("not known", told)
            self.assertIn("2 lines not published", self.publish(error, "--lines")[1])


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
            logger.info("tried again")
            told.append(len(stream.getvalue().splitlines()))
        self.assertEqual(told, [0, 1, 1, 2])
        self.assertEqual(stream.getvalue().splitlines()[0], "tried again")

    def test_retryIsLoggedWithItsReason(self) -> None:
        with (
            self.assertLogs("svcbroker.client", INFO) as found,
            Client(NOBODY, timeout=2.0) as client,
            self.assertRaises(Unreachable),
        ):
            client.exist("a")
        self.assertRegex(
            found.records[0].getMessage(),
            f"^{NOBODY}: the broker cannot be reached: .*; trying {NOBODY} in 0",
        )
