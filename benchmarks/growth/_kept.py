"""
How much a broker keeps beside events: retained messages, sessions of MQTT, groups.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from socket import create_connection, socket
from time import perf_counter

from attrs import field, frozen

from svcbroker.commands.bench import TIMEOUT, Broken, ask, greet, packet, publishPacket, text

from ..wires.talk import readExactly
from ._asking import Speed, measure, openTopics, publishOne, speedOf
from ._daemon import Daemon, Run

CONTENT = 300
_PUBLISHERS = 32
_SEED = 22
_RETAIN = 1
_WINDOW = 500
"""How many retained messages are under way."""
_NAMES = 1000
"""To so many sessions one publishes."""


@frozen(kw_only=True)
class Kept:
    """
    What was measured with so many of what is kept.

    @ivar made: how they were made; C{None} where the daemon has them from its start.
    @ivar start: a start with them, after an orderly stop.
    @ivar memory: bytes of memory after all of it.
    @ivar speeds: of each thing that was asked.
    """

    count: int
    made: Speed | None
    start: Run
    memory: int
    speeds: dict[str, Speed]


@frozen(kw_only=True)
class Kind:
    """
    Something that a broker keeps.

    @ivar counts: how many there are.
    @ivar make: makes so many; C{None} where options do.
    @ivar options: the daemon's options for so many.
    @ivar asks: what is asked of a daemon that has so many, besides a publish that has nothing to do
        with them, for some seconds each.
    """

    counts: Sequence[int]
    make: Callable[[Daemon, int], Speed] | None = None
    options: Callable[[int], Sequence[str]] = lambda count: ()
    asks: Mapping[str, Callable[[Daemon, int, float], Speed]] = field(factory=dict)


def measureKept(home: Path, cores: set[int], kind: Kind, seconds: float) -> Sequence[Kept]:
    """
    Measure a daemon that keeps more and more. For each number there is a new chain.

    @param home: an empty directory.
    @raise Broken: an answer was wrong.
    """
    return [_measure(home / str(count), cores, kind, count, seconds) for count in kind.counts]


def _measure(home: Path, cores: set[int], kind: Kind, count: int, seconds: float) -> Kept:
    with Daemon(home, cores, kind.options(count)) as daemon:
        daemon.start()
        made = kind.make(daemon, count) if kind.make else None
        openTopics(daemon, ["bench"])
        daemon.stop()
        start = daemon.start()
        print(f"{home.parent.name} {count}: {start.seconds:.2f} s to ready", file=sys.stderr)
        publish = measure(daemon, publishOne(["bench"], CONTENT), _PUBLISHERS, seconds)
        asked = {name: each(daemon, count, seconds) for name, each in kind.asks.items()}
        memory = daemon.memory()
        daemon.stop()
    speeds = {"publish": publish, **asked}
    return Kept(count=count, made=made, start=start, memory=memory, speeds=speeds)


def _timed(daemon: Daemon, questions: Iterable[Callable[[], object]], each: int = 1) -> Speed:
    """
    Ask one thing after the other.

    @param each: for how many a question stands.
    """
    latencies = []
    cpu, began = daemon.cpu(), perf_counter()
    for question in questions:
        asked = perf_counter()
        question()
        latencies.append(perf_counter() - asked)
    return speedOf(each * len(latencies), perf_counter() - began, latencies, daemon.cpu() - cpu)


def _asked(daemon: Daemon, question: Callable[[int], object], count: int, seconds: float) -> Speed:
    """Ask about any of what is kept, for some seconds."""
    random, end = Random(_SEED), perf_counter() + seconds

    def questions() -> Iterator[Callable[[], object]]:
        while perf_counter() < end:
            yield partial(question, random.randrange(count))

    return _timed(daemon, questions())


def _connect(daemon: Daemon) -> socket:
    return create_connection(("127.0.0.1", daemon.mqttPort), TIMEOUT)


# Retained messages


def _retain(daemon: Daemon, count: int) -> Speed:
    """Have a retained message of each of so many topics."""
    window = min(count, _WINDOW)
    with _connect(daemon) as opened:
        greet(opened)

        def publish(first: int) -> None:
            some = range(first, first + window)
            for each in some:
                made = publishPacket(f"kept/{each}/x", 1, each - first + 1, b"x" * CONTENT)
                opened.sendall(bytes((made[0] | _RETAIN,)) + made[1:])
            if readExactly(opened, 4 * len(some))[::4] != b"\x40" * len(some):
                raise Broken("a retained message is refused")

        windows = [partial(publish, first) for first in range(0, count, window)]
        return _timed(daemon, windows, window)


def _match(daemon: Daemon, count: int, seconds: float) -> Speed:
    """Subscribe with wildcards that one retained message matches."""
    with _connect(daemon) as opened:
        greet(opened)

        def subscribe(number: int) -> None:
            names = text(f"+/{number}/#")
            ask(opened, packet(0x82, b"\0\1", names, b"\0"), b"\x90\3\0\1\0", b"x" * CONTENT)
            ask(opened, packet(0xA2, b"\0\1", names), b"\xb0\2\0\1")

        return _asked(daemon, subscribe, count, seconds)


# Sessions


def _return(daemon: Daemon, number: int, isThere: bool = True) -> socket:
    """A client with a session that is kept, which may have been there before."""
    connect = packet(0x10, text("MQTT"), bytes((4, 0, 0, 0)), text(f"kept{number}"))
    opened = _connect(daemon)
    ask(opened, connect, bytes((0x20, 2, isThere, 0)))
    return opened


def _leave(opened: socket) -> None:
    with opened:
        opened.sendall(b"\xe0\0")


def _topicsOf(count: int) -> Sequence[str]:
    """Topics that the filter of one session matches each."""
    return [f"kept/{number}/x" for number in range(min(count, _NAMES))]


def _keepSessions(daemon: Daemon, count: int) -> Speed:
    """Have so many sessions, each with a filter of its own, whose clients are gone."""

    def make(number: int) -> None:
        opened = _return(daemon, number, isThere=False)
        ask(opened, packet(0x82, b"\0\1", text(f"kept/{number}/+"), b"\1"), b"\x90\3\0\1\1")
        _leave(opened)

    openTopics(daemon, _topicsOf(count))
    return _timed(daemon, [partial(make, number) for number in range(count)])


def _comeAndGo(daemon: Daemon, count: int, seconds: float) -> Speed:
    return _asked(daemon, lambda number: _leave(_return(daemon, number)), count, seconds)


def _publishToSessions(daemon: Daemon, count: int, seconds: float) -> Speed:
    return measure(daemon, publishOne(_topicsOf(count), CONTENT), _PUBLISHERS, seconds)


KINDS: Mapping[str, Kind] = {
    "retained messages": Kind(
        counts=(10, 1_000, 100_000),
        make=_retain,
        asks={"SUBSCRIBE with wildcards, one message": _match},
    ),
    "sessions": Kind(
        counts=(10, 1_000, 10_000),
        make=_keepSessions,
        asks={
            "publish to one session": _publishToSessions,
            "a client comes and goes": _comeAndGo,
        },
    ),
    "groups": Kind(
        counts=(1, 10, 100, 1_000),
        options=lambda count: [
            word for number in range(1, count + 1) for word in ("--group", str(number))
        ],
    ),
}
