"""
The contract of ledgers, read from a copy.
"""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from svcbroker.testing import ClockFixture, LedgerFixture, makeLedgerTests, makeProofTests

from .rig import makeCopied


def copyOnClock(test: TestCase) -> LedgerFixture:
    fixture = ClockFixture(makeCopied, isDurable=True)
    # A failing disk fails the original, too, and is tested with the copy alone.
    fixture.disk = None
    return fixture


class CopyContractTests(makeLedgerTests(copyOnClock)):  # type: ignore[misc]
    pass


class CopyProofTests(makeProofTests(copyOnClock)):  # type: ignore[misc]
    pass
