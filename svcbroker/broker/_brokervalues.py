"""
The answers of the broker where the ledger's own values are not the whole answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, Generic, TypeAlias, TypeVar

from attrs import frozen
from msgspec import Struct
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from ..access import Principal
from ..errors import (
    AuthorRefused,
    BrokerError,
    EventErased,
    EventNotFound,
    IdempotencyConflict,
    LedgerUnavailable,
    PageIndexInvalid,
    SequenceConflict,
    SignatureInvalid,
    TopicNotFound,
    TransactionFailed,
)
from ..interfaces import Action, Batch
from ..model import Event, EventId, Execution, Offset, Page, PublishEvent, Receipt, Request

T = TypeVar("T")

DEFAULT_READ: Final = 100
"""The most events that C{events} answers, where the client does not say."""
MAX_READ: Final = 1000
"""The most events that C{events} answers."""
MAX_WAIT: Final = 30
"""The longest time that C{events} waits for an event, in seconds."""

DEFAULT_PAGE_SIZE: Final = 10
MAX_PAGE_SIZE: Final = 99
MAX_PAGE_NUMBER: Final = 10**15
"""The highest page that can be asked for. No chain comes near; every JSON reader can hold it."""


class SendStatus(Enum):
    """The outcome of a publish."""

    SUCCESS = "SUCCESS"
    """The event is in a final block on stable storage."""
    TIMEOUT = "TIMEOUT"
    """The chain gave no answer in time. The event may still appear."""
    ERROR = "ERROR"
    """The chain executed the publish and refused it."""


class PublishOutcome(Struct, frozen=True):
    """
    The answer to a publish.

    @ivar topic: the topic that was published to.
    @ivar status: what became of it.
    @ivar eventId: the event's id, where it was published, now or by an earlier publish with the
        same idempotency key.
    """

    topic: str
    status: SendStatus
    eventId: EventId | None = None


Answer: TypeAlias = PublishOutcome | BrokerError
"""The outcome of a publish, or its error."""

_PUBLISHED: Final = frozenset({Execution.DONE, Execution.PUBLISHED_BEFORE})
_ERRORS: Final[Mapping[Execution, type[BrokerError]]] = {
    Execution.TOPIC_NOT_FOUND: TopicNotFound,
    Execution.KEY_IN_USE: IdempotencyConflict,
    Execution.NO_AUTHOR: AuthorRefused,
}


def answerOf(request: Request, outcome: Receipt | BrokerError | None) -> Answer:
    """
    The answer to a publish.

    @param outcome: the receipt, or why it was not executed; C{None} where that is not known in
        time.
    """
    if not isinstance(outcome, Receipt):
        return PublishOutcome(request.topic, SendStatus.TIMEOUT) if outcome is None else outcome
    if outcome.execution in _PUBLISHED:
        return PublishOutcome(request.topic, SendStatus.SUCCESS, outcome.eventId)
    if outcome.execution is Execution.TOPIC_NOT_FOUND:
        return PublishOutcome(request.topic, SendStatus.ERROR)
    return _errorOf(request, outcome)


def refusalOf(request: Request, outcome: Receipt | BrokerError | None) -> BrokerError | None:
    """The error of a publish that is not in the log; C{None} where it is."""
    if not isinstance(outcome, Receipt):
        return LedgerUnavailable() if outcome is None else outcome
    return None if outcome.execution in _PUBLISHED else _errorOf(request, outcome)


def _errorOf(request: Request, receipt: Receipt) -> BrokerError:
    execution = receipt.execution
    if execution is Execution.KEY_IN_USE and receipt.eventId is not None:
        return IdempotencyConflict(
            f"idempotency key has published event {receipt.eventId}, which was erased: whether "
            "that had this content cannot be told"
        )
    if execution is Execution.OTHER_SEQUENCE:
        return SequenceConflict(receipt.sequence)
    isSigned = isinstance(request, PublishEvent) and request.author is not None
    if execution is Execution.REFUSED and isSigned:
        return SignatureInvalid()
    return _ERRORS.get(execution, TransactionFailed)()


def answersOf(
    requests: Sequence[Request], outcomes: Sequence[Receipt | BrokerError | None]
) -> Sequence[Answer]:
    """The answers to publishes, as L{answerOf} gives them."""
    success, done = SendStatus.SUCCESS, Execution.DONE
    return [
        PublishOutcome(request.topic, success, outcome.eventId)
        if isinstance(outcome, Receipt) and outcome.execution is done
        else answerOf(request, outcome)
        for request, outcome in zip(requests, outcomes, strict=True)
    ]


def readable(event: Deferred[Event], principal: Principal, group: str) -> Deferred[Event]:
    """
    An event that was asked for by its id, as far as a principal may read it.

    @raise EventNotFound: the principal may not.
    """

    def check(topic: str) -> None:
        if not principal.may(Action.SUBSCRIBE, group, topic):
            raise EventNotFound()

    def found(event: Event) -> Event:
        check(event.topic)
        return event

    def failed(failure: Failure) -> Failure:
        if isinstance(failure.value, EventErased):
            check(failure.value.topic)
        return failure

    return event.addCallbacks(found, failed)


@frozen(kw_only=True)
class NumberedPage(Generic[T]):
    """
    One page of a long list, as it was asked for.

    @ivar page: what is on it.
    @ivar index: its number, as it was asked.
    @ivar size: the most items that it could have, as it was applied.
    """

    page: Page[T]
    index: int
    size: int


@frozen(kw_only=True)
class ReadRequest:
    """
    A request for a part of a group's log.

    @ivar group: the id of the group.
    @ivar filter: a topic or a pattern.
    @ivar offset: where reading begins.
    @ivar limit: the most events to read, 1 to L{MAX_READ}.
    @ivar tag: only events whose extension C{svc-tag} equals it; C{None} for all.
    @ivar wait: how long to wait for an event where there is none, in seconds.
    @ivar isReverse: whether the newest events come first: those before the offset, and of an
        offset that is a height, those up to the end of this block.
    @ivar hasTombstones: whether erased events are read too; otherwise they are left out.
    @ivar remote: the address of the client, as L{peerText<svcbroker.net.addresses.peerText>} gives
        it.
    """

    group: str
    filter: str
    offset: Offset
    limit: int = DEFAULT_READ
    tag: str | None = None
    wait: float = 0
    isReverse: bool = False
    hasTombstones: bool = False
    remote: str = ""


@frozen(kw_only=True)
class ReadPage:
    """
    Some events of a group's log.

    @ivar batches: the events, in the order in which they were asked for.
    @ivar next: where the next page begins: an event's id, or a block's height.
    @ivar isAtEnd: whether everything was read: up to the end of the log, or in reverse up to its
        beginning. Otherwise there may be more events.
    @ivar leftOut: how many erased events were left out.
    """

    batches: Sequence[Batch]
    next: EventId | int
    isAtEnd: bool
    leftOut: int = 0


def appliedSize(asked: int) -> int:
    """The page size that is applied when this one is asked for."""
    return asked if 1 <= asked <= MAX_PAGE_SIZE else DEFAULT_PAGE_SIZE


def pageOffset(index: int, first: int, size: int) -> int:
    """
    The number of items before a page.

    @param index: the page's number.
    @param first: the number of the first page.
    @param size: the page size that is applied.
    @raise PageIndexInvalid: there can be no such page.
    """
    if not first <= index <= MAX_PAGE_NUMBER:
        raise PageIndexInvalid()
    return (index - first) * size
