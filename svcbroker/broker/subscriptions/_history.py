"""
Reading the past for one subscription.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from attrs import frozen
from twisted.logger import Logger

from ...errors import LedgerUnavailable
from ...interfaces import Batch, ILedger
from ...model import Block, Event, Position
from ._dispatcher import inBatches
from ._follower import Follower

BLOCKS_A_STEP = 16
"""How many blocks are looked at in one step, at the most."""

_HEIGHTS_AHEAD = 64

_log = Logger()


@frozen(kw_only=True)
class Step:
    """
    What one step into the past found.

    @ivar batch: the next events, where there were any.
    @ivar position: the place up to which everything was looked at.
    """

    batch: Batch | None
    position: Position


class History:
    """
    Finds a subscription's next events in the log, one bounded step at a time.

    Plain topics are found by the ledger's index. Patterns are looked for block by block.
    """

    def __init__(self, follower: Follower, topics: tuple[str, ...] | None) -> None:
        """
        @param topics: all filters; C{None} where any is a pattern.
        """
        self._follower = follower
        self._topics = topics
        self._heights: deque[int] = deque()
        self._known = 0

    async def step(
        self, position: Position, skip: frozenset[Position], wants: Callable[[Event], bool]
    ) -> Step:
        """
        The next events after a place, as far as the follower has come.

        @param skip: places of events to leave out.
        @param wants: whether an event is meant for the subscription, and its principal may read it.
        @raise LedgerUnavailable: the ledger is damaged: going on would leave out events.
        """
        last = self._follower.height
        for _ in range(BLOCKS_A_STEP):
            height = await self._nextHeight(position.height, last)
            if height is None:
                return Step(batch=None, position=Position(last + 1, -1))
            if height > position.height:
                position = Position(height, -1)
            block = await self._follower.readBlock(height)
            checkIndex(self._follower, block, self._topics)
            events = [
                event
                for event in block.events
                if event.index > position.index
                and wants(event)
                and (not skip or event.position not in skip)
            ]
            batch = next(inBatches(events, block.timestamp), None)
            if batch is not None:
                rest = len(events) > len(batch.events)
                end = batch.events[-1].position if rest else Position(height + 1, -1)
                return Step(batch=batch, position=end)
            position = Position(height + 1, -1)
            if self._follower.turns.isOver:
                break
        return Step(batch=None, position=position)

    async def _nextHeight(self, height: int, last: int) -> int | None:
        """The height of the next block to look at, from C{height} up to C{last}."""
        height = max(height, 1)
        if height > last:
            return None
        if self._topics is None:
            return height
        while self._heights and self._heights[0] < height:
            self._heights.popleft()
        if not self._heights and self._known <= last:
            first = max(height, self._known)
            found = await self._follower.ledger.findBlocks(self._topics, first, _HEIGHTS_AHEAD)
            self._heights.extend(found)
            # Fewer than asked for: that was all up to the height that the ledger has now.
            self._known = found[-1] + 1 if len(found) == _HEIGHTS_AHEAD else last + 1
        if not self._heights or self._heights[0] > last:
            return None
        return self._heights[0]


class HeightsBelow:
    """
    The heights of blocks that may hold events of topics, the highest first.

    A ledger finds blocks from a height on only. So this looks into one range of heights below the
    other, which becomes wider while there are no events, and narrower where there are more than one
    read answers.
    """

    def __init__(self, ledger: ILedger, topics: tuple[str, ...] | None) -> None:
        """
        @param topics: the topics; C{None} for any.
        """
        self._ledger = ledger
        self._topics = topics
        self._found: list[int] = []
        self._lowest: int | None = None
        self._width = _HEIGHTS_AHEAD

    async def next(self, before: Position) -> int | None:
        """
        The height of the highest block that may hold such events before a position; C{None} where
        there is none. The position is never above the last one that was asked for.
        """
        # The block of the position holds events before it, unless it is that of its first one.
        end = before.height + (before.index > 0)
        if self._topics is None:
            return end - 1 if end > 1 else None
        while self._found and self._found[-1] >= end:
            self._found.pop()
        while not self._found:
            top = end if self._lowest is None else min(end, self._lowest)
            if top <= 1:
                return None
            first = max(1, top - self._width)
            found = await self._ledger.findBlocks(self._topics, first, _HEIGHTS_AHEAD)
            below = [height for height in found if height < top]
            if len(below) == _HEIGHTS_AHEAD and below[-1] < top - 1:
                # These are the lowest ones of the range.
                self._width //= 2
                continue
            if len(below) < _HEIGHTS_AHEAD // 4:
                self._width *= 2
            self._lowest, self._found = first, below
        return self._found[-1]


def checkIndex(follower: Follower, block: Block, topics: tuple[str, ...] | None) -> None:
    """
    Check that a block has events of the topics whose index led to it.

    @param topics: C{None} where no index was used.
    @raise LedgerUnavailable: it has none: the index is damaged, and may leave out other events.
    """
    if topics and not any(event.topic in topics for event in block.events):
        _log.error(
            "the index of group {group} is damaged: block {height} has none of the events "
            "that it leads to",
            group=follower.ledger.group,
            height=block.height,
        )
        raise LedgerUnavailable("the ledger's disk cannot be read")
