"""
Tests of reading history for many: in bounded pieces of time, and together.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from twisted.internet.defer import Deferred, fail
from twisted.trial.unittest import SynchronousTestCase

from svcbroker import errors
from svcbroker.broker.subscriptions._follower import PAUSE, SLICE, HistoryTurns
from svcbroker.interfaces import Batch
from svcbroker.model import Block, Edge
from svcbroker.net.budgets import WorkBudget

from ...net.countingclock import CountingClock
from .test_subscriptions import Fixture, Reader

STEP = 0.0005
"""Seconds that a delivery takes here."""


class WalkTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.fixture = Fixture()
        self.fixture.open("a", "b", "c/d")

    def publish(self, count: int) -> list[bytes]:
        """Publish events in blocks of their own; their contents."""
        contents = [b"%d" % number for number in range(count)]
        for number, content in enumerate(contents):
            self.fixture.publish("ab"[number % 2], content)
        self.fixture.clock.advance(1)
        return contents

    def readers(self, count: int, *, flow: bool = True) -> list[Reader]:
        """Readers of the same pattern from the first event on."""
        return [self.fixture.subscribe("+", offset=Edge.FIRST, flow=flow) for _ in range(count)]


class SharingTests(WalkTestCase):
    """Readers that stand close share one walk."""

    def test_eventsAreMatchedOnceForAll(self) -> None:
        """Readers of the same pattern are given the same batches, which are encoded once."""
        contents = self.publish(20)
        readers = self.readers(50)
        self.fixture.turn()
        for reader in readers:
            self.assertEqual(reader.contents, contents)
            for mine, first in zip(reader.batches, readers[0].batches, strict=True):
                self.assertIs(mine, first)

    def test_blocksAreReadOnceForAllPatterns(self) -> None:
        """Also by readers of different patterns."""
        contents = self.publish(30)
        reads: list[int] = []
        readBlock = self.fixture.ledger.readBlock

        def read(height: int) -> Deferred[Block]:
            reads.append(height)
            return readBlock(height)

        self.fixture.restart()
        self.patch(self.fixture.ledger, "readBlock", read)
        follower = self.fixture.subscriptions._followers["1"]
        self.patch(follower, "_keep", lambda block, size: None)
        readers = [
            self.fixture.subscribe(pattern, offset=Edge.FIRST)
            for pattern in ("#", "+", "a/#", "b/#", "+/#")
        ]
        self.fixture.turn()
        self.assertEqual(readers[0].contents, contents)
        self.assertEqual(readers[2].contents, contents[::2])
        self.assertEqual(readers[3].contents, contents[1::2])
        self.assertEqual(len(reads), len(set(reads)))

    def test_closeWalksBecomeOne(self) -> None:
        """A reader that is a little ahead waits for those behind it."""
        contents = self.publish(200)
        first, second = self.readers(2, flow=False)
        first.left = 20
        first.subscription.resume()
        self.fixture.turn()
        self.assertEqual(len(first.batches), 20)
        first.left = None
        first.subscription.resume()
        second.subscription.resume()
        self.fixture.turn()
        self.assertEqual([first.contents, second.contents], [contents, contents])
        shared = {id(batch) for batch in first.batches} & {id(batch) for batch in second.batches}
        # The first one reads on from its own place until the next block.
        self.assertGreaterEqual(len(shared), 175)

    def test_pausedReaderLeavesAndReturns(self) -> None:
        """It gets each event once, although other readers went on without it."""
        contents = self.publish(40)
        slow, fast = self.readers(2, flow=False)
        slow.left = 3
        slow.subscription.resume()
        fast.subscription.resume()
        self.fixture.turn()
        self.assertEqual((slow.contents, fast.contents), (contents[:3], contents))
        slow.left = None
        slow.subscription.resume()
        self.fixture.turn()
        self.assertEqual(slow.contents, contents)
        self.fixture.publish("a", b"live")
        self.fixture.turn()
        self.assertEqual([slow.contents[-1], fast.contents[-1]], [b"live"] * 2)

    def test_unreadableLogEndsAllReaders(self) -> None:
        self.publish(5)
        self.fixture.restart()
        error = errors.LedgerUnavailable()
        self.patch(self.fixture.ledger, "readBlock", lambda height: fail(error))
        readers = self.readers(3)
        self.fixture.turn()
        self.assertEqual([reader.error for reader in readers], [error] * 3)
        self.assertEqual(self.flushLoggedErrors(), [])
        self.assertEqual(self.fixture.subscriptions._followers["1"].walks._walks, {})

    def test_closedReadersEndTheWalk(self) -> None:
        self.publish(5)
        for reader in self.readers(3):
            reader.subscription.close()
        self.fixture.turn()
        self.assertEqual(self.fixture.subscriptions._followers["1"].walks._walks, {})
        self.fixture.subscriptions.stop()
        self.assertEqual(self.fixture.clock.getDelayedCalls(), [])


class PacingTests(WalkTestCase):
    """History is read in slices; publishers come first."""

    def watch(self, deliveries: Callable[[], int], turns: int) -> list[int]:
        """How many deliveries there are in each of the next turns of the reactor."""
        seen: list[int] = []

        def tick() -> None:
            seen.append(deliveries())
            if len(seen) < turns:
                self.fixture.clock.callLater(0, tick)

        tick()
        self.fixture.clock.advance(0)
        return [after - before for before, after in pairwise(seen)]

    def slow(self, readers: list[Reader]) -> Callable[[], int]:
        """Have each delivery take its time; gives how many there were."""
        delivered: list[Batch] = []
        for reader in readers:
            deliver = reader.deliver

            def delivering(batch: Batch, deliver: Callable[[Batch], None] = deliver) -> None:
                self.fixture.clock.rightNow += STEP
                delivered.append(batch)
                deliver(batch)

            reader.deliver = delivering  # type: ignore[method-assign]
        return lambda: len(delivered)

    def test_turnsAreShort(self) -> None:
        """However many readers there are, of patterns and of topics, one turn is a slice."""
        self.publish(3)
        for filters in (("+",), ("a", "b")):
            readers = [
                self.fixture.subscribe(*filters, offset=Edge.FIRST, flow=False) for _ in range(100)
            ]
            deliveries = self.slow(readers)
            for reader in readers:
                reader.subscription.resume()
            found = self.watch(deliveries, 200)
            self.assertEqual(sum(found), deliveries())
            self.assertGreater(sum(found), 100)
            self.assertLessEqual(max(found), SLICE / STEP + 1)
            for reader in readers:
                reader.subscription.close()

    def test_sliceWaitsWhereReadsDo(self) -> None:
        clock = CountingClock()
        turns = HistoryTurns(clock, WorkBudget(clock))
        waiting = turns.turn()
        # Not all connections were read from yet, of which one may publish.
        clock.isBehind = True
        clock.turn()
        self.assertNoResult(waiting)
        clock.turn()
        self.successResultOf(waiting)
        turns.turn()
        turns.stop()
        self.assertEqual(clock.getDelayedCalls(), [])

    def test_publishersComeFirst(self) -> None:
        """While there are new blocks, history pauses after each slice."""
        self.publish(50)
        readers = self.readers(20, flow=False)
        deliveries = self.slow(readers)
        for reader in readers:
            reader.subscription.resume()
        self.fixture.publish("a", b"new")
        began, clock = deliveries(), self.fixture.clock
        clock.advance(0)
        self.assertLessEqual(deliveries() - began, SLICE / STEP + 1)
        before = deliveries()
        clock.advance(SLICE * PAUSE / 2)
        self.assertEqual(deliveries(), before)
        clock.advance(SLICE * PAUSE)
        self.assertGreater(deliveries(), before)
