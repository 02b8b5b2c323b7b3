"""
Tests for C{svcbroker chain audit}, C{export}, C{import} and C{backup}: what they take, write and
answer.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

from svcbroker.commands import inputs, main
from svcbroker.daemon.directory import lockDataDirectory
from tests.archive.erasable import makeErasable
from tests.archive.support import ArchiveTestCase
from tests.test_files import makeSpecial


class Output(io.TextIOWrapper):
    """A stream for text and bytes that can be looked at."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    def value(self) -> bytes:
        """What was written."""
        stream: Any = self.buffer
        data: bytes = stream.getvalue()
        return data


class CommandTestCase(ArchiveTestCase):
    """
    Runs commands on a data directory.
    """

    def setUp(self) -> None:
        super().setUp()
        self.other = self.dataDir.with_name("other")

    def main(self, *arguments: object, input: bytes = b"") -> tuple[int, bytes, str]:
        """The exit code of a command, and what it writes."""
        output, errors, given = Output(), io.StringIO(), io.TextIOWrapper(io.BytesIO(input))
        for name, stream in (("stdout", output), ("stderr", errors), ("stdin", given)):
            self.patch(sys, name, stream)
        code = main([str(each) for each in arguments])
        return code, output.value(), errors.getvalue()

    def lines(self, expected: int, *arguments: object) -> list[str]:
        """What a command writes, in lines."""
        code, output, errors = self.main(*arguments)
        self.assertEqual((code, errors), (expected, ""), output)
        return output.decode().splitlines()

    def refused(self, words: str, *arguments: object, code: int = 2, input: bytes = b"") -> None:
        """A command that says why not."""
        found, _, errors = self.main(*arguments, input=input)
        self.assertEqual(found, code, errors)
        self.assertIn(words, errors)
        self.assertEqual(errors.count("\n"), 1)


class ErasedTests(CommandTestCase):
    """
    With a chain that has erased events.
    """

    def test_restoreTellsContentsThatLaterBlocksErase(self) -> None:
        """Up to a block before an erasure, contents are missing that nothing has erased; up to the
        erasure, none are."""
        self.finish(makeErasable(self.directory))
        first, second = self.lines(1, "restore", self.dataDir, self.other, "--height=4")
        self.assertIn("group 1: restored up to block 4:", first)
        self.assertIn("group 1: 3 events came without content", second)
        self.assertEqual(self.lines(1, "audit", self.other)[-1], "NOT GOOD")
        third = self.dataDir.with_name("third")
        self.assertEqual(len(self.lines(0, "restore", self.dataDir, third, "--height=5")), 1)
        fourth = self.dataDir.with_name("fourth")
        [line] = self.lines(1, "restore", "--json", self.dataDir, fourth, "--height=4")
        told = json.loads(line)
        self.assertEqual((told["group"], told["missing"]), ("1", 3))
        self.assertEqual(self.lines(0, "audit", third)[-1], "good")


class CommandTests(CommandTestCase):
    """
    From a command line to an exit code.
    """

    def setUp(self) -> None:
        super().setUp()
        self.chain = self.makeDirectory()
        self.tip = f"{self.chain.head.height}:{self.chain.head.hash.hex()}"

    def test_auditGood(self) -> None:
        """A good data directory, and the checkpoint to keep."""
        self.assertEqual(
            self.lines(0, "audit", self.dataDir),
            [f"group 1: 9 blocks, 16 transactions, 3 topics: good; checkpoint {self.tip}", "good"],
        )
        self.assertEqual(self.lines(0, "audit", "--group=1", self.directory)[-1], "good")

    def test_auditBad(self) -> None:
        """What is found, and how much is not shown."""
        self.change("UPDATE head SET certificate = x''")
        lines = self.lines(1, "audit", "--limit", "2", self.dataDir)
        self.assertEqual(
            [lines[0], *lines[2:]],
            [
                "group 1, block 1, head.certificate: the data ends early",
                "group 1: 7 more findings are not shown (--limit)",
                "group 1: 9 blocks, 16 transactions, 3 topics: NOT GOOD: 9 findings; checkpoint "
                + self.tip,
                "NOT GOOD",
            ],
        )

    def test_auditJson(self) -> None:
        """A line for each finding and each chain."""
        self.change("UPDATE topic SET sequence = 7 WHERE idx = 0")
        finding, chain = map(json.loads, self.lines(1, "audit", "--json", self.dataDir))
        self.assertEqual(
            finding,
            {
                "group": "1",
                "block": None,
                "transaction": None,
                "place": "topic.sequence of topic 0",
                "problem": "expected 8, found 7",
                "damage": True,
            },
        )
        self.assertEqual(
            chain,
            {
                "group": "1",
                "good": False,
                "audited": True,
                "chain": self.chain.genesis.chain.hex(),
                "checkpoint": self.tip,
                "engine": False,
                "final": int(self.tip.split(":")[0]),
                "transactions": 16,
                "topics": 3,
                "erased": 0,
                "damages": 1,
                "notes": 0,
            },
        )

    def test_checkpointsFromArgumentsAndFiles(self) -> None:
        """On the command line, and in files of either form."""
        wrong = f"3:{'0' * 64}"
        file = self.dataDir.with_name("checkpoints")
        self.lines(0, "audit", "--checkpoint", self.tip, self.dataDir)
        lines = self.lines(
            1, "audit", "--checkpoint", wrong, f"--checkpoint={self.tip}", self.dataDir
        )
        self.assertIn(
            f"group 1, block 3, checkpoint: the block is not the one of checkpoint {wrong}",
            lines[0],
        )
        for text in (
            wrong,
            f"\n{self.tip}\n\n{wrong}\n",
            json.dumps({"checkpoint": wrong, "group": "1"}),
        ):
            file.write_text(text)
            self.lines(1, "audit", "--checkpoint", file, self.dataDir)
        # A checkpoint of a group whose chain is gone; not where that is not asked for.
        file.write_text(json.dumps({"checkpoint": wrong, "group": "2"}) + "\n" + self.tip)
        lines = self.lines(1, "audit", "--checkpoint", file, self.dataDir)
        self.assertIn("data directory: there is no chain of group 2", lines)
        self.lines(0, "audit", "--group=1", "--checkpoint", file, self.dataDir)
        file.write_text("\n")
        self.refused(f"--checkpoint: {file} is empty", "audit", "--checkpoint", file, self.dataDir)
        self.patch(inputs, "MAX_SIZE", len(self.tip) + 1)
        file.write_text(f"{self.tip}\n{wrong}\n")
        self.refused(f"{file} is larger than", "audit", "--checkpoint", file, self.dataDir)
        self.patch(inputs, "MAX_SIZE", 1000)
        file.write_text(f"{self.tip}\nnonsense")
        self.refused(
            f"{file}, line 2: this is not a checkpoint", "audit", "--checkpoint", file, self.dataDir
        )
        self.refused(
            "'nowhere' is neither HEIGHT:HASH nor a file",
            "audit",
            "--checkpoint=nowhere",
            self.dataDir,
        )
        self.finish(self.makeChain("2"), self.dataDir / "2")
        self.refused(
            "which of the groups is it of? Give --group",
            "audit",
            f"--checkpoint={self.tip}",
            self.dataDir,
        )
        self.lines(0, "audit", "--group=1", f"--checkpoint={self.tip}", self.dataDir)

    def test_wrongUsageIsRefused(self) -> None:
        """What cannot even be tried."""
        self.other.mkdir()
        for words, *arguments in (
            ("has no chain", "audit", self.other),
            ("has no chain of group '7'", "audit", "--group=7", self.dataDir),
            ("No such file", "audit", self.dataDir / "nowhere"),
            ("--limit: not a number", "audit", "--limit=x", self.dataDir),
            ("usage: svcbroker chain audit [options] DATA-DIR", "audit"),
            ("has no chain", "export", self.other, "-"),
            ("has no chain of group '7'", "export", "--group=7", self.dataDir, "-"),
            ("--from: not a height", "export", "--from=-1", self.dataDir, "-"),
            (
                "there are no blocks 12 to 9: the chain has 9",
                "export",
                "--from=12",
                self.dataDir,
                "-",
            ),
            ("No such file", "import", self.other / "nowhere", self.other),
            ("has no chain", "backup", self.other, self.other / "x"),
            ("exists already", "backup", self.dataDir, self.dataDir),
            (
                f"{self.other}/x/y cannot be made: No such file",
                "backup",
                self.dataDir,
                self.other / "x/y",
            ),
        ):
            with self.subTest(arguments=arguments):
                self.refused(str(words), *arguments)

    def test_exportPipedIntoImport(self) -> None:
        """From standard output into standard input."""
        code, data, errors = self.main("export", self.dataDir, "-")
        self.assertEqual((code, errors), (0, f"group 1: exported up to block {self.tip}\n"))
        code, output, errors = self.main("import", "-", self.other, input=data)
        self.assertEqual((code, errors), (0, ""))
        self.assertEqual(
            output.decode(),
            f"group 1: 9 blocks added, 0 were there already; the chain ends at block {self.tip}\n",
        )
        self.assertEqual(self.lines(0, "audit", self.other)[-1], "good")
        self.refused("is cut off at byte 99", "import", "-", self.other, input=data[:99], code=1)

    def test_exportedFileIsPrivateAndNew(self) -> None:
        """A file is never overwritten, and only its owner may read it."""
        file = self.dataDir.with_name("chain")
        code, _, _ = self.main("export", "--to=4", self.dataDir, file)
        self.assertEqual((code, file.stat().st_mode & 0o777), (0, 0o600))
        self.refused("it exists already", "export", self.dataDir, file)
        wrong = self.dataDir.with_name("wrong")
        self.refused("there are no blocks", "export", "--from=0", self.dataDir, wrong)
        self.assertFalse(wrong.exists(), "it is in the way of the next try")
        self.assertIn("4 blocks added", self.lines(0, "import", file, self.other)[0])
        self.refused("of group 1, not of group 2", "import", "--group=2", file, self.other, code=1)

    def test_specialFilesAreNamed(self) -> None:
        """A FIFO, a socket or a device where a file should be: nothing waits for it."""
        for number, (special, kind) in enumerate(makeSpecial(self.dataDir.with_name("x")).items()):
            self.refused(f"{special}: it is {kind}, not a file", "import", special, self.other)
            self.refused(f"{special}: it is {kind}", "contradict", "--check", special)
            for name in ("", "-wal", "-shm", "-journal"):
                path = self.path.with_name(self.path.name + name)
                aside = path.with_name("aside")
                if path.exists():
                    path.rename(aside)
                path.symlink_to(special)
                words = f"{path} is {kind}, not a file: move it away"
                target = self.dataDir.with_name(f"restored{number}{name}")
                self.refused(words, "restore", self.dataDir, target, code=1)
                self.refused(words, "export", self.dataDir, f"{target}.export", code=1)
                self.refused(words, "backup", self.dataDir, f"{target}.backup", code=1)
                code, output, errors = self.main("audit", self.dataDir)
                self.assertEqual((code, errors), (1, ""))
                self.assertIn(words, output.decode())
                path.unlink()
                if aside.exists():
                    aside.rename(path)
        self.assertEqual(self.lines(0, "audit", self.dataDir)[-1], "good")

    def test_importInUse(self) -> None:
        """Nothing is imported below a running broker."""
        lock = lockDataDirectory(self.dataDir)
        self.addCleanup(lock.release)
        self.refused("another svcbroker is using", "import", "-", self.dataDir)

    def test_backupIsAudited(self) -> None:
        """A copy, looked over wholly if that is wanted."""
        self.assertEqual(
            self.lines(0, "backup", "--audit", self.dataDir, self.other),
            [f"group 1: copied up to block {self.tip}", f"{self.other} is good"],
        )
        self.change("UPDATE body SET receipts = x'' WHERE height = 1")
        third = self.dataDir.with_name("third")
        lines = self.lines(1, "backup", "--audit", self.dataDir, third)
        self.assertIn("block 1, body.receipts: expected 27 bytes, found 0", lines[1])
        self.assertEqual(lines[-1], f"{third} is NOT GOOD")
        self.path.write_bytes(self.path.read_bytes()[:9000])
        self.refused("nothing was copied", "backup", self.dataDir, Path("x"), code=1)

    def test_copiesAreToldAsJson(self) -> None:
        """Findings go to standard error then."""
        [line] = self.lines(0, "backup", "--audit", "--json", self.dataDir, self.other)
        expected = {"groups": {"1": self.tip}, "audited": True, "good": True}
        self.assertEqual(json.loads(line), expected)
        _, data, _ = self.main("export", self.dataDir, "-")
        code, output, errors = self.main(
            "import", "--json", "-", self.dataDir.with_name("third"), input=data
        )
        self.assertEqual((code, errors), (0, ""))
        expected = {"group": "1", "tip": self.tip, "known": 0, "added": 9, "missing": 0}
        self.assertEqual(json.loads(output), expected)
        self.change("UPDATE body SET receipts = x'' WHERE height = 1")
        fourth = self.dataDir.with_name("fourth")
        code, output, errors = self.main("backup", "--audit", "--json", self.dataDir, fourth)
        self.assertEqual((code, json.loads(output)["good"]), (1, False))
        self.assertIn("block 1, body.receipts: expected 27 bytes, found 0", errors)

    def test_progressBarOnRequest(self) -> None:
        """A bar, where it is wanted."""
        file = self.dataDir.with_name("chain")
        for arguments in (
            ("audit", self.dataDir),
            ("export", self.dataDir, file),
            ("import", file, self.other),
        ):
            code, _, errors = self.main(*arguments, "--progress")
            self.assertEqual(code, 0)
            self.assertIn("9/9", errors)
