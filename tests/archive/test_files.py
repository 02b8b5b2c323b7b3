"""
Tests for auditing what lies around chains.
"""

from __future__ import annotations

import os
from pathlib import Path

from svcbroker.archive import METADATA_NAME, backUp
from svcbroker.storage import TIP_SUFFIX, MetadataFile
from tests.archive.support import ArchiveTestCase, lines
from tests.test_files import makeSpecial


class FileTests(ArchiveTestCase):
    """
    Keys, notes, and what does not belong there.
    """

    def setUp(self) -> None:
        super().setUp()
        self.chain = self.makeDirectory(blocks=1)
        self.keys = self.directory / "keys"

    def noted(self, words: str) -> None:
        """Something is worth a look, and all is good."""
        audited = self.audit()
        self.assertTrue(audited.isGood, lines(audited))
        self.assertTrue(
            any(line.startswith("note: ") and words in line for line in lines(audited)),
            lines(audited),
        )

    def test_missingKeyIsDamage(self) -> None:
        """A key of a node that decides is not there."""
        (self.keys / "node2.key").unlink()
        key = self.chain.genesis.validators[2].hex()
        self.bad(f"group 1, keys: no file has the key of replica 2, whose public one is {key}")

    def test_damagedKeysAreFound(self) -> None:
        """A file that is not a key, and one that is another."""
        (self.keys / "node2.key").write_text("00")
        self.bad("keys/node2.key: it is not a key", "keys: no file has the key of replica 2")
        (self.keys / "node2.key").write_bytes(b"\xff" * 64)
        self.bad("keys/node2.key: it is not a key")
        (self.keys / "node2.key").write_text("ab" * 32)
        self.bad(
            "keys: no file has the key of replica 2",
            "note: group 1, keys/node2.key: it is the key of no replica",
        )

    def test_oddKeysAreNoted(self) -> None:
        """Oddities of keys that do no harm are noted."""
        (self.keys / "more.key").write_text("ab" * 32)
        self.noted("keys/more.key: it is the key of no replica that decides the next block")
        (self.keys / "more.key").write_bytes((self.keys / "node2.key").read_bytes())
        self.noted("the same key is in another file, too")
        (self.keys / "more.key").rename(self.keys / "more.new")
        self.noted("keys/more.new: the file is unknown")
        (self.keys / "more.new").unlink()
        os.chmod(self.keys / "node2.key", 0o644)
        self.noted("keys/node2.key: others than its owner may read it")

    def test_chainWithoutKeysIsNoted(self) -> None:
        """An imported chain has none."""
        for path in self.keys.iterdir():
            path.unlink()
        self.noted("group 1, keys: there are no keys")
        self.keys.rmdir()
        self.noted("group 1, keys: there are no keys")

    def test_unknownFilesAreNoted(self) -> None:
        """Unknown files are reported."""
        (self.directory / "ledger.sqlite.v1.backup").write_bytes(b"")
        self.noted("a copy from before an upgrade, which is not looked at")
        (self.directory / "extra").write_bytes(b"")
        self.noted("group 1, 'extra': the file is unknown")
        (self.dataDir / "extra").write_bytes(b"")
        self.noted("note: 'extra': this file is unknown")
        (self.dataDir / "empty").mkdir()
        self.noted("note: 'empty': this directory has no chain")

    def test_specialFilesAreDamage(self) -> None:
        """A FIFO, a socket or a device in the place of a file: the audit does not wait for it."""
        special = makeSpecial(self.dataDir.with_name("x"))
        tip = self.path.with_name(self.path.name + TIP_SUFFIX)
        metadata = self.dataDir / METADATA_NAME
        for path in (tip, self.keys / "node2.key", metadata, Path(f"{metadata}-wal")):
            content = path.read_bytes() if path.exists() else None
            for each, kind in special.items():
                path.unlink(missing_ok=True)
                path.symlink_to(each)
                found = self.bad(f"{kind}, not a file")
                self.assertTrue(any(str(path) in line for line in found), found)
            path.unlink()
            if content is not None:
                path.write_bytes(content)
        os.chmod(self.keys / "node2.key", 0o600)
        self.good()

    def test_lostMetadataIsNamed(self) -> None:
        """A metadata store that is gone or older is damage; so is a backup of it."""
        path = self.dataDir / "notes.sqlite"
        older = path.read_bytes()
        store = MetadataFile.open(path)
        store.write({("webhook", "new"): b""})
        store.close()
        self.good()
        path.write_bytes(older)
        self.bad("notes.sqlite has lost its latest changes: of 2 writes 1 were left")
        done = backUp(self.dataDir, self.dataDir.with_name("backup"))
        self.assertEqual(done.findings.damageCount, 1)
        path.unlink()
        self.bad("notes.sqlite is missing or was begun anew: of 2 writes 0 were left")

    def test_changedMetadataIsNamed(self) -> None:
        """A note that is not the one that was written is named."""
        path = self.dataDir / "notes.sqlite"
        whole = path.read_bytes()
        for statement, words in (
            ("UPDATE note SET value = x'' WHERE name = 'two'", "note 'webhook' 'two': it is not"),
            ("UPDATE note SET name = 'x' WHERE name = 'two'", "note 'webhook' 'x': it is not"),
            ("UPDATE note SET checksum = x''", "note 'position' 'one': it is not"),
            ("CREATE TABLE more (x)", "notes.sqlite: 'more' should not be there"),
            ("PRAGMA user_version = 1", "notes.sqlite: 'note' is not the one that svcbroker makes"),
        ):
            with self.subTest(statement=statement):
                self.change(statement, path=path)
                self.bad(words)
                path.write_bytes(whole)
        path.write_bytes(whole[:4096])
        self.bad("notes.sqlite: ")
