"""
Packets that arrive together: gathered, published together, acknowledged together; and frames
that many subscribers get alike.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.mqtt.codec import (
    PUBACK,
    PUBREL,
    Decoder,
    encode,
    encodeSuccess,
    encodeSuccesses,
)
from svcbroker.carriers.mqtt.context import MqttSettings
from svcbroker.carriers.mqtt.delivery import FrameTemplate, makeOptions, messagesOf, templateOf
from svcbroker.carriers.mqtt.fields import Properties, ReasonCode
from svcbroker.carriers.mqtt.messages import ENVELOPE, RETAIN
from svcbroker.carriers.mqtt.packets import (
    MQTT_5,
    MQTT_311,
    Arrival,
    Packet,
    Pingreq,
    Puback,
    Pubacks,
    Pubcomp,
    Publish,
    Publishes,
    PublishRun,
    Pubrec,
    Pubrel,
    Pubrels,
    Will,
)
from svcbroker.interfaces import Batch, submit
from svcbroker.model import CloseTopic, Event, EventId, OpenTopic
from svcbroker.operations import CLOUD_EVENT_EXTENSION

from .support import Client, Server

VERSIONS = (MQTT_311, MQTT_5)


def _run(*packets: Publish) -> PublishRun:
    packetIds = [packet.packetId for packet in packets]
    return PublishRun(packets[0], packetIds, [packet.payload for packet in packets])


def _arrivals(version: int, data: bytes) -> list[Arrival]:
    """What a decoder reads in one call."""
    decoder = Decoder(1000, version)
    decoder.feed(data)
    return decoder.arrivals()


def _count(arrival: Arrival) -> int:
    """How many packets an arrival is."""
    if isinstance(arrival, Publishes):
        return arrival.count
    return len(arrival.packetIds) if isinstance(arrival, Pubacks | Pubrels) else 1


def _publishes(version: int) -> st.SearchStrategy[bytes]:
    """PUBLISH frames of which many are alike, and some are wrong."""
    properties = [Properties(), Properties(contentType="x"), Properties(topicAlias=1)]
    made = st.builds(
        Publish,
        st.sampled_from(["t", "t/u"]),
        st.sampled_from([b"", b"x", b"y", b"y" * 130]),
        st.sampled_from([0, 1, 1, 1, 2]),
        st.booleans(),
        st.just(False),
        st.sampled_from([0, 1, 2, 300]),
        st.sampled_from(properties if version == MQTT_5 else properties[:1]),
    )
    # Among them packet identifiers of zero, which are not allowed.
    return made.map(lambda packet: encode(packet, version))


def _frames(version: int) -> st.SearchStrategy[list[bytes]]:
    others = [
        encode(Pingreq(), version),
        encodeSuccess(PUBACK, 0),
        encodeSuccess(PUBREL, 0),
        b"\x40\x03\0\1\x10",
        b"\x36\0",
    ]
    acknowledgements = st.builds(
        lambda first, count: encodeSuccesses(first, range(1, count + 1)),
        st.sampled_from([PUBACK, PUBREL]),
        st.integers(1, 70),
    )
    alike = st.builds(lambda frame, count: frame * count, _publishes(version), st.integers(1, 5))
    many = st.builds(lambda frame, count: frame * count, _publishes(version), st.integers(60, 140))
    return st.lists(
        st.one_of(alike, alike, alike, many, acknowledgements, st.sampled_from(others)), max_size=8
    )


class RunTests(SynchronousTestCase):
    """
    The decoder of a server.
    """

    def test_consecutivePublishesFormARun(self) -> None:
        """What follows each other stands together, what lies between does not."""
        for version in VERSIONS:
            first = [
                *(Publish("t", b"%d" % n, 1, packetId=n) for n in range(1, 5)),
                *(Publish("t", b"-" * n, 1, packetId=n) for n in range(3)[1:]),
            ]
            last = [
                *(Publish("u", b"%d" % n) for n in range(100)),
                Publish("u", b"xy", 2, packetId=1),
            ]
            data = b"".join(
                [
                    *(encode(packet, version) for packet in first),
                    *(encode(Puback(n), version) for n in (9, 8, 7)),
                    *(encode(Pubrel(n), version) for n in (5, 6)),
                    encode(Pingreq(), version),
                    *(encode(packet, version) for packet in last),
                ]
            )
            self.assertEqual(
                _arrivals(version, data),
                [
                    Publishes([_run(*first)]),
                    Pubacks((9, 8, 7)),
                    Pubrels((5, 6)),
                    Pingreq(),
                    Publishes([_run(*last[:-1]), _run(last[-1])]),
                ],
            )
            self.assertEqual(
                Decoder(1000, version).receive(data),
                [
                    *first,
                    *(Puback(n) for n in (9, 8, 7)),
                    *(Pubrel(n) for n in (5, 6)),
                    Pingreq(),
                    *last,
                ],
            )

    def test_retainedPublishesOfARunAreAllEmptyOrNone(self) -> None:
        """An empty payload removes a retained message: it is not in a run with others."""
        packets = [Publish("t", each, 1, True, packetId=1) for each in (b"", b"", b"x", b"y")]
        data = b"".join(encode(packet, MQTT_311) for packet in packets)
        self.assertEqual(
            _arrivals(MQTT_311, data),
            [Publishes([_run(*packets[:2]), _run(*packets[2:])])],
        )

    def test_packetsAreSplitAnywhere(self) -> None:
        first = [Publish("t", b"%d" % n, 1, packetId=n) for n in (1, 2)]
        last = [Publish("u", b"%d" % n) for n in range(3)]
        both = Publishes([_run(*first), _run(*last)])
        for count, expected in (
            (0, ([], [_run(*first), _run(*last)])),
            (1, ([_run(first[0])], [_run(first[1]), _run(*last)])),
            (2, ([_run(*first)], [_run(*last)])),
            (4, ([_run(*first), _run(*last[:2])], [_run(last[2])])),
            (5, ([_run(*first), _run(*last)], [])),
            (9, ([_run(*first), _run(*last)], [])),
        ):
            self.assertEqual(both.split(count), tuple(map(Publishes, expected)))

    def test_differentPacketWithinARunIsFound(self) -> None:
        """A packet of the size of those before it that has properties, or is malformed."""
        alike = [Publish("t", b"-" * 9, 1, packetId=n) for n in range(1, 101)]
        named = Publish("t", b"-" * 5, 1, packetId=50, properties=Properties(contentType="x"))
        for version, other in (
            *((version, Publish("t", b"-" * 9, 1)) for version in VERSIONS),
            *((version, Publish("t", b"-" * 9, 1, dup=True, packetId=50)) for version in VERSIONS),
            *((version, Publish("u", b"-" * 9, 1, packetId=50)) for version in VERSIONS),
            (MQTT_5, named),
        ):
            packets = [*alike[:49], other, *alike[50:]]
            frames = [encode(packet, version) for packet in packets]
            self.assertEqual(len({len(frame) for frame in frames}), 1)
            decoder = Decoder(1000, version)
            found = decoder.receive(b"".join(frames))
            if other.packetId:
                self.assertEqual(found, packets)
            else:
                self.assertEqual(found, packets[:49])
                self.assertIn("zero", str(decoder.error))

    def test_pubackRunsAreBounded(self) -> None:
        """Of many PUBACKs a bounded number is looked at in one piece; all are there."""
        data = encodeSuccesses(PUBACK, range(1, 1001))
        self.assertEqual(Decoder(1000, MQTT_311).receive(data), [Puback(n) for n in range(1, 1001)])
        self.assertEqual(len(_arrivals(MQTT_311, data)), 16)

    def test_readingStopsAtALimit(self) -> None:
        """Of any kind of packet about so many are read in one call, and all are read in the end."""
        for frame in (
            encode(Pingreq(), MQTT_311),
            encodeSuccess(PUBACK, 1),
            encodeSuccess(PUBREL, 1),
            encode(Publish("t", b"x"), MQTT_311),
            encode(Publish("t", b"x"), MQTT_311) + encode(Publish("u", b"xy"), MQTT_311),
            encode(Publish("t", b"x"), MQTT_311) + encode(Pingreq(), MQTT_311),
        ):
            data = frame * 1000
            whole = Decoder(1000, MQTT_311).receive(data)
            decoder = Decoder(1000, MQTT_311)
            decoder.feed(data[:-1])
            counts = []
            while decoder.hasMore:
                counts.append(sum(map(_count, decoder.arrivals(100))))
            self.assertLess(max(counts), 100 + 64)
            decoder.feed(data[-1:])
            self.assertEqual(sum(counts) + sum(map(_count, decoder.arrivals(100))), len(whole))
            self.assertFalse(decoder.hasMore)
            self.assertEqual(decoder.kept, 0)

    def test_runsEqualSinglePackets(self) -> None:
        """Gathered or one by one, whole or in pieces: the same packets, the same errors."""

        @given(st.data(), st.sampled_from(VERSIONS), st.integers(1, 500))
        def check(data: st.DataObject, version: int, size: int) -> None:
            stream = b"".join(data.draw(_frames(version)))
            joining = Decoder(1000, version)
            found = joining.receive(stream)
            # One frame in a call: nothing is ever alike anything before it.
            single, pieces = Decoder(1000, version), Decoder(1000, version)
            expected: list[Packet] = []
            for place in range(len(stream)):
                expected += single.receive(stream[place : place + 1])
            inPieces: list[Packet] = []
            for start in range(0, len(stream), size):
                inPieces += pieces.receive(stream[start : start + size])
            self.assertEqual(found, expected)
            self.assertEqual(inPieces, expected)
            for decoder in (joining, pieces):
                self.assertEqual(repr(decoder.error), repr(single.error))

        check()

    def test_joinedAcknowledgementsAreTheSameBytes(self) -> None:
        """Several acknowledgements are the same bytes as one after the other."""
        for packetIds in ([1], [1, 2], [65535, 256, 255, 1]):
            self.assertEqual(
                encodeSuccesses(PUBACK, packetIds),
                b"".join(encodeSuccess(PUBACK, packetId) for packetId in packetIds),
            )


class OneReadTests(SynchronousTestCase):
    """
    Publishes of one read.
    """

    def test_refusedPublishIsAnsweredInItsTurn(self) -> None:
        """Each is answered on its own, in order [MQTT5-4.6.0-2] [MQTT5-4.6.0-3]."""
        server = Server(MqttSettings(maxContent=10))
        client = server.connected()
        client.publish("t")
        server.ledger.isHolding = True
        client.send(
            Publish("t", b"a", 1, packetId=1),
            Publish("t", b"x" * 11, 1, packetId=2),
            Publish("t", b"b", 2, packetId=3),
            Publish("t", b"x" * 11, 2, packetId=4),
            Publish("t", b"c", 1, packetId=5),
        )
        self.assertEqual(client.take(), [])
        server.ledger.release()
        done, refused = ReasonCode.SUCCESS, ReasonCode.QUOTA_EXCEEDED
        self.assertEqual(
            [(type(each), each.packetId, each.reason) for each in client.take()],
            [
                (Puback, 1, done),
                (Puback, 2, refused),
                (Pubrec, 3, done),
                (Pubrec, 4, refused),
                (Puback, 5, done),
            ],
        )
        self.assertEqual(server.published(), [b"hello", b"a", b"b", b"c"])

    def test_refusalEnds311ConnectionInOrder(self) -> None:
        """
        What a 3.1.1 client is refused ends its connection: what came before is published, before
        its will, and what comes after is not.
        """
        server = Server(MqttSettings(maxContent=10))
        client = server.connected(version=MQTT_311, will=Will("t", b"will"))
        client.send(
            Publish("t", b"a", 1, packetId=1),
            Publish("t", b"b"),
            Publish("t", b"x" * 11, 1, packetId=2),
            Publish("t", b"c", 1, packetId=3),
        )
        self.assertTrue(client.isClosed)
        self.assertEqual(server.published(), [b"a", b"b", b"will"])

    def test_refusedRetainedMessagesMayBeSentAgain(self) -> None:
        """
        Retained messages with QoS 2 that are alike and are refused together are sent again by a
        3.1.1 client, which is answered then.
        """
        server = Server(MqttSettings(maxRetainedBytes=1))
        client = server.connected("c", MQTT_311, cleanStart=False)
        packets = [Publish("t", b"%d" % n, 2, True, packetId=n) for n in (1, 2, 3)]
        client.send(*packets)
        self.assertTrue(client.isClosed)
        client = server.connected("c", MQTT_311, cleanStart=False)
        client.send(*(Publish("t", each.payload, 2, packetId=each.packetId) for each in packets))
        self.assertEqual(set(client.take()), {Pubrec(n) for n in (1, 2, 3)})
        self.assertEqual(server.published(), [b"1", b"2", b"3"])

    def test_violationEndsConnectionInOrder(self) -> None:
        """A packet that must not come ends the connection after those before it."""
        server = Server()
        client = server.connected()
        client.send(Publish("t", b"a"), Publish("", b"b"), Publish("t", b"c"))
        self.assertEqual(client.reasonOfEnd(), ReasonCode.PROTOCOL_ERROR)
        self.assertEqual(server.published(), [b"a"])

    def test_closedTopicIsOpenedAgainOnce(self) -> None:
        """A topic that was closed is opened again once, for all that were on their way to it."""
        server = Server()
        client = server.connected()
        client.publish("t")
        client.publish("u")
        server.ledger.isHolding = True
        submit(server.ledger, CloseTopic(topic="t"))
        server.ledger.submitted.clear()
        client.send(
            *(Publish("tu"[n % 2], b"%d" % n, 1, packetId=n) for n in range(1, 7)),
        )
        server.ledger.isHolding = False
        server.ledger.release()
        self.assertEqual(client.take(), [Puback(n) for n in range(1, 7)])
        self.assertEqual(server.published(), [b"%d" % n for n in (1, 2, 3, 4, 5, 6, 2, 4, 6)])
        opened = [each for each in server.ledger.submitted if isinstance(each, OpenTopic)]
        self.assertEqual(opened, [OpenTopic(topic="t")])

    def test_newTopicIsOpenedOnce(self) -> None:
        """A new topic is opened once for all messages of one read."""
        server = Server()
        client = server.connected()
        client.send(*(Publish("new", b"%d" % n) for n in range(5)))
        self.assertEqual([type(each) for each in server.ledger.submitted].count(OpenTopic), 1)

    def test_repeatedQos2IsPublishedOnce(self) -> None:
        """A message with QoS 2 that comes twice in one read is published once."""
        for version in VERSIONS:
            server = Server()
            client = server.connected(version=version)
            client.publish("t")
            first = Publish("t", b"x", 2, packetId=9)
            again = Publish("t", b"x", 2, dup=True, packetId=9)
            client.send(first, again, Publish("t", b"y", 1, packetId=1))
            self.assertEqual(set(client.take()), {Pubrec(9), Puback(1)})
            self.assertEqual(server.published(), [b"hello", b"x", b"y"])

    def test_exchangesOfOneReadAreCompleted(self) -> None:
        """PUBRELs that arrive together are answered one by one, unknown ones in MQTT 5 as such."""
        unknown = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
        for version, reason in ((MQTT_311, ReasonCode.SUCCESS), (MQTT_5, unknown)):
            server = Server(MqttSettings(receiveMaximum=3))
            client = server.connected(version=version)
            client.publish("t")
            for _ in range(2):
                client.send(*(Publish("t", b"x", 2, packetId=n) for n in (1, 2, 3)))
                self.assertEqual(client.take(), [Pubrec(n) for n in (1, 2, 3)])
                client.send(*(Pubrel(n) for n in (1, 2, 3)))
                self.assertEqual(client.take(), [Pubcomp(n) for n in (1, 2, 3)])
            client.send(Publish("t", b"x", 2, packetId=1))
            client.take()
            client.send(Pubrel(7), Pubrel(1), Pubrel(1))
            self.assertEqual(client.take(), [Pubcomp(7, reason), Pubcomp(1), Pubcomp(1, reason)])

    def test_receiveMaximumHoldsWithinOneRead(self) -> None:
        """More than Receive Maximum in one read ends the connection; what it allows is taken."""
        server = Server(MqttSettings(receiveMaximum=3))
        client = server.connected()
        server.ledger.isHolding = True
        client.send(*(Publish("t", b"%d" % n, 1, packetId=n) for n in range(1, 6)))
        self.assertEqual(client.reasonOfEnd(), ReasonCode.RECEIVE_MAXIMUM_EXCEEDED)
        server.ledger.release()
        self.assertEqual(server.published(), [b"1", b"2", b"3"])


class TemplateTests(SynchronousTestCase):
    """
    Frames of one batch for several subscribers.
    """

    def subscribers(self, server: Server, count: int, version: int) -> list[Client]:
        """Clients that subscribe with QoS 1."""
        clients = [server.connected(f"c{number}", version) for number in range(count)]
        for client in clients:
            client.subscribe("t", 1)
            client.take()
        return clients

    def test_subscribersShareTheBytes(self) -> None:
        """Who gets the same, with identifiers free everywhere, gets the very same bytes."""
        for version in VERSIONS:
            server = Server()
            clients = self.subscribers(server, 3, version)
            for client in clients:
                client.transport.writes.clear()
            server.event("t", b"x")
            (first,), *others = (client.transport.writes for client in clients)
            for (other,) in others:
                self.assertIs(other, first)

    def test_framesOfABatchAreThoseOfSingleEvents(self) -> None:
        """Other events of its batch change neither the message nor the frame of an event."""
        qos1, retained = {ENVELOPE: '{"v":1,"q":1}'}, {RETAIN: "1"}
        attributes = '{"id":"1","source":"s","type":"t","datacontenttype":"text/plain"}'
        structured = {ENVELOPE: '{"v":1,"s":true}', CLOUD_EVENT_EXTENSION: attributes}
        rows = [
            ("t", {}, (b"a", b"b", b"cd", b"e" * 120, b"f" * 120, b"g" * 125, b"h" * 300)),
            ("t", qos1, (b"a", b"b")),
            ("u", qos1, (b"a", b"b")),
            ("u", retained, (b"a", b"b")),
            ("u", structured, (b"a", b"b", b"")),
            ("u", {}, (b"a", b"")),
        ]
        events = [
            Event(
                topic=topic, content=content, extensions=extensions, eventId=EventId("0" * 8, 1, 1)
            )
            for topic, extensions, contents in rows
            for content in contents
        ]
        for version, qos in itertools.product(VERSIONS, range(3)):
            batch, options = Batch(events, 0), makeOptions(version, qos, True, (), False, None)
            singles = [Batch([event], 0) for event in events]
            messages = [message for each in singles for message in messagesOf(each, version, None)]
            self.assertEqual(messagesOf(batch, version, None), messages)
            frames = [templateOf(each, options) for each in singles]
            template = templateOf(batch, options)
            assert template is not None
            self.assertEqual(template.filled(7), self.joined(frames, 7))
            self.assertEqual(template.size, sum(each.size for each in frames if each is not None))

    def joined(self, templates: Iterable[FrameTemplate | None], first: int) -> bytes:
        """The frames of templates of one event each, with consecutive packet identifiers."""
        data = b""
        for each in templates:
            assert each is not None
            data += each.filled(first)
            first += len(each.sent)
        return data

    def test_usedIdentifierIsSkipped(self) -> None:
        """Where an identifier is in use, another is taken; each can be acknowledged."""
        server = Server()
        clients = self.subscribers(server, 3, MQTT_311)
        # The second one has not acknowledged 1 when the others begin with it again.
        server.event("t", b"first")
        for number, client in enumerate(clients):
            (message,) = client.take()
            if number != 1:
                client.send(Puback(message.packetId))
            session = server.carrier.sessions.find("1", f"c{number}")
            assert session is not None and session.delivery is not None
            session.delivery._window._lastId = 0
        server.event("t", b"second")
        messages = [client.take() for client in clients]
        self.assertEqual([[each.packetId for each in some] for some in messages], [[1], [2], [1]])
        self.assertEqual({each.payload for some in messages for each in some}, {b"second"})

    def test_identifiersWrapWithinABatch(self) -> None:
        """A batch whose identifiers go round the end of their numbers is acknowledged whole."""
        server = Server()
        (client,) = self.subscribers(server, 1, MQTT_311)
        session = server.carrier.sessions.find("1", "c0")
        assert session is not None and session.delivery is not None
        window = session.delivery._window
        event = Event(topic="t", content=b"abc", extensions={}, eventId=EventId("00000000", 9, 1))
        [reader] = session.readers.values()
        window._lastId = 65533
        session.delivery.deliver(reader, Batch([event] * 4, 0))
        packetIds = [65534, 65535, 1, 2]
        self.assertEqual(
            client.take(), [Publish("t", b"abc", 1, packetId=packetId) for packetId in packetIds]
        )
        self.assertEqual(window._bytes.size, 12)
        client.send(*map(Puback, packetIds))
        self.assertEqual((window.all(), window._bytes.size), ({}, 0))
