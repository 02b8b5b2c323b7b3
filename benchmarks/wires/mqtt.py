"""
MQTT 3.1.1, which all brokers know; and MQTT 5 for the replay, which asks for an offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from socket import socket

from ..loader import Load, Protocol
from .talk import CONTENT, ask

CYCLE = 4096
"""After so many publishes of a connection its packet identifiers come again."""
MQTT_311 = 4
MQTT_5 = 5
FAN_WINDOW = 64
"""How many publishes of a fan-out are under way."""
FAN_LEAD = 1024
"""How far the slowest subscriber of a fan-out may be behind."""


def frame(first: int, *parts: bytes) -> bytes:
    """A control packet."""
    body = b"".join(parts)
    length = len(body)
    encoded = bytearray((first,))
    while length >= 0x80:
        encoded.append(length & 0x7F | 0x80)
        length >>= 7
    encoded.append(length)
    return bytes(encoded) + body


def text(words: str) -> bytes:
    """A string with its length."""
    return len(words).to_bytes(2, "big") + words.encode("ascii")


def connectPacket(clientId: str = "", version: int = MQTT_311, login: Sequence[str] = ()) -> bytes:
    """
    A CONNECT without a keep-alive, for a session that ends with the connection.

    @param login: the account's name and its password, where there are accounts.
    """
    properties = b"\0" if version == MQTT_5 else b""
    flags = 0xC2 if login else 2
    fields = (text("MQTT"), bytes((version, flags, 0, 0)), properties, text(clientId))
    return frame(0x10, *fields, *map(text, login))


def replayPacket(topicFilter: str) -> bytes:
    """A SUBSCRIBE in MQTT 5, with QoS 0, from the beginning of the log."""
    properties = b"\x26" + text("svc-offset") + text("OFFSET_FIRST")
    length = bytes((len(properties),))
    return frame(0x82, b"\0\1", length, properties, text(topicFilter), b"\0")


def publishPacket(topic: str, qos: int, packetId: int) -> bytes:
    """A PUBLISH in 3.1.1."""
    identifier = packetId.to_bytes(2, "big") if qos else b""
    return frame(0x30 | qos << 1, text(topic), identifier, CONTENT)


def greet(opened: socket, clientId: str = "", login: Sequence[str] = ()) -> None:
    """
    Begin a connection in 3.1.1.

    @raise Broken: it is refused.
    """
    ask(opened, connectPacket(clientId, login=login), b"\x20\x02\x00\x00")


def subscribe(opened: socket, topicFilter: str, qos: int) -> None:
    """
    Subscribe in 3.1.1.

    @raise Broken: it is refused.
    """
    packet = frame(0x82, b"\0\1", text(topicFilter), bytes((qos,)))
    ask(opened, packet, bytes((0x90, 3, 0, 1, qos)))


def publishes(topic: str, window: int, login: Sequence[str] = ()) -> Load:
    """Publishes with QoS 1."""
    frames = [publishPacket(topic, 1, packetId) for packetId in range(1, CYCLE + 1)]
    return Load(
        protocol=Protocol.MQTT,
        frames=lambda number: frames,
        window=window,
        greet=lambda opened, number: greet(opened, login=login),
    )


def fanOut(topic: str, qos: int, window: int = FAN_WINDOW) -> Load:
    """
    The first connection publishes with QoS 1, all others subscribe. Events are deliveries;
    latencies are those from a publish to a delivery.
    """
    frames = [publishPacket(topic, 1, packetId) for packetId in range(1, CYCLE + 1)]
    delivery = publishPacket(topic, qos, 0)

    def begin(opened: socket, number: int) -> None:
        greet(opened)
        if number:
            subscribe(opened, topic, qos)

    return Load(
        protocol=Protocol.FAN,
        frames=lambda number: frames,
        window=window,
        greet=begin,
        wanted=delivery,
        lead=FAN_LEAD,
        place=delivery.index(text(topic)) + 2 + len(topic) if qos else 0,
    )
