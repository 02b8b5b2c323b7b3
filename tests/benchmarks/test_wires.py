"""
Tests for L{benchmarks.wires}: requests conform to our parsers or to the specification.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import closing
from socket import socket, socketpair
from urllib.parse import parse_qs

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from benchmarks.wires import amqp, http, mqtt, nats, resp, stomp
from benchmarks.wires.talk import CONTENT, ask, readExactly
from svcbroker.carriers.mqtt.codec import Decoder
from svcbroker.carriers.mqtt.packets import MQTT_311, Publish
from svcbroker.commands.bench import Broken, packet, publishPacket


class HttpTests(SynchronousTestCase):
    """
    Requests of HTTP.
    """

    def test_postHasFormOfDeclaredLength(self) -> None:
        """A publish by POST has its fields in a form of the length that it says."""
        head, _, body = http.postForm().frames(0)[0].partition(b"\r\n\r\n")
        self.assertTrue(head.startswith(b"POST /svcbroker/rest/publish HTTP/1.1\r\n"))
        self.assertTrue(head.endswith(b"\r\nContent-Length: %d" % len(body)))
        self.assertEqual(parse_qs(body), {b"topic": [b"bench"], b"content": [CONTENT]})

    def test_getHasFieldsInQuery(self) -> None:
        """A publish by GET has the same in its query."""
        target = http.getQuery().frames(0)[0].split(b" ")[1]
        self.assertEqual(parse_qs(target.partition(b"?")[2])[b"content"], [CONTENT])

    def test_batchHasCallsThatAreCounted(self) -> None:
        """A batch has as many calls as are counted; a call alone is no batch."""
        load = http.rpc(3)
        calls = msgspec.json.decode(load.frames(0)[0].partition(b"\r\n\r\n")[2])
        self.assertEqual([call["id"] for call in calls], ["0", "1", "2"])
        self.assertEqual((load.events, load.wantedTimes), (3, 3))
        self.assertEqual(msgspec.json.decode(http.rpcText(None))["method"], "publish")

    def test_eventsAreReadInTurn(self) -> None:
        """Events are read one after the other."""
        asked = http.getEvent(["a", "b"]).frames(0)
        self.assertEqual([b"eventId=a " in each for each in asked], [True, False])


class MqttTests(SynchronousTestCase):
    """
    Packets of MQTT.
    """

    def test_mqttPublishesHaveOwnPacketIds(self) -> None:
        """All publishes of a cycle are packets, with identifiers of their own."""
        decoder = Decoder(1000, MQTT_311)
        packets = decoder.receive(b"".join(mqtt.publishes("t", 1).frames(0)))
        self.assertIsNone(decoder.error)
        ids = [packet.packetId for packet in packets if isinstance(packet, Publish)]
        self.assertEqual(ids, list(range(1, mqtt.CYCLE + 1)))

    def test_fanOutPlaceIsThePacketId(self) -> None:
        """The packet identifier of a delivery is where the load program looks for it."""
        for topic in ("t", "much/longer/" * 20):
            load = mqtt.fanOut(topic, 1)
            differing = publishPacket(topic, 1, 0xFFFF, CONTENT)
            places = [
                place
                for place, pair in enumerate(zip(load.wanted, differing, strict=True))
                if pair[0] != pair[1]
            ]
            self.assertEqual(places, [load.place, load.place + 1])
        self.assertEqual(mqtt.fanOut("t", 0).place, 0)

    def test_mqttLengthUsesFewestBytes(self) -> None:
        """The length of a packet has as many bytes as it needs."""
        self.assertEqual(packet(0x10, b"a" * 127)[:2], b"\x10\x7f")
        self.assertEqual(packet(0x10, b"a" * 128)[:3], b"\x10\x80\1")


class FrameTests(SynchronousTestCase):
    """
    Frames of the others.
    """

    def test_sendHasReceiptAndContentLength(self) -> None:
        """A SEND has a receipt of its own, and the length of its content."""
        frames = stomp.publishes("/queue/q", 1).frames(0)
        head, _, body = frames[7].partition(b"\n\n")
        self.assertEqual(body, CONTENT + b"\0")
        self.assertEqual(
            head.split(b"\n"),
            [
                b"SEND",
                b"destination:/queue/q",
                b"persistent:true",
                b"receipt:000007",
                b"content-length:300",
            ],
        )
        self.assertEqual(len(set(frames)), stomp.CYCLE)

    def test_commandIsArrayOfBulkStrings(self) -> None:
        """A command is an array of bulk strings."""
        self.assertEqual(resp.command(b"A", b"bc"), b"*2\r\n$1\r\nA\r\n$2\r\nbc\r\n")

    def test_publishHasInboxOfConnectionAndNumber(self) -> None:
        """A publish has an inbox of its connection and its number."""
        load = nats.publishes("s", 3)
        self.assertEqual(load.frames(5)[2], b"PUB s _INBOX.bench.5.2 300\r\n" + CONTENT + b"\r\n")

    def test_publishIsMethodHeaderAndBody(self) -> None:
        """A publish is a method, a header that says it is persistent, and a body."""
        data = amqp.publishes("q", 1).frames(0)[0]
        frames = []
        while data:
            kind, channel, size = struct.unpack_from(">BHI", data)
            self.assertEqual((channel, data[7 + size : 8 + size]), (1, b"\xce"))
            frames.append((kind, data[7 : 7 + size]))
            data = data[8 + size :]
        self.assertEqual([kind for kind, _ in frames], [1, 2, 3])
        self.assertEqual(frames[0][1], b"\0\x3c\0\x28\0\0\0\1q\0")
        self.assertEqual(frames[1][1], struct.pack(">HHQHB", 60, 0, 300, 0x1000, 2))
        self.assertEqual(frames[2][1], CONTENT)


class TalkTests(SynchronousTestCase):
    """
    Questions before and after a load.
    """

    def talk(self, answers: bytes, question: Callable[[socket], object]) -> object:
        """Ask a server that has already answered."""
        ours, theirs = socketpair()
        with closing(ours), closing(theirs):
            theirs.sendall(answers)
            ours.settimeout(10)
            return question(ours)

    def test_answerIsReadToItsEnd(self) -> None:
        """An answer is read to its end."""
        found = self.talk(b"CONNECTED\nx:y\n\n\0\n", lambda end: ask(end, b"?", b"CON", b"\0"))
        self.assertEqual(found, b"CONNECTED\nx:y\n\n\0\n")

    def test_otherAnswerIsAnError(self) -> None:
        """Another answer is an error as soon as it differs."""
        for question in (
            lambda end: ask(end, b"?", b"+OK\r\n"),
            lambda end: amqp.expect(end, amqp.OPEN_OK),
        ):
            answer = amqp.method(0, (10, 50)) + b"\0" * 20
            self.assertRaises(Broken, self.talk, answer, question)

    def test_expectReturnsArguments(self) -> None:
        """The arguments of a method."""
        data = amqp.method(0, amqp.TUNE, b"arguments")
        self.assertEqual(self.talk(data, lambda end: amqp.expect(end, amqp.TUNE)), b"arguments")

    def test_closedConnectionIsAnError(self) -> None:
        """A connection that ends before all is there is an error."""
        ours, theirs = socketpair()
        theirs.sendall(b"ab")
        theirs.close()
        with closing(ours):
            self.assertRaises(Broken, readExactly, ours, 3)
