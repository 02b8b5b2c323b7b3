"""
Tests for the reports of a replay: how far it is, and how far it has to go.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.logger import globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.archive import STORE_NAME
from svcbroker.ledgers.cometbft._cometledger import INTERVAL, ReplayProgress
from svcbroker.ledgers.cometbft._home import VALIDATOR_STATE

from .test_ledger import LedgerTestCase


class ProgressTests(SynchronousTestCase):
    """
    One replay after the other, on a clock.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.target = 30
        self.progress = ReplayProgress(self.clock.seconds, lambda: self.target)
        self.events: list[dict[str, Any]] = []
        observer: Any = self.events.append
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)

    def said(self) -> list[str]:
        """The lines logged since the last time."""
        events, self.events[:] = list(self.events), []
        return [event["log_format"].format(**event) for event in events]

    def test_progressIsLoggedAtIntervals(self) -> None:
        for height in range(1, 23):
            self.progress.committed(height, False)
            self.clock.advance(INTERVAL / 10)
        self.assertEqual(
            self.said(),
            [
                "replaying blocks: 1 of 30",
                "replaying blocks: 11 of 30",
                "replaying blocks: 21 of 30",
            ],
        )
        self.assertEqual(self.progress.reason, "replaying blocks: 22 of 30")
        self.progress.committed(23, True)
        self.assertEqual(self.said(), ["replayed all blocks up to 22"])
        self.assertEqual(self.progress.reason, "")

    def test_decidedBlocksAreNotLogged(self) -> None:
        for height in range(1, 10):
            self.progress.committed(height, True)
        self.progress.end()
        self.assertEqual(self.said(), [])

    def test_unknownTargetIsLeftOut(self) -> None:
        """A target that is passed is not told: the validator did not sign what it fetched."""
        for self.target in (0, 4):
            self.progress.committed(5, False)
            self.assertEqual(self.progress.reason, "replaying blocks: 5")
            self.progress.end()


class ReadinessTests(LedgerTestCase):
    """
    Tests for the answer of C{/readyz} meanwhile.
    """

    def test_replayIsReason(self) -> None:
        """A broker has lost its blocks, and its engine has them."""
        self.start()
        for _ in range(3):
            self.node.decide()
        self.successResultOf(self.ledger.stop())
        (self.directory / STORE_NAME).unlink()
        (self.root / VALIDATOR_STATE.parent).mkdir()
        (self.root / VALIDATOR_STATE).write_bytes(b'{"height": "7", "round": 0, "step": 3}')
        self.ledger = self.make()
        self.start()
        self.assertEqual(self.reason(), "replaying blocks: 3 of 7")
        self.node.decide()
        self.assertIn("the last block here is 4", self.reason())
