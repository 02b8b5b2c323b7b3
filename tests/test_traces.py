"""
W3C Trace Context of events: what is read, what STOMP and MQTT 5 keep, and who is shown it.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from treq.testing import RequestTraversalAgent
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.mqtt.fields import Properties
from svcbroker.carriers.mqtt.messages import ENVELOPE, publicationOf
from svcbroker.carriers.mqtt.packets import Publish
from svcbroker.carriers.webhook.posting import (
    Payload,
    Poster,
    RequestForm,
    WebhookReceiver,
    parseUrl,
)
from svcbroker.interfaces import Batch
from svcbroker.model import Authorship, Event, EventFormat, EventId, InterfaceType
from svcbroker.net.http import HttpClient
from svcbroker.operations import eventWriter, readTrace, traceOf
from tests.carriers.mqtt.test_messages import delivered
from tests.carriers.stomp.support import Server
from tests.carriers.webhook.support import SETTINGS
from tests.carriers.webhook.test_posting import FakeReceiver

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER = PARENT.replace("4", "5")
STATE = "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7"
TRACE = {"svc-traceparent": PARENT, "svc-tracestate": STATE}
SHOWN = {"traceparent": PARENT, "tracestate": STATE}


def event(extensions: dict[str, str]) -> Event:
    """An event with extensions."""
    return Event(topic="a", content=b"x", extensions=extensions, eventId=EventId("0123abcd", 1, 1))


class ReadTests(SynchronousTestCase):
    """
    L{readTrace}
    """

    def test_validTraceparentIsKept(self) -> None:
        self.assertEqual(readTrace(PARENT), {"svc-traceparent": PARENT})
        # Of a newer version only the fields of version 00 are known.
        for newer in ("01" + PARENT[2:], "cc" + PARENT[2:] + "-what-comes"):
            self.assertEqual(readTrace(newer), {"svc-traceparent": PARENT})

    def test_invalidTraceparentIsIgnored(self) -> None:
        for text in (
            None,
            *("", "00", PARENT[:-1], PARENT + "0", PARENT + "-", PARENT + "-00", f" {PARENT}"),
            *(PARENT.upper(), "ff" + PARENT[2:], "cc" + PARENT[2:] + ".x", PARENT + "\n"),
            *(f"00-{'0' * 32}-{'1' * 16}-01", f"00-{'1' * 32}-{'0' * 16}-01", "0g" + PARENT[2:]),
            f"{PARENT}, {PARENT}",
        ):
            self.assertEqual(readTrace(text, STATE), {}, text)

    def test_invalidTracestateIsLeftOut(self) -> None:
        for state in (STATE, "a=1, b=2", "a=1,,b=2", "1t@sys=x", "a=" + "x" * 256):
            self.assertEqual(readTrace(PARENT, state)["svc-tracestate"], state)
        many = ",".join(f"k{number}=1" for number in range(33))
        for state in ("", ",", "a", "=1", "A=1", "a=", "a=1,a=2", "a=\x7f", "a=b=c", many):
            self.assertEqual(readTrace(PARENT, state), {"svc-traceparent": PARENT}, state)
        self.assertNotIn("svc-tracestate", readTrace(PARENT, f"a={'x' * 255},b={'x' * 255}"))

    @given(st.text(max_size=60), st.text(max_size=60))
    def test_anyTextIsReadOrIgnored(self, parent: str, state: str) -> None:
        readTrace(parent, state)
        self.assertLessEqual(readTrace(PARENT, state).keys(), TRACE.keys())


class MqttTests(SynchronousTestCase):
    """
    User properties of MQTT 5.
    """

    def published(self, *user: tuple[str, str], **more: Any) -> dict[str, str]:
        """The extensions of a message, without the envelope."""
        packet = Publish("a", b"x", 2, properties=Properties(userProperties=user))
        extensions = dict(publicationOf(packet, "1", lambda: 0.0).extensions)
        self.envelope = extensions.pop(ENVELOPE)
        return extensions

    def shown(self, extensions: dict[str, str]) -> list[tuple[str, str]]:
        """The user properties that a subscriber gets, without the event's id."""
        return list(delivered(event(extensions)).userProperties)[:-1]

    def test_traceBecomesExtensionAndComesBack(self) -> None:
        user = (("b", "1"), ("traceparent", PARENT), ("a", "2"), ("tracestate", STATE))
        extensions = self.published(*user)
        self.assertEqual(extensions, TRACE)
        self.assertEqual(self.shown({**extensions, ENVELOPE: self.envelope}), list(user))
        self.assertEqual(self.published(("traceparent", PARENT)), {"svc-traceparent": PARENT})
        self.assertEqual(self.envelope, '{"v":1}')

    def test_invalidTraceStaysAsItWas(self) -> None:
        """User properties are never altered."""
        newer = "01" + PARENT[2:]
        for user in (
            (("traceparent", "x"), ("tracestate", STATE)),
            (("traceparent", newer),),
            (("tracestate", STATE),),
        ):
            extensions = self.published(*user)
            self.assertEqual(extensions, {})
            self.assertEqual(self.shown({ENVELOPE: self.envelope}), list(user))

    def test_repeatedPropertiesStayInOrder(self) -> None:
        user = (("traceparent", PARENT), ("traceparent", OTHER))
        extensions = self.published(*user)
        self.assertEqual(extensions, {"svc-traceparent": PARENT})
        self.assertEqual(self.shown({**extensions, ENVELOPE: self.envelope}), list(user))

    def test_signedMessageIsNotChanged(self) -> None:
        signed = (("svc-author", "01" * 32), ("svc-signature", "02" * 64), ("svc-signed-at", "5"))
        self.assertEqual(self.published(*signed, ("traceparent", PARENT)), {})

    def test_traceOfOtherCarriersIsShown(self) -> None:
        self.assertEqual(self.shown(TRACE), list(SHOWN.items()))
        broken = {"svc-traceparent": "x\r\ny"}
        self.assertEqual(self.shown(broken), list(broken.items()))


class StompTests(SynchronousTestCase):
    """
    Headers of SEND and MESSAGE.
    """

    def published(self, **headers: str) -> Any:
        """What a SEND with a trace publishes."""
        server = Server()
        given = {"destination": "a", "traceparent": PARENT, "tracestate": STATE, **headers}
        server.connect().send("SEND", given, b"x")
        return [each.extensions for each in server.published]

    def message(self, extensions: dict[str, str]) -> dict[str, str]:
        """The headers of a trace that a subscriber gets."""
        server = Server()
        client = server.connect()
        client.send("SUBSCRIBE", {"id": "1", "destination": "a"})
        server.fixture.clock.advance(1)
        server.fake.made[-1].publish(event(extensions))
        headers = client.frames()[-1].headers
        return {name: value for name, value in headers.items() if "trace" in name}

    def test_traceBecomesExtension(self) -> None:
        self.assertEqual(self.published(), [TRACE])
        self.assertEqual(self.published(colour="red"), [{**TRACE, "svc-stomp": '{"colour":"red"}'}])

    def test_invalidTraceStaysWithOtherHeaders(self) -> None:
        [extensions] = self.published(traceparent="x")
        self.assertEqual(extensions.keys(), {"svc-stomp"})

    def test_extensionOfPublisherWins(self) -> None:
        [extensions] = self.published(**{"svc-traceparent": OTHER})
        self.assertEqual(extensions["svc-traceparent"], OTHER)

    def test_messageHasTrace(self) -> None:
        self.assertEqual(self.message(TRACE), SHOWN)
        broken = {"svc-traceparent": "x", "svc-tracestate": STATE}
        self.assertEqual(self.message(broken), broken)


class CloudEventTests(SynchronousTestCase):
    """
    The extension of CloudEvents for distributed tracing.
    """

    def written(self, extensions: dict[str, str]) -> dict[str, Any]:
        """An event as a CloudEvent."""
        batch = Batch([event(extensions)], 1_700_000_000_042)
        [record] = eventWriter(EventFormat.CLOUD_EVENTS, "/b", "1")(batch)
        written: Any = record
        return dict(written)

    def test_traceIsAttributes(self) -> None:
        made = self.written({**TRACE, "svc-a": "b"})
        self.assertEqual((made["traceparent"], made["tracestate"]), (PARENT, STATE))
        self.assertEqual(made["svcextensions"], '{"svc-a":"b"}')
        self.assertNotIn("svcextensions", self.written(TRACE))

    def test_attributesOfPublisherStay(self) -> None:
        own = f'{{"specversion":"1.0","id":"7","source":"/s","type":"t","traceparent":"{OTHER}"}}'
        made = self.written({"svc-ce": own, "svc-traceparent": PARENT})
        self.assertEqual(made["traceparent"], OTHER)
        self.assertEqual(made["svcextensions"], f'{{"svc-traceparent":"{PARENT}"}}')
        self.assertEqual(traceOf(event({"svc-ce": own})), {"traceparent": OTHER})
        self.assertEqual(
            traceOf(event({"svc-ce": own, "svc-traceparent": PARENT})), {"traceparent": PARENT}
        )

    def test_invalidTraceIsAnExtension(self) -> None:
        made = self.written({"svc-traceparent": "x"})
        self.assertNotIn("traceparent", made)
        self.assertEqual(made["svcextensions"], '{"svc-traceparent":"x"}')

    def test_signedEventShowsWhatWasSigned(self) -> None:
        author = Authorship(key=b"\1" * 32, signedAt=5, signature=b"\2" * 64)
        self.assertEqual(traceOf(replace(event(TRACE), author=author)), SHOWN)


class WebhookTests(SynchronousTestCase):
    """
    Requests to receivers.
    """

    def sent(self, *events: Event) -> dict[str, str]:
        """The headers of a trace that a receiver gets."""
        receiver, clock = FakeReceiver(), Clock()
        agent: Any = RequestTraversalAgent(receiver)
        poster = Poster(lambda _: HttpClient(agent, clock), lambda: 0.0, SETTINGS)
        form = RequestForm(interfaceType=InterfaceType.RESTFUL, subscriptionId="s", isBatch=True)
        posting = poster.post(
            WebhookReceiver(target=parseUrl("https://a.example/"), form=form),
            events,
            Payload(b"x", {}),
        )
        agent.flush()
        self.successResultOf(posting)
        headers = receiver.requests[0].requestHeaders.getAllRawHeaders()
        return {
            name.decode().lower(): value[0].decode() for name, value in headers if b"race" in name
        }

    def test_requestHasTraceOfItsEvents(self) -> None:
        self.assertEqual(self.sent(event(TRACE)), SHOWN)
        self.assertEqual(self.sent(event(TRACE), event(TRACE)), SHOWN)

    def test_batchOfDifferentTracesHasNone(self) -> None:
        self.assertEqual(self.sent(event(TRACE), event({})), {})
        self.assertEqual(self.sent(event({})), {})

    def test_forgedTraceIsNoHeader(self) -> None:
        self.assertEqual(self.sent(event({"svc-traceparent": f"{PARENT}\r\nX-Trace: y"})), {})
