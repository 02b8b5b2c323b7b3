"""
Reading history for many subscriptions: in bounded pieces of time, and together where they can.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.python.failure import Failure

from ...model import Block
from ...net.deferreds import asDeferred
from ._dispatcher import Dispatcher, Member

SLICE: Final = 0.001
"""Seconds that history is read for in one turn of the reactor, apart from the last step."""

PAUSE: Final = 1.0
"""While events are being published, the pause after a slice: so many times as long as the slice."""

PUBLISHING: Final = 0.25
"""For so many seconds after a block, events are said to be being published."""

BLOCKS_A_TURN: Final = 16
"""The most blocks that a walk looks at in one turn."""

MAX_MATCHES: Final = 20_000
"""The most matches of events with filters that are looked for without a look at the clock."""

CLOSE: Final = 64
"""A walk waits for one that is at most so many blocks behind it, for at most so many turns."""


class HistoryTurns:
    """
    Shares out the time in which history is read. Everybody who reads waits for a turn, one after
    the other; when the slice is over, the others get theirs in a later turn of the reactor.
    Publishers come first: while blocks are made, there is a pause between slices.
    """

    def __init__(self, reactor: IReactorTime) -> None:
        self._reactor = reactor
        self._queue: deque[Deferred[None]] = deque()
        self._call: IDelayedCall | None = None
        self._deadline = 0.0
        self._publishedUntil = 0.0

    def turn(self) -> Deferred[None]:
        """Fires when the caller may read, until L{isOver}. Cancelling it gives the turn up."""
        waiting: Deferred[None] = Deferred()
        self._queue.append(waiting)
        if self._call is None:
            self._call = self._reactor.callLater(0, self._run)
        return waiting

    @property
    def isOver(self) -> bool:
        """Whether who has the turn should wait for another one."""
        return self._reactor.seconds() >= self._deadline

    def published(self) -> None:
        """A block was made."""
        self._publishedUntil = self._reactor.seconds() + PUBLISHING

    def stop(self) -> None:
        """Give no more turns."""
        self._queue.clear()
        if self._call is not None and self._call.active():
            self._call.cancel()
        self._call = None

    def _run(self) -> None:
        began = self._reactor.seconds()
        self._deadline = began + SLICE
        # Each who waits now gets one turn at most.
        for _ in range(len(self._queue)):
            waiting = self._queue.popleft()
            if not waiting.called:
                waiting.callback(None)
                if self.isOver:
                    break
        self._call = None
        if self._queue:
            now = self._reactor.seconds()
            pause = PAUSE * (now - began) if now < self._publishedUntil else 0.0
            self._call = self._reactor.callLater(pause, self._run)


class BlockHistory(Protocol):
    """
    The blocks of a group: L{Follower<svcbroker.broker.subscriptions._follower.Follower>}.

    @ivar height: the height of the last block that is history.
    """

    height: int

    def readBlock(self, height: int) -> Deferred[Block]:
        """Read a block."""


class Walker(Member, Protocol):
    """A subscription that reads history along a walk."""

    def followWalk(self, walk: Walk) -> None:
        """Be a member of this walk from now on, after its last block, and of no other."""

    def follows(self, walk: Walk) -> bool:
        """Whether it is a member of this walk."""

    def endWalk(self, height: int) -> None:
        """The walk has come to the end of the log; C{height} was its last block."""

    def failWalk(self, failure: Failure) -> None:
        """The log cannot be read."""


class Walk:
    """
    Subscriptions that read the same blocks of the past, one after the other.

    @ivar height: the height of the last block that all its members were offered.
    @ivar dispatcher: its members.
    """

    def __init__(self, height: int) -> None:
        self.height = height
        self.dispatcher: Dispatcher[Walker] = Dispatcher()
        self.waited = 0


class Walks:
    """
    The walks through one group's log. A block is read once for all subscriptions of a walk, and
    an event is looked up once in all their filters. Walks that meet become one; a walk waits
    for another that is close behind it.
    """

    def __init__(self, history: BlockHistory, turns: HistoryTurns) -> None:
        self._history = history
        self._turns = turns
        # Those that are between two blocks, by the height of the next one.
        self._walks: dict[int, Walk] = {}

    def join(self, walker: Walker, height: int) -> None:
        """
        Have a subscription walk along from the block of a height on.
        """
        walk = self._walks.get(height)
        if walk is None:
            walk = self._walks[height] = Walk(height - 1)
            self._go(walk).addErrback(self._failed, walk)
        walker.followWalk(walk)

    @asDeferred
    async def _go(self, walk: Walk) -> None:
        while True:
            await self._turns.turn()
            for _ in range(BLOCKS_A_TURN):
                if not walk.dispatcher.audienceCount:
                    del self._walks[walk.height + 1]
                    return
                if walk.height >= self._history.height:
                    del self._walks[walk.height + 1]
                    for walker in walk.dispatcher.members():
                        walker.endWalk(walk.height)
                    return
                if self._waitsForAnother(walk):
                    break
                await self._step(walk)
                other = self._walks.setdefault(walk.height + 1, walk)
                if other is not walk:
                    for walker in walk.dispatcher.members():
                        walker.followWalk(other)
                    return
                if self._turns.isOver:
                    break

    def _waitsForAnother(self, walk: Walk) -> bool:
        following = walk.height + 1
        if len(self._walks) > 1 and walk.waited < CLOSE:
            for height in range(max(1, following - CLOSE), following):
                if height in self._walks:
                    walk.waited += 1
                    return True
        walk.waited = 0
        return False

    async def _step(self, walk: Walk) -> None:
        """Offer the next block to all members."""
        block = await self._history.readBlock(walk.height + 1)
        del self._walks[block.height]
        # An event may concern every member, so there is a bound for both together.
        count = max(1, MAX_MATCHES // max(1, walk.dispatcher.audienceCount))
        for start in range(0, len(block.events), count):
            events = block.events[start : start + count]
            for walker, batches in walk.dispatcher.offers(events, block.timestamp):
                if self._turns.isOver:
                    await self._turns.turn()
                    if not walker.follows(walk):
                        continue  # it has left meanwhile
                walker.offer(batches, block.height)
        walk.height = block.height

    def _failed(self, failure: Failure, walk: Walk) -> None:
        if self._walks.get(walk.height + 1) is walk:
            del self._walks[walk.height + 1]
        for walker in walk.dispatcher.members():
            walker.failWalk(failure)
