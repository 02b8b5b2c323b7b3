"""
Tests of the metrics of the process, the reactor and the disk.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.daemon.metrics import LAG_PERIOD, DiskMetrics, ProcessMetrics, ReactorLag
from svcbroker.version import VersionRecord

from .support import samplesOf


class ReactorLagTests(SynchronousTestCase):
    def test_lateTimerIsMeasured(self) -> None:
        clock = Clock()
        lag = ReactorLag(clock)
        lag.start()
        clock.advance(LAG_PERIOD)
        clock.advance(LAG_PERIOD + 0.04)
        samples = samplesOf(lag.collect())
        self.assertEqual(samples["svcbroker_reactor_lag_seconds_bucket", "0.025"], 1)
        self.assertEqual(samples["svcbroker_reactor_lag_seconds_bucket", "0.05"], 2)
        lag.stop()
        self.assertEqual(clock.getDelayedCalls(), [])
        lag.stop()


class ProcessMetricsTests(SynchronousTestCase):
    def test_processTellsOfItself(self) -> None:
        version = VersionRecord(version="9.8.7", commitHash="abc")
        with open(os.devnull) as first:
            before = samplesOf(ProcessMetrics(version, time.time).collect())
            with open(first.name):
                after = samplesOf(ProcessMetrics(version, time.time).collect())
        self.assertEqual(after[("process_open_fds",)], before[("process_open_fds",)] + 1)
        self.assertGreater(after[("process_resident_memory_bytes",)], 10_000_000)
        self.assertGreater(after[("process_cpu_seconds_total",)], 0)
        age = time.time() - after[("process_start_time_seconds",)]
        self.assertGreater(age, 0)
        self.assertLess(age, 86400)
        [info] = [key for key in after if key[0] == "svcbroker_build_info"]
        self.assertEqual((info[1], info[4]), ("abc", "9.8.7"))


class DiskMetricsTests(SynchronousTestCase):
    def test_filesThatThereAreHaveTheirSize(self) -> None:
        directory = Path(self.mktemp())
        directory.mkdir()
        (directory / "a").write_bytes(bytes(5))
        files = {("1", "a"): directory / "a", ("1", "b"): directory / "b"}
        samples = samplesOf(DiskMetrics(directory, files).collect())
        self.assertEqual(samples["svcbroker_file_bytes", "a", "1"], 5)
        self.assertNotIn(("svcbroker_file_bytes", "b", "1"), samples)
        free, size = (
            samples[("svcbroker_disk_free_bytes",)],
            samples[("svcbroker_disk_size_bytes",)],
        )
        self.assertTrue(0 < free <= size)
