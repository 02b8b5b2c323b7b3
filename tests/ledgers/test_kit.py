"""
Tests of the contract kit: ledgers that break the contract do not pass it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import TestResult

from twisted.trial.unittest import SynchronousTestCase, TestCase

from svcbroker.errors import LedgerUnavailable
from svcbroker.interfaces import LedgerContext, Submission
from svcbroker.ledgers import pbft
from svcbroker.model import Request
from svcbroker.testing import ClockFixture, LedgerFixture, makeLedgerTests

_EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "journal" / "journal_ledger.py"
_BOUND = 65536


def _journal() -> Any:
    spec = importlib.util.spec_from_file_location("kit_journal", _EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


journal: Any = _journal()


class HastyLedger(journal.JournalLedger):
    """Answers before it writes, and swallows the errors of writing."""

    def submitMany(self, requests: Sequence[Request]) -> Submission:
        if not self._isRunning:
            return Submission.refused(len(requests), LedgerUnavailable("stopped"))
        now = self._context.now()
        submission: Submission = self._perform(now, requests)
        lines = b"".join([journal.encodeLine(now, request) for request in requests])
        self._context.runInThread(self._write, lines).addErrback(lambda failure: None)
        return submission


class ForgetfulLedger(HastyLedger):
    """Writes everything only when it stops."""

    def start(self) -> Any:
        self._lines: list[bytes] = []
        return super().start()

    def _write(self, line: bytes) -> None:
        if self._isRunning:
            self._lines.append(line)
        else:
            super()._write(line)

    def stop(self) -> Any:
        self._isRunning = False
        for line in self._lines:
            super()._write(line)
        return super().stop()


class KitTests(SynchronousTestCase):
    """
    Tests for the kit's findings on ledgers that promise more than they keep.
    """

    def failures(self, make: Any, bound: int | None = None) -> set[str]:
        """The names of the tests of disks that a ledger does not pass."""

        def makeFixture(test: TestCase) -> LedgerFixture:
            return ClockFixture(make, isDurable=True, bound=bound)

        tests = makeLedgerTests(makeFixture)
        found = set()
        for name in (
            "test_receiptsComeAfterTheWrite",
            "test_failingDiskExecutesNothing",
            "test_crashLosesNoReceipt",
            "test_tooMuchIsOverloadedAtOnce",
        ):
            result = TestResult()
            tests(name).run(result)
            if not result.wasSuccessful():
                found.add(name)
        return found

    def journal(self, kind: type[Any]) -> Any:
        return lambda context: kind(context, "journal.txt")

    def test_soundLedgersPass(self) -> None:
        self.assertEqual(self.failures(self.journal(journal.JournalLedger)), set())
        small = pbft.configure({"mempool": str(_BOUND)})
        self.assertEqual(self.failures(small, _BOUND), set())

    def test_answerBeforeTheWriteFails(self) -> None:
        found = self.failures(self.journal(HastyLedger))
        self.assertEqual(
            found, {"test_receiptsComeAfterTheWrite", "test_failingDiskExecutesNothing"}
        )

    def test_writingAtTheStopFails(self) -> None:
        found = self.failures(self.journal(ForgetfulLedger))
        self.assertIn("test_crashLosesNoReceipt", found)
        self.assertIn("test_receiptsComeAfterTheWrite", found)

    def test_unboundedLedgerFails(self) -> None:
        def make(context: LedgerContext) -> Any:
            return journal.JournalLedger(context, "journal.txt")

        self.assertEqual(self.failures(make, _BOUND), {"test_tooMuchIsOverloadedAtOnce"})
