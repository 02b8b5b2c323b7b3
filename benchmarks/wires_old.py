"""
What goes over the wire in the measurements of streaming, encoded beforehand, and how answers are
checked without being taken apart one by one.

All brokers are spoken to in MQTT 3.1.1, which all of them know, apart from the replay, which
asks for an offset with a user property of MQTT 5.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from attrs import frozen

from .load import Broken

CONTENT = b"x" * 300
"""What is published."""

CYCLE = 4096
"""After so many publishes of a connection its packet identifiers or receipts come again."""

_REPEATED = 2048
_RECEIPT_ID = re.compile(rb"receipt-id:([0-9]{6})\n")
MQTT_311 = 4
MQTT_5 = 5


@frozen(kw_only=True)
class Publishing:
    """
    How one protocol publishes: frames that are all equally long, and their acknowledgements.

    @ivar hello: what a connection begins with.
    @ivar welcome: what the answer to it begins with.
    @ivar end: what that ends with.
    @ivar frames: L{CYCLE} publishes, one after the other.
    @ivar size: the size of one.
    @ivar answers: the acknowledgements of these, in order and twice, where they can be told
        beforehand: they are not taken apart then.
    @ivar answerSize: the size of one.
    @ivar split: takes acknowledgements off the front of what was received: the numbers of the
        publishes that they acknowledge, from 0, and how many bytes they had.
    """

    hello: bytes
    welcome: bytes
    end: bytes = b""
    frames: memoryview
    size: int
    answers: bytes = b""
    answerSize: int = 1
    split: Callable[[bytes], tuple[Sequence[int], int]]


def mqttFrame(first: int, *parts: bytes) -> bytes:
    """A control packet."""
    body = b"".join(parts)
    length = len(body)
    encoded = bytearray((first,))
    while length >= 0x80:
        encoded.append(length & 0x7F | 0x80)
        length >>= 7
    encoded.append(length)
    return bytes(encoded) + body


def mqttText(text: str) -> bytes:
    """A string with its length."""
    return len(text).to_bytes(2, "big") + text.encode("ascii")


def mqttConnect(clientId: str, version: int = MQTT_311) -> bytes:
    """A CONNECT without a keep-alive, for a session that ends with the connection."""
    properties = b"\0" if version == MQTT_5 else b""
    return mqttFrame(
        0x10, mqttText("MQTT"), bytes((version, 2, 0, 0)), properties, mqttText(clientId)
    )


def mqttSubscribe(topicFilter: str, qos: int) -> bytes:
    """A SUBSCRIBE in 3.1.1."""
    return mqttFrame(0x82, b"\0\1", mqttText(topicFilter), bytes((qos,)))


def mqttReplay(topicFilter: str) -> bytes:
    """A SUBSCRIBE in MQTT 5, with QoS 0, from the beginning of the log."""
    properties = b"\x26" + mqttText("svc-offset") + mqttText("OFFSET_FIRST")
    length = bytes((len(properties),))
    return mqttFrame(0x82, b"\0\1", length, properties, mqttText(topicFilter), b"\0")


def mqttPublish(topic: str, qos: int, packetId: int) -> bytes:
    """A PUBLISH in 3.1.1."""
    identifier = packetId.to_bytes(2, "big") if qos else b""
    return mqttFrame(0x30 | qos << 1, mqttText(topic), identifier, CONTENT)


def mqttPublishing(topic: str) -> Publishing:
    """Publishes with QoS 1."""
    frames = [mqttPublish(topic, 1, packetId) for packetId in range(1, CYCLE + 1)]

    def split(received: bytes) -> tuple[Sequence[int], int]:
        count = len(received) // 4
        if received[0 : count * 4 : 4].strip(b"\x40") or received[1 : count * 4 : 4].strip(b"\2"):
            raise Broken(f"not only PUBACKs: {received[:100]!r}")
        high, low = received[2 : count * 4 : 4], received[3 : count * 4 : 4]
        return [(one << 8 | two) - 1 for one, two in zip(high, low, strict=True)], count * 4

    return Publishing(
        hello=mqttConnect(""),
        welcome=b"\x20\x02\x00\x00",
        frames=memoryview(b"".join(frames)),
        size=len(frames[0]),
        answers=b"".join(b"\x40\2" + each.to_bytes(2, "big") for each in range(1, CYCLE + 1)) * 2,
        answerSize=4,
        split=split,
    )


def stompPublishing(destination: str) -> Publishing:
    """SENDs with a receipt, persistent where the broker knows a difference."""
    head = b"SEND\ndestination:%b\npersistent:true\nreceipt:%06d\ncontent-length:%d\n\n%b\0"
    frames = [
        head % (destination.encode("ascii"), number, len(CONTENT), CONTENT)
        for number in range(CYCLE)
    ]

    def split(received: bytes) -> tuple[Sequence[int], int]:
        end = received.rfind(b"\0") + 1
        whole = received[:end]
        numbers = [int(number) for number in _RECEIPT_ID.findall(whole)]
        if not whole.count(b"RECEIPT\n") == len(numbers) == whole.count(b"\0"):
            raise Broken(f"not only receipts: {received[:300]!r}")
        return numbers, end

    return Publishing(
        hello=b"CONNECT\naccept-version:1.2\nhost:/\nheart-beat:0,0\n\n\0",
        welcome=b"CONNECTED\n",
        end=b"\0",
        frames=memoryview(b"".join(frames)),
        size=len(frames[0]),
        split=split,
    )


class Deliveries:
    """
    What one subscriber gets: the same PUBLISH over and over, with other packet identifiers.

    @ivar count: how many it got.
    """

    def __init__(self, topic: str, qos: int) -> None:
        frame = mqttPublish(topic, qos, 0)
        self.count = 0
        self._qos = qos
        self._size = len(frame)
        self._place = 5 + len(topic)  # of the packet identifier: two bytes of length are two
        self._expected = frame * _REPEATED
        self._rest = b""

    def take(self, received: bytes) -> bytes:
        """
        Count and check what has arrived.

        @return: what acknowledges it.
        @raise Broken: it is not what was published.
        """
        data = self._rest + received if self._rest else received
        count = len(data) // self._size
        whole = count * self._size
        self._rest = data[whole:]
        self.count += count
        acknowledgement = b""
        if self._qos:
            frames = bytearray(data[:whole])
            high, low = self._place, self._place + 1
            acknowledgement = _pubacks(frames[high :: self._size], frames[low :: self._size])
            frames[high :: self._size] = frames[low :: self._size] = bytes(count)
        else:
            frames = bytearray(data[:whole])
        for start in range(0, whole, len(self._expected)):
            part = frames[start : start + len(self._expected)]
            if not self._expected.startswith(part):
                raise Broken(f"a delivery is not what was published: {part[:400]!r}")
        return acknowledgement


def _pubacks(high: bytearray, low: bytearray) -> bytes:
    count = len(high)
    encoded = bytearray(4 * count)
    encoded[0::4], encoded[1::4] = b"\x40" * count, b"\2" * count
    encoded[2::4], encoded[3::4] = high, low
    return bytes(encoded)
