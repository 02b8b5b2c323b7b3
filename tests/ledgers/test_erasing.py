"""
Erased events while a ledger runs: what is answered of them, and the removal of their contents.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.archive import Eraser, Erasing, loadChain
from svcbroker.chain import Malformed, Transaction
from svcbroker.errors import EventErased
from svcbroker.ledgers._storedledger import ERASING_REST, RETRY, ErasingJob, LedgerReader
from svcbroker.model import EventId, topicPrefix
from svcbroker.storage import BlockRow, StorageDamaged, StorageFailed
from tests.archive.erasable import ErasableChain


class FakeEraser:
    """
    An eraser that does what it is told.

    @ivar results: what its steps return or raise.
    """

    def __init__(self) -> None:
        self.results: list[Erasing | Exception] = []
        self.steps = 0

    def takeStripped(self) -> Collection[str]:
        """The topic of the last step."""
        return {f"t{self.steps}"}

    def step(self) -> Erasing:
        """The next result."""
        self.steps += 1
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result


class JobTests(SynchronousTestCase):
    """
    Tests for L{ErasingJob}.
    """

    def setUp(self) -> None:
        self.clock, self.eraser = Clock(), FakeEraser()
        self.running: list[tuple[Deferred[Any], Callable[[], Any]]] = []
        self.removed: list[Collection[str]] = []
        self.job = self.makeJob()

    def makeJob(self) -> ErasingJob:
        """Another job of this eraser."""
        eraser = cast(Eraser, self.eraser)
        return ErasingJob(eraser, self.clock, self.runInThread, self.removed.append)

    def runInThread(self, f: Callable[..., Any], *args: Any) -> Deferred[Any]:
        """A thread that runs when it is told to."""
        done: Deferred[Any] = Deferred()
        self.running.append((done, lambda: f(*args)))
        return done

    def run_(self, took: float = 0.0) -> None:
        """Let the thread do what it has to."""
        [(done, f)], self.running = self.running, []
        self.clock.advance(took)
        try:
            result = f()
        except Exception as error:
            done.errback(error)
        else:
            done.callback(result)

    def wake(self, *results: Erasing | Exception) -> None:
        """Wake it when there is something to do."""
        self.eraser.results += results
        self.job.wake()
        self.clock.advance(0)

    def test_stepsAreMadeUntilDone(self) -> None:
        """One step after the other, with rests between for blocks."""
        self.wake(Erasing.MORE, Erasing.MORE, Erasing.DONE)
        self.run_(took=0.5)
        self.clock.advance(0.5 * ERASING_REST - 0.01)
        self.assertEqual(self.running, [])
        self.clock.advance(0.01)
        self.run_()
        self.assertFalse(self.job.isDone)
        self.clock.advance(0)
        self.run_()
        self.assertTrue(self.job.isDone)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(self.removed, [{"t1"}, {"t2"}, {"t3"}])

    def test_wakeDuringLastStepIsNotLost(self) -> None:
        """A call that comes while a step is made is looked at afterwards."""
        self.wake(Erasing.DONE, Erasing.DONE)
        self.job.wake()
        self.run_()
        self.assertFalse(self.job.isDone)
        self.clock.advance(0)
        self.run_()
        self.assertTrue(self.job.isDone)

    def test_failedStepIsMadeAgain(self) -> None:
        """After a while, whether the disk or a reader was the reason; nothing is done meanwhile."""
        self.wake(StorageFailed("full"), Erasing.WAITING, Erasing.DONE)
        for _ in range(2):
            self.run_()
            self.assertFalse(self.job.isDone)
            self.clock.advance(RETRY - 0.1)
            self.assertEqual(self.running, [])
            self.clock.advance(0.1)
        self.run_()
        self.assertTrue(self.job.isDone)

    def test_damageEndsTheJob(self) -> None:
        """A damaged block is reported, and no step is made until the job is woken again."""
        self.wake(StorageDamaged("block 3"), Erasing.DONE)
        self.run_()
        self.assertEqual(len(self.flushLoggedErrors(StorageDamaged)), 1)
        self.assertEqual((self.clock.getDelayedCalls(), self.job.isDone), ([], False))
        self.wake()
        self.run_()
        self.assertTrue(self.job.isDone)

    def test_endIsAwaited(self) -> None:
        """Until all is removed, also while another process reads; a failure is told, and again to
        who asks later; a job that is stopped keeps nobody waiting."""
        self.wake(Erasing.MORE, Erasing.WAITING, Erasing.DONE)
        done = self.job.whenDone()
        for delay in (0.0, RETRY):
            self.run_()
            self.assertNoResult(done)
            self.clock.advance(delay)
        self.run_()
        self.assertIsNone(self.successResultOf(done))
        self.assertIsNone(self.successResultOf(self.job.whenDone()))
        self.wake(StorageDamaged("block 3"), Erasing.DONE)
        done = self.job.whenDone()
        self.run_()
        self.failureResultOf(done, StorageDamaged)
        self.failureResultOf(self.job.whenDone(), StorageDamaged)
        self.flushLoggedErrors(StorageDamaged)
        self.job.wake()
        done = self.job.whenDone()
        self.job.stop()
        self.assertIsNone(self.successResultOf(done))

    def test_stoppedJobMakesNoStep(self) -> None:
        """Neither after a step that was being made, nor after a rest, nor when it is woken."""
        self.wake(Erasing.MORE)
        self.job.stop()
        self.run_()
        self.job.wake()
        self.assertEqual((self.clock.getDelayedCalls(), self.running), ([], []))
        other = self.makeJob()
        other.wake()
        other.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])


class ReaderTests(SynchronousTestCase):
    """
    Tests for what a L{LedgerReader} answers of erased events.
    """

    def setUp(self) -> None:
        directory = Path(self.mktemp())
        directory.mkdir()
        self.chain = ErasableChain(directory)
        self.addCleanup(self.chain.close)
        self.chain.open("a", "b")
        clock = Clock()
        self.reader = LedgerReader(
            self.chain.state, self.chain.store, clock.seconds, lambda: succeed(None)
        )

    def decide(self, *transactions: Transaction) -> int:
        """The height of a block of some transactions."""
        return self.chain.decide(transactions).height

    def eventId(self, topic: str, sequence: int, height: int) -> EventId:
        """The id of an event."""
        return EventId(topicPrefix(topic), sequence, height)

    def test_erasedEventIsNotAnsweredFromErasureOn(self) -> None:
        """Neither its content nor its private extensions, before they are removed from the file and
        afterwards; the answer says when it was erased, by whom and why."""
        chain, private = self.chain, {"svc-private-name": "x", "svc-name": "y"}
        height = self.decide(
            chain.say("a", b"kept"),
            chain.say("b", b"other", extensions=private),
            chain.say("a", b"gone", author="ann", extensions=private),
            chain.say("a", b"kept, too"),
        )
        erasure = chain.erasure("a", (2, 2))
        erasing = chain.decide([chain.say("b", b"before"), erasure])
        erased = self.eventId("a", 2, height)
        for isRemoved in (False, True):
            if isRemoved:
                self.assertIs(Eraser(chain.store).run(), Erasing.DONE)
            error = self.assertRaises(EventErased, self.reader.getEvent, erased)
            self.assertEqual(
                (error.time, error.account, error.reason, error.transaction),
                (erasing.timestamp, "operator", "asked for", erasure.hash),
            )
            self.assertEqual(self.reader.locate(erased).index, 2)
            events = self.reader.readBlock(height).events
            contents = [event.content for event in events]
            self.assertEqual(contents, [b"kept", b"other", b"", b"kept, too"])
            self.assertEqual([event.isErased for event in events], [False, False, True, False])
            self.assertEqual(dict(events[2].extensions), {"svc-name": "y"})
            assert events[2].author is not None
            self.assertEqual(events[2].author.signature, b"")
            self.assertEqual(dict(events[1].extensions), private)
            for sequence in (1, 3):
                event = self.reader.getEvent(self.eventId("a", sequence, height))
                self.assertFalse(event.isErased)

    def test_contentRemovedWhileItsBlockIsReadIsNotAnswered(self) -> None:
        """A thread removes it after the body was read."""
        store = self.chain.store
        height = self.decide(self.chain.say("a", b"gone"))
        self.chain.erase("a", (1, 1))
        block = store.block

        def read(height: int) -> BlockRow | None:
            row = block(height)
            Eraser(store).step()
            return row

        self.patch(store, "block", read)
        [event] = self.reader.readBlock(height).events
        self.assertEqual((event.content, event.isErased), (b"", True))

    def test_blockTellsOfErasure(self) -> None:
        """So that what was read before is read again."""
        height = self.decide(self.chain.say("a", b"gone"))
        following = self.chain.erase("a", (1, 1)).height
        erasures = [[*self.reader.readBlock(each).erasures] for each in (height, following)]
        self.assertEqual(erasures, [[], [("a", ((1, 1),))]])

    def test_eventsThatNoBlockErasedAreNotCalledErased(self) -> None:
        """A changed number in the table of erased events is damage: neither an event nor a block is
        answered as erased that is not, and the erased one is not answered."""
        say, store = self.chain.say, self.chain.store
        height = self.decide(*(say("a", b"text %d" % number) for number in range(1, 14)))
        erasing = self.chain.erase("a", (3, 5)).height
        for statement in (
            "UPDATE erased SET last = 13",
            "UPDATE erased SET first = 1",
            f"UPDATE erased SET height = {erasing - 1}",
            f"UPDATE erased SET height = {erasing + 8}",
            "UPDATE erased SET position = 1",
        ):
            with self.subTest(statement=statement):
                rows = store._writing.execute("SELECT * FROM erased").fetchall()
                store._writing.execute(statement)
                self.assertRaises(Malformed, self.reader.getEvent, self.eventId("a", 4, height))
                for sequence in (2, 7):
                    try:
                        event = self.reader.getEvent(self.eventId("a", sequence, height))
                    except Malformed:
                        continue
                    self.assertEqual(event.content, b"text %d" % sequence)
                self.assertRaises(Malformed, self.reader.readBlock, height)
                self.assertRaises(Malformed, self.chain.prover.event, self.eventId("a", 4, height))
                store._writing.execute("DELETE FROM erased")
                store._writing.executemany("INSERT INTO erased VALUES (?, ?, ?, ?, ?)", rows)
        self.assertRaises(EventErased, self.reader.getEvent, self.eventId("a", 4, height))

    def test_contentThatNothingRemovesIsDamage(self) -> None:
        """An erased event that has its content, while none is to be removed, is not answered as
        erased: its content may stay for good."""
        height = self.decide(self.chain.say("a", b"one"))
        self.chain.erase("a", (1, 1))
        self.chain.store._writing.execute("DELETE FROM erasing")
        self.assertRaises(Malformed, self.reader.getEvent, self.eventId("a", 1, height))

    def test_keyOfEventThatNothingErasedKeepsItsContent(self) -> None:
        """A key is not taken for one of an erased event, with which any content would be the same
        publish."""
        chain = self.chain
        self.decide(chain.say("a", b"gone", key="gone"), chain.say("a", b"kept", key="kept"))
        chain.erase("a", (1, 1))
        wanted = [(chain.owner, "gone"), (chain.owner, "kept")]
        kept = sha256(b"kept").digest()
        keys = loadChain(chain.store).state.keys
        digests = [use.digest for use in keys.find(wanted).values()]
        self.assertEqual(digests, [None, kept])
        chain.store._writing.execute("UPDATE erased SET last = 2")
        self.assertEqual(keys.find(wanted)[chain.owner, "kept"].digest, kept)

    def test_contentThatNothingErasedIsDamage(self) -> None:
        """A content that is missing without an erasure is not answered as erased."""
        height = self.decide(self.chain.say("a", b"one"), self.chain.say("a", b"two"))
        self.chain.erase("a", (1, 1))
        Eraser(self.chain.store).run()
        self.chain.store._writing.execute("DELETE FROM erased")
        self.assertRaises(Malformed, self.reader.getEvent, self.eventId("a", 1, height))
        self.assertEqual(self.reader.getEvent(self.eventId("a", 2, height)).content, b"two")
