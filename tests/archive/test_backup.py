"""
Tests for L{svcbroker.archive.backUp}.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
from contextlib import closing
from pathlib import Path
from unittest import SkipTest, mock

from svcbroker.archive import BROKER_FILES, COPY_NAME, BackupRefused, audit, backUp, markCopy
from svcbroker.archive._replay import ROUNDS_ASIDE
from svcbroker.ledgers.pbft._keys import writeSeeds
from svcbroker.proofs import Checkpoint
from svcbroker.storage import MetadataFile, Snapshot, StorageError, StorageFailed, Store
from tests.archive.support import ArchiveTestCase, contents


class BackupTests(ArchiveTestCase):
    """
    Copies of data directories.
    """

    def setUp(self) -> None:
        super().setUp()
        self.target = self.dataDir.with_name("copy")

    def test_copyIsCompleteAndPrivate(self) -> None:
        """Everything is there, is good and has the rights that it should."""
        self.addCleanup(os.umask, os.umask(0))
        chain = self.makeDirectory()
        self.finish(other := self.makeChain("two"), self.dataDir / "two")
        (self.dataDir / "lock").write_bytes(b"")
        (self.dataDir / "operator.json").write_bytes(b"secret")
        before = contents(self.dataDir)
        done = backUp(self.dataDir, self.target)
        self.assertEqual(contents(self.dataDir), before)
        self.assertEqual(
            done.chains, {"1": Checkpoint.of(chain.head), "two": Checkpoint.of(other.head)}
        )
        self.assertEqual(done.findings.kept, [])
        self.good(self.target)
        self.assertEqual(
            sorted(contents(self.target)), sorted(set(before) - {"lock", "operator.json"})
        )
        for name in ("1/keys/node0.key", "two/keys/node3.key", "notes.sqlite"):
            if name.endswith(".key"):
                self.assertEqual((self.target / name).read_bytes(), before[name])
                self.assertEqual(stat.S_IMODE((self.target / name).stat().st_mode), 0o600)
        self.assertEqual(stat.S_IMODE(self.target.stat().st_mode), 0o700)
        self.assertEqual(sorted(os.listdir(self.target.parent)), ["copy", "data"])
        store = MetadataFile.open(self.target / "notes.sqlite")
        self.assertEqual(len(store.load()), 2)
        store.close()

    def test_copiesBeginInOwnRounds(self) -> None:
        """The copy begins its next block far beyond the rounds of the original; so does a copy
        of the copy."""
        chain = self.makeDirectory()
        backUp(self.dataDir, self.target)
        again = self.dataDir.with_name("again")
        backUp(self.target, again)
        found = []
        for directory in (self.dataDir, self.target, again):
            store = Store.open(directory / "1" / "ledger.sqlite")
            found.append(store.reservation())
            store.close()
        height = chain.head.height
        self.assertEqual(
            found, [(height, 8), (height + 1, ROUNDS_ASIDE), (height + 1, 2 * ROUNDS_ASIDE)]
        )

    def test_backupOfACopyIsACopy(self) -> None:
        """The embedded ledger does not start on the backup of a copy, either."""
        self.makeChain().close()
        markCopy(self.directory, "http://original.example")
        backUp(self.dataDir, self.target)
        self.assertEqual((self.target / "1" / COPY_NAME).read_text(), "http://original.example\n")

    def test_everyFileIsSynced(self) -> None:
        """Each file of the copy is on stable storage, the identity beside an engine included."""
        self.makeChain().close()
        self.makeMetadata()
        markCopy(self.directory, "http://original.example")
        for name in BROKER_FILES:
            (self.directory / name).write_text(name)
        synced: set[int] = set()
        fsync = os.fsync

        def recorded(descriptor: int) -> None:
            fsync(descriptor)
            synced.add(os.fstat(descriptor).st_ino)

        with mock.patch.object(os, "fsync", recorded):
            backUp(self.dataDir, self.target)
        files = [each for each in self.target.rglob("*") if not each.name.endswith("-tip")]
        self.assertGreater(len(files), 5)
        self.assertEqual([each for each in files if each.stat().st_ino not in synced], [])

    def test_copyBesideRunningBroker(self) -> None:
        """While blocks are appended, the copy is of one moment, and notes are of an earlier
        one."""
        chain = self.makeChain()
        writeSeeds(
            self.directory / "keys", {f"node{n}": seed for n, seed in enumerate(chain.seeds)}
        )
        self.makeMetadata()
        order: list[str] = []
        copyTo = Snapshot.copyTo

        def copying(snapshot: Snapshot, target: Path, report: object) -> None:
            order.append(target.name)

            def reported(done: int, total: int) -> None:
                chain.publish("first", b"meanwhile")

            copyTo(snapshot, target, reported)

        with mock.patch.object(Snapshot, "copyTo", copying):
            done = backUp(self.dataDir, self.target)
        self.assertEqual(order, ["notes.sqlite", "ledger.sqlite"])
        self.good(self.target)
        self.assertLess(done.chains["1"].height, chain.head.height)
        chain.close()

    def test_fullDiskNamesTheCopy(self) -> None:
        """If there is no room for the copy, it is the copy that is named."""
        self.makeDirectory()
        if shutil.which("mount") is None or os.geteuid() != 0:
            raise SkipTest("only root can mount a small file system")
        self.target = self.target.parent / "small" / "copy"
        self.target.parent.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", "size=16k", "none", str(self.target.parent)]
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
        if mounted.returncode:
            raise SkipTest(f"cannot mount a small file system: {mounted.stderr}")
        self.addCleanup(subprocess.run, ["umount", str(self.target.parent)], check=True)
        with self.assertRaises(StorageFailed) as caught:
            backUp(self.dataDir, self.target)
        self.assertIn(f"cannot be copied to {self.target.parent}", str(caught.exception))
        self.assertEqual(list(self.target.parent.iterdir()), [])

    def test_rowsCanBeAbandonedAfterClose(self) -> None:
        """Rows that are read one by one may be given up after the file was closed, as by Ctrl-C."""
        self.makeDirectory()
        with Snapshot.ofLedger(self.path) as snapshot:
            rows = snapshot.rows("SELECT height FROM head")
            next(rows)
        rows.close()

    def test_keysOfTheNextBlockAreCopied(self) -> None:
        """The keys are those that the copied chain goes on with, although the nodes got new
        ones while it was copied, and then lost the old ones."""
        chain = self.makeChain()
        old = list(chain.seeds)
        keys = self.directory / "keys"
        writeSeeds(keys, {f"node{n}": seed for n, seed in enumerate(old)})
        copyTo = Snapshot.copyTo

        def copying(snapshot: Snapshot, target: Path, report: object) -> None:
            copyTo(snapshot, target, lambda done, total: None)
            chain.changeNodes("a", "b", "c", "d")
            shutil.rmtree(keys)
            writeSeeds(keys, {f"new{n}": seed for n, seed in enumerate(chain.seeds)})

        with mock.patch.object(Snapshot, "copyTo", copying):
            backUp(self.dataDir, self.target)
        self.good(self.target)
        self.assertEqual(
            sorted(os.listdir(self.target / "1" / "keys")), [f"node{n}.key" for n in range(4)]
        )
        self.target = self.target.with_name("later")
        backUp(self.dataDir, self.target)
        self.good(self.target)
        self.assertEqual(
            sorted(os.listdir(self.target / "1" / "keys")), [f"new{n}.key" for n in range(4)]
        )
        chain.close()

    def test_missingKeyEndsBackup(self) -> None:
        """A key that is missing ends it; where there are none, none are copied."""
        self.makeDirectory()
        keys = self.directory / "keys"
        (keys / "node3.key").unlink()
        error = self.assertRaises(BackupRefused, backUp, self.dataDir, self.target)
        self.assertIn("has no key of replica 3", str(error))
        self.nothingLeft()
        shutil.rmtree(keys)
        done = backUp(self.dataDir, self.target)
        self.assertIn("there are no keys, so none were copied", str(done.findings.kept[0]))

    def nothingLeft(self) -> None:
        """No trace of an unfinished copy."""
        self.assertEqual(os.listdir(self.target.parent), ["data"])

    def test_existingTargetIsNotOverwritten(self) -> None:
        """Nothing is overwritten."""
        self.makeDirectory()
        self.target.write_bytes(b"mine")
        self.assertRaises(BackupRefused, backUp, self.dataDir, self.target)
        self.target.unlink()
        self.target.mkdir()
        (self.target / "mine").write_bytes(b"")
        self.assertRaises(BackupRefused, backUp, self.dataDir, self.target)
        (self.target / "mine").unlink()
        backUp(self.dataDir, self.target)
        self.good(self.target)
        empty = self.dataDir.with_name("empty")
        empty.mkdir()
        error = self.assertRaises(BackupRefused, backUp, empty, empty.with_name("x"))
        self.assertIn("has no chain", str(error))

    def test_targetIsOutsideOfTheDataDirectory(self) -> None:
        """A copy in the data directory would be lost with it, and be taken for a part of it."""
        self.makeDirectory()
        link = self.dataDir.with_name("link")
        link.symlink_to(self.dataDir)
        for target in (self.dataDir / "x", self.directory / "x", link / "x"):
            error = self.assertRaises(BackupRefused, backUp, self.dataDir, target)
            self.assertIn("is in the data directory", str(error))
            self.assertFalse(target.exists())

    def test_damagedChainIsNotCopied(self) -> None:
        """A damaged end is not copied, and nothing is left behind."""
        self.makeDirectory()
        whole = self.path.read_bytes()
        for statement in (
            "UPDATE head SET certificate = x'' WHERE height = 9",
            "UPDATE topic SET sequence = 9 WHERE idx = 0",
            "DELETE FROM validator_set",
        ):
            self.change(statement)
            self.assertRaises(StorageError, backUp, self.dataDir, self.target)
            self.nothingLeft()
            self.path.write_bytes(whole)
        self.path.write_bytes(whole[:5000])
        self.assertRaises(StorageError, backUp, self.dataDir, self.target)
        self.nothingLeft()

    def test_damagedMetadataIsReported(self) -> None:
        """Notes that are damaged are copied as they are, and told."""
        self.makeDirectory()
        self.change("UPDATE note SET value = x'00'", path=self.dataDir / "notes.sqlite")
        done = backUp(self.dataDir, self.target)
        self.assertEqual(done.findings.damageCount, 4)
        self.assertFalse(audit(self.target).isGood)

    def test_interruptedBackupLeavesNothing(self) -> None:
        """Whichever sync was the last step, the target is whole or not there."""
        self.makeDirectory()
        steps = 0
        while self.isCutOff(steps):
            self.nothingLeft()
            steps += 1
        self.assertGreater(steps, 8)
        self.good(self.target)

    def isCutOff(self, steps: int) -> bool:
        """
        Copy, and be interrupted after some syncs.

        @return: whether the target did not come into its place.
        """
        left = [steps]
        fsync = os.fsync

        def counted(descriptor: int) -> None:
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            fsync(descriptor)

        with mock.patch.object(os, "fsync", counted):
            try:
                backUp(self.dataDir, self.target)
            except KeyboardInterrupt:
                return not self.target.exists()
        return False

    def test_olderSchemaIsNotUpgraded(self) -> None:
        """A chain of an older schema is not upgraded by the way."""
        self.makeDirectory()
        with closing(sqlite3.connect(self.path)) as connection:
            connection.execute("PRAGMA user_version = 2")
        error = self.assertRaises(StorageError, backUp, self.dataDir, self.target)
        self.assertIn("start a broker of this version once", str(error))
