"""
The public test kit: what the author of a plugin, or of a program that embeds the broker,
tests with.
"""

from ._authenticator import AuthenticatorFixture, makeAuthenticatorTests
from ._fixtures import ClockFixture, FaultyDisk, LedgerFixture, ReactorFixture
from ._ledger import makeLedgerTests
from ._proofs import makeProofTests

__all__ = [
    "AuthenticatorFixture",
    "ClockFixture",
    "FaultyDisk",
    "LedgerFixture",
    "ReactorFixture",
    "makeAuthenticatorTests",
    "makeLedgerTests",
    "makeProofTests",
]
