"""
Reading events from a real daemon, page by page, while others publish.
"""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.error import ConnectingCancelledError
from twisted.internet.task import deferLater
from twisted.web.client import ResponseNeverReceived

from .daemon import Daemon, DaemonTestCase, reactor

EVENTS = 30_000
BATCH = 1000
TOPICS = ("orders/a", "orders/b")
SECONDS = 90.0
"""How long a walk over all events may take. It takes some 3 seconds on a free machine."""


class ReadingTests(DaemonTestCase):
    async def publish(self, daemon: Daemon, first: int, count: int) -> None:
        """Publish events with these numbers, in turn to the topics, in one batch."""
        batch = [
            {
                "jsonrpc": "2.0",
                "id": number,
                "method": "publish",
                "params": {"topic": TOPICS[number % 2], "content": "eA=="},
            }
            for number in range(first, first + count)
        ]
        answers = await daemon.call("/jsonrpc", "POST", json.dumps(batch).encode())
        self.assertEqual({answer["result"]["status"] for answer in answers}, {"SUCCESS"})

    async def test_walkOverManyEventsReadsEachOnceWhileOthersPublish(self) -> None:
        """Forwards and backwards, in bounded time."""
        daemon = await self.start(ledger="pbft:nodes=4")
        for topic in TOPICS:
            await daemon.call("/rest/open", topic=topic)
        for first in range(0, EVENTS, BATCH):
            await self.publish(daemon, first, BATCH)
        published = EVENTS
        isWalking = True

        async def publishMore() -> None:
            nonlocal published
            while isWalking:
                await self.publish(daemon, published, 10)
                published += 10

        publishing = Deferred.fromCoroutine(publishMore())

        async def walk(topic: str, **more: Any) -> list[dict[str, Any]]:
            began, found = reactor.seconds(), list[dict[str, Any]]()
            # More events come all the time.
            end = published
            isAtEnd = False
            while not isAtEnd and (more["reverse"] == "true" or len(found) < end):
                page = await daemon.call("/rest/events", topic=topic, limit=1000, **more)
                found += page["events"]
                more["from"], isAtEnd = page["next"], page["atEnd"]
            self.assertLess(reactor.seconds() - began, SECONDS)
            return found

        for topic, share in (("orders/+", 1), ("orders/a", 2)):
            for reverse in ("false", "true"):
                found = await walk(topic, reverse=reverse)
                if reverse == "true":
                    found.reverse()
                self.assertGreaterEqual(len(found), EVENTS // share)
                for name in TOPICS[: 3 - share]:
                    numbers = [e["sequenceNumber"] for e in found if e["topic"] == name]
                    self.assertEqual(numbers, list(range(1, len(numbers) + 1)))
                times = [event["timestamp"] for event in found]
                self.assertEqual(times, sorted(times))
        isWalking = False
        await publishing
        self.assertGreater(published, EVENTS)
        self.assertEqual(await daemon.stop(), 0)

    async def test_waitEndsWithAnEventOrTheDaemon(self) -> None:
        """An event answers all who wait; the daemon answers them when it stops."""
        daemon = await self.start(ledger="pbft:nodes=4")
        for topic in TOPICS:
            await daemon.call("/rest/open", topic=topic)

        # Where a request comes after the event, it is answered at once, and says the same.
        last = await daemon.call("/rest/publish", topic="orders/a", content="x")

        def wait(topic: str, after: str = last["eventId"]) -> Any:
            asked: dict[str, Any] = {"topic": topic, "from": after, "wait": 30}
            return Deferred.fromCoroutine(daemon.call("/rest/events", **asked))

        waiting = [wait(topic) for topic in ("orders/a", "orders/+", "#") for _ in range(10)]
        left, other = wait("orders/a"), wait("orders/b", "OFFSET_LAST")
        await deferLater(reactor, 0.5)
        left.cancel()
        await self.failUnlessFailure(left, ResponseNeverReceived, ConnectingCancelledError)
        began = reactor.seconds()
        sent = await daemon.call("/rest/publish", topic="orders/a", content="x")
        for page in await gatherResults(waiting):
            self.assertEqual([event["eventId"] for event in page["events"]], [sent["eventId"]])
            self.assertTrue(page["atEnd"])
        self.assertEqual(await daemon.stop(), 0)
        self.assertEqual((await other)["events"], [])
        self.assertLess(reactor.seconds() - began, 25)
        self.assertNotIn("#critical", daemon.protocol.output)
