"""
Tests of L{svcbroker.operations}: how parameters are read, and in which order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svcbroker import errors
from svcbroker.access import ANYBODY, Principal
from svcbroker.broker import MAX_PAGE_NUMBER
from svcbroker.client._requests import _AFTER as READS
from svcbroker.interfaces import Batch
from svcbroker.model import Event, EventFormat, EventId, Position
from svcbroker.operations import (
    OPERATIONS,
    Incidents,
    Operation,
    Result,
    bindJSON,
    bindParams,
    bindText,
)
from svcbroker.operations._adminqueries import QUERIES
from svcbroker.operations._results import loggedEvents
from tests import examples
from tests.broker.support import connected, makeFixture

DECLARED = {each.name: each for each in (*OPERATIONS, *QUERIES)}
HASH = "aB" * 32
ROOT = Path(errors.__file__).parents[1]


class ReadingTests(SynchronousTestCase):
    """
    Every operation gets exactly the values that a client sent.
    """

    def setUp(self) -> None:
        self.calls = makeFixture().calls

    def spied(self, name: str) -> tuple[Operation, list[Mapping[str, Any]]]:
        declared = DECLARED[name]
        calls: list[Mapping[str, Any]] = []

        def method(principal: Principal, **given: Any) -> Deferred[Any]:
            calls.append(given)
            return Deferred()

        spy = Operation(
            name=name,
            summary="",
            parameters=declared.parameters,
            result=Result(type=bool, render=bool),
            method=lambda _: method,
            isGroupFirst=declared.isGroupFirst,
        )
        return spy, calls

    def text(self, name: str, fields: Mapping[bytes, bytes]) -> Mapping[str, Any]:
        operation, calls = self.spied(name)
        connected(bindText(operation, self.calls))(ANYBODY, fields)
        return calls[0]

    def json(self, name: str, members: Mapping[str, object]) -> Mapping[str, Any]:
        operation, calls = self.spied(name)
        connected(bindJSON(operation, self.calls))(ANYBODY, members)
        return calls[0]

    def outcome(self, call: Callable[[], object], calls: list[Mapping[str, Any]]) -> object:
        """The values that were read, or the error."""
        try:
            call()
        except errors.BrokerError as error:
            return type(error), error.message
        return calls[-1]

    @given(st.data())
    @settings(max_examples=examples(300), deadline=None)
    def test_paramsMeanWhatTheirMembersMean(self, data: st.DataObject) -> None:
        """Whatever the members are."""
        name = data.draw(st.sampled_from(sorted(each.name for each in OPERATIONS)))
        operation, calls = self.spied(name)
        params = connected(bindParams(operation, self.calls))
        members = connected(bindJSON(operation, self.calls))
        some = st.one_of(
            st.none(),
            st.booleans(),
            st.integers(-(10**20), 10**20),
            st.floats(allow_nan=False, allow_infinity=False),
            st.text(max_size=12),
            st.sampled_from(["t", "a+b", "2", "9", " ", "/wA=", "/wA", "/w A=", "/wB=", "/wA=\n"]),
            st.lists(st.text(max_size=2), max_size=2),
            st.dictionaries(st.text(max_size=6), st.none() | st.text(max_size=6), max_size=2),
        )
        names = st.sampled_from([*(each.name for each in operation.parameters), "other"])
        given = data.draw(st.dictionaries(names, some))
        text = Raw(json.dumps(given, ensure_ascii=data.draw(st.booleans())).encode())
        self.assertEqual(
            self.outcome(lambda: params(ANYBODY, text), calls),
            self.outcome(lambda: members(ANYBODY, given), calls),
        )

    def test_paramsMayBeAbsentOrPositional(self) -> None:
        """Or C{null}; there may not be too many."""
        operation, calls = self.spied("list")
        params = connected(bindParams(operation, self.calls))
        for text in (b"", b"null", b"{}", b"[]"):
            params(ANYBODY, Raw(text))
            self.assertEqual(calls[-1], {"pageIndex": 0, "pageSize": 10, "groupId": "1"})
        params(ANYBODY, Raw(b"[2, 3]"))
        self.assertEqual(calls[-1], {"pageIndex": 2, "pageSize": 3, "groupId": "1"})
        # Deeper than any release of Python lets its parsers written in C go.
        deep = b"[" * 500_000 + b"]" * 500_000
        for text in (b"[1, 2, null, 4]", deep, b"[1e999]"):
            self.assertRaises(errors.ParameterInvalid, params, ANYBODY, Raw(text))

    def test_publishOverBothForms(self) -> None:
        wanted = {
            "groupId": "2",
            "topic": "a b",
            "content": b"\xff\0",
            "extensions": {"svc-k": "é"},
        }
        self.assertEqual(
            self.text(
                "publish",
                {
                    b"topic": b"a b",
                    b"content": b"\xff\0",
                    b"groupId": b"2",
                    b"svc-k": "é".encode(),
                    b"other": b"\xff",
                },
            ),
            wanted,
        )
        self.assertEqual(
            self.json(
                "publish",
                {
                    "topic": "a b",
                    "content": "/wA=",
                    "groupId": "2",
                    "extensions": {"svc-k": "é"},
                    "other": [],
                },
            ),
            wanted,
        )

    def test_absentParametersHaveDefaults(self) -> None:
        for members in ({}, {"pageIndex": None, "pageSize": None, "groupId": None}):
            self.assertEqual(
                self.json("list", members), {"pageIndex": 0, "pageSize": 10, "groupId": "1"}
            )
        for fields in ({}, {b"pageIndex": b"", b"pageSize": b"", b"groupId": b"  "}):
            self.assertEqual(
                self.text("list", fields), {"pageIndex": 0, "pageSize": 10, "groupId": "1"}
            )

    def test_numbersAreRead(self) -> None:
        for text, number in ((b"7", 7), (b"-7", -7), (b"007", 7), (b"9" * 5000, 10**17 - 1)):
            self.assertEqual(self.text("list", {b"pageSize": text})["pageSize"], number)
        for value, number in ((7, 7), (7.0, 7), (10**40, 10**40)):
            self.assertEqual(self.json("list", {"pageSize": value})["pageSize"], number)

    def test_textsThatAreNoNumbers(self) -> None:
        for text in (b"x", b"1.0", b"+1", b" 1", b"1e3", b"\xff", "٣".encode()):
            with self.assertRaises(errors.PageSizeInvalid):
                self.text("list", {b"pageSize": text})
            with self.assertRaises(errors.PageIndexInvalid):
                self.text("list", {b"pageIndex": text})
        wrong: tuple[object, ...] = ("1", True, 1.5, [], {})
        for value in wrong:
            with self.assertRaises(errors.PageSizeInvalid):
                self.json("list", {"pageSize": value})

    def test_errorsNameParameterValueAndRange(self) -> None:
        number = f"is not a whole number from 0 to {MAX_PAGE_NUMBER}"
        for name, members, message in (
            ("consistency", {"older": 1}, "newer: is required"),
            ("checkpoint", {"height": -1}, f"height: {number}: -1"),
            ("checkpoint", {"height": 10**400}, f"height: {number}"),
            ("exist", {"topic": 1.5}, "topic: is not a string: 1.5"),
            ("exist", {"topic": ["t"]}, "topic: is not a string"),
            ("list", {"pageIndex": -1}, "page index is not valid: it is a whole number from 0 to "),
            ("transaction/transList", {"transactionHash": "x" * 1000}, "x" * 100),
        ):
            error = self.assertRaises(errors.BrokerError, self.json, name, members)
            self.assertIn(message, error.message)
            self.assertLess(len(error.message), 200)
        fields = {b"blockNumber": b"\xff" * 1000}
        error = self.assertRaises(errors.BrokerError, self.text, "transaction/transList", fields)
        self.assertTrue(error.message.endswith(": " + "\ufffd" * 100), error.message)
        fields = {b"interfaceType": b""}
        error = self.assertRaises(errors.BrokerError, self.text, "listDurableSubscriptions", fields)
        self.assertEqual(error.message, "interfaceType: is required")

    def test_pageIndexOutOfRange(self) -> None:
        for name, parameter, number in (
            ("list", b"pageIndex", b"-1"),
            ("block/blockList", b"pageNumber", b"0"),
            ("list", b"pageIndex", b"9" * 30),
        ):
            with self.assertRaises(errors.PageIndexInvalid):
                self.text(name, {parameter: number})

    def test_hashesAreRead(self) -> None:
        for text in (HASH, "0x" + HASH, "0X" + HASH.upper()):
            given = self.text("block/blockList", {b"pkHash": text.encode()})
            self.assertEqual(given["pkHash"], b"\xab" * 32)
        for text in (HASH[1:], HASH + "0", "0x", "g" * 64, HASH + "\n"):
            with self.assertRaises(errors.ParameterInvalid):
                self.text("transaction/transList", {b"transactionHash": text.encode()})

    def test_blockNumberIsRead(self) -> None:
        given = self.text("transaction/transList", {b"blockNumber": b"3"})
        self.assertEqual(given["blockNumber"], 3)
        for text in (b"-1", b"x"):
            with self.assertRaises(errors.ParameterInvalid):
                self.text("transaction/transList", {b"blockNumber": text})

    def test_listOfAddresses(self) -> None:
        given = self.text("listSubscription", {b"nodeIp": b"a:1, b:2,,"})
        self.assertEqual((given["nodeIp"], given["groupId"]), (["a:1", "b:2"], None))

    def test_eventIdsAreRead(self) -> None:
        given = self.text("getEvent", {b"eventId": b"2cf24dba-1-2"})
        self.assertEqual(given["eventId"], EventId("2cf24dba", 1, 2))
        for text, error in (
            (b"", errors.EventIdBlank),
            (b"  ", errors.EventIdBlank),
            (b"x" * 65, errors.EventIdTooLong),
            (b"x", errors.EventIdInvalid),
            (b"\xff", errors.ParameterInvalid),
        ):
            with self.assertRaises(error):
                self.text("getEvent", {b"eventId": text})

    def test_parametersOfEventsAreRead(self) -> None:
        """The method is given C{from} as C{offset}, since C{from} is a word of Python."""
        given = self.text("events", {b"topic": b"a/#", b"from": b"7", b"reverse": b"true"})
        expected = {"topic": "a/#", "groupId": "1", "offset": Position(7, -1), "limit": 100}
        expected |= {"tag": None, "wait": 0, "reverse": True, "format": EventFormat.SVC}
        self.assertEqual(given, expected)
        given = self.json("events", {"topic": "a/#", "from": 7, "reverse": True, "wait": 0.0})
        self.assertEqual(given, expected)
        self.assertIsNone(self.text("events", {b"topic": b"a"})["offset"])
        for name, text, value in (
            ("limit", b"0", 1001),
            ("limit", b"x", True),
            ("wait", b"31", -1),
            ("wait", b"1.5", 1.5),
            ("reverse", b"1", 1),
            ("reverse", b"True", "true"),
            ("from", b"OFFSET_TIME:noon", "OFFSET_TIME:"),
        ):
            with self.assertRaisesRegex(errors.ParameterInvalid, f"^{name}: "):
                self.text("events", {b"topic": b"a", name.encode(): text})
            with self.assertRaisesRegex(errors.ParameterInvalid, f"^{name}: "):
                self.json("events", {"topic": "a", name: value})
        for pattern, error in ((b"a#", errors.PatternInvalid), (b"\xff", errors.TopicInvalid)):
            with self.assertRaises(error):
                self.text("events", {b"topic": pattern})

    def test_invalidUTF8(self) -> None:
        for fields, error in (
            ({b"topic": b"\xff", b"content": b"x"}, errors.TopicInvalid),
            ({b"topic": b"t", b"content": b"x", b"groupId": b"\xff"}, errors.ParameterInvalid),
            ({b"topic": b"t", b"content": b"x", b"svc-\xff": b""}, errors.ParameterInvalid),
            ({b"topic": b"t", b"content": b"x", b"svc-a": b"\xff"}, errors.ParameterInvalid),
        ):
            with self.assertRaises(error):
                self.text("publish", fields)

    def test_wrongJSONTypes(self) -> None:
        good = {"topic": "t", "content": "eA=="}
        for bad in (
            {"topic": 1},
            {"groupId": 1},
            {"content": 1},
            {"content": "eA"},
            {"content": "eA==="},
            {"content": "e A=="},
            {"content": "_-8="},
            {"content": "é==="},
            {"extensions": "x"},
            {"extensions": {"svc-a": 1}},
        ):
            with self.assertRaises(errors.ParameterInvalid):
                self.json("publish", {**good, **bad})

    def test_orderOfChecks(self) -> None:
        for fields, error in (
            ({b"groupId": b"9", b"topic": b"\xff"}, errors.GroupUnknown),
            ({b"groupId": b"\xff", b"topic": b""}, errors.ParameterInvalid),
            ({b"topic": b" ", b"content": b""}, errors.TopicBlank),
            ({b"topic": b"t"}, errors.ContentBlank),
        ):
            with self.assertRaises(error):
                self.text("publish", fields)
        with self.assertRaises(errors.PageSizeInvalid):
            self.text("list", {b"pageSize": b"x", b"groupId": b"9"})


class DeclarationTests(SynchronousTestCase):
    def test_allReadsMayNameAnEventThatWasSeen(self) -> None:
        """The Python clients, the console and the page on consistency know the same calls."""
        changing = {"open", "close", "publish", "authors", "subscribe"}
        reads = {each.name for each in OPERATIONS if each.hasAfter} - changing
        self.assertEqual(READS, reads)
        page = (ROOT / "svcbroker/console/page/api.js").read_text(encoding="utf-8")
        [line] = re.findall(r"const AFTER = new Set\(\[(.*?)\]", page)
        self.assertEqual(set(re.findall(r'"(\w+)"', line)), reads)
        page = (ROOT / "docs/consistency.rst").read_text(encoding="utf-8")
        for name in reads:
            self.assertIn(f"``{name}``", page)

    def test_everyCallAndItsParameters(self) -> None:
        """Of operations and queries, in the order of the published interface."""
        self.assertEqual(
            {each.name: [p.name for p in each.parameters] for each in OPERATIONS},
            {
                "open": ["topic", "groupId", "authors", "admins", "after"],
                "close": ["topic", "groupId", "after"],
                "exist": ["topic", "groupId", "after"],
                "publish": [
                    *("topic", "groupId", "content", "extensions"),
                    *("author", "signature", "signedAt", "idempotencyKey", "expectedSequence"),
                    "after",
                ],
                "getEvent": ["eventId", "groupId", "after"],
                "events": [
                    *("topic", "groupId", "from", "limit", "tag", "wait", "reverse", "format"),
                    *("erased", "after"),
                ],
                "find": [
                    *("hash", "groupId", "author", "extensions", "topic", "from", "until"),
                    *("limit", "after"),
                ],
                "list": ["pageIndex", "pageSize", "groupId", "after"],
                "state": ["topic", "groupId", "after"],
                "authors": [
                    *("topic", "groupId", "generation", "authors", "admins", "admin"),
                    *("signature", "after"),
                ],
                "subscribe": [
                    *("topic", "groupId", "subscriptionId", "url", "offset", "tag"),
                    *("headers", "secret", "batch", "batchSeconds", "maxAttempts", "deadLetter"),
                    *("format", "certificate", "erased", "after"),
                ],
                "unSubscribe": ["subscriptionId"],
                "listWebhooks": ["groupId", "subscriptionId", "after", "limit"],
                "pauseWebhook": ["subscriptionId"],
                "resumeWebhook": ["subscriptionId"],
                "retryWebhook": ["subscriptionId"],
                "skipEvent": ["subscriptionId", "eventId"],
                "replayDeadLetter": ["subscriptionId", "eventId"],
                "listDurableSubscriptions": ["groupId", "interfaceType", "after", "limit"],
                "resetDurableSubscription": ["groupId", "interfaceType", "id", "offset"],
                "deleteDurableSubscription": ["groupId", "interfaceType", "id"],
                "listAccounts": ["groupId", "after", "limit"],
                "explainAccess": ["groupId", "action", "topic", "account", "clientId"],
                "proof": ["eventId", "groupId", "checkpoint", "trusted", "after"],
                "topicProof": ["topic", "groupId", "after"],
                "checkpoint": ["groupId", "height", "after"],
                "consistency": ["groupId", "older", "newer", "after"],
                "genesis": ["groupId"],
                "witnesses": ["groupId"],
            },
        )
        self.assertEqual(
            [each.name for each in QUERIES],
            [
                "listAlarms",
                "history",
                "listIncidents",
                "listGroup",
                "listNodes",
                "listSubscription",
                "getVersion",
                "group/general",
                "group/measures",
                "transaction/transList",
                "block/blockList",
                "topic/topicList",
                "node/nodeList",
            ],
        )


class LoggedEventTests(SynchronousTestCase):
    """Events with their places in the log."""

    def test_eventsHaveTheirPlacesInTheLog(self) -> None:
        eventId = EventId("2cf24dba", 7, 9)
        event = Event(topic="t", content=b"x", extensions={"svc-a": "b"}, eventId=eventId)
        self.assertEqual(
            json.loads(msgspec.json.encode(loggedEvents(Batch([event], 1234)))),
            [
                {
                    "topic": "t",
                    "content": "eA==",
                    "extensions": {"svc-a": "b"},
                    "eventId": "2cf24dba-7-9",
                    "timestamp": 1234,
                    "blockNumber": 9,
                    "sequenceNumber": 7,
                }
            ],
        )


class IncidentsTests(SynchronousTestCase):
    def test_brokerErrorIsItself(self) -> None:
        error = errors.Overloaded()
        self.assertIs(Incidents().explain(Failure(error)), error)

    def test_unexpectedFailureIsLoggedUnderAnId(self) -> None:
        """The client is told the id only."""
        told = Incidents(lambda: "abc").explain(Failure(ZeroDivisionError("secret")))
        self.assertIsInstance(told, errors.UnknownError)
        self.assertEqual(told.message, "unknown error, incident abc")
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_incidentIdsDiffer(self) -> None:
        incidents = Incidents()
        told = {incidents.explain(Failure(ZeroDivisionError())).message for _ in range(3)}
        self.assertEqual(len(told), 3)
        self.flushLoggedErrors(ZeroDivisionError)
