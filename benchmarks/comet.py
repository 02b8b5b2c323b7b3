"""
Four validators with four brokers, beside the same engines alone, and beside the embedded ledger.
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

from svcbroker.commands.bench import Broken, percentile

from .children import CHECKOUT
from .loader import Load, connected, drive, driveOn
from .network import NODES, BareNetwork, Network, awaitGood, startBareNetwork, startNetwork
from .servers import Server, startDaemon
from .wires.http import TOPIC, commitTransaction, postForm, rpc

WARM_UP = 1.0
"""Seconds of load before anything is measured."""

IDLE = 5.0
"""Seconds without publishes."""

REDUCED_SECONDS = 10.0
"""Seconds of a measurement with a validator down, at least: a block in four waits for it."""

BARE, NETWORK, REDUCED, EMBEDDED = "bare", "cometbft", "reduced", "pbft"
TITLES: Mapping[str, str] = {
    BARE: f"CometBFT, {NODES} engines alone, kvstore",
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


REST = "REST publish, POST"
CASES: Sequence[CometCase] = [
    CometCase(name=REST, clients=1, load=postForm()),
    CometCase(name=REST, clients=32, load=postForm()),
    CometCase(name=f"{REST}, all at one broker", clients=32, load=postForm(), isSpread=False),
    CometCase(name=REST, clients=256, load=postForm()),
    CometCase(name="JSON-RPC publish, batches of 100", clients=4, load=rpc(100)),
    CometCase(name="JSON-RPC publish, batches of 100", clients=16, load=rpc(100)),
    CometCase(name="JSON-RPC publish, batches of 100", clients=64, load=rpc(100)),
]
REDUCED_CASES = CASES[:2]
"""What is measured while one validator is down."""

COMMIT, BARE_CLIENTS = "broadcast_tx_commit", (1, 32)
BARE_CASES: Sequence[CometCase] = [
    CometCase(name=COMMIT, clients=clients, load=commitTransaction()) for clients in BARE_CLIENTS
]
"""What engines without brokers are measured with. A broker's rate is judged by it."""


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
    names = [BARE, NETWORK, EMBEDDED]
    for turn in range(rounds):
        for name in names if turn % 2 == 0 else reversed(names):
            directory = home / f"{name}{turn}"
            with ExitStack() as stack:
                if name == BARE:
                    _measureBare(startBareNetwork(directory, engine, stack), seconds, found)
                elif name == NETWORK:
                    network = startNetwork(directory, engine, stack)
                    _measureAll(name, network, CASES, seconds, found)
                    idle.append(_measureIdle(network))
                    reduced = network.stopLast()
                    atLeast = max(seconds, REDUCED_SECONDS)
                    _measureAll(REDUCED, reduced, REDUCED_CASES, atLeast, found)
                else:
                    server = startDaemon(directory, os.sched_getaffinity(0))
                    stack.callback(server.stop)
                    _measureAll(name, server, CASES, seconds, found)
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
        total += _measureCase(name, case, server, seconds, found)
    if isinstance(server, Network):
        server.agree(TOPIC, total)
    elif server.call("/rest/state", topic=TOPIC)["sequenceNumber"] != total:
        raise Broken("the topic has not the events that were acknowledged")


def _measureBare(
    network: BareNetwork, seconds: float, found: dict[tuple[str, CometCase], list[CometRound]]
) -> None:
    total = 0
    for case in BARE_CASES:
        total += _measureCase(BARE, case, network, seconds, found)
    network.agree(total)


def _measureCase(
    name: str,
    case: CometCase,
    server: Server | Network | BareNetwork,
    seconds: float,
    found: dict[tuple[str, CometCase], list[CometRound]],
) -> int:
    """Measure a case; the number of events, those of its warm-up included."""
    events, one = _measure(case, server, seconds)
    found.setdefault((name, case), []).append(one)
    print(
        f"{TITLES[name]}, {case.name}, {case.clients}: {one.events:.0f} events/s, "
        f"{one.p50:.1f} ms, {one.blocks:.1f} blocks/s, others {one.others:.2f}",
        file=sys.stderr,
    )
    return events


def _measure(
    case: CometCase, server: Server | Network | BareNetwork, seconds: float
) -> tuple[int, CometRound]:
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


def _used(server: Server | Network | BareNetwork) -> tuple[float, float, float, float, float]:
    """Seconds of processor time of brokers and engines, blocks, and seconds of us and of all."""
    fields = Path("/proc/stat").read_text("ascii").partition("\n")[0].split()[1:9]
    ticks = [int(field) for field in fields]
    busy = (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
    return (
        server.cpu() if isinstance(server, Server) else server.brokerCpu(),
        0.0 if isinstance(server, Server) else server.engineCpu(),
        0.0 if isinstance(server, Server) else float(server.height()),
        sum(os.times()[:4]),  # the load program is a child of ours
        busy,
    )


def _measureIdle(network: Network) -> tuple[float, float]:
    """The share of a processor that brokers and engines use without publishes."""
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
    shares = " and ".join(
        f"{_rate(found, NETWORK, REST, count) / _rate(found, BARE, COMMIT, count):.0%} with {count}"
        for count in BARE_CLIENTS
    )
    lines += [
        "",
        f"Single publishes reach {shares} connections of the rate of the engines alone.",
        "",
        f"Without publishes, the four brokers use {brokers:.1%} of a processor, and the four "
        f"engines {engines:.1%}.",
    ]
    return "\n".join(lines)


def _rate(
    found: Mapping[tuple[str, CometCase], Sequence[CometRound]], name: str, load: str, clients: int
) -> float:
    """Events a second of a case."""
    return median(
        one.events
        for (server, case), rounds in found.items()
        if (server, case.name, case.clients) == (name, load, clients)
        for one in rounds
    )


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
