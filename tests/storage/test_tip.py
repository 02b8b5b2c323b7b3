"""
Tests for noticing that the end of a stored chain is lost.
"""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.storage import StorageLost, StorageRefused, Store, Tip, readTip, tipPath

from .chains import Chain, differences, newStore

FRAME = 24 + 4096


class TipTests(SynchronousTestCase):
    """
    Stores as a killed process leaves them, and what may happen to their files afterwards.
    """

    def setUp(self) -> None:
        self.chain = Chain()
        self.path = Path(self.mktemp()).absolute() / "ledger.sqlite"
        self.path.parent.mkdir(parents=True)
        store = newStore(self.path)
        self.addCleanup(store.close)
        for number in range(6):
            store.append(self.chain.add([("a", b"%d" % number)]))
        store.reserve(7, 16)
        killed = self.path.parent.with_name("killed")
        shutil.copytree(self.path.parent, killed)
        self.path = killed / "ledger.sqlite"
        self.log = killed / "ledger.sqlite-wal"

    def lost(self) -> StorageLost:
        """Opening it is refused, twice, in one line."""
        first: StorageLost = self.assertRaises(StorageLost, Store.open, self.path)
        error: StorageLost = self.assertRaises(StorageLost, Store.open, self.path)
        self.assertEqual(first.height, error.height)
        self.assertNotIn("\n", str(error))
        return error

    def frames(self) -> list[bool]:
        """For each frame of the log whether it ends a commit."""
        data = self.log.read_bytes()
        return [data[at + 4 : at + 8] != bytes(4) for at in range(32, len(data), FRAME)]

    def flip(self, commit: int) -> None:
        """Change a bit in the last frame of a commit."""
        frame = [number for number, isCommit in enumerate(self.frames()) if isCommit][commit]
        data = bytearray(self.log.read_bytes())
        data[32 + frame * FRAME + 100] ^= 4
        self.log.write_bytes(data)

    def test_killedStoreIsWhole(self) -> None:
        self.assertEqual(readTip(self.path), Tip(6, self.chain.appends[-1].block.hash, (7, 16)))
        store = Store.open(self.path)
        self.addCleanup(store.close)
        self.assertEqual((differences(store, self.chain, 6), store.loss), ([], ""))

    def test_bitInEarlierCommitIsRefused(self) -> None:
        self.flip(2)
        before = self.log.read_bytes()
        error = self.lost()
        self.assertIn("commits from it on are not read", str(error))
        self.assertLess(error.height, 6)
        self.assertEqual(self.log.read_bytes(), before)

    def test_bitInEarlierCommitIsRefusedWithoutTip(self) -> None:
        """Data of an older svcbroker has no tip file."""
        tipPath(self.path).unlink()
        self.flip(2)
        self.assertLess(self.lost().height, 6)

    def test_bitInLastBlockIsRefused(self) -> None:
        """The last commits are the block and the reservation."""
        self.flip(-2)
        self.assertLess(self.lost().height, 6)

    def test_lostReservationIsRefused(self) -> None:
        self.flip(-1)
        error = self.lost()
        self.assertIn("lost the rounds that had been reserved for block 7", str(error))
        self.assertEqual(error.height, 6)

    def test_missingLogIsRefused(self) -> None:
        self.log.unlink()
        self.log.with_name("ledger.sqlite-shm").unlink()
        error = self.lost()
        self.assertIn(
            "ends at block 0, and block 6 had been stored: 6 blocks are missing", str(error)
        )

    def test_emptyLogIsRefused(self) -> None:
        self.log.write_bytes(b"")
        self.assertEqual(self.lost().height, 0)

    def test_otherBlockIsRefused(self) -> None:
        tip = Tip(6, bytes(32), (7, 16))
        tipPath(self.path).write_bytes(tip.encode())
        self.assertIn("block 6 of", str(self.lost()))

    def test_damagedTipIsRefused(self) -> None:
        """Whatever byte of it is changed."""
        whole = tipPath(self.path).read_bytes()
        for offset in range(len(whole)):
            data = bytearray(whole)
            data[offset] ^= 1
            tipPath(self.path).write_bytes(data)
            self.assertRaises(StorageRefused, readTip, self.path)
        error = self.assertRaises(StorageRefused, Store.open, self.path)
        self.assertIn("move the damaged file away", str(error))

    def test_chainWithoutTipContinues(self) -> None:
        """An older svcbroker has written it; from then on it has one."""
        tipPath(self.path).unlink()
        store = Store.open(self.path)
        self.assertEqual(differences(store, self.chain, 6), [])
        store.append(self.chain.add([("a", b"more")]))
        store.close()
        tip = readTip(self.path)
        assert tip is not None
        self.assertEqual(tip.height, 7)
        self.assertEqual(stat.S_IMODE(tipPath(self.path).stat().st_mode), 0o600)

    def test_lostBlocksMayComeBack(self) -> None:
        """Until then the tip file keeps what is missing."""
        self.log.unlink()
        store = Store.open(self.path, mayLose=True)
        for append in self.chain.appends[:-1]:
            store.append(append)
        self.assertNotEqual(store.loss, "")
        store.close()
        self.assertIn("1 block is missing", str(self.lost()))
        store = Store.open(self.path, mayLose=True)
        store.append(self.chain.appends[-1])
        store.reserve(7, 1016)
        self.assertEqual(store.loss, "")
        store.close()
        Store.open(self.path).close()

    def test_acceptedLossEndsWithTheNextBlock(self) -> None:
        """Whatever it was that showed the loss."""
        for hasTip in (True, False):
            with self.subTest(hasTip=hasTip):
                directory = self.path.parent.with_name(f"copy {hasTip}")
                shutil.copytree(self.path.parent, directory)
                self.path, self.log = (directory / each.name for each in (self.path, self.log))
                self.flip(3)
                if not hasTip:
                    tipPath(self.path).unlink()
                height = self.lost().height
                for turn in (1, 2):
                    store = Store.open(self.path, mayLose=True)
                    store.acceptLoss(1000)
                    reserved, round = store.reservation()
                    self.assertEqual(reserved, height + 1)
                    self.assertGreaterEqual(round, 1000 * turn)
                    if turn == 1:
                        store.close()
                        self.assertEqual(self.lost().height, height)
                store.append(self.chain.appends[height])
                store.close()
                Store.open(self.path).close()
                self.path, self.log = (
                    directory.with_name("killed") / each.name for each in (self.path, self.log)
                )
