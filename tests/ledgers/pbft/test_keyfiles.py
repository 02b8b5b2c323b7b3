"""
Tests for the files of the replicas' private keys.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.ledgers.pbft import _keys as keyfiles
from svcbroker.ledgers.pbft._keys import KeysDamaged, publicKey


class KeyFileTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.directory = Path(self.mktemp()) / "keys"
        self.seeds = {f"n{number}": bytes([number]) * 32 for number in range(3)}
        self.keys = [publicKey(seed) for seed in self.seeds.values()]

    def write(self) -> None:
        """Write three keys."""
        keyfiles.writeSeeds(self.directory, self.seeds)

    @property
    def names(self) -> list[str]:
        """The names of the files."""
        return sorted(path.name for path in self.directory.iterdir())

    def test_existingKeysAreKept(self) -> None:
        """Also when some are missing."""
        first = keyfiles.makeSeeds(self.directory, 2, os.urandom)
        more = keyfiles.makeSeeds(self.directory, 4, os.urandom)
        self.assertEqual(list(more[:2]), list(first))
        self.assertEqual(len(set(more)), 4)
        self.assertEqual(self.names, [f"node{number}.key" for number in range(4)])

    def test_keysAreFoundByPublicKey(self) -> None:
        """In any order; further keys do not matter."""
        self.write()
        for wanted in ((0, 1, 2), (2, 0), (1,), ()):
            found = keyfiles.loadSeeds(self.directory, [self.keys[index] for index in wanted])
            self.assertEqual(list(found), [bytes([index]) * 32 for index in wanted])

    def test_missingKeyIsNamed(self) -> None:
        self.write()
        (self.directory / "n1.key").unlink()
        error = self.assertRaises(KeysDamaged, keyfiles.loadSeeds, self.directory, self.keys)
        self.assertIn(f"no key of node 1 ({self.keys[1].hex()[:16]}...)", str(error))

    def test_filesBelongToTheOwner(self) -> None:
        self.addCleanup(os.umask, os.umask(0))
        self.write()
        self.assertEqual(stat.S_IMODE(self.directory.stat().st_mode), 0o700)
        for path in self.directory.iterdir():
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)

    def test_onlyNamedKeysAreRemoved(self) -> None:
        """Whatever the names of their files."""
        self.write()
        keyfiles.writeSeeds(self.directory, {"another name": bytes([1]) * 32})
        foreign = self.directory / "notes.txt"
        foreign.write_text("not a key")
        keyfiles.removeSeeds(self.directory, {self.keys[1], bytes(32)})
        self.assertEqual(self.names, ["n0.key", "n2.key", "notes.txt"])

    def test_failedWriteLeavesNoKey(self) -> None:
        """No existing key is lost."""
        self.write()
        real = os.fsync
        calls: list[int] = []

        def fail(descriptor: int) -> None:
            calls.append(descriptor)
            if len(calls) == 2:
                raise OSError(28, "No space left on device")
            real(descriptor)

        patch = self.patch(os, "fsync", fail)
        more = {f"m{number}": os.urandom(32) for number in range(3)}
        self.assertRaises(OSError, keyfiles.writeSeeds, self.directory, more)
        patch.restore()
        self.assertEqual(self.names, ["m0.key", "n0.key", "n1.key", "n2.key"])
        self.assertEqual(len(keyfiles.loadSeeds(self.directory, self.keys)), 3)
