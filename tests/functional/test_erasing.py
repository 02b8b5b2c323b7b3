"""
Erasing events of a real daemon, by the command.
"""

from __future__ import annotations

import sys
from pathlib import Path

from .daemon import DaemonTestCase

CANARY = "a canary that must be gone"


class ErasingTests(DaemonTestCase):
    async def erase(self, *words: object) -> tuple[int, str]:
        """Run the command; its exit code and what it says."""
        module = ("-m", "svcbroker.commands")
        command = self.spawn(sys.executable, *module, "erase", self.dataDir, *words)
        code = await command.exits()
        return code, command.protocol.output + command.protocol.errors

    async def test_commandErasesEvents(self) -> None:
        daemon = await self.start(ledger="pbft:nodes=4")
        await daemon.call("/rest/open", topic="t")
        ids = []
        for number in range(4):
            content = f"{CANARY} {number}"
            answer = await daemon.call("/rest/publish", topic="t", content=content)
            ids.append(answer["eventId"])
        self.assertEqual(
            await self.erase("--reason", "asked for", ids[3], ids[0]), (0, "2 events erased\n")
        )
        answer = await daemon.call("/rest/getEvent", eventId=ids[0])
        self.assertEqual(answer["code"], 100305)
        self.assertEqual(answer["erased"]["reason"], "asked for")
        code, said = await self.erase("--reason", "old", "--topic", "t", "--before", ids[2])
        self.assertEqual((code, said), (0, "2 events erased\n"))
        page = await daemon.call("/rest/events", topic="t")
        self.assertEqual([event["eventId"] for event in page["events"]], [ids[2]])
        page = await daemon.call("/rest/events", topic="t", erased="tombstone")
        erased = [event.get("erased") for event in page["events"]]
        self.assertEqual(erased, [True, True, None, True])
        code, said = await self.erase("--reason", "x", "00000000-1-1")
        self.assertEqual(code, 1)
        self.assertIn("event does not exist", said)
        await daemon.stop()
        files = [path for path in Path(self.dataDir).rglob("*") if path.is_file()]
        for number in (0, 1, 3):
            canary = f"{CANARY} {number}".encode()
            self.assertEqual([str(path) for path in files if canary in path.read_bytes()], [])
