"""
Log-ins with wrong passwords, very many at a time, as a program of its own.

C{python flood.py COUNT PID HTTP-PORT STOMP-PORT MQTT-PORT} opens COUNT connections in all, as many
from an address as may wait for a log-in, and sends credentials on all of them while the daemon,
which has this process id, is stopped: when it goes on, everything has arrived. Behind them come a
log-in of a known account from 127.0.0.2, and a publish by another account whose log-in the daemon
remembers. It writes, line by line, how many connections were answered or closed, and after how many
of them these two were answered: what comes together is counted in the order in which it has come.
"""

from __future__ import annotations

import asyncio
import os
import signal
import struct
import sys
from base64 import b64encode
from contextlib import suppress

USER, OTHER, WRONG = "ann", "bob", "wrong"
"""Two accounts, whose passwords are their names, and a password of none."""
PIECE = 200
"""Connections that are opened at a time."""
OF_ONE = 900
"""Connections of each address."""
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


def guests() -> tuple[tuple[str, bytes, bytes], ...]:
    """The name, the request and the answer of those who are served meanwhile: by STOMP and HTTP."""
    log_in = f"CONNECT\naccept-version:1.2\nlogin:{USER}\npasscode:{USER}\n\n\0".encode()
    basic = b64encode(f"{OTHER}:{OTHER}".encode()).decode()
    publish = (
        "GET /svcbroker/rest/publish?topic=innocent&content=x HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: Basic {basic}\r\n\r\n"
    ).encode()
    return ("log-in", log_in, b"CONNECTED"), ("publish", publish, b"SUCCESS")


async def main(count: int, daemon: int, *ports: int) -> None:
    """Flood."""
    connections: list[tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]] = []
    answered = 0

    async def connect(number: int) -> None:
        kind = number % len(ports)
        own = (f"127.0.0.{3 + number // OF_ONE}", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", ports[kind], local_addr=own)
        connections.append((reader, writer, attempts()[kind]))

    for start in range(0, count, PIECE):
        await asyncio.gather(*(connect(n) for n in range(start, min(count, start + PIECE))))
    http, stomp, _ = ports
    own = ("127.0.0.2", 0)
    streams = [
        await asyncio.open_connection("127.0.0.1", stomp, local_addr=own),
        await asyncio.open_connection("127.0.0.1", http),
    ]
    os.kill(daemon, signal.SIGSTOP)
    try:
        for _, writer, attempt in connections:
            writer.write(attempt)
        for (_, writer), (_, request, _) in zip(streams, guests(), strict=True):
            writer.write(request)
    finally:
        os.kill(daemon, signal.SIGCONT)

    async def serve(name: str, reader: asyncio.StreamReader, expected: bytes) -> None:
        answer = b""
        while expected not in answer:
            piece = await reader.read(4096)
            if not piece:
                say(f"no {name}: {answer!r}")
                return
            answer += piece
        say(f"{name} after {answered}")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal answered
        with suppress(OSError):
            await reader.read(1)
        answered += 1
        if answered % STEP == 0:
            say(f"answered {answered}")

    await asyncio.gather(
        *(answer(reader, writer) for reader, writer, _ in connections),
        *(
            serve(name, reader, expected)
            for (reader, _), (name, _, expected) in zip(streams, guests(), strict=True)
        ),
    )


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:])))
