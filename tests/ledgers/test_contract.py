"""
The ledger contract, on every ledger that comes with the broker.
"""

from __future__ import annotations

import time

from twisted.internet import reactor
from twisted.trial.unittest import TestCase

from svcbroker.ledgers import memory, pbft
from svcbroker.testing import (
    ClockFixture,
    LedgerFixture,
    ReactorFixture,
    makeLedgerTests,
    makeProofTests,
)


def memoryOnClock(test: TestCase) -> LedgerFixture:
    return ClockFixture(memory.configure({}), isDurable=False)


def pbftOnClock(test: TestCase) -> LedgerFixture:
    return ClockFixture(pbft.configure({}), isDurable=True)


def pbftOfOneNode(test: TestCase) -> LedgerFixture:
    return ClockFixture(pbft.configure({"nodes": "1", "interval": "0"}), isDurable=True)


def pbftOnBadNetwork(test: TestCase) -> LedgerFixture:
    settings = {"nodes": "7", "delay": "0.001-0.02", "loss": "0.02", "duplication": "0.1"}
    return ClockFixture(pbft.configure({**settings, "seed": "1"}), isDurable=True)


def pbftInRealTime(test: TestCase) -> LedgerFixture:
    return ReactorFixture(pbft.configure({}), reactor, isDurable=True, now=time.time)


def pbftWithSmallPool(test: TestCase) -> LedgerFixture:
    bound = 2 * 1024 * 1024
    return ClockFixture(pbft.configure({"mempool": str(bound)}), isDurable=True, bound=bound)


class MemoryLedgerTests(makeLedgerTests(memoryOnClock)):  # type: ignore[misc]
    pass


class PbftLedgerTests(makeLedgerTests(pbftOnClock)):  # type: ignore[misc]
    pass


class PbftLedgerWithSmallPoolTests(makeLedgerTests(pbftWithSmallPool)):  # type: ignore[misc]
    pass


class PbftLedgerOfOneNodeTests(makeLedgerTests(pbftOfOneNode)):  # type: ignore[misc]
    pass


class PbftLedgerOnBadNetworkTests(makeLedgerTests(pbftOnBadNetwork)):  # type: ignore[misc]
    pass


class PbftLedgerInRealTimeTests(makeLedgerTests(pbftInRealTime)):  # type: ignore[misc]
    pass


class PbftProofTests(makeProofTests(pbftOnClock)):  # type: ignore[misc]
    pass


class PbftProofsOnBadNetworkTests(makeProofTests(pbftOnBadNetwork)):  # type: ignore[misc]
    pass


class PbftProofsInRealTimeTests(makeProofTests(pbftInRealTime)):  # type: ignore[misc]
    pass
