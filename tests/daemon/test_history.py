"""
Tests for L{svcbroker.daemon.history}.
"""

from __future__ import annotations

import stat
from typing import Any

from svcbroker.daemon.history import FEATURE, NAME, SERIES
from svcbroker.net.history import MeasureHistory
from svcbroker.testing import _featuretests as contract


class FeatureTests(contract.FeatureTests):
    """
    What is measured, and kept through a restart.
    """

    def makeFixture(self) -> contract.FeatureFixture:
        return contract.FeatureFixture(feature=FEATURE)

    def begin(self, data: bytes = b"") -> Any:
        """
        Start it.

        @param data: the file of before.
        """
        self.serve()
        if data:
            (self.services.dataDir / NAME).write_bytes(data)
        self.history = MeasureHistory(SERIES, self.reactor.seconds)
        object.__setattr__(self.services, "history", self.history)
        made = FEATURE.make(self.options, self.services)
        self.successResultOf(made.start())
        return made

    def last(self, name: str) -> float | None:
        return self.history.part(60).series[name][-1]

    def test_ratesAndSizesAreMeasured(self) -> None:
        """What nobody did has a rate of 0 and no latency."""
        made = self.begin()
        self.addCleanup(self.end, made)
        self.history.connected.extend([lambda: 2, lambda: 3])
        self.services.broker.meter.successes["http"] += 50
        self.services.broker.meter.others["http", "refused"] += 5
        self.access.logins["http", "failed"] += 5
        self.reactor.advance(5)
        self.assertEqual((self.last("events"), self.last("refusals")), (10, 2))
        self.assertEqual((self.last("connections"), self.last("waiting")), (5, 0))
        self.assertIsNone(self.last("p99"))
        free = self.last("free")
        assert free is not None
        self.assertGreater(free, 0)
        self.reactor.advance(5)
        self.assertEqual(self.last("events"), 0)

    def test_historySurvivesARestart(self) -> None:
        """It is written each minute, and at the end; only its owner reads the file."""
        made = self.begin()
        path = self.services.dataDir / NAME
        self.services.broker.meter.successes["http"] += 600
        for _ in range(12):
            self.reactor.advance(5)
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
        data = path.read_bytes()
        self.reactor.advance(5)
        self.end(made)
        self.assertNotEqual(path.read_bytes(), data)
        data, before = path.read_bytes(), self.history.part(300)
        self.assertEqual(before.series["events"].count(0), 12)
        made = self.begin(data)
        self.addCleanup(self.end, made)
        self.assertEqual(self.history.part(300).series, before.series)

    def test_damagedFileBeginsAnew(self) -> None:
        made = self.serve()
        (self.services.dataDir / NAME).write_bytes(b"x")
        self.successResultOf(made.start())
        self.end(made)
