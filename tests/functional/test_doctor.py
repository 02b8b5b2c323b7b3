"""
C{svcbroker doctor} beside a real daemon, and on a directory with faults.
"""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from twisted.internet.protocol import Factory
from twisted.protocols.wire import Echo

from .daemon import DaemonTestCase, reactor


class DoctorTests(DaemonTestCase):
    """
    The command, as an operator runs it.
    """

    async def doctor(self, *arguments: object) -> tuple[int, list[dict[str, Any]]]:
        """The exit code of the doctor, and its findings."""
        code, output, errors = await self.outcomeOf(
            *("doctor", "--json", f"--data-dir={self.dataDir}", "--stomp=", "--mqtt="), *arguments
        )
        self.assertEqual(errors, "")
        *findings, summary = map(json.loads, output.splitlines())
        self.assertEqual(summary["good"], sum(each["level"] == "good" for each in findings))
        return code, findings

    def files(self) -> set[Path]:
        """The files of the data directory, but those that a daemon writes every minute."""
        return {path for path in self.dataDir.rglob("*") if not path.name.startswith(".history")}

    async def test_daemonIsGoodAndFiveFaultsAreNamed(self) -> None:
        """A daemon that works has no problem, and is left alone; then five faults are named."""
        daemon = await self.start(ledger="pbft")
        port = daemon.base.rpartition(":")[2].partition("/")[0]
        await daemon.rpc("open", topic="a", groupId="1")
        http = f"--http=tcp:{port}:interface=127.0.0.1"
        before = self.files()
        code, findings = await self.doctor(http)
        self.assertEqual(self.files(), before)
        problems = [each for each in findings if each["level"] == "problem"]
        self.assertEqual((code, problems), (0, []))
        (listening,) = [each["finding"] for each in findings if each["subject"] == "http"]
        self.assertIn(f"the daemon (process {daemon.process.pid})", listening)
        self.assertIn("and answers", listening)
        self.assertEqual((await daemon.call("/admin/getVersion"))["code"], 0)

        # The faults: the end of the chain is lost, a key is damaged, others may read the keys, the
        # port belongs to another program, and the file of the configuration has a mistake.
        self.assertEqual(await daemon.stop(), 0)
        with closing(sqlite3.connect(self.dataDir / "1/ledger.sqlite")) as connection:
            connection.execute("DELETE FROM head")
            connection.commit()
        (self.dataDir / "1/keys/node0.key").write_text("no key")
        (self.dataDir / "1/keys/node1.key").chmod(0o644)
        self.dataDir.chmod(0o755)
        other = reactor.listenTCP(0, Factory.forProtocol(Echo), interface="127.0.0.1")
        self.addCleanup(other.stopListening)
        file = self.root / "broker.toml"
        file.write_text('log-leval = "info"\n')
        http = f"--http=tcp:{other.getHost().port}:interface=127.0.0.1"
        code, findings = await self.doctor(f"--config={file}", http)
        found = "\n".join(each["finding"] for each in findings if each["level"] == "problem")
        self.assertEqual(code, 1)
        for words in (
            "line 1: log-leval: there is no such setting; did you mean log-level?",
            f"another program, process {os.getpid()}",
            "others may read 1/keys/node1.key",
            "had been stored: 1 block is missing",
            "it is not a key",
        ):
            self.assertIn(words, found)
        self.assertTrue(all(each["remedy"] for each in findings if each["level"] == "problem"))
