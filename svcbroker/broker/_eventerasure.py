"""
Erasing events: removing their content from the storage of all nodes; and holds, which keep events
from being erased until they are released. Both by transactions.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import chain, islice
from operator import attrgetter
from typing import Final

from attrs import define, field, frozen

from ..access import ANYBODY, Principal
from ..errors import (
    BrokerError,
    EventErased,
    EventHeld,
    EventNotFound,
    LedgerUnavailable,
    ParameterInvalid,
    TopicNotFound,
    TransactionFailed,
)
from ..interfaces import Action, IHoldLedger, ILedger, submit, topicOfEvent
from ..model import (
    MAX_CASE,
    MAX_ERASED,
    MAX_HELD_EVENTS,
    MAX_HOLD_PATTERNS,
    MAX_HOLDS,
    MAX_RANGES,
    AddHold,
    EraseEvents,
    EventId,
    Execution,
    HeldRange,
    HoldRecord,
    Moment,
    Page,
    Position,
    Receipt,
    ReleasedPage,
    ReleaseHold,
    checkHoldPattern,
    extendRanges,
    isCase,
    topicPrefix,
)
from ..net.budgets import WorkBudget
from ..net.deferreds import asDeferred
from ._collaborators import ISubscriptionDirectory, ReadRequest
from ._groups import Groups, TimeoutQueue, checkTopic, checkTopicFilter

_EVENTS_AT_ONCE: Final = 20
"""The number of events that are looked up between two looks at the time: some ms."""
_HOLDS_AT_ONCE: Final = 8
"""The number of holds that are begun between two looks at the time: some ms."""
_RANGES_AT_ONCE: Final = 500
"""The number of held ranges that are looked at between two looks at the time: some ms."""
_SHOWN_CASES: Final = 5
"""The number of cases that an error names."""
SHOWN_RANGES: Final = 1000
"""The most ranges of held events that a preview shows."""

Ranges = Mapping[str, Sequence[tuple[int, int]]]
"""Pairs of the first and the last sequence number by topic, rising."""


@frozen(kw_only=True)
class ErasurePreview:
    """
    The effect that an erasure would have.

    @ivar erasable: how many of its events are not held.
    @ivar held: the first of the events that are held, by topic, and the cases that hold them: at
        most L{SHOWN_RANGES} ranges.
    @ivar heldCount: how many these are.
    """

    erasable: int
    held: Mapping[str, Sequence[HeldRange]]
    heldCount: int


@define
class HeldEvents:
    """
    The events that are held, of some that are to be erased.

    @ivar shown: the first of them by topic, with the cases that hold them.
    @ivar count: how many they are.
    @ivar cases: the cases that hold them.
    @ivar free: the events that are not held.
    """

    shown: dict[str, list[HeldRange]] = field(factory=dict)
    count: int = 0
    cases: set[str] = field(factory=set)
    free: dict[str, Iterable[tuple[int, int]]] = field(factory=dict)

    def error(self) -> EventHeld:
        """The error for events that may not be erased."""
        cases = sorted(self.cases)
        named = ", ".join(cases[:_SHOWN_CASES]) + (", ..." if len(cases) > _SHOWN_CASES else "")
        what = "1 event is" if self.count == 1 else f"{self.count} events are"
        return EventHeld(f"{what} held and not erased: case {named}")


async def findHeld(ledger: ILedger, found: Ranges, work: WorkBudget) -> HeldEvents:
    """
    Find the events that are held, of some that are to be erased. A thousand holds may name a
    thousand events each, so it takes turns.

    @param found: those that are to be erased.
    @param work: says when there is time for more.
    """
    held = HeldEvents()
    holding: IHoldLedger | None = IHoldLedger(ledger, None)
    room = SHOWN_RANGES
    lane = work.lane()
    for topic, ranges in found.items():
        holds = () if holding is None else holding.heldRanges(topic, ranges)
        begun = []
        for number, some in enumerate(holds, 1):
            begun += [chain([first], some) for first in islice(some, 1)]
            if not number % _HOLDS_AT_ONCE:
                await lane.turn(isWrite=False)
        left = _Left(ranges)
        for number, each in enumerate(merge(*begun, key=attrgetter("first", "case")), 1):
            held.cases.add(each.case)
            held.count += left.without(each)
            if room:
                room -= 1
                held.shown.setdefault(topic, []).append(each)
            if not number % _RANGES_AT_ONCE:
                await lane.turn(isWrite=False)
        if left.end():
            held.free[topic] = left
    lane.end()
    return held


class _Left:
    """
    The rest of some ranges: pairs of the first and the last sequence number, rising. A hundred
    thousand tuples would hold the collector too long.
    """

    def __init__(self, ranges: Sequence[tuple[int, int]]) -> None:
        self._ranges = iter(ranges)
        self._first, self._last = next(self._ranges, (1, 0))
        self._firsts, self._lasts = array("Q"), array("Q")

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._firsts, self._lasts, strict=True)

    def without(self, held: HeldRange) -> int:
        """
        Leave out what is held.

        @param held: within one of the ranges, and does not begin before the one before it.
        @return: how many events this is that were not left out before.
        """
        while held.first > self._last:
            self._keep(self._last)
            self._first, self._last = next(self._ranges)
        self._keep(held.first - 1)
        count = max(0, held.last + 1 - self._first)
        self._first += count
        return count

    def end(self) -> bool:
        """
        Keep all that no hold was told of.

        @return: whether something is left.
        """
        self._keep(self._last)
        for first, last in self._ranges:
            self._firsts.append(first)
            self._lasts.append(last)
        return bool(self._firsts)

    def _keep(self, last: int) -> None:
        if self._first <= last:
            self._firsts.append(self._first)
            self._lasts.append(last)
            self._first = last + 1


def countOf(found: Ranges) -> int:
    """The number of events in some ranges."""
    return sum(last - first + 1 for ranges in found.values() for first, last in ranges)


class EventHolding:
    """
    The operator calls C{holds/add}, C{holds/release}, C{holds/list} and C{holds/released}.
    """

    def __init__(self, groups: Groups, timeouts: TimeoutQueue, work: WorkBudget) -> None:
        """
        @param work: says when there is time for more.
        """
        self._groups = groups
        self._timeouts = timeouts
        self._work = work

    @asDeferred
    async def add(
        self,
        principal: Principal,
        groupId: str | None,
        case: str,
        reason: str,
        patterns: Sequence[str] = (),
        events: Sequence[EventId] = (),
    ) -> Receipt:
        """
        Keep events from being erased: all of the topics that match some patterns, later ones too,
        or single ones.

        @param case: the name of the hold.
        @param reason: why, as the chain keeps it.
        @return: fires with the receipt when the hold is final.
        @raise ParameterInvalid: the name cannot be used or is in use, there are too many holds,
            patterns or events, or one of the events was erased.
        @raise EventNotFound, HeightUnknown: there is no such event.
        @raise NotAuthorized: the principal may hold nothing.
        """
        group, ledger = self._groups.find(principal, groupId)
        principal.require(Action.HOLD, group)
        holding = _holdingOf(ledger)
        _checkCase(case)
        if bool(patterns) == bool(events):
            raise ParameterInvalid("give either events or topics")
        if len(patterns) > MAX_HOLD_PATTERNS:
            raise ParameterInvalid(f"topics: a hold has at most {MAX_HOLD_PATTERNS} patterns")
        if len(events) > MAX_HELD_EVENTS:
            raise ParameterInvalid(f"events: a hold has at most {MAX_HELD_EVENTS} events")
        for pattern in patterns:
            checkTopicFilter(ledger, pattern)
            checkHoldPattern(pattern)
        await self._refuseFull(holding, case)
        request = AddHold(
            case=case,
            account=principal.name,
            reason=reason,
            patterns=patterns,
            events=await self._addressed(ledger, events),
        )
        receipt = await self._timeouts.wait(submit(ledger, request))
        if receipt.execution is not Execution.DONE:
            # Something came in between.
            await self._refuseFull(holding, case)
            await self._addressed(ledger, events)
            raise TransactionFailed()
        return receipt

    async def _refuseFull(self, holding: IHoldLedger, case: str) -> None:
        """
        @raise ParameterInvalid: there is a hold of the case, or no more can be.
        """
        page = await self._timeouts.wait(holding.listHolds(0, 1, case=case))
        if page.total:
            raise ParameterInvalid(f"case: there is a hold {case!r} already: release it first")
        page = await self._timeouts.wait(holding.listHolds(0, 1))
        if page.total >= MAX_HOLDS:
            raise ParameterInvalid(f"case: there are {MAX_HOLDS} holds, and no more can be")

    async def _addressed(
        self, ledger: ILedger, events: Sequence[EventId]
    ) -> Sequence[tuple[bytes, int]]:
        """
        The addresses of the topics of some events, with their sequence numbers.

        @raise ParameterInvalid: one of them was erased.
        """
        found = []
        lane = self._work.lane()
        for number, eventId in enumerate(events, 1):
            try:
                event = await self._timeouts.wait(ledger.getEvent(eventId))
            except EventErased:
                raise ParameterInvalid(
                    f"events: the content of {eventId} was erased, so it cannot be held"
                ) from None
            topic = ledger.topicState(event.topic)
            assert topic is not None
            found.append((topic.address, eventId.sequence))
            if not number % _EVENTS_AT_ONCE:
                await lane.turn(isWrite=False)
        lane.end()
        return found

    @asDeferred
    async def release(
        self, principal: Principal, groupId: str | None, case: str, reason: str
    ) -> Receipt:
        """
        End a hold. Events that no other hold names may be erased from then on.

        @param reason: why, as the chain keeps it.
        @return: fires with the receipt when the release is final.
        @raise ParameterInvalid: there is no such hold.
        @raise NotAuthorized: the principal may release nothing.
        """
        group, ledger = self._groups.find(principal, groupId)
        principal.require(Action.HOLD, group)
        holding = _holdingOf(ledger)
        _checkCase(case)
        missing = ParameterInvalid(f"case: no hold {case!r} is in force")
        page = await self._timeouts.wait(holding.listHolds(0, 1, case=case))
        if not page.total:
            raise missing
        request = ReleaseHold(case=case, account=principal.name, reason=reason)
        receipt = await self._timeouts.wait(submit(ledger, request))
        if receipt.execution is not Execution.DONE:
            raise missing
        return receipt

    @asDeferred
    async def list(
        self,
        principal: Principal,
        groupId: str | None,
        offset: int,
        limit: int,
        case: str | None = None,
    ) -> Page[HoldRecord]:
        """
        The holds that are in force. An account that may erase may see them, too.

        @param case: only that of this case, with the events that it names.
        """
        holding = self._seen(principal, groupId)
        page: Page[HoldRecord] = await self._timeouts.wait(
            holding.listHolds(offset, limit, case=case)
        )
        return page

    @asDeferred
    async def listReleased(
        self,
        principal: Principal,
        groupId: str | None,
        limit: int,
        before: tuple[int, int] | None = None,
        case: str | None = None,
    ) -> ReleasedPage:
        """
        The holds that were released, the latest hold first, for who may see those in force.

        @param before: C{next} of the page before.
        @param case: only those of this case, with the events that they name.
        """
        holding = self._seen(principal, groupId)
        page: ReleasedPage = await self._timeouts.wait(
            holding.listReleased(limit, before=before, case=case)
        )
        return page

    def _seen(self, principal: Principal, groupId: str | None) -> IHoldLedger:
        """The holds of a group, for an account that may see them."""
        group, ledger = self._groups.find(principal, groupId)
        if not principal.may(Action.OPERATE, group):
            principal.require(Action.HOLD, group)
        return _holdingOf(ledger)


def _holdingOf(ledger: ILedger) -> IHoldLedger:
    """
    @raise LedgerUnavailable: the ledger executes no holds.
    """
    holding: IHoldLedger | None = IHoldLedger(ledger, None)
    if holding is None:
        raise LedgerUnavailable("the ledger of this group has no holds")
    return holding


def _checkCase(case: str) -> None:
    """
    @raise ParameterInvalid: it cannot be the name of a hold.
    """
    if not isCase(case):
        raise ParameterInvalid(
            f"case: is not 1 to {MAX_CASE} characters from ! to ~ of ASCII, without spaces"
        )


_AT_ONCE: Final = 16
"""The most erasures that are submitted together; they have L{MAX_RANGES} ranges at the most."""


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
        @raise ParameterInvalid: it is not said which events, the topic has not so many, or they
            are the broker's own records.
        @raise EventNotFound, HeightUnknown: there is no such event.
        @raise TopicNotFound: the topic was never opened.
        @raise NotAuthorized: the principal may not operate the group.
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
                principal.recordRefusal(Action.OPERATE, group, each)
                raise ParameterInvalid(
                    f"the events of {each} are not erased: records of the broker are made of them"
                )
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
