"""
Tests of L{svcbroker.net.turns}.
"""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.net.turns import LazyTimer


class TimerTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.fired: list[float] = []
        self.timer = LazyTimer(self.clock, lambda: self.fired.append(self.clock.seconds()))

    def test_firesOnceAtDeadline(self) -> None:
        """It fires once, when its time has passed."""
        self.timer.start(2)
        self.clock.advance(1.9)
        self.assertEqual(self.fired, [])
        self.clock.advance(0.2)
        self.clock.advance(10)
        self.assertEqual(len(self.fired), 1)
        self.timer.start(1)
        self.clock.advance(1)
        self.assertEqual(len(self.fired), 2)

    def test_lastStartCounts(self) -> None:
        """The last start counts, be it for later or sooner; the reactor has one call."""
        self.timer.start(2)
        self.clock.advance(1)
        self.timer.start(2)
        self.clock.advance(1.5)
        self.assertEqual(self.fired, [])
        self.clock.advance(0.5)
        self.assertEqual(self.fired, [3.0])
        self.timer.start(10)
        self.timer.start(1)
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        self.clock.advance(1)
        self.assertEqual(self.fired, [3.0, 4.0])

    def test_stoppedTimerCanBeStartedAgain(self) -> None:
        """A stopped one does not fire, but may be started again."""
        self.timer.start(1)
        self.timer.stop()
        self.clock.advance(2)
        self.timer.start(1)
        self.clock.advance(1)
        self.assertEqual(self.fired, [3.0])

    def test_closedTimerIgnoresStarts(self) -> None:
        """A closed one leaves nothing with the reactor, ever."""
        for _ in range(2):
            self.timer.start(1)
            self.timer.close()
            self.assertEqual(self.clock.getDelayedCalls(), [])
        self.timer.start(1)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_laterDeadlineIsAnAssignment(self) -> None:
        """The reactor's call looks at it, and waits for the rest."""
        self.timer.start(2)
        (call,) = self.clock.getDelayedCalls()
        self.clock.advance(1)
        self.timer.deadline = 5.0
        self.assertEqual(self.clock.getDelayedCalls(), [call])
        self.assertEqual(call.getTime(), 2.0)
        self.clock.advance(3.5)
        self.assertEqual(self.fired, [])
        self.clock.advance(0.5)
        self.assertEqual(self.fired, [5.0])

    def test_startAtMovesDeadlineBothWays(self) -> None:
        """A deadline in the past fires in the next turn."""
        self.timer.startAt(5.0)
        self.timer.startAt(7.0)
        (call,) = self.clock.getDelayedCalls()
        self.assertEqual(call.getTime(), 5.0)
        self.timer.startAt(2.0)
        self.clock.advance(2)
        self.assertEqual(self.fired, [2.0])
        self.timer.startAt(1.0)
        self.clock.advance(0)
        self.assertEqual(self.fired, [2.0, 2.0])
        self.timer.close()
        self.timer.startAt(3.0)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_canBeStartedWhenItFires(self) -> None:
        """The next deadline counts from then."""
        again = LazyTimer(self.clock, lambda: again.start(1))
        again.start(1)
        self.clock.advance(1)
        self.assertEqual(again.deadline, 2.0)
        again.close()
