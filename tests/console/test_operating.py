"""
Operator calls of the console.
"""

from __future__ import annotations

from svcbroker.model import BoundRecord, ConfigurationReport
from tests.carriers.http.support import BASE, Answer

from .support import CONSOLE, OPERATOR_TOKEN, OWN, ConsoleTestCase

LOCAL = {"Host": "localhost:12345", "Origin": "http://localhost:12345"}
"""What a browser on the machine of the broker sends."""

REPORT = ConfigurationReport(
    settings=[],
    file="",
    startedAt=0,
    reloadedAt=None,
    bounds=[BoundRecord(name="input", bytes=5, how="so")],
    memory=7,
)


class OperatingTestCase(ConsoleTestCase):
    """
    A broker with a configuration.
    """

    def begin(self, *, isOpen: bool) -> None:
        self.make(isOpen=isOpen, configuration=lambda: REPORT)

    def assertRefused(self, answer: Answer, status: int, code: int) -> None:
        self.assertEqual((answer.status, answer.json()["code"]), (status, code), answer)


class AccountTests(OperatingTestCase):
    """
    With accounts.
    """

    def setUp(self) -> None:
        self.begin(isOpen=False)

    def test_sessionOfAnOperatorMayOperate(self) -> None:
        answer = self.operate("configuration", self.cookie("root"))
        self.assertEqual((answer.status, answer.json()["code"]), (200, 0))

    def test_boundsAreShown(self) -> None:
        """Operators see how much memory each kind may take, and what the process may use."""
        told = self.operate("configuration", self.cookie("root")).json()["data"]
        self.assertEqual(told["bounds"], [{"name": "input", "bytes": 5, "how": "so", "each": ""}])
        self.assertEqual(told["memory"], 7)

    def test_sessionsOfOthersMayNot(self) -> None:
        self.assertRefused(self.operate("configuration", self.cookie("ann")), 403, 101016)

    def test_pagesOfOthersCannotUseTheSession(self) -> None:
        """Browsers send the cookie to all ports of the host."""
        cookie = self.cookie("root")
        for origin, status in (("http://broker:81", 403), ("null", 403)):
            answer = self.operate("configuration", cookie, Origin=origin)
            self.assertEqual(answer.status, status, origin)
        given = {"Cookie": cookie, "Content-Type": "application/json"}
        given["Referer"] = "http://broker:81/page"
        answer = self.ask(f"{BASE}/admin/operator/configuration", "POST", b"{}", given)
        self.assertRefused(answer, 401, 101015)

    def test_endedSessionsMayNot(self) -> None:
        cookie = self.cookie("root")
        self.ask(f"{CONSOLE}/session", "DELETE", headers={"Cookie": cookie, **OWN})
        self.assertRefused(self.operate("configuration", cookie), 401, 101015)

    def test_operatorTokenIsNoLogIn(self) -> None:
        """Where there are accounts."""
        self.assertRefused(self.logIn("", OPERATOR_TOKEN, **LOCAL), 403, 101015)


class TokenTests(OperatingTestCase):
    """
    Without accounts.
    """

    peer = "127.0.0.1"

    def setUp(self) -> None:
        self.begin(isOpen=True)

    def token(self) -> str:
        """Log in by the token of the operator; the cookie."""
        answer = self.logIn("", OPERATOR_TOKEN, **LOCAL)
        self.assertEqual(answer.status, 200)
        user = answer.json()
        self.assertIn("operate", user.pop("actions")["2"])
        self.assertEqual(
            user,
            {"account": "", "hasAccounts": False, "hasSession": True, "groups": ["1", "2"]},
        )
        return self.cookieOf(answer)

    def test_tokenBeginsASessionThatMayOperate(self) -> None:
        cookie = self.token()
        self.assertTrue(self.user(cookie)["hasSession"])
        self.assertEqual(self.operate("configuration", cookie, **LOCAL).json()["code"], 0)
        headers = {"Cookie": cookie, **OWN}
        self.ask(f"{CONSOLE}/session", "DELETE", headers=headers)
        self.assertRefused(self.operate("configuration", cookie, **LOCAL), 200, 101016)

    def test_otherCallsGoOnWithTheSession(self) -> None:
        self.assertEqual(self.rest("open?topic=t", self.token()).body, b"true")

    def test_pagesCannotOperateWithoutASession(self) -> None:
        """Not even by the token."""
        for headers in ({}, {"Authorization": f"Bearer {OPERATOR_TOKEN}"}):
            answer = self.operate("configuration", "", **LOCAL, **headers)
            self.assertRefused(answer, 200, 101016)

    def test_wrongTokenIsRefused(self) -> None:
        for token in ("", "0f", "\u00e9" * 64):
            self.assertRefused(self.logIn("", token, **LOCAL), 403, 101015)

    def test_tokenLogsInOnThisMachineOnly(self) -> None:
        """Not through proxies, and not under a name that was made to lead here."""
        for headers in ({"Via": "1.1 proxy"}, {"Forwarded": "for=1.2.3.4"}):
            answer = self.logIn("", OPERATOR_TOKEN, **LOCAL, **headers)
            self.assertRefused(answer, 403, 101016)
        self.peer = "192.168.1.1"
        self.assertRefused(self.logIn("", OPERATOR_TOKEN, **LOCAL), 403, 101016)
        self.peer = TokenTests.peer
        named = {"Host": "broker", "Origin": "http://broker"}
        self.assertRefused(self.logIn("", OPERATOR_TOKEN, **named), 403, 101016)

    def test_sessionCountsOnPagesOfTheServerOnly(self) -> None:
        cookie = self.token()
        for headers in ({"Origin": "http://localhost:81"}, {"Origin": "http://evil.example"}):
            answer = self.operate("configuration", cookie, **{**LOCAL, **headers})
            self.assertIn(answer.json()["code"], (101016,))
        path = f"{BASE}/admin/operator/configuration"
        given = {"Cookie": cookie, "Content-Type": "application/json", "Host": "localhost:12345"}
        self.assertRefused(self.ask(path, "POST", b"{}", given), 200, 101016)
