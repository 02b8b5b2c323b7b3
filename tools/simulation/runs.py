"""
Running one seed, or many on all cores, and searching for mutations.
"""

from __future__ import annotations

import ast
import signal
from collections import Counter, deque
from collections.abc import Generator, Iterator, Sequence
from functools import cache
from multiprocessing import get_context
from multiprocessing.pool import AsyncResult
from pathlib import Path
from random import Random

from attrs import define, evolve, field, frozen
from twisted.logger import globalLogBeginner

import svcbroker
from svcbroker.probes import listening

from .cluster import Cluster
from .directed import play
from .embedded import Embedded
from .judge import Violation
from .mutations import MUTATIONS, UNBROKEN, Mutation
from .oddities import drawOddities, withConstants
from .outcome import Outcome
from .trace import Trace

CLUSTER = "cluster"
EMBEDDED = "embedded"
SYSTEMS = (CLUSTER, EMBEDDED)
SIZES = (4, 5, 6, 7, 8, 10)
TWICE = 100
"""Of how many schedules one is run twice, to check that it takes the same course."""

PACKAGE = Path(svcbroker.__file__).parent

DETERMINISM = "determinism"
"""The same seed gives the same trace."""


@frozen
class Schedule:
    """
    One run to make.

    @ivar system: L{CLUSTER} or L{EMBEDDED}.
    @ivar broken: the name of the mutation to run; empty for the correct protocol.
    """

    system: str
    nodes: int
    seed: int
    broken: str = ""


@cache
def declaredProbes() -> Sequence[str]:
    """
    The names of all probes in the package, as its source has them.

    @raise ValueError: one is no literal, or there are two of one name.
    """
    names: list[str] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        # Few files have some, and parsing all of them takes seconds.
        for node in ast.walk(ast.parse(source if "probe(" in source else "")):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "probe":
                [name] = node.args
                text = name.value if isinstance(name, ast.Constant) else None
                if not isinstance(text, str) or text in names:
                    raise ValueError(f"{path}, line {node.lineno}: a probe needs a name of its own")
                names.append(text)
    return names


def schedules(
    first: int,
    systems: Sequence[str] = SYSTEMS,
    sizes: Sequence[int] = SIZES,
    broken: str = "",
) -> Iterator[Schedule]:
    """
    An endless sequence of schedules, one for each seed. Small sets and clusters get more seeds,
    since they are faster and tolerate less.
    """
    seed = first
    while True:
        random = Random(f"schedule {seed}")
        system = random.choices(systems, [4 if system == CLUSTER else 1 for system in systems])[0]
        size = random.choices(sizes, [1 / size**3 for size in sizes])[0]
        yield Schedule(system, size, seed, broken)
        seed += 1


def simulate(schedule: Schedule, trace: Trace | None = None) -> Outcome:
    """Run a schedule."""
    mutation = MUTATIONS.get(schedule.broken, UNBROKEN)
    system: Cluster | Embedded
    seed, nodes = schedule.seed, schedule.nodes
    odd = drawOddities(Random(f"oddities {schedule.system} {nodes} {seed}"))
    probes: Counter[str] = Counter()
    with (
        withConstants({**odd, **mutation.constants}),
        listening(lambda name: probes.update([name])),
    ):
        if schedule.system == CLUSTER:
            system = Cluster(seed, nodes, mutation.components, trace)
        else:
            system = Embedded(seed, nodes, mutation.replica, trace)
        for name, value in odd.items():
            system.note(f"ODD {name} is {value}")
        outcome = system.run()
    return evolve(
        outcome,
        broken=schedule.broken,
        probes=probes,
        faults=outcome.faults + Counter({"odd constant": len(odd)}),
    )


def check(schedule: Schedule) -> Outcome:
    """Run a schedule, and sometimes check that it can be repeated."""
    outcome = simulate(schedule)
    if schedule.seed % TWICE == 0 and outcome.violation is None:
        again = simulate(schedule)
        if again.digest != outcome.digest:
            return evolve(again, violation=Violation(DETERMINISM, "another course was taken"))
    return outcome


def runAll(schedules: Iterator[Schedule], jobs: int) -> Generator[Outcome, None, None]:
    """
    Run many schedules on several cores. Ends when the caller stops iterating, or with the
    schedules.
    """
    quiet()
    if jobs == 1:
        yield from map(check, schedules)
        return
    pool = get_context("fork").Pool(jobs, _begin)
    try:
        # Bounded, since the iterator may be endless.
        waiting: deque[AsyncResult[Outcome]] = deque()
        for schedule in schedules:
            waiting.append(pool.apply_async(check, [schedule]))
            if len(waiting) >= 4 * jobs:
                yield waiting.popleft().get()
        for result in waiting:
            yield result.get()
    finally:
        # Let running schedules finish, so that they remove their files.
        pool.close()
        pool.join()


def quiet() -> None:
    """Discard the ledger's log: a simulation is full of failures."""
    globalLogBeginner.beginLoggingTo([], redirectStandardIO=False, discardBuffer=True)


def _begin() -> None:
    # The parent process handles Ctrl-C.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@define
class Totals:
    """
    The totals of many runs.

    @ivar schedules: how many runs there were, by system and number of replicas.
    @ivar probes: how often each probe of the package was reached, also those that never were.
    @ivar violations: the runs with a violation.
    """

    schedules: Counter[tuple[str, int]] = field(factory=Counter)
    blocks: Counter[tuple[str, int]] = field(factory=Counter)
    answered: int = 0
    messages: int = 0
    seconds: float = 0.0
    faults: Counter[str] = field(factory=Counter)
    probes: Counter[str] = field(factory=lambda: Counter(dict.fromkeys(declaredProbes(), 0)))
    violations: list[Outcome] = field(factory=list)

    @property
    def missed(self) -> Sequence[str]:
        """The probes that no run has reached."""
        return sorted(name for name, count in self.probes.items() if not count)

    def add(self, outcome: Outcome) -> None:
        """Add a run."""
        place = (outcome.system, outcome.nodes)
        self.schedules[place] += 1
        self.blocks[place] += outcome.blocks
        self.answered += outcome.answered
        self.messages += outcome.messages
        self.seconds += outcome.seconds
        self.faults.update(outcome.faults)
        self.probes.update(outcome.probes)
        if outcome.violation is not None:
            self.violations.append(outcome)


@frozen(kw_only=True)
class Finding:
    """
    How a mutation was found.

    @ivar name: the mutation's name.
    @ivar schedule: the directed schedule that was played, if any.
    @ivar directed: the invariant that it violated; empty if none.
    @ivar random: the invariant that a random seed violated; empty if none.
    @ivar seeds: the seed that violated it, or how many were tried.
    """

    name: str
    schedule: str
    directed: str
    random: str
    seeds: int

    @property
    def isFound(self) -> bool:
        """Whether it was found."""
        return bool(self.directed or self.random)


def hunt(name: str, seeds: int, isFocused: bool, first: int = 0) -> Finding:
    """
    Search for a mutation with its directed schedule and with random seeds.

    @param seeds: how many random seeds to try at most.
    @param isFocused: whether random schedules concentrate on the mutation.
    @param first: the first of these seeds.
    """
    mutation = MUTATIONS[name]
    directed = play(mutation.schedule, mutation.components) if mutation.schedule else None
    random, tried = _randomly(mutation, range(first, first + seeds), isFocused)
    return Finding(
        name=name,
        schedule=mutation.schedule,
        directed=directed.invariant if directed else "",
        random=random,
        seeds=tried,
    )


def _randomly(mutation: Mutation, seeds: range, isFocused: bool) -> tuple[str, int]:
    focus = mutation.focus if isFocused else None
    script = focus.script if focus else ()
    for seed in seeds:
        with withConstants(mutation.constants):
            system = (
                Embedded(seed, mutation.nodes, mutation.replica, script=script)
                if mutation.isEmbedded
                else Cluster(seed, mutation.nodes, mutation.components, focus=focus)
            )
            violation = system.run().violation
        if violation is not None:
            return violation.invariant, seed
    return "", seeds.stop


def huntAll(seeds: int, isFocused: bool) -> Iterator[Finding]:
    """Search for all mutations."""
    for name in MUTATIONS:
        yield hunt(name, seeds, isFocused)
