"""
Starts everything, and measures in turn.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter, sleep

import msgspec
from attrs import define, field

from svcbroker.commands.bench import TIMEOUT, Broken

from ..brokers import (
    TOPIC,
    Broker,
    startBare,
    startDaemon,
    startGo,
    startMosquitto,
    startNats,
    startNode,
    startRabbit,
    startRedis,
)
from ..children import Missing, busyOf, separateCores
from ..found import WARM_UP, Found
from ..loader import connected, drive, driveOn
from ..report import middle
from ..wires.http import rpcText
from ._cases import CASES, FAN_TOPIC, Case, Subject, Table

KNOWN_EVENTS = 1000
"""How many events are read one after the other."""
IDLE_SECONDS = 2.0
NOT_ASKED_FOR = "not asked for"


@define(eq=False)
class Comparison:
    """
    What was found.

    @ivar rounds: of each case, one after the other.
    @ivar versions: of what was measured.
    @ivar missing: why something could not be measured.
    @ivar idle: the share of the servers' processor that all of them use together while nothing is
        asked of them.
    """

    rounds: dict[Case, list[Found]] = field(factory=dict)
    versions: dict[Subject, str] = field(factory=dict)
    missing: dict[Subject, str] = field(factory=dict)
    idle: float = 0.0

    def median(self, case: Case) -> Found | None:
        """The median of each number; C{None} where it was not measured."""
        rounds = self.rounds.get(case)
        return middle(rounds) if rounds else None


def _starts(cores: set[int]) -> Mapping[tuple[Subject, ...], Callable[[Path], Sequence[Broker]]]:
    def one(start: Callable[[Path, set[int]], Broker]) -> Callable[[Path], Sequence[Broker]]:
        return lambda directory: [start(directory, cores)]

    return {
        (Subject.SVCBROKER,): one(startDaemon),
        (Subject.REDIS,): one(startRedis),
        (Subject.NATS,): one(startNats),
        (Subject.RABBIT,): one(startRabbit),
        (Subject.MOSQUITTO,): one(startMosquitto),
        (Subject.NODE,): one(startNode),
        (Subject.GO,): one(startGo),
        (Subject.KLEIN_HELLO, Subject.RESOURCE_HELLO): lambda directory: startBare(
            directory, cores
        ),
    }


def compare(home: Path, seconds: float, rounds: int, only: Sequence[str] = ()) -> Comparison:
    """
    Measure all cases, in turn, several times: there and back, and what is compared one soon after
    the other, so that a machine that is busy with something else spoils little.

    @param home: an empty directory.
    @param only: parts of the names of what is measured; all where there are none.
    @raise Broken: an answer was wrong, or events are not there.
    """
    serverCores, loadCores = separateCores()
    os.sched_setaffinity(0, loadCores)
    comparison = Comparison()
    brokers: dict[Subject, Broker] = {}
    known: dict[Subject, Sequence[str]] = {}
    with ExitStack() as stack:
        for whos, start in _starts(serverCores).items():
            if only and not any(word.lower() in who.value.lower() for word in only for who in whos):
                comparison.missing |= dict.fromkeys(whos, NOT_ASKED_FOR)
                continue
            try:
                started = start(home / whos[0].name.lower())
            except Missing as reason:
                comparison.missing |= dict.fromkeys(whos, str(reason))
                print(f"{whos[0].value}: {reason}", file=sys.stderr)
                continue
            stack.callback(started[0].stop)
            for who, broker in zip(whos, started, strict=True):
                brokers[who] = broker
                comparison.versions[who] = broker.version
                if broker.daemon is not None:
                    known[who] = publishKnown(broker)
        comparison.idle = _idleShare(list(brokers.values()))
        order = [case for table in Table for case in CASES if case.table is table]
        order = [case for case in order if case.who in brokers]
        for turn in range(rounds):
            for case in order if turn % 2 == 0 else reversed(order):
                found = measure(case, brokers[case.who], known.get(case.who, ()), seconds)
                comparison.rounds.setdefault(case, []).append(found)
                print(
                    f"round {turn + 1}/{rounds}: {case.who.value}, {case.load}, "
                    f"{case.connections} x {case.window}: {found.events:.0f}/s, "
                    f"{found.p50:.2f} ms, {found.cpu:.1f} µs",
                    file=sys.stderr,
                )
    return comparison


def _idleShare(brokers: Sequence[Broker]) -> float:
    began = perf_counter()
    before = [broker.cpu() for broker in brokers]
    sleep(IDLE_SECONDS)
    used = sum(broker.cpu() for broker in brokers) - sum(before)
    return used / (perf_counter() - began)


def measure(case: Case, broker: Broker, known: Sequence[str], seconds: float) -> Found:
    """
    Load a broker as a case says.

    @raise Broken: an answer was wrong, or the broker has other events than were acknowledged.
    """
    cores = os.sched_getaffinity(broker.processes[-1].pid) | os.sched_getaffinity(0)
    load, port = case.make(broker, known), broker.ports[case.protocol]
    if case.topic is not None:
        broker.refresh()
    before = None if case.topic is None else broker.count(case.topic)
    warmUp = drive(port, load, case.connections, min(seconds / 4, WARM_UP))
    with connected(port, load, case.connections) as sockets:
        cpu, busy = broker.cpu(), busyOf(cores)
        measured = driveOn(sockets, load, seconds)
        found = Found.of(measured, broker.cpu() - cpu, busyOf(cores) - busy)
    if case.topic is not None and before is not None:
        acknowledged = (warmUp.events + measured.events) // case.subscribers
        _verify(broker, case.topic, before + acknowledged)
    return found


def _verify(broker: Broker, topic: str, expected: int) -> None:
    """
    Make sure that a broker has what it has acknowledged, and nothing else.

    RabbitMQ's counts come some seconds late.
    """
    deadline = perf_counter() + TIMEOUT
    while (count := broker.count(topic)) != expected:
        if perf_counter() > deadline or broker.daemon is not None:
            raise Broken(f"{broker.name} should have {expected} events, but has {count}")
        sleep(0.1)


def publishKnown(broker: Broker) -> Sequence[str]:
    """
    Publish events to be read, and open what subscribers need.

    @return: the ids of the events.
    """
    assert broker.daemon is not None
    if broker.daemon.call("/rest/open", topic=FAN_TOPIC) is not True:
        raise Broken("a topic cannot be opened")
    ids: list[str] = []
    while len(ids) < KNOWN_EVENTS:
        answers = msgspec.json.decode(broker.daemon.post("/jsonrpc", rpcText(100)))
        ids += [answer["result"]["eventId"] for answer in answers]
    if len(set(ids)) != len(ids) or broker.count(TOPIC) != len(ids):
        raise Broken("the events to be read are not there")
    return ids
