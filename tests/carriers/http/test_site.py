"""
Tests of the site: routing, bounds, connections.
"""

from __future__ import annotations

from typing import cast

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.logger import ILogObserver, LogEvent, globalLogPublisher
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.resource import Resource
from twisted.web.server import Request
from twisted.web.websocket import WebSocketResource, WebSocketTransport

from svcbroker.carriers.http import Route
from svcbroker.carriers.http.connection import LINGER
from svcbroker.carriers.http.logins import HttpSettings
from svcbroker.carriers.http.routes import _application
from svcbroker.net.transports import CLOSE_AT_STOP

from .support import BASE, FORM, Client, requestBytes

MAX_BODY = 3 * 1000 + 64 * 1024


class RoutingTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.client = Client()

    def test_unknownPathIs404(self) -> None:
        for path in (
            "/",
            "/nothing",
            BASE,
            f"{BASE}/",
            f"{BASE}/restful",
            f"{BASE}/jsonrpc/x",
            "/%FF",
            f"{BASE}/openapi.json/",
            "http://broker/",
        ):
            answer = self.client.ask("GET", path)
            self.assertEqual((answer.status, answer.json()["code"]), (404, 200204), path)
            self.assertEqual(answer.headers["content-type"], "application/json;charset=UTF-8")

    def test_unknownCallIsAnError(self) -> None:
        for path in (
            "rest",
            "rest/",
            "rest/none",
            "rest/open/",
            "rest//open",
            "rest/%FF",
            "rest/a/b",
            "admin",
            "admin/none",
            "admin/group",
        ):
            answer = self.client.ask("GET", f"{BASE}/{path}")
            self.assertEqual((answer.status, answer.json()["code"]), (200, 200204), path)

    def test_otherMethodIs405(self) -> None:
        for method, path, allow in (
            ("DELETE", f"{BASE}/rest/open", "GET, HEAD, OPTIONS, POST"),
            ("PUT", f"{BASE}/rest/none", "GET, HEAD, OPTIONS, POST"),
            ("POST", f"{BASE}/admin/listGroup", "GET, HEAD, OPTIONS"),
            ("POST", f"{BASE}/admin/none", "GET, HEAD, OPTIONS"),
            ("BREW", "/healthz", "GET, HEAD, OPTIONS"),
        ):
            answer = self.client.ask(method, path)
            self.assertEqual((answer.status, answer.headers["allow"]), (405, allow))
            self.assertEqual(answer.json()["code"], 200204)

    def test_headHasNoBody(self) -> None:
        get = self.client.ask("GET", f"{BASE}/admin/listGroup")
        head = self.client.ask("HEAD", f"{BASE}/admin/listGroup")
        self.assertEqual((head.status, head.body), (200, b""))
        self.assertEqual(head.headers["content-length"], str(len(get.body)))

    def test_optionsWithoutCORS(self) -> None:
        answer = self.client.ask("OPTIONS", f"{BASE}/jsonrpc", headers={"Origin": "http://broker"})
        self.assertEqual((answer.status, answer.body), (204, b""))
        self.assertEqual(answer.headers["allow"], "OPTIONS, POST")
        self.assertEqual([name for name in answer.headers if name.startswith("access")], [])

    def test_anyHostHeaderIsRouted(self) -> None:
        """Klein's router fails on some of them."""
        for host in (
            *("", ":", ":80", "a:", "_a.b-c~:8080", "%ff..x" + "y" * 300, "!$&'()*+,;=", "1.2.3.4"),
            *("[::1]", "[2001:DB8::192.0.2.1]:80", "[v1.a:b]"),
        ):
            for path in ("/healthz", f"{BASE}/rest/list"):
                answer = self.client.ask("GET", path, headers={"Host": host})
                self.assertEqual(answer.status, 200, host)

    def test_basePathIsConfigurable(self) -> None:
        for basePath, path in (("/", "/rest/list"), ("/a/b", "/a/b/rest/list")):
            client = Client(HttpSettings(basePath=basePath))
            self.assertEqual(client.ask("GET", path).json()["total"], 0)
        for wrong in ("a", "/a b", "/<x>", "/a//b", "/a/b/"):
            with self.assertRaises(ValueError):
                HttpSettings(basePath=wrong)

    def test_otherRoutesAreServed(self) -> None:
        """Resources too; and the failure of a handler is an answer."""

        class Leaf(Resource):
            isLeaf = True

            def render_GET(self, request: object) -> bytes:
                return b"leaf"

        def broken(request: object) -> bytes:
            raise ZeroDivisionError("secret")

        client = Client(
            routes=(
                Route(path="/leaf", methods=("GET",), handler=lambda _: Leaf(), isBranch=True),
                Route(path="/broken", methods=("GET",), handler=broken),
            )
        )
        for path in ("/leaf", "/leaf/below"):
            self.assertEqual(client.ask("GET", path).body, b"leaf")
        answer = client.ask("GET", "/broken")
        self.assertEqual(answer.status, 500)
        self.assertEqual(answer.json()["message"], "unknown error, incident incident-id")
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_rulesAreOnlyMatched(self) -> None:
        """Werkzeug compiles nothing that builds addresses, also of the paths below a rule."""
        app = _application((("a", "/a", ("GET",), False), ("b", "/b/<name>", ("GET",), True)))
        rules = [*app.url_map.iter_rules()]
        self.assertEqual(len(rules), 3)
        for each in rules:
            values = {"name": "x", "__rest__": "y"}
            self.assertRaises(NotImplementedError, each.build, values)


class Silent:
    """A WebSocket protocol that does nothing."""

    def negotiationStarted(self, transport: WebSocketTransport) -> None:
        pass

    def negotiationFinished(self) -> None:
        pass

    def pongReceived(self, payload: bytes) -> None:
        pass

    def textMessageReceived(self, message: str) -> None:
        pass

    def bytesMessageReceived(self, data: bytes | bytearray) -> None:
        pass

    def connectionLost(self, reason: Failure) -> None:
        pass


class SilentFactory:
    def buildProtocol(self, request: Request) -> Silent:
        return Silent()


class WebSocketTests(SynchronousTestCase):
    def test_upgradedConnectionIsNotDrained(self) -> None:
        resource = WebSocketResource(SilentFactory())
        client = Client(routes=(Route(path="/ws", methods=("GET",), handler=lambda _: resource),))
        connection = client.connect()
        connection.send(
            requestBytes(
                "GET",
                "/ws",
                headers={
                    "Connection": "Upgrade",
                    "Upgrade": "websocket",
                    "Sec-WebSocket-Version": "13",
                    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
                },
            )
        )
        self.assertIn(b" 101 ", connection.transport.value())
        self.successResultOf(client.site.drain())


class CrossOriginTests(SynchronousTestCase):
    def test_allowedOriginMayRead(self) -> None:
        client = Client(HttpSettings(corsOrigins={"http://a"}))
        for method in ("GET", "OPTIONS"):
            answer = client.ask(method, f"{BASE}/rest/list", headers={"Origin": "http://a"})
            self.assertEqual(answer.headers["access-control-allow-origin"], "http://a")
            self.assertEqual(answer.headers["vary"], "Origin")
        self.assertIn("POST", answer.headers["access-control-allow-methods"])

    def test_otherOriginMayNotRead(self) -> None:
        client = Client(HttpSettings(corsOrigins={"http://a"}))
        answer = client.ask("OPTIONS", f"{BASE}/rest/list", headers={"Origin": "http://b"})
        self.assertEqual(answer.status, 403)
        self.assertEqual([name for name in answer.headers if name.startswith("access")], [])

    def test_starAllowsEveryOrigin(self) -> None:
        client = Client(HttpSettings(corsOrigins={"*"}))
        answer = client.ask("GET", "/nothing", headers={"Origin": "http://b"})
        self.assertEqual(answer.headers["access-control-allow-origin"], "http://b")


class BodyBoundTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.client = Client()
        self.connection = self.client.connect()

    def announce(self, path: str, length: int, *headers: str) -> None:
        lines = (f"POST {path} HTTP/1.1", "Host: b", f"Content-Length: {length}", *headers)
        self.connection.send("\r\n".join(lines).encode() + b"\r\n\r\n")

    def test_announcedBodyIsRefusedAtTheHeaders(self) -> None:
        """Before any of the body has arrived, as each area encodes errors."""
        for path, status in (
            (f"{BASE}/rest/publish", 200),
            (f"{BASE}/admin/listGroup", 200),
            ("/healthz", 413),
            ("/nothing", 413),
        ):
            self.connection = self.client.connect()
            self.announce(path, MAX_BODY + 1, "Expect: 100-continue")
            [answer] = self.connection.answers()
            self.assertEqual((answer.status, answer.json()["code"]), (status, 100201))
            self.assertEqual(answer.headers["connection"], "close")

    def test_announcedJSONRPCBodyIsRefused(self) -> None:
        self.announce(f"{BASE}/jsonrpc", 10**18)
        [answer] = self.connection.answers()
        self.assertEqual(answer.status, 200)
        self.assertEqual((answer.json()["id"], answer.json()["error"]["code"]), (None, -32011))

    def test_refusedBodyIsReadForAMoment(self) -> None:
        """Its bytes are discarded; then the connection closes."""
        self.announce(f"{BASE}/rest/publish", 10**9)
        self.assertEqual(len(self.connection.answers()), 1)
        for _ in range(10):
            self.connection.send(b"x" * 100_000 + b"\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n")
        self.assertEqual(self.connection.answers(), [])
        self.assertTrue(self.connection.isOpen)
        self.client.fixture.clock.advance(LINGER)
        self.assertFalse(self.connection.isOpen)

    def test_bodyAtTheBoundIsServed(self) -> None:
        self.announce(
            f"{BASE}/rest/open?topic=t", MAX_BODY, f"Content-Type: {FORM}", "Expect: 100-continue"
        )
        self.assertEqual(self.connection.transport.value(), b"HTTP/1.1 100 Continue\r\n\r\n")
        self.connection.transport.clear()
        self.connection.send(b"x" * MAX_BODY)
        self.assertIs(self.connection.answers()[0].json(), True)

    def test_tooLargeChunkedBodyIsRefused(self) -> None:
        """At the first chunk that is too many."""
        self.connection.send(
            f"POST {BASE}/rest/publish HTTP/1.1\r\nHost: b\r\n"
            "Transfer-Encoding: chunked\r\n\r\n".encode()
        )
        chunk = b"400\r\n" + b"x" * 1024 + b"\r\n"
        for _ in range(MAX_BODY // 1024):
            self.connection.send(chunk)
        self.assertEqual(self.connection.answers(), [])
        self.connection.send(chunk * 2 + b"0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: b\r\n\r\n")
        [answer] = self.connection.answers()
        self.assertEqual(answer.json()["code"], 100201)

    def test_chunkedBodyIsServed(self) -> None:
        self.connection.send(
            f"POST {BASE}/rest/open HTTP/1.1\r\nHost: b\r\nContent-Type: {FORM}\r\n"
            "Transfer-Encoding: chunked\r\n\r\n7\r\ntopic=t\r\n0\r\n\r\n".encode()
        )
        self.assertIs(self.connection.answers()[0].json(), True)

    def test_endlessRequestLineIsRefused(self) -> None:
        """A publish by GET with the error of REST, others with status 431."""
        for path, status in ((f"{BASE}/rest/publish", 200), ("/", 431)):
            connection = self.client.connect()
            connection.send(f"GET {path}?".encode() + b"x" * 100_000)
            [answer] = connection.answers()
            self.assertEqual((answer.status, answer.json()["code"]), (status, 100207))
            self.client.fixture.clock.advance(LINGER)
            self.assertFalse(connection.isOpen)

    def test_headsOfAllConnectionsHaveABound(self) -> None:
        """
        One line or many, behind an answered request or the first; what is answered makes room.
        """
        budget = self.client.site.budgets.input
        budget.own = 3 * 20_000
        for lines in (b"X-Long: " + b"x" * 20_000, (b"X-Short: " + b"x" * 50 + b"\r\n") * 350):
            head = b"GET /healthz HTTP/1.1\r\nHost: b\r\n" + lines
            asked = [self.client.connect() for _ in range(4)]
            asked[0].send(b"GET /healthz HTTP/1.1\r\nHost: b\r\n\r\n")
            self.assertEqual(asked[0].answers()[0].status, 200)
            for each in asked[:2]:
                each.send(head)
                self.assertEqual(each.answers(), [])
            asked[2].send(head)
            [refusal] = asked[2].answers()
            self.assertEqual((refusal.status, refusal.json()["code"]), (503, 200101))
            asked[0].send(b"\r\n\r\n")
            self.assertEqual(asked[0].answers()[0].status, 200)
            self.client.fixture.clock.advance(LINGER)
            self.assertFalse(asked[2].isOpen)
            asked[3].send(head)
            self.assertEqual(asked[3].answers(), [])
            for each in (*asked[:2], asked[3]):
                each.disconnect()
            self.assertEqual(budget.used, 0)

    def test_whatIsNoRequestIsExplained(self) -> None:
        """In JSON, since a client such as curl shows nothing else. Its bytes are read on."""
        body = f"POST {BASE}/rest/open HTTP/1.1\r\nHost: b\r\nTransfer-Encoding: chunked\r\n\r\n"
        for data in (
            f"GET {BASE}/rest/open?topic=Zürich HTTP/1.1\r\nHost: b\r\n\r\n".encode(),
            b"GET / HTTP/1.1\r\nHost : b\r\nA: b\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: b\r\nno header\r\n\r\n",
            body.encode() + b"zz\r\n",
        ):
            connection = self.client.connect()
            connection.send(data)
            [answer] = connection.answers()
            self.assertEqual((answer.status, answer.json()["code"]), (400, 100600))
            connection.send(b"GET /healthz HTTP/1.1\r\nHost: b\r\n\r\n")
            self.assertTrue(connection.isOpen)
            self.client.fixture.clock.advance(LINGER)
            self.assertEqual((connection.answers(), connection.isOpen), ([], False))


class HostTests(SynchronousTestCase):
    """
    The header Host, which RFC 9112 requires once, on every path.
    """

    def setUp(self) -> None:
        self.client = Client()

    def assertRefused(self, head: str) -> None:
        """
        The request is refused before it has an effect, and nothing behind it is read.
        """
        self.client.rest("open?topic=t")
        before = self.client.rest("state?topic=t")
        for target in ("/healthz", "/nothing", f"{BASE}/rest/publish?topic=t&content=x"):
            connection = self.client.connect()
            request = f"POST {target} HTTP/1.1\r\n{head}\r\n".encode("latin-1")
            connection.send(request + requestBytes("GET", "/healthz"))
            [answer] = connection.answers()
            self.assertEqual((answer.status, answer.json()["code"]), (400, 100600), head)
            self.assertIn("Host", answer.json()["message"])
            self.assertEqual(answer.headers["connection"], "close")
            self.client.fixture.clock.advance(LINGER)
            self.assertFalse(connection.isOpen)
        self.assertEqual(self.client.rest("state?topic=t"), before)

    def test_twoHostsAreRefused(self) -> None:
        """Also equal ones: a proxy may go by another of them than this."""
        for other in ("evil.example", "broker", ""):
            self.assertRefused(f"Host: broker\r\nhost: {other}\r\n")
            self.assertRefused(f"Host: {other}\r\nContent-Length: 0\r\nHost: broker\r\n")

    def test_invalidHostIsRefused(self) -> None:
        for host in (
            *("a b", "a/b", "a, b", "user@a", "a:b", "a:1:2", "a:+1", "a?", "a#", "a\\b", '"a"'),
            *("[::1", "::1", "[]", "[1.2.3.4]", "[::1%25eth0]", "[::1]a", "[:::]", "[v.a]"),
            *("%", "%f", "%fg", "<a>", "\xe9", "a\x7f", "a" * 5000 + "/"),
        ):
            self.assertRefused(f"Host: {host}\r\n")

    def test_missingHostIsRefused(self) -> None:
        self.assertRefused("")
        self.assertRefused("X-Forwarded-Host: broker\r\n")

    def test_oldRequestNeedsNoHost(self) -> None:
        """But two are refused in HTTP/1.0 too."""
        for head, status in (("", 200), ("Host: a\r\n", 200), ("Host: a\r\nHost: a\r\n", 400)):
            connection = self.client.connect()
            connection.send(f"GET /healthz HTTP/1.0\r\n{head}\r\n".encode())
            self.assertEqual([each.status for each in connection.answers()], [status])

    def test_bodyOfARefusedRequestIsDiscarded(self) -> None:
        connection = self.client.connect()
        connection.send(f"POST {BASE}/rest/open HTTP/1.1\r\nContent-Length: 60\r\n\r\n".encode())
        self.assertEqual([each.status for each in connection.answers()], [400])
        connection.send(requestBytes("GET", f"{BASE}/rest/open?topic=u") * 2)
        self.assertEqual(connection.answers(), [])
        self.assertIs(self.client.rest("exist?topic=u"), False)


class SniffingTests(SynchronousTestCase):
    """
    Browsers take no answer for anything but its content type.
    """

    def test_answersAreNotSniffed(self) -> None:
        """Results and errors, of calls and of other paths, also where no request is understood."""
        client = Client(HttpSettings(corsOrigins={"http://a"}))
        good = {"Host": "broker", "Origin": "http://a"}
        for headers in (good, {"Host": "broker"}, {**good, "Connection": "close"}):
            for method, path, status in (
                ("GET", f"{BASE}/rest/open?topic=t", 200),
                ("GET", f"{BASE}/rest/open", 200),
                ("POST", f"{BASE}/jsonrpc", 200),
                ("GET", f"{BASE}/openapi.json", 200),
                ("OPTIONS", f"{BASE}/rest/open", 204),
                ("GET", "/healthz", 200),
                ("GET", "/nothing", 404),
                ("DELETE", f"{BASE}/rest/open", 405),
            ):
                answer = client.ask(method, path, headers=headers)
                self.assertEqual(answer.status, status, path)
                self.assertEqual(answer.headers["x-content-type-options"], "nosniff", path)

    def test_refusalsAreNotSniffed(self) -> None:
        for request, status in (
            (requestBytes("GET", "/healthz", headers={"Origin": "http://evil.example"}), 403),
            (requestBytes("GET", "/healthz", headers={"Content-Length": "100000"}), 413),
            (b"no request\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\n\r\n", 400),
            (b"GET /" + b"x" * 100_000, 431),
        ):
            connection = Client().connect()
            connection.send(request)
            [answer] = connection.answers()
            self.assertEqual(answer.status, status)
            self.assertEqual(answer.headers["x-content-type-options"], "nosniff", status)


class ConnectionTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.client = Client()
        self.ledger = self.client.fixture.ledger
        self.client.rest("open?topic=t")
        self.connection = self.client.connect()
        self.publish = requestBytes("GET", f"{BASE}/rest/publish?topic=t&content=x")

    def sequence(self) -> int:
        number: int = self.client.rest("state?topic=t")["sequenceNumber"]
        return number

    def test_pipelinedRequestsAreAnsweredInOrder(self) -> None:
        """The second is not begun before the first is answered."""
        self.ledger.isHolding = True
        self.connection.send(self.publish + requestBytes("GET", "/healthz"))
        self.assertEqual(self.connection.answers(), [])
        self.ledger.release()
        first, second = self.connection.answers()
        self.assertEqual(first.json()["status"], "SUCCESS")
        self.assertEqual(second.json(), {"status": "alive"})
        self.assertTrue(self.connection.isOpen)

    def test_slowReaderIsNotServedFurther(self) -> None:
        """Its next requests wait until it has read its answers."""
        self.ledger.isHolding = True
        self.connection.send(self.publish)
        # As a transport does whose buffer the first answer fills.
        self.connection.channel.pauseProducing()
        self.connection.send(self.publish * 2)
        self.ledger.isHolding = False
        self.ledger.release()
        self.assertEqual(len(self.connection.answers()), 1)
        self.assertEqual(self.sequence(), 1)
        self.assertEqual(self.connection.transport.producerState, "paused")
        self.connection.channel.resumeProducing()
        self.assertEqual(len(self.connection.answers()), 2)
        self.assertEqual(self.sequence(), 3)
        self.assertEqual(self.connection.transport.producerState, "producing")

    def test_headIsCountedUntilItsRequestIsAnswered(self) -> None:
        budget = self.client.site.budgets.input
        self.ledger.isHolding = True
        self.connection.send(
            requestBytes("GET", f"{BASE}/rest/publish?topic=t&content=x", b"", {"X": "x" * 20_000})
        )
        self.assertGreater(budget.used, 20_000)
        self.ledger.release()
        self.assertEqual(len(self.connection.answers()), 1)
        self.assertEqual(budget.used, 0)

    def test_requestsBehindOneThatWaitsAreCounted(self) -> None:
        """Where there is no room for them the connection is not read from."""
        budget = self.client.site.budgets.input
        budget.own = 2000
        self.ledger.isHolding = True
        self.connection.send(self.publish)
        self.connection.send(self.publish * 100)
        self.assertGreaterEqual(budget.used, 100 * len(self.publish))
        self.assertEqual(self.connection.transport.producerState, "paused")
        self.ledger.isHolding = False
        self.ledger.release()
        self.assertEqual(len(self.connection.answers()), 101)
        self.assertEqual(self.connection.transport.producerState, "producing")
        self.assertEqual(budget.used, 0)

    def test_writeOfALeavingClientGoesOn(self) -> None:
        self.ledger.isHolding = True
        self.connection.send(self.publish)
        self.connection.disconnect()
        self.ledger.release()
        self.assertEqual(self.sequence(), 1)

    def test_idleConnectionIsClosed(self) -> None:
        self.client.fixture.clock.advance(59)
        self.assertTrue(self.connection.isOpen)
        self.client.fixture.clock.advance(1)
        self.assertFalse(self.connection.isOpen)

    def test_drainClosesIdleConnections(self) -> None:
        drained: Deferred[None] = self.client.site.drain()
        self.assertIsNone(self.successResultOf(drained))
        self.assertFalse(self.connection.isOpen)
        self.assertIsNone(self.client.site.buildProtocol(None))

    def test_drainAnswersWhatHasArrived(self) -> None:
        """A request that is still arriving is not waited for."""
        self.ledger.isHolding = True
        arriving = self.client.connect()
        arriving.send(self.publish[:-1])
        self.connection.send(self.publish)
        drained = self.client.site.drain()
        self.assertFalse(arriving.isOpen)
        self.assertNoResult(drained)
        self.ledger.release()
        [answer] = self.connection.answers()
        self.assertEqual(answer.json()["status"], "SUCCESS")
        self.assertEqual(answer.headers["connection"], "close")
        self.assertFalse(self.connection.isOpen)
        self.successResultOf(drained)

    def test_drainAbortsClientsThatDoNotClose(self) -> None:
        """Over TLS a connection waits for its client to close, too."""
        transport = self.connection.transport
        self.patch(transport, "loseConnection", lambda: None)
        aborted: list[object] = []
        self.patch(transport, "abortConnection", lambda: aborted.append(None))
        self.client.site.drain()
        self.client.fixture.clock.advance(CLOSE_AT_STOP - 0.1)
        self.assertEqual(aborted, [])
        self.client.fixture.clock.advance(0.1)
        self.assertEqual(aborted, [None])

    def test_drainWithoutConnections(self) -> None:
        self.connection.disconnect()
        for channel in list(self.client.site.channels):
            channel.connectionLost(Failure(ConnectionDone()))
        self.successResultOf(self.client.site.drain())


class AccessLogTests(SynchronousTestCase):
    def logged(
        self, accessLog: bool, target: str = f"{BASE}/rest/publish?topic=t&content=secret"
    ) -> list[LogEvent]:
        events: list[LogEvent] = []
        observer = cast(ILogObserver, events.append)
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)
        client = Client(HttpSettings(accessLog=accessLog))
        client.ask("GET", target)
        return [event for event in events if "path" in event]

    def test_logIsOffByDefault(self) -> None:
        self.assertEqual(self.logged(False), [])

    def test_logHasOneLineARequest(self) -> None:
        """Without the query string."""
        [event] = self.logged(True)
        self.assertEqual((event["method"], event["code"]), ("GET", 200))
        self.assertEqual(event["path"], f"{BASE}/rest/publish")
        self.assertNotIn("secret", repr(event))

    def test_logHasNoUserInformation(self) -> None:
        """Of targets that are no paths."""
        for target, path in (
            ("http://ann:secret@broker/rest/list?x=secret", "http://broker/rest/list"),
            ("HTTPS://secret@sec%20ret:@[::1]:80/a@b/c", "HTTPS://[::1]:80/a@b/c"),
            ("http://ann:secret@", "http://"),
            ("ann:secret@broker:443", "broker:443"),
            ("http:secret@broker/a", "broker/a"),
            ("http://broker/a@b", "http://broker/a@b"),
            ("/a@b//c@d", "/a@b//c@d"),
            ("*", "*"),
        ):
            [event] = self.logged(True, target)
            self.assertEqual(event["path"], path)
            self.assertNotIn("secret", repr(event))
