"""
Reading the past for one subscription.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from attrs import frozen
from twisted.logger import Logger

from ...errors import LedgerUnavailable
from ...interfaces import Batch
from ...model import Event, Position
from ._dispatcher import inBatches
from ._follower import Follower

BLOCKS_A_STEP = 16
"""How many blocks are looked at in one step, at the most."""

_HEIGHTS_AHEAD = 64


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

    _log = Logger()

    def __init__(
        self,
        follower: Follower,
        topics: tuple[str, ...] | None,
        wants: Callable[[Event], bool],
    ) -> None:
        """
        @param topics: all filters; C{None} where any is a pattern.
        @param wants: whether an event is meant for the subscription, and its principal may read it.
        """
        self._follower = follower
        self._wants = wants
        self._topics = topics
        self._heights: deque[int] = deque()
        self._known = 0

    async def step(self, position: Position, skip: frozenset[Position]) -> Step:
        """
        The next events after a place, as far as the follower has come.

        @param skip: places of events to leave out.
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
            if self._topics and not any(event.topic in self._topics for event in block.events):
                self._log.error(
                    "the index of group {group} is damaged: block {height} has none of the events "
                    "that it leads to",
                    group=self._follower.ledger.group,
                    height=height,
                )
                raise LedgerUnavailable("the ledger's disk cannot be read")
            events = self._matching(block.events, position, skip)
            batch = next(inBatches(events, block.timestamp), None)
            if batch is not None:
                rest = len(events) > len(batch.events)
                end = batch.events[-1].position if rest else Position(height + 1, -1)
                return Step(batch=batch, position=end)
            position = Position(height + 1, -1)
            if self._follower.turns.isOver:
                break
        return Step(batch=None, position=position)

    def _matching(
        self, events: Sequence[Event], position: Position, skip: frozenset[Position]
    ) -> Sequence[Event]:
        return [
            event
            for event in events
            if event.index > position.index
            and self._wants(event)
            and (not skip or event.position not in skip)
        ]

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
