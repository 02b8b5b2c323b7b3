"""
Durable subscriptions of real clients, while the daemon changes its ledger and operators look on.
"""

from __future__ import annotations

import json
import re
import shutil
import struct
from collections.abc import Callable
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlencode

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.protocol import Protocol
from twisted.internet.threads import deferToThread
from twisted.python.failure import Failure

from .daemon import LOCAL, TIMEOUT, Daemon, DaemonTestCase, reactor, until
from .test_hostile_load import connect, packet, text

PBFT = "pbft:nodes=1"
UUID = "0b7b1e0c-5b7a-4c7a-9b0e-0123456789ab"
PRESENT = b"\x20\x02\x01\x00"
"""CONNACK: the session is present."""
DISCONNECT = packet(0xE0, b"")


class Client(Protocol):
    """
    A client of STOMP or MQTT that reads all that comes.
    """

    transport: Any

    def __init__(self) -> None:
        self.received = b""
        self._wanted: list[tuple[re.Pattern[bytes], Deferred[re.Match[bytes]]]] = []
        self._gone: Deferred[None] = Deferred()

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self.transport.write(data)

    def receives(self, pattern: bytes) -> Deferred[re.Match[bytes]]:
        """Fires with the first match in all that was received."""
        found: Deferred[re.Match[bytes]] = Deferred()
        self._wanted.append((re.compile(pattern, re.DOTALL), found))
        self.dataReceived(b"")
        return found.addTimeout(TIMEOUT, reactor)

    def dataReceived(self, data: bytes) -> None:
        self.received += data
        for each in tuple(self._wanted):
            match = each[0].search(self.received)
            if match is not None:
                self._wanted.remove(each)
                each[1].callback(match)

    def connectionLost(self, reason: Failure | None = None) -> None:
        self._gone.callback(None)

    async def leave(self, farewell: bytes = b"") -> None:
        """Close the connection, and wait until it is closed."""
        self.send(farewell)
        self.transport.loseConnection()
        await self._gone


def frame(command: str, *headers: str) -> bytes:
    """A STOMP frame without a body."""
    return "\n".join([command, *headers, "", "\0"]).encode()


class PositionsTests(DaemonTestCase):
    """
    A durable subscription of STOMP and a session of MQTT, both to one topic.
    """

    async def serve(self, ledger: str) -> Daemon:
        """Start a daemon on the one data directory."""
        return await self.start(f"--stomp={LOCAL}", f"--mqtt={LOCAL}", ledger=ledger)

    async def reach(self, daemon: Daemon, name: str, address: str = "127.0.0.1") -> Client:
        """Connect to a port, from an address of this machine."""
        found = await daemon.protocol.waitFor(name + r" on 127\.0\.0\.1:(\d+)")
        endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", int(found[1]), bindAddress=(address, 0))
        client: Client = await connectProtocol(endpoint, Client())
        return client

    async def stomp(
        self,
        daemon: Daemon,
        id: str = UUID,
        address: str = "127.0.0.1",
        answer: bytes = b"receipt-id:r",
    ) -> Client:
        """Subscribe with an id, as a client of STOMP, and wait for the answer."""
        client = await self.reach(daemon, "STOMP", address)
        client.send(frame("CONNECT", "accept-version:1.2", "host:x"))
        await client.receives(b"CONNECTED")
        client.send(
            frame(
                "SUBSCRIBE",
                "id:0",
                "destination:t",
                "ack:client-individual",
                f"svc-subscriptionId:{id}",
                "receipt:r",
            )
        )
        await client.receives(answer)
        return client

    async def mqtt(self, daemon: Daemon, isSubscribing: bool = True) -> Client:
        """Connect with a session that stays, as a client of MQTT 3.1.1, and maybe subscribe."""
        client = await self.reach(daemon, "MQTT")
        client.send(connect("c", clean=False))
        await client.receives(b"\x20\x02")
        if isSubscribing:
            client.send(packet(0x82, struct.pack("!H", 1) + text("t") + b"\1"))
            await client.receives(b"\x90\x03\x00\x01\x01")
        return client

    async def left(self, daemon: Daemon) -> None:
        """Wait until the daemon has noticed that all clients of 127.0.0.1 have left."""

        async def haveLeft() -> bool:
            for protocol in ("STOMP", "MQTT"):
                page = await daemon.call("/rest/listDurableSubscriptions", interfaceType=protocol)
                if any(each["live"] for each in page["subscriptions"]):
                    return False
            return True

        await until(haveLeft)

    async def publish(self, daemon: Daemon, *contents: str) -> None:
        """Publish events."""
        await daemon.call("/rest/open", topic="t")
        for content in contents:
            answer = await daemon.call("/rest/publish", topic="t", content=content)
            self.assertEqual(answer["status"], "SUCCESS")

    async def leaveUnfinished(self) -> None:
        """Acknowledge the first of three events, by both clients, on the chain that is kept."""
        daemon = await self.serve(PBFT)
        await self.publish(daemon)
        stomp, mqtt = await self.stomp(daemon), await self.mqtt(daemon)
        await self.publish(daemon, "one", "two", "three")
        ack = await stomp.receives(rb"\nack:([^\n]+).*?\n\none\0.*three\0")
        stomp.send(frame("ACK", "id:" + ack[1].decode(), "receipt:a"))
        await stomp.receives(b"receipt-id:a")
        number = await mqtt.receives(rb"\0\x01t(..)one.*three")
        mqtt.send(packet(0x40, number[1]) + packet(0xC0, b""))
        await mqtt.receives(rb"\xd0\0")
        await stomp.leave()
        await mqtt.leave(DISCONNECT)
        self.assertEqual(await daemon.stop(), 0)

    async def test_otherLedgerLosesNothing(self) -> None:
        """A start with another chain leaves the positions of the first one as they were."""
        await self.leaveUnfinished()

        # A ledger refuses the directory of another one's chain.
        chain = self.dataDir / "1"
        aside = chain.rename(self.root / "aside")
        daemon = await self.serve("memory")
        await daemon.protocol.waitFor("group 1 is served from another chain than before")
        await self.publish(daemon, *"abcdefgh")
        stomp, mqtt = await self.stomp(daemon), await self.mqtt(daemon)
        self.assertNotIn(PRESENT, mqtt.received)
        await self.publish(daemon, "i")
        for client in (stomp, mqtt):
            await client.receives(b"i")
            await client.leave()
        self.assertEqual(await daemon.stop(), 0)

        shutil.rmtree(chain, ignore_errors=True)
        aside.rename(chain)
        daemon = await self.serve(PBFT)
        await daemon.protocol.waitFor("records of subscriptions are back")
        await self.publish(daemon, "four")
        stomp, mqtt = await self.stomp(daemon), await self.mqtt(daemon, isSubscribing=False)
        await stomp.receives(b"\n\ntwo\0.*\n\nthree\0.*\n\nfour\0")
        self.assertNotIn(b"\n\none\0", stomp.received)
        await mqtt.receives(rb"\0\x01t..two.*\0\x01t..three.*\0\x01t..four")
        self.assertIn(PRESENT, mqtt.received)
        self.assertNotIn(b"one", mqtt.received)

    async def test_oneAddressLeavesRoomForOthers(self) -> None:
        """At its bound the error says what helps, and it does; others are not concerned."""
        daemon = await self.start(f"--stomp={LOCAL}", "--max-positions=2")
        await self.publish(daemon)
        for number in (1, 2):
            await (await self.stomp(daemon, f"{UUID[:-1]}{number}")).leave()
        refusal = (
            rb"ERROR.*127\.0\.0\.1 has made 2 durable subscriptions.*"
            rb"deleteDurableSubscription.*svcbroker admin subscription list"
        )
        await (await self.stomp(daemon, f"{UUID[:-1]}3", answer=refusal)).leave()
        await self.stomp(daemon, f"{UUID[:-1]}3", address="127.0.0.2")
        await self.left(daemon)
        self.assertEqual(
            await self.svcbroker("delete", "--owner", "127.0.0.1"), (0, ["deleted: 2"])
        )
        await self.stomp(daemon, f"{UUID[:-1]}4")

    async def svcbroker(self, *arguments: str) -> tuple[int, list[str]]:
        """The exit code of C{svcbroker admin subscription}, and the lines that it writes."""
        code, output, errors = await self.outcomeOf("subscription", self.dataDir, *arguments)
        return code, (output + errors).splitlines()

    async def test_ownersListResetAndDelete(self) -> None:
        """By REST and JSON-RPC, of both protocols: a client of another address finds nothing."""
        await self.leaveUnfinished()
        daemon = await self.serve(PBFT)
        ask = self.fromElsewhere(daemon)
        for protocol, id in (("STOMP", UUID), ("MQTT", "c")):
            named: dict[str, Any] = {"interfaceType": protocol, "id": id}
            page = await daemon.call("/rest/listDurableSubscriptions", interfaceType=protocol)
            [found] = page["subscriptions"]
            self.assertEqual((found["id"], found["owner"], found["live"]), (id, "127.0.0.1", False))
            answer = await daemon.rpc("listDurableSubscriptions", interfaceType=protocol)
            self.assertEqual(answer["result"], page)
            others = await ask("listDurableSubscriptions", interfaceType=protocol)
            self.assertEqual(others, {"subscriptions": [], "next": None})
            for refused in (
                await ask("resetDurableSubscription", **named, offset="OFFSET_FIRST"),
                await ask("deleteDurableSubscription", **named),
            ):
                self.assertEqual(refused["code"], 100504)
            reset = await daemon.call(
                "/rest/resetDurableSubscription", **named, offset="OFFSET_FIRST"
            )
            self.assertIs(reset, True)
        stomp, mqtt = await self.stomp(daemon), await self.mqtt(daemon, isSubscribing=False)
        await stomp.receives(b"\n\none\0.*\n\ntwo\0.*\n\nthree\0")
        await mqtt.receives(rb"\0\x01t..one.*\0\x01t..two.*\0\x01t..three")
        refused = await daemon.call("/rest/deleteDurableSubscription", interfaceType="MQTT", id="c")
        self.assertEqual(refused["code"], 100507)
        await stomp.leave()
        await mqtt.leave(DISCONNECT)
        await self.left(daemon)
        answer = await daemon.rpc("deleteDurableSubscription", interfaceType="STOMP", id=UUID)
        self.assertEqual(answer["result"], "true")
        self.assertIs(
            await daemon.call("/rest/deleteDurableSubscription", interfaceType="MQTT", id="c"), True
        )
        self.assertEqual(await self.svcbroker(), (0, ["no durable subscriptions"]))

    def fromElsewhere(self, daemon: Daemon) -> Callable[..., Any]:
        """What makes calls of REST from another address of this machine."""
        host, port = daemon.base.removeprefix("http://").partition("/")[0].split(":")
        path = "/" + daemon.base.removeprefix("http://").partition("/")[2]

        def ask(name: str, **fields: str) -> Deferred[Any]:
            def connectAndAsk() -> Any:
                connection = HTTPConnection(host, int(port), TIMEOUT, ("127.0.0.2", 0))
                connection.request("GET", f"{path}/rest/{name}?{urlencode(fields)}")
                return json.load(connection.getresponse())

            return deferToThread(connectAndAsk)

        return ask

    async def test_operatorsListResetAndDelete(self) -> None:
        """By the command, of both protocols: those without clients; others are listed only."""
        await self.leaveUnfinished()
        daemon = await self.serve(PBFT)
        code, lines = await self.svcbroker()
        for line, start in zip(lines, (f"STOMP {UUID}", "MQTT c"), strict=True):
            self.assertRegex(line, start + r": last used .* UTC.*, resumes in block \d+, of 127")
        for name, id in (("stomp", UUID), ("MQTT", "c")):
            self.assertEqual(
                await self.svcbroker("reset", name, id, "OFFSET_FIRST"), (0, ["reset"])
            )
        stomp, mqtt = await self.stomp(daemon), await self.mqtt(daemon, isSubscribing=False)
        await stomp.receives(b"\n\none\0.*\n\ntwo\0.*\n\nthree\0")
        await mqtt.receives(rb"\0\x01t..one.*\0\x01t..two.*\0\x01t..three")
        self.assertIn(PRESENT, mqtt.received)

        code, lines = await self.svcbroker("list", "--owner", "127.0.0.1")
        self.assertEqual([line.split(": ")[1][:4] for line in lines], ["live", "live"])
        for arguments in (
            ("reset", "STOMP", UUID, "OFFSET_LAST"),
            ("delete", "STOMP", UUID),
            ("delete", "MQTT", "c"),
            ("delete", "MQTT", "nosuch"),
        ):
            code, [line] = await self.svcbroker(*arguments)
            self.assertEqual(code, 1, line)
        self.assertEqual(
            await self.svcbroker("delete", "--owner", "127.0.0.1"), (0, ["deleted: 0"])
        )

        await stomp.leave()
        await mqtt.leave(DISCONNECT)
        await self.left(daemon)
        self.assertEqual(
            await self.svcbroker("delete", "--owner", "127.0.0.1"), (0, ["deleted: 2"])
        )
        self.assertEqual(await self.svcbroker(), (0, ["no durable subscriptions"]))
        self.assertEqual(await daemon.stop(), 0)
        daemon = await self.serve(PBFT)
        self.assertEqual(await self.svcbroker("--json"), (0, ["[]"]))
