"""
Restoring chains up to a height, and going on with copies.
"""

from __future__ import annotations

import threading
from pathlib import Path

from svcbroker.archive import (
    COPY_NAME,
    ROUNDS_ASIDE,
    STORE_NAME,
    ImportRefused,
    PromotionRefused,
    RangeUnknown,
    audit,
    markCopy,
    promote,
    readCopy,
    takeOver,
    transferChain,
)
from svcbroker.ledgers.pbft._keys import writeSeeds
from svcbroker.proofs import Checkpoint
from svcbroker.storage import StorageFailed, StorageLost, Store, readTip
from svcbroker.storage._tip import TipFile
from tools.vectors.signedchain import SignedChain

from .support import ArchiveTestCase


class TransferTests(ArchiveTestCase):
    """
    Tests for L{transferChain}.
    """

    def test_chainIsRestoredUpToAHeight(self) -> None:
        """The blocks up to a height make a chain that an audit finds good."""
        chain = self.makeChain()
        target = self.dataDir.parent / "restored"
        (target / "1").mkdir(parents=True)
        restored = transferChain(self.directory, target, group="1", last=3)
        self.assertEqual((restored.tip.height, restored.added), (3, 3))
        self.assertTrue(audit(target).isGood)
        transferChain(self.directory, target, group="1", first=3)
        with self.assertRaises(RangeUnknown):
            transferChain(self.directory, target, group="1", last=100)
        chain.close()
        self.assertEqual(audit(target).chains[0].tip, Checkpoint.of(chain.head))

    def test_damagedSourceIsNotTransferred(self) -> None:
        """If the source cannot be read its error is raised, rather than that of the import."""
        self.makeChain().close()
        target = self.dataDir.parent / "restored"
        (target / "1").mkdir(parents=True)
        self.change("DELETE FROM body WHERE height = 3")
        with self.assertRaisesRegex(Exception, "block 3 is missing"):
            transferChain(self.directory, target, group="1")

    def test_refusedImportEndsTheExport(self) -> None:
        """If the import is refused its error is raised, and the exporting thread has none."""
        failed: list[object] = []
        self.patch(threading, "excepthook", failed.append)
        chain = self.makeChain()
        target = self.dataDir.parent / "restored"
        (target / "two").mkdir(parents=True)
        for size in (15_000, 500_000):
            chain.publish("first", bytes(size))
            with self.assertRaisesRegex(ImportRefused, "not of group two"):
                transferChain(self.directory, target, group="two")
        chain.close()
        self.assertEqual(failed, [])


class PromotionTests(ArchiveTestCase):
    """
    Tests for L{promote} and L{takeOver}.
    """

    def setUp(self) -> None:
        super().setUp()
        self.chain = self.makeOriginal("original")
        self.original = self.directoryOf("original")
        self.directory.mkdir(parents=True)
        markCopy(self.directory, "http://original.example")
        transferChain(self.original, self.dataDir, group="1", last=4)

    def directoryOf(self, name: str) -> Path:
        """The directory of group 1 in a data directory beside that of the test."""
        return self.dataDir.parent / name / "1"

    def makeOriginal(self, name: str) -> SignedChain:
        """A chain with its keys."""
        chain = self.makeChain(dataDir=self.dataDir.parent / name)
        self.addCleanup(chain.close)
        seeds = {f"node{index}": seed for index, seed in enumerate(chain.seeds)}
        writeSeeds(self.directoryOf(name) / "keys", seeds)
        return chain

    def checkPromoted(self, height: int, reserved: tuple[int, int]) -> None:
        """Make sure that the copy can be gone on with after a height, and at no other."""
        self.assertFalse((self.directory / COPY_NAME).exists())
        self.assertEqual(len(list((self.directory / "keys").iterdir())), 4)
        path = self.directory / STORE_NAME
        with self.assertRaises(StorageLost) as caught:
            Store.open(path)
        self.assertEqual(caught.exception.height, height)
        self.assertIn("may have been decided after it", str(caught.exception))
        tip = readTip(path)
        assert tip is not None
        self.assertEqual((tip.height, tip.reservation), (height + 1, reserved))
        store = Store.open(path, mayLose=True)
        store.acceptLoss(ROUNDS_ASIDE)
        self.assertEqual(store.reservation(), (height + 1, reserved[1] + ROUNDS_ASIDE))
        store.close()

    def test_takingOverLosesNothing(self) -> None:
        """With the original's directory the copy gets its last blocks, and its keys are moved."""
        height = self.chain.head.height
        self.chain.store.reserve(height + 1, 4000)
        copy = readCopy(self.directory)
        self.assertEqual((copy.original, copy.tip.height), ("http://original.example", 4))
        reserved = takeOver(self.directory, self.original)
        self.assertEqual(reserved, (height + 1, 4000))
        keys = self.original / "keys"
        tip = promote(self.directory, keys, reserved=reserved, mayRemove=True)
        self.assertEqual(tip, Checkpoint.of(self.chain.head))
        self.assertEqual(list(keys.iterdir()), [])
        self.checkPromoted(height, (height + 1, 4000))

    def test_lossIsAcceptedWithKeysAlone(self) -> None:
        """With keys from elsewhere the copy is gone on with as it is; the keys stay there."""
        keys = self.directoryOf("original") / "keys"
        tip = promote(self.directory, keys)
        self.assertEqual(tip.height, 4)
        self.assertEqual(len(list(keys.iterdir())), 4)
        self.checkPromoted(4, (5, ROUNDS_ASIDE))

    def test_interruptedPromotionIsRepeated(self) -> None:
        """A promotion that was cut off before its end is done again."""
        keys = self.original / "keys"
        takeOver(self.directory, self.original)
        promote(self.directory, keys, mayRemove=True)
        markCopy(self.directory, "http://original.example")
        takeOver(self.directory, self.original)
        promote(self.directory, keys, mayRemove=True)
        height = self.chain.head.height
        self.checkPromoted(height, (height + 1, ROUNDS_ASIDE))

    def test_incompleteKeysAreReplacedAndOthersKept(self) -> None:
        """A key file that a crash has cut off is written again; one with another key stays."""
        keys, target = self.original / "keys", self.directory / "keys"
        promote(self.directory, keys)
        (target / "node1.key").write_bytes(b"0123")
        promote(self.directory, keys)
        self.checkPromoted(4, (5, ROUNDS_ASIDE))
        writeSeeds(target, {"node1": bytes(32)})
        with self.assertRaises(FileExistsError):
            promote(self.directory, keys)
        self.assertEqual((target / "node1.key").read_text(), f"{bytes(32).hex()}\n")

    def test_keysOfOtherValidatorsAreRefused(self) -> None:
        """Without the keys of the last block's validators nothing changes."""
        other = self.dataDir.parent / "other"
        other.mkdir()
        with self.assertRaisesRegex(PromotionRefused, "no key of replica 0"):
            promote(self.directory, other)
        self.assertTrue((self.directory / COPY_NAME).exists())
        Store.open(self.directory / STORE_NAME).close()

    def test_originalThatLostItsEndIsRefused(self) -> None:
        """An original whose last blocks are missing is not the whole chain."""
        tip = (self.original / f"{STORE_NAME}-tip").read_bytes()
        self.chain.close()
        shorter = self.directoryOf("shorter")
        shorter.mkdir(parents=True)
        transferChain(self.original, shorter.parent, group="1", last=5)
        (shorter / f"{STORE_NAME}-tip").write_bytes(tip)
        with self.assertRaisesRegex(PromotionRefused, "use --keys and --accept-loss"):
            takeOver(self.directory, shorter)

    def test_otherHistoryIsRefused(self) -> None:
        """An original whose blocks are not those of the copy is refused."""
        directory = self.directoryOf("fork")
        directory.mkdir(parents=True)
        fork = SignedChain(directory)
        self.addCleanup(fork.close)
        for _ in range(6):
            fork.open("fork")
        with self.assertRaisesRegex(ImportRefused, "two histories"):
            takeOver(self.directory, directory)

    def test_onlyCopiesArePromoted(self) -> None:
        """A chain that is no copy, or one that is damaged, is not promoted."""
        with self.assertRaisesRegex(PromotionRefused, "has no copy"):
            readCopy(self.original)
        self.change("UPDATE head SET certificate = x'00' WHERE height = 4")
        with self.assertRaisesRegex(PromotionRefused, "is damaged"):
            readCopy(self.directory)

    def test_unwritableTipIsReported(self) -> None:
        """If the mark against old keys cannot be written no key is."""
        self.patch(TipFile, "write", lambda file, tip: None)
        with self.assertRaises(StorageFailed):
            promote(self.directory, self.original / "keys")
        self.assertFalse((self.directory / "keys").exists())
        self.assertTrue((self.directory / COPY_NAME).exists())
