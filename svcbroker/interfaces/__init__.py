"""
The interfaces between the parts of the broker, and between the broker and plugins.
"""

from ._factory import ILedgerFactory, InvalidDescription, LedgerContext
from ._faulty import IFaultyLedger
from ._ledger import IBlockObserver, ILedger, IProvableLedger, submit
from ._submission import Submission
from ._subscriber import Batch, ISubscriber, ISubscription
from ._validatorset import IValidatorSetLedger

__all__ = [
    "Batch",
    "IBlockObserver",
    "IFaultyLedger",
    "ILedger",
    "ILedgerFactory",
    "IProvableLedger",
    "ISubscriber",
    "ISubscription",
    "IValidatorSetLedger",
    "InvalidDescription",
    "LedgerContext",
    "Submission",
    "submit",
]
