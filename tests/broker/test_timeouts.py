"""
Tests of L{svcbroker.broker.TimeoutQueue}.
"""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.broker import TimeoutQueue
from svcbroker.errors import LedgerUnavailable, TransactionTimeout


class TimeoutQueueTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.timeouts = TimeoutQueue(self.clock, 10.0)

    def never(self) -> Deferred[None]:
        """Wait for something that does not come."""
        pending: Deferred[None] = Deferred()
        return self.timeouts.wait(pending)

    def test_answerInTime(self) -> None:
        pending: Deferred[str] = Deferred()
        waiter = self.timeouts.wait(pending)
        self.assertNoResult(waiter)
        pending.callback("done")
        self.assertEqual(self.successResultOf(waiter), "done")
        self.assertEqual(len(self.timeouts), 0)

    def test_failureInTime(self) -> None:
        pending: Deferred[str] = Deferred()
        waiter = self.timeouts.wait(pending)
        pending.errback(LedgerUnavailable())
        self.failureResultOf(waiter, LedgerUnavailable)

    def test_answerIsThere(self) -> None:
        """What is there already costs no timer."""
        self.assertEqual(self.successResultOf(self.timeouts.wait(succeed(1))), 1)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_firedButStillWaiting(self) -> None:
        """A Deferred that has fired with another one is waited for too."""
        inner: Deferred[int] = Deferred()
        outer: Deferred[int] = succeed(0)
        outer.addCallback(lambda _: inner)
        waiter = self.timeouts.wait(outer)
        self.clock.advance(10)
        self.failureResultOf(waiter, TransactionTimeout)

    def test_eachTimesOutInItsTime(self) -> None:
        """One timer serves all, and each waits exactly as long as it may."""
        first = self.never()
        self.clock.advance(4)
        second = self.never()
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        self.clock.advance(6)
        self.failureResultOf(first, TransactionTimeout)
        self.assertNoResult(second)
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        self.clock.advance(3.9)
        self.assertNoResult(second)
        self.clock.advance(0.2)
        self.failureResultOf(second, TransactionTimeout)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_waitFromWithinTimeout(self) -> None:
        """Who waits again when told of the time-out does not disturb those behind."""
        again: list[Deferred[None]] = []
        first = self.never()
        first.addErrback(lambda _: again.append(self.never()))
        self.clock.advance(1)
        second = self.never()
        self.clock.advance(9)
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        self.clock.advance(1)
        self.failureResultOf(second, TransactionTimeout)
        self.assertNoResult(again[0])
        self.clock.advance(9)
        self.failureResultOf(again[0], TransactionTimeout)

    def test_lateAnswerIsDropped(self) -> None:
        pending: Deferred[str] = Deferred()
        waiter = self.timeouts.wait(pending)
        self.clock.advance(10)
        self.failureResultOf(waiter, TransactionTimeout)
        pending.callback("late")
        self.assertIsNone(self.successResultOf(pending))

    def test_lateFailureIsLogged(self) -> None:
        """An unexpected failure is not lost because nobody waits; an expected one is no news."""
        unexpected: Deferred[str] = Deferred()
        expected: Deferred[str] = Deferred()
        for pending in (unexpected, expected):
            self.timeouts.wait(pending).addErrback(lambda _: None)
        self.clock.advance(10)
        unexpected.errback(ZeroDivisionError())
        expected.errback(LedgerUnavailable())
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_cancelLeavesLedgerAlone(self) -> None:
        cancelled: list[Deferred[str]] = []
        pending: Deferred[str] = Deferred(cancelled.append)
        waiter = self.timeouts.wait(pending)
        waiter.cancel()
        self.failureResultOf(waiter, CancelledError)
        self.assertEqual(cancelled, [])
        self.assertEqual(len(self.timeouts), 0)
        pending.callback("done")

    def test_manyAnsweredAreForgotten(self) -> None:
        """Those who were answered take no room behind one who was not."""
        stuck = self.never()
        for _ in range(100):
            pending: Deferred[None] = Deferred()
            self.timeouts.wait(pending)
            pending.callback(None)
        self.assertEqual(len(self.timeouts), 1)
        self.clock.advance(10)
        self.failureResultOf(stuck, TransactionTimeout)

    def test_stopCancelsTheTimer(self) -> None:
        pending: Deferred[None] = Deferred()
        self.timeouts.wait(pending)
        pending.callback(None)
        self.timeouts.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.timeouts.stop()
