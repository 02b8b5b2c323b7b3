"""
Tests for L{svcbroker.daemon.directory}.
"""

from __future__ import annotations

import os
from pathlib import Path

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.daemon import directory
from svcbroker.daemon.directory import (
    DataDirectoryError,
    DiskMeter,
    checkDataDirectory,
    lockDataDirectory,
)
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


class DiskMeterTests(SynchronousTestCase):
    """
    L{DiskMeter}
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.running: list[Deferred[Disk]] = []
        self.meter = DiskMeter(Path("data"), self.run_, self.clock)

    def run_(self, function: object, path: Path) -> Deferred[Disk]:
        """Something in a thread."""
        self.assertEqual((function, path), (directory.measureDisk, Path("data")))
        self.running.append(Deferred())
        return self.running[-1]

    def test_callsOfOneSecondShareAMeasurement(self) -> None:
        disk = Disk(free=1, size=2)
        asked = [self.meter.measure() for _ in range(3)]
        asked.pop().addErrback(lambda failure: failure.trap(CancelledError)).cancel()
        self.running[0].callback(disk)
        self.assertEqual([self.successResultOf(each) for each in asked], [disk] * 2)
        self.clock.advance(0.9)
        self.assertIs(self.successResultOf(self.meter.measure()), disk)
        self.assertEqual(len(self.running), 1)
        for seconds in (0.1, -5.0):
            self.clock.rightNow += seconds
            later = self.meter.measure()
            self.assertNoResult(later)
            self.running[-1].callback(Disk(free=3, size=4))
            self.assertEqual(self.successResultOf(later), Disk(free=3, size=4))
        self.assertEqual(len(self.running), 3)

    def test_allAreToldOfAFailureAndTheNextOneMeasuresAgain(self) -> None:
        asked = [self.meter.measure() for _ in range(2)]
        self.running[0].errback(FileNotFoundError())
        for each in asked:
            self.failureResultOf(each, FileNotFoundError)
        self.assertNoResult(self.meter.measure())
        self.assertEqual(len(self.running), 2)
