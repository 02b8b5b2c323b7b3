"""
Tests of the metrics of the scheduled audit.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.metrics import AuditMetrics, LastAudit

from .support import samplesOf


class Schedule:
    """Audits that a test has made."""

    def __init__(self) -> None:
        self.lastAudit: dict[str, LastAudit] = {}


class AuditMetricsTests(SynchronousTestCase):
    def test_lastAuditOfEachGroupIsTold(self) -> None:
        schedule = Schedule()
        metrics = AuditMetrics(schedule)
        self.assertEqual(samplesOf(metrics.collect()), {})
        schedule.lastAudit["1"] = LastAudit(isGood=True, endedAt=1000.5, seconds=2.5, height=7)
        schedule.lastAudit["2"] = LastAudit(isGood=False, endedAt=1001, seconds=1, height=3)
        samples = samplesOf(metrics.collect())
        self.assertEqual(samples["svcbroker_audit_good", "1"], 1)
        self.assertEqual(samples["svcbroker_audit_good", "2"], 0)
        self.assertEqual(samples["svcbroker_audit_timestamp_seconds", "1"], 1000.5)
        self.assertEqual(samples["svcbroker_audit_duration_seconds", "2"], 1)
        self.assertEqual(samples["svcbroker_audit_height", "1"], 7)
