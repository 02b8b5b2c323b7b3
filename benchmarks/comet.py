"""
Four validators with four brokers, beside the embedded ledger.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from attrs import asdict, frozen

from svcbroker.commands.bench.load import Broken, percentile

from .children import CHECKOUT
from .loader import Load, connected, drive, driveOn
from .network import NODES, Network, awaitGood, startNetwork
from .servers import Server, startDaemon
from .wires.http import TOPIC, postForm, rpc

WARM_UP = 1.0
"""Seconds of load before anything is measured."""

IDLE = 5.0
"""Seconds in which nobody publishes."""

REDUCED_SECONDS = 10.0
"""Seconds of a measurement with a validator down, at least: a block in four waits for it."""

NETWORK, REDUCED, EMBEDDED = "cometbft", "reduced", "pbft"
TITLES: Mapping[str, str] = {
    NETWORK: f"CometBFT, {NODES} nodes",
    REDUCED: f"CometBFT, {NODES - 1} of {NODES} nodes",
    EMBEDDED: "embedded, default settings",
}


@frozen(kw_only=True)
class CometCase:
    """
    One load.

    @ivar load: what each client does.
    @ivar isSpread: whether the clients are dealt out to all brokers of a network.
    """

    name: str
    clients: int
    load: Load
    isSpread: bool = True


_REST = "REST publish, POST"
CASES: Sequence[CometCase] = [
    CometCase(name=_REST, clients=1, load=postForm()),
    CometCase(name=_REST, clients=32, load=postForm()),
    CometCase(name=f"{_REST}, all at one broker", clients=32, load=postForm(), isSpread=False),
    CometCase(name=_REST, clients=256, load=postForm()),
    CometCase(name="JSON-RPC publish, batches of 100", clients=4, load=rpc(100)),
    CometCase(name="JSON-RPC publish, batches of 100", clients=16, load=rpc(100)),
    CometCase(name="JSON-RPC publish, batches of 100", clients=64, load=rpc(100)),
]
REDUCED_CASES = CASES[:2]
"""What is measured while one validator is down."""


@frozen(kw_only=True)
class CometRound:
    """
    One measurement.

    @ivar events: acknowledged events a second.
    @ivar p50: the median latency of a request in milliseconds; C{p99} in the same way.
    @ivar brokerCpu: microseconds of the brokers' processor time for an event, all together.
    @ivar engineCpu: the same of the engines.
    @ivar blocks: blocks a second; not known of the embedded ledger.
    @ivar others: the share of a processor that others had meanwhile.
    """

    events: float
    p50: float
    p99: float
    brokerCpu: float
    engineCpu: float
    blocks: float
    others: float


def measureNetwork(
    home: Path, engine: Path, seconds: float, rounds: int
) -> tuple[str, Sequence[Mapping[str, Any]]]:
    """
    Measure all cases, in turn, several times; each time with a new network and new daemons, of
    which only what is measured runs.

    @param home: an empty directory.
    @param engine: the C{cometbft} program.
    @return: the tables as Markdown, and all rounds.
    @raise Broken: an answer was wrong, events are missing, or brokers do not agree.
    """
    found: dict[tuple[str, CometCase], list[CometRound]] = {}
    idle: list[tuple[float, float]] = []
    names = [NETWORK, EMBEDDED]
    for turn in range(rounds):
        for name in names if turn % 2 == 0 else reversed(names):
            directory = home / f"{name}{turn}"
            with ExitStack() as stack:
                server: Server | Network
                if name == NETWORK:
                    server = startNetwork(directory, engine, stack)
                else:
                    server = startDaemon(directory, os.sched_getaffinity(0))
                    stack.callback(server.stop)
                _measureAll(name, server, CASES, seconds, found)
                if isinstance(server, Network):
                    idle.append(_measureIdle(server))
                    reduced = server.stopLast()
                    atLeast = max(seconds, REDUCED_SECONDS)
                    _measureAll(REDUCED, reduced, REDUCED_CASES, atLeast, found)
            shutil.rmtree(directory)
    return _report(found, idle), [
        {"server": TITLES[name], "load": case.name, "clients": case.clients}
        | {"rounds": [asdict(one) for one in each]}
        for (name, case), each in found.items()
    ]


def _measureAll(
    name: str,
    server: Server | Network,
    cases: Sequence[CometCase],
    seconds: float,
    found: dict[tuple[str, CometCase], list[CometRound]],
) -> None:
    if server.call("/rest/open", topic=TOPIC) is not True:
        raise Broken("the topic cannot be opened")
    if isinstance(server, Network):
        brokers = server.brokers
        awaitGood(lambda: [broker.call("/rest/exist", topic=TOPIC) for broker in brokers], all)
    total = server.call("/rest/state", topic=TOPIC)["sequenceNumber"]
    for case in cases:
        if not case.isSpread and isinstance(server, Server):
            continue
        events, one = _measure(case, server, seconds)
        total += events
        found.setdefault((name, case), []).append(one)
        print(
            f"{TITLES[name]}, {case.name}, {case.clients}: {one.events:.0f} events/s, "
            f"{one.p50:.1f} ms, {one.blocks:.1f} blocks/s, others {one.others:.2f}",
            file=sys.stderr,
        )
    if isinstance(server, Network):
        server.agree(TOPIC, total)
    elif server.call("/rest/state", topic=TOPIC)["sequenceNumber"] != total:
        raise Broken("the topic has not the events that were acknowledged")


def _measure(case: CometCase, server: Server | Network, seconds: float) -> tuple[int, CometRound]:
    ports = server.ports if case.isSpread else server.ports[:1]
    warmUp = drive(ports, case.load, case.clients, min(seconds, WARM_UP))
    with connected(ports, case.load, case.clients) as sockets:
        before = _used(server)
        measured = driveOn(sockets, case.load, seconds)
        broker, engine, blocks, client, all_ = (
            now - then for now, then in zip(_used(server), before, strict=True)
        )
    latencies = sorted(measured.latencies)
    one = CometRound(
        events=measured.events / measured.seconds,
        p50=percentile(latencies, 50) * 1000,
        p99=percentile(latencies, 99) * 1000,
        brokerCpu=broker / measured.events * 1e6,
        engineCpu=engine / measured.events * 1e6,
        blocks=blocks / measured.seconds,
        others=max(0.0, all_ - broker - engine - client) / measured.seconds,
    )
    return warmUp.events + measured.events, one


def _used(server: Server | Network) -> tuple[float, float, float, float, float]:
    """Seconds of processor time of brokers and engines, blocks, and seconds of us and of all."""
    general = server.call("/admin/group/general", groupId="1")["data"]
    fields = Path("/proc/stat").read_text("ascii").partition("\n")[0].split()[1:9]
    ticks = [int(field) for field in fields]
    busy = (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
    isNetwork = isinstance(server, Network)
    return (
        server.brokerCpu() if isinstance(server, Network) else server.cpu(),
        server.engineCpu() if isinstance(server, Network) else 0.0,
        float(general["latestBlock"]) if isNetwork else 0.0,
        sum(os.times()[:4]),  # the load program is a child of ours
        busy,
    )


def _measureIdle(network: Network) -> tuple[float, float]:
    """The share of a processor that brokers and engines use while nobody publishes."""
    time.sleep(2)
    before = network.brokerCpu(), network.engineCpu()
    time.sleep(IDLE)
    return (
        (network.brokerCpu() - before[0]) / IDLE,
        (network.engineCpu() - before[1]) / IDLE,
    )


def _report(
    found: Mapping[tuple[str, CometCase], Sequence[CometRound]],
    idle: Sequence[tuple[float, float]],
) -> str:
    lines = [
        "| server | load | connections | events/s | p50 ms | p99 ms | blocks/s "
        "| brokers' CPU µs an event | engines' | others' share |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, title in TITLES.items():
        for (server, case), rounds in found.items():
            if server == name:
                each = [asdict(one) for one in rounds]
                one = CometRound(**{key: median(it[key] for it in each) for key in each[0]})
                blocks = f"{one.blocks:.1f}" if one.blocks else ""
                engine = f"{one.engineCpu:.0f}" if one.blocks else ""
                lines.append(
                    f"| {title} | {case.name} | {case.clients} "
                    f"| {one.events:.0f} | {one.p50:.1f} | {one.p99:.1f} | {blocks} "
                    f"| {one.brokerCpu:.0f} | {engine} | {one.others:.2f} |"
                )
    brokers, engines = (median(each) for each in zip(*idle, strict=True))
    lines += [
        "",
        f"While nobody publishes, the four brokers use {brokers:.1%} of a processor, and the four "
        f"engines {engines:.1%}.",
    ]
    return "\n".join(lines)


def findEngine() -> Path:
    """
    The C{cometbft} program.

    @raise Broken: there is none.
    """
    path = os.environ.get("SVCBROKER_COMETBFT") or shutil.which("cometbft")
    if not path:
        raise Broken(
            f"there is no engine: SVCBROKER_COMETBFT=$(tools/engines/build) makes one in {CHECKOUT}"
        )
    return Path(path).resolve()
