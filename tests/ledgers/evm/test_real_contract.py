"""
The ledger contract, on real nodes.
"""

from __future__ import annotations

from svcbroker.ledgers.evm import checkInstalled
from svcbroker.testing import makeLedgerTests

from .nodes import ChainFixture, GethFixture, ValidatorsFixture

skip = checkInstalled() or None


class AnvilTests(makeLedgerTests(ChainFixture)):  # type: ignore[misc]
    pass


class GethTests(makeLedgerTests(GethFixture)):  # type: ignore[misc]
    pass


class ValidatorTests(makeLedgerTests(ValidatorsFixture)):  # type: ignore[misc]
    timeout = 600
