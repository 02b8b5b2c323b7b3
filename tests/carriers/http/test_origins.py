"""
Tests of what web pages cannot do: requests of other sites, and DNS rebinding.
"""

from __future__ import annotations

from typing import cast

from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.interfaces import IAddress
from twisted.logger import ILogObserver, LogEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.http.logins import MAX_LOGGED, HttpSettings

from .support import BASE, FORM, Answer, Client, Connection, requestBytes

LOOPBACK = IPv4Address("TCP", "127.0.0.1", 8080)
PUBLISH = b"topic=t&content=x"


class OriginTests(SynchronousTestCase):
    """
    Requests as browsers send them for pages.
    """

    def setUp(self) -> None:
        self.client = Client()
        self.client.rest("open?topic=t")

    def ask(
        self,
        path: str = "rest/publish",
        method: str = "POST",
        body: bytes = PUBLISH,
        **headers: str,
    ) -> Answer:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.ask(method, f"{BASE}/{path}", body, {"Content-Type": FORM, **given})

    def published(self) -> int:
        number: int = self.client.rest("state?topic=t")["sequenceNumber"]
        return number

    def test_formOfAnotherSiteIsRefused(self) -> None:
        """Before anything is done."""
        for origin in ("http://evil.example", "null", "http://broker.evil.example", "http://[", ""):
            answer = self.ask(Origin=origin)
            self.assertEqual((answer.status, answer.json()["code"]), (403, 101016), origin)
        self.assertEqual(self.published(), 0)

    def test_imageOfAnotherSiteIsRefused(self) -> None:
        """It has no origin, but browsers say that its page is another site's."""
        path = "rest/publish?topic=t&content=x"
        for site in ("cross-site", "same-site", "Cross-Site"):
            answer = self.ask(path, "GET", b"", Sec_Fetch_Site=site)
            self.assertEqual((answer.status, answer.json()["code"]), (403, 101016))
        self.assertEqual(self.published(), 0)
        for site in ("same-origin", "none"):
            self.assertEqual(self.ask(path, "GET", b"", Sec_Fetch_Site=site).status, 200)
        self.assertEqual(self.published(), 2)

    def test_refusalIsEncodedAsTheAreaDoes(self) -> None:
        answer = self.ask("jsonrpc", body=b"{}", Origin="http://evil.example")
        self.assertEqual((answer.status, answer.json()["error"]["data"]["code"]), (403, 101016))
        answer = self.ask("stomp", "GET", b"", Origin="http://evil.example", Upgrade="websocket")
        self.assertEqual((answer.status, answer.json()["code"]), (403, 101016))

    def test_ownOriginIsServed(self) -> None:
        for host, origin in (
            ("broker", "http://broker"),
            ("broker:80", "http://broker"),
            ("broker:443", "https://broker"),
            ("Broker:8080", "http://broker:8080"),
        ):
            self.assertEqual(self.ask(Host=host, Origin=origin).status, 200, host)
        for host, origin in (("broker", "http://broker:8080"), ("broker:443", "http://broker")):
            self.assertEqual(self.ask(Host=host, Origin=origin).status, 403, host)

    def test_allowedOriginIsServed(self) -> None:
        """Also of another site."""
        for allowed in ("http://a", "*"):
            self.client = Client(HttpSettings(corsOrigins={allowed}))
            self.client.rest("open?topic=t")
            answer = self.ask(Origin="http://a", Sec_Fetch_Site="cross-site")
            self.assertEqual(answer.json()["status"], "SUCCESS")

    def test_repeatedOriginIsRefused(self) -> None:
        connection = self.client.connect()
        request = requestBytes("GET", f"{BASE}/rest/list", headers={"Origin": "http://broker"})
        connection.send(request.replace(b"Origin", b"Origin: http://broker\r\nOrigin"))
        self.assertEqual(connection.answers()[0].status, 403)

    def test_connectionIsServedAfterARefusal(self) -> None:
        """And each request is checked, not only the first one."""
        good = requestBytes("GET", f"{BASE}/rest/exist?topic=t")
        bad = requestBytes("GET", f"{BASE}/rest/exist?topic=t", headers={"Origin": "http://evil"})
        connection = self.client.connect()
        connection.send(good + bad + good + bad)
        self.assertEqual([each.status for each in connection.answers()], [200, 403, 200, 403])

    def test_refusalsAreLoggedOnce(self) -> None:
        """Each origin once, and a bounded number of them."""
        events: list[LogEvent] = []
        observer = cast(ILogObserver, events.append)
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)
        for _ in range(3):
            self.ask(Origin="http://evil.example")
        [event] = [event for event in events if "reason" in event]
        self.assertIn("'http://evil.example'", event["reason"])
        for number in range(2 * MAX_LOGGED):
            self.ask(Origin=f"http://evil{number}.example")
        self.assertEqual(len([event for event in events if "reason" in event]), MAX_LOGGED)


class RebindingTests(SynchronousTestCase):
    """
    Requests to a loopback address under the name of another host.
    """

    def status(self, client: Client, host: str, address: IAddress = LOOPBACK) -> int:
        connection = Connection(client.site, host=address)
        connection.send(requestBytes("GET", f"{BASE}/rest/list", headers={"Host": host}))
        [answer] = connection.answers()
        return answer.status

    def test_otherHostIsRefusedOnLoopback(self) -> None:
        client = Client()
        for host in ("evil.example", "evil.example:8080", "127.0.0.1.evil.example", ""):
            self.assertEqual(self.status(client, host), 403, host)
            self.assertEqual(self.status(client, host, IPv6Address("TCP", "::1", 1)), 403, host)
        for host in ("localhost", "LOCALHOST:8080", "127.0.0.1:8080", "[::1]:8080"):
            self.assertEqual(self.status(client, host), 200, host)

    def test_configuredHostIsServedOnLoopback(self) -> None:
        client = Client(HttpSettings(hostNames={"broker.example"}))
        for host in ("broker.example", "Broker.example:443"):
            self.assertEqual(self.status(client, host), 200, host)

    def test_requestWithoutHostIsServed(self) -> None:
        """Browsers always send one, and so does everything that speaks HTTP/1.1."""
        connection = Connection(Client().site, host=LOOPBACK)
        connection.send(f"GET {BASE}/rest/list HTTP/1.0\r\n\r\n".encode())
        self.assertEqual([each.status for each in connection.answers()], [200])

    def test_anyHostIsServedElsewhere(self) -> None:
        for address in (IPv4Address("TCP", "192.0.2.1", 8080), UNIXAddress("/socket")):
            self.assertEqual(self.status(Client(), "broker.example", address), 200)
