"""
NATS: its text protocol, and JetStream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from socket import socket
from typing import Any

import msgspec

from svcbroker.commands.bench import Broken

from ..loader import Load, Protocol, connect
from .talk import CONTENT, ask, read

_HELLO = b'CONNECT {"verbose":false,"pedantic":false,"headers":false,"lang":"bench"}\r\nPING\r\n'
_INBOX = "_INBOX.bench"


def _greet(opened: socket) -> None:
    received = read(opened)
    while b"\r\n" not in received:
        received += read(opened)
    if not received.startswith(b"INFO "):
        raise Broken(f"NATS says {received[:100]!r}")
    ask(opened, _HELLO, b"PONG\r\n")


def publishes(subject: str, window: int) -> Load:
    """
    Publishes with an inbox for each acknowledgement, which comes after the message is stored.
    """

    def frames(connection: int) -> Sequence[bytes]:
        return [
            f"PUB {subject} {_INBOX}.{connection}.{number} {len(CONTENT)}\r\n".encode("ascii")
            + CONTENT
            + b"\r\n"
            for number in range(max(2, window))
        ]

    def greet(opened: socket, connection: int) -> None:
        _greet(opened)
        ask(opened, f"SUB {_INBOX}.{connection}.* 1\r\nPING\r\n".encode("ascii"), b"PONG\r\n")

    return Load(
        protocol=Protocol.NATS,
        frames=frames,
        isOwn=True,
        window=window,
        greet=greet,
        wanted=b'"seq":',
        wantedTimes=1,
        unwanted=b'"error"',
    )


def call(port: int, subject: str, parameters: Mapping[str, Any] | None = None) -> Any:
    """
    Call the server's interface.

    @return: its answer.
    @raise Broken: it is an error.
    """
    body = msgspec.json.encode(parameters) if parameters else b""
    inbox = f"{_INBOX}.call"
    request = f"SUB {inbox} 1\r\nPUB {subject} {inbox} {len(body)}\r\n".encode("ascii")
    with connect(port) as opened:
        _greet(opened)
        received = ask(opened, request + body + b"\r\n", b"MSG ", b"\r\n")
        while (whole := _bodyOf(received)) is None:
            received += read(opened)
    answer = msgspec.json.decode(whole)
    if "error" in answer:
        raise Broken(f"NATS answers {answer['error']}")
    return answer


def _bodyOf(received: bytes) -> bytes | None:
    head, _, rest = received.partition(b"\r\n")
    size = int(head.rpartition(b" ")[2])
    return rest[:size] if len(rest) >= size + 2 else None
