"""
The pure parts of the benchmarks of streaming: what they count must be right.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from benchmarks.load import Broken
from benchmarks.wires_old import (
    CYCLE,
    Deliveries,
    mqttFrame,
    mqttPublish,
    mqttPublishing,
    stompPublishing,
)
from svcbroker.carriers.mqtt.decoder import Decoder
from svcbroker.carriers.mqtt.packets import MQTT_311, Publish


class PublishingTests(SynchronousTestCase):
    """
    What is sent, and what acknowledges it.
    """

    def test_frames(self) -> None:
        """All publishes of a cycle are packets, equally long, with identifiers of their own."""
        publishing = mqttPublishing("t")
        decoder = Decoder(1000, MQTT_311)
        packets = decoder.receive(bytes(publishing.frames))
        self.assertIsNone(decoder.error)
        ids = [packet.packetId for packet in packets if isinstance(packet, Publish)]
        self.assertEqual(ids, list(range(1, CYCLE + 1)))
        self.assertEqual(len(publishing.frames), CYCLE * publishing.size)

    def test_pubacks(self) -> None:
        """PUBACKs are taken apart; the rest of one stays; anything else is an error."""
        split = mqttPublishing("t").split
        self.assertEqual(split(b"\x40\2\0\1\x40\2\1\0\x40"), ([0, 255], 8))
        self.assertRaises(Broken, split, b"\x40\2\0\1\x30\2\0\2")

    def test_answers(self) -> None:
        """The acknowledgements told beforehand are those that are taken apart."""
        publishing = mqttPublishing("t")
        numbers, end = publishing.split(publishing.answers)
        self.assertEqual(list(numbers), [*range(CYCLE)] * 2)
        self.assertEqual(end, 2 * CYCLE * publishing.answerSize)

    def test_receipts(self) -> None:
        """RECEIPTs are taken apart; the rest of one stays; anything else is an error."""
        split = stompPublishing("t").split
        receipt = b"RECEIPT\nreceipt-id:%06d\neventId:x\n\n\0"
        both = receipt % 7 + b"\n" + receipt % 8
        self.assertEqual(split(both + b"\nRECEIPT\nrec"), ([7, 8], len(both)))
        self.assertRaises(Broken, split, receipt % 7 + b"ERROR\nmessage:no\n\n\0")


class DeliveriesTests(SynchronousTestCase):
    """
    What a subscriber gets is counted, checked and acknowledged.
    """

    def test_acknowledged(self) -> None:
        """In whatever pieces deliveries come, each is counted and acknowledged once."""
        data = mqttPublish("t", 1, 5) + mqttPublish("t", 1, 770)
        for cut in range(len(data)):
            deliveries = Deliveries("t", 1)
            acknowledged = deliveries.take(data[:cut]) + deliveries.take(data[cut:])
            self.assertEqual(acknowledged, b"\x40\2\0\5\x40\2\3\2")
            self.assertEqual(deliveries.count, 2)

    def test_unacknowledged(self) -> None:
        """With QoS 0 nothing is acknowledged, however much comes at once."""
        deliveries = Deliveries("t", 0)
        self.assertEqual(deliveries.take(mqttPublish("t", 0, 0) * 5000), b"")
        self.assertEqual(deliveries.count, 5000)

    def test_wrong(self) -> None:
        """Anything but what was published is an error."""
        wrong = mqttPublish("t", 1, 5).replace(b"xx", b"xy", 1)
        self.assertRaises(Broken, Deliveries("t", 1).take, wrong)
        self.assertRaises(Broken, Deliveries("t", 0).take, mqttPublish("u", 0, 0))

    def test_frame(self) -> None:
        """The length of a packet has as many bytes as it needs."""
        self.assertEqual(mqttFrame(0x10, b"a" * 127)[:2], b"\x10\x7f")
        self.assertEqual(mqttFrame(0x10, b"a" * 128)[:3], b"\x10\x80\1")
