"""
What the contract's tests are written with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase
from zope.interface import implementer

from ..interfaces import IBlockObserver, ILedger, submit
from ..model import Block, Event, EventId, Page, PublishEvent, Receipt, Request, Topic
from ..net.deferreds import asDeferred
from ._fixtures import LedgerFixture

T = TypeVar("T")

TURNS = 5000
"""How often time may pass before a ledger is said not to answer."""


@implementer(IBlockObserver)
class RecordingObserver:
    """
    Keeps the blocks that it is told of.

    @ivar blocks: all of them, in order.
    """

    def __init__(self) -> None:
        self.blocks: list[Block] = []

    def blockCommitted(self, block: Block) -> None:
        self.blocks.append(block)


@implementer(IBlockObserver)
class FailingObserver:
    """Raises whenever it is told of a block."""

    def blockCommitted(self, block: Block) -> None:
        raise RuntimeError("this observer always fails")


class LedgerKit(TestCase):
    """
    A ledger under test, and how its answers are waited for.
    """

    def makeFixture(self) -> LedgerFixture:
        raise NotImplementedError

    async def begin(self) -> ILedger:
        """A ledger that has started."""
        self.fixture = self.makeFixture()
        self.directory = Path(self.mktemp())
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        self.isStopped = True
        self.addCleanup(self.end)
        return await self.startAgain()

    async def startAgain(self) -> ILedger:
        """Another ledger in the same directory."""
        self.ledger = self.fixture.makeLedger(self.directory)
        await self.settle(self.ledger.start())
        self.isStopped = False
        return self.ledger

    @asDeferred
    async def end(self) -> None:
        """Stop the ledger if it runs."""
        if not self.isStopped:
            self.isStopped = True
            await self.settle(self.ledger.stop())

    async def settle(self, answer: Deferred[T]) -> T:
        """The result of a Deferred, after as much time as it takes, within reason."""
        results: list[Any] = []
        answer.addBoth(results.append)
        for _ in range(TURNS):
            if results:
                break
            await self.fixture.pass_()
        else:
            self.fail("the ledger does not answer")
        if isinstance(results[0], Failure):
            results[0].raiseException()
        result: T = results[0]
        return result

    async def fails(self, answer: Deferred[Any], error: type[Exception]) -> None:
        """Make sure that a Deferred fails with an error."""
        with self.assertRaises(error):
            await self.settle(answer)

    async def submit(self, *requests: Request) -> Sequence[Receipt]:
        """Submit all at once, and wait for the receipts."""
        answers = [submit(self.ledger, request) for request in requests]
        return [await self.settle(answer) for answer in answers]

    async def publish(self, topic: str, *contents: bytes) -> Sequence[EventId]:
        """Publish events, and give their ids."""
        ids = []
        for receipt in await self.submit(
            *(PublishEvent(topic=topic, content=content) for content in contents)
        ):
            assert receipt.eventId is not None, receipt
            ids.append(receipt.eventId)
        return ids

    def topic(self, name: str) -> Topic:
        """A topic that must be there."""
        topic = self.ledger.topicState(name)
        assert topic is not None, name
        return topic

    async def height(self) -> int:
        """The chain's height."""
        return (await self.settle(self.ledger.getStatistics())).height

    async def allEvents(self) -> Sequence[Event]:
        """Every event, by reading every block."""
        events: list[Event] = []
        for height in range(1, await self.height() + 1):
            block = await self.settle(self.ledger.readBlock(height))
            self.assertEqual(block.height, height)
            events += block.events
        return events

    async def allPages(self, read: Callable[[int, int], Deferred[Page[T]]], limit: int) -> list[T]:
        """Every item of a list, by reading every page."""
        items: list[T] = []
        for _ in range(TURNS):
            page = await self.settle(read(len(items), limit))
            self.assertLessEqual(len(page.items), limit)
            if not page.items:
                break
            items += page.items
        self.assertEqual(page.total, len(items))
        return items
