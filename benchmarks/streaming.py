"""
Streaming, side by side with the brokers of others: C{python -m benchmarks --streaming}.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from socket import socket
from statistics import median
from time import perf_counter
from typing import Any

from attrs import asdict, frozen

from .brokers_old import TOPIC, Broker, Missing, startDaemon, startMosquitto, startRabbit
from .children import separateCores
from .load import Broken, Measured
from .report import percentile
from .streamload import driveFanOut, driveNotify, drivePublishes, driveReplay, gather
from .wires_old import Publishing, mqttPublishing, stompPublishing

LEDGERS = ("pbft", "pbft:interval=0")
IDLE_SUBSCRIBERS = 10_000
IDLE_SECONDS = 120.0
"""After so long a broker that takes its time is given up."""
REPLAYED = 100_000
"""How many events the topic has that is replayed."""
FAN_TOPIC = "fan"
NOTIFY_TOPIC = "notify"
REPLAY_TOPIC = "replay"


@frozen(kw_only=True)
class Found:
    """
    One measurement, or the median of several.

    @ivar rate: events a second.
    @ivar p50: the median latency in milliseconds; C{p99} in the same way.
    @ivar cpu: microseconds of the broker's processor time for an event.
    @ivar clientShare: see L{Measured.clientShare}.
    """

    rate: float
    p50: float
    p99: float
    cpu: float
    clientShare: float

    @classmethod
    def of(cls, measured: Measured, cpu: float) -> Found:
        """
        @param cpu: seconds of processor time that the broker used for it.
        """
        latencies = sorted(measured.latencies)
        return cls(
            rate=measured.events / measured.seconds,
            p50=percentile(latencies, 50) * 1000,
            p99=percentile(latencies, 99) * 1000,
            cpu=cpu / measured.events * 1e6,
            clientShare=measured.clientShare,
        )


@frozen(kw_only=True)
class Row:
    """
    One row of the table.

    @ivar drive: puts the load on a broker, for so many seconds.
    @ivar onlyOurs: why other brokers have no such thing, if they have not.
    @ivar needsStomp: whether it is about STOMP.
    @ivar isLatency: whether the latency is what matters.
    @ivar isCounted: whether the events in the log are compared with what was acknowledged.
    """

    name: str
    drive: Callable[[Broker, float], Measured]
    onlyOurs: str = ""
    needsStomp: bool = False
    isLatency: bool = False
    isCounted: bool = False


def _publishes(protocol: str, connections: int, window: int) -> Row:
    def drive(broker: Broker, seconds: float) -> Measured:
        publishing: Publishing
        if protocol == "MQTT QoS 1":
            port, publishing = broker.mqtt, mqttPublishing(TOPIC)
        else:
            assert broker.stomp is not None
            port, publishing = broker.stomp, stompPublishing(broker.destination)
        return drivePublishes(port, publishing, connections, window, seconds)

    return Row(
        name=f"{protocol} publishes, {connections} x {window}",
        drive=drive,
        needsStomp=protocol != "MQTT QoS 1",
        isCounted=True,
    )


def _fanOut(subscribers: int, qos: int) -> Row:
    return Row(
        name=f"MQTT fan-out, 1 to {subscribers}, QoS {qos}, deliveries",
        drive=lambda broker, seconds: driveFanOut(
            broker.mqtt, FAN_TOPIC, subscribers, qos, seconds
        ),
    )


def _replay(broker: Broker, seconds: float) -> Measured:
    assert broker.daemon is not None
    known: int = broker.daemon.call("/rest/state", topic=REPLAY_TOPIC)["sequenceNumber"]
    return driveReplay(broker.mqtt, REPLAY_TOPIC, known)


ROWS: Sequence[Row] = (
    *(_publishes("MQTT QoS 1", clients, window) for clients in (1, 32) for window in (1, 32, 256)),
    *(_fanOut(subscribers, qos) for subscribers in (10, 100) for qos in (0, 1)),
    *(_publishes("STOMP", clients, window) for clients in (1, 32) for window in (1, 32, 256)),
    Row(
        name="MQTT notify latency",
        drive=lambda broker, seconds: driveNotify(broker.mqtt, NOTIFY_TOPIC, seconds),
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
        done += drivePublishes(broker.mqtt, mqttPublishing(REPLAY_TOPIC), 1, 256, 1.0).events


def _measure(row: Row, broker: Broker, seconds: float) -> Found:
    broker.refresh()
    before = _sequence(broker) if row.isCounted else 0
    warmUp = 0 if row.onlyOurs else row.drive(broker, min(seconds, 0.2)).events
    cpu = broker.cpu()
    gc.disable()
    try:
        measured = row.drive(broker, seconds)
    finally:
        gc.enable()
    found = Found.of(measured, broker.cpu() - cpu)
    if row.isCounted and broker.daemon is not None:
        new, acknowledged = _sequence(broker) - before, warmUp + measured.events
        if new != acknowledged:
            raise Broken(f"{acknowledged} publishes were acknowledged, the topic has {new} more")
    return found


def _sequence(broker: Broker) -> int:
    if broker.daemon is None:
        return 0
    number: int = broker.daemon.call("/rest/state", topic=TOPIC)["sequenceNumber"]
    return number


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
    for each in gather(broker.mqtt, 10, perf_counter() + IDLE_SECONDS):
        each.close()
    before = broker.memory()
    opened: Sequence[socket] = ()
    try:
        opened = gather(broker.mqtt, subscribers, perf_counter() + IDLE_SECONDS)
        return f"{(broker.memory() - before) / subscribers:,.0f}".replace(",", " ")
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
            *(partial(startDaemon, ledger=ledger, cores=serverCores) for ledger in LEDGERS),
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
                        f"{one.rate:.0f}/s, {one.p50:.2f} ms",
                        file=sys.stderr,
                    )
    idle = [
        _idle(partial(start, home / f"idle{number}"), subscribers)
        for number, start in enumerate(starts)
    ]
    results = {key: _middle(each) for key, each in found.items()}
    text = _table(brokers, results, idle, subscribers)
    numbers = [
        {"load": ROWS[number].name, "broker": name, **asdict(one)}
        for (number, name), one in results.items()
    ]
    return "\n\n".join([text, *missing, _NOTES]), numbers


def _reason(row: Row, broker: Broker) -> str:
    """Why a row has no number for a broker; nothing where it has one."""
    if row.onlyOurs and broker.daemon is None:
        return row.onlyOurs
    return "it has no STOMP" if row.needsStomp and broker.stomp is None else ""


def _middle(rounds: Sequence[Found]) -> Found:
    each = [asdict(one) for one in rounds]
    return Found(**{name: median(one[name] for one in each) for name in each[0]})


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
    mark = " (1)" if one.clientShare > 0.9 else ""
    return f"{one.rate:,.0f}".replace(",", " ") + f"/s{mark}, {latency}, {one.cpu:.1f} µs"


_NOTES = """Events a second, then latency (median / 99th percentile; for publishes from the first
of a write to its acknowledgement), then processor time of the broker for an event. Publishes:
connections x publishes under way on each. 300 bytes each, MQTT 3.1.1. svcbroker has every publish
on disk, in a block that its replicas have signed, before it acknowledges or delivers it; RabbitMQ
has those of the rows of publishes on disk (quorum queue), not those of the others; mosquitto has
everything in memory. (1) The load program was as busy as it can be: the broker may be faster."""
