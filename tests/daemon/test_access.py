"""
Tests for L{svcbroker.daemon.plan}: whether it is safe to listen, and for whom.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.access import ANYBODY
from svcbroker.daemon.config import makeConfig
from svcbroker.daemon.plan import AccessPlan, describeAuthenticators, makeAccessPlan
from svcbroker.daemon.ports import PortPlan, serverEndpoint
from svcbroker.interfaces import Action, Quotas
from svcbroker.net.budgets import WorkBudget
from svcbroker.net.settings import ConfigError


class FakeThread:
    """Threads that work at once."""

    def __init__(self, reactor: Any, name: str, size: int) -> None:
        self.made = (name, size)
        self.isStopped = False

    def run(self, f: Any, *args: Any) -> Deferred[Any]:
        return maybeDeferred(f, *args)

    def stop(self) -> None:
        self.isStopped = True


class AccessPlanTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.file = Path(self.mktemp()).absolute()
        self.file.write_text('[accounts.ann]\nroles = ["subscriber"]\n')

    def plan(self, *endpoints: str, **settings: Any) -> AccessPlan:
        ports = [
            PortPlan(name="http", endpoint=serverEndpoint(MemoryReactorClock(), each), text=each)
            for each in endpoints
        ]
        return makeAccessPlan(makeConfig(settings), ports)

    def make(self, plan: AccessPlan, threads: list[FakeThread]) -> Any:
        def makeThread(*args: Any) -> Any:
            threads.append(FakeThread(*args))
            return threads[-1]

        clock = Clock()
        work = WorkBudget(clock)
        return plan.make(clock, clock.seconds, lambda size: bytes(size), makeThread, work)

    def test_loopbackNeedsNoAccounts(self) -> None:
        plan = self.plan("tcp:1:interface=127.0.0.1")
        self.assertEqual(plan.refusal, "")
        self.assertEqual(list(plan.describe()), ["every client, as there are no accounts"])

    def test_otherAddressesNeedAccountsOrAnonymousGrants(self) -> None:
        ports = ("tcp:1:interface=127.0.0.1", "tcp:2")
        self.assertIn("http: tcp:2 is not known to be on loopback", self.plan(*ports).refusal)
        self.assertEqual(self.plan(*ports, accounts=str(self.file)).refusal, "")
        self.assertEqual(self.plan(*ports, anonymous=["subscriber"]).refusal, "")

    def test_theFileOfTheAccountsIsChecked(self) -> None:
        self.file.write_text("[accounts.ann]\nrole = []")
        error = self.assertRaises(ConfigError, self.plan, accounts=str(self.file))
        self.assertTrue(str(error).startswith(f"accounts: {self.file}: [accounts.ann] role: "))

    def test_aFileThatEveryUserMayReadIsNoted(self) -> None:
        for mode, isReadable in ((0o600, False), (0o640, False), (0o644, True)):
            self.file.chmod(mode)
            self.assertEqual(self.plan(accounts=str(self.file)).isReadable, isReadable)

    def test_unknownAuthenticatorsAreRefused(self) -> None:
        error = self.assertRaises(ConfigError, self.plan, auth=["nosuch:x=1"])
        self.assertIn("auth: there is no authenticator called 'nosuch'", str(error))
        self.assertIn("An authenticator is described by", describeAuthenticators())

    def test_withoutAccountsThereAreNoThreads(self) -> None:
        threads: list[FakeThread] = []
        control = self.make(self.plan(), threads)
        self.assertIs(control.access.anonymous, ANYBODY)
        control.stop()
        self.assertEqual(threads, [])

    def test_accountsHaveThreadsForTheirPasswords(self) -> None:
        threads: list[FakeThread] = []
        control = self.make(self.plan(accounts=str(self.file)), threads)
        self.assertIsNone(control.access.anonymous)
        self.assertEqual(control.access.find("ann").name, "ann")
        control.stop()
        self.assertEqual([(each.made, each.isStopped) for each in threads], [(("logins", 2), True)])

    def test_anonymousClientsHaveTheLimitsOfTheFile(self) -> None:
        self.file.write_text("[limits.anonymous]\nconnections = 3\n")
        plan = self.plan(accounts=str(self.file), anonymous=["subscribe 1 news"])
        anonymous = self.make(plan, []).access.anonymous
        self.assertTrue(anonymous.may(Action.SUBSCRIBE, "1", "news"))
        self.assertFalse(anonymous.may(Action.PUBLISH, "1", "news"))
        self.assertEqual(anonymous.usage.quotas, Quotas(connections=3))
