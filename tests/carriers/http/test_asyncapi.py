"""
Tests of the AsyncAPI document: what it says is what the carriers do. That it keeps to the format is
tried in C{tests.interop.test_descriptions}.
"""

from __future__ import annotations

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.http import HttpSettings
from svcbroker.carriers.mqtt.messages import EVENT_ID
from svcbroker.carriers.stomp.messages import MESSAGE_HEADERS
from svcbroker.carriers.webhook.messages import encodeBody, encodeEvents
from svcbroker.model import Event, EventId, InterfaceType
from svcbroker.operations import FOLLOW

from .support import Client
from .test_openapi import references

UUID = "6a1f1c1e-9f5d-4d2e-8f5b-2f6b1a0c9d3e"


class AsyncAPITests(SynchronousTestCase):
    def setUp(self) -> None:
        client = Client(HttpSettings(basePath="/b"))
        self.document = client.ask("GET", "/b/asyncapi.json").json()
        self.messages = self.document["components"]["messages"]

    def test_referencesExist(self) -> None:
        found = set(references(self.document))
        self.assertNotEqual(found, set())
        for reference in found:
            value = self.document
            for step in reference.removeprefix("#/").split("/"):
                value = value[step]

    def test_everyMessageIsOfAnOperation(self) -> None:
        used = set()
        for operation in self.document["operations"].values():
            _, _, channel = operation["channel"]["$ref"].split("/")
            for message in operation["messages"]:
                name = message["$ref"].rpartition("/")[2]
                self.assertIn(name, self.document["channels"][channel]["messages"])
                used.add(name)
        self.assertEqual(used, set(self.messages))

    def test_webSocketsAreBelowTheBasePath(self) -> None:
        servers = self.document["servers"].values()
        paths = {each["pathname"] for each in servers if each["protocol"] == "ws"}
        self.assertEqual(paths, {"/b/mqtt", "/b/stomp"})

    def test_headersAsTheCarriersSetThem(self) -> None:
        stomp = self.messages["stompSent"]["headers"]["properties"]
        self.assertEqual(set(stomp), MESSAGE_HEADERS)
        self.assertIn(EVENT_ID, self.messages["mqttSent"]["headers"]["properties"])

    def test_followTakesItsParameters(self) -> None:
        query = self.document["operations"]["follow"]["bindings"]["http"]["query"]
        self.assertEqual(list(query["properties"]), [each.name for each in FOLLOW.parameters])
        self.assertEqual(query["required"], ["topic"])

    def test_webhookBodiesAsTheyAreSent(self) -> None:
        """Each object has exactly the members that its schema requires."""
        event = Event(topic="t", content=b"x", extensions={}, eventId=EventId.parse("7ba3f518-1-2"))
        [text] = encodeEvents([event])
        for type, name in (
            (InterfaceType.RESTFUL, "webhookEvent"),
            (InterfaceType.JSON_RPC, "webhookCall"),
        ):
            body = json.loads(encodeBody(type, UUID, event, text))
            self.check(body, self.messages[name]["payload"]["oneOf"][0])

    def check(self, value: Any, schema: Any) -> None:
        """Compare the names of members with those that a schema requires, all the way down."""
        if "$ref" in schema:
            schema = self.document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        if "properties" in schema:
            self.assertEqual(list(value), schema["required"])
            for name, inner in schema["properties"].items():
                self.check(value[name], inner)
