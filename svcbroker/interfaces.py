"""
The contracts of the house, in one public face.
"""

from ._ibulk import IBulkLedger, Submission
from ._ichangeable import IChangeableLedger, IDecidedLedger, IGovernedLedger
from ._ieventreader import IEventReader
from ._ifactory import ILedgerFactory, InvalidDescription, LedgerContext
from ._ifaulty import IFaultyLedger
from ._iledger import IBlockObserver, ILedger
from ._iprovable import IProvableLedger
from ._isubscriber import Batch, ISubscriber, ISubscription

__all__ = [
    "Batch",
    "IBlockObserver",
    "IBulkLedger",
    "IChangeableLedger",
    "IDecidedLedger",
    "IEventReader",
    "IFaultyLedger",
    "IGovernedLedger",
    "ILedger",
    "ILedgerFactory",
    "IProvableLedger",
    "ISubscriber",
    "ISubscription",
    "InvalidDescription",
    "LedgerContext",
    "Submission",
]
