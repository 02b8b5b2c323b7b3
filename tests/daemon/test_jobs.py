"""
Tests for L{svcbroker.daemon.jobs}.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.daemon.jobs import Jobs
from svcbroker.errors import ParameterInvalid
from tests.net.processes import FakeReactor

START = 1_800_000_000.0


class JobsTests(SynchronousTestCase):
    """
    Jobs whose processes are in memory.
    """

    def setUp(self) -> None:
        self.dataDir = Path(self.mktemp()).absolute()
        self.reactor: Any = FakeReactor()
        self.jobs = Jobs(self.dataDir, self.reactor, lambda: START + self.reactor.seconds())

    def test_lastLinesAreShownWhileItRuns(self) -> None:
        """Those of progress too, which ends lines by carriage returns."""
        self.jobs.start("audit")
        [process] = self.reactor.processes
        self.assertEqual(process.arguments[-3:], ["--background", str(self.dataDir), "--progress"])
        process.child.errReceived(b"".join(b"block %d\r" % each for each in range(100)))
        process.child.outReceived(b"group 1: go")
        [report] = self.jobs.reports()
        self.assertEqual((report.name, report.endedAt, len(report.output)), ("audit", None, 60))
        self.assertEqual(report.output[-1], "block 99")
        self.assertEqual(report.command[:3], ("svcbroker", "chain", "audit"))
        process.child.outReceived(b"od\n")
        self.reactor.advance(2)
        process.end(0)
        [report] = self.jobs.reports()
        self.assertEqual((report.isGood, report.output[-1]), (True, "group 1: good"))
        self.assertEqual(report.endedAt, report.startedAt + 2000)
        self.reactor.advance(100)
        self.assertEqual(len(self.reactor.processes), 1)

    def test_oneRunsAtATime(self) -> None:
        """The next one is first in the list; a name that there is not is refused."""
        self.jobs.start("backup")
        self.assertTrue(self.dataDir.with_name(f"{self.dataDir.name}-backups").is_dir())
        self.assertRaises(ParameterInvalid, self.jobs.start, "audit")
        self.reactor.processes[0].end(1)
        self.jobs.start("audit")
        self.assertEqual([each.name for each in self.jobs.reports()], ["audit", "backup"])
        self.assertEqual([each.isGood for each in self.jobs.reports()], [False, False])
        self.assertRaises(ParameterInvalid, self.jobs.start, "restore")

    def test_doctorIsGivenTheOptionsOfTheDaemon(self) -> None:
        """Operators are shown them without secrets."""
        given = ["--config=/etc/a.toml", "--traces=https://ann:secret@h/"]
        self.jobs = Jobs(self.dataDir, self.reactor, lambda: START, given)
        self.jobs.start("doctor")
        [process] = self.reactor.processes
        place = f"--data-dir={self.dataDir}"
        self.assertEqual(process.arguments[-5:], ["doctor", "--quiet", *given, place])
        [report] = self.jobs.reports()
        shown = ["--config=/etc/a.toml", "--traces=https://***@h/", place]
        self.assertEqual([*report.command[-3:]], shown)

    def test_stopEndsTheProcess(self) -> None:
        self.assertIsNone(self.successResultOf(self.jobs.stop()))
        self.jobs.start("audit")
        stopped = self.jobs.stop()
        self.assertEqual(self.reactor.processes[0].signals, ["TERM"])
        self.reactor.processes[0].end(None)
        self.successResultOf(stopped)
