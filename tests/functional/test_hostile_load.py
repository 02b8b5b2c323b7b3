"""
Small inputs that are much work, and what they do to another client and to memory.

Each test sends one hostile input to a real daemon while an innocent client publishes one event
after the other. The bound on a publish is far above what a busy machine needs, and far below what
the input once took.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from pathlib import Path
from time import monotonic
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.protocol import Protocol
from twisted.python.failure import Failure

from .daemon import LOCAL, TIMEOUT, Daemon, DaemonTestCase, reactor

LONGEST = 1.5
"""Seconds that a publish of the innocent client may take. The inputs once took 2 to 15 s."""

PUBLISHES = 100
"""How many events the innocent client publishes meanwhile."""

GROWTH = 10
"""How many times the bytes that were sent the daemon's memory may grow."""

SLACK = 16 * 1024 * 1024
"""How many bytes it may grow on top of it: buffers, caches, the allocator's pages."""


class Wire(Protocol):
    """
    A connection of a hostile client.

    @ivar sent: how many bytes it has sent.
    """

    transport: Any

    def __init__(self) -> None:
        self.sent = 0
        self._received = b""
        self._wanted: tuple[bytes, int, Deferred[None]] | None = None

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self.sent += len(data)
        self.transport.write(data)

    def receives(self, mark: bytes, count: int = 1) -> Deferred[None]:
        """Fires once C{mark} has come C{count} times since the last call."""
        done: Deferred[None] = Deferred()
        self._wanted = (mark, count, done)
        self._look()
        return done.addTimeout(TIMEOUT, reactor)

    def dataReceived(self, data: bytes) -> None:
        if self._wanted is None:
            self._received = (self._received + data)[-65536:]
        else:
            self._received += data
            self._look()

    def _look(self) -> None:
        assert self._wanted is not None
        mark, count, done = self._wanted
        if self._received.count(mark) >= count:
            self._wanted = None
            self._received = b""
            done.callback(None)

    def connectionLost(self, reason: Failure | None = None) -> None:
        if self._wanted is not None:
            done, self._wanted = self._wanted[2], None
            done.errback(AssertionError("the daemon closed the connection"))


def packet(first: int, body: bytes) -> bytes:
    """An MQTT control packet."""
    size, left = b"", len(body)
    while True:
        left, digit = divmod(left, 128)
        size += bytes([digit | (0x80 if left else 0)])
        if not left:
            return bytes([first]) + size + body


def text(value: str) -> bytes:
    """A UTF-8 string of MQTT."""
    data = value.encode()
    return struct.pack("!H", len(data)) + data


def connect(client: str, clean: bool = True, version: int = 4) -> bytes:
    """CONNECT of MQTT 3.1.1 or 5, without keep-alive and without properties."""
    flags = bytes([version, 2 if clean else 0, 0, 0])
    properties = b"\0" if version == 5 else b""
    return packet(0x10, text("MQTT") + flags + properties + text(client))


def subscribe(number: int, *filters: str) -> bytes:
    """SUBSCRIBE at QoS 0."""
    return packet(
        0x82, struct.pack("!H", number) + b"".join(text(each) + b"\0" for each in filters)
    )


def replay(number: int, filter: str) -> bytes:
    """SUBSCRIBE of MQTT 5 that begins at the first event."""
    properties = b"\x26" + text("svc-offset") + text("OFFSET_FIRST")
    size = bytes([len(properties)])
    return packet(0x82, struct.pack("!H", number) + size + properties + text(filter) + b"\0")


def unsubscribe(number: int, filter: str) -> bytes:
    """UNSUBSCRIBE from one filter."""
    return packet(0xA2, struct.pack("!H", number) + text(filter))


def retain(number: int, topic: str) -> bytes:
    """PUBLISH of a retained message at QoS 1."""
    return packet(0x33, text(topic) + struct.pack("!H", number) + b"x")


class HostileLoadTests(DaemonTestCase):
    """
    An innocent client beside a hostile one.
    """

    daemon: Daemon

    async def serve(self, *arguments: str) -> None:
        """Start a daemon with MQTT."""
        self.daemon = await self.start(f"--mqtt={LOCAL}", *arguments, ledger="pbft:interval=0")
        found = await self.daemon.protocol.waitFor(r"MQTT on 127\.0\.0\.1:(\d+)")
        self.mqttPort = int(found[1])
        await self.daemon.call("/rest/open", topic="innocent")

    async def connect(self, client: str, clean: bool = True, version: int = 4) -> Wire:
        """A connected MQTT client."""
        endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", self.mqttPort)
        wire: Wire = await connectProtocol(endpoint, Wire())
        self.addCleanup(lambda: wire.transport.abortConnection())
        wire.send(connect(client, clean, version))
        await wire.receives(b"\x20")
        return wire

    async def keepRetained(self, topics: Iterable[str]) -> None:
        """Store retained messages, a hundred at a time."""
        wire = await self.connect("keeper-of-messages")
        pending = list(topics)
        for start in range(0, len(pending), 100):
            some = pending[start : start + 100]
            wire.send(b"".join(retain(number, each) for number, each in enumerate(some, 1)))
            await wire.receives(b"\x40\x02", len(some))

    def memory(self, name: str) -> int:
        """A figure of the daemon's memory, in bytes."""
        status = Path(f"/proc/{self.daemon.process.pid}/status").read_text()
        (line,) = (each for each in status.splitlines() if each.startswith(name))
        return int(line.split()[1]) * 1024

    async def publishOne(self) -> float:
        """Publish an event as the innocent client; how long it took, in seconds."""
        started = monotonic()
        answer: Any = await self.daemon.call("/rest/publish", topic="innocent", content="x")
        self.assertEqual(answer["status"], "SUCCESS")
        return monotonic() - started

    async def innocent(self, *hostile: Wire) -> None:
        """Publish, and check that neither the time nor the daemon's memory got out of hand."""
        longest = 0.0
        for _ in range(PUBLISHES):
            longest = max(longest, await self.publishOne())
        self.assertLess(longest, LONGEST)
        grown = self.memory("VmHWM") - self.before
        self.assertLess(grown, GROWTH * sum(wire.sent for wire in hostile) + SLACK)

    async def quiet(self) -> None:
        """Publish some, so that caches are warm, and note the memory."""
        for _ in range(10):
            await self.publishOne()
        self.before = self.memory("VmHWM")

    async def test_retainedReplayToManySubscriptions(self) -> None:
        """9 kB of subscriptions ask for three million retained messages."""
        await self.serve()
        await self.keepRetained(f"r/{number}" for number in range(3000))
        wire = await self.connect("hostile")
        await self.quiet()
        wire.send(b"".join(subscribe(number, "#") for number in range(1, 1001)))
        await self.innocent(wire)

    async def test_deepFilters(self) -> None:
        """3 MB of filters in 12 sessions have 3 million levels."""
        await self.serve()
        await self.quiet()
        wires = [await self.connect(f"hostile{number}") for number in range(12)]
        for number, wire in enumerate(wires):
            for start in range(0, 1000, 100):
                some = range(start, start + 100)
                wire.send(subscribe(1, *(f"{number}-{each:03d}" + "/" * 250 for each in some)))
                await wire.receives(b"\x90")
        await self.innocent(*wires)

    async def test_deepRetainedTopics(self) -> None:
        """5 MB of retained topics have 2.5 million levels."""
        await self.serve()
        await self.quiet()
        wire = await self.connect("hostile")
        for start in range(0, 20_000, 500):
            some = [f"{number:05d}" + "/a" * 125 for number in range(start, start + 500)]
            wire.send(b"".join(retain(number, each) for number, each in enumerate(some, 1)))
            await wire.receives(b"\x40\x02", len(some))
        await self.innocent(wire)

    async def test_historyForManyPatterns(self) -> None:
        """A thousand patterns begin at the first of many events."""
        await self.serve()
        calls = [
            {
                "jsonrpc": "2.0",
                "id": str(number),
                "method": "publish",
                "params": {"topic": "innocent", "content": "eA=="},
            }
            for number in range(100)
        ]
        body = json.dumps(calls).encode()
        for _ in range(300):
            await self.daemon.call("/jsonrpc", "POST", body, {"Content-Type": "application/json"})
        wire = await self.connect("hostile", version=5)
        await self.quiet()
        wire.send(b"".join(replay(number, f"+/{number}") for number in range(1, 1001)))
        await self.innocent(wire)

    async def test_unsubscribeFromNothing(self) -> None:
        """40 kB of UNSUBSCRIBE that change nothing, in a durable session with many filters."""
        await self.serve()
        wire = await self.connect("hostile", clean=False)
        for start in range(0, 5000, 100):
            wire.send(subscribe(1, *(f"f/{number}" for number in range(start, start + 100))))
            await wire.receives(b"\x90")
        await self.quiet()
        wire.send(b"".join(unsubscribe(number, "no") for number in range(1, 4001)))
        await self.innocent(wire)
