"""
Following one group's blocks.
"""

from __future__ import annotations

from collections import OrderedDict, deque

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from ...interfaces import IBlockObserver, ILedger, INetworkLedger
from ...model import Block, eventSize
from ...net.deferreds import asDeferred
from ...net.turns import EndOfTurn
from ...probes import probe
from ._dispatcher import Dispatcher, Member
from ._walks import HistoryTurns, Walks

CACHED_BYTES = 16 * 1024 * 1024
"""How much of the blocks read last is kept for the next who reads them."""

_EVENT_BYTES = 512
"""What an event costs beside what its publisher made it of, roughly."""


@implementer(IBlockObserver)
class Follower:
    """
    Takes a ledger's blocks as they become final, and hands them to the dispatcher in turns of
    its own: no subscriber is called inside the call that made a block.

    @ivar ledger: the ledger followed.
    @ivar dispatcher: who is told.
    @ivar turns: when history may be read.
    @ivar walks: those who read history block by block.
    @ivar height: the height of the last block that was dispatched.
    @ivar committed: the height of the last block that is final; it may wait for its turn.
    @ivar isOfNetwork: whether other nodes may have blocks that are still to come here.
    """

    def __init__(self, ledger: ILedger, reactor: IReactorTime, turns: HistoryTurns) -> None:
        """
        @param turns: when history may be read.
        """
        self.ledger = ledger
        self.dispatcher: Dispatcher[Member] = Dispatcher()
        self.turns = turns
        self.walks = Walks(self, turns)
        self.height = self.committed = 0
        self.isOfNetwork = INetworkLedger.providedBy(ledger)
        self._turn = EndOfTurn(reactor)
        self._waiting: deque[Block] = deque()
        self._cache: OrderedDict[int, tuple[Block, int]] = OrderedDict()
        self._cached = 0
        self._readers = 0
        self._awaited: dict[int, dict[Deferred[None], None]] = {}

    @asDeferred
    async def start(self) -> None:
        """
        Begin with the first block that comes now.
        """
        self.ledger.addObserver(self)
        self.height = (await self.ledger.getStatistics()).height
        self.committed = max(self.committed, self.height)

    def stop(self) -> None:
        """
        Follow no more.
        """
        self.ledger.removeObserver(self)
        self._waiting.clear()
        self._turn.stop()

    def awaitHeight(self, height: int) -> Deferred[None]:
        """
        A Deferred that fires when the block of a height is final, which it is not now.
        L{forgetHeight} must follow.
        """
        waiting: Deferred[None] = Deferred()
        self._awaited.setdefault(height, {})[waiting] = None
        return waiting

    def forgetHeight(self, height: int, waiting: Deferred[None]) -> None:
        """Nobody waits for what L{awaitHeight} has given."""
        others = self._awaited.get(height, {})
        others.pop(waiting, None)
        if not others:
            self._awaited.pop(height, None)

    def join(self) -> None:
        """Somebody subscribes, who may want to read again what was dispatched."""
        self._readers += 1

    def leave(self) -> None:
        """Somebody who joined is gone."""
        self._readers -= 1

    def blockCommitted(self, block: Block) -> None:
        self.committed = block.height
        self.turns.published()
        for awaiting in self._awaited.pop(block.height, ()):
            awaiting.callback(None)
        if self._waiting:
            self._waiting.append(block)
        elif self._readers:
            self._waiting.append(block)
            self._turn.add(self._dispatch)
        else:
            # Nothing is called for it, so it needs no turn.
            self._take(block)

    def _dispatch(self) -> None:
        while self._waiting:
            self._take(self._waiting.popleft())

    def _take(self, block: Block) -> None:
        # What was final before this began is history.
        if block.height > self.height:
            self.height = block.height
            if block.erases:
                self._cache.clear()
                self._cached = 0
            # Without subscriptions a block costs nothing.
            if self._readers:
                size = sum(map(eventSize, block.events))
                self._keep(block, size)
                self.dispatcher.dispatch(block, size)

    def readBlock(self, height: int) -> Deferred[Block]:
        """
        A block of the past; one that somebody else read lately is at hand.
        """
        kept = self._cache.get(height)
        if kept is not None:
            probe("follower: block read from the cache")
            self._cache.move_to_end(height)
            return succeed(kept[0])
        reading = self.ledger.readBlock(height)
        reading.addCallback(self._read)
        return reading

    def _read(self, block: Block) -> Block:
        self._keep(block, sum(map(eventSize, block.events)))
        return block

    def _keep(self, block: Block, size: int) -> None:
        size += len(block.events) * _EVENT_BYTES
        replaced = self._cache.pop(block.height, None)
        self._cached += size - (replaced[1] if replaced else 0)
        self._cache[block.height] = (block, size)
        while self._cached > CACHED_BYTES:
            probe("follower: block dropped from the cache")
            _, (_, dropped) = self._cache.popitem(last=False)
            self._cached -= dropped
