"""
Budgets over all connections of all carriers: the processor time of a turn of the reactor, the bytes
that wait to be sent or acknowledged or for their rest, and the connections whose clients are not
known yet.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Any, Final

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IPushProducer, IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from ..errors import Overloaded
from .deferreds import asDeferred
from .transports import isDirect, sendNow, unsentOf

WRITES_A_TURN: Final = 0.008
"""The time that publishes take of a turn of the reactor before further ones wait, in seconds."""

FIRST_WRITES_A_TURN: Final = 0.02
"""The same before the first small publish of a connection in that turn waits: where many clients
have one under way each, one turn has them all, and so has one block."""

MANY_BESIDE_FEW: Final = 0.003
"""The time that publishes of many events and all other requests take of it, before the former wait
while others publish a few."""

READS_A_TURN: Final = 0.016
"""The same for all other requests that have waited, where no events are published."""

READS_AT_ONCE: Final = 0.004
"""The same for those that have not, and for all while events are published. Further ones wait, so
that a turn reads from all connections, and finds the publishes among what they have sent."""

READS_WHILE_PUBLISHING: Final = 0.002
"""The same for those that have waited, while a ledger has events. After a turn in which reads have
used more, no other one begins for as long: a publish waits for one long read at the most."""

MAX_PAUSE: Final = 0.1
"""The longest of these pauses, in seconds."""

PUBLISHING: Final = 0.25
"""For so many seconds after a publish, events are said to be being published."""

MAX_OUTPUT: Final = 256 * 1024 * 1024
"""The bytes that may wait to be sent, where the process may use eight times as much memory."""

BLOCK: Final = 1100
"""The events of a large block."""

CROWD: Final = 1200
"""While so many events are with the ledgers, more than L{FEW} of a connection wait. Of more than
L{LARGE} together there may be two L{BLOCK}s, one of which is being stored."""

CROWD_BESIDE_FEW: Final = 300
"""The same while others publish a few, which are behind so many then, and those of one connection.
Of more than L{LARGE} together there is one L{BLOCK}."""

SLOW: Final = 0.05
"""Events that have been with a ledger for longer, in seconds, are not counted among these,
but among L{CROWD}: to execute them takes less, and a ledger with slow blocks would have few in
each."""

QUICK: Final = 0.015
"""Where a ledger takes longer to answer a publish of at most L{FEW} events, in seconds, most of it
is its block interval: the limits for other events are then those without such publishes."""

FEW: Final = 16
"""So many events of a connection never wait for those of others."""

LARGE: Final = BLOCK // 2
"""More events of a connection wait for a block with those of others, where these publish a few."""

SMALL: Final = 16 * 1024
"""So many bytes that a connection has sent are taken to publish a few events, more of them many."""

LARGE_BYTES: Final = 64 * 1024
"""The same of more than L{LARGE}."""

BYTE: Final = 3e-8
"""About how long it takes to read a byte of a request, in seconds."""

QUANTUM: Final = 0.001
"""A connection goes on where others wait until it has used so much more time, in seconds. One whose
last unit took longer is taken to publish many events with the next one."""

BEGINNING: Final = 0.002
"""The time for which work that is due is begun, or put in the queue, in a turn, in seconds."""

MAX_INPUT: Final = 128 * 1024 * 1024
"""The bytes of incomplete requests, frames and packets, likewise."""

MAX_WINDOWS: Final = 256 * 1024 * 1024
"""The bytes of unacknowledged deliveries, likewise."""

MAX_RETAINED: Final = 512 * 1024 * 1024
"""The bytes of the indexes of retained messages, likewise."""

MAX_SESSION_BYTES: Final = 1024 * 1024 * 1024
"""The bytes of sessions, live subscriptions, filters and wills, likewise."""

MAX_NAMES: Final = 64 * 1024 * 1024
"""The bytes of names of topics and of credentials that connections remember, likewise."""

NAME_BYTES: Final = 160
"""The bytes that a remembered name of a topic takes beside its letters, about."""

ENTRY_BYTES: Final = 512
"""The bytes that an entry of a cache takes, about: its key, its value, and their place."""

STRANGER_BYTES: Final = 16 * 1024
"""The bytes of memory of a connection whose client is not known yet."""

TLS_WEIGHT: Final = 5
"""The factor of that memory for a connection with TLS."""

MAX_STRANGERS: Final = 4096
"""The most connections whose clients have not shaken hands or logged in; a fifth of it with TLS."""

STRANGERS_OF_ONE: Final = 1024
"""The most of them from one address, likewise."""

LOGIN_TIMEOUT: Final = 15.0
"""The seconds that a client may take to shake hands and to log in."""

SHARE: Final = 4
"""One account, or one address of clients without one, may have one unsent byte in so many."""

GRAIN: Final = 4096
"""A connection tells what is not acknowledged when it has changed by so many bytes: most of it
comes and goes at once."""

HALF: Final = 2
"""The same of bytes that wait for their rest or for an acknowledgement."""

LOOK_EVERY: Final = 0.05
"""The shortest time between two looks at the connections, in seconds."""

LOOKED_AT: Final = 2000
"""The most connections that a look asks. More have their turns in later ones."""


_KINDS = _WRITE, _MANY, _READ = range(3)
"""The kinds of work that waits, in their order: publishes, those of many events, all else."""

_LARGE = len(_KINDS)
"""The queue of publishes of more than L{LARGE} events of lanes that have reserved none. They wait
until the reservations of other lanes are used, so they must not be ahead of those lanes in their
queue. Of both queues, the first that the ledgers have room for is next."""


@frozen
class Budgets:
    """
    The budgets that all connections share.

    @ivar work: the time of each turn of the reactor.
    @ivar output: the bytes that wait to be sent.
    @ivar input: the bytes of requests, frames, packets and transactions that are not whole yet, or
        not answered.
    @ivar windows: the bytes of deliveries that are not acknowledged yet.
    @ivar subscriptions: the bytes of sessions, live subscriptions, kept filters and wills.
    @ivar names: the bytes of what connections remember: names and aliases of topics, credentials.
    @ivar strangers: the connections whose clients are not known yet.
    @ivar retained: the most bytes of the indexes of retained messages, of all groups.
    """

    work: WorkBudget
    output: OutputBudget
    input: ByteBudget
    windows: ByteBudget
    subscriptions: ByteBudget
    names: ByteBudget
    strangers: Strangers
    retained: int = MAX_RETAINED

    @classmethod
    def of(
        cls,
        clock: IReactorTime,
        output: int = MAX_OUTPUT,
        input: int = MAX_INPUT,
        windows: int = MAX_WINDOWS,
        retained: int = MAX_RETAINED,
        subscriptions: int = MAX_SESSION_BYTES,
        names: int = MAX_NAMES,
    ) -> Budgets:
        """
        The budgets of a reactor.

        @param output: how many bytes may wait to be sent.
        @param input: how many bytes may wait for their rest.
        @param windows: how many bytes may wait for an acknowledgement.
        @param retained: how many bytes the indexes of retained messages may have.
        @param subscriptions: how many bytes sessions, subscriptions and wills may have.
        @param names: how many bytes connections may remember.
        """
        return cls(
            WorkBudget(clock),
            OutputBudget(clock, output),
            ByteBudget(input),
            ByteBudget(windows, grain=GRAIN),
            ByteBudget(subscriptions),
            ByteBudget(names),
            Strangers(clock),
            retained,
        )

    @property
    def ofBytes(self) -> Mapping[str, OutputBudget | ByteBudget]:
        """Those of bytes, by the names that operators know."""
        return {
            "output": self.output,
            "input": self.input,
            "windows": self.windows,
            "subscriptions": self.subscriptions,
            "names": self.names,
        }

    def refusals(self) -> Mapping[str, int]:
        """Refusals for want of room, counted by the name of the budget."""
        refused = {name: each.refused for name, each in self.ofBytes.items()}
        return {**refused, "strangers": self.strangers.refused}

    def stop(self) -> None:
        """Let go of the clock. Called once, after the connections have closed."""
        self.work.stop()
        self.output.stop()
        self.strangers.stop()


class WorkBudget:
    """
    The processor time of a turn of the reactor, shared by the work that clients of all carriers
    cause. Work that does not fit waits for a later turn: publishes before all other work, and
    within each kind the connection first that has used the least time, what it waits for included
    as far as that is known. So a client that asks for little does not wait for those that ask for
    much.

    Work is cut into units, each a request or a part of one. A unit is not interrupted: the longest
    one comes on top of the budget.

    Many events that a connection publishes together wait while many are with the ledgers, so that
    single ones of others are in one of the next blocks. While others publish a few, large batches
    are read in the time that reads have, and between those of two there is a block with those few.

    @ivar pending: how many events are with the ledgers.
    @ivar reserved: how many are the rest of what is given to them in parts. No other large batch is
        read before.
    @ivar clock: the reactor, or what counts no turns (C{turns}).
    @ivar seconds: what tells the time.
    @ivar turn: the turn that is counted.
    @ivar used: the time that reads, and that publishes have used of it.
    @ivar usedByMany: the part of that of publishes which is of many events.
    @ivar queues: what waits, by its kind, and L{_LARGE}: how much its lane had used, with what it
        waits for, a number, and the rest.
    @ivar floor: the least that a lane that begins to wait is taken to have used.
    @ivar most: the most that any lane has used.
    @ivar publishedAt: when something was published last.
    @ivar current: the lane whose unit is under way.
    @ivar isUrgent: whether its time counts as that of publishes, and not as that of reads.
    @ivar events: how many events it publishes.
    @ivar since: since when it is.
    @ivar isServing: whether it is the turn of what has waited.
    @ivar readsAt: until when no read begins while a ledger has events.
    @ivar due: the L{TimedWork} that is to come.
    """

    _log = Logger()
    turns = 0
    isBehind = False

    def __init__(self, clock: IReactorTime) -> None:
        """
        @param clock: the reactor. The daemon's counts its turns (C{turns}), tells whether they
            have not read from all connections yet that were readable (C{isBehind}), and is given
            L{isShared} to ask; for any other one, a turn with work takes a delayed call.
        """
        self._reactor = clock
        counting: Any = clock if hasattr(clock, "turns") else None
        self.clock: Any = counting or self
        if counting is not None:
            counting.isShared = self.isShared
        self.seconds = clock.seconds
        self.pending = self._many = self.reserved = 0
        # When many were given to a ledger together, and how many, about: a ledger may overtake
        # another; and how many have been with one for L{SLOW}, which are not among them.
        self._submissions: deque[tuple[float, int]] = deque()
        self._slow = 0
        # When a small publish was submitted while no other one was pending, until one is answered;
        # and about the least latency of those lately, in seconds; 0 before the first.
        self._fewSince: float | None = None
        self._quickest = 0.0
        self.turn = 0
        self.used = [0.0, 0.0]
        self.usedByMany = 0.0
        self.queues: list[list[tuple[float, int, Waiter]]] = [[], [], [], []]
        self._sequence = 0
        # Nobody has used less, as far as waiting goes; and the most that any lane has used.
        self.floor = self.most = 0.0
        self.publishedAt = self._fewAt = float("-inf")
        # Whether many events were settled, and since then no few that are in a later block; when.
        self._isTurnOfFew = False
        self._manyTurn = 0
        self.current: Lane | None = None
        self.isUrgent = False
        self.events = 1
        self.since = 0.0
        self.isServing = False
        self.readsAt = float("-inf")
        self.due = DueWork(clock)
        self._call: IDelayedCall | None = None
        # When it comes: at the end of a pause of reads, or in the next turn.
        self._isPausing = False
        # Whether the last turn was left to a block.
        self._hasYielded = False

    def lane(self) -> Lane:
        """Make the lane of a connection."""
        return Lane(self)

    def after(self, seconds: float, call: Callable[[], object], isWrite: bool = False) -> TimedWork:
        """Do work after some seconds; see L{TimedWork}."""
        return TimedWork(self, seconds, call, isWrite)

    @asDeferred
    async def makeAll(self, calls: Iterable[Callable[[], object]]) -> None:
        """
        Make calls, in as many turns as they take. It is for what has to be done to thousands of
        connections or calls at once. The failure of a call is logged.

        @param calls: each is taken when it is made, so that an iterator may leave out those that
            are not needed any more.
        """
        lane, left = self.lane(), iter(calls)
        while True:
            if not lane.begin(isWrite=False):
                await lane.turn(isWrite=False)
            call = next(left, None)
            if call is None:
                break
            try:
                call()
            except Exception:
                self._log.failure("A call for one of many failed")
        lane.end()

    def stop(self) -> None:
        """Let nothing that waits go on."""
        self.due.stop()
        for queue in self.queues:
            queue.clear()
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def isShared(self) -> bool:
        """Whether some have published a few events a moment ago."""
        return self.seconds() - self._fewAt < PUBLISHING

    def submitted(self, count: int) -> None:
        """Count events that a ledger has been given together."""
        self.pending += count
        if count > FEW:
            self._many += count
            self._submissions.append((self.seconds(), count))
        elif self.current is None or self.events <= FEW:
            # Otherwise a client with many under way has sent the next few of them.
            self._fewAt = now = self.seconds()
            if self.pending == self._many + count:
                self._fewSince = now

    def settled(self, count: int, isShared: bool = False) -> None:
        """
        They are answered.

        @param isShared: whether they are of several calls that were counted one by one.
        """
        self.pending -= count
        if count > FEW and not isShared:
            self._many -= count
            self._forget(count)
        elif self._fewSince is not None:
            taken, self._fewSince = self.seconds() - self._fewSince, None
            self._quickest = min(taken, 1.1 * self._quickest) if self._quickest else taken
        if count > LARGE and not isShared:
            self._isTurnOfFew, self._manyTurn = True, self.clock.turns
        elif self.clock.turns > self._manyTurn:
            self._isTurnOfFew = False
        if self._hasMany or (self.queues[_READ] and not self.pending):
            self.scheduleWaiting()

    def _forget(self, count: int) -> None:
        """So many events of many are settled: about those that were submitted first."""
        slow = min(count, self._slow)
        self._slow -= slow
        count -= slow
        submissions = self._submissions
        while count and submissions:
            since, events = submissions.popleft()
            if events > count:
                submissions.appendleft((since, events - count))
                return
            count -= events

    def _crowd(self) -> int:
        """
        The number of events of many that are with the ledgers; from L{CROWD_BESIDE_FEW} on, without
        those that have been there for L{SLOW}.
        """
        if self._many < CROWD_BESIDE_FEW:
            return self._many
        submissions, before = self._submissions, self.seconds() - SLOW
        while submissions and submissions[0][0] <= before:
            self._slow += submissions.popleft()[1]
        return self._many - self._slow

    def beginTurn(self, turn: int, now: float) -> None:
        """Count the time of another turn. Called by L{Lane.begin}."""
        self._pauseReads(now)
        self.turn, self.used, self.usedByMany, self.current = turn, [0.0, 0.0], 0.0, None
        if not any(self.queues):
            # Time that was used while no work waited counts against no connection.
            self.floor = self.most

    def mayBegin(self, lane: Lane, isWrite: bool, events: int, now: float) -> bool:
        """
        Whether a unit may begin where others wait, or much time of the turn is used. Called by
        L{Lane.begin}.
        """
        kind = _kindOf(isWrite, events)
        if kind == _MANY and not self._hasRoom(events, lane):
            return False
        if kind != _WRITE and self.clock.isBehind and not self.isServing:
            return False
        isFirst = lane.lastTurn != self.clock.turns
        queue = self.queues[_queueOf(kind, events, lane)]
        return self._hasTime(kind, events, now, isFirst) and not (
            queue and lane.used > queue[0][0] + QUANTUM
        )

    def charge(self, now: float) -> None:
        """Count the time of the unit that has ended. Called by L{Lane}."""
        lane, self.current = self.current, None
        # Where nothing has ended it, it has ended with its turn. The reactor may have been idle
        # since.
        if lane is None or self.clock.turns != lane.lastTurn:
            return
        # A clock that was set back gives no time back.
        spent = now - self.since
        if spent > 0:
            lane.used += spent
            lane.isLong = spent > QUANTUM
            if lane.used > self.most:
                self.most = lane.used
            self.used[self.isUrgent] += spent
            if self.events > FEW and self.isUrgent:
                self.usedByMany += spent
            if self.clock is self:
                self.schedule()

    def wait(self, waiter: Waiter, isWrite: bool, size: int = 0, events: int = 1) -> None:
        """Add what waits for a turn."""
        lane = waiter.lane
        # Nobody saves up time by being idle.
        waiter.start = lane.used = max(lane.used, self.floor)
        self._sequence += 1
        waiter.events = events = waiter.lane.eventsOf(events)
        entry = (lane.used + size * BYTE, self._sequence, waiter)
        kind = _kindOf(isWrite, events)
        heappush(self.queues[_queueOf(kind, events, lane)], entry)
        self.scheduleWaiting(kind)

    def mayCountAsPublish(self, events: int, now: float) -> bool:
        """
        Whether the time of a publish counts as that of publishes. That of a large one counts as
        that of reads while others publish a few.
        """
        return events <= LARGE or now - self._fewAt >= PUBLISHING

    def _hasRoom(self, events: int, lane: Lane) -> bool:
        """Whether many events of a lane may be given to the ledgers."""
        isShared = self._quickest < QUICK and self.isShared()
        if events <= LARGE:
            if isShared:
                return self._many < CROWD and self._crowd() < CROWD_BESIDE_FEW
            return self.pending < CROWD
        if isShared and self._isTurnOfFew and self.pending > self._many:
            return False
        reserved = 0 if lane.reserved else self.reserved
        many = self._many + reserved
        if not many:
            return True
        if many + events > 2 * BLOCK:
            return False
        return not isShared or self._crowd() + reserved + events <= BLOCK

    @property
    def _hasMany(self) -> bool:
        """Whether something of many events waits."""
        return bool(self.queues[_MANY] or self.queues[_LARGE])

    def _next(self, kind: int) -> list[tuple[float, int, Waiter]] | None:
        """The queue with what is next of a kind; C{None} where the ledgers have no room for it."""
        found = None
        for each in (kind, _LARGE) if kind == _MANY else (kind,):
            queue = self.queues[each]
            # A cancelled call must not block those behind it.
            while queue and queue[0][2].isCancelled:
                heappop(queue)
            if queue and (kind != _MANY or self._hasRoom(queue[0][2].events, queue[0][2].lane)):
                found = queue if found is None else min(found, queue)
        return found

    def _limit(self, now: float) -> float:
        """The time that reads have of this turn."""
        if now - self._fewAt < PUBLISHING or (self.pending and self.isServing):
            return READS_WHILE_PUBLISHING
        if not self.isServing:
            return READS_AT_ONCE
        if self.clock.isBehind or now - self.publishedAt < PUBLISHING:
            return READS_AT_ONCE
        return READS_A_TURN

    def _pauseReads(self, now: float) -> None:
        """Have reads pause for as long as the turn that ends has been used by them."""
        used = self.used[0]
        if used > READS_WHILE_PUBLISHING:
            # The last unit began at C{since}: the reactor may have been idle after it.
            self.readsAt = min(self.since + used, now) + used

    def _pause(self, now: float) -> float:
        """The pause of reads that is left, in seconds."""
        if not self.pending:
            return 0.0
        left = self.readsAt - now
        # A clock may be set back.
        return left if 0.0 < left < MAX_PAUSE else 0.0

    def schedule(self) -> None:
        """Have a turn begin. Called by L{Lane}, too, where the reactor counts none."""
        if self._call is None:
            self._call = self._reactor.callLater(0, self._run)
        elif self._isPausing:
            self._call.reset(0)
        self._isPausing = False

    def scheduleWaiting(self, *kinds: int) -> None:
        """
        Have a turn begin for what waits and may be served, at the end of the pause of reads where
        there is nothing else, or once there may be room with the ledgers.

        @param kinds: only for what is of these.
        """
        now = self.seconds()
        ready = {kind: queue for kind in kinds or _KINDS if (queue := self._next(kind))}
        isUrgent = any(
            self._isUrgent(kind, queue[0][2].events, now) for kind, queue in ready.items()
        )
        pause = 0.0 if isUrgent else self._pause(now)
        if ready and not pause:
            self.schedule()
        elif self._call is None and (ready or (self._hasMany and self._submissions)):
            if not ready:
                # There may be room then, whether the ledger has answered or not.
                pause = max(0.0, self._submissions[0][0] + SLOW - now)
            self._call = self._reactor.callLater(pause, self._run)
            self._isPausing = True

    def _run(self) -> None:
        """
        Begin a turn with what waits. The reads of the turn share what is left of its time. Where a
        few events are with the ledgers, every other turn is left to their block.
        """
        self._call = None
        self._isPausing = False
        hasFew = self.pending > self._many and not self.queues[_WRITE]
        self._hasYielded = hasFew and not self._hasYielded
        if self._hasYielded:
            self.schedule()
            return
        self._pauseReads(self.seconds())
        self.used, self.usedByMany = [0.0, 0.0], 0.0
        if self.clock is self:
            self.turns += 1
        self.turn = self.clock.turns + (self.clock is not self)
        self.isServing = True
        for kind in _KINDS:
            # Publishes of a few events may be among what was not read yet.
            isLater = kind == _MANY and self.clock.isBehind
            while (
                not isLater
                and (queue := self._next(kind))
                and self._hasTime(kind, queue[0][2].events, self.seconds())
            ):
                _, _, waiter = heappop(queue)
                # Not with its size: who comes now with less is before those who wait with as much.
                self.floor = max(self.floor, waiter.start)
                self._serve(waiter, kind)
        self.isServing = False
        self.scheduleWaiting()

    def _isUrgent(self, kind: int, events: int, now: float) -> bool:
        return kind != _READ and self.mayCountAsPublish(events, now)

    def _hasTime(self, kind: int, events: int, now: float, isFirst: bool = False) -> bool:
        """
        Whether this turn has time for work of a kind.

        @param isFirst: whether it is the first of its connection in this turn.
        """
        isUrgent = self._isUrgent(kind, events, now)
        if kind == _MANY and now - self._fewAt < PUBLISHING:
            mayBegin = self.used[False] + self.usedByMany < MANY_BESIDE_FEW
            return mayBegin and (isUrgent or not self._pause(now))
        if not isUrgent:
            return not self._pause(now) and self.used[False] < self._limit(now)
        limit = FIRST_WRITES_A_TURN if isFirst and kind == _WRITE else WRITES_A_TURN
        return self.used[True] < limit

    def _serve(self, waiter: Waiter, kind: int) -> None:
        now = self.seconds()
        self.charge(now)
        self.current, self.since, self.events = waiter.lane, now, waiter.events
        self.isUrgent = self._isUrgent(kind, waiter.events, now)
        waiter.lane.lastTurn = self.clock.turns
        try:
            waiter.call()
        except Exception:
            self._log.failure("Work that has waited for its turn failed")
        self.charge(self.seconds())


def _kindOf(isWrite: bool, events: int) -> int:
    if not isWrite:
        return _READ
    return _WRITE if events <= FEW else _MANY


def _queueOf(kind: int, events: int, lane: Lane) -> int:
    return _LARGE if kind == _MANY and events > LARGE and not lane.reserved else kind


def eventsIn(size: int) -> int:
    """The number of events that so many bytes of a connection are taken to publish."""
    return 1 if size <= SMALL else FEW + 1 if size <= LARGE_BYTES else LARGE + 1


class Lane:
    """
    The share that a connection has in a L{WorkBudget}.

    @ivar used: how much time it has used, in seconds, as the budget counts.
    @ivar lastTurn: the turn in which it has begun its last unit.
    @ivar isLong: whether that took longer than a L{QUANTUM}.
    @ivar waiting: the call that waits for a turn.
    @ivar reserved: how many events are the rest of those that it publishes in parts.
    """

    __slots__ = ("_budget", "isLong", "lastTurn", "reserved", "used", "waiting")

    def __init__(self, budget: WorkBudget) -> None:
        self._budget = budget
        self.waiting: Waiter | None = None
        self.used = 0.0
        self.lastTurn = -1
        self.isLong = False
        self.reserved = 0

    @property
    def isShared(self) -> bool:
        """Whether some have published a few events a moment ago."""
        return self._budget.isShared()

    def begin(self, isWrite: bool, events: int = 1) -> bool:
        """
        Begin a unit of work, which ends where the next one begins, with L{end}, or with the turn.
        Hot path: each request, packet and frame asks for it.

        @param isWrite: whether it publishes.
        @param events: how many events are published; more than L{FEW} also where they are with
            those of this connection that are not answered yet.
        @return: C{False} where this turn has no time left for it: it has to L{wait}.
        """
        budget = self._budget
        now, turns = budget.seconds(), budget.clock.turns
        if turns > budget.turn:
            budget.beginTurn(turns, now)
        elif budget.current is not None:
            budget.charge(now)
        if isWrite:
            if self.isLong:
                events = self.eventsOf(events)
            budget.publishedAt = now
            isFree = events <= FEW and not budget.queues[_WRITE] and budget.used[1] < WRITES_A_TURN
        else:
            isBusy = budget.queues[_READ] or budget.pending or budget.clock.isBehind
            isFree = not isBusy and budget.used[0] < READS_WHILE_PUBLISHING
        if not isFree and not budget.mayBegin(self, isWrite, events, now):
            return False
        budget.current, budget.since, budget.events = self, now, events
        budget.isUrgent = isWrite and (isFree or budget.mayCountAsPublish(events, now))
        self.lastTurn = turns
        return True

    def end(self) -> None:
        """There is nothing more to do now. Hot path."""
        budget = self._budget
        if budget.current is not self:
            if budget.current is not None:
                budget.charge(budget.seconds())
            return
        # As C{charge} does, for which there is no call.
        budget.current = None
        if budget.clock.turns == self.lastTurn:
            spent = budget.seconds() - budget.since
            if spent > 0:
                self.used = used = self.used + spent
                self.isLong = spent > QUANTUM
                if used > budget.most:
                    budget.most = used
                if budget.isUrgent:
                    budget.used[1] += spent
                    if budget.events > FEW:
                        budget.usedByMany += spent
                else:
                    budget.used[0] += spent
                if budget.clock is budget:
                    budget.schedule()

    def reserve(self, events: int) -> None:
        """Tell how many events are to be published yet, of those that are published in parts."""
        if events != self.reserved:
            budget = self._budget
            budget.reserved += events - self.reserved
            self.reserved = events
            if not events:
                budget.scheduleWaiting(_MANY)

    def eventsOf(self, events: int) -> int:
        """
        The number of events that the next unit is taken to publish, given what is known of it.
        """
        return max(events, FEW + 1) if self.isLong else events

    def do(self, call: Callable[[], object], isWrite: bool) -> None:
        """Do a unit of work in this turn where it has time for it, or else in a later one."""
        if self.begin(isWrite):
            call()
            self.end()
        else:
            self.wait(call, isWrite)

    def wait(
        self, call: Callable[[], object], isWrite: bool, size: int = 0, events: int = 1
    ) -> None:
        """
        Do a unit of work in a later turn.

        @param call: does it. A lane has one call that waits at the most.
        @param size: how many bytes have to be read for it, where they are many.
        @param events: as C{begin} has it.
        """
        self.waiting = Waiter(self, call)
        self._budget.wait(self.waiting, isWrite, size, events)

    def turn(self, isWrite: bool, events: int = 1) -> Deferred[None]:
        """
        Wait for a later turn. Cancelling gives it up.

        @param events: as C{begin} has it.
        @return: fires when the unit may be done, which has begun by then.
        """
        done: Deferred[None] = Deferred(lambda _: waiter.cancel())
        waiter = Waiter(self, lambda: done.callback(None))
        self._budget.wait(waiter, isWrite, events=events)
        return done

    def stop(self) -> None:
        """Drop the call that waits: the connection is closed."""
        waiter, self.waiting = self.waiting, None
        if waiter is not None:
            waiter.cancel()


class TimedWork:
    """
    Work that is due at a time, and done in the first turn of the reactor from then on that has time
    for it. It is for clients that have thousands of sessions, wills or connections end at the same
    moment.
    """

    __slots__ = ("_call", "_due", "_isWrite", "_lane")

    def __init__(
        self,
        work: WorkBudget,
        seconds: float,
        call: Callable[[], object],
        isWrite: bool = False,
    ) -> None:
        """
        @param seconds: how long from now it is due.
        @param call: does it.
        @param isWrite: whether it publishes.
        """
        self._lane = work.lane()
        self._isWrite = isWrite
        self._due = work.due
        # None once it is begun or cancelled.
        self._call: Callable[[], object] | None = call
        self._due.add(self, seconds)

    @property
    def isPending(self) -> bool:
        """Whether it is neither begun nor cancelled."""
        return self._call is not None

    def begin(self) -> None:
        """Do it, now or in a later turn. Called by L{DueWork}."""
        call, self._call = self._call, None
        assert call is not None
        self._lane.do(call, self._isWrite)

    def cancel(self) -> None:
        """Do it no more."""
        if self._call is not None:
            self._call = None
            self._due.cancelled()
        self._lane.stop()


class DueWork:
    """
    The L{TimedWork} that is to come, with one call of the reactor for all of it: the reactor makes
    all calls that are due in one turn, and a hundred thousand would only be put off for a second.
    """

    _log = Logger()
    __slots__ = ("_call", "_cancelled", "_entries", "_number", "_reactor")

    def __init__(self, clock: IReactorTime) -> None:
        self._reactor = clock
        # By time, then in the order in which it came. Cancelled work is among it.
        self._entries: list[tuple[float, int, TimedWork]] = []
        self._number = self._cancelled = 0
        self._call: IDelayedCall | None = None

    def add(self, work: TimedWork, seconds: float) -> None:
        """Begin work after a time."""
        self._number += 1
        heappush(
            self._entries,
            (self._reactor.seconds() + max(0.0, seconds), self._number, work),
        )
        if self._entries[0][2] is work:
            self._schedule()

    def cancelled(self) -> None:
        """Some of it was cancelled. The reactor may be called for nothing then."""
        self._cancelled += 1
        if 2 * self._cancelled > len(self._entries):
            self._entries = [each for each in self._entries if each[2].isPending]
            heapify(self._entries)
            self._cancelled = 0
            self._schedule()

    def stop(self) -> None:
        """Begin nothing any more."""
        self._entries.clear()
        self._cancelled = 0
        self._schedule()

    def _schedule(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call.cancel()
        if self._entries:
            delay = max(0.0, self._entries[0][0] - self._reactor.seconds())
            self._call = self._reactor.callLater(delay, self._begin)

    def _begin(self) -> None:
        self._call = None
        last, now = self._number, self._reactor.seconds()
        # A sum of times may differ in its last bit.
        due, end = now + 1e-6, now + BEGINNING
        while self._entries:
            at, number, work = self._entries[0]
            if at > due or number > last or self._reactor.seconds() > end:
                break
            heappop(self._entries)
            if not work.isPending:
                self._cancelled -= 1
                continue
            try:
                work.begin()
            except Exception:
                self._log.failure("Work that was due failed")
        self._schedule()


class Waiter:
    """
    A call that waits for its turn.

    @ivar lane: whose it is.
    @ivar events: how many events it publishes.
    @ivar start: how much its lane had used when it began to wait.
    """

    __slots__ = ("_call", "events", "isCancelled", "lane", "start")

    def __init__(self, lane: Lane, call: Callable[[], object]) -> None:
        self.lane = lane
        self._call: Callable[[], object] | None = call
        self.isCancelled = False
        self.events = 1
        self.start = 0.0

    def call(self) -> None:
        """Make the call. Nothing is kept of it, so that no cycle with the lane is left."""
        call, self._call = self._call, None
        assert call is not None
        if self.lane.waiting is self:
            self.lane.waiting = None
        call()

    def cancel(self) -> None:
        """Make it no more, and keep nothing of it."""
        self.isCancelled = True
        self._call = None


class OutputBudget:
    """
    The bytes of answers and deliveries that were made and not yet written to a socket, over all
    connections. The bound is for clients that ask for much and read nothing.

    Above it, or above a share of it that one account or address has, connections with unread bytes
    are not read from and get no deliveries, and whoever asks for more is refused.

    @ivar total: the most bytes.
    @ivar own: the most of one account or address.
    @ivar used: how many there are, as far as is known: a connection whose client reads is not
        always asked.
    @ivar refused: how many answers were refused.
    """

    def __init__(self, clock: IReactorTime, total: int = MAX_OUTPUT) -> None:
        self.total = total
        self.own = max(1, total // SHARE)
        self.used = self.refused = 0
        self._clock = clock
        self._owners: Counter[str] = Counter()
        self._counted: dict[Unsent, None] = {}
        self._blocked: dict[Unsent, None] = {}
        self._lookedAt = float("-inf")
        self._call: IDelayedCall | None = None

    def stop(self) -> None:
        """Look at no connection any more."""
        self._blocked.clear()
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def unsent(
        self,
        owner: str,
        transport: Any = None,
        pause: Callable[[], object] | None = None,
        resume: Callable[[], object] | None = None,
    ) -> Unsent:
        """
        Count the bytes of a connection, or of a call.

        @param owner: whose they are: see L{ownerKey<svcbroker.net.addresses.ownerKey>}.
        @param transport: that of a connection; C{None} for a call.
        @param pause: called when the connection's client does not read what it was sent.
        @param resume: called when it has read all of it, or others have.
        """
        return Unsent(self, owner, transport, pause, resume)

    def now(self) -> float:
        """The time by the reactor's clock; called by L{Unsent}."""
        return self._clock.seconds()

    def measure(self) -> int:
        """
        Ask connections how much they have, as many as one look may.

        @return: how many bytes there are now.
        """
        self._lookedAt = self._clock.seconds()
        for each in _nextOf(self._counted):
            each.measure()
        return self.used

    def isOver(self, owner: str) -> bool:
        """Whether an owner, or all together, have as much as they may have."""
        if self.used < self.own:
            return False
        return self.used >= self.total or self._owners[owner] >= self.own

    def isStillOver(self, owner: str) -> bool:
        """The same, after a look at the connections where the last one is some time ago."""
        if self.isOver(owner) and self._clock.seconds() - self._lookedAt >= LOOK_EVERY:
            self.measure()
        return self.isOver(owner)

    def count(self, unsent: Unsent, owner: str, size: int) -> None:
        """Add bytes to what somebody has; called by L{Unsent}."""
        self.used += size
        left = self._owners[owner] + size
        if left:
            self._owners[owner] = left
        else:
            del self._owners[owner]
        if unsent.size:
            self._counted[unsent] = None
        else:
            self._counted.pop(unsent, None)

    def block(self, unsent: Unsent) -> None:
        """Look at a connection again until it may go on; called by L{Unsent}."""
        self._blocked[unsent] = None
        if self._call is None:
            self._call = self._clock.callLater(LOOK_EVERY, self._look)

    def unblock(self, unsent: Unsent) -> None:
        """It may go on, or is closed; called by L{Unsent}."""
        self._blocked.pop(unsent, None)

    def _look(self) -> None:
        self._call = None
        for each in _nextOf(self._blocked):
            each.look()
        if self._blocked and self._call is None:
            self._call = self._clock.callLater(LOOK_EVERY, self._look)


def _nextOf(connections: dict[Unsent, None]) -> Sequence[Unsent]:
    """The connections to look at now: all, or each in its turn."""
    some = tuple(islice(connections, LOOKED_AT))
    if len(some) < len(connections):
        for each in some:
            del connections[each]
            connections[each] = None
    return some


@implementer(IPushProducer)
class Unsent:
    """
    The bytes of one connection, or of one call, that count in an L{OutputBudget}.

    Of a connection it is the producer of the transport, and passes on to it whether its client
    reads.

    @ivar owner: whose they are.
    @ivar size: how many bytes were counted last.
    @ivar openedAt: when it was made, by the reactor's clock.
    @ivar eventsSent: how many events the client has sent to be published, refused ones included.
    """

    __slots__ = (
        "__weakref__",
        "_budget",
        "_held",
        "_isBlocked",
        "_isDirect",
        "_isPaused",
        "_pause",
        "_resume",
        "_transport",
        "eventsSent",
        "openedAt",
        "owner",
        "size",
    )

    def __init__(
        self,
        budget: OutputBudget,
        owner: str,
        transport: Any,
        pause: Callable[[], object] | None,
        resume: Callable[[], object] | None,
    ) -> None:
        self.size = 0
        self.eventsSent = 0
        self._budget = budget
        self.openedAt = budget.now()
        self.owner = owner
        self._transport = transport
        self._isDirect = isDirect(transport)
        self._pause = pause
        self._resume = resume
        self._held = 0
        # Whether the transport's buffer is full, and whether the budget is used up.
        self._isPaused = False
        self._isBlocked = False

    def belongTo(self, owner: str) -> None:
        """Count the bytes as those of another owner from now on: the client has logged in."""
        if owner != self.owner:
            before, self.owner = self.owner, owner
            self._budget.count(self, before, -self.size)
            self._budget.count(self, owner, self.size)

    def check(self, isSmall: bool = False) -> None:
        """
        Look whether the client may have another answer. Called before it is made.

        @param isSmall: whether the answer is always small, as that to a publish: it is refused
            only where others wait on this connection.
        @raise Overloaded: it may not.
        """
        budget = self._budget
        if (not isSmall or self.size) and budget.isOver(self.owner):
            self.measure()
            if (not isSmall or self.size) and budget.isStillOver(self.owner):
                budget.refused += 1
                raise Overloaded("too many bytes of answers wait to be read: read them, then ask")

    @property
    def room(self) -> int:
        """The number of bytes that may be added."""
        budget = self._budget
        return min(budget.total - budget.used, budget.own - budget._owners[self.owner])

    @property
    def held(self) -> int:
        """The number of bytes that were made and are not yet with the transport."""
        return self._held

    def hold(self, size: int) -> None:
        """Count bytes that were made and are not yet with the transport."""
        self._held += size
        self._set(self.size + size)

    def release(self) -> None:
        """Those that were held are with the transport, or are dropped."""
        held, self._held = self._held, 0
        self._set(self.size - held)

    def send(self, data: bytes) -> None:
        """Write bytes to the transport, which are lost once the connection is. Hot path."""
        if self._isDirect:
            if not sendNow(self._transport, data):
                return
        elif self._transport is not None:
            self._transport.write(data)
        self.written()

    def written(self) -> None:
        """The transport has been given bytes, and may have kept some."""
        before = self.size
        self.measure()
        if self.size > before and not self._isBlocked and self._budget.isOver(self.owner):
            # Its client may read all the same.
            self._isBlocked = True
            self._budget.block(self)
            self._changed(not self._isPaused)

    def measure(self) -> None:
        """Ask the transport."""
        if self._transport is not None:
            self._set(self._held + unsentOf(self._transport))

    def look(self) -> None:
        """Go on where the client has read everything, or there is room again."""
        self.measure()
        if not self.size or not self._budget.isOver(self.owner):
            self._isBlocked = False
            self._budget.unblock(self)
            self._changed(not self._isPaused)

    def close(self) -> None:
        """The connection is closed, or the call is answered. Nothing is kept."""
        self._budget.unblock(self)
        self._transport = self._pause = self._resume = None
        self._isDirect = False
        self._held = 0
        self._set(0)

    # IPushProducer

    def pauseProducing(self) -> None:
        """See C{IPushProducer}: the client does not read."""
        self._isPaused = True
        self._changed(not self._isBlocked)

    def resumeProducing(self) -> None:
        """See C{IPushProducer}: the client has read everything."""
        self.measure()
        if self._isPaused:
            self._isPaused = False
            self._changed(not self._isBlocked)

    def stopProducing(self) -> None:
        """See C{IPushProducer}: the connection is about to be lost."""

    def _changed(self, isChange: bool) -> None:
        call = self._pause if self._isPaused or self._isBlocked else self._resume
        if isChange and call is not None:
            call()

    def _set(self, size: int) -> None:
        change, self.size = size - self.size, size
        if change:
            self._budget.count(self, self.owner, change)


class ByteBudget:
    """
    Bytes of one kind, over all connections.

    @ivar total: the most bytes.
    @ivar own: the most of one account or address.
    @ivar grain: less than so many bytes of a connection may not be counted.
    @ivar used: how many there are.
    @ivar refused: how often there was no room for more.
    """

    def __init__(self, total: int, own: int | None = None, grain: int = 1) -> None:
        """
        @param own: a half of all if it is C{None}.
        @param grain: less than so many bytes of a connection may not be counted.
        """
        self.total = total
        self.grain = grain
        self.own = max(1, total // HALF) if own is None else own
        self.used = self.refused = 0
        self._owners: Counter[str] = Counter()

    def room(self, owner: str) -> int:
        """The number of further bytes that an owner may have; below 0 where it has too many."""
        return min(self.total - self.used, self.own - self._owners.get(owner, 0))

    def add(self, owner: str, size: int) -> None:
        """Count so many bytes more, or fewer. Called by L{ByteCount}."""
        self.used += size
        self._owners[owner] += size
        if not self._owners[owner]:
            del self._owners[owner]

    def count(self, owner: str) -> ByteCount:
        """
        Count the bytes of a connection.

        @param owner: whose they are: see L{ownerKey<svcbroker.net.addresses.ownerKey>}.
        """
        return ByteCount(self, owner)


class ByteCount:
    """
    The bytes of one connection that count in a L{ByteBudget}.

    @ivar size: how many they are.
    """

    __slots__ = ("_budget", "_counted", "_owner", "size")

    def __init__(self, budget: ByteBudget, owner: str) -> None:
        self.size = self._counted = 0
        self._budget = budget
        self._owner = owner

    @property
    def isFull(self) -> bool:
        """Whether there is no room for more, and some are of this connection."""
        return self.size > 0 and self._budget.room(self._owner) <= 0

    def belongTo(self, owner: str) -> None:
        """Count the bytes as those of another owner from now on: the client has logged in."""
        self._budget.add(self._owner, -self._counted)
        self._owner = owner
        self._budget.add(owner, self._counted)

    def add(self, size: int) -> None:
        """Count so many more, or fewer. Hot path."""
        self.size = size = self.size + size
        change = size - self._counted
        # What has come and gone below the grain was never counted.
        if change and (not size or abs(change) >= self._budget.grain):
            self._counted = size
            self._budget.add(self._owner, change)

    def set(self, size: int) -> bool:
        """
        Count so many.

        @return: C{False} where they are more than before, and there is no room for them. They count
            all the same, until they are dropped.
        """
        grown = size - self.size
        if grown:
            self.add(grown)
        isRoom = grown <= 0 or self._budget.room(self._owner) >= 0
        self._budget.refused += not isRoom
        return isRoom

    def hasRoom(self, size: int) -> bool:
        """Whether there is room for so many more."""
        return self._budget.room(self._owner) >= size

    def fits(self, size: int) -> bool:
        """Whether there is room for so many more. Where there is none, that is a refusal."""
        isRoom = self.hasRoom(size)
        self._budget.refused += not isRoom
        return isRoom

    def close(self) -> None:
        """Count none: the connection is closed."""
        self.add(-self.size)


class Strangers:
    """
    The connections whose clients have not shaken hands by TLS, or not logged in, or not made a
    request yet: bounded for each address and in all, each with a deadline. The bound is for clients
    that open connections and say nothing.

    Where all places are taken, the oldest connection of the address with the most has to go: a
    client that logs in at once always finds a place.

    @ivar refused: how many were refused, or had to go.
    """

    def __init__(
        self, clock: IReactorTime, total: int = MAX_STRANGERS, own: int = STRANGERS_OF_ONE
    ) -> None:
        """
        @param total: the sum of their weights.
        @param own: the most of it that one address may have.
        """
        self._clock = clock
        self._total = total
        self._own = own
        # All of them, the oldest first; and those of each address, with the sum of their weights.
        self._all: dict[Stranger, None] = {}
        self._lanes: dict[str, dict[Stranger, None]] = {}
        self._weights: Counter[str] = Counter()
        self._sum = 0
        self._call: IDelayedCall | None = None
        self.refused = 0

    def __len__(self) -> int:
        """The number of strangers."""
        return len(self._all)

    def stop(self) -> None:
        """Let go of the clock."""
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def admit(self, lane: str, abort: Callable[[], object], weight: int = 1) -> Stranger | None:
        """
        Accept a connection.

        @param lane: the client's network (L{networkOf<svcbroker.net.addresses.networkOf>}); empty
            where it is not known, as behind a proxy, and then no address is bounded by itself.
        @param abort: closes the connection at once.
        @param weight: L{TLS_WEIGHT} for a connection with TLS.
        @return: its place; C{None} where the address has as many as it may have.
        """
        if lane and self._weights.get(lane, 0) + weight > self._own:
            self.refused += 1
            return None
        while self._all and self._sum + weight > self._total:
            greediest = max(self._weights, key=self._weights.__getitem__)
            self.refused += 1
            next(iter(self._lanes[greediest])).drop()
        stranger = Stranger(self, lane, weight, self._clock.seconds() + LOGIN_TIMEOUT, abort)
        self._all[stranger] = None
        self._lanes.setdefault(lane, {})[stranger] = None
        self._weights[lane] += weight
        self._sum += weight
        if self._call is None:
            self._call = self._clock.callLater(LOGIN_TIMEOUT, self._sweep)
        return stranger

    def remove(self, stranger: Stranger) -> None:
        """Give a place back. Called by L{Stranger}."""
        lane = stranger.lane
        del self._all[stranger]
        self._sum -= stranger.weight
        self._weights[lane] -= stranger.weight
        own = self._lanes[lane]
        del own[stranger]
        if not own:
            del self._lanes[lane], self._weights[lane]

    def _sweep(self) -> None:
        self._call = None
        now = self._clock.seconds()
        while self._all:
            oldest = next(iter(self._all))
            if oldest.deadline > now:
                self._call = self._clock.callLater(oldest.deadline - now, self._sweep)
                break
            oldest.drop()


class Stranger:
    """
    The place of a connection among L{Strangers}.

    @ivar lane: the client's network.
    @ivar weight: what it counts.
    @ivar deadline: when it has to be known, by the clock.
    """

    __slots__ = ("_abort", "_strangers", "deadline", "lane", "weight")

    def __init__(
        self,
        strangers: Strangers,
        lane: str,
        weight: int,
        deadline: float,
        abort: Callable[[], object],
    ) -> None:
        self.lane = lane
        self.weight = weight
        self.deadline = deadline
        self._strangers = strangers
        self._abort: Callable[[], object] | None = abort

    def leave(self) -> None:
        """Give the place back: the client is known, or the connection is closed."""
        if self._abort is not None:
            self._abort = None
            self._strangers.remove(self)

    def drop(self) -> None:
        """Close the connection."""
        abort = self._abort
        self.leave()
        if abort is not None:
            abort()
