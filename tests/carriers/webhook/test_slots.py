"""
Tests for L{svcbroker.carriers.webhook.slots} and for delays.
"""

from __future__ import annotations

from collections import Counter

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.webhook import WebhookSettings
from svcbroker.carriers.webhook.slots import Slots


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


class DelayTests(SynchronousTestCase):
    """
    How long to wait after a failure.
    """

    settings = WebhookSettings(firstDelay=1.0, maxDelay=60.0)

    @given(st.integers(1, 10**9), st.floats(0, 1, exclude_max=True), st.integers(0, 10**6))
    def test_delayIsBoundedByBothSides(self, failures: int, chance: float, retryAfter: int) -> None:
        """Never more than the operator's most, never less than the receiver asks within it."""
        delay = self.settings.delay(failures, retryAfter, lambda: chance)
        self.assertLessEqual(0.5, delay)
        self.assertLessEqual(delay, 60.0)
        self.assertGreaterEqual(delay, min(retryAfter, 60.0))

    def test_delayDoublesWithJitter(self) -> None:
        """It spreads over its upper half."""
        lowest = [self.settings.delay(n, 0, lambda: 0.0) for n in range(1, 9)]
        self.assertEqual(lowest, [0.5, 1, 2, 4, 8, 16, 30, 30])
        highest = [self.settings.delay(n, 0, lambda: 1.0) for n in range(1, 9)]
        self.assertEqual(highest, [1, 2, 4, 8, 16, 32, 60, 60])

    def test_oneHostHasAQuarter(self) -> None:
        """And always one request."""
        for total, part in [(64, 16), (4, 1), (1, 1)]:
            self.assertEqual(evolve(self.settings, connections=total).connectionsPerHost, part)
