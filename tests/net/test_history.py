"""
Tests for L{svcbroker.net.history}.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.net.history import DAY, MAX_POINTS, HistoryMalformed, MeasureHistory

START = 1_700_000_040.0
"""A full minute."""


class HistoryTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.now = START
        self.history = self.make("a", "b")

    def make(self, *names: str) -> MeasureHistory:
        return MeasureHistory(names, lambda: self.now)

    def measure(self, *values: float) -> None:
        """Let 5 seconds pass after each value of C{a}."""
        for value in values:
            self.now += 5
            self.history.put(5, {"a": value})

    def told(self, seconds: int, name: str = "a") -> Sequence[float | None]:
        return self.history.part(seconds).series[name]

    def test_latestValueIsTheLast(self) -> None:
        """What was not measured is null, not 0."""
        self.measure(1, 2, 3)
        self.now += 2
        part = self.history.part(60)
        self.assertEqual((part.end, part.step), (START + 15, 5))
        self.assertEqual(part.series["a"], [*[None] * 9, 1, 2, 3])
        self.assertEqual(part.series["b"], [None] * 12)

    def test_gapsAreGaps(self) -> None:
        """Also where a ring has gone round meanwhile."""
        self.measure(1, 2)
        self.now += 10
        self.measure(3)
        self.assertEqual(self.told(25), [1, 2, None, None, 3])
        self.now += 10 * DAY
        self.measure(4)
        self.assertEqual([each for each in self.told(3600) if each], [4])

    def test_longPartsAreThinned(self) -> None:
        """To the means of neighbours, which stay together while time goes on."""
        for minute in range(1, 1441):
            self.now += 60
            self.history.put(60, {"a": minute})
        day, quarter = self.history.part(DAY), self.history.part(21_600)
        self.assertEqual((day.step, len(day.series["a"])), (240, MAX_POINTS))
        self.assertEqual((quarter.step, len(quarter.series["a"])), (60, MAX_POINTS))
        self.assertEqual(quarter.series["a"][-1], 1440)
        before = day.series["a"]
        self.now += 60
        self.assertIn(self.told(DAY)[-1], before)

    def test_oldestValueIsFound(self) -> None:
        self.assertIsNone(self.history.oldest("a"))
        for value in (7, 8):
            self.now += 60
            self.history.put(60, {"a": value})
        self.assertEqual(self.history.oldest("a"), (60, 7))
        self.assertIsNone(self.history.oldest("b"))

    def test_wrongClocksAreSurvived(self) -> None:
        """A second value of a step is not kept; a clock that was years ahead begins anew."""
        self.measure(1)
        self.history.put(5, {"a": 2})
        self.now -= 5
        self.history.put(5, {"a": 3})
        self.now += 5
        self.assertEqual(self.told(5), [1])
        self.now += 1e9
        self.measure(4)
        self.now = START
        self.measure(5)
        self.assertEqual(self.told(10), [None, 5])

    def test_restartKeepsIt(self) -> None:
        """A later release may have other series."""
        self.measure(1, 2)
        data = self.history.encode()
        self.assertLess(len(data), 100_000)
        self.now += 5
        self.history = self.make("c", "a")
        self.history.decode(data)
        self.measure(4)
        self.assertEqual(self.told(20), [1, 2, None, 4])
        self.assertEqual(self.told(20, "c"), [None] * 4)

    def test_fileOfTheFutureIsLeftOut(self) -> None:
        """It was written while the clock was wrong."""
        self.now += 1e8
        self.measure(1)
        data, self.now = self.history.encode(), START
        self.history = self.make("a")
        self.history.decode(data)
        self.measure(2)
        self.assertEqual(self.told(10), [None, 2])

    def test_damagedFilesAreRefused(self) -> None:
        """Each bit counts."""
        self.measure(1)
        data = self.history.encode()
        for place in (0, 25, len(data) // 2, len(data) - 1):
            changed = bytearray(data)
            changed[place] ^= 1
            self.assertRaises(HistoryMalformed, self.history.decode, bytes(changed))
        for cut in (b"", data[:10], data[:-1]):
            self.assertRaises(HistoryMalformed, self.history.decode, cut)
        self.assertEqual(self.told(5), [1])
        self.assertFalse(any(math.isnan(each) for each in self.told(60) if each is not None))
