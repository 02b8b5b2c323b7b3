"""
Tests that the simulator finds every mutation of the protocol.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tools.simulation.directed import DIRECTED, play
from tools.simulation.judge import AGREEMENT, CERTIFICATE
from tools.simulation.mutations import MUTATIONS
from tools.simulation.replicas import CORRECT
from tools.simulation.runs import hunt

SEEDS = 200
"""How many random seeds may be needed for a mutation without a directed schedule."""


class DirectedTests(SynchronousTestCase):
    """
    Schedules written by hand.
    """

    def test_correctProtocolWithstandsAll(self) -> None:
        for name in DIRECTED:
            self.assertIsNone(play(name, CORRECT), name)

    def test_eachScheduleFindsItsMutation(self) -> None:
        aimed = {mutation.schedule: mutation for mutation in MUTATIONS.values()}
        for name in DIRECTED:
            violation = play(name, aimed[name].components)
            assert violation is not None, name
            self.assertIn(violation.invariant, (AGREEMENT, CERTIFICATE), name)


class RandomTests(SynchronousTestCase):
    """
    Random schedules.
    """

    def test_randomSchedulesFindTheOthers(self) -> None:
        """The mutations without a directed schedule."""
        for name, mutation in MUTATIONS.items():
            if not mutation.schedule:
                self.assertTrue(hunt(name, SEEDS, isFocused=True).isFound, name)
        self.flushLoggedErrors()

    def test_randomSchedulesFindDirectedOnes(self) -> None:
        """Some of the mutations with a directed schedule."""
        for name in ("quorum too small", "signers counted twice", "proposal not justified"):
            self.assertTrue(hunt(name, SEEDS, isFocused=True).random, name)
