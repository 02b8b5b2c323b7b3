"""
Tests of the metrics of ledgers.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import alsoProvides

from svcbroker.errors import LedgerUnavailable
from svcbroker.histogram import Histogram
from svcbroker.interfaces import ILedger, IMeasuredLedger
from svcbroker.ledgers.measures import HEALTH_TIMEOUT, LedgerMetrics
from svcbroker.model import ChainMeasures, LedgerMeasures, OpenTopic, PublishEvent
from svcbroker.testing._fixtures import ScriptedLedger, memoryLedger

from .support import Samples, samplesOf


class LedgerMetricsTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.clock.advance(1000)
        self.ledger = ScriptedLedger(memoryLedger(self.clock))
        self.metrics = self.start(self.ledger)

    def start(self, ledger: ILedger) -> LedgerMetrics:
        metrics = LedgerMetrics({"1": ledger}, self.clock)
        self.successResultOf(metrics.start())
        return metrics

    def scrape(self) -> Samples:
        return samplesOf(self.successResultOf(self.metrics.collect()))

    def test_blocksAreMeasuredAsTheyCome(self) -> None:
        self.ledger.submitMany([OpenTopic(topic="t")])
        self.clock.advance(0.3)
        self.ledger.submitMany([PublishEvent(topic="t", content=b"x")])
        samples = self.scrape()
        self.assertEqual(samples["svcbroker_ledger_height", "1"], 2)
        self.assertAlmostEqual(
            samples["svcbroker_ledger_last_block_timestamp_seconds", "1"], 1000.3
        )
        self.assertEqual(samples["svcbroker_ledger_block_events_sum", "1"], 1)
        self.assertEqual(samples["svcbroker_ledger_block_events_count", "1"], 2)
        self.assertEqual(samples["svcbroker_ledger_block_interval_seconds_count", "1"], 1)
        self.assertAlmostEqual(samples["svcbroker_ledger_block_interval_seconds_sum", "1"], 0.3)

    def test_earlierBlocksCountForHeightOnly(self) -> None:
        self.ledger.submitMany([OpenTopic(topic="t")])
        self.metrics.stop()
        self.metrics = self.start(self.ledger)
        samples = self.scrape()
        self.assertEqual(samples["svcbroker_ledger_height", "1"], 1)
        self.assertEqual(samples["svcbroker_ledger_last_block_timestamp_seconds", "1"], 1000)
        self.assertEqual(samples["svcbroker_ledger_block_events_count", "1"], 0)

    def test_failingLedgerIsNotReady(self) -> None:
        self.assertEqual(self.scrape()["svcbroker_ledger_ready", "1"], 1)
        self.ledger.error = LedgerUnavailable()
        self.assertEqual(self.scrape()["svcbroker_ledger_ready", "1"], 0)

    def test_silentLedgerIsNotReady(self) -> None:
        self.ledger.getHealth = Deferred  # type: ignore[method-assign]
        scrape = self.metrics.collect()
        self.clock.advance(HEALTH_TIMEOUT)
        self.assertEqual(samplesOf(self.successResultOf(scrape))["svcbroker_ledger_ready", "1"], 0)

    def test_unmeasuredLedgerHasNoMeasures(self) -> None:
        names = {key[0] for key in self.scrape()}
        self.assertIn("svcbroker_ledger_height", names)
        for each in ("waiting_bytes", "replicas", "view_changes_total", "latency_seconds_count"):
            self.assertNotIn(f"svcbroker_ledger_{each}", names)

    def test_unknownMeasuresAreLeftOut(self) -> None:
        self.ledger.measure = lambda: LedgerMeasures(
            waiting=2,
            waitingBytes=300,
            oldest=1.5,
            replicas=4,
            behind=7,
            age=0.5,
            latency=Histogram([1]),
            chain=ChainMeasures(
                height=90, behind=3, underWay=2, balance=None, gasPrice=0, attested=8
            ),
        )
        alsoProvides(self.ledger, IMeasuredLedger)
        samples = self.scrape()
        self.assertEqual(samples["svcbroker_ledger_waiting_transactions", "1"], 2)
        self.assertEqual(samples["svcbroker_ledger_waiting_bytes", "1"], 300)
        self.assertEqual(samples["svcbroker_ledger_oldest_waiting_seconds", "1"], 1.5)
        self.assertEqual(samples["svcbroker_ledger_replicas", "1"], 4)
        self.assertEqual(samples["svcbroker_ledger_age_seconds", "1"], 0.5)
        self.assertEqual(samples["svcbroker_copy_behind_blocks", "1"], 7)
        self.assertEqual(samples["svcbroker_ledger_latency_seconds_count", "1"], 0)
        self.assertEqual(samples["svcbroker_chain_height", "1"], 90)
        self.assertEqual(samples["svcbroker_chain_behind_blocks", "1"], 3)
        self.assertEqual(samples["svcbroker_chain_transactions", "1"], 2)
        self.assertEqual(samples["svcbroker_chain_gas_price_wei", "1"], 0)
        self.assertEqual(samples["svcbroker_chain_attested_height", "1"], 8)
        self.assertNotIn(("svcbroker_chain_balance_wei", "1"), samples)
        self.assertNotIn(("svcbroker_ledger_replicas_running", "1"), samples)
        self.assertNotIn(("svcbroker_ledger_sync_seconds_count", "1"), samples)
