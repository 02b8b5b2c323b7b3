"""
Tests for L{svcbroker.daemon.auditing}.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
from twisted.internet.defer import maybeDeferred

from svcbroker.broker import MetadataStore
from svcbroker.daemon.auditing import FIRST, AuditSchedule, LastAudit
from svcbroker.storage import MetadataFile
from tests.archive.support import ArchiveTestCase
from tests.net.processes import FakeProcess, FakeReactor

DAY = 86400.0
START = 1_800_000_000.0
"""When the clock of the reactor says 0."""


def chainLine(group: str = "1", good: bool = True, checkpoint: str | None = "7:ab") -> bytes:
    """The line of a chain's result, as C{svcbroker chain audit} writes it."""
    line = {"group": group, "good": good, "checkpoint": checkpoint, "damages": int(not good)}
    return json.dumps(line).encode() + b"\n"


def findingLine(group: str | None, problem: str, damage: bool = True) -> bytes:
    """The line of a finding."""
    line = {"group": group, "block": 3, "place": "body", "problem": problem, "damage": damage}
    return json.dumps(line).encode() + b"\n"


class AuditScheduleTests(ArchiveTestCase):
    """
    The schedule, with a process in memory.
    """

    def setUp(self) -> None:
        super().setUp()
        self.makeDirectory()
        (self.dataDir / "notes.sqlite").unlink()
        self.reactor: Any = FakeReactor()
        self.schedule = self.make()

    def make(self, every: float = DAY, dataDir: Path | None = None) -> AuditSchedule:
        """A schedule that has started, with what earlier ones have kept."""
        file = MetadataFile.open(self.dataDir / "notes.sqlite")
        self.addCleanup(file.close)
        self.metadata = MetadataStore(file, self.reactor, maybeDeferred)
        schedule = AuditSchedule(
            self.dataDir if dataDir is None else dataDir,
            every,
            self.metadata,
            self.reactor,
            lambda: START + self.reactor.seconds(),
        )
        self.successResultOf(schedule.start())
        return schedule

    @property
    def process(self) -> FakeProcess:
        """The process that was started last."""
        process: FakeProcess = self.reactor.processes[-1]
        return process

    def finishAudit(self, *output: bytes, status: int = 0) -> None:
        """An audit that takes 9 seconds."""
        self.process.child.outReceived(b"".join(output))
        self.reactor.advance(9)
        self.process.end(status=status)

    def test_firstAuditWaitsForTheStart(self) -> None:
        self.reactor.advance(FIRST - 1)
        self.assertEqual(self.reactor.processes, [])
        self.reactor.advance(1)
        self.assertEqual(len(self.reactor.processes), 1)
        words = self.process.arguments
        self.assertEqual(words[-1], str(self.dataDir))
        for word in ("-P", "svcbroker.commands", "audit", "--json", "--background"):
            self.assertIn(word, words)

    def test_goodResultIsKept(self) -> None:
        self.reactor.advance(FIRST)
        self.finishAudit(chainLine(), chainLine("2", checkpoint=None))
        expected = LastAudit(isGood=True, endedAt=START + FIRST + 9, seconds=9.0, height=7)
        self.assertEqual(self.schedule.lastAudit["1"], expected)
        self.assertEqual(self.schedule.lastAudit["2"].height, 0)
        ends = [self.schedule.endOf(group) for group in ("1", "3")]
        self.assertEqual(ends, [START + FIRST + 9, None])
        self.reactor.advance(1)
        self.assertEqual(self.make().lastAudit["1"], expected)
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_nextAuditFollowsTheEndOfTheLast(self) -> None:
        self.reactor.advance(FIRST)
        self.finishAudit(chainLine())
        self.reactor.advance(DAY - 1)
        self.assertEqual(len(self.reactor.processes), 1)
        self.reactor.advance(1)
        self.assertEqual(len(self.reactor.processes), 2)

    def test_restartKeepsTheTimeOfTheNext(self) -> None:
        self.reactor.advance(FIRST)
        self.finishAudit(chainLine())
        self.reactor.advance(DAY / 2)
        self.successResultOf(self.schedule.stop())
        self.make()
        self.reactor.advance(DAY / 2 - 1)
        self.assertEqual(len(self.reactor.processes), 1)
        self.reactor.advance(1)
        self.assertEqual(len(self.reactor.processes), 2)

    def test_damageIsToldWithItsFirstPlace(self) -> None:
        self.reactor.advance(FIRST)
        self.finishAudit(
            findingLine("1", "a note", damage=False),
            findingLine("1", "changed"),
            findingLine("1", "changed, too"),
            findingLine(None, "a row of the metadata"),
            chainLine(good=False),
            status=1,
        )
        audit = self.schedule.lastAudit["1"]
        self.assertEqual((audit.isGood, audit.problem), (False, "block 3, body: changed"))

    def test_auditThatFailsKeepsTheLastResult(self) -> None:
        self.reactor.advance(FIRST)
        self.finishAudit(chainLine())
        before = dict(self.schedule.lastAudit)
        self.reactor.advance(DAY)
        self.process.child.errReceived(b"svcbroker chain audit: no room\n")
        self.finishAudit(status=2)
        self.reactor.advance(DAY)
        self.finishAudit(b"no result\n")
        self.assertEqual(self.schedule.lastAudit, before)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def test_stopEndsTheAudit(self) -> None:
        self.reactor.advance(FIRST)
        stopped = self.schedule.stop()
        self.assertEqual(self.process.signals, ["TERM"])
        self.process.end(signal=15)
        self.successResultOf(stopped)
        self.assertEqual(self.schedule.lastAudit, {})
        self.reactor.advance(2 * DAY)
        self.assertEqual(len(self.reactor.processes), 1)

    def test_nothingIsAuditedWithoutSchedule(self) -> None:
        self.reactor.advance(FIRST)
        self.finishAudit(chainLine())
        self.successResultOf(self.schedule.stop())
        self.assertEqual(self.make(every=0).lastAudit, {})
        empty = Path(self.mktemp()).absolute()
        empty.mkdir()
        self.make(dataDir=empty)
        self.reactor.advance(2 * DAY)
        self.assertEqual(len(self.reactor.processes), 1)

    def test_wrongClockDoesNotPutTheAuditOff(self) -> None:
        ahead = LastAudit(isGood=True, endedAt=4e9, seconds=1.0, height=1)
        self.metadata.put("audit", "1", msgspec.json.encode(ahead))
        self.reactor.advance(1)
        self.successResultOf(self.schedule.stop())
        self.make()
        self.reactor.advance(DAY)
        self.assertEqual(len(self.reactor.processes), 1)

    def test_childSeesTheSameModules(self) -> None:
        self.reactor.advance(FIRST)
        root = str(Path(os.path.abspath(__file__)).parents[2])
        self.assertIn(root, self.reactor.options[-1]["env"]["PYTHONPATH"].split(os.pathsep))
