"""
Data directories with signed chains in them, and how they are looked at.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.archive import STORE_NAME, Audited, audit
from svcbroker.chain import Kind
from svcbroker.ledgers.pbft._keys import writeSeeds
from svcbroker.storage import MetadataFile
from tools.vectors.signedchain import SignedChain


class ArchiveTestCase(SynchronousTestCase):
    """
    A test with a data directory of its own.

    @ivar dataDir: the data directory.
    @ivar directory: the directory of group 1 in it.
    @ivar path: the file of its chain.
    """

    def setUp(self) -> None:
        self.dataDir = Path(self.mktemp()).absolute() / "data"
        self.directory = self.dataDir / "1"
        self.path = self.directory / STORE_NAME

    def makeChain(
        self, group: str = "1", blocks: int = 3, *, dataDir: Path | None = None
    ) -> SignedChain:
        """
        A chain that has a bit of everything: two topics, one of them closed, C{blocks} blocks of
        events in which something is refused too, and two changes of the nodes. It is open.
        """
        directory = (self.dataDir if dataDir is None else dataDir) / group
        directory.mkdir(parents=True, mode=0o700)
        chain = SignedChain(directory, group=group)
        chain.open("first", "second", "third")
        for number in range(blocks):
            chain.publish("first", b"a%d" % number, b"b" * 40, extensions={"svc-tag": "x"})
        chain.changeNodes("node 0", "node 1", "node 2", "node 7", "node 8", "node 9", "node 10")
        chain.decide(
            [
                chain.transaction(Kind.PUBLISH, "second", b"one"),
                chain.transaction(Kind.CLOSE, "third"),
                chain.transaction(Kind.PUBLISH, "third", b"refused"),
                chain.transaction(Kind.PUBLISH, "first", b""),
            ]
        )
        chain.changeNodes("node 0", "node 1", "node 2", "node 3")
        chain.decide()
        chain.publish("first", b"last")
        return chain

    def finish(self, chain: SignedChain, directory: Path | None = None) -> None:
        """Close a chain as a broker does, with its keys beside it."""
        chain.store.reserve(chain.head.height, 8)
        chain.close()
        writeSeeds(
            (self.directory if directory is None else directory) / "keys",
            {f"node{index}": seed for index, seed in enumerate(chain.seeds)},
        )

    def makeDirectory(self, blocks: int = 3) -> SignedChain:
        """A data directory as a broker leaves it. The chain is closed."""
        chain = self.makeChain(blocks=blocks)
        self.finish(chain)
        self.makeMetadata()
        return chain

    def makeMetadata(self) -> None:
        """Write some metadata."""
        store = MetadataFile.open(self.dataDir / "notes.sqlite")
        store.write({("position", "one"): b"[1,2]", ("webhook", "two"): b"x" * 30})
        store.close()

    def change(self, statement: str, *parameters: Any, path: Path | None = None) -> None:
        """Change a file as somebody does who knows SQL and nothing else."""
        with closing(sqlite3.connect(self.path if path is None else path)) as connection:
            cursor = connection.execute(statement, parameters)
            self.assertNotEqual(cursor.rowcount, 0, "nothing was changed")
            connection.commit()

    def value(self, statement: str, *parameters: Any) -> Any:
        """One value of the chain's file."""
        with closing(sqlite3.connect(self.path)) as connection:
            return connection.execute(statement, parameters).fetchone()[0]

    def audit(self, directory: Path | None = None, **keywords: Any) -> Audited:
        """Audit, and make sure that nothing was written."""
        directory = self.dataDir if directory is None else directory
        before = contents(directory)
        audited = audit(directory, **keywords)
        self.assertEqual(contents(directory), before)
        return audited

    def good(self, directory: Path | None = None, **keywords: Any) -> Audited:
        """Audit what is good."""
        audited = self.audit(directory, **keywords)
        self.assertEqual(lines(audited), [])
        self.assertTrue(audited.isGood)
        return audited

    def bad(self, *wanted: str, **keywords: Any) -> Sequence[str]:
        """
        Audit what is not good.

        @param wanted: words, each of which stands in a line of the findings.
        """
        audited = self.audit(**keywords)
        found = lines(audited)
        self.assertFalse(audited.isGood, found)
        for words in wanted:
            self.assertTrue(any(words in line for line in found), f"no {words!r} in {found}")
        return found


def lines(audited: Audited) -> Sequence[str]:
    """All findings."""
    return [str(finding) for finding in audited.all()]


def contents(directory: Path) -> dict[str, bytes]:
    """All files below a directory, but SQLite's index of a log, which readers keep marks in."""
    return {
        str(path.relative_to(directory)): b"" if path.name.endswith("-shm") else path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
