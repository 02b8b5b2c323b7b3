"""
The use cases of the broker, the same for every carrier.

Nothing here knows a wire: requests come in as values, answers leave as values or as
L{BrokerError<svcbroker.errors.BrokerError>}s.
"""

from ._administration import MAX_ACCOUNTS, AccessAnswer, AccountPage, TopicActivity
from ._broker import Broker
from ._collaborators import (
    DEFAULT_PAGE_SIZE,
    DEFAULT_READ,
    MAX_PAGE_NUMBER,
    MAX_READ,
    MAX_WAIT,
    IDurableSubscriptions,
    IJobs,
    ISubscriptionDirectory,
    IWebhooks,
    JobReport,
    NumberedPage,
    ReadPage,
    ReadRequest,
    WebhookRequest,
)
from ._eventerasure import ErasurePreview
from ._groups import DEFAULT_GROUP, Limits, TimeoutQueue, checkTopic, checkTopicFilter
from ._metadatastore import GroupOf, MetadataStore, bindToChains
from ._operator import MAX_CONNECTIONS, ClientConnection, ConnectionPage
from ._pipeline import (
    REFUSAL_DELAY,
    Outcome,
    Publication,
    PublishPolicy,
    SendResult,
    SendStatus,
    makePublication,
)
from ._proving import MAX_COPY_WAIT, CheckpointAnswer, Copies, KeyCertification
from .features import Answers, Calls
