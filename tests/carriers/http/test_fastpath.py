"""
Tests of the fast path: which requests it answers, and how much work each one is.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.http.connection import BrokerChannel, BrokerSite
from svcbroker.carriers.http.fastpath import MAX_UNREAD, MAX_UNSENT, FastChannel, FastPath
from svcbroker.carriers.http.logins import HttpSettings
from svcbroker.carriers.http.plain import (
    MAX_FIELDS,
    MAX_HEAD,
    MAX_OWN,
    PARTIAL,
    Fields,
    OwnFields,
    PlainAnswers,
    RequestHead,
    readFields,
    readHead,
)
from svcbroker.carriers.http.routes import Area, HttpEndpoint, Routes
from svcbroker.net.budgets import ENTRY_BYTES, Budgets, ByteBudget
from svcbroker.net.turns import EndOfTurn
from svcbroker.operations import OPERATIONS, Incidents
from svcbroker.operations._adminqueries import QUERIES
from tests.access.support import openAccess

from .support import BASE, FORM, Client, Connection, requestBytes

RPC = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "exist", "params": ["t"]}).encode()


class NotPlain(Exception):
    """A request came to twisted.web."""


def refuseRequests(client: Client) -> None:
    """Have the client's next connections fail where twisted.web is asked."""

    def refuse(*args: object) -> Any:
        raise NotPlain()

    client.site.requestFactory = refuse  # type: ignore[assignment]


class PlainTests(SynchronousTestCase):
    """
    Which requests do not reach twisted.web.
    """

    def setUp(self) -> None:
        self.client = Client()
        self.client.rest("open?topic=t")
        refuseRequests(self.client)
        self.connection = self.client.connect()

    def test_endpointsAreServed(self) -> None:
        for name in (each.name for each in OPERATIONS):
            for method in ("GET", "POST"):
                self.connection.send(requestBytes(method, f"{BASE}/rest/{name}?topic=t"))
                self.assertEqual([each.status for each in self.connection.answers()], [200])
        for name in (each.name for each in QUERIES):
            self.connection.send(requestBytes("GET", f"{BASE}/admin/{name}"))
            self.assertEqual([each.status for each in self.connection.answers()], [200])
        self.connection.send(requestBytes("POST", f"{BASE}/jsonrpc", RPC))
        self.assertEqual(self.connection.answers()[0].json()["id"], 1)

    def test_otherRequestsGoToTwistedWeb(self) -> None:
        """Also a check that these tests see such a request."""
        for request in (
            requestBytes("GET", "/healthz"),
            requestBytes("HEAD", f"{BASE}/rest/list"),
            requestBytes("GET", f"{BASE}/rest/list", headers={"Connection": "close"}),
            requestBytes("POST", f"{BASE}/jsonrpc", RPC, {"Expect": "100-continue"}),
            requestBytes("GET", f"{BASE}/rest/list", b"x"),
        ):
            with self.assertRaises(NotPlain):
                self.client.connect().send(request)

    def test_requestInPiecesIsServed(self) -> None:
        body = b"topic=t&content=x"
        request = requestBytes("POST", f"{BASE}/rest/publish", body, {"Content-Type": FORM})
        for size in (1, 2, 7, len(request) - len(body)):
            for start in range(0, len(request), size):
                self.assertEqual(self.connection.answers(), [])
                self.connection.send(request[start : start + size])
            [answer] = self.connection.answers()
            self.assertEqual(answer.json()["status"], "SUCCESS")

    def test_requestAfterTwistedWebsAnswerIsServed(self) -> None:
        client = Client()
        connection = client.connect()
        connection.send(requestBytes("GET", "/healthz") + requestBytes("GET", f"{BASE}/rest/list"))
        self.assertEqual(len(connection.answers()), 2)
        connection.channel.requestFactory = None
        connection.send(requestBytes("GET", f"{BASE}/rest/list"))
        self.assertEqual(len(connection.answers()), 1)


class CostTests(SynchronousTestCase):
    """
    How many writes and timers plain requests cost.
    """

    def setUp(self) -> None:
        self.client = Client()
        self.client.rest("open?topic=t")
        self.connection = self.client.connect()
        self.writes: list[int] = []
        self.write = self.connection.transport.write
        self.patch(self.connection.transport, "write", self.note)

    def note(self, data: bytes) -> None:
        self.writes.append(len(data))
        self.write(data)

    def test_pipelinedAnswersAreOneWrite(self) -> None:
        self.connection.send(requestBytes("GET", f"{BASE}/rest/exist?topic=t") * 10)
        self.assertEqual(len(self.writes), 1)
        self.assertEqual(len(self.connection.answers()), 10)

    def test_collectedAnswersAreBounded(self) -> None:
        [sent] = self.ask(f"publish?topic=t&content={'x' * 900}")
        self.writes.clear()
        call = requestBytes("GET", f"{BASE}/rest/getEvent?eventId={sent['eventId']}")
        self.connection.send(call * 200)
        self.assertEqual(len(self.connection.answers()), 200)
        self.assertGreater(len(self.writes), 1)
        self.assertLess(max(self.writes), MAX_UNSENT + 2000)

    def ask(self, call: str) -> list[Any]:
        self.connection.send(requestBytes("GET", f"{BASE}/rest/{call}"))
        return [answer.json() for answer in self.connection.answers()]

    def test_unreadRequestsAreBounded(self) -> None:
        """A client that sends more and more before it is answered has to wait."""
        self.client.fixture.ledger.isHolding = True
        publish = requestBytes("GET", f"{BASE}/rest/publish?topic=t&content=x")
        self.connection.send(publish)
        exist = requestBytes("GET", f"{BASE}/rest/exist?topic=t")
        count = MAX_UNREAD // len(exist)
        self.connection.send(exist * count)
        self.assertEqual(self.connection.transport.producerState, "producing")
        self.connection.send(exist)
        self.assertEqual(self.connection.transport.producerState, "paused")
        self.client.fixture.ledger.release()
        self.client.fixture.clock.advance(0)
        self.assertEqual(self.connection.transport.producerState, "producing")
        self.assertEqual(len(self.connection.answers()), count + 2)

    def test_requestsMoveNoTimer(self) -> None:
        clock = self.client.fixture.clock
        before = {id(call): call.getTime() for call in clock.getDelayedCalls()}
        clock.advance(0.5)
        for _ in range(10):
            self.assertEqual(self.ask("exist?topic=t"), [True])
        after = {id(call): call.getTime() for call in clock.getDelayedCalls()}
        self.assertEqual(after, before)

    def test_silentClientTimesOut(self) -> None:
        """60 seconds after it was last heard, although no timer is moved."""
        clock = self.client.fixture.clock
        clock.advance(45)
        self.ask("exist?topic=t")
        clock.advance(59)
        self.assertTrue(self.connection.isOpen)
        clock.advance(1)
        self.assertFalse(self.connection.isOpen)
        self.assertEqual(clock.getDelayedCalls(), [])


class CallTests(SynchronousTestCase):
    """
    Calls that fail, are cancelled or take long, as calls of the broker seldom do.
    """

    hasFastPath = True

    def setUp(self) -> None:
        self.clock = Clock()
        self.result: Deferred[Any] = Deferred(self.noteCancel)
        self.cancelled = 0
        self.connection = self.connect(lambda _: self.result)
        self.request = requestBytes("GET", "/call", headers={"Origin": "http://a"})

    def noteCancel(self, result: Deferred[Any]) -> None:
        self.cancelled += 1

    def connect(
        self,
        call: Callable[[Any], Deferred[Any]],
        encode: Callable[[Any], bytes | None] = lambda result: result,
    ) -> Connection:
        """A connection to a site with one endpoint."""
        endpoint = HttpEndpoint(
            method="GET",
            path="/call",
            parse=lambda query, contentType, body: query,
            call=lambda _, argument, __: call(argument),
            encode=encode,
            incidents=Incidents(lambda: "incident-id"),
        )
        area = Area(prefix="/call", methods=("GET",))
        routes = Routes([endpoint], (), [area], endpoint.incidents)
        settings = HttpSettings(corsOrigins={"*"})
        makeChannel: Callable[[], BrokerChannel] = BrokerChannel
        if self.hasFastPath:
            answers = PlainAnswers(settings, self.clock.seconds)
            makeChannel = partial(
                FastChannel,
                FastPath(
                    endpoints=routes.endpoints, answers=answers, turnEnd=EndOfTurn(self.clock)
                ),
            )
        return Connection(
            BrokerSite(
                *(routes, settings, openAccess(self.clock), self.clock),
                *(Budgets.of(self.clock), 1000, makeChannel),
            )
        )

    def raiseError(self, value: object) -> Any:
        raise ZeroDivisionError("secret")

    def test_failedCallIsAnswered(self) -> None:
        """Any failure is an answer, and the connection lives on."""
        for call in (lambda _: fail(ZeroDivisionError("secret")), self.raiseError):
            connection = self.connect(call)
            connection.send(self.request * 2)
            first, second = connection.answers()
            self.assertEqual((first.status, second.status), (200, 200))
            self.assertEqual(first.json()["code"], 200203)
            self.assertEqual(first.json()["message"], "unknown error, incident incident-id")
            self.assertEqual(first.headers["access-control-allow-origin"], "http://a")
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 4)

    def test_resultThatCannotBeEncodedIsAnswered(self) -> None:
        connection = self.connect(succeed, self.raiseError)
        connection.send(self.request)
        self.assertEqual(connection.answers()[0].json()["code"], 200203)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_answerWithoutBody(self) -> None:
        connection = self.connect(lambda _: succeed(None))
        connection.send(self.request)
        [answer] = connection.answers()
        self.assertEqual((answer.status, answer.body), (204, b""))
        self.assertNotIn("content-type", answer.headers)

    def test_leavingClientCancelsItsCall(self) -> None:
        self.connection.send(self.request)
        self.connection.disconnect()
        self.assertEqual(self.cancelled, 1)
        self.assertEqual(self.connection.answers(), [])

    def test_resultAfterTheClientHasLeftIsDropped(self) -> None:
        """A call that answers instead of being cancelled."""

        def succeedAnyway(result: Deferred[Any]) -> None:
            result.callback(b"{}")

        connection = self.connect(lambda _: Deferred(succeedAnyway))
        connection.send(self.request * 2)
        connection.disconnect()
        self.assertEqual(connection.answers(), [])

    def test_callCancelledByTheBrokerIsAnswered(self) -> None:
        """The client would wait for ever."""
        self.connection.send(self.request)
        self.result.errback(CancelledError())
        [answer] = self.connection.answers()
        self.assertEqual((answer.status, answer.json()["code"]), (200, 200203))
        self.assertEqual(len(self.flushLoggedErrors(CancelledError)), 1)

    def test_timeoutDoesNotRunDuringACall(self) -> None:
        self.connection.send(self.request)
        for _ in range(10):
            self.clock.advance(59)
        self.result.callback(b"{}")
        self.assertEqual(len(self.connection.answers()), 1)
        self.clock.advance(59)
        self.assertTrue(self.connection.isOpen)
        self.clock.advance(1)
        self.assertFalse(self.connection.isOpen)


class CallWithoutFastPathTests(CallTests):
    """
    The same without the fast path.
    """

    hasFastPath = False


class HeadTests(SynchronousTestCase):
    """
    Reading the head of a request.
    """

    def setUp(self) -> None:
        self.endpoint = HttpEndpoint(
            method="POST",
            path="/call",
            parse=lambda *_: None,
            call=lambda _, argument, __: succeed(argument),
            encode=lambda _: b"",
            incidents=Incidents(),
        )

    def read(self, data: bytes, start: int = 0) -> Any:
        return readHead(
            {b"POST /call": self.endpoint}, data, start, OwnFields(ByteBudget(0).count(""))
        )

    def test_blocksWithCredentialsCount(self) -> None:
        """They count as long as the connection keeps them; without room they are read each time."""
        budget = ByteBudget(20 * 1024, own=20 * 1024)
        own = OwnFields(budget.count(""))

        def read(name: int) -> object:
            fields = b"Authorization: Basic %08d" % name + b"\r\nHost: b\r\n"
            data = b"POST /call HTTP/1.1\r\n" + fields + b"\r\n"
            found = readHead({b"POST /call": self.endpoint}, data, 0, own)
            assert isinstance(found, RequestHead)
            return found.fields

        first = read(0)
        self.assertIs(read(0), first)
        size = budget.used
        self.assertGreater(size, ENTRY_BYTES)
        for name in range(MAX_OWN):
            read(name)
        self.assertEqual(budget.used, MAX_OWN * size)
        read(MAX_OWN)
        self.assertEqual((len(own), budget.used), (1, size))
        budget.own = budget.total = size
        self.assertIsNot(read(0), read(0))
        self.assertEqual((budget.used, budget.refused), (size, 0))

    def test_wholeHead(self) -> None:
        fields = b"Content-Length: 3 \r\ncontent-type: a\r\nHost: b\r\n"
        data = b"xxPOST /call?a=b HTTP/1.1\r\n" + fields + b"\r\nabc"
        head = self.read(data, 2)
        assert isinstance(head, RequestHead)
        self.assertEqual((head.endpoint, head.query), (self.endpoint, b"a=b"))
        self.assertEqual(b"xx" + head.text + b"abc", data)
        self.assertEqual(head.fields, Fields(3, b"a", None, b"b"))

    def test_beginningOfAHeadIsPartial(self) -> None:
        data = b"POST /call HTTP/1.1\r\nA: b\r\nHost: c\r\n\r\n"
        for end in range(len(data)):
            self.assertIs(self.read(data[:end]), PARTIAL, data[:end])
        self.assertIsInstance(self.read(data), RequestHead)

    def test_badLineIsNotPartial(self) -> None:
        self.assertIsNone(self.read(b"POST /call HTTP/1.1\r\nA : b\r\nC"))

    def test_wholeHeadWithoutHostIsNotPlain(self) -> None:
        data = b"POST /call HTTP/1.1\r\nA: b\r\n"
        self.assertIs(self.read(data), PARTIAL)
        self.assertIsNone(self.read(data + b"\r\n"))

    def test_longHeadIsNotPlain(self) -> None:
        line = b"POST /call HTTP/1.1\r\n"
        for data in (b"x" * MAX_HEAD, line + b"A: " + b"x" * (MAX_HEAD - len(line) - 3)):
            self.assertIs(self.read(data), PARTIAL)
            self.assertIsNone(self.read(data + b"x"))
            self.assertIsNone(self.read(data + b"x\r\n\r\n"))

    def test_unusualHeadersAreNotPlain(self) -> None:
        for block in (
            b"Transfer-Encoding: chunked\r\n",
            b"Content-Length: 1\r\nContent-Length: 1\r\n",
            b"Connection: close\r\n",
            b"Upgrade: x\r\nConnection: upgrade\r\n",
            b"Content-Type: a\r\nContent-Type: a\r\n",
            b"Host: a\r\nHost: a\r\n",
            b"Host: a/b\r\n",
            b"A: b\r\n folded\r\n",
            b"A: b\nC: d\r\n",
            b"A: b\rC: d\r\n",
            b"\xff: b\r\n",
            b"A: b\r\n" * (MAX_FIELDS + 1),
        ):
            self.assertIsNone(readFields(block), block)
        self.assertEqual(readFields(b""), Fields(0, None, None))
