"""
The main way once more, over a real socket.
"""

from __future__ import annotations

import json
from typing import Any

from treq.client import HTTPClient
from twisted.internet import reactor
from twisted.internet.endpoints import TCP4ServerEndpoint
from twisted.trial.unittest import TestCase
from twisted.web.client import Agent, HTTPConnectionPool

from .support import BASE, Client


class LoopbackTests(TestCase):
    async def setUp(self) -> None:  # type: ignore[override]
        self.client = Client()
        endpoint = TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1")
        self.port = await endpoint.listen(self.client.site)
        pool = HTTPConnectionPool(reactor)
        self.http = HTTPClient(Agent(reactor, pool=pool))
        self.base = f"http://127.0.0.1:{self.port.getHost().port}{BASE}"
        self.addCleanup(pool.closeCachedConnections)

    async def tearDown(self) -> None:  # type: ignore[override]
        await self.port.stopListening()
        await self.client.site.drain()

    async def get(self, call: str, **params: str) -> Any:
        response = await self.http.get(f"{self.base}/{call}", params=params)
        return await response.json()

    async def test_publishAndRead(self) -> None:
        self.assertIs(await self.get("rest/open", topic="hello"), True)
        response = await self.http.post(
            f"{self.base}/rest/publish", data={"topic": "hello", "content": "x" * 900}
        )
        sent = await response.json()
        self.assertEqual(sent["status"], "SUCCESS")
        call = {
            "jsonrpc": "2.0",
            "id": "a",
            "method": "getEvent",
            "params": {"eventId": sent["eventId"]},
        }
        response = await self.http.post(f"{self.base}/jsonrpc", json=call)
        answer = await response.json()
        self.assertEqual(answer["result"]["eventId"], sent["eventId"])
        self.assertEqual((await self.get("admin/block/blockList"))["data"]["total"], 2)

    async def test_tooLargeBodyIsAnswered(self) -> None:
        """A client that sends far too much still gets its answer."""
        response = await self.http.post(f"{self.base}/rest/publish", data=b"x" * 5_000_000)
        self.assertEqual((await response.json())["code"], 100201)

    async def test_batchOfNotifications(self) -> None:
        body = json.dumps([{"jsonrpc": "2.0", "method": "open", "params": ["t"]}]).encode()
        response = await self.http.post(f"{self.base}/jsonrpc", data=body)
        self.assertEqual((response.code, await response.content()), (204, b""))
        self.assertIs(await self.get("rest/exist", topic="t"), True)
