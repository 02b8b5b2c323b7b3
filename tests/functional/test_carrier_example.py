"""
The carrier that the documentation shows how to write, found as a plugin by a real daemon.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import treq
from twisted.internet import reactor
from twisted.internet.defer import DeferredQueue
from twisted.internet.endpoints import UNIXClientEndpoint, connectProtocol
from twisted.protocols.basic import LineOnlyReceiver

from ..directories import shortDirectory
from .daemon import DaemonTestCase

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "linecarrier"


class LineClient(LineOnlyReceiver):
    """A client that keeps what it is sent."""

    delimiter = b"\n"

    def __init__(self) -> None:
        self.lines: DeferredQueue[bytes] = DeferredQueue()

    def lineReceived(self, line: bytes) -> None:
        self.lines.put(line)

    async def ask(self, line: bytes) -> bytes:
        """Send a line, and wait for the next one."""
        self.sendLine(line)
        return await self.lines.get()


class LineCarrierTests(DaemonTestCase):
    """
    A plugin from a directory of its own.
    """

    async def outcome(self, *arguments: object) -> tuple[int, str, str]:
        """The exit code, the output and the errors of a command that knows the plugin."""
        command = self.spawn(sys.executable, "-m", "svcbroker.commands", *arguments)
        code = await command.exits()
        return code, command.protocol.output, command.protocol.errors

    async def connect(self) -> LineClient:
        """A client that has been greeted."""
        client = LineClient()
        endpoint = UNIXClientEndpoint(reactor, str(self.socket))
        await connectProtocol(endpoint, client)
        assert client.transport is not None
        self.addCleanup(client.transport.loseConnection)
        return client

    async def test_exampleCarrierIsAFeatureOfTheDaemon(self) -> None:
        """It has settings, checks, access, metrics and reload, and drains at the stop."""
        self.pluginPath = Path(shutil.copytree(EXAMPLE, self.root / "elsewhere"))
        self.socket = shortDirectory(self) / "line"
        greeting = self.root / "greeting"
        options = [f"--line=unix:{self.socket}", f"--line-greeting={greeting}"]
        status, _, errors = await self.outcome("run", "--check", *options)
        self.assertEqual(status, 2)
        self.assertIn("line-greeting: cannot read it: No such file", errors)
        greeting.write_bytes(b"hello\n")
        status, found, _ = await self.outcome("doctor", *options)
        self.assertIn("clients are greeted with 5 bytes", found)
        grants = "--anonymous=publish 1 t, open 1 t, subscribe 1 t, metrics *"
        daemon = await self.start(grants, *options)
        await self.useClients()
        origin = daemon.base.removesuffix("/svcbroker")
        metrics = await (await treq.get(f"{origin}/metrics", pool=daemon.pool)).text()
        self.assertIn('svcbroker_publishes_total{carrier="line",status="success"} 2.0', metrics)
        self.assertIn('svcbroker_connections{carrier="line"} 1.0', metrics)
        self.assertIn('svcbroker_subscriptions{durable="false",kind="line"} 1.0', metrics)
        await self.reload(greeting)
        self.assertEqual(await daemon.stop(), 0)
        self.assertFalse(self.socket.exists())

    async def useClients(self) -> None:
        """Publish and subscribe, as far as everybody may."""
        client = await self.connect()
        self.assertEqual(await client.lines.get(), b"hello")
        self.assertTrue((await client.ask(b"LOGIN ann x")).startswith(b"ERR 101015 "))
        self.assertTrue((await client.ask(b"PUB other x")).startswith(b"ERR 101016 "))
        self.assertTrue((await client.ask(b"PUB t first")).startswith(b"OK "))
        self.assertEqual(await client.ask(b"SUB t"), b"OK")
        client.sendLine(b"PUB t second one")
        event, answer = sorted([await client.lines.get(), await client.lines.get()])
        self.assertTrue(event.startswith(b"EVENT ") and event.endswith(b" t second one"), event)
        self.assertTrue(answer.startswith(b"OK "), answer)

    async def reload(self, greeting: Path) -> None:
        """A file that cannot be used changes nothing; one that can is used for new clients."""
        greeting.rename(greeting.with_suffix(".old"))
        status, found, _ = await self.outcome("reload", self.dataDir)
        self.assertEqual(status, 1, found)
        client = await self.connect()
        self.assertEqual(await client.lines.get(), b"hello")
        greeting.write_bytes(b"welcome\n")
        status, found, _ = await self.outcome("reload", self.dataDir)
        self.assertEqual(status, 0, found)
        client = await self.connect()
        self.assertEqual(await client.lines.get(), b"welcome")
