"""
What operators and followers read of a ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Generic, TypeVar

from attrs import frozen
from msgspec import Struct

from ._events import Event

T = TypeVar("T")


@frozen(kw_only=True)
class Page(Generic[T]):
    """
    A part of a list.

    @ivar total: how many items the whole list has, after filters.
    @ivar items: the part; empty beyond the end of the list.
    """

    total: int
    items: Sequence[T]


class Block(Struct, frozen=True, kw_only=True):
    """
    A final block as a follower reads it.

    @ivar height: its height, from 1.
    @ivar timestamp: its time in milliseconds since the epoch.
    @ivar hash: its hash: 32 bytes.
    @ivar events: the events published in it, in order.
    @ivar erases: whether it has erased events of earlier blocks, so that what was read of these
        before is to be read again.
    """

    height: int
    timestamp: int
    hash: bytes
    events: Sequence[Event]
    erases: bool = False


@frozen(kw_only=True)
class BlockRecord:
    """
    A final block as an operator sees it.

    @ivar height: its height, from 1.
    @ivar timestamp: its time in milliseconds since the epoch.
    @ivar hash: its hash: 32 bytes.
    @ivar sealer: the index of the node that proposed it.
    @ivar transactionCount: how many transactions are in it, refused ones included.
    """

    height: int
    timestamp: int
    hash: bytes
    sealer: int
    transactionCount: int


@frozen(kw_only=True)
class TransactionRecord:
    """
    A final transaction as an operator sees it.

    @ivar height: the height of its block.
    @ivar timestamp: its block's time in milliseconds since the epoch.
    @ivar hash: its hash: 32 bytes.
    @ivar sender: the address that sent it: 20 bytes.
    @ivar recipient: the address of the topic that it is about: 20 bytes.
    """

    height: int
    timestamp: int
    hash: bytes
    sender: bytes
    recipient: bytes


class NodeType(Enum):
    """What a node of a ledger does."""

    SEALER = "sealer"
    """It takes part in deciding blocks."""
    OBSERVER = "observer"
    """It only follows."""


@frozen(kw_only=True)
class NodeRecord:
    """
    A node of a ledger, as that node itself says it stands.

    @ivar nodeId: its public key.
    @ivar name: its name where it has one.
    @ivar view: the view it is in: a count of leaders tried, which never falls.
    @ivar nodeType: what it does.
    @ivar height: the height of the last block it has decided or taken over.
    @ivar isActive: whether it runs.
    """

    nodeId: bytes
    name: str | None
    view: int
    nodeType: NodeType
    height: int
    isActive: bool


@frozen(kw_only=True)
class Statistics:
    """
    A ledger in three numbers.

    @ivar nodeCount: how many nodes it has.
    @ivar height: the height of its latest block.
    @ivar transactionCount: how many transactions are in its chain, refused ones included.
    """

    nodeCount: int
    height: int
    transactionCount: int


@frozen(kw_only=True)
class Health:
    """
    Whether a ledger makes progress.

    @ivar isReady: whether work that is submitted now can be expected to become final.
    @ivar reason: why not, in words for an operator; empty where it is ready.
    """

    isReady: bool
    reason: str = ""


@frozen(kw_only=True)
class ChainPart:
    """
    Some blocks of a chain that follow each other, with their certificates.

    @ivar stream: an export of them, as C{svcbroker import} reads it. Empty where the chain ends
        more than one block before the first that was asked for.
    @ivar last: the height of the last of them; below the first where there is none.
    @ivar height: the height of the last block that has a certificate, after they were read.
    @ivar tip: the height of the chain after they were read. On an engine's chain blocks come before
        their certificates.
    """

    stream: bytes
    last: int
    height: int
    tip: int
