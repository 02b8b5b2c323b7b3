"""
Changes of the nodes that a crash or a disk comes in between.
"""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

from twisted.internet.defer import Deferred

from svcbroker.chain import ValidatorSet
from svcbroker.errors import LedgerUnavailable
from svcbroker.storage import StorageFailed
from tests.ledgers.pbft.rig import LedgerRig, newDirectory
from tests.ledgers.pbft.test_change import ChangeTestCase

FULL = OSError(errno.ENOSPC, "No space left on device")


class CrashTests(ChangeTestCase):
    """
    The process dies while nodes are being changed.
    """

    def held(self, count: int = 7) -> tuple[LedgerRig, Deferred[ValidatorSet]]:
        """A ledger whose disk is held, and which is to get new keys and more nodes."""
        rig = self.rig()
        self.goesOn(rig, 1)
        rig.disk.isHeld = True
        changing = rig.ledger.changeNodes((0, 1, 2, 3), count)
        return rig, changing

    def step(self, rig: LedgerRig) -> str:
        """Let the disk do what waits, and the ledger go on to its next call. What it is."""
        rig.disk.step()
        rig.run(0.2)
        [(_, call, _)] = rig.disk.waiting
        return call.__name__

    def crash(self, rig: LedgerRig, *, isWritten: bool) -> LedgerRig:
        """What is found after the process has died: the files as they are."""
        rig.disk.crash(isWritten=isWritten)
        directory = newDirectory(self)
        shutil.copytree(rig.directory, directory)
        rig.ledger.nodes.stop()
        following = LedgerRig(self, directory=directory, clock=rig.clock)
        following.salt = rig.salt + 1
        return following.start()

    def checkOld(self, rig: LedgerRig, old: ValidatorSet, files: int) -> None:
        """The old set decides, and can be changed."""
        self.assertEqual(self.set_(rig), old)
        self.assertEqual(len(rig.keyFiles), files)
        self.goesOn(rig, 2)
        after = rig.change((0, 1, 2, 3), 5)
        self.assertEqual((after.generation, len(after.keys)), (1, 5))
        self.goesOn(rig, 3)
        self.checkGone(rig, old)
        self.goesOn(self.again(rig), 4)

    def checkNew(self, rig: LedgerRig, old: ValidatorSet) -> None:
        """The new set decides, and of the old one nothing is left."""
        after = self.set_(rig)
        self.assertEqual((after.generation, len(after.keys)), (1, 7))
        self.assertFalse(set(after.keys) & set(old.keys))
        self.assertEqual(len(rig.keyFiles), 7)
        self.goesOn(rig, 2)
        self.assertEqual(rig.change(count=4).generation, 2)
        self.goesOn(rig, 3)
        self.goesOn(self.again(rig), 4)

    def checkGone(self, rig: LedgerRig, old: ValidatorSet) -> None:
        """There is no key of the old set on the disk."""
        kept = {rig.directory / "keys" / f"node{index}.key" for index in range(len(old.keys))}
        self.assertEqual({path for path in kept if path.exists()}, set())

    def test_beforeKeys(self) -> None:
        """Before the new keys are written."""
        rig, changing = self.held()
        old = self.set_(rig)
        self.assertEqual([call.__name__ for _, call, _ in rig.disk.waiting], ["writeSeeds"])
        self.checkOld(self.crash(rig, isWritten=False), old, 4)
        self.assertNoResult(changing)

    def test_afterKeys(self) -> None:
        """When the new keys are written, and nothing more."""
        rig, changing = self.held()
        old = self.set_(rig)
        self.checkOld(self.crash(rig, isWritten=True), old, 11)
        self.assertNoResult(changing)

    def test_beforeBlock(self) -> None:
        """When the change is decided, and not stored: the old set goes on."""
        rig, changing = self.held()
        old = self.set_(rig)
        self.assertEqual(self.step(rig), "append")
        self.assertEqual(self.set_(rig), old)
        self.checkOld(self.crash(rig, isWritten=False), old, 11)
        self.assertNoResult(changing)

    def test_afterBlock(self) -> None:
        """When it is stored, and nobody heard of it: the new set goes on."""
        rig, changing = self.held()
        old = self.set_(rig)
        self.assertEqual(self.step(rig), "append")
        self.assertEqual(len(rig.keyFiles), 11)
        self.checkNew(self.crash(rig, isWritten=True), old)
        self.assertNoResult(changing)

    def test_beforeRemoval(self) -> None:
        """When only the old keys are left to be removed: the next start does it."""
        rig, changing = self.held()
        old = self.set_(rig)
        self.assertEqual(self.step(rig), "append")
        self.assertEqual(self.step(rig), "removeSeeds")
        self.assertEqual(self.set_(rig).generation, 1)
        self.checkNew(self.crash(rig, isWritten=False), old)
        self.assertNoResult(changing)

    def test_afterRemoval(self) -> None:
        """When all is done."""
        rig, _ = self.held()
        old = self.set_(rig)
        for name in ("append", "removeSeeds"):
            self.assertEqual(self.step(rig), name)
        self.checkNew(self.crash(rig, isWritten=True), old)

    def test_stopped(self) -> None:
        """An orderly stop gives a change the time to become final."""
        rig, changing = self.held()
        old = self.set_(rig)
        self.assertEqual(self.step(rig), "append")
        stopping = rig.ledger.stop()
        rig.disk.isHeld = False
        rig.disk.release()
        rig.run(1)
        self.successResultOf(stopping)
        self.assertEqual(self.successResultOf(changing).generation, 1)
        self.checkNew(self.again(rig), old)

    def test_missing(self) -> None:
        """Without the new keys a chain does not start, though the first ones are there."""
        rig = self.rig()
        shutil.copytree(rig.directory / "keys", rig.directory / "first")
        after = rig.change((1, 2))
        self.successResultOf(rig.ledger.stop())
        shutil.rmtree(rig.directory / "keys")
        (rig.directory / "first").rename(rig.directory / "keys")
        following = LedgerRig(self, directory=rig.directory, clock=rig.clock)
        error = self.failureResultOf(following.ledger.start(), LedgerUnavailable).value
        self.assertIn(f"has no key of node 1 ({after.keys[1].hex()[:16]}...)", error.message)
        # Refused, it removes nothing.
        self.assertEqual(len(rig.keyFiles), 4)


class DiskTests(ChangeTestCase):
    """
    The disk fails while nodes are being changed.
    """

    def test_keysNotWritten(self) -> None:
        """Where the new keys cannot be written, nothing happens, and all goes on."""
        rig = self.rig()
        old = self.set_(rig)
        rig.disk.error = FULL
        changing = rig.ledger.changeNodes((0,), 7)
        error = self.failureResultOf(changing, LedgerUnavailable).value
        self.assertEqual(error.message, "the new keys cannot be written: No space left on device")
        rig.disk.error = None
        self.assertEqual((self.set_(rig), rig.height), (old, 1))
        self.assertTrue(self.successResultOf(rig.ledger.getHealth()).isReady)
        self.goesOn(rig, 1)
        self.assertEqual(rig.change((0,), 7).generation, 1)
        self.goesOn(rig, 2)

    def test_someNotWritten(self) -> None:
        """Where some of them can, those are of no use to anybody, and in nobody's way."""
        rig = self.rig()
        real = Path.rename
        left = [2]

        def fail(path: Path, target: Path) -> Path:
            if path.suffix == ".new":
                if not left[0]:
                    raise FULL
                left[0] -= 1
            return real(path, target)

        patch = self.patch(Path, "rename", fail)
        self.failureResultOf(rig.ledger.changeNodes(count=7), LedgerUnavailable)
        patch.restore()
        self.assertEqual(len(rig.keyFiles), 6)
        self.goesOn(rig, 1)
        after = rig.change(count=7)
        self.goesOn(rig, 2)
        following = self.again(rig)
        self.assertEqual(self.set_(following), after)
        self.goesOn(following, 3)

    def test_blockNotStored(self) -> None:
        """Where the change cannot be stored it is given up, and can be asked for again."""
        rig = self.rig()
        old = self.set_(rig)
        rig.disk.isHeld = True
        changing = rig.ledger.changeNodes((0, 1, 2, 3), 5)
        rig.disk.release()
        rig.run(0.2)
        rig.disk.error = StorageFailed("full")
        rig.disk.release()
        error = self.failureResultOf(changing, LedgerUnavailable).value
        self.assertIn("nothing was executed", error.message)
        self.assertEqual(self.set_(rig), old)
        rig.disk.error, rig.disk.isHeld = None, False
        rig.run(3)
        self.assertEqual(len(self.flushLoggedErrors(StorageFailed)), 1)
        self.goesOn(rig, 1)
        after = rig.change((0, 1, 2, 3), 6)
        self.assertEqual((after.generation, len(after.keys)), (1, 6))
        self.assertEqual(len(rig.keyFiles), 6)
        self.goesOn(rig, 2)

    def test_uncertain(self) -> None:
        """Where nobody knows whether it is stored, it is stored again, and done."""
        rig = self.rig()
        rig.disk.isHeld = True
        changing = rig.ledger.changeNodes((0, 1, 2, 3), 5)
        rig.disk.release()
        rig.run(0.2)
        rig.disk.error = StorageFailed("who knows", isUncertain=True)
        rig.disk.release()
        rig.run(3)
        self.assertNoResult(changing)
        rig.disk.error, rig.disk.isHeld = None, False
        rig.disk.release()
        rig.run(3)
        self.assertEqual(self.successResultOf(changing).generation, 1)
        self.assertGreaterEqual(len(self.flushLoggedErrors(StorageFailed)), 1)
        self.assertEqual(len(rig.keyFiles), 5)
        self.goesOn(rig, 1)

    def test_keysNotRemoved(self) -> None:
        """Where old keys cannot be removed, the change is done; the next start removes them."""
        rig = self.rig()
        rig.disk.isHeld = True
        changing = rig.ledger.changeNodes((0, 1))
        for _ in range(2):
            rig.disk.step()
            rig.run(0.2)
        rig.disk.error = FULL
        rig.disk.release()
        rig.disk.error, rig.disk.isHeld = None, False
        self.assertEqual(self.successResultOf(changing).generation, 1)
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)
        self.assertEqual(len(rig.keyFiles), 6)
        self.goesOn(rig, 1)
        following = self.again(rig)
        self.assertEqual(len(following.keyFiles), 4)
        self.goesOn(following, 2)

    def test_keysNotRemovedAtStart(self) -> None:
        """Nor does a start fail for that."""
        rig = self.rig()
        kept = (rig.directory / "keys" / "node0.key").read_bytes()
        rig.change((0,))
        (rig.directory / "keys" / "node0.key").write_bytes(kept)

        def fail(path: Path, missing_ok: bool = False) -> None:
            raise FULL

        patch = self.patch(Path, "unlink", fail)
        following = self.again(rig)
        patch.restore()
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)
        self.goesOn(following, 1)
        self.assertEqual(len(following.keyFiles), 5)
        self.assertEqual(len(self.again(following).keyFiles), 4)
