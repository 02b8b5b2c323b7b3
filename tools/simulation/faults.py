"""
What goes wrong, and the schedule of it.

A fault begins and ends. To add one, write its class and put it into L{FAULTS} with its weight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from attrs import define, field, frozen

from .disk import Moment, Slot
from .network import Cut, Isolation, Obstacle, Partition, Starvation, Weather

MOST = 16
"""More nodes than any set has, however it grows."""


class Storage(Protocol):
    """A machine's disk."""

    latency: float
    isFull: bool

    def arm(self, slot: Slot | None) -> None:
        """Have the power fail at a write to come; C{None}: have it not."""


class Machine(Protocol):
    """A node, as far as faults can get hold of it."""

    @property
    def disk(self) -> Storage:
        """Its disk."""

    def pause(self) -> None:
        """Suspend its process."""

    def resume(self) -> None:
        """Let it go on."""

    def leap(self, seconds: float) -> None:
        """Have its wall clock jump."""


class Air(Protocol):
    """The network, as far as faults can get hold of it."""

    obstacles: list[Obstacle]
    weather: Weather


class World(Protocol):
    """What faults can get hold of."""

    @property
    def hosts(self) -> Sequence[Machine]:
        """The nodes."""

    @property
    def network(self) -> Air:
        """The network between them."""

    def crash(self, index: int, downFor: float | None) -> None:
        """A host loses power, for some seconds or until L{boot}."""

    def wipe(self, index: int) -> None:
        """A host that is down loses its disk."""

    def boot(self, index: int) -> None:
        """A host that is down comes back."""


class Fault(Protocol):
    """Something that goes wrong for a while."""

    def begin(self, world: World) -> None:
        """It goes wrong."""

    def end(self, world: World) -> None:
        """It is over."""

    def noticed(self, world: World, index: int) -> None:
        """A correct replica has decided a block that nobody had decided before."""


class BasicFault:
    """Most faults do not look at what happens."""

    def begin(self, world: World) -> None:
        pass

    def end(self, world: World) -> None:
        pass

    def noticed(self, world: World, index: int) -> None:
        pass


@define
class Obstructed(BasicFault):
    """Some messages do not get through."""

    obstacle: Obstacle

    def begin(self, world: World) -> None:
        world.network.obstacles.append(self.obstacle)

    def end(self, world: World) -> None:
        if self.obstacle in world.network.obstacles:
            world.network.obstacles.remove(self.obstacle)


@define
class Ambush(Obstructed):
    """
    Only one node hears commits. Once it has decided, nobody hears of it any more: if the others
    can be brought to decide something else, they will.
    """

    victim: int

    def noticed(self, world: World, index: int) -> None:
        if index == self.victim and isinstance(self.obstacle, Starvation):
            self.end(world)
            self.obstacle = Isolation(self.victim)
            self.begin(world)


@define
class FirstDecider(BasicFault):
    """Whoever decides first is cut off."""

    _cut: Isolation | None = field(init=False, default=None)

    def noticed(self, world: World, index: int) -> None:
        if self._cut is None:
            self._cut = Isolation(index)
            world.network.obstacles.append(self._cut)

    def end(self, world: World) -> None:
        if self._cut is not None:
            world.network.obstacles.remove(self._cut)
            self._cut = None


@define
class Storm(BasicFault):
    """Messages are slow, get lost and arrive twice."""

    weather: Weather
    _before: Weather | None = field(init=False, default=None)

    def begin(self, world: World) -> None:
        self._before, world.network.weather = world.network.weather, self.weather

    def end(self, world: World) -> None:
        if self._before is not None:
            world.network.weather = self._before


@define
class PowerCut(BasicFault):
    """Some hosts lose power at once."""

    indexes: Sequence[int]
    lasts: float

    def begin(self, world: World) -> None:
        for index in self.indexes:
            world.crash(index, self.lasts)


@define
class CrashAtWrite(BasicFault):
    """A host loses power in the course of a write to come."""

    index: int
    moment: Moment
    writes: int

    def begin(self, world: World) -> None:
        world.hosts[self.index].disk.arm(Slot(self.moment, self.writes))

    def end(self, world: World) -> None:
        world.hosts[self.index].disk.arm(None)


@define
class LostDisk(BasicFault):
    """A host comes back without anything that was on its disk."""

    index: int

    def begin(self, world: World) -> None:
        world.crash(self.index, None)
        world.wipe(self.index)

    def end(self, world: World) -> None:
        world.boot(self.index)


@define
class Suspended(BasicFault):
    """A host's process is suspended."""

    index: int

    def begin(self, world: World) -> None:
        world.hosts[self.index].pause()

    def end(self, world: World) -> None:
        world.hosts[self.index].resume()


@define
class SlowDisk(BasicFault):
    """A host's disk takes long to sync."""

    index: int
    latency: float

    def begin(self, world: World) -> None:
        world.hosts[self.index].disk.latency += self.latency

    def end(self, world: World) -> None:
        world.hosts[self.index].disk.latency -= self.latency


@define
class FullDisk(BasicFault):
    """A host's disk takes nothing more."""

    index: int

    def begin(self, world: World) -> None:
        world.hosts[self.index].disk.isFull = True

    def end(self, world: World) -> None:
        world.hosts[self.index].disk.isFull = False


@define
class ClockJump(BasicFault):
    """A host's wall clock jumps, ahead or back."""

    index: int
    seconds: float

    def begin(self, world: World) -> None:
        world.hosts[self.index].leap(self.seconds)


@frozen
class Planned:
    """A fault with its place in time."""

    kind: str
    at: float
    until: float
    fault: Fault


def _partition(random: Random, nodes: int, lasts: float) -> Fault:
    return Obstructed(Partition(tuple(random.randrange(2) for _ in range(MOST))))


def _oneWay(random: Random, nodes: int, lasts: float) -> Fault:
    links = [(a, b) for a in range(nodes) for b in range(nodes) if a != b]
    return Obstructed(Cut(random.sample(links, random.randint(1, len(links) // 2))))


def _starvation(random: Random, nodes: int, lasts: float) -> Fault:
    kinds = ("proposal", "prepare", "commit", "round-change", "decided")
    chosen = random.sample(kinds, random.choice((1, 1, 2)))
    return Obstructed(Starvation(chosen, random.randrange(-1, nodes)))


def _ambush(random: Random, nodes: int, lasts: float) -> Fault:
    victim = random.randrange(nodes)
    return Ambush(Starvation(("commit", "decided"), victim), victim)


def _firstDecider(random: Random, nodes: int, lasts: float) -> Fault:
    return FirstDecider()


def _storm(random: Random, nodes: int, lasts: float) -> Fault:
    return Storm(
        Weather(
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
"""Kinds of faults: the name, how often it is chosen, and how it is made."""

FAULTS: Faults = (
    ("partition", 2, _partition),
    ("one-way cut", 1, _oneWay),
    ("starvation", 3, _starvation),
    ("ambush", 5, _ambush),
    ("first decider cut off", 2, _firstDecider),
    ("storm", 2, _storm),
    ("power cut", 2, _powerCut),
    ("crash at a write", 4, _crashAtWrite),
    ("suspended process", 1, _suspended),
    ("slow disk", 1, _slowDisk),
    ("full disk", 1, _fullDisk),
    ("clock jump", 1, _clockJump),
)
"""What can go wrong at any time."""


def plan(random: Random, nodes: int, lasts: float, faults: Faults = FAULTS) -> Sequence[Planned]:
    """
    A schedule.

    @param lasts: seconds until everything is well again.
    @param faults: what can go wrong.
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
    """Some hosts lose their disks at some time."""
    planned = []
    for index in indexes:
        at = random.uniform(0.5, lasts / 2)
        until = at + random.uniform(0.1, 2.0)
        planned.append(Planned("lost disk", at, until, LostDisk(index)))
    return planned


def longNight(lasts: float) -> Sequence[Planned]:
    """For a long time nobody hears a proposal, so that one round after the other passes."""
    silence = Obstructed(Starvation(("proposal", "decided"), -1))
    return [Planned("long night", 1.0, lasts - 1.0, silence)]
