"""
Running seeds: one, or as many as one likes, on all cores.
"""

from __future__ import annotations

import signal
from collections import Counter, deque
from collections.abc import Generator, Iterator, Sequence
from multiprocessing import get_context
from multiprocessing.pool import AsyncResult
from random import Random

from attrs import define, evolve, field, frozen
from twisted.logger import globalLogBeginner

from .cluster import Cluster
from .embedded import Embedded
from .judge import Violation
from .mutations import MUTATIONS, UNBROKEN
from .outcome import Outcome
from .trace import Trace

CLUSTER = "cluster"
EMBEDDED = "embedded"
WORLDS = (CLUSTER, EMBEDDED)
SIZES = (4, 7, 10)
TWICE = 100
"""Every so many schedules, one is run again: it must take the same course."""

DETERMINISM = "determinism"
"""The same seed gives the same trace."""


@frozen
class Schedule:
    """
    One run to be made.

    @ivar world: L{CLUSTER} or L{EMBEDDED}.
    @ivar broken: the name of the mutation that its nodes are of; empty for sound ones.
    """

    world: str
    nodes: int
    seed: int
    broken: str = ""


def schedules(
    first: int,
    worlds: Sequence[str] = WORLDS,
    sizes: Sequence[int] = SIZES,
    broken: str = "",
) -> Iterator[Schedule]:
    """
    What to run, without end: each seed gives one schedule. Small sets, and clusters, get the more
    seeds, since they take less time and have less slack.
    """
    seed = first
    while True:
        random = Random(f"schedule {seed}")
        world = random.choices(worlds, [4 if world == CLUSTER else 1 for world in worlds])[0]
        size = random.choices(sizes, [1 / size**2 for size in sizes])[0]
        yield Schedule(world, size, seed, broken)
        seed += 1


def simulate(schedule: Schedule, trace: Trace | None = None) -> Outcome:
    """Make one run."""
    mutation = MUTATIONS.get(schedule.broken, UNBROKEN)
    world: Cluster | Embedded
    if schedule.world == CLUSTER:
        world = Cluster(schedule.seed, schedule.nodes, mutation.parts, trace)
    else:
        world = Embedded(schedule.seed, schedule.nodes, mutation.replica, trace)
    return evolve(world.run(), broken=schedule.broken)


def check(schedule: Schedule) -> Outcome:
    """Make one run, and now and then see that it can be repeated."""
    outcome = simulate(schedule)
    if schedule.seed % TWICE == 0 and outcome.violation is None:
        again = simulate(schedule)
        if again.digest != outcome.digest:
            return evolve(again, violation=Violation(DETERMINISM, "another course was taken"))
    return outcome


def runAll(schedules: Iterator[Schedule], jobs: int) -> Generator[Outcome, None, None]:
    """
    Make many runs, on some cores. Ends when the caller stops asking, or when they do.
    """
    quiet()
    if jobs == 1:
        yield from map(check, schedules)
        return
    pool = get_context("fork").Pool(jobs, _begin)
    try:
        # No more at a time than will be looked at: there may be no end of them.
        waiting: deque[AsyncResult[Outcome]] = deque()
        for schedule in schedules:
            waiting.append(pool.apply_async(check, [schedule]))
            if len(waiting) >= 4 * jobs:
                yield waiting.popleft().get()
        for result in waiting:
            yield result.get()
    finally:
        # What was begun is let finish, so that it can remove its files.
        pool.close()
        pool.join()


def quiet() -> None:
    """Keep what the ledger logs off the screen: a simulation is full of accidents."""
    globalLogBeginner.beginLoggingTo([], redirectStandardIO=False, discardBuffer=True)


def _begin() -> None:
    # Ctrl-C is for the one who asked.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@define
class Tally:
    """
    The sum of many runs.

    @ivar schedules: how many runs there were, by world and number of nodes.
    @ivar violations: those that went wrong.
    """

    schedules: Counter[tuple[str, int]] = field(factory=Counter)
    blocks: Counter[tuple[str, int]] = field(factory=Counter)
    answered: int = 0
    messages: int = 0
    seconds: float = 0.0
    faults: Counter[str] = field(factory=Counter)
    violations: list[Outcome] = field(factory=list)

    def add(self, outcome: Outcome) -> None:
        """Count one run."""
        place = (outcome.world, outcome.nodes)
        self.schedules[place] += 1
        self.blocks[place] += outcome.blocks
        self.answered += outcome.answered
        self.messages += outcome.messages
        self.seconds += outcome.seconds
        self.faults.update(outcome.faults)
        if outcome.violation is not None:
            self.violations.append(outcome)
