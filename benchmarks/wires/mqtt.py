"""
MQTT 3.1.1, which all brokers know; and MQTT 5 for the replay, which asks for an offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from socket import socket

from svcbroker.commands.bench import greet, packet, publishPacket, text

from ..loader import Load, Protocol
from .talk import CONTENT, ask

CYCLE = 4096
"""After so many publishes of a connection its packet identifiers come again."""
FAN_WINDOW = 64
"""How many publishes of a fan-out are under way."""
FAN_LEAD = 1024
"""How far the slowest subscriber of a fan-out may be behind."""


def replayPacket(topicFilter: str) -> bytes:
    """A SUBSCRIBE in MQTT 5, with QoS 0, from the beginning of the log."""
    properties = b"\x26" + text("svc-offset") + text("OFFSET_FIRST")
    length = bytes((len(properties),))
    return packet(0x82, b"\0\1", length, properties, text(topicFilter), b"\0")


def subscribe(opened: socket, topicFilter: str, qos: int) -> None:
    """
    Subscribe in 3.1.1.

    @raise Broken: it is refused.
    """
    asked = packet(0x82, b"\0\1", text(topicFilter), bytes((qos,)))
    ask(opened, asked, bytes((0x90, 3, 0, 1, qos)))


def publishes(topic: str, window: int, login: Sequence[str] = ()) -> Load:
    """Publishes with QoS 1."""
    frames = [publishPacket(topic, 1, packetId, CONTENT) for packetId in range(1, CYCLE + 1)]
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
    frames = [publishPacket(topic, 1, packetId, CONTENT) for packetId in range(1, CYCLE + 1)]
    delivery = publishPacket(topic, qos, 0, CONTENT)

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
