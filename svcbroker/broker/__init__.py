"""
The use cases of the broker, the same for every carrier.

Nothing here knows a wire: requests come in as values, answers leave as values or as
L{BrokerError<svcbroker.errors.BrokerError>}s.
"""

from ._administration import (
    MAX_ACCOUNTS,
    AccessAnswer,
    AccountPage,
    AccountQueries,
    Administration,
    TopicActivity,
)
from ._broker import Broker
from ._brokervalues import (
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
from ._calls import Answers, Calls
from ._collaborators import IDurableSubscriptions, ISubscriptionDirectory, IWebhooks
from ._copies import MAX_COPY_WAIT, Copies
from ._groups import DEFAULT_GROUP, Groups, Limits, TimeoutQueue
from ._metadatastore import GroupOf, MetadataStore, bindToChains
from ._operator import Operator
from ._pipeline import REFUSAL_DELAY
from ._proving import CheckpointAnswer, Proving
from ._publication import Publication, PublishBatch, PublishPolicy, authorshipOf

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
    "TopicActivity",
    "authorshipOf",
    "bindToChains",
]
