"""
Audit, backup, export and import by the real commands, beside a real daemon under load.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from base64 import b64decode
from pathlib import Path
from typing import Any

from twisted.internet.defer import DeferredList
from twisted.trial.unittest import SynchronousTestCase

import svcbroker
from svcbroker.chain import Certificate
from svcbroker.storage import Store
from tools.vectors.signedchain import SignedChain

from .daemon import Daemon, DaemonTestCase
from .test_durability import Publishers

ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(
        filter(None, [str(Path(svcbroker.__file__).parent.parent), os.getenv("PYTHONPATH")])
    ),
}
COMMAND = [sys.executable, "-m", "svcbroker.commands"]


class ArchiveTestCase(DaemonTestCase):
    """
    Runs commands on data directories.
    """

    async def command(self, *arguments: object) -> tuple[int, str]:
        """The exit code of C{svcbroker ...}, and all that it writes."""
        code, output, errors = await self.outcomeOf(*arguments)
        return code, output + errors

    async def done(self, *arguments: object) -> str:
        """What a command writes that does its work."""
        code, text = await self.command(*arguments)
        self.assertEqual(code, 0, text)
        return text


class ArchiveTests(ArchiveTestCase):
    """
    Backup, export and import with real daemons.
    """

    async def load(self, daemon: Daemon, wanted: int) -> tuple[Publishers, Any]:
        """Publishers that have so many answers, and go on; and when they have ended."""
        publishers = Publishers(daemon, wanted)
        running = publishers.run(8)
        await DeferredList(
            [running, publishers.enough], fireOnOneCallback=True, fireOnOneErrback=True
        )
        return publishers, running

    async def startOn(self, dataDir: Path) -> Daemon:
        """A daemon on another data directory."""
        self.dataDir = dataDir
        return await self.start(ledger="pbft:nodes=4")

    async def test_daemonGoesOnFromBackupMadeUnderLoad(self) -> None:
        """
        A backup made under load, while the replicas get new keys, has every event answered
        before it; a daemon continues from it, in rounds that the original never used.
        """
        daemon = await self.startOn(self.root / "data")
        for name in ("topic/0", "topic/1"):
            await daemon.call("/rest/open", topic=name)
        publishers, running = await self.load(daemon, 100)
        await self.done("audit", self.dataDir)
        changing = self.command("nodes", self.dataDir, "rotate", "all")
        answered = dict(publishers.answered)
        copy = self.root / "copy"
        text = await self.done("backup", "--audit", self.dataDir, copy)
        self.assertIn("is good", text)
        tip = text.split("copied up to block ")[1].split()[0]
        code, text = await changing
        self.assertEqual(code, 0, text)
        await self.done("audit", self.dataDir)
        height = int(tip.split(":")[0]) + 1
        kept = await daemon.call("/rest/checkpoint", height=height)
        await daemon.stop(signal.SIGKILL)
        await running
        original = self.dataDir
        restored = await self.startOn(copy)
        for eventId, content in answered.items():
            event = await restored.call("/rest/getEvent", eventId=eventId)
            self.assertEqual(b64decode(event["content"]).decode(), content)
        sent = await restored.call("/rest/publish", topic="topic/0", content="restored")
        self.assertEqual(sent["status"], "SUCCESS")
        # As the pages tell operators to.
        await self.done("nodes", copy, "rotate", "all")
        sent = await restored.call("/rest/publish", topic="topic/0", content="and on")
        self.assertEqual(sent["status"], "SUCCESS")
        self.assertEqual(await restored.stop(), 0)
        # The copy's end is in both histories; what the original decided later is not.
        await self.done("audit", "--checkpoint", tip, copy)
        await self.done("audit", "--checkpoint", tip, original)
        checkpoints = self.root / "checkpoints"
        checkpoints.write_text(f"{json.dumps(kept)}\n{tip}\n")
        await self.done("audit", "--checkpoint", checkpoints, original)
        code, text = await self.command("audit", "--checkpoint", checkpoints, copy)
        self.assertEqual(code, 1)
        self.assertIn(f"checkpoint {kept['checkpoint']}: the chain was rewritten", text)
        rounds = [self.roundOf(directory, height) for directory in (original, copy)]
        self.assertLess(rounds[0], 100)
        self.assertGreaterEqual(rounds[1], 1000)

    def roundOf(self, dataDir: Path, height: int) -> int:
        """The round in which a block was decided."""
        store = Store.open(dataDir / "1" / "ledger.sqlite")
        try:
            row = store.blockHead(height)
            assert row is not None
            return Certificate.decode(row.certificate).round
        finally:
            store.close()

    async def test_exportedChainGoesOnElsewhere(self) -> None:
        """A chain is exported under load, imported elsewhere in two parts, and continued there."""
        daemon = await self.startOn(self.root / "data")
        for name in ("topic/0", "topic/1"):
            await daemon.call("/rest/open", topic=name)
        publishers, running = await self.load(daemon, 30)
        await self.done("export", self.dataDir, "first.export")
        height = int((await daemon.call("/rest/checkpoint"))["height"])
        await self.done("export", self.dataDir, "--to", height, self.root / "upto.export")
        code, text = await self.command("import", "first.export", self.dataDir)
        self.assertEqual(code, 2)
        self.assertIn("another svcbroker is using", text)
        await daemon.stop(signal.SIGTERM)
        await running
        await self.done("export", self.dataDir, "--from", height, "second.export")
        elsewhere = self.root / "elsewhere"
        await self.done("import", "upto.export", elsewhere)
        text = await self.done("import", "second.export", elsewhere)
        self.assertIn(" 1 were there already", text)
        self.assertIn(": good;", await self.done("audit", elsewhere))
        refusal = await self.refused("--http=", "--ledger=pbft", f"--data-dir={elsewhere}")
        self.assertIn("has no keys, so this chain can be read but not go on", refusal)
        (self.dataDir / "1" / "keys").rename(elsewhere / "1" / "keys")
        moved = await self.startOn(elsewhere)
        for eventId, content in publishers.answered.items():
            event = await moved.call("/rest/getEvent", eventId=eventId)
            self.assertEqual(b64decode(event["content"]).decode(), content)
        sent = await moved.call("/rest/publish", topic="topic/0", content="moved")
        self.assertEqual(sent["status"], "SUCCESS")
        self.assertEqual(await moved.stop(), 0)


class KilledTests(SynchronousTestCase):
    """
    Commands that are killed.
    """

    def test_killedImportIsContinuedByRepeatingIt(self) -> None:
        """A killed import has stored whole blocks, and the same command continues it."""
        root = Path(self.mktemp()).absolute()
        (root / "data" / "1").mkdir(parents=True)
        chain = SignedChain(root / "data" / "1")
        chain.store._writing.execute("PRAGMA synchronous = OFF")
        chain.open("topic")
        for number in range(600):
            chain.publish("topic", b"%600d" % number)
        chain.close()
        stream = root / "stream"
        self.run_("export", root / "data", stream)
        data = stream.read_bytes()
        other = root / "other"
        with subprocess.Popen(
            [*COMMAND, "import", "-", other], stdin=subprocess.PIPE, env=ENVIRONMENT
        ) as child:
            assert child.stdin is not None
            # When the pipe has taken it, all of it but some kilobytes was read.
            child.stdin.write(data[: len(data) * 9 // 10])
            child.stdin.flush()
            child.kill()
            child.wait()
        self.run_("audit", other)
        text = self.run_("import", stream, other)
        known = int(text.split(" were there already")[0].split()[-1])
        self.assertIn(known, (256, 512))
        self.assertIn(f"{601 - known} blocks added", text)
        self.assertIn(str(chain.head.hash.hex()), text)
        self.run_("audit", other)

    def run_(self, *arguments: object) -> str:
        """What a command writes that does its work."""
        ended = subprocess.run(
            [*COMMAND, *map(str, arguments)], env=ENVIRONMENT, capture_output=True, text=True
        )
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        return ended.stdout
