"""
The operations: every call of clients, by REST and by JSON-RPC.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from attrs import evolve
from twisted.internet.defer import Deferred

from ..access import Principal
from ..broker import (
    DEFAULT_READ,
    MAX_READ,
    MAX_WAIT,
    Broker,
    EventPage,
)
from ..errors import (
    AuthorRefused,
    ContentBlank,
    ContentTooLarge,
    EventErased,
    EventIdBlank,
    EventIdInvalid,
    EventIdTooLong,
    EventNotFound,
    ExtensionKeyInvalid,
    ExtensionsTooLarge,
    HeightUnknown,
    IdempotencyConflict,
    Overloaded,
    PageIndexInvalid,
    PageSizeInvalid,
    ParameterInvalid,
    PatternInvalid,
    SequenceConflict,
    SignatureInvalid,
    SubscriptionExists,
    SubscriptionIdBlank,
    SubscriptionIdInvalid,
    SubscriptionNotFound,
    TopicBlank,
    TopicInvalid,
    TopicNotFound,
    TopicTooLong,
    TransactionFailed,
    UrlInvalid,
)
from ..model import MAX_ADMINS, MAX_AUTHORS, Edge, EventFormat
from ._accounts import ACCOUNT_OPERATIONS
from ._declarations import OMITTED, REQUIRED, BatchMethod, Operation, Parameter
from ._durable import DURABLE_OPERATIONS
from ._keytypes import KeysType
from ._parameters import (
    CONTENT,
    ERASED,
    EXTENSIONS,
    FILTERS,
    FORMAT,
    GROUP,
    PAGE_SIZE,
    SEEN,
    SUBSCRIPTION_ID,
    TAG,
    TOPIC,
)
from ._publishing import (
    AUTHOR,
    EXPECTED_SEQUENCE,
    IDEMPOTENCY_KEY,
    SIGNATURE,
    SIGNED_AT,
    makePublication,
)
from ._results import (
    BOOLEAN,
    CHECKPOINT,
    CONSISTENCY_PROOF,
    EVENT,
    EVENT_PAGE,
    EVENT_PROOF,
    GENESIS,
    SEND_RESULT,
    STRING,
    TOPIC_PAGE,
    TOPIC_PROOF,
    TOPIC_STATE,
    EventWriter,
    eventWriter,
)
from ._transparency import LOG_OPERATIONS
from ._types import (
    EventIdType,
    FilterType,
    FlagType,
    NumberType,
    OffsetType,
    OptionalSubscriptionIdType,
    ParameterType,
)
from ._webhooks import SUBSCRIBE_OPTIONS, WEBHOOK_OPERATIONS

_TOPIC_ERRORS = (TopicBlank, TopicTooLong, TopicInvalid)
_EVENT_ID_ERRORS = (EventIdBlank, EventIdTooLong, EventIdInvalid, EventNotFound, HeightUnknown)
_WRITE_ERRORS = (Overloaded, TransactionFailed)

EVENT_ID: Final = Parameter(
    name="eventId",
    type=EventIdType(),
    absent=EventIdBlank,
    description="The event's id, as publish answered it.",
)
PAGE_INDEX: Final = Parameter(
    name="pageIndex",
    type=NumberType(PageIndexInvalid, 0),
    default=0,
    description="The page, counted from 0.",
)
_FILTER = Parameter(
    name="topic",
    type=FilterType(),
    absent=TopicBlank,
    description="A topic, or a pattern of MQTT's kind.",
)
_FROM = Parameter(
    name="from",
    argument="offset",
    type=OffsetType(),
    default=None,
    description="Where to begin: OFFSET_FIRST (the default), OFFSET_LAST (the default in reverse), "
    "after an event's id, at a height, or at OFFSET_TIME: with a time.",
)
_LIMIT = Parameter(
    name="limit",
    type=NumberType(ParameterInvalid, 1, MAX_READ),
    default=DEFAULT_READ,
    description=f"The most events to answer: 1 to {MAX_READ}, by default {DEFAULT_READ}.",
)
_WAIT = Parameter(
    name="wait",
    type=NumberType(ParameterInvalid, 0, MAX_WAIT),
    default=0,
    description=f"How long to wait for an event if there is none: 0 to {MAX_WAIT} seconds.",
)
_REVERSE = Parameter(
    name="reverse",
    type=FlagType(),
    default=False,
    description="Whether to go backwards: true or false, by default false.",
)
_AUTHORS = Parameter(
    name="authors",
    type=KeysType(MAX_AUTHORS, minimum=1),
    description="The public keys of those who may publish to it, 64 hex digits each, with commas "
    "between them.",
)
_ADMINS = Parameter(
    name="admins",
    type=KeysType(MAX_ADMINS),
    default=OMITTED,
    description="The public keys that may change the authors; absent means none.",
)
_OWN_ID = Parameter(
    name="subscriptionId",
    type=OptionalSubscriptionIdType(),
    default=None,
    description="A UUID to know the subscription by; absent or blank has one made.",
)
_URL = Parameter(
    name="url",
    type=ParameterType(),
    absent=UrlInvalid,
    description="Where events are sent by POST: http or https.",
)
_OFFSET = Parameter(
    name="offset",
    type=OffsetType(),
    default=Edge.LAST,
    description="Where it starts: OFFSET_FIRST, OFFSET_LAST, after an event's id, at a height, or "
    "at OFFSET_TIME: with a time.",
)


def _height(name: str, description: str, **default: Any) -> Parameter:
    return Parameter(
        name=name, type=NumberType(ParameterInvalid, 0), description=description, **default
    )


PUBLISH: Final = Operation(
    name="publish",
    summary="Publish an event to an open topic.",
    parameters=(
        *(TOPIC, GROUP, CONTENT, EXTENSIONS),
        *(AUTHOR, SIGNATURE, SIGNED_AT, IDEMPOTENCY_KEY, EXPECTED_SEQUENCE),
        SEEN,
    ),
    result=SEND_RESULT,
    errors=(
        *_TOPIC_ERRORS,
        ContentBlank,
        ContentTooLarge,
        ExtensionKeyInvalid,
        ExtensionsTooLarge,
        IdempotencyConflict,
        SequenceConflict,
        SignatureInvalid,
        AuthorRefused,
        TopicNotFound,
        *_WRITE_ERRORS,
    ),
    method=lambda broker: broker.publishOne,
    batch=BatchMethod(item=makePublication, method=lambda broker: broker.publish),
)


def _reading(broker: Broker) -> Callable[..., Deferred[tuple[EventPage, EventWriter]]]:
    """Reading a page of events, with what writes them in the format that was asked for."""

    def read(
        principal: Principal, format: EventFormat, groupId: str, **given: Any
    ) -> Deferred[tuple[EventPage, EventWriter]]:
        write = eventWriter(format, broker.source, groupId)
        reading = broker.readEvents(principal, groupId=groupId, **given)
        answer: Deferred[tuple[EventPage, EventWriter]]
        answer = reading.addCallback(lambda page: (page, write))
        return answer

    return read


OPERATIONS: Final = (
    Operation(
        name="open",
        summary="Create a topic, or open it again.",
        parameters=(
            TOPIC,
            GROUP,
            evolve(
                _AUTHORS,
                default=OMITTED,
                description="The public keys of those who may publish to it, 64 hex digits each, "
                "with commas between them; absent means everybody. An existing topic must have "
                "the same ones.",
            ),
            _ADMINS,
            SEEN,
        ),
        result=BOOLEAN,
        errors=(*_TOPIC_ERRORS, SignatureInvalid, AuthorRefused, *_WRITE_ERRORS),
        method=lambda broker: broker.open,
    ),
    Operation(
        name="close",
        summary="Close an open topic.",
        parameters=(TOPIC, GROUP, SEEN),
        result=BOOLEAN,
        errors=(*_TOPIC_ERRORS, TopicNotFound, *_WRITE_ERRORS),
        method=lambda broker: broker.close,
    ),
    Operation(
        name="exist",
        summary="Tell whether there is such an open topic.",
        parameters=(TOPIC, GROUP, SEEN),
        result=BOOLEAN,
        errors=_TOPIC_ERRORS,
        method=lambda broker: broker.exist,
    ),
    PUBLISH,
    Operation(
        name="getEvent",
        summary="Read one event.",
        parameters=(EVENT_ID, GROUP, SEEN),
        result=EVENT,
        errors=(*_EVENT_ID_ERRORS, EventErased),
        method=lambda broker: broker.getEvent,
    ),
    Operation(
        name="events",
        summary="Read the events of a topic, or of all topics that a pattern matches.",
        parameters=(_FILTER, GROUP, _FROM, _LIMIT, TAG, _WAIT, _REVERSE, FORMAT, ERASED, SEEN),
        result=EVENT_PAGE,
        errors=(
            TopicBlank,
            TopicTooLong,
            TopicInvalid,
            PatternInvalid,
            TopicNotFound,
            EventIdTooLong,
            EventIdInvalid,
            EventNotFound,
            HeightUnknown,
            Overloaded,
        ),
        method=_reading,
        isByAddress=True,
    ),
    Operation(
        name="list",
        summary="List the open topics in the order of their creation.",
        parameters=(PAGE_INDEX, PAGE_SIZE, GROUP, SEEN),
        result=TOPIC_PAGE,
        errors=(PageIndexInvalid, PageSizeInvalid),
        method=lambda broker: broker.list,
        isGroupFirst=False,
    ),
    Operation(
        name="state",
        summary="Tell what the chain knows of an open topic.",
        parameters=(TOPIC, GROUP, SEEN),
        result=TOPIC_STATE,
        errors=(*_TOPIC_ERRORS, TopicNotFound),
        method=lambda broker: broker.state,
    ),
    Operation(
        name="authors",
        summary="Change who may publish to a topic that takes events of certain authors only.",
        parameters=(
            TOPIC,
            GROUP,
            Parameter(
                name="generation",
                type=NumberType(ParameterInvalid, 1),
                description="That of the new set: one more than that of the current set.",
            ),
            _AUTHORS,
            _ADMINS,
            evolve(
                AUTHOR,
                name="admin",
                argument="admin",
                default=REQUIRED,
                description="The public key of an admin of the current set: 64 hex digits.",
            ),
            evolve(
                SIGNATURE,
                default=REQUIRED,
                description="The admin's signature of the change: 128 hex digits.",
            ),
            SEEN,
        ),
        result=BOOLEAN,
        errors=(
            *_TOPIC_ERRORS,
            SignatureInvalid,
            AuthorRefused,
            TopicNotFound,
            *_WRITE_ERRORS,
        ),
        method=lambda broker: broker.authors.change,
    ),
    Operation(
        name="subscribe",
        summary="Have events sent to a URL.",
        parameters=(FILTERS, GROUP, _OWN_ID, _URL, _OFFSET, TAG, *SUBSCRIBE_OPTIONS, SEEN),
        result=STRING,
        errors=(
            TopicBlank,
            TopicTooLong,
            TopicInvalid,
            PatternInvalid,
            SubscriptionIdInvalid,
            SubscriptionExists,
            UrlInvalid,
            EventIdTooLong,
            EventIdInvalid,
            EventNotFound,
            HeightUnknown,
            TopicNotFound,
            Overloaded,
        ),
        method=lambda broker: broker.webhooks.subscribe,
        isByInterface=True,
    ),
    Operation(
        name="unSubscribe",
        summary="Have events sent to a URL no more.",
        parameters=(SUBSCRIPTION_ID,),
        result=BOOLEAN,
        errors=(SubscriptionIdBlank, SubscriptionIdInvalid, SubscriptionNotFound),
        method=lambda broker: broker.webhooks.unSubscribe,
    ),
    *WEBHOOK_OPERATIONS,
    *DURABLE_OPERATIONS,
    *ACCOUNT_OPERATIONS,
    *LOG_OPERATIONS,
    Operation(
        name="proof",
        summary="Prove that the chain's validators have signed an event.",
        parameters=(
            EVENT_ID,
            GROUP,
            _height(
                "checkpoint",
                "The height of a later block that is to vouch for the event too.",
                default=None,
            ),
            _height(
                "trusted",
                "The height of a checkpoint that the verifier trusts, instead: the proof leads to "
                "it and has no signatures. It may be the event's own block.",
                default=None,
            ),
            SEEN,
        ),
        result=EVENT_PROOF,
        errors=_EVENT_ID_ERRORS,
        method=lambda broker: broker.proving.prove,
    ),
    Operation(
        name="topicProof",
        summary="Prove how many events a topic has, so that a reader knows that none is left out.",
        parameters=(TOPIC, GROUP, SEEN),
        result=TOPIC_PROOF,
        errors=(*_TOPIC_ERRORS, TopicNotFound),
        method=lambda broker: broker.proving.proveTopic,
    ),
    Operation(
        name="checkpoint",
        summary="Tell a block's hash, to be kept where the broker cannot change it.",
        parameters=(
            GROUP,
            _height("height", "The block's height; absent means the latest one.", default=None),
            SEEN,
        ),
        result=CHECKPOINT,
        errors=(HeightUnknown,),
        method=lambda broker: broker.proving.getCheckpoint,
    ),
    Operation(
        name="consistency",
        summary="Prove that the log up to one block is the beginning of the log up to another.",
        parameters=(
            GROUP,
            _height("older", "The height of the older block."),
            _height("newer", "The height of the newer block."),
            SEEN,
        ),
        result=CONSISTENCY_PROOF,
        errors=(HeightUnknown,),
        method=lambda broker: broker.proving.proveConsistency,
    ),
    Operation(
        name="genesis",
        summary="Tell the beginning of the chain, from which every proof starts.",
        parameters=(GROUP,),
        result=GENESIS,
        method=lambda broker: broker.proving.getGenesis,
    ),
)
"""All operations."""
