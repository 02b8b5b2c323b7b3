"""
From a block's events to those who subscribe to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from attrs import Factory, define

from ...interfaces import Batch
from ...model import TAG, Event, filterMatches
from ._trie import FilterTrie

MAX_BATCH_BYTES = 256 * 1024
MAX_BATCH_EVENTS = 1000

_REMEMBERED_TOPICS = 10_000


class Member(Protocol):
    """Somebody who is told of the events of new blocks."""

    def offer(self, batches: Sequence[Batch], height: int) -> None:
        """
        The matching events of the block of a height, which comes after the last one offered.
        """


@define(eq=False)
class Audience:
    """
    All who subscribe with the same filters and the same tag. What they get is the same, so it
    is put together once.
    """

    filters: tuple[str, ...]
    tag: str | None
    members: dict[Member, None] = Factory(dict)


class Dispatcher:
    """
    Knows whose filters match which topics.
    """

    def __init__(self) -> None:
        self._trie: FilterTrie[Audience] = FilterTrie()
        self._audiences: dict[tuple[tuple[str, ...], str | None], Audience] = {}
        self._remembered: dict[str, set[Audience]] = {}

    def add(self, filters: tuple[str, ...], tag: str | None, member: Member) -> None:
        """Tell a member of what matches any of these filters."""
        audience = self._audiences.get((filters, tag))
        if audience is None:
            audience = self._audiences[(filters, tag)] = Audience(filters, tag)
            for filter in filters:
                self._trie.add(filter, audience)
            self._remembered.clear()
        audience.members[member] = None

    def remove(self, filters: tuple[str, ...], tag: str | None, member: Member) -> None:
        """Tell a member no more."""
        audience = self._audiences.get((filters, tag))
        if audience is None or member not in audience.members:
            return
        del audience.members[member]
        if not audience.members:
            del self._audiences[(filters, tag)]
            for filter in filters:
                self._trie.remove(filter, audience)
            self._remembered.clear()

    def dispatch(self, events: Sequence[Event], height: int, size: int) -> None:
        """
        Offer a block's events to all whom they concern.

        @param size: the sum of their L{eventSize}.
        """
        if not self._audiences:
            return
        found: dict[Audience, list[Event]] = {}
        for event in events:
            for audience in self._match(event.topic):
                if audience.tag is None or event.extensions.get(TAG) == audience.tag:
                    found.setdefault(audience, []).append(event)
        for audience, matching in found.items():
            if size <= MAX_BATCH_BYTES and len(matching) <= MAX_BATCH_EVENTS:
                batches: Sequence[Batch] = (Batch(matching),)
            else:
                batches = tuple(inBatches(matching))
            for member in tuple(audience.members):
                if member in audience.members:
                    member.offer(batches, height)

    def _match(self, topic: str) -> set[Audience]:
        audiences = self._remembered.get(topic)
        if audiences is None:
            if len(self._remembered) >= _REMEMBERED_TOPICS:
                self._remembered.clear()
            audiences = self._remembered[topic] = self._trie.match(topic)
        return audiences


def eventSize(event: Event) -> int:
    """How many bytes a publisher made an event of, roughly: its content and extensions."""
    size = len(event.content)
    for key, value in event.extensions.items():
        size += len(key) + len(value)
    return size


def inBatches(events: Sequence[Event]) -> Iterator[Batch]:
    """
    Events in batches of bounded size.
    """
    batch: list[Event] = []
    size = 0
    for event in events:
        weight = eventSize(event)
        size += weight
        if batch and (size > MAX_BATCH_BYTES or len(batch) == MAX_BATCH_EVENTS):
            yield Batch(batch)
            batch, size = [], weight
        batch.append(event)
    if batch:
        yield Batch(batch)


def matcher(filters: tuple[str, ...], tag: str | None) -> Callable[[Event], bool]:
    """
    Whether an event is meant for a subscription with these filters and this tag.
    """

    def matches(event: Event) -> bool:
        return any(filterMatches(filter, event.topic) for filter in filters) and (
            tag is None or event.extensions.get(TAG) == tag
        )

    return matches
