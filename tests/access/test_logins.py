"""
The queue of log-ins, and addresses whose answers slow down.
"""

from __future__ import annotations

from typing import Any

from twisted.cred.credentials import UsernamePassword
from twisted.cred.error import UnauthorizedLogin
from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.access import Access
from svcbroker.access._logins import LoginLimits, LoginQueue
from svcbroker.errors import NotAuthenticated, Overloaded
from svcbroker.interfaces import ClientCertificate

from .support import FakeAuthenticator, account


class QueueTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.limits = LoginLimits(waiting=6, waitingOfOne=4, waitingOfSlow=2, addresses=3)
        self.queue = LoginQueue(self.clock, self.limits)
        self.running: list[tuple[str, Deferred[Any]]] = []

    def check(self, address: str) -> Deferred[Any]:
        """A check that runs until a test ends it."""

        def run() -> Deferred[Any]:
            self.running.append((address, Deferred()))
            return self.running[-1][1]

        return Deferred.fromCoroutine(self.queue.check(address, run))

    def end(self) -> str:
        """End the check that runs longest."""
        address, running = self.running.pop(0)
        running.callback(address)
        self.clock.advance(0)
        return address

    def refused(self, address: str) -> Deferred[Any]:
        """A check that fails at once."""

        def run() -> Deferred[Any]:
            return fail(UnauthorizedLogin())

        return Deferred.fromCoroutine(self.queue.check(address, run))

    def failTimes(self, address: str, count: int) -> None:
        for _ in range(count):
            answer = self.refused(address)
            self.clock.advance(self.limits.maxDelay)
            self.failureResultOf(answer, UnauthorizedLogin)

    def delayOf(self, address: str) -> float:
        """The time that an address waits before it is checked."""
        answer: Deferred[Any]
        answer = Deferred.fromCoroutine(self.queue.check(address, lambda: succeed(None)))
        delay = 0.0
        while not answer.called:
            self.clock.advance(0.5)
            delay += 0.5
        return delay

    def test_oneAddressHasOneCheck(self) -> None:
        for _ in range(4):
            self.check("10.0.0.1")
        self.assertEqual(len(self.running), 1)
        self.check("10.0.0.2")
        self.assertEqual(len(self.running), 2)

    def test_addressesTakeTurns(self) -> None:
        for address in ("10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.3"):
            self.check(address)
        order = [self.end() for _ in range(5)]
        self.assertLessEqual(order.index("10.0.0.3"), 2)

    def test_waitingLoginsAreCheckedInLaterTurns(self) -> None:
        """All that wait may be refused at once."""
        self.check("10.0.0.1")
        answers = [self.refused("10.0.0.1") for _ in range(3)]
        self.running[0][1].callback(None)
        for answer in answers:
            self.assertNoResult(answer)
        self.clock.advance(0)
        for answer in answers:
            self.failureResultOf(answer, UnauthorizedLogin)

    def test_refusalsOfALongQueueLeaveItsSlotFree(self) -> None:
        self.queue = LoginQueue(self.clock)
        self.check("10.0.0.1")
        answers = []
        for _ in range(LoginLimits().waitingOfOne - 1):
            answers.append(self.refused("10.0.0.1"))
            self.clock.advance(0)
        self.end()
        for answer in answers:
            self.failureResultOf(answer, UnauthorizedLogin)
        self.clock.advance(LoginLimits().memory + 1)
        self.successResultOf(
            Deferred.fromCoroutine(self.queue.check("10.0.0.1", lambda: succeed(None)))
        )

    def test_anAddressHasABoundOfItsOwn(self) -> None:
        for _ in range(4):
            self.check("2001:db8::1")
        self.failureResultOf(self.check("2001:db8::2"), Overloaded)
        self.assertNoResult(self.check("2001:db8:1::2"))

    def test_allAddressesShareABound(self) -> None:
        for number in range(6):
            self.check(f"10.0.0.{number}")
        self.failureResultOf(self.check("10.0.0.7"), Overloaded)
        self.end()
        self.assertNoResult(self.check("10.0.0.7"))

    def test_leavingTheQueueMakesRoom(self) -> None:
        answers = [self.check("10.0.0.1") for _ in range(4)]
        answers[2].cancel()
        self.failureResultOf(answers[2], CancelledError)
        self.assertNoResult(self.check("10.0.0.1"))

    def test_aCheckThatRunsKeepsItsSlotWhenItsClientLeaves(self) -> None:
        first = self.check("10.0.0.1")
        first.cancel()
        self.failureResultOf(first, CancelledError)
        self.check("10.0.0.1")
        self.assertEqual(len(self.running), 1)
        self.end()
        self.assertEqual(len(self.running), 1)

    def test_answersSlowDownAfterFiveFailures(self) -> None:
        delays = []
        for _ in range(10):
            delays.append(self.delayOf("10.0.0.1"))
            self.failTimes("10.0.0.1", 1)
        self.assertEqual(delays, [0, 0, 0, 0, 0, 1, 2, 4, 8, 10])
        self.assertEqual(self.delayOf("10.0.0.2"), 0)

    def test_aSlowAddressMayHaveFewLoginsWaiting(self) -> None:
        self.failTimes("10.0.0.1", 5)
        self.refused("10.0.0.1").addErrback(lambda failure: None)
        self.refused("10.0.0.1").addErrback(lambda failure: None)
        self.failureResultOf(self.refused("10.0.0.1"), Overloaded)

    def test_failuresAreForgottenAfterAWhile(self) -> None:
        for elapsed in (self.limits.memory + 1, -3600):
            self.failTimes("10.0.0.1", 6)
            self.clock.advance(elapsed)
            self.assertEqual(self.delayOf("10.0.0.1"), 0)
            self.failTimes("10.0.0.1", 1)
            self.assertEqual(self.delayOf("10.0.0.1"), 0)

    def test_failuresOfAFewAddressesAreRemembered(self) -> None:
        for number in range(4):
            self.failTimes(f"10.0.0.{number}", 5)
        self.assertEqual(self.delayOf("10.0.0.0"), 0)
        self.assertEqual(self.delayOf("10.0.0.1"), 1)

    def test_failuresCountWhenTheClientHasLeft(self) -> None:
        for _ in range(5):
            answer = self.check("10.0.0.1")
            answer.cancel()
            self.failureResultOf(answer, CancelledError)
            self.running.pop()[1].errback(UnauthorizedLogin())
        self.assertEqual(self.delayOf("10.0.0.1"), 1)


class SlowedLoginTests(SynchronousTestCase):
    def test_validPasswordsOfASlowAddressWaitToo(self) -> None:
        clock = Clock()
        authenticator = FakeAuthenticator(account("ann", "publish 1 a"))
        access = Access([authenticator], clock, clock.seconds)
        for _ in range(5):
            wrong = access.login(UsernamePassword(b"ann", b"x"), "10.0.0.1")
            self.failureResultOf(wrong, NotAuthenticated)
        answer = access.login(UsernamePassword(b"ann", b"ann"), "10.0.0.1")
        self.assertNoResult(answer)
        elsewhere = access.login(UsernamePassword(b"ann", b"ann"), "10.0.0.2")
        self.assertEqual(self.successResultOf(elsewhere).name, "ann")
        clock.advance(1)
        self.assertEqual(self.successResultOf(answer).name, "ann")

    def test_unknownCertificatesSlowNobodyDown(self) -> None:
        clock = Clock()
        access = Access([FakeAuthenticator()], clock, clock.seconds)
        for _ in range(10):
            answer = access.login(ClientCertificate("x", "00"), "10.0.0.1")
            self.failureResultOf(answer, NotAuthenticated)
