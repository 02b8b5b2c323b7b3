"""
What a ledger can be asked to do, and what it answers when that is final.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TypeAlias

from attrs import frozen
from msgspec import Struct, field

from ._events import Event, EventId


@frozen(kw_only=True)
class OpenTopic:
    """Create a topic, or open it again. Opening an open topic changes nothing."""

    topic: str


@frozen(kw_only=True)
class CloseTopic:
    """Close an open topic. What was published to it stays."""

    topic: str


class PublishEvent(Struct, frozen=True, kw_only=True):
    """Publish an event to an open topic."""

    topic: str
    content: bytes
    extensions: Mapping[str, str] = field(default_factory=dict)


def eventSize(event: Event | PublishEvent) -> int:
    """How many bytes a publisher made an event of, roughly: its content and extensions."""
    size = len(event.content)
    for key, value in event.extensions.items():
        size += len(key) + len(value)
    return size


Request: TypeAlias = OpenTopic | CloseTopic | PublishEvent
"""Anything that can be submitted to a ledger."""


class Execution(IntEnum):
    """How a transaction ended that is final. The numbers are part of the chain's encoding."""

    DONE = 0
    """It did what it says."""
    TOPIC_NOT_FOUND = 1
    """Refused: there was no such open topic when its turn came."""
    REPEATED = 2
    """Refused: it was in the chain already."""
    REFUSED = 3
    """Refused: a change of the set of nodes that they did not agree to."""


class Receipt(Struct, frozen=True, kw_only=True):
    """
    A final transaction: it is in a block that will not change and that is on stable storage.

    @ivar execution: how it ended.
    @ivar transactionHash: 32 bytes.
    @ivar height: the height of its block.
    @ivar eventId: for a publish that was done, the event's id; otherwise C{None}.
    """

    execution: Execution
    transactionHash: bytes
    height: int
    eventId: EventId | None = None
