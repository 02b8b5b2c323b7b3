"""
Bounds on the work of a turn of the reactor: work under way that is shared fairly (L{Slots}), work
that is put off to the end of a turn or to the turn of a lane, and timers that are moved far more
often than they fire.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

MakeAll: TypeAlias = Callable[[Iterator[Callable[[], object]]], Deferred[None]]
"""Makes calls, one after the other, in as many turns as that takes:
L{WorkBudget.makeAll<svcbroker.net.budgets.WorkBudget.makeAll>}."""


def makeAtOnce(calls: Iterator[Callable[[], object]]) -> Deferred[None]:
    """Make calls in this turn, all of them."""
    for call in calls:
        call()
    return succeed(None)


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
        """The number of slots that are taken."""
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


TRY_EVERY: Final = 32
"""The number of calls that are made at once, after a turn in which there was only one."""

_log = Logger()


class EndOfTurn:
    """
    Makes calls when all that arrived in this turn of the reactor has been handled. One queue,
    and one delayed call of the reactor, serves all connections. The daemon's reactor makes it right
    after its reads, or before the next ones where those are over
    (L{pollWithoutContext<svcbroker.daemon.process.pollWithoutContext>}), any other one at the
    beginning of the next turn.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._callAfterReads = getattr(clock, "callAfterReads", None)
        self._calls: list[Callable[[], object]] = []
        self._last: list[Callable[[], object]] = []
        self._scheduled: IDelayedCall | None = None
        self._isDue = self._isEnding = False
        self._untilTry = TRY_EVERY

    @property
    def isWithinTurn(self) -> bool:
        """Whether calls are made before the next turn of the reactor begins."""
        return self._callAfterReads is not None

    def add(self, call: Callable[[], object]) -> None:
        """
        Make a call at the end of this turn. One that is added during such a call is made at the
        end of the next turn. The failure of a call is logged.
        """
        if not self._isDue:
            self._schedule()
        self._calls.append(call)

    def addLast(self, call: Callable[[], object]) -> None:
        """Make a call at the end of this turn, after those of L{add}, which may add it, too."""
        if not (self._isDue or self._isEnding):
            self._schedule()
        self._last.append(call)

    def addOrCall(self, call: Callable[[], object]) -> None:
        """
        Make a call at the end of this turn, or at once where turns seldom have more than one.

        A client that is answered wakes up, and to wake another processor costs more than to send
        an answer, so many answers are sent together. A lone answer would only wait: after a turn
        with one call, the next L{TRY_EVERY} are made at once.
        """
        if self._untilTry:
            self._untilTry -= 1
            call()
        else:
            self.add(call)

    def stop(self) -> None:
        """Make none of the calls that wait. Others may still be added."""
        self._calls.clear()
        self._last.clear()
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._scheduled = None
            self._isDue = False

    def _schedule(self) -> None:
        self._isDue = True
        if self._callAfterReads is not None:
            self._callAfterReads(self._end)
        else:
            self._scheduled = self._clock.callLater(0, self._end)

    def _end(self) -> None:
        self._scheduled = None
        self._isDue, self._isEnding = False, True
        calls, self._calls = self._calls, []
        if len(calls) == 1:
            self._untilTry = TRY_EVERY
        self._make(calls)
        self._isEnding = False
        if self._last:
            last, self._last = self._last, []
            self._make(last)

    def _make(self, calls: Sequence[Callable[[], object]]) -> None:
        for call in calls:
            try:
                call()
            except Exception:
                _log.failure("A call at the end of a turn failed")


class FairTurns:
    """
    A bound on the work that is done in one turn of the reactor. What is above it waits for a later
    turn, in a lane for each address; lanes take turns.

    It is for work that anyone may cause at any number of connections at the same moment, and that
    would hold the reactor if it was done as it arrives.
    """

    def __init__(self, clock: IReactorTime, perTurn: int) -> None:
        """
        @param perTurn: how many pieces of work are done in a turn of the reactor.
        """
        self._clock = clock
        self._slots = Slots(perTurn, perTurn)
        self._used: list[str] = []
        self._next: IDelayedCall | None = None
        self._isRunning = False

    def take(self, lane: str) -> bool:
        """
        Ask whether a piece of work may be done now. One that is part of another which has waited
        may.

        @return: C{False} where it has to L{wait}.
        """
        if self._isRunning:
            return True
        if not self._slots.take(lane):
            return False
        self._took(lane)
        return True

    def wait(self, lane: str) -> Deferred[None]:
        """
        Wait for a turn. Cancelling leaves the lane.

        @return: fires when the work may be done.
        """
        waiter = self._slots.wait(lane)
        waiter.addCallback(lambda _: self._took(lane))
        return waiter

    def stop(self) -> None:
        """Let nothing that waits go on."""
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _took(self, lane: str) -> None:
        self._used.append(lane)
        if self._next is None:
            self._next = self._clock.callLater(0, self._begin)

    def _begin(self) -> None:
        """Begin a turn: each release lets a waiter go on."""
        self._next = None
        used, self._used = self._used, []
        self._isRunning = True
        try:
            for lane in used:
                self._slots.release(lane)
        finally:
            self._isRunning = False


class ReadsInTurn:
    """
    The bytes that a connection receives, handled in its turns. While they wait, the connection is
    not read from, and they are counted.
    """

    def __init__(
        self,
        take: Callable[..., bool],
        wait: Callable[..., Deferred[None]],
        receive: Callable[[bytes], object],
        setReading: Callable[[bool], object],
        keep: Callable[[int], bool] = lambda change: True,
    ) -> None:
        """
        @param take: asks whether they may be handled now: C{FairTurns.take} or C{Lane.begin}.
        @param wait: fires when they may: C{FairTurns.wait} or C{Lane.turn}.
        @param receive: called with bytes that have waited. It asks L{mayHandle} again.
        @param setReading: stops reading from the connection, or goes on.
        @param keep: counts so many more or fewer bytes that wait. Where there is no room for more,
            it refuses the client, and returns C{False}: they are dropped.
        """
        self._take = take
        self._wait = wait
        self._receive: Callable[[bytes], object] | None = receive
        self._setReading: Callable[[bool], object] | None = setReading
        self._keep: Callable[[int], bool] | None = keep
        self._unread = b""
        self._waiter: Deferred[None] | None = None

    def mayHandle(self, data: bytes, *work: Any) -> bool:
        """
        Ask whether bytes may be handled now.

        @param work: the arguments of C{take} and C{wait}.
        @return: C{False} where they have to wait. They are kept.
        """
        if self._waiter is not None:
            # TLS delivers what it has decrypted even while reading is stopped.
            self._add(data)
            return False
        if self._take(*work):
            return True
        if not self._add(data) or self._setReading is None:
            return False
        self._setReading(False)
        self._waiter = self._wait(*work)
        self._waiter.addCallbacks(self._resume, _left)
        return False

    def stop(self) -> None:
        """The connection is closed: nothing is kept of it."""
        self._drop()
        self._receive = self._setReading = self._keep = None
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            waiter.cancel()

    def _add(self, data: bytes) -> bool:
        if self._keep is None:
            return False
        self._unread += data
        isKept = self._keep(len(data))
        if not isKept:
            self._drop()
        return isKept

    def _drop(self) -> bytes:
        data, self._unread = self._unread, b""
        if data and self._keep is not None:
            self._keep(-len(data))
        return data

    def _resume(self, _: None) -> None:
        self._waiter = None
        data = self._drop()
        if self._receive is not None:
            self._receive(data)
        # Which may have closed the connection.
        if self._setReading is not None:
            self._setReading(True)


def _left(failure: Failure) -> None:
    failure.trap(CancelledError)


NEVER: Final = float("inf")


class LazyTimer:
    """
    A timer whose deadline is moved with every packet, request or block, and seldom reached.

    Moving it to a later time is an assignment to L{deadline}, and stopping it, too: when the
    reactor's call comes, it looks at the deadline, and waits for the rest.

    @ivar deadline: when it fires, by the clock; L{NEVER} where it does not. While it is running it
        may be set to a later time, or to L{NEVER}; to an earlier one only by L{start} or
        L{startAt}.
    """

    def __init__(self, clock: IReactorTime, fire: Callable[[], object]) -> None:
        """
        @param fire: called when the deadline is reached. The timer does not run any more by then,
            and may be started again.
        """
        self.deadline = NEVER
        self._clock = clock
        self._fire: Callable[[], object] | None = fire
        self._call: IDelayedCall | None = None
        # When the reactor's call comes.
        self._due = NEVER

    def start(self, delay: float) -> None:
        """Fire after C{delay} seconds, and not when it was to fire before."""
        if self._fire is None:
            return
        deadline = self.deadline = self._clock.seconds() + delay
        if self._due > deadline:
            self._schedule(delay)

    def startAt(self, deadline: float) -> None:
        """Fire at a time by the clock, and not when it was to fire before."""
        if self._fire is None:
            return
        self.deadline = deadline
        if self._due > deadline:
            self._schedule(max(0.0, deadline - self._clock.seconds()))

    def stop(self) -> None:
        """Do not fire."""
        self.deadline = NEVER

    def close(self) -> None:
        """
        Do not fire, leave nothing with the reactor, and ignore later starts. What would have been
        called is dropped, so that no cycle with its owner is left for the garbage collector.
        """
        self.deadline = self._due = NEVER
        self._fire = None
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def _schedule(self, delay: float) -> None:
        # Twisted's reset searches all delayed calls for one that is moved to an earlier time: with
        # ten thousand connections that takes 2 ms.
        if self._call is not None:
            self._call.cancel()
        self._due = self.deadline
        self._call = self._clock.callLater(delay, self._look)

    def _look(self) -> None:
        self._call = None
        self._due = NEVER
        if self.deadline == NEVER or self._fire is None:
            return
        left = self.deadline - self._clock.seconds()
        if left > 0:
            self._schedule(left)
        else:
            self.deadline = NEVER
            self._fire()
