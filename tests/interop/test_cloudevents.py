"""
CloudEvents as the libraries of the project CloudEvents write and read them.

Each test is skipped where its package is not installed: C{cloudevents} of pip (extra: interop) or
of npm.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from twisted.trial.unittest import SkipTest

from tests.carriers.http.support import BASE, requestBytes
from tests.carriers.http.test_follow import FollowTestCase

from .node import nodeModules
from .test_descriptions import node

try:
    from cloudevents.core.bindings.http import (
        HTTPMessage,
        from_structured_event,
        to_binary_event,
        to_structured_event,
    )
    from cloudevents.core.v1.event import CloudEvent
except ImportError:
    hasLibrary = False
else:
    hasLibrary = True

STRUCTURED = "application/cloudevents+json"
MORE = {"source": "/s/%C3%A9", "type": "t", "subject": '100% "é" \U0001f600'}
DATA = (
    ("application/json", {"a": [1, None, "é"]}),
    ("text/plain", "é\r\n"),
    ("application/octet-stream", b"\xff\0"),
)

_SEND = """
const { CloudEvent, HTTP } = require(process.argv[1]);
const more = JSON.parse(process.argv[2]);
const messages = [
  ["application/json", { a: [1, null, "é"] }],
  ["text/plain", "é\\r\\n"],
].flatMap(([datacontenttype, data]) => {
  const event = new CloudEvent({ ...more, id: "7", datacontenttype, data, counter: 3, flag: true });
  return [HTTP.binary(event), HTTP.structured(event)];
});
console.log(JSON.stringify(messages));
"""
_RECEIVE = """
const { HTTP } = require(process.argv[1]);
const headers = { "content-type": "application/cloudevents+json" };
const bodies = JSON.parse(require("fs").readFileSync(0, "utf8"));
console.log(JSON.stringify(bodies.map((body) => HTTP.toEvent({ headers, body }).toJSON())));
"""


class CloudEventsTests(FollowTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.stream = self.follow("topic=a&format=cloudevents")

    def post(self, headers: Mapping[str, str], body: bytes) -> str:
        """
        Post an event.

        @return: its id.
        """
        connection = self.client.connect()
        path = f"{BASE}/rest/cloudevents?topic=a"
        connection.send(requestBytes("POST", path, body, headers))
        self.settle()
        [answer] = connection.answers()
        self.assertEqual(answer.json().get("status"), "SUCCESS", answer)
        return str(answer.json()["eventId"])

    def received(self) -> Any:
        """The next event of the stream, as JSON text."""
        [(_, event)] = self.stream.events()
        return json.dumps(event)

    def test_pythonLibraryWritesWhatWeReadAndReadsWhatWeWrite(self) -> None:
        if not hasLibrary:
            raise SkipTest("cloudevents is not installed (extra: interop)")
        for contentType, data in DATA:
            attributes = {**MORE, "datacontenttype": contentType, "own": "x"}
            event = CloudEvent(attributes=attributes, data=data)
            for message in (to_binary_event(event), to_structured_event(event)):
                id = self.post(message.headers, message.body)
                text = self.received().encode()
                read = from_structured_event(HTTPMessage({"content-type": STRUCTURED}, text))
                self.assertEqual(read.get_data(), data)
                for name, value in event.get_attributes().items():
                    self.assertEqual(read.get_attributes()[name], value)
                self.assertEqual(read.get_extension("svceventid"), id)
        self.publish("other")
        text = self.received().encode()
        read = from_structured_event(HTTPMessage({"content-type": STRUCTURED}, text))
        self.assertEqual((read.get_type(), read.get_data()), ("svc.event", b"other"))

    def test_javaScriptLibraryWritesWhatWeReadAndReadsWhatWeWrite(self) -> None:
        modules = nodeModules("cloudevents")
        # This library does not percent-encode the values of headers.
        more = {"source": "/s", "type": "t", "subject": "plain text"}
        messages = json.loads(node(_SEND, modules, "cloudevents", json.dumps(more)))
        bodies = []
        for message in messages:
            self.post(message["headers"], message["body"].encode())
            bodies.append(self.received())
        self.publish("other")
        bodies.append(self.received())
        read = json.loads(node(_RECEIVE, modules, "cloudevents", text=json.dumps(bodies)))
        for event, (_, data) in zip(read, (DATA[0], DATA[0], DATA[1], DATA[1]), strict=False):
            self.assertEqual(event["data"], data)
            self.assertEqual({name: event[name] for name in more}, more)
            self.assertEqual(str(event["counter"]), "3")
        self.assertEqual((read[-1]["type"], read[-1]["data_base64"]), ("svc.event", "b3RoZXI="))
