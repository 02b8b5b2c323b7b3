"""
Tests for L{svcbroker.commands.clientcommand}: lines about calls that are tried again, and about
calls whose outcome is not known.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from logging import INFO, getLogger
from pathlib import Path
from typing import NoReturn

from twisted.trial.unittest import SynchronousTestCase

import svcbroker.client
from svcbroker.client import AnswerInvalid, BrokerError, Client, Publication, Unreachable
from svcbroker.commands import clientcommand, main
from svcbroker.commands.clientcommand import (
    DEFAULT_URL,
    NAMES,
    RETRY_INTERVAL,
    RetryHandler,
    brokerOf,
    noBroker,
)
from svcbroker.commands.terminal import CommandError
from svcbroker.daemon.operating import OPERATOR_NAME
from svcbroker.errors import NoSuchCall, TopicNotFound, TransactionTimeout

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


class BrokerTests(SynchronousTestCase):
    """
    The broker that is asked, and what is said where it is none.
    """

    def setUp(self) -> None:
        self.root = Path(self.mktemp()).absolute()
        (self.root / "svcbroker-data").mkdir(parents=True)
        self.patch(clientcommand, "DATA_DIR", self.root / "svcbroker-data")

    def urls(self, environment: Mapping[str, str] | None = None, **given: object) -> list[str]:
        """The URLs that options and the environment mean."""
        options = {**dict.fromkeys(NAMES), "url": (), **given}
        return brokerOf(options, {"XDG_CONFIG_HOME": str(self.root), **(environment or {})})[0]

    def test_brokerIsFoundByOneOfFourWays(self) -> None:
        directory = self.root / "svcbroker-data"
        self.assertEqual(self.urls(), [DEFAULT_URL])
        (directory / OPERATOR_NAME).write_text('{"url": "http://127.0.0.1:1/b", "token": "t"}')
        (self.root / "toml").write_text(f'data-dir = "{directory}"')
        self.assertEqual(self.urls(), ["http://127.0.0.1:1/b"])
        self.assertEqual(self.urls({"SVCBROKER_URL": "http://host/b"}), ["http://host/b"])
        for given in ({"data_dir": directory}, {"config": self.root / "toml"}):
            found = self.urls({"SVCBROKER_URL": "http://host/b"}, **given)
            self.assertEqual(found, ["http://127.0.0.1:1/b"])
            error = self.assertRaises(CommandError, self.urls, url=("http://host/b",), **given)
            self.assertIn("not both", str(error))

    def test_urlWithoutContextPathIsCompleted(self) -> None:
        self.assertEqual(
            noBroker("http://host:1/"),
            "there is no svcbroker at http://host:1/; is it http://host:1/svcbroker?",
        )
        self.assertIn("; is it http://host/svcbroker?", noBroker("http://host/b"))
        usual = "http://host/svcbroker/"
        self.assertEqual(noBroker(usual), f"there is no svcbroker at {usual}")

    def failure(self, error: BrokerError, *argv: str) -> str:
        """Why a command fails whose calls fail so."""

        def call(*given: object, **named: object) -> NoReturn:
            raise error

        errors = io.StringIO()
        double = ClientDouble(error)
        for name in ("open", "close", "state", "topics"):
            setattr(double, name, call)
        self.patch(svcbroker.client, "Client", lambda *urls, **options: double)
        self.patch(sys, "stdout", io.StringIO())
        self.patch(sys, "stderr", errors)
        self.assertNotEqual(main(argv), 0)
        return errors.getvalue()

    def test_errorsSayWhatToType(self) -> None:
        url = "--url=http://host:1"
        for error, argv, words in (
            (NoSuchCall(), ("topic", "list", url), "is it http://host:1/svcbroker?"),
            (AnswerInvalid(), ("topic", "list", url), "is it http://host:1/svcbroker?"),
            (TopicNotFound(), ("topic", "info", "a/b"), "open it: svcbroker topic open a/b\n"),
            (
                TopicNotFound(),
                ("topic", "info", "a b"),
                "'a b'; open it: svcbroker topic open 'a b'",
            ),
            (TopicNotFound(), ("topic", "open", "a", "b"), "not open: a, b\n"),
            (Unreachable(isSent=False), ("topic", "list"), "svcbroker run starts a daemon"),
        ):
            self.assertIn(words, self.failure(error, *argv))


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
