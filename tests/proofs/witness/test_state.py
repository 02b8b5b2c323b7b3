"""
Tests for the files of a witness: it never goes on with a database that has seen less than it has
cosigned.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from svcbroker.proofs.tlog import CheckpointRefused, Note, NoteSignature
from svcbroker.proofs.witness import Witness, WitnessError, _statefile, resumeWitness
from svcbroker.proofs.witness._statefile import LAST_NAME, STATE_NAME
from svcbroker.storage import MetadataFile, StorageError, writeFile

from ..tlog.support import MemoryLog
from .test_witness import LOG, ORIGIN, WitnessCase

OTHER = MemoryLog(50, "other.example", b"o" * 32)
FORK = LOG.forked(3)
LOGS = {ORIGIN: [LOG.key.verifier], "other.example": [OTHER.key.verifier]}


class StateCase(WitnessCase):
    """
    A witness that has cosigned size 9 and then size 20 of a log.
    """

    def setUp(self) -> None:
        super().setUp()
        self.state, self.last = self.directory / STATE_NAME, self.directory / LAST_NAME
        self.cosigned = [self.cosign(LOG, 0, 9)]
        self.older = self.copy("older")
        self.cosigned.append(self.cosign(LOG, 9, 20))

    def cosign(self, log: MemoryLog, older: int, newer: int) -> Note:
        """A checkpoint as the log serves it then, with the signature of the witness."""
        self.witness.useLogs(LOGS)
        line = self.witness.addCheckpoint(log.request(older, newer).encode())
        return log.checkpoint(newer).signedBy(NoteSignature.parse(line.splitlines()[0]))

    def copy(self, name: str) -> Path:
        """The files as they are on disk: those of a witness that is killed now."""
        target = self.directory.with_name(f"{self.directory.name}-{name}")
        shutil.copytree(self.directory, target)
        return target

    def opened(self, directory: Path) -> Witness:
        """The witness in a directory."""
        witness = Witness.open(directory, LOGS, lambda: 2000.0)
        self.addCleanup(witness.close)
        return witness

    def refusal(self, directory: Path) -> str:
        """The refusal of the witness in a directory to start."""
        with self.assertRaises(WitnessError) as caught:
            self.opened(directory)
        return str(caught.exception)


class LossTests(StateCase):
    """
    Files that are lost or changed between two runs.
    """

    def test_killedWitnessHasNoLogToLose(self) -> None:
        """A witness that is killed leaves all that it has cosigned in its database."""
        for number, damage in enumerate((None, b"", b"\x01" * 8192)):
            killed = self.copy(f"killed-{number}")
            log = killed / f"{STATE_NAME}-wal"
            log.unlink(missing_ok=True)
            if damage is not None:
                log.write_bytes(damage)
            witness = self.opened(killed)
            self.assertEqual(witness.seen[ORIGIN].head.size, 20)
            with self.assertRaises(CheckpointRefused):
                witness.addCheckpoint(FORK.request(9, 21).encode())

    def test_olderDatabaseIsRefused(self) -> None:
        """The text names the log and its size, and no backup that would make it sign a fork."""
        killed = self.copy("killed")
        shutil.copy(self.older / STATE_NAME, killed / STATE_NAME)
        text = self.refusal(killed)
        self.assertIn(f"{ORIGIN}: size 20", text)
        self.assertIn("svcbroker net witness resume", text)
        self.assertIn("never restore these files from a backup", text)

    def test_absentOrDamagedRecordIsRefused(self) -> None:
        """Without the record of the last write nothing shows that the database is the last one."""
        data = self.last.read_bytes()
        damages: list[Callable[[Path], object]] = [
            Path.unlink,
            lambda path: path.write_bytes(b""),
            lambda path: path.write_bytes(data[: len(data) // 2]),
        ]
        for place in range(0, len(data), 41):
            changed = bytearray(data)
            changed[place] ^= 1
            damages.append(lambda path, changed=bytes(changed): path.write_bytes(changed))  # type: ignore[misc]
        for number, damage in enumerate(damages):
            killed = self.copy(f"killed-{number}")
            damage(killed / LAST_NAME)
            self.assertIn(f"{ORIGIN}: at least size 20", self.refusal(killed))

    def test_deletedRowIsRefused(self) -> None:
        """Whichever row is missing, also where the record is one write behind."""
        for number, statement in enumerate(
            (
                "DELETE FROM note WHERE kind = 'log'",
                "DELETE FROM note WHERE name = 'count'",
                "DELETE FROM note WHERE name = 'key'",
                "DELETE FROM note",
                "DROP TABLE note",
            )
        ):
            for isBehind in (False, True):
                killed = self.copy(f"killed-{number}-{isBehind}")
                with closing(sqlite3.connect(killed / STATE_NAME)) as connection:
                    connection.execute(statement)
                    connection.commit()
                if isBehind:
                    shutil.copy(self.older / LAST_NAME, killed / LAST_NAME)
                self.refusal(killed)

    def test_changedByteIsNeverForgetting(self) -> None:
        """Wherever a bit of the database is changed, it does not start, or knows the last size."""
        data = self.state.read_bytes()
        for place in range(0, len(data), 509):
            changed = bytearray(data)
            changed[place] ^= 4
            self.witness.close()
            self.state.write_bytes(changed)
            try:
                witness = Witness.open(self.directory, LOGS, lambda: 2000.0)
            except WitnessError:
                continue
            finally:
                for name in ("-wal", "-shm", "-journal"):
                    (self.directory / f"{STATE_NAME}{name}").unlink(missing_ok=True)
            self.assertEqual(witness.seen[ORIGIN].head, LOG.head(20), place)
            witness.close()

    def test_killBetweenTheFilesIsNoLoss(self) -> None:
        """Whether it dies before the database, before the record, or before the answer."""
        copies: list[Path] = []

        def copying(call: Callable[..., object]) -> Callable[..., object]:
            def copied(*arguments: object) -> object:
                copies.append(self.copy(str(len(copies))))
                return call(*arguments)

            return copied

        assert self.witness._state is not None
        file = self.witness._state._file
        patched = [
            self.patch(file, "write", copying(file.write)),
            self.patch(_statefile, "writeFile", copying(writeFile)),
        ]
        self.cosign(LOG, 20, 30)
        for each in patched:
            each.restore()
        copies.append(self.copy("answered"))
        sizes = [self.opened(each).seen[ORIGIN].head.size for each in copies]
        self.assertEqual(sizes, [20, 30, 30])
        for each in copies:
            self.assertEqual(self.opened(each).seen[ORIGIN].head.size, sizes.pop(0))

    def test_failedRecordIsNoAnswer(self) -> None:
        """While the record cannot be written nothing is cosigned; afterwards, and after a restart,
        it goes on."""

        def fail(*ignored: object) -> None:
            raise OSError(28, "No space left on device")

        patched = self.patch(_statefile, "writeFile", fail)
        for _ in range(2):
            with self.assertRaises(StorageError):
                self.witness.addCheckpoint(LOG.request(20, 30).encode())
        patched.restore()
        self.assertEqual(self.opened(self.copy("killed")).seen[ORIGIN].head.size, 30)
        self.cosign(LOG, 20, 40)
        self.assertEqual(self.again().seen[ORIGIN].head.size, 40)

    def test_failedDatabaseIsLookedAtAgain(self) -> None:
        """After a write of which nobody knows whether it was done."""
        assert self.witness._state is not None
        file = self.witness._state._file
        write = file.write
        for isDone in (False, True):

            def fail(changes: object, isDone: bool = isDone) -> None:
                if isDone:
                    write(changes)  # type: ignore[arg-type]
                raise StorageError("the disk failed")

            patched = self.patch(file, "write", fail)
            with self.assertRaises(StorageError):
                self.witness.addCheckpoint(LOG.request(20, 30).encode())
            patched.restore()
        self.cosign(LOG, 20, 31)
        self.assertEqual(self.again().seen[ORIGIN].head.size, 31)

    def test_listReadsWhileItRuns(self) -> None:
        """Reading the files leaves them as they are, and needs no record."""
        self.last.unlink()
        before = self.state.read_bytes()
        self.assertEqual(Witness.read(self.directory).seen[ORIGIN].head.size, 20)
        self.assertEqual(self.state.read_bytes(), before)
        self.assertFalse(self.last.exists())


class OldVersionTests(StateCase):
    """
    Databases of the version before: with a write-ahead log, and without a record.
    """

    def setUp(self) -> None:
        super().setUp()
        assert self.witness._state is not None
        rows = {name: row for name, row in self.witness._state.rows.items() if name[1] != "count"}
        self.witness.close()
        self.last.unlink()
        self.state.unlink()
        self.file = MetadataFile.open(self.state)
        self.addCleanup(self.file.close)
        for name, row in rows.items():
            self.file.write({name: row})

    def test_isUpgradedOnce(self) -> None:
        """It goes on from what was cosigned, in the new form, whether it was stopped or killed."""
        killed = self.copy("killed")
        self.file.close()
        for directory in (killed, self.directory):
            for _ in range(2):
                witness = self.opened(directory)
                self.assertEqual(witness.seen[ORIGIN].head.size, 20)
                witness.close()
                self.assertFalse((directory / f"{STATE_NAME}-wal").exists())
            (directory / LAST_NAME).unlink()
            self.refusal(directory)

    def test_damagedLogIsNotUpgraded(self) -> None:
        """One bit of the first frame of its write-ahead log, or the log itself, is lost."""
        log = self.state.with_name(f"{STATE_NAME}-wal").read_bytes()
        changed = bytearray(log)
        changed[100] ^= 1
        for number, data in enumerate((bytes(changed), None)):
            killed = self.copy(f"killed-{number}")
            path = killed / f"{STATE_NAME}-wal"
            if data is None:
                path.unlink()
            else:
                path.write_bytes(data)
            self.refusal(killed)

    def test_unfinishedUpgradeIsFinished(self) -> None:
        """It dies after the record was written."""
        self.file.close()
        copies: list[Path] = []
        original = MetadataFile.write

        def write(file: MetadataFile, changes: object) -> None:
            copies.append(self.copy("upgrading"))
            original(file, changes)  # type: ignore[arg-type]

        self.patch(MetadataFile, "write", write)
        self.opened(self.directory)
        self.assertTrue((copies[0] / LAST_NAME).exists())
        self.patch(MetadataFile, "write", original)
        self.assertEqual(self.opened(copies[0]).seen[ORIGIN].head.size, 20)


class ResumeTests(StateCase):
    """
    Going on with the checkpoints that have the witness's own signature.
    """

    def resumed(self, directory: Path, *checkpoints: Note) -> Witness:
        """The witness after that."""
        resumeWitness(directory, LOGS, checkpoints)
        return self.opened(directory)

    def assertNotResumed(self, directory: Path, *checkpoints: Note) -> None:
        """It is still refused."""
        with self.assertRaises(WitnessError):
            resumeWitness(directory, LOGS, checkpoints)
        self.refusal(directory)

    def lost(self, name: str) -> Path:
        """A witness without its database."""
        killed = self.copy(name)
        (killed / STATE_NAME).unlink()
        return killed

    def test_goesOnFromItsOwnLastCheckpoint(self) -> None:
        """With the record, from the checkpoint that it names, or a later one; and from no fork."""
        witness = self.resumed(self.lost("lost"), self.cosigned[1])
        self.assertEqual(witness.verifier, self.key)
        self.assertEqual(witness.seen[ORIGIN].head, LOG.head(20))
        with self.assertRaises(CheckpointRefused):
            witness.addCheckpoint(FORK.request(20, 21).encode())
        witness.addCheckpoint(LOG.request(20, 21).encode())
        served = witness.seen[ORIGIN].note
        self.assertEqual(len(served.verified([self.key, LOG.key.verifier])), 2)

    def test_olderDatabaseIsReplacedAndKept(self) -> None:
        """Its forks are still known, and the file is beside the new one."""
        with self.assertRaises(CheckpointRefused):
            self.witness.addCheckpoint(FORK.request(20, 30).encode())
        older = self.copy("older-2")
        self.cosigned.append(self.cosign(LOG, 20, 30))
        killed = self.copy("killed")
        shutil.copy(older / STATE_NAME, killed / STATE_NAME)
        self.assertNotResumed(killed, self.cosigned[1])
        witness = self.resumed(killed, self.cosigned[2])
        self.assertEqual(witness.seen[ORIGIN].head.size, 30)
        self.assertEqual(witness.forks[ORIGIN].head.size, 30)
        kept = (killed / f"{STATE_NAME}.lost").read_bytes()
        self.assertEqual(kept, (older / STATE_NAME).read_bytes())

    def test_smallerCheckpointIsNotEnough(self) -> None:
        """Nor is one of the log alone, of another witness, of a fork, or of another log."""
        for number, note in enumerate(
            (
                self.cosigned[0],
                LOG.checkpoint(20),
                FORK.checkpoint(20),
                OTHER.checkpoint(20),
            )
        ):
            self.assertNotResumed(self.lost(f"lost-{number}"), note)
        self.assertNotResumed(self.lost("lost"))

    def test_eachLogIsNeeded(self) -> None:
        """All logs that the record names."""
        other = self.cosign(OTHER, 0, 7)
        self.assertNotResumed(self.lost("lost"), self.cosigned[1])
        witness = self.resumed(self.lost("found"), self.cosigned[1], other)
        self.assertEqual(witness.seen["other.example"].head.size, 7)

    def test_withoutRecordEachLogIsShown(self) -> None:
        """A database alone may be an older one: it needs the checkpoint that the log has."""
        killed = self.copy("killed")
        shutil.copy(self.older / STATE_NAME, killed / STATE_NAME)
        (killed / LAST_NAME).unlink()
        self.assertNotResumed(killed)
        self.assertEqual(self.resumed(killed, self.cosigned[1]).seen[ORIGIN].head.size, 20)

    def test_withoutBothFilesItIsMadeAnew(self) -> None:
        """Nothing says then which logs it has cosigned."""
        killed = self.lost("lost")
        (killed / LAST_NAME).unlink()
        with self.assertRaisesRegex(WitnessError, "make a new one"):
            resumeWitness(killed, LOGS, [self.cosigned[1]])
