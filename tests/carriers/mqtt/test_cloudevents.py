"""
CloudEvents by the MQTT protocol binding 1.0, published and delivered.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.mqtt.fields import NO_PROPERTIES, Properties, ReasonCode
from svcbroker.carriers.mqtt.kept import SUBSCRIPTION
from svcbroker.carriers.mqtt.packets import MQTT_5, MQTT_311, Publish, Will
from svcbroker.model import Event

from .support import Client, Server

EVENT = {"specversion": "1.0", "id": "ü 7", "source": "/s", "type": "t"}
STRUCTURED = "application/cloudevents+json"
FORMATS = ("cloudevents", "cloudevents-binary")


def asked(format: str, **more: str) -> Properties:
    """The properties of a SUBSCRIBE that asks for a format."""
    user = {"svc-format": format, **{f"svc-{name}": value for name, value in more.items()}}
    return Properties(userProperties=tuple(user.items()))


def binary(more: tuple[tuple[str, str], ...] = (), **properties: Any) -> Properties:
    """The properties of an event in binary mode."""
    return Properties(userProperties=(*EVENT.items(), *more), **properties)


class CloudEventTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.server = Server()
        self.client = self.server.connected("publisher")

    def publish(self, payload: bytes, properties: Properties, **options: Any) -> Event:
        """
        Publish a message.

        @return: the event that it became.
        """
        self.client.publish("t", payload, 1, properties=properties, **options)
        return self.last()

    def last(self) -> Event:
        """The last event of the log."""
        ledger = self.server.ledger
        height = self.successResultOf(ledger.getStatistics()).height
        event: Event = self.successResultOf(ledger.readBlock(height)).events[-1]
        return event

    def attributes(self, event: Event) -> Any:
        """The attributes that an event has kept."""
        return json.loads(event.extensions["svc-ce"])

    def subscriber(self, format: str = "", version: int = MQTT_5, **more: str) -> Client:
        client = self.server.connected(f"{format}{version}", version)
        properties = asked(format, **more) if format else NO_PROPERTIES
        self.assertEqual(client.subscribe("t", 1, properties).reasons, (1,))
        client.take()
        return client

    def received(self, client: Client) -> Publish:
        [message] = client.takeMessages()
        return message


class PublishingTests(CloudEventTestCase):
    """
    What a message that is a CloudEvent becomes, and how those who ask for nothing get it.
    """

    def test_binaryModeIsKeptAsByREST(self) -> None:
        """Its properties come back as they were sent, in their order, beside other ones."""
        plain, old = self.subscriber(), self.subscriber(version=MQTT_311)
        user = (("svc-tag", "x"), *EVENT.items(), ("X-More", "1"), ("subject", "s"))
        properties = Properties(contentType="a/b", userProperties=user)
        event = self.publish(b"\xff", properties)
        self.assertEqual(event.content, b"\xff")
        self.assertEqual(
            self.attributes(event), {**EVENT, "subject": "s", "datacontenttype": "a/b"}
        )
        self.assertEqual(event.extensions["svc-tag"], "x")
        message = self.received(plain)
        self.assertEqual((message.payload, message.properties.contentType), (b"\xff", "a/b"))
        self.assertEqual(
            message.properties.userProperties, (*user, ("svc-eventId", str(event.eventId)))
        )
        self.assertEqual(self.received(old).payload, b"\xff")

    def test_structuredModeIsKeptAsByREST(self) -> None:
        """Its data is the content; subscribers of MQTT get the whole event again."""
        clients = self.subscriber(), self.subscriber(version=MQTT_311)
        for members, content in (
            ({"data": {"a": [1, 2.50]}}, b'{"a":[1,2.50]}'),
            ({"data_base64": "AP8=", "datacontenttype": "a/b"}, b"\0\xff"),
            ({"data": "é", "datacontenttype": "text/plain", "n": 7, "yes": True}, "é".encode()),
            ({}, b""),
        ):
            sent = {**EVENT, **members}
            payload = json.dumps(sent).encode().replace(b"2.5]", b"2.50]")
            properties = Properties(
                contentType=f"{STRUCTURED}; charset=utf-8",
                userProperties=(("svc-tag", "x"), ("id", "other")),
            )
            event = self.publish(payload, properties)
            self.assertEqual(event.content.replace(b" ", b""), content)
            kept = {name: value for name, value in sent.items() if not name.startswith("data")}
            kept |= {k: v for k, v in sent.items() if k == "datacontenttype"}
            self.assertEqual(self.attributes(event), kept)
            for client in clients:
                message = self.received(client)
                self.assertEqual(json.loads(message.payload), sent)
                self.assertIn(b"2.50" if b"2.50" in payload else b"", message.payload)
                if client.version == MQTT_5:
                    self.assertEqual(message.properties.contentType, properties.contentType)
                    self.assertEqual(
                        message.properties.userProperties,
                        (*properties.userProperties, ("svc-eventId", str(event.eventId))),
                    )

    def test_otherMessagesStayAsTheyAre(self) -> None:
        """Also those that are nearly a CloudEvent: nothing is refused that was not before."""
        client = self.subscriber()
        whole = json.dumps(EVENT).encode()
        cases: list[tuple[bytes, Properties]] = [
            (b"x", Properties(userProperties=(("id", "7"), ("type", "t")))),
            (b"x", Properties(userProperties=tuple(EVENT.items())[:3])),
            (b"x", Properties(userProperties=(*EVENT.items(), ("id", "8")))),
            (b"x", Properties(userProperties=(*EVENT.items(), ("datacontenttype", "a/b")))),
            (b"x", binary(contentType="no media type")),
            (b"x", binary(contentType="application/cloudevents-batch+json")),
            (b"[1", Properties(contentType=STRUCTURED)),
            (b'{"specversion":"1.0"}', Properties(contentType=STRUCTURED)),
            (whole, Properties(contentType="application/json")),
        ]
        for payload, properties in cases:
            event = self.publish(payload, properties)
            self.assertEqual(event.content, payload)
            self.assertNotIn("svc-ce", event.extensions)
            message = self.received(client)
            self.assertEqual(message.payload, payload)
            self.assertEqual(message.properties.userProperties[:-1], properties.userProperties)
            self.assertEqual(message.properties.contentType, properties.contentType)

    def test_attributesOfTheBrokerAreNotTakenOver(self) -> None:
        """A receiver can publish what it was sent."""
        client = self.subscriber()
        more = (("svceventid", "x"), ("svcsource", "y"), ("svcextensions", "{}"))
        event = self.publish(b"x", binary(more))
        self.assertEqual(self.attributes(event), EVENT)
        message = self.received(client)
        self.assertEqual(message.properties.userProperties[:-1], (*EVENT.items(), *more))

    def test_ownExtensionOfPublisherDoesNotCount(self) -> None:
        """Of a message that is a CloudEvent the message itself is kept."""
        client = self.subscriber()
        more = (("svc-ce", '{"specversion":"1.0"}'),)
        for payload, properties in (
            (b"x", binary(more)),
            (json.dumps(EVENT).encode(), Properties(contentType=STRUCTURED, userProperties=more)),
        ):
            event = self.publish(payload, properties)
            self.assertEqual(self.attributes(event), EVENT)
            message = self.received(client)
            self.assertEqual(message.properties.userProperties[:-1], properties.userProperties)

    def test_eventWithoutDataMayBeRetained(self) -> None:
        """It stays as it is: a retained message without content would remove the one before."""
        payload = json.dumps(EVENT).encode()
        properties = Properties(contentType=STRUCTURED)
        event = self.publish(payload, properties, retain=True)
        self.assertEqual(event.content, payload)
        client = self.server.connected("late")
        client.subscribe("t")
        self.assertEqual(client.payloads(), [payload])

    def test_willIsACloudEvent(self) -> None:
        properties = binary(contentType="text/plain")
        client = self.server.connected("willed", will=Will("t", b"gone", 1, False, properties))
        client.lose()
        self.server.pump()
        event = self.last()
        self.assertEqual(self.attributes(event), {**EVENT, "datacontenttype": "text/plain"})

    def test_forgedExtensionsAreHarmless(self) -> None:
        """Clients of other carriers can write any text here."""
        client = self.subscriber()
        for mqtt, attributes in (
            ('{"v":1,"s":true}', "{}"),
            ('{"v":1,"s":true}', json.dumps(EVENT)),
            ('{"v":1,"u":["id","id","nothing"]}', json.dumps({**EVENT, "id": "7"})),
            ('{"v":1,"u":["id"]}', "["),
        ):
            self.server.event("t", b"x", **{"svc-mqtt": mqtt, "svc-ce": attributes})
            message = self.received(client)
            names = [name for name, _ in message.properties.userProperties]
            self.assertEqual(names[-1], "svc-eventId")
            self.assertLessEqual(len(names), 2)


class DeliveringTests(CloudEventTestCase):
    """
    Subscriptions that ask for CloudEvents.
    """

    def expected(self, event: Event, **more: Any) -> Mapping[str, Any]:
        """The attributes that the broker adds."""
        own = {"svceventid": str(event.eventId), "svcsource": "/svcbroker/1/t"}
        return {**own, **more}

    def test_publishedCloudEventHasItsAttributes(self) -> None:
        """In both modes, however it was published."""
        structured, binaries = map(self.subscriber, FORMATS)
        whole = json.dumps({**EVENT, "n": 7, "yes": True, "data": [1]}).encode()
        for payload, properties, contentType in (
            (b"[1]", binary((("n", "7"),), contentType="application/json"), "application/json"),
            (whole, Properties(contentType=STRUCTURED), "application/json"),
            (b"x", binary(), None),
        ):
            event = self.publish(payload, properties)
            message = self.received(structured)
            told = json.loads(message.payload)
            self.assertEqual(message.properties.contentType, STRUCTURED)
            self.assertEqual(message.properties.payloadFormatIndicator, 1)
            self.assertEqual(message.properties.userProperties, ())
            kept = {**self.attributes(event), **self.expected(event)}
            self.assertEqual({name: told[name] for name in kept}, kept)
            data = {"data": [1]} if contentType else {"data_base64": "eA=="}
            self.assertEqual({name: told[name] for name in data}, data)
            message = self.received(binaries)
            user = dict(message.properties.userProperties)
            del user["svcextensions"]
            kept.pop("datacontenttype", None)
            texts = {True: "true", 7: "7"}
            self.assertEqual(user, {k: texts.get(v, v) for k, v in kept.items()})
            self.assertEqual(message.properties.contentType, contentType)
            self.assertEqual(message.payload, event.content)

    def test_otherEventsHaveAttributesOfTheirPlace(self) -> None:
        """Those of any carrier. Fields of MQTT that CloudEvents do not have are kept."""
        clients = [self.subscriber(format) for format in FORMATS]
        properties = Properties(
            messageExpiryInterval=60, responseTopic="r", correlationData=b"c", contentType="a/b"
        )
        event = self.publish(b"\xff", properties)
        expected = {
            "specversion": "1.0",
            "id": str(event.eventId),
            "source": "/svcbroker/1/t",
            "type": "svc.event",
        }
        for client in clients:
            message = self.received(client)
            got = message.properties
            self.assertEqual((got.responseTopic, got.correlationData), ("r", b"c"))
            self.assertEqual(got.messageExpiryInterval, 60)
            told = dict(got.userProperties) or json.loads(message.payload)
            self.assertEqual({name: told[name] for name in expected}, expected)
            self.assertRegex(told["time"], r"2023-11-14T22:13:\d\d\.\d{3}Z")
            self.assertIn("svc-mqtt", json.loads(told["svcextensions"]))
        self.server.event("t", b"x")
        for client in clients:
            self.assertIn("svc.event", str(self.received(client)))

    def test_formatIsKeptWithTheSession(self) -> None:
        """Across a restart of the broker, with its place in the log."""
        client = self.server.connected("lasting", expiry=1000)
        client.subscribe("t", 1, asked("cloudevents-binary"))
        self.publish(b"1", NO_PROPERTIES)
        self.assertEqual(client.payloads(), [b"1"])
        client.lose()
        self.publish(b"2", NO_PROPERTIES)
        self.server.pump()
        kept = [value for (kind, _), value in self.server.file.kept.items() if kind == SUBSCRIPTION]
        self.assertEqual([json.loads(each)["format"] for each in kept], ["cloudevents-binary"])
        restarted = self.server.restarted()
        again = restarted.connected("lasting", cleanStart=False, expiry=1000)
        [message] = again.takeMessages()
        self.assertEqual(message.payload, b"2")
        self.assertEqual(dict(message.properties.userProperties)["type"], "svc.event")
        again.lose()
        # MQTT 3.1.1 has no properties: what is left of binary mode is the data.
        old = restarted.connected("lasting", MQTT_311, cleanStart=False)
        restarted.event("t", b"3")
        self.assertEqual(old.payloads(), [b"3"])

    def test_eachSubscriptionHasItsOwnFormat(self) -> None:
        """One session that asks for several gets one message for each."""
        client = self.server.connected("many")
        client.subscribe("t")
        client.subscribe("+", 0, asked("cloudevents"))
        client.subscribe("#", 0, asked("cloudevents-binary"))
        client.take()
        self.publish(b"x", NO_PROPERTIES)
        messages = client.takeMessages()
        types = [message.properties.contentType for message in messages]
        self.assertEqual(set(types), {None, STRUCTURED, "application/octet-stream"})
        self.assertEqual(len(types), 3)

    def test_formatCanBeChanged(self) -> None:
        """Subscribing again with another one begins anew; with the same one nothing is lost."""
        client = self.subscriber("cloudevents")
        for format, contentType in (
            ("cloudevents", STRUCTURED),
            ("svc", None),
            ("cloudevents-binary", "application/octet-stream"),
        ):
            client.subscribe("t", 1, asked(format))
            client.take()
            self.publish(b"x", NO_PROPERTIES)
            self.assertEqual(self.received(client).properties.contentType, contentType)

    def test_retainedMessagesAndSharesHaveTheFormat(self) -> None:
        """Without C{time}, which is not known there."""
        self.publish(b"kept", NO_PROPERTIES, retain=True)
        client = self.server.connected("late")
        client.subscribe("t", 1, asked("cloudevents"))
        [message] = client.takeMessages()
        told = json.loads(message.payload)
        self.assertTrue(message.retain)
        self.assertEqual((told["data_base64"], "time" in told), ("a2VwdA==", False))
        share = self.server.connected("sharing")
        share.subscribe("$share/s/t", 1, asked("cloudevents-binary"))
        self.publish(b"new", NO_PROPERTIES)
        [message] = share.takeMessages()
        user = dict(message.properties.userProperties)
        self.assertEqual((user["type"], "time" in user), ("svc.event", False))

    def test_unknownFormatIsRefused(self) -> None:
        for wrong in ("", "CloudEvents", "json"):
            suback = self.client.subscribe("t", 1, asked(wrong))
            self.assertEqual(suback.reasons, (ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,))
            self.assertEqual(
                suback.properties.reasonString,
                "svc-format: is not svc or cloudevents or cloudevents-binary",
            )

    def test_offsetAndTagHoldToo(self) -> None:
        for tag in ("a", "b"):
            self.publish(tag.encode(), Properties(userProperties=(("svc-tag", tag),)))
        client = self.server.connected("all")
        client.subscribe("t", 1, asked("cloudevents-binary", offset="OFFSET_FIRST", tag="b"))
        self.assertEqual(client.payloads(), [b"b"])
