"""
Tests of L{svcbroker.net.transports}.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable

from twisted.internet.abstract import FileDescriptor
from twisted.internet.defer import CancelledError
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.net import transports
from svcbroker.net.budgets import READS_A_TURN, READS_AT_ONCE, Budgets, WorkBudget
from svcbroker.net.transports import CLOSE_AT_STOP, ClosingAtStop, OpenConnections, hasEnded, isLost

from .countingclock import CountingClock


class ClosingAtStopTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.work = Budgets.of(self.clock).work
        self.unsent = 0
        self.aborted = 0
        self.patch(transports, "unsentOf", lambda transport: self.unsent)
        self.transport = StringTransport()
        self.patch(self.transport, "abortConnection", self.abort)

    def abort(self) -> None:
        self.aborted += 1

    def test_clientThatDoesNotCloseIsAborted(self) -> None:
        ClosingAtStop(self.transport, self.work.after)
        self.clock.advance(CLOSE_AT_STOP - 0.1)
        self.assertEqual(self.aborted, 0)
        self.clock.advance(0.1)
        self.assertEqual(self.aborted, 1)

    def test_connectionThatWasClosingIsAbortedAtOnce(self) -> None:
        ClosingAtStop(self.transport, self.work.after, wasClosing=True)
        self.assertEqual(self.aborted, 0)
        self.clock.advance(0)
        self.assertEqual(self.aborted, 1)

    def test_clientThatReadsIsWaitedFor(self) -> None:
        """Until it stops to read."""
        for wasClosing in (False, True):
            self.aborted = 0
            ClosingAtStop(self.transport, self.work.after, wasClosing=wasClosing)
            for self.unsent in (3000, 2000, 1000):
                self.clock.advance(CLOSE_AT_STOP)
                self.assertEqual(self.aborted, 0)
            self.clock.advance(CLOSE_AT_STOP)
            self.assertEqual(self.aborted, 1)

    def test_manyOfOneMomentAreAbortedInSeveralTurns(self) -> None:
        clock = CountingClock()
        work = Budgets.of(clock).work

        def abort() -> None:
            self.aborted += 1
            clock.rightNow += READS_A_TURN

        self.patch(self.transport, "abortConnection", abort)
        for _ in range(3):
            ClosingAtStop(self.transport, work.after)
        clock.rightNow += CLOSE_AT_STOP
        for number in range(1, 4):
            clock.turn()
            self.assertEqual(self.aborted, number)

    def test_closedConnectionIsNotAborted(self) -> None:
        for _ in range(2):
            closing = ClosingAtStop(self.transport, self.work.after)
            closing.cancel()
            closing.cancel()
        self.clock.advance(CLOSE_AT_STOP)
        self.assertEqual(self.aborted, 0)


class OpenConnectionsTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = CountingClock()
        self.connections: OpenConnections[str] = OpenConnections(WorkBudget(self.clock).makeAll)
        self.add("a", "b")
        self.closed: list[str] = []

    def add(self, *connections: str) -> None:
        for each in connections:
            self.connections.add(each)

    def test_drainWaitsForTheLastConnection(self) -> None:
        self.assertFalse(self.connections.isDraining)
        drained = self.connections.drain(self.closed.append)
        self.assertTrue(self.connections.isDraining)
        self.assertEqual(self.closed, ["a", "b"])
        self.connections.discard("a")
        self.assertNoResult(drained)
        self.connections.discard("b")
        self.assertIsNone(self.successResultOf(drained))
        self.connections.discard("b")

    def test_manyConnectionsAreClosedInTurns(self) -> None:
        """Each may have a thousand subscriptions."""
        self.add("c", "d", "e")
        self.clock.isBehind = True

        def close(each: str) -> None:
            self.clock.rightNow += READS_AT_ONCE
            self.connections.discard(each)

        drained = self.connections.drain(close)
        for left in (5, 4, 3, 2, 1):
            self.assertEqual(len(self.connections), left)
            self.assertNoResult(drained)
            self.clock.turn()
        self.successResultOf(drained)

    def test_drainWithoutConnectionsIsDoneAtOnce(self) -> None:
        self.connections.clear()
        self.successResultOf(self.connections.drain(self.closed.append))
        self.assertTrue(self.connections.isDraining)

    def test_connectionThatAnotherClosedIsNotClosedAgain(self) -> None:
        def close(each: str) -> None:
            self.closed.append(each)
            self.connections.discard("a")
            self.connections.discard("b")

        self.successResultOf(self.connections.drain(close))
        self.assertEqual(self.closed, ["a"])

    def test_cancelledDrainAborts(self) -> None:
        drained = self.connections.drain(lambda each: None, self.closed.append)
        drained.cancel()
        self.failureResultOf(drained, CancelledError)
        self.assertEqual(sorted(self.closed), ["a", "b"])
        self.connections.clear()
        self.connections.discard("a")

    def test_connectionsMayCloseBetweenTurns(self) -> None:
        found = self.connections.inTurns()
        first = next(found)
        self.connections.clear()
        self.connections.add("c")
        self.assertEqual(first, "a")
        self.assertEqual(list(found), [])


class EndedTests(SynchronousTestCase):
    def setUp(self) -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listening.close)
        self.client = socket.create_connection(listening.getsockname())
        self.addCleanup(self.client.close)
        accepted, _ = listening.accept()
        self.addCleanup(accepted.close)
        self.transport = FileDescriptor(MemoryReactorClock())
        self.patch(self.transport, "fileno", accepted.fileno)

    def test_connectionWhoseClientIsThereHasNotEnded(self) -> None:
        self.client.send(b"x")
        self.assertFalse(hasEnded(self.transport))
        self.assertFalse(isLost(self.transport))

    def test_closedConnectionHasEnded(self) -> None:
        """Behind what was not read, too, and as the transport of TLS knows it."""
        self.client.send(b"x")
        self.client.close()
        wrapper = StringTransport()
        wrapper.transport = self.transport  # type: ignore[attr-defined]
        for each in (self.transport, wrapper):
            self.assertTrue(_soon(hasEnded, each))
            self.assertFalse(isLost(each))

    def test_resetConnectionHasEnded(self) -> None:
        self.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.client.close()
        self.assertTrue(_soon(isLost, self.transport))
        self.assertTrue(hasEnded(self.transport))

    def test_ofOtherTransportsItIsNotKnown(self) -> None:
        self.assertFalse(hasEnded(StringTransport()))
        self.assertFalse(isLost(StringTransport()))


def _soon(question: Callable[[object], bool], transport: object) -> bool:
    """Whether it is so once the kernel has told: at once on the loopback, mostly."""
    return any(question(transport) for _ in range(100_000))
