"""
The contracts of the house, in one public face.
"""

from ._ifactory import ILedgerFactory, InvalidDescription, LedgerContext
from ._iledger import IBlockObserver, ILedger
from ._isubscriber import Batch, ISubscriber, ISubscription

__all__ = [
    "Batch",
    "IBlockObserver",
    "ILedger",
    "ILedgerFactory",
    "ISubscriber",
    "ISubscription",
    "InvalidDescription",
    "LedgerContext",
]
