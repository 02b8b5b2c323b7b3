"""
Log-ins with wrong passwords, very many at a time, as a program of its own.

C{python flood.py COUNT HTTP-PORT STOMP-PORT MQTT-PORT} opens COUNT connections from 127.0.0.1 in
all, sends credentials on all of them at once, writes C{sent} when they are, and then, line by line,
how many connections were answered or closed.
"""

from __future__ import annotations

import asyncio
import struct
import sys
from base64 import b64encode
from contextlib import suppress

USER, WRONG = "ann", "wrong"
PIECE = 200
"""Connections that are opened at a time."""
STEP = 100
"""Of how many answers a line is written."""


def attempts() -> tuple[bytes, bytes, bytes]:
    """A log-in by HTTP Basic, STOMP and MQTT each."""
    basic = b64encode(f"{USER}:{WRONG}".encode())
    http = (
        "GET /svcbroker/rest/list HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: Basic {basic.decode()}\r\n\r\n"
    ).encode()
    stomp = f"CONNECT\naccept-version:1.2\nlogin:{USER}\npasscode:{WRONG}\n\n\0".encode()
    texts = ("flood", USER, WRONG)
    payload = b"".join(struct.pack("!H", len(each)) + each.encode() for each in texts)
    connect = b"\0\4MQTT\4\xc2\0\0" + payload
    return http, stomp, bytes([0x10, len(connect)]) + connect


def say(line: str) -> None:
    """Write a line for the test."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def main(count: int, *ports: int) -> None:
    """Flood."""
    connections: list[tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]] = []
    answered = 0

    async def connect(number: int) -> None:
        kind = number % len(ports)
        reader, writer = await asyncio.open_connection("127.0.0.1", ports[kind])
        connections.append((reader, writer, attempts()[kind]))

    for start in range(0, count, PIECE):
        await asyncio.gather(*(connect(n) for n in range(start, min(count, start + PIECE))))
    for _, writer, attempt in connections:
        writer.write(attempt)
    say("sent")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal answered
        with suppress(OSError):
            await reader.read(1)
        answered += 1
        if answered % STEP == 0:
            say(f"answered {answered}")

    await asyncio.gather(*(answer(reader, writer) for reader, writer, _ in connections))


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:])))
