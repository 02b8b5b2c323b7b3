"""
The one command: C{python -m benchmarks.growth}.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from attrs import asdict

from svcbroker.commands.bench import Broken

from ..children import CHECKOUT, Ended, Missing, household, separateCores
from ..machine import machine
from ..report import Section, writeReport
from . import _connections, _contents, _topics
from ._chain import CONTENT, measureChain, measureExisting
from ._connections import measureConnections
from ._contents import measureContents
from ._kept import KINDS, measureKept
from ._page import chainSection, connectionsSection, contentsSection, keptSection, topicsSection
from ._topics import measureTopics

RESULTS = CHECKOUT / "benchmarks" / "results"
EVENTS, ALL_EVENTS = 1_000_000, 10_000_000
TOPICS = 10_000

Found = tuple[Section, Sequence[Any]]
Curve = Callable[[Path, set[int], Namespace], Found]


def _chain(home: Path, cores: set[int], options: Namespace) -> Found:
    if options.chain is not None:
        data = options.chain
        lengths = [measureExisting(home, cores, data, options.seconds, options.content)]
        return chainSection(lengths, (), options.content), lengths
    lengths, samples = measureChain(home, cores, options.events, options.seconds, options.content)
    return chainSection(lengths, samples, options.content), [*lengths, *samples]


def _ofTopics(home: Path, cores: set[int], options: Namespace) -> Found:
    counts = [count for count in _topics.COUNTS if count <= options.topics]
    found = measureTopics(home, cores, counts, options.seconds)
    return topicsSection(found), found


def _ofContents(home: Path, cores: set[int], options: Namespace) -> Found:
    found = measureContents(home, cores, _contents.SIZES, options.seconds)
    return contentsSection(found), found


def _ofConnections(home: Path, cores: set[int], options: Namespace) -> Found:
    found = measureConnections(home, cores, _connections.COUNTS, options.seconds)
    return connectionsSection(found), found


def _kept(name: str, home: Path, cores: set[int], options: Namespace) -> Found:
    found = measureKept(home, cores, KINDS[name], options.seconds)
    return keptSection(name, found), found


CURVES: Mapping[str, Curve] = {
    "chain": _chain,
    "topics": _ofTopics,
    "contents": _ofContents,
    "connections": _ofConnections,
    **{name.split()[0]: partial(_kept, name) for name in KINDS},
}


def _options() -> Namespace:
    parser = ArgumentParser(
        prog="python -m benchmarks.growth",
        description="Measure how svcbroker grows, and write a report with plots.",
    )
    parser.add_argument("--full", action="store_true", help="10 million events, a million topics")
    parser.add_argument("--events", type=int, help=f"the longest chain; default {EVENTS}")
    parser.add_argument(
        "--content", type=int, default=CONTENT, help="bytes of what that chain's events say"
    )
    parser.add_argument("--topics", type=int, help=f"the most topics; default {TOPICS}")
    parser.add_argument(
        "--only", nargs="+", choices=CURVES, default=list(CURVES), help="which curves"
    )
    parser.add_argument(
        "--chain", type=Path, help="a data directory to look at, instead of making a chain"
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each thing is asked")
    parser.add_argument(
        "--dir", type=Path, default=RESULTS, help="on the disk to use; default: in the checkout"
    )
    parser.add_argument("--keep", action="store_true", help="leave the data there")
    parser.add_argument("--report", type=Path, default=RESULTS, help="where the report goes")
    options = parser.parse_args()
    options.events = options.events or (ALL_EVENTS if options.full else EVENTS)
    options.topics = options.topics or (_topics.COUNTS[-1] if options.full else TOPICS)
    return options


def main() -> None:
    """Measure, and write what was found."""
    options = _options()
    for directory in (options.dir, options.report):
        directory.mkdir(parents=True, exist_ok=True)
    serverCores, loadCores = separateCores()
    os.sched_setaffinity(0, loadCores)
    home = Path(tempfile.mkdtemp(prefix="growth-", dir=options.dir))
    # Of its own directory, so that two runs at once do not meet.
    where = machine(home)
    sections = [Section(title="Where", text=", ".join(f"{k} {v}" for k, v in where.items()))]
    numbers: dict[str, Sequence[Any]] = {}
    try:
        for name in options.only:
            section, found = CURVES[name](home / name, serverCores, options)
            sections.append(section)
            numbers[name] = [asdict(each) for each in found]
    finally:
        if options.keep:
            print(f"the data is in {home}", file=sys.stderr)
        else:
            shutil.rmtree(home)
    page = writeReport(options.report, "GROWTH", "How svcbroker grows", sections)
    (options.report / "growth.json").write_bytes(
        msgspec.json.format(msgspec.json.encode({"machine": where, "results": numbers}))
    )
    print(page.read_text("utf-8"))
    print(f"written to {page}", file=sys.stderr)


if __name__ == "__main__":
    try:
        with household():
            main()
    except (Broken, Missing, Ended) as error:
        sys.exit(f"benchmarks: {error}")
