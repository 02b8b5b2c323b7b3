"""
Calls that name an event which this node must have executed first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from svcbroker.broker import Broker
from svcbroker.broker.subscriptions._eventreading import WAIT
from svcbroker.interfaces import submit
from svcbroker.model import EventId, LedgerMeasures, OpenTopic, topicPrefix

from .support import BASE, Answer, Connection, requestBytes
from .test_follow import FollowTestCase, Stream

JSON = {"Content-Type": "application/json"}


class AfterTestCase(FollowTestCase):
    """
    Another node has opened the topic C{new}, and published an event to it.
    """

    def setUp(self) -> None:
        self.patch(Broker, "hasNetworks", True)
        super().setUp()
        self.subscriptions._followers["1"].isOfNetwork = True
        height = self.subscriptions.end("1").height
        self.seen = str(EventId(topicPrefix("new"), 1, height + 1))

    def catchUp(self) -> None:
        """This node executes the blocks of the others."""
        submit(self.fixture.ledger, OpenTopic(topic="new"))
        self.publish("x", "new")

    def begin(self, call: str, headers: Mapping[str, str] | None = None) -> Connection:
        connection = self.client.connect()
        connection.send(requestBytes("GET", f"{BASE}/rest/{call}", headers=headers))
        self.settle()
        return connection

    def rpc(self, body: Any, headers: Mapping[str, str] | None = None) -> Connection:
        connection = self.client.connect()
        text = json.dumps(body).encode()
        connection.send(requestBytes("POST", f"{BASE}/jsonrpc", text, {**JSON, **(headers or {})}))
        self.settle()
        return connection

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}

    def answerOf(self, connection: Connection) -> Answer:
        [answer] = connection.answers()
        return answer

    def check(self, *waiting: Connection) -> list[Any]:
        """Calls wait until this node has caught up; their answers."""
        for each in waiting:
            self.assertEqual(each.transport.value(), b"")
        self.catchUp()
        return [self.answerOf(each).json() for each in waiting]


class Measured:
    """The ledger of a node that is at height 7, and was cut off 2.5 seconds ago."""

    def measure(self) -> LedgerMeasures:
        return LedgerMeasures(waiting=0, waitingBytes=0, oldest=0.0, height=7, age=2.5)


class FreshnessTests(AfterTestCase):
    def headersOf(self, call: str, headers: Mapping[str, str] | None = None) -> tuple[Any, Any]:
        answer = self.answerOf(self.begin(call, headers))
        return answer.headers.get("svc-height"), answer.headers.get("svc-age")

    def test_readsTellTheirAge(self) -> None:
        """Reads at a node of a network, by the fast path and through twisted.web."""
        self.patch(self.fixture.broker, "_networks", {"1": Measured()})
        self.catchUp()
        for call in ("exist?topic=new", "state?topic=new&groupId=1", "list?groupId=%20"):
            self.assertEqual(self.headersOf(call), ("7", "2.5"), call)
            self.assertEqual(self.headersOf(call, {"Cookie": "a=b"}), ("7", "2.5"))

    def test_othersTellNone(self) -> None:
        """Publishes, refused reads, and reads where only this broker has the ledger."""
        self.catchUp()
        self.assertEqual(self.headersOf("exist?topic=new"), (None, None))
        self.patch(self.fixture.broker, "_networks", {"1": Measured()})
        self.assertEqual(self.headersOf("publish?topic=new&content=x"), (None, None))
        self.assertEqual(self.headersOf("exist?topic=new&groupId=none"), (None, None))
        self.assertEqual(self.headersOf("exist?topic="), (None, None))


class AfterTests(AfterTestCase):
    def test_readsWaitForTheEvent(self) -> None:
        """Named by a parameter or by the header."""
        header = {"svc-after": self.seen}
        answers = self.check(
            self.begin(f"exist?topic=new&after={self.seen}"),
            self.begin("exist?topic=new", header),
            self.begin("state?topic=new", header),
            self.begin("list", {**header, "Cookie": "svcbroker-session=x"}),
            self.begin("events?topic=new", header),
            self.begin(f"getEvent?eventId={self.seen}", header),
        )
        self.assertEqual(answers[:2], [True, True])
        self.assertEqual((answers[2]["sequenceNumber"], answers[3]["total"]), (1, 3))
        self.assertEqual((len(answers[4]["events"]), answers[5]["content"]), (1, "eA=="))

    def test_readsOverJSONRPCWait(self) -> None:
        given = {"topic": "new", "after": self.seen}
        answers = self.check(
            self.rpc(self.call("exist", **given)),
            self.rpc(self.call("exist", topic="new"), {"svc-after": self.seen}),
            self.rpc({**self.call("exist"), "params": ["new", None, self.seen]}),
            self.rpc([self.call("exist", **given)]),
        )
        self.assertEqual([each["result"] for each in answers[:3]], ["true"] * 3)
        self.assertEqual(answers[3][0]["result"], "true")

    def test_writesWaitForTheEvent(self) -> None:
        header = {"svc-after": self.seen}
        answers = self.check(
            self.begin(f"publish?topic=new&content=x&after={self.seen}"),
            self.begin("publish?topic=new&content=x", header),
            self.rpc(self.call("publish", topic="new", content="eA==", after=self.seen)),
            self.begin("close?topic=new", header),
        )
        self.assertEqual([each["status"] for each in answers[:2]], ["SUCCESS"] * 2)
        self.assertEqual((answers[2]["result"]["status"], answers[3]), ("SUCCESS", True))

    def test_eventOfAnotherNodeIsWaitedFor(self) -> None:
        """The event that is asked for, without further words."""
        missing = self.seen.replace("-1-", "-2-")
        answers = self.check(
            self.begin(f"getEvent?eventId={self.seen}"),
            self.begin(f"getEvent?eventId={missing}"),
            self.rpc(self.call("getEvent", eventId=self.seen)),
        )
        self.assertEqual((answers[0]["content"], answers[1]["code"]), ("eA==", 100303))
        self.assertEqual(answers[2]["result"]["content"], "eA==")

    def test_streamWaitsForTheEvent(self) -> None:
        connection = self.begin("follow?topic=new&from=OFFSET_FIRST", {"svc-after": self.seen})
        self.assertEqual(connection.transport.value(), b"")
        self.catchUp()
        self.assertEqual(Stream(connection).contents(), ["eA=="])

    def test_waitIsBounded(self) -> None:
        asked = [
            self.begin("list", {"svc-after": self.seen}),
            self.begin(f"getEvent?eventId={self.seen}"),
        ]
        self.settle(WAIT)
        for each in asked:
            answer = self.answerOf(each)
            self.assertEqual((answer.status, answer.json()["code"]), (503, 200216))

    def test_clientThatLeavesWaitsNoMore(self) -> None:
        connection = self.begin("list", {"svc-after": self.seen})
        connection.disconnect()
        self.assertEqual(self.subscriptions._followers["1"]._awaited, {})

    def test_nodeThatIsAloneRefusesAtOnce(self) -> None:
        self.subscriptions._followers["1"].isOfNetwork = False
        answer = self.answerOf(self.begin("list", {"svc-after": self.seen}))
        self.assertEqual((answer.status, answer.json()["code"]), (200, 100304))

    def test_wrongNamesAreRefused(self) -> None:
        """The error names the parameter, or the header."""
        for call, header, words in (
            ("list?after=x", None, "after: is not an event id: x"),
            ("list", "x", "after: is not an event id: x"),
            ("list?after=00000000-1-1", "00000000-1-2", "after: differs from the header svc-after"),
            ("publish?topic=a&content=x&after=x", None, "after: is not an event id: x"),
        ):
            headers = None if header is None else {"svc-after": header}
            error = self.answerOf(self.begin(call, headers)).json()
            self.assertEqual((error["code"], error["message"]), (100600, words))

    def test_batchesHaveNoSuchPublishes(self) -> None:
        """Nothing is silently left out."""
        publish = self.call("publish", topic="a", content="eA==")
        awaiting = self.call("publish", topic="a", content="eA==", after=self.seen)
        first, second = self.answerOf(self.rpc([publish, awaiting])).json()
        self.assertEqual(first["result"]["status"], "SUCCESS")
        self.assertIn("after: is for a publish that is made alone", second["error"]["message"])
        [refused] = self.rpc([publish], {"svc-after": self.seen}).answers()
        self.assertIn("the header svc-after is for one call", refused.body.decode())
