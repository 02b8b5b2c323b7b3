"""
Single subscribers, side by side with the brokers of others: C{python -m benchmarks --streaming}.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from socket import socket
from time import perf_counter
from typing import Any

from attrs import asdict, frozen

from svcbroker.commands.bench import Broken, Measured

from .brokers import Broker, startDaemon, startMosquitto, startRabbit
from .children import Missing, busyOf, separateCores
from .found import MARKS, WARM_UP, Found, marks
from .loader import drive
from .report import amount, middle
from .streamload import driveNotify, driveReplay, gather
from .wires import mqtt

IDLE_SUBSCRIBERS = 10_000
IDLE_SECONDS = 120.0
"""After so long a broker that takes its time is given up."""
REPLAYED = 100_000
"""How many events the topic has that is replayed."""
NOTIFY_TOPIC = "notify"
REPLAY_TOPIC = "replay"


@frozen(kw_only=True)
class Row:
    """
    One row of the table.

    @ivar drive: puts the load on a broker, for so many seconds.
    @ivar onlyOurs: why other brokers have no such thing, if they have not.
    @ivar isLatency: whether the latency is what matters.
    """

    name: str
    drive: Callable[[Broker, float], Measured]
    onlyOurs: str = ""
    isLatency: bool = False


def _replay(broker: Broker, seconds: float) -> Measured:
    assert broker.daemon is not None
    known: int = broker.daemon.call("/rest/state", topic=REPLAY_TOPIC)["sequenceNumber"]
    return driveReplay(broker.ports["mqtt"], REPLAY_TOPIC, known)


ROWS: Sequence[Row] = (
    Row(
        name="MQTT notify latency",
        drive=lambda broker, seconds: driveNotify(broker.ports["mqtt"], NOTIFY_TOPIC, seconds),
        isLatency=True,
    ),
    Row(name="MQTT replay", drive=_replay, onlyOurs="it keeps no history"),
)


def _prepareReplay(broker: Broker, events: int) -> None:
    """Publish what is to be replayed, a second at a time."""
    assert broker.daemon is not None
    if broker.daemon.call("/rest/open", topic=REPLAY_TOPIC) is not True:
        raise Broken("the topic cannot be opened")
    done, deadline = 0, perf_counter() + IDLE_SECONDS
    while done < events:
        if perf_counter() > deadline:
            raise Broken(f"{done} of {events} events took {IDLE_SECONDS:g} seconds")
        done += drive(broker.ports["mqtt"], mqtt.publishes(REPLAY_TOPIC, 256), 1, 1.0).events


def _measure(row: Row, broker: Broker, seconds: float) -> Found:
    cores = os.sched_getaffinity(broker.processes[-1].pid) | os.sched_getaffinity(0)
    if not row.onlyOurs:
        row.drive(broker, min(seconds / 4, WARM_UP))
    cpu, busy = broker.cpu(), busyOf(cores)
    measured = row.drive(broker, seconds)
    return Found.of(measured, broker.cpu() - cpu, busyOf(cores) - busy)


def _idle(start: Callable[[], Broker], subscribers: int) -> str:
    """
    What an idle subscriber costs, in words for the table. On a broker of its own: one that was
    under load has memory that it does not use.
    """
    broker = start()
    try:
        return _idleOn(broker, subscribers)
    finally:
        broker.stop()


def _idleOn(broker: Broker, subscribers: int) -> str:
    for each in gather(broker.ports["mqtt"], 10, perf_counter() + IDLE_SECONDS):
        each.close()
    before = broker.memory()
    opened: Sequence[socket] = ()
    try:
        opened = gather(broker.ports["mqtt"], subscribers, perf_counter() + IDLE_SECONDS)
        return amount((broker.memory() - before) // subscribers)
    except (Broken, OSError) as error:
        return f"- ({error})"
    finally:
        for each in opened:
            each.close()


def compareBrokers(
    home: Path, seconds: float, rounds: int, replayed: int, subscribers: int
) -> tuple[str, Sequence[Mapping[str, Any]]]:
    """
    Measure everything on every broker, in turn, several times.

    @param home: an empty directory.
    @param replayed: how many events are replayed.
    @param subscribers: how many idle subscribers there are.
    @return: the table as Markdown, and the numbers.
    """
    serverCores, loadCores = separateCores()
    os.sched_setaffinity(0, loadCores)
    found: dict[tuple[int, str], list[Found]] = {}
    missing: list[str] = []
    with ExitStack() as stack:
        brokers: list[Broker] = []
        starts: list[Callable[[Path], Broker]] = [
            partial(startDaemon, cores=serverCores),
            partial(startMosquitto, cores=serverCores),
            partial(startRabbit, cores=serverCores),
        ]
        for number, start in enumerate(list(starts)):
            try:
                broker = start(home / f"broker{number}")
            except Missing as reason:
                missing.append(f"Not measured: {reason}.")
                starts.remove(start)
                continue
            stack.callback(broker.stop)
            brokers.append(broker)
            if broker.daemon is not None:
                _prepareReplay(broker, replayed)
        for turn in range(rounds):
            # Brokers take turns inside a row, so that they meet the same neighbours.
            order = brokers if turn % 2 == 0 else brokers[::-1]
            for number, row in enumerate(ROWS):
                for broker in order:
                    if _reason(row, broker):
                        continue
                    one = _measure(row, broker, seconds)
                    found.setdefault((number, broker.name), []).append(one)
                    print(
                        f"round {turn + 1}/{rounds}: {row.name}, {broker.name}: "
                        f"{one.events:.0f}/s, {one.p50:.2f} ms",
                        file=sys.stderr,
                    )
    idle = [
        _idle(partial(start, home / f"idle{number}"), subscribers)
        for number, start in enumerate(starts)
    ]
    results = {key: middle(each) for key, each in found.items()}
    text = _table(brokers, results, idle, subscribers)
    numbers = [
        {"load": ROWS[number].name, "broker": name, **asdict(one)}
        for (number, name), one in results.items()
    ]
    return "\n\n".join([text, *missing, _EXPLANATION]), numbers


def _reason(row: Row, broker: Broker) -> str:
    """Why a row has no number for a broker; nothing where it has one."""
    return row.onlyOurs if broker.daemon is None else ""


def _table(
    brokers: Sequence[Broker],
    results: Mapping[tuple[int, str], Found],
    idle: Sequence[str],
    subscribers: int,
) -> str:
    names = [broker.name for broker in brokers]
    lines = ["| load | " + " | ".join(names) + " |", "|---|" + "--:|" * len(names)]
    for number, row in enumerate(ROWS):
        cells = []
        for broker in brokers:
            one = results.get((number, broker.name))
            cells.append(f"- ({_reason(row, broker)})" if one is None else _cell(row, one))
        lines.append(f"| {row.name} | " + " | ".join(cells) + " |")
    lines.append(f"| memory of an idle subscriber ({subscribers}), bytes | {' | '.join(idle)} |")
    return "\n".join(lines)


def _cell(row: Row, one: Found) -> str:
    latency = f"{one.p50:.2f} / {one.p99:.2f} ms"
    if row.isLatency:
        return latency
    return f"{amount(one.events)}/s{marks(one)}, {latency}, {one.cpu:.1f} µs"


_EXPLANATION = f"""Latency (median / 99th percentile, from a publish to its delivery; of the replay,
to the first event); of the replay also events a second and processor time of the broker for an
event. 300 bytes each. svcbroker has every publish on disk, in a block that its replicas have
signed, before it delivers it; the others have it in memory.

{MARKS}"""
