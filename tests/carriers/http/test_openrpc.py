"""
Tests of the OpenRPC document and of C{rpc.discover}. That it keeps to the format is tried by the
format's own schema, in C{tests.interop.test_descriptions}.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.operations import OPERATIONS, WEEVENT_INTERFACE

from .support import BASE, Client
from .test_openapi import references


class OpenRPCTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.client = Client(dialects={"/weevent": WEEVENT_INTERFACE})
        self.document = self.client.ask("GET", f"{BASE}/openrpc.json").json()
        self.methods: dict[str, Any] = {each["name"]: each for each in self.document["methods"]}

    def test_discoverAnswersTheDocument(self) -> None:
        """Called by name, by position and in a batch."""
        empty: tuple[Any, ...] = (None, {}, [])
        for params in empty:
            answer = self.client.rpc("rpc.discover", params)
            self.assertEqual(answer, {"jsonrpc": "2.0", "id": 1, "result": self.document})
        call = b'{"jsonrpc": "2.0", "id": 1, "method": "rpc.discover"}'
        answer = self.client.ask("POST", f"{BASE}/jsonrpc", b"[%b]" % call).json()
        self.assertEqual(answer, [{"jsonrpc": "2.0", "id": 1, "result": self.document}])

    def test_everyMethodAsDeclared(self) -> None:
        self.assertEqual(list(self.methods), [each.name for each in OPERATIONS])
        for each in OPERATIONS:
            params = self.methods[each.name]["params"]
            names = [parameter.name for parameter in each.parameters]
            self.assertEqual([param["name"] for param in params], names)
            required = [p["required"] and not p.get("x-optional") for p in params]
            self.assertEqual(required, [parameter.isRequired for parameter in each.parameters])

    def test_noRequiredParameterAfterAnOptionalOne(self) -> None:
        """The format forbids it. Those before may be null, and so they are called here."""
        for method in self.methods.values():
            required = [param["required"] for param in method["params"]]
            self.assertEqual(required, sorted(required, reverse=True), method["name"])
        self.client.rpc("open", ["t", None])
        result = self.client.rpc("publish", ["t", None, "eA=="])["result"]
        self.assertEqual(result["status"], "SUCCESS")

    def test_errorsAsTheyAreAnswered(self) -> None:
        """Code, message and data; and no method has two of one code."""
        errors = self.document["components"]["errors"]
        answered = self.client.rpc("state", {"topic": "nosuch"})["error"]
        self.assertEqual(errors["TopicNotFound"], answered)
        for method in self.methods.values():
            names = [each["$ref"].rpartition("/")[2] for each in method["errors"]]
            codes = [errors[name]["code"] for name in names]
            self.assertEqual(len(codes), len(set(codes)), method["name"])

    def test_booleansAreTexts(self) -> None:
        schema = self.methods["open"]["result"]["schema"]
        self.assertIn(self.client.rpc("open", ["t"])["result"], schema["enum"])

    def test_referencesExist(self) -> None:
        for reference in set(references(self.document)):
            _, _, kind, name = reference.split("/")
            self.assertIn(name, self.document["components"][kind])

    def test_dialectHasItsOwnDocument(self) -> None:
        """Of its calls, with the errors that its clients are answered."""
        call = b'{"jsonrpc": "2.0", "id": 1, "method": "rpc.discover"}'
        found = self.client.ask("POST", "/weevent/jsonrpc", call).json()["result"]
        names = [each["name"] for each in found["methods"]]
        self.assertEqual(names, [each.name for each in WEEVENT_INTERFACE.operations])
        name = found["components"]["errors"]["TopicNotFound"]["data"]["exceptionTypeName"]
        self.assertEqual(name, WEEVENT_INTERFACE.exceptionName)
        self.assertEqual(self.client.ask("GET", "/weevent/openrpc.json").json(), found)
        self.assertEqual(found["servers"][0]["url"], "http://127.0.0.1:8080/weevent/jsonrpc")
