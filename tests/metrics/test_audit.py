"""
Tests of the metrics of the scheduled audit.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.daemon.auditing import LastAudit, auditMetrics

from .support import samplesOf


class AuditMetricsTests(SynchronousTestCase):
    def test_lastAuditOfEachGroupIsTold(self) -> None:
        audits: dict[str, LastAudit] = {}
        self.assertEqual(samplesOf(auditMetrics(audits)), {})
        audits["1"] = LastAudit(isGood=True, endedAt=1000.5, seconds=2.5, height=7)
        audits["2"] = LastAudit(isGood=False, endedAt=1001, seconds=1, height=3)
        samples = samplesOf(auditMetrics(audits))
        self.assertEqual(samples["svcbroker_audit_good", "1"], 1)
        self.assertEqual(samples["svcbroker_audit_good", "2"], 0)
        self.assertEqual(samples["svcbroker_audit_timestamp_seconds", "1"], 1000.5)
        self.assertEqual(samples["svcbroker_audit_duration_seconds", "2"], 1)
        self.assertEqual(samples["svcbroker_audit_height", "1"], 7)
