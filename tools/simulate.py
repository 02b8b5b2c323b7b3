"""
The simulator's command line: C{python -m tools.simulate}.
"""

from __future__ import annotations

import os
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice

from rich.console import Console
from rich.progress import Progress, track

from tools.simulation.mutations import MUTATIONS
from tools.simulation.outcome import Outcome
from tools.simulation.report import failure, findings, summary
from tools.simulation.runs import (
    SIZES,
    SYSTEMS,
    Schedule,
    Totals,
    huntAll,
    quiet,
    runAll,
    schedules,
    simulate,
)
from tools.simulation.trace import Trace

SEEDS = 1000
"""How many seeds are run by default."""
MOST_VIOLATIONS = 10
"""How many violations end a run."""


def parser() -> ArgumentParser:
    """The options."""
    made = ArgumentParser(
        prog="python -m tools.simulate",
        description="Simulate PBFT under faults. Each seed is one run of a whole replica set with "
        "its disks and clients, injected faults and Byzantine replicas. The exit status is 1 if "
        "an invariant was violated.",
    )
    count = made.add_mutually_exclusive_group()
    count.add_argument("--seeds", type=_count, metavar="N", help=f"run N seeds (default {SEEDS})")
    count.add_argument("--seconds", type=_count, metavar="S", help="run seeds for S seconds")
    count.add_argument("--seed", type=int, metavar="K", help="run this one seed")
    made.add_argument("--first", type=int, default=0, metavar="K", help="begin with seed K")
    made.add_argument("--nodes", type=_numbers, default=SIZES, help="such as 4,7,10 (default)")
    made.add_argument(
        "--system", choices=SYSTEMS, action="append", help="cluster or embedded (default: both)"
    )
    made.add_argument(
        "--break",
        choices=MUTATIONS,
        default="",
        dest="broken",
        metavar="MUTATION",
        help="run this unsafe variant of the protocol; --mutations lists them",
    )
    made.add_argument("--jobs", type=_count, default=os.cpu_count() or 1, help="how many processes")
    made.add_argument("--trace", action="store_true", help="with --seed: show the trace")
    made.add_argument(
        "--probes", action="store_true", help="fail if a rare branch was taken in no run"
    )
    made.add_argument(
        "--mutations", action="store_true", help="search for each unsafe variant of the protocol"
    )
    made.add_argument(
        "--focus",
        action="store_true",
        help="with --mutations: schedules that concentrate on the mutation",
    )
    return made


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ArgumentTypeError(f"{number} is too few")
    return number


def _numbers(text: str) -> Sequence[int]:
    return [_count(number) for number in text.split(",")]


def main(arguments: Sequence[str]) -> int:
    """
    Run the command.

    @return: the exit status.
    """
    options = parser().parse_args(arguments)
    if options.mutations:
        return _mutations(options)
    if options.seed is not None:
        return _one(options)
    return _many(options)


def _mutations(options: Namespace) -> int:
    quiet()
    hunting = huntAll(options.seeds or SEEDS, options.focus)
    shown = track(
        hunting,
        "mutations",
        total=len(MUTATIONS),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
    )
    found = list(shown)
    _show(findings(found))
    return 0 if all(one.isFound for one in found) else 1


def _one(options: Namespace) -> int:
    quiet()
    status = 0
    for system in options.system or SYSTEMS:
        for nodes in options.nodes:
            trace = Trace(isKept=True)
            outcome = simulate(Schedule(system, nodes, options.seed, options.broken), trace)
            if options.trace:
                _show(trace.lines)
            elif outcome.violation is not None:
                _show(failure(outcome, trace.lines))
            ended = "all held" if outcome.violation is None else str(outcome.violation)
            said = f"{system}, {nodes} nodes, seed {options.seed}: {outcome.blocks} blocks"
            _show([f"{said}, trace {outcome.digest}: {ended}"])
            status = status or int(outcome.violation is not None)
    return status


def _many(options: Namespace) -> int:
    wanted: Iterator[Schedule] = schedules(
        options.first, options.system or SYSTEMS, options.nodes, options.broken
    )
    count = None if options.seconds is not None else options.seeds or SEEDS
    if count is not None:
        wanted = islice(wanted, count)
    totals, begun = Totals(), time.monotonic()
    with (
        Progress(console=Console(stderr=True), disable=not sys.stderr.isatty()) as progress,
        closing(runAll(wanted, options.jobs)) as outcomes,
    ):
        bar = progress.add_task("seeds", total=count)
        try:
            for outcome in outcomes:
                totals.add(outcome)
                progress.advance(bar)
                if outcome.violation is not None:
                    _show(_explained(outcome))
                isLate = options.seconds is not None and time.monotonic() - begun > options.seconds
                if isLate or len(totals.violations) >= MOST_VIOLATIONS:
                    break
        except KeyboardInterrupt:
            pass
    _show(summary(totals, time.monotonic() - begun))
    if options.probes and totals.missed:
        _show([f"no run has taken: {', '.join(totals.missed)}"])
        return 1
    return 1 if totals.violations else 0


def _show(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(line + "\n")


def _explained(outcome: Outcome) -> Iterator[str]:
    """Repeat a run with a violation, and show its trace."""
    trace = Trace(isKept=True)
    simulate(Schedule(outcome.system, outcome.nodes, outcome.seed, outcome.broken), trace)
    return failure(outcome, trace.lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
