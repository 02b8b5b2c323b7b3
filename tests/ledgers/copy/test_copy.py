"""
What a copy takes, what it refuses, and how it goes on.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

from attrs import evolve
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.archive import (
    COPY_NAME,
    STORE_NAME,
    StreamedBlock,
    StreamReader,
    StreamWriter,
    _export,
    audit,
)
from svcbroker.chain import Certificate, decodeBody, encodeBody
from svcbroker.errors import LedgerUnavailable
from svcbroker.interfaces import LedgerContext, submit
from svcbroker.ledgers import pbft
from svcbroker.ledgers.copy import CopyLedger, CopyProgress, Refusal, _ledger
from svcbroker.ledgers.copy._original import Answer
from svcbroker.model import EventId, PublishEvent, topicPrefix
from svcbroker.proofs import Checkpoint
from svcbroker.storage import StorageFailed
from svcbroker.testing._fixtures import FaultyDisk
from svcbroker.testing._kit import RecordingObserver
from tests.archive.erasable import ErasableChain, canary, filesWith, makeErasable
from tools.signedchain import SignedChain

from .rig import URL, FakeOriginal, makeCopy


def rewritten(stream: bytes, change: Callable[[int, StreamedBlock], StreamedBlock]) -> bytes:
    """An export in which blocks are changed."""
    reader, file = StreamReader(BytesIO(stream)), BytesIO()
    begin = reader.begin()
    writer = StreamWriter(file, hasReceipts=True)
    writer.begin(begin)
    for height, record in enumerate(reader.rest(), begin.first):
        if isinstance(record, StreamedBlock):
            writer.block(change(height, record))
        else:
            writer.end(record)
    return file.getvalue()


class CopyTestCase(SynchronousTestCase):
    """
    A chain, and a copy of it.
    """

    def setUp(self) -> None:
        self.root = Path(self.mktemp())
        self.directory = self.root / "copy" / "1"
        self.directory.parent.mkdir(parents=True)
        self.clock = Clock()
        self.disk = FaultyDisk()
        self.progress: list[CopyProgress] = []
        self.chain = self.makeChain("original")
        self.original = FakeOriginal(self.root / "original")
        self.isRunning = False

    def makeChain(self, name: str) -> ErasableChain:
        """A chain of four blocks in a directory of its own."""
        directory = self.root / name
        directory.mkdir()
        chain = ErasableChain(directory)
        self.addCleanup(chain.close)
        chain.open("t", "u")
        for number in range(3):
            chain.publish("t", b"%d" % number)
        return chain

    def start(self, **settings: Any) -> CopyLedger:
        """A copy that has started."""
        self.successResultOf(self.make(**settings).start())
        self.isRunning = True
        self.addCleanup(self.stop)
        return self.copy

    def make(self, **settings: Any) -> CopyLedger:
        """A copy that has not started."""
        self.context = LedgerContext(
            group="1",
            directory=self.directory,
            reactor=self.clock,
            now=self.clock.seconds,
            entropy=os.urandom,
            runInThread=self.disk,
            maxContent=1024,
        )
        self.copy = makeCopy(self.context, self.original, self.progress.append, **settings)
        return self.copy

    def stop(self) -> None:
        """Stop the copy if it runs."""
        if self.isRunning:
            self.isRunning = False
            self.successResultOf(self.copy.stop())

    def refuseStart(self, **settings: Any) -> str:
        """Why a copy does not start."""
        failure = self.failureResultOf(self.make(**settings).start(), LedgerUnavailable)
        return str(failure.value.message)

    def contents(self) -> list[bytes]:
        """The contents of all events of the copy."""
        events = []
        for height in range(1, self.copy.progress.height + 1):
            block = self.successResultOf(self.copy.readBlock(height))
            events += [event.content for event in block.events]
        return events

    def reason(self) -> str:
        """Why the copy is not ready."""
        return self.successResultOf(self.copy.getHealth()).reason

    def publish(self, *contents: bytes, chain: SignedChain | None = None) -> None:
        """Publish in the original, and have the copy hear of it."""
        (chain or self.chain).publish("t", *contents)
        self.original.wake()


class FollowingTests(CopyTestCase):
    """
    Tests for what is copied.
    """

    def test_chainIsCopiedAndFollowed(self) -> None:
        """A new copy takes all blocks, and then each that comes; observers hear of these."""
        copy = self.start()
        self.assertEqual(self.contents(), [b"0", b"1", b"2"])
        observer = RecordingObserver()
        copy.addObserver(observer)
        self.publish(b"3", b"4")
        self.assertEqual(self.contents(), [b"0", b"1", b"2", b"3", b"4"])
        [block] = observer.blocks
        self.assertEqual(block, self.successResultOf(copy.readBlock(5)))
        self.assertTrue(self.successResultOf(copy.getHealth()).isReady)
        self.stop()
        result = audit(self.directory.parent)
        self.assertTrue(result.isGood, list(result.all()))

    def test_restartedCopyResumes(self) -> None:
        """A copy that was stopped goes on at its last block, which it compares."""
        self.start()
        self.stop()
        self.chain.publish("t", b"3")
        self.original.asked.clear()
        self.start()
        self.assertEqual(self.original.asked, [4, 6])
        self.assertEqual(self.contents(), [b"0", b"1", b"2", b"3"])

    def test_lagIsTold(self) -> None:
        """A copy that gets blocks part by part tells how many it is behind."""
        self.patch(_export, "PART_BYTES", 1)
        self.start()
        behind = [each.behind for each in self.progress]
        self.assertEqual(behind, [3, 2, 1, 0])
        self.assertEqual(self.reason(), "")

    def test_unreachableOriginalIsAskedAgain(self) -> None:
        """While the original cannot be reached the copy serves reads, and asks ever less often."""
        self.start()
        self.original.directory = None
        self.original.wake()
        self.assertEqual(self.reason(), f"{URL} cannot be reached")
        asked = len(self.original.asked)
        for pause in (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0):
            self.clock.advance(pause - 0.01)
            self.assertEqual(len(self.original.asked), asked)
            self.clock.advance(0.01)
            asked += 1
            self.assertEqual(len(self.original.asked), asked)
        self.assertEqual(self.contents(), [b"0", b"1", b"2"])
        self.original.directory = self.root / "original"
        self.chain.publish("t", b"3")
        self.clock.advance(15)
        self.assertEqual(self.contents(), [b"0", b"1", b"2", b"3"])
        self.assertEqual(self.reason(), "")

    def test_nothingIsPublishedToCopies(self) -> None:
        """Publishing to a copy is refused, with the address of the original."""
        copy = self.start()
        publishing = submit(copy, PublishEvent(topic="t", content=b"x"))
        error = self.failureResultOf(publishing, LedgerUnavailable).value
        self.assertIn(URL, error.message)

    def test_erasedContentsAreErased(self) -> None:
        """What the original erases is removed from the files of the copy, too."""
        self.chain.publish("t", canary("gone"), canary("kept"))
        self.start()
        self.assertNotEqual(filesWith(self.directory, canary("gone")), [])
        self.chain.erase("t", (4, 4))
        self.original.wake()
        for _ in range(20):
            self.clock.advance(1)
        self.assertEqual(filesWith(self.directory, canary("gone")), [])
        self.assertNotEqual(filesWith(self.directory, canary("kept")), [])

    def test_chainWithErasuresIsCopied(self) -> None:
        """Contents that the original has removed are not needed."""
        chain = makeErasable(self.root / "erased")
        self.addCleanup(chain.close)
        self.original.directory = self.root / "erased"
        self.patch(_export, "PART_BYTES", 1)
        self.start()
        self.assertEqual(self.copy.progress.height, chain.head.height)
        self.assertEqual(self.reason(), "")
        self.stop()
        result = audit(self.directory.parent)
        self.assertTrue(result.isGood, list(result.all()))

    def test_failingDiskIsTriedAgain(self) -> None:
        """Blocks that cannot be stored are stored later; reads wait until then."""
        copy = self.start()
        self.disk.error = StorageFailed("no space")
        self.publish(b"3")
        self.assertIn("no space", self.reason())
        reading = copy.listTopics(0, 9)
        self.assertNoResult(reading)
        self.clock.advance(1)
        self.assertNoResult(reading)
        self.disk.error = None
        self.clock.advance(1)
        self.assertEqual(self.successResultOf(reading).total, 2)
        self.assertEqual(self.contents(), [b"0", b"1", b"2", b"3"])
        self.assertEqual(self.reason(), "")

    def test_stopDuringFailingDiskEnds(self) -> None:
        """A copy whose disk fails can be stopped."""
        self.start()
        self.disk.error = StorageFailed("no space")
        self.publish(b"3")
        self.disk.error = None
        self.stop()
        self.start()
        self.assertEqual(self.contents(), [b"0", b"1", b"2", b"3"])

    def test_longPartsAreVerifiedInSlices(self) -> None:
        """The reactor gets its turn between blocks, and blocks are stored by then."""
        self.patch(_ledger, "SLICE", -1.0)
        copy = self.start()
        self.assertEqual(copy.progress.height, 1)
        self.assertEqual(self.successResultOf(copy.listTopics(0, 9)).total, 2)
        self.clock.advance(0)
        self.assertEqual(self.contents(), [b"0", b"1", b"2"])


class RefusalTests(CopyTestCase):
    """
    Tests for what is not copied.
    """

    def tamper(self, height: int, change: Callable[[StreamedBlock], StreamedBlock]) -> None:
        """Have the original send another block at a height."""

        def changed(answer: Answer) -> Answer:
            stream = rewritten(
                answer.stream, lambda at, block: change(block) if at == height else block
            )
            return evolve(answer, stream=stream)

        self.original.change = changed

    def refused(self, height: int, refusal: Refusal, text: str) -> None:
        """Make sure that the copy has stopped at a block, and keeps what it refused."""
        progress = self.copy.progress
        assert progress.refused is not None, progress
        self.assertEqual((progress.refused.height, progress.refused.refusal), (height, refusal))
        self.assertIn(text, self.reason())
        self.assertIn(text, str(progress.refused))
        self.assertTrue((self.directory / f"refused-{height}.export").exists())
        asked = len(self.original.asked)
        self.clock.advance(100)
        self.assertEqual(len(self.original.asked), asked)

    def test_tamperedContentIsRefused(self) -> None:
        """Nothing is copied from the first block on that does not hold."""

        def change(block: StreamedBlock) -> StreamedBlock:
            return evolve(block, body=block.body[:-1] + b"x")

        self.tamper(3, change)
        self.start()
        self.refused(3, Refusal.BLOCK, "block 3 does not hold")
        self.assertEqual(self.contents(), [b"0"])
        self.original.change = lambda answer: answer
        self.stop()
        self.start()
        self.assertEqual(self.contents(), [b"0", b"1", b"2"])

    def test_forgedCertificateIsRefused(self) -> None:
        """A block whose certificate does not hold is not stored."""

        def change(block: StreamedBlock) -> StreamedBlock:
            certificate = Certificate.decode(block.certificate)
            (index, _), *others = certificate.signatures
            forged = evolve(certificate, signatures=[(index, bytes(64)), *others])
            return evolve(block, certificate=forged.encode())

        self.tamper(1, change)
        self.start()
        self.refused(1, Refusal.BLOCK, "block 1 does not hold")
        self.assertEqual(self.copy.progress.height, 0)

    def test_blockWithoutCertificateIsRefused(self) -> None:
        """Of blocks without certificate nothing is kept, and reads go on."""
        for height in (3, 4):
            self.tamper(height, lambda block: evolve(block, certificate=b""))
            self.start()
            self.refused(4, Refusal.BLOCK, "certificate")
            self.assertEqual(self.copy.progress.height, height - 1)
            self.assertEqual(len(self.contents()), height - 2)
            page = self.successResultOf(self.copy.findBlocks(["t"], 1, 9))
            self.assertEqual(list(page), list(range(2, height)))
            self.stop()

    def test_withheldContentIsRefused(self) -> None:
        """An original that leaves out contents which nothing erases is found out."""

        def change(block: StreamedBlock) -> StreamedBlock:
            [transaction] = decodeBody(block.body)
            body, _ = encodeBody([transaction.withoutContent()])
            return evolve(block, body=body)

        chain = self.makeVersion2()
        self.original.directory = chain
        self.tamper(2, change)
        self.start()
        self.refused(2, Refusal.BLOCK, "withholds the contents of 1 event")

    def makeVersion2(self) -> Path:
        """A chain with an event whose content could be missing."""
        directory = self.root / "sealed"
        directory.mkdir()
        chain = ErasableChain(directory)
        self.addCleanup(chain.close)
        chain.open("t")
        chain.decide([chain.say("t", b"secret", key="k")])
        return directory

    def test_otherHistoryIsAContradiction(self) -> None:
        """A copy stops where the validators have signed another block than one that it has."""
        self.start()
        other = self.makeChain("other")
        other.publish("t", b"other")
        self.publish(b"3")
        self.original.directory = self.root / "other"
        self.original.wake()
        self.stop()
        self.start()
        self.refused(5, Refusal.CONTRADICTION, "there are two histories")
        self.assertEqual(self.contents(), [b"0", b"1", b"2", b"3"])

    def test_otherParentIsAContradiction(self) -> None:
        """The other history may also be seen by its next block."""
        self.start()
        other = self.makeChain("other")
        other.publish("t", b"other")
        self.publish(b"3")
        other.publish("t", b"next")
        self.original.directory = self.root / "other"
        self.original.wake()
        self.refused(6, Refusal.CONTRADICTION, "follows another block 5")

    def test_shorterOriginalIsWaitedFor(self) -> None:
        """An original that has lost blocks gives none, until it has others."""
        older = self.makeChain("older")
        self.start()
        self.publish(b"3", b"4")
        self.publish(b"5")
        self.original.directory = self.root / "older"
        self.original.wake()
        self.assertIn("there is no block 7: the chain has 4", self.reason())
        older.publish("t", b"other")
        older.publish("t", b"other")
        self.clock.advance(20)
        self.refused(6, Refusal.CONTRADICTION, "there are two histories")

    def test_otherChainIsRefused(self) -> None:
        """Another chain is not taken for the one that is there."""
        self.start()
        directory = self.root / "another"
        directory.mkdir()
        another = SignedChain(directory, name="another")
        self.addCleanup(another.close)
        for _ in range(5):
            another.open("t")
        self.original.directory = directory
        self.publish(b"3")
        self.stop()
        self.start()
        self.refused(0, Refusal.CHAIN, "another genesis")

    def test_onlyTheNamedGenesisIsCopied(self) -> None:
        """With the setting genesis no other chain is begun."""
        self.assertIn("another genesis", self.refuseStart(genesis=bytes(32)))
        self.assertFalse((self.directory / STORE_NAME).exists())
        self.start(genesis=self.chain.genesis.chain)
        self.assertEqual(len(self.contents()), 3)

    def test_chainMustHaveTheCheckpoint(self) -> None:
        """With the setting checkpoint another history is refused, also by a restarted copy."""
        good = Checkpoint.of(self.chain.head)
        self.start(checkpoint=evolve(good, hash=bytes(32)))
        self.refused(4, Refusal.CHAIN, "not the one of the checkpoint")
        self.stop()
        self.start(checkpoint=good)
        self.assertEqual(len(self.contents()), 3)
        self.stop()
        text = self.refuseStart(checkpoint=evolve(good, hash=bytes(32)))
        self.assertIn("block 4 is not the one of the checkpoint", text)

    def test_brokenAnswerIsAskedForAgain(self) -> None:
        """What is no export is not kept, and is asked for again."""
        self.start()
        self.original.change = lambda answer: evolve(answer, stream=answer.stream[:-1])
        self.publish(b"3")
        self.assertIn("cut off", self.reason())
        self.original.change = lambda answer: answer
        self.clock.advance(1)
        self.assertEqual(self.contents(), [b"0", b"1", b"2", b"3"])

    def test_directoryWithKeysIsNoCopy(self) -> None:
        """The directory of an original with its keys does not become a copy."""
        (self.directory / "keys").mkdir(parents=True)
        (self.directory / "keys" / "node0.key").write_text("00")
        self.assertIn("move the keys away", self.refuseStart())

    def test_embeddedLedgerRefusesCopies(self) -> None:
        """The embedded ledger does not go on with a copy, also where its keys are there."""
        self.start()
        self.stop()
        self.assertEqual((self.directory / COPY_NAME).read_text(), f"{URL}\n")
        ledger = pbft.configure({})(self.context)
        error = self.failureResultOf(ledger.start(), LedgerUnavailable).value
        self.assertIn("is a copy", error.message)

    def test_unreachableOriginalPreventsTheFirstStart(self) -> None:
        """Without a copy there is nothing to read before the original answers."""
        self.original.directory = None
        self.assertEqual(self.refuseStart(), f"{URL} cannot be reached")

    def test_lostEndIsCopiedAgain(self) -> None:
        """A copy that has lost its last blocks gets them from the original."""
        self.start()
        tip = (self.directory / f"{STORE_NAME}-tip").read_bytes()
        self.stop()
        for path in self.directory.iterdir():
            path.unlink()
        self.patch(_export, "PART_BYTES", 1)
        self.original.limit = 2
        self.start()
        self.assertEqual(self.copy.progress.height, 2)
        self.stop()
        (self.directory / f"{STORE_NAME}-tip").write_bytes(tip)
        self.original.limit = None
        self.start()
        self.assertEqual(self.contents(), [b"0", b"1", b"2"])

    def test_missingEventsAreNotFoundInCopies(self) -> None:
        """An event that is not copied yet is not there."""
        copy = self.start()
        above = EventId(topicPrefix("t"), 4, 5)
        self.failureResultOf(copy.getEvent(above))
        self.publish(b"3")
        self.assertEqual(self.successResultOf(copy.getEvent(above)).content, b"3")
