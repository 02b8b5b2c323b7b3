"""
Tests for what a copy refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path

from attrs import evolve
from msgspec.structs import replace

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
from svcbroker.ledgers import pbft
from svcbroker.ledgers.copy import CopyRefusal
from svcbroker.ledgers.copy._original import OriginalAnswer
from svcbroker.model import EventId, topicPrefix
from svcbroker.proofs import Checkpoint
from tests.archive.erasable import ErasableChain
from tools.vectors.signedchain import SignedChain

from .rig import URL, CopyTestCase


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


class RefusalTests(CopyTestCase):
    """
    Tests for what is not copied.
    """

    def tamper(self, height: int, change: Callable[[StreamedBlock], StreamedBlock]) -> None:
        """Have the original send another block at a height."""

        def changed(answer: OriginalAnswer) -> OriginalAnswer:
            stream = rewritten(
                answer.stream, lambda at, block: change(block) if at == height else block
            )
            return evolve(answer, stream=stream)

        self.original.change = changed

    def refused(self, height: int, refusal: CopyRefusal, text: str) -> None:
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
        self.refused(3, CopyRefusal.BLOCK, "block 3 does not hold")
        self.assertEqual(self.contents(), [b"0"])
        self.original.change = lambda answer: answer
        self.stop()
        found = [str(each) for each in audit(self.directory.parent).all()]
        self.assertTrue(any("blocks that a copy has refused" in each for each in found), found)
        self.start()
        self.assertEqual(self.contents(), [b"0", b"1", b"2"])

    def test_forgedCertificateIsRefused(self) -> None:
        """A block whose certificate does not hold is not stored."""

        def change(block: StreamedBlock) -> StreamedBlock:
            certificate = Certificate.decode(block.certificate)
            (index, _), *others = certificate.signatures
            forged = replace(certificate, signatures=[(index, bytes(64)), *others])
            return evolve(block, certificate=forged.encode())

        self.tamper(1, change)
        self.start()
        self.refused(1, CopyRefusal.BLOCK, "block 1 does not hold")
        self.assertEqual(self.copy.progress.height, 0)

    def test_blockWithoutCertificateIsRefused(self) -> None:
        """Of blocks without certificate nothing is kept, and reads go on."""
        for height in (3, 4):
            self.tamper(height, lambda block: evolve(block, certificate=b""))
            self.start()
            self.refused(4, CopyRefusal.BLOCK, "certificate")
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
        self.refused(2, CopyRefusal.BLOCK, "withholds the contents of 1 event")

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
        self.refused(5, CopyRefusal.CONTRADICTION, "there are two histories")
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
        self.refused(6, CopyRefusal.CONTRADICTION, "follows another block 5")

    def test_shorterOriginalIsWaitedFor(self) -> None:
        """An original that has lost blocks gives none, until it has others."""
        older = self.makeChain("older")
        self.start()
        self.publish(b"3", b"4")
        self.publish(b"5")
        self.original.directory = self.root / "older"
        self.original.wake()
        self.assertIn("ends at block 4, before the copy, which has 6", self.reason())
        older.publish("t", b"other")
        older.publish("t", b"other")
        self.clock.advance(20)
        self.refused(6, CopyRefusal.CONTRADICTION, "there are two histories")

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
        self.refused(0, CopyRefusal.CHAIN, "another genesis")

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
        self.refused(4, CopyRefusal.CHAIN, "not the one of the checkpoint")
        self.stop()
        self.start(checkpoint=good)
        self.assertEqual(len(self.contents()), 3)
        self.stop()
        text = self.refuseStart(checkpoint=evolve(good, hash=bytes(32)))
        self.assertIn("block 4 is not the one of the checkpoint", text)

    def test_brokenAnswerIsAskedForAgain(self) -> None:
        """An answer that is no export is not kept, and is asked for again."""
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
