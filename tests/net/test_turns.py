"""
Tests of L{svcbroker.net.turns}.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.net.turns import TRY_EVERY, EndOfTurn, FairTurns, ReadsInTurn


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


class AfterReadsTests(TurnTestCase):
    """
    L{EndOfTurn} on a reactor that makes calls after all reads of a turn.
    """

    def setUp(self) -> None:
        super().setUp()
        self.ends: list[Any] = []
        self.assertFalse(self.turn.isWithinTurn)
        self.clock.callAfterReads = self.ends.append  # type: ignore[attr-defined]
        self.turn = EndOfTurn(self.clock)
        self.assertTrue(self.turn.isWithinTurn)

    def test_callsAreMadeAfterReads(self) -> None:
        self.turn.add(lambda: self.turn.add(partial(self.done.append, "next")))
        self.turn.add(partial(self.done.append, "a"))
        self.assertEqual(len(self.ends), 1)
        self.ends.pop()()
        self.assertEqual(self.done, ["a"])
        self.ends.pop()()
        self.assertEqual(self.done, ["a", "next"])
        self.assertEqual((self.ends, self.clock.getDelayedCalls()), ([], []))

    def test_stopDropsCalls(self) -> None:
        self.turn.add(partial(self.done.append, "a"))
        self.turn.stop()
        self.turn.add(partial(self.done.append, "b"))
        for end in self.ends:
            end()
        self.assertEqual(self.done, ["b"])


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


class TurningClock(Clock):
    """
    A clock whose turns of the reactor are a second apart. C{Clock} makes calls that are added by
    others in the same turn.
    """

    def callLater(self, delay: float, *args: Any, **kwargs: Any) -> Any:
        return super().callLater(delay + 1, *args, **kwargs)


class FairTurnsTests(SynchronousTestCase):
    """
    L{FairTurns}.
    """

    def setUp(self) -> None:
        self.clock = TurningClock()
        self.turns = FairTurns(self.clock, 2)
        self.done: list[str] = []

    def work(self, *lanes: str) -> list[Deferred[None]]:
        """Have a piece of work done for each lane, now or later."""
        waiting = []
        for lane in lanes:
            if self.turns.take(lane):
                self.done.append(lane)
            else:
                waiter = self.turns.wait(lane)
                waiter.addCallback(partial(self.finish, lane))
                waiting.append(waiter)
        return waiting

    def finish(self, lane: str, _: None) -> None:
        self.done.append(lane)

    def nextTurn(self) -> list[str]:
        """What is done in the next turn of the reactor."""
        self.done.clear()
        self.clock.advance(1)
        return list(self.done)

    def test_aTurnHasABound(self) -> None:
        """What is above it is done in later turns, in order."""
        self.work("a", "a", "a", "a", "a")
        self.assertEqual(self.done, ["a", "a"])
        self.assertEqual(self.nextTurn(), ["a", "a"])
        self.assertEqual(self.nextTurn(), ["a"])

    def test_lanesTakeTurns(self) -> None:
        """One that has much work holds up no other."""
        self.work(*"aaaaaaaaaa", "b", "c")
        self.assertLessEqual({"b", "c"}, {*self.nextTurn(), *self.nextTurn()})

    def test_idleTurnsLeaveNothingWithTheReactor(self) -> None:
        """There is no delayed call while there is no work."""
        self.work("a")
        self.nextTurn()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.work("a", "a")
        self.assertEqual(self.done, ["a", "a"])

    def test_workInsideOfWorkDoesNotWait(self) -> None:
        """What has waited for its turn does not wait again in the middle of it."""
        self.work("a", "a")
        inner: list[bool] = []
        self.turns.wait("b").addCallback(
            lambda _: inner.extend([self.turns.take(each) for each in "bbbb"])
        )
        self.nextTurn()
        self.assertEqual(inner, [True] * 4)

    def test_cancellingLeavesTheLane(self) -> None:
        """Its place is another's."""
        _, second = self.work("a", "a", "a", "b")
        [first] = self.work("a")
        first.addErrback(lambda failure: failure.trap(CancelledError))
        first.cancel()
        second.addErrback(lambda failure: failure.trap(CancelledError))
        second.cancel()
        self.assertEqual(self.nextTurn(), ["a"])

    def test_stopLetsNothingGoOn(self) -> None:
        """No delayed call is left."""
        self.work("a", "a", "a")
        self.turns.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])


class ReadsInTurnTests(SynchronousTestCase):
    """
    L{ReadsInTurn}.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.turns = FairTurns(self.clock, 1)
        self.handled: list[bytes] = []
        self.reading: list[bool] = []
        self.reads = ReadsInTurn(
            *(partial(self.turns.take, "a"), partial(self.turns.wait, "a")),
            *(self.receive, self.reading.append),
        )

    def receive(self, data: bytes) -> None:
        """A connection's C{dataReceived}."""
        if self.reads.mayHandle(data):
            self.handled.append(data)

    def test_loneReadIsHandledAtOnce(self) -> None:
        """A turn that has room costs no wait."""
        self.receive(b"x")
        self.assertEqual(self.handled, [b"x"])
        self.assertEqual(self.reading, [])

    def test_waitingReadsAreJoined(self) -> None:
        """Reading stops meanwhile, and what arrives all the same is kept."""
        self.turns.take("other")
        self.receive(b"x")
        self.receive(b"y")
        self.assertEqual((self.handled, self.reading), ([], [False]))
        self.clock.advance(0)
        self.assertEqual((self.handled, self.reading), ([b"xy"], [False, True]))

    def test_closedConnectionLeavesItsLane(self) -> None:
        """Nothing is handled for it."""
        self.turns.take("other")
        self.receive(b"x")
        self.reads.stop()
        self.clock.advance(0)
        self.assertEqual((self.handled, self.reading), ([], [False]))
