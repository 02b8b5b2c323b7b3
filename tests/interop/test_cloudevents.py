"""
CloudEvents as the libraries of the project CloudEvents write and read them.

Each test is skipped where its package is not installed: C{cloudevents} of pip (extra: interop) or
of npm, C{paho-mqtt}.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote
from uuid import uuid4

from tests.carriers.http.support import BASE, requestBytes
from tests.carriers.http.test_follow import FollowTestCase
from tests.functional.daemon import DaemonTestCase
from tests.functional.test_webhooks import Receiver
from tests.needed import needPackage

from .node import nodeModules
from .test_descriptions import node
from .test_mqtt_clients import ClientTestCase, Paho

with contextlib.suppress(ImportError):
    from paho.mqtt.enums import MQTTProtocolVersion
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

with contextlib.suppress(ImportError):
    from cloudevents.core.bindings.http import (
        HTTPMessage,
        from_http_event,
        from_structured_event,
        to_binary_event,
        to_structured_event,
    )
    from cloudevents.core.v1.event import CloudEvent

STRUCTURED = "application/cloudevents+json"
FORMATS = ("cloudevents", "cloudevents-binary")
BATCHED = "application/cloudevents-batch+json"
SUBJECT = {"subject": '100% "é" \U0001f600'}
MORE = {"source": "/s/%C3%A9", "type": "t", **SUBJECT}
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
].flatMap(([datacontenttype, data]) =>
  [HTTP.binary, HTTP.structured].map((write) =>
    write(new CloudEvent({ ...more, datacontenttype, data, counter: 3, flag: true }))));
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
        needPackage("cloudevents", "interop")
        for contentType, data in DATA:
            attributes = {**MORE, "datacontenttype": contentType, "own": "x"}
            for write in (to_binary_event, to_structured_event):
                # Source and id are the idempotency key: each is an event of its own.
                event = CloudEvent(attributes=dict(attributes), data=data)
                message = write(event)
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


class CloudEventReceiver(Receiver):
    """
    Reads what it is sent with the library of PyPI, and checks the signature.
    """

    def read(self, headers: Mapping[str, str], body: bytes) -> Any:
        contentType = headers["content-type"]
        if contentType != BATCHED:
            return [(contentType, from_http_event(HTTPMessage(dict(headers), body)))]
        # The library reads no batches.
        single = {"content-type": STRUCTURED}
        bodies = [json.dumps(each).encode() for each in json.loads(body)]
        return [(contentType, from_structured_event(HTTPMessage(single, each))) for each in bodies]

    def contentsOf(self, told: Any) -> list[str]:
        return [event.get_id() for _, event in told]


class WebhookTests(DaemonTestCase):
    """
    Webhooks of the real daemon.
    """

    async def test_pythonLibraryReadsWebhooks(self) -> None:
        """In each format, by both interfaces, events that were published as CloudEvents or not."""
        needPackage("cloudevents", "interop")
        secret = self.root / "secret"
        secret.write_text("the secret of this receiver\n")
        daemon = await self.start(
            f"--webhook-secret-file={secret}", "--webhook-allow=127.0.0.1", "--base-path=/base"
        )
        await daemon.call("/rest/open", topic="a/b")
        stored = {"specversion": "1.0", "id": "7", "source": "/s/%C3%A9", "type": "t", **SUBJECT}
        attributes = json.dumps({**stored, "datacontenttype": "application/json"})
        extensions: dict[str, Any] = {"svc-ce": attributes}
        await daemon.call("/rest/publish", topic="a/b", content='{"a": "é"}', **extensions)
        other = await daemon.call("/rest/publish", topic="a/b", content='"plain"')
        formats: Sequence[tuple[str, dict[str, Any]]] = (
            ("cloudevents", {}),
            ("cloudevents", {"batch": 2}),
            ("cloudevents-binary", {}),
        )
        for format, options in formats:
            receiver = CloudEventReceiver(self)
            await daemon.call(
                "/rest/subscribe",
                topic="a/b",
                url=f"http://127.0.0.1:{receiver.port}/",
                offset="OFFSET_FIRST",
                format=format,
                **options,
            )
            await receiver.until(lambda: len(receiver.accepted) == 2)  # noqa: B023
            events = [each for _, told in receiver.seen for each in told]
            (contentType, first), (_, second) = events
            isBinary = format.endswith("binary")
            expected = "application/json" if isBinary else BATCHED if options else STRUCTURED
            self.assertEqual(contentType, expected)
            self.assertEqual(first.get_data(), {"a": "é"})
            for name, value in stored.items():
                self.assertEqual(first.get_attributes()[name], value)
            self.assertEqual((second.get_id(), second.get_type()), (other["eventId"], "svc.event"))
            self.assertEqual(second.get_source(), "/base/1/a%2Fb")
            self.assertIn(second.get_data(), (b'"plain"', '"plain"'))


class MqttTests(ClientTestCase):
    """
    paho publishes and receives by the MQTT binding what the library of PyPI writes and reads.
    """

    def setUp(self) -> None:
        needPackage("paho", "interop")
        super().setUp()

    def connected(self, format: str = "") -> Paho:
        """A client that subscribes, maybe with a format."""
        client = Paho(self, MQTTProtocolVersion.MQTTv5, uuid4().hex)
        client.connect()
        properties = Properties(PacketTypes.SUBSCRIBE)
        if format:
            properties.UserProperty = ("svc-format", format)
        client.client.subscribe(self.topic, qos=1, properties=properties)
        client.next("subscribe")
        return client

    def publish(self, client: Paho, message: Any) -> None:
        """Publish what the library has written for HTTP."""
        properties = Properties(PacketTypes.PUBLISH)
        headers = dict(message.headers)
        properties.ContentType = headers.pop("content-type")
        for name, value in headers.items():
            properties.UserProperty = (name.removeprefix("ce-"), unquote(value))
        client.client.publish(self.topic, message.body, 1, properties=properties)
        client.next("publish")

    def read(self, message: Any) -> Any:
        """A message as the library reads it from HTTP."""
        headers = {"content-type": message.properties.ContentType}
        for name, value in getattr(message.properties, "UserProperty", ()):
            if not name.startswith("svc-"):
                headers[f"ce-{name}"] = quote(value)
        return from_http_event(HTTPMessage(headers, message.payload))

    def test_pythonLibraryWritesWhatWeReadAndReadsWhatWeWrite(self) -> None:
        """In both modes, by subscribers that ask for each format or for none."""
        needPackage("cloudevents", "interop")
        publisher = self.connected()
        subscribers = {each: self.connected(each) for each in ("", *FORMATS)}
        for contentType, data in DATA:
            event = CloudEvent(
                attributes={**MORE, "datacontenttype": contentType, "own": "x"}, data=data
            )
            for message in (to_binary_event(event), to_structured_event(event)):
                self.publish(publisher, message)
                for format, client in subscribers.items():
                    read = self.read(client.next("message"))
                    self.assertEqual(read.get_data(), data)
                    for name, value in event.get_attributes().items():
                        self.assertEqual(read.get_attributes()[name], value)
                    self.assertEqual(read.get_extension("svceventid") is None, not format)
        publisher.client.publish(self.topic, b"\xff", 1)
        for format in FORMATS:
            read = self.read(subscribers[format].next("message"))
            self.assertEqual((read.get_type(), read.get_data()), ("svc.event", b"\xff"))
        for client in (publisher, *subscribers.values()):
            client.leave()
