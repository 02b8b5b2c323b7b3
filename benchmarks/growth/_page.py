"""
The report.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ..report import Chart, Point, Section, Series, amount, markdownTable
from ._asking import Speed
from ._chain import Length, Sample
from ._connections import Connections
from ._contents import Contents
from ._kept import Kept
from ._topics import Topics

T = TypeVar("T")

_MIB = 2**20
_CPU = "µs of the daemon's processor time"


def chainSection(lengths: Sequence[Length], samples: Sequence[Sample], content: int) -> Section:
    """
    What a chain's length changes.

    @param lengths: one or more, by rising length.
    @param content: the size of each event's content, in bytes.
    """
    first, last = lengths[0], lengths[-1]
    slower = ", ".join(
        f"{name} {last.speeds[name].cpu / first.speeds[name].cpu:.2f}" for name in first.speeds
    )
    pictures = [
        Chart(
            name="growth-chain-cpu",
            title="What is asked of a longer chain",
            xLabel="events in the chain",
            yLabel=_CPU,
            isLogX=True,
            series=_speeds(lengths, lambda each: each.events, lambda each: each.speeds),
        ),
        Chart(
            name="growth-chain-start",
            title="Start on a longer chain",
            xLabel="events in the chain",
            yLabel="seconds to ready",
            isLogX=True,
            series=[
                _series("after a stop", lengths, _events, lambda each: each.start.seconds),
                _series("its processor time", lengths, _events, lambda each: each.start.cpu),
                _series("after a crash", lengths, _events, lambda each: each.crashed.seconds),
            ],
        ),
        Chart(
            name="growth-chain-size",
            title="Memory and disk of a longer chain",
            xLabel="events in the chain",
            yLabel="MiB of memory after a start; bytes on disk for an event",
            isLogX=True,
            series=[
                _series("memory", lengths, _events, lambda each: each.start.memory / _MIB),
                _series("disk", lengths, _events, lambda each: each.disk),
            ],
        ),
    ]
    if samples:
        pictures.append(
            Chart(
                name="growth-chain-memory",
                title="Memory of one process while it publishes",
                xLabel="events that it has published",
                yLabel="MiB of memory",
                series=[_series("memory", samples, _events, lambda each: each.memory / _MIB)],
            )
        )
    text = (
        f"Processor time on {amount(last.events)} events against {amount(first.events)}: "
        f"{slower}. "
        "Each thing is asked for by 8 clients: events, topics and pages anywhere in the chain; "
        f"publishes of {content} bytes one by one by 32 clients, in batches by 4. A start is "
        "measured from the start of the process, Python and its imports included, to the first "
        "answer that the broker is ready; on "
        f"{amount(first.events)} events it takes {first.start.seconds:.2f} s, which is what Python "
        f"takes, and on {amount(last.events)} events {last.start.seconds:.2f} s.\n\n"
        + _lengthTable(lengths)
    )
    return Section(title="The length of the chain", text=text, pictures=pictures)


def _lengthTable(lengths: Sequence[Length]) -> str:
    header = ["events", "blocks", "start, s", "its CPU, s", "after a crash, s", "memory, MiB"]
    rows = [
        [
            amount(each.events),
            amount(each.blocks),
            f"{each.start.seconds:.2f}",
            f"{each.start.cpu:.2f}",
            f"{each.crashed.seconds:.2f}",
            amount(each.start.memory / _MIB),
            amount(each.disk),
            *(
                f"{amount(speed.rate)} ({amount(speed.cpu)})"
                for speed in map(each.speeds.__getitem__, lengths[0].speeds)
            ),
            *(
                f"{amount(run.cpu / each.events * 1e6)} ({amount(run.memory / _MIB)})"
                for run in each.commands.values()
            ),
        ]
        for each in lengths
    ]
    names = [f"{name}, 1/s (CPU µs)" for name in lengths[0].speeds]
    names += [f"{name}, CPU µs an event (MiB)" for name in lengths[0].commands]
    return markdownTable([*header, "disk, B an event", *names], rows, words=0)


def topicsSection(found: Sequence[Topics]) -> Section:
    """What the number of topics changes."""
    first, last = found[0], found[-1]
    weight = (last.start.memory - first.start.memory) / max(1, last.count - first.count)
    text = (
        "What is open is in memory: topics cost memory and time at a start, events do not. A topic "
        f"takes {amount(weight)} bytes. Events go to one topic after the other, so a block has a "
        "row for nearly each of its events where there are many topics. Topics are opened by "
        "JSON-RPC, by 32 clients; each call of a batch waits for the one before it."
    )
    pictures = [
        Chart(
            name="growth-topics-cpu",
            title="What is asked with more topics",
            xLabel="topics",
            yLabel=_CPU,
            isLogX=True,
            series=[
                *_speeds(found, _count, lambda each: each.speeds),
                _series("open", found, _count, lambda each: each.opened.cpu),
            ],
        ),
        Chart(
            name="growth-topics-start",
            title="Start with more topics",
            xLabel="topics",
            yLabel="seconds to ready",
            isLogX=True,
            series=[
                _series("after a stop", found, _count, lambda each: each.start.seconds),
                _series("its processor time", found, _count, lambda each: each.start.cpu),
            ],
        ),
        Chart(
            name="growth-topics-memory",
            title="Memory with more topics",
            xLabel="topics",
            yLabel="MiB of memory",
            isLogX=True,
            series=[
                _series("after a start", found, _count, lambda each: each.start.memory / _MIB),
                _series("after the load", found, _count, lambda each: each.memory / _MIB),
            ],
        ),
    ]
    return Section(title="The number of topics", text=text, pictures=pictures)


def contentsSection(found: Sequence[Contents]) -> Section:
    """What the size of contents changes."""
    text = "One publish a request, by 8 clients; then events are read anywhere, by 8 clients."
    pictures = [
        Chart(
            name="growth-contents-rate",
            title="Larger contents",
            xLabel="bytes of a content",
            yLabel="a second",
            isLogX=True,
            isLogY=True,
            series=[
                _series("publish", found, _size, lambda each: each.publish.rate),
                _series("getEvent", found, _size, lambda each: each.getEvent.rate),
            ],
        ),
        Chart(
            name="growth-contents-bytes",
            title="Bytes of contents published and read",
            xLabel="bytes of a content",
            yLabel="MiB a second",
            isLogX=True,
            isLogY=True,
            series=[
                _series("publish", found, _size, lambda each: each.publish.rate * each.size / _MIB),
                _series(
                    "getEvent", found, _size, lambda each: each.getEvent.rate * each.size / _MIB
                ),
            ],
        ),
        Chart(
            name="growth-contents-memory",
            title="Most memory, and disk for a byte of content",
            xLabel="bytes of a content",
            yLabel="MiB of memory; bytes on disk for a byte",
            isLogX=True,
            isLogY=True,
            series=[
                _series("memory", found, _size, lambda each: each.memory / _MIB),
                _series("disk", found, _size, lambda each: each.disk / each.size),
            ],
        ),
    ]
    return Section(title="The size of contents", text=text, pictures=pictures)


def connectionsSection(found: Sequence[Connections]) -> Section:
    """What the number of clients changes."""
    few, many = found[0], found[-1]
    weight = (many.memory - few.memory) / max(1, many.count - few.count)
    text = (
        "Each client has a connection of its own and one request under way on it: 300 bytes by "
        "POST, or a topic's state. With more clients than the daemon can serve at once, what one "
        "of them waits is in proportion to their number. A client takes "
        f"{amount(weight / 1024)} KiB of memory, what it has under way included."
    )
    pictures = [
        Chart(
            name="growth-connections-rate",
            title="More clients",
            xLabel="clients",
            yLabel="a second",
            isLogX=True,
            series=[
                _series("publish", found, _count, lambda each: each.publish.rate),
                _series("state", found, _count, lambda each: each.state.rate),
            ],
        ),
        Chart(
            name="growth-connections-cpu",
            title="Processor time with more clients",
            xLabel="clients",
            yLabel=_CPU,
            isLogX=True,
            series=[
                _series("publish", found, _count, lambda each: each.publish.cpu),
                _series("state", found, _count, lambda each: each.state.cpu),
            ],
        ),
        Chart(
            name="growth-connections-latency",
            title="Waiting for a publish with more clients",
            xLabel="clients",
            yLabel="ms",
            isLogX=True,
            isLogY=True,
            series=[
                _series("median", found, _count, lambda each: each.publish.p50),
                _series("99 %", found, _count, lambda each: each.publish.p99),
            ],
        ),
        Chart(
            name="growth-connections-memory",
            title="Memory with more clients",
            xLabel="clients",
            yLabel="MiB of memory at most",
            isLogX=True,
            series=[_series("memory", found, _count, lambda each: each.memory / _MIB)],
        ),
    ]
    return Section(title="The number of connections", text=text, pictures=pictures)


def keptSection(name: str, found: Sequence[Kept]) -> Section:
    """
    What the number of something that is kept changes.

    @param name: what it is.
    """
    few, many = found[0], found[-1]
    weight = (many.start.memory - few.start.memory) / max(1, many.count - few.count)
    header = [name, "made, CPU µs each", "start, s", "its CPU, s", "memory, MiB", "after, MiB"]
    rows = [
        [
            amount(each.count),
            amount(each.made.cpu) if each.made else "-",
            f"{each.start.seconds:.2f}",
            f"{each.start.cpu:.2f}",
            amount(each.start.memory / _MIB),
            amount(each.memory / _MIB),
            *(f"{amount(speed.cpu)} ({amount(speed.p50)})" for speed in each.speeds.values()),
        ]
        for each in found
    ]
    names = [f"{each}, CPU µs (p50 ms)" for each in few.speeds]
    return Section(
        title=f"The number of {name}",
        text=f"{_KEPT[name]} One takes {amount(weight / 1024)} KiB of memory.\n\n"
        + markdownTable([*header, *names], rows, words=0),
    )


_KEPT = {
    "retained messages": "Each has a topic of its own, and 300 bytes. A client subscribes with a "
    "filter that matches one of them. They are made by 500 at once.",
    "sessions": "Sessions of MQTT whose clients are gone, with a filter each. Events are published "
    "that match none of them, and then one.",
    "groups": "Each has a chain of its own. Events are published in the first one.",
}


def _events(each: Length | Sample) -> float:
    return each.events


def _count(each: Topics | Connections) -> float:
    return each.count


def _size(each: Contents) -> float:
    return each.size


def _series(
    name: str, found: Sequence[T], x: Callable[[T], float], y: Callable[[T], float]
) -> Series:
    return Series(name, [Point(x(each), y(each)) for each in found])


def _speeds(
    found: Sequence[T], x: Callable[[T], float], speeds: Callable[[T], dict[str, Speed]]
) -> Sequence[Series]:
    def named(name: str) -> Series:
        return _series(name, found, x, lambda each: speeds(each)[name].cpu)

    return [named(name) for name in speeds(found[0])]
