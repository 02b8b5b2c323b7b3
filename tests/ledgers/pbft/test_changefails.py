"""
Tests for changes of the nodes that are interrupted by a crash or a failing disk.
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
    The process crashes during a change of the nodes.
    """

    def held(self, count: int = 7) -> tuple[LedgerRig, Deferred[ValidatorSet]]:
        """
        A ledger whose disk is held, with a pending change of all keys and the number of nodes.
        """
        rig = self.rig()
        self.goesOn(rig, 1)
        rig.disk.isHeld = True
        changing = rig.ledger.changeNodes((0, 1, 2, 3), count)
        return rig, changing

    def step(self, rig: LedgerRig) -> str:
        """
        Make the waiting disk calls until the ledger makes its next one. Returns that one's name.
        """
        rig.disk.step()
        rig.run(0.2)
        [(_, call, _)] = rig.disk.waiting
        return call.__name__

    def crash(self, rig: LedgerRig, *, isWritten: bool) -> LedgerRig:
        """A ledger on a copy of the files, as after a crash."""
        rig.disk.crash(isWritten=isWritten)
        directory = newDirectory(self)
        shutil.copytree(rig.directory, directory)
        rig.ledger.replicaSet.stop()
        following = LedgerRig(self, directory=directory, clock=rig.clock)
        following.salt = rig.salt + 1
        return following.start()

    def checkOld(self, rig: LedgerRig, old: ValidatorSet, files: int) -> None:
        """Check that the old set decides, and can be changed."""
        self.assertEqual(self.set_(rig), old)
        self.assertEqual(len(rig.keyFiles), files)
        self.goesOn(rig, 2)
        after = rig.change((0, 1, 2, 3), 5)
        self.assertEqual((after.generation, len(after.keys)), (1, 5))
        self.goesOn(rig, 3)
        self.checkGone(rig, old)
        self.goesOn(self.again(rig), 4)

    def checkNew(self, rig: LedgerRig, old: ValidatorSet) -> None:
        """Check that the new set decides, and that no key of the old one is left."""
        after = self.set_(rig)
        self.assertEqual((after.generation, len(after.keys)), (1, 7))
        self.assertFalse(set(after.keys) & set(old.keys))
        self.assertEqual(len(rig.keyFiles), 7)
        self.goesOn(rig, 2)
        self.assertEqual(rig.change(count=4).generation, 2)
        self.goesOn(rig, 3)
        self.goesOn(self.again(rig), 4)

    def checkGone(self, rig: LedgerRig, old: ValidatorSet) -> None:
        """Check that no key of the old set is on the disk."""
        kept = {rig.directory / "keys" / f"node{index}.key" for index in range(len(old.keys))}
        self.assertEqual({path for path in kept if path.exists()}, set())

    def test_crashBeforeKeysAreWritten(self) -> None:
        rig, changing = self.held()
        old = self.set_(rig)
        self.assertEqual([call.__name__ for _, call, _ in rig.disk.waiting], ["writeSeeds"])
        self.checkOld(self.crash(rig, isWritten=False), old, 4)
        self.assertNoResult(changing)

    def test_crashAfterKeysAreWritten(self) -> None:
        rig, changing = self.held()
        old = self.set_(rig)
        self.checkOld(self.crash(rig, isWritten=True), old, 11)
        self.assertNoResult(changing)

    def test_crashBeforeBlockIsStored(self) -> None:
        """The old set continues."""
        rig, changing = self.held()
        old = self.set_(rig)
        self.assertEqual(self.step(rig), "append")
        self.assertEqual(self.set_(rig), old)
        self.checkOld(self.crash(rig, isWritten=False), old, 11)
        self.assertNoResult(changing)

    def test_crashAfterBlockIsStored(self) -> None:
        """The new set continues."""
        rig, changing = self.held()
        old = self.set_(rig)
        self.assertEqual(self.step(rig), "append")
        self.assertEqual(len(rig.keyFiles), 11)
        self.checkNew(self.crash(rig, isWritten=True), old)
        self.assertNoResult(changing)

    def test_crashBeforeOldKeysAreRemoved(self) -> None:
        """The next start removes them."""
        rig, changing = self.held()
        old = self.set_(rig)
        self.assertEqual(self.step(rig), "append")
        self.assertEqual(self.step(rig), "removeSeeds")
        self.assertEqual(self.set_(rig).generation, 1)
        self.checkNew(self.crash(rig, isWritten=False), old)
        self.assertNoResult(changing)

    def test_crashAfterOldKeysAreRemoved(self) -> None:
        rig, _ = self.held()
        old = self.set_(rig)
        for name in ("append", "removeSeeds"):
            self.assertEqual(self.step(rig), name)
        self.checkNew(self.crash(rig, isWritten=True), old)

    def test_stopWaitsForChange(self) -> None:
        """An orderly stop gives a change time to become final."""
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

    def test_missingNewKeysPreventStart(self) -> None:
        """Although the old keys are there."""
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
    The disk fails during a change of the nodes.
    """

    def test_unwrittenKeysCancelChange(self) -> None:
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

    def test_partlyWrittenKeysAreIgnored(self) -> None:
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

    def test_changeCanBeRepeatedAfterFullDisk(self) -> None:
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

    def test_uncertainChangeIsStoredAgain(self) -> None:
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

    def test_unremovedKeysDoNotFailChange(self) -> None:
        """The next start removes the old keys."""
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

    def test_unremovedKeysDoNotFailStart(self) -> None:
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
