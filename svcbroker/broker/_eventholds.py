"""
Holds: keeping events from being erased until they are released, by transactions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from attrs import frozen

from ..access import Principal
from ..errors import EventErased, EventHeld, LedgerUnavailable, ParameterInvalid, TransactionFailed
from ..interfaces import Action, IHoldLedger, ILedger, submit
from ..model import (
    MAX_CASE,
    MAX_HELD_EVENTS,
    MAX_HOLD_PATTERNS,
    MAX_HOLDS,
    AddHold,
    EventId,
    Execution,
    HeldRange,
    HoldRecord,
    Page,
    Receipt,
    ReleasedPage,
    ReleaseHold,
    checkHoldPattern,
    isCase,
)
from ..net.budgets import WorkBudget
from ..net.deferreds import asDeferred
from ._groups import Groups, TimeoutQueue, checkTopicFilter

_EVENTS_AT_ONCE: Final = 20
"""The number of events that are looked up between two looks at the time: some ms."""
_SHOWN_CASES: Final = 5
"""The number of cases that an error names."""

Ranges = Mapping[str, Sequence[tuple[int, int]]]
"""Pairs of the first and the last sequence number by topic, rising."""


@frozen(kw_only=True)
class ErasurePreview:
    """
    The effect that an erasure would have.

    @ivar erasable: how many of its events are not held.
    @ivar held: the events that are held, by topic, and the cases that hold them.
    @ivar heldCount: how many these are.
    """

    erasable: int
    held: Mapping[str, Sequence[HeldRange]]
    heldCount: int


def heldOf(ledger: ILedger, found: Ranges) -> Mapping[str, Sequence[HeldRange]]:
    """
    The events that are held, of some that are to be erased; topics without any are left out.

    @param found: those that are to be erased.
    """
    holding: IHoldLedger | None = IHoldLedger(ledger, None)
    if holding is None:
        return {}
    held = {
        topic: [each for first, last in ranges for each in holding.heldRanges(topic, first, last)]
        for topic, ranges in found.items()
    }
    return {topic: ranges for topic, ranges in held.items() if ranges}


def withoutHeld(found: Ranges, held: Mapping[str, Sequence[HeldRange]]) -> Ranges:
    """
    The events of some ranges that are not held.

    @param held: those that are, rising in each topic.
    """
    left: dict[str, list[tuple[int, int]]] = {}
    for topic, ranges in found.items():
        kept = left.setdefault(topic, [])
        for first, last in ranges:
            for each in held.get(topic, ()):
                if each.last < first or each.first > last:
                    continue
                if each.first > first:
                    kept.append((first, each.first - 1))
                first = max(first, each.last + 1)
            if first <= last:
                kept.append((first, last))
    return {topic: ranges for topic, ranges in left.items() if ranges}


def countOf(found: Ranges) -> int:
    """The number of events in some ranges."""
    return sum(last - first + 1 for ranges in found.values() for first, last in ranges)


def heldError(held: Mapping[str, Sequence[HeldRange]], count: int) -> EventHeld:
    """
    The error for events that may not be erased.

    @param count: how many they are.
    """
    cases = sorted({each.case for ranges in held.values() for each in ranges})
    named = ", ".join(cases[:_SHOWN_CASES]) + (", ..." if len(cases) > _SHOWN_CASES else "")
    what = "1 event is" if count == 1 else f"{count} events are"
    return EventHeld(f"{what} held and not erased: case {named}")


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
