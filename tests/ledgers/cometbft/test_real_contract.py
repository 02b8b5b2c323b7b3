"""
The ledger contract, on real engines.
"""

from __future__ import annotations

import os
from typing import Final

from twisted.trial.unittest import SkipTest, TestCase

from svcbroker.testing import LedgerFixture, makeLedgerTests, makeProofTests

from .network import Network, NetworkFixture

OF_SEVERAL: Final = {
    "test_callsAreExecutedInOrder",
    "test_contentMayBeEmptyOrLarge",
    "test_durableLedgerContinuesAfterRestart",
    "test_erasedEventsAreNotRead",
    "test_eventsAreReadAsPublished",
    "test_everyNodeIsListed",
    "test_heldEventsAreNotErased",
    "test_keyPublishesOnce",
    "test_observersSeeEveryBlockInOrder",
    "test_readsFollowReceipts",
    "test_stopFinishesWhatWasAccepted",
}
"""What several nodes have a part in: others execute, keep or show it than the one that was asked.
The rest is the same code on each node, and is tried on four where C{SVCBROKER_LONG} is set."""


def networkOf(count: int, test: TestCase) -> LedgerFixture:
    """A network for one test."""
    network = Network(test, count)
    test.addCleanup(network.stop)
    return NetworkFixture(network)


def fourNodes(test: TestCase) -> LedgerFixture:
    """A network of four nodes for one test, if that is not left to the night."""
    if test.id().rpartition(".")[2] not in OF_SEVERAL and not os.environ.get("SVCBROKER_LONG"):
        raise SkipTest("SVCBROKER_LONG is not set: nox -s chains runs what takes long")
    return networkOf(4, test)


class OneNodeTests(makeLedgerTests(lambda test: networkOf(1, test))):  # type: ignore[misc]
    pass


class FourNodesTests(makeLedgerTests(fourNodes)):  # type: ignore[misc]
    pass


class ProofTests(makeProofTests(lambda test: networkOf(1, test))):  # type: ignore[misc]
    pass
