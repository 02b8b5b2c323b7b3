"""
Tests of JSON-RPC.
"""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from svcbroker import errors
from svcbroker.access import ANYBODY
from svcbroker.broker import Publication
from svcbroker.carriers.http import jsonrpc
from svcbroker.carriers.http.jsonrpc import MAX_BATCH, rpcEndpoint
from svcbroker.carriers.http.routes import Answer
from svcbroker.model import OpenTopic
from svcbroker.operations import Incidents, Interface
from tests import examples
from tests.broker.support import makeFixture

from .support import BASE, CallConnection, Client


def call(method: str, params: object, id: object = 1) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


class JSONRPCTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.fixture = makeFixture()
        self.connection = CallConnection(self.fixture.broker.budgets)
        incidents = Incidents(lambda: "incident-id")
        self.endpoint = rpcEndpoint("/jsonrpc", self.fixture.calls, incidents, Interface())

    def start(self, body: bytes) -> Deferred[Answer]:
        asked = self.endpoint.ask(ANYBODY, b"", None, body, self.connection)
        return self.endpoint.answer(asked, ANYBODY)

    def raw(self, body: bytes) -> bytes | None:
        answer = self.successResultOf(self.start(body))
        assert answer is None or isinstance(answer, bytes)
        return answer

    def ask(self, value: object) -> Any:
        answer = self.raw(json.dumps(value).encode())
        return None if answer is None else json.loads(answer)

    def result(self, method: str, params: object = None) -> Any:
        return self.ask(call(method, params))["result"]

    def malformed(self, body: bytes, code: int) -> None:
        answer = self.raw(body)
        assert answer is not None, body
        told = json.loads(answer)
        self.assertEqual((told["id"], told["error"]["code"]), (None, code), body)
        self.assertEqual(
            told["error"]["data"]["exceptionTypeName"],
            "ParseError" if code == -32700 else "InvalidRequest",
        )


class OperationTests(JSONRPCTestCase):
    def test_lifeOfATopic(self) -> None:
        for method, wanted in (("exist", "false"), ("open", "true"), ("exist", "true")):
            self.assertEqual(self.result(method, {"topic": "hello"}), wanted)
        sent = self.result(
            "publish", {"topic": "hello", "content": "/wA=", "extensions": {"svc-k": "v"}}
        )
        self.assertEqual(sent, {"topic": "hello", "eventId": "2cf24dba-1-2", "status": "SUCCESS"})
        self.assertEqual(
            self.result("getEvent", {"eventId": "2cf24dba-1-2"}),
            {
                "topic": "hello",
                "content": "/wA=",
                "extensions": {"svc-k": "v"},
                "eventId": "2cf24dba-1-2",
            },
        )
        self.assertEqual(self.result("state", {"topic": "hello"})["sequenceNumber"], 1)
        self.assertEqual(self.result("list", {"pageIndex": 0, "pageSize": 5})["total"], 1)
        self.assertEqual(self.result("close", {"topic": "hello"}), "true")

    def test_resultsAreThoseOfREST(self) -> None:
        client = Client(fixture=self.fixture)
        self.result("open", ["t"])
        self.result("publish", ["t", "1", "eA=="])
        for method, params, query in (
            ("list", {}, "list"),
            ("state", {"topic": "t"}, "state?topic=t"),
            ("getEvent", {"eventId": "e3b98a4d-1-2"}, "getEvent?eventId=e3b98a4d-1-2"),
        ):
            self.assertEqual(self.result(method, params), client.rest(query))

    def test_positionalParams(self) -> None:
        self.assertEqual(self.result("open", ["t", "2"]), "true")
        self.assertEqual(self.result("publish", ["t", "2", "eA==", {}])["status"], "SUCCESS")
        self.assertEqual(self.result("list", [0, 7, "2"])["pageSize"], 7)
        self.assertEqual(self.ask(call("open", ["t", "2", 3]))["error"]["code"], -32602)

    def test_contentInThePlaceOfTheGroup(self) -> None:
        """The error says which parameter the second one is."""
        self.result("open", ["t"])
        error = self.ask(call("publish", ["t", "eA=="]))["error"]
        self.assertEqual(error["data"]["code"], errors.GroupUnknown.code)
        self.assertEqual(
            error["message"],
            "groupId: group is unknown: eA==; "
            "by position they are topic, groupId, content, extensions, author, signature, "
            "signedAt, idempotencyKey, expectedSequence, after",
        )
        error = self.ask(call("publish", {"topic": "t", "groupId": "x" * 1000}))["error"]
        self.assertEqual(error["message"], "groupId: group is unknown: " + "x" * 100)

    def test_absentParams(self) -> None:
        for body in (
            b'{"jsonrpc":"2.0","id":1,"method":"list"}',
            b'{"jsonrpc":"2.0","id":1,"method":"list","params":null}',
        ):
            answer = self.raw(body)
            assert answer is not None
            self.assertEqual(json.loads(answer)["result"]["total"], 0)

    def test_errorOfTheBroker(self) -> None:
        self.assertEqual(
            self.ask(call("state", {"topic": "t"}, "a")),
            {
                "jsonrpc": "2.0",
                "id": "a",
                "error": {
                    "code": -32001,
                    "message": "topic does not exist",
                    "data": {
                        "exceptionTypeName": "TopicNotFound",
                        "message": "topic does not exist",
                        "code": 100101,
                    },
                },
            },
        )

    def test_unexpectedFailureHasAnIncidentId(self) -> None:
        self.fixture.ledger.error = ZeroDivisionError("secret")
        error = self.ask(call("exist", ["t"]))["error"]
        self.assertEqual((error["code"], error["data"]["code"]), (-32603, 200203))
        self.assertEqual(error["message"], "unknown error, incident incident-id")
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)


class ProtocolTests(JSONRPCTestCase):
    def test_idsAreEchoedAsSent(self) -> None:
        for id in (
            b'"a"',
            b'"\\u0061\\/"',
            '"é"'.encode(),
            b'""',
            b"1",
            b"-0",
            b"1.50",
            b"1e999",
            b"123456789012345678901234567890",
            b"9" * 5000,
            b"null",
        ):
            answer = self.raw(b'{"jsonrpc":"2.0","method":"list","id": ' + id + b" }")
            assert answer is not None
            self.assertIn(b'"id":' + id + b',"result"', answer)

    def test_notificationsAreNotAnswered(self) -> None:
        """They are carried out."""
        for method, params in (("open", ["t"]), ("state", ["none"]), ("none", []), ("open", [1])):
            self.assertIsNone(self.ask({"jsonrpc": "2.0", "method": method, "params": params}))
        self.assertEqual(self.result("exist", ["t"]), "true")

    def test_unknownMethodIsRefused(self) -> None:
        for method in ("none", "", "open_", "__init__", "listGroup"):
            error = self.ask(call(method, {}))["error"]
            self.assertEqual((error["code"], error["data"]["code"]), (-32601, 200204))

    def test_textThatIsNoJSON(self) -> None:
        for body in (
            b"",
            b" ",
            b"{",
            b"nonsense",
            b"\xff",
            b'{"jsonrpc":"2.0","method":"list","id":"\xff"}',
            b'{"jsonrpc":"2.0","method":"list","id":"\\ud800"}',
            b'{"jsonrpc":"2.0","method":"list","id":NaN}',
            b'{"jsonrpc":"2.0","method":"list","id":01}',
            b'{"jsonrpc":"2.0","method":"list","id":1} x',
            b'[{"jsonrpc":"2.0","method":"list","id":1},',
            b"[" * 200_000,
            b"[" * 100_000 + b"]" * 100_000,
            b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        ):
            self.malformed(body, -32700)

    def test_jsonThatIsNoCall(self) -> None:
        for body in (
            b"1",
            b'"x"',
            b"null",
            b"{}",
            b"[]",
            b'{"jsonrpc":"1.0","method":"list","id":1}',
            b'{"jsonrpc":2.0,"method":"list","id":1}',
            b'{"method":"list","id":1}',
            b'{"jsonrpc":"2.0","id":1}',
            b'{"jsonrpc":"2.0","method":1}',
            b'{"jsonrpc":"2.0","method":"list","id":[]}',
            b'{"jsonrpc":"2.0","method":"list","id":{}}',
            b'{"jsonrpc":"2.0","method":"list","id":true}',
            b'{"jsonrpc":"2.0","method":"list","id":1,"params":"x"}',
            b'{"jsonrpc":"2.0","method":"list","id":1,"params":1}',
        ):
            self.malformed(body, -32600)

    def test_numberOutOfRangeIsRefused(self) -> None:
        answer = self.raw(b'{"jsonrpc":"2.0","method":"list","id":1,"params":{"pageSize":1e999}}')
        assert answer is not None
        self.assertEqual(json.loads(answer)["error"]["code"], -32602)

    def test_deeplyNestedParamsAreAnswered(self) -> None:
        """
        Every depth is answered, also one that can be skipped in the batch but is too deep to be
        read further down in the stack.
        """
        told = set()
        for depth in range(500, 1100):
            params = b"[" * depth + b"]" * depth
            call = b'{"jsonrpc":"2.0","method":"publish","id":1,"params":' + params + b"}"
            answer = self.raw(b"[" + call + b"]")
            assert answer is not None
            for each in re.findall(rb'"message":"([^"]+)","code"|"code":(-32700)', answer):
                told.update(each)
        self.assertIn(b"topic: is not a string", told)
        self.assertLessEqual(
            told - {b""},
            {
                b"-32700",
                b"the parameters are nested too deeply",
                b"topic: is not a string",
            },
        )

    def test_paramOfTheWrongType(self) -> None:
        error = self.ask(call("open", {"topic": 1}))["error"]
        self.assertEqual((error["code"], error["data"]["code"]), (-32602, 100600))
        self.assertEqual(error["data"]["exceptionTypeName"], "ParameterInvalid")

    @given(
        st.binary(max_size=60)
        | st.recursive(
            st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        ).map(lambda value: json.dumps(value).encode())
        | st.fixed_dictionaries(
            {"jsonrpc": st.just("2.0"), "id": st.integers()},
            optional={
                "method": st.sampled_from(["open", "publish", "list", "state", "getEvent"]),
                "params": st.dictionaries(
                    st.sampled_from(["topic", "groupId", "content", "extensions", "pageSize"]),
                    st.none() | st.text() | st.integers() | st.dictionaries(st.text(), st.text()),
                )
                | st.lists(st.none() | st.text() | st.integers(), max_size=5),
            },
        ).map(lambda value: json.dumps(value).encode())
    )
    @settings(
        max_examples=examples(400),
        deadline=None,
        # With and without the fast path.
        suppress_health_check=[HealthCheck.differing_executors],
    )
    def test_anyBodyIsAnsweredAsTheProtocolSays(self, body: bytes) -> None:
        answer = self.raw(body)
        if answer is None:
            return
        told = json.loads(answer)
        for each in told if isinstance(told, list) else [told]:
            self.assertEqual(each["jsonrpc"], "2.0")
            self.assertIn("id", each)
            self.assertEqual(("result" in each) + ("error" in each), 1)
            if "error" in each:
                self.assertNotEqual(each["error"]["code"], -32603)


class BatchTests(JSONRPCTestCase):
    def test_batchIsAnsweredInOrder(self) -> None:
        answers = self.ask(
            [
                call("open", ["t"], 1),
                call("publish", ["t", "1", "eA=="], 2),
                {"jsonrpc": "2.0", "method": "publish", "params": ["t", "1", "eA=="]},
                1,
                call("publish", ["t", "1", "eA=="], 3),
                call("state", ["t"], 4),
            ]
        )
        self.assertEqual([each["id"] for each in answers], [1, 2, None, 3, 4])
        self.assertEqual(answers[-1]["result"]["sequenceNumber"], 3)

    def test_publishesInARowAreOneSubmission(self) -> None:
        """They do not wait for each other, nor for topics; the next call waits for them."""
        self.result("open", ["t"])
        self.fixture.ledger.isHolding = True
        publish = call("publish", ["t", "1", "eA=="])
        batch = [publish, publish, call("open", ["u"]), call("exist", ["u"]), publish]
        answer = self.start(json.dumps(batch).encode())
        self.assertEqual(
            [type(each) for each in self.fixture.ledger.submitted[1:]],
            [Publication, Publication, OpenTopic],
        )
        self.fixture.ledger.release()
        self.assertIsInstance(self.fixture.ledger.submitted[-1], Publication)
        self.fixture.ledger.release()
        told = self.successResultOf(answer)
        assert isinstance(told, bytes)
        self.assertEqual(
            [
                each["result"]["eventId"][9:10]
                for each in json.loads(told)
                if each["result"] != "true"
            ],
            ["1", "2", "3"],
        )

    def test_wrongParamsInABatchAreRefusedAlone(self) -> None:
        """The other publishes of the batch are carried out."""
        self.result("open", ["t"])
        good = {"topic": "t", "content": "eA=="}
        for wrong, code in (
            ({"topic": "t"}, errors.ContentBlank.code),
            ({"topic": "a+", "content": "eA=="}, errors.TopicInvalid.code),
            ({"topic": "t", "content": "eA"}, errors.ParameterInvalid.code),
            ({**good, "groupId": "9"}, errors.GroupUnknown.code),
            ({**good, "author": "00"}, errors.SignatureInvalid.code),
            ({"topic": "none", "content": "eA=="}, errors.TopicNotFound.code),
        ):
            first, second, third = self.ask([call("publish", each) for each in (good, wrong, good)])
            self.assertEqual(second["error"]["data"]["code"], code)
            self.assertEqual({first["result"]["status"], third["result"]["status"]}, {"SUCCESS"})

    @given(
        st.lists(
            st.fixed_dictionaries(
                {"jsonrpc": st.just("2.0")},
                optional={
                    "method": st.sampled_from(["publish"] * 9 + ["state"]),
                    "id": st.integers() | st.text() | st.none() | st.just([]) | st.just(True),
                    "params": st.fixed_dictionaries(
                        {
                            "topic": st.sampled_from(["t"] * 9 + ["u", "", "a+", None, 1]),
                            "content": st.sampled_from(["eA=="] * 9 + ["", "eA", None, 1]),
                        },
                        optional={
                            "groupId": st.sampled_from([None, "", "1", "2", "9", 1]),
                            "extensions": st.sampled_from(
                                [None, {}, {"svc-k": "v"}, {"k": "v"}, {"svc-k": 1}, []]
                            ),
                            "author": st.sampled_from([None, "", "00", 1]),
                            "idempotencyKey": st.sampled_from([None, "a", "b", 1]),
                            "expectedSequence": st.sampled_from([None, 0, 1, 1.0, "x"]),
                            "publisher": st.just("eA=="),
                        },
                    )
                    | st.lists(st.sampled_from(["t", "1", "eA=="]), max_size=3),
                },
            ),
            min_size=1,
            max_size=4,
        )
    )
    @settings(
        max_examples=examples(80),
        deadline=None,
        # With and without the fast path.
        suppress_health_check=[HealthCheck.differing_executors],
    )
    def test_plainBatchesAreAnsweredAsAllOthers(self, batch: list[dict[str, object]]) -> None:
        """A batch that has another call too is read entry by entry."""
        told = []
        for more in ([], [call("list", [], "last")]):
            self.setUp()
            for group in "12":
                self.result("open", ["t", group])
            answers = self.ask(batch + more) or []
            told.append([each for each in answers if each["id"] != "last"])
        self.assertEqual(*told)

    def test_plainBatchIsRead(self) -> None:
        """Not entry by entry: otherwise other tests would compare two equal ways."""
        self.result("open", ["t"])
        self.patch(jsonrpc, "parseEntries", None)
        for count in (1, 3):
            answers = self.ask(
                [
                    call("publish", {"topic": "t", "content": "eA==", "idempotencyKey": key})
                    for key in (None, "a", "b")[:count]
                ]
            )
            self.assertEqual([each["result"]["status"] for each in answers], ["SUCCESS"] * count)

    def test_absentParamsInABatchAreRefused(self) -> None:
        """Also where the call has no other one beside it that could be read."""
        absent = {"jsonrpc": "2.0", "id": 1, "method": "publish"}
        blank, code = errors.TopicBlank.code, errors.ContentBlank.code
        for batch, codes in (
            ([absent], [blank]),
            ([absent] * 2, [blank] * 2),
            ([absent, {**absent, "params": {"topic": "t"}}], [blank, code]),
        ):
            answers = self.ask(batch)
            self.assertEqual([each["error"]["data"]["code"] for each in answers], codes)

    def test_batchOfNotificationsIsNotAnswered(self) -> None:
        self.assertIsNone(self.ask([{"jsonrpc": "2.0", "method": "list"}] * 2))

    def test_batchWithoutCallsIsAnswered(self) -> None:
        self.assertEqual([each["error"]["code"] for each in self.ask([1, []])], [-32600] * 2)

    def test_longBatchIsRefused(self) -> None:
        self.assertEqual(len(self.ask([1] * MAX_BATCH)), MAX_BATCH)
        self.malformed(json.dumps([1] * (MAX_BATCH + 1)).encode(), -32600)

    def test_restOfATooLargeAnswerIsRefused(self) -> None:
        """The rest of the batch is not carried out."""
        self.patch(jsonrpc, "MAX_BATCH_ANSWER", 100)
        answers = self.ask(
            [call("list", {}, 1), call("list", {}, 2), call("list", {}, 3), call("open", ["t"], 4)]
        )
        self.assertEqual([each["id"] for each in answers], [1, 2, 3, 4])
        self.assertEqual(answers[-1]["error"]["data"]["code"], errors.Overloaded.code)
        self.assertEqual(self.result("exist", ["t"]), "false")

    def test_restOfABatchThatTakesLongIsRefused(self) -> None:
        """The calls before are answered; the answers to the others say that they were not made."""
        self.result("open", ["t"])
        times = itertools.count(0, jsonrpc.MAX_BATCH_TIME)
        self.patch(self.fixture.clock, "seconds", lambda: next(times))
        batch = [call("exist", ["t"], 1), call("exist", ["t"], 2), call("open", ["u"], 3), 4]
        answering = self.start(json.dumps(batch).encode())
        answer = self.successResultOf(answering)
        assert isinstance(answer, bytes)
        first, *others = json.loads(answer)
        self.assertEqual(first["result"], "true")
        late, malformed = [each["error"] for each in others[:2]], others[2]["error"]
        self.assertEqual([each["data"]["code"] for each in late], [errors.Overloaded.code] * 2)
        self.assertEqual(malformed["code"], -32600)
        self.assertIn("in another batch", others[0]["error"]["data"]["message"])
        self.assertEqual(self.result("exist", ["u"]), "false")

    def test_aBatchMayWaitLongForBlocks(self) -> None:
        """A ledger may take seconds for each of them."""
        self.result("open", ["t"])
        self.fixture.ledger.isHolding = True
        batch = [call("publish", ["t", "1", "eA=="], 1), call("exist", ["t"], 2)]
        answering = self.start(json.dumps(batch).encode())
        self.fixture.clock.advance(jsonrpc.MAX_BATCH_TIME)
        self.fixture.ledger.release()
        self.fixture.clock.advance(0)
        answer = self.successResultOf(answering)
        assert isinstance(answer, bytes)
        self.assertEqual(json.loads(answer)[1]["result"], "true")


class HTTPTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.client = Client()

    def test_notificationHasStatus204(self) -> None:
        answer = self.client.ask("POST", f"{BASE}/jsonrpc", b'{"jsonrpc":"2.0","method":"list"}')
        self.assertEqual((answer.status, answer.body), (204, b""))
        self.assertNotIn("content-length", answer.headers)

    def test_contentTypeIsIgnored(self) -> None:
        body = b'{"jsonrpc":"2.0","id":1,"method":"list"}'
        for contentType in ("application/json", "text/plain", "multipart/form-data"):
            answer = self.client.ask("POST", f"{BASE}/jsonrpc", body, {"Content-Type": contentType})
            self.assertEqual(answer.json()["result"]["total"], 0)

    def test_getIsRefused(self) -> None:
        answer = self.client.ask("GET", f"{BASE}/jsonrpc")
        self.assertEqual((answer.status, answer.headers["allow"]), (405, "OPTIONS, POST"))
