"""
Tests of who is served the metrics, and of what the daemon makes of its setting.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.internet.defer import succeed
from twisted.internet.task import Clock
from twisted.python.usage import UsageError
from twisted.trial.unittest import SynchronousTestCase

from svcbroker import tap
from svcbroker.daemon.metrics import MetricsRoute
from svcbroker.interfaces import ILedger
from svcbroker.net import budgets
from svcbroker.net.budgets import WorkBudget
from svcbroker.net.metrics import Metrics, gauge, only
from svcbroker.testing._fixtures import memoryLedger

from ..access.support import account
from ..carriers.http.accounts import AuthenticationTestCase, basic
from ..carriers.http.support import Answer, Client, Connection, parseAnswers, requestBytes
from .support import parsed


def makeRoute(*, isOpen: bool = False) -> MetricsRoute:
    clock = Clock()
    made = Metrics(clock, WorkBudget(clock))
    made.add("one", lambda: [gauge("level", "A level.", values=only(1))])
    return MetricsRoute(made.render, ("1", "2"), isOpen=isOpen)


class OpenSiteTests(SynchronousTestCase):
    """Without accounts."""

    def test_everyClientIsServedMetrics(self) -> None:
        client = Client(routes=(makeRoute().route(),))
        answer = client.ask("GET", "/metrics")
        self.assertEqual(answer.status, 200)
        self.assertEqual(answer.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8")
        self.assertEqual(parsed(answer.body)[("level",)], 1)
        self.assertEqual(client.ask("HEAD", "/metrics").body, b"")
        self.assertEqual(client.ask("POST", "/metrics").status, 405)


class AccountTests(AuthenticationTestCase):
    """With accounts."""

    def setUp(self) -> None:
        self.make(routes=(makeRoute().route(),))

    def scrape(self, name: str | None = None) -> Answer:
        return self.client.ask("GET", "/metrics", headers=basic(name) if name else None)

    def test_credentialsAreNeeded(self) -> None:
        self.assertRefused(self.scrape(), 401, 101015)

    def test_theGrantIsNeededInAllGroups(self) -> None:
        self.assertRefused(self.scrape("ann"), 403, 101016)
        self.assertEqual(self.access.refusals["metrics"], 1)
        for action in ("metrics", "operate", "*"):
            pattern = " #" if action == "*" else ""
            for group, status in (("1", 403), ("*", 200)):
                name = f"{action} {group}"
                self.accounts.identities[name] = account(name, f"{action} {group}{pattern}")
                self.assertEqual(self.scrape(name).status, status, name)
        self.accounts.identities["denied"] = account("denied", "operate *", "deny metrics 2")
        self.assertRefused(self.scrape("denied"), 403, 101016)

    def test_anonymousClientMayBeGrantedMetrics(self) -> None:
        self.make(anonymous=("metrics *",), routes=(makeRoute().route(),))
        self.assertEqual(self.scrape().status, 200)

    def test_openPortNeedsNoCredentials(self) -> None:
        self.make(routes=(makeRoute(isOpen=True).route(),))
        self.assertEqual(self.scrape().status, 200)


class SettingTests(SynchronousTestCase):
    """The setting C{metrics}."""

    def plan(self, *arguments: str) -> Any:
        options = tap.Options()
        options.parseOptions(arguments)
        return options

    def test_portOfItsOwnIsPlanned(self) -> None:
        for place, isOwn in (("http", False), ("9464", True), ("", False)):
            names = [port.name for port in self.plan(f"--metrics={place}")["plan"].ports]
            self.assertEqual("metrics" in names, isOwn)
        self.assertRaises(UsageError, self.plan, "--metrics=nonsense:1")

    def test_portOffLoopbackNeedsAccounts(self) -> None:
        plan = self.plan("--metrics=tcp:9464")["plan"]
        self.assertIn("metrics: tcp:9464 is not known to be on loopback", plan.access.refusal)

    def ask(self, *arguments: str) -> dict[str, list[Answer]]:
        """What a daemon answers on its ports, without a reactor that runs."""
        # There is no later turn, whatever a busy machine takes for this one.
        for name in ("READS_A_TURN", "READS_AT_ONCE"):
            self.patch(budgets, name, 60.0)
        dataDir = Path(self.mktemp())
        dataDir.mkdir()
        service: Any = tap.makeService(self.plan(f"--data-dir={dataDir}", *arguments))
        ledgers: dict[str, ILedger] = {"1": memoryLedger(Clock())}
        carriers = service._makeFeatures(ledgers, "127.0.0.1:1", lambda: succeed([]))
        self.successResultOf(carriers.start())
        answers = {}
        for name in ("http", "metrics"):
            if name in carriers.factories:
                connection = Connection(carriers.factories[name])
                connection.send(requestBytes("GET", "/metrics"))
                answers[name] = parseAnswers(connection.transport.value())
                connection.disconnect()
        self.successResultOf(carriers.drain())
        carriers.stop()
        return answers

    def test_metricsAreServedInOnePlace(self) -> None:
        accounts = f"--accounts={self.makeAccounts()}"
        for arguments, statuses in (
            ((), {"http": 200}),
            (("--metrics=9464",), {"http": 404, "metrics": 200}),
            (("--metrics=",), {"http": 404}),
            ((accounts,), {"http": 401}),
            ((accounts, "--metrics=9464"), {"http": 401, "metrics": 200}),
            ((accounts, "--metrics=tcp:9464"), {"http": 401, "metrics": 401}),
        ):
            found = {name: each[0].status for name, each in self.ask(*arguments).items()}
            self.assertEqual(found, statuses, arguments)

    def makeAccounts(self) -> Path:
        path = Path(self.mktemp())
        path.write_text("")
        path.chmod(0o600)
        return path
