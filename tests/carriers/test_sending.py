"""
Tests of when answers are sent.
"""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.sending import TRY_EVERY, TurnEnd


class TurnEndTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.turnEnd = TurnEnd(self.clock)
        self.done: list[str] = []

    def add(self, *names: str) -> list[str]:
        """What was done at once."""
        before = len(self.done)
        for name in names:
            self.turnEnd.add(lambda name=name: self.done.append(name))  # type: ignore[misc]
        return self.done[before:]

    def test_alone(self) -> None:
        """One in a turn does not wait, but for a try now and then."""
        for _ in range(3):
            for _ in range(TRY_EVERY):
                self.assertEqual(self.add("now"), ["now"])
            self.assertEqual(self.clock.getDelayedCalls(), [])
            self.assertEqual(self.add("later"), [])
            self.clock.advance(0)
            self.assertEqual(self.done[-1], "later")

    def test_crowd(self) -> None:
        """Where there are many in a turn they wait for its end, in their order."""
        self.add(*["now"] * TRY_EVERY)
        for _ in range(3):
            self.assertEqual(self.add("a", "b", "c"), [])
            self.assertEqual(len(self.clock.getDelayedCalls()), 1)
            self.clock.advance(0)
            self.assertEqual(self.done[-3:], ["a", "b", "c"])

    def test_duringTheEnd(self) -> None:
        """What comes while the end is at work waits for the next one."""
        self.add(*["now"] * TRY_EVERY)
        self.turnEnd.add(lambda: self.add("next", "after"))  # type: ignore[arg-type]
        self.add("last")
        self.clock.advance(0)
        self.assertEqual(self.done[-3:], ["last", "next", "after"])
