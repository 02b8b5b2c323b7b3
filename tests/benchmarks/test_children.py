"""
Tests for L{benchmarks.children}: no child process is left.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from benchmarks.children import CHECKOUT
from tests.waiting import TIMEOUT

_PROGRAM = """
import os, subprocess, sys
from pathlib import Path
from benchmarks.children import Ended, household, start

# A server that starts another one in a session of its own, and ends: as RabbitMQ's script does.
SCRIPT = "setsid sleep 1000 >/dev/null 2>&1 & echo $!"
try:
    with household():
        start(["sleep", "1000"], Path(sys.argv[1]), os.sched_getaffinity(0))
        lost = subprocess.run(["sh", "-c", SCRIPT], stdout=subprocess.PIPE)
        print(int(lost.stdout), flush=True)
        if sys.argv[2] == "error":
            raise ValueError("broken")
        sys.stdin.read()
except (Ended, ValueError) as error:
    print(error)
"""


class HouseholdTests(SynchronousTestCase):
    """
    The processes of a run end with it.
    """

    def end(self, how: str, number: int | None = None) -> str:
        """
        Run something that starts two processes, of which one has lost its parent.

        @return: what it says at its end.
        """
        directory = Path(self.mktemp()).resolve()
        directory.mkdir()
        with subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(directory), how],
            cwd=CHECKOUT,
            env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as running:
            self.addCleanup(running.kill)
            assert running.stdout is not None
            lost = int(running.stdout.readline())
            if number is not None:
                running.send_signal(number)
            said, _ = running.communicate(timeout=TIMEOUT)
        self.assertRaises(ProcessLookupError, os.kill, lost, 0)
        left = [path for path in Path("/proc").glob("[0-9]*/cwd") if _isIn(path, directory)]
        self.assertEqual(left, [])
        return said.strip()

    def test_signalEndsRunAndChildren(self) -> None:
        """A signal ends the run, and all of them."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self.assertEqual(self.end("wait", number), number.name)

    def test_errorEndsChildren(self) -> None:
        """So does an error."""
        self.assertEqual(self.end("error"), "broken")

    def test_endOfRunEndsChildren(self) -> None:
        """And so does its good end."""
        self.assertEqual(self.end("wait"), "")


def _isIn(path: Path, directory: Path) -> bool:
    try:
        return path.readlink() == directory
    except OSError:
        return False
