"""
Fixtures of ledgers under test: their disk, clock and reactor, the kit that the contract's tests
are written with, and ledgers that misbehave when a test asks for it.
"""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from twisted.internet.defer import Deferred, fail, maybeDeferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import Clock, deferLater
from twisted.internet.threads import deferToThread
from twisted.python.components import proxyForInterface
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase
from zope.interface import implementer

from ..errors import BrokerError
from ..interfaces import IBlockObserver, IHoldLedger, ILedger, LedgerContext, Submission, submit
from ..ledgers.memory import MemoryLedger
from ..model import (
    Block,
    Event,
    EventId,
    Health,
    HeldRange,
    HoldRecord,
    Page,
    PublishEvent,
    Receipt,
    ReleasedPage,
    Request,
    Topic,
)
from ..net.deferreds import asDeferred


@implementer(IHoldLedger)
class ScriptedLedger(proxyForInterface(ILedger, "_ledger")):  # type: ignore[misc]
    """
    A ledger over another one, whose answers a test holds back or replaces.

    @ivar error: what every read and every request fails with, while it is set.
    @ivar receipt: what every request answers instead of being carried out, while it is set.
    @ivar isHolding: whether requests wait for L{release}.
    @ivar submitted: what was submitted, in order.
    """

    error: Exception | None = None
    receipt: Receipt | None = None
    isHolding = False

    def __init__(self, ledger: ILedger) -> None:
        super().__init__(ledger)
        self.submitted: list[Request] = []
        self._held: deque[tuple[Request, Submission, int]] = deque()

    def submitMany(self, requests: Sequence[Request]) -> Submission:
        """See L{ILedger.submitMany}."""
        if isinstance(self.error, BrokerError):
            return Submission.refused(len(requests), self.error)
        if self.error is not None:
            raise self.error
        self.submitted.extend(requests)
        submission = Submission(len(requests))
        self._held.extend((request, submission, index) for index, request in enumerate(requests))
        if not self.isHolding:
            self.release()
        return submission

    @property
    def held(self) -> Sequence[Request]:
        """The submissions that are held back now, in order."""
        return [request for request, _, _ in self._held]

    def release(self) -> None:
        """Submit the requests that are held back, in order."""
        for _ in range(len(self._held)):
            request, submission, index = self._held.popleft()
            if self.receipt is not None:
                submission.settle(index, (self.receipt,))
            else:
                self._ledger.submitMany((request,)).done.addCallback(
                    lambda done, to, at: to.settle(at, done.outcomes), submission, index
                )

    @property
    def latestRelease(self) -> int:
        """See L{IHoldLedger}."""
        return IHoldLedger(self._ledger).latestRelease

    def heldRanges(
        self, topic: str, ranges: Sequence[tuple[int, int]]
    ) -> Sequence[Iterator[HeldRange]]:
        """See L{IHoldLedger.heldRanges}."""
        return IHoldLedger(self._ledger).heldRanges(topic, ranges)

    def listHolds(
        self, offset: int, limit: int, *, case: str | None = None
    ) -> Deferred[Page[HoldRecord]]:
        """See L{IHoldLedger.listHolds}."""
        return IHoldLedger(self._ledger).listHolds(offset, limit, case=case)

    def listReleased(
        self, limit: int, *, before: tuple[int, int] | None = None, case: str | None = None
    ) -> Deferred[ReleasedPage]:
        """See L{IHoldLedger.listReleased}."""
        return IHoldLedger(self._ledger).listReleased(limit, before=before, case=case)

    def topicState(self, name: str) -> Topic | None:
        """See L{ILedger.topicState}."""
        if self.error is not None:
            raise self.error
        state: Topic | None = self._ledger.topicState(name)
        return state

    def getEvent(self, eventId: EventId) -> Deferred[Event]:
        """See L{ILedger.getEvent}."""
        return fail(self.error) if self.error is not None else self._ledger.getEvent(eventId)

    def getHealth(self) -> Deferred[Health]:
        """See L{ILedger.getHealth}."""
        return fail(self.error) if self.error is not None else self._ledger.getHealth()


def memoryLedger(clock: Clock, group: str = "1", maxContent: int = 1024 * 1024) -> MemoryLedger:
    """
    A started memory ledger that lives on a test's clock. Its keys are the same each time.
    """
    numbers = itertools.count(1)

    def entropy(size: int) -> bytes:
        return next(numbers).to_bytes(size, "big")

    ledger = MemoryLedger(
        LedgerContext(
            group=group,
            directory=Path("never-made"),
            reactor=clock,
            now=clock.seconds,
            entropy=entropy,
            runInThread=maybeDeferred,
            maxContent=maxContent,
        )
    )
    ledger.start()
    return ledger


T = TypeVar("T")

MAX_CONTENT = 1024 * 1024
_START = 1_700_000_000.0


class FaultyDisk:
    """
    C{runInThread} of a L{LedgerContext<svcbroker.interfaces.LedgerContext>}: makes every call at
    once, unless a test holds the disk or has it fail.

    @ivar isHeld: whether calls wait for L{release}.
    @ivar error: what calls fail with, without being made, while it is set.
    """

    def __init__(self) -> None:
        self.isHeld = False
        self.error: Exception | None = None
        self._held: deque[tuple[Deferred[Any], Callable[[], Any]]] = deque()

    def __call__(self, call: Callable[..., T], *args: Any) -> Deferred[T]:
        result: Deferred[T] = Deferred()
        self._held.append((result, lambda: call(*args)))
        if not self.isHeld:
            self.release()
        return result

    def release(self) -> None:
        """Make the calls that wait, and those that follow from them."""
        self.isHeld = False
        while self._held:
            result, call = self._held.popleft()
            if self.error is not None:
                result.errback(self.error)
            else:
                maybeDeferred(call).chainDeferred(result)

    def crash(self) -> None:
        """Forget the calls that wait. Their caller never hears of them."""
        self._held.clear()
        self.isHeld = False


class LedgerFixture(Protocol):
    """
    Makes ledgers for L{makeLedgerTests}, and lets time pass for them.

    @ivar isDurable: whether a ledger that is made in the directory of a stopped one goes on
        where that one ended.
    @ivar disk: C{runInThread} and C{runBriefly} of the ledgers; C{None} where a test cannot hold
        the disk. Then what the contract says of disks is not tested.
    @ivar bound: how many bytes of content are certainly more than waits in a ledger; C{None} where
        that is too much for a test.
    """

    isDurable: bool
    disk: FaultyDisk | None
    bound: int | None

    def makeLedger(self, directory: Path) -> ILedger:
        """
        A ledger that is not started.

        @param directory: the ledger's own, which does not exist the first time.
        """

    def pass_(self) -> Deferred[None]:
        """
        Let a little time pass: some milliseconds, real or not.
        """


class ClockFixture:
    """
    A ledger on a C{Clock}, whose disk work is done at once: nothing is left to chance.

    @ivar clock: the clock.
    """

    def __init__(
        self,
        make: Callable[[LedgerContext], ILedger],
        *,
        isDurable: bool,
        step: float = 0.01,
        bound: int | None = None,
    ) -> None:
        """
        @param make: what L{ILedgerFactory.configure} gave.
        @param step: how many seconds pass at a time.
        @param bound: see L{LedgerFixture}.
        """
        self.isDurable = isDurable
        self._disk = FaultyDisk()
        self.disk = self._disk if isDurable else None
        self.bound = bound
        self.clock = Clock()
        self.clock.advance(_START)
        self._make = make
        self._step = step

    def makeLedger(self, directory: Path) -> ILedger:
        """See L{LedgerFixture}."""
        return self._make(_context(directory, self.clock, self.clock.seconds, self._disk))

    def pass_(self) -> Deferred[None]:
        """See L{LedgerFixture}."""
        self.clock.advance(self._step)
        return succeed(None)


class ReactorFixture:
    """
    A ledger in real time, whose disk work is done in threads.
    """

    disk: FaultyDisk | None = None
    bound: int | None = None

    def __init__(
        self,
        make: Callable[[LedgerContext], ILedger],
        reactor: IReactorTime,
        *,
        isDurable: bool,
        now: Callable[[], float],
    ) -> None:
        """
        @param make: what L{ILedgerFactory.configure} gave.
        @param now: the wall clock: seconds since the epoch.
        """
        self.isDurable = isDurable
        self._make = make
        self._reactor = reactor
        self._now = now

    def makeLedger(self, directory: Path) -> ILedger:
        """See L{LedgerFixture}."""
        return self._make(_context(directory, self._reactor, self._now, _InOrder()))

    def pass_(self) -> Deferred[None]:
        """See L{LedgerFixture}."""
        return deferLater(self._reactor, 0.005)


class _InOrder:
    """Runs one call after the other, each in some thread."""

    def __init__(self) -> None:
        self._last: Deferred[Any] = succeed(None)

    def __call__(self, call: Callable[..., T], *args: Any) -> Deferred[T]:
        result: Deferred[T] = Deferred()
        self._last.addCallback(lambda _: deferToThread(call, *args))
        self._last.addCallbacks(result.callback, result.errback)
        return result


def _context(
    directory: Path,
    reactor: IReactorTime,
    now: Callable[[], float],
    runInThread: Callable[..., Deferred[Any]],
) -> LedgerContext:
    return LedgerContext(
        group="1",
        directory=directory,
        reactor=reactor,
        now=now,
        entropy=os.urandom,
        runInThread=runInThread,
        maxContent=MAX_CONTENT,
    )


TURNS = 30_000
"""The number of times that time may pass before a ledger is said not to answer."""


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
