"""
From a block's events to those who subscribe to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from attrs import Factory, define

from ...access import Principal
from ...interfaces import Action, Batch
from ...model import TAG, Event, eventSize, filterMatches
from ._trie import FilterTrie

MAX_BATCH_BYTES = 256 * 1024
MAX_BATCH_EVENTS = 1000

_REMEMBERED_TOPICS = 10_000


class Member(Protocol):
    """
    Somebody who is told of the events of new blocks: of those that its principal may read.

    @ivar group: the id of the group whose events these are.
    """

    principal: Principal
    group: str

    def offer(self, batches: Sequence[Batch], height: int) -> None:
        """
        The matching events of the block of a height, which comes after the last one offered.
        """


M = TypeVar("M", bound=Member)


@define(eq=False)
class Audience(Generic[M]):
    """
    All who subscribe with the same filters and the same tag. What they get is the same, so it
    is put together once.
    """

    filters: tuple[str, ...]
    tag: str | None
    members: dict[M, None] = Factory(dict)


class Dispatcher(Generic[M]):
    """
    Knows whose filters match which topics.
    """

    def __init__(self) -> None:
        self._trie: FilterTrie[Audience[M]] = FilterTrie()
        self._audiences: dict[tuple[tuple[str, ...], str | None], Audience[M]] = {}
        self._remembered: dict[str, set[Audience[M]]] = {}

    def add(self, filters: tuple[str, ...], tag: str | None, member: M) -> None:
        """Tell a member of what matches any of these filters."""
        audience = self._audiences.get((filters, tag))
        if audience is None:
            audience = self._audiences[(filters, tag)] = Audience(filters, tag)
            for filter in filters:
                self._trie.add(filter, audience)
            self._remembered.clear()
        audience.members[member] = None

    def remove(self, filters: tuple[str, ...], tag: str | None, member: M) -> None:
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

    @property
    def audienceCount(self) -> int:
        """How many sets of filters members have."""
        return len(self._audiences)

    def members(self) -> Sequence[tuple[tuple[str, ...], str | None, M]]:
        """All members, with their filters and tags."""
        return [
            (audience.filters, audience.tag, member)
            for audience in self._audiences.values()
            for member in audience.members
        ]

    def dispatch(self, events: Sequence[Event], height: int, size: int) -> None:
        """
        Offer a block's events to all whom they concern.

        @param size: the sum of their L{eventSize}.
        """
        if self._audiences:
            for member, batches in self.offers(events, size):
                member.offer(batches, height)

    def offers(
        self, events: Sequence[Event], size: int | None = None
    ) -> Iterator[tuple[M, Sequence[Batch]]]:
        """
        Which members are to be offered what of a block. Members may come and go meanwhile.

        @param size: the sum of the events' L{eventSize}, where it is known.
        """
        found: dict[Audience[M], list[Event]] = {}
        for event in events:
            for audience in self._match(event.topic):
                if audience.tag is None or event.extensions.get(TAG) == audience.tag:
                    found.setdefault(audience, []).append(event)
        isSmall = size is not None and size <= MAX_BATCH_BYTES
        for audience, matching in found.items():
            if isSmall and len(matching) <= MAX_BATCH_EVENTS:
                batches: Sequence[Batch] = (Batch(matching),)
            else:
                batches = tuple(inBatches(matching))
            readable: dict[Principal, Sequence[Batch]] = {}
            for member in tuple(audience.members):
                if member not in audience.members:
                    continue
                principal = member.principal
                if principal.isEverything:
                    yield member, batches
                    continue
                theirs = readable.get(principal)
                if theirs is None:
                    theirs = _readable(principal, member.group, matching, batches)
                    readable[principal] = theirs
                if theirs:
                    yield member, theirs

    def _match(self, topic: str) -> set[Audience[M]]:
        audiences = self._remembered.get(topic)
        if audiences is None:
            if len(self._remembered) >= _REMEMBERED_TOPICS:
                self._remembered.clear()
            audiences = self._remembered[topic] = self._trie.match(topic)
        return audiences


def _readable(
    principal: Principal, group: str, events: Sequence[Event], batches: Sequence[Batch]
) -> Sequence[Batch]:
    """
    What a principal may read of a block's events.

    @param batches: all of them, as others get them.
    """
    allowed = {
        topic: principal.may(Action.SUBSCRIBE, group, topic)
        for topic in {event.topic for event in events}
    }
    if all(allowed.values()):
        return batches
    return tuple(inBatches([event for event in events if allowed[event.topic]]))


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
