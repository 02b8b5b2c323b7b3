"""
Tests of L{svcbroker.net.turns}.
"""

from __future__ import annotations

from functools import partial

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.net.turns import TRY_EVERY, EndOfTurn


class TurnTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.turn = EndOfTurn(self.clock)
        self.done: list[str] = []


class AddTests(TurnTestCase):
    """
    L{EndOfTurn.add}.
    """

    def add(self, *names: str) -> None:
        """Add calls."""
        for name in names:
            self.turn.add(partial(self.done.append, name))

    def test_callsAreMadeTogetherInOrder(self) -> None:
        """One delayed call of the reactor makes all of them."""
        self.add("a", "b", "a")
        self.assertEqual(self.done, [])
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        self.clock.advance(0)
        self.assertEqual(self.done, ["a", "b", "a"])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_callAddedDuringCallsWaitsForNextTurn(self) -> None:
        """It gets a delayed call of its own, so the reactor can do other things before."""
        self.turn.add(lambda: self.add("next"))
        self.turn.add(lambda: self.done.append(f"{len(self.clock.getDelayedCalls())} scheduled"))
        self.clock.advance(0)
        self.assertEqual(self.done, ["1 scheduled", "next"])

    def test_failureIsLoggedAndOthersAreCalled(self) -> None:
        """One connection's error is not another's."""
        self.turn.add(lambda: 1 / 0)
        self.add("a")
        self.clock.advance(0)
        self.assertEqual(self.done, ["a"])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_stopDropsCallsAndLeavesNoTimer(self) -> None:
        """After a stop, others may be added."""
        self.add("a")
        self.turn.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.add("b")
        self.clock.advance(0)
        self.assertEqual(self.done, ["b"])
        self.turn.stop()


class AddOrCallTests(TurnTestCase):
    """
    L{EndOfTurn.addOrCall}.
    """

    def add(self, *names: str) -> list[str]:
        """What was done at once."""
        before = len(self.done)
        for name in names:
            self.turn.addOrCall(partial(self.done.append, name))
        return self.done[before:]

    def test_loneCallsAreMadeAtOnce(self) -> None:
        """One in a turn does not wait, but for a try now and then."""
        for _ in range(3):
            for _ in range(TRY_EVERY):
                self.assertEqual(self.add("now"), ["now"])
            self.assertEqual(self.clock.getDelayedCalls(), [])
            self.assertEqual(self.add("later"), [])
            self.clock.advance(0)
            self.assertEqual(self.done[-1], "later")

    def test_manyCallsWaitForEndOfTurn(self) -> None:
        """Where there are many in a turn they wait for its end, in their order."""
        self.add(*["now"] * TRY_EVERY)
        for _ in range(3):
            self.assertEqual(self.add("a", "b", "c"), [])
            self.assertEqual(len(self.clock.getDelayedCalls()), 1)
            self.clock.advance(0)
            self.assertEqual(self.done[-3:], ["a", "b", "c"])

    def test_callAddedDuringCallsWaitsForNextTurn(self) -> None:
        """What comes while the end is at work waits for the next one."""
        self.add(*["now"] * TRY_EVERY)
        self.turn.add(lambda: self.add("next", "after"))
        self.add("last")
        self.clock.advance(0)
        self.assertEqual(self.done[-3:], ["last", "next", "after"])
