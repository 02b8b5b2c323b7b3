"""
Copies of a chain by real daemons: a standby takes over, and what must not go on does not.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import textwrap
from contextlib import closing
from pathlib import Path
from typing import Final

from twisted.internet.defer import Deferred, DeferredList, gatherResults
from twisted.internet.utils import getProcessOutputAndValue

from svcbroker.proofs import verifyProof
from tests.archive.erasable import canary, filesWith
from tests.needed import neededProgram

from .daemon import Daemon
from .test_archive import COMMAND, ENVIRONMENT, ArchiveTestCase
from .test_durability import Publishers

PAGE: Final = Path(__file__).parents[2] / "docs" / "replication.rst"

MACHINE: Final = {
    "sleep": ":",
    "mount": "test -e mountable",
    "fence": "kill -9 {original} 2>/dev/null; echo fenced >> did",
    # It returns once the process is gone.
    "systemctl": """
        echo "$1" >> did
        test "$1" != stop ||
            { kill {copy}; while kill -0 {copy}; do /bin/sleep 0.05; done; } 2>/dev/null""",
    "runuser": 'shift 3; exec "$@"',
    "svcbroker": 'exec {command} "$@"',
}
"""What the page's watchdog finds on its machine: programs, and what they do here."""


class ReplicationTests(ArchiveTestCase):
    """
    Tests for the ledger C{copy}, and for C{svcbroker chain replicate} and C{promote}.
    """

    async def startOn(self, dataDir: Path, ledger: str) -> Daemon:
        """A daemon on a data directory."""
        self.dataDir = dataDir
        return await self.start(ledger=ledger)

    async def startCopy(self, dataDir: Path, original: Daemon) -> Daemon:
        """A daemon that copies another one."""
        url = f"{original.base}".replace(":", "\\:")
        return await self.startOn(dataDir, f"copy:url={url}")

    async def height(self, daemon: Daemon) -> int:
        """The height of a daemon's chain."""
        answer = await daemon.call("/rest/checkpoint")
        return int(answer["checkpoint"].partition(":")[0])

    async def contents(self, daemon: Daemon, answered: dict[str, str]) -> set[str]:
        """Which of some events a daemon has."""
        # At once: a copy waits for some seconds for each that is later than all it has.
        calls = [
            Deferred.fromCoroutine(daemon.call("/rest/getEvent", eventId=each)) for each in answered
        ]
        events = await gatherResults(calls, consumeErrors=True)
        return {
            each
            for each, event in zip(answered, events, strict=True)
            if event.get("eventId") == each
        }

    async def test_standbyTakesOverAfterKill(self) -> None:
        """
        The original is killed under load. The copy has every block up to its last one; promoted
        with the original's directory it has every event that was answered, and goes on. The
        original does not start again, but as a copy of the new one.
        """
        original = await self.startOn(self.root / "original", "pbft")
        for name in ("topic/0", "topic/1"):
            await original.call("/rest/open", topic=name)
        copy = await self.startCopy(self.root / "standby", original)
        publishers = Publishers(original, 200)
        running = publishers.run(8)
        await DeferredList(
            [running, publishers.enough], fireOnOneCallback=True, fireOnOneErrback=True
        )
        copied = await self.height(copy)
        self.assertGreater(copied, 0)
        chain = (await original.call("/rest/genesis"))["chain"]
        await original.stop(signal.SIGKILL)
        await running
        answered = dict(publishers.answered)
        height = await self.height(copy)
        seen = {each for each in answered if int(each.rpartition("-")[2]) <= height}
        self.assertGreater(len(seen), 0)
        self.assertEqual(await self.contents(copy, answered), seen)
        refused = await copy.call("/rest/publish", topic="topic/0", content="no")
        self.assertIn("this broker has a copy", refused["message"])
        self.assertEqual(await copy.stop(), 0)
        code, text = await self.command("replicate", original.base, self.root / "standby", "--once")
        self.assertEqual(code, 2, text)
        self.assertIn("cannot be reached", text)
        text = await self.done(
            "promote", self.root / "standby", "--original", self.root / "original"
        )
        ledger = text.split("--ledger ")[1].strip()
        promoted = await self.startOn(self.root / "standby", ledger)
        self.assertEqual(await self.contents(promoted, answered), set(answered))
        sent = await promoted.call("/rest/publish", topic="topic/0", content="goes on")
        self.assertEqual(sent["status"], "SUCCESS")
        for eventId in (next(iter(answered)), sent["eventId"]):
            proof = await promoted.call("/rest/proof", eventId=eventId)
            verified = verifyProof(json.dumps(proof).encode(), chain=bytes.fromhex(chain))
            self.assertEqual(verified.eventId, eventId)
        line = await self.refused(
            f"--data-dir={self.root / 'original'}", "--http=", "--ledger=pbft"
        )
        self.assertIn("has no keys", line)
        text = await self.done("replicate", promoted.base, self.root / "original", "--once")
        self.assertIn(f"copied up to block {await self.height(promoted)}", text)
        await self.done("audit", self.root / "original")

    def machine(self, original: Daemon, copy: Daemon) -> list[str]:
        """Write the watchdog of the page, and the programs that it runs; the way to start it."""
        script = PAGE.read_text("utf-8").partition("#!/bin/sh -eu")[2]
        script = textwrap.dedent(script.partition("\n\nWithout ``")[0])
        for there, here in (
            ("https://broker.example:8443", original.base.removesuffix("/svcbroker")),
            ("/usr/local/sbin/fence", "fence"),
            ("/mnt/svcbroker", "original"),
            ("/root/keys", "original/1/keys"),
            ("/var/lib/svcbroker", "standby"),
            ("/etc/svcbroker/svcbroker.toml", "config.toml"),
        ):
            self.assertIn(there, script)
            script = script.replace(there, here)
        (self.root / "watchdog").write_text(script)
        (self.root / "config.toml").write_text('ledger = "copy:url=x"\n')
        programs = self.root / "programs"
        programs.mkdir()
        values = {
            "original": original.process.pid,
            "copy": copy.process.pid,
            "command": " ".join(COMMAND),
        }
        for name, does in MACHINE.items():
            for key, value in values.items():
                does = does.replace(f"{{{key}}}", str(value))
            (programs / name).write_text(f"#!/bin/sh\n{does}\n")
            (programs / name).chmod(0o755)
        return ["-eu", "watchdog"]

    async def watch(self, arguments: list[str]) -> tuple[int, str, str]:
        """Run the watchdog once; its exit code, what it did to the machine, and its errors."""
        environment = {**ENVIRONMENT, "PATH": f"{self.root / 'programs'}:{os.environ['PATH']}"}
        result: tuple[bytes, bytes, int] = await getProcessOutputAndValue(
            "/bin/sh", arguments, env=environment, path=str(self.root)
        )
        did = self.root / "did"
        done = did.read_text().replace("\n", " ") if did.exists() else ""
        did.unlink(missing_ok=True)
        return result[2], done, result[1].decode()

    async def test_watchdogOfThePagePromotes(self) -> None:
        """It does nothing while the original is ready, and nothing that loses events by itself."""
        neededProgram("curl")
        neededProgram("jq")
        original = await self.startOn(self.root / "original", "pbft")
        await original.call("/rest/open", topic="topic/0")
        copy = await self.startCopy(self.root / "standby", original)
        sent = await original.call("/rest/publish", topic="topic/0", content="before")
        await copy.call("/rest/getEvent", eventId=sent["eventId"])
        arguments = self.machine(original, copy)
        self.assertEqual(await self.watch(arguments), (0, "", ""))
        await original.stop(signal.SIGKILL)
        code, did, errors = await self.watch(arguments)
        self.assertEqual((code, did), (1, "fenced disable stop start "), errors)
        self.assertIn("--accept-loss", errors)
        config = self.root / "config.toml"
        self.assertIn("copy:", config.read_text())
        (self.root / "mountable").touch()
        code, did, errors = await self.watch(arguments)
        self.assertEqual((code, did), (0, "fenced disable stop start "), errors)
        [ledger] = re.findall('^ledger = "(pbft:.*)"$', config.read_text(), re.MULTILINE)
        promoted = await self.startOn(self.root / "standby", ledger)
        event = await promoted.call("/rest/getEvent", eventId=sent["eventId"])
        self.assertEqual(event["eventId"], sent["eventId"])
        sent = await promoted.call("/rest/publish", topic="topic/0", content="after")
        self.assertEqual(sent["status"], "SUCCESS")

    async def test_copyOfOneRunHasNoErasedContent(self) -> None:
        """A run that ends by itself removes what the original has erased since the last one; where
        it cannot, it says so."""
        original = await self.startOn(self.root / "original", "pbft")
        await original.call("/rest/open", topic="topic/0")
        ids = []
        for number in range(3):
            content = canary(number).decode()
            sent = await original.call("/rest/publish", topic="topic/0", content=content)
            ids.append(sent["eventId"])
        standby = self.root / "standby"
        copying = ("replicate", original.base, standby, "--once")
        await self.done(*copying)
        for number in range(2):
            self.assertNotEqual(filesWith(standby, canary(number)), [])
            await self.done("erase", self.root / "original", "--reason", "asked", ids[number])
            if not number:
                await self.done(*copying)
                self.assertEqual(filesWith(standby, canary(0)), [])
        with closing(sqlite3.connect(standby / "1" / "ledger.sqlite")) as connection:
            connection.execute("INSERT INTO erasing VALUES (0, 0, 3, 3)")
            connection.commit()
        code, text = await self.command(*copying)
        self.assertEqual(code, 2, text)
        self.assertIn("contents of erased events are still in the copy", text)
        self.assertNotEqual(filesWith(standby, canary(2)), [])

    async def test_secondHistoryIsNoticed(self) -> None:
        """
        Where the original goes on beside a copy that was promoted with its keys, other copies and
        C{contradict} show it.
        """
        original = await self.startOn(self.root / "original", "pbft")
        await original.call("/rest/open", topic="topic/0")
        for name in ("standby", "witness"):
            await self.done("replicate", original.base, self.root / name, "--once")
        tip = await self.height(original)
        keys = self.root / "original" / "1" / "keys"
        promote = ("promote", self.root / "standby", "--keys", keys)
        code, text = await self.command(*promote, "--accept-loss", tip)
        self.assertEqual(code, 2, text)
        self.assertIn("something answers at", text)
        code, text = await self.command(*promote, "--original-is-stopped")
        self.assertIn(f"--accept-loss {tip}", text)
        await self.done(*promote, "--original-is-stopped", "--accept-loss", tip)
        promoted = await self.startOn(self.root / "standby", f"pbft:accept-loss={tip}")
        await original.call("/rest/publish", topic="topic/0", content="one history")
        await promoted.call("/rest/publish", topic="topic/0", content="another history")
        await self.done("replicate", promoted.base, self.root / "witness", "--once")
        code, text = await self.command("replicate", original.base, self.root / "witness", "--once")
        self.assertEqual(code, 3, text)
        self.assertIn("there are two histories", text)
        evidence = list((self.root / "witness" / "1").glob("refused-*.export"))
        self.assertEqual(len(evidence), 1)
        await self.done("export", self.root / "witness", "own.export", "--to", tip + 1)
        await self.done("export", self.root / "original", "other.export")
        text = await self.done("contradict", "own.export", "other.export")
        self.assertIn("CONTRADICTION", text)
