"""
The one command: C{python -m benchmarks}.
"""

from __future__ import annotations

import gc
import os
import platform
import shutil
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
from attrs import asdict

from .cases import AT_ONCE, CASES, DEFAULT, TOPIC, Case, rpc
from .comet import findEngine, measureNetwork
from .load import Broken, drive
from .memory import measureMemory
from .report import middle
from .rounds import SERVERS, Round, factors, table
from .servers import CHECKOUT, Server, separateCores, startBare, startDaemon
from .streaming import IDLE_SUBSCRIBERS, REPLAYED, compareBrokers

RESULTS = CHECKOUT / "benchmarks" / "results"
WARM_UP = 0.3
"""Seconds of load before anything is measured."""
KNOWN_EVENTS = 1000
"""How many events are read one after the other."""


def sequenceOf(server: Server) -> int:
    """How many events the topic has, as the daemon says."""
    number: int = server.call("/rest/state", topic=TOPIC)["sequenceNumber"]
    return number


def measure(case: Case, server: Server, port: int, known: Sequence[str], seconds: float) -> Round:
    """
    Load a server as a case says.

    @raise Broken: an answer was wrong, or the chain has other events than were acknowledged.
    """
    shape = case.makeShape(known)
    before = sequenceOf(server) if case.publishes else 0
    warmUp = drive(port, shape, case.connections, min(seconds, WARM_UP))
    cpu = server.cpu()
    gc.disable()
    measured = drive(port, shape, case.connections, seconds)
    gc.enable()
    one = Round.of(measured, server.cpu() - cpu)
    if case.publishes:
        new, acknowledged = sequenceOf(server) - before, warmUp.events + measured.events
        if new != acknowledged:
            raise Broken(f"{acknowledged} publishes were acknowledged, the topic has {new} more")
    return one


def publishKnown(server: Server) -> Sequence[str]:
    """Open the topic, and publish events to be read."""
    if server.call("/rest/open", topic=TOPIC) is not True:
        raise Broken("the topic cannot be opened")
    ids: list[str] = []

    def check(body: bytes) -> int:
        ids.extend(answer["result"]["eventId"] for answer in msgspec.json.decode(body))
        return 0

    shape = rpc(100)(())
    drive(server.ports[0], type(shape)(requests=shape.requests, check=check), 1, 60, 10)
    if len(set(ids)) != KNOWN_EVENTS or sequenceOf(server) != KNOWN_EVENTS:
        raise Broken("the events to be read are not there")
    return ids


def compare(home: Path, seconds: float, rounds: int) -> Sequence[tuple[Case, Sequence[Round]]]:
    """
    Measure all cases, in turn, several times: there and back, and what is to be compared one soon
    after the other, so that a machine that is busy with something else spoils little.

    @param home: an empty directory.
    """
    serverCores, loadCores = separateCores()
    os.sched_setaffinity(0, loadCores)
    found: dict[int, list[Round]] = {number: [] for number in range(len(CASES))}
    order = sorted(found, key=lambda number: _kind(CASES[number]))
    with ExitStack() as stack:
        daemons: dict[str, Server] = {}
        known: dict[str, Sequence[str]] = {}
        for ledger in (DEFAULT, AT_ONCE):
            daemon = startDaemon(home / f"daemon{len(daemons)}", ledger, serverCores)
            stack.callback(daemon.stop)
            daemons[ledger], known[ledger] = daemon, publishKnown(daemon)
        bare = startBare(home / "bare", serverCores)
        stack.callback(bare.stop)
        for turn in range(rounds):
            for number in order if turn % 2 == 0 else reversed(order):
                case = CASES[number]
                if isinstance(case.server, str):
                    server, port = daemons[case.server], daemons[case.server].ports[0]
                else:
                    server, port = bare, bare.ports[case.server]
                one = measure(case, server, port, known.get(str(case.server), ()), seconds)
                found[number].append(one)
                print(
                    f"round {turn + 1}/{rounds}: {SERVERS[case.server]}, {case.name}, "
                    f"{case.connections}: {one.requests:.0f}/s, {one.p50:.2f} ms",
                    file=sys.stderr,
                )
    return [(CASES[number], each) for number, each in found.items()]


def _kind(case: Case) -> tuple[int, bool]:
    return case.connections, "GET" in case.name


def machine() -> Mapping[str, Any]:
    """Where the numbers come from."""
    return {
        "python": platform.python_version(),
        "kernel": platform.release(),
        "processors": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
    }


def _options() -> Namespace:
    parser = ArgumentParser(prog="python -m benchmarks", description="Measure the real daemon.")
    parser.add_argument("--quick", action="store_true", help="one short round: a minute")
    parser.add_argument("--memory", action="store_true", help="a million events, and what memory")
    parser.add_argument(
        "--streaming", action="store_true", help="MQTT and STOMP, and other brokers"
    )
    parser.add_argument("--cometbft", action="store_true", help="four validators with four brokers")
    parser.add_argument("--events", type=int, default=1_000_000, help="events for --memory")
    parser.add_argument("--rounds", type=int, default=3, help="how often each case is measured")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long each time")
    parser.add_argument(
        "--dir", type=Path, default=RESULTS, help="on the disk to use; default: in the checkout"
    )
    return parser.parse_args()


def main() -> None:
    """Measure, print, and write what was found."""
    options = _options()
    if options.quick:
        options.rounds, options.seconds = 1, min(options.seconds, 1.0)
    began = {"started": time.strftime("%Y-%m-%d %H:%M:%S %Z"), **machine()}
    RESULTS.mkdir(exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix="run-", dir=options.dir))
    numbers: Sequence[Mapping[str, Any]]
    try:
        if options.memory:
            name = "memory"
            text, numbers = measureMemory(home, options.events)
        elif options.cometbft:
            name = "cometbft"
            text, numbers = measureNetwork(home, findEngine(), options.seconds, options.rounds)
        elif options.streaming:
            name = "streaming"
            part = 10 if options.quick else 1
            text, numbers = compareBrokers(
                home, options.seconds, options.rounds, REPLAYED // part, IDLE_SUBSCRIBERS // part
            )
        else:
            name = "speed"
            results = compare(home, options.seconds, options.rounds)
            medians = [(case, middle(each)) for case, each in results]
            text = f"{table(medians)}\n\n{factors(results)}"
            numbers = [
                {
                    "server": SERVERS[case.server],
                    "load": case.name,
                    "connections": case.connections,
                    "rounds": [asdict(one) for one in each],
                }
                for case, each in results
            ]
    finally:
        shutil.rmtree(home)
    words = ", ".join(f"{key} {value}" for key, value in began.items())
    print(f"{text}\n\n{words}")
    (RESULTS / f"{name}.md").write_text(f"{text}\n\n{words}\n", "utf-8")
    (RESULTS / f"{name}.json").write_bytes(
        msgspec.json.format(msgspec.json.encode({"machine": began, "results": numbers}))
    )


if __name__ == "__main__":
    try:
        main()
    except Broken as error:
        sys.exit(f"benchmarks: {error}")
