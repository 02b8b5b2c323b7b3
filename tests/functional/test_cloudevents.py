"""
CloudEvents of a real daemon.
"""

from __future__ import annotations

import json

from .daemon import Daemon, DaemonTestCase

EVENT = {"specversion": "1.0", "id": "7", "source": "/s", "type": "t", "data": {"x": [1]}}


class CloudEventsTests(DaemonTestCase):
    async def startBelow(self, base: str) -> Daemon:
        """A daemon with this base path."""
        return await self.start(f"--base-path={base}", ledger="pbft:nodes=4")

    async def test_pagesHaveWhatWasPublished(self) -> None:
        """By REST and by JSON-RPC, after a restart too."""
        daemon = await self.startBelow("/b")
        await daemon.call("/rest/open", topic="a/b")
        sent = await daemon.call(
            "/rest/cloudevents?topic=a/b",
            "POST",
            json.dumps(EVENT).encode(),
            {"Content-Type": "application/cloudevents+json"},
        )
        self.assertEqual(await daemon.stop(), 0)
        daemon = await self.startBelow("/b")
        other = await daemon.call("/rest/publish", topic="a/b", content="x")
        page = await daemon.call("/rest/events", topic="a/+", format="cloudevents")
        answer = await daemon.rpc("events", topic="a/+", format="cloudevents")
        self.assertEqual(answer["result"]["events"], page["events"])
        first, second = page["events"]
        place = "/b/1/a%2Fb"
        self.assertEqual(first, {**EVENT, "svceventid": sent["eventId"], "svcsource": place})
        made = [second[name] for name in ("id", "source", "type", "data_base64")]
        self.assertEqual(made, [other["eventId"], place, "svc.event", "eA=="])
