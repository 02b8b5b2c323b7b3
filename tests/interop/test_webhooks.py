"""
The libraries of Standard Webhooks, of npm and of PyPI, check the signatures of the real daemon.

A test is skipped where its library is not installed.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred

from tests.functional.daemon import Daemon, DaemonProtocol, DaemonTestCase, reactor
from tests.functional.test_webhooks import Receiver
from tests.needed import neededProgram, needPackage

from .node import nodeModules

PROGRAM = Path(__file__).with_name("standardwebhooks.cjs")
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSx"
CONTENT = "tea \u00fc \U0001f375"


class StandardWebhookTests(DaemonTestCase):
    """
    Receivers that check signatures with a library.
    """

    async def serve(self) -> Daemon:
        """A daemon with a secret of a name, and an older and a newer one of another name."""
        secret = self.root / "secret"
        secret.write_text(f"mine = {SECRET}\nboth = {OTHER}\nboth = {SECRET}\n")
        daemon = await self.start(f"--webhook-secret-file={secret}", "--webhook-allow=127.0.0.1")
        await daemon.call("/rest/open", topic="a")
        return daemon

    async def subscribe(self, daemon: Daemon, port: object, **options: Any) -> None:
        """A webhook that begins with the first event."""
        await daemon.call(
            "/rest/subscribe",
            topic="a",
            url=f"http://127.0.0.1:{port}/",
            offset="OFFSET_FIRST",
            **options,
        )

    async def startReceiver(self, secret: str) -> tuple[DaemonProtocol, str]:
        """A receiver on Node, and its port."""
        modules = nodeModules("standardwebhooks")
        node = neededProgram("node")
        protocol = DaemonProtocol()
        process = reactor.spawnProcess(
            protocol,
            node,
            [node, str(PROGRAM), secret],
            env={**os.environ, "NODE_PATH": modules},
            path=str(self.root),
        )

        def end() -> Deferred[int]:
            if not protocol.ended.called:
                process.signalProcess(signal.SIGKILL)
            return protocol.ended

        self.addCleanup(end)
        return protocol, (await protocol.waitFor(r"listening on (\d+)\."))[1]

    async def test_libraryOfNpmVerifies(self) -> None:
        """Single events and batches, while a secret is replaced, and with another secret never."""
        mine, port = await self.startReceiver(SECRET)
        other, otherPort = await self.startReceiver(OTHER)
        daemon = await self.serve()
        sent = await daemon.call("/rest/publish", topic="a", content=CONTENT)
        await self.subscribe(daemon, port, secret="mine")
        await mine.waitFor(f"verified {sent['eventId']} {CONTENT}\\.")
        for receiver, number in ((mine, port), (other, otherPort)):
            receiver.output = ""
            await self.subscribe(daemon, number, secret="both", batch=5)
            await receiver.waitFor(f"verified {sent['eventId']} {CONTENT}\\.")
        other.output = ""
        await self.subscribe(daemon, otherPort, secret="mine")
        await other.waitFor("refused: ")
        self.assertNotIn("verified", other.output)

    async def test_libraryOfPyPIVerifies(self) -> None:
        """Single events and batches: the receiver fails where the library does."""
        needPackage("standardwebhooks", "interop")
        daemon = await self.serve()
        await daemon.call("/rest/publish", topic="a", content=CONTENT)
        for secret, options in (
            (SECRET, {"secret": "mine"}),
            (SECRET, {"secret": "both", "batch": 5}),
            (OTHER, {"secret": "both"}),
        ):
            receiver = Receiver(self, secret)
            await self.subscribe(daemon, receiver.port, **options)
            await receiver.until(lambda: receiver.accepted == [CONTENT])  # noqa: B023
