"""
Tests for L{svcbroker.proofs.witness.Witness}: what it cosigns, and what it knows after a restart.
"""

from __future__ import annotations

import subprocess
import sys
from hashlib import sha256
from os import environ
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import Malformed
from svcbroker.proofs.tlog import CheckpointRefused, Note, NoteSignature, TreeHead
from svcbroker.proofs.witness import KEY_NAME, Witness, WitnessError, makeWitness
from svcbroker.proofs.witness._statefile import STATE_NAME
from svcbroker.storage import StorageError

from ..tlog.support import MemoryLog

KILLS = int(environ.get("SVCBROKER_TEST_KILLS") or 15)
ROOT = str(Path(__file__).parents[3])
LOG = MemoryLog(600)
ORIGIN = LOG.key.verifier.name


def entropy(count: int) -> bytes:
    """Bytes for keys."""
    return b"e" * count


class WitnessCase(SynchronousTestCase):
    """
    A witness in a directory of its own.
    """

    def setUp(self) -> None:
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        self.time = 1000.0
        self.key = makeWitness(self.directory, "w.example", entropy)
        self.witness = self.open()

    def open(self) -> Witness:
        """The witness, as it is on disk."""
        witness = Witness.open(self.directory, {ORIGIN: [LOG.key.verifier]}, lambda: self.time)
        self.addCleanup(witness.close)
        return witness

    def again(self) -> Witness:
        """The witness after a restart."""
        self.witness.close()
        self.witness = self.open()
        return self.witness

    def refused(self, data: bytes) -> CheckpointRefused:
        """The refusal of a request."""
        with self.assertRaises(CheckpointRefused) as caught:
            self.witness.addCheckpoint(data)
        refusal: CheckpointRefused = caught.exception
        return refusal


class CosigningTests(WitnessCase):
    """
    Checkpoints that are cosigned.
    """

    def test_cosignatureIsOfTheCheckpointAndTheTime(self) -> None:
        """The answer is a line for each key, with a cosignature of the checkpoint."""
        lines = self.witness.addCheckpoint(LOG.request(0, 9).encode()).splitlines()
        note = Note(LOG.head(9).text).signedBy(*map(NoteSignature.parse, lines))
        found = note.verified(self.witness.verifiers)
        self.assertEqual([key for key, _ in found], self.witness.verifiers)
        self.assertEqual([key.timeOf(signature) for key, signature in found], [1000] * len(lines))
        self.assertEqual(self.witness.verifier, self.key)

    def test_growthIsRememberedAfterARestart(self) -> None:
        """After a restart, it goes on from what it cosigned last, and from nothing else."""
        self.witness.addCheckpoint(LOG.request(0, 9).encode())
        self.again()
        self.assertEqual(self.witness.seen[ORIGIN].head, LOG.head(9))
        self.assertEqual(self.refused(LOG.request(0, 20).encode()).size, 9)
        self.witness.addCheckpoint(LOG.request(9, 20).encode())
        self.assertEqual(self.again().seen[ORIGIN].head, LOG.head(20))

    def test_latestCheckpointHasBothSignatures(self) -> None:
        """The checkpoint that is served has the signature of the log and the cosignature."""
        self.witness.addCheckpoint(LOG.request(0, 9).encode())
        seen = self.witness.latest(sha256(ORIGIN.encode()).hexdigest())
        assert seen is not None
        keys = [LOG.key.verifier, self.key]
        self.assertEqual([key for key, _ in seen.note.verified(keys)], keys)
        self.assertIsNone(self.witness.latest(sha256(b"other").hexdigest()))

    def test_forkIsRefusedAndKept(self) -> None:
        """A fork is refused; the checkpoint that its log has signed is kept as evidence."""
        self.witness.addCheckpoint(LOG.request(0, 9).encode())
        fork = LOG.forked(3)
        self.assertEqual(self.refused(fork.request(9, 12).encode()).status, 422)
        self.time += 1
        self.assertEqual(self.refused(fork.request(9, 13).encode()).status, 422)
        kept = self.again().forks[ORIGIN]
        self.assertEqual((kept.head, kept.time), (fork.head(12), 1000))
        self.assertTrue(kept.note.verified([LOG.key.verifier]))
        self.time += 60
        self.refused(fork.request(9, 13).encode())
        self.assertEqual(self.again().forks[ORIGIN].head, fork.head(13))
        self.assertEqual(self.witness.seen[ORIGIN].head, LOG.head(9))

    def test_unreadableRequestIsBad(self) -> None:
        """
        A text that is no request is refused with 400, and a log that is not witnessed with 404.
        """
        self.assertEqual(self.refused(b"old 5").status, 400)
        other = MemoryLog(9, "other.example", b"o" * 32)
        self.assertEqual(self.refused(other.request(0, 9).encode()).status, 404)
        self.witness.useLogs({"other.example": [other.key.verifier]})
        self.witness.addCheckpoint(other.request(0, 9).encode())
        self.assertEqual(self.refused(LOG.request(0, 9).encode()).status, 404)

    def test_timesDoNotGoBack(self) -> None:
        """A clock that is set back does not date a later checkpoint earlier."""
        self.witness.addCheckpoint(LOG.request(0, 9).encode())
        self.time = 5.0
        self.witness.addCheckpoint(LOG.request(9, 10).encode())
        self.assertEqual(self.witness.seen[ORIGIN].time, 1000)

    def test_nothingIsCosignedThatIsNotStored(self) -> None:
        """Without a disk there is no cosignature."""

        def write(changes: object) -> None:
            raise StorageError("the disk is full")

        self.patch(self.witness._state, "write", write)
        with self.assertRaises(StorageError):
            self.witness.addCheckpoint(LOG.request(0, 9).encode())
        self.assertEqual(self.witness.seen, {})
        self.assertEqual(self.again().seen, {})

    def test_killsLeaveOneHistory(self) -> None:
        """
        A witness that is killed at any moment, while a log tries two histories, cosigns one.
        """
        # A program of its own: test processes do not survive a fork.
        command = [
            sys.executable,
            "-m",
            "tests.proofs.witness.killing",
            str(self.directory),
            str(KILLS),
        ]
        ended = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            env={**environ, "PYTHONPATH": ROOT},
        )
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        self.assertIn(f"{KILLS} kills", ended.stdout)


class FileTests(WitnessCase):
    """
    The files of a witness.
    """

    def test_witnessIsMadeOnce(self) -> None:
        """A second key is not made, and names have to be names."""
        with self.assertRaises(WitnessError):
            makeWitness(self.directory, "w.example", entropy)
        with self.assertRaises(Malformed):
            makeWitness(Path(self.mktemp()), "a b", entropy)

    def test_keyIsPrivate(self) -> None:
        """Only the owner may read the files."""
        for name in (KEY_NAME, STATE_NAME):
            self.assertEqual((self.directory / name).stat().st_mode & 0o077, 0)

    def test_keyWithoutItsStateIsRefused(self) -> None:
        """A witness whose state is lost does not go on with its key."""
        self.witness.close()
        (self.directory / STATE_NAME).rename(self.directory / "elsewhere")
        with self.assertRaisesRegex(WitnessError, "is missing.* does not start"):
            self.open()

    def test_stateWithoutItsKeyIsRefused(self) -> None:
        """A witness whose key is lost is not made anew over what it has cosigned."""
        self.witness.addCheckpoint(LOG.request(0, 9).encode())
        self.witness.close()
        (self.directory / KEY_NAME).unlink()
        for attempt in (self.open, lambda: makeWitness(self.directory, "w.example", entropy)):
            with self.assertRaises(WitnessError):
                attempt()

    def test_unfinishedMakingIsRepeated(self) -> None:
        """A witness that was not made to the end is made again."""
        self.witness.close()
        (self.directory / KEY_NAME).unlink()
        key = makeWitness(self.directory, "other.example", lambda count: b"o" * count)
        self.assertEqual(self.open().verifier, key)

    def test_keyOfAnotherWitnessIsRefused(self) -> None:
        """The key and the state have to be of one witness."""
        self.witness.close()
        (self.directory / KEY_NAME).write_text("00" * 32)
        with self.assertRaisesRegex(WitnessError, "is not the key"):
            self.open()
        (self.directory / KEY_NAME).write_text("00" * 31)
        with self.assertRaisesRegex(WitnessError, "is not a key"):
            self.open()

    def test_damagedStateIsRefused(self) -> None:
        """A state that is not what was written is an error."""
        self.witness.addCheckpoint(LOG.request(0, 9).encode())
        self.witness.close()
        path = self.directory / STATE_NAME
        head = TreeHead(ORIGIN, 9, LOG.head(9).root).text.encode()
        data = path.read_bytes()
        self.assertIn(head, data)
        path.write_bytes(data.replace(head, head.replace(b"\n9\n", b"\n8\n")))
        with self.assertRaises(WitnessError):
            self.open()
        path.write_bytes(b"not a database" * 1000)
        with self.assertRaises(WitnessError):
            self.open()
