"""
From what the broker answers to what is on the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import gmtime, strftime
from typing import Any

from attrs import frozen

from .. import broker, model
from ..version import VersionRecord
from . import _records as records


@frozen(kw_only=True)
class Result:
    """
    What an operation answers.

    @ivar type: what it looks like on the wire, as msgspec knows types.
    @ivar render: makes that of the broker's answer.
    """

    type: Any
    render: Callable[[Any], Any]


def _hex(data: bytes) -> str:
    return "0x" + data.hex()


def utc(milliseconds: int) -> str:
    """A time as the interface writes it."""
    return strftime("%Y-%m-%d %H:%M:%S", gmtime(milliseconds // 1000))


def same(value: Any) -> Any:
    """What needs no rendering."""
    return value


def _event(event: model.Event) -> records.Event:
    return records.Event(event.topic, event.content, dict(event.extensions), str(event.eventId))


def _sendResult(result: broker.SendResult) -> records.SendResult:
    eventId = None if result.eventId is None else str(result.eventId)
    return records.SendResult(result.topic, eventId, result.status.value)


def _topicInfo(topic: model.Topic) -> records.TopicInfo:
    return records.TopicInfo(topic.name, _hex(topic.address), _hex(topic.sender), topic.created)


def _topicState(topic: model.Topic) -> records.TopicState:
    return records.TopicState(
        topic.name,
        _hex(topic.address),
        _hex(topic.sender),
        topic.created,
        topic.sequence,
        topic.height,
    )


def _topicPage(answer: broker.NumberedPage[model.Topic]) -> records.TopicPage:
    return records.TopicPage(
        answer.page.total, answer.index, answer.size, [_topicInfo(t) for t in answer.page.items]
    )


def _statistics(statistics: model.Statistics) -> records.GroupStatistics:
    return records.GroupStatistics(
        str(statistics.nodeCount), str(statistics.height), str(statistics.transactionCount)
    )


def _version(version: VersionRecord) -> records.Version:
    return records.Version(
        version.version, version.commitTimestamp, version.branch, version.commitHash
    )


def _identity(identity: broker.Identity) -> records.Identity:
    return records.Identity(identity.address, identity.instance)


def _subscription(record: model.SubscriptionRecord) -> records.Subscription:
    return records.Subscription(
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


def _subscriptions(
    nodes: Mapping[str, Sequence[model.SubscriptionRecord]],
) -> dict[str, dict[str, records.Subscription]]:
    return {
        address: {each.subscriptionId: _subscription(each) for each in live}
        for address, live in nodes.items()
    }


def _transaction(record: model.TransactionRecord) -> records.Transaction:
    return records.Transaction(
        blockNumber=record.height,
        blockTimestamp=utc(record.timestamp),
        createTime=None,
        modifyTime=None,
        transFrom=_hex(record.sender),
        transHash=_hex(record.hash),
        transTo=_hex(record.recipient),
    )


def _block(record: model.BlockRecord) -> records.Block:
    return records.Block(
        blockNumber=record.height,
        blockTimestamp=utc(record.timestamp),
        createTime=None,
        modifyTime=None,
        pkHash=_hex(record.hash),
        sealer=hex(record.sealer),
        sealerIndex=record.sealer,
        transCount=record.transactionCount,
    )


def _node(record: model.NodeRecord) -> records.Node:
    return records.Node(
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
    """What an admin query answers: a value of this type in an envelope."""

    def renderEnvelope(answer: Any) -> records.Envelope[Any]:
        return records.Envelope(0, "success", render(answer))

    return Result(type=records.Envelope[type], render=renderEnvelope)


def _adminPage(type: Any, render: Callable[[Any], Any]) -> Result:
    def renderPage(answer: broker.NumberedPage[Any]) -> records.AdminPage[Any]:
        return records.AdminPage(
            answer.page.total, answer.index, answer.size, [render(i) for i in answer.page.items]
        )

    return envelope(records.AdminPage[type], renderPage)


BOOLEAN = Result(type=bool, render=same)
STRING = Result(type=str, render=same)
EVENT = Result(type=records.Event, render=_event)
SEND_RESULT = Result(type=records.SendResult, render=_sendResult)
TOPIC_PAGE = Result(type=records.TopicPage, render=_topicPage)
TOPIC_STATE = Result(type=records.TopicState, render=_topicState)

STRINGS = envelope(list[str], same)
SUBSCRIPTIONS = envelope(dict[str, dict[str, records.Subscription]], _subscriptions)
IDENTITY = envelope(records.Identity, _identity)
VERSION = envelope(records.Version, _version)
STATISTICS = envelope(records.GroupStatistics, _statistics)
TRANSACTIONS = _adminPage(records.Transaction, _transaction)
BLOCKS = _adminPage(records.Block, _block)
NODES = _adminPage(records.Node, _node)
