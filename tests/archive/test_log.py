"""
Tests for auditing what a crash leaves in SQLite's write-ahead log.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from svcbroker.archive import audit
from svcbroker.storage import MetadataFile, tipPath
from tests.archive.support import ArchiveTestCase, lines

FRAME = 24 + 4096


class LogTests(ArchiveTestCase):
    """
    A chain of which most is still in the log.
    """

    def setUp(self) -> None:
        super().setUp()
        chain = self.makeChain(blocks=2)
        self.height = chain.head.height
        self.crashed = self.dataDir.with_name("crashed")
        shutil.copytree(self.dataDir, self.crashed)
        chain.close()
        self.log = self.crashed / "1" / "ledger.sqlite-wal"
        self.whole = self.log.read_bytes()

    def audited(self) -> tuple[int, str]:
        """To which height the chain is read, and what is found but missing keys."""
        audited = audit(self.crashed)
        tip = audited.chains[0].tip
        assert tip is not None
        found = [line for line in lines(audited) if not line.startswith("note: ")]
        return tip.height, "; ".join(found)

    def frames(self) -> list[bool]:
        """For each frame whether a commit ends with it."""
        return [
            self.whole[start + 4 : start + 8] != bytes(4)
            for start in range(32, len(self.whole), FRAME)
        ]

    def test_logAfterCrashIsWhole(self) -> None:
        """A log as a crash leaves it."""
        self.assertGreater(sum(self.frames()), 5)
        self.assertEqual(self.audited(), (self.height, ""))

    def test_damageInAnyFrameIsFound(self) -> None:
        """
        A byte that is changed in any frame of any commit but the last is found, though SQLite says
        nothing and reads a shorter chain.
        """
        frames = self.frames()
        commits = [number for number, isCommit in enumerate(frames) if isCommit]
        for number in range(len(frames)):
            start = 32 + number * FRAME
            for offset in (start + 2, start + 17, start + 24 + 100):
                changed = bytearray(self.whole)
                changed[offset] ^= 4
                self.log.write_bytes(changed)
                height, found = self.audited()
                self.assertLess(height, self.height)
                if number <= commits[-2]:
                    self.assertIn(f"ledger.sqlite-wal: frame {number + 1} does not hold", found)
                else:
                    # As a power failure in the middle of a write leaves it, too: only the tip
                    # file tells that this commit was synced.
                    self.assertIn(f"and block {self.height} had been stored", found)

    def test_damagedHeaderIsFound(self) -> None:
        """Of a log whose header does not hold, SQLite reads nothing."""
        for offset in range(32):
            changed = bytearray(self.whole)
            changed[offset] ^= 1
            self.log.write_bytes(changed)
            _, found = self.audited()
            # Two fields of it mean nothing to SQLite; the checksum covers them all the same.
            self.assertIn("ledger.sqlite-wal: its header", found, str(offset))
        self.log.write_bytes(self.whole[:20])
        self.assertIn("ledger.sqlite-wal: it is cut short", self.audited()[1])

    def test_tornLastCommitIsNoDamage(self) -> None:
        """A last commit that is cut off was never synced, and is no damage."""
        frames = self.frames()
        self.log.write_bytes(self.whole[: 32 + (len(frames) - 1) * FRAME + 50])
        tipPath(self.crashed / "1" / "ledger.sqlite").unlink()
        self.assertEqual(self.audited(), (self.height - 1, ""))

    def test_framesOfEarlierLogAreIgnored(self) -> None:
        """Behind the end of a log may be what an earlier one has left."""
        store = MetadataFile.open(self.crashed / "notes.sqlite")
        for number in range(5):
            store.write({("kind", str(number)): b"x" * 3000})
        connection = store._connection
        connection.execute("PRAGMA wal_checkpoint(RESTART)")
        store.write({("kind", "new"): b""})
        copy = self.copyOf(self.crashed / "notes.sqlite")
        store.close()
        self.assertEqual(lines(audit(copy)), [])

    def copyOf(self, original: Path) -> Path:
        """A data directory with a copy of this metadata store and of their log."""
        copy = self.crashed.with_name("copy")
        copy.mkdir()
        for name in ("notes.sqlite", "notes.sqlite-wal"):
            shutil.copy(original.with_name(name), copy)
        self.assertGreater((copy / "notes.sqlite-wal").stat().st_size, 3 * FRAME)
        return copy
