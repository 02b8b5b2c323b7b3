"""
Tests for L{benchmarks.trees}: the table.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from benchmarks.comparison import CASES
from benchmarks.trees import nameOf, row


class RowTests(SynchronousTestCase):
    """
    A line for each case.
    """

    def test_ratioIsMedianOfRounds(self) -> None:
        """A round in which the machine was slow for both does not change the ratio."""
        case = CASES[0]
        cells = row(case, [[10.0, 40.0, 20.0], [5.0, 20.0, 11.0]])
        self.assertEqual(cells, ["REST publish, POST, 1 x 1", "10 / 20 (1.000)", "5 / 11 (0.500)"])

    def test_namesAreUnique(self) -> None:
        names = [nameOf(case) for case in CASES if case.who is CASES[0].who]
        self.assertEqual(len(set(names)), len(names))
