"""
Tests of the AsyncAPI document: what it says is what the carriers do. That it keeps to the format is
tried in C{tests.interop.test_descriptions}.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from attrs import evolve
from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.http.descriptions import EVENT_STREAM, SECURITY
from svcbroker.carriers.http.logins import HttpSettings
from svcbroker.carriers.mqtt.fields import _TABLE, Place, Properties
from svcbroker.carriers.mqtt.messages import EVENT_ID
from svcbroker.carriers.mqtt.subscribing import FORMAT, OFFSET, TOMBSTONES
from svcbroker.carriers.stomp.frames import Frame
from svcbroker.carriers.stomp.requests import LISTENER_DELAY, PLAIN, WEEVENT_1_1, StompDialect
from svcbroker.carriers.webhook.posting import encodeBody, encodeEvents
from svcbroker.model import TAG, Authorship, Event, EventFormat, EventId, InterfaceType
from svcbroker.operations import (
    CLOUD_EVENT_TYPE,
    CLOUD_EVENTS_TYPE,
    FOLLOW,
    PUBLISH_HEADERS,
    WEEVENT_INTERFACE,
    eventHeaders,
)
from svcbroker.operations._declarations import ERASED_HEADER, EVENT_HEADERS
from tests.carriers.mqtt.support import Server as MqttServer
from tests.carriers.stomp.support import Client as StompClient
from tests.carriers.stomp.support import Server as StompServer
from tests.carriers.stomp.support import event as eventOf
from tests.carriers.webhook import test_posting
from tests.carriers.webhook.support import SETTINGS

from .support import Client
from .test_openapi import references

UUID = "6a1f1c1e-9f5d-4d2e-8f5b-2f6b1a0c9d3e"
DIALECTS = {"/weevent": WEEVENT_INTERFACE}


def documentOf(base: str, path: str) -> Any:
    """
    The document of a path of a broker that serves the dialect too.

    @param base: the broker's own path.
    """
    client = Client(HttpSettings(basePath=base), dialects=DIALECTS)
    return client.ask("GET", f"{path}/asyncapi.json").json()


class AsyncAPITests(SynchronousTestCase):
    def setUp(self) -> None:
        self.document = documentOf("/b", "/b")
        self.messages = self.document["components"]["messages"]

    def test_referencesExist(self) -> None:
        for document in (self.document, *dialectDocuments()):
            found = set(references(document))
            self.assertNotEqual(found, set())
            for reference in found:
                value = document
                for step in reference.removeprefix("#/").split("/"):
                    value = value[step]

    def test_everyMessageIsOfAnOperation(self) -> None:
        for document in (self.document, *dialectDocuments()):
            used = set()
            for operation in document["operations"].values():
                _, _, channel = operation["channel"]["$ref"].split("/")
                replies = operation.get("reply", {}).get("messages", ())
                for message in (*operation["messages"], *replies):
                    name = message["$ref"].rpartition("/")[2]
                    self.assertIn(name, document["channels"][channel]["messages"])
                    used.add(name)
            self.assertEqual(used, set(document["components"]["messages"]))

    def test_webSocketsAreBelowTheBasePath(self) -> None:
        servers = self.document["servers"].values()
        paths = {each["pathname"] for each in servers if each["protocol"] == "ws"}
        self.assertEqual(paths, {"/b/mqtt", "/b/stomp"})

    def test_followTakesItsParameters(self) -> None:
        query = self.document["operations"]["follow"]["bindings"]["http"]["query"]
        self.assertEqual(list(query["properties"]), [each.name for each in FOLLOW.parameters])
        self.assertEqual(query["required"], ["topic"])

    def test_templateHasTheTextsOfDeclarations(self) -> None:
        """The texts that the template repeats are those of the declarations."""
        self.assertEqual(self.document["channels"]["follow"]["address"], f"/rest/{FOLLOW.name}")
        for part in (self.document["channels"], self.document["operations"]):
            told = {part["follow"].get("summary"), part["follow"].get("description")}
            self.assertIn(FOLLOW.summary, told)
        for message, declared in (
            ("mqttMessage", EVENT_HEADERS),
            ("mqttSubscribe", (ERASED_HEADER,)),
        ):
            told = self.messages[message]["headers"]["properties"]
            for each in declared:
                self.assertEqual(told[each.name]["description"], each.description)
        schemes = self.document["components"]["securitySchemes"]
        self.assertEqual({name: schemes[name] for name in SECURITY}, SECURITY)
        types = {each.get("contentType") for each in self.messages.values()}
        self.assertLessEqual({CLOUD_EVENT_TYPE, CLOUD_EVENTS_TYPE, EVENT_STREAM}, types)

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
            for name in schema["required"]:
                self.check(value[name], schema["properties"][name])


def dialectDocuments() -> tuple[Any, Any]:
    """Of the dialect's own path, and of the broker's where the dialect takes its place."""
    return documentOf("/b", "/weevent"), documentOf("/weevent", "/weevent")


class DialectTests(SynchronousTestCase):
    """The document of the dialect's path."""

    def test_ownPathHasItsStompAndWebhooksOnly(self) -> None:
        document, _ = dialectDocuments()
        self.assertEqual(document["info"]["title"], "svcbroker (dialect weevent-1.1)")
        self.assertEqual(list(document["servers"]), ["stompOverWebSocket", "receiver"])
        self.assertEqual(document["servers"]["stompOverWebSocket"]["pathname"], "/weevent/stomp")
        self.assertEqual(list(document["channels"]), ["stomp", "webhook"])
        parameter = document["channels"]["stomp"]["parameters"]["topic"]["description"]
        self.assertIn("1 to 64 characters", parameter)

    def test_sharedPathHasBothKindsOfStomp(self) -> None:
        """TCP has no dialect."""
        _, document = dialectDocuments()
        channels = {
            name: [each["$ref"].rpartition("/")[2] for each in channel["servers"]]
            for name, channel in document["channels"].items()
        }
        self.assertEqual(channels["stomp"], ["stomp"])
        self.assertEqual(channels["dialect"], ["stompOverWebSocket"])
        self.assertEqual(list(channels), ["mqtt", "stomp", "dialect", "webhook", "follow"])


class HeadersTestCase(SynchronousTestCase):
    """Compares headers that were really sent or read with the document."""

    def assertDescribed(
        self, document: Any, name: str, sent: Iterable[Mapping[str, Any]], ignored: str = "svc-"
    ) -> None:
        """
        Check that all headers of a message were sent, no others, and the required ones always.

        @param ignored: how other headers begin, which are not the broker's.
        """
        headers = document["components"]["messages"][name]["headers"]
        required = set(headers.get("required", ()))
        described = set(headers["properties"])
        names = [
            {key for key in each if key in described or not key.startswith(ignored)}
            for each in sent
        ]
        self.assertEqual(set.union(*names), described, name)
        self.assertLessEqual(required, set.intersection(*names), name)


class StompHeadersTests(HeadersTestCase):
    """Real frames against the document."""

    def received(self, dialect: StompDialect) -> dict[str, list[Mapping[str, str]]]:
        """The headers of the frames that a server sends of each kind."""
        frames: dict[str, list[Mapping[str, str]]] = {}

        def keep(client: StompClient) -> None:
            for each in client.frames():
                frames.setdefault(each.command, []).append(each.headers)

        server = StompServer(dialect=dialect)
        author = Authorship(key=bytes(32), signedAt=1, signature=bytes(64))
        modes = ("auto", "client-individual") if dialect is PLAIN else ("auto",)
        for version in ("1.0", "1.1", "1.2"):
            for ack in modes:
                client = server.connect(version)
                named = {} if version == "1.0" and dialect is PLAIN else {"id": "7"}
                client.send("SUBSCRIBE", {"destination": "a", "ack": ack, "receipt": "1", **named})
                server.fixture.clock.advance(LISTENER_DELAY)
                server.fake.made[-1].publish(replace(eventOf(1, tag="t"), author=author))
                server.fake.made[-1].publish(replace(eventOf(2), isErased=True))
                received = client.frames()
                frames.setdefault("RECEIPT", []).append(received[0].headers)
                frames.setdefault("MESSAGE", []).extend(each.headers for each in received[1:])
                if ack != "auto":
                    message = received[1]["message-id"]
                    client.send("NACK", {"id": message, "message-id": message, "subscription": "7"})
                client.send("SEND", {"destination": "a", "receipt": "2"}, b"x")
                keep(client)
                client.send("SEND", {"destination": "nowhere", "receipt": "3"}, b"x")
                keep(client)
        client = server.client()
        client.send("CONNECT", {"accept-version": "9"})
        keep(client)
        return frames

    def test_framesHaveTheHeadersDescribed(self) -> None:
        for base, prefix, dialect, ignored in (
            ("/b", "stomp", PLAIN, "svc-"),
            ("/weevent", "dialect", WEEVENT_1_1, "weevent-"),
            ("", "stomp", WEEVENT_1_1, "weevent-"),
        ):
            document = documentOf(base or "/b", base or "/weevent")
            frames = self.received(dialect)
            for kind in ("Message", "Receipt", "Error"):
                self.assertDescribed(document, prefix + kind, frames[kind.upper()], ignored)
        pattern = document["components"]["messages"]["stompMessage"]["headers"]["patternProperties"]
        self.assertEqual(list(pattern), ["^weevent-"])

    def test_headersDescribedAreRead(self) -> None:
        """Those of SEND and SUBSCRIBE, and no others."""
        asked: dict[str, set[str]] = {}

        class Headers(dict[str, str]):
            """Remembers which headers the carrier asks for."""

            def __init__(self, frame: Frame) -> None:
                super().__init__(frame.headers)
                self.asked = asked.setdefault(frame.command, set())

            def get(self, name: str, default: Any = None) -> Any:
                self.asked.add(name)
                return super().get(name, default)

        dialect = evolve(
            PLAIN,
            readFrame=lambda frame: Frame(frame.command, Headers(frame), frame.body, frame.receipt),
        )
        client = StompServer(dialect=dialect).connect()
        send = {"destination": "a", "receipt": "1"}
        self.assertEqual(client.ask("SEND", send, b"x").command, "RECEIPT")
        subscribe = {"id": "1", "destination": "a", "receipt": "2", "ack": "client"}
        self.assertEqual(client.ask("SUBSCRIBE", subscribe).command, "RECEIPT")
        messages = documentOf("/b", "/b")["components"]["messages"]
        # The parser reads these two. The others are asked for only where one is there.
        asked["SEND"] |= {"receipt", "content-length", *PUBLISH_HEADERS}
        asked["SUBSCRIBE"].add("receipt")
        for command, name in (("SEND", "stompSend"), ("SUBSCRIBE", "stompSubscribe")):
            self.assertEqual(asked[command], set(messages[name]["headers"]["properties"]))


class MqttPropertiesTests(HeadersTestCase):
    """Real packets against the document."""

    def setUp(self) -> None:
        self.messages = documentOf("/b", "/b")["components"]["messages"]

    def properties(self, name: str) -> set[str]:
        return set(self.messages[name]["x-properties"]["properties"])

    def test_publishedPropertiesAreThoseOfThePacket(self) -> None:
        """The client's have no subscription identifiers; user properties are the headers."""
        allowed = {row.name for row in _TABLE.values() if Place.PUBLISH in row.places}
        self.assertEqual(
            self.properties("mqttPublish"), allowed - {"userProperties", "subscriptionIdentifiers"}
        )

    def test_deliveredPropertiesAreDescribed(self) -> None:
        server = MqttServer()
        client = server.connected()
        asked = Properties(
            subscriptionIdentifiers=(3,),
            userProperties=((OFFSET, "OFFSET_FIRST"), (TAG, "red"), (FORMAT, "svc")),
        )
        given = Properties(
            payloadFormatIndicator=1,
            messageExpiryInterval=60,
            contentType="text/plain",
            responseTopic="r",
            correlationData=b"c",
            userProperties=((TAG, "red"),),
        )
        client.publish("t", b"x", 1, properties=given)
        client.subscribe("t", 1, properties=asked)
        [message] = client.takeMessages()
        found = {name for name in Properties.__struct_fields__ if getattr(message.properties, name)}
        self.assertEqual(found - {"userProperties"}, self.properties("mqttMessage"))
        user = dict(message.properties.userProperties)
        self.assertEqual(set(user), {TAG, EVENT_ID})

    def test_userPropertiesAreDescribed(self) -> None:
        author = Authorship(key=bytes(32), signedAt=1, signature=bytes(64))
        event = replace(eventOf(1), author=author, isErased=True)
        for name, expected in (
            ("mqttPublish", set(PUBLISH_HEADERS)),
            ("mqttSubscribe", {OFFSET, TAG, FORMAT, TOMBSTONES}),
            ("mqttMessage", {EVENT_ID, *eventHeaders(event)}),
        ):
            self.assertEqual(set(self.messages[name]["headers"]["properties"]), expected)


class WebhookHeadersTests(HeadersTestCase):
    """Real requests against the document."""

    def sent(self, **options: Any) -> dict[str, str]:
        """
        The headers of a request to a webhook with these options, but for those of HTTP itself.
        """
        poster = test_posting.PosterTests("sent")
        poster.setUp()
        poster.form = evolve(poster.form, format=options.pop("format", EventFormat.SVC))
        poster.settings = options.pop("settings", poster.settings)
        poster.successResultOf(poster.post())
        headers, _ = poster.sent()
        names = {name.decode("ascii"): value.decode("ascii") for name, value in headers.items()}
        for name in ("host", "content-length", "content-type", "connection"):
            names.pop(name, None)
        return names

    def test_requestsHaveTheHeadersDescribed(self) -> None:
        """With a secret and without."""
        document = documentOf("/b", "/b")
        for message in document["components"]["messages"].values():
            headers = message["headers"]
            for key, make in (("properties", dict.fromkeys), ("required", list)):
                headers[key] = make([name.lower() for name in headers.get(key, ())])
        for format, name in (
            (EventFormat.SVC, "webhookEvent"),
            (EventFormat.CLOUD_EVENTS, "webhookCloudEvent"),
            (EventFormat.BINARY_CLOUD_EVENTS, "webhookBinaryEvent"),
        ):
            sent = [
                self.sent(format=format, settings=settings)
                for settings in (test_posting.SETTINGS_SIGNED, SETTINGS)
            ]
            for headers in sent:
                # Attributes that are only there where the event has them.
                self.assertEqual(bool(headers.pop("ce-time", "")), name == "webhookBinaryEvent")
                headers.pop("ce-svcextensions", None)
            self.assertDescribed(document, name, sent)
