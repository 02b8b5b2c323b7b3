"""
mosquitto's own broker tests, and the table of them in docs.

They are in mosquitto's source, which the environment variable C{MOSQUITTO_SOURCE} names::

    apt-get source mosquitto
"""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.needed import neededProgram

PROGRAM = Path(__file__).with_name("mosquittosuite.py")
ROOT = PROGRAM.parents[2]
TABLE = ROOT / "docs" / "mosquitto-tests.csv"

JOBS = 6
"""How many files run at the same time. They mostly wait."""

TRIES = 3
"""How often a file is run whose result is not that of the table: many of them measure time."""

TIMEOUT = 900


def wanted() -> dict[str, str]:
    """The result of each file, as the table has it."""
    with TABLE.open(newline="") as file:
        return {row["File"]: row["Result"] for row in csv.DictReader(file)}


class SuiteTests(SynchronousTestCase):
    """
    The files of C{test/broker} that mosquitto's own C{test.py} names.
    """

    timeout = 3 * TIMEOUT

    def setUp(self) -> None:
        source = os.environ.get("MOSQUITTO_SOURCE")
        if not source:
            raise SkipTest("MOSQUITTO_SOURCE does not name mosquitto's source")
        shell, _ = neededProgram("sh"), neededProgram("openssl")
        self.folder = Path(self.mktemp()).absolute()
        shutil.copytree(Path(source, "test"), self.folder / "test")
        keys = self.folder / "test" / "ssl"
        # Debian's source has no keys.
        subprocess.run([shell, "gen.sh"], cwd=keys, check=True, capture_output=True)

    def files(self) -> list[str]:
        """The files that there are."""
        broker = self.folder / "test" / "broker"
        named = re.findall(r"^\s*\(\d+, '\./(.+?)'\)", (broker / "test.py").read_text(), re.M)
        return [name for name in named if (broker / name).exists()]

    def run_(self, files: Iterable[str]) -> dict[str, str]:
        """The results of files, as the table would have them."""
        done = subprocess.run(
            [sys.executable, "-P", str(PROGRAM), str(self.folder), str(JOBS), *files],
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        words = {"passed": "passes", "failed": "fails"}
        lines = [line.split(" ", 2) for line in done.stdout.splitlines()]
        self.outputs.update((name, why) for _, name, why in lines)
        return {name: words.get(how, f"``{why}``") for how, name, why in lines}

    def test_resultsAreThoseOfTheTable(self) -> None:
        """A file that is new, or goes otherwise, needs a line with a reason, or a mended broker."""
        table = wanted()
        self.outputs: dict[str, str] = {}
        files = self.files()
        self.assertEqual(sorted(files), sorted(table))
        found: dict[str, str] = {}
        others = files
        for _ in range(TRIES):
            found |= self.run_(others)
            others = [name for name in files if found.get(name) != table[name]]
            if not others:
                return
        for name in others:
            output = Path(self.outputs.get(name, ""))
            if output.is_file():
                sys.stderr.write(f"== {name}\n{output.read_text()}\n")
        self.fail(f"not as the table says: { {name: found.get(name) for name in others} }")
