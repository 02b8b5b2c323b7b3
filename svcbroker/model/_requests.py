"""
Requests to a ledger, and the receipts that answer them once they are final.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum
from typing import ClassVar, Final, TypeAlias

from attrs import frozen
from msgspec import Struct, field

from ._events import AuthorChange, AuthorSet, Authorship, Event, EventId


@frozen(kw_only=True)
class OpenTopic:
    """
    Create a topic, or open it again. Opening an open topic changes nothing.

    @ivar authors: who may publish to it, of generation 0. A topic that exists must have the same
        ones.
    """

    topic: str
    authors: AuthorSet | None = None


@frozen(kw_only=True)
class CloseTopic:
    """Close an open topic. What was published to it stays."""

    topic: str


class PublishEvent(Struct, frozen=True, kw_only=True, gc=False):
    """
    Publish an event to an open topic.

    @ivar author: who has signed it; C{None} where nobody has.
    @ivar idempotencyKey: a publish of this key is executed once, however often it is submitted.
    @ivar isKeyOptional: whether a ledger that has no idempotency keys, or not yet, publishes it
        without its key.
    @ivar publisher: the name of the account that publishes, which owns the key of a publish that
        has no author; empty where there are no accounts.
    @ivar expectedSequence: the sequence number that the topic must have for it.
    """

    topic: str
    content: bytes
    extensions: Mapping[str, str] = field(default_factory=dict)
    author: Authorship | None = None
    idempotencyKey: str | None = None
    isKeyOptional: bool = False
    publisher: str = ""
    expectedSequence: int | None = None


@frozen(kw_only=True)
class ChangeAuthors:
    """
    Change who may publish to a topic.

    @ivar change: the new set, as an admin of the current one has signed it.
    """

    topic: str
    change: AuthorChange


@frozen(kw_only=True)
class EraseEvents:
    """
    Remove the content of events from the storage of all nodes.

    @ivar ranges: pairs of the first and the last sequence number, rising; at most L{MAX_RANGES} of
        at most L{MAX_ERASED} numbers together.
    @ivar account: the account of the operator who asks for it.
    @ivar reason: why, in at most L{MAX_REASON} bytes of UTF-8.
    """

    topic: str
    ranges: Sequence[tuple[int, int]]
    account: str
    reason: str


@frozen(kw_only=True)
class AddHold:
    """
    Keep events from being erased until the hold is released: either all events of some topics,
    later ones too, or single events.

    @ivar case: the name of the hold, as L{isCase} has it.
    @ivar account: the account of the operator who asks for it.
    @ivar reason: why, in at most L{MAX_REASON} bytes of UTF-8.
    @ivar patterns: patterns of topics, at most L{MAX_HOLD_PATTERNS}.
    @ivar events: the addresses of topics, and sequence numbers; at most L{MAX_HELD_EVENTS}.
    """

    topic: ClassVar[str] = ""

    case: str
    account: str
    reason: str
    patterns: Collection[str] = ()
    events: Collection[tuple[bytes, int]] = ()


@frozen(kw_only=True)
class ReleaseHold:
    """
    End a hold. The chain keeps both.

    @ivar case: the name of the hold.
    @ivar account: the account of the operator who asks for it.
    @ivar reason: why, in at most L{MAX_REASON} bytes of UTF-8.
    """

    topic: ClassVar[str] = ""

    case: str
    account: str
    reason: str


def extendRanges(ranges: list[tuple[int, int]], sequence: int) -> None:
    """Add a sequence number above all others to ranges."""
    if ranges and ranges[-1][1] == sequence - 1:
        ranges[-1] = (ranges[-1][0], sequence)
    else:
        ranges.append((sequence, sequence))


MAX_RANGES: Final = 1024
MAX_ERASED: Final = 65536
MAX_REASON: Final = 1024
MAX_HOLDS: Final = 1000
MAX_HOLD_PATTERNS: Final = 16
MAX_HELD_EVENTS: Final = 1000
MAX_CASE: Final = 64

_CASE: Final = re.compile(rf"[!-~]{{1,{MAX_CASE}}}", re.ASCII)


def isCase(text: str) -> bool:
    """
    Whether a text can be the name of a hold: 1 to L{MAX_CASE} characters from U+0021 to U+007E.
    """
    return _CASE.fullmatch(text) is not None


def eventSize(event: Event | PublishEvent) -> int:
    """The size of an event as its publisher sent it, roughly: its content and extensions."""
    size = len(event.content)
    for key, value in event.extensions.items():
        size += len(key) + len(value)
    return size


Request: TypeAlias = (
    OpenTopic | CloseTopic | PublishEvent | ChangeAuthors | EraseEvents | AddHold | ReleaseHold
)
"""Anything that can be submitted to a ledger."""


def isPlain(request: Request) -> bool:
    """
    Whether a request opens or closes a topic or publishes an event, and nothing else: without
    authors, expected sequence number and idempotency key, unless the key is optional. Every ledger
    can execute these.
    """
    if isinstance(request, PublishEvent):
        key = None if request.isKeyOptional else request.idempotencyKey
        return (key, request.author, request.expectedSequence) == (None, None, None)
    if isinstance(request, OpenTopic):
        return request.authors is None
    return isinstance(request, CloseTopic)


class Execution(IntEnum):
    """The end of a final transaction. The numbers are part of the chain's encoding."""

    DONE = 0
    """It did what it says."""
    TOPIC_NOT_FOUND = 1
    """Refused: there was no such open topic when its turn came."""
    REPEATED = 2
    """Refused: it was in the chain already."""
    REFUSED = 3
    """Refused: a change, a signature or an erasure that does not hold."""
    PUBLISHED_BEFORE = 4
    """Refused: its idempotency key has published this event already."""
    KEY_IN_USE = 5
    """Refused: its idempotency key has published another event, or one that is erased."""
    OTHER_SEQUENCE = 6
    """Refused: the topic has another sequence number than the expected one."""
    NO_AUTHOR = 7
    """Refused: no author of the topic has signed it."""
    HELD = 8
    """Refused: one of the events that it would erase is held."""


class Receipt(Struct, frozen=True, kw_only=True, gc=False):
    """
    A final transaction: it is in a block that will not change and that is on stable storage.

    @ivar execution: how it ended.
    @ivar transactionHash: 32 bytes.
    @ivar height: the height of its block.
    @ivar eventId: for a publish that was done, the event's id; for one that was published before,
        or whose key has published an event that is erased, that of the first event; otherwise
        C{None}.
    @ivar sequence: of a publish: the event's number in its topic, or where another number was
        expected, the topic's; otherwise 0.
    """

    execution: Execution
    transactionHash: bytes
    height: int
    eventId: EventId | None = None
    sequence: int = 0
