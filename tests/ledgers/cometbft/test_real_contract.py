"""
The ledger contract, on real engines.
"""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from svcbroker.testing import LedgerFixture, makeLedgerTests, makeProofTests

from .network import Network, NetworkFixture


def networkOf(count: int, test: TestCase) -> LedgerFixture:
    """A network for one test."""
    network = Network(test, count)
    test.addCleanup(network.stop)
    return NetworkFixture(network)


class OneNodeTests(makeLedgerTests(lambda test: networkOf(1, test))):  # type: ignore[misc]
    pass


class FourNodesTests(makeLedgerTests(lambda test: networkOf(4, test))):  # type: ignore[misc]
    pass


class ProofTests(makeProofTests(lambda test: networkOf(1, test))):  # type: ignore[misc]
    pass
