"""
The ledger contract, on a real node.
"""

from __future__ import annotations

from svcbroker.ledgers.evm import checkInstalled
from svcbroker.testing import makeLedgerTests

from .anvil import ChainFixture

skip = checkInstalled() or None


class AnvilTests(makeLedgerTests(ChainFixture)):  # type: ignore[misc]
    pass
