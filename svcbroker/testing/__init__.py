"""
The public test kit: what the author of a plugin, or of a program that embeds the broker,
tests with.
"""

from ._featuretests import (
    AuthenticatorFixture,
    FeatureFixture,
    makeAuthenticatorTests,
    makeFeatureTests,
)
from ._fixtures import ClockFixture, FaultyDisk, LedgerFixture, ReactorFixture
from ._ledgertests import makeLedgerTests, makeProofTests

__all__ = [
    "AuthenticatorFixture",
    "ClockFixture",
    "FaultyDisk",
    "FeatureFixture",
    "LedgerFixture",
    "ReactorFixture",
    "makeAuthenticatorTests",
    "makeFeatureTests",
    "makeLedgerTests",
    "makeProofTests",
]
