"""
The interfaces between the parts of the broker, and between the broker and plugins.
"""

from ._access import (
    TOPIC_ACTIONS,
    AccountToken,
    Action,
    AuthenticatorContext,
    BearerToken,
    ClientCertificate,
    Decision,
    GrantLine,
    IAccountToken,
    IAuthenticator,
    IAuthenticatorFactory,
    IBearerToken,
    IClientCertificate,
    Identity,
    IGrants,
    IGroupGrants,
    Quotas,
)
from ._factory import IBoundedLedgerFactory, ILedgerFactory, InvalidDescription, LedgerContext
from ._faulty import IFaultyLedger
from ._ledger import (
    IBlockObserver,
    IExportableLedger,
    ILedger,
    INetworkLedger,
    IProvableLedger,
    isDecidedByChain,
    submit,
    topicOfEvent,
)
from ._measured import IMeasuredLedger
from ._submission import Submission
from ._subscriber import Batch, ISubscriber, ISubscription
from ._validatorset import IValidatorSetLedger

__all__ = [
    "TOPIC_ACTIONS",
    "AccountToken",
    "Action",
    "AuthenticatorContext",
    "Batch",
    "BearerToken",
    "ClientCertificate",
    "Decision",
    "GrantLine",
    "IAccountToken",
    "IAuthenticator",
    "IAuthenticatorFactory",
    "IBearerToken",
    "IBlockObserver",
    "IBoundedLedgerFactory",
    "IClientCertificate",
    "IExportableLedger",
    "IFaultyLedger",
    "IGrants",
    "IGroupGrants",
    "ILedger",
    "ILedgerFactory",
    "IMeasuredLedger",
    "INetworkLedger",
    "IProvableLedger",
    "ISubscriber",
    "ISubscription",
    "IValidatorSetLedger",
    "Identity",
    "InvalidDescription",
    "LedgerContext",
    "Quotas",
    "Submission",
    "isDecidedByChain",
    "submit",
    "topicOfEvent",
]
