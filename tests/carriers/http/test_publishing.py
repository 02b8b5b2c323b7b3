"""
Signatures, idempotency keys and expected sequence numbers over REST and JSON-RPC.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Any
from urllib.parse import urlencode

from twisted.trial.unittest import SynchronousTestCase

from svcbroker import errors
from svcbroker.carriers.http import jsonrpc
from svcbroker.interfaces import Submission
from svcbroker.model import EventId, Execution, PublishEvent, Receipt

from ...authors import Author, tellChain
from .support import BASE, FORM, Client, requestBytes

FIRST = EventId("e3b98a4d", 3, 7)


class PublishTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.client = Client()
        self.ledger = self.client.fixture.ledger
        self.chain = tellChain(self.ledger)
        self.assertIs(self.client.rest("open?topic=t"), True)
        self.ledger.submitted.clear()
        author = Author().sign(self.chain, "t", b"x", {"svc-a": "b"}, "k")
        self.authorship = author
        self.signed: dict[str, Any] = {
            "author": author.key.hex().upper(),
            "signature": author.signature.hex(),
            "signedAt": author.signedAt,
            "idempotencyKey": "k",
        }

    def rest(self, key: str | None = None, **more: Any) -> Any:
        """Publish by POST, maybe with the header C{Idempotency-Key}."""
        body = urlencode({"topic": "t", "content": "x", **more}).encode()
        return self.post(f"{BASE}/rest/publish", body, FORM, key)

    def rpc(self, key: str | None = None, **more: Any) -> Any:
        """Publish by JSON-RPC, maybe with the header C{Idempotency-Key}."""
        return self.call({"topic": "t", "content": "eA==", **more}, key)

    def call(self, params: Any, key: str | None = None, method: str = "publish") -> Any:
        call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return self.post(f"{BASE}/jsonrpc", json.dumps(call).encode(), "application/json", key)

    def post(self, path: str, body: bytes, type: str, key: str | None = None) -> Any:
        headers = {"Content-Type": type}
        if key is not None:
            headers["Idempotency-Key"] = key
        return self.client.ask("POST", path, body, headers).json()

    def keys(self) -> list[str | None]:
        """The idempotency keys of what was submitted since the last time."""
        submitted = list(self.ledger.submitted)
        self.ledger.submitted.clear()
        return [each.idempotencyKey for each in submitted if isinstance(each, PublishEvent)]

    def answer(self, execution: Execution, **more: Any) -> None:
        """Have the ledger answer so."""
        self.ledger.receipt = Receipt(
            execution=execution, transactionHash=bytes(32), height=9, **more
        )


class ParameterTests(PublishTestCase):
    def test_parametersAreSubmitted(self) -> None:
        given = {**self.signed, "expectedSequence": 0}
        self.assertEqual(self.rest(**given, **{"svc-a": "b"})["status"], "SUCCESS")
        given["expectedSequence"] = 1
        answer = self.rpc(**given, extensions={"svc-a": "b"})
        self.assertEqual(answer["result"]["status"], "SUCCESS")
        for number, request in enumerate(self.ledger.submitted):
            assert isinstance(request, PublishEvent)
            self.assertEqual(request.author, self.authorship)
            self.assertEqual((request.idempotencyKey, request.expectedSequence), ("k", number))
            self.assertEqual(request.extensions, {"svc-a": "b"})

    def test_absentParametersAreNotSubmitted(self) -> None:
        self.rest(author="", idempotencyKey="", expectedSequence="")
        self.rpc(author=None, idempotencyKey="" or None, expectedSequence=None)
        for request in self.ledger.submitted:
            assert isinstance(request, PublishEvent)
            self.assertIsNone(request.author)
            self.assertEqual((request.idempotencyKey, request.expectedSequence), (None, None))
        self.assertEqual(len(self.ledger.submitted), 2)

    def test_malformedParametersAreNamed(self) -> None:
        for name, value, error in (
            ("author", "00", errors.SignatureInvalid),
            ("author", "x" * 64, errors.SignatureInvalid),
            ("signature", "0" * 64, errors.SignatureInvalid),
            ("signedAt", "-1", errors.ParameterInvalid),
            ("signedAt", "now", errors.ParameterInvalid),
            ("idempotencyKey", "a b", errors.ParameterInvalid),
            ("idempotencyKey", "\xe4", errors.ParameterInvalid),
            ("idempotencyKey", "k" * 65, errors.ParameterInvalid),
            ("expectedSequence", "1.5", errors.ParameterInvalid),
        ):
            answer = self.rest(**{**self.signed, name: value})
            self.assertEqual(answer["code"], error.code, name)
            self.assertTrue(answer["message"].startswith(f"{name}: "), answer)
            told = self.rpc(**{**self.signed, name: value})["error"]
            self.assertEqual(told["code"], error.rpcCode, name)
            self.assertTrue(told["message"].startswith(f"{name}: "), answer)
        self.assertEqual(self.ledger.submitted, [])

    def test_longestKeyIsAccepted(self) -> None:
        self.rest(idempotencyKey="!" * 32 + "~" * 32)
        self.assertEqual(self.keys(), ["!" * 32 + "~" * 32])

    def test_wrongSignatureIsRefused(self) -> None:
        answer = self.rest(**self.signed, **{"svc-a": "c"})
        self.assertEqual(answer["code"], errors.SignatureInvalid.code)

    def test_batchHasTheParametersOfEachCall(self) -> None:
        plain: dict[str, Any] = {}
        calls = [
            {
                "jsonrpc": "2.0",
                "id": number,
                "method": "publish",
                "params": {"topic": "t", "content": "eA==", **more},
            }
            for number, more in enumerate(
                (plain, {"idempotencyKey": "a"}, {"author": "00" * 32}, {"expectedSequence": 2})
            )
        ]
        answers = self.post(f"{BASE}/jsonrpc", json.dumps(calls).encode(), "application/json")
        self.assertEqual(["error" in each for each in answers], [False, False, True, False])
        self.assertEqual(answers[2]["error"]["code"], errors.SignatureInvalid.rpcCode)
        self.assertEqual(self.keys(), [None, "a", None])

    def test_manySignedCallsAreSubmittedInParts(self) -> None:
        """None takes long to verify."""
        sizes: list[int] = []
        submitMany = self.ledger.submitMany

        def count(requests: Sequence[Any]) -> Submission:
            sizes.append(len(requests))
            return submitMany(requests)

        self.patch(self.ledger, "submitMany", count)
        self.patch(jsonrpc, "MAX_SIGNED", 3)
        self.patch(jsonrpc, "SIGNED_BESIDE_FEW", 3)
        params = {"topic": "t", "content": "eA==", "extensions": {"svc-a": "b"}}
        one = {"jsonrpc": "2.0", "id": 1, "method": "publish"}
        plain, signed = ({**one, "params": {**params, **more}} for more in ({}, self.signed))
        calls = [*[plain] * 5, *[signed] * 7]
        answers = self.post(f"{BASE}/jsonrpc", json.dumps(calls).encode(), "application/json")
        self.assertEqual({each["result"]["status"] for each in answers}, {"SUCCESS"})
        self.assertEqual(len(answers), len(calls))
        self.assertEqual(sizes, [8, 3, 1])

    def test_callsAreSubmittedInPartsWhileOthersPublishAFew(self) -> None:
        """A block has a part of them, and no part waits for the block of the one before."""
        sizes: list[int] = []
        waiting: list[Submission] = []

        def keep(requests: Sequence[Any]) -> Submission:
            sizes.append(len(requests))
            waiting.append(Submission(len(requests)))
            return waiting[-1]

        self.patch(self.ledger, "submitMany", keep)
        self.patch(jsonrpc, "PART_BESIDE_FEW", 20)
        work, clock = self.client.fixture.broker.budgets.work, self.client.fixture.clock
        call = {"jsonrpc": "2.0", "id": 1, "method": "publish"}
        batch = json.dumps([{**call, "params": {"topic": "t", "content": "eA=="}}] * 50).encode()
        connection = self.client.connect()
        for parts in ([50], [20, 20, 10]):
            connection.send(requestBytes("POST", f"{BASE}/jsonrpc", batch))
            clock.advance(0)
            self.assertEqual((sizes, work.reserved), (parts, 0))
            work.submitted(1)
            self.assertTrue(work.isShared())
            sizes.clear()
            for each in waiting:
                each.settle(0, [errors.LedgerUnavailable()] * len(each.outcomes))
            waiting.clear()
            [answer] = connection.answers()
            self.assertEqual(len(answer.json()), 50)


class OutcomeTests(PublishTestCase):
    def test_publishedBeforeIsSuccess(self) -> None:
        self.answer(Execution.PUBLISHED_BEFORE, eventId=FIRST)
        told = {"topic": "t", "eventId": str(FIRST), "status": "SUCCESS"}
        self.assertEqual(self.rest(idempotencyKey="k"), told)
        self.assertEqual(self.rpc(idempotencyKey="k")["result"], told)

    def test_otherSequenceIsTold(self) -> None:
        self.answer(Execution.OTHER_SEQUENCE, sequence=5)
        message = f"{errors.SequenceConflict.text}: it has 5"
        self.assertEqual(self.rest(expectedSequence=4), {"code": 100209, "message": message})
        self.assertEqual(
            self.rpc(expectedSequence=4)["error"],
            {
                "code": -32016,
                "message": message,
                "data": {
                    "exceptionTypeName": "SequenceConflict",
                    "message": message,
                    "code": 100209,
                    "sequenceNumber": 5,
                },
            },
        )

    def test_refusalsAreTold(self) -> None:
        for execution, error in (
            (Execution.KEY_IN_USE, errors.IdempotencyConflict),
            (Execution.NO_AUTHOR, errors.AuthorRefused),
        ):
            self.answer(execution)
            self.assertEqual(self.rest(), {"code": error.code, "message": error.text})
            self.assertEqual(self.rpc()["error"]["code"], error.rpcCode)


class HeaderTests(PublishTestCase):
    def test_headerIsTheKey(self) -> None:
        self.rest("a")
        self.rest('"b"')
        self.rest("c", idempotencyKey="c")
        self.rest("d", idempotencyKey="")
        self.rpc("e")
        self.rpc('"f"', idempotencyKey="f")
        self.call(["t", None, "eA=="], "g")
        self.assertEqual(self.keys(), list("abcdefg"))

    def test_getTakesIt(self) -> None:
        path = f"{BASE}/rest/publish?topic=t&content=x"
        self.client.ask("GET", path, headers={"idempotency-key": "a"})
        self.assertEqual(self.keys(), ["a"])

    def test_otherKeyIsRefused(self) -> None:
        self.assertEqual(self.rest("a", idempotencyKey="b")["code"], 100600)
        answer = self.rpc("a", idempotencyKey="b")
        self.assertEqual((answer["id"], answer["error"]["code"]), (1, -32602))
        self.assertEqual(self.keys(), [])

    def test_malformedHeaderIsRefused(self) -> None:
        for key in ("a b", "k" * 65):
            self.assertEqual(self.rest(key)["code"], 100600)
            self.assertEqual(self.rpc(key)["error"]["code"], -32602)
        self.assertEqual(self.keys(), [])

    def test_repeatedHeadersAreRefused(self) -> None:
        connection = self.client.connect()
        connection.send(
            f"GET {BASE}/rest/publish?topic=t&content=x HTTP/1.1\r\nHost: broker\r\n"
            "Idempotency-Key: a\r\nIdempotency-Key: b\r\n\r\n".encode()
        )
        [answer] = connection.answers()
        self.assertEqual(answer.json()["code"], 100600)
        self.assertEqual(self.keys(), [])

    def test_batchIsRefused(self) -> None:
        call = {"jsonrpc": "2.0", "id": 1, "method": "exist", "params": ["t"]}
        answer = self.post(f"{BASE}/jsonrpc", json.dumps([call]).encode(), "application/json", "a")
        self.assertEqual((answer["id"], answer["error"]["code"]), (None, -32602))

    def test_otherCallsIgnoreIt(self) -> None:
        self.assertEqual(self.call(["t"], "a", "exist")["result"], "true")
        self.assertEqual(self.call(["t"], "a", "none")["error"]["code"], -32601)
        answer = self.client.ask(
            "GET", f"{BASE}/rest/exist?topic=t", headers={"Idempotency-Key": "a b"}
        )
        self.assertIs(answer.json(), True)

    def test_wrongParametersAreRefusedAsWithoutIt(self) -> None:
        for params in ([None] * 10, {"topic": 1}, ["t", "9"]):
            self.assertEqual(self.call(params, "a"), self.call(params))
        self.assertEqual(self.keys(), [])

    def test_notificationWithOtherKeyIsNotPublished(self) -> None:
        params = {"topic": "t", "content": "eA==", "idempotencyKey": "b"}
        body = {"jsonrpc": "2.0", "method": "publish", "params": params}
        headers = {"Idempotency-Key": "a"}
        answer = self.client.ask("POST", f"{BASE}/jsonrpc", json.dumps(body).encode(), headers)
        self.assertEqual((answer.status, answer.body), (204, b""))
        self.assertEqual(self.keys(), [])


class CloudEventTests(PublishTestCase):
    def publish(self, query: str = "topic=t", **headers: str) -> Any:
        """Post a CloudEvent in binary mode."""
        given = {"ce-specversion": "1.0", "ce-id": "7", "ce-source": "/s", "ce-type": "t"}
        path = f"{BASE}/rest/cloudevents?{query}"
        return self.client.ask("POST", path, b"x", {**given, **headers}).json()

    def test_sourceAndIdAreTheKey(self) -> None:
        self.assertEqual(self.publish()["status"], "SUCCESS")
        self.assertEqual(self.keys(), [sha256(b"/s\0007").hexdigest()])

    def test_otherKeyIsRefused(self) -> None:
        for query, headers in (
            ("topic=t&idempotencyKey=k", {}),
            ("topic=t", {"Idempotency-Key": "k"}),
        ):
            self.assertEqual(self.publish(query, **headers)["code"], 100600)
        self.assertEqual(self.keys(), [])

    def test_eventMayBeSigned(self) -> None:
        attributes = {"svc-ce": '{"specversion":"1.0","id":"7","source":"/s","type":"t"}'}
        key = sha256(b"/s\0007").hexdigest()
        author = Author().sign(self.chain, "t", b"x", attributes, key)
        query = urlencode(
            {
                "topic": "t",
                "author": author.key.hex(),
                "signature": author.signature.hex(),
                "signedAt": author.signedAt,
            }
        )
        self.assertEqual(self.publish(query)["status"], "SUCCESS")
