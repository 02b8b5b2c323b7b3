"""
A simulator that finds nothing proves nothing: it finds each way to break the protocol.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tools.simulation.directed import DIRECTED, play
from tools.simulation.judge import AGREEMENT, CERTIFICATE
from tools.simulation.mutations import MUTATIONS
from tools.simulation.replicas import CORRECT
from tools.simulation.runs import hunt

SEEDS = 250
"""How many random seeds a mutation may take that no directed schedule is aimed at."""


class DirectedTests(SynchronousTestCase):
    """
    Schedules written by hand.
    """

    def test_sound(self) -> None:
        """The protocol as it is comes through all of them."""
        for name in DIRECTED:
            self.assertIsNone(play(name, CORRECT), name)

    def test_aimed(self) -> None:
        """Each of them brings the mutation that it is aimed at to decide what it must not."""
        aimed = {mutation.schedule: mutation for mutation in MUTATIONS.values()}
        for name in DIRECTED:
            violation = play(name, aimed[name].components)
            assert violation is not None, name
            self.assertIn(violation.invariant, (AGREEMENT, CERTIFICATE), name)


class RandomTests(SynchronousTestCase):
    """
    Random schedules.
    """

    def test_found(self) -> None:
        """What no directed schedule is aimed at is found by random ones."""
        for name, mutation in MUTATIONS.items():
            if not mutation.schedule:
                self.assertTrue(hunt(name, SEEDS, isFocused=True).isFound, name)
        self.flushLoggedErrors()

    def test_alsoFound(self) -> None:
        """Some that directed schedules are aimed at are found at random as well."""
        for name in ("quorum too small", "signers counted twice", "proposal not justified"):
            self.assertTrue(hunt(name, SEEDS, isFocused=True).random, name)
