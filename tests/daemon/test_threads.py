"""
Tests for the threads that ledgers do their disk work in.
"""

from __future__ import annotations

from threading import current_thread
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import SynchronousTestCase, TestCase

from svcbroker.daemon.dependencies import AWAY, BRIEF, LedgerThread


@define
class StillReactor:
    """A reactor that does not run yet."""

    running: bool = False
    called: list[Any] = field(factory=list)
    time: float = 1e9

    def seconds(self) -> float:
        return self.time


class BeforeReactorTests(SynchronousTestCase):
    """
    Before the reactor runs.
    """

    def setUp(self) -> None:
        self.thread = LedgerThread(StillReactor(), "test")
        self.addCleanup(self.thread.stop)

    def test_resultIsThereAtOnce(self) -> None:
        """A call has its result at once, though it ran in the thread."""
        thread = self.successResultOf(self.thread.run(current_thread))
        self.assertIsNot(thread, current_thread())
        self.assertTrue(thread.daemon)
        self.assertIs(self.successResultOf(self.thread.run(current_thread)), thread)

    def test_exceptionFailsDeferred(self) -> None:
        """What the call raises is the Deferred's failure."""
        self.failureResultOf(self.thread.run(divmod, 1, 0), ZeroDivisionError)


class BriefTests(SynchronousTestCase):
    """
    Where a call runs that is brief while the disk is in good health.
    """

    def setUp(self) -> None:
        self.reactor = StillReactor(running=True)
        self.thread = LedgerThread(self.reactor, "test")
        self.addCleanup(self.thread.stop)
        self.inThread: list[Deferred[None]] = []
        self.patch(self.thread, "run", self.run_)

    def run_(self, *call: Any) -> Deferred[None]:
        self.inThread.append(Deferred())
        return self.inThread[-1]

    def takes(self, *times: float) -> list[bool]:
        """Make calls that take some time; whether each ran at once."""
        return [self.thread.runBriefly(self.wait, time).called for time in times]

    def wait(self, time: float) -> None:
        self.reactor.time += time

    def test_briefCallRunsAtOnce(self) -> None:
        """It runs at once, and what it raises is the Deferred's failure."""
        self.assertIs(
            self.successResultOf(self.thread.runBriefly(current_thread)), current_thread()
        )
        self.failureResultOf(self.thread.runBriefly(divmod, 1, 0), ZeroDivisionError)
        self.assertEqual(self.takes(*[BRIEF * 0.9] * 100), [True] * 100)

    def test_beforeReactorRunsInThread(self) -> None:
        """Before the reactor runs, all is done as any other disk work."""
        self.reactor.running = False
        self.assertEqual(self.takes(0), [False])

    def test_slowDiskMovesCallsToThread(self) -> None:
        """After calls that were slow, the next ones go to the thread, for as long as it pays."""
        self.assertEqual(self.takes(1, 0), [True, False])
        self.wait(AWAY - 0.1)
        self.assertEqual(self.takes(0), [False])
        self.wait(0.2)
        self.assertEqual(self.takes(0, 0, 1, 0), [True, True, True, False])

    def test_oneSlowCallChangesNothing(self) -> None:
        """One call that takes some times longer, as a checkpoint does, changes nothing."""
        self.assertEqual(self.takes(*[BRIEF / 10] * 9, BRIEF * 10, 0), [True] * 11)

    def test_slowDiskCostsFewPercent(self) -> None:
        """A few hundredths of the time are lost to a disk that is always slow."""
        began, lost = self.reactor.time, 0.0
        while self.reactor.time < began + 1000:
            lost += sum(self.takes(0.015)) * 0.015
            self.wait(0.02)
        self.assertTrue(0 < lost < 40, lost)


class RunningTests(TestCase):
    """
    While the reactor runs.
    """

    async def test_callsRunInOrder(self) -> None:
        """Calls run one at a time, in the order in which they were given, in one thread."""
        from twisted.internet import reactor

        # Trial starts the reactor when a test waits for the first time.
        await deferLater(reactor, 0)
        thread = LedgerThread(reactor, "test")
        self.addCleanup(thread.stop)
        seen: list[tuple[int, Any]] = []
        calls: list[Deferred[None]] = [
            thread.run(lambda number: seen.append((number, current_thread())), number)
            for number in range(100)
        ]
        self.assertFalse(calls[-1].called)
        for call in calls:
            await call
        self.assertEqual([number for number, _ in seen], list(range(100)))
        # What is brief does not overtake, and runs at once where there is nothing before it.
        first, second = thread.run(seen.append, (100, None)), thread.runBriefly(len, seen)
        self.assertFalse(second.called)
        self.assertEqual(await second, 101)
        await first
        self.assertTrue(thread.runBriefly(len, seen).called)
        seen.pop()
        self.assertEqual(len({where for _, where in seen}), 1)
        self.assertIsNot(seen[0][1], current_thread())
