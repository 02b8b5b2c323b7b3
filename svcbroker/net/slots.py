"""
Bounds on the work under way, shared fairly between those who want it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict

from twisted.internet.defer import Deferred


class Slots:
    """
    Slots for work: a total, and a smaller number for each lane (a host, an address), so that one
    which is slow or greedy cannot have all of them. Lanes that wait take turns; within a
    lane, the first to wait is the first to go.
    """

    def __init__(self, total: int, perLane: int) -> None:
        self._free = total
        self._perLane = perLane
        self._busy: Counter[str] = Counter()
        self._queues: dict[str, OrderedDict[Deferred[None], None]] = {}
        # Lanes with waiters that may have one more slot, in the order of their turns.
        self._ready: OrderedDict[str, None] = OrderedDict()
        self._isHandingOut = False

    @property
    def busy(self) -> int:
        """How many are taken."""
        return self._busy.total()

    def isWanted(self, lane: str) -> bool:
        """Whether a waiter could have a slot of this lane when it is released."""
        return bool(self._ready) or lane in self._queues

    def take(self, lane: str) -> bool:
        """
        Take a slot if one is free.

        @return: whether it was taken. Then L{release} must be called.
        """
        if not self._free or self._busy[lane] >= self._perLane or lane in self._queues:
            return False
        self._occupy(lane)
        return True

    def wait(self, lane: str) -> Deferred[None]:
        """
        Wait for a slot. Cancelling leaves the queue.

        @return: fires when the slot is taken. Then L{release} must be called.
        """
        waiter: Deferred[None] = Deferred(lambda waiter: self._leave(lane, waiter))
        self._queues.setdefault(lane, OrderedDict())[waiter] = None
        if self._busy[lane] < self._perLane:
            self._ready.setdefault(lane)
        self._handOut()
        return waiter

    def release(self, lane: str) -> None:
        """Give a slot back."""
        self._free += 1
        self._busy[lane] -= 1
        if not self._busy[lane]:
            del self._busy[lane]
        if lane in self._queues:
            self._ready.setdefault(lane)
        self._handOut()

    def _occupy(self, lane: str) -> None:
        self._free -= 1
        self._busy[lane] += 1

    def _handOut(self) -> None:
        # Work that ends at once releases its slot in here: the loop below goes on with it, so that
        # a long queue of such work is no deep recursion.
        if self._isHandingOut:
            return
        self._isHandingOut = True
        try:
            while self._free and self._ready:
                lane, _ = self._ready.popitem(last=False)
                queue = self._queues[lane]
                waiter, _ = queue.popitem(last=False)
                self._occupy(lane)
                if not queue:
                    del self._queues[lane]
                elif self._busy[lane] < self._perLane:
                    self._ready[lane] = None
                waiter.callback(None)
        finally:
            self._isHandingOut = False

    def _leave(self, lane: str, waiter: Deferred[None]) -> None:
        queue = self._queues[lane]
        del queue[waiter]
        if not queue:
            del self._queues[lane]
            self._ready.pop(lane, None)


class Lock:
    """
    A lock for coroutines: C{async with}. The first to wait is the first to have it.

    Thousands may wait whose work ends at once when it is their turn: with C{DeferredLock}, each of
    them would go on within the one before it, to a recursion error.
    """

    def __init__(self) -> None:
        self._slots = Slots(1, 1)

    async def __aenter__(self) -> None:
        if not self._slots.take(""):
            await self._slots.wait("")

    async def __aexit__(self, *_: object) -> None:
        self._slots.release("")
