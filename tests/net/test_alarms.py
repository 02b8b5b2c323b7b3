"""
Tests for L{svcbroker.net.alarms}.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.logger import LogLevel, capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.net.alarms import (
    FRESH,
    LOOK_EVERY,
    MAX_TEXT,
    TIMEOUT,
    Alarm,
    Alarms,
    Condition,
    RecentCount,
)
from svcbroker.net.findings import Level


def condition(name: str, level: Level = Level.WARNING) -> Condition:
    return Condition(name=name, level=level, title="T", meaning="M.", remedy="R.")


BAD, ODD = condition("bad", Level.PROBLEM), condition("odd")


class AlarmsTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.clock.advance(1000)
        self.alarms = Alarms([BAD, ODD], self.clock, lambda: self.clock.seconds() + 5000)
        self.told: list[Alarm] = []
        self.new: list[str] = []
        self.alarms.onRaise = lambda alarm: self.new.append(alarm.condition.name)
        self.alarms.add("one", lambda: self.told)

    def look(self) -> list[tuple[str, str, str, float]]:
        """What a fresh look finds."""
        self.clock.advance(FRESH)
        found = self.successResultOf(self.alarms.look())
        return [(each.condition.name, each.group, each.text, each.since) for each in found]

    def test_alarmIsKeptWithItsBeginning(self) -> None:
        """Its text may change; one that went and came again begins anew."""
        self.told = [Alarm(condition=ODD, text="a")]
        self.assertEqual(self.look(), [("odd", "", "a", 6001.0)])
        self.told = [Alarm(condition=ODD, text="b")]
        self.assertEqual(self.look(), [("odd", "", "b", 6001.0)])
        self.told = []
        self.assertEqual(self.look(), [])
        self.told = [Alarm(condition=ODD, text="c")]
        self.assertEqual(self.look(), [("odd", "", "c", 6004.0)])
        self.assertEqual(self.new, ["odd", "odd"])

    def test_alarmsOfOneGroupAreOne(self) -> None:
        """They come in the order of the list of conditions; their texts are joined and bounded."""
        self.told = [
            Alarm(condition=ODD, text="x", group="1"),
            Alarm(condition=ODD, text="y", group="1"),
            Alarm(condition=ODD, text="z" * 2 * MAX_TEXT, group="2"),
            Alarm(condition=BAD, text="w"),
        ]
        found = [(name, group, text) for name, group, text, _ in self.look()]
        self.assertEqual(
            found, [("bad", "", "w"), ("odd", "1", "x; y"), ("odd", "2", "z" * MAX_TEXT)]
        )

    def test_alarmsOfOneSourceAreKeptAsOne(self) -> None:
        """What is kept of a source does not grow with webhooks that fail."""
        self.told = [Alarm(condition=ODD, text=f"{n}", group="1") for n in range(10_000)]
        ((_, _, text, _),) = self.look()
        self.assertEqual(len(text), MAX_TEXT)

    def test_looksFromTimeToTime(self) -> None:
        self.alarms.start()
        self.told = [Alarm(condition=BAD, text="x")]
        self.clock.advance(LOOK_EVERY)
        self.assertEqual(self.new, ["bad"])
        self.told.append(Alarm(condition=ODD, text="x"))
        self.clock.advance(LOOK_EVERY)
        self.assertEqual(self.new, ["bad", "odd"])
        self.alarms.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_thoseWhoAskTogetherShareALook(self) -> None:
        """A hundred consoles cost one look a second."""
        asked: list[Deferred[Any]] = []

        def source() -> Deferred[Any]:
            asked.append(Deferred())
            return asked[-1]

        self.alarms.add("two", source)
        first, second = self.alarms.look(), self.alarms.look()
        first.cancel()
        self.failureResultOf(first)
        asked[0].callback([Alarm(condition=BAD, text="x")])
        self.assertEqual(len(self.successResultOf(second)), 1)
        self.successResultOf(self.alarms.look())
        self.assertEqual(len(asked), 1)
        self.clock.advance(FRESH)
        third = self.alarms.look()
        self.alarms.stop()
        self.assertEqual(len(self.successResultOf(third)), 1)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_failingSourceIsToldOnce(self) -> None:
        """What it has told before holds, and others are asked."""
        answers = [succeed([Alarm(condition=ODD, text="x")])]

        def source() -> Any:
            return answers.pop() if answers else 1 / 0

        self.alarms.add("two", source)
        self.assertEqual(len(self.look()), 1)
        self.told = [Alarm(condition=BAD, text="y")]
        self.assertEqual(len(self.look()), 2)
        self.assertEqual(len(self.look()), 2)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_lateSourceIsWarnedOfOnce(self) -> None:
        """A busy machine is no fault of the program. What was told before holds."""
        self.told = [Alarm(condition=ODD, text="x")]
        self.look()
        self.alarms.add("one", Deferred)
        with capturedLogs() as events:
            for _ in range(2):
                self.clock.advance(FRESH)
                late = self.alarms.look()
                self.clock.advance(TIMEOUT)
                self.assertEqual(len(self.successResultOf(late)), 1)
        self.assertEqual([each["log_level"] for each in events], [LogLevel.warn])
        self.alarms.stop()


class RecentCountTests(SynchronousTestCase):
    def test_growthOfThePeriodIsCounted(self) -> None:
        clock = Clock()
        recent = RecentCount(clock, 60.0)
        for count, growth in ((7, 7), (8, 8), (8, 8), (9, 9)):
            clock.advance(LOOK_EVERY)
            self.assertEqual(recent.grown(count), growth)
        clock.advance(60.0 - LOOK_EVERY)
        self.assertEqual(recent.grown(9), 1)
        clock.advance(60.0)
        self.assertEqual(recent.grown(9), 0)

    def test_whatGrewBeforeTheFirstLookCounts(self) -> None:
        clock = Clock()
        recent = RecentCount(clock, 60.0)
        clock.advance(1.0)
        self.assertEqual(recent.grown(1), 1)
        clock.advance(59.0)
        self.assertEqual(recent.grown(1), 1)
        clock.advance(60.0)
        self.assertEqual(recent.grown(1), 0)

    def test_growthBeforeAJumpOfTheClockIsOver(self) -> None:
        """Also where it was seen shortly after a look that saw none."""
        clock = Clock()
        recent = RecentCount(clock, 60.0)
        for count in (0, 0, 1):
            clock.advance(2.0)
            recent.grown(count)
        clock.advance(61.0)
        self.assertEqual(recent.grown(1), 0)

    def test_memoryIsBounded(self) -> None:
        clock = Clock()
        recent = RecentCount(clock, 60.0)
        for count in range(10_000):
            recent.grown(count)
            clock.advance(0.1)
        self.assertLess(len(recent._counts), 2 * 60 / LOOK_EVERY + 5)
