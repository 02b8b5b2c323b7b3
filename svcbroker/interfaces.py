"""
The contracts of the house, in one public face.
"""

from ._ichangeable import IChangeableLedger
from ._ifactory import ILedgerFactory, InvalidDescription, LedgerContext
from ._ifaulty import IFaultyLedger
from ._iledger import IBlockObserver, ILedger
from ._iprovable import IProvableLedger
from ._isubscriber import Batch, ISubscriber, ISubscription

__all__ = [
    "Batch",
    "IBlockObserver",
    "IChangeableLedger",
    "IFaultyLedger",
    "ILedger",
    "ILedgerFactory",
    "IProvableLedger",
    "ISubscriber",
    "ISubscription",
    "InvalidDescription",
    "LedgerContext",
]
