"""
Shared parts of the tests of the doctor's checks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.net.findings import Finding, Level

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC).timestamp()
DAY = 86400.0
GIB = 1 << 30
DATA = Path("/var/lib/svcbroker")


class CheckTestCase(SynchronousTestCase):
    """
    A test of checks.
    """

    def findings(self, found: Iterable[Finding]) -> Sequence[Finding]:
        """Findings, each of which says what to do unless it is good."""
        kept = list(found)
        for each in kept:
            isGood = each.level is Level.GOOD
            self.assertEqual(isGood, not each.remedy, each)
            self.assertEqual(isGood, not each.meaning, each)
        return kept

    def good(self, found: Iterable[Finding], *words: str) -> None:
        """Nothing but good findings, the only or last of which has some words."""
        kept = self.findings(found)
        self.assertEqual({each.level for each in kept}, {Level.GOOD}, kept)
        for word in words:
            self.assertIn(word, kept[-1].text)

    def bad(self, level: Level, found: Iterable[Finding], *words: str) -> Finding:
        """The one finding that is not good, of a level and with some words."""
        (only,) = [each for each in self.findings(found) if each.level is not Level.GOOD]
        self.assertIs(only.level, level, only)
        for word in words:
            self.assertIn(word, f"{only.text}; {only.meaning}; {only.remedy}")
        return only

    def warns(self, found: Iterable[Finding], *words: str) -> Finding:
        """The one warning."""
        return self.bad(Level.WARNING, found, *words)

    def fails(self, found: Iterable[Finding], *words: str) -> Finding:
        """The one problem."""
        return self.bad(Level.PROBLEM, found, *words)
