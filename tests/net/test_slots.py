"""
Tests for L{svcbroker.net.turns}.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.net.turns import Slots


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
