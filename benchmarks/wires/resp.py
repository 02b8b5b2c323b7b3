"""
Redis: RESP 2, and streams.
"""

from __future__ import annotations

from svcbroker.commands.bench import Broken

from ..loader import Load, Protocol, connect
from .talk import CONTENT, ask


def command(*words: bytes) -> bytes:
    """A command, as an array of bulk strings."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(one), one) for one in words)


def publishes(stream: str, window: int) -> Load:
    """Entries of a stream, with one field."""
    one = command(b"XADD", stream.encode("ascii"), b"*", b"content", CONTENT)
    return Load(protocol=Protocol.RESP, frames=lambda number: [one] * window, window=window)


def askNumber(port: int, *words: bytes) -> int:
    """
    What a command is answered with, a number.

    @raise Broken: it is not one.
    """
    with connect(port) as opened:
        answer = ask(opened, command(*words), b":", b"\r\n")
    if not answer[1:-2].isdigit():
        raise Broken(f"Redis answers {answer[:100]!r}")
    return int(answer[1:-2])
