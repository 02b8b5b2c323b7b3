"""
Log-ins.
"""

from __future__ import annotations

import gc
from base64 import b64encode
from functools import partial
from typing import Any

from twisted.cred.credentials import UsernamePassword
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.access import ANYBODY, Access, Admission, Principal
from svcbroker.errors import NotAuthenticated, QuotaExceeded
from svcbroker.interfaces import Action, InvalidDescription, Quotas
from svcbroker.net.budgets import READS_AT_ONCE, WorkBudget
from tests.net.countingclock import CountingClock

from .support import FakeAuthenticator, account


class AccessTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.ended: list[str] = []
        self.clock = Clock()
        self.first = FakeAuthenticator(account("ann", "publish 1 a"))
        self.second = FakeAuthenticator(account("bob", "publish 1 %c"))
        self.access = self.make(self.first, self.second)

    def make(self, *authenticators: FakeAuthenticator, **more: Any) -> Access:
        access = Access(authenticators, self.clock, lambda: 1000 + self.clock.seconds(), **more)
        self.successResultOf(access.start())
        self.addCleanup(access.stop)
        return access

    def login(self, name: str, clientId: str = "") -> Principal:
        credentials = UsernamePassword(name.encode(), name.encode())
        return self.successResultOf(self.access.login(credentials, "127.0.0.1", clientId))

    def test_withoutAccountsEverybodyMayDoEverything(self) -> None:
        access = self.make()
        self.assertTrue(access.isOpen)
        self.assertIs(access.anonymous, ANYBODY)

    def test_withAccountsNobodyIsLetInWithoutCredentials(self) -> None:
        self.assertFalse(self.access.isOpen)
        self.assertIsNone(self.access.anonymous)

    def test_anonymousClientsMayDoWhatIsGranted(self) -> None:
        access = self.make(anonymous=account("", "subscribe 1 news/#"))
        assert access.anonymous is not None
        self.assertTrue(access.anonymous.may(Action.SUBSCRIBE, "1", "news/x"))
        self.assertFalse(access.anonymous.may(Action.PUBLISH, "1", "news/x"))
        self.assertFalse(access.isOpen)
        self.assertIs(access.find(""), access.anonymous)

    def test_anonymousClientsStayAtAReload(self) -> None:
        """Also where what they may do depends on their client ids."""
        access = self.make(anonymous=account("", "publish 1 in/%c"))
        assert access.anonymous is not None
        client = access.forClient(access.anonymous, "c")
        self.successResultOf(access.reload())
        self.assertTrue(client.may(Action.PUBLISH, "1", "in/c"))
        self.assertFalse(access.anonymous.isRevoked)

    def test_anonymousGrantsChangeAtOnce(self) -> None:
        """Connections without credentials stay unless nothing is granted to them any more."""
        access = self.make(self.first, anonymous=account("", "publish 1 in"))
        admission = self.admit(access, "c")
        principal = admission.principal
        self.assertIs(principal, access.anonymous)
        access.changeAnonymous(account("", "publish 1 out"))
        self.assertIs(principal, access.anonymous)
        self.assertEqual(
            [principal.may(Action.PUBLISH, "1", each) for each in ("in", "out")], [False, True]
        )
        self.assertEqual(self.ended, [])
        access.changeAnonymous(None)
        self.assertEqual((self.ended, access.anonymous), (["c"], None))
        self.assertFalse(principal.may(Action.PUBLISH, "1", "out"))
        refused = access.admit(None, "127.0.0.1", list, carrier="mqtt")
        self.failureResultOf(refused, NotAuthenticated)
        access.changeAnonymous(account("", "publish 1 in"))
        self.assertTrue(self.admit(access, "d").principal.may(Action.PUBLISH, "1", "in"))

    def test_anonymousGrantsByClientId(self) -> None:
        """Connections that shared a principal end, since their client ids count now."""
        access = self.make(self.first, anonymous=account("", "publish 1 in/c"))
        self.admit(access, "c")
        access.changeAnonymous(account("", "publish 1 in/%c"))
        self.assertEqual(self.ended, ["c"])
        principal = self.admit(access, "d").principal
        self.assertTrue(principal.may(Action.PUBLISH, "1", "in/d"))
        access.changeAnonymous(account("", "publish 1 out/%c"))
        self.assertTrue(principal.may(Action.PUBLISH, "1", "out/d"))
        self.assertEqual(self.ended, ["c"])

    def admit(self, access: Access, clientId: str) -> Admission:
        """A connection without credentials. Its end is added to C{self.ended}."""
        admitting = access.admit(
            None, "127.0.0.1", lambda: self.ended.append(clientId), clientId, carrier="mqtt"
        )
        return self.successResultOf(admitting)

    def test_eachAuthenticatorIsAsked(self) -> None:
        self.assertEqual(self.login("ann").name, "ann")
        self.assertEqual(self.login("bob", "c").name, "bob")

    def test_wrongCredentialsAreRefused(self) -> None:
        answer = self.access.login(UsernamePassword(b"ann", b"x"), "127.0.0.1")
        self.failureResultOf(answer, NotAuthenticated)

    def test_refusedLogInsLeaveNoCycles(self) -> None:
        """
        Nothing of a refused log-in waits for the garbage collector, which would hold the reactor in
        a flood of them.
        """
        failures: list[Any] = []
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)
        for number in range(20):
            credentials = UsernamePassword(b"%d" % number, b"x")
            refused: list[Deferred[Any]] = [
                self.access.admit(credentials, "127.0.0.1", list, carrier="mqtt"),
                self.access.loginHttp(b"Basic " + b64encode(b"%d:x" % number), "127.0.0.1"),
            ]
            for each in refused:
                each.addErrback(lambda failure: failures.append(failure.type))
            self.clock.advance(100)
        del refused, each, credentials
        self.assertEqual(gc.collect(), 0)
        self.assertEqual(failures, [NotAuthenticated] * 40)

    def test_connectionsOfAnAccountShareAPrincipal(self) -> None:
        self.assertIs(self.login("ann", "1"), self.login("ann", "2"))

    def test_clientsHaveTheirOwnWhereGrantsDependOnThem(self) -> None:
        one, two = self.login("bob", "1"), self.login("bob", "2")
        self.assertTrue(one.may(Action.PUBLISH, "1", "1"))
        self.assertFalse(two.may(Action.PUBLISH, "1", "1"))
        self.assertIs(one.usage, two.usage)

    def test_reloadChangesRunningPrincipals(self) -> None:
        ann = self.login("ann")
        self.first.identities["ann"] = account("ann", "publish 1 b")
        self.successResultOf(self.access.reload())
        self.assertTrue(ann.may(Action.PUBLISH, "1", "b"))
        self.assertFalse(ann.may(Action.PUBLISH, "1", "a"))

    def test_reloadEndsAccountsThatAreGone(self) -> None:
        ann, ended = self.login("ann"), []
        ann.onEnd(lambda: ended.append("ann"))
        del self.first.identities["ann"]
        self.successResultOf(self.access.reload())
        self.assertEqual(ended, ["ann"])
        self.assertIsNone(self.access.find("ann"))
        self.first.identities["ann"] = account("ann", "publish 1 a")
        self.assertIsNot(self.login("ann"), ann)

    def test_accountsThatAreGoneEndInTurns(self) -> None:
        """Thousands may be gone, each with many connections."""
        clock = CountingClock()
        clock.isBehind = True
        self.access = self.make(self.first, makeAll=WorkBudget(clock).makeAll)
        names = [f"ann{number}" for number in range(5)]
        self.first.identities = {each: account(each, "publish 1 a") for each in names}
        principals = [self.login(each) for each in names]

        def end(name: str) -> None:
            self.ended.append(name)
            clock.rightNow += READS_AT_ONCE

        for each in principals:
            each.onEnd(partial(end, each.name))
        self.first.identities.clear()
        reloading = self.access.reload()
        for _ in range(20):
            ended = len(self.ended)
            clock.turn()
            self.assertLessEqual(len(self.ended), ended + 1)
        self.successResultOf(reloading)
        self.assertEqual(sorted(self.ended), names)
        self.assertTrue(all(each.isRevoked for each in principals))

    def test_aMistakeInOneFileLeavesAllAsTheyAre(self) -> None:
        applied: list[str] = []
        self.patch(self.first, "reload", lambda: succeed(lambda: applied.append("first")))
        self.patch(self.second, "reload", lambda: fail(InvalidDescription("a mistake")))
        self.failureResultOf(self.access.reload(), InvalidDescription)
        self.assertEqual(applied, [])
        self.patch(self.second, "reload", lambda: succeed(lambda: applied.append("second")))
        self.successResultOf(self.access.reload())
        self.assertEqual(applied, ["first", "second"])

    def test_expiredLoginsEnd(self) -> None:
        self.first.identities["tok"] = account("tok", "publish 1 a", expiresAt=1005.0)
        principal, ended = self.login("tok"), []
        principal.onEnd(lambda: ended.append("tok"))
        self.successResultOf(self.access.reload())
        self.clock.advance(4)
        self.assertEqual(ended, [])
        self.clock.advance(1)
        self.assertEqual(ended, ["tok"])

    def test_unusedLoginsAreForgottenBeforeTheyExpire(self) -> None:
        for expiresAt in range(2000, 2010):
            self.first.identities["tok"] = account("tok", expiresAt=float(expiresAt))
            used = self.login("tok")
        gc.collect()
        self.clock.advance(0)
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        self.clock.advance(2009 - self.clock.seconds())
        self.assertTrue(used.isRevoked)

    def test_aNarrowerTokenLeavesOthersAsTheyAre(self) -> None:
        self.first.identities["tok"] = account("tok", "publish 1 a", expiresAt=1005.0)
        wide = self.login("tok")
        self.first.identities["tok"] = account("tok", expiresAt=1004.0)
        narrow = self.login("tok")
        self.assertTrue(wide.may(Action.PUBLISH, "1", "a"))
        self.assertFalse(narrow.may(Action.PUBLISH, "1", "a"))

    def test_aReconnectDoesNotRefillARate(self) -> None:
        self.first.identities["ann"] = account("ann", quotas=Quotas(publishes=2))
        self.login("ann").usage.spend((0, 0))
        gc.collect()
        self.assertRaises(QuotaExceeded, self.login("ann").usage.spendOne, 0)

    def test_accountsWithoutQuotasHaveTheDefault(self) -> None:
        self.access = Access(
            [self.first], self.clock, lambda: 0.0, quotas=lambda name: Quotas(connections=1)
        )
        self.assertEqual(self.login("ann").usage.quotas.connections, 1)
