"""
The answers of the broker where the ledger's own values are not the whole answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Generic, TypeVar

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from ..access import Principal
from ..errors import EventErased, EventNotFound, PageIndexInvalid
from ..interfaces import Action, Batch
from ..model import Event, EventId, Offset, Page

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
