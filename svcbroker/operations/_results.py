"""
Results: their records as they are on the wire, and how these are made of the broker's values.

Field names are the published interface's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import gmtime, strftime
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from msgspec import UNSET, Struct, UnsetType
from msgspec.json import encode
from msgspec.structs import replace

from .. import broker, model
from ..interfaces import Batch
from ..proofs import ConsistencyProof, EventProof, GenesisFields, TopicProof
from ..version import VersionRecord
from ._cloudevents import cloudEvents, sourceOf
from ._declarations import Result

T = TypeVar("T")


class Event(Struct, frozen=True):
    """
    One published event. The content is Base64 text of the published bytes. Where it was signed,
    there are the public key and the signature of its author in hexadecimal digits, and the author's
    own time in milliseconds since the epoch. Of an erased event there are neither content nor
    signature.
    """

    topic: str
    content: bytes
    extensions: dict[str, str]
    eventId: str
    author: str | UnsetType = UNSET
    signature: str | UnsetType = UNSET
    signedAt: int | UnsetType = UNSET
    erased: bool | UnsetType = UNSET


class LoggedEvent(Struct, frozen=True):
    """
    One published event, and its place in the log: the time of its block in milliseconds since the
    epoch, the block's height, and its number in its topic, from 1. Its author and its erasure are
    as in C{Event}.
    """

    topic: str
    content: bytes
    extensions: dict[str, str]
    eventId: str
    timestamp: int
    blockNumber: int
    sequenceNumber: int
    author: str | UnsetType = UNSET
    signature: str | UnsetType = UNSET
    signedAt: int | UnsetType = UNSET
    erased: bool | UnsetType = UNSET


class EventPage(Struct, frozen=True):
    """
    Events of the log. The next page begins at the offset C{next}, which is an event's id or a
    block's height. At the end everything was read; otherwise there may be more. Where erased events
    were left out, there is their number.
    """

    events: list[LoggedEvent]
    next: str
    atEnd: bool
    leftOut: int | UnsetType = UNSET


class SendResult(Struct, frozen=True):
    """The outcome of a publish. There is an event id only with SUCCESS."""

    topic: str
    eventId: str | None
    status: Literal["SUCCESS", "TIMEOUT", "ERROR"]


class TopicInfo(Struct, frozen=True):
    """A topic. The time of its creation is in milliseconds since the epoch."""

    topicName: str
    topicAddress: str
    senderAddress: str
    createdTimestamp: int


class TopicState(Struct, frozen=True):
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


class TopicPage(Struct, frozen=True):
    """One page of the open topics, in the order of their creation."""

    total: int
    pageIndex: int
    pageSize: int
    topicInfoList: list[TopicInfo]


class Envelope(Struct, Generic[T], frozen=True):
    """The answer of an admin query: code 0, message success, and the data."""

    code: Literal[0]
    message: Literal["success"]
    data: T


class Subscription(Struct, frozen=True):
    """One live subscription. Times are UTC."""

    interfaceType: Literal["RESTful", "JsonRPC", "MQTT", "STOMP"]
    notifiedEventCount: str
    notifyingEventCount: str
    notifyTimeStamp: str
    topicName: str
    subscribeId: str
    remoteIp: str
    createTimeStamp: str
    groupId: str


class Version(Struct, frozen=True):
    """Which broker this is. The time is UTC, and empty where the build does not know it."""

    svcVersion: str
    gitCommitTimeStamp: str
    gitBranch: str
    gitCommitHash: str


class GroupStatistics(Struct, frozen=True):
    """A group's chain in numbers."""

    nodeCount: str
    latestBlock: str
    transactionCount: str


class Transaction(Struct, frozen=True):
    """One transaction. The time is its block's, in UTC."""

    blockNumber: int
    blockTimestamp: str
    createTime: str | None
    modifyTime: str | None
    transFrom: str
    transHash: str
    transTo: str


class Block(Struct, frozen=True):
    """One block. The time is UTC; the sealer is its node's index, in hex and as a number."""

    blockNumber: int
    blockTimestamp: str
    createTime: str | None
    modifyTime: str | None
    pkHash: str
    sealer: str
    sealerIndex: int
    transCount: int


class Node(Struct, frozen=True):
    """One node of a group, as it stands. It is active (1) or not (0)."""

    nodeId: str
    nodeName: str | None
    pbftView: int
    nodeType: Literal["sealer", "observer"]
    blockNumber: int
    nodeActive: Literal[0, 1]
    createTime: str | None
    modifyTime: str | None


class AdminPage(Struct, Generic[T], frozen=True):
    """One page of what an admin query found."""

    total: int
    pageIndex: int
    pageSize: int
    pageData: list[T]


class Checkpoint(Struct, frozen=True):
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


def _hex(data: bytes) -> str:
    return "0x" + data.hex()


def utc(milliseconds: int) -> str:
    """A time as the interface writes it."""
    return strftime("%Y-%m-%d %H:%M:%S", gmtime(milliseconds // 1000))


def same(value: Any) -> Any:
    """The render function of a value that is the same on the wire."""
    return value


EventWriter: TypeAlias = Callable[[Batch], Sequence[Any]]
"""Makes records of the events of a batch, which are JSON objects on the wire."""


def _event(event: model.Event) -> Event:
    made = Event(event.topic, event.content, dict(event.extensions), str(event.eventId))
    isPlain = event.author is None and not event.isErased
    return made if isPlain else replace(made, **_authorship(event))


def _authorship(event: model.Event) -> dict[str, Any]:
    """The fields of an event that was signed or erased."""
    author = event.author
    fields: dict[str, Any] = {"erased": True} if event.isErased else {}
    if author is not None:
        fields["author"], fields["signedAt"] = author.key.hex(), author.signedAt
        if author.signature:
            fields["signature"] = author.signature.hex()
    return fields


def loggedEvents(batch: Batch) -> list[LoggedEvent]:
    """
    The events of a batch, as C{events} answers them and as streams send them.
    """
    timestamp = batch.timestamp
    made = [
        LoggedEvent(
            event.topic,
            event.content,
            dict(event.extensions),
            str(event.eventId),
            timestamp,
            event.eventId.height,
            event.eventId.sequence,
        )
        for event in batch.events
    ]
    for number, event in enumerate(batch.events):
        if event.author is not None or event.isErased:
            made[number] = replace(made[number], **_authorship(event))
    return made


def eventWriter(format: model.EventFormat, source: str, group: str) -> EventWriter:
    """
    Make the function that writes a batch in a format.

    @param source: what the C{source} of a CloudEvent begins with.
    @param group: the id of the group of the batches.
    """
    if format is model.EventFormat.SVC:
        return loggedEvents
    return partial(cloudEvents, source=sourceOf(source, group))


def _eventPage(answer: tuple[broker.EventPage, EventWriter]) -> EventPage:
    page, write = answer
    events = [event for batch in page.batches for event in write(batch)]
    return EventPage(events, str(page.next), page.isAtEnd, page.leftOut or UNSET)


def _sendResult(result: broker.SendResult) -> SendResult:
    eventId = None if result.eventId is None else str(result.eventId)
    # C{value} is a property that takes as long as all the rest.
    return SendResult(result.topic, eventId, result.status._value_)


def _topicInfo(topic: model.Topic) -> TopicInfo:
    return TopicInfo(topic.name, _hex(topic.address), _hex(topic.sender), topic.created)


def _topicState(topic: model.Topic) -> TopicState:
    authors = topic.authors
    return TopicState(
        topic.name,
        _hex(topic.address),
        _hex(topic.sender),
        topic.created,
        topic.sequence,
        topic.height,
        UNSET if authors is None else [key.hex() for key in authors.authors],
        UNSET if authors is None else [key.hex() for key in authors.admins],
        UNSET if authors is None else authors.generation,
    )


def _topicPage(answer: broker.NumberedPage[model.Topic]) -> TopicPage:
    return TopicPage(
        answer.page.total, answer.index, answer.size, [_topicInfo(t) for t in answer.page.items]
    )


def _statistics(statistics: model.Statistics) -> GroupStatistics:
    return GroupStatistics(
        str(statistics.nodeCount), str(statistics.height), str(statistics.transactionCount)
    )


def _version(version: VersionRecord) -> Version:
    return Version(version.version, version.commitTimestamp, version.branch, version.commitHash)


def _subscription(record: model.SubscriptionRecord) -> Subscription:
    return Subscription(
        interfaceType=record.interfaceType.value,
        notifiedEventCount=str(record.notified),
        notifyingEventCount=str(record.notifying),
        notifyTimeStamp=utc(record.notifiedAt),
        topicName=",".join(record.filters),
        subscribeId=record.subscriptionId,
        remoteIp=record.remote,
        createTimeStamp=utc(record.createdAt),
        groupId=record.group,
    )


def encodeSubscriptions(live: Sequence[model.SubscriptionRecord]) -> bytes:
    """Encode subscriptions as the members of a JSON object, by their ids."""
    return encode({each.subscriptionId: _subscription(each) for each in live})[1:-1]


def _transaction(record: model.TransactionRecord) -> Transaction:
    return Transaction(
        blockNumber=record.height,
        blockTimestamp=utc(record.timestamp),
        createTime=None,
        modifyTime=None,
        transFrom=_hex(record.sender),
        transHash=_hex(record.hash),
        transTo=_hex(record.recipient),
    )


def _block(record: model.BlockRecord) -> Block:
    return Block(
        blockNumber=record.height,
        blockTimestamp=utc(record.timestamp),
        createTime=None,
        modifyTime=None,
        pkHash=_hex(record.hash),
        sealer=hex(record.sealer),
        sealerIndex=record.sealer,
        transCount=record.transactionCount,
    )


def _node(record: model.NodeRecord) -> Node:
    return Node(
        nodeId=record.nodeId.hex(),
        nodeName=record.name,
        pbftView=record.view,
        nodeType=record.nodeType.value,
        blockNumber=record.height,
        nodeActive=1 if record.isActive else 0,
        createTime=None,
        modifyTime=None,
    )


def envelope(type: Any, render: Callable[[Any], Any]) -> Result:
    """The result of an admin query: a value of this type in an envelope."""

    def renderEnvelope(answer: Any) -> Envelope[Any]:
        return Envelope(0, "success", render(answer))

    return Result(type=Envelope[type], render=renderEnvelope)


def _adminPage(type: Any, render: Callable[[Any], Any]) -> Result:
    def renderPage(answer: broker.NumberedPage[Any]) -> AdminPage[Any]:
        return AdminPage(
            answer.page.total, answer.index, answer.size, [render(i) for i in answer.page.items]
        )

    return envelope(AdminPage[type], renderPage)


def _checkpoint(answer: broker.CheckpointAnswer) -> Checkpoint:
    return Checkpoint(
        answer.group,
        answer.chain,
        answer.checkpoint.height,
        answer.checkpoint.hash.hex(),
        answer.timestamp,
        str(answer.checkpoint),
    )


BOOLEAN = Result(type=bool, render=same)
STRING = Result(type=str, render=same)
EVENT = Result(type=Event, render=_event)
EVENT_PAGE = Result(type=EventPage, render=_eventPage)
SEND_RESULT = Result(type=SendResult, render=_sendResult)
TOPIC_PAGE = Result(type=TopicPage, render=_topicPage)
TOPIC_STATE = Result(type=TopicState, render=_topicState)

EVENT_PROOF = Result(type=EventProof, render=same)
TOPIC_PROOF = Result(type=TopicProof, render=same)
CHECKPOINT = Result(type=Checkpoint, render=_checkpoint)
CONSISTENCY_PROOF = Result(type=ConsistencyProof, render=same)
GENESIS = Result(type=GenesisFields, render=same)

STRINGS = envelope(list[str], same)
SUBSCRIPTIONS = envelope(dict[str, dict[str, Subscription]], lambda encoded: encoded)
VERSION = envelope(Version, _version)
STATISTICS = envelope(GroupStatistics, _statistics)
TRANSACTIONS = _adminPage(Transaction, _transaction)
BLOCKS = _adminPage(Block, _block)
NODES = _adminPage(Node, _node)
