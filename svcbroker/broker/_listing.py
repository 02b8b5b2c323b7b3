"""
Listing the topics that a restricted principal may know of.
"""

from __future__ import annotations

from typing import Final

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from ..access import Principal
from ..interfaces import ILedger
from ..model import Page, Topic
from ._timeouts import TimeoutQueue

_STEP: Final = 500
"""How many topics are looked at in one turn of the reactor."""


async def listVisible(
    principal: Principal,
    ledger: ILedger,
    offset: int,
    size: int,
    timeouts: TimeoutQueue,
    clock: IReactorTime,
) -> Page[Topic]:
    """
    The page of a principal that may not know of all topics. All of them are looked at, a few in
    each turn of the reactor.
    """
    found: list[Topic] = []
    visible = position = 0
    generation = -1
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
        await deferLater(clock, 0)
