"""
One byte, anywhere in the files of a data directory, is changed: it is found, or it meant nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from svcbroker.archive import METADATA_NAME, audit
from tests import EXAMPLES
from tests.archive.support import ArchiveTestCase

STRIDE = max(1, 3700 // EXAMPLES)
"""Every so manieth byte is changed. 1 takes some minutes."""


def dump(path: Path) -> object:
    """All that can be read of a file; C{None} where it cannot be read."""
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)) as connection:
            connection.text_factory = bytes
            identity = [
                connection.execute(f"PRAGMA {name}").fetchone()
                for name in ("application_id", "user_version")
            ]
            tables = connection.execute(
                "SELECT type, name, tbl_name, sql FROM sqlite_schema"
            ).fetchall()
            rows = [
                sorted(connection.execute(f"SELECT * FROM {name.decode()}").fetchall(), key=repr)
                for kind, name, _, _ in tables
                if kind == b"table"
            ]
            return repr((identity, tables, rows))
    except (sqlite3.Error, UnicodeDecodeError, OverflowError):
        return None


class ByteTests(ArchiveTestCase):
    """
    Bytes of whole files.
    """

    def changes(self, path: Path, stride: int) -> Iterator[int]:
        """Change one byte after the other; each is as it was when the next one is."""
        original = path.read_bytes()
        with path.open("r+b", buffering=0) as file:
            for offset in range(0, len(original), stride):
                # A bit of each byte, another one each time.
                changed = original[offset] ^ (1 << offset // stride % 8)
                file.seek(offset)
                file.write(bytes([changed]))
                yield offset
                file.seek(offset)
                file.write(original[offset : offset + 1])

    def check(self, path: Path, stride: int) -> tuple[int, int]:
        """
        Change bytes of a SQLite file.

        @return: how many were found, and how many meant nothing.
        """
        before = dump(path)
        self.assertIsNotNone(before)
        found = nothing = 0
        for offset in self.changes(path, stride):
            if dump(path) == before:
                nothing += 1
            else:
                self.assertFalse(audit(self.dataDir).isGood, f"byte {offset} is not found")
                found += 1
        return found, nothing

    def test_everyByteOfLedger(self) -> None:
        """The chain."""
        self.makeDirectory(blocks=2)
        found, nothing = self.check(self.path, STRIDE)
        self.assertGreater(found, 4000 // STRIDE)
        self.assertGreater(nothing, found)

    def test_everyByteOfMetadata(self) -> None:
        """Each byte of the metadata store counts."""
        self.makeDirectory(blocks=0)
        found, _ = self.check(self.dataDir / METADATA_NAME, min(STRIDE, 11))
        self.assertGreater(found, 10)

    def test_everyByteOfKey(self) -> None:
        """Every byte of a private key, unless it is the same number in other letters."""
        self.makeDirectory(blocks=0)
        path = self.directory / "keys" / "node2.key"
        seed = bytes.fromhex(path.read_text())
        found = 0
        for offset in self.changes(path, 1):
            try:
                same: Any = bytes.fromhex(path.read_bytes().decode("ascii")) == seed
            except ValueError:
                same = False
            if not same:
                found += 1
                self.assertFalse(audit(self.dataDir).isGood, offset)
        self.assertGreater(found, 55)
