"""
The public test kit: what the author of a ledger plugin, or of a program that embeds the broker,
tests with.
"""

from ._fixtures import ClockFixture, FaultyDisk, LedgerFixture, ReactorFixture
from ._ledger import makeLedgerTests
from ._proofs import makeProofTests

__all__ = [
    "ClockFixture",
    "FaultyDisk",
    "LedgerFixture",
    "ReactorFixture",
    "makeLedgerTests",
    "makeProofTests",
]
