"""
Tests of the door alone: that it answers what it should, and what it costs.
"""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.http.door import Answers, Door, DoorChannel, HotCall
from svcbroker.carriers.http.door._channel import MAX_UNREAD, MAX_UNSENT
from svcbroker.carriers.http.door._heads import (
    MAX_FIELDS,
    MAX_HEAD,
    PARTIAL,
    Fields,
    readFields,
    readHead,
)
from svcbroker.carriers.http.settings import HttpSettings
from svcbroker.net.turns import EndOfTurn
from svcbroker.operations import OPERATIONS

from .support import BASE, FORM, Client, requestBytes

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
    Which requests twisted.web does not see.
    """

    def setUp(self) -> None:
        self.client = Client()
        self.client.rest("open?topic=t")
        refuseRequests(self.client)
        self.connection = self.client.connect()

    def test_operations(self) -> None:
        for name in (each.name for each in OPERATIONS):
            for method in ("GET", "POST"):
                self.connection.send(requestBytes(method, f"{BASE}/rest/{name}?topic=t"))
                self.assertEqual([each.status for each in self.connection.answers()], [200])
        self.connection.send(requestBytes("POST", f"{BASE}/jsonrpc", RPC))
        self.assertEqual(self.connection.answers()[0].json()["id"], 1)

    def test_others(self) -> None:
        """What is not plain goes to twisted.web; so these tests see when it is asked."""
        for request in (
            requestBytes("GET", "/healthz"),
            requestBytes("HEAD", f"{BASE}/rest/list"),
            requestBytes("GET", f"{BASE}/rest/list", headers={"Connection": "close"}),
            requestBytes("POST", f"{BASE}/jsonrpc", RPC, {"Expect": "100-continue"}),
            requestBytes("GET", f"{BASE}/rest/list", b"x"),
        ):
            with self.assertRaises(NotPlain):
                self.client.connect().send(request)

    def test_inPieces(self) -> None:
        """However a request is cut, the door puts it together."""
        body = b"topic=t&content=x"
        request = requestBytes("POST", f"{BASE}/rest/publish", body, {"Content-Type": FORM})
        for size in (1, 2, 7, len(request) - len(body)):
            for start in range(0, len(request), size):
                self.assertEqual(self.connection.answers(), [])
                self.connection.send(request[start : start + size])
            [answer] = self.connection.answers()
            self.assertEqual(answer.json()["status"], "SUCCESS")

    def test_backFromBelow(self) -> None:
        """When twisted.web has answered, the door looks again."""
        client = Client()
        connection = client.connect()
        connection.send(requestBytes("GET", "/healthz") + requestBytes("GET", f"{BASE}/rest/list"))
        self.assertEqual(len(connection.answers()), 2)
        connection.channel.requestFactory = None
        connection.send(requestBytes("GET", f"{BASE}/rest/list"))
        self.assertEqual(len(connection.answers()), 1)


class CostTests(SynchronousTestCase):
    """
    What plain requests do not cost.
    """

    def setUp(self) -> None:
        self.client = Client()
        self.client.rest("open?topic=t")
        self.connection = self.client.connect()
        self.writes: list[int] = []
        self.connection.channel._send = self.note

    def note(self, data: bytes) -> None:
        self.writes.append(len(data))
        self.connection.transport.write(data)

    def test_oneWrite(self) -> None:
        """What is answered in one go is written in one."""
        self.connection.send(requestBytes("GET", f"{BASE}/rest/exist?topic=t") * 10)
        self.assertEqual(len(self.writes), 1)
        self.assertEqual(len(self.connection.answers()), 10)

    def test_writesAreBounded(self) -> None:
        """And yet answers do not pile up."""
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

    def test_unreadIsBounded(self) -> None:
        """Who asks on and on before being answered is made to wait."""
        self.client.world.ledger.isHolding = True
        publish = requestBytes("GET", f"{BASE}/rest/publish?topic=t&content=x")
        self.connection.send(publish)
        exist = requestBytes("GET", f"{BASE}/rest/exist?topic=t")
        count = MAX_UNREAD // len(exist)
        self.connection.send(exist * count)
        self.assertEqual(self.connection.transport.producerState, "producing")
        self.connection.send(exist)
        self.assertEqual(self.connection.transport.producerState, "paused")
        self.client.world.ledger.release()
        self.assertEqual(self.connection.transport.producerState, "producing")
        self.assertEqual(len(self.connection.answers()), count + 2)

    def test_noTimers(self) -> None:
        """Time-outs stay as they are while requests come."""
        clock = self.client.world.clock
        before = {id(call): call.getTime() for call in clock.getDelayedCalls()}
        clock.advance(1)
        for _ in range(10):
            self.assertEqual(self.ask("exist?topic=t"), [True])
        after = {id(call): call.getTime() for call in clock.getDelayedCalls()}
        self.assertEqual(after, before)

    def test_timeout(self) -> None:
        """They fire on time all the same: 60 seconds after the client was last heard."""
        clock = self.client.world.clock
        clock.advance(45)
        self.ask("exist?topic=t")
        clock.advance(59)
        self.assertTrue(self.connection.isOpen)
        clock.advance(1)
        self.assertFalse(self.connection.isOpen)
        self.assertEqual(clock.getDelayedCalls(), [])


class CallTests(SynchronousTestCase):
    """
    Calls that do what those of the broker never do, or seldom.
    """

    def setUp(self) -> None:
        self.client = Client(HttpSettings(corsOrigins={"*"}))
        self.answer: Deferred[bytes | None] = Deferred(self.noteCancel)
        self.cancelled = 0
        self.door(lambda *_: self.answer)
        self.connection = self.client.connect()
        self.request = requestBytes("GET", "/hot", headers={"Origin": "http://a"})

    def noteCancel(self, answer: Deferred[bytes | None]) -> None:
        self.cancelled += 1

    def door(self, answer: Any) -> None:
        answers = Answers(HttpSettings(corsOrigins={"*"}), self.client.world.clock.seconds)
        turnEnd = EndOfTurn(self.client.world.clock)
        door = Door({b"GET /hot": HotCall(False, b"/hot", answer)}, answers, turnEnd)
        site: Any = self.client.site
        site.protocol = lambda: DoorChannel(door)

    def broken(self, *args: object) -> Deferred[bytes]:
        raise ZeroDivisionError("secret")

    def test_failure(self) -> None:
        """Whatever fails is answered as Klein's requests are, and the connection lives on."""
        for answer in (lambda *_: fail(ZeroDivisionError("secret")), self.broken):
            self.door(answer)
            connection = self.client.connect()
            connection.send(self.request * 2)
            first, second = connection.answers()
            self.assertEqual((first.status, second.status), (500, 500))
            self.assertEqual(first.json()["message"], "unknown error, incident incident-id")
            self.assertEqual(first.headers["access-control-allow-origin"], "http://a")
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 4)

    def test_nothingToSay(self) -> None:
        self.door(lambda *_: succeed(None))
        connection = self.client.connect()
        connection.send(self.request)
        [answer] = connection.answers()
        self.assertEqual((answer.status, answer.body), (204, b""))
        self.assertNotIn("content-type", answer.headers)

    def test_cancel(self) -> None:
        """A client that leaves cancels its call."""
        self.connection.send(self.request)
        self.connection.disconnect()
        self.assertEqual(self.cancelled, 1)
        self.assertEqual(self.connection.answers(), [])

    def test_tooLateToCancel(self) -> None:
        """A call that answers all the same answers nobody."""

        def answerAll(answer: Deferred[bytes | None]) -> None:
            answer.callback(b"{}")

        self.door(lambda *_: Deferred(answerAll))
        connection = self.client.connect()
        connection.send(self.request * 2)
        connection.disconnect()
        self.assertEqual(connection.answers(), [])

    def test_cancelledByOthers(self) -> None:
        """As under Klein, that is not answered."""
        self.connection.send(self.request)
        self.answer.errback(CancelledError())
        self.assertEqual(self.connection.answers(), [])

    def test_waitsForEver(self) -> None:
        """While it is the broker's turn, the client's time does not run."""
        clock = self.client.world.clock
        self.connection.send(self.request)
        for _ in range(10):
            clock.advance(59)
        self.answer.callback(b"{}")
        self.assertEqual(len(self.connection.answers()), 1)
        clock.advance(59)
        self.assertTrue(self.connection.isOpen)
        clock.advance(1)
        self.assertFalse(self.connection.isOpen)


class HeadTests(SynchronousTestCase):
    """
    What is read of a head.
    """

    def setUp(self) -> None:
        self.call = HotCall(True, b"/hot", lambda *_: succeed(b""))
        self.calls = {b"POST /hot": self.call}

    def read(self, data: bytes, start: int = 0) -> Any:
        return readHead(self.calls, data, start)

    def test_whole(self) -> None:
        data = b"xxPOST /hot?a=b HTTP/1.1\r\nContent-Length: 3 \r\ncontent-type: a\r\n\r\nabc"
        call, query, fields, end = self.read(data, 2)
        self.assertEqual((call, query, data[end:]), (self.call, b"a=b", b"abc"))
        self.assertEqual(fields, Fields(3, b"a", None))

    def test_partial(self) -> None:
        """Every beginning of a plain request may become one."""
        data = b"POST /hot HTTP/1.1\r\nA: b\r\n\r\n"
        for end in range(len(data)):
            self.assertIs(self.read(data[:end]), PARTIAL, data[:end])
        self.assertIsInstance(self.read(data), tuple)

    def test_badPart(self) -> None:
        """A bad line is not waited behind."""
        self.assertIsNone(self.read(b"POST /hot HTTP/1.1\r\nA : b\r\nC"))

    def test_tooLong(self) -> None:
        line = b"POST /hot HTTP/1.1\r\n"
        for data in (b"x" * MAX_HEAD, line + b"A: " + b"x" * (MAX_HEAD - len(line) - 3)):
            self.assertIs(self.read(data), PARTIAL)
            self.assertIsNone(self.read(data + b"x"))
            self.assertIsNone(self.read(data + b"x\r\n\r\n"))

    def test_notPlain(self) -> None:
        for block in (
            b"Transfer-Encoding: chunked\r\n",
            b"Content-Length: 1\r\nContent-Length: 1\r\n",
            b"Connection: close\r\n",
            b"Upgrade: x\r\nConnection: upgrade\r\n",
            b"Content-Type: a\r\nContent-Type: a\r\n",
            b"A: b\r\n folded\r\n",
            b"A: b\nC: d\r\n",
            b"A: b\rC: d\r\n",
            b"\xff: b\r\n",
            b"A: b\r\n" * (MAX_FIELDS + 1),
        ):
            self.assertIsNone(readFields(block), block)
        self.assertEqual(readFields(b""), Fields(0, None, None))
