"""
The asynchronous client in a program of trio.
"""

from __future__ import annotations

import sys

from tests.functional.daemon import DaemonTestCase
from tests.needed import needPackage

PROGRAM = """
import sys
from contextlib import aclosing

import trio

from svcbroker.client import AsyncClient


async def main(url):
    async with AsyncClient(url) as client:
        await client.open("orders/new")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.publish, "orders/new", b"first")
            async with aclosing(client.follow("#", after="OFFSET_FIRST")) as events:
                async for event in events:
                    print("followed", event.content)
                    break
        with trio.move_on_after(0.5) as scope:
            async with aclosing(client.follow("#")) as events:
                async for event in events:
                    pass
        print("cancelled", scope.cancelled_caught)
        try:
            await AsyncClient("http://127.0.0.1:9/svcbroker", timeout=0.5).exist("a")
        except Exception as error:
            print(type(error).__name__)


trio.run(main, sys.argv[1])
"""


class TrioTests(DaemonTestCase):
    """
    L{AsyncClient<svcbroker.client.AsyncClient>} in trio.
    """

    async def test_callsAndStreamsWork(self) -> None:
        """Calls, streams, cancellation and delays work as in asyncio."""
        needPackage("trio", "interop")
        daemon = await self.start()
        process = self.spawn(sys.executable, "-c", PROGRAM, daemon.base)
        self.assertEqual((await process.exits(), process.protocol.errors), (0, ""))
        self.assertEqual(
            process.protocol.output.splitlines(),
            ["followed b'first'", "cancelled True", "Unreachable"],
        )
