"""
Small inputs that are much work, and what they do to another client and to memory.

Each test sends one hostile input to a real daemon while an innocent client, a process of its own,
publishes one event after the other. It counts in windows what the daemon does between a request
and its answer, in seconds of a processor, so that other programs on a busy machine do not matter.
The median of the windows' 99th percentiles at most doubles. The bound on a single publish is far
below what the inputs once took.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import LoopingCall
from twisted.python.failure import Failure

from .daemon import LOCAL, TIMEOUT, Daemon, DaemonTestCase, reactor

LONGEST = 1.5
"""
Seconds of a processor that the daemon may use during a publish of the innocent client. The inputs
once took 2 to 15.
"""

TIMES = 2
"""How many times what it takes without a hostile client an innocent client's publish may take."""

SHORT = 0.05
"""Seconds below which that does not matter: one turn of the reactor may take as long."""

LOG = 64 * 1024
"""How many characters the daemon may log in all."""

WARM_UP, WINDOWS = 2, 5
"""Windows of the innocent client that are left out at first, and whose median counts."""

INNOCENT = Path(__file__).with_name("innocent.py")

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


def request(
    line: str, headers: Mapping[str, str], body: str = "", length: int | None = None
) -> bytes:
    """
    An HTTP request.

    @param length: of the body, where not all of it is sent yet.
    """
    lines = [f"{name}: {value}" for name, value in headers.items()]
    lines.append(f"Content-Length: {len(body) if length is None else length}")
    return "\r\n".join([f"{line} HTTP/1.1", *lines, "", body]).encode()


class ContinuingWire(Wire):
    """
    A receiver of webhooks that answers 100 Continue for ever, as fast as it is read.
    """

    def connectionMade(self) -> None:
        self.transport.registerProducer(self, False)

    def resumeProducing(self) -> None:
        """There is room for more. See C{IPullProducer}."""
        self.send(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)

    def stopProducing(self) -> None:
        """The daemon has left. See C{IPullProducer}."""


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
        self.httpPort = int(self.daemon.base.split(":")[2].split("/")[0])
        await self.daemon.call("/rest/open", topic="innocent")

    async def wire(self, port: int) -> Wire:
        """A connection to a port of the daemon."""
        wire: Wire = await connectProtocol(TCP4ClientEndpoint(reactor, "127.0.0.1", port), Wire())
        self.addCleanup(lambda: wire.transport.abortConnection())
        return wire

    async def connect(self, client: str, clean: bool = True, version: int = 4) -> Wire:
        """A connected MQTT client."""
        wire = await self.wire(self.mqttPort)
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

    async def quiet(self) -> None:
        """Begin to publish as the innocent client, and note its times and the daemon's memory."""
        self.innocent = self.spawn(
            sys.executable, INNOCENT, self.httpPort, self.daemon.process.pid, "innocent"
        )
        await self.windows(WARM_UP)
        seen = await self.windows(WARM_UP + WINDOWS)
        self.quietTime = median(p99 for p99, _ in seen[WARM_UP:])
        self.quietWindows = len(seen)
        self.before = self.memory("VmHWM")

    async def windows(self, count: int) -> Sequence[tuple[float, float]]:
        """
        The innocent client's windows so far, but at least some: the 99th percentile and the
        longest time of each.
        """
        protocol = self.innocent.protocol
        await protocol.waitFor(rf"(?:.*\n){{{count}}}")
        lines = protocol.output[: protocol.output.rindex("\n")].splitlines()
        return [(float(p99), float(longest)) for p99, longest in map(str.split, lines)]

    async def survives(self, wires: Sequence[Wire]) -> None:
        """
        Check that neither the innocent client's times nor the daemon's memory got out of hand
        since L{quiet}.

        @param wires: the connections of the hostile client since then.
        """
        seen = (await self.windows(self.quietWindows + WINDOWS))[self.quietWindows :]
        sent = sum(wire.sent for wire in wires)
        self.assertLess(max(longest for _, longest in seen), LONGEST)
        self.assertLess(median(p99 for p99, _ in seen), max(TIMES * self.quietTime, SHORT))
        grown = self.memory("VmHWM") - self.before
        self.assertLess(grown, GROWTH * sent + SLACK)
        self.assertLess(len(self.daemon.protocol.output), LOG)

    async def test_retainedReplayToManySubscriptions(self) -> None:
        """9 kB of subscriptions ask for three million retained messages."""
        await self.serve()
        await self.keepRetained(f"r/{number}" for number in range(3000))
        wire = await self.connect("hostile")
        await self.quiet()
        wire.send(b"".join(subscribe(number, "#") for number in range(1, 1001)))
        await self.survives([wire])

    async def test_signedBatchesFromSomeConnections(self) -> None:
        """All are answered, though each is published in parts while others wait to be read."""
        await self.serve()
        await self.quiet()
        wires = [await self.wire(self.httpPort) for _ in range(8)]
        signed = {
            "topic": "innocent",
            "content": "eA==",
            "signedAt": 1,
            "signature": "00" * 64,
            "author": "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        }
        call = {"jsonrpc": "2.0", "id": 1, "method": "publish", "params": signed}
        head = {"Host": "127.0.0.1", "Content-Type": "application/json"}
        batch = request("POST /svcbroker/jsonrpc", head, json.dumps([call] * 1000))
        for _ in range(3):
            answered = [wire.receives(b"HTTP/1.1 200") for wire in wires]
            for wire in wires:
                wire.send(batch)
            await gatherResults(answered)
        await self.survives(wires)

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
        await self.survives(wires)

    async def test_deepRetainedTopics(self) -> None:
        """5 MB of retained topics have 2.5 million levels."""
        await self.serve()
        await self.quiet()
        wire = await self.connect("hostile")
        for start in range(0, 20_000, 500):
            some = [f"{number:05d}" + "/a" * 125 for number in range(start, start + 500)]
            wire.send(b"".join(retain(number, each) for number, each in enumerate(some, 1)))
            await wire.receives(b"\x40\x02", len(some))
        await self.survives([wire])

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
        await self.survives([wire])

    async def test_positionsOfOneClient(self) -> None:
        """One client makes durable subscriptions without end; others still get theirs."""
        await self.serve("--max-positions=300", "--webhook-allow=127.0.0.0/8")
        await self.daemon.call("/rest/open", topic="silent")
        await self.quiet()
        wire = await self.wire(self.httpPort)
        call = "GET /svcbroker/rest/subscribe?topic=silent&url=http://127.0.0.9:9"
        host = {"Host": f"127.0.0.1:{self.httpPort}"}
        for number in range(300):
            wire.send(request(f"{call}/{number}", host))
        await wire.receives(b"HTTP/1.1 200", 300)
        for number in range(300, 3300):
            wire.send(request(f"{call}/{number}", host))
        await wire.receives(b'"code":200101', 3000)
        await self.survives([wire])
        other = await self.daemon.call("/rest/subscribe", topic="silent", url="http://127.0.0.8:9/")
        self.assertIsInstance(other, str)

    async def test_unsubscribeFromNothing(self) -> None:
        """40 kB of UNSUBSCRIBE that change nothing, in a durable session with many filters."""
        await self.serve()
        wire = await self.connect("hostile", clean=False)
        for start in range(0, 5000, 100):
            wire.send(subscribe(1, *(f"f/{number}" for number in range(start, start + 100))))
            await wire.receives(b"\x90")
        await self.quiet()
        wire.send(b"".join(unsubscribe(number, "no") for number in range(1, 4001)))
        await self.survives([wire])

    async def test_webhookContinuesForEver(self) -> None:
        """The receiver of a webhook sends interim answers without end, to each attempt."""
        await self.serve("--webhook-allow=127.0.0.1", "--webhook-max-delay=1")
        await self.quiet()
        wires: list[Wire] = []

        class Receiver(Factory):
            def buildProtocol(self, addr: object) -> Wire:
                wires.append(ContinuingWire())
                return wires[-1]

        port = reactor.listenTCP(0, Receiver(), interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        url = f"http://127.0.0.1:{port.getHost().port}/"
        await self.daemon.call("/rest/subscribe", topic="innocent", url=url)
        await self.survives(wires)
        self.assertNotEqual(wires, [])

    async def test_bodiesTrickle(self) -> None:
        """Bodies of 200 requests arrive in part, and then byte by byte."""
        await self.serve()
        await self.quiet()
        wires = [await self.wire(self.httpPort) for _ in range(200)]
        for wire in wires:
            part = "topic=innocent&content=" + "x" * 50_000
            host = f"127.0.0.1:{self.httpPort}"
            wire.send(request("POST /svcbroker/rest/publish", {"Host": host}, part, 1_000_000))

        def sendOneByte() -> None:
            for wire in wires:
                wire.send(b"x")

        trickle = LoopingCall(sendOneByte)
        ended = trickle.start(0.02)
        await self.survives(wires)
        trickle.stop()
        await ended

    async def test_webPagesOfOtherSites(self) -> None:
        """
        Pages post forms, open WebSockets, and take a name of their own for the broker: on as many
        connections as a browser has, which waits for each answer.
        """
        await self.serve()
        await self.daemon.call("/rest/open", topic="private")
        await self.quiet()
        wires = [await self.wire(self.httpPort) for _ in range(6)]
        await gatherResults([Deferred.fromCoroutine(self.visit(wire)) for wire in wires])
        await self.survives(wires)
        state = await self.daemon.call("/rest/state", topic="private")
        self.assertEqual(state["sequenceNumber"], 0)

    async def visit(self, wire: Wire) -> None:
        """What the pages of a hundred sites send on one connection; all of it is refused."""
        host, call = f"127.0.0.1:{self.httpPort}", "/svcbroker/rest/publish"
        content = "topic=private&content=x"
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        upgrade = {"Connection": "Upgrade", "Upgrade": "websocket"}
        for number in range(100):
            page = f"page{number}.example"
            origin = {"Host": host, "Origin": f"http://{page}"}
            for each in (
                request(f"POST {call}", origin | form, content),
                request(f"GET {call}?{content}", {"Host": page}),
                request("GET /svcbroker/mqtt", origin | upgrade),
            ):
                wire.send(each)
                await wire.receives(b"HTTP/1.1 403")
