"""
The dialect of WeEvent 1.1 over REST and JSON-RPC, and its names without it.
"""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any
from urllib.parse import urlencode

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.access import Access
from svcbroker.broker import ReadPage
from svcbroker.carriers.http.logins import HttpSettings
from svcbroker.interfaces import Batch
from svcbroker.model import Event, EventFormat, EventId
from svcbroker.operations import WEEVENT_INTERFACE, eventWriter
from tests.access.support import FakeAuthenticator, account
from tests.broker.support import makeFixture

from .support import BASE, FORM, Answer, Client

WEEVENT_BASE = "/weevent"


class WeEventTestCase(SynchronousTestCase):
    """
    A site that serves the published interface and the dialect.
    """

    def setUp(self) -> None:
        fixture = makeFixture(maxContent=20 * 1024)
        self.client = Client(fixture=fixture, dialects={WEEVENT_BASE: WEEVENT_INTERFACE})
        self.rest("open", topic="com.weevent.test")

    def get(self, path: str, base: str = WEEVENT_BASE, **fields: str) -> Any:
        """Ask by GET; an underscore in a field's name stands for a hyphen."""
        query = urlencode({name.replace("_", "-"): value for name, value in fields.items()})
        answer = self.client.ask("GET", f"{base}{path}?{query}")
        self.assertEqual(answer.status, 200)
        return answer.json()

    def rest(self, call: str, base: str = WEEVENT_BASE, **fields: str) -> Any:
        """Make a call by REST."""
        return self.get(f"/rest/{call}", base, **fields)

    def post(self, method: str, base: str = WEEVENT_BASE, **params: object) -> Any:
        """
        Make a call by JSON-RPC as jsonrpc4j does: with a content type of its own, and random
        numbers as ids in texts.
        """
        call = {"id": "823187", "jsonrpc": "2.0", "method": method, "params": params}
        answer: Answer = self.client.ask(
            "POST",
            f"{base}/jsonrpc",
            json.dumps(call).encode(),
            {"Content-Type": "application/json-rpc", "Accept": "application/json-rpc"},
        )
        self.assertEqual(answer.status, 200)
        told = answer.json()
        self.assertEqual((told.pop("jsonrpc"), told.pop("id")), ("2.0", "823187"))
        return told


class RESTTests(WeEventTestCase):
    """REST and the admin queries of the dialect."""

    def test_extensionsHaveThePrefixOfTheProductBothWays(self) -> None:
        sent = self.rest("publish", topic="com.weevent.test", content="1", weevent_format="json")
        self.assertEqual(sent["status"], "SUCCESS")
        event = self.rest("getEvent", eventId=sent["eventId"])
        self.assertEqual(event["extensions"], {"weevent-format": "json"})

    def test_pagesOfEventsHaveThePrefixToo(self) -> None:
        [operation] = [each for each in WEEVENT_INTERFACE.operations if each.name == "events"]
        stored = Event(
            topic="a",
            content=b"x",
            extensions={"svc-tag": "1"},
            eventId=EventId("0123abcd", 1, 1),
        )
        batch = Batch((stored,), 0)
        page = ReadPage(batches=[batch], next=stored.eventId, isAtEnd=True)
        write = eventWriter(EventFormat.SVC, "/b", "1")
        [event] = operation.result.render((page, write)).events
        self.assertEqual(event.extensions, {"weevent-tag": "1"})
        write = eventWriter(EventFormat.CLOUD_EVENTS, "/b", "1")
        [cloudEvent] = operation.result.render((page, write)).events
        self.assertEqual(cloudEvent["svcextensions"], '{"svc-tag":"1"}')

    def test_eventsAreStoredInOneForm(self) -> None:
        sent = self.rest("publish", topic="com.weevent.test", content="1", weevent_format="json")
        event = self.rest("getEvent", BASE, eventId=sent["eventId"])
        self.assertEqual(event["extensions"], {"svc-format": "json"})

    def test_closeOnlyChecksThatTheTopicExists(self) -> None:
        for _ in range(2):
            self.assertIs(self.rest("close", topic="com.weevent.test"), True)
        self.assertIs(self.rest("exist", topic="com.weevent.test"), True)
        self.assertEqual(self.rest("close", topic="nowhere")["code"], 100101)

    def test_limitsAreThoseOfTheProduct(self) -> None:
        self.assertIs(self.rest("open", topic=64 * "t"), True)
        self.assertEqual(self.rest("open", topic=65 * "t")["code"], 100102)
        self.assertIs(self.rest("open", BASE, topic=65 * "t"), True)
        for size, code in ((10 * 1024, None), (10 * 1024 + 1, 100201)):
            body = urlencode({"topic": "com.weevent.test", "content": size * "x"}).encode()
            path = f"{WEEVENT_BASE}/rest/publish"
            answer = self.client.ask("POST", path, body, {"Content-Type": FORM}).json()
            self.assertEqual(answer.get("code"), code)

    def test_listGroupIsABareList(self) -> None:
        self.assertEqual(self.rest("listGroup"), ["1", "2"])
        self.assertEqual(self.get("/admin/listGroup")["data"], ["1", "2"])

    def test_versionHasTheNameOfTheProduct(self) -> None:
        theirs = self.get("/admin/getVersion")["data"]
        ours = self.get("/admin/getVersion", BASE)["data"]
        self.assertEqual(theirs.pop("weEventVersion"), ours.pop("svcVersion"))
        self.assertEqual(theirs, ours)

    def test_dialectCanTakeThePathOfTheInterface(self) -> None:
        self.client = Client(
            HttpSettings(basePath=WEEVENT_BASE), dialects={WEEVENT_BASE: WEEVENT_INTERFACE}
        )
        self.assertEqual(self.rest("listGroup"), ["1", "2"])

    def test_grantsApply(self) -> None:
        fixture = makeFixture()
        accounts = FakeAuthenticator(account("ann", "open 1 a"))
        access = Access([accounts], fixture.clock, fixture.clock.seconds)
        client = Client(fixture=fixture, access=access, dialects={WEEVENT_BASE: WEEVENT_INTERFACE})
        ann = {"Authorization": f"Basic {b64encode(b'ann:ann').decode()}"}
        for call, headers, status in (
            ("open?topic=a", {}, 401),
            ("open?topic=a", ann, 200),
            ("publish?topic=a&content=1", ann, 403),
        ):
            answer = client.ask("GET", f"{WEEVENT_BASE}/rest/{call}", headers=headers)
            self.assertEqual(answer.status, status)


class JSONRPCTests(WeEventTestCase):
    """JSON-RPC of the dialect."""

    def test_booleansAreTexts(self) -> None:
        for call in ("open", "exist", "close", "close"):
            told = self.post(call, topic="com.weevent.test", groupId="1")
            self.assertEqual(told, {"result": "true"})

    def test_extensionsHaveThePrefixOfTheProductBothWays(self) -> None:
        extensions = {"weevent-tag": "red"}
        sent = self.post(
            "publish", topic="com.weevent.test", content="aGVsbG8=", extensions=extensions
        )["result"]
        event = self.post("getEvent", eventId=sent["eventId"], groupId="1")["result"]
        self.assertEqual(event["extensions"], {"weevent-tag": "red"})
        self.assertEqual(event["content"], "aGVsbG8=")

    def test_wrongExtensionsAreRefused(self) -> None:
        for extensions, code in (({"x": "1"}, -32013), ({"weevent-x": 1}, -32602)):
            told = self.post(
                "publish", topic="com.weevent.test", content="eA==", extensions=extensions
            )
            self.assertEqual(told["error"]["code"], code)

    def test_listGroupIsABareList(self) -> None:
        self.assertEqual(self.post("listGroup"), {"result": ["1", "2"]})

    def test_errorsNameTheExceptionOfTheClient(self) -> None:
        error = self.post("state", topic="nowhere", groupId="1")["error"]
        self.assertEqual(error["code"], -32001)
        self.assertEqual(
            error["data"]["exceptionTypeName"], "com.webank.weevent.sdk.BrokerException"
        )
        self.assertEqual(error["data"]["code"], 100101)
        error = self.post("state", BASE, topic="nowhere", groupId="1")["error"]
        self.assertEqual(error["data"]["exceptionTypeName"], "TopicNotFound")

    def test_limitsAreThoseOfTheProduct(self) -> None:
        self.assertEqual(self.post("open", topic=65 * "t")["error"]["data"]["code"], 100102)
        content = b64encode((10 * 1024 + 1) * b"x").decode()
        told = self.post("publish", topic="com.weevent.test", content=content)
        self.assertEqual(told["error"]["data"]["code"], 100201)
        # Read without types, since another parameter is wrong.
        told = self.post("publish", topic="com.weevent.test", content=content, groupId=1)
        self.assertEqual(told["error"]["code"], -32602)


class PlainTests(SynchronousTestCase):
    """The published interface."""

    def setUp(self) -> None:
        self.client = Client()
        self.client.ask("GET", f"{BASE}/rest/open?topic=a")

    def refused(self, answer: Answer) -> None:
        told = answer.json()
        error = told.get("error", told)
        self.assertEqual(error.get("data", error)["code"], 100206)
        self.assertIn("--dialect weevent-1.1", error["message"])

    def test_parametersOfTheProductNeedTheOption(self) -> None:
        for call in ("publish?topic=a&content=1", "state?topic=a", "listGroup?x=1"):
            area = "admin" if call.startswith("listGroup") else "rest"
            for name in ("weevent-tag", "weevent%2Dtag"):
                self.refused(self.client.ask("GET", f"{BASE}/{area}/{call}&{name}=red"))
        body = b"topic=a&content=1&weevent-tag=red"
        headers = {"Content-Type": FORM}
        self.refused(self.client.ask("POST", f"{BASE}/rest/publish", body, headers))
        self.assertEqual(self.client.ask("GET", f"{BASE}/rest/state?topic=a&x=1").status, 200)

    def test_extensionsOfTheProductNeedTheOption(self) -> None:
        params = {"topic": "a", "content": "eA==", "extensions": {"weevent-tag": "red"}}
        call = {"jsonrpc": "2.0", "id": 1, "method": "publish", "params": params}
        self.refused(self.client.ask("POST", f"{BASE}/jsonrpc", json.dumps(call).encode()))

    def test_pathsOfTheProductNeedTheOption(self) -> None:
        self.assertEqual(self.client.ask("GET", "/weevent/rest/listGroup").status, 404)
