"""
Every error of the operations, over REST and JSON-RPC.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svcbroker import errors
from svcbroker.errors import BrokerError
from svcbroker.model import EraseEvents, Execution, Receipt
from svcbroker.operations import COMMON_ERRORS, OPERATIONS
from tests.broker.support import TIMEOUT, FailingWebhooks, Fixture, makeFixture

from .support import Client, requestBytes

Case = tuple[type[BrokerError], str, str | None, dict[str, Any] | None]

INPUT: list[Case] = [
    # error, REST call, JSON-RPC method and parameters
    (errors.TopicNotFound, "state?topic=none", "state", {"topic": "none"}),
    (errors.TopicTooLong, "exist?topic=" + "x" * 257, "exist", {"topic": "x" * 257}),
    (errors.TopicBlank, "open?topic=++", "open", {"topic": "  "}),
    (errors.TopicBlank, "open", "open", {}),
    (errors.PageIndexInvalid, "list?pageIndex=-1", "list", {"pageIndex": -1}),
    (errors.TopicInvalid, "open?topic=a%23", "open", {"topic": "a#"}),
    (errors.PageSizeInvalid, "list?pageSize=x", "list", {"pageSize": "x"}),
    (errors.ContentBlank, "publish?topic=t", "publish", {"topic": "t", "content": ""}),
    (
        errors.ContentTooLarge,
        "publish?topic=t&content=" + "x" * 1001,
        "publish",
        {"topic": "t", "content": "eHh4" * 334},
    ),
    (
        errors.ExtensionKeyInvalid,
        "",
        "publish",
        {"topic": "t", "content": "eA==", "extensions": {"a": "b"}},
    ),
    (
        errors.ExtensionsTooLarge,
        "",
        "publish",
        {"topic": "t", "content": "eA==", "extensions": {"svc-a": "x" * 8192}},
    ),
    (
        errors.SignatureInvalid,
        "publish?topic=t&content=x&author=x",
        "publish",
        {"topic": "t", "content": "eA==", "signedAt": 1},
    ),
    (errors.QueryTooLong, "publish?topic=t&content=x&x=" + "x" * 1010, None, None),
    (errors.EventIdBlank, "getEvent", "getEvent", {}),
    (errors.EventIdTooLong, "getEvent?eventId=" + "0" * 65, "getEvent", {"eventId": "0" * 65}),
    (errors.EventIdInvalid, "getEvent?eventId=x", "getEvent", {"eventId": "x"}),
    (
        errors.EventNotFound,
        "getEvent?eventId=00000000-1-1",
        "getEvent",
        {"eventId": "00000000-1-1"},
    ),
    (
        errors.HeightUnknown,
        "getEvent?eventId=00000000-1-9",
        "getEvent",
        {"eventId": "00000000-1-9"},
    ),
    (
        errors.PatternInvalid,
        "subscribe?topic=t,a%2Bb&url=http://h/",
        "subscribe",
        {"topic": "a#", "url": "http://h/"},
    ),
    (errors.UrlInvalid, "subscribe?topic=t", "subscribe", {"topic": "t"}),
    (errors.SubscriptionIdBlank, "unSubscribe", "unSubscribe", {"subscriptionId": "  "}),
    (
        errors.SubscriptionIdInvalid,
        "unSubscribe?subscriptionId=1",
        "subscribe",
        {"topic": "t", "url": "http://h/", "subscriptionId": "x"},
    ),
    (errors.ParameterInvalid, "open?topic=t&groupId=%FF", "open", {"topic": "t", "groupId": 1}),
    (errors.NoSuchCall, "none", "none", {}),
    (errors.GroupUnknown, "open?topic=t&groupId=9", "open", {"topic": "t", "groupId": "9"}),
]


def refuse(fixture: Fixture) -> None:
    fixture.ledger.error = None
    fixture.ledger.receipt = Receipt(
        execution=Execution.REPEATED, transactionHash=bytes(32), height=1
    )


def failWith(error: Exception) -> Callable[[Fixture], None]:
    def breakLedger(fixture: Fixture) -> None:
        fixture.ledger.error = error

    return breakLedger


PUBLISHES = {
    errors.IdempotencyConflict: Execution.KEY_IN_USE,
    errors.SequenceConflict: Execution.OTHER_SEQUENCE,
    errors.AuthorRefused: Execution.NO_AUTHOR,
}
WEBHOOKS = (errors.SubscriptionExists, errors.SubscriptionNotFound, errors.NoSuchCall)
ID = "00000000-0000-4000-8000-000000000001"

STATE: list[tuple[type[BrokerError], Callable[[Fixture], None]]] = [
    (errors.Overloaded, failWith(errors.Overloaded())),
    (errors.LedgerUnavailable, failWith(errors.LedgerUnavailable())),
    (errors.TransactionFailed, refuse),
    (errors.UnknownError, failWith(ZeroDivisionError())),
]


class ErrorTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.client = Client()
        self.assertIs(self.client.rest("open?topic=t"), True)

    def checkREST(self, error: type[BrokerError], answer: Any) -> None:
        self.assertEqual(set(answer), {"code", "message"}, error)
        self.assertEqual(answer["code"], error.code)

    def checkRPC(self, error: type[BrokerError], answer: Any) -> None:
        self.assertEqual(set(answer), {"jsonrpc", "id", "error"}, error)
        told = answer["error"]
        self.assertEqual(told["code"], error.rpcCode)
        self.assertEqual(
            (told["data"]["exceptionTypeName"], told["data"]["code"]), (error.__name__, error.code)
        )
        self.assertEqual(told["data"]["message"], told["message"])

    def test_invalidParameters(self) -> None:
        for error, call, method, params in INPUT:
            if call:
                self.checkREST(error, self.client.rest(call))
            if method:
                self.checkRPC(error, self.client.rpc(method, params))

    def test_extensionsTooLargeOverREST(self) -> None:
        """Keys cannot be invalid there; the size needs a POST."""
        query = "/svcbroker/rest/publish?topic=t&content=x&svc-a=" + "x" * 8192
        self.checkREST(errors.ExtensionsTooLarge, self.client.ask("POST", query).json())

    def test_errorsOfTheLedger(self) -> None:
        for error, breakLedger in STATE:
            breakLedger(self.client.fixture)
            self.checkREST(error, self.client.rest("close?topic=t"))
            self.checkRPC(error, self.client.rpc("close", {"topic": "t"}))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 2)

    def test_closeThatTakesTooLong(self) -> None:
        self.client.fixture.ledger.isHolding = True
        rest, rpc = self.client.connect(), self.client.connect()
        rest.send(requestBytes("GET", "/svcbroker/rest/close?topic=t"))
        body = b'{"jsonrpc":"2.0","id":1,"method":"close","params":["t"]}'
        rpc.send(requestBytes("POST", "/svcbroker/jsonrpc", body))
        self.assertEqual(rest.answers() + rpc.answers(), [])
        self.client.fixture.clock.advance(TIMEOUT)
        self.checkREST(errors.TransactionTimeout, rest.answers()[0].json())
        self.checkRPC(errors.TransactionTimeout, rpc.answers()[0].json())

    def test_errorsOfWebhooks(self) -> None:
        for error in WEBHOOKS:
            fixture = makeFixture()
            fixture.calls.webhooks = FailingWebhooks(error())
            client = Client(fixture=fixture)
            self.checkREST(error, client.rest("subscribe?topic=t&url=http://h/"))
            self.checkREST(error, client.rest(f"unSubscribe?subscriptionId={ID}"))
            self.checkRPC(error, client.rpc("subscribe", {"topic": "t", "url": "http://h/"}))
            self.checkRPC(error, client.rpc("unSubscribe", {"subscriptionId": ID}))

    def test_erasedEvent(self) -> None:
        eventId = self.client.rest("publish?topic=t&content=x")["eventId"]
        erasure = EraseEvents(topic="t", ranges=[(1, 1)], account="", reason="asked for")
        self.client.fixture.ledger.submitMany([erasure])
        answer = self.client.rest(f"getEvent?eventId={eventId}")
        del answer["erased"]
        self.checkREST(errors.EventErased, answer)
        self.checkRPC(errors.EventErased, self.client.rpc("getEvent", [eventId]))

    def test_nodeThatIsBehind(self) -> None:
        """The status is for proxies, which ask another node then."""
        self.client.fixture.ledger.error = errors.NodeBehind()
        answer = self.client.ask("GET", "/svcbroker/rest/close?topic=t")
        self.assertEqual((answer.status, answer.headers["retry-after"]), (503, "1"))
        self.checkREST(errors.NodeBehind, answer.json())
        self.checkRPC(errors.NodeBehind, self.client.rpc("close", {"topic": "t"}))

    def test_errorsOfPublishes(self) -> None:
        for error, execution in PUBLISHES.items():
            self.client.fixture.ledger.receipt = Receipt(
                execution=execution, transactionHash=bytes(32), height=1
            )
            self.checkREST(error, self.client.rest("publish?topic=t&content=x"))
            self.checkRPC(error, self.client.rpc("publish", {"topic": "t", "content": "eA=="}))

    def test_everyDeclaredErrorIsTested(self) -> None:
        """No declared error is left out of this module."""
        exercised = {case[0] for case in (*INPUT, *STATE)} | {errors.TransactionTimeout}
        exercised |= {*WEBHOOKS, *PUBLISHES, errors.EventErased, errors.NodeBehind}
        declared = {*COMMON_ERRORS, *(error for each in OPERATIONS for error in each.errors)}
        self.assertEqual(declared - exercised, set())
