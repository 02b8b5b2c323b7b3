"""
Packets as bytes: vectors, what is refused, and round trips of everything that can be made.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.mqtt.codec import Decoder, encode, encodeSuccess
from svcbroker.carriers.mqtt.fields import (
    FieldReader,
    Properties,
    ReasonCode,
    encodeVariableByteInteger,
)
from svcbroker.carriers.mqtt.packets import (
    MQTT_5,
    MQTT_311,
    PACKET_TYPES,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    TopicSubscription,
    Unsuback,
    Unsubscribe,
    Will,
)

MAX = 1 << 20

# Bytes as the specifications lay them out, put together by hand.
VECTORS: list[tuple[int, str, Packet]] = [
    (4, "10 0d 0004 4d515454 04 02 003c 0001 61", Connect("a", True, 60, 4)),
    (
        4,
        "10 1e 0004 4d515454 04 f6 0000 0001 61 0001 74 0002 6279 0003 312f75 0003 707764",
        Connect("a", True, 0, 4, Will("t", b"by", 2, True), "1/u", b"pwd"),
    ),
    (
        5,
        "10 13 0004 4d515454 05 00 000a 05 11 0000000a 0001 61",
        Connect("a", False, 10, 5, properties=Properties(sessionExpiryInterval=10)),
    ),
    (
        5,
        "10 19 0004 4d515454 05 06 0000 00 0000 05 18 00000003 0001 74 0001 78",
        Connect("", True, 0, 5, Will("t", b"x", properties=Properties(willDelayInterval=3))),
    ),
    (4, "20 02 01 00", Connack(True)),
    (4, "20 02 00 02", Connack(False, 2)),
    (5, "20 06 00 00 03 21 0014", Connack(properties=Properties(receiveMaximum=20))),
    (4, "30 05 0001 74 6869", Publish("t", b"hi")),
    (4, "3d 07 0001 74 000a 6869", Publish("t", b"hi", 2, True, True, 10)),
    (4, "30 03 0001 74", Publish("t", b"")),
    (5, "30 06 0001 74 00 6869", Publish("t", b"hi")),
    (
        5,
        "32 0b 0001 74 000a 03 23 0001 6869",
        Publish("t", b"hi", 1, packetId=10, properties=Properties(topicAlias=1)),
    ),
    (
        5,
        "30 0d 0001 74 09 01 01 26 0001 61 0001 31",
        Publish(
            "t",
            b"",
            properties=Properties(payloadFormatIndicator=1, userProperties=(("a", "1"),)),
        ),
    ),
    (4, "40 02 000a", Puback(10)),
    (5, "40 02 000a", Puback(10)),
    (5, "40 03 000a 10", Puback(10, 0x10)),
    (5, "40 08 000a 80 04 1f 0001 78", Puback(10, 0x80, Properties(reasonString="x"))),
    (4, "50 02 000a", Pubrec(10)),
    (4, "62 02 000a", Pubrel(10)),
    (5, "62 03 000a 92", Pubrel(10, 0x92)),
    (4, "70 02 000a", Pubcomp(10)),
    (4, "82 06 000a 0001 23 02", Subscribe(10, (TopicSubscription("#", 2),))),
    (
        5,
        "82 09 000a 02 0b 05 0001 23 2d",
        Subscribe(
            10,
            (TopicSubscription("#", 1, True, True, 2),),
            Properties(subscriptionIdentifiers=(5,)),
        ),
    ),
    (4, "90 04 000a 01 80", Suback(10, (1, 0x80))),
    (5, "90 05 000a 00 01 8f", Suback(10, (1, 0x8F))),
    (4, "a2 05 000a 0001 23", Unsubscribe(10, ("#",))),
    (5, "a2 06 000a 00 0001 23", Unsubscribe(10, ("#",))),
    (4, "b0 02 000a", Unsuback(10)),
    (5, "b0 04 000a 00 11", Unsuback(10, (0x11,))),
    (4, "c0 00", Pingreq()),
    (4, "d0 00", Pingresp()),
    (4, "e0 00", Disconnect()),
    (5, "e0 00", Disconnect()),
    (5, "e0 01 04", Disconnect(4)),
    (5, "e0 07 00 05 11 00000001", Disconnect(0, Properties(sessionExpiryInterval=1))),
    (5, "f0 00", Auth()),
    (5, "f0 06 18 04 15 0001 6d", Auth(0x18, Properties(authenticationMethod="m"))),
]

# What must be refused: version, bytes, the reason.
REFUSED: list[tuple[int, str, ReasonCode]] = [
    # CONNECT
    (0, "10 0e 0006 4d5149736470 03 02 003c 0000", ReasonCode.UNSUPPORTED_PROTOCOL_VERSION),
    (0, "10 0c 0004 4d515454 03 02 003c 0000", ReasonCode.UNSUPPORTED_PROTOCOL_VERSION),
    (0, "10 0c 0004 4d515454 06 02 003c 0000", ReasonCode.UNSUPPORTED_PROTOCOL_VERSION),
    (0, "10 0c 0004 4d515454 04 03 003c 0000", ReasonCode.MALFORMED_PACKET),
    (0, "11 0c 0004 4d515454 04 02 003c 0000", ReasonCode.MALFORMED_PACKET),
    (0, "10 0c 0004 4d515454 04 22 003c 0000", ReasonCode.MALFORMED_PACKET),
    (0, "10 0c 0004 4d515454 04 0a 003c 0000", ReasonCode.MALFORMED_PACKET),
    (0, "10 12 0004 4d515454 04 1e 003c 0000 0001 74 0001 78", ReasonCode.MALFORMED_PACKET),
    (0, "10 0f 0004 4d515454 04 42 003c 0000 0001 61", ReasonCode.MALFORMED_PACKET),
    (0, "10 0d 0004 4d515454 04 02 003c 0000 00", ReasonCode.MALFORMED_PACKET),
    (0, "10 0b 0004 4d515454 04 02 003c 00", ReasonCode.MALFORMED_PACKET),
    (0, "10 0e 0004 4d515454 04 02 003c 0002 c080", ReasonCode.MALFORMED_PACKET),
    (0, "10 0f 0004 4d515454 04 02 003c 0003 eda080", ReasonCode.MALFORMED_PACKET),
    (0, "10 0d 0004 4d515454 04 02 003c 0001 00", ReasonCode.MALFORMED_PACKET),
    (0, "10 12 0004 4d515454 04 06 003c 0000 0001 23 0001 78", ReasonCode.TOPIC_NAME_INVALID),
    (0, "10 11 0004 4d515454 04 06 003c 0000 0000 0001 78", ReasonCode.MALFORMED_PACKET),
    (0, "10 10 0004 4d515454 05 02 0000 03 21 0000 0000", ReasonCode.PROTOCOL_ERROR),
    (0, "10 12 0004 4d515454 05 02 0000 05 27 00000000 0000", ReasonCode.PROTOCOL_ERROR),
    (0, "10 0f 0004 4d515454 05 02 0000 02 17 02 0000", ReasonCode.PROTOCOL_ERROR),
    (0, "10 11 0004 4d515454 05 02 0000 04 16 0001 61 0000", ReasonCode.PROTOCOL_ERROR),
    (0, "30 03 0001 74", ReasonCode.PROTOCOL_ERROR),
    (0, "c0 00", ReasonCode.PROTOCOL_ERROR),
    # Fixed header
    (4, "00 00", ReasonCode.MALFORMED_PACKET),
    (4, "f0 00", ReasonCode.MALFORMED_PACKET),
    (5, "f1 00", ReasonCode.MALFORMED_PACKET),
    (4, "c1 00", ReasonCode.MALFORMED_PACKET),
    (4, "c0 01 00", ReasonCode.MALFORMED_PACKET),
    (4, "e1 00", ReasonCode.MALFORMED_PACKET),
    (4, "c0 80 80 80 80 01", ReasonCode.MALFORMED_PACKET),
    (5, "c0 80 00", ReasonCode.MALFORMED_PACKET),
    (4, "30 ff ff ff 7f", ReasonCode.PACKET_TOO_LARGE),
    # PUBLISH
    (4, "36 05 0001 74 0001", ReasonCode.MALFORMED_PACKET),
    (4, "38 03 0001 74", ReasonCode.MALFORMED_PACKET),
    (4, "30 01 00", ReasonCode.MALFORMED_PACKET),
    (4, "30 03 0002 74", ReasonCode.MALFORMED_PACKET),
    (4, "32 04 0001 74 00", ReasonCode.MALFORMED_PACKET),
    (4, "32 05 0001 74 0000", ReasonCode.PROTOCOL_ERROR),
    (4, "30 02 0000", ReasonCode.MALFORMED_PACKET),
    (4, "30 03 0001 2b", ReasonCode.TOPIC_NAME_INVALID),
    (4, "30 05 0003 612f23", ReasonCode.TOPIC_NAME_INVALID),
    (4, "30 03 0001 00", ReasonCode.MALFORMED_PACKET),
    (4, "30 03 0001 ff", ReasonCode.MALFORMED_PACKET),
    (5, "30 03 0001 74", ReasonCode.MALFORMED_PACKET),
    (5, "30 06 0001 74 02 01 02", ReasonCode.PROTOCOL_ERROR),
    (5, "30 08 0001 74 04 01 01 01 01", ReasonCode.PROTOCOL_ERROR),
    (5, "30 07 0001 74 03 21 0001", ReasonCode.MALFORMED_PACKET),
    (5, "30 05 0001 74 01 7f", ReasonCode.MALFORMED_PACKET),
    (5, "30 06 0001 74 05 01 01", ReasonCode.MALFORMED_PACKET),
    (5, "30 08 0001 74 04 08 0001 2b", ReasonCode.PROTOCOL_ERROR),
    (5, "30 06 0001 74 02 0b 00", ReasonCode.PROTOCOL_ERROR),
    # Acknowledgements
    (4, "40 02 0000", ReasonCode.PROTOCOL_ERROR),
    (4, "40 03 0001 00", ReasonCode.MALFORMED_PACKET),
    (4, "42 02 0001", ReasonCode.MALFORMED_PACKET),
    (4, "60 02 0001", ReasonCode.MALFORMED_PACKET),
    (5, "40 03 0001 92", ReasonCode.MALFORMED_PACKET),
    (5, "62 03 0001 80", ReasonCode.MALFORMED_PACKET),
    # SUBSCRIBE and UNSUBSCRIBE
    (4, "80 06 0001 0001 23 00", ReasonCode.MALFORMED_PACKET),
    (4, "82 02 0001", ReasonCode.PROTOCOL_ERROR),
    (4, "82 05 0001 0001 23", ReasonCode.MALFORMED_PACKET),
    (4, "82 06 0001 0001 23 03", ReasonCode.MALFORMED_PACKET),
    (4, "82 06 0001 0001 23 04", ReasonCode.MALFORMED_PACKET),
    (4, "82 06 0000 0001 23 00", ReasonCode.PROTOCOL_ERROR),
    (5, "82 07 0001 00 0001 23 40", ReasonCode.MALFORMED_PACKET),
    (5, "82 07 0001 00 0001 23 30", ReasonCode.PROTOCOL_ERROR),
    (5, "82 0b 0001 04 0b 01 0b 02 0001 23 00", ReasonCode.PROTOCOL_ERROR),
    (4, "a0 05 0001 0001 23", ReasonCode.MALFORMED_PACKET),
    (4, "a2 02 0001", ReasonCode.PROTOCOL_ERROR),
    # DISCONNECT
    (5, "e0 01 01", ReasonCode.MALFORMED_PACKET),
    (4, "e0 01 00", ReasonCode.MALFORMED_PACKET),
]


def unhex(text: str) -> bytes:
    """Bytes from readable hex."""
    return bytes.fromhex(text.replace(" ", ""))


class VectorTests(SynchronousTestCase):
    """
    Each packet type in each version, byte for byte.
    """

    def test_bytesBecomeThePacket(self) -> None:
        """Bytes become the packet."""
        for version, text, packet in VECTORS:
            decoder = Decoder(MAX, 0 if isinstance(packet, Connect) else version)
            self.assertEqual(decoder.receive(unhex(text)), [packet], text)
            self.assertIsNone(decoder.error)

    def test_packetBecomesTheBytes(self) -> None:
        """The packet becomes the bytes."""
        for version, text, packet in VECTORS:
            self.assertEqual(encode(packet, version).hex(), unhex(text).hex())

    def test_everyTypeHasAVector(self) -> None:
        """There is a vector of each type, in each version that has it."""
        for kind in PACKET_TYPES:
            versions = {version for version, _, packet in VECTORS if type(packet) is kind}
            self.assertTrue(versions, kind)

    def test_fastAcknowledgementsAreTheSameBytes(self) -> None:
        """The fast way gives the same bytes."""
        for first, kind in ((0x40, Puback), (0x50, Pubrec), (0x62, Pubrel), (0x70, Pubcomp)):
            for version in (MQTT_311, MQTT_5):
                self.assertEqual(encodeSuccess(first, 777), encode(kind(777), version))

    def test_forbiddenPacketsAreRefused(self) -> None:
        """What the specifications forbid is refused, with their reason."""
        for version, text, reason in REFUSED:
            decoder = Decoder(MAX, version)
            self.assertEqual(decoder.receive(unhex(text)), [], text)
            assert decoder.error is not None, text
            self.assertEqual(decoder.error.reason, reason, f"{text}: {decoder.error}")

    def test_nothingIsReadAfterAnError(self) -> None:
        """Packets before an error are given, none after it."""
        decoder = Decoder(MAX, 4)
        self.assertEqual(decoder.receive(unhex("c000 c000 c100 c000")), [Pingreq(), Pingreq()])
        self.assertIsNotNone(decoder.error)
        self.assertEqual(decoder.receive(unhex("c000")), [])

    def test_topicMayBeEmptyWithAnAlias(self) -> None:
        """In MQTT 5 a topic may be empty; whether there is an alias is for others to say."""
        self.assertEqual(
            Decoder(MAX, 5).receive(unhex("30 06 0000 03 23 0001")),
            [Publish("", b"", properties=Properties(topicAlias=1))],
        )

    def test_byteOrderMarkIsKept(self) -> None:
        """U+FEFF is a character like any other."""
        self.assertEqual(
            Decoder(MAX, 4).receive(unhex("30 05 0003 efbbbf")), [Publish("\ufeff", b"")]
        )


class PieceTests(SynchronousTestCase):
    """
    Packets in pieces.
    """

    def test_packetsMayArriveByteByByte(self) -> None:
        """Byte by byte, everything is the same."""
        for version, text, packet in VECTORS:
            data = encode(packet, version)
            decoder = Decoder(MAX, 0 if isinstance(packet, Connect) else version)
            found: list[Packet] = []
            for byte in data * 2:
                found += decoder.receive(bytes((byte,)))
                if decoder.version and isinstance(packet, Connect) and len(found) == 1:
                    break
            self.assertEqual(found[0], packet, text)
            self.assertEqual(decoder.kept, 0)

    def test_oversizedPacketIsRefusedUnread(self) -> None:
        """A packet of the largest size is taken, one byte more is not, before it is there."""
        largest = encode(Publish("t", b"x" * 95), 4)
        self.assertEqual(len(largest), 100)
        decoder = Decoder(100, 4)
        self.assertEqual(len(decoder.receive(largest)), 1)
        decoder.receive(encode(Publish("t", b"x" * 96), 4)[:2])
        assert decoder.error is not None
        self.assertEqual(decoder.error.reason, ReasonCode.PACKET_TOO_LARGE)

    def test_largePacketIsJoinedOnce(self) -> None:
        """A large packet in many pieces is put together once."""
        data = encode(Publish("t", bytes(1_000_000)), 4)
        decoder = Decoder(2_000_000, 4)
        found: list[Packet] = []
        for start in range(0, len(data), 100):
            found += decoder.receive(data[start : start + 100])
        self.assertEqual(len(found), 1)
        self.assertEqual(decoder.kept, 0)


NOT_TEXT: Final[tuple[Literal["Cs"], ...]] = ("Cs",)
text = st.text(st.characters(exclude_categories=NOT_TEXT, exclude_characters="\0"), max_size=20)
topic = st.text(
    st.characters(exclude_categories=NOT_TEXT, exclude_characters="\0+#"), min_size=1, max_size=20
)
packetId = st.integers(1, 0xFFFF)
u16, u32 = st.integers(0, 0xFFFF), st.integers(0, 0xFFFFFFFF)
user = st.lists(st.tuples(text, text), max_size=3).map(tuple)
switch = st.integers(0, 1)


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A value or none."""
    return st.none() | values


messageProperties: dict[str, st.SearchStrategy[Any]] = {
    "payloadFormatIndicator": maybe(switch),
    "messageExpiryInterval": maybe(u32),
    "contentType": maybe(text),
    "responseTopic": maybe(topic),
    "correlationData": maybe(st.binary(max_size=20)),
    "userProperties": user,
}
reasoned = st.builds(Properties, reasonString=maybe(text), userProperties=user)
published = st.sampled_from([0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99])
released = st.sampled_from([0x00, 0x92])
wills = st.builds(
    Will,
    topic,
    st.binary(max_size=20),
    st.integers(0, 2),
    st.booleans(),
    st.builds(Properties, **messageProperties, willDelayInterval=maybe(u32)),
)
packets: st.SearchStrategy[Packet] = st.one_of(
    st.builds(
        Connect,
        text,
        st.booleans(),
        u16,
        st.just(5),
        maybe(wills),
        maybe(text),
        maybe(st.binary(max_size=20)),
        st.builds(
            Properties,
            sessionExpiryInterval=maybe(u32),
            receiveMaximum=maybe(packetId),
            maximumPacketSize=maybe(st.integers(1, 0xFFFFFFFF)),
            topicAliasMaximum=maybe(u16),
            requestResponseInformation=maybe(switch),
            requestProblemInformation=maybe(switch),
            userProperties=user,
        ),
    ),
    st.builds(
        Connack,
        st.booleans(),
        st.integers(0, 255),
        st.builds(
            Properties,
            sessionExpiryInterval=maybe(u32),
            assignedClientIdentifier=maybe(text),
            serverKeepAlive=maybe(u16),
            maximumQos=maybe(switch),
            retainAvailable=maybe(switch),
            wildcardSubscriptionAvailable=maybe(switch),
            subscriptionIdentifierAvailable=maybe(switch),
            sharedSubscriptionAvailable=maybe(switch),
            responseInformation=maybe(text),
            serverReference=maybe(text),
            reasonString=maybe(text),
        ),
    ),
    st.builds(
        Publish,
        topic,
        st.binary(max_size=300),
        st.just(0),
        st.booleans(),
        properties=st.builds(
            Properties,
            **messageProperties,
            topicAlias=maybe(u16),
            subscriptionIdentifiers=st.lists(st.integers(1, 268435455), max_size=2).map(tuple),
        ),
    ),
    st.builds(
        Publish,
        topic,
        st.binary(max_size=300),
        st.integers(1, 2),
        st.booleans(),
        st.booleans(),
        packetId,
    ),
    st.builds(Puback, packetId, published, reasoned),
    st.builds(Pubrec, packetId, published, reasoned),
    st.builds(Pubrel, packetId, released, reasoned),
    st.builds(Pubcomp, packetId, released, reasoned),
    st.builds(
        Subscribe,
        packetId,
        st.lists(
            st.builds(
                TopicSubscription,
                text,
                st.integers(0, 2),
                st.booleans(),
                st.booleans(),
                st.integers(0, 2),
            ),
            min_size=1,
            max_size=3,
        ).map(tuple),
        st.builds(Properties, userProperties=user),
    ),
    st.builds(Suback, packetId, st.lists(st.integers(0, 255)).map(tuple), reasoned),
    st.builds(
        Unsubscribe,
        packetId,
        st.lists(text, min_size=1, max_size=3).map(tuple),
        st.builds(Properties, userProperties=user),
    ),
    st.builds(Unsuback, packetId, st.lists(st.integers(0, 255)).map(tuple), reasoned),
    st.builds(Pingreq),
    st.builds(Pingresp),
    st.builds(Disconnect, st.sampled_from([0, 4, 0x81, 0x8E]), reasoned),
    st.builds(Auth, st.sampled_from([0, 0x18, 0x19]), reasoned),
)


class PropertyTests(SynchronousTestCase):
    """
    What holds for all packets and all bytes.
    """

    @given(st.lists(packets, max_size=4), st.integers(1, 50))
    def test_encodedIsDecodedAgain(self, sent: list[Packet], size: int) -> None:
        """Whatever is encoded is decoded again, in pieces of any size."""
        data = b"".join(encode(packet, MQTT_5) for packet in sent)
        decoder = Decoder(MAX, MQTT_5)
        found: list[Packet] = []
        for start in range(0, len(data), size):
            found += decoder.receive(data[start : start + size])
        self.assertIsNone(decoder.error)
        self.assertEqual(found, sent)

    @given(st.integers(0, 268_435_455))
    def test_variableByteIntegersRoundTrip(self, value: int) -> None:
        """Numbers of one to four bytes."""
        encoded = encodeVariableByteInteger(value)
        self.assertEqual(FieldReader(encoded, 0, len(encoded)).variableByteInteger(), value)

    @given(st.binary(max_size=200), st.sampled_from([0, 4, 5]))
    def test_anyBytesAreReadOrRefused(self, data: bytes, version: int) -> None:
        """No bytes make it raise, or keep more than a packet."""
        decoder = Decoder(100, version)
        for start in range(0, len(data), 7):
            decoder.receive(data[start : start + 7])
        if decoder.error is None:
            self.assertLessEqual(sum(map(len, decoder._parts)), 100)

    @given(packets, st.data())
    def test_damagedPacketIsReadOrRefused(self, packet: Packet, data: st.DataObject) -> None:
        """A packet with a changed byte is read or refused, never anything else."""
        encoded = bytearray(encode(packet, MQTT_5))
        place = data.draw(st.integers(0, len(encoded) - 1))
        encoded[place] = data.draw(st.integers(0, 255))
        Decoder(MAX, MQTT_5).receive(bytes(encoded))
