"""
Faults and their schedules.

A fault has a beginning and an end. To add one, write its class and add it to L{FAULTS} with a
weight.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from random import Random
from typing import Protocol

from attrs import define, field, frozen

from .disk import Moment, Slot
from .network import (
    MAX_HOSTS,
    Cut,
    Deprivation,
    Isolation,
    LinkConditions,
    Obstacle,
    Partition,
    Starvation,
)


class FaultyDisk(Protocol):
    """The disk of a host, as seen by faults."""

    latency: float
    isFull: bool

    def arm(self, slot: Slot | None) -> None:
        """Have the power fail at a later write, or C{None} to cancel that."""


class FaultyMachine(Protocol):
    """A host, as seen by faults."""

    @property
    def disk(self) -> FaultyDisk:
        """Its disk."""

    def pause(self) -> None:
        """Suspend its process."""

    def resume(self) -> None:
        """Continue its process."""

    def jumpClock(self, seconds: float) -> None:
        """Move its wall clock."""


class FaultyNetwork(Protocol):
    """The network, as seen by faults."""

    obstacles: list[Obstacle]
    conditions: LinkConditions


class FaultTarget(Protocol):
    """Everything that faults can act on."""

    @property
    def byzantine(self) -> Collection[int]:
        """The indexes of the Byzantine replicas."""

    @property
    def hosts(self) -> Sequence[FaultyMachine]:
        """The hosts."""

    @property
    def network(self) -> FaultyNetwork:
        """The network between them."""

    def crash(self, index: int, downFor: float | None) -> None:
        """Take the power from a host, for some seconds or until L{boot}."""

    def wipe(self, index: int) -> None:
        """Erase the disk of a host that is down."""

    def boot(self, index: int) -> None:
        """Start a host that is down."""


class Fault(Protocol):
    """A fault that lasts for a while."""

    def begin(self, target: FaultTarget) -> None:
        """Start the fault."""

    def end(self, target: FaultTarget) -> None:
        """End the fault."""

    def onDecided(self, target: FaultTarget, index: int) -> None:
        """React to the first decision of a correct replica at a height."""


class BasicFault:
    """A fault that does not react to decisions; the base of the others."""

    def begin(self, target: FaultTarget) -> None:
        pass

    def end(self, target: FaultTarget) -> None:
        pass

    def onDecided(self, target: FaultTarget, index: int) -> None:
        pass


@define
class Obstructed(BasicFault):
    """An obstacle blocks messages."""

    obstacle: Obstacle

    def begin(self, target: FaultTarget) -> None:
        target.network.obstacles.append(self.obstacle)

    def end(self, target: FaultTarget) -> None:
        if self.obstacle in target.network.obstacles:
            target.network.obstacles.remove(self.obstacle)


@define
class Ambush(BasicFault):
    """
    Only one replica receives commits. Once it has decided, it is isolated: if the others can be
    brought to decide another block, they will.

    @ivar order: the first correct replica in this order is the victim.
    @ivar first: the first round in which commits are withheld from the others.
    @ivar others: further obstacles, so that the replicas have different locks.
    @ivar crashing: the replicas that crash when the victim has decided.
    """

    order: Sequence[int]
    first: int = 0
    others: Sequence[Obstacle] = ()
    crashing: Sequence[int] = ()
    _victim: int = field(init=False, default=-1)
    _isSprung: bool = field(init=False, default=False)
    _mine: Sequence[Obstacle] = field(init=False, default=())

    def begin(self, target: FaultTarget) -> None:
        self._victim = next(index for index in self.order if index not in target.byzantine)
        commits = Starvation(("commit", "decided"), self._victim, self.first)
        self._replace(target, [commits, *self.others])

    def end(self, target: FaultTarget) -> None:
        self._replace(target, [])

    def onDecided(self, target: FaultTarget, index: int) -> None:
        if index == self._victim and not self._isSprung:
            self._isSprung = True
            self._replace(target, [Isolation(index)])
            for other in self.crashing:
                target.crash(other, 0.05)

    def _replace(self, target: FaultTarget, obstacles: Sequence[Obstacle]) -> None:
        left = [
            each for each in target.network.obstacles if all(each is not one for one in self._mine)
        ]
        self._mine = obstacles
        target.network.obstacles[:] = [*left, *obstacles]


@define
class FirstDecidedIsolated(BasicFault):
    """The first replica to decide is isolated."""

    _cut: Isolation | None = field(init=False, default=None)

    def onDecided(self, target: FaultTarget, index: int) -> None:
        if self._cut is None:
            self._cut = Isolation(index)
            target.network.obstacles.append(self._cut)

    def end(self, target: FaultTarget) -> None:
        if self._cut is not None:
            target.network.obstacles.remove(self._cut)
            self._cut = None


@define
class BadLinks(BasicFault):
    """Messages are slow, get lost and arrive twice."""

    conditions: LinkConditions
    _before: LinkConditions | None = field(init=False, default=None)

    def begin(self, target: FaultTarget) -> None:
        self._before, target.network.conditions = target.network.conditions, self.conditions

    def end(self, target: FaultTarget) -> None:
        if self._before is not None:
            target.network.conditions = self._before


@define
class PowerCut(BasicFault):
    """Some hosts lose power at once."""

    indexes: Sequence[int]
    lasts: float

    def begin(self, target: FaultTarget) -> None:
        for index in self.indexes:
            target.crash(index, self.lasts)


@define
class CrashAtWrite(BasicFault):
    """A host loses power at a later write."""

    index: int
    moment: Moment
    writes: int

    def begin(self, target: FaultTarget) -> None:
        target.hosts[self.index].disk.arm(Slot(self.moment, self.writes))

    def end(self, target: FaultTarget) -> None:
        target.hosts[self.index].disk.arm(None)


@define
class LostDisk(BasicFault):
    """A host restarts with an empty disk."""

    index: int

    def begin(self, target: FaultTarget) -> None:
        target.crash(self.index, None)
        target.wipe(self.index)

    def end(self, target: FaultTarget) -> None:
        target.boot(self.index)


@define
class Suspended(BasicFault):
    """A host's process is suspended."""

    index: int

    def begin(self, target: FaultTarget) -> None:
        target.hosts[self.index].pause()

    def end(self, target: FaultTarget) -> None:
        target.hosts[self.index].resume()


@define
class SlowDisk(BasicFault):
    """A host's disk takes long to sync."""

    index: int
    latency: float

    def begin(self, target: FaultTarget) -> None:
        target.hosts[self.index].disk.latency += self.latency

    def end(self, target: FaultTarget) -> None:
        target.hosts[self.index].disk.latency -= self.latency


@define
class FullDisk(BasicFault):
    """A host's disk is full."""

    index: int

    def begin(self, target: FaultTarget) -> None:
        target.hosts[self.index].disk.isFull = True

    def end(self, target: FaultTarget) -> None:
        target.hosts[self.index].disk.isFull = False


@define
class ClockJump(BasicFault):
    """A host's wall clock jumps, forwards or backwards."""

    index: int
    seconds: float

    def begin(self, target: FaultTarget) -> None:
        target.hosts[self.index].jumpClock(self.seconds)


@frozen
class Planned:
    """A fault with its time."""

    kind: str
    at: float
    until: float
    fault: Fault


def _partition(random: Random, nodes: int, lasts: float) -> Fault:
    return Obstructed(Partition(tuple(random.randrange(2) for _ in range(MAX_HOSTS))))


def _oneWay(random: Random, nodes: int, lasts: float) -> Fault:
    links = [(a, b) for a in range(nodes) for b in range(nodes) if a != b]
    return Obstructed(Cut(random.sample(links, random.randint(1, len(links) // 2))))


def _starvation(random: Random, nodes: int, lasts: float) -> Fault:
    kinds = ("proposal", "prepare", "commit", "round-change", "decided")
    chosen = random.sample(kinds, random.choice((1, 1, 2)))
    return Obstructed(Starvation(chosen, random.randrange(-1, nodes)))


def _ambush(random: Random, nodes: int, lasts: float) -> Fault:
    order = random.sample(range(nodes), nodes)
    crashing = order[1:] if random.random() < 0.2 else ()
    # One replica is not locked on the block that the victim decides.
    free = [Deprivation(("prepare",), order[-1])] if random.random() < 0.4 else []
    return Ambush(order, 0, free, crashing)


def _lateAmbush(random: Random, nodes: int, lasts: float) -> Fault:
    """An ambush after a round change, before which one replica was locked on another block."""
    order, locked = random.sample(range(nodes), nodes), random.randrange(nodes)
    first = random.choice((1, 1, 2))
    before: list[Obstacle] = [Starvation(("prepare",), locked, last=0)]
    before.append(Starvation(("commit", "decided"), -1, last=first - 1))
    if first == 2:
        before.append(Starvation(("prepare",), random.randrange(nodes), first=1, last=1))
    return Ambush(order, first, before)


def _firstDecidedIsolated(random: Random, nodes: int, lasts: float) -> Fault:
    return FirstDecidedIsolated()


def _badLinks(random: Random, nodes: int, lasts: float) -> Fault:
    return BadLinks(
        LinkConditions(
            delay=(0.001, random.choice((0.02, 0.2, 0.8))),
            loss=random.choice((0.0, 0.05, 0.3)),
            duplication=random.choice((0.0, 0.1, 0.5)),
        )
    )


def _powerCut(random: Random, nodes: int, lasts: float) -> Fault:
    count = random.choice((1, 1, 2, nodes))
    return PowerCut(random.sample(range(nodes), count), random.uniform(0.05, lasts))


def _crashAtWrite(random: Random, nodes: int, lasts: float) -> Fault:
    return CrashAtWrite(random.randrange(nodes), random.choice(list(Moment)), random.randrange(8))


def _suspended(random: Random, nodes: int, lasts: float) -> Fault:
    return Suspended(random.randrange(nodes))


def _slowDisk(random: Random, nodes: int, lasts: float) -> Fault:
    return SlowDisk(random.randrange(nodes), random.choice((0.05, 0.3, 2.0)))


def _fullDisk(random: Random, nodes: int, lasts: float) -> Fault:
    return FullDisk(random.randrange(nodes))


def _clockJump(random: Random, nodes: int, lasts: float) -> Fault:
    return ClockJump(random.randrange(nodes), random.choice((-40.0, -5.0, 5.0, 40.0)))


Faults = Sequence[tuple[str, int, Callable[[Random, int, float], Fault]]]
"""Kinds of faults: name, weight, and factory."""

FAULTS: Faults = (
    ("partition", 2, _partition),
    ("one-way cut", 1, _oneWay),
    ("starvation", 3, _starvation),
    ("ambush", 5, _ambush),
    ("late ambush", 4, _lateAmbush),
    ("first decided isolated", 2, _firstDecidedIsolated),
    ("bad links", 2, _badLinks),
    ("power cut", 2, _powerCut),
    ("crash at a write", 4, _crashAtWrite),
    ("suspended process", 1, _suspended),
    ("slow disk", 1, _slowDisk),
    ("full disk", 1, _fullDisk),
    ("clock jump", 1, _clockJump),
)
"""The faults of any replica set, with their weights."""


def plan(random: Random, nodes: int, lasts: float, faults: Faults = FAULTS) -> Sequence[Planned]:
    """
    Draw a schedule.

    @param lasts: seconds until all faults are over.
    @param faults: the faults to draw from.
    """
    planned = []
    for kind, _, make in random.choices(
        faults, [weight for _, weight, _ in faults], k=random.randint(2, 7)
    ):
        at = random.uniform(0.0, lasts * 0.8)
        until = min(lasts, at + random.choice((0.5, 2.0, 5.0, 10.0)))
        planned.append(Planned(kind, at, until, make(random, nodes, until - at)))
    return planned


def lostDisks(random: Random, indexes: Sequence[int], lasts: float) -> Sequence[Planned]:
    """Schedule a lost disk for each of some hosts."""
    planned = []
    for index in indexes:
        at = random.uniform(0.5, lasts / 2)
        until = at + random.uniform(0.1, 2.0)
        planned.append(Planned("lost disk", at, until, LostDisk(index)))
    return planned


def longOutage(lasts: float) -> Sequence[Planned]:
    """Schedule a long time without any proposal, so that many rounds pass."""
    silence = Obstructed(Starvation(("proposal", "decided"), -1))
    return [Planned("long outage", 1.0, lasts - 1.0, silence)]
