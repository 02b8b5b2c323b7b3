"""
What earlier releases have written is read as it is, and later releases are refused in plain words.
"""

from __future__ import annotations

import csv
import io
import os
import sqlite3
import sys
import tarfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec.json import encode
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.archive import BackupRefused, _audittables, audit, backUp, readChain
from svcbroker.commands import main
from svcbroker.errors import LedgerUnavailable
from svcbroker.ledgers.pbft._pbftledger import openChain
from svcbroker.model import EventId
from svcbroker.proofs import verifyProof
from svcbroker.storage import MetadataFile, StorageError, Store, compatibility, metadataChecksum
from svcbroker.storage._schema import runSteps, schemaSteps

SAMPLES = Path(__file__).parent / "samples"
PAIRS = Path(__file__).parents[2] / "docs" / "pairs.csv"
NEXT = "CREATE TABLE extra (id INTEGER PRIMARY KEY);\n"


def contentsOf(directory: Path) -> Mapping[str, bytes]:
    """The bytes of all files in a directory."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


class SampleTestCase(SynchronousTestCase):
    """
    Runs commands on samples.

    @ivar place: a directory for the test.
    """

    def setUp(self) -> None:
        temporary = TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.place = Path(temporary.name)

    def extract(self, name: str, under: str = "") -> Path:
        """Unpack a sample."""
        place = self.place / under / name
        with tarfile.open(SAMPLES / f"{name}.tar.xz") as archive:
            archive.extractall(place, filter="data")
        return place

    def command(self, *words: object) -> tuple[int, str, str]:
        """
        Run a command.

        @return: the exit code, and what it has written to standard output and to standard error.
        """
        output = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
        errors = io.StringIO()
        self.patch(sys, "stdout", output)
        self.patch(sys, "stderr", errors)
        code = main([str(each) for each in words])
        written = output.buffer.getvalue()
        return code, written.decode("utf-8", "replace"), errors.getvalue()


class PairTests(SampleTestCase):
    """
    Tests of everything that was ever written with everything that reads it.
    """

    def test_tableOfPairsIsTrue(self) -> None:
        """The table in the documentation says what each reader does with each sample."""
        names = sorted(path.name.removesuffix(".tar.xz") for path in SAMPLES.glob("*.tar.xz"))
        found = []
        for name in names:
            found.append({"written by": name, **self.pairs(self.extract(name))})
        columns = ["written by", *self.readers(self.place)]
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)
        self.assertEqual(text.getvalue(), PAIRS.read_text())

    def test_everyOlderSchemaHasASample(self) -> None:
        """There is a data directory of each schema of a ledger before the newest."""
        for number in range(1, len(schemaSteps())):
            self.assertTrue((SAMPLES / f"schema{number}.tar.xz").exists(), number)

    def pairs(self, sample: Path) -> Mapping[str, str]:
        """The outcome of each reader with one sample. Nothing of the sample changes."""
        found = {}
        for reader, (needed, read) in self.readers(sample).items():
            if not (sample / needed).exists():
                continue
            before = contentsOf(sample)
            code, reason = read()
            self.assertIn(code, (0, 2), f"{sample.name}, {reader}: {reason}")
            found[reader] = "reads" if code == 0 else "refuses"
            if code:
                self.assertRegex(reason, "another format|start a broker of this version once")
            self.assertEqual(contentsOf(sample), before, reader)
        return found

    def readers(self, sample: Path) -> Mapping[str, tuple[str, Callable[[], tuple[int, str]]]]:
        """All readers: which file of a sample each one needs, and how it is called."""
        data, proof = sample / "data", sample / "proof.json"

        def run(*words: object) -> Callable[[], tuple[int, str]]:
            def read() -> tuple[int, str]:
                code, output, errors = self.command(*words)
                return code, errors or output

            return read

        def verify() -> tuple[int, str]:
            genesis = sample.with_name(f"{sample.name}.genesis")
            genesis.write_text(self.command("genesis", data)[1])
            return run("verify", proof, "--genesis", genesis)()

        export = sample.with_name(f"{sample.name}.export")
        return {
            "audit": ("data", run("audit", data)),
            "genesis": ("data", run("genesis", data)),
            "checkpoint": ("data", run("checkpoint", data)),
            "export": ("data", run("export", data, export)),
            "prove": ("data", lambda: self.prove(data)),
            "backup": ("data", lambda: self.backUp(data)),
            "broker": ("data", lambda: self.goOn(sample)),
            "import": ("export", run("import", sample / "export", export.with_suffix(".in"))),
            "verify": ("proof.json", verify),
            "verify (bundle)": ("bundle.zip", run("verify", sample / "bundle.zip")),
        }

    def prove(self, data: Path) -> tuple[int, str]:
        """Prove each event of a topic, and verify the proofs."""
        try:
            with readChain(data / "1") as prover:
                tip = prover.checkpoint(None).height
                # Opening both topics took two blocks; each event is alone in its own.
                for sequence, height in ((1, 3), (2, 4), (3, 5)):
                    event = EventId("071ee443", sequence, height)
                    proof = encode(prover.event(event))
                    verified = verifyProof(proof, chain=bytes.fromhex(prover.genesis().chain))
                    self.assertEqual(verified.eventId, str(event))
                self.assertGreaterEqual(tip, 8)
        except StorageError as error:
            return 2, str(error)
        return 0, ""

    def backUp(self, data: Path) -> tuple[int, str]:
        """Back it up, and audit the backup."""
        try:
            backUp(data, data.with_name("backup"))
        except (StorageError, BackupRefused) as error:
            return 2, str(error)
        target = data.with_name("backup")
        self.assertTrue(audit(target).isGood)
        for path in sorted(target.rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        target.rmdir()
        return 0, ""

    def goOn(self, sample: Path) -> tuple[int, str]:
        """Open another copy as a broker does, which upgrades it, and audit it."""
        data = self.extract(sample.name, "upgraded") / "data"
        MetadataFile.open(data / "notes.sqlite").close()
        try:
            openChain(data / "1", "1", 4, time.time, os.urandom).store.close()
        except LedgerUnavailable as error:
            return 2, str(error)
        audited = audit(data)
        self.assertTrue(audited.isGood, list(audited.all()))
        return 0, ""


class UnreadTests(SampleTestCase):
    """
    Tests of what cannot be audited: it is neither good nor damaged.
    """

    def test_unknownFormatOfChainIsNoDamage(self) -> None:
        """A chain of an unknown format ends an audit with 2 and one reason."""
        data = self.extract("schema1") / "data"
        code, output, errors = self.command("audit", data)
        self.assertEqual(code, 2)
        self.assertEqual(output.splitlines()[-1], "NOT AUDITED")
        self.assertIn("only headers of formats 2 to 4 are known", errors)
        code, output, _ = self.command("audit", "--json", data)
        self.assertEqual(code, 2)
        self.assertIn('"audited": false, "damages": 0', output.splitlines()[-1])

    def test_newerSchemaIsNoDamage(self) -> None:
        """A file of a newer schema ends an audit with 2, also beside a chain that is good."""
        data = self.extract("schema3") / "data"
        with closing(sqlite3.connect(data / "notes.sqlite")) as connection:
            connection.execute("PRAGMA user_version = 9")
        code, output, errors = self.command("audit", data)
        self.assertEqual(code, 2)
        self.assertIn("group 1: 8 blocks, 8 transactions, 2 topics: good", output)
        self.assertIn("notes.sqlite has schema 9, and this svcbroker reads schemas up to", errors)

    def test_damageComesFirst(self) -> None:
        """Where one file is damaged and another one is not read, the audit finds damage."""
        data = self.extract("schema3") / "data"
        with closing(sqlite3.connect(data / "notes.sqlite")) as connection:
            connection.execute("PRAGMA user_version = 9")
        with closing(sqlite3.connect(data / "1" / "ledger.sqlite")) as connection:
            connection.execute("UPDATE topic SET sequence = 77")
            connection.commit()
        code, output, _ = self.command("audit", data)
        self.assertEqual((code, output.splitlines()[-1]), (1, "NOT GOOD"))

    def test_damagedOldFileIsFound(self) -> None:
        """A file of an older schema is compared with that schema."""
        sample = self.extract("schema3")
        path = sample / "data" / "1" / "ledger.sqlite"
        whole = path.read_bytes()
        for statement, words in (
            ("DROP TABLE history", "'history' is not the one that svcbroker makes"),
            ("CREATE TABLE key_use (owner)", "'key_use' should not be there"),
            ("UPDATE reservation SET again = '7:7'", "in the column 'again' '7:7'"),
            ("DELETE FROM body WHERE height = 3", "block 3"),
            ("PRAGMA user_version = 2", "'reservation' is not the one that svcbroker makes"),
            ("PRAGMA user_version = 4", "'topic' is not the one that svcbroker makes"),
        ):
            with self.subTest(statement=statement):
                with closing(sqlite3.connect(path)) as connection:
                    connection.execute(statement)
                    connection.commit()
                code, output, _ = self.command("audit", sample / "data")
                self.assertEqual(code, 1)
                self.assertIn(words, output)
                path.write_bytes(whole)


class LaterTests(SampleTestCase):
    """
    Tests of files of later schemas, with steps that do not exist yet.
    """

    def later(self, since: int, release: str = "7.8.9") -> Path:
        """A data directory whose ledger has the next schema, compatible since another one."""
        data = self.extract("schema4") / "data"
        steps, path = schemaSteps(), data / "1" / "ledger.sqlite"
        number = len(steps) + 1
        row = f"INSERT INTO compatible VALUES ({number}, {since}, '{release}')"
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            runSteps(connection, [*steps, NEXT + row], 4)
        return data

    def test_compatibleFileIsUsed(self) -> None:
        """A ledger of a later schema is read and written where that says that this one may."""
        data = self.later(len(schemaSteps()))
        code, output, errors = self.command("audit", data)
        self.assertEqual((code, errors), (0, ""), output)
        self.assertIn("note: group 1, ledger.sqlite: a later svcbroker wrote it", output)
        store = Store.open(data / "1" / "ledger.sqlite")
        store.reserve(99, 1)
        store.close()

    def test_olderFileHasNoRowsOfLaterSchemas(self) -> None:
        """A ledger that was written before a schema is good without the row of that schema."""
        data = self.extract("schema4") / "data"
        MetadataFile.open(data / "notes.sqlite").close()
        openChain(data / "1", "1", 4, time.time, os.urandom).store.close()
        number = len(schemaSteps()) + 1
        rows = [*compatibility(), (number, number, "7.8.9")]
        self.patch(_audittables, "compatibility", lambda: rows)
        found = audit(data)
        self.assertTrue(found.isGood, list(found.all()))

    def test_incompatibleFileNamesRelease(self) -> None:
        """Other ones are refused, with the release that is needed."""
        data = self.later(len(schemaSteps()) + 1)
        before = contentsOf(data)
        for words in (("audit", data), ("genesis", data), ("export", data, self.place / "file")):
            code, _, errors = self.command(*words)
            self.assertEqual(code, 2, words)
            self.assertIn("use svcbroker 7.8.9 or later", errors)
        refused = self.assertRaises(StorageError, Store.open, data / "1" / "ledger.sqlite")
        self.assertIn("run svcbroker 7.8.9 or later, or restore", str(refused))
        self.assertEqual(contentsOf(data), before)

    def test_fileThatNamesNothingIsRefused(self) -> None:
        """A step that does not say which software may use the file makes it refused."""
        data = self.later(1)
        path = data / "1" / "ledger.sqlite"
        for statement in (
            "UPDATE compatible SET release = 'rm -rf' || char(10), since = 99",
            "UPDATE compatible SET since = 'x'",
            "DELETE FROM compatible WHERE version = (SELECT max(version) FROM compatible)",
            "DROP TABLE compatible",
        ):
            with self.subTest(statement=statement):
                with closing(sqlite3.connect(path)) as connection:
                    connection.execute(statement)
                    connection.commit()
                refused = self.assertRaises(StorageError, Store.open, path)
                self.assertIn("run a newer svcbroker, or", str(refused))

    def test_metadataNameRelease(self) -> None:
        """Notes of a later version are used or refused by what they say of it."""
        path = self.place / "notes.sqlite"
        MetadataFile.open(path).close()
        for value, needed in (
            (b"3 2 7.8.9", None),
            (b"3 3 7.8.9", "use svcbroker 7.8.9 or later"),
            (b"2 2 7.8.9", "use a newer svcbroker"),
            (b"3 2 rm -rf", "use a newer svcbroker"),
        ):
            with self.subTest(value=value):
                with closing(sqlite3.connect(path)) as connection:
                    connection.execute("PRAGMA user_version = 3")
                    checksum = metadataChecksum("", "compatible", value)
                    connection.execute("UPDATE note SET value = ?, checksum = ?", (value, checksum))
                    connection.commit()
                if needed is None:
                    MetadataFile.open(path).close()
                    continue
                refused = self.assertRaises(StorageError, MetadataFile.open, path)
                self.assertIn(needed, str(refused))
