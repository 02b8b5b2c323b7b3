"""
What the broker does, whatever carrier asks for it.

Nothing here knows a wire: requests come in as values, answers leave as values or as
L{BrokerError<svcbroker.errors.BrokerError>}s.
"""

from ._accounts import MAX_ACCOUNTS, AccessAnswer, AccountPage, AccountQueries
from ._admin import Administration
from ._broker import Broker
from ._calls import Answers, Calls
from ._chainentries import GroupOf, bindToChains
from ._copies import MAX_COPY_WAIT, Copies
from ._dependencies import (
    IDurableSubscriptions,
    ISubscriptionDirectory,
    IWebhooks,
)
from ._groups import DEFAULT_GROUP, Groups, Limits
from ._metadata import MetadataStore
from ._operator import Operator
from ._proving import CheckpointAnswer, Proving
from ._publication import Publication, PublishBatch, PublishPolicy, authorshipOf
from ._publishing import REFUSAL_DELAY
from ._timeouts import TimeoutQueue
from ._values import (
    DEFAULT_PAGE_SIZE,
    DEFAULT_READ,
    MAX_PAGE_NUMBER,
    MAX_PAGE_SIZE,
    MAX_READ,
    MAX_WAIT,
    Answer,
    NumberedPage,
    PublishOutcome,
    ReadPage,
    ReadRequest,
    SendStatus,
)

__all__ = [
    "DEFAULT_GROUP",
    "DEFAULT_PAGE_SIZE",
    "DEFAULT_READ",
    "MAX_ACCOUNTS",
    "MAX_COPY_WAIT",
    "MAX_PAGE_NUMBER",
    "MAX_PAGE_SIZE",
    "MAX_READ",
    "MAX_WAIT",
    "REFUSAL_DELAY",
    "AccessAnswer",
    "AccountPage",
    "AccountQueries",
    "Administration",
    "Answer",
    "Answers",
    "Broker",
    "Calls",
    "CheckpointAnswer",
    "Copies",
    "GroupOf",
    "Groups",
    "IDurableSubscriptions",
    "ISubscriptionDirectory",
    "IWebhooks",
    "Limits",
    "MetadataStore",
    "NumberedPage",
    "Operator",
    "Proving",
    "Publication",
    "PublishBatch",
    "PublishOutcome",
    "PublishPolicy",
    "ReadPage",
    "ReadRequest",
    "SendStatus",
    "TimeoutQueue",
    "authorshipOf",
    "bindToChains",
]
