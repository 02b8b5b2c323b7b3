"""
The contract of a ledger, as tests: publishing and reading, its disk, and the calls of operators;
authors, idempotency keys, expected numbers, erasure and holds, each of which a ledger may refuse;
and the contract of a ledger that proves what it holds.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, TypeAlias

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import structs
from msgspec.json import decode, encode
from twisted.trial.unittest import TestCase
from zope.interface.verify import verifyObject

from ..chain import authorsStatement, leafHash, merkleRoot, statement
from ..errors import (
    BrokerError,
    EventErased,
    EventNotFound,
    HeightUnknown,
    LedgerUnavailable,
    Overloaded,
    ParameterInvalid,
    TopicNotFound,
)
from ..interfaces import (
    IHoldLedger,
    ILedger,
    IMeasuredLedger,
    IProvableLedger,
    ISizedLedger,
    submit,
)
from ..model import (
    AddHold,
    AuthorChange,
    AuthorSet,
    Authorship,
    ChangeAuthors,
    CloseTopic,
    EraseEvents,
    EventId,
    Execution,
    NodeType,
    OpenTopic,
    PublishEvent,
    Receipt,
    ReleaseHold,
    Request,
    Topic,
    topicPrefix,
)
from ..proofs import (
    Checkpoint,
    ConsistencyProof,
    ProvedEvent,
    readGenesis,
    verifyComplete,
    verifyConsistency,
    verifyProof,
    verifyTopic,
)
from ._fixtures import MAX_CONTENT, FailingObserver, LedgerFixture, LedgerKit, RecordingObserver

_ALICE, _BOB = (Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in (1, 2))


def _key(private: Ed25519PrivateKey) -> bytes:
    return private.public_key().public_bytes_raw()


class AuthorshipTests(LedgerKit):
    """Events with authors, keys and expected numbers, and erasures."""

    async def attempt(self, *requests: Request) -> Sequence[Receipt] | None:
        """
        Submit requests, one after the other; the receipts, or C{None} where the ledger cannot
        execute one of them, and has not.
        """
        receipts = []
        for request in requests:
            before, height = self.ledger.topicState(request.topic), await self.height()
            try:
                receipts.append(await self.settle(submit(self.ledger, request)))
            except BrokerError:
                self.assertEqual(self.ledger.topicState(request.topic), before)
                self.assertEqual(await self.height(), height)
                return None
        return receipts

    def keyed(self, content: bytes, topic: str = "t", publisher: str = "ann") -> PublishEvent:
        """A publish with a key."""
        return PublishEvent(topic=topic, content=content, idempotencyKey="key", publisher=publisher)

    async def test_keyPublishesOnce(self) -> None:
        """A key of a publisher publishes once, also after another start; others have their own."""
        await self.begin()
        await self.submit(OpenTopic(topic="t"), OpenTopic(topic="u"))
        receipts = await self.attempt(self.keyed(b"1"), self.keyed(b"1"))
        if receipts is None:
            return
        first, again = receipts
        self.assertEqual((first.execution, again.execution), (Execution.DONE, Execution(4)))
        self.assertEqual(first.eventId, again.eventId)
        for _ in range(2):
            receipts = await self.submit(
                self.keyed(b"2"), self.keyed(b"1", topic="u"), self.keyed(b"1")
            )
            self.assertEqual([each.execution for each in receipts], [5, 5, 4])
            self.assertEqual([each.eventId for each in receipts], [None, None, first.eventId])
            if not self.fixture.isDurable:
                break
            await self.end()
            await self.startAgain()
        [other] = await self.submit(self.keyed(b"2", publisher="bob"))
        self.assertEqual(other.execution, Execution.DONE)
        await self.submit(CloseTopic(topic="t"))
        [again] = await self.submit(self.keyed(b"1"))
        self.assertEqual((again.execution, again.eventId), (4, first.eventId))
        self.assertEqual([event.content for event in await self.allEvents()], [b"1", b"2"])

    async def test_expectedSequenceIsCompared(self) -> None:
        """A publish that expects another number of its topic is refused with the number it has."""
        await self.begin()
        await self.submit(OpenTopic(topic="t"))
        receipts = await self.attempt(
            *(PublishEvent(topic="t", content=b"x", expectedSequence=n) for n in (0, 0, 1))
        )
        if receipts is None:
            return
        self.assertEqual([each.execution for each in receipts], [0, 6, 0])
        self.assertEqual([each.sequence for each in receipts], [1, 1, 2])

    async def test_topicWithAuthorsTakesTheirEvents(self) -> None:
        """Only events that an author has signed are published, and an admin changes the authors."""
        ledger = await self.begin()
        authors = AuthorSet(authors=(_key(_ALICE),), admins=(_key(_ALICE),))
        if await self.attempt(OpenTopic(topic="t", authors=authors)) is None:
            return
        self.assertEqual(self.topic("t").authors, authors)
        text = statement(ledger.chain, "t", b"x", 5, None, {"svc-private-a": "b"})
        signed, forged = (
            PublishEvent(
                topic="t",
                content=b"x",
                extensions={"svc-private-a": "b"},
                author=Authorship(key=_key(_ALICE), signedAt=5, signature=private.sign(text)),
            )
            for private in (_ALICE, _BOB)
        )
        if not ledger.chain:
            # Nobody can sign for a chain that has no name.
            return
        plain = PublishEvent(topic="t", content=b"x")
        receipts = await self.submit(plain, forged, signed)
        self.assertEqual([each.execution for each in receipts], [7, 3, 0])
        [event] = await self.allEvents()
        self.assertEqual((event.author, event.extensions), (signed.author, signed.extensions))
        following = AuthorSet(generation=1, authors=(_key(_BOB),))
        change = authorsStatement(ledger.chain, "t", following)
        changes = [
            AuthorChange(following=following, admin=_key(_ALICE), signature=private.sign(change))
            for private in (_BOB, _ALICE)
        ]
        receipts = await self.submit(
            *(ChangeAuthors(topic="t", change=each) for each in changes), signed
        )
        self.assertEqual([each.execution for each in receipts], [3, 0, 7])
        self.assertEqual(self.topic("t").authors, following)

    async def test_signedNumberIsPartOfTheStatement(self) -> None:
        """A statement of version 2 counts with the expected number that it has, and no other."""
        ledger = await self.begin()
        if not ledger.chain:
            # Nobody can sign for a chain that has no name.
            return
        await self.submit(OpenTopic(topic="t"))
        text = statement(ledger.chain, "t", b"x", 5, None, {}, 2, 0)
        author = Authorship(key=_key(_ALICE), signedAt=5, signature=_ALICE.sign(text), statement=2)
        receipts = await self.attempt(
            *(
                PublishEvent(topic="t", content=b"x", author=author, expectedSequence=number)
                for number in (None, 1, 0)
            )
        )
        if receipts is None:
            return
        self.assertEqual([each.execution for each in receipts], [3, 3, 0])
        [event] = await self.allEvents()
        self.assertEqual(event.author, author)

    async def test_keyOfErasedEventPublishesNothing(self) -> None:
        """A key whose event was erased is refused with the id of that event."""
        await self.begin()
        await self.submit(OpenTopic(topic="t"))
        receipts = await self.attempt(
            self.keyed(b"1"),
            EraseEvents(topic="t", ranges=((1, 1),), account="ops", reason="asked"),
        )
        if receipts is None:
            return
        first = receipts[0].eventId
        for _ in range(2):
            found = await self.submit(self.keyed(b"2"), self.keyed(b"1"), self.keyed(b"1", "u"))
            self.assertEqual([each.execution for each in found], [5, 5, 5])
            self.assertEqual([each.eventId for each in found], [first, first, None])
            if not self.fixture.isDurable:
                break
            await self.end()
            await self.startAgain()
        self.assertEqual(len(await self.allEvents()), 1)

    async def test_erasedEventsAreNotRead(self) -> None:
        """Erased events have no content any more, wherever they are read, and keep their places."""
        ledger = await self.begin()
        await self.submit(OpenTopic(topic="t"))
        ids = await self.publish("t", b"0", b"1", b"2", b"3")
        erasing = EraseEvents(topic="t", ranges=((2, 3),), account="ops", reason="asked")
        receipts = await self.attempt(erasing)
        if receipts is None:
            return
        self.assertEqual(receipts[0].execution, Execution.DONE)
        block = await self.settle(ledger.readBlock(receipts[0].height))
        for _ in range(2):
            await self.checkErased(ledger, ids, block.timestamp)
            if not self.fixture.isDurable:
                break
            await self.end()
            ledger = await self.startAgain()
        beyond = EraseEvents(topic="t", ranges=((4, 5),), account="ops", reason="asked")
        [refused] = await self.submit(beyond)
        self.assertEqual(refused.execution, Execution.REFUSED)

    async def test_heldEventsAreNotErased(self) -> None:
        """A hold keeps events from being erased, also after another start, until its release."""
        ledger = await self.begin()
        await self.submit(OpenTopic(topic="t"), OpenTopic(topic="u"))
        await self.publish("t", b"0", b"1", b"2")
        address = self.topic("t").address
        single = AddHold(case="case-1", account="ops", reason="asked", events=[(address, 2)])
        receipts = await self.attempt(single)
        if receipts is None:
            return
        wide = AddHold(case="case-2", account="", reason="asked", patterns=["t/#", "u"])
        none = AddHold(case="case-3", account="", reason="", events=[(address, 4)])
        found = await self.submit(wide, wide, none)
        self.assertEqual([each.execution for each in found], [0, 3, 3])
        erasing = EraseEvents(topic="t", ranges=((1, 3),), account="ops", reason="asked")
        releasing = [
            ReleaseHold(case=case, account="ops", reason="closed") for case in ("case-1", "case-2")
        ]
        for _ in range(2):
            await self.checkHolds(address)
            [refused] = await self.submit(erasing)
            self.assertEqual(refused.execution, Execution.HELD)
            if not self.fixture.isDurable:
                break
            await self.end()
            ledger = await self.startAgain()
        found = await self.submit(releasing[0], releasing[0], erasing, releasing[1])
        self.assertEqual([each.execution for each in found], [0, 3, 8, 0])
        self.assertEqual(list(self.holding().heldRanges("t", [(1, 3)])), [])
        released = self.holding().latestRelease
        self.assertEqual(released, found[-1].height)
        found = await self.submit(erasing, single)
        self.assertEqual([each.execution for each in found], [0, 3])
        if self.fixture.isDurable:
            await self.end()
            ledger = await self.startAgain()
            self.assertEqual(self.holding().latestRelease, released)
        page = await self.settle(IHoldLedger(ledger).listHolds(0, 10))
        self.assertEqual((page.total, list(page.items)), (0, []))
        await self.checkReleased(released)

    async def checkReleased(self, height: int) -> None:
        """
        Check the answers of the ledger about two holds that were released.

        @param height: that of the block with the later release.
        """
        ledger = self.holding()
        page = await self.settle(ledger.listReleased(9))
        self.assertEqual([each.case for each in page.items], ["case-2", "case-1"])
        self.assertIs(page.next, None)
        second, first = page.items
        self.assertEqual((second.reason, list(second.patterns)), ("asked", ["t/#", "u"]))
        self.assertEqual((first.eventCount, list(first.events)), (1, []))
        release = second.release
        self.assertEqual((release.account, release.reason), ("ops", "closed"))
        self.assertEqual(release.height, height)
        block = await self.settle(ledger.readBlock(height))
        self.assertEqual(release.timestamp, block.timestamp)
        self.assertNotEqual(release.hash, second.hash)
        page = await self.settle(ledger.listReleased(1))
        self.assertEqual([each.case for each in page.items], ["case-2"])
        page = await self.settle(ledger.listReleased(1, before=page.next))
        self.assertEqual([each.case for each in page.items], ["case-1"])
        page = await self.settle(ledger.listReleased(9, case="case-1"))
        self.assertEqual([list(each.events) for each in page.items], [[("t", 2)]])
        page = await self.settle(ledger.listReleased(9, case="case-3"))
        self.assertEqual((list(page.items), page.next), ([], None))

    def holding(self) -> Any:
        """The ledger, which executes holds."""
        verifyObject(IHoldLedger, self.ledger)
        return self.ledger

    async def checkHolds(self, address: bytes) -> None:
        """Check the answers of the ledger about two holds."""
        ledger = self.holding()
        self.assertEqual(ledger.latestRelease, 0)
        holds = ledger.heldRanges("t", [(2, 9)])
        self.assertEqual(
            sorted((held.case, held.first, held.last) for some in holds for held in some),
            [("case-1", 2, 2), ("case-2", 2, 9)],
        )
        holds = ledger.heldRanges("t", [(1, 1)])
        self.assertEqual([held.case for some in holds for held in some], ["case-2"])
        holds = ledger.heldRanges("unknown", [(1, 1)])
        self.assertEqual([held for some in holds for held in some], [])
        page = await self.settle(ledger.listReleased(9))
        self.assertEqual((list(page.items), page.next), ([], None))
        page = await self.settle(ledger.listHolds(0, 1))
        [first] = page.items
        self.assertEqual((page.total, first.case, first.account), (2, "case-1", "ops"))
        self.assertEqual((first.eventCount, list(first.events)), (1, []))
        page = await self.settle(ledger.listHolds(0, 9, case="case-1"))
        self.assertEqual([list(each.events) for each in page.items], [[("t", 2)]])
        [second] = (await self.settle(ledger.listHolds(1, 9))).items
        self.assertEqual(list(second.patterns), ["t/#", "u"])
        block = await self.settle(ledger.readBlock(second.height))
        self.assertEqual(second.timestamp, block.timestamp)

    async def test_bytesOfTopicsAreThoseInLog(self) -> None:
        """A sized ledger counts what is published, also after a restart, less what is erased."""
        ledger = await self.begin()
        if not ISizedLedger.providedBy(ledger):
            return
        verifyObject(ISizedLedger, ledger)
        await self.submit(OpenTopic(topic="t"), OpenTopic(topic="u"))
        await self.publish("t", _CONTENT)
        [first] = await self.bytesOf("t")
        self.assertGreater(first, len(_CONTENT))
        await self.publish("t", _CONTENT, _CONTENT)
        self.assertEqual(await self.bytesOf("t", "u", "unknown"), [3 * first, 0, None])
        if self.fixture.isDurable:
            await self.end()
            await self.startAgain()
            self.assertEqual(await self.bytesOf("t", "u"), [3 * first, 0])
        erasing = EraseEvents(topic="t", ranges=((2, 3),), account="ops", reason="asked")
        if await self.attempt(erasing) is None:
            return
        for _ in range(1000):
            [left] = await self.bytesOf("t")
            # Contents go soon after the answer, in a thread where the ledger has one.
            if left <= 3 * first - 2 * len(_CONTENT):
                break
            await self.fixture.pass_()
        self.assertGreater(left, first)
        self.assertLessEqual(left, 3 * first - 2 * len(_CONTENT))

    async def bytesOf(self, *names: str) -> Sequence[Any]:
        """The bytes of topics."""
        ledger: Any = self.ledger
        return list(await self.settle(ledger.topicBytes(names)))

    async def checkErased(self, ledger: ILedger, ids: Sequence[EventId], time: int) -> None:
        """The second and the third of four events are erased."""
        events = await self.allEvents()
        self.assertEqual([each.content for each in events], [b"0", b"", b"", b"3"])
        self.assertEqual([each.isErased for each in events], [False, True, True, False])
        for number, event in enumerate(events):
            self.assertEqual(event.eventId, ids[number])
            self.assertEqual(await self.settle(ledger.locate(ids[number])), event.position)
        for number in (1, 2):
            with self.assertRaises(EventErased) as caught:
                await self.settle(ledger.getEvent(ids[number]))
            error = caught.exception
            self.assertEqual(
                (error.topic, error.account, error.reason, error.time), ("t", "ops", "asked", time)
            )
        self.assertEqual((await self.settle(ledger.getEvent(ids[3]))).content, b"3")


_CONTENT = b"x" * 1000
_A_WHILE = 50
"""The number of times that time passes while a test looks that nothing happens."""


def makeLedgerTests(makeFixture: Callable[[TestCase], LedgerFixture]) -> type[TestCase]:
    """
    The tests that every implementation of L{ILedger<svcbroker.interfaces.ILedger>} passes.

    Derive from the class that this gives::

        class MyLedgerTests(makeLedgerTests(makeMyFixture)):
            pass

    @param makeFixture: called for each test, with the test case (for C{addCleanup} and
        C{mktemp}); makes what the ledger under test lives on.
    """

    class LedgerTests(LogTests, QueryTests, DiskTests, AuthorshipTests):
        def makeFixture(self) -> LedgerFixture:
            return makeFixture(self)

    return LedgerTests


class DiskTests(LedgerKit):
    """
    Receipts, a disk that fails, crashes, and bounds. Only for fixtures whose disk a test can hold.
    """

    async def passAWhile(self) -> None:
        """Let time pass."""
        for _ in range(_A_WHILE):
            await self.fixture.pass_()

    async def test_receiptsComeAfterTheWrite(self) -> None:
        """While the disk has not written, there is no receipt, and no reader sees the events."""
        ledger, disk = await self.begin(), self.fixture.disk
        if disk is None:
            return
        await self.submit(OpenTopic(topic="t"))
        observer = RecordingObserver()
        ledger.addObserver(observer)
        height = await self.height()
        disk.isHeld = True
        requests = [PublishEvent(topic="t", content=b"%d" % number) for number in range(3)]
        submission = ledger.submitMany(requests)
        await self.passAWhile()
        self.assertEqual(submission.outcomes, [None] * 3)
        self.assertEqual((self.topic("t").sequence, observer.blocks), (0, []))
        self.assertEqual(await self.height(), height)
        disk.release()
        await self.settle(submission.done)
        ids = [outcome.eventId for outcome in submission.outcomes if isinstance(outcome, Receipt)]
        self.assertEqual([eventId.sequence for eventId in ids if eventId], [1, 2, 3])
        self.assertEqual(self.topic("t").sequence, 3)

    async def test_failingDiskExecutesNothing(self) -> None:
        """While the disk fails there is no receipt, and reads go on. Afterwards the log has the
        events with a receipt, and no others, also after another start."""
        ledger, disk = await self.begin(), self.fixture.disk
        if disk is None:
            return
        await self.submit(OpenTopic(topic="t"))
        [first] = await self.publish("t", b"first")
        disk.error = OSError(errno.ENOSPC, "no space left on device")
        requests = [PublishEvent(topic="t", content=b"%d" % number) for number in range(3)]
        submission = ledger.submitMany(requests)
        await self.passAWhile()
        for outcome in submission.outcomes:
            self.assertIsInstance(outcome, LedgerUnavailable | None)
        event = await self.settle(ledger.getEvent(first))
        self.assertEqual(event.content, b"first")
        disk.error = None
        last = await self.publishWhenPossible(ledger)
        await self.settle(submission.done)
        expected = [b"first"]
        for request, outcome in zip(requests, submission.outcomes, strict=True):
            if isinstance(outcome, Receipt):
                expected.append(request.content)
        expected.append(b"last")
        self.assertEqual([event.content for event in await self.allEvents()], expected)
        self.assertEqual(last.sequence, len(expected))
        self.flushLoggedErrors(OSError)
        await self.end()
        await self.startAgain()
        self.assertEqual([event.content for event in await self.allEvents()], expected)

    async def publishWhenPossible(self, ledger: ILedger) -> Any:
        """Publish as soon as the ledger goes on; the event's id."""
        request = PublishEvent(topic="t", content=b"last")
        for _ in range(100):
            [outcome] = (await self.settle(ledger.submitMany([request]).done)).outcomes
            if isinstance(outcome, Receipt):
                return outcome.eventId
            self.assertIsInstance(outcome, LedgerUnavailable)
            await self.passAWhile()
        return self.fail("the ledger does not go on after its disk failed")

    async def test_crashLosesNoReceipt(self) -> None:
        """Events with a receipt are there after a crash. Those with none may be there or not."""
        ledger, disk = await self.begin(), self.fixture.disk
        if disk is None:
            return
        await self.submit(OpenTopic(topic="t"))
        contents = [b"%d" % number for number in range(5)]
        ids = list(await self.publish("t", *contents))
        disk.isHeld = True
        ledger.submitMany([PublishEvent(topic="t", content=b"pending")])
        await self.passAWhile()
        # The files as they are now, while the process still has them open.
        copy = Path(self.mktemp())
        shutil.copytree(self.directory, copy)
        disk.crash()
        self.directory = copy
        ledger = await self.startAgain()
        for eventId, content in zip(ids, contents, strict=True):
            event = await self.settle(ledger.getEvent(eventId))
            self.assertEqual(event.content, content)
        found = [event.content for event in await self.allEvents()]
        self.assertIn(found[5:], ([], [b"pending"]))
        [following] = await self.publish("t", b"following")
        self.assertEqual(following.sequence, len(found) + 1)

    async def test_tooMuchIsOverloadedAtOnce(self) -> None:
        """Above the bound requests are refused at once; those before are executed, and then
        there is room again."""
        ledger, disk, bound = await self.begin(), self.fixture.disk, self.fixture.bound
        if disk is None or bound is None:
            return
        await self.submit(OpenTopic(topic="t"))
        disk.isHeld = True
        count = bound // len(_CONTENT) + 1
        submission = ledger.submitMany([PublishEvent(topic="t", content=_CONTENT)] * count)
        accepted = submission.outcomes.count(None)
        self.assertGreater(accepted, 0, "the ledger has accepted none of the first requests")
        text = f"{count} requests of {len(_CONTENT)} bytes wait, of which some are above the bound "
        self.assertLess(accepted, count, f"{text}of {bound} bytes; these are Overloaded at once")
        for number, outcome in enumerate(submission.outcomes):
            self.assertIsInstance(outcome, type(None) if number < accepted else Overloaded)
        [late] = ledger.submitMany([PublishEvent(topic="t", content=_CONTENT)]).outcomes
        self.assertIsInstance(late, Overloaded)
        disk.release()
        await self.settle(submission.done)
        for outcome in submission.outcomes[:accepted]:
            self.assertIsInstance(outcome, Receipt)
        self.assertEqual(self.topic("t").sequence, accepted)
        [following] = await self.publish("t", _CONTENT)
        self.assertEqual(following.sequence, accepted + 1)


_UNKNOWN_HASH = bytes(range(32))


class QueryTests(LedgerKit):
    """Pages of blocks, transactions and nodes, statistics and health."""

    async def test_newChainHasNoTransactions(self) -> None:
        """A new chain has nothing in it, but perhaps blocks with nothing in them."""
        ledger = await self.begin()
        statistics = await self.settle(ledger.getStatistics())
        self.assertEqual(statistics.transactionCount, 0)
        for page in (
            await self.settle(ledger.listTopics(0, 10)),
            await self.settle(ledger.listTransactions(0, 10)),
        ):
            self.assertEqual((page.total, list(page.items)), (0, []))
        blocks = await self.allPages(ledger.listBlocks, 10)
        self.assertTrue(all(block.transactionCount == 0 for block in blocks))
        self.assertGreaterEqual(len(blocks), statistics.height)

    async def test_measuresAreThoseOfNow(self) -> None:
        """A ledger that is measured counts what waits, and the blocks that it has stored."""
        ledger = await self.begin()
        if not IMeasuredLedger.providedBy(ledger):
            return
        verifyObject(IMeasuredLedger, ledger)
        before = ledger.measure()
        stored, final = (
            0 if each is None else each.count for each in (before.sync, before.latency)
        )
        await self.submit(OpenTopic(topic="t"))
        await self.publish("t", b"1")
        after = ledger.measure()
        self.assertEqual((after.waiting, after.waitingBytes, after.oldest), (0, 0, 0.0))
        if after.sync is not None:
            self.assertGreater(after.sync.count, stored)
        if after.latency is not None:
            self.assertEqual(after.latency.count, final + 2)
        if after.replicas is not None:
            self.assertEqual(after.running, after.replicas)
        submission = ledger.submitMany([PublishEvent(topic="t", content=b"2")])
        waits = ledger.measure()
        self.assertEqual(bool(waits.waiting), not submission.done.called)
        self.assertEqual(bool(waits.waitingBytes), not submission.done.called)
        await self.settle(submission.done)

    async def test_blocksAreListedAndFound(self) -> None:
        """Blocks are listed newest first, and found by height and by hash."""
        ledger = await self.begin()
        await self.submit(OpenTopic(topic="t"))
        for number in range(6):
            await self.publish("t", b"%d" % number, b"x")
        height = await self.height()
        for limit in (1, 4, 99):
            blocks = await self.allPages(ledger.listBlocks, limit)
            self.assertEqual([block.height for block in blocks], list(range(height, 0, -1)))
        timestamps = [block.timestamp for block in blocks]
        self.assertEqual(timestamps, sorted(timestamps, reverse=True))
        statistics = await self.settle(ledger.getStatistics())
        counts = sum(block.transactionCount for block in blocks)
        self.assertEqual(counts, statistics.transactionCount)
        self.assertTrue(all(0 <= block.sealer < statistics.nodeCount for block in blocks))
        one, other = blocks[1], blocks[2]
        self.assertEqual(len(one.hash), 32)
        for filters, found in (
            ({"height": one.height}, [one]),
            ({"hash": one.hash}, [one]),
            ({"hash": one.hash, "height": one.height}, [one]),
            ({"hash": one.hash, "height": other.height}, []),
            ({"hash": _UNKNOWN_HASH}, []),
            ({"height": 0}, []),
            ({"height": height + 1}, []),
            ({"height": 2**64}, []),
        ):
            page = await self.settle(ledger.listBlocks(0, 10, **filters))
            self.assertEqual((page.total, list(page.items)), (len(found), found), filters)
        page = await self.settle(ledger.listBlocks(1, 10, height=one.height))
        self.assertEqual((page.total, list(page.items)), (1, []))

    async def test_transactionsAreListedAndFound(self) -> None:
        """Transactions are listed newest first, and found by block and by hash; refused ones
        are among them."""
        ledger = await self.begin()
        [opened] = await self.submit(OpenTopic(topic="t"))
        receipts = [opened]
        for size in (3, 1, 5):
            receipts += await self.submit(
                *(PublishEvent(topic="t", content=b"%d" % number) for number in range(size))
            )
        receipts += await self.submit(CloseTopic(topic="u"))
        topic = self.topic("t")
        for limit in (1, 4, 99):
            found = await self.allPages(ledger.listTransactions, limit)
            self.assertEqual(
                [(record.hash, record.height) for record in found],
                [(receipt.transactionHash, receipt.height) for receipt in reversed(receipts)],
            )
        self.assertEqual({record.sender for record in found}, {topic.sender})
        self.assertEqual({record.recipient for record in found[1:]}, {topic.address})
        for record in found:
            page = await self.settle(ledger.listTransactions(0, 10, hash=record.hash))
            self.assertEqual((page.total, list(page.items)), (1, [record]))
            block = await self.settle(ledger.readBlock(record.height))
            self.assertEqual(record.timestamp, block.timestamp)
        for height in range(await self.height() + 2):
            inBlock = [record for record in found if record.height == height]
            page = await self.settle(ledger.listTransactions(0, 99, height=height))
            self.assertEqual((page.total, list(page.items)), (len(inBlock), inBlock))
        one = found[0]
        for filters in (
            {"hash": _UNKNOWN_HASH},
            {"hash": one.hash, "height": one.height - 1},
            {"height": 2**64},
        ):
            page = await self.settle(ledger.listTransactions(0, 10, **filters))
            self.assertEqual((page.total, list(page.items)), (0, []), filters)

    async def test_everyNodeIsListed(self) -> None:
        """Every node is listed, and says how it stands."""
        ledger = await self.begin()
        await self.submit(OpenTopic(topic="t"))
        statistics = await self.settle(ledger.getStatistics())
        nodes = await self.allPages(ledger.listNodes, 3)
        self.assertEqual(len(nodes), statistics.nodeCount)
        self.assertEqual(len({node.nodeId for node in nodes}), len(nodes))
        sealers = [node for node in nodes if node.nodeType is NodeType.SEALER]
        self.assertTrue(any(node.isActive for node in sealers))
        self.assertEqual(max(node.height for node in nodes), statistics.height)
        page = await self.settle(ledger.listNodes(0, 10, name="no node has this name"))
        self.assertEqual((page.total, list(page.items)), (0, []))

    async def test_startedLedgerIsReady(self) -> None:
        """A ledger that has started makes progress."""
        ledger = await self.begin()
        health = await self.settle(ledger.getHealth())
        self.assertEqual((health.isReady, health.reason), (True, ""))


TWINS = ("twin/45695", "twin/72377")
"""Two topics whose event ids begin alike."""


class LogTests(LedgerKit):
    """Topics, events, receipts, followers."""

    async def test_ledgerProvidesTheInterface(self) -> None:
        """It provides the interface."""
        ledger = await self.begin()
        verifyObject(ILedger, ledger)
        self.assertEqual(ledger.group, "1")

    # Topics.

    async def test_openCreatesATopicOnce(self) -> None:
        """Opening creates a topic, once."""
        ledger = await self.begin()
        self.assertIsNone(ledger.topicState("a/b"))
        [receipt] = await self.submit(OpenTopic(topic="a/b"))
        self.assertEqual(receipt.execution, Execution.DONE)
        self.assertIsNone(receipt.eventId)
        topic = self.topic("a/b")
        self.assertEqual(
            (topic.name, topic.isOpen, topic.sequence, topic.height), ("a/b", True, 0, 0)
        )
        self.assertEqual((len(topic.address), len(topic.sender)), (20, 20))
        block = await self.settle(ledger.readBlock(receipt.height))
        self.assertEqual(topic.created, block.timestamp)
        [again] = await self.submit(OpenTopic(topic="a/b"))
        self.assertEqual(again.execution, Execution.DONE)
        self.assertEqual(self.topic("a/b"), topic)

    async def test_unusualNamesAreDistinctTopics(self) -> None:
        """Any valid name is a topic of its own, byte for byte."""
        await self.begin()
        names = ["/", "//", " a", "a", "A", "\x80", "~\x7f\x80", "x" * 256, '"\\', "%2B"]
        await self.submit(*(OpenTopic(topic=name) for name in names))
        page = await self.settle(self.ledger.listTopics(0, 99))
        self.assertEqual([topic.name for topic in page.items], names)
        self.assertEqual(len({topic.address for topic in page.items}), len(names))

    async def test_closedTopicTakesNoEvents(self) -> None:
        """A closed topic takes no events and is not listed, but keeps what it has."""
        ledger = await self.begin()
        await self.submit(OpenTopic(topic="t"))
        [eventId] = await self.publish("t", b"before")
        before = self.topic("t")
        [closed] = await self.submit(CloseTopic(topic="t"))
        self.assertEqual(closed.execution, Execution.DONE)
        self.assertFalse(self.topic("t").isOpen)
        self.assertEqual((await self.settle(ledger.listTopics(0, 9))).total, 0)
        for request in (PublishEvent(topic="t", content=b"x"), CloseTopic(topic="t")):
            [refused] = await self.submit(request)
            self.assertEqual(refused.execution, Execution.TOPIC_NOT_FOUND)
            self.assertIsNone(refused.eventId)
        event = await self.settle(ledger.getEvent(eventId))
        self.assertEqual(event.content, b"before")
        await self.submit(OpenTopic(topic="t"))
        self.assertEqual(self.topic("t"), before)
        [following] = await self.publish("t", b"after")
        self.assertEqual(following.sequence, 2)

    async def test_unknownTopicIsRefusedByTheChain(self) -> None:
        """A request about a topic that was never opened is refused by the chain."""
        ledger = await self.begin()
        for request in (PublishEvent(topic="t", content=b"x"), CloseTopic(topic="t")):
            [refused] = await self.submit(request)
            self.assertEqual(refused.execution, Execution.TOPIC_NOT_FOUND)
        self.assertIsNone(ledger.topicState("t"))

    async def test_openTopicsAreListedInOrder(self) -> None:
        """Open topics come in the order of creation, page by page, also when some were closed
        and opened again."""
        ledger = await self.begin()
        names = [f"t{number}" for number in range(7)]
        await self.submit(*(OpenTopic(topic=name) for name in names))
        await self.submit(CloseTopic(topic="t2"), CloseTopic(topic="t5"))
        await self.submit(OpenTopic(topic="t2"))
        for limit in (1, 2, 6, 99):
            found = await self.allPages(ledger.listTopics, limit)
            self.assertEqual([topic.name for topic in found], ["t0", "t1", "t2", "t3", "t4", "t6"])
        beyond = await self.settle(ledger.listTopics(6, 10))
        self.assertEqual((beyond.total, list(beyond.items)), (6, []))

    # Events.

    async def test_eventsAreReadAsPublished(self) -> None:
        """An event is read back as it was published, by the id of its receipt."""
        ledger = await self.begin()
        await self.submit(OpenTopic(topic="t"))
        extensions = {"svc-b": "2", "svc-a": "", "svc-é": "\U0001f40d\n\x00"}
        [receipt] = await self.submit(
            PublishEvent(topic="t", content=bytes(range(256)), extensions=extensions)
        )
        self.assertEqual(receipt.execution, Execution.DONE)
        self.assertEqual(receipt.eventId, EventId(topicPrefix("t"), 1, receipt.height))
        assert receipt.eventId is not None
        event = await self.settle(ledger.getEvent(receipt.eventId))
        self.assertEqual((event.topic, event.content), ("t", bytes(range(256))))
        self.assertEqual(dict(event.extensions), extensions)
        self.assertEqual(event.eventId, receipt.eventId)
        topic = self.topic("t")
        self.assertEqual((topic.sequence, topic.height), (1, receipt.height))

    async def test_requestsOfOneCallKeepTheirOrder(self) -> None:
        """Requests of one call are executed in their order, and before those of later calls."""
        await self.begin()
        submission = self.ledger.submitMany(
            [
                OpenTopic(topic="t"),
                *(PublishEvent(topic="t", content=b"%d" % number) for number in range(50)),
                CloseTopic(topic="t"),
                PublishEvent(topic="t", content=b"late"),
            ],
        )
        later = submit(self.ledger, OpenTopic(topic="t"))
        await self.settle(submission.done)
        receipts = [outcome for outcome in submission.outcomes if isinstance(outcome, Receipt)]
        self.assertEqual(len(receipts), 53)
        self.assertIs(receipts[-1].execution, Execution.TOPIC_NOT_FOUND)
        ids = [receipt.eventId for receipt in receipts if receipt.eventId is not None]
        self.assertEqual([eventId.sequence for eventId in ids], list(range(1, 51)))
        for number in (0, 49):
            event = await self.settle(self.ledger.getEvent(ids[number]))
            self.assertEqual(event.content, b"%d" % number)
        self.assertEqual((await self.settle(later)).execution, Execution.DONE)
        self.assertTrue(self.topic("t").isOpen)

    async def test_stoppedLedgerExecutesNothing(self) -> None:
        """A stopped ledger executes none of them."""
        ledger = await self.begin()
        await self.end()
        submission = ledger.submitMany([OpenTopic(topic="t"), CloseTopic(topic="t")])
        await self.settle(submission.done)
        for outcome in submission.outcomes:
            self.assertIsInstance(outcome, LedgerUnavailable)
        self.assertRaises(LedgerUnavailable, ledger.topicState, "t")

    async def test_contentMayBeEmptyOrLarge(self) -> None:
        """Content may be empty, and as large as the broker takes."""
        ledger = await self.begin()
        await self.submit(OpenTopic(topic="t"))
        contents = [b"", b"\x00", b"x" * MAX_CONTENT]
        for eventId, content in zip(await self.publish("t", *contents), contents, strict=True):
            event = await self.settle(ledger.getEvent(eventId))
            self.assertEqual(event.content, content)

    async def test_callsAreExecutedInOrder(self) -> None:
        """Transactions are executed in the order in which they were submitted."""
        ledger = await self.begin()
        await self.submit(OpenTopic(topic="a"), OpenTopic(topic="b"))
        contents = [b"%d" % number for number in range(200)]
        receipts = await self.submit(
            *(
                PublishEvent(topic="ab"[number % 2], content=content)
                for number, content in enumerate(contents)
            )
        )
        self.assertEqual([event.content for event in await self.allEvents()], contents)
        ids = [receipt.eventId for receipt in receipts]
        self.assertEqual(
            [eventId.sequence for eventId in ids if eventId],
            [number // 2 + 1 for number in range(200)],
        )
        for eventId, content in zip(ids, contents, strict=True):
            assert eventId is not None
            self.assertEqual((await self.settle(ledger.getEvent(eventId))).content, content)

    async def test_eventIdsAreUniqueForEqualPrefixes(self) -> None:
        """Two events never have the same id, even where their topics' ids begin alike."""
        ledger = await self.begin()
        self.assertEqual(*map(topicPrefix, TWINS))
        await self.submit(*(OpenTopic(topic=name) for name in TWINS))
        requests = [PublishEvent(topic=name, content=name.encode()) for name in TWINS * 3]
        receipts = await self.submit(*requests)
        self.assertEqual(len({receipt.eventId for receipt in receipts}), len(requests))
        for receipt, request in zip(receipts, requests, strict=True):
            assert receipt.eventId is not None
            event = await self.settle(ledger.getEvent(receipt.eventId))
            self.assertEqual(event.topic, request.topic)

    async def test_absentEventsAreNotFound(self) -> None:
        """An id that no event has is told apart from one of a block to come."""
        ledger = await self.begin()
        await self.submit(OpenTopic(topic="t"), OpenTopic(topic="u"))
        [known] = await self.publish("t", b"x")
        await self.publish("u", b"y")
        height = await self.height()
        for wrong in (
            EventId("00000000", known.sequence, known.height),
            EventId(known.prefix, known.sequence + 1, known.height),
            EventId(known.prefix, 2**63 - 1, known.height),
            EventId(known.prefix, known.sequence, known.height - 1),
            EventId(known.prefix, known.sequence, height),
        ):
            await self.fails(ledger.getEvent(wrong), EventNotFound)
            await self.fails(ledger.locate(wrong), EventNotFound)
        for above in (height + 1, 2**63 - 1):
            unknown = EventId(known.prefix, known.sequence, above)
            await self.fails(ledger.getEvent(unknown), HeightUnknown)
            await self.fails(ledger.locate(unknown), HeightUnknown)

    async def test_locateFindsPositions(self) -> None:
        """An event's position is the same in its block and by its id; getEvent leaves it out."""
        ledger = await self.begin()
        await self.submit(OpenTopic(topic="t"), OpenTopic(topic="u"))
        await self.submit(
            PublishEvent(topic="t", content=b"1"),
            PublishEvent(topic="never", content=b"refused"),
            PublishEvent(topic="t", content=b"2"),
            PublishEvent(topic="u", content=b"3"),
            CloseTopic(topic="never"),
        )
        events = await self.allEvents()
        self.assertEqual([event.content for event in events], [b"1", b"2", b"3"])
        for event in events:
            position = await self.settle(ledger.locate(event.eventId))
            self.assertEqual(position, event.position)
            found = await self.settle(ledger.getEvent(event.eventId))
            self.assertEqual(found, structs.replace(event, index=0))

    async def test_mayHoldNeverMissesExtensions(self) -> None:
        """A block that holds an event with an extension is never said not to."""
        ledger = await self.begin()
        await self.submit(OpenTopic(topic="t"))
        for extensions in ({}, {"svc-a": "1"}, {"svc-b": "svc-a"}, {"svc-ab": ""}):
            await self.submit(PublishEvent(topic="t", content=b"x", extensions=extensions))
        for height in range(1, await self.height() + 1):
            block = await self.settle(ledger.readBlock(height))
            for name in ("svc-a", "svc-b", "svc-ab", "svc-none"):
                if any(name in event.extensions for event in block.events):
                    self.assertTrue(await self.settle(ledger.mayHold(height, name)))
        for height in (-1, 0, await self.height() + 1, 2**63):
            await self.fails(ledger.mayHold(height, "svc-a"), HeightUnknown)

    # Transactions and their receipts.

    async def test_readsFollowReceipts(self) -> None:
        """Reads show the events of a receipt once it is given."""
        ledger = await self.begin()
        await self.submit(OpenTopic(topic="t"))
        seen: list[Topic | None] = []
        published = submit(ledger, PublishEvent(topic="t", content=b"x"))
        published.addCallback(lambda _: seen.append(ledger.topicState("t")))
        await self.settle(published)
        [topic] = seen
        assert topic is not None
        self.assertEqual(topic.sequence, 1)

    async def test_cancellingDoesNotCancelTheRequest(self) -> None:
        """Cancelling only stops the wait."""
        ledger = await self.begin()
        await self.submit(OpenTopic(topic="t"))
        cancelled = submit(ledger, PublishEvent(topic="t", content=b"first"))
        cancelled.addErrback(lambda _: None)
        cancelled.cancel()
        await self.publish("t", b"second")
        contents = [event.content for event in await self.allEvents()]
        self.assertEqual(contents, [b"first", b"second"])

    async def test_stopFinishesWhatWasAccepted(self) -> None:
        """Requests that were accepted before it stops become final; nothing is accepted then."""
        ledger = await self.begin()
        await self.submit(OpenTopic(topic="t"))
        accepted = [submit(ledger, PublishEvent(topic="t", content=b"x")) for _ in range(10)]
        stopped = ledger.stop()
        self.isStopped = True
        refused = submit(ledger, PublishEvent(topic="t", content=b"y"))
        await self.fails(refused, LedgerUnavailable)
        for answer in accepted:
            self.assertEqual((await self.settle(answer)).execution, Execution.DONE)
        await self.settle(stopped)
        self.assertFalse((await self.settle(ledger.getHealth())).isReady)

    async def test_durableLedgerContinuesAfterRestart(self) -> None:
        """A durable ledger goes on where it stopped."""
        ledger = await self.begin()
        if not self.fixture.isDurable:
            return
        await self.submit(OpenTopic(topic="t"), OpenTopic(topic="u"), CloseTopic(topic="u"))
        ids = [*await self.publish("t", b"1", b"2"), *await self.publish("t", b"3")]
        topics = [self.topic(name) for name in "tu"]
        statistics = await self.settle(ledger.getStatistics())
        blocks = await self.settle(ledger.listBlocks(0, 99))
        transactions = await self.settle(ledger.listTransactions(0, 99))
        await self.end()

        ledger = await self.startAgain()
        self.assertEqual([self.topic(name) for name in "tu"], topics)
        self.assertEqual(await self.settle(ledger.getStatistics()), statistics)
        self.assertEqual(await self.settle(ledger.listBlocks(0, 99)), blocks)
        self.assertEqual(await self.settle(ledger.listTransactions(0, 99)), transactions)
        events = [await self.settle(ledger.getEvent(eventId)) for eventId in ids]
        self.assertEqual([event.content for event in events], [b"1", b"2", b"3"])
        [following] = await self.publish("t", b"4")
        self.assertEqual(following.sequence, 4)
        self.assertGreater(following.height, ids[-1].height)

    async def test_chainIdTellsLogsApart(self) -> None:
        """The chain's id is the log's: kept with it, another for another log, and none where the
        log is not kept."""
        ledger = await self.begin()
        chain = ledger.chain
        self.assertEqual(bool(chain), self.fixture.isDurable)
        await self.submit(OpenTopic(topic="t"))
        await self.end()
        self.assertEqual((await self.startAgain()).chain, chain)
        await self.end()
        other = await self.begin()
        self.assertEqual(bool(other.chain), self.fixture.isDurable)
        if chain:
            self.assertNotEqual(other.chain, chain)

    # Followers.

    async def test_observersSeeEveryBlockInOrder(self) -> None:
        """An observer is told of every block once and in order, from when it was added until
        it is removed, whatever others do."""
        ledger = await self.begin()
        await self.submit(OpenTopic(topic="t"))
        await self.publish("t", b"before")
        height = await self.height()
        observer = RecordingObserver()
        for added in (FailingObserver(), observer, observer):
            ledger.addObserver(added)
        for content in (b"1", b"2", b"3"):
            await self.publish("t", content)
        heights = [block.height for block in observer.blocks]
        self.assertEqual(heights, list(range(height + 1, await self.height() + 1)))
        for block in observer.blocks:
            self.assertEqual(block, await self.settle(ledger.readBlock(block.height)))
        told = [event.content for block in observer.blocks for event in block.events]
        self.assertEqual(told, [b"1", b"2", b"3"])
        ledger.removeObserver(observer)
        ledger.removeObserver(observer)
        await self.publish("t", b"after")
        self.assertEqual(len(observer.blocks), len(heights))
        self.flushLoggedErrors(RuntimeError)

    async def test_observersAreToldBeforeReceiptsAreGiven(self) -> None:
        """A receipt is given when all observers know its block, at the latest."""
        ledger = await self.begin()
        await self.submit(OpenTopic(topic="t"))
        observer = RecordingObserver()
        ledger.addObserver(observer)
        known: list[bool] = []

        def look(receipt: Receipt) -> Receipt:
            known.append(receipt.height in [block.height for block in observer.blocks])
            return receipt

        requests = [PublishEvent(topic="t", content=b"%d" % number) for number in range(3)]
        for answer in [submit(ledger, each).addCallback(look) for each in requests]:
            await self.settle(answer)
        self.assertEqual(known, [True] * 3)

    async def test_onlyExistingBlocksAreRead(self) -> None:
        """Blocks from height 1 to the chain's height can be read, and no others."""
        ledger = await self.begin()
        await self.submit(OpenTopic(topic="t"), PublishEvent(topic="u", content=b"refused"))
        await self.publish("t", b"1", b"2")
        self.assertEqual([event.content for event in await self.allEvents()], [b"1", b"2"])
        for height in (-1, 0, await self.height() + 1, 2**63):
            await self.fails(ledger.readBlock(height), HeightUnknown)

    async def test_historyFindsBlocksAndCountsEvents(self) -> None:
        """The blocks that hold events of some topics are found, and the events of patterns are
        counted, from any height on, also for topics that are closed."""
        ledger = await self.begin()
        await self.submit(*(OpenTopic(topic=name) for name in ("a", "a/b", "c")))
        heights: dict[str, list[int]] = {"a": [], "a/b": [], "c": [], "never": []}
        for name in ("a", "a/b", "c", "c", "a", "a", "a/b", "c"):
            [eventId] = await self.publish(name, b"x")
            heights[name].append(eventId.height)
        await self.submit(CloseTopic(topic="c"))
        last = await self.height()
        asked: Sequence[Sequence[str]] = (("a",), ("c", "never"), ("a", "a/b"), ("never",), ())
        for topics in asked:
            wanted = sorted({h for name in topics for h in heights[name]})
            for first in (0, 1, *wanted, last + 1):
                left = [height for height in wanted if height >= first]
                for limit in (1, 2, 99):
                    found = await self.settle(ledger.findBlocks(topics, first, limit))
                    self.assertEqual(list(found), left[:limit])
        matched: Sequence[tuple[Sequence[str], Sequence[str]]] = (
            (("a",), ("a",)),
            (("a/#",), ("a", "a/b")),
            (("+", "c"), ("a", "c")),
            (("#",), tuple(heights)),
            (("x/+",), ()),
        )
        for filters, names in matched:
            for first in range(last + 2):
                count = sum(h >= first for name in names for h in heights[name])
                counted = await self.settle(ledger.countEvents(filters, first))
                self.assertEqual(counted, count, (filters, first))


Trust: TypeAlias = bytes | Checkpoint
"""The trusted thing: a chain, or a block of it."""

_CONTENTS = (b"text", "größer \U0001f600".encode(), bytes(range(256)), b"", b"x" * 100_000)


def makeProofTests(makeFixture: Callable[[TestCase], LedgerFixture]) -> type[TestCase]:
    """
    The tests that every implementation of
    L{IProvableLedger<svcbroker.interfaces.IProvableLedger>} passes, beside those that
    L{makeLedgerTests<svcbroker.testing.makeLedgerTests>} gives.

    @param makeFixture: as for those.
    """

    class LedgerProofTests(ProofTests):
        def makeFixture(self) -> LedgerFixture:
            return makeFixture(self)

    return LedgerProofTests


class ProofTests(LedgerKit):
    """Proofs, checkpoints, and that there is one genesis."""

    async def beginProvable(self) -> IProvableLedger:
        """A ledger that has started, and its chain."""
        ledger: IProvableLedger = IProvableLedger(await self.begin())
        self.chain = await self.chainOf(ledger)
        await self.submit(OpenTopic(topic="t"), OpenTopic(topic="u"))
        return ledger

    async def chainOf(self, ledger: IProvableLedger) -> bytes:
        """The id of the chain, as its genesis says."""
        return readGenesis(encode(await self.settle(ledger.getGenesis()))).chain

    async def proved(
        self, ledger: IProvableLedger, eventId: EventId, trusted: Trust, height: int | None = None
    ) -> ProvedEvent:
        """The event that a proof proves, once it is written and read."""
        data = encode(await self.settle(ledger.prove(eventId, height)))
        if isinstance(trusted, Checkpoint):
            return verifyProof(data, checkpoint=trusted)
        return verifyProof(data, chain=trusted)

    async def test_ledgerProvidesTheProofInterface(self) -> None:
        """It provides the interface, and its genesis is one."""
        ledger = await self.beginProvable()
        verifyObject(IProvableLedger, ledger)
        genesis = await self.settle(ledger.getGenesis())
        self.assertEqual(genesis.chain, self.chain.hex())

    async def test_everyEventIsProved(self) -> None:
        """Every event can be proved, and what is proved is what was published."""
        ledger = await self.beginProvable()
        extensions = {"svc-b": "größe", "svc-a": ""}
        await self.submit(
            *(
                PublishEvent(topic=topic, content=content, extensions=extensions)
                for content in _CONTENTS
                for topic in ("t", "u")
            )
        )
        await self.publish("t", b"later")
        events = await self.allEvents()
        self.assertEqual(len(events), 2 * len(_CONTENTS) + 1)
        for event in events:
            found = await self.proved(ledger, event.eventId, self.chain)
            self.assertEqual(
                (found.eventId, found.topic, found.content, found.extensions, found.sequence),
                (
                    str(event.eventId),
                    event.topic,
                    event.content,
                    event.extensions,
                    event.eventId.sequence,
                ),
            )
            block = await self.settle(ledger.readBlock(event.eventId.height))
            self.assertEqual(found.timestamp, block.timestamp)
            self.assertEqual(found.block, Checkpoint(block.height, block.hash))

    async def test_trustedCheckpointsProveEventsWithoutSignatures(self) -> None:
        """A proof for a verifier that trusts a checkpoint has no signatures."""
        ledger = await self.beginProvable()
        [first] = await self.publish("t", b"first")
        own = await self.settle(ledger.getCheckpoint(first.height))
        await self.publish("u", b"second")
        for kept in (own, await self.settle(ledger.getCheckpoint(None))):
            data = encode(await self.settle(ledger.prove(first, None, trusted=kept.height)))
            found = verifyProof(data, checkpoint=kept)
            self.assertEqual((found.content, found.signed), (b"first", None))
        for wrong in (
            ledger.prove(first, None, trusted=first.height - 1),
            ledger.prove(first, kept.height, trusted=kept.height),
        ):
            await self.fails(wrong, ParameterInvalid)

    async def test_topicProofCountsItsEvents(self) -> None:
        """A topic proof tells how many events a topic has, and their proofs are complete."""
        ledger = await self.beginProvable()
        identifiers = [*await self.publish("t", b"a"), *await self.publish("t", b"b")]
        data = encode(await self.settle(ledger.proveTopic("t")))
        topic = verifyTopic(data, chain=self.chain)
        self.assertEqual((topic.topic, topic.isOpen, topic.count), ("t", True, 2))
        height = topic.block.height
        self.assertGreaterEqual(height, identifiers[-1].height)
        proofs = [
            encode(await self.settle(ledger.prove(each, None, trusted=height)))
            for each in identifiers
        ]
        events = verifyComplete(topic, proofs)
        self.assertEqual([event.content for event in events], [b"a", b"b"])
        empty = verifyTopic(encode(await self.settle(ledger.proveTopic("u"))), chain=self.chain)
        self.assertEqual((empty.topic, empty.count, empty.latest), ("u", 0, 0))
        await self.fails(ledger.proveTopic("never opened"), TopicNotFound)

    async def test_laterCheckpointsProveEarlierEvents(self) -> None:
        """A checkpoint is a block's hash; a later one vouches for any event before it."""
        ledger = await self.beginProvable()
        [first] = await self.publish("t", b"first")
        await self.publish("u", b"second")
        tip = await self.settle(ledger.getCheckpoint(None))
        self.assertEqual(tip, await self.settle(ledger.getCheckpoint(tip.height)))
        for record in await self.allPages(ledger.listBlocks, 10):
            kept = await self.settle(ledger.getCheckpoint(record.height))
            if kept.height == record.height:
                self.assertEqual(kept.hash, record.hash)
            else:
                # A block that cannot be final by itself has the one before it for a checkpoint.
                self.assertEqual(record.transactionCount, 0)
                below = await self.settle(ledger.getCheckpoint(record.height - 1))
                self.assertEqual(kept, below)
            if record.height > first.height:
                found = await self.proved(ledger, first, kept, record.height)
                self.assertEqual(found.content, b"first")
                self.assertEqual(found.checkpoint or found.block, kept)
        own = await self.settle(ledger.getCheckpoint(first.height))
        self.assertEqual((await self.proved(ledger, first, own)).block, own)

    async def test_everyBlockIsInLaterHistory(self) -> None:
        """Any block is proved to be in the history of any later one, from genesis on."""
        ledger = await self.beginProvable()
        for number in range(4):
            await self.publish("t", b"%d" % number)
        tip = await self.height()
        answers = [await self.settle(ledger.getCheckpoint(height)) for height in range(tip + 1)]
        kept = {checkpoint.height: checkpoint for checkpoint in answers}
        self.assertGreater(len(kept), 4)
        for older, newer in combinations(sorted(kept), 2):
            data = encode(await self.settle(ledger.proveConsistency(older, newer)))
            found = verifyConsistency(data, older=kept[older], newer=kept[newer])
            self.assertEqual(found.chain, self.chain)

    async def test_unknownEventsAreNotProved(self) -> None:
        """Proving an unknown event, or with an unknown block, fails as the interface says."""
        ledger = await self.beginProvable()
        [known] = await self.publish("t", b"x")
        height = known.height
        await self.fails(ledger.prove(EventId(known.prefix, 2, height), None), EventNotFound)
        await self.fails(ledger.prove(EventId("00000000", 1, height), None), EventNotFound)
        far = await self.height() + 1000
        await self.fails(ledger.prove(EventId(known.prefix, 2, far), None), HeightUnknown)
        for answer in (
            ledger.prove(known, far),
            ledger.getCheckpoint(far),
            ledger.proveConsistency(1, far),
        ):
            await self.fails(answer, HeightUnknown)
        for wrong in (
            ledger.prove(known, height),
            ledger.proveConsistency(height, height),
            ledger.proveConsistency(height, height - 1),
        ):
            await self.fails(wrong, ParameterInvalid)

    async def test_historyIsTheLogOfHeaders(self) -> None:
        """The hashes of the history are those of the headers, in order, and make its root."""
        ledger = await self.beginProvable()
        for number in range(6):
            await self.publish("t", b"%d" % number)
        tip = await self.settle(ledger.getCheckpoint(None))
        hashes = await self.settle(ledger.readHistory(0, 0, 256))
        self.assertGreater(len(hashes), tip.height)
        for first, count in ((0, 1), (1, 1), (2, 3), (tip.height, 1), (tip.height, 0)):
            read = await self.settle(ledger.readHistory(0, first, count))
            self.assertEqual(read, hashes[first : first + count])
        self.assertEqual(hashes[tip.height], tip.hash)
        self.assertEqual(await self.settle(ledger.readHistory(8, 0, 1)), [])
        data = encode(await self.settle(ledger.proveConsistency(1, tip.height)))
        proof = decode(data, type=ConsistencyProof)
        self.assertEqual(
            proof.newer.history, merkleRoot([leafHash(each) for each in hashes[: tip.height]]).hex()
        )
        for wrong in ((1, 0, 1), (-8, 0, 1), (0, -1, 1), (0, 0, 257)):
            await self.fails(ledger.readHistory(*wrong), ParameterInvalid)

    async def test_derivedKeysStayThroughRestarts(self) -> None:
        """Each purpose has a key of its own, and it is the same one after a restart."""
        ledger = await self.beginProvable()
        key = ledger.deriveKey("log key")
        self.assertEqual((len(key), ledger.deriveKey("log key")), (32, key))
        self.assertNotEqual(ledger.deriveKey("other key"), key)
        if self.fixture.isDurable:
            await self.end()
            self.assertEqual(IProvableLedger(await self.startAgain()).deriveKey("log key"), key)

    async def test_proofsFitThoseBeforeARestart(self) -> None:
        """Proofs and checkpoints made before a restart fit those made after it."""
        ledger = await self.beginProvable()
        [known] = await self.publish("t", b"x")
        before = await self.settle(ledger.getCheckpoint(None))
        if not self.fixture.isDurable:
            return
        await self.end()
        again: IProvableLedger = IProvableLedger(await self.startAgain())
        self.assertEqual(await self.chainOf(again), self.chain)
        await self.publish("t", b"y")
        tip = await self.settle(again.getCheckpoint(None))
        self.assertEqual((await self.proved(again, known, tip, tip.height)).content, b"x")
        data = encode(await self.settle(again.proveConsistency(before.height, tip.height)))
        verifyConsistency(data, older=before, newer=tip)
