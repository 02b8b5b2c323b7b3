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

from svcbroker._threads import LedgerThread


@define
class StillReactor:
    """A reactor that does not run yet."""

    running: bool = False
    called: list[Any] = field(factory=list)


class BeforeReactorTests(SynchronousTestCase):
    """
    Before the reactor runs.
    """

    def setUp(self) -> None:
        self.thread = LedgerThread(StillReactor(), "test")
        self.addCleanup(self.thread.stop)

    def test_waits(self) -> None:
        """A call has its result at once, though it ran in the thread."""
        thread = self.successResultOf(self.thread.run(current_thread))
        self.assertIsNot(thread, current_thread())
        self.assertTrue(thread.daemon)
        self.assertIs(self.successResultOf(self.thread.run(current_thread)), thread)

    def test_fails(self) -> None:
        """What the call raises is the Deferred's failure."""
        self.failureResultOf(self.thread.run(divmod, 1, 0), ZeroDivisionError)


class RunningTests(TestCase):
    """
    While the reactor runs.
    """

    async def test_order(self) -> None:
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
        self.assertEqual(len({where for _, where in seen}), 1)
        self.assertIsNot(seen[0][1], current_thread())
