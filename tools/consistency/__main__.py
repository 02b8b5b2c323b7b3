"""
The command line: C{python -m tools.consistency}.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from math import ceil
from pathlib import Path
from random import Random
from typing import Any

from rich.console import Console
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater, react

from .chains import Reorganized, Validated
from .deployments import Copied, Deployment, EngineNetwork
from .faults import COPIES, ENGINES, REORGANIZED, VALIDATORS, Fault
from .history import Operation, Result, Round, judge
from .traffic import Traffic

BUILD = Path(__file__).parent.parent / "engines" / "build"
ENGINE_OF = {"engines": "cometbft", "validators": "polygon-edge"}
"""The program that a deployment needs, of those that L{BUILD} makes."""
BEFORE = 2.0
"""The seconds that clients run before a fault and after it."""

DEPLOYMENTS: Mapping[str, tuple[type[Deployment], Mapping[str, Fault]]] = {
    "engines": (EngineNetwork, ENGINES),
    "embedded": (Copied, COPIES),
    "validators": (Validated, VALIDATORS),
    "reorganized": (Reorganized, REORGANIZED),
}
USUAL = ("engines", "embedded")
"""The deployments that need nothing but what is built here."""


def parser() -> ArgumentParser:
    """The options."""
    made = ArgumentParser(
        prog="python -m tools.consistency",
        description="Run clients of real brokers under faults, and judge what they were answered. "
        "The exit status is 1 if something was lost, doubled, reordered or not linear.",
    )
    made.add_argument("--seconds", type=float, default=600.0, help="how long to go on (600)")
    made.add_argument("--seed", type=int, default=0, help="what decides the faults (0)")
    made.add_argument(
        "--deployment", choices=DEPLOYMENTS, action="append", help=f"default: {USUAL}"
    )
    made.add_argument("--fault", help="only this one; --faults lists them")
    made.add_argument("--faults", action="store_true", help="list the faults, and end")
    made.add_argument(
        "--keep", type=Path, metavar="DIR", help="where the files go, and stay: a new directory"
    )
    return made


class Run:
    """
    Rounds with one deployment after the other, for a while.
    """

    def __init__(self, reactor: Any, options: Namespace, root: Path, checker: Path) -> None:
        self._reactor = reactor
        self._options = options
        self._root = root
        self._checker = checker
        self._console = Console(markup=False, highlight=False, soft_wrap=True)
        self._random = Random(options.seed)
        self._rows: list[tuple[str, Round, float]] = []
        self.found: list[str] = []

    async def run(self) -> None:
        """Run all, and print a table."""
        names = self._options.deployment or USUAL
        for name in names:
            await self._deployment(name, self._options.seconds / len(names))
        self._console.print("\n".join(self._table()))

    async def _deployment(self, name: str, seconds: float) -> None:
        make, faults = DEPLOYMENTS[name]
        deployment = make(self._reactor, self._root / name)
        end = time.monotonic() + seconds
        try:
            await deployment.start()
            for fault in self._faults(faults):
                await self._round(name, deployment, fault, faults[fault])
                if time.monotonic() > end:
                    break
        except TimeoutError as failure:
            self._tell(f"{name}: {failure}")
        finally:
            for line in await deployment.stop():
                self._tell(f"{name}: {line}")

    def _faults(self, faults: Mapping[str, Fault]) -> Iterator[str]:
        """Each fault once in some order, again and again."""
        while True:
            if self._options.fault is not None:
                yield self._options.fault
            else:
                yield from self._random.sample([*faults], len(faults))

    async def _round(self, name: str, deployment: Deployment, fault: str, break_: Fault) -> None:
        round = Round(name=fault)
        traffic = Traffic(deployment, round, self._random)
        await traffic.start()
        await deferLater(self._reactor, BEFORE)
        await break_(deployment, self._random)
        begun = time.monotonic()
        await deployment.level()
        took = time.monotonic() - begun
        await deferLater(self._reactor, BEFORE)
        await traffic.stop()
        file = self._root / f"{name}-{len(self._rows)}.jsonl"
        for line in judge(round, self._checker, file):
            self._tell(f"{name}, {fault}: {line}")
        self._rows.append((name, round, took))
        told = ", ".join(f"{what} {count}" for what, count in sorted(round.counts.items()))
        self._console.print(f"{name}, {fault}: level after {took:.1f} s; {told}")

    def _tell(self, line: str) -> None:
        self._console.print(f"FOUND {line}")
        self.found.append(line)

    def _table(self) -> Iterator[str]:
        """The rows for the documentation: what was run, and how much of it."""
        rows: dict[tuple[str, str], Counter[str]] = {}
        for name, round, took in self._rows:
            row = rows.setdefault((name, round.name), Counter())
            row["rounds"] += 1
            row["writes"] += len(round.writes)
            row["resumes"] += round.counts["resumes"]
            row["unknown"] += sum(_isUnknown(write) for write in round.writes)
            row["level"] = max(row["level"], ceil(took))
        columns = ("rounds", "writes", "unknown", "resumes", "level")
        yield f"{'deployment':10} {'fault':36}" + "".join(f"{each:>9}" for each in columns)
        for (name, fault), row in sorted(rows.items()):
            yield f"{name:10} {fault:36}" + "".join(f"{row[each]:9}" for each in columns)
        yield f"{len(self._rows)} rounds, {len(self.found)} findings"


def _isUnknown(write: Operation) -> bool:
    return write.result is Result.UNKNOWN


def main() -> None:
    """Run as the arguments say."""
    options = parser().parse_args()
    if options.faults:
        for name, (_, faults) in DEPLOYMENTS.items():
            Console().print(*(f"{name}: {fault}" for fault in faults), sep="\n")
        return
    built = subprocess.run([BUILD, "linearizable"], check=True, stdout=subprocess.PIPE, text=True)
    for name in {ENGINE_OF[each] for each in options.deployment or USUAL if each in ENGINE_OF}:
        variable = f"SVCBROKER_{name.upper().replace('-', '_')}"
        if variable not in os.environ:
            engine = subprocess.run([BUILD, name], check=True, capture_output=True, text=True)
            os.environ[variable] = engine.stdout.split()[-1]
    with ExitStack() as stack:
        # Below /tmp: the path of a socket has at most 107 bytes.
        if options.keep is not None:
            options.keep.mkdir(parents=True)
        root = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp")))
        runs: list[Run] = []

        def start(reactor: Any) -> Deferred[None]:
            runs.append(Run(reactor, options, root, Path(built.stdout.split()[-1])))
            return Deferred.fromCoroutine(runs[0].run())

        try:
            react(start)
        except SystemExit as ended:
            sys.exit(ended.code or int(bool(runs[0].found)))


if __name__ == "__main__":
    main()
