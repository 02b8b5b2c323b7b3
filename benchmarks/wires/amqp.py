"""
AMQP 0-9-1: as much as a publisher needs that wants confirms, and to look after a queue.
"""

from __future__ import annotations

import struct
from socket import socket
from types import TracebackType

from svcbroker.commands.bench import Broken

from ..loader import Load, Protocol, connect
from .talk import CONTENT, readExactly

_METHOD, _HEADER, _BODY, _END = 1, 2, 3, b"\xce"
_CHANNEL = 1
_PERSISTENT = 2
_HAS_DELIVERY_MODE = 0x1000
_FRAME_MAX = 131072

START, START_OK, TUNE, TUNE_OK, OPEN, OPEN_OK = ((10, one) for one in (10, 11, 30, 31, 40, 41))
CHANNEL_OPEN, CHANNEL_OPEN_OK = (20, 10), (20, 11)
DECLARE, DECLARE_OK, PURGE, PURGE_OK = ((50, one) for one in (10, 11, 30, 31))
PUBLISH = (60, 40)
SELECT, SELECT_OK = (85, 10), (85, 11)


def shortText(words: str) -> bytes:
    """A short string."""
    return bytes((len(words),)) + words.encode("ascii")


def longText(words: bytes) -> bytes:
    """A long string, or a table."""
    return struct.pack(">I", len(words)) + words


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """A frame."""
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + _END


def method(channel: int, name: tuple[int, int], arguments: bytes = b"") -> bytes:
    """A frame with a method."""
    return frame(_METHOD, channel, struct.pack(">HH", *name) + arguments)


def publishFrames(queue: str) -> bytes:
    """A persistent message to a queue, through the exchange without a name."""
    arguments = struct.pack(">H", 0) + shortText("") + shortText(queue) + b"\0"
    properties = struct.pack(">HHQHB", 60, 0, len(CONTENT), _HAS_DELIVERY_MODE, _PERSISTENT)
    return b"".join(
        [
            method(_CHANNEL, PUBLISH, arguments),
            frame(_HEADER, _CHANNEL, properties),
            frame(_BODY, _CHANNEL, CONTENT),
        ]
    )


def expect(opened: socket, name: tuple[int, int]) -> bytes:
    """
    Wait for a method.

    @return: its arguments.
    @raise Broken: another one has come.
    """
    kind, _, size = struct.unpack(">BHI", readExactly(opened, 7))
    payload = readExactly(opened, size + 1)
    if kind != _METHOD or struct.unpack_from(">HH", payload) != name or payload[-1:] != _END:
        raise Broken(f"not method {name} of AMQP, but {payload[:200]!r}")
    return payload[4:-1]


def greet(opened: socket) -> None:
    """
    Begin a connection, without heartbeats, and open a channel.

    @raise Broken: it is refused.
    """
    opened.sendall(b"AMQP\0\0\x09\x01")
    expect(opened, START)
    answer = longText(b"") + shortText("PLAIN") + longText(b"\0guest\0guest") + shortText("en_US")
    opened.sendall(method(0, START_OK, answer))
    expect(opened, TUNE)
    opened.sendall(
        method(0, TUNE_OK, struct.pack(">HIH", _CHANNEL, _FRAME_MAX, 0))
        + method(0, OPEN, shortText("/") + shortText("") + b"\0")
    )
    expect(opened, OPEN_OK)
    opened.sendall(method(_CHANNEL, CHANNEL_OPEN, shortText("")))
    expect(opened, CHANNEL_OPEN_OK)


def _greetPublisher(opened: socket, number: int) -> None:
    greet(opened)
    opened.sendall(method(_CHANNEL, SELECT, b"\0"))
    expect(opened, SELECT_OK)


def publishes(queue: str, window: int) -> Load:
    """Persistent messages, with publisher confirms."""
    one = publishFrames(queue)
    return Load(
        protocol=Protocol.AMQP,
        frames=lambda number: [one] * window,
        window=window,
        greet=_greetPublisher,
    )


class QueueControl:
    """
    A connection that looks after a queue: a context manager.
    """

    def __init__(self, port: int, queue: str) -> None:
        self._name = struct.pack(">H", 0) + shortText(queue)
        self._opened = connect(port)
        greet(self._opened)

    def __enter__(self) -> QueueControl:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._opened.close()

    def count(self) -> int:
        """How many messages it has that nobody consumes."""
        arguments = self._name + b"\x01" + longText(b"")
        self._opened.sendall(method(_CHANNEL, DECLARE, arguments))
        answer = expect(self._opened, DECLARE_OK)
        count: int = struct.unpack_from(">I", answer, 1 + answer[0])[0]
        return count

    def purge(self) -> None:
        """Empty it."""
        self._opened.sendall(method(_CHANNEL, PURGE, self._name + b"\0"))
        expect(self._opened, PURGE_OK)
