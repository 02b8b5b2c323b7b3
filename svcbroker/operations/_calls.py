"""
The calls of clients: by REST and by JSON-RPC, and those that only REST has, since their requests or
their answers are no JSON of ours (C{follow}, C{cloudevents} and C{logProof}); with the records of
their answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from attrs import evolve
from msgspec import UNSET, Struct, UnsetType
from twisted.internet.defer import Deferred, succeed

from .. import broker, model
from ..access import Principal
from ..broker import (
    DEFAULT_READ,
    MAX_READ,
    MAX_WAIT,
    Calls,
    PublishPolicy,
    ReadPage,
    ReadRequest,
    SendResult,
    WebhookRequest,
    makePublication,
)
from ..broker.find import FindRequest, FoundPage
from ..errors import (
    AuthorRefused,
    ContentBlank,
    ContentTooLarge,
    EventErased,
    EventIdBlank,
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
from ..model import (
    MAX_ADMINS,
    MAX_AUTHORS,
    Edge,
    EventFormat,
    InterfaceType,
    Offset,
    SubscribeRequest,
)
from ..proofs import ConsistencyProof, EventProof, GenesisFields, TopicProof
from ._clients import ACCOUNT_OPERATIONS, DURABLE_OPERATIONS
from ._declarations import (
    AUTHOR,
    CONTENT,
    ERASED,
    EXPECTED_SEQUENCE,
    EXTENSIONS,
    FILTERS,
    FORMAT,
    GROUP,
    IDEMPOTENCY_KEY,
    OFFSET_ERRORS,
    OMITTED,
    PAGE_SIZE,
    REQUIRED,
    SEEN,
    SIGNATURE,
    SIGNED_AT,
    SUBSCRIPTION_ID,
    TAG,
    TOPIC,
    TOPIC_ERRORS,
    KeysType,
    Operation,
    Parameter,
    Result,
    limitOf,
)
from ._results import (
    BOOLEAN,
    EVENT,
    EVENT_PAGE,
    STRING,
    EventWriter,
    LoggedEvent,
    eventWriter,
    loggedEvents,
    prefixedHex,
    recordOf,
)
from ._types import (
    EventIdType,
    FilterType,
    FlagType,
    HashType,
    NumberType,
    OffsetType,
    OptionalSubscriptionIdType,
    ParameterType,
)
from ._webhookcalls import SUBSCRIBE_OPTIONS, WEBHOOK_OPERATIONS


class TopicInfoResult(Struct, frozen=True):
    """A topic. The time of its creation is in milliseconds since the epoch."""

    topicName: str
    topicAddress: str
    senderAddress: str
    createdTimestamp: int


class TopicStateResult(Struct, frozen=True):
    """
    A topic, how many events it has, and the height of the block of the latest. Where it takes
    events of certain authors only, their public keys in hexadecimal digits, those of the keys that
    may change them, and how many changes there were.
    """

    topicName: str
    topicAddress: str
    senderAddress: str
    createdTimestamp: int
    sequenceNumber: int
    blockNumber: int
    authors: list[str] | UnsetType = UNSET
    admins: list[str] | UnsetType = UNSET
    generation: int | UnsetType = UNSET


class TopicPageResult(Struct, frozen=True):
    """One page of the open topics, in the order of their creation."""

    total: int
    pageIndex: int
    pageSize: int
    topicInfoList: list[TopicInfoResult]


class CheckpointResult(Struct, frozen=True):
    """
    A block's hash to keep. Hashes are lower-case hexadecimal digits, the time is in milliseconds
    since the epoch, and checkpoint is HEIGHT:HASH, which is all that one needs to keep.
    """

    group: str
    chain: str
    height: int
    hash: str
    timestamp: int
    checkpoint: str


class WitnessResult(Struct, frozen=True):
    """
    A witness of a transparency log. Times are in milliseconds since the epoch; a size or a time of
    0 stands for none.
    """

    name: str
    key: str
    url: str
    size: int
    time: int
    isRefusing: bool
    refusals: int
    lastError: str


class WitnessesResult(Struct, frozen=True):
    """
    The transparency log of a group and its witnesses: the size of the log now, and of the newest
    checkpoint that the quorum of the policy has cosigned. Without a policy the quorum is empty.
    """

    group: str
    size: int
    cosigned: int
    quorum: str
    witnesses: list[WitnessResult]


class FoundPageResult(Struct, frozen=True):
    """
    Events that were found, in the order of the log. The search goes on from C{next}. At the end
    everything was looked at up to the block C{height}; the log has blocks up to C{chainHeight}.
    """

    events: list[LoggedEvent]
    next: str
    atEnd: bool
    height: int
    chainHeight: int


def _topicInfo(topic: model.Topic) -> TopicInfoResult:
    return TopicInfoResult(
        topic.name, prefixedHex(topic.address), prefixedHex(topic.sender), topic.created
    )


def _topicState(topic: model.Topic) -> TopicStateResult:
    authors = topic.authors
    return TopicStateResult(
        topic.name,
        prefixedHex(topic.address),
        prefixedHex(topic.sender),
        topic.created,
        topic.sequence,
        topic.height,
        UNSET if authors is None else [key.hex() for key in authors.authors],
        UNSET if authors is None else [key.hex() for key in authors.admins],
        UNSET if authors is None else authors.generation,
    )


def _topicPage(answer: broker.NumberedPage[model.Topic]) -> TopicPageResult:
    return TopicPageResult(
        answer.page.total, answer.index, answer.size, [_topicInfo(t) for t in answer.page.items]
    )


def _checkpoint(answer: broker.CheckpointAnswer) -> CheckpointResult:
    return CheckpointResult(
        answer.group,
        answer.chain,
        answer.checkpoint.height,
        answer.checkpoint.hash.hex(),
        answer.timestamp,
        str(answer.checkpoint),
    )


def _foundPage(answer: FoundPage) -> FoundPageResult:
    page = answer.page
    events = [event for batch in page.batches for event in loggedEvents(batch)]
    next = str(page.next)
    return FoundPageResult(events, next, page.isAtEnd, answer.height, answer.committed)


_LOG_OPERATIONS: Final = (
    Operation(
        name="witnesses",
        summary="List the witnesses of the transparency log, and what they have cosigned of it.",
        parameters=(GROUP,),
        result=Result(type=WitnessesResult, render=recordOf(WitnessesResult)),
        method=lambda calls: calls.transparency.witnesses,
    ),
)
"""Those that are served as all calls are."""


_EVENT_ID_ERRORS = (EventIdBlank, *OFFSET_ERRORS)
_WRITE_ERRORS = (Overloaded, TransactionFailed)

_EVENT_ID: Final = Parameter(
    name="eventId",
    type=EventIdType(),
    absent=EventIdBlank,
    description="The event's id, as publish answered it.",
)
_PAGE_INDEX: Final = Parameter(
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
_LIMIT = limitOf(MAX_READ, DEFAULT_READ)
_HASH = Parameter(
    name="hash",
    type=HashType(),
    default=None,
    description="The SHA-256 of the content: 64 hex digits.",
)
_INDEXED: Final = evolve(
    EXTENSIONS, description="Extensions that the events have, of those that the index has."
)
_UNTIL = Parameter(
    name="until",
    type=OffsetType(),
    default=None,
    description="Where to end: before a height, or at OFFSET_TIME: with a time.",
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
    description="The public keys that may change the authors; by default none.",
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


_PUBLISH: Final = Operation(
    name="publish",
    summary="Publish an event to an open topic.",
    parameters=(
        *(TOPIC, GROUP, CONTENT, EXTENSIONS),
        *(AUTHOR, SIGNATURE, SIGNED_AT, IDEMPOTENCY_KEY, EXPECTED_SEQUENCE),
        SEEN,
    ),
    result=Result(type=SendResult),
    errors=(
        *TOPIC_ERRORS,
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
    method=lambda calls: calls.broker.publish,
    record=makePublication,
    isForMany=True,
)


def _readRequest(
    *,
    topic: str,
    groupId: str,
    offset: Offset | None,
    limit: int,
    tag: str | None,
    wait: int,
    reverse: bool,
    format: EventFormat,
    remote: str,
    hasTombstones: bool = False,
) -> tuple[ReadRequest, EventFormat]:
    """The read that a call of C{events} asks for, and the format of its events."""
    if offset is None:
        offset = Edge.LAST if reverse else Edge.FIRST
    request = ReadRequest(
        group=groupId,
        filter=topic,
        offset=offset,
        limit=limit,
        tag=tag,
        wait=wait,
        isReverse=reverse,
        remote=remote,
        hasTombstones=hasTombstones,
    )
    return request, format


def _findRequest(
    *,
    hash: bytes | None,
    groupId: str,
    author: bytes | None,
    extensions: Mapping[str, str],
    topic: str,
    offset: Offset | None,
    until: Offset | None,
    limit: int,
    remote: str,
) -> FindRequest:
    """The search that a call of C{find} asks for."""
    return FindRequest(
        group=groupId,
        hash=hash,
        author=author,
        extensions=extensions,
        filter=topic,
        offset=Edge.FIRST if offset is None else offset,
        until=until,
        limit=limit,
        remote=remote,
    )


def _reading(calls: Calls) -> Callable[..., Deferred[tuple[ReadPage, EventWriter]]]:
    """Reading a page of events, with what writes them in the format that was asked for."""

    def read(
        principal: Principal, asked: tuple[ReadRequest, EventFormat]
    ) -> Deferred[tuple[ReadPage, EventWriter]]:
        request, format = asked
        write = eventWriter(format, calls.broker.source, request.group)
        answer: Deferred[tuple[ReadPage, EventWriter]]
        answer = calls.broker.readEvents(principal, request).addCallback(lambda page: (page, write))
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
                "with commas between them; by default everybody. An existing topic must have "
                "the same ones.",
            ),
            _ADMINS,
            SEEN,
        ),
        result=BOOLEAN,
        errors=(*TOPIC_ERRORS, SignatureInvalid, AuthorRefused, *_WRITE_ERRORS),
        method=lambda calls: calls.broker.open,
        isTogether=True,
    ),
    Operation(
        name="close",
        summary="Close an open topic.",
        parameters=(TOPIC, GROUP, SEEN),
        result=BOOLEAN,
        errors=(*TOPIC_ERRORS, TopicNotFound, *_WRITE_ERRORS),
        method=lambda calls: calls.broker.close,
        isTogether=True,
    ),
    Operation(
        name="exist",
        summary="Tell whether there is such an open topic.",
        parameters=(TOPIC, GROUP, SEEN),
        result=BOOLEAN,
        errors=TOPIC_ERRORS,
        method=lambda calls: calls.broker.exist,
    ),
    _PUBLISH,
    Operation(
        name="getEvent",
        summary="Read one event.",
        parameters=(_EVENT_ID, GROUP, SEEN),
        result=EVENT,
        errors=(*_EVENT_ID_ERRORS, EventErased),
        method=lambda calls: calls.broker.getEvent,
    ),
    Operation(
        name="events",
        summary="Read the events of a topic, or of all topics that a pattern matches.",
        parameters=(_FILTER, GROUP, _FROM, _LIMIT, TAG, _WAIT, _REVERSE, FORMAT, ERASED, SEEN),
        result=EVENT_PAGE,
        errors=(*TOPIC_ERRORS, PatternInvalid, TopicNotFound, *OFFSET_ERRORS, Overloaded),
        method=_reading,
        record=_readRequest,
        isByAddress=True,
    ),
    Operation(
        name="find",
        summary="Find the events with a content, of an author, or with an extension, by the index.",
        parameters=(
            *(_HASH, GROUP, evolve(AUTHOR, default=None), _INDEXED),
            evolve(
                _FILTER,
                default="",
                description="Only events of this topic, or of those that this pattern matches.",
            ),
            evolve(_FROM, description=_FROM.description.replace(" (the default in reverse)", "")),
            *(_UNTIL, _LIMIT, SEEN),
        ),
        result=Result(type=FoundPageResult, render=_foundPage),
        errors=(
            TopicTooLong,
            TopicInvalid,
            PatternInvalid,
            SignatureInvalid,
            TopicNotFound,
            *OFFSET_ERRORS,
            Overloaded,
        ),
        method=lambda calls: calls.search.find,
        record=_findRequest,
        isByAddress=True,
    ),
    Operation(
        name="list",
        summary="List the open topics in the order of their creation.",
        parameters=(_PAGE_INDEX, PAGE_SIZE, GROUP, SEEN),
        result=Result(type=TopicPageResult, render=_topicPage),
        errors=(PageIndexInvalid, PageSizeInvalid),
        method=lambda calls: calls.broker.list,
        isGroupFirst=False,
    ),
    Operation(
        name="state",
        summary="Tell what the chain knows of an open topic.",
        parameters=(TOPIC, GROUP, SEEN),
        result=Result(type=TopicStateResult, render=_topicState),
        errors=(*TOPIC_ERRORS, TopicNotFound),
        method=lambda calls: calls.broker.state,
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
        errors=(*TOPIC_ERRORS, SignatureInvalid, AuthorRefused, TopicNotFound, *_WRITE_ERRORS),
        method=lambda calls: calls.authors.change,
    ),
    Operation(
        name="subscribe",
        summary="Have events sent to a URL.",
        parameters=(FILTERS, GROUP, _OWN_ID, _URL, _OFFSET, TAG, *SUBSCRIBE_OPTIONS, SEEN),
        result=STRING,
        errors=(
            *TOPIC_ERRORS,
            PatternInvalid,
            SubscriptionIdInvalid,
            SubscriptionExists,
            UrlInvalid,
            *OFFSET_ERRORS,
            TopicNotFound,
            Overloaded,
        ),
        method=lambda calls: calls.webhooks.subscribe,
        record=WebhookRequest,
        isByInterface=True,
    ),
    Operation(
        name="unSubscribe",
        summary="Have events sent to a URL no more.",
        parameters=(SUBSCRIPTION_ID,),
        result=BOOLEAN,
        errors=(SubscriptionIdBlank, SubscriptionIdInvalid, SubscriptionNotFound),
        method=lambda calls: calls.webhooks.unSubscribe,
    ),
    *WEBHOOK_OPERATIONS,
    *DURABLE_OPERATIONS,
    *ACCOUNT_OPERATIONS,
    *_LOG_OPERATIONS,
    Operation(
        name="proof",
        summary="Prove that the chain's validators have signed an event.",
        parameters=(
            _EVENT_ID,
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
        result=Result(type=EventProof),
        errors=_EVENT_ID_ERRORS,
        method=lambda calls: calls.proving.prove,
    ),
    Operation(
        name="topicProof",
        summary="Prove how many events a topic has, so that a reader knows that none is left out.",
        parameters=(TOPIC, GROUP, SEEN),
        result=Result(type=TopicProof),
        errors=(*TOPIC_ERRORS, TopicNotFound),
        method=lambda calls: calls.proving.proveTopic,
    ),
    Operation(
        name="checkpoint",
        summary="Tell a block's hash, to be kept where the broker cannot change it.",
        parameters=(
            GROUP,
            _height("height", "The block's height; by default the latest one.", default=None),
            SEEN,
        ),
        result=Result(type=CheckpointResult, render=_checkpoint),
        errors=(HeightUnknown,),
        method=lambda calls: calls.proving.getCheckpoint,
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
        result=Result(type=ConsistencyProof),
        errors=(HeightUnknown,),
        method=lambda calls: calls.proving.proveConsistency,
    ),
    Operation(
        name="genesis",
        summary="Tell the beginning of the chain, from which every proof starts.",
        parameters=(GROUP,),
        result=Result(type=GenesisFields),
        method=lambda calls: calls.proving.getGenesis,
    ),
)
"""All operations."""


_MAY_BE_EMPTY: Final = PublishPolicy(mayBeEmpty=True)


def _followRequest(
    principal: Principal,
    topic: tuple[str, ...],
    groupId: str,
    offset: Offset,
    tag: str | None,
    format: EventFormat,
    hasTombstones: bool = False,
) -> Deferred[tuple[SubscribeRequest, EventFormat]]:
    """
    The subscription that a call of C{follow} asks for, and the format of its events. Its checks are
    those of subscribing.
    """
    request = SubscribeRequest(
        interfaceType=InterfaceType.RESTFUL,
        kind="follow",
        group=groupId,
        filters=topic,
        offset=offset,
        tag=tag,
        hasTombstones=hasTombstones,
    )
    return succeed((request, format))


FOLLOW: Final = Operation(
    name="follow",
    summary="Follow topics: their events as Server-Sent Events, from a place in the log on.",
    parameters=(
        FILTERS,
        GROUP,
        Parameter(
            name="from",
            argument="offset",
            type=OffsetType(),
            default=Edge.LAST,
            description="Where to begin. The header Last-Event-ID wins over it.",
        ),
        TAG,
        FORMAT,
        ERASED,
        SEEN,
    ),
    result=STRING,
    errors=(*TOPIC_ERRORS, PatternInvalid, *OFFSET_ERRORS, TopicNotFound, Overloaded),
    method=lambda calls: _followRequest,
)
"""Its answer is a stream."""


CLOUD_EVENTS: Final = evolve(
    _PUBLISH,
    name="cloudevents",
    summary="Publish a CloudEvent to an open topic.",
    # CloudEvents may have no data.
    parameters=tuple(
        evolve(CONTENT, default=b"") if each is CONTENT else each for each in _PUBLISH.parameters
    ),
    errors=tuple(each for each in _PUBLISH.errors if each is not ContentBlank),
    method=lambda calls: partial(calls.broker.publish, policy=_MAY_BE_EMPTY),
)
"""
The event is the request, in structured or in binary mode. Its attributes are an extension, and its
source and id are its idempotency key.
"""

LOG_PROOF: Final = Operation(
    name="logProof",
    summary="Prove that an event is in the transparency log, with the cosignatures of witnesses.",
    parameters=(_EVENT_ID, GROUP, SEEN),
    result=STRING,
    errors=_EVENT_ID_ERRORS,
    method=lambda calls: calls.transparency.prove,
)
"""Its answer is a file of C{c2sp.org/tlog-proof}."""
