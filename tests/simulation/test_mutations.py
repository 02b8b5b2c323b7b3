"""
Tests that the simulator finds every mutation of the protocol.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tools.simulation.cluster import Cluster
from tools.simulation.directed import DIRECTED, play
from tools.simulation.embedded import Embedded
from tools.simulation.judge import ERROR
from tools.simulation.mutations import EQUIVALENT, MUTATIONS
from tools.simulation.oddities import withConstants
from tools.simulation.replicas import CORRECT
from tools.simulation.runs import Finding, hunt

SEEDS = 200
"""How many random seeds may be needed for a mutation without a directed schedule."""

FOUND = {
    "proposal not justified": 81,
    "other block accepted": 80,
    "no waiting for others": 35,
    "block of the lock lost in a crash": 35,
    "timeouts without bound": 15,
    "certificate of a height before": 15,
    "promises not written": 13,
    "forgotten lock": 11,
    "only checkpoints synced": 7,
    "older round after a crash": 7,
    "same round after a crash": 7,
    "no rounds reserved": 6,
    "signers not sorted": 4,
}
"""The first seed that finds a mutation, where it is not one of the first few. Another simulator may
need others: the search goes on from there. C{nox -s seeds} begins with the first of all."""


class DirectedTests(SynchronousTestCase):
    """
    Schedules written by hand.
    """

    def test_correctProtocolWithstandsAll(self) -> None:
        for name in DIRECTED:
            self.assertIsNone(play(name, CORRECT), name)

    def test_eachScheduleFindsItsMutations(self) -> None:
        """And each schedule aims at one."""
        for name, mutation in MUTATIONS.items():
            if mutation.schedule:
                violation = play(mutation.schedule, mutation.components)
                assert violation is not None, name
                self.assertNotEqual(violation.invariant, ERROR, f"{name}: {violation}")
        aimed = {mutation.schedule for mutation in MUTATIONS.values()}
        self.assertEqual(set(DIRECTED) - aimed, set())

    def test_equivalentsWithstandAll(self) -> None:
        """The variants that are said to be as safe as the protocol."""
        for name, equivalent in EQUIVALENT.items():
            for schedule in DIRECTED:
                self.assertIsNone(play(schedule, equivalent.components), f"{name}, {schedule}")


class RandomTests(SynchronousTestCase):
    """
    Random schedules.
    """

    def found(self, name: str) -> Finding:
        """What finds a mutation."""
        return hunt(name, SEEDS, isFocused=True, first=FOUND.get(name, 0))

    def test_randomSchedulesFindTheOthers(self) -> None:
        """The mutations without a directed schedule."""
        for name, mutation in MUTATIONS.items():
            if not mutation.schedule:
                self.assertTrue(self.found(name).isFound, name)
        self.flushLoggedErrors()

    def test_randomSchedulesFindDirectedOnes(self) -> None:
        """Some of the mutations with a directed schedule."""
        for name in (
            *("quorum too small", "signers counted twice", "proposal not justified"),
            *("2f+1 of 5", "2f+1 of 6", "2f+1 of 8", "chosen view", "other block accepted"),
        ):
            self.assertTrue(self.found(name).random, name)

    def test_correctLedgerWithstandsScript(self) -> None:
        """The schedules of faults that a mutation of the ledger is found with."""
        for name, mutation in MUTATIONS.items():
            if mutation.isEmbedded and mutation.focus is not None:
                with withConstants(mutation.constants):
                    for seed in range(5):
                        outcome = Embedded(seed, 4, script=mutation.focus.script).run()
                        self.assertIsNone(outcome.violation, name)
        self.flushLoggedErrors()

    def test_equivalentsHold(self) -> None:
        for name, equivalent in EQUIVALENT.items():
            for seed in range(10):
                outcome = Cluster(seed, 4, equivalent.components).run()
                self.assertIsNone(outcome.violation, f"{name}, seed {seed}")
