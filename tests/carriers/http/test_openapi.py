"""
Tests of the OpenAPI document. Whether it is true is tried by a client made from it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.http.logins import HttpSettings
from svcbroker.operations import FOLLOW, OPERATIONS, WEEVENT_INTERFACE
from svcbroker.operations._adminqueries import QUERIES

from .support import Client


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


class DocumentTests(SynchronousTestCase):
    def setUp(self) -> None:
        client = Client(HttpSettings(basePath="/b"))
        self.document = client.ask("GET", "/b/openapi.json").json()

    def test_everyPathAndMethod(self) -> None:
        methods = {path: sorted(entry) for path, entry in self.document["paths"].items()}
        self.assertEqual(
            methods,
            {
                **{f"/b/rest/{each.name}": ["get", "post"] for each in OPERATIONS},
                **{f"/b/admin/{each.name}": ["get"] for each in QUERIES},
                "/b/rest/follow": ["get"],
                "/b/rest/cloudevents": ["post"],
                "/b/jsonrpc": ["post"],
                "/healthz": ["get"],
                "/readyz": ["get"],
            },
        )

    def test_serverIsTheOneThatWasAsked(self) -> None:
        """The paths are whole, so the server is that of the document."""
        self.assertEqual(self.document["servers"], [{"url": "/"}])
        self.assertEqual(self.document["info"]["license"]["identifier"], "Apache-2.0")

    def test_everyCallCanBeRefused(self) -> None:
        """Each has an answer for a mistake of the client, also where no credentials are needed."""
        for path, methods in self.document["paths"].items():
            for call in methods.values():
                self.assertTrue([each for each in call["responses"] if each[0] == "4"], path)
        answer = Client().ask("GET", "/healthz", headers={"Origin": "http://other.example"})
        self.assertEqual(answer.status, 403)

    def test_noSchemaIsEmpty(self) -> None:
        def alternatives(value: Any) -> Iterator[Any]:
            for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
                if key in ("anyOf", "oneOf"):
                    yield from inner
                if isinstance(inner, dict | list):
                    yield from alternatives(inner)

        found = list(alternatives(self.document["paths"]))
        self.assertNotIn({}, found)
        self.assertNotEqual(found, [])

    def test_parametersAsDeclared(self) -> None:
        for each in OPERATIONS:
            entry = self.document["paths"][f"/b/rest/{each.name}"]
            names = [parameter["name"] for parameter in entry["get"]["parameters"]]
            self.assertEqual(names, [parameter.name for parameter in each.parameters])

    def test_followAnswersAStream(self) -> None:
        """It answers a failure in JSON, like any call."""
        follow = self.document["paths"]["/b/rest/follow"]["get"]
        names = [(each["in"], each["name"]) for each in follow["parameters"]]
        declared = [("query", parameter.name) for parameter in FOLLOW.parameters]
        self.assertEqual(names, [*declared, ("header", "Last-Event-ID")])
        content = follow["responses"]["200"]["content"]
        self.assertEqual(sorted(content), ["application/json", "text/event-stream"])

    def test_cloudEventIsTheBody(self) -> None:
        post = self.document["paths"]["/b/rest/cloudevents"]["post"]
        names = [each["name"] for each in post["parameters"]]
        signed = ["author", "signature", "signedAt", "expectedSequence"]
        self.assertEqual(names, ["topic", "groupId", "extensions", *signed, "after"])
        self.assertEqual(list(post["requestBody"]["content"]), ["application/cloudevents+json"])

    def test_pageMayHaveCloudEvents(self) -> None:
        page = self.document["components"]["schemas"]["EventPage"]
        ours, cloudEvent = page["properties"]["events"]["items"]["anyOf"]
        self.assertEqual(ours, {"$ref": "#/components/schemas/LoggedEvent"})
        self.assertEqual(cloudEvent["required"], ["specversion", "id", "source", "type"])

    def test_refusalsAreDeclared(self) -> None:
        """And which paths need no credentials."""
        self.assertEqual(self.document["security"], [{}, {"basic": []}, {"bearer": []}])
        schemes = self.document["components"]["securitySchemes"]
        self.assertEqual([each["scheme"] for each in schemes.values()], ["basic", "bearer"])
        for path, entry in self.document["paths"].items():
            for operation in entry.values():
                isGuarded = path.startswith("/b/")
                self.assertEqual(operation.get("security") is None, isGuarded, path)
                self.assertEqual({"401", "403"} <= set(operation["responses"]), isGuarded, path)
        publish = self.document["paths"]["/b/rest/publish"]["post"]["responses"]
        self.assertIn("WWW-Authenticate", publish["401"]["headers"])
        self.assertIn("Retry-After", publish["200"]["headers"])

    def test_referencesExist(self) -> None:
        found = set(references(self.document))
        self.assertNotEqual(found, set())
        for reference in found:
            name = reference.removeprefix("#/components/schemas/")
            self.assertIn(name, self.document["components"]["schemas"])

    def test_operationIdsAreUnique(self) -> None:
        ids = [
            operation["operationId"]
            for path in self.document["paths"].values()
            for operation in path.values()
        ]
        self.assertEqual(len(ids), len(set(ids)))

    def test_errorsAreNamed(self) -> None:
        text = json.dumps(self.document["paths"]["/b/rest/publish"])
        for name in ("ContentTooLarge", "TopicNotFound", "Overloaded", "GroupUnknown"):
            self.assertIn(name, text)


class DialectTests(SynchronousTestCase):
    """The documents of a dialect: on a path of its own, and in the place of the interface."""

    def setUp(self) -> None:
        self.own, self.shared = (
            Client(HttpSettings(basePath=base), dialects={"/weevent": WEEVENT_INTERFACE})
            .ask("GET", "/weevent/openapi.json")
            .json()
            for base in ("/b", "/weevent")
        )

    def test_ownPathHasItsCallsOnly(self) -> None:
        calls = {
            *(f"/weevent/rest/{each.name}" for each in WEEVENT_INTERFACE.operations),
            *(f"/weevent/admin/{each.name}" for each in WEEVENT_INTERFACE.queries),
            "/weevent/jsonrpc",
        }
        self.assertEqual(set(self.own["paths"]), calls)
        others = {"/weevent/rest/follow", "/weevent/rest/cloudevents", "/healthz", "/readyz"}
        self.assertEqual(set(self.shared["paths"]), calls | others)

    def test_callsAreThoseOfTheDialect(self) -> None:
        """Prefix, limits, and results that differ."""
        for document in (self.own, self.shared):
            self.assertEqual(document["info"]["title"], "svcbroker (dialect weevent-1.1)")
            publish = document["paths"]["/weevent/rest/publish"]["post"]["requestBody"]
            [form] = publish["content"].values()
            self.assertEqual(list(form["schema"]["patternProperties"]), ["^(weevent-|svc-)"])
            topic, *_ = document["paths"]["/weevent/rest/open"]["get"]["parameters"]
            self.assertEqual(topic["schema"]["anyOf"][0]["maxLength"], 64)
            self.assertIn("1 to 64 characters", topic["description"])
            text = json.dumps(document["components"]["schemas"])
            self.assertIn("weEventVersion", text)
            self.assertNotIn("svcVersion", text)

    def test_referencesExist(self) -> None:
        for reference in set(references(self.own)):
            name = reference.removeprefix("#/components/schemas/")
            self.assertIn(name, self.own["components"]["schemas"])
