"""
The contract of ledgers that can be measured.
"""

# Methods of a zope.interface take no "self".

from __future__ import annotations

from zope.interface import Interface

from ..model import LedgerMeasures


class IMeasuredLedger(Interface):
    """
    A ledger that tells of itself for metrics. A ledger may provide it beside
    L{ILedger<svcbroker.interfaces.ILedger>}. What every ledger tells by L{ILedger
    <svcbroker.interfaces.ILedger>} (height, intervals and sizes of blocks, health) needs no more
    than that.
    """

    def measure() -> LedgerMeasures:
        """
        The ledger now.

        The broker calls it in the reactor thread at each scrape, which may be each second, after
        the ledger's start and before its stop. It answers from memory, at once, and does not raise.
        """
