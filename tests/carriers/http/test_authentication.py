"""
Tests of authentication: who makes a request, and what is answered to a client that may not.
"""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any, cast

from twisted.logger import ILogObserver, LogEvent, globalLogPublisher

from svcbroker.broker import REFUSAL_DELAY
from svcbroker.carriers.http import Route, jsonrpc, logins
from svcbroker.carriers.http.fastpath import RECALL
from svcbroker.carriers.http.logins import Credentials, HttpSettings
from svcbroker.carriers.http.routes import principalOf, respond
from svcbroker.errors import LedgerUnavailable
from svcbroker.interfaces import Quotas
from svcbroker.net.tls import PeerCertificate
from tests.access.support import account
from tests.authors import Author, tellChain

from .accounts import TOKEN, AuthenticationTestCase, basic
from .support import BASE, Answer, Connection, requestBytes


class CredentialTests(AuthenticationTestCase):
    """
    Which credentials are accepted.
    """

    def test_credentialsAreNeeded(self) -> None:
        """On every path but that of health, also on those that there are not."""
        connection = self.client.connect()
        connection.send(requestBytes("GET", f"{BASE}/rest/list"))
        self.assertIn(
            b'\r\nWWW-Authenticate: Basic realm="svcbroker", charset="UTF-8"\r\n'
            b'WWW-Authenticate: Bearer realm="svcbroker"\r\n',
            connection.transport.value(),
        )
        documents = ("openapi.json", "openrpc.json", "asyncapi.json", "docs")
        for path in ("rest/list", "rest/nosuch", "admin/listGroup", "jsonrpc", *documents, "x"):
            self.assertRefused(self.client.ask("GET", f"{BASE}/{path}"), 401, 101015)
        self.assertRefused(self.rpc({}), 401, 101015)
        for path in ("/healthz", "/readyz"):
            self.assertEqual(self.client.ask("GET", path).status, 200)
        wrong = basic("ann", "x")
        self.assertEqual(self.client.ask("GET", "/healthz", headers=wrong).status, 200)
        self.assertRefused(self.client.ask("GET", "/readyz", headers=wrong), 401, 101015)

    def test_readyzNamesGroupsInWhichSomethingIsGranted(self) -> None:
        ready = {"ready": True, "reason": ""}
        for headers, groups in (
            (None, {}),
            (basic("bob"), {}),
            (basic("ann"), {"1": ready}),
            (basic("root"), {"1": ready, "2": ready}),
        ):
            answer = self.client.ask("GET", "/readyz", headers=headers)
            self.assertEqual(answer.json(), {"status": "ready", "groups": groups, "alarms": []})
        self.fixture.second.error = LedgerUnavailable("the disk is full")
        answer = self.client.ask("GET", "/readyz")
        self.assertEqual(answer.status, 503)
        self.assertEqual(answer.json(), {"status": "unavailable", "groups": {}, "alarms": []})

    def test_wrongCredentialsAreRefused(self) -> None:
        for value in (
            basic("ann", "x")["Authorization"],
            basic("nosuch")["Authorization"],
            *("Basic", "Basic =", "Bearer", "Bearer x", f"Token {TOKEN}", "", "\xff"),
        ):
            self.clock.pump([1] * 1000)
            connection = self.client.connect()
            head = requestBytes("GET", f"{BASE}/rest/publish?topic=t&content=x")
            connection.send(head[:-2] + f"Authorization: {value}\r\n\r\n".encode("latin-1"))
            self.clock.advance(60)
            [answer] = connection.answers()
            self.assertRefused(answer, 401, 101015)
        self.assertEqual(len(self.fixture.ledger.submitted), 2)

    def test_passwordsAndTokensAreAccepted(self) -> None:
        for headers in (
            basic("ann"),
            {"Authorization": f"Bearer {TOKEN}"},
            {"authorization": f"bEARER  {TOKEN}"},
        ):
            self.assertPublished(self.ask("publish?topic=t&content=x", headers))

    def test_repeatedCredentialsAreRefused(self) -> None:
        headers = {"Authorization": f"Bearer {TOKEN}", "authorization": f"Bearer {TOKEN}"}
        self.assertRefused(self.ask("publish?topic=t&content=x", headers), 401, 101015)

    def test_headersAreReadInFullOverAConnection(self) -> None:
        """A request never acts by the credentials of the one before it."""
        connection = self.client.connect()
        publish = f"{BASE}/rest/publish?topic=t&content=x"
        for headers, status in (
            (basic("ann"), 200),
            (basic("ann"), 200),
            ({}, 401),
            (basic("bob"), 403),
            (basic("ann"), 200),
            (basic("ann", "x"), 401),
            (basic("ann"), 200),
        ):
            connection.send(requestBytes("GET", publish, headers=headers))
            [answer] = connection.answers()
            self.assertEqual(answer.status, status, headers)

    def test_anonymousClientsMayDoWhatIsGranted(self) -> None:
        self.make(anonymous=("subscribe 1 news",))
        self.topic("t")
        self.topic("news")
        self.assertEqual(self.ask("exist?topic=news").body, b"true")
        self.assertEqual(self.client.ask("GET", f"{BASE}/openapi.json").status, 200)
        self.assertRefused(self.ask("publish?topic=news&content=x"), 403, 101016)
        self.assertRefused(self.ask("exist?topic=news", basic("ann", "x")), 401, 101015)
        self.assertPublished(self.ask("publish?topic=t&content=x", basic("ann")))

    def test_anyAccountMayReadTheDescriptions(self) -> None:
        for name in ("openapi.json", "openrpc.json", "asyncapi.json", "docs"):
            answer = self.client.ask("GET", f"{BASE}/{name}", headers=basic("bob"))
            self.assertEqual(answer.status, 200, name)

    def test_certificateNeedsNoPassword(self) -> None:
        """Credentials in the request count before it; one that no account names is none."""
        certificate = PeerCertificate(commonName="ann", fingerprint="0" * 64)
        self.patch(logins, "peerCertificate", lambda transport: certificate)
        connection = self.client.connect()
        publish = f"{BASE}/rest/publish?topic=t&content=x"
        for headers, status in (({}, 200), ({}, 200), (basic("bob"), 403), ({}, 200)):
            connection.send(requestBytes("GET", publish, headers=headers))
            [answer] = connection.answers()
            self.assertEqual(answer.status, status, headers)
        certificate = PeerCertificate(commonName="nosuch", fingerprint="0" * 64)
        self.assertRefused(self.ask("publish?topic=t&content=x"), 401, 101015)
        self.assertPublished(self.ask("publish?topic=t&content=x", basic("ann")))

    def test_preflightNeedsNoCredentials(self) -> None:
        self.make(settings=HttpSettings(corsOrigins={"http://a"}))
        headers = {"Origin": "http://a", "Access-Control-Request-Method": "POST"}
        answer = self.client.ask("OPTIONS", f"{BASE}/rest/publish", headers=headers)
        self.assertEqual(answer.status, 204)
        allowed = answer.headers["access-control-allow-headers"]
        self.assertEqual(
            allowed,
            "Authorization, Content-Type, Idempotency-Key, traceparent, tracestate, svc-after",
        )
        self.assertNotIn("access-control-allow-credentials", answer.headers)
        refused = self.ask("list", {"Origin": "http://a"})
        self.assertRefused(refused, 401, 101015)
        self.assertEqual(refused.headers["access-control-allow-origin"], "http://a")

    def test_pagesOfOtherOriginsCannotTryPasswords(self) -> None:
        self.accounts.checked = 0
        for name in ("Origin", "Sec-Fetch-Site"):
            value = {"Origin": "http://b", "Sec-Fetch-Site": "cross-site"}[name]
            self.assertRefused(self.ask("list", {name: value, **basic("ann")}), 403, 101016)
        self.assertEqual(self.accounts.checked, 0)

    def test_optionalCredentialsMustBeRight(self) -> None:
        """As on the paths of WebSockets."""
        seen: list[Any] = []

        def handle(request: Any) -> bytes:
            seen.append(principalOf(request))
            return respond(request, b"{}")

        route = Route(
            path="/ws", methods=("GET",), handler=handle, credentials=Credentials.OPTIONAL
        )
        self.make(routes=(route,))
        self.assertEqual(self.client.ask("GET", "/ws").status, 200)
        self.assertRefused(self.client.ask("GET", "/ws", headers=basic("ann", "x")), 401, 101015)
        self.assertEqual(self.client.ask("GET", "/ws", headers=basic("ann")).status, 200)
        self.assertEqual([each and each.name for each in seen], [None, "ann"])

    def test_credentialsAreNotLogged(self) -> None:
        self.make(settings=HttpSettings(accessLog=True))
        events: list[LogEvent] = []
        observer = cast(ILogObserver, events.append)
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)
        for headers in (basic("ann", "hush"), {"Authorization": "Bearer hush"}):
            self.ask("list", headers)
        self.clock.advance(60)
        self.assertEqual([event["code"] for event in events if "code" in event], [401, 401])
        for secret in ("hush", b64encode(b"ann:hush").decode()):
            self.assertNotIn(secret, repr(events))


class GrantTests(AuthenticationTestCase):
    """
    What is answered to accounts that may not.
    """

    def test_whatIsNotGrantedIs403(self) -> None:
        for path in (
            "rest/publish?topic=secret&content=x",
            "rest/open?topic=u",
            "admin/block/blockList",
        ):
            answer = self.client.ask("GET", f"{BASE}/{path}", headers=basic("ann"))
            self.assertRefused(answer, 403, 101016)

    def test_otherErrorsAreAsBefore(self) -> None:
        for call, code in (
            ("publish?topic=&content=x", 100103),
            ("publish?topic=t", 100200),
            ("nosuch", 200204),
        ):
            self.assertRefused(self.ask(call, basic("ann")), 200, code)

    def test_callsOfABatchAreRefusedEach(self) -> None:
        def call(topic: str, method: str = "publish", **more: str) -> Any:
            params = {"topic": topic, **more}
            if method == "publish":
                params["content"] = b64encode(b"x").decode()
            return {"jsonrpc": "2.0", "id": topic, "method": method, "params": params}

        batch = [call("t"), call("secret"), call("t", "exist"), call("x", "open"), call("t")]
        answer = self.rpc(batch, basic("ann"))
        self.assertEqual(answer.status, 200)
        told = [
            each["error"]["code"] if "error" in each else each["result"] for each in answer.json()
        ]
        self.assertEqual((told[1], told[2], told[3]), (-32040, "true", -32040))
        self.assertEqual((told[0]["status"], told[4]["status"]), ("SUCCESS", "SUCCESS"))
        alone = self.rpc(call("secret"), basic("ann"))
        self.assertEqual((alone.status, alone.json()["error"]["code"]), (200, -32040))

    def test_unreadableTopicsAreAsIfTheyWereNotThere(self) -> None:
        """Byte for byte, the name aside."""
        published = self.ask("publish?topic=secret&content=x", basic("root")).json()["eventId"]
        for hidden, missing in (
            ("exist?topic=secret", "exist?topic=nosuch"),
            ("state?topic=secret", "state?topic=nosuch"),
            ("close?topic=secret", "close?topic=nosuch"),
            ("publish?topic=secret&content=x", "publish?topic=nosuch&content=x"),
        ):
            one, other = (self.ask(call, basic("ann")) for call in (hidden, missing))
            # The second may have changed meanwhile.
            self.assertEqual({**one.headers, "date": ""}, {**other.headers, "date": ""})
            self.assertEqual(one.status, other.status)
            self.assertEqual(one.body.replace(b"secret", b"nosuch"), other.body)
        [hash, sequence, height] = published.split("-")
        one = self.ask(f"getEvent?eventId={published}", basic("ann"))
        other = self.ask(f"getEvent?eventId={hash}-{int(sequence) + 1}-{height}", basic("ann"))
        self.assertEqual((one.status, one.body), (other.status, other.body))

    def test_quotaTellsWhenToTryAgain(self) -> None:
        """In whole seconds, rounded up. The answer comes late."""
        self.make(quotas=Quotas(publishes=0.4))
        self.topic("t")
        publish = "publish?topic=t&content=x"
        self.assertPublished(self.ask(publish, basic("ann")))
        connection = self.client.connect()

        def refused(path: str, body: bytes = b"") -> Answer:
            method = "POST" if body else "GET"
            connection.send(requestBytes(method, f"{BASE}/{path}", body, basic("ann")))
            self.assertEqual(connection.answers(), [])
            self.clock.advance(REFUSAL_DELAY)
            [answer] = connection.answers()
            return answer

        answer = refused(f"rest/{publish}")
        self.assertRefused(answer, 200, 200101)
        self.assertEqual(answer.headers["retry-after"], "3")
        call = {"topic": "t", "content": b64encode(b"x").decode()}
        body = {"jsonrpc": "2.0", "id": 1, "method": "publish", "params": call}
        answer = refused("jsonrpc", json.dumps(body).encode())
        self.assertEqual(answer.json()["error"]["code"], -32050)
        self.assertEqual(answer.json()["error"]["data"]["retryAfter"], 2.25)
        self.clock.advance(2.4 - 2 * REFUSAL_DELAY)
        self.assertEqual(refused(f"rest/{publish}").headers["retry-after"], "1")
        self.clock.advance(0.2 - REFUSAL_DELAY)
        self.assertPublished(self.ask(publish, basic("ann")))

    def test_quotaHoldsWithinABatch(self) -> None:
        """The first calls are made; the others say when to try again."""
        self.make(quotas=Quotas(publishes=2))
        self.topic("t")
        author = Author().sign(tellChain(self.fixture.ledger), "t", b"x", {})
        signed = {
            "author": author.key.hex(),
            "signature": author.signature.hex(),
            "signedAt": author.signedAt,
        }
        # Signed ones are submitted in parts.
        self.patch(jsonrpc, "MAX_SIGNED", 100)
        for more in ({}, signed):
            call = {"topic": "t", "content": b64encode(b"x").decode(), **more}
            self.clock.advance(2)
            batch = [
                {"jsonrpc": "2.0", "id": number, "method": "publish", "params": call}
                for number in range(150)
            ]
            connection = self.client.connect()
            body = json.dumps(batch).encode()
            connection.send(requestBytes("POST", f"{BASE}/jsonrpc", body, basic("ann")))
            self.assertEqual(connection.answers(), [])
            self.clock.advance(REFUSAL_DELAY)
            [answer] = connection.answers()
            answers = answer.json()
            self.assertEqual([each["id"] for each in answers], [*range(150)])
            self.assertEqual([each["result"]["status"] for each in answers[:2]], ["SUCCESS"] * 2)
            self.assertEqual({each["error"]["code"] for each in answers[2:]}, {-32050})
            self.assertEqual({each["error"]["data"]["retryAfter"] for each in answers[2:]}, {1.0})


class ConnectionQuotaTests(AuthenticationTestCase):
    """
    An account that may have two connections.
    """

    def setUp(self) -> None:
        self.make(quotas=Quotas(connections=2))
        self.topic("t")
        self.first, self.second = self.client.connect(), self.client.connect()
        for connection in (self.first, self.second):
            self.assertEqual(self.exist(connection).body, b"true")

    def exist(self, connection: Connection, name: str = "ann") -> Answer:
        """Ask over a connection."""
        call = f"{BASE}/rest/exist?topic=t"
        connection.send(requestBytes("GET", call, headers=basic(name)))
        [answer] = connection.answers()
        return answer

    def test_furtherConnectionsAreRefused(self) -> None:
        for _ in range(2):
            self.assertEqual(self.exist(self.first).body, b"true")
        third = self.client.connect()
        answer = self.exist(third)
        self.assertRefused(answer, 200, 200101)
        self.assertEqual(answer.headers["retry-after"], "1")
        told = self.rpc({"jsonrpc": "2.0", "id": 1, "method": "exist"}, basic("ann"))
        self.assertEqual(told.json()["error"]["code"], -32050)
        self.assertEqual(told.headers["retry-after"], "1")
        self.first.disconnect()
        self.assertEqual(self.exist(third).body, b"true")

    def test_connectionBelongsToTheLastAccount(self) -> None:
        self.assertEqual(self.exist(self.first, "root").body, b"true")
        third = self.client.connect()
        self.assertEqual(self.exist(third).body, b"true")
        self.assertRefused(self.exist(self.first), 200, 200101)


class ChangeTests(AuthenticationTestCase):
    """
    Accounts that change while a connection is open.
    """

    def setUp(self) -> None:
        super().setUp()
        self.connection = self.client.connect()

    def publish(self) -> int:
        """Publish over the connection; the status."""
        call = f"{BASE}/rest/publish?topic=t&content=x"
        self.connection.send(requestBytes("GET", call, headers=basic("ann")))
        [answer] = self.connection.answers()
        return answer.status

    def test_passwordIsCheckedOnceAMinute(self) -> None:
        self.accounts.checked = 0
        for _ in range(119):
            self.clock.advance(0.5)
            self.assertEqual(self.publish(), 200)
        self.assertEqual(self.accounts.checked, 1)
        self.clock.advance(1 + RECALL)
        self.assertEqual(self.publish(), 200)
        self.assertEqual(self.accounts.checked, 2)

    def test_removedAccountIsRefused(self) -> None:
        self.assertEqual(self.publish(), 200)
        ann = self.accounts.identities.pop("ann")
        self.successResultOf(self.access.reload())
        self.assertEqual(self.publish(), 401)
        self.accounts.identities["ann"] = ann
        self.assertEqual(self.publish(), 200)

    def test_grantsChangeAtOnce(self) -> None:
        self.assertEqual(self.publish(), 200)
        self.accounts.identities["ann"] = account("ann", "publish 1 other")
        self.successResultOf(self.access.reload())
        self.assertEqual(self.publish(), 403)

    def test_changedPasswordCountsAfterAReload(self) -> None:
        """At the latest when the connection asks again."""
        self.assertEqual(self.publish(), 200)
        self.accounts.isLocked = True
        self.successResultOf(self.access.reload())
        self.clock.advance(RECALL)
        self.assertEqual(self.publish(), 401)


class CredentialTestsWithoutFastPath(CredentialTests):
    """The same without the fast path."""

    hasFastPath = False


class GrantTestsWithoutFastPath(GrantTests):
    """The same without the fast path."""

    hasFastPath = False


class ChangeTestsWithoutFastPath(ChangeTests):
    """The same without the fast path."""

    hasFastPath = False


class ConnectionQuotaTestsWithoutFastPath(ConnectionQuotaTests):
    """The same without the fast path."""

    hasFastPath = False
