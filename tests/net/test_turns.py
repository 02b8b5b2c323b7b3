"""
Tests of L{svcbroker.net.turns}.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.net.turns import TRY_EVERY, EndOfTurn, FairTurns, LazyTimer, ReadsInTurn, Slots


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

    def test_lastCallsAreMadeAfterOthers(self) -> None:
        """Those that other calls add, too; those that they add themselves wait for the next end."""
        last = partial(self.done.append, "last")
        self.turn.addLast(last)
        self.turn.add(lambda: self.turn.addLast(last))
        self.turn.add(partial(self.done.append, "a"))
        self.turn.addLast(lambda: self.turn.addLast(partial(self.done.append, "next")))
        self.assertEqual(len(self.ends), 1)
        self.ends.pop()()
        self.assertEqual(self.done, ["a", "last", "last"])
        self.ends.pop()()
        self.assertEqual(self.done, ["a", "last", "last", "next"])
        self.assertEqual(self.ends, [])

    def test_failingCallKeepsNoOther(self) -> None:
        self.turn.add(lambda: 1 / 0)
        self.turn.addLast(partial(self.done.append, "last"))
        self.ends.pop()()
        self.assertEqual(self.done, ["last"])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_stopDropsCalls(self) -> None:
        self.turn.add(partial(self.done.append, "a"))
        self.turn.addLast(partial(self.done.append, "last"))
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
        """The work that was done at once."""
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
        """Many calls in a turn wait for its end, in their order."""
        self.add(*["now"] * TRY_EVERY)
        for _ in range(3):
            self.assertEqual(self.add("a", "b", "c"), [])
            self.assertEqual(len(self.clock.getDelayedCalls()), 1)
            self.clock.advance(0)
            self.assertEqual(self.done[-3:], ["a", "b", "c"])

    def test_callAddedDuringCallsWaitsForNextTurn(self) -> None:
        """A call that comes while the end is at work waits for the next one."""
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
        """The work of the next turn of the reactor."""
        self.done.clear()
        self.clock.advance(1)
        return list(self.done)

    def test_aTurnHasABound(self) -> None:
        """Work above the bound is done in later turns, in order."""
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
        """Work that has waited for its turn does not wait again in the middle of it."""
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
        self.kept, self.room = 0, 10
        self.reads = ReadsInTurn(
            partial(self.turns.take, "a"),
            partial(self.turns.wait, "a"),
            self.receive,
            self.reading.append,
            self.keep,
        )

    def keep(self, change: int) -> bool:
        """A connection's count of bytes that wait."""
        self.kept += change
        return self.kept <= self.room

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
        """Nothing is handled for it, or kept."""
        self.turns.take("other")
        self.receive(b"x")
        self.assertEqual(self.kept, 1)
        self.reads.stop()
        self.receive(b"y")
        self.clock.advance(0)
        self.assertEqual((self.handled, self.reading, self.kept), ([], [False], 0))

    def test_waitingBytesAreCounted(self) -> None:
        self.turns.take("other")
        self.receive(b"xy")
        self.receive(b"z")
        self.assertEqual(self.kept, 3)
        self.clock.advance(0)
        self.assertEqual((self.handled, self.kept), ([b"xyz"], 0))

    def test_bytesWithoutRoomAreDropped(self) -> None:
        self.turns.take("other")
        self.receive(bytes(11))
        self.assertEqual((self.kept, self.reading), (0, []))
        self.receive(b"x")
        self.receive(bytes(10))
        self.clock.advance(0)
        self.assertEqual((self.handled, self.kept), ([b""], 0))


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


class SlotsTests(SynchronousTestCase):
    """
    Sharing.
    """

    def test_freeSlotIsTakenAtOnce(self) -> None:
        slots = Slots(2, 2)
        self.assertTrue(slots.take("a"))
        self.assertTrue(slots.take("b"))
        self.assertFalse(slots.take("c"))
        slots.release("a")
        self.assertTrue(slots.take("c"))

    def test_laneHasOnlyItsPart(self) -> None:
        """Though others are free."""
        slots = Slots(4, 2)
        self.assertTrue(slots.take("a") and slots.take("a"))
        self.assertFalse(slots.take("a"))
        waiting = slots.wait("a")
        self.assertNoResult(waiting)
        self.assertTrue(slots.take("b"))
        slots.release("b")
        self.assertNoResult(waiting)
        slots.release("a")
        self.successResultOf(waiting)

    def test_lanesTakeTurns(self) -> None:
        """Within a lane, the first to wait is the first to go."""
        slots = Slots(1, 1)
        slots.take("x")
        order: list[str] = []

        def went(_: None, name: str) -> None:
            order.append(name)

        for name in ("a1", "a2", "a3", "b1", "b2", "c1"):
            slots.wait(name[0]).addCallback(went, name)
        for _ in range(6):
            slots.release("x" if not order else order[-1][0])
        self.assertEqual(order, ["a1", "b1", "c1", "a2", "b2", "a3"])

    def test_takeDoesNotOvertakeWaiters(self) -> None:
        slots = Slots(2, 1)
        slots.take("a")
        waiting = slots.wait("a")
        self.assertTrue(slots.isWanted("a"))
        self.assertFalse(slots.isWanted("b"))
        self.assertFalse(slots.take("a"))
        slots.release("a")
        self.successResultOf(waiting)

    def test_longQueueOfWorkThatEndsAtOnceIsServed(self) -> None:
        slots = Slots(1, 1)
        slots.take("a")
        waiting = [slots.wait("a").addCallback(lambda _: slots.release("a")) for _ in range(2000)]
        slots.release("a")
        for waiter in waiting:
            self.successResultOf(waiter)
        self.assertTrue(slots.take("a"))

    @given(
        total=st.integers(1, 4),
        perLane=st.integers(1, 4),
        steps=st.lists(st.tuples(st.sampled_from("twrc"), st.sampled_from("abc")), max_size=60),
    )
    def test_anyUseKeepsTheBounds(
        self, total: int, perLane: int, steps: list[tuple[str, str]]
    ) -> None:
        """No waiter is left that could go."""
        slots = Slots(total, perLane)
        held: Counter[str] = Counter()
        waiting: dict[str, list[Deferred[None]]] = {"a": [], "b": [], "c": []}

        def got(_: None, lane: str, waiter: Deferred[None]) -> None:
            held[lane] += 1
            if waiter in waiting[lane]:
                self.assertIs(waiting[lane].pop(0), waiter)

        def release(lane: str) -> None:
            held[lane] -= 1
            slots.release(lane)

        for what, lane in steps:
            if what == "t":
                if slots.take(lane):
                    held[lane] += 1
            elif what == "w":
                waiter = slots.wait(lane)
                if not waiter.called:
                    waiting[lane].append(waiter)
                waiter.addCallback(got, lane, waiter)
                waiter.addErrback(lambda failure: failure.trap(CancelledError) and None)
            elif what == "r" and held[lane]:
                release(lane)
            elif what == "c" and waiting[lane]:
                waiting[lane].pop().cancel()
            self.assertEqual(slots.busy, held.total())
            self.assertLessEqual(held.total(), total)
            self.assertLessEqual(max(held.values(), default=0), perLane)
            for each, queue in waiting.items():
                self.assertTrue(not queue or held.total() == total or held[each] == perLane)
        while held.total():
            release(next(lane for lane in held if held[lane]))
        self.assertEqual([queue for queue in waiting.values() if queue], [])
        self.assertEqual(slots.busy, 0)
