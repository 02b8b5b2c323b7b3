"""
Ledgers, and how one is chosen by its description.

Nothing here imports a ledger: L{LedgerPlugin} does so when it is asked to configure one.
"""

from ..net.descriptions import readDescription
from ._description import (
    LedgerPlugin,
    checkLedger,
    describeLedgers,
    findLedgerFactories,
    parseDescription,
)
