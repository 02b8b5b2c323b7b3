"""
The ledger that the documentation shows how to write, chosen by its name on a real daemon.
"""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any

from .daemon import DaemonTestCase

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "journal"


class JournalTests(DaemonTestCase):
    """
    A plugin from a directory of its own.
    """

    async def test_exampleLedgerServesAndPersists(self) -> None:
        """It is found, shown, chosen, and goes on after SIGKILL where it was."""
        self.pluginPath = Path(shutil.copytree(EXAMPLE, self.root / "elsewhere"))
        shown = self.run_(["--help-ledger"])
        self.assertEqual(await shown.exits(), 0)
        self.assertIn("journal\n", shown.protocol.output)
        daemon = await self.start(ledger="journal:file=log.txt")
        self.assertIs(await daemon.call("/rest/open", topic="t"), True)
        publish: Any = {"topic": "t", "content": "kept", "idempotencyKey": "one"}
        sent = await daemon.call("/rest/publish", **publish)
        blocks = await daemon.call("/admin/block/blockList")
        self.assertEqual(await daemon.stop(signal.SIGKILL), -signal.SIGKILL)
        self.assertTrue((self.dataDir / "1" / "log.txt").exists())
        daemon = await self.start(ledger="journal:file=log.txt")
        event = await daemon.call("/rest/getEvent", eventId=sent["eventId"])
        self.assertEqual(event["content"], "a2VwdA==")
        self.assertEqual(await daemon.call("/admin/block/blockList"), blocks)
        self.assertEqual(await daemon.call("/rest/publish", **publish), sent)
