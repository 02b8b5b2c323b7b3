"""
Tests for L{svcbroker.archive.audit}: what is wrong is found, and the right place is named.
"""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing

from svcbroker.archive import _audit, audit, auditGroup
from svcbroker.proofs import Checkpoint
from svcbroker.storage import StorageFailed, Store
from tests.archive.support import ArchiveTestCase, contents, lines

FLIP = "CAST(substr({0}, 1, {1}) || x'{2}' || substr({0}, {1} + 2) AS BLOB)"


def flipped(column: str, offset: int, byte: str = "aa") -> str:
    """An expression for a column with another byte."""
    return FLIP.format(column, offset, byte)


class GoodTests(ArchiveTestCase):
    """
    Directories in which nothing is wrong.
    """

    def test_wholeDirectoryIsGood(self) -> None:
        """A data directory as a broker leaves it."""
        chain = self.makeDirectory()
        audited = self.good()
        (one,) = audited.chains
        self.assertEqual(one.tip, Checkpoint.of(chain.head))
        self.assertEqual((one.group, one.topics, one.transactions), ("1", 3, 16))
        self.assertEqual(one.genesis, chain.genesis)

    def test_directoryOfOneGroupIsAudited(self) -> None:
        """The directory of one group."""
        self.makeDirectory()
        self.good(self.directory)

    def test_chainWithoutBlocksIsGood(self) -> None:
        """A chain without blocks."""
        self.directory.mkdir(parents=True)
        chain = self.makeChain("2", dataDir=self.dataDir)
        self.finish(chain, self.dataDir / "2")
        path = self.dataDir / "3" / "ledger.sqlite"
        path.parent.mkdir()
        genesis = type(chain.genesis)(group="3", created=1, validators=chain.genesis.validators)
        Store.create(path, chainId=genesis.chain, genesis=genesis.encoded).close()
        self.directory.rmdir()
        audited = self.audit()
        self.assertTrue(audited.isGood)
        self.assertEqual([chain.group for chain in audited.chains], ["2", "3"])
        self.assertEqual(audited.chains[1].tip, Checkpoint(0, genesis.header().hash))

    def test_chainOfManyBatches(self) -> None:
        """A chain of several batches, with history nodes and full segments of fingerprints."""
        self.directory.mkdir(parents=True)
        chain = self.makeChain("9", blocks=0, dataDir=self.dataDir)
        chain.store._writing.execute("PRAGMA synchronous = OFF")
        for number in range(600):
            chain.publish("first", *[b"%d" % number] * (number % 4))
        self.finish(chain, self.dataDir / "9")
        self.directory.rmdir()
        seen: list[tuple[int, int | None]] = []
        audited = auditGroup(
            self.dataDir / "9", report=lambda done, total: seen.append((done, total))
        )
        self.assertEqual([str(each) for each in audited.findings.kept], [])
        self.assertEqual(seen[-1], (chain.head.height, chain.head.height))
        self.path = self.dataDir / "9" / "ledger.sqlite"
        self.change("UPDATE history SET hash = zeroblob(32) WHERE position = 1")
        self.change("UPDATE fingerprint SET prints = zeroblob(2048) WHERE segment = 0")
        self.change(
            f"UPDATE topic_block SET positions = {flipped('positions', 5)} WHERE height = 600"
        )
        found = self.bad(
            "block 511, history.hash of level 8, position 1: expected",
            "of transaction 0 of the chain",
            "block 600, topic_block.positions of topic 0: expected",
        )
        self.assertEqual(len(found), 3)

    def test_auditBesideRunningBroker(self) -> None:
        """While a broker has the file open and writes it, and nothing is left behind."""
        chain = self.makeChain()
        audited = audit(self.dataDir)
        self.assertTrue(audited.isGood, lines(audited))
        tips = [audited.chains[0].tip]
        chain.publish("first", b"more")
        names = sorted(contents(self.dataDir))
        tips.append(audit(self.dataDir).chains[0].tip)
        self.assertEqual(tips[1], Checkpoint.of(chain.head))
        self.assertNotEqual(tips[0], tips[1])
        self.assertEqual(sorted(contents(self.dataDir)), names)
        self.finish(chain)
        self.good()

    def test_logAfterCrashIsGood(self) -> None:
        """A log that a crash left is good, with and without its index."""
        chain = self.makeChain()
        tip = Checkpoint.of(chain.head)
        crashed = self.dataDir.with_name("crashed")
        shutil.copytree(self.dataDir, crashed)
        chain.close()
        for name in ("ledger.sqlite-shm", "nothing"):
            (crashed / "1" / name).unlink(missing_ok=True)
            audited = self.audit(crashed)
            self.assertTrue(audited.isGood, lines(audited))
            self.assertEqual(audited.chains[0].tip, tip)

    def test_brokerThatStartsMeanwhileIsNoDamage(self) -> None:
        """A broker that begins to write the file while it is read is no damage."""
        self.makeDirectory()

        def start(done: int, total: int | None) -> None:
            with closing(sqlite3.connect(self.path)) as connection:
                connection.execute("UPDATE reservation SET round = round + 1")
                connection.commit()

        self.assertRaises(StorageFailed, auditGroup, self.directory, report=start)


class DamageTests(ArchiveTestCase):
    """
    Each column of each table, changed in SQL and nothing else.
    """

    def setUp(self) -> None:
        super().setUp()
        self.makeDirectory()
        self.whole = contents(self.dataDir)

    def restore(self) -> None:
        """Have everything as it was."""
        for name, data in self.whole.items():
            (self.dataDir / name).write_bytes(data)

    def test_everyChangedColumnIsNamed(self) -> None:
        """The place that is named is the one that was changed."""
        for statement, words in (
            ("UPDATE chain SET chain_id = zeroblob(32)", "group 1, chain.chain_id: expected"),
            (f"UPDATE chain SET genesis = {flipped('genesis', 25)}", "chain.chain_id: expected"),
            (f"UPDATE chain SET genesis = {flipped('genesis', 3)}", "chain.genesis: this is not"),
            ("DELETE FROM chain", "group 1, chain: has 0 rows instead of one"),
            ("UPDATE reservation SET height = 8", "reservation: height and round are 8:8, and"),
            ("UPDATE reservation SET round = 9", "reservation: height and round are 9:9, and"),
            ("UPDATE reservation SET again = '9:9'", "and in the column 'again' '9:9'"),
            ("DELETE FROM reservation", "reservation: has 0 rows instead of one"),
            (
                "UPDATE head SET transaction_total = 6 WHERE height = 2",
                "block 2, head.transaction_total: expected 5, found 6",
            ),
            (
                "UPDATE head SET hash = zeroblob(32) WHERE height = 2",
                "block 2, head.hash: ",
            ),
            (
                f"UPDATE head SET header = {flipped('header', 140)} WHERE height = 2",
                "block 2, head.header: its hash is",
            ),
            (
                "UPDATE head SET base = 9 WHERE height = 2",
                "block 2, head.header: this is not a header",
            ),
            (
                f"UPDATE header_base SET shared = {flipped('shared', 3)} WHERE number = 1",
                "header_base of number 1: no header that has it is whole",
            ),
            (
                f"UPDATE header_base SET shared = {flipped('shared', 80)} WHERE number = 1",
                "header_base of number 1: no header that has it is whole",
            ),
            (
                "INSERT INTO header_base VALUES (9, x'00')",
                "header_base of number 9: no block has it",
            ),
            ("UPDATE head SET header = 'text' WHERE height = 2", "block 2, head.header: it is not"),
            (
                f"UPDATE head SET certificate = {flipped('certificate', 40)} WHERE height = 2",
                "block 2, head.certificate: the signature of validator 0 does not hold",
            ),
            (
                f"UPDATE head SET certificate = {flipped('certificate', 7)} WHERE height = 2",
                "block 2, head.certificate: the signature of validator 0 does not hold",
            ),
            (
                "UPDATE head SET certificate = (SELECT certificate FROM head WHERE height = 3)"
                " WHERE height = 2",
                "block 2, head.certificate: the signature of validator 0 does not hold",
            ),
            (
                f"UPDATE body SET receipts = {flipped('receipts', 17, '09')} WHERE height = 2",
                "block 2, transaction 1, body.receipts: expected",
            ),
            (
                f"UPDATE body SET body = {flipped('body', 60)} WHERE height = 2",
                "block 2, transaction 0, body.body: the content is not the one",
            ),
            (
                f"UPDATE body SET body = {flipped('body', 45)} WHERE height = 2",
                "block 2, transaction 0, body.body: these are not the transactions of its header",
            ),
            ("UPDATE body SET body = x'00' WHERE height = 2", "block 2, body.body: the body ends"),
            ("UPDATE fingerprint SET prints = x'00'", "fingerprint.prints of segment 0: expected"),
            (
                f"UPDATE fingerprint SET prints = {flipped('prints', 9)}",
                "fingerprint.prints of segment 0: expected",
            ),
            ("UPDATE topic SET prefix = 7 WHERE idx = 1", "topic.prefix of topic 1: expected"),
            ("UPDATE topic SET name = 'other' WHERE idx = 1", "topic.name of topic 1: expected"),
            ("UPDATE topic SET address = x'' WHERE idx = 1", "topic.address of topic 1: expected"),
            ("UPDATE topic SET sender = x'' WHERE idx = 1", "topic.sender of topic 1: expected"),
            ("UPDATE topic SET created = 1 WHERE idx = 1", "topic.created of topic 1: expected"),
            ("UPDATE topic SET is_open = 1 WHERE idx = 2", "topic.is_open of topic 2: "),
            (
                "UPDATE topic SET sequence = 2 WHERE idx = 1",
                "topic.sequence of topic 1: ",
            ),
            ("UPDATE topic SET height = 5 WHERE idx = 1", "topic.height of topic 1: expected 6"),
            ("UPDATE topic SET idx = 9 WHERE idx = 1", "topic 9: the row should not be there"),
            ("DELETE FROM topic WHERE idx = 1", "topic 1: the row of"),
            ("UPDATE account SET address = x''", "account.address of account 0: expected"),
            (f"UPDATE account SET state = {flipped('state', 8)}", "account.state of account 0"),
            (
                "UPDATE topic_block SET first_sequence = 9 WHERE height = 3",
                "block 3, topic_block.first_sequence of topic 0: expected 3, found 9",
            ),
            (
                f"UPDATE topic_block SET positions = {flipped('positions', 3)} WHERE height = 3",
                "block 3, topic_block.positions of topic 0: expected",
            ),
            (
                "UPDATE topic_block SET topic = 2 WHERE height = 3",
                "block 3, topic_block of topic 0: the row is missing",
            ),
            (
                "INSERT INTO topic_block SELECT topic, 5, 7, positions FROM topic_block"
                " WHERE height = 3",
                "topic_block of topic 0: the row of block 5 should not be there",
            ),
            (
                "INSERT INTO topic_block SELECT 7, height, 7, positions FROM topic_block"
                " WHERE height = 3",
                "topic_block of topic 7: has 1 rows, and 0 belong to the chain; see block 3",
            ),
            (
                "INSERT INTO topic_block SELECT topic, 99, 7, positions FROM topic_block"
                " WHERE height = 3",
                "topic_block of topic 0: has 6 rows, and 5 belong to the chain; see block 99",
            ),
            (
                "UPDATE validator_set SET height = 6 WHERE generation = 1",
                "block 5, validator_set.height of generation 1: expected 5, found 6",
            ),
            (
                f"UPDATE validator_set SET encoded = {flipped('encoded', 50)} WHERE generation = 2",
                "block 7, validator_set.encoded of generation 2: expected",
            ),
            ("DELETE FROM validator_set WHERE generation = 2", "generation 2: the row is missing"),
            (
                "INSERT INTO validator_set VALUES (3, 9, x'00')",
                "validator_set: has 3 rows, and 2 belong to the chain",
            ),
            (
                "INSERT INTO history VALUES (8, 0, zeroblob(32))",
                "history: has 1 rows, and 0 belong to the chain",
            ),
            ("INSERT INTO fingerprint VALUES (1, x'00')", "fingerprint: has 2 rows, and 1 belong"),
            (
                "INSERT INTO body (height, receipts, body) VALUES (99, x'', x'')",
                "block 99, body: the row belongs to no",
            ),
            (
                "INSERT INTO head VALUES (-3, 0, x'', x'', x'', NULL)",
                "block -3, head: the row",
            ),
            (
                "CREATE TRIGGER t AFTER DELETE ON head BEGIN VALUES (1); END",
                "'t' should not be",
            ),
            ("CREATE TABLE extra (x)", "'extra' should not be there"),
            ("DROP INDEX topic_prefix", "'topic_prefix' is not the one that svcbroker makes"),
            ("PRAGMA user_version = 99", "ledger.sqlite has schema 99"),
        ):
            with self.subTest(statement=statement):
                self.change(statement)
                self.bad(words)
                self.restore()

    def test_oneChangeMakesOneFinding(self) -> None:
        """A change of one column makes one finding, wherever it can be known so exactly."""
        for statement in (
            "UPDATE topic SET sequence = 2 WHERE idx = 1",
            "UPDATE head SET hash = zeroblob(32) WHERE height = 2",
            f"UPDATE head SET header = {flipped('header', 81)} WHERE height = 2",
            f"UPDATE head SET certificate = {flipped('certificate', 40)} WHERE height = 2",
            f"UPDATE body SET receipts = {flipped('receipts', 17, '09')} WHERE height = 2",
            "UPDATE topic_block SET first_sequence = 9 WHERE height = 3",
        ):
            with self.subTest(statement=statement):
                self.change(statement)
                damages = [line for line in self.bad() if not line.startswith("note: ")]
                self.assertEqual(len(damages), 1)
                self.restore()

    def test_findingsBeyondLimitAreCounted(self) -> None:
        """Findings that are too many are counted."""
        self.change("UPDATE head SET certificate = x''")
        audited = self.audit(limit=3)
        (chain,) = audited.chains
        self.assertEqual((len(chain.findings.kept), chain.findings.damageCount), (3, 9))

    def test_auditContinuesBehindLostContent(self) -> None:
        """Behind a block whose content is lost, the rest is still checked."""
        self.change("UPDATE body SET body = x'00' WHERE height = 2")
        self.change(f"UPDATE head SET certificate = {flipped('certificate', 40)} WHERE height = 8")
        self.change(f"UPDATE body SET body = {flipped('body', 45)} WHERE height = 9")
        found = self.bad(
            "block 2, body.body",
            "note: group 1, block 2, body: the state after this block is unknown",
            "block 8, head.certificate: the signature of validator 0",
            "block 9, transaction 0, body.body: these are not the transactions",
        )
        self.assertEqual(len(found), 4)

    def test_rowsBeforeTheDamageAreCompared(self) -> None:
        """If execution ends early, the rows of the blocks before are compared all the same."""
        self.change("UPDATE body SET body = x'00' WHERE height = 4")
        before = lines(self.audit())
        self.change(f"UPDATE fingerprint SET prints = {flipped('prints', 9)}")
        self.change("UPDATE topic_block SET first_sequence = 9 WHERE height = 3")
        self.change("UPDATE topic_block SET first_sequence = 9 WHERE height = 6")
        found = self.bad(
            "fingerprint.prints of segment 0: expected",
            "block 3, topic_block.first_sequence of topic 0: expected 3, found 9",
        )
        self.assertEqual(len(found), len(before) + 2)

    def test_noTransactionLastsThroughAPause(self) -> None:
        """Between two batches a running broker can begin its write-ahead log anew."""
        self.patch(_audit, "BATCH_BLOCKS", 3)
        store = Store.open(self.path)
        self.addCleanup(store.close)
        store.reserve(store.reservation()[0], 99)
        isBusy: list[int] = []

        def pause() -> None:
            checkpoint = store._writing.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            isBusy.append(checkpoint.fetchone()[0])

        audited = audit(self.dataDir, pause=pause)
        self.assertTrue(audited.isGood, lines(audited))
        self.assertGreater(len(isBusy), 1)
        self.assertEqual({*isBusy}, {0})

    def test_unreadablePageIsReported(self) -> None:
        """A page that SQLite cannot read."""
        data = bytearray(self.path.read_bytes())
        page = int(self.value("SELECT rootpage FROM sqlite_schema WHERE name = 'head'"))
        data[(page - 1) * 4096 : page * 4096] = b"\xff" * 4096
        self.path.write_bytes(data)
        self.bad("ledger.sqlite: it cannot be read")
        self.path.write_bytes(b"")
        self.bad("ledger.sqlite: ", "cut short")
