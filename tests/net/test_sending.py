"""
Tests of L{svcbroker.net.sending}.
"""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.net import sending
from svcbroker.net.sending import CLOSE_AT_STOP, ClosingAtStop


class ClosingAtStopTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.unsent = 0
        self.aborted = 0
        self.patch(sending, "unsentOf", lambda transport: self.unsent)
        self.transport = StringTransport()
        self.patch(self.transport, "abortConnection", self.abort)

    def abort(self) -> None:
        self.aborted += 1

    def test_clientThatDoesNotCloseIsAborted(self) -> None:
        ClosingAtStop(self.transport, self.clock)
        self.clock.advance(CLOSE_AT_STOP - 0.1)
        self.assertEqual(self.aborted, 0)
        self.clock.advance(0.1)
        self.assertEqual(self.aborted, 1)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_connectionThatWasClosingIsAbortedAtOnce(self) -> None:
        ClosingAtStop(self.transport, self.clock, wasClosing=True)
        self.assertEqual(self.aborted, 0)
        self.clock.advance(0)
        self.assertEqual(self.aborted, 1)

    def test_clientThatReadsIsWaitedFor(self) -> None:
        """Until it stops to read."""
        for wasClosing in (False, True):
            self.aborted = 0
            ClosingAtStop(self.transport, self.clock, wasClosing=wasClosing)
            for self.unsent in (3000, 2000, 1000):
                self.clock.advance(CLOSE_AT_STOP)
                self.assertEqual(self.aborted, 0)
            self.clock.advance(CLOSE_AT_STOP)
            self.assertEqual(self.aborted, 1)

    def test_closedConnectionIsNotAborted(self) -> None:
        for _ in range(2):
            closing = ClosingAtStop(self.transport, self.clock)
            closing.cancel()
            closing.cancel()
        self.clock.advance(CLOSE_AT_STOP)
        self.assertEqual(self.aborted, 0)
