"""
STOMP 1.2.
"""

from __future__ import annotations

from socket import socket

from svcbroker.commands.bench import connectFrame, sendFrame

from ..loader import Load, Protocol
from .talk import CONTENT, ask

CYCLE = 4096
"""After so many publishes of a connection its receipts come again."""


def publishes(destination: str, window: int) -> Load:
    """Publishes with receipts."""
    frames = [sendFrame(destination, number, CONTENT) for number in range(CYCLE)]

    def greet(opened: socket, number: int) -> None:
        ask(opened, connectFrame(), b"CONNECTED\n", b"\0")

    return Load(protocol=Protocol.STOMP, frames=lambda number: frames, window=window, greet=greet)
