"""
Erasing events: removing their content from the storage of all nodes, by transactions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from ..access import ANYBODY, Principal
from ..errors import BrokerError, EventNotFound, ParameterInvalid, TopicNotFound, TransactionFailed
from ..interfaces import Action, ILedger, topicOfEvent
from ..model import (
    MAX_ERASED,
    MAX_RANGES,
    EraseEvents,
    EventId,
    Execution,
    Moment,
    Position,
    extendRanges,
    topicPrefix,
)
from ..net.budgets import WorkBudget
from ..net.deferreds import asDeferred
from ._collaborators import ISubscriptionDirectory, ReadRequest
from ._eventholds import ErasurePreview, Ranges, countOf, findHeld
from ._groups import Groups, TimeoutQueue, checkTopic

_AT_ONCE: Final = 16
"""The most erasures that are submitted together; they have L{MAX_RANGES} ranges at the most."""
_EVENTS_AT_ONCE: Final = 20
"""The number of events that are looked up between two looks at the time: some ms."""


def rangesOf(sequences: Iterable[int]) -> list[tuple[int, int]]:
    """The ranges that hold some sequence numbers and no others, rising."""
    ranges: list[tuple[int, int]] = []
    for sequence in sorted(set(sequences)):
        extendRanges(ranges, sequence)
    return ranges


def erasuresOf(
    topic: str, ranges: Iterable[tuple[int, int]], account: str, reason: str
) -> Iterator[EraseEvents]:
    """
    The erasures of events of one topic, each within the limits of the chain.

    @param ranges: pairs of the first and the last sequence number, rising.
    """
    gathered: list[tuple[int, int]] = []
    room = MAX_ERASED
    for first, last in ranges:
        start = first
        while start <= last:
            end = min(last, start + room - 1)
            gathered.append((start, end))
            room -= end - start + 1
            start = end + 1
            if not room or len(gathered) == MAX_RANGES:
                yield EraseEvents(topic=topic, ranges=gathered, account=account, reason=reason)
                gathered, room = [], MAX_ERASED
    if gathered:
        yield EraseEvents(topic=topic, ranges=gathered, account=account, reason=reason)


def _batches(erasures: Iterable[EraseEvents]) -> Iterator[Sequence[EraseEvents]]:
    """Erasures that are submitted together. All of a block are compared with the holds at once."""
    batch: list[EraseEvents] = []
    room = MAX_RANGES
    for erasure in erasures:
        if len(batch) == _AT_ONCE or len(erasure.ranges) > room:
            yield batch
            batch, room = [], MAX_RANGES
        batch.append(erasure)
        room -= len(erasure.ranges)
    if batch:
        yield batch


class EventErasing:
    """
    The operator calls C{erase} and C{erase/preview}.
    """

    def __init__(
        self,
        groups: Groups,
        timeouts: TimeoutQueue,
        work: WorkBudget,
        subscriptions: ISubscriptionDirectory,
        reservedTopics: Collection[str],
    ) -> None:
        """
        @param work: says when there is time for more.
        @param subscriptions: reads events, to find the last one before a time.
        @param reservedTopics: topics whose events are not erased: the broker's own records.
        """
        self._groups = groups
        self._timeouts = timeouts
        self._work = work
        self._subscriptions = subscriptions
        self._reserved = reservedTopics

    @asDeferred
    async def erase(
        self,
        principal: Principal,
        groupId: str | None,
        reason: str,
        events: Sequence[EventId] = (),
        topic: str | None = None,
        first: int = 1,
        last: int | None = None,
        before: EventId | Moment | None = None,
        exceptHeld: bool = False,
    ) -> int:
        """
        Erase the content of events: of those with some ids, or of a part of a topic. Erasing an
        event that was erased is recorded again, and otherwise changes nothing.

        @param reason: why, as the chain keeps it.
        @param topic: a topic, open or closed, in place of C{events}.
        @param first: the sequence number of its first event to erase.
        @param last: that of the last one; or else C{before}.
        @param before: an event, or a time: the events of the topic before it are erased.
        @param exceptHeld: whether to leave out events that are held; else nothing is erased where
            one of them is.
        @return: fires with how many events were named, when the erasures are final.
        @raise EventHeld: some of them are held.
        @raise ParameterInvalid: it is not said which events, or the topic has not so many.
        @raise EventNotFound, HeightUnknown: there is no such event.
        @raise TopicNotFound: the topic was never opened.
        @raise NotAuthorized: the broker's own records are not erased.
        @raise TransactionFailed: the chain refused. Some may have been erased.
        """
        ledger, found = await self._find(principal, groupId, events, topic, first, last, before)
        held = await findHeld(ledger, found, self._work)
        if held.count and not exceptHeld:
            raise held.error()
        erasures = (
            erasure
            for each, ranges in held.free.items()
            for erasure in erasuresOf(each, ranges, principal.name, reason)
        )
        for some in _batches(erasures):
            await self._submit(ledger, some)
        return countOf(found) - held.count

    @asDeferred
    async def preview(
        self,
        principal: Principal,
        groupId: str | None,
        events: Sequence[EventId] = (),
        topic: str | None = None,
        first: int = 1,
        last: int | None = None,
        before: EventId | Moment | None = None,
    ) -> ErasurePreview:
        """
        Tell what L{erase} would erase, and what is held.

        @raise BrokerError: as for L{erase}.
        """
        ledger, found = await self._find(principal, groupId, events, topic, first, last, before)
        held = await findHeld(ledger, found, self._work)
        erasable = countOf(found) - held.count
        return ErasurePreview(erasable=erasable, held=held.shown, heldCount=held.count)

    async def _find(
        self,
        principal: Principal,
        groupId: str | None,
        events: Sequence[EventId],
        topic: str | None,
        first: int,
        last: int | None,
        before: EventId | Moment | None,
    ) -> tuple[ILedger, Ranges]:
        """The ledger, and the events that are to be erased. See L{erase}."""
        group, ledger = self._groups.find(principal, groupId)
        principal.require(Action.OPERATE, group)
        if bool(events) == (topic is not None):
            raise ParameterInvalid("give either events or a topic")
        found: dict[str, list[tuple[int, int]]]
        if topic is None:
            found = await self._rangesOfEvents(ledger, events)
        else:
            found = await self._rangeOfTopic(ledger, group, topic, first, last, before)
        for each in found:
            if each in self._reserved:
                principal.refuse(Action.OPERATE, group, each)
        return ledger, found

    async def _rangesOfEvents(
        self, ledger: ILedger, events: Sequence[EventId]
    ) -> dict[str, list[tuple[int, int]]]:
        sequences: dict[str, set[int]] = {}
        lane = self._work.lane()
        for number, eventId in enumerate(events, 1):
            topic = await self._timeouts.wait(topicOfEvent(ledger, eventId))
            sequences.setdefault(topic, set()).add(eventId.sequence)
            if not number % _EVENTS_AT_ONCE:
                await lane.turn(isWrite=False)
        lane.end()
        return {topic: rangesOf(each) for topic, each in sequences.items()}

    async def _rangeOfTopic(
        self,
        ledger: ILedger,
        group: str,
        topic: str,
        first: int,
        last: int | None,
        before: EventId | Moment | None,
    ) -> dict[str, list[tuple[int, int]]]:
        checkTopic(ledger, topic)
        known = ledger.topicState(topic)
        if known is None:
            raise TopicNotFound()
        if (last is None) == (before is None):
            raise ParameterInvalid("of a topic, give either last or before")
        if isinstance(before, EventId):
            if before.prefix != topicPrefix(topic) or (
                await self._timeouts.wait(topicOfEvent(ledger, before)) != topic
            ):
                raise EventNotFound("before: the topic has no such event")
            last = before.sequence - 1
        elif before is not None:
            last = await self._lastBefore(group, topic, before)
        assert last is not None
        if last > known.sequence:
            raise ParameterInvalid(f"last: the topic has {known.sequence} events")
        return {topic: [(first, last)]} if first <= last else {}

    async def _lastBefore(self, group: str, topic: str, time: Moment) -> int:
        """The sequence number of a topic's last event before a time; 0 where there is none."""
        offset: EventId | Moment | int = time
        while True:
            request = ReadRequest(
                group=group,
                filter=topic,
                offset=Position(offset, -1) if isinstance(offset, int) else offset,
                limit=1,
                isReverse=True,
                hasTombstones=True,
            )
            page = await self._subscriptions.readEvents(ANYBODY, request)
            for batch in page.batches:
                return batch.events[0].eventId.sequence
            if page.isAtEnd:
                return 0
            offset = page.next

    async def _submit(self, ledger: ILedger, erasures: Sequence[EraseEvents]) -> None:
        submission = await self._timeouts.wait(ledger.submitMany(erasures).done)
        for erasure, outcome in zip(erasures, submission.outcomes, strict=True):
            if isinstance(outcome, BrokerError):
                raise outcome
            assert outcome is not None
            if outcome.execution is Execution.HELD:
                # A hold came in between.
                held = await findHeld(ledger, {erasure.topic: erasure.ranges}, self._work)
                raise held.error()
            if outcome.execution is not Execution.DONE:
                raise TransactionFailed()
