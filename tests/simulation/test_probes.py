"""
Tests for the probes of rare branches, and for the odd constants that lead there.
"""

from __future__ import annotations

from importlib import import_module
from random import Random

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.probes import listening, probe
from tools.simulation import chain
from tools.simulation.oddities import PLACES, drawOddities, withConstants
from tools.simulation.runs import CLUSTER, EMBEDDED, Schedule, Totals, declaredProbes, simulate


class ProbeTests(SynchronousTestCase):
    def test_listenersHearProbes(self) -> None:
        """While they listen."""
        heard: list[str] = []
        probe("before")
        with listening(heard.append):
            probe("meanwhile")
        probe("after")
        self.assertEqual(heard, ["meanwhile"])

    def test_eachProbeHasItsName(self) -> None:
        names = declaredProbes()
        self.assertEqual(len(set(names)), len(names))
        self.assertGreater(len(names), 30)

    def test_runsCountProbes(self) -> None:
        """And what no run has reached is known."""
        totals = Totals()
        self.assertEqual(totals.missed, sorted(declaredProbes()))
        for system in (CLUSTER, EMBEDDED):
            for seed in range(4):
                outcome = simulate(Schedule(system, 4, seed))
                self.assertEqual(set(outcome.probes) - set(declaredProbes()), set())
                totals.add(outcome)
        self.assertTrue(0 < len(totals.missed) < len(declaredProbes()))
        self.flushLoggedErrors()


class OddityTests(SynchronousTestCase):
    def test_placesAreConstants(self) -> None:
        """In their modules and in those that import them."""
        for place in PLACES:
            home, _, constant = place.name.rpartition(".")
            usual = getattr(import_module(home), constant)
            self.assertNotIn(usual, place.values)
            for module in place.importers:
                self.assertIs(getattr(import_module(module), constant), usual)

    def test_constantsComeBack(self) -> None:
        """Also after an error."""
        usual = chain.MAX_TRANSACTIONS

        def fail() -> None:
            with withConstants({"tools.simulation.chain.MAX_TRANSACTIONS": 1}):
                self.assertEqual(chain.MAX_TRANSACTIONS, 1)
                raise ZeroDivisionError

        self.assertRaises(ZeroDivisionError, fail)
        self.assertEqual(chain.MAX_TRANSACTIONS, usual)

    def test_quarterOfPlacesIsOdd(self) -> None:
        """In half of the runs."""
        drawn = [drawOddities(Random(seed)) for seed in range(400)]
        odd = [each for each in drawn if each]
        self.assertTrue(150 < len(odd) < 250)
        self.assertTrue(0.2 < sum(map(len, odd)) / len(odd) / len(PLACES) < 0.3)
