"""
The one command: C{python -m benchmarks}.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from attrs import asdict

from svcbroker.commands.bench import Broken

from .children import CHECKOUT, Ended, Missing, household
from .comet import findEngine, measureNetwork
from .comparison import Comparison, compare, comparisonSections
from .machine import machine
from .memory import measureMemory
from .report import Section, writeReport
from .streaming import IDLE_SUBSCRIBERS, REPLAYED, compareBrokers

RESULTS = CHECKOUT / "benchmarks" / "results"


def _options() -> Namespace:
    parser = ArgumentParser(
        prog="python -m benchmarks",
        description="Measure svcbroker side by side with other brokers and servers, and write a "
        "report with plots. With an option that says so, measure something else.",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--memory", action="store_true", help="a million events, and what memory")
    which.add_argument("--streaming", action="store_true", help="subscribers: replay, idle ones")
    which.add_argument("--cometbft", action="store_true", help="four validators with four brokers")
    parser.add_argument("--quick", action="store_true", help="one short round: two minutes")
    parser.add_argument(
        "--only", nargs="+", default=(), metavar="NAME", help="measure only servers named so"
    )
    parser.add_argument("--events", type=int, default=1_000_000, help="events for --memory")
    parser.add_argument("--rounds", type=int, default=3, help="how often each case is measured")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each time")
    parser.add_argument(
        "--dir", type=Path, default=RESULTS, help="on the disk to use; default: in the checkout"
    )
    parser.add_argument(
        "--report", type=Path, default=RESULTS, help="where the report goes, with its plots"
    )
    options = parser.parse_args()
    if not (1 <= options.rounds <= 100 and 0.1 <= options.seconds <= 60 and options.events > 0):
        parser.error("1 to 100 rounds, 0.1 to 60 seconds, and some events")
    if options.quick:
        options.rounds, options.seconds = 1, min(options.seconds, 0.4)
    return options


def _numbers(comparison: Comparison) -> Sequence[Mapping[str, Any]]:
    """All rounds."""
    return [
        {
            "part": case.table.value,
            "server": case.who.value,
            "load": case.load,
            "connections": case.connections,
            "window": case.window,
            "rounds": [asdict(one) for one in rounds],
        }
        for case, rounds in comparison.rounds.items()
    ]


def main() -> None:
    """Measure, print, and write what was found."""
    options = _options()
    for directory in (RESULTS, options.dir, options.report):
        directory.mkdir(parents=True, exist_ok=True)
    with household():
        _measure(options)


def _measure(options: Namespace) -> None:
    where = machine(options.dir)
    sections: Sequence[Section] = ()
    numbers: Sequence[Mapping[str, Any]]
    home = Path(tempfile.mkdtemp(prefix="run-", dir=options.dir))
    seconds, rounds = options.seconds, options.rounds
    try:
        if options.memory:
            name = "memory"
            text, numbers = measureMemory(home, options.events)
        elif options.cometbft:
            name = "cometbft"
            text, numbers = measureNetwork(home, findEngine(), seconds, rounds)
        elif options.streaming:
            name = "streaming"
            part = 10 if options.quick else 1
            text, numbers = compareBrokers(
                home, seconds, rounds, REPLAYED // part, IDLE_SUBSCRIBERS // part
            )
        else:
            name = "report"
            comparison = compare(home, seconds, rounds, options.only)
            numbers = _numbers(comparison)
            sections = comparisonSections(
                comparison, {**where, "rounds": rounds, "seconds of each": seconds}
            )
    finally:
        shutil.rmtree(home)
    if sections:
        page = writeReport(options.report, name.upper(), "svcbroker and others", sections)
        print(page.read_text("utf-8"))
        print(f"written to {page}", file=sys.stderr)
    else:
        words = ", ".join(f"{key} {value}" for key, value in where.items())
        print(f"{text}\n\n{words}")
        (RESULTS / f"{name}.md").write_text(f"{text}\n\n{words}\n", "utf-8")
    (RESULTS / f"{name}.json").write_bytes(
        msgspec.json.format(msgspec.json.encode({"machine": where, "results": numbers}))
    )


if __name__ == "__main__":
    try:
        main()
    except (Broken, Missing, Ended) as error:
        sys.exit(f"benchmarks: {error}")
