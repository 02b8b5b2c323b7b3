"""
Tests of L{svcbroker.net.budgets}.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis.strategies import integers
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.errors import Overloaded
from svcbroker.net import budgets
from svcbroker.net.budgets import (
    BEGINNING,
    BLOCK,
    CROWD,
    CROWD_BESIDE_FEW,
    FEW,
    FIRST_WRITES_A_TURN,
    LARGE,
    LOGIN_TIMEOUT,
    LOOK_EVERY,
    MANY_BESIDE_FEW,
    PUBLISHING,
    QUANTUM,
    QUICK,
    READS_A_TURN,
    READS_AT_ONCE,
    READS_WHILE_PUBLISHING,
    SHARE,
    SLOW,
    WRITES_A_TURN,
    ByteBudget,
    Lane,
    OutputBudget,
    Stranger,
    Strangers,
    TimedWork,
    WorkBudget,
)
from tests import examples

from .countingclock import CountingClock


class WorkTestCase(SynchronousTestCase):
    """
    A budget on a clock that counts turns.
    """

    def setUp(self) -> None:
        self.clock = CountingClock()
        self.work = WorkBudget(self.clock)
        self.done: list[str] = []

    def unit(self, lane: Lane, seconds: float, isWrite: bool = False, events: int = 1) -> bool:
        """Do a unit of work, if it may be done."""
        if not lane.begin(isWrite, events):
            return False
        self.clock.rightNow += seconds
        lane.end()
        return True

    def wait(
        self,
        name: str,
        lane: Lane,
        seconds: float = 0.0,
        isWrite: bool = False,
        size: int = 0,
        events: int = 1,
    ) -> None:
        """Have a unit of work done in a later turn."""

        def work() -> None:
            self.done.append(name)
            self.clock.rightNow += seconds

        lane.wait(work, isWrite, size, events)

    def turn(self) -> list[str]:
        """The work of the next turn of the reactor."""
        self.done.clear()
        self.clock.turn()
        return list(self.done)


class ProgressTests(SynchronousTestCase):
    """
    Connections that publish in parts, at once, beside a few events of others.
    """

    @given(seed=integers(0, 2**32))
    @settings(max_examples=examples(100))
    def test_allIsPublished(self, seed: int) -> None:
        """With any delay of the ledgers, any sizes of the parts, and calls that are cancelled."""
        random = Random(seed)
        clock = CountingClock()
        work = WorkBudget(clock)
        ledger: list[int] = []

        async def unit(lane: Lane, events: int) -> None:
            if not lane.begin(True, events):
                await lane.turn(True, events)
            clock.rightNow += random.random() * WRITES_A_TURN

        async def publish(parts: Sequence[int]) -> None:
            lane, left = work.lane(), sum(parts)
            await unit(lane, min(left, LARGE + 1))
            try:
                for events in parts:
                    left -= events
                    lane.reserve(left)
                    await unit(lane, events)
                    work.submitted(events)
                    ledger.append(events)
            finally:
                lane.reserve(0)
                lane.end()

        def settle() -> None:
            work.settled(ledger.pop(0 if random.random() < 0.8 else -1))

        under: list[Deferred[None]] = []
        for _ in range(random.randrange(20, 60)):
            parts = random.choices((1, 10, 100, 250, LARGE + 1), k=random.randrange(1, 6))
            under.append(Deferred.fromCoroutine(publish(parts)))
            if random.random() < 0.5:
                under.append(Deferred.fromCoroutine(publish([1])))
            if random.random() < 0.2:
                random.choice(under).addErrback(
                    lambda failure: failure.trap(CancelledError)
                ).cancel()
            for _ in range(random.randrange(3)):
                clock.rightNow += random.random() * random.choice((0.001, SLOW, PUBLISHING))
                clock.turn()
                if ledger and random.random() < 0.5:
                    settle()
        for _ in range(100 * len(under)):
            clock.rightNow += QUICK
            clock.turn()
            if ledger:
                settle()
        self.assertEqual([each for each in under if not each.called], [])
        self.assertEqual((work.pending, work.reserved, work._crowd()), (0, 0, 0))


class WorkTests(WorkTestCase):
    """
    L{WorkBudget} and L{Lane}.
    """

    def test_aTurnHasABound(self) -> None:
        lane = self.work.lane()
        count = 0
        while self.unit(lane, READS_AT_ONCE / 10):
            count += 1
        self.assertIn(count, (10, 11))
        self.clock.turns += 1
        self.assertTrue(self.unit(lane, 0))

    def test_lanesShareTheBound(self) -> None:
        self.assertTrue(self.unit(self.work.lane(), READS_AT_ONCE))
        self.assertFalse(self.work.lane().begin(isWrite=False))

    def test_publishesHaveABoundOfTheirOwn(self) -> None:
        self.unit(self.work.lane(), READS_A_TURN)
        lane = self.work.lane()
        self.assertTrue(self.unit(lane, WRITES_A_TURN, isWrite=True))
        self.assertFalse(lane.begin(isWrite=True))

    def test_firstSmallPublishOfEachLaneHasMoreTime(self) -> None:
        """A turn has those of many clients that have one under way each, but not any number."""
        lane = self.work.lane()
        self.assertTrue(self.unit(lane, WRITES_A_TURN, isWrite=True))
        self.assertFalse(self.work.lane().begin(isWrite=True, events=FEW + 1))
        rest = FIRST_WRITES_A_TURN - WRITES_A_TURN
        self.assertTrue(self.unit(self.work.lane(), rest, isWrite=True))
        self.assertFalse(self.work.lane().begin(isWrite=True))
        self.clock.turns += 1
        self.assertTrue(self.unit(lane, WRITES_A_TURN, isWrite=True))

    def test_readsHaveLessWhileThereArePublishes(self) -> None:
        for name in "abcd":
            self.wait(name, self.work.lane(), READS_A_TURN / 2)
        self.assertEqual(self.turn(), ["a", "b"])
        self.unit(self.work.lane(), 0, isWrite=True)
        self.assertEqual([self.turn(), self.turn()], [["c"], ["d"]])

    def test_readsLeaveTimeToReadFromAllConnections(self) -> None:
        """Where none publishes, too: somebody may be about to."""
        self.assertTrue(self.unit(self.work.lane(), READS_AT_ONCE))
        self.assertFalse(self.work.lane().begin(isWrite=False))
        self.assertTrue(self.work.lane().begin(isWrite=True))

    def test_readsWaitUntilAllConnectionsWereReadFrom(self) -> None:
        """A turn that begins anew would give one long read after the other to the first ones."""
        lane, long = self.work.lane(), READS_A_TURN / 2
        self.clock.isBehind = True
        self.assertFalse(self.unit(lane, 0))
        self.assertFalse(lane.begin(isWrite=True, events=FEW + 1))
        self.assertTrue(self.unit(lane, 0, isWrite=True))
        self.clock.rightNow += 60
        for name in "ab":
            self.wait(name, self.work.lane(), long)
        self.assertEqual(self.turn(), ["a"])
        self.clock.isBehind = False
        self.wait("c", self.work.lane(), long)
        self.assertEqual(self.turn(), ["b", "c"])
        self.clock.turn()
        self.assertTrue(self.unit(lane, 0))

    def test_aPublishWaitsForOneLongRead(self) -> None:
        long = 0.03
        for name in "abc":
            self.wait(name, self.work.lane(), long)
        self.assertEqual(self.turn(), ["a"])
        self.work.submitted(1)
        for _ in range(3):
            self.assertEqual(self.turn(), [])
            self.assertFalse(self.work.lane().begin(isWrite=False))
        self.clock.rightNow += long
        self.assertEqual([self.turn(), self.turn(), self.turn()], [[], ["b"], []])
        self.work.settled(1)
        self.assertEqual(self.turn(), ["c"])

    def test_longReadsWaitWithoutTurns(self) -> None:
        """Until their pause is over, nothing is due. What comes meanwhile is done at once."""
        for name in "ab":
            self.wait(name, self.work.lane(), READS_A_TURN)
        self.turn()
        self.work.submitted(1)
        self.turn()
        self.turn()
        [call] = self.clock.getDelayedCalls()
        self.assertAlmostEqual(call.getTime() - self.clock.seconds(), READS_A_TURN)
        self.wait("write", self.work.lane(), isWrite=True)
        self.assertEqual(self.turn(), ["write"])

    def test_clockThatIsSetBackPausesNothing(self) -> None:
        self.unit(self.work.lane(), READS_A_TURN)
        self.clock.turns += 1
        self.work.submitted(1)
        for seconds, mayBegin in ((0, False), (-3600, True)):
            self.clock.rightNow += seconds
            self.assertEqual(self.work.lane().begin(isWrite=False), mayBegin)

    def test_readsThatHaveWaitedHaveLeastWhileALedgerHasEvents(self) -> None:
        self.work.submitted(1)
        for name in "ab":
            self.wait(name, self.work.lane(), READS_WHILE_PUBLISHING)
        # Every other turn is left to the block.
        turns = [self.turn() for _ in range(4)]
        self.assertEqual(turns, [[], ["a"], [], ["b"]])
        self.work.settled(1)
        self.clock.rightNow += PUBLISHING
        for name in "ab":
            self.wait(name, self.work.lane(), READS_WHILE_PUBLISHING)
        self.assertEqual(self.turn(), ["a", "b"])

    def test_aUnitEndsWhereTheNextBegins(self) -> None:
        one, other = self.work.lane(), self.work.lane()
        one.begin(isWrite=False)
        self.clock.rightNow += 0.001
        other.begin(isWrite=False)
        self.clock.rightNow += 0.002
        other.end()
        self.assertAlmostEqual(one.used, 0.001)
        self.assertAlmostEqual(other.used, 0.002)

    def test_aUnitEndsWithItsTurn(self) -> None:
        """A turn that nothing ends. The time until the next turn is nobody's."""
        for isWaiting in (False, True):
            lane = self.work.lane()
            lane.begin(isWrite=False)
            if isWaiting:
                self.wait("other", self.work.lane())
            self.clock.turns += 1
            self.clock.rightNow += 60
            if isWaiting:
                self.assertEqual(self.turn(), ["other"])
            lane.end()
            self.assertEqual(lane.used, 0)
            self.assertTrue(self.unit(lane, 0))

    def test_publishesComeFirst(self) -> None:
        self.wait("read", self.work.lane())
        self.wait("write", self.work.lane(), isWrite=True)
        self.assertEqual(self.turn(), ["write", "read"])

    def test_largeBatchesFillTwoBlocks(self) -> None:
        self.work.submitted(BLOCK)
        self.assertTrue(self.work.lane().begin(True, events=BLOCK))
        self.work.submitted(BLOCK)
        self.assertFalse(self.work.lane().begin(True, events=BLOCK))
        self.assertTrue(self.work.lane().begin(True, events=FEW))

    def test_manyEventsWaitForTheCrowdWithTheLedgers(self) -> None:
        self.work.submitted(CROWD - 1)
        self.assertTrue(self.work.lane().begin(True, events=LARGE))
        self.work.submitted(LARGE)
        self.assertFalse(self.work.lane().begin(True, events=FEW + 1))
        self.assertTrue(self.work.lane().begin(True, events=FEW))

    def test_manyEventsWaitForASmallerCrowdWhereOthersPublishAFew(self) -> None:
        self.work.submitted(CROWD_BESIDE_FEW - 1)
        self.work.submitted(1)
        self.assertTrue(self.work.lane().begin(True, events=FEW + 1))
        self.work.submitted(FEW + 1)
        self.assertFalse(self.work.lane().begin(True, events=FEW + 1))
        self.assertTrue(self.work.lane().begin(True, events=FEW))

    def test_slowLedgersHaveLargeBlocksWhereOthersPublishAFew(self) -> None:
        """What is with them for long does not keep further events away, up to a bound. Another one
        is quick."""
        self.work.submitted(1)
        self.clock.advance(QUICK / 2)
        self.work.settled(1)
        self.work.submitted(1)
        for count in (FEW + 1, CROWD_BESIDE_FEW):
            self.work.submitted(count)
        self.assertFalse(self.work.lane().begin(True, events=100))
        self.wait("many", self.work.lane(), isWrite=True, events=100)
        [call] = self.clock.getDelayedCalls()
        self.assertAlmostEqual(call.getTime() - self.clock.seconds(), SLOW)
        self.clock.advance(1.1 * SLOW)
        self.work.settled(1)
        self.assertEqual([*self.done, *self.turn()], ["many"])
        self.work.submitted(CROWD)
        self.clock.advance(1.1 * SLOW)
        self.assertFalse(self.work.lane().begin(True, events=100))
        self.work.settled(CROWD)
        self.assertTrue(self.work.lane().begin(True, events=100))
        self.work.submitted(CROWD_BESIDE_FEW)
        # They are answered in their order.
        for count in (FEW + 1, CROWD_BESIDE_FEW):
            self.assertFalse(self.work.lane().begin(True, events=100))
            self.work.settled(count)
        self.assertFalse(self.work.lane().begin(True, events=100))
        self.work.settled(CROWD_BESIDE_FEW)
        self.assertTrue(self.work.lane().begin(True, events=100))

    def test_slowBlocksHaveManyWhereOthersPublishAFew(self) -> None:
        """A few wait for the block, and hardly for what else is in it."""
        many = self.work.lane()
        for seconds, isSlow in ((2 * QUICK, True), (3 * QUICK, True), (QUICK / 2, False)):
            self.work.submitted(1)
            self.clock.advance(seconds)
            self.work.settled(1)
            self.work.submitted(CROWD_BESIDE_FEW)
            self.assertEqual(self.unit(many, 0, isWrite=True, events=100), isSlow)
            self.work.settled(CROWD_BESIDE_FEW)
        # It was quick lately: it has to be slow for long.
        self.work.submitted(1)
        self.clock.advance(10 * QUICK)
        self.work.settled(1)
        self.work.submitted(CROWD_BESIDE_FEW)
        self.assertFalse(self.unit(many, 0, isWrite=True, events=100))

    def test_largeBatchesFillOneBlockWhereOthersPublishAFew(self) -> None:
        self.work.submitted(1000)
        self.work.submitted(1)
        self.assertFalse(self.work.lane().begin(True, events=1000))
        self.work.lane().wait(lambda: self.done.append("many"), True, events=1000)
        self.assertEqual(self.turn(), [])
        self.work.settled(1000)
        self.assertEqual(self.turn(), [])
        self.work.settled(1)
        self.assertEqual(self.turn(), ["many"])

    def test_largeBatchesWaitForTheRestOfOthers(self) -> None:
        """Else all that are published in parts would be read at once."""
        self.work.submitted(1)
        self.work.settled(1)
        lane = self.work.lane()
        lane.reserve(BLOCK - 100)
        self.wait("many", self.work.lane(), isWrite=True, events=100)
        self.wait("large", self.work.lane(), isWrite=True, events=LARGE + 1)
        self.assertEqual(self.turn(), ["many"])
        self.assertEqual(self.turn(), [])
        lane.reserve(0)
        self.assertEqual(self.turn(), ["large"])
        self.assertEqual(self.work.reserved, 0)

    def test_reservedPartsAreNotBlockedByLargeBatches(self) -> None:
        """These wait until the reservations are used: it would be a deadlock."""
        self.work.submitted(1)
        self.work.settled(1)
        self.work.submitted(CROWD_BESIDE_FEW)
        self.wait("large", self.work.lane(), isWrite=True, events=LARGE + 1)
        lanes = self.work.lane(), self.work.lane()
        for name, lane in zip("ab", lanes, strict=True):
            lane.reserve(750)
            self.wait(name, lane, isWrite=True, events=250)
        self.assertEqual(self.turn(), [])
        self.work.settled(CROWD_BESIDE_FEW)
        self.assertEqual(self.turn(), ["a", "b"])
        for lane in lanes:
            lane.reserve(0)
        self.assertEqual(self.turn(), ["large"])

    def test_reservedPartsDoNotBlockEachOther(self) -> None:
        """Not even with parts of more than L{LARGE} events, which there are where no small publish
        came lately."""
        for name in "ab":
            lane = self.work.lane()
            lane.reserve(2 * BLOCK)
            self.wait(name, lane, isWrite=True, events=LARGE + 1)
        self.assertEqual(self.turn(), ["a", "b"])

    def test_laneThatHasUsedLessIsBeforeReservedParts(self) -> None:
        """It may have a small publish, after a unit that took long."""
        busy, other = self.work.lane(), self.work.lane()
        self.unit(busy, 10 * QUANTUM, isWrite=True)
        self.unit(other, 2 * QUANTUM, isWrite=True)
        busy.reserve(750)
        self.wait("rest", busy, isWrite=True, events=250)
        self.wait("few", other, isWrite=True)
        self.clock.rightNow += PUBLISHING
        self.assertEqual(self.turn(), ["few", "rest"])

    def test_cancelledCallBlocksNoOther(self) -> None:
        self.work.submitted(BLOCK)
        gone = self.work.lane()
        self.wait("gone", gone, isWrite=True, events=2 * BLOCK)
        self.wait("other", self.work.lane(), isWrite=True, events=LARGE + 1)
        self.assertEqual(self.turn(), [])
        gone.stop()
        self.work.settled(0)
        self.assertEqual(self.turn(), ["other"])

    def test_blockOfAFewIsBetweenTwoOfMany(self) -> None:
        """What was published while one of many was stored is in the next block, not behind two."""
        self.work.submitted(1000)
        for _ in range(3):
            self.work.submitted(1)
        # One of those few is in the block of the many.
        self.work.settled(1000)
        self.work.settled(1)
        self.assertFalse(self.work.lane().begin(True, events=1000))
        self.clock.turns += 1
        self.work.settled(1)
        self.assertTrue(self.work.lane().begin(True, events=1000))

    def test_fewWaitForNoOtherWorkThanTheirBlock(self) -> None:
        """But publishes of a few have their turn, since they are in the next block."""
        self.work.submitted(1)
        for isWrite in (False, True):
            self.wait(str(isWrite), self.work.lane(), isWrite=isWrite)
        self.assertEqual(self.turn(), ["True", "False"])
        self.wait("read", self.work.lane())
        self.assertEqual([self.turn(), self.turn()], [[], ["read"]])
        self.work.settled(1)
        self.wait("read", self.work.lane())
        self.assertEqual(self.turn(), ["read"])

    def test_nextEventsOfManyAreNotAFew(self) -> None:
        """A client with a hundred under way sends one when one was answered."""
        lane = self.work.lane()
        lane.begin(True, events=100)
        self.work.submitted(1)
        lane.end()
        self.work.submitted(1000)
        self.assertTrue(self.work.lane().begin(True, events=999))

    def test_manyEventsAreReadAsReadsWhileOthersPublishAFew(self) -> None:
        """To read a body of a thousand takes some milliseconds: a turn has one."""
        for name in "ab":
            self.wait(name, self.work.lane(), READS_AT_ONCE, isWrite=True, events=LARGE + 1)
        self.work.submitted(1)
        self.assertEqual([self.turn(), self.turn()], [[], ["a"]])
        self.assertEqual([self.turn(), self.turn()], [[], []])
        self.clock.rightNow += READS_AT_ONCE
        self.assertEqual([self.turn(), self.turn()], [[], ["b"]])

    def test_manyEventsHaveLessTimeWhileOthersPublishAFew(self) -> None:
        """With all that is no publish together; and the few find as much time as ever."""
        for isWrite in (True, False):
            self.clock.rightNow += PUBLISHING
            self.clock.turns += 1
            self.assertFalse(self.work.isShared())
            seconds = MANY_BESIDE_FEW + READS_WHILE_PUBLISHING
            self.assertTrue(self.unit(self.work.lane(), seconds, isWrite, FEW + 1))
            self.assertTrue(self.work.lane().begin(True, FEW + 1))
            self.work.lane().end()
            self.work.submitted(1)
            self.work.settled(1)
            self.assertTrue(self.work.isShared())
            self.assertFalse(self.work.lane().begin(True, FEW + 1))
            self.assertTrue(self.unit(self.work.lane(), 0, isWrite=True))
        self.assertFalse(self.work.lane().begin(isWrite=False))

    def test_whatFollowsALongUnitIsTakenForMany(self) -> None:
        """A connection that floods tells what it is with its first read."""
        lane, other = self.work.lane(), self.work.lane()
        self.work.submitted(1)
        for each, seconds in ((lane, 2 * QUANTUM), (other, QUANTUM / 2)):
            self.assertTrue(self.unit(each, seconds, isWrite=True))
        self.assertTrue(self.unit(self.work.lane(), 1.5 * MANY_BESIDE_FEW, True, FEW + 1))
        self.assertFalse(lane.begin(isWrite=True))
        self.assertTrue(self.unit(other, 0, isWrite=True))
        self.wait("long", lane, QUANTUM / 2, isWrite=True)
        self.wait("other", other, isWrite=True)
        self.assertEqual(self.turn(), ["other", "long"])
        self.assertTrue(self.unit(self.work.lane(), 1.5 * MANY_BESIDE_FEW, True, FEW + 1))
        self.assertTrue(self.unit(lane, 0, isWrite=True))

    def test_manyEventsWaitUntilAllConnectionsWereReadFrom(self) -> None:
        """Of those that have waited, too: a few of others may be among what was not read."""
        self.clock.isBehind = True
        self.work.lane().wait(lambda: self.done.append("many"), True, events=FEW + 1)
        self.assertEqual([self.turn(), self.turn()], [[], []])
        self.clock.isBehind = False
        self.assertEqual(self.turn(), ["many"])

    def test_fewEventsNeverKeepManyFromTheLedgers(self) -> None:
        for _ in range(CROWD_BESIDE_FEW):
            self.work.submitted(1)
        self.assertTrue(self.work.lane().begin(True, events=1000))

    def test_laneIsFreedByItsLastReferenceOnceItsCallIsMade(self) -> None:
        lane = self.work.lane()
        lane.wait(lambda: None, isWrite=False)
        waiting = lane.waiting
        assert waiting is not None
        self.assertIs(waiting.lane, lane)
        self.turn()
        self.assertIsNone(lane.waiting)

    def test_whoHasUsedLeastComesFirst(self) -> None:
        lanes = [self.work.lane() for _ in range(3)]
        for number, lane in enumerate(lanes):
            lane.used = 3.0 - number
            self.wait(str(number), lane)
        self.assertEqual(self.turn(), ["2", "1", "0"])

    def test_idleTimeIsNotSavedUp(self) -> None:
        busy = self.work.lane()
        busy.used = 5.0
        self.wait("busy", busy)
        self.turn()
        late = self.work.lane()
        late.wait(lambda: None, isWrite=False)
        self.assertEqual(late.used, 5.0)

    def test_smallWorkIsBeforeLargeThatWaits(self) -> None:
        """Many have large bodies; somebody comes with a small one while they are read."""
        for name in "abc":
            self.wait(name, self.work.lane(), READS_A_TURN, size=100_000)
        self.assertEqual(self.turn(), ["a"])
        self.wait("small", self.work.lane(), READS_A_TURN)
        self.assertEqual([self.turn() for _ in range(3)], [["small"], ["b"], ["c"]])

    def test_timeThatNobodyWaitedForIsNoDebt(self) -> None:
        """A client of old is not behind those that have just come."""
        old = self.work.lane()
        for _ in range(100):
            self.assertTrue(self.unit(old, QUANTUM / 2, isWrite=True))
            self.clock.turns += 1
        new = [self.work.lane() for _ in range(3)]
        self.assertTrue(self.unit(new[0], QUANTUM / 2, isWrite=True))
        for number, lane in enumerate(new):
            self.wait(str(number), lane, FIRST_WRITES_A_TURN, isWrite=True, size=1)
        self.wait("old", old, FIRST_WRITES_A_TURN, isWrite=True)
        self.assertEqual(self.turn(), ["old"])

    def test_whatDoesNotFitWaitsForTheNextTurn(self) -> None:
        for name in "abc":
            self.wait(name, self.work.lane(), READS_A_TURN)
        self.assertEqual([self.turn() for _ in range(4)], [["a"], ["b"], ["c"], []])

    def test_whoeverIsServedGoesOnlySoFarWhileOthersWait(self) -> None:
        greedy, other = self.work.lane(), self.work.lane()
        units = []

        def work() -> None:
            while self.unit(greedy, QUANTUM / 2):
                units.append(greedy)

        greedy.wait(work, isWrite=False)
        self.wait("other", other)
        self.turn()
        self.assertLessEqual(len(units), 4)

    def test_readsOfATurnShareItsTimeWithWhatHasWaited(self) -> None:
        self.wait("a", self.work.lane(), READS_A_TURN)
        self.turn()
        self.assertFalse(self.work.lane().begin(isWrite=False))

    def test_aClosedConnectionWaitsForNothing(self) -> None:
        lane = self.work.lane()
        self.wait("a", lane)
        lane.stop()
        self.assertEqual(self.turn(), [])

    def test_turnIsADeferred(self) -> None:
        lane = self.work.lane()
        first, second = lane.turn(False), lane.turn(False)
        second.cancel()
        self.failureResultOf(second, CancelledError)
        self.turn()
        self.successResultOf(first)

    def test_failureIsLoggedAndOthersGoOn(self) -> None:
        self.work.lane().wait(lambda: 1 / 0, isWrite=False)
        self.wait("a", self.work.lane())
        self.assertEqual(self.turn(), ["a"])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_clockThatIsSetBackGivesNoTimeBack(self) -> None:
        lane = self.work.lane()
        self.unit(lane, -5)
        self.assertEqual(lane.used, 0)

    def test_callsForManyTakeSeveralTurns(self) -> None:
        """One that fails does not keep the others from being made."""
        lane = self.work.lane()

        def call(name: str) -> None:
            self.done.append(name)
            self.clock.rightNow += READS_A_TURN
            if name == "b":
                raise ZeroDivisionError

        made = self.work.makeAll(partial(call, name) for name in "abc")
        self.assertEqual(self.done, ["a"])
        self.assertTrue(lane.begin(isWrite=True))
        self.assertEqual([self.turn() for _ in range(3)], [["b"], ["c"], []])
        self.successResultOf(made)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_callsForManyAreTakenWhenTheyAreMade(self) -> None:
        """Those that are not needed any more may be left out until then."""
        left = {"a", "b"}
        self.work.lane().begin(isWrite=False)
        self.clock.rightNow += READS_A_TURN
        made = self.work.makeAll(partial(self.done.append, name) for name in "ab" if name in left)
        left.remove("a")
        self.assertEqual(self.turn(), ["b"])
        self.successResultOf(made)

    def test_anyReactorHasTurns(self) -> None:
        """One that does not count them has a delayed call for each with work."""
        clock: Any = Clock()
        work = WorkBudget(clock)
        lane = work.lane()
        lane.begin(isWrite=False)
        clock.rightNow += READS_AT_ONCE
        lane.end()
        self.assertFalse(lane.begin(isWrite=False))
        clock.advance(0)
        self.assertTrue(lane.begin(isWrite=False))
        self.assertEqual(clock.getDelayedCalls(), [])

    def test_stopLeavesNothingWithTheReactor(self) -> None:
        self.wait("a", self.work.lane())
        self.work.stop()
        self.assertEqual((self.turn(), self.clock.getDelayedCalls()), ([], []))


class TimedTests(WorkTestCase):
    """
    L{TimedWork}.
    """

    def later(self, name: str) -> TimedWork:
        """Work of 5 ms that is due in a second."""

        def work() -> None:
            self.clock.rightNow += 0.005
            self.done.append(name)

        return TimedWork(self.work, 1.0, work)

    def test_workOfOneMomentTakesSeveralTurns(self) -> None:
        """Each is done once, and no turn takes longer than the budget and one of them."""
        for number in range(50):
            self.later(str(number))
        self.clock.turn()
        self.assertEqual(self.done, [])
        self.clock.rightNow += 1.0
        for _ in range(50):
            before, begun = len(self.done), self.clock.seconds()
            self.clock.turn()
            self.assertLessEqual(self.clock.seconds() - begun, READS_A_TURN + 0.005 + 1e-9)
            if len(self.done) == before:
                break
        self.assertEqual(sorted(self.done, key=int), [str(number) for number in range(50)])

    def test_workThatHasToWaitIsPutOffInSeveralTurns(self) -> None:
        """To put off a hundred thousand took a second of one turn."""
        for number in range(50):
            self.later(str(number))
        self.clock.rightNow += 1.0
        self.work.used = [1.0, 1.0]
        ticks = itertools.count(self.clock.rightNow, BEGINNING / 10)
        self.patch(self.clock, "seconds", lambda: next(ticks))
        self.clock.turn()
        self.assertTrue(0 < sum(map(len, self.work.queues)) <= 10)
        self.assertEqual(self.done, [])

    def test_workThatFailsIsLoggedAndKeepsNothingElseBack(self) -> None:
        def fail() -> None:
            raise RuntimeError("it has failed")

        TimedWork(self.work, 1.0, fail)
        self.later("next")
        self.clock.rightNow += 1.0
        for _ in range(3):
            self.clock.turn()
        self.assertEqual(self.done, ["next"])
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)

    def test_cancelledWorkTakesNoRoom(self) -> None:
        """A client that comes back a thousand times before its session ends."""
        kept = self.later("kept")
        for _ in range(1000):
            self.later("cancelled").cancel()
        self.assertLess(len(self.work.due._entries), 10)
        kept.cancel()
        self.assertEqual((self.work.due._entries, self.clock.getDelayedCalls()), ([], []))

    def test_cancelledWorkIsNotDone(self) -> None:
        """Before it is due, while it waits for a turn, and after it was done."""
        early, late, done = self.later("early"), self.later("late"), self.later("done")
        early.cancel()
        self.clock.rightNow += 1.0
        self.work.used = [1.0, 1.0]
        self.clock.turn()
        self.assertEqual(self.done, [])
        late.cancel()
        for _ in range(3):
            self.clock.turn()
        self.assertEqual(self.done, ["done"])
        done.cancel()


class OutputTests(SynchronousTestCase):
    """
    L{OutputBudget} and L{Unsent}, over transports that say how much they keep.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.budget = OutputBudget(self.clock, 400)
        self.patch(budgets, "unsentOf", lambda transport: transport.kept)
        self.calls: list[str] = []

    def connect(self, owner: str) -> tuple[Any, Any]:
        """A connection: its transport and its bytes."""
        transport: Any = StringTransport()
        transport.kept = 0
        call: Callable[[str], Any] = lambda name: partial(self.calls.append, f"{owner} {name}")  # noqa: E731
        return transport, self.budget.unsent(owner, transport, call("pauses"), call("resumes"))

    def write(self, transport: Any, unsent: Any, size: int) -> None:
        transport.kept += size
        unsent.written()

    def test_keptBytesCountUntilTheyAreSent(self) -> None:
        transport, unsent = self.connect("a")
        self.write(transport, unsent, 50)
        self.assertEqual((self.budget.used, unsent.size), (50, 50))
        transport.kept = 10
        self.assertEqual(self.budget.measure(), 10)
        unsent.close()
        self.assertEqual(self.budget.used, 0)

    def test_aLookAsksSomeOfMany(self) -> None:
        """All have their turn, those that are paused, too."""
        self.patch(budgets, "LOOKED_AT", 2)
        connections = [self.connect("a") for _ in range(5)]
        for transport, unsent in connections:
            self.write(transport, unsent, 100)
            transport.kept = 1
        self.assertEqual(self.calls.count("a pauses"), 5)
        self.assertEqual([self.budget.measure() for _ in range(3)], [302, 104, 5])
        for count in (2, 4, 5):
            self.clock.advance(LOOK_EVERY)
            self.assertEqual(self.calls.count("a resumes"), count)

    def test_anOwnerHasAShare(self) -> None:
        self.assertEqual(self.budget.own * SHARE, self.budget.total)
        transport, unsent = self.connect("a")
        self.write(transport, unsent, 100)
        _, another = self.connect("a")
        self.assertRaises(Overloaded, another.check)
        _, other = self.connect("b")
        other.check()

    def test_allTogetherHaveABound(self) -> None:
        for owner in "abcd":
            self.write(*self.connect(owner), 100)
        _, other = self.connect("e")
        self.assertRaises(Overloaded, other.check)

    def test_smallAnswersAreRefusedOnlyWhereOthersWait(self) -> None:
        transport, unsent = self.connect("a")
        self.write(transport, unsent, 100)
        self.assertRaises(Overloaded, unsent.check, isSmall=True)
        _, another = self.connect("a")
        another.check(isSmall=True)

    def test_whatWasReadMeanwhileIsFoundBeforeARefusal(self) -> None:
        transport, unsent = self.connect("a")
        self.write(transport, unsent, 100)
        transport.kept = 0
        _, another = self.connect("a")
        another.check()

    def test_allAreAskedNowAndThenAlone(self) -> None:
        """The look at all connections takes time with each of them."""
        transport, unsent = self.connect("a")
        self.write(transport, unsent, 100)
        _, another = self.connect("a")
        self.assertRaises(Overloaded, another.check)
        transport.kept = 0
        self.assertRaises(Overloaded, another.check)
        self.clock.advance(LOOK_EVERY)
        another.check()

    def test_overTheBudgetAConnectionIsPausedUntilItsClientReads(self) -> None:
        transport, unsent = self.connect("a")
        self.write(transport, unsent, 99)
        self.assertEqual(self.calls, [])
        self.write(transport, unsent, 1)
        self.assertEqual(self.calls, ["a pauses"])
        transport.kept = 0
        self.clock.advance(LOOK_EVERY)
        self.assertEqual(self.calls, ["a pauses", "a resumes"])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_roomThatOthersMakeResumesAConnection(self) -> None:
        one, other = self.connect("a"), self.connect("a")
        self.write(*one, 60)
        self.write(*other, 60)
        self.assertEqual(self.calls, ["a pauses"])
        one[1].close()
        self.clock.advance(LOOK_EVERY)
        self.assertEqual(self.calls, ["a pauses", "a resumes"])

    def test_fullTransportAndBudgetArePausedForOnce(self) -> None:
        transport, unsent = self.connect("a")
        transport.kept = 100
        unsent.pauseProducing()
        unsent.written()
        self.assertEqual(self.calls, ["a pauses"])
        transport.kept = 0
        unsent.resumeProducing()
        self.assertEqual(self.calls, ["a pauses"])
        self.clock.advance(LOOK_EVERY)
        self.assertEqual(self.calls, ["a pauses", "a resumes"])

    def test_heldBytesCountUntilTheyAreReleased(self) -> None:
        transport, unsent = self.connect("a")
        unsent.hold(30)
        self.assertEqual((unsent.held, self.budget.used, unsent.room), (30, 30, 70))
        self.write(transport, unsent, 20)
        self.assertEqual(self.budget.used, 50)
        unsent.release()
        self.assertEqual((unsent.held, self.budget.used), (0, 20))

    def test_bytesMoveToTheOwnerThatLogsIn(self) -> None:
        transport, unsent = self.connect("address")
        self.write(transport, unsent, 100)
        unsent.belongTo("account")
        self.assertFalse(self.budget.isOver("address"))
        self.assertTrue(self.budget.isOver("account"))
        unsent.close()
        self.assertEqual(self.budget._owners, {})

    def test_stopLeavesNothingWithTheReactor(self) -> None:
        self.write(*self.connect("a"), 100)
        self.budget.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])


class ByteTests(SynchronousTestCase):
    """
    L{ByteBudget}.
    """

    def setUp(self) -> None:
        self.budget = ByteBudget(100)

    def test_anOwnerHasAHalf(self) -> None:
        """However many connections it has; another one finds room."""
        first, second, other = (self.budget.count(owner) for owner in ("a", "a", "b"))
        self.assertTrue(first.set(30))
        self.assertFalse(second.set(30))
        self.assertTrue(other.set(40))
        self.assertEqual((first.isFull, second.isFull, other.isFull), (True, True, True))
        second.close()
        self.assertEqual((first.isFull, other.isFull), (False, False))
        self.assertEqual((self.budget.used, self.budget.refused), (70, 1))

    def test_smallChangesAreNotTold(self) -> None:
        """They come with larger ones, and none is forgotten."""
        budget = ByteBudget(1000, grain=10)
        count = budget.count("a")
        told = []
        for size in (5, 5, 9, 1, -9, -9, -2):
            count.add(size)
            told.append(budget.used)
        self.assertEqual(told, [0, 10, 10, 20, 20, 2, 0])

    def test_fewerBytesAreNeverRefused(self) -> None:
        count = self.budget.count("a")
        self.assertFalse(count.set(200))
        self.assertTrue(count.set(150))

    def test_oneWithoutBytesIsNeverFull(self) -> None:
        """Each connection gets on, if slowly."""
        self.budget.count("a").set(200)
        self.assertFalse(self.budget.count("b").isFull)

    def test_aLogInChangesTheOwner(self) -> None:
        count = self.budget.count("address")
        count.set(50)
        self.assertFalse(self.budget.count("address").set(1))
        count.belongTo("account")
        self.assertTrue(self.budget.count("address").set(1))
        self.assertEqual(self.budget.room("account"), 0)
        count.close()
        self.assertEqual(self.budget.room("account"), 50)


class StrangersTests(SynchronousTestCase):
    """
    L{Strangers}.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.strangers = Strangers(self.clock, total=4, own=3)
        self.aborted: list[str] = []

    def admit(self, lane: str, name: str = "", weight: int = 1) -> Stranger | None:
        return self.strangers.admit(lane, partial(self.aborted.append, name), weight)

    def test_anAddressHasABound(self) -> None:
        for _ in range(3):
            self.assertIsNotNone(self.admit("a"))
        self.assertIsNone(self.admit("a"))
        self.assertIsNotNone(self.admit("b"))
        self.assertEqual((len(self.strangers), self.strangers.refused), (4, 1))

    def test_theOldestOfTheGreediestHasToGo(self) -> None:
        self.admit("b", "b1")
        for name in ("a1", "a2", "a3"):
            self.admit("a", name)
        self.assertIsNotNone(self.admit("c", "c1"))
        self.assertEqual((self.aborted, len(self.strangers)), (["a1"], 4))

    def test_whoIsKnownGivesItsPlaceBack(self) -> None:
        for _ in range(10):
            stranger = self.admit("a")
            assert stranger is not None
            stranger.leave()
            stranger.leave()
        self.assertEqual(len(self.strangers), 0)
        self.clock.advance(LOGIN_TIMEOUT)
        self.assertEqual((self.aborted, self.clock.getDelayedCalls()), ([], []))

    def test_whoStaysUnknownIsClosedInTime(self) -> None:
        self.admit("a", "first")
        self.clock.advance(1)
        self.admit("a", "second")
        self.clock.advance(LOGIN_TIMEOUT - 1)
        self.assertEqual(self.aborted, ["first"])
        self.clock.advance(1)
        self.assertEqual(self.aborted, ["first", "second"])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_heavyOnesCountMore(self) -> None:
        self.admit("a", "a1")
        self.admit("b", "b1", weight=3)
        self.assertIsNone(self.admit("b", weight=3))
        self.admit("c", "c1", weight=2)
        self.assertEqual(self.aborted, ["b1"])
        self.admit("c", "c2")
        self.assertEqual(self.aborted, ["b1"])

    def test_clientsOfAProxyShareTheBoundOfAll(self) -> None:
        for _ in range(4):
            self.assertIsNotNone(self.admit(""))

    def test_stopLeavesNothingWithTheReactor(self) -> None:
        self.admit("a")
        self.strangers.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])
