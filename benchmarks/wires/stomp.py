"""
STOMP 1.2.
"""

from __future__ import annotations

from socket import socket

from ..loader import Load, Protocol
from .talk import CONTENT, ask

CYCLE = 4096
"""After so many publishes of a connection its receipts come again."""
_HELLO = b"CONNECT\naccept-version:1.2\nhost:/\nheart-beat:0,0\n\n\0"


def sendFrame(destination: str, number: int) -> bytes:
    """A SEND with a receipt, persistent where the broker knows a difference."""
    return b"SEND\ndestination:%b\npersistent:true\nreceipt:%06d\ncontent-length:%d\n\n%b\0" % (
        destination.encode("ascii"),
        number,
        len(CONTENT),
        CONTENT,
    )


def publishes(destination: str, window: int) -> Load:
    """Publishes with receipts."""
    frames = [sendFrame(destination, number) for number in range(CYCLE)]

    def greet(opened: socket, number: int) -> None:
        ask(opened, _HELLO, b"CONNECTED\n", b"\0")

    return Load(protocol=Protocol.STOMP, frames=lambda number: frames, window=window, greet=greet)
