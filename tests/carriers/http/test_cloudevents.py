"""
C{cloudevents}, and CloudEvents as a format of C{events} and C{follow}.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from svcbroker.errors import ExtensionsTooLarge, GroupUnknown, TopicBlank, TopicNotFound

from .accounts import AuthenticationTestCase, basic
from .support import BASE, Answer, requestBytes
from .test_follow import FollowTestCase

BINARY = {
    "CE-SpecVersion": "1.0",
    "ce-id": "7",
    "ce-source": "/s",
    "ce-type": "t",
    "Content-Type": "text/plain",
}
STRUCTURED = {"Content-Type": "application/cloudevents+json"}
SENT = {
    "specversion": "1.0",
    "id": "7",
    "source": "/s",
    "type": "t",
    "datacontenttype": "text/plain",
    "data": "hi",
}


class PublishingTests(FollowTestCase):
    def post(
        self, query: str, body: bytes = b"hi", headers: Mapping[str, str] = BINARY
    ) -> dict[str, Any]:
        """Post an event."""
        connection = self.client.connect()
        path = f"{BASE}/rest/cloudevents?{query}"
        connection.send(requestBytes("POST", path, body, headers))
        self.settle()
        [answer] = connection.answers()
        self.assertEqual(answer.status, 200)
        return dict(answer.json())

    def test_bothModesPublishTheSameEvent(self) -> None:
        stream, same = (self.follow(f"topic=a&format={each}") for each in ("cloudevents", "svc"))
        binary = self.post("topic=a&svc-tag=x")
        other = json.dumps({**SENT, "id": "8"}).encode()
        structured = self.post("topic=a&svc-tag=x", other, STRUCTURED)
        for answer in (binary, structured):
            self.assertEqual((answer["status"], answer["topic"]), ("SUCCESS", "a"))
        ids = [binary["eventId"], structured["eventId"]]
        common = {"svcsource": "/svcbroker/1/a", "svcextensions": '{"svc-tag":"x"}'}
        self.assertEqual(
            stream.events(),
            [
                (each, {**SENT, **common, "id": id, "svceventid": each})
                for each, id in zip(ids, "78", strict=True)
            ],
        )
        for id, event in same.events():
            self.assertEqual((id, event["content"]), (event["eventId"], "aGk="))
            self.assertEqual(set(event["extensions"]), {"svc-ce", "svc-tag"})

    def test_sameEventIsPublishedOnce(self) -> None:
        stream = self.follow("topic=a")
        binary = self.post("topic=a")
        self.assertEqual(self.post("topic=a", json.dumps(SENT).encode(), STRUCTURED), binary)
        self.assertEqual([id for id, _ in stream.events()], [binary["eventId"]])

    def test_eventMayHaveNoData(self) -> None:
        headers = {name: value for name, value in BINARY.items() if name != "Content-Type"}
        stream = self.follow("topic=a&format=cloudevents")
        answer = self.post("topic=a", b"", headers)
        [(_, event)] = stream.events()
        self.assertEqual(
            event,
            {
                **{name: SENT[name] for name in ("specversion", "id", "source", "type")},
                "svceventid": answer["eventId"],
                "svcsource": "/svcbroker/1/a",
            },
        )

    def test_parametersOfTheUrlCannotReplaceTheEvent(self) -> None:
        stream = self.follow("topic=a")
        self.post("topic=a&content=other&svc-ce=other")
        [(_, event)] = stream.events()
        self.assertEqual((event["content"], event["extensions"]["svc-ce"][0]), ("aGk=", "{"))

    def test_wrongRequestIsRefused(self) -> None:
        for query, body, headers, code, message in (
            ("topic=a", b"", {}, 100600, "specversion: is required"),
            ("topic=a", b"{}", STRUCTURED, 100600, "specversion: is required"),
            ("topic=a", b"", {**BINARY, "ce-source": "a b"}, 100600, "source: is not a URI-"),
            ("topic=none", b"hi", BINARY, TopicNotFound.code, ""),
            ("", b"hi", BINARY, TopicBlank.code, ""),
            ("topic=a&groupId=9", b"hi", BINARY, GroupUnknown.code, ""),
            ("topic=a", b"hi", {**BINARY, "ce-subject": "x" * 8192}, ExtensionsTooLarge.code, ""),
        ):
            answer = self.post(query, body, headers)
            self.assertEqual(answer["code"], code, answer)
            self.assertIn(message, answer["message"])

    def test_getIsRefused(self) -> None:
        answer = self.client.ask("GET", f"{BASE}/rest/cloudevents?topic=a", headers=BINARY)
        self.assertEqual(answer.status, 405)


class FormatTests(FollowTestCase):
    def test_followWritesCloudEvents(self) -> None:
        stream, others = self.follow("topic=a,b/c&format=cloudevents"), self.follow("topic=a,b/c")
        self.publish("\r\n", topic="b/c", tag="t")
        [(id, event)] = stream.events()
        self.assertEqual(event["id"], id)
        self.assertEqual(event["source"], "/svcbroker/1/b%2Fc")
        self.assertEqual(event["type"], "svc.event")
        self.assertEqual(event["data_base64"], "DQo=")
        self.assertEqual(others.contents(), ["DQo="])

    def test_unknownFormatIsRefused(self) -> None:
        answer = self.client.rest("follow?topic=a&format=xml")
        self.assertEqual(answer["code"], 100600)
        self.assertEqual(answer["message"], "format: is not svc or cloudevents: xml")


class AccessTests(AuthenticationTestCase):
    def post(self, topic: str, name: str | None) -> Answer:
        """Post an event as an account."""
        headers = BINARY if name is None else {**BINARY, **basic(name)}
        path = f"{BASE}/rest/cloudevents?topic={topic}"
        return self.client.ask("POST", path, b"hi", headers)

    def test_grantOfPublishingIsNeeded(self) -> None:
        self.assertPublished(self.post("t", "ann"))
        self.assertRefused(self.post("secret", "ann"), 403, 101016)
        self.assertRefused(self.post("t", "bob"), 403, 101016)
        self.assertRefused(self.post("t", None), 401, 101015)
