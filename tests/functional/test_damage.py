"""
The real daemon on a ledger of which one event was changed on disk.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure

from .daemon import LOCAL, TIMEOUT, Daemon, DaemonTestCase, reactor
from .test_hostile_load import connect, packet, replay, text
from .test_webhooks import SECRET, Receiver


class Reader(Protocol):
    """
    Collects what it is sent.

    @ivar received: everything.
    @ivar closed: fires once the daemon has closed the connection.
    """

    def __init__(self) -> None:
        self.received = b""
        self._wanted: tuple[Callable[[bytes], bool], Deferred[None]] | None = None
        self.closed: Deferred[None] = Deferred()

    def dataReceived(self, data: bytes) -> None:
        self.received += data

        if self._wanted is not None and self._wanted[0](self.received):
            self._wanted[1].callback(None)
            self._wanted = None

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.closed.callback(None)

    def send(self, *sent: bytes) -> None:
        """Send bytes."""
        assert self.transport is not None
        self.transport.write(b"".join(sent))

    def until(self, condition: Callable[[bytes], bool]) -> Deferred[None]:
        """Fires once what was received fulfills a condition."""
        done: Deferred[None] = Deferred()
        self._wanted = condition, done
        self.dataReceived(b"")
        return done.addTimeout(TIMEOUT, reactor)

    def leave(self) -> None:
        """Close the connection."""
        assert self.transport is not None
        self.transport.loseConnection()


class DamagedEventTests(DaemonTestCase):
    """
    The third of five events is damaged.
    """

    async def begin(self) -> Daemon:
        """A daemon with all carriers."""
        secret = self.root / "secret"
        secret.write_text(SECRET + "\n")
        return await self.start(
            *(f"--stomp={LOCAL}", f"--mqtt={LOCAL}", "--webhook-allow=127.0.0.0/8"),
            *(f"--webhook-secret-file={secret}", "--webhook-max-delay=1"),
            ledger="pbft:interval=0",
        )

    async def damaged(self) -> tuple[Daemon, list[str]]:
        """A daemon whose log has a damaged event, and the ids of all events."""
        daemon = await self.begin()
        await daemon.call("/rest/open", topic="a")
        session = await self.connect(daemon, "MQTT", connect("four", clean=False))
        session.send(packet(0x82, b"\0\1" + text("a") + b"\1"))
        # SUBACK
        await session.until(lambda received: b"\x90\x03\0\1\1" in received)
        session.leave()
        ids = []
        for number in range(1, 6):
            sent = await daemon.call(
                "/rest/publish", topic="a", content=f"content {number} of five"
            )
            ids.append(sent["eventId"])
        self.assertEqual(await daemon.stop(), 0)
        path = self.dataDir / "1" / "ledger.sqlite"
        whole = path.read_bytes()
        self.assertEqual(whole.count(b"content 3 of five"), 1)
        path.write_bytes(whole.replace(b"content 3 of five", b"content 3 of fire"))
        return await self.begin(), ids

    async def connect(self, daemon: Daemon, name: str, *sent: bytes) -> Reader:
        """A client that has sent some bytes."""
        [port] = (await daemon.protocol.waitFor(rf"{name} on 127\.0\.0\.1:(\d+)")).groups()
        endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", int(port))
        reader: Reader = await connectProtocol(endpoint, Reader())
        reader.send(*sent)
        return reader

    async def reads(self, daemon: Daemon, name: str, *sent: bytes) -> bytes:
        """What a client is sent until the daemon closes the connection."""
        reader = await self.connect(daemon, name, *sent)
        await reader.closed.addTimeout(TIMEOUT, reactor)
        found = re.findall(rb"content . of fi.e", reader.received)
        self.assertEqual(found, [b"content 1 of five", b"content 2 of five"])
        return reader.received

    async def test_readersAreToldOfDamage(self) -> None:
        """Each reader gets the events before the damaged one and then an error."""
        daemon, ids = await self.damaged()
        for number, eventId in enumerate(ids, 1):
            for _ in range(3):
                answer = await daemon.call("/rest/getEvent", eventId=eventId)
                if number == 3:
                    self.assertEqual(answer["code"], 200214)
                else:
                    self.assertEqual(answer["eventId"], eventId)

        frames = await self.reads(
            daemon,
            "STOMP",
            b"CONNECT\naccept-version:1.2\nhost:1\n\n\0",
            b"SUBSCRIBE\nid:1\ndestination:a\neventId:OFFSET_FIRST\n\n\0",
        )
        [error] = re.findall(rb"ERROR\n.*", frames, re.DOTALL)
        self.assertIn(b"200214", error)

        packets = await self.reads(daemon, "MQTT", connect("five", version=5), replay(1, "a"))
        # DISCONNECT, "implementation specific error", and the reason.
        end = packets[packets.rindex(b"content 2 of five") + 17 :]
        self.assertEqual((end[0], end[2]), (0xE0, 0x83))
        self.assertIn(b"the ledger's disk cannot be read", end)
        packets = await self.reads(daemon, "MQTT", connect("four", clean=False))
        self.assertTrue(packets.endswith(b"content 2 of five"))

        receiver = Receiver(self)
        url = f"http://127.0.0.1:{receiver.port}/"
        await daemon.call("/rest/subscribe", topic="a", url=url, offset="OFFSET_FIRST")
        # It keeps its place, and tries again.
        failed = "cannot read its events, and will try again: the ledger's disk"
        await daemon.protocol.waitFor(f"(?s){failed}.*{failed}")
        self.assertEqual(receiver.accepted, ["content 1 of five", "content 2 of five"])

        told = [line for line in daemon.protocol.output.splitlines() if ids[2] in line]
        self.assertEqual(len(told), 1, told)
        self.assertIn("the chain of group 1 cannot be read: ", told[0])
        self.assertNotIn("Traceback", daemon.protocol.output)
        self.assertEqual(await daemon.stop(), 0)
