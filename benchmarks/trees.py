"""
What a change costs or saves: C{python -m benchmarks.trees TREE TREE...}.

The daemons of several checkouts run at the same time and are loaded in turn, in short bursts, there
and back. What is compared is the processor time of an event: its lowest value and its median, and
the median of the rounds' ratios to the first checkout, which other load on the machine disturbs
least. The same checkout given twice tells how far equal ones differ; so given with C{--python}, it
tells what another version of Python costs or saves.
"""

from __future__ import annotations

import os
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from svcbroker.commands.bench import Broken

from .brokers import Broker, startDaemon
from .children import Missing, household, separateCores
from .comparison import CASES, Case, Subject, measure, publishKnown
from .report import amount, markdownTable

_CASES = [case for case in CASES if case.who is Subject.SVCBROKER]


def nameOf(case: Case) -> str:
    """How a case is called in the table and by C{--only}."""
    return f"{case.load}, {case.connections} x {case.window}"


def _options() -> Namespace:
    parser = ArgumentParser(prog="python -m benchmarks.trees", description=__doc__)
    parser.add_argument("trees", nargs="+", type=Path, metavar="TREE", help="checkouts")
    parser.add_argument(
        "--only", nargs="+", default=(), metavar="TEXT", help="cases whose names have one of these"
    )
    parser.add_argument(
        "--python", nargs="+", metavar="PATH", help="the Python of each checkout; default: this"
    )
    parser.add_argument("--rounds", type=int, default=15, help="bursts of each")
    parser.add_argument("--seconds", type=float, default=0.3, help="how long each burst is")
    options = parser.parse_args()
    for tree in options.trees:
        if not (tree / "svcbroker").is_dir():
            parser.error(f"{tree} is not a checkout")
    # Links are kept: that of a virtual environment is what finds its packages.
    options.python = list(
        map(os.path.abspath, options.python or [sys.executable] * len(options.trees))
    )
    if len(options.python) != len(options.trees):
        parser.error("--python: as many as there are checkouts")
    return options


def compareTrees(
    brokers: Sequence[tuple[Broker, Sequence[str]]], case: Case, rounds: int, seconds: float
) -> Sequence[Sequence[float]]:
    """
    Microseconds of processor time for an event: of each broker, in each round.

    @param brokers: with ids of events that they have.
    """
    found: list[list[float]] = [[] for _ in brokers]
    order = range(len(brokers))
    for number in range(rounds):
        for index in order if number % 2 == 0 else reversed(order):
            burst = measure(case, *brokers[index], seconds)
            found[index].append(burst.cpu)
    return found


def row(case: Case, found: Sequence[Sequence[float]]) -> Sequence[str]:
    """A line of the table."""
    cells = [nameOf(case)]
    for times in found:
        ratio = median(one / other for one, other in zip(times, found[0], strict=True))
        cells.append(f"{amount(min(times))} / {amount(median(times))} ({ratio:.3f})")
    return cells


def main() -> None:
    """Measure, and print a table."""
    options = _options()
    wanted = options.only or [""]
    cases = [case for case in _CASES if any(text in nameOf(case) for text in wanted)]
    serverCores, loadCores = separateCores()
    os.sched_setaffinity(0, loadCores)
    with household(), tempfile.TemporaryDirectory() as home, ExitStack() as stack:
        brokers = []
        for number, (tree, python) in enumerate(zip(options.trees, options.python, strict=True)):
            directory = Path(home) / str(number)
            broker = startDaemon(directory, serverCores, tree.resolve(), python)
            stack.callback(broker.stop)
            brokers.append((broker, publishKnown(broker)))
        rows = []
        for case in cases:
            rows.append(row(case, compareTrees(brokers, case, options.rounds, options.seconds)))
            print(" | ".join(rows[-1]), file=sys.stderr)
    print("µs of processor time an event: lowest / median (ratio to the first)\n")
    print(markdownTable(["case", *map(str, options.trees)], rows))


if __name__ == "__main__":
    try:
        main()
    except (Broken, Missing) as error:
        sys.exit(f"benchmarks: {error}")
