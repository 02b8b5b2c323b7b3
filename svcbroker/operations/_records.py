"""
The records of the published interface, as they are on the wire. Field names are the interface's.
"""

from __future__ import annotations

from typing import Annotated, Generic, Literal, TypeVar

from msgspec import Meta, Struct

T = TypeVar("T")


class ErrorRecord(Struct, frozen=True):
    """A failure, as REST and the admin queries tell it."""

    code: Annotated[int, Meta(ge=100000, le=299999)]
    message: str


class Event(Struct, frozen=True):
    """One published event. The content is Base64 text of the published bytes."""

    topic: str
    content: bytes
    extensions: dict[str, str]
    eventId: str


class SendResult(Struct, frozen=True):
    """What became of a publish. There is an event id only with SUCCESS."""

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
    """A topic, how many events it has, and the height of the block of the latest."""

    topicName: str
    topicAddress: str
    senderAddress: str
    createdTimestamp: int
    sequenceNumber: int
    blockNumber: int


class TopicPage(Struct, frozen=True):
    """One page of the open topics, in the order of their creation."""

    total: int
    pageIndex: int
    pageSize: int
    topicInfoList: list[TopicInfo]


class Envelope(Struct, Generic[T], frozen=True):
    """What an admin query answers: code 0, message success, and the data."""

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


class Identity(Struct, frozen=True):
    """What a broker is called, and a text that is another one after each start."""

    address: str
    instance: str


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
