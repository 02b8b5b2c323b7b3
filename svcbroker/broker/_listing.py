"""
Listing the topics that a restricted principal may know of.
"""

from __future__ import annotations

from typing import Final

from ..access import Principal
from ..interfaces import ILedger
from ..model import Page, Topic
from ..net.budgets import WorkBudget
from ._timeouts import TimeoutQueue

_STEP: Final = 500
"""The number of topics between two looks at the time."""


async def listVisible(
    principal: Principal,
    ledger: ILedger,
    offset: int,
    size: int,
    timeouts: TimeoutQueue,
    work: WorkBudget,
) -> Page[Topic]:
    """
    The page of a principal that may not know of all topics. All of them are looked at, a few at a
    time.

    @param work: says when there is time for more.
    """
    found: list[Topic] = []
    visible = position = 0
    generation = -1
    lane = work.lane()
    while True:
        part = await timeouts.wait(ledger.listTopics(position, _STEP))
        if principal.generation != generation:
            isVisible, generation = principal.visibility(ledger.group), principal.generation
        for topic in part.items:
            if isVisible(topic.name):
                if offset <= visible < offset + size:
                    found.append(topic)
                visible += 1
        position += _STEP
        if position >= part.total:
            return Page(items=found, total=visible)
        await lane.turn(isWrite=False)
