"""
Holds of a real daemon, by the commands and accounts.
"""

from __future__ import annotations

import json
import sys

from .daemon import DaemonTestCase


class HoldingTests(DaemonTestCase):
    async def svcbroker(self, *words: object) -> tuple[int, str]:
        """Run a command; its exit code and what it says."""
        command = self.spawn(sys.executable, "-m", "svcbroker.commands", *words)
        code = await command.exits()
        return code, command.protocol.output + command.protocol.errors

    async def test_heldEventsOutliveErasures(self) -> None:
        """Also after a restart; after the release they are erased, by hand and by age."""
        daemon = await self.start(ledger="pbft:nodes=4")
        await daemon.call("/rest/open", topic="t")
        ids = []
        for number in range(3):
            answer = await daemon.call("/rest/publish", topic="t", content=f"{number}")
            ids.append(answer["eventId"])
        where = ("--data-dir", self.dataDir)
        code, said = await self.svcbroker(
            *("hold", "add", "case-1", ids[1], "--reason", "court order", *where)
        )
        self.assertEqual(code, 0, said)
        erasing = ("admin", "erase", "--topic", "t", "--last", "3", *where)
        code, said = await self.svcbroker(*erasing, "--reason", "asked")
        self.assertEqual(code, 1)
        self.assertIn("1 event is held and not erased: case case-1", said)
        await daemon.stop()
        daemon = await self.start(ledger="pbft:nodes=4")
        code, said = await self.svcbroker(*erasing, "--dry-run", "--json")
        self.assertEqual(code, 1)
        self.assertEqual(
            json.loads(said),
            {
                "erasable": 2,
                "held": 1,
                "holds": [{"case": "case-1", "topicName": "t", "first": 2, "last": 2}],
            },
        )
        code, said = await self.svcbroker(*erasing, "--reason", "asked", "--except-held")
        self.assertEqual((code, said), (0, "2 events erased\n"))
        page = await daemon.call("/rest/events", topic="t")
        self.assertEqual([event["eventId"] for event in page["events"]], [ids[1]])
        code, said = await self.svcbroker("hold", "list", *where)
        self.assertEqual(code, 0)
        self.assertIn("case-1  since ", said)
        code, said = await self.svcbroker(
            *("hold", "add", "case-2", ids[0], "--reason", "too late", *where)
        )
        self.assertEqual(code, 1)
        self.assertIn(f"the content of {ids[0]} was erased, so it cannot be held", said)
        code, said = await self.svcbroker(
            *("hold", "release", "case-1", "--reason", "closed", *where)
        )
        self.assertEqual(code, 0, said)
        code, said = await self.svcbroker(*erasing, "--reason", "asked")
        self.assertEqual((code, said), (0, "3 events erased\n"))
        await daemon.stop()
        code, said = await self.svcbroker("chain", "audit", self.dataDir)
        self.assertEqual(code, 0, said)
