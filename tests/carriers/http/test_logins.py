"""
Tests of requests whose credentials take time to be checked, and of bodies that are not received.
"""

from __future__ import annotations

from svcbroker.carriers.http.connection import LINGER
from tests.access.support import fillTurn

from .accounts import AuthenticationTestCase, basic
from .support import BASE, FORM, Connection, requestBytes


class TurnTests(AuthenticationTestCase):
    """
    Requests of clients that have not logged in, on the fast path.
    """

    def test_strangersWaitForTheirTurn(self) -> None:
        """A connection that is closed meanwhile leaves nothing behind."""
        first, left = self.client.connect(), self.client.connect()
        fillTurn(self.access)
        for connection in (first, left):
            connection.send(requestBytes("GET", f"{BASE}/rest/exist?topic=t"))
            self.assertEqual(connection.answers(), [])
        left.disconnect()
        self.clock.advance(0)
        [answer] = first.answers()
        self.assertEqual(answer.status, 401)
        self.assertEqual(first.transport.producerState, "producing")


class WaitingTests(AuthenticationTestCase):
    """
    Requests whose passwords take time to be checked.
    """

    def setUp(self) -> None:
        super().setUp()
        self.accounts.waiting = []
        self.connection = self.client.connect()
        self.body = b"topic=t&content=x"
        self.request = requestBytes(
            "POST", f"{BASE}/rest/publish", self.body, {"Content-Type": FORM, **basic("ann")}
        )

    def test_pipelinedRequestsKeepTheirOrder(self) -> None:
        get = requestBytes("GET", f"{BASE}/rest/exist?topic=t", headers=basic("ann"))
        wrong = requestBytes("GET", f"{BASE}/rest/exist?topic=t")
        self.connection.send(get + self.request + wrong + get)
        self.assertEqual(self.connection.answers(), [])
        self.accounts.finish()
        answers = self.connection.answers()
        self.assertEqual([each.status for each in answers], [200, 200, 401, 200])
        self.assertPublished(answers[1])

    def test_bodyIsNotReceivedMeanwhile(self) -> None:
        """Whether it arrives with its head or later."""
        for pieces in (
            (self.request,),
            (self.request[: -len(self.body)], self.body),
            (self.request[:-3], self.request[-3:]),
        ):
            self.accounts.waiting = []
            self.access.reload()
            connection = self.client.connect()
            for piece in pieces:
                connection.send(piece)
                self.assertEqual(connection.transport.producerState, "paused")
            self.assertEqual(self.client.site.bodies.budget.used, 0)
            self.accounts.finish()
            [answer] = connection.answers()
            self.assertPublished(answer)
            self.assertEqual(connection.transport.producerState, "producing")

    def test_bodyIsAskedForAfterwards(self) -> None:
        """C{100 Continue} is sent to clients that are let in, once."""
        head = self.request[: -len(self.body)].replace(b"Host", b"Expect: 100-continue\r\nHost")
        self.connection.send(head)
        self.assertEqual(self.connection.transport.value(), b"")
        self.accounts.finish()
        self.assertEqual(self.connection.transport.value(), b"HTTP/1.1 100 Continue\r\n\r\n")
        self.connection.transport.clear()
        self.connection.send(self.body)
        [answer] = self.connection.answers()
        self.assertPublished(answer)

    def test_oldClientsAreNotAskedForABody(self) -> None:
        """HTTP/1.0 has no C{100 Continue}."""
        request = self.request.replace(b"Host", b"Expect: 100-continue\r\nHost", 1)
        self.connection.send(request.replace(b"HTTP/1.1", b"HTTP/1.0"))
        self.accounts.finish()
        [answer] = self.connection.answers()
        self.assertPublished(answer)

    def test_wrongPasswordIsRefusedWithoutTheBody(self) -> None:
        request = self.request.replace(
            basic("ann")["Authorization"].encode(), basic("ann", "x")["Authorization"].encode()
        )
        for sent in (
            request,
            request[:-3],
            request[: -len(self.body)].replace(b"Host", b"Expect: 100-continue\r\nHost"),
        ):
            self.accounts.waiting = []
            connection = self.client.connect()
            connection.send(sent)
            self.assertEqual(connection.answers(), [])
            self.accounts.finish()
            [answer] = connection.answers()
            self.assertRefused(answer, 401, 101015)
            self.assertEqual(answer.headers["connection"], "close")
            connection.send(b"x" * 1000)
            self.clock.advance(LINGER)
            self.assertFalse(connection.isOpen)

    def test_clientThatDoesNotReadIsNotReadMeanwhile(self) -> None:
        self.connection.send(self.request[:-3])
        self.connection.channel.pauseProducing()
        self.connection.channel.resumeProducing()
        self.assertEqual(self.connection.transport.producerState, "paused")
        self.connection.channel.pauseProducing()
        self.accounts.finish()
        self.assertEqual(self.connection.transport.producerState, "paused")
        self.connection.channel.resumeProducing()
        self.connection.send(self.request[-3:])
        self.assertPublished(self.connection.answers()[0])

    def test_leavingClientEndsItsLogin(self) -> None:
        for request in (
            self.request,
            requestBytes("GET", f"{BASE}/rest/list", headers=basic("ann")),
        ):
            connection = self.client.connect()
            connection.send(request)
            connection.disconnect()
        self.accounts.finish()
        self.assertEqual(len(self.fixture.ledger.submitted), 2)
        self.assertEqual(self.client.site.bodies.budget.used, 0)

    def test_tooLargeBodyIsRefused(self) -> None:
        """With 401 where the credentials are wrong, too."""
        for headers, status, code in (
            (basic("ann"), 200, 100201),
            (basic("ann", "x"), 401, 101015),
        ):
            self.accounts.waiting = []
            connection = self.client.connect()
            line = {"Content-Length": "999999999", "Expect": "100-continue"}
            connection.send(requestBytes("POST", f"{BASE}/rest/open", headers={**headers, **line}))
            self.accounts.finish()
            [answer] = connection.answers()
            self.assertRefused(answer, status, code)
            self.clock.advance(LINGER)
            self.assertFalse(connection.isOpen)

    def test_drainAnswersRequestsThatLogIn(self) -> None:
        self.connection.send(
            requestBytes("GET", f"{BASE}/rest/exist?topic=t", headers=basic("ann"))
        )
        arriving = self.client.connect()
        arriving.send(self.request)
        drained = self.client.site.drain()
        self.accounts.finish()
        self.assertEqual(self.connection.answers()[0].body, b"true")
        self.successResultOf(drained)


class BodyRefusalTests(AuthenticationTestCase):
    """
    Requests without credentials, whose bodies are not received.
    """

    def begin(self, *headers: str, length: int | None = 2000) -> Connection:
        """A connection with the head of a request."""
        framing = (
            f"Content-Length: {length}" if length is not None else "Transfer-Encoding: chunked"
        )
        connection = self.client.connect()
        lines = (f"POST {BASE}/jsonrpc HTTP/1.1", "Host: b", framing, *headers)
        connection.send("\r\n".join(lines).encode() + b"\r\n\r\n")
        return connection

    def test_bodyIsNotReceived(self) -> None:
        for headers in ((), ("Expect: 100-continue",), ("Authorization: Bearer x",)):
            for length in (1, 2000, 10**12, None):
                self.clock.pump([1] * 1000)
                connection = self.begin(*headers, length=length)
                self.clock.advance(10)
                [answer] = connection.answers()
                self.assertRefused(answer, 401, 101015)
                self.assertEqual(answer.headers["connection"], "close")
                connection.send(b"x" * 100_000)
                self.assertEqual(self.client.site.bodies.budget.used, 0)
                self.clock.advance(LINGER)
                self.assertFalse(connection.isOpen)

    def test_connectionIsKeptWhereThereIsNoBody(self) -> None:
        """A client tries again with credentials."""
        connection = self.begin(length=0)
        [answer] = connection.answers()
        self.assertRefused(answer, 401, 101015)
        connection.send(requestBytes("GET", f"{BASE}/rest/exist?topic=t", headers=basic("ann")))
        [answer] = connection.answers()
        self.assertEqual(answer.body, b"true")


class WaitingTestsWithoutFastPath(WaitingTests):
    """The same without the fast path."""

    hasFastPath = False


class BodyRefusalTestsWithoutFastPath(BodyRefusalTests):
    """The same without the fast path."""

    hasFastPath = False
