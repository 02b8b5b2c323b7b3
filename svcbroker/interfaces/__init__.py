"""
The contracts of the house, in one public face.
"""

from ._bulk import IBulkLedger, Submission
from ._eventreader import IEventReader
from ._factory import ILedgerFactory, InvalidDescription, LedgerContext
from ._faulty import IFaultyLedger
from ._ledger import IBlockObserver, ILedger
from ._provable import IProvableLedger
from ._subscriber import Batch, ISubscriber, ISubscription
from ._validatorset import IChangeableLedger, IDecidedLedger, IGovernedLedger

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
