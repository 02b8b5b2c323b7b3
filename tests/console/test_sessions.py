"""
The sessions of the console: log-ins in cookies.
"""

from __future__ import annotations

from twisted.internet.address import IPv4Address

from svcbroker.carriers.http import logins
from svcbroker.carriers.http.logins import LIFETIME, MAX_OF_ONE
from svcbroker.carriers.http.plain import readFields
from tests.access.support import principalOf
from tests.carriers.http.accounts import TOKEN
from tests.carriers.http.support import BASE, Connection, requestBytes

from .support import CONSOLE, OWN, ConsoleTestCase


class LogInTests(ConsoleTestCase):
    """
    The form, and what comes of it.
    """

    def setUp(self) -> None:
        self.make()

    def test_logInBeginsASession(self) -> None:
        """The browser gets a cookie that scripts do not see and other sites do not send."""
        answer = self.logIn("ann")
        self.assertEqual(answer.status, 200)
        user = {"account": "ann", "hasAccounts": True, "hasSession": True, "groups": ["1"]}
        user["actions"] = {"1": ["publish", "subscribe"]}
        self.assertEqual(answer.json(), user)
        pair, *attributes = answer.headers["set-cookie"].split("; ")
        self.assertEqual(attributes, [f"Path={BASE}", "HttpOnly", "SameSite=Strict"])
        name, _, token = pair.partition("=")
        self.assertEqual((name, len(token)), ("svcbroker-session-12345", 64))
        self.assertEqual(answer.headers["cache-control"], "no-store")

    def test_cookieOverTLSIsSecure(self) -> None:
        """Browsers send it over TLS only."""
        cookie = self.sessions.cookie(b"token", 443, isSecure=True)
        self.assertTrue(cookie.endswith(b"; SameSite=Strict; Secure"))

    def test_wrongPasswordIsRefused(self) -> None:
        """Without a challenge, which browsers would answer with their own dialog."""
        answer = self.logIn("ann", "wrong")
        self.assertEqual((answer.status, answer.json()["code"]), (403, 101015))
        self.assertNotIn("www-authenticate", answer.headers)
        self.assertNotIn("set-cookie", answer.headers)

    def test_tokenLogsIn(self) -> None:
        """With the name of its account or without."""
        for name in ("ann", ""):
            self.assertEqual(
                self.logIn(name, TOKEN if not name else "ann").json()["account"], "ann"
            )

    def test_malformedFormIsRefused(self) -> None:
        """Whatever is no log-in."""
        for body, type in (
            (b"{", "application/json"),
            (b'{"name": 1, "password": ""}', "application/json"),
            (b'{"name": "ann"}', "application/json"),
            (b"name=ann&password=ann", "application/x-www-form-urlencoded"),
        ):
            given = {"Content-Type": type, **OWN}
            answer = self.ask(f"{CONSOLE}/session", "POST", body, given)
            self.assertEqual(answer.status, 400, body)

    def test_otherSitesCannotLogIn(self) -> None:
        """Nor begin a session for somebody."""
        answer = self.logIn("ann", Origin="http://evil.example")
        self.assertEqual(answer.status, 403)
        self.assertNotIn("set-cookie", answer.headers)

    def test_withoutAccountsThereIsNoLogIn(self) -> None:
        """The console is open as everything else."""
        self.make(isOpen=True)
        self.assertEqual(self.logIn("ann").status, 404)
        user = self.user()
        actions = user.pop("actions")
        self.assertEqual(
            user,
            {"account": "", "hasAccounts": False, "hasSession": False, "groups": ["1", "2"]},
        )
        # Operator calls take the log-in of an operator.
        self.assertIn("admin", actions["1"])
        self.assertNotIn("operate", actions["1"])

    def test_anonymousClientsMayLogIn(self) -> None:
        """Where some things are granted to everybody."""
        self.make(anonymous=("subscribe 1 t",))
        user = {"account": "", "hasAccounts": True, "hasSession": False, "groups": ["1"]}
        self.assertEqual(self.user(), {**user, "actions": {"1": ["subscribe"]}})
        self.assertEqual(self.user(self.cookie("ann"))["account"], "ann")
        self.assertIn("operate", self.user(self.cookie("root"))["actions"]["1"])

    def test_anonymousClientsNeverOperate(self) -> None:
        """Operator calls need an account, whatever is granted to everybody."""
        self.make(anonymous=("* * #",))
        self.assertNotIn("operate", self.user()["actions"]["1"])


class SessionTests(ConsoleTestCase):
    """
    Calls of the page by its session.
    """

    def setUp(self) -> None:
        self.make()
        self.assertEqual(self.rest("open?topic=t", self.cookie("root")).body, b"true")

    def assertEnded(self, cookie: str) -> None:
        """A cookie is worth nothing, and brings up no dialog."""
        answer = self.rest("state?topic=t", cookie)
        self.assertEqual((answer.status, answer.json()["code"]), (401, 101015))
        self.assertEqual(answer.headers["www-authenticate"], 'Session realm="svcbroker"')
        self.assertIsNone(self.user(cookie)["account"])

    def test_callsActByTheAccount(self) -> None:
        """REST, JSON-RPC and the admin queries, as far as the account may."""
        ann, root = self.cookie("ann"), self.cookie("root")
        self.assertEqual(self.rest("publish?topic=t&content=x", ann).json()["status"], "SUCCESS")
        answer = self.rest("publish?topic=other&content=x", ann)
        self.assertEqual((answer.status, answer.json()["code"]), (403, 101016))
        for cookie, status in ((ann, 403), (root, 200)):
            given = {"Cookie": cookie, "Sec-Fetch-Site": "same-origin"}
            answer = self.ask(f"{BASE}/admin/group/general", headers=given)
            self.assertEqual(answer.status, status)
        body = b'{"jsonrpc":"2.0","id":1,"method":"exist","params":{"topic":"t"}}'
        answer = self.ask(f"{BASE}/jsonrpc", "POST", body, {"Cookie": ann, **OWN})
        self.assertEqual(answer.json()["result"], "true")

    def test_accountWithoutGrantsReachesNothing(self) -> None:
        """It may log in, and that is all."""
        bob = self.cookie("bob")
        self.assertEqual(self.user(bob)["account"], "bob")
        for call in ("list", "events?topic=t", "publish?topic=t&content=x", "open?topic=u"):
            self.assertEqual(self.rest(call, bob).status, 403, call)

    def test_sessionCountsOnPagesOfTheServerOnly(self) -> None:
        """Browsers send the cookie for pages on other ports of the host, too."""
        cookie = self.cookie("ann")
        path = f"{BASE}/rest/publish?topic=t&content=x"
        for headers, status in (
            ({}, 401),
            ({"Referer": "http://broker:81/page"}, 401),
            ({"Referer": "http://broker.evil.example/"}, 401),
            ({"Sec-Fetch-Site": "none"}, 401),
            ({"Sec-Fetch-Site": "same-site"}, 403),
            ({"Sec-Fetch-Site": "cross-site"}, 403),
            ({"Origin": "http://broker:81"}, 403),
            ({"Origin": "null"}, 403),
            ({"Referer": "http://broker/svcbroker/console"}, 200),
            ({"Sec-Fetch-Site": "same-origin"}, 200),
            ({"Origin": "http://broker"}, 200),
        ):
            answer = self.ask(path, headers={"Cookie": cookie, **headers})
            self.assertEqual(answer.status, status, headers)
        self.assertEqual(self.rest("state?topic=t", cookie).json()["sequenceNumber"], 3)

    def test_credentialsWinOverTheSession(self) -> None:
        """A request that has both acts by its credentials."""
        answer = self.rest("list", self.cookie("ann"), Authorization="Bearer wrong")
        self.assertEqual(answer.status, 401)

    def test_sessionIsNotTheAnonymousClient(self) -> None:
        """Where both may do something, also on a connection that has served the other."""
        self.make(anonymous=("subscribe 1 t",))
        self.rest("open?topic=t", self.cookie("root"))
        connection = Connection(self.site)
        path = f"{BASE}/rest/publish?topic=t&content=x"
        given = {"Cookie": self.cookie("ann"), "Sec-Fetch-Site": "same-origin"}
        for headers, status in (({}, 403), (given, 200), ({}, 403)):
            connection.send(requestBytes("GET", path, headers=headers))
            [answer] = connection.answers()
            self.assertEqual(answer.status, status)

    def test_onlyTheSessionLeavesTheFastPath(self) -> None:
        """Cookies of others, such as those of load balancers, cost clients nothing."""
        self.assertIsNone(readFields(b"Cookie: a=b; svcbroker-session-80=c\r\n"))
        self.assertIsNotNone(readFields(b"Cookie: a=b; c=d\r\n"))

    def test_logOutEndsTheSession(self) -> None:
        """For every copy of the cookie."""
        cookie = self.cookie("ann")
        answer = self.ask(f"{CONSOLE}/session", "DELETE", headers={"Cookie": cookie, **OWN})
        self.assertEqual(answer.status, 204)
        self.assertEqual(self.cookieOf(answer), "svcbroker-session-12345=")
        self.assertEnded(cookie)
        self.assertEnded(self.cookieOf(answer))

    def test_newLogInEndsTheOldSession(self) -> None:
        """No one can have a session go on that they know."""
        old = self.cookie("ann")
        new = self.cookieOf(self.logIn("ann", Cookie=old))
        self.assertEnded(old)
        self.assertEqual(self.user(new)["account"], "ann")

    def test_sessionExpires(self) -> None:
        """After its time, whether it was used or not."""
        cookie = self.cookie("ann")
        self.clock.advance(LIFETIME - 1)
        self.assertEqual(self.user(cookie)["account"], "ann")
        self.clock.advance(1)
        self.assertEnded(cookie)

    def test_reloadEndsSessionsOfRemovedAccounts(self) -> None:
        """Those of others go on."""
        ann, root = self.cookie("ann"), self.cookie("root")
        del self.accounts.identities["ann"]
        self.successResultOf(self.access.reload())
        self.assertEnded(ann)
        self.assertEqual(self.user(root)["account"], "root")

    def test_strangersAreAskedToLogIn(self) -> None:
        """From then on no call brings up the browser's dialog."""
        answer = self.ask(f"{CONSOLE}/session")
        self.assertIsNone(answer.json()["account"])
        self.assertEnded(self.cookieOf(answer))

    def test_otherPagesCannotEndTheSession(self) -> None:
        """Asking for the user from elsewhere leaves the cookie as it is."""
        cookie = self.cookie("ann")
        answer = self.ask(f"{CONSOLE}/session", headers={"Cookie": cookie})
        self.assertIsNone(answer.json()["account"])
        self.assertNotIn("set-cookie", answer.headers)


class BoundTests(ConsoleTestCase):
    """
    How many sessions there are.
    """

    def setUp(self) -> None:
        self.make()

    def test_oldestSessionOfAnAccountEnds(self) -> None:
        """An account that logs in again and again ends its own sessions only."""
        root = self.cookie("root")
        cookies = [self.cookie("ann") for _ in range(MAX_OF_ONE + 1)]
        self.assertIsNone(self.user(cookies[0])["account"])
        for cookie in (cookies[1], cookies[-1], root):
            self.assertIsNotNone(self.user(cookie)["account"])

    def test_oldestSessionOfAllEnds(self) -> None:
        """No matter how many accounts there are."""
        self.patch(logins, "MAX_SESSIONS", 2)
        tokens = [self.sessions.begin(principalOf(name=name)) for name in ("a", "b", "c")]
        names = [found and found.name for found in map(self.sessions.find, tokens)]
        self.assertEqual(names, [None, "b", "c"])

    def test_portsHaveCookiesOfTheirOwn(self) -> None:
        """Two brokers on one host do not end each other's sessions."""
        cookie = self.cookie("ann")
        other = IPv4Address("TCP", "127.0.0.1", 81)
        connection = Connection(self.site, host=other)
        headers = {"Host": "localhost:81", "Cookie": cookie, "Sec-Fetch-Site": "same-origin"}
        connection.send(requestBytes("GET", f"{CONSOLE}/session", headers=headers))
        [answer] = connection.answers()
        self.assertIsNone(answer.json()["account"])

    def test_sessionKeepsNothingOnceEnded(self) -> None:
        """A principal that outlives its session has nothing to call at its end."""
        principal = principalOf("publish 1 t")
        token = self.sessions.begin(principal)
        self.assertIs(self.sessions.find(token), principal)
        self.sessions.end(token)
        self.assertIsNone(self.sessions.find(token))
        self.assertEqual(principal._endings, {})
