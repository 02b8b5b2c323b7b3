"""
Tests for L{svcbroker.daemon.incidents}.
"""

from __future__ import annotations

import json
import stat
from typing import Any

from twisted.logger import LogLevel, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.daemon.incidents import (
    DIRECTORY,
    FEATURE,
    MAX_FILES,
    MAX_LINE,
    MAX_LINES,
    REST,
    LineRing,
)
from svcbroker.net.alarms import Alarm, Condition
from svcbroker.net.findings import Level
from svcbroker.testing import _featuretests as contract

BAD = Condition(name="bad", level=Level.PROBLEM, title="T", meaning="M.", remedy="R.")


class FeatureTests(contract.FeatureTests):
    """
    A file for each alarm.
    """

    def makeFixture(self) -> contract.FeatureFixture:
        return contract.FeatureFixture(feature=FEATURE)

    def begin(self) -> Any:
        made = self.serve()
        self.successResultOf(made.start())
        self.addCleanup(self.end, made)
        self.folder = self.services.dataDir / DIRECTORY
        return made

    def raised(self, group: str = "") -> None:
        """An alarm begins."""
        alarm = Alarm(condition=BAD, text="found", group=group, since=self.reactor.seconds())
        self.services.alarms.onRaise(alarm)

    def test_fileHasTheLinesBefore(self) -> None:
        """Also finer ones than the log has; only the owner reads it."""
        self.begin()
        for text, age in (("a fine line", 59), ("too old", 61)):
            time = self.reactor.seconds() - age
            globalLogPublisher({"log_level": LogLevel.debug, "log_format": text, "log_time": time})
        self.raised("1")
        [path] = self.folder.iterdir()
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
        self.assertEqual(stat.S_IMODE(self.folder.stat().st_mode), 0o700)
        told = json.loads(path.read_bytes())
        self.assertEqual((told["name"], told["group"], told["text"]), ("bad", "1", "found"))
        texts = [line["text"] for line in told["lines"]]
        self.assertIn("a fine line", texts)
        self.assertNotIn("too old", texts)
        [kept] = self.services.alarms.incidents
        self.assertEqual((kept.file, kept.level), (f"{DIRECTORY}/{path.name}", "problem"))

    def test_alarmThatComesAndGoesWritesOneFile(self) -> None:
        self.begin()
        for group in ("1", "1", "2"):
            self.raised(group)
        self.assertEqual(len([*self.folder.iterdir()]), 2)
        self.reactor.advance(REST)
        self.raised("1")
        self.assertEqual(len([*self.folder.iterdir()]), 3)

    def test_oldestFilesAreRemoved(self) -> None:
        """What is no incident is not listed."""
        self.begin()
        for number in range(MAX_FILES + 3):
            self.reactor.advance(1)
            self.raised(str(number))
        self.assertEqual(len([*self.folder.iterdir()]), MAX_FILES)
        groups = [each.group for each in self.services.alarms.incidents]
        self.assertEqual(groups, [str(number) for number in range(MAX_FILES + 2, 2, -1)])
        (self.folder / "9.json").write_text("[]")
        self.reactor.advance(1)
        self.raised("x")
        self.assertEqual(self.services.alarms.incidents[0].group, "x")
        self.assertLess(len(self.services.alarms.incidents), MAX_FILES)


class LineRingTests(SynchronousTestCase):
    def test_fineLinesDoNotDisplaceWarnings(self) -> None:
        """Lines are bounded in number and length."""
        ring = LineRing()
        for level, count in ((LogLevel.warn, 1), (LogLevel.debug, 2 * MAX_LINES)):
            for number in range(count):
                ring({"log_level": level, "log_time": number, "log_format": "x" * 2 * MAX_LINE})
        lines = ring.since(0)
        self.assertEqual(len(lines), MAX_LINES + 1)
        self.assertEqual(lines[0]["level"], "warn")
        self.assertEqual({len(line["text"]) for line in lines}, {MAX_LINE})
