"""
What MQTT clients find when the daemon has gone down and come up again, in order or by SIGKILL.
"""

from __future__ import annotations

import signal
from pathlib import Path

from tests.carriers.mqtt.conformance.brokers import IBroker
from tests.carriers.mqtt.conformance.durability import DurabilityTestCase

from .daemon import Daemon

LEDGER = "pbft:nodes=1"
_OVER = object()


class DurabilityTests(DurabilityTestCase):
    """
    All scenarios go through the same ends of a daemon: a start costs more than they do.
    """

    timeout = 180

    def makeBroker(self) -> IBroker:
        """The broker under test, with a ledger on disk."""
        root = Path(self.mktemp()).absolute()
        root.mkdir()
        self._dataDir = root / "data"
        self.addCleanup(lambda: self.daemon.stop(signal.SIGKILL))
        return self._start()

    def _start(self) -> Daemon:
        self.daemon = Daemon(self._dataDir, ledger=LEDGER)
        return self.daemon

    def end(self, number: int) -> None:
        """Down and up again."""
        self.assertEqual(self.daemon.errors(), "")
        code = self.daemon.stop(number)
        self.assertEqual(code, -number if self.isCrash else 0)
        self.assertNotIn("Traceback", "".join(self.daemon.output))
        self.broker = self._start()

    def runScenarios(self, number: int) -> None:
        """End the daemon with a signal wherever the scenarios yield, until all are over."""
        running = self.scenarios()
        while running:
            running = [each for each in running if next(each, _OVER) is not _OVER]
            if running:
                self.end(number)

    def test_sessionsSurviveSigterm(self) -> None:
        self.runScenarios(signal.SIGTERM)

    def test_sessionsSurviveSigkill(self) -> None:
        self.isCrash = True
        self.runScenarios(signal.SIGKILL)
