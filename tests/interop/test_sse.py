"""
A client of Server-Sent Events with its defaults: httpx-sse.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

from twisted.internet.threads import deferToThread

from tests.functional.daemon import Daemon, DaemonTestCase
from tests.needed import needPackage
from tests.waiting import TIMEOUT

with contextlib.suppress(ImportError):
    import httpx
    import httpx_sse


class HttpxSseTests(DaemonTestCase):
    """httpx-sse."""

    def setUp(self) -> None:
        needPackage("httpx_sse", "interop")
        super().setUp()

    def read(self, url: str, count: int, last: str = "") -> list[tuple[str, Any]]:
        """The first events of a stream: their ids and what they hold. Called in a thread."""
        headers = {"Last-Event-ID": last} if last else {}
        found: list[tuple[str, Any]] = []
        with (
            httpx.Client(timeout=TIMEOUT) as client,
            httpx_sse.connect_sse(client, "GET", url, headers=headers) as source,
        ):
            for event in source.iter_sse():
                if event.event == "event":
                    found.append((event.id, json.loads(event.data)["eventId"]))
                else:
                    found.append((event.id, event.data))
                if len(found) == count:
                    break
        return found

    async def published(self) -> tuple[Daemon, list[str]]:
        """A daemon, and the ids of three events that it has."""
        daemon = await self.start()
        await daemon.call("/rest/open", topic="t")
        ids = []
        for number in range(3):
            sent = await daemon.call("/rest/publish", topic="t", content=str(number))
            ids.append(sent["eventId"])
        return daemon, ids

    async def test_eventsCarryTheirIds(self) -> None:
        daemon, ids = await self.published()
        url = f"{daemon.base}/rest/follow?topic=t&from=OFFSET_FIRST"
        found = await deferToThread(self.read, url, 4)
        self.assertEqual([each for each in found if each[1]][:3], [(each, each) for each in ids])
        self.assertEqual(await daemon.stop(), 0)

    async def test_resumedStreamBeginsWithAnEvent(self) -> None:
        """There is no event without data before it."""
        daemon, ids = await self.published()
        url = f"{daemon.base}/rest/follow?topic=t"
        found = await deferToThread(self.read, url, 2, ids[0])
        self.assertEqual(found, [(each, each) for each in ids[1:]])
        self.assertEqual(await daemon.stop(), 0)
