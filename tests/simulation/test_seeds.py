"""
Some dozens of seeds. C{.ci/run} runs hundreds of others, and C{nox -s seeds} thousands every night.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests import examples
from tools.simulation.runs import CLUSTER, EMBEDDED, Schedule, simulate

ROOT = Path(__file__).parent.parent.parent


class SeedTests(SynchronousTestCase):
    def holds(self, system: str, nodes: int, count: int) -> None:
        """Run some seeds."""
        for seed in range(100_000, 100_000 + examples(count)):
            outcome = simulate(Schedule(system, nodes, seed))
            self.assertIsNone(outcome.violation, outcome.replay)
            self.assertGreater(outcome.blocks, 2)
        # Disks fail in a simulation, and the ledger says so.
        self.flushLoggedErrors()

    def test_clusterHolds(self) -> None:
        self.holds(CLUSTER, 4, 40)
        self.holds(CLUSTER, 7, 10)
        self.holds(CLUSTER, 10, 4)

    def test_embeddedLedgerHolds(self) -> None:
        self.holds(EMBEDDED, 4, 20)
        self.holds(EMBEDDED, 7, 6)
        self.holds(EMBEDDED, 10, 3)


class DeterminismTests(SynchronousTestCase):
    def test_seedDeterminesTrace(self) -> None:
        """Equal seeds give equal traces, others do not."""
        for system in (CLUSTER, EMBEDDED):
            digests = {seed: simulate(Schedule(system, 4, seed)).digest for seed in range(8)}
            self.assertEqual(len(set(digests.values())), 8)
            for seed, digest in digests.items():
                self.assertEqual(simulate(Schedule(system, 4, seed)).digest, digest)
        self.flushLoggedErrors()

    def test_traceIsTheSameInAnyProcess(self) -> None:
        """Whatever its hash seed."""
        said = {
            subprocess.run(
                [sys.executable, "-m", "tools.simulate", "--seed", "12", "--nodes", "4,7"],
                cwd=ROOT,
                env={**os.environ, "PYTHONHASHSEED": number},
                check=True,
                capture_output=True,
                encoding="utf-8",
            ).stdout
            for number in ("1", "2")
        }
        self.assertEqual(len(said), 1)
        self.assertEqual(said.pop().count("all held"), 4)
