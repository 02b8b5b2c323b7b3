"""
Tests of REST.
"""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any
from urllib.parse import quote_from_bytes

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.access import ANYBODY
from svcbroker.carriers.http.rest import restEndpoints
from svcbroker.operations import OPERATIONS, Incidents, Interface
from tests import examples
from tests.broker.support import makeFixture

from .support import BASE, FORM, CallConnection, Client


class OperationTests(SynchronousTestCase):
    """
    Every operation, over a memory transport.
    """

    def setUp(self) -> None:
        self.client = Client()
        self.rest = self.client.rest

    def post(self, call: str, body: bytes, contentType: str = FORM) -> Any:
        answer = self.client.ask("POST", f"{BASE}/rest/{call}", body, {"Content-Type": contentType})
        return answer.json()

    def test_lifeOfATopic(self) -> None:
        self.assertIs(self.rest("exist?topic=hello"), False)
        self.assertIs(self.rest("open?topic=hello"), True)
        self.assertIs(self.rest("open?topic=hello"), True)
        self.assertIs(self.rest("exist?topic=hello"), True)
        sent = self.rest("publish?topic=hello&content=a+b%FF&svc-k=v&other=1")
        self.assertEqual(sent, {"topic": "hello", "eventId": "2cf24dba-1-2", "status": "SUCCESS"})
        event = {
            "topic": "hello",
            "content": "YSBi/w==",
            "extensions": {"svc-k": "v"},
            "eventId": "2cf24dba-1-2",
        }
        self.assertEqual(self.rest("getEvent?eventId=2cf24dba-1-2"), event)
        state = self.rest("state?topic=hello")
        self.assertEqual((state["sequenceNumber"], state["blockNumber"]), (1, 2))
        self.assertEqual(state["createdTimestamp"], 1_700_000_000_000)
        for address in ("topicAddress", "senderAddress"):
            self.assertRegex(state[address], "^0x[0-9a-f]{40}$")
        info = {name: state[name] for name in state if not name.endswith("Number")}
        page = {"total": 1, "pageIndex": 0, "pageSize": 10, "topicInfoList": [info]}
        self.assertEqual(self.rest("list"), page)
        self.assertIs(self.rest("close?topic=hello"), True)
        self.assertEqual(
            self.rest("close?topic=hello"), {"code": 100101, "message": "topic does not exist"}
        )
        self.assertEqual(self.rest("getEvent?eventId=2cf24dba-1-2"), event)

    def test_stateOfATopicWithoutEvents(self) -> None:
        self.rest("open?topic=t")
        state = self.rest("state?topic=t")
        self.assertEqual((state["sequenceNumber"], state["blockNumber"]), (0, 0))

    def test_listEchoesThePageIndex(self) -> None:
        page = self.rest("list?pageIndex=1&pageSize=100")
        self.assertEqual((page["pageIndex"], page["pageSize"]), (1, 10))

    def test_formBodyIsRead(self) -> None:
        self.assertIs(self.post("open", b"topic=t&groupId=2"), True)
        sent = self.post("publish?groupId=2", b"topic=t&content=" + b"x" * 2000)
        self.assertEqual(sent["code"], 100201)
        sent = self.post("publish?groupId=2", b"topic=t&content=" + b"x" * 900)
        self.assertEqual(sent["status"], "SUCCESS")

    def test_longQueryStringByPost(self) -> None:
        """A POST's query string may be as long as a body."""
        self.rest("open?topic=t")
        query = "publish?topic=t&svc-a=" + "x" * 1024
        self.assertEqual(self.post(query, b"content=x")["status"], "SUCCESS")

    def test_queryStringWinsOverForm(self) -> None:
        self.post("open?topic=a", b"topic=b")
        self.assertIs(self.rest("exist?topic=a"), True)
        self.assertIs(self.rest("exist?topic=b"), False)

    def test_otherBodyIsRefused(self) -> None:
        answer = self.post("open?topic=a", b'{"topic": "b"}', "application/json")
        self.assertEqual(answer["code"], 100600)
        self.assertIs(self.rest("exist?topic=a"), False)

    def test_longPublishByGetIsRefused(self) -> None:
        """1024 bytes are taken, 1025 are not, and nothing else is bounded so."""
        self.rest("open?topic=t")
        start = "topic=t&content="
        fits = start + "x" * (1024 - len(start))
        self.assertEqual(self.rest(f"publish?{fits}")["code"], 100201)
        self.assertEqual(self.rest(f"publish?{fits}x")["code"], 100207)
        self.assertIs(self.rest("exist?topic=t&x=" + "x" * 2000), True)

    def test_emptyValuesAreAbsent(self) -> None:
        self.assertEqual(self.rest("open?topic=")["code"], 100103)
        self.rest("open?topic=t")
        self.assertEqual(self.rest("publish?topic=t&content=")["code"], 100200)

    def test_unexpectedFailureHasAnIncidentId(self) -> None:
        self.client.fixture.ledger.error = ZeroDivisionError("secret")
        self.assertEqual(
            self.rest("exist?topic=t"),
            {"code": 200203, "message": "unknown error, incident incident-id"},
        )
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)


class PropertyTests(SynchronousTestCase):
    def setUp(self) -> None:
        fixture = makeFixture()
        self.endpoints = {
            (each.method, each.path): each
            for each in restEndpoints("", fixture.calls, Incidents(), Interface())
        }
        self.connection = CallConnection(fixture.broker.budgets)
        self.ask("open", b"topic=t")

    def ask(self, name: str, query: bytes, form: bytes | None = None) -> Any:
        endpoint = self.endpoints["GET" if form is None else "POST", f"/{name}"]
        asked = endpoint.ask(ANYBODY, query, FORM.encode(), form or b"", self.connection)
        answer = endpoint.answer(asked, ANYBODY)
        text = self.successResultOf(answer)
        assert isinstance(text, bytes)
        return json.loads(text)

    @given(st.binary(min_size=1, max_size=330))
    @settings(max_examples=examples(100), deadline=None)
    def test_anyContentIsKept(self, content: bytes) -> None:
        """By GET and by POST."""
        fields = b"topic=t&content=" + quote_from_bytes(content, safe="").encode()
        for query, form in ((fields, None), (b"", fields)):
            if form is None and len(query) > 1024:
                continue
            eventId = self.ask("publish", query, form)["eventId"]
            event = self.ask("getEvent", b"eventId=" + eventId.encode())
            self.assertEqual(b64decode(event["content"]), content)

    @given(
        st.sampled_from([each.name for each in OPERATIONS]),
        st.binary(max_size=80)
        | st.lists(
            st.tuples(
                st.sampled_from(
                    [b"topic", b"content", b"groupId", b"eventId", b"pageIndex", b"svc-a"]
                ),
                st.binary(max_size=12),
            )
        ).map(lambda pairs: b"&".join(name + b"=" + value for name, value in pairs)),
    )
    @settings(max_examples=examples(300), deadline=None)
    def test_anyQueryStringIsAnswered(self, name: str, query: bytes) -> None:
        """With JSON, and never with an unknown error."""
        answer = self.ask(name, query)
        if isinstance(answer, dict):
            self.assertNotEqual(answer.get("code"), 200203)
