"""
Questions and answers on a connection that blocks.
"""

from __future__ import annotations

from socket import socket

from svcbroker.commands.bench import Broken, ask, read

__all__ = ["CONTENT", "ask", "read", "readExactly"]

CONTENT = b"x" * 300
"""What is published: 300 bytes, which need no escapes anywhere."""


def readExactly(opened: socket, count: int) -> bytes:
    """
    So many bytes.

    @raise Broken: the connection ends before.
    """
    received = b""
    while len(received) < count:
        data = opened.recv(count - len(received))
        if not data:
            raise Broken("the server has closed a connection")
        received += data
    return received
