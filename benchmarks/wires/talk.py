"""
Questions and answers on a connection that blocks.
"""

from __future__ import annotations

from socket import socket

from ..load import Broken

CONTENT = b"x" * 300
"""What is published: 300 bytes, which need no escapes anywhere."""

_READ_SIZE = 1 << 16
_MOST = 1 << 20


def ask(opened: socket, request: bytes, start: bytes, end: bytes = b"") -> bytes:
    """
    Send something, and wait for its answer.

    @param start: what the answer begins with.
    @param end: what it is whole with.
    @return: the answer.
    @raise Broken: something else was answered, or nothing.
    """
    opened.sendall(request)
    received = b""
    while len(received) < len(start) or end not in received:
        received += read(opened)
        if not start.startswith(received[: len(start)]) or len(received) > _MOST:
            raise Broken(f"not {start!r}, but {received[:300]!r}")
    return received


def read(opened: socket) -> bytes:
    """
    What has come, at least one byte.

    @raise Broken: the connection ends.
    """
    data = opened.recv(_READ_SIZE)
    if not data:
        raise Broken("the server has closed a connection")
    return data


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
