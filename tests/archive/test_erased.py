"""
Chains with erased events: audited, exported, imported and backed up.
"""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from io import BytesIO
from pathlib import Path

import msgspec

from svcbroker.archive import (
    STORE_NAME,
    Eraser,
    ExportedHeaders,
    StreamBroken,
    StreamedBlock,
    StreamReader,
    StreamWriter,
    audit,
    backUp,
    exportChain,
    importChain,
)
from svcbroker.archive._eraser import stripBlock
from svcbroker.chain import encodeBody
from svcbroker.model import EventId, topicPrefix
from svcbroker.proofs import verifyProof
from svcbroker.storage import ErasableBlock, Store
from svcbroker.storage._erasure import replaceBody
from tests.archive.erasable import canary, eventsIn, filesWith, makeErasable, reopened
from tests.archive.support import ArchiveTestCase, contents, lines

EVENTS = {
    ("a", 1): None,
    ("a", 2): b"",
    ("a", 3): canary("old kept"),
    ("a", 4): None,
    ("a", 5): canary("after"),
    ("b", 1): canary("kept"),
    ("by", 1): None,
}

EVENTS_OF_4 = {("a", 4): 0, ("b", 1): 1, ("by", 1): 2}
"""The events of block 4, with the indexes of their transactions."""


class ErasedTestCase(ArchiveTestCase):
    """
    A test with a chain that has erased events.
    """

    def setUp(self) -> None:
        super().setUp()
        self.chain = makeErasable(self.directory)
        self.finish(self.chain)
        self.makeMetadata()

    def tables(self, path: Path) -> object:
        """The tables of keys and erased events of a file."""
        with closing(sqlite3.connect(path)) as connection:
            return [
                connection.execute(f"SELECT * FROM {name}").fetchall()
                for name in ("key_use", "erased", "topic", "erasing")
            ]


class AuditTests(ErasedTestCase):
    """
    Tests for auditing such a chain.
    """

    def test_erasedChainIsGood(self) -> None:
        """It says how many events were erased, and there is nothing to find."""
        audited = self.good()
        self.assertEqual([chain.erased for chain in audited.chains], [3])

    def test_contentsToBeRemovedAreNoted(self) -> None:
        """While contents are still to be removed, the chain is good, and a note says how many."""
        directory = self.dataDir.with_name("other") / "1"
        chain = makeErasable(directory, isRemoved=False)
        self.finish(chain, directory)
        for count, expected in ((3, True), (0, False)):
            audited = self.audit(directory.parent)
            self.assertTrue(audited.isGood, lines(audited))
            found = [line for line in lines(audited) if f"{count} erased events" in line]
            self.assertEqual(bool(found), expected)
            with closing(Store.open(directory / STORE_NAME)) as store:
                Eraser(store).run()

    def test_everyChangedColumnIsNamed(self) -> None:
        """A change of keys, erased events or missing contents is found and named."""
        original = self.path.read_bytes()
        for statement, words in (
            ("UPDATE key_use SET key = 'other' WHERE key = 'two'", "key_use.key of owner "),
            ("UPDATE key_use SET topic = 9 WHERE key = 'two'", "key_use.topic of owner"),
            ("UPDATE key_use SET sequence = 9 WHERE key = 'two'", "key_use.sequence of owner"),
            ("UPDATE key_use SET height = 9 WHERE key = 'two'", "key_use.height of owner"),
            ("UPDATE key_use SET digest = NULL WHERE key = 'two'", "key_use.digest of owner"),
            ("UPDATE key_use SET digest = x'00' WHERE key = 'one'", "key_use.digest of owner"),
            ("UPDATE key_use SET number = 9 WHERE key = 'two'", "number 2: the row is missing"),
            ("UPDATE key_use SET owner = x'00' WHERE key = 'two'", "number 2: the row is missing"),
            ("DELETE FROM key_use WHERE key = 'two'", "number 2: the row is missing"),
            (
                "INSERT INTO key_use VALUES (x'00', 1, 'k', 0, 1, 1, NULL)",
                "key_use: has 4 rows, and 3 belong to the chain",
            ),
            ("UPDATE erased SET last = 5 WHERE first = 4", "erased.last of topic 0, event 4"),
            ("UPDATE erased SET height = 9 WHERE first = 4", "erased.height of topic 0, event 4"),
            ("UPDATE erased SET position = 5 WHERE first = 4", "erased.position of topic 0"),
            ("DELETE FROM erased WHERE first = 4", "erased of topic 0, event 4: the row is mis"),
            (
                "INSERT INTO erased VALUES (0, 3, 3, 4, 0)",
                "erased: has 4 rows, and 3 belong to the chain",
            ),
            (
                "INSERT INTO erasing VALUES (0, 0, 3, 3)",
                "erasing: events 3 to 3 were not all erased",
            ),
            (
                "INSERT INTO erasing VALUES (0, 0, 4, 5)",
                "erasing: events 4 to 5 were not all erased",
            ),
            (
                "INSERT INTO erasing VALUES (1, 0, 4, 4)",
                "erasing: event 4 of topic 0 is not in block 1",
            ),
            ("UPDATE compacted SET height = 3", "compacted.again: expected '3', found '0'"),
            ("UPDATE compacted SET height = 99, again = '99'", "compacted.height: 99 is no"),
            ("DELETE FROM compacted", "compacted: has 0 rows instead of one"),
            ("UPDATE body SET padding = x'0001' WHERE height = 2", "body.padding: it is not"),
            ("UPDATE topic SET authors = NULL WHERE idx = 2", "topic.authors of topic 2"),
            ("UPDATE topic SET authors = x'00' WHERE idx = 0", "topic.authors of topic 0"),
            (
                "UPDATE body SET receipts = zeroblob(length(receipts)) WHERE height = 4",
                "contents are missing, and without its receipts",
            ),
        ):
            with self.subTest(statement=statement):
                self.change(statement)
                self.bad(words)
                self.path.write_bytes(original)

    def test_contentThatNothingErasedIsMissed(self) -> None:
        """A content that was removed without an erasure is damage."""
        with closing(Store.open(self.path)) as store:
            row = store.block(4)
            assert row is not None
            block = ErasableBlock(
                height=4,
                header=row.header,
                body=row.body,
                receipts=row.receipts,
                erased={"b": [(1, 1)]},
            )
            stripped = stripBlock(block, store.chainId)
            assert stripped is not None
            replaceBody(store._writing, block, stripped)
        self.bad("the contents of events 1 to 1 of topic 1 are missing, and nothing has erased")

    def test_contentsThatNothingRemovesAreDamage(self) -> None:
        """If an erased event has its content and none is to be removed, rows were lost."""
        directory = self.dataDir.with_name("other") / "1"
        chain = makeErasable(directory, isRemoved=False)
        self.finish(chain, directory)
        self.change("DELETE FROM erasing", path=directory / STORE_NAME)
        [found] = lines(self.audit(directory.parent))
        self.assertIn("3 erased events still have their contents, and none of them is to be", found)

    def test_contentOfRefusedPublishIsFound(self) -> None:
        """A body in which it stands is not the one to be stored."""
        directory = self.dataDir.with_name("other") / "1"
        chain = makeErasable(directory)
        publish = chain.say("nowhere", canary("refused"))
        height = chain.decide([publish]).height
        self.finish(chain, directory)
        self.assertTrue(audit(directory.parent).isGood)
        body, _ = encodeBody([publish])
        path = directory / STORE_NAME
        self.change("UPDATE body SET body = ? WHERE height = ?", body, height, path=path)
        [found] = lines(audit(directory.parent))
        self.assertIn(f"block {height}, body.body: it has the content of a publish that was", found)


class StreamTests(ErasedTestCase):
    """
    Tests for exporting and importing such a chain.
    """

    def exported(self, directory: Path | None = None) -> bytes:
        """The chain as a stream."""
        file = BytesIO()
        exportChain(self.directory if directory is None else directory, file)
        return file.getvalue()

    def imported(self, stream: bytes) -> Path:
        """The directory of the group of an imported stream."""
        target = Path(self.mktemp()).absolute()
        target.mkdir()
        importChain(BytesIO(stream), target)
        return target / "1"

    def test_importIsTheSame(self) -> None:
        """An imported chain has the same blocks, keys and erased events, and is good; an export of
        it has the same bytes."""
        stream = self.exported()
        directory = self.imported(stream)
        path = directory / STORE_NAME
        self.assertEqual(self.tables(path), self.tables(self.path))
        with closing(reopened(path)) as store:
            self.assertEqual(eventsIn(store), EVENTS)
        self.assertEqual(self.exported(directory), stream)
        shutil.copytree(self.directory / "keys", directory / "keys")
        self.good(directory.parent)

    def test_importRemovesWhatIsErased(self) -> None:
        """A stream that still has the contents of events that it erases leaves none of them."""
        source = self.dataDir.with_name("other") / "1"
        makeErasable(source, isRemoved=False).close()
        stream = self.exported(source)
        self.assertIn(canary("gone"), stream)
        directory = self.imported(stream)
        for text in ("old", "gone", "gone by"):
            self.assertEqual(filesWith(directory, canary(text)), [])
        with closing(reopened(directory / STORE_NAME)) as store:
            self.assertEqual(eventsIn(store), EVENTS)
        # Both are the same chain, whatever contents are there.
        for same in (self.exported(), stream):
            self.assertEqual(importChain(BytesIO(same), directory.parent).added, 0)

    def test_partBeforeErasureLacksContents(self) -> None:
        """An import of the blocks before an erasure says how many contents are missing; with the
        rest none are."""
        first, rest = BytesIO(), BytesIO()
        exportChain(self.directory, first, last=4)
        exportChain(self.directory, rest, first=5)
        target = Path(self.mktemp()).absolute()
        target.mkdir()
        missing = [importChain(BytesIO(each.getvalue()), target).missing for each in (first, rest)]
        self.assertEqual(missing, [3, 0])

    def test_chainOfOldFormatIsReadByOldReleases(self) -> None:
        """It is exported as before."""
        directory = self.dataDir.with_name("old")
        self.makeChain(dataDir=directory).close()
        stream = self.exported(directory / "1")
        self.assertEqual((stream[16], self.exported()[16]), (1, 2))
        self.assertEqual(self.exported(self.imported(stream)), stream)

    def test_missingReceiptsAreRefused(self) -> None:
        """Without the receipts of a block whose contents are missing, or with others, it is not
        executed."""
        for change in (b"", b"\x00" * 9, None):
            reader, file = StreamReader(BytesIO(self.exported())), BytesIO()
            writer = StreamWriter(file, hasReceipts=change is not None)
            writer.begin(reader.begin())
            for record in reader.rest():
                if isinstance(record, StreamedBlock):
                    receipts = change * (len(record.receipts) // 9) if change else b""
                    writer.block(
                        StreamedBlock(
                            header=record.header,
                            certificate=record.certificate,
                            body=record.body,
                            receipts=receipts,
                        )
                    )
                else:
                    writer.end(record)
            error = self.assertRaises(StreamBroken, self.imported, file.getvalue())
            self.assertIn("block 2 does not hold: contents are missing", str(error))

    def test_headersAreProvedFromExport(self) -> None:
        """Headers need no contents."""
        path = self.dataDir / "export"
        path.write_bytes(self.exported())
        headers = ExportedHeaders(path)
        for height in range(1, headers.last + 1):
            self.assertEqual(headers.prove(height).block.header.height, height)


class ProofTests(ErasedTestCase):
    """
    Tests for proving events of such a chain.
    """

    def test_eventsAreProvedWhileContentsAreRemoved(self) -> None:
        """From the erasure on a proof has no content of an erased event, and the proofs of all
        events of its block hold, before the content is removed and afterwards."""
        directory = self.dataDir.with_name("other") / "1"
        chain = makeErasable(directory, isRemoved=False)
        self.addCleanup(chain.close)
        ids = [EventId(topicPrefix(topic), sequence, 4) for topic, sequence in EVENTS_OF_4]
        for _ in range(2):
            for eventId, ((topic, sequence), index) in zip(ids, EVENTS_OF_4.items(), strict=True):
                proof = chain.prover.event(eventId)
                self.assertEqual(proof.index, index)
                data = msgspec.json.encode(proof)
                verifyProof(data, chain=chain.genesis.chain)
                content = EVENTS[topic, sequence]
                if content is None:
                    self.assertNotIn(b'"content"', data)
                else:
                    self.assertIn(content, data)
            Eraser(chain.store).run()


class BackupTests(ErasedTestCase):
    """
    Tests for backing such a chain up.
    """

    def test_backupIsGood(self) -> None:
        """A backup has the same events, and none of the erased contents."""
        target = self.dataDir.with_name("backup")
        self.assertEqual(backUp(self.dataDir, target).findings.damageCount, 0)
        self.assertTrue(audit(target).isGood)
        for text in ("old", "gone", "gone by"):
            self.assertEqual(filesWith(target, canary(text)), [])
        self.assertEqual(self.tables(target / "1" / STORE_NAME), self.tables(self.path))

    def test_backupBeforeRemovalRemovesThem(self) -> None:
        """A broker that starts on a backup removes what was still to be removed in it."""
        source = self.dataDir.with_name("other")
        chain = makeErasable(source / "1", isRemoved=False)
        self.finish(chain, source / "1")
        target = self.dataDir.with_name("backup")
        backUp(source, target)
        before = contents(source)
        self.assertNotEqual(filesWith(target, canary("gone")), [])
        with closing(reopened(target / "1" / STORE_NAME)) as store:
            Eraser(store).run()
            self.assertEqual(eventsIn(store), EVENTS)
        self.assertEqual(filesWith(target, canary("gone")), [])
        self.assertEqual(contents(source), before)
