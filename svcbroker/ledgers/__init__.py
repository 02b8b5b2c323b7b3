"""
Ledgers, and how one is chosen by its description.

Nothing here imports a ledger: L{LedgerPlugin} does so when it is asked to configure one.
"""

from ._description import (
    Description,
    describeLedgers,
    findLedgerFactories,
    parseDescription,
    readDescription,
)
from ._plugin import LedgerPlugin

__all__ = [
    "Description",
    "LedgerPlugin",
    "describeLedgers",
    "findLedgerFactories",
    "parseDescription",
    "readDescription",
]
