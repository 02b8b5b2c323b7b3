"""
The admin queries, and the records of their answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, Literal, TypeVar

from msgspec import Raw, Struct
from msgspec.json import encode
from twisted.internet.defer import Deferred

from .. import broker, model
from ..access import Principal
from ..broker import Calls
from ..errors import PageIndexInvalid, PageSizeInvalid, ParameterInvalid
from ..histogram import Histogram
from ..net.alarms import Alarm, Incident
from ..net.deferreds import asDeferred
from ..net.findings import Level
from ..net.history import DAY, HistoryPart
from ..version import VersionRecord
from ._declarations import GROUP, PAGE_SIZE, Operation, Parameter, Result
from ._results import envelope, prefixedHex, utc
from ._types import HashType, ListType, NumberType, ParameterType

_T = TypeVar("_T")


class SubscriptionResult(Struct, frozen=True):
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


class VersionResult(Struct, frozen=True):
    """The version of this broker. The time is UTC, and empty where the build does not know it."""

    svcVersion: str
    gitCommitTimeStamp: str
    gitBranch: str
    gitCommitHash: str


class GroupStatistics(Struct, frozen=True):
    """A group's chain in numbers."""

    nodeCount: str
    latestBlock: str
    transactionCount: str


class LatencyCounts(Struct, frozen=True):
    """
    The time that publishes took until they were final and on disk, since the start: how many fell
    into the range up to each bound, in seconds. One more count has all above the last one.
    """

    bounds: list[float]
    counts: list[int]


class ChainMeasuresResult(Struct, frozen=True):
    """
    The chain that orders the batches of a ledger on a chain of others: its last final block, how
    many of its blocks were not read yet, the transactions of this broker that are in no final one,
    the balance of its account and what it offers for gas, in wei, and the newest block of ours that
    the brokers have attested. What is not known is null. Wei are text, as they exceed what numbers
    hold exactly.
    """

    height: int
    behind: int
    underWay: int
    balance: str | None
    gasPrice: str
    attested: int


class GroupMeasuresResult(Struct, frozen=True):
    """
    The measures of a group's ledger: how many transactions of this broker wait to become
    final, their bytes, and how many seconds the oldest one has waited; how many bytes of the
    disk of the data directory are free, of how many; the chain of others that the ledger is on;
    and when the last scheduled audit ended, in milliseconds since the epoch. What is not known is
    null.
    """

    waiting: int | None
    waitingBytes: int | None
    oldestWaiting: float | None
    latency: LatencyCounts | None
    diskFree: int | None
    diskSize: int | None
    chain: ChainMeasuresResult | None
    auditedTimestamp: int | None


class AlarmResult(Struct, frozen=True):
    """
    Something that is wrong: its name; whether it does not work (problem) or may not for long
    (warning); its group, which is empty where it concerns the whole broker; since when, in
    milliseconds since the epoch; what exactly was found; what that means, and what to do; and the
    page of the console that shows more.
    """

    name: str
    level: Literal["problem", "warning"]
    groupId: str
    since: int
    title: str
    text: str
    meaning: str
    remedy: str
    page: str


class IncidentResult(Struct, frozen=True):
    """
    A file with what came before an alarm: its path in the data directory; when the alarm began, in
    milliseconds since the epoch; and the alarm, as it was told.
    """

    file: str
    at: int
    name: str
    level: Literal["problem", "warning"]
    title: str
    groupId: str
    text: str


class HistoryResult(Struct, frozen=True):
    """
    The measures of the whole broker: the end of the last step, in milliseconds since the
    epoch; the seconds of a step; and the values of each series, one for each step, the oldest
    first. Where the broker did not run, or nobody published, they are null. The series are: events
    and refusals, a second; p50 and p99, how long a half and 99 % of the publishes took at most, in
    seconds; waiting transactions; connections; stored bytes of the ledgers, and free ones of the
    disk.
    """

    end: int
    step: int
    series: dict[str, list[float | None]]


class TransactionResult(Struct, frozen=True):
    """One transaction. The time is its block's, in UTC."""

    blockNumber: int
    blockTimestamp: str
    createTime: str | None
    modifyTime: str | None
    transFrom: str
    transHash: str
    transTo: str


class BlockResult(Struct, frozen=True):
    """One block. The time is UTC; the sealer is its node's index, in hex and as a number."""

    blockNumber: int
    blockTimestamp: str
    createTime: str | None
    modifyTime: str | None
    pkHash: str
    sealer: str
    sealerIndex: int
    transCount: int


class NodeResult(Struct, frozen=True):
    """One node of a group, as it stands. It is active (1) or not (0)."""

    nodeId: str
    nodeName: str | None
    pbftView: int
    nodeType: Literal["sealer", "observer"]
    blockNumber: int
    nodeActive: Literal[0, 1]
    createTime: str | None
    modifyTime: str | None


class TopicActivityResult(Struct, frozen=True):
    """
    An open topic: how many events it has, the height of the block of the latest, the time of that
    block, which is null where there is none, and how many bytes its events take in the log, names
    and extensions included: null where the ledger does not tell, or is still counting. Times are in
    milliseconds since the epoch.
    """

    topicName: str
    createdTimestamp: int
    sequenceNumber: int
    blockNumber: int
    lastTimestamp: int | None
    bytes: int | None


class AdminPage(Struct, Generic[_T], frozen=True):
    """One page of what an admin query found."""

    total: int
    pageIndex: int
    pageSize: int
    pageData: list[_T]


def _statistics(statistics: model.Statistics) -> GroupStatistics:
    return GroupStatistics(
        str(statistics.nodeCount), str(statistics.height), str(statistics.transactionCount)
    )


def _version(version: VersionRecord) -> VersionResult:
    return VersionResult(
        version.version, version.commitTimestamp, version.branch, version.commitHash
    )


def _subscription(record: model.SubscriptionRecord) -> SubscriptionResult:
    return SubscriptionResult(
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


def _transaction(record: model.TransactionRecord) -> TransactionResult:
    return TransactionResult(
        blockNumber=record.height,
        blockTimestamp=utc(record.timestamp),
        createTime=None,
        modifyTime=None,
        transFrom=prefixedHex(record.sender),
        transHash=prefixedHex(record.hash),
        transTo=prefixedHex(record.recipient),
    )


def _block(record: model.BlockRecord) -> BlockResult:
    return BlockResult(
        blockNumber=record.height,
        blockTimestamp=utc(record.timestamp),
        createTime=None,
        modifyTime=None,
        pkHash=prefixedHex(record.hash),
        sealer=hex(record.sealer),
        sealerIndex=record.sealer,
        transCount=record.transactionCount,
    )


def _node(record: model.NodeRecord) -> NodeResult:
    return NodeResult(
        nodeId=record.nodeId.hex(),
        nodeName=record.name,
        pbftView=record.view,
        nodeType=record.nodeType.value,
        blockNumber=record.height,
        nodeActive=1 if record.isActive else 0,
        createTime=None,
        modifyTime=None,
    )


def _topic(activity: broker.TopicActivity) -> TopicActivityResult:
    topic = activity.topic
    return TopicActivityResult(
        *(topic.name, topic.created, topic.sequence, topic.height),
        *(activity.lastAt, activity.bytes),
    )


def _measuresOf(measures: model.GroupMeasures) -> GroupMeasuresResult:
    """Make the record of the measures of a group."""
    ledger, disk = measures.ledger, measures.disk
    return GroupMeasuresResult(
        waiting=None if ledger is None else ledger.waiting,
        waitingBytes=None if ledger is None else ledger.waitingBytes,
        oldestWaiting=None if ledger is None else ledger.oldest,
        latency=None if ledger is None or ledger.latency is None else _latency(ledger.latency),
        diskFree=None if disk is None else disk.free,
        diskSize=None if disk is None else disk.size,
        chain=None if ledger is None or ledger.chain is None else _chain(ledger.chain),
        auditedTimestamp=None if measures.auditedAt is None else int(measures.auditedAt * 1000),
    )


def _chain(measures: model.ChainMeasures) -> ChainMeasuresResult:
    return ChainMeasuresResult(
        height=measures.height,
        behind=measures.behind,
        underWay=measures.underWay,
        balance=None if measures.balance is None else str(measures.balance),
        gasPrice=str(measures.gasPrice),
        attested=measures.attested,
    )


def _latency(histogram: Histogram) -> LatencyCounts:
    return LatencyCounts(bounds=list(histogram.bounds), counts=list(histogram.counts))


def alarmResults(raised: Sequence[Alarm]) -> list[AlarmResult]:
    """Make the records of alarms."""
    return [
        AlarmResult(
            name=each.condition.name,
            level="problem" if each.condition.level is Level.PROBLEM else "warning",
            groupId=each.group,
            since=int(each.since * 1000),
            title=each.condition.title,
            text=each.text,
            meaning=each.condition.meaning,
            remedy=each.condition.remedy,
            page=each.condition.page,
        )
        for each in raised
    ]


def _incidents(kept: Sequence[Incident]) -> list[IncidentResult]:
    """Make the records of incidents."""
    return [
        IncidentResult(
            file=each.file,
            at=int(each.at * 1000),
            name=each.name,
            level="problem" if each.level == Level.PROBLEM.value else "warning",
            title=each.title,
            groupId=each.group,
            text=each.text,
        )
        for each in kept
    ]


def _historyOf(part: HistoryPart) -> HistoryResult:
    """Make the record of a part of the history."""
    series = {name: [*values] for name, values in part.series.items()}
    return HistoryResult(end=int(part.end * 1000), step=part.step, series=series)


def _adminPage(type: Any, render: Callable[[Any], Any]) -> Result:
    def renderPage(answer: broker.NumberedPage[Any]) -> AdminPage[Any]:
        return AdminPage(
            answer.page.total, answer.index, answer.size, [render(i) for i in answer.page.items]
        )

    return envelope(AdminPage[type], renderPage)


_STRINGS = envelope(list[str])


_PAGE_ERRORS = (PageIndexInvalid, PageSizeInvalid)

_PAGE_NUMBER = Parameter(
    name="pageNumber",
    type=NumberType(PageIndexInvalid, 1),
    default=1,
    description="The page, counted from 1.",
)
_BLOCK_NUMBER = Parameter(
    name="blockNumber",
    type=NumberType(ParameterInvalid, 0),
    default=None,
    description="Only what is in the block of this height.",
)
_NODE_IP = Parameter(
    name="nodeIp",
    type=ListType(),
    default=(),
    description="The broker's address as listNodes has it; by default that one.",
)
# Not L{GroupType}: absent means all groups, not group 1.
_GROUP_FILTER = Parameter(
    name="groupId",
    type=ParameterType(),
    default=None,
    description="Only subscriptions of this group.",
)
_TRANSACTION_HASH = Parameter(
    name="transactionHash",
    type=HashType(),
    default=None,
    description="Only the transaction of this hash.",
)
_BLOCK_HASH = Parameter(
    name="pkHash", type=HashType(), default=None, description="Only the block of this hash."
)
_NODE_NAME = Parameter(
    name="nodeName", type=ParameterType(), default=None, description="Only nodes of this name."
)

LISTED_AT_ONCE: Final = 200
"""The number of subscriptions that are encoded between two looks at the time: a millisecond."""


def _listing(calls: Calls) -> Callable[..., Deferred[Raw]]:
    """Listing live subscriptions, encoded a few at a time: there may be hundred thousands."""

    @asDeferred
    async def list(principal: Principal, **given: Any) -> Raw:
        nodes = await calls.admin.listSubscriptions(principal, **given)
        lane = calls.broker.budgets.work.lane()
        listed = []
        for address, live in nodes.items():
            pieces = []
            for start in range(0, len(live), LISTED_AT_ONCE):
                if not lane.begin(isWrite=False):
                    await lane.turn(isWrite=False)
                pieces.append(encodeSubscriptions(live[start : start + LISTED_AT_ONCE]))
            listed.append(b"%b:{%b}" % (encode(address), b",".join(pieces)))
        lane.end()
        return Raw(b"{%b}" % b",".join(listed))

    return list


ALARMS: Final = Operation(
    name="listAlarms",
    summary="List what is wrong with the broker and its groups, since when, and what to do.",
    result=envelope(list[AlarmResult], alarmResults),
    method=lambda calls: calls.admin.listAlarms,
    changedBy=(),
)

HISTORY: Final = Operation(
    name="history",
    summary="Tell rates, latencies, sizes, connections and refusals of the last minutes or hours.",
    parameters=(
        Parameter(
            name="seconds",
            type=NumberType(ParameterInvalid, 60, DAY),
            default=3600,
            description="How far it goes back: 60 to 86400, which is a day.",
        ),
    ),
    result=envelope(HistoryResult, _historyOf),
    method=lambda calls: calls.admin.getHistory,
    changedBy=(),
)

INCIDENTS: Final = Operation(
    name="listIncidents",
    summary="List the files with what came before alarms, the newest first.",
    result=envelope(list[IncidentResult], _incidents),
    method=lambda calls: calls.admin.listIncidents,
    changedBy=(),
)

QUERIES: Final = (
    ALARMS,
    HISTORY,
    INCIDENTS,
    Operation(
        name="listGroup",
        summary="List the groups.",
        result=_STRINGS,
        method=lambda calls: calls.admin.listGroups,
    ),
    Operation(
        name="listNodes",
        summary="List the address of this broker.",
        result=_STRINGS,
        method=lambda calls: calls.admin.listAddresses,
    ),
    Operation(
        name="listSubscription",
        summary="List the live subscriptions of this broker, by its address.",
        parameters=(_NODE_IP, _GROUP_FILTER),
        result=envelope(dict[str, dict[str, SubscriptionResult]]),
        method=_listing,
    ),
    Operation(
        name="getVersion",
        summary="Tell which broker this is.",
        result=envelope(VersionResult, _version),
        method=lambda calls: calls.admin.getVersion,
    ),
    Operation(
        name="group/general",
        summary="Tell a group's chain in numbers.",
        parameters=(GROUP,),
        result=envelope(GroupStatistics, _statistics),
        method=lambda calls: calls.admin.getStatistics,
    ),
    Operation(
        name="group/measures",
        summary="Tell how long publishes to a group take, what waits, and what is left of the "
        "disk.",
        parameters=(GROUP,),
        result=envelope(GroupMeasuresResult, _measuresOf),
        method=lambda calls: calls.admin.getMeasures,
    ),
    Operation(
        name="transaction/transList",
        summary="List the chain's transactions, newest first.",
        parameters=(GROUP, _PAGE_NUMBER, PAGE_SIZE, _TRANSACTION_HASH, _BLOCK_NUMBER),
        result=_adminPage(TransactionResult, _transaction),
        errors=_PAGE_ERRORS,
        method=lambda calls: calls.admin.listTransactions,
    ),
    Operation(
        name="block/blockList",
        summary="List the chain's blocks, newest first.",
        parameters=(GROUP, _PAGE_NUMBER, PAGE_SIZE, _BLOCK_HASH, _BLOCK_NUMBER),
        result=_adminPage(BlockResult, _block),
        errors=_PAGE_ERRORS,
        method=lambda calls: calls.admin.listBlocks,
    ),
    Operation(
        name="topic/topicList",
        summary="List the open topics in the order of their creation, with how many events each "
        "has and when the latest came.",
        parameters=(GROUP, _PAGE_NUMBER, PAGE_SIZE),
        result=_adminPage(TopicActivityResult, _topic),
        errors=_PAGE_ERRORS,
        method=lambda calls: calls.admin.listTopics,
    ),
    Operation(
        name="node/nodeList",
        summary="List a group's nodes in the order of their indexes.",
        parameters=(GROUP, _PAGE_NUMBER, PAGE_SIZE, _NODE_NAME),
        result=_adminPage(NodeResult, _node),
        errors=_PAGE_ERRORS,
        method=lambda calls: calls.admin.listNodes,
    ),
)
