"""
Signed events of a real daemon: keys and signatures are made by the script of the documentation.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from twisted.internet.threads import deferToThread

import svcbroker
from tests.authors import makeKeyFile

from .daemon import Daemon, DaemonTestCase

SCRIPT = Path(svcbroker.__file__).parent.parent / "docs" / "examples" / "sign-event.sh"


class AuthorshipTests(DaemonTestCase):
    async def start_(self) -> Daemon:
        daemon = await self.start(ledger="pbft:nodes=4")
        self.chain = (await daemon.call("/rest/genesis"))["chain"]
        return daemon

    async def sign(
        self, name: str, topic: str, content: bytes, key: str | None = None, expected: str = ""
    ) -> dict[str, str]:
        """What the script writes."""
        command = ("sh", str(SCRIPT), str(self.root / name), self.chain, topic)
        environment = {
            "PATH": os.environ["PATH"],
            "IDEMPOTENCY_KEY": key or "",
            "EXPECTED_SEQUENCE": expected,
        }
        done = await deferToThread(
            subprocess.run,
            command,
            input=content,
            env=environment,
            check=True,
            capture_output=True,
        )
        return {name: str(value) for name, value in json.loads(done.stdout).items()}

    async def publish(self, daemon: Daemon, content: bytes, **more: str) -> str:
        """Publish by POST; the event's id, or the code of the error."""
        form = {"topic": "t", "content": content, **more}
        answer = await daemon.call("/rest/publish", "POST", form)
        return str(answer.get("eventId") or answer["code"])

    async def test_scriptSignsWhatTheChainTakes(self) -> None:
        daemon = await self.start_()
        for name in ("ann", "eve"):
            makeKeyFile(self.root / name)
        content = b'{"total": 12}\n\0\xff'
        signed = await self.sign("ann", "t", content, "order-1")
        await daemon.call("/rest/open", topic="t", authors=signed["author"])
        eventId = await self.publish(daemon, content, idempotencyKey="order-1", **signed)
        again = await self.publish(daemon, content, idempotencyKey="order-1", **signed)
        self.assertEqual(again, eventId)
        event = await daemon.call("/rest/getEvent", eventId=eventId)
        self.assertEqual(
            (event["author"], event["signature"], str(event["signedAt"])),
            (signed["author"], signed["signature"], signed["signedAt"]),
        )
        self.assertEqual(await self.publish(daemon, content), "100211")
        other = await self.sign("eve", "t", content)
        self.assertEqual(await self.publish(daemon, content, **other), "100211")
        self.assertEqual(await self.publish(daemon, b"x", **signed), "100210")
        state = await daemon.call("/rest/state", topic="t")
        self.assertEqual((state["sequenceNumber"], state["authors"]), (1, [signed["author"]]))

    async def test_signedNumberIsTheTopics(self) -> None:
        """
        An event that is signed with its expected number stands there or nowhere. Its chain is of
        format 4 then: it is audited, exported, imported and continued.
        """
        daemon = await self.start_()
        makeKeyFile(self.root / "ann")
        await daemon.call("/rest/open", topic="t")
        first = await self.publish(daemon, b"first")
        signed = await self.sign("ann", "t", b"x", "k", expected="1")
        for more in ({}, {"expectedSequence": "0"}):
            refused = await self.publish(daemon, b"x", idempotencyKey="k", **more, **signed)
            self.assertEqual(refused, "100210")
        given = {"idempotencyKey": "k", "expectedSequence": "1", **signed}
        eventId = await self.publish(daemon, b"x", **given)
        self.assertEqual(eventId.split("-")[1], "2")
        self.assertEqual(await self.publish(daemon, b"x", **given), eventId)
        late = await self.sign("ann", "t", b"y", expected="1")
        self.assertEqual(await self.publish(daemon, b"y", expectedSequence="1", **late), "100209")
        directory, copy = self.dataDir, self.root / "copy"
        erasing = self.exitCode("erase", directory, "--reason", "asked", eventId)
        self.assertEqual(await erasing, 0)
        self.assertEqual(await self.publish(daemon, b"x", **given), "100208")
        self.assertEqual(await daemon.stop(signal.SIGTERM), 0)
        self.assertEqual(await self.exitCode("audit", directory), 0)
        exported = self.root / "chain.export"
        self.assertEqual(await self.exitCode("export", directory, exported), 0)
        self.assertEqual(await self.exitCode("import", exported, copy), 0)
        self.assertEqual(await self.exitCode("audit", copy), 0)
        daemon = await self.start(ledger="pbft:nodes=4")
        self.assertEqual(await self.publish(daemon, b"x", **given), "100208")
        event = await daemon.call("/rest/getEvent", eventId=first)
        self.assertEqual(event["eventId"], first)
        self.assertEqual((await self.publish(daemon, b"last")).split("-")[1], "3")

    async def exitCode(self, *arguments: object) -> int:
        """The exit code of a command."""
        running = self.spawn(sys.executable, "-m", "svcbroker.commands", *arguments)
        return await running.exits()

    async def test_commandSignsTheSame(self) -> None:
        self.chain = "ab" * 32
        makeKeyFile(self.root / "ann")
        signed = await self.sign("ann", "t", b"x", "k")
        command = (
            *(sys.executable, "-m", "svcbroker.commands", "sign", "--key", self.root / "ann"),
            *("--chain", self.chain, "--topic", "t", "--time", signed["signedAt"]),
            *("--idempotency-key", "k", "x"),
        )
        signing = self.spawn(*command)
        self.assertEqual(await signing.exits(), 0)
        self.assertIn(signed["signature"], signing.protocol.output)
