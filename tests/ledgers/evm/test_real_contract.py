"""
The ledger contract, on a real node.
"""

from __future__ import annotations

from svcbroker.testing import makeLedgerTests

from .anvil import ChainFixture


class AnvilTests(makeLedgerTests(ChainFixture)):  # type: ignore[misc]
    pass
