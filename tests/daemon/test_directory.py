"""
Tests for L{svcbroker.daemon.directory}.
"""

from __future__ import annotations

import os
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.daemon import directory
from svcbroker.daemon.directory import DataDirectoryError, checkDataDirectory, lockDataDirectory
from svcbroker.model import Disk


class DirectoryTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.path = Path(self.mktemp())

    def refusal(self) -> str:
        """Why the directory cannot be used; empty where it can."""
        try:
            checkDataDirectory(self.path)
        except DataDirectoryError as error:
            return str(error)
        return ""

    def test_checkChangesNothing(self) -> None:
        self.assertEqual(self.refusal(), "")
        self.assertFalse(self.path.exists())
        self.path.mkdir(mode=0o755)
        self.assertEqual(self.refusal(), "")
        self.assertEqual(self.path.stat().st_mode & 0o777, 0o755)
        self.assertEqual([*self.path.iterdir()], [])

    def test_directoryOfAnotherUserIsRefusedWhereItIsShared(self) -> None:
        self.path.mkdir(mode=0o755)
        (self.path / "file").touch()
        self.patch(os, "geteuid", lambda: self.path.stat().st_uid + 1)
        self.assertIn(f"data-dir: cannot change the mode of {self.path.resolve()}", self.refusal())
        self.path.chmod(0o700)
        (self.path / "file").chmod(0o640)
        self.assertIn("file: Operation not permitted", self.refusal())

    def test_fullDiskIsRefused(self) -> None:
        self.patch(directory, "measureDisk", lambda path: Disk(free=4096, size=4096))
        self.assertIn("has no room, 4096 bytes are free", self.refusal())

    def test_directoryThatEverybodyCouldChangeIsRefused(self) -> None:
        (self.path / "1").mkdir(parents=True)
        self.path.chmod(0o777)
        self.assertEqual(self.refusal(), "")
        (self.path / "1/ledger.sqlite").touch()
        self.assertIn("(mode 777), and could have changed the chain", self.refusal())
        self.assertRaises(DataDirectoryError, lockDataDirectory, self.path)

    def test_rightsAreTakenAwayBehindALink(self) -> None:
        """A data directory is often a link to a larger disk."""
        self.path.mkdir()
        (self.path / "file").touch(0o644)
        link = self.path.with_name("link")
        link.symlink_to(self.path.name)
        lockDataDirectory(link).release()
        modes = [each.stat().st_mode & 0o077 for each in (self.path, *self.path.iterdir())]
        self.assertEqual(modes, [0, 0, 0])
