"""
The interface, declared once.

Each call is one L{Operation}: its name, its parameters, its result and its errors.
C{_operations}, C{_queries} and C{_operator} are the tables of the calls of clients, admin queries
and operator calls. REST, JSON-RPC, the OpenAPI document and the command line are made from
them. Nothing here knows HTTP.
"""

from ._binding import (
    BatchCalls,
    Connection,
    ManyCall,
    bindBatch,
    bindJSON,
    bindParams,
    bindText,
    bindTextBatch,
)
from ._cloudattributes import OURS as BROKER_ATTRIBUTES
from ._cloudattributes import isAttributeName
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
    isStructured,
    publishedCloudEvent,
    readBinary,
    readCloudEvent,
    readStructured,
    sourceOf,
    storedAttributes,
    traceOf,
)
from ._declarations import OMITTED, Operation, Parameter, Result
from ._dialects import WEEVENT, WEEVENT_INTERFACE, Dialect, Interface
from ._failures import COMMON_ERRORS, Erasure, ErrorRecord, Incidents, erasureOf
from ._keytypes import IdempotencyKeyType
from ._operations import OPERATIONS
from ._operator import OPERATOR_CALLS
from ._parameters import ERASED, EXTENSIONS, SEEN
from ._peeranswers import AnswerInvalid, readSubscriptions
from ._publishing import (
    IDEMPOTENCY_KEY,
    PUBLISH_HEADERS,
    SIGNED_PARAMETERS,
    eventHeaders,
    makePublication,
    readPublishHeaders,
)
from ._queries import QUERIES
from ._restonly import CLOUD_EVENTS, FOLLOW, LOG_PROOF
from ._results import (
    EVENT,
    Envelope,
    EventPage,
    EventWriter,
    LoggedEvent,
    eventWriter,
    loggedEvents,
)
from ._stompheaders import (
    ERASED_HEADER,
    EVENT_HEADERS,
    SEND_HEADERS,
    STOMP,
    Header,
    StompHeaders,
)
from ._traces import (
    TRACE_NAMES,
    TRACEPARENT,
    TRACESTATE,
    readTrace,
    shownTrace,
    traceNames,
    withTrace,
)
from ._types import ContentType, ExtensionsType, NumberType

__all__ = [
    "BROKER_ATTRIBUTES",
    "CLOUD_EVENTS",
    "CLOUD_EVENTS_TYPE",
    "CLOUD_EVENT_EXTENSION",
    "CLOUD_EVENT_SCHEMA",
    "CLOUD_EVENT_TYPE",
    "COMMON_ERRORS",
    "ERASED",
    "ERASED_HEADER",
    "EVENT",
    "EVENT_HEADERS",
    "EXTENSIONS",
    "FOLLOW",
    "IDEMPOTENCY_KEY",
    "LOG_PROOF",
    "OMITTED",
    "OPERATIONS",
    "OPERATOR_CALLS",
    "PUBLISH_HEADERS",
    "QUERIES",
    "SEEN",
    "SEND_HEADERS",
    "SIGNED_PARAMETERS",
    "STOMP",
    "TRACEPARENT",
    "TRACESTATE",
    "TRACE_NAMES",
    "WEEVENT",
    "WEEVENT_INTERFACE",
    "AnswerInvalid",
    "BatchCalls",
    "CloudEvent",
    "Connection",
    "ContentType",
    "Dialect",
    "Envelope",
    "Erasure",
    "ErrorRecord",
    "EventPage",
    "EventWriter",
    "ExtensionsType",
    "Header",
    "IdempotencyKeyType",
    "Incidents",
    "Interface",
    "LoggedEvent",
    "ManyCall",
    "NumberType",
    "Operation",
    "Parameter",
    "Result",
    "StompHeaders",
    "binaryAttributes",
    "bindBatch",
    "bindJSON",
    "bindParams",
    "bindText",
    "bindTextBatch",
    "cloudEvent",
    "cloudEventHeaders",
    "cloudEvents",
    "erasureOf",
    "eventHeaders",
    "eventWriter",
    "isAttributeName",
    "isStructured",
    "loggedEvents",
    "makePublication",
    "publishedCloudEvent",
    "readBinary",
    "readCloudEvent",
    "readPublishHeaders",
    "readStructured",
    "readSubscriptions",
    "readTrace",
    "shownTrace",
    "sourceOf",
    "storedAttributes",
    "traceNames",
    "traceOf",
    "withTrace",
]
