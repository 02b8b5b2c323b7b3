"""
Tests for writing a transparency log as files.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.archive import LogRefused, exportLog
from svcbroker.proofs.tlog import Tiles, encodeEntries, neededTiles, parseTilePath
from tests.proofs.tlog.support import MemoryLog


def newDirectory(test: SynchronousTestCase) -> Path:
    """A directory that is not there yet."""
    return Path(test.mktemp())


class ExportTests(SynchronousTestCase):
    """
    Tests for L{exportLog}.
    """

    def setUp(self) -> None:
        self.log = MemoryLog(70_000)
        self.directory = newDirectory(self)
        self.asked: list[str] = []

    def source(self, size: int, log: MemoryLog | None = None) -> Callable[[str], bytes]:
        """The log at a size, which notes what is read of it."""
        served = self.log if log is None else log

        def read(path: str) -> bytes:
            self.asked.append(path)
            if path == "checkpoint":
                return served.checkpoint(size).encode()
            tile, isEntries = parseTilePath(path.removeprefix("tile/"))
            self.assertTrue(tile.isIn(size), path)
            if isEntries:
                return encodeEntries(served.entries[tile.first : tile.first + tile.width])
            return served.tile(tile)

        return read

    def files(self) -> set[str]:
        """The names of all files."""
        paths = (Path(root) / name for root, _, names in os.walk(self.directory) for name in names)
        return {str(path.relative_to(self.directory)) for path in paths}

    def test_filesAreThoseOfTheSpecification(self) -> None:
        """The tree of size 70,000 is the example of the specification."""
        head, count = exportLog(self.source(70_000), self.directory)
        self.assertEqual(head, self.log.head(70_000))
        files = self.files()
        self.assertEqual((len(files), count), (2 * 274 + 3 + 1, len(files)))
        for name in (
            "checkpoint",
            "tile/0/272",
            "tile/0/273.p/112",
            "tile/1/000",
            "tile/1/001.p/17",
            "tile/2/000.p/1",
            "tile/entries/272",
            "tile/entries/273.p/112",
        ):
            self.assertIn(name, files)
        read = {
            tile: (self.directory / "tile" / tile.path).read_bytes()
            for tile in neededTiles(70_000, 5)
        }
        Tiles(read)

    def test_whatIsThereIsNotReadAgain(self) -> None:
        """The second time only what is new is read, and full tiles replace partial ones."""
        exportLog(self.source(300), self.directory)
        self.asked.clear()
        exportLog(self.source(600), self.directory)
        self.assertEqual(
            self.asked,
            [
                "checkpoint",
                *("tile/0/001", "tile/0/002.p/88", "tile/1/000.p/2"),
                *("tile/entries/002.p/88", "tile/entries/001"),
            ],
        )
        self.assertFalse({"tile/0/001.p/44", "tile/entries/001.p/44"} & self.files())
        self.asked.clear()
        self.assertEqual(exportLog(self.source(600), self.directory)[1], 0)
        self.assertEqual(self.asked, ["checkpoint"])

    def test_exportThatWasCutOffGoesOn(self) -> None:
        """The checkpoint is never ahead of the tiles, wherever the export ends."""
        source = self.source(600)
        for limit in range(9):
            left = limit

            def fail(path: str) -> bytes:
                nonlocal left
                left -= 1
                if left < 0:
                    raise OSError("cut off")
                return source(path)

            try:
                exportLog(fail, self.directory)
            except OSError:
                self.assertNotIn("checkpoint", self.files())
        exportLog(source, self.directory)
        self.assertIn("checkpoint", self.files())
        self.assertFalse([name for name in self.files() if name.endswith(".new")])

    def test_crashLeavesNoHalfFile(self) -> None:
        """A file has its name only once it is on disk, and one that cannot be is taken away."""
        with patch("os.fsync", side_effect=OSError("full")):
            self.assertRaises(OSError, exportLog, self.source(3), self.directory)
        self.assertEqual(self.files(), set())

    def test_logThatHasNotGrownIsRefused(self) -> None:
        """A fork, and a log that was rolled back, do not replace what is there."""
        exportLog(self.source(300), self.directory)
        kept = (self.directory / "checkpoint").read_bytes()
        for size, log, words in (
            (600, self.log.forked(7), "has not grown"),
            (200, self.log, "has not grown"),
            (300, self.log.forked(7), "root of the checkpoint"),
        ):
            error = self.assertRaises(LogRefused, exportLog, self.source(size, log), self.directory)
            self.assertIn(words, str(error))
            self.assertEqual((self.directory / "checkpoint").read_bytes(), kept)
        # Nothing of them is in the way of what is right.
        exportLog(self.source(1000), self.directory)

    def test_contradictingFilesAreRefused(self) -> None:
        """Tiles without the root of the checkpoint, and entries without the hashes of a tile."""
        good, fork = self.source(300), self.source(300, self.log.forked(7))

        def isEntries(path: str) -> bool:
            return path.startswith("tile/entries/")

        for choose, words in (
            (lambda path: path == "checkpoint", "root of the checkpoint"),
            (lambda path: path == "tile/0/000", "tile above"),
            (isEntries, "hashes of its entries"),
        ):
            error = self.assertRaises(
                LogRefused,
                exportLog,
                lambda path, choose=choose: (fork if choose(path) else good)(path),
                newDirectory(self),
            )
            self.assertIn(words, str(error))
        error = self.assertRaises(
            LogRefused, exportLog, lambda path: b"no note", newDirectory(self)
        )
        self.assertIn("malformed", str(error))
