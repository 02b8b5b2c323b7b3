"""
The values that the whole house speaks in: topics, events, receipts, blocks and pages.

All of them are frozen and keyword-only. Nothing here knows Twisted, a carrier or a ledger's
engine; wire names such as C{topicName} live in the carriers' codecs.
"""

from ._events import (
    BEGINNING,
    EXTENSION_PREFIX,
    MAX_EXTENSIONS_SIZE,
    TAG,
    WEEVENT_PREFIX,
    Event,
    EventId,
    Position,
    checkContent,
    checkExtensions,
    extensionKeyError,
)
from ._faults import MAX_DELAY, Contradiction, FaultReport, NodeCondition
from ._patterns import (
    checkFilter,
    filterCovers,
    filterExpression,
    filterMatches,
    filtersOverlap,
    isPattern,
)
from ._records import (
    Block,
    BlockRecord,
    Health,
    NodeRecord,
    NodeType,
    Page,
    Statistics,
    TransactionRecord,
)
from ._requests import (
    CloseTopic,
    Execution,
    OpenTopic,
    PublishEvent,
    Receipt,
    Request,
    eventSize,
)
from ._subscriptions import (
    DurablePage,
    DurableRecord,
    Edge,
    InterfaceType,
    Moment,
    Offset,
    SubscribeRequest,
    SubscriptionRecord,
    parseOffset,
)
from ._topics import Topic, checkTopicName, topicPrefix
from ._webhooks import WebhookPage, WebhookStatus

__all__ = [
    "BEGINNING",
    "EXTENSION_PREFIX",
    "MAX_DELAY",
    "MAX_EXTENSIONS_SIZE",
    "TAG",
    "WEEVENT_PREFIX",
    "Block",
    "BlockRecord",
    "CloseTopic",
    "Contradiction",
    "DurablePage",
    "DurableRecord",
    "Edge",
    "Event",
    "EventId",
    "Execution",
    "FaultReport",
    "Health",
    "InterfaceType",
    "Moment",
    "NodeCondition",
    "NodeRecord",
    "NodeType",
    "Offset",
    "OpenTopic",
    "Page",
    "Position",
    "PublishEvent",
    "Receipt",
    "Request",
    "Statistics",
    "SubscribeRequest",
    "SubscriptionRecord",
    "Topic",
    "TransactionRecord",
    "WebhookPage",
    "WebhookStatus",
    "checkContent",
    "checkExtensions",
    "checkFilter",
    "checkTopicName",
    "eventSize",
    "extensionKeyError",
    "filterCovers",
    "filterExpression",
    "filterMatches",
    "filtersOverlap",
    "isPattern",
    "parseOffset",
    "topicPrefix",
]
