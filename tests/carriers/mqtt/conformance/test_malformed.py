"""
What no client may send: section 1.5, 2, 4.7, 4.8 (3.1.1), 4.13 (5) of the specifications.

The connection must end, and nobody else may notice.
"""

from __future__ import annotations

from random import Random

from .client import Closed
from .packets import (
    CONNACK,
    DISCONNECT,
    PINGREQ,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    V4,
    V5,
    ack,
    binary,
    frame,
    properties,
    publish,
    subscribe,
    u16,
    unsubscribe,
)
from .support import MqttTestCase

BAD_TEXTS = {
    "a byte that never stands in UTF-8": b"a\xffb",
    "an overlong form": b"a\xc0\xafb",
    "half a surrogate pair": b"a\xed\xa0\x80b",
    "beyond U+10FFFF": b"a\xf4\x90\x80\x80",
    "cut short": b"a\xe2\x82",
    "U+0000": b"a\0b",
}


class MalformedTests(MqttTestCase):
    """
    Both versions.
    """

    @property
    def none(self) -> bytes:
        """No properties, where there could be some."""
        return properties(self.version, ())

    def refuses(self, data: bytes, *reasons: int) -> None:
        """The connection ends after these bytes."""
        client = self.client()
        client.send(data)
        try:
            client.closes(*reasons)
        except (AssertionError, TimeoutError) as error:
            raise AssertionError(f"after {data[:64].hex(' ')}: {error}") from error

    def test_reservedTypeEndsConnection(self) -> None:
        """Section 2.2.1: type 0 is forbidden, in 3.1.1 type 15 too."""
        self.refuses(frame(0, 0, b""))
        if self.version == V4:
            self.refuses(frame(15, 0, b""))

    def test_serverOnlyPacketEndsConnection(self) -> None:
        """Table 2.1: packets that only a server sends."""
        self.refuses(frame(CONNACK, 0, b"\0\0" + self.none))
        self.notForeign("mosquitto 2.0.11 lets them pass, since bridges get them")
        self.refuses(frame(SUBACK, 0, b"\0\1" + self.none + b"\0"))
        self.refuses(frame(UNSUBACK, 0, b"\0\1" + self.none))
        self.refuses(frame(PINGRESP, 0, b""))

    def test_reservedFlagsEndConnection(self) -> None:
        """[MQTT-2.2.2-2] [MQTT5-2.1.3-1] Reserved flags."""
        for flags in (0, 1, 3, 6, 10):
            self.refuses(ack(PUBREL, 1, flags=flags))
            self.refuses(subscribe(self.version, 1, [("a", 0)], flags=flags))
            self.refuses(unsubscribe(self.version, 1, ["a"], flags=flags))
        self.refuses(frame(DISCONNECT, 2, b""))
        self.notForeign("mosquitto 2.0.11 does not look at those of others")
        self.refuses(frame(PINGREQ, 1, b""))
        for kind in (PUBACK, PUBREC, PUBCOMP):
            for flags in (1, 2, 4, 8):
                self.refuses(ack(kind, 1, flags=flags))

    def test_overlongLengthEndsConnection(self) -> None:
        """Section 2.2.3: a remaining length has at most four bytes."""
        self.refuses(b"\x30\xff\xff\xff\xff\x7f")
        self.refuses(b"\xc0\x80\x80\x80\x80\x00")

    def test_qosThreeEndsConnection(self) -> None:
        """[MQTT-3.3.1-4] There is no QoS 3."""
        self.refuses(publish(self.version, self.topic("a"), b"x", qos=3, packetId=1), 0x81, 0x82)

    def test_dupWithQos0EndsConnection(self) -> None:
        """[MQTT-3.3.1-2] What is not acknowledged is not sent again."""
        self.notForeign("mosquitto 2.0.11 does not mind")
        self.refuses(publish(self.version, self.topic("a"), b"x", dup=True), 0x81, 0x82)

    def test_identifierZeroEndsConnection(self) -> None:
        """[MQTT-2.3.1-1] A packet identifier is not 0."""
        for qos in (1, 2):
            self.refuses(publish(self.version, self.topic("a"), b"x", qos=qos, packetId=0))
        self.refuses(subscribe(self.version, 0, [(self.topic("a"), 0)]))
        self.refuses(unsubscribe(self.version, 0, [self.topic("a")]))

    def test_wildcardInTopicEndsConnection(self) -> None:
        """[MQTT-3.3.2-2] [MQTT-4.7.1-1] A topic name has no wildcards."""
        for name in ("+", "#", "a/+/b", "a/#", "a+", "#a"):
            for qos in (0, 1, 2):
                number = qos or None
                data = publish(self.version, self.topic(name), b"x", qos=qos, packetId=number)
                self.refuses(data, *((0x81, 0x82, 0x90) if self.broker.isForeign else (0x90,)))

    def test_emptyTopicEndsConnection(self) -> None:
        """[MQTT-4.7.3-1] A topic name has at least one character."""
        self.refuses(publish(self.version, "", b"x"), 0x81, 0x82, 0x90)

    def test_topicMustBeUtf8(self) -> None:
        """[MQTT-1.5.3-1] [MQTT-1.5.3-2] [MQTT-3.3.2-1] A topic name is UTF-8 without U+0000."""
        for topic in BAD_TEXTS.values():
            self.refuses(publish(self.version, topic, b"x"), 0x81, 0x82, 0x90)
            self.refuses(publish(self.version, topic, b"x", qos=1, packetId=1), 0x81, 0x82, 0x90)

    def test_filterMustBeUtf8(self) -> None:
        """[MQTT-3.8.3-1] [MQTT-3.10.3-1] So is a topic filter."""
        for text in BAD_TEXTS.values():
            self.refuses(subscribe(self.version, 1, [(text, 0)]), 0x81, 0x82, 0x8F)
            self.refuses(unsubscribe(self.version, 1, [text]), 0x81, 0x82, 0x8F)

    def test_truncatedPacketEndsConnection(self) -> None:
        """Section 2.2.3: fields that do not fit into the remaining length."""
        number = u16(1)
        for data in (
            frame(PUBLISH, 0, b""),
            frame(PUBLISH, 0, b"\0"),
            frame(PUBLISH, 0, b"\0\5abc"),
            frame(PUBLISH, 2, binary("a")),
            frame(PUBLISH, 2, binary("a") + b"\0"),
            frame(PUBACK, 0, b""),
            frame(PUBACK, 0, b"\0"),
            frame(PUBREL, 2, b"\0"),
            frame(SUBSCRIBE, 2, b""),
            frame(SUBSCRIBE, 2, number + self.none + b"\0\1"),
            frame(SUBSCRIBE, 2, number + self.none + binary("a")),
            frame(SUBSCRIBE, 2, number + self.none + binary("a") + b"\0" + b"\0\2b"),
            frame(UNSUBSCRIBE, 2, number + self.none + b"\0\2b"),
        ):
            self.refuses(data, 0x81, 0x82)

    def test_trailingBytesEndConnection(self) -> None:
        """Section 2.2.3: and a remaining length that says more than there is."""
        if self.version == V4:
            self.refuses(frame(DISCONNECT, 0, b"\0"))
        self.notForeign("mosquitto 2.0.11 skips what is too much")
        self.refuses(frame(PINGREQ, 0, b"\0"), 0x81, 0x82)
        if self.version == V4:
            self.refuses(frame(PUBACK, 0, b"\0\1\0"))
            self.refuses(frame(PUBREL, 2, b"\0\1\0"))

    def test_missingFiltersEndConnection(self) -> None:
        """[MQTT-3.8.3-3] [MQTT-3.10.3-2] At least one topic filter."""
        self.refuses(subscribe(self.version, 1, []), 0x81, 0x82)
        self.refuses(unsubscribe(self.version, 1, []), 0x81, 0x82)

    def test_reservedOptionsEndConnection(self) -> None:
        """[MQTT-3.8.3-4] [MQTT5-3.8.3-5] QoS 3 and the reserved bits of the options byte."""
        wrong = (3, 0x40, 0x80, 0xC1) + ((0x30,) if self.version == V5 else (4, 8, 0x10, 0x20))
        for options in wrong:
            data = subscribe(self.version, 1, [(self.topic("a"), options)])
            self.refuses(data, 0x81, 0x82)

    def test_packetsBehindMalformedAreIgnored(self) -> None:
        """[MQTT-4.8.0-1] [MQTT5-4.13.1-1] What follows a malformed packet is not done."""
        watcher = self.client()
        watcher.subscribe(self.topic("#"))
        self.refuses(
            publish(self.version, self.topic("1"), b"x")
            + frame(0, 0, b"")
            + publish(self.version, self.topic("2"), b"x")
        )
        self.client().publish(self.topic("3"), b"x", 1)
        seen = [watcher.message().topic, *(each.topic for each in watcher.settle())]
        # The first may be lost, since the connection failed; the second was never sent.
        self.assertIn(seen, ([self.topic("1"), self.topic("3")], [self.topic("3")]))

    def test_halfPacketLeavesNothing(self) -> None:
        """Section 4.2: a connection that ends in the middle of a packet leaves nothing."""
        watcher = self.client()
        watcher.subscribe(self.topic("#"))
        client = self.client()
        client.send(publish(self.version, self.topic("a"), b"x" * 100)[:-1])
        client.close()
        self.assertNothing(watcher)

    def test_noiseHarmsNoOtherClient(self) -> None:
        """Whatever comes: the connection ends or goes on, and the broker is there for others."""
        random = Random(1883)
        other = self.client()
        for _ in range(100):
            client = self.client()
            kind = random.randrange(256)
            body = random.randbytes(random.randrange(1, 40))
            client.send(bytes([kind, len(body)]) + body + bytes([0, 0]))
            try:
                while True:
                    client.receive()
            except (Closed, AssertionError):
                client.close()
        other.ping()

    def test_noiseBeforeConnectHarmsNoOtherClient(self) -> None:
        """The same before CONNECT."""
        random = Random(5)
        other = self.client()
        for _ in range(100):
            client = self.open()
            client.send(random.randbytes(random.randrange(2, 64)))
            client.close()
        for data in (b"GET / HTTP/1.1\r\n\r\n", b"CONNECT\n\n\0", b"\x16\x03\x01\0\5hello"):
            client = self.open()
            client.send(data + bytes(300))
            client.closes()
        other.ping()


class Malformed5Tests(MalformedTests):
    """
    What both versions have, with 5; and properties, section 2.2.2.
    """

    version = V5

    def test_wrongPropertyLengthEndsConnection(self) -> None:
        """Section 2.2.2.1: a property length that is more than there is, or no number."""
        topic = binary(self.topic("a"))
        self.refuses(frame(PUBLISH, 0, topic + b"\5\1\0"), 0x81, 0x82)
        self.refuses(frame(PUBLISH, 0, topic + b"\xff\xff\xff\xff\xff\1x"), 0x81, 0x82)
        self.refuses(frame(PUBLISH, 0, topic), 0x81, 0x82)
        self.refuses(frame(SUBSCRIBE, 2, u16(1) + b"\x7f" + binary("a") + b"\0"), 0x81, 0x82)

    def test_wrongPublishPropertyEndsConnection(self) -> None:
        """Section 3.3.2.3: properties that may not be there, or not twice."""
        topic = binary(self.topic("a"))
        for items in (
            b"\x11\0\0\0\1",  # session expiry
            b"\x24\1",  # maximum QoS
            b"\1\0\1\0",  # payload format, twice
            b"\2\0\0\0\1\2\0\0\0\1",  # message expiry, twice
            b"\3\0\1a\3\0\1a",  # content type, twice
            b"\x08\0\1a\x08\0\1a",  # response topic, twice
            b"\x09\0\1a\x09\0\1a",  # correlation data, twice
            b"\x23\0\1\x23\0\1",  # topic alias, twice
            b"\x7e\0",  # nobody's
        ):
            body = topic + bytes([len(items)]) + items + b"x"
            self.refuses(frame(PUBLISH, 0, body), 0x81, 0x82)

    def test_responseTopicMustBeTopicName(self) -> None:
        """[MQTT5-3.3.2-13] [MQTT5-3.3.2-14] A response topic is a topic name."""
        values = [b"a\0", b"\xff"]
        # mosquitto 2.0.11 reads it as a text only.
        values += [] if self.broker.isForeign else [b"a/+", b"#"]
        for value in values:
            data = publish(V5, self.topic("a"), b"x", properties_=[("responseTopic", value)])
            self.refuses(data, 0x81, 0x82, 0x90)

    def test_subscriptionIdFromClientEndsConnection(self) -> None:
        """[MQTT5-3.3.4-6] Only a server puts a subscription identifier into PUBLISH."""
        self.notForeign("mosquitto 2.0.11 drops it")
        data = publish(V5, self.topic("a"), b"x", properties_=[("subscriptionId", 1)])
        self.refuses(data, 0x82)

    def test_wrongSubscribePropertyEndsConnection(self) -> None:
        """Section 3.8.2.1: a subscription identifier is not 0, and there is one at most."""
        pairs = [(self.topic("a"), 0)]
        for items in ([("subscriptionId", 0)], [("subscriptionId", 1)] * 2, [("topicAlias", 1)]):
            self.refuses(subscribe(V5, 1, pairs, properties_=items), 0x81, 0x82)

    def test_wrongReasonCodeEndsConnection(self) -> None:
        """Section 2.4: reason codes that a packet does not have."""
        self.notForeign("mosquitto 2.0.11 looks at few of them")
        client = self.client()
        client.subscribe(self.topic("a"), qos=1)
        self.client().publish(self.topic("a"), b"x", 1)
        packet = client.expect(PUBLISH)
        client.send(ack(PUBACK, packet.packetId, 0x05))
        client.closes(0x81, 0x82)
        self.refuses(frame(DISCONNECT, 0, b"\x02"), 0x81, 0x82)
        self.refuses(ack(PUBREL, 1, 0x80), 0x81, 0x82)

    def test_overlongIntegerEndsConnection(self) -> None:
        """[MQTT5-1.5.5-1] A variable byte integer has no more bytes than it needs."""
        self.notForeign("mosquitto 2.0.11 does not mind")
        self.refuses(b"\xc0\x80\x00", 0x81, 0x82)
