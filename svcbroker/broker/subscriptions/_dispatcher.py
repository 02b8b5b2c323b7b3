"""
The dispatcher: finds the receivers of a block's events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from attrs import Factory, define

from ...access import Principal
from ...interfaces import Action, Batch
from ...model import TAG, Block, Event, eventSize
from ._topictree import FilterTrie, TopicMatches

MAX_BATCH_BYTES = 256 * 1024
MAX_BATCH_EVENTS = 1000

REMEMBERED_TOPICS = 10_000
"""For how many topics it is remembered whose filters match."""

REMEMBERED_MATCHES = 500_000
"""The number of matches that are remembered. Subscriptions with different tags are different
audiences, so a client can have a thousand for each topic."""


class Receiver(Protocol):
    """
    A receiver of new events that its principal may read.

    @ivar group: the id of the group whose events these are.
    @ivar hasTombstones: whether it is told of erased events too.
    """

    principal: Principal
    group: str
    hasTombstones: bool

    def offer(self, batches: Sequence[Batch], height: int) -> None:
        """
        The matching events of the block of a height, which comes after the last one offered.
        """


M = TypeVar("M", bound=Receiver)


@define(eq=False)
class Audience(Generic[M]):
    """
    All who subscribe with the same filter and the same tag. What they get is the same, so it is put
    together once.

    @ivar hasTombstones: whether they get erased events too.
    @ivar receivers: those that have no other filter.
    @ivar mergers: those that have other filters, too: they get an event once.
    """

    filter: str
    tag: str | None
    hasTombstones: bool
    receivers: dict[M, None] = Factory(dict)
    mergers: dict[M, None] = Factory(dict)


class Dispatcher(Generic[M]):
    """
    Knows whose filters match which topics.
    """

    def __init__(self) -> None:
        self._trie: FilterTrie[Audience[M]] = FilterTrie()
        self._audiences: dict[tuple[str, str | None, bool], Audience[M]] = {}
        self._remembered: TopicMatches[Sequence[Audience[M]]] = TopicMatches(
            REMEMBERED_TOPICS, REMEMBERED_MATCHES
        )

    def add(self, filter: str, tag: str | None, receiver: M, *, isMerging: bool = False) -> None:
        """
        Tell a receiver of what matches a filter.

        @param isMerging: whether the receiver has other filters, too. The same holds for all of
            its filters.
        """
        key = (filter, tag, receiver.hasTombstones)
        audience = self._audiences.get(key)
        if audience is None:
            audience = self._audiences[key] = Audience(*key)
            self._trie.add(filter, audience)
            self._remembered.clear()
        (audience.mergers if isMerging else audience.receivers)[receiver] = None

    def remove(self, filter: str, tag: str | None, receiver: M) -> None:
        """Tell a receiver no more of what matches a filter."""
        key = (filter, tag, receiver.hasTombstones)
        audience = self._audiences.get(key)
        if audience is None:
            return
        audience.receivers.pop(receiver, None)
        audience.mergers.pop(receiver, None)
        if not (audience.receivers or audience.mergers):
            del self._audiences[key]
            self._trie.remove(filter, audience)
            self._remembered.clear()

    @property
    def audienceCount(self) -> int:
        """The number of different filters of the receivers."""
        return len(self._audiences)

    def receivers(self) -> Sequence[M]:
        """All receivers."""
        receivers: dict[M, None] = {}
        for audience in self._audiences.values():
            receivers.update(audience.receivers)
            receivers.update(audience.mergers)
        return list(receivers)

    def dispatch(self, block: Block, size: int) -> None:
        """
        Offer a block's events to all whom they concern.

        @param size: the sum of their L{eventSize}.
        """
        if self._audiences:
            for receiver, batches in self.offers(block.events, block.timestamp, size):
                receiver.offer(batches, block.height)

    def offers(
        self, events: Sequence[Event], timestamp: int, size: int | None = None
    ) -> Iterator[tuple[M, Sequence[Batch]]]:
        """
        Yield receivers and their batches of a block. Receivers may come and go meanwhile.

        @param timestamp: the block's time.
        @param size: the sum of the events' L{eventSize}, where it is known.
        """
        found: dict[Audience[M], list[Event]] = {}
        for event in events:
            isErased = event.isErased
            for audience in self._match(event.topic):
                if isErased and not audience.hasTombstones:
                    continue
                if audience.tag is None or event.extensions.get(TAG) == audience.tag:
                    found.setdefault(audience, []).append(event)
        isSmall = size is not None and size <= MAX_BATCH_BYTES
        merging = [audience for audience in found if audience.mergers]
        for audience, matching in found.items():
            # Receivers of a single audience of these have nothing to merge.
            both = (
                (audience.receivers, audience.mergers)
                if len(merging) == 1
                else (audience.receivers,)
            )
            if not any(both):
                continue
            batches = _batchesOf(matching, timestamp, isSmall=isSmall)
            readable: _Readable | None = None
            for receivers in both:
                for receiver in tuple(receivers):
                    if receiver not in receivers:
                        continue
                    if receiver.principal.isEverything:
                        yield receiver, batches
                        continue
                    readable = readable or _Readable(matching, batches)
                    if theirs := readable.by(receiver):
                        yield receiver, theirs
        if len(merging) > 1:
            yield from self._offersToMergers(found, merging, timestamp, isSmall=isSmall)

    def _offersToMergers(
        self,
        found: Mapping[Audience[M], Sequence[Event]],
        merging: Sequence[Audience[M]],
        timestamp: int,
        *,
        isSmall: bool,
    ) -> Iterator[tuple[M, Sequence[Batch]]]:
        audiencesOf: dict[M, list[Audience[M]]] = {}
        for audience in merging:
            for receiver in audience.mergers:
                audiencesOf.setdefault(receiver, []).append(audience)
        # Those that get the same share a batch.
        together: dict[tuple[Audience[M], ...], dict[M, None]] = {}
        for receiver, audiences in audiencesOf.items():
            together.setdefault(tuple(audiences), {})[receiver] = None
        for group, mergers in together.items():
            merged = _merged([found[audience] for audience in group])
            batches = _batchesOf(merged, timestamp, isSmall=isSmall)
            readable = _Readable(merged, batches)
            for receiver in mergers:
                if any(receiver in audience.mergers for audience in group):
                    theirs = readable.by(receiver)
                    if theirs:
                        yield receiver, theirs

    def _match(self, topic: str) -> Sequence[Audience[M]]:
        audiences = self._remembered.get(topic)
        if audiences is None:
            # A tuple takes a quarter of the memory of a set.
            audiences = tuple(self._trie.match(topic))
            self._remembered.keep(topic, audiences, len(audiences))
        return audiences


def _batchesOf(matching: Sequence[Event], timestamp: int, *, isSmall: bool) -> Sequence[Batch]:
    """Events of a block in batches of bounded size."""
    if isSmall and len(matching) <= MAX_BATCH_EVENTS:
        return (Batch(matching, timestamp),)
    return tuple(inBatches(matching, timestamp))


class _Readable:
    """The parts of the same events that principals may read, worked out once for each."""

    def __init__(self, events: Sequence[Event], batches: Sequence[Batch]) -> None:
        self._events = events
        self._batches = batches
        self._found: dict[Principal, Sequence[Batch]] = {}

    def by(self, receiver: Receiver) -> Sequence[Batch]:
        """The part that the principal of a receiver may read."""
        principal = receiver.principal
        if principal.isEverything:
            return self._batches
        theirs = self._found.get(principal)
        if theirs is None:
            theirs = _readable(principal, receiver.group, self._events, self._batches)
            self._found[principal] = theirs
        return theirs


def _merged(found: Sequence[Sequence[Event]]) -> Sequence[Event]:
    """The events of a block that any of several filters matches, each once and in their order."""
    if len(found) == 1:
        return found[0]
    events = {event.index: event for matching in found for event in matching}
    return [events[index] for index in sorted(events)]


def _readable(
    principal: Principal, group: str, events: Sequence[Event], batches: Sequence[Batch]
) -> Sequence[Batch]:
    """
    The part of a block's events that a principal may read.

    @param batches: all of them, as others get them.
    """
    allowed = {
        topic: principal.may(Action.SUBSCRIBE, group, topic)
        for topic in {event.topic for event in events}
    }
    if all(allowed.values()):
        return batches
    theirs = [event for event in events if allowed[event.topic]]
    return tuple(inBatches(theirs, batches[0].timestamp))


def inBatches(events: Sequence[Event], timestamp: int, size: int | None = None) -> Iterator[Batch]:
    """
    Events of a block in batches of bounded size.

    @param timestamp: the block's time.
    @param size: their L{eventSize} together or more, where it is known.
    """
    isSmall = size is not None and size <= MAX_BATCH_BYTES and len(events) <= MAX_BATCH_EVENTS
    if events and isSmall:
        yield Batch(events, timestamp)
        return
    batch: list[Event] = []
    size = 0
    for event in events:
        weight = eventSize(event)
        size += weight
        if batch and (size > MAX_BATCH_BYTES or len(batch) == MAX_BATCH_EVENTS):
            yield Batch(batch, timestamp)
            batch, size = [], weight
        batch.append(event)
    if batch:
        yield Batch(batch, timestamp)
