"""
Principals and what they use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from svcbroker.access import ANYBODY, Grants, Principal, Usage
from svcbroker.access._grants import EVERYTHING
from svcbroker.errors import NotAuthorized, QuotaExceeded
from svcbroker.interfaces import Action, Identity, IGrants, Quotas


def identity(*lines: str) -> Identity:
    return Identity(name="ann", grants=Grants.parse(lines, "ann"))


class PrincipalTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.refused: list[tuple[str, Action | None, str, str]] = []
        self.principal = Principal(
            identity("subscribe 1 a/#"),
            Usage(Quotas(), Clock().seconds),
            refused=lambda p, *what: self.refused.append((p.name, *what)),
        )

    def test_anybodyMayDoEverything(self) -> None:
        self.assertTrue(ANYBODY.isEverything)
        self.assertFalse(ANYBODY.usage.limitsPublishes)
        self.assertTrue(ANYBODY.may(Action.OPERATE, "1"))
        self.assertTrue(ANYBODY.sees("1", "$svc/audit"))

    def test_refusalsAreToldOf(self) -> None:
        self.principal.require(Action.SUBSCRIBE, "1", "a/b")
        error = self.assertRaises(NotAuthorized, self.principal.require, Action.PUBLISH, "1", "a/b")
        self.assertEqual(error.message, "this account may not publish a/b in group 1")
        self.assertEqual(self.refused, [("ann", Action.PUBLISH, "1", "a/b")])

    def test_seesGroupsInWhichSomethingIsGranted(self) -> None:
        self.principal.update(
            identity("subscribe 2 $svc/audit", "admin 3", "deny * 4 #", "publish 4 a")
        )
        self.assertEqual([each for each in "12345" if self.principal.seesGroup(each)], ["2", "3"])
        self.principal.update(identity("publish * a"))
        self.assertTrue(self.principal.seesGroup("any"))

    def test_grantsThatDoNotKnowGroupsAreAskedForTopics(self) -> None:
        """Those of plugins, as the interface was first."""

        @implementer(IGrants)
        class Asked:
            isEverything = dependsOnClient = False
            _grants = Grants.parse(["subscribe 2 $svc/audit", "admin 3", "publish 4 $c/d"])
            decide, mayAny, describe = _grants.decide, _grants.mayAny, _grants.describe

        verifyObject(IGrants, Asked())
        self.principal.update(Identity(name="ann", grants=Asked()))
        self.assertEqual([each for each in "1234" if self.principal.seesGroup(each)], ["2", "3"])

    def test_groupsInWhichNothingIsGrantedAreRefused(self) -> None:
        """The record of that names no group, and answers do not fill memory."""
        self.principal.requireGroup("1")
        self.assertEqual(self.refused, [])
        for number in range(2, 2002):
            self.assertRaises(NotAuthorized, self.principal.requireGroup, str(number))
        self.assertEqual(self.refused, [("ann", None, "", "")] * 2000)
        self.assertLessEqual(len(self.principal._groups), 1000)

    def test_newGrantsCountAtOnce(self) -> None:
        self.assertFalse(self.principal.may(Action.PUBLISH, "1", "a"))
        self.principal.update(identity("publish 1 a"))
        self.assertTrue(self.principal.may(Action.PUBLISH, "1", "a"))
        self.assertFalse(self.principal.may(Action.SUBSCRIBE, "1", "a/b"))
        self.principal.update(Identity(name="ann", grants=EVERYTHING))
        self.assertTrue(self.principal.isEverything)

    def test_revokingEndsEverything(self) -> None:
        ended: list[str] = []
        self.principal.onEnd(lambda: ended.append("kept"))
        forget = self.principal.onEnd(lambda: ended.append("forgotten"))
        forget()
        self.principal.revoke()
        self.assertEqual(ended, ["kept"])
        self.assertFalse(self.principal.may(Action.SUBSCRIBE, "1", "a/b"))
        self.assertTrue(self.principal.isRevoked)

    def test_connectionsOfARevokedAccountMayEndInTurns(self) -> None:
        """Its rights end at once. What has ended meanwhile is not ended again."""
        ended: list[str] = []
        made: list[Iterator[Callable[[], object]]] = []
        self.principal.onEnd(lambda: ended.append("first"))
        forget = self.principal.onEnd(lambda: ended.append("forgotten"))
        self.principal.onEnd(lambda: ended.append("last"))

        def make(calls: Iterator[Callable[[], object]]) -> Deferred[None]:
            made.append(calls)
            return succeed(None)

        self.principal.revoke(make)
        self.assertTrue(self.principal.isRevoked)
        [calls] = made
        self.assertEqual(ended, [])
        next(calls)()
        forget()
        next(calls)()
        self.assertEqual((ended, list(calls)), (["first", "last"], []))

    def test_answersAreForgottenBeforeTheyFillMemory(self) -> None:
        for number in range(5000):
            self.assertTrue(self.principal.may(Action.SUBSCRIBE, "1", f"a/{number}"))
        self.assertLessEqual(len(self.principal._answers["SUBSCRIBE"]), 1000)

    def test_seesTopicsWithWhichItMayDoSomething(self) -> None:
        self.assertTrue(self.principal.sees("1", "a/b"))
        self.assertFalse(self.principal.sees("1", "b"))
        self.assertTrue(self.principal.seesGroup("1"))
        self.assertFalse(self.principal.seesGroup("2"))


class UsageTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()

    def usage(self, quotas: Quotas) -> Usage:
        return Usage(quotas, self.clock.seconds)

    def test_ratesRefill(self) -> None:
        usage = self.usage(Quotas(publishes=10))
        for _ in range(10):
            usage.spendOne(1000)
        error = self.assertRaises(QuotaExceeded, usage.spendOne, 1000)
        self.assertIn("publishes a second", error.message)
        self.clock.advance(0.11)
        usage.spendOne(1000)
        self.assertRaises(QuotaExceeded, usage.spendOne, 1000)

    def test_clockThatIsSetBackTakesNothingFromARate(self) -> None:
        usage = self.usage(Quotas(publishes=10))
        self.clock.advance(-3600)
        for _ in range(10):
            usage.spendOne(1000)
        self.assertAlmostEqual(usage.delay(), 0.1)
        self.clock.advance(0.11)
        usage.spendOne(1000)

    def test_aLargeUseIsPaidForAfterwards(self) -> None:
        usage = self.usage(Quotas(bytes=100))
        usage.spendOne(1000)
        error = self.assertRaises(QuotaExceeded, usage.spendOne, 1)
        self.assertAlmostEqual(error.retryAfter, 9.01)
        self.assertAlmostEqual(usage.delay(), 9.01)
        self.clock.advance(9.5)
        usage.spendOne(1)

    def test_ratesHoldWithinACall(self) -> None:
        usage = self.usage(Quotas(publishes=20))
        taken, error = usage.spend([1] * 500)
        assert error is not None
        self.assertEqual(taken, 20)
        self.assertIn("used up its publishes a second", error.message)
        # When as many of the others may be published as at once ever may.
        self.assertAlmostEqual(error.retryAfter, 1.0)
        self.clock.advance(0.25)
        self.assertEqual(usage.room([1] * 480), 5)
        taken, error = usage.spend([1] * 7)
        assert error is not None
        self.assertEqual(taken, 5)
        self.assertAlmostEqual(error.retryAfter, 0.1)
        self.clock.advance(0.11)
        self.assertEqual(usage.spend([1, 1]), (2, None))

    def test_bytesHoldWithinACall(self) -> None:
        """The last event that finds room may be of any size."""
        usage = self.usage(Quotas(bytes=100))
        for sizes, room in (
            ([50, 49, 500, 1], 3),
            ([50, 50, 1], 2),
            ([200, 1], 1),
            ([0] * 9, 9),
            ([], 0),
        ):
            self.assertEqual(usage.room(sizes), room)
        taken, error = usage.spend([50, 49, 500, 1, 1])
        assert error is not None
        self.assertEqual(taken, 3)
        self.assertIn("bytes a second", error.message)
        self.assertAlmostEqual(error.retryAfter, 5.01)
        self.assertEqual(usage.room([0]), 0)

    def test_theTightestQuotaCounts(self) -> None:
        usage = self.usage(Quotas(publishes=5, bytes=30, inflight=4))
        for sizes, room, name in (
            ([1] * 9, 4, "may wait for their answer"),
            ([15] * 9, 2, "bytes a second"),
        ):
            taken, error = usage.spend(sizes)
            assert error is not None
            self.assertEqual(taken, room)
            self.assertIn(name, error.message)
            usage.answered(None, taken)
            self.clock.advance(10)

    def test_wholesAreCountedWholeOrNotAtAll(self) -> None:
        usage = self.usage(Quotas(publishes=5, inflight=50))
        self.assertEqual(usage.spend([1] * 3, isWhole=True), (3, None))
        taken, error = usage.spend([1] * 4, isWhole=True)
        assert error is not None
        self.assertEqual(taken, 0)
        self.assertAlmostEqual(error.retryAfter, 0.4)
        self.assertEqual(usage.used("inflight"), 3)
        self.assertEqual(usage.spend([1] * 2, isWhole=True), (2, None))
        taken, error = usage.spend([1] * 6, isWhole=True)
        assert error is not None
        # Trying again does not help.
        self.assertEqual((taken, error.retryAfter), (0, 0))
        self.assertEqual(error.message, "this account may publish at most 5 events at once")
        _, error = usage.spend([1] * 51, isWhole=True)
        assert error is not None
        self.assertEqual(error.retryAfter, 0)

    def test_countsAreGivenBack(self) -> None:
        usage = self.usage(Quotas(connections=2))
        usage.take("connections", 2)
        self.assertRaises(QuotaExceeded, usage.take, "connections")
        usage.free("connections")
        usage.take("connections")
        self.assertEqual(usage.used("connections"), 2)

    def test_newQuotasKeepWhatIsUsed(self) -> None:
        usage = self.usage(Quotas())
        self.assertFalse(usage.limitsPublishes)
        usage.take("sessions", 5)
        usage.limit(Quotas(sessions=3, publishes=1))
        self.assertRaises(QuotaExceeded, usage.take, "sessions")
        self.assertTrue(usage.limitsPublishes)
        usage.limit(Quotas())
        usage.take("sessions")
        self.assertFalse(usage.limitsPublishes)
