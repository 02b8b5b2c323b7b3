"""
Tests for the simulator's command line.
"""

from __future__ import annotations

import shlex
import sys
from io import StringIO

from twisted.trial.unittest import SynchronousTestCase

from tools import simulate
from tools.simulation import runs
from tools.simulation.runs import Finding


class CommandTests(SynchronousTestCase):
    def run_(self, *arguments: str) -> tuple[int, str]:
        """Run the command, and return its status and output."""
        output = StringIO()
        self.patch(sys, "stdout", output)
        self.patch(simulate, "quiet", lambda: None)
        self.patch(runs, "quiet", lambda: None)
        status = simulate.main(arguments)
        self.flushLoggedErrors()
        return status, output.getvalue()

    def test_noViolationGivesStatusZero(self) -> None:
        """And a summary."""
        status, said = self.run_("--seeds", "12", "--jobs", "1", "--nodes", "4")
        self.assertEqual(status, 0)
        self.assertIn("12 schedules in ", said)
        self.assertIn("faults and Byzantine actions", said)
        self.assertIn("\n0 violations\n", said)

    def test_missedProbesGiveStatusOne(self) -> None:
        """Where they are asked for."""
        asked = ("--seeds", "2", "--jobs", "1", "--nodes", "4", "--system", "cluster")
        self.assertEqual(self.run_(*asked)[0], 0)
        status, said = self.run_(*asked, "--probes")
        self.assertEqual(status, 1)
        self.assertIn("\nno run has taken: ", said)
        self.patch(runs, "declaredProbes", list)
        self.assertEqual(self.run_(*asked, "--probes")[0], 0)

    def test_jobsGiveTheSameResult(self) -> None:
        asked = ("--seeds", "12", "--nodes", "4", "--first", "40")
        one, two = (self.run_(*asked, "--jobs", jobs)[1].splitlines() for jobs in ("1", "2"))
        self.assertEqual(one[1:], two[1:])

    def test_timeLimitEndsTheRun(self) -> None:
        status, said = self.run_("--seconds", "1", "--jobs", "1", "--nodes", "4")
        self.assertEqual(status, 0)
        self.assertIn(" schedules in ", said)

    def test_badNumbersAreUsageErrors(self) -> None:
        for words in ("--seeds -3", "--seeds 0", "--jobs 0", "--seconds nan", "--nodes 4,0"):
            errors = StringIO()
            self.patch(sys, "stderr", errors)
            with self.assertRaises(SystemExit) as caught:
                self.run_(*words.split())
            self.assertEqual(caught.exception.code, 2)
            self.assertIn(f"error: argument {words.split()[0]}", errors.getvalue())

    def test_violationIsShownWithCommand(self) -> None:
        """The status is 1, and the command shown repeats the run."""
        for jobs in ("2", "1"):
            status, said = self.run_(
                *("--seeds", "20", "--jobs", jobs, "--nodes", "4", "--system", "cluster"),
                *("--break", "quorum too small"),
            )
            self.assertEqual(status, 1)
        self.assertIn("VIOLATION of certificate: ", said)
        self.assertIn(" DECIDES h", said)
        [command, *_] = [line for line in said.splitlines() if line.startswith("run it again: ")]
        words = shlex.split(command.removeprefix("run it again: "))
        self.assertEqual(words[:3], ["python", "-m", "tools.simulate"])
        status, again = self.run_(*words[3:])
        self.assertEqual(status, 1)
        self.assertIn("VIOLATION  certificate: ", again)
        self.assertIn("node 0 starts" if "crash" in again else "client 0: OPEN", again)

    def test_mutationsAreListed(self) -> None:
        """With how each was found."""
        self.patch(simulate, "MUTATIONS", {})
        found = [
            Finding(name="a", schedule="b", directed="agreement", random="", seeds=3),
            Finding(name="c", schedule="", directed="", random="", seeds=3),
        ]
        self.patch(simulate, "huntAll", lambda seeds, isFocused: found)
        status, said = self.run_("--mutations", "--seeds", "3")
        self.assertEqual(status, 1)
        self.assertIn("1 of 2 mutations were found", said)
        del found[1]
        self.assertEqual(self.run_("--mutations", "--seeds", "3")[0], 0)
