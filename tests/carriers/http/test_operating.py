"""
Tests of operator calls of accounts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.interfaces import IAddress
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import directlyProvides

from svcbroker.access import Access
from svcbroker.carriers.http.feature import makeSite
from svcbroker.carriers.http.logins import HttpSettings
from svcbroker.interfaces import IFaultyLedger
from tests.access.support import account
from tests.broker.support import makeFixture

from .accounts import Accounts, basic
from .support import BASE, Answer, Connection, requestBytes
from .test_operator import HERE, TOKEN, FaultyDouble

ELSEWHERE = IPv4Address("TCP", "192.0.2.1", 50000)
THERE = IPv4Address("TCP", "192.0.2.9", 8080)


class AccountTests(SynchronousTestCase):
    """
    A site whose accounts are C{op}, who may operate group 2, and C{ann}, who may publish.
    """

    def setUp(self) -> None:
        self.make()

    def make(self, *anonymous: str) -> None:
        """Begin with a new site."""
        self.double = FaultyDouble()
        directlyProvides(self.double, IFaultyLedger)
        fixture = makeFixture(ledgers={"2": self.double}, hasFaults=True)
        access = Access(
            [Accounts(account("op", "operate 2"), account("ann", "publish * #"))],
            fixture.clock,
            fixture.clock.seconds,
            anonymous=account("", *anonymous) if anonymous else None,
        )
        self.addCleanup(access.stop)
        settings = HttpSettings(corsOrigins=["*"])
        self.site = makeSite(fixture.calls, settings, access, operatorToken=TOKEN)

    def ask(
        self, headers: Mapping[str, str], peer: IAddress = ELSEWHERE, group: str = "2"
    ) -> Answer:
        """Ask for the faults of a group."""
        connection = Connection(self.site, peer, HERE if peer is HERE else THERE)
        given = {
            "Host": "127.0.0.1:8080" if peer is HERE else "broker.example",
            "Content-Type": "application/json",
            **headers,
        }
        body = f'{{"groupId": "{group}"}}'.encode()
        path = f"{BASE}/admin/operator/faults/show"
        connection.send(requestBytes("POST", path, body, given))
        [answer] = connection.answers()
        return answer

    def assertRefused(self, answer: Answer, status: int, words: str = "") -> None:
        """A refusal has this status, the code that belongs to it, and these words."""
        said: Any = answer.json()
        code = {401: 101015, 403: 101016}[status]
        self.assertEqual((answer.status, said["code"]), (status, code))
        self.assertIn(words, said["message"])

    def test_accountsMayOperateFromElsewhere(self) -> None:
        """Through a proxy, too."""
        for headers in (basic("op"), {**basic("op"), "X-Forwarded-For": "x", "Via": "x"}):
            answer = self.ask(headers)
            self.assertEqual((answer.status, answer.json()["code"]), (200, 0))
        self.assertEqual(self.ask(basic("op"), HERE).json()["code"], 0)

    def test_operateMustBeGranted(self) -> None:
        self.assertRefused(self.ask(basic("op"), group="1"), 403, "nothing in group 1")
        self.assertRefused(self.ask(basic("ann")), 403, "operate in group 2")

    def test_webPagesAreRefused(self) -> None:
        self.assertRefused(self.ask({"Origin": "http://a", **basic("op")}), 403, "web pages")

    def test_credentialsAreNeeded(self) -> None:
        """Also where anonymous clients may do everything."""
        self.assertRefused(self.ask({}), 401)
        self.assertRefused(self.ask({}, HERE), 401)
        self.make("* * #", "operate *")
        self.assertRefused(self.ask({}), 401, "account")

    def test_tokenOfTheDaemonIsForItsMachine(self) -> None:
        token = {"Authorization": f"Bearer {TOKEN}"}
        self.assertEqual(self.ask(token, HERE).json()["code"], 0)
        self.assertEqual(self.ask(token, HERE, "1").json()["code"], 100600)
        answer = self.ask(token)
        self.assertEqual(answer.json()["code"], 101016)
        self.assertIn("this machine", answer.json()["message"])
        proxied = self.ask({"Via": "x", **token}, HERE)
        self.assertIn("proxies", proxied.json()["message"])
        self.assertRefused(self.ask({"Authorization": f"Bearer {TOKEN}0"}, HERE), 401)

    def test_tokenOfTheDaemonIsNoLoginElsewhere(self) -> None:
        """On other paths it is no token."""
        connection = Connection(self.site, HERE, HERE)
        headers = {"Host": "127.0.0.1", "Authorization": f"Bearer {TOKEN}"}
        connection.send(requestBytes("GET", f"{BASE}/rest/list", headers=headers))
        [answer] = connection.answers()
        self.assertRefused(answer, 401)
