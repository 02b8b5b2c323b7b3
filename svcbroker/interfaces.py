"""
The contracts of the house, in one public face.
"""

from ._ifactory import ILedgerFactory, InvalidDescription, LedgerContext
from ._iledger import IBlockObserver, ILedger

__all__ = [
    "IBlockObserver",
    "ILedger",
    "ILedgerFactory",
    "InvalidDescription",
    "LedgerContext",
]
