"""
Messages as events, and back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.mqtt.codec import Decoder, encodePublish
from svcbroker.carriers.mqtt.fields import Properties, encodeVariableByteInteger
from svcbroker.carriers.mqtt.messages import ENVELOPE, RETAIN, messageOf, publicationOf
from svcbroker.carriers.mqtt.packets import MQTT_5, Publish
from svcbroker.model import Event, EventId

NOW = 1_700_000_000.0


def now() -> float:
    """The time."""
    return NOW


def extensionsOf(packet: Publish, now: Callable[[], float]) -> Mapping[str, str]:
    """The extensions of the event that a message becomes."""
    return publicationOf(packet, "1", now).extensions


def event(**extensions: str) -> Event:
    """An event with extensions; an underscore stands for a minus sign."""
    named = {key.replace("_", "-"): value for key, value in extensions.items()}
    return Event(topic="t", content=b"x", extensions=named, eventId=EventId("abcdef01", 2, 3))


def delivered(published: Event) -> Properties:
    """The properties with which an event is delivered, read as a client reads them."""
    message = messageOf(published, hasProperties=True)
    length = encodeVariableByteInteger(len(message.properties))
    data = encodePublish(message.topic, b"", 0, 0, length + message.properties)
    decoder = Decoder(1 << 20, MQTT_5)
    (packet,) = decoder.receive(data)
    assert isinstance(packet, Publish)
    return packet.properties


text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=10)
name = st.text("abc/", min_size=1, max_size=5)


class MessageTests(SynchronousTestCase):
    """
    What an event keeps of a message.
    """

    @given(
        st.builds(
            Properties,
            payloadFormatIndicator=st.none() | st.integers(0, 1),
            messageExpiryInterval=st.none() | st.integers(0, 0xFFFFFFFF),
            contentType=st.none() | text,
            responseTopic=st.none() | name,
            correlationData=st.none() | st.binary(max_size=10),
            userProperties=st.lists(
                st.tuples(st.sampled_from(["a", "b", "svc-a", "svc-b"]) | text, text), max_size=6
            ).map(tuple),
        ),
        st.integers(0, 2),
        st.booleans(),
    )
    def test_messageRoundTrips(self, properties: Properties, qos: int, retain: bool) -> None:
        """Everything comes back as it was, in its order, with the event's id behind it."""
        packet = Publish("t", b"x", qos, retain, properties=properties)
        extensions = dict(extensionsOf(packet, now))
        published = Event(
            topic="t", content=b"x", extensions=extensions, eventId=EventId("abcdef01", 2, 3)
        )
        message = messageOf(published, hasProperties=True)
        self.assertEqual((message.qos, message.retain), (qos, retain))
        self.assertEqual(message.remaining(now), properties.messageExpiryInterval)
        got = delivered(published)
        *user, last = got.userProperties
        self.assertEqual(tuple(user), properties.userProperties)
        self.assertEqual(last, ("svc-eventId", "abcdef01-2-3"))
        for each in ("payloadFormatIndicator", "contentType", "responseTopic", "correlationData"):
            self.assertEqual(getattr(got, each), getattr(properties, each))

    def test_plainMessageCostsNothing(self) -> None:
        """A message without properties costs next to nothing."""
        self.assertEqual(extensionsOf(Publish("t", b"", 2), now), {})
        self.assertEqual(extensionsOf(Publish("t", b"", 1), now), {ENVELOPE: '{"v":1,"q":1}'})
        self.assertEqual(extensionsOf(Publish("t", b"", 2, True), now), {RETAIN: "1"})

    def test_ownExtensionsCannotBeForged(self) -> None:
        """What the broker itself writes cannot be forged by a client of MQTT."""
        user = (("svc-retain", "1"), ("svc-mqtt", "x"), ("svc-eventId", "y"), ("svc-z", "1"))
        packet = Publish("t", b"", 2, properties=Properties(userProperties=user))
        extensions = extensionsOf(packet, now)
        self.assertEqual(extensions, {"svc-z": "1", ENVELOPE: '{"v":1}'})

    def test_otherCarriersEventIsDelivered(self) -> None:
        """An event of another carrier has no QoS of its own, and its extensions."""
        message = messageOf(event(svc_b="2", svc_a="1"), hasProperties=True)
        self.assertEqual((message.qos, message.retain, message.expires), (2, False, None))
        got = delivered(event(svc_b="2", svc_a="1"))
        self.assertEqual(got.userProperties[:2], (("svc-a", "1"), ("svc-b", "2")))

    def test_forgedEnvelopeIsHarmless(self) -> None:
        """Whatever another carrier's client writes here, no client of MQTT is harmed by it."""
        for value in (
            "",
            "x",
            "[]",
            '{"v":2}',
            '{"v":1,"q":3}',
            '{"v":1,"q":-1}',
            '{"v":1,"f":2}',
            '{"v":1,"r":"a/#"}',
            '{"v":1,"t":"\\u0000"}',
            '{"v":1,"u":[["a","\\u0000"]]}',
            '{"v":1,"c":"?"}',
            '{"v":1,"x":"soon"}',
            '{"v":1,"t":"\\ud800"}',
        ):
            message = messageOf(event(svc_mqtt=value), hasProperties=True)
            self.assertEqual((message.qos, message.expires), (2, None), value)
            got = delivered(event(svc_mqtt=value))
            self.assertEqual(got, Properties(userProperties=(("svc-eventId", "abcdef01-2-3"),)))

    @given(st.text())
    def test_anyTextIsReadAsEnvelope(self, value: str) -> None:
        """No text at all makes it raise."""
        delivered(event(svc_mqtt=value))

    def test_farExpiryIsCapped(self) -> None:
        """A time that no interval can say is not said."""
        message = messageOf(event(svc_mqtt='{"v":1,"x":99999999999999999}'), hasProperties=True)
        self.assertIsNone(message.expires)

    def test_nullCharacterIsLeftOut(self) -> None:
        """Another carrier may let in what no MQTT string may have; it is left out."""
        got = delivered(event(svc_a="\0", svc_b="1"))
        self.assertEqual([key for key, _ in got.userProperties], ["svc-b", "svc-eventId"])
