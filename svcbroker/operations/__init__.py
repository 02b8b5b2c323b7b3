"""
The interface, declared once.

Each call is one L{Operation}: its name, its parameters, its result and its errors. C{_calls},
C{_adminqueries} and C{_operatorcalls} are the tables of the calls of clients, admin queries and
operator calls. REST, JSON-RPC, the OpenAPI document and the command line are made from them.
Nothing here knows HTTP.
"""

from ._adminqueries import AlarmResult, alarmResults
from ._binding import (
    BatchCalls,
    Connection,
    ManyCall,
    TextCall,
    bindBatch,
    bindJSON,
    bindParams,
    bindText,
    bindTextBatch,
)
from ._calls import CLOUD_EVENTS, FOLLOW, LOG_PROOF, OPERATIONS
from ._cloudevents import (
    CLOUD_EVENT_EXTENSION,
    CLOUD_EVENT_SCHEMA,
    CLOUD_EVENT_TYPE,
    CLOUD_EVENTS_TYPE,
    CloudEvent,
    binaryAttributes,
    cloudEvent,
    cloudEventHeaders,
    cloudEvents,
    isAttributeName,
    isStructured,
    publishedCloudEvent,
    readBinary,
    readCloudEvent,
    readStructured,
    sourceOf,
    storedAttributes,
    traceOf,
)
from ._cloudevents import OURS as BROKER_ATTRIBUTES
from ._declarations import (
    ERASED,
    EXTENSIONS,
    FRAME_HEADERS,
    IDEMPOTENCY_KEY,
    PUBLISH_HEADERS,
    SEEN,
    SEND_HEADERS,
    SIGNED_PARAMETERS,
    TRACE_NAMES,
    EventHeader,
    IdempotencyKeyType,
    Operation,
    Parameter,
    Result,
    eventHeaders,
    readPublishHeaders,
    readTrace,
    same,
    traceNames,
    withTrace,
)
from ._dialects import WEEVENT, WEEVENT_INTERFACE, Interface
from ._operatorcalls import OPERATOR_CALLS
from ._results import (
    COMMON_ERRORS,
    EVENT,
    ErasureResult,
    ErrorRecord,
    EventPageResult,
    EventWriter,
    Incidents,
    LoggedEvent,
    erasureOf,
    eventWriter,
)
from ._types import ContentType, ExtensionsType, NumberType
