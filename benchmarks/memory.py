"""
Whether memory stays flat while a million events are published.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter

from svcbroker.commands.bench import Broken

from .children import separateCores
from .loader import drive
from .servers import startDaemon
from .wires.http import TOPIC, rpc

BATCH = 100
CLIENTS = 4
SAMPLES = 20
LONGEST = 1200.0
"""Seconds after which it is given up."""


def measureMemory(home: Path, events: int) -> tuple[str, Sequence[Mapping[str, float]]]:
    """
    Publish events in batches, and look at the daemon's memory now and then.

    @return: the table as Markdown, and the samples.
    @raise Broken: an answer was wrong, events are missing, or it takes too long.
    """
    serverCores, loadCores = separateCores()
    os.sched_setaffinity(0, loadCores)
    daemon = startDaemon(home / "daemon", serverCores)
    samples: list[dict[str, float]] = []
    began = perf_counter()

    def sample(done: int) -> None:
        samples.append(
            {"events": done, "seconds": perf_counter() - began, "rss": daemon.memory() / 2**20}
        )
        print(f"{done} events: {samples[-1]['rss']:.1f} MiB", file=sys.stderr)

    try:
        daemon.call("/rest/open", topic=TOPIC)
        sample(0)
        done = 0
        step = max(1, events // SAMPLES // BATCH)
        while done < events:
            left = LONGEST - (perf_counter() - began)
            if left <= 0:
                raise Broken(f"{done} events have taken {LONGEST:g} seconds")
            measured = drive(daemon.ports[0], rpc(BATCH), CLIENTS, left, step)
            done += measured.events
            sample(done)
        number = daemon.call("/rest/state", topic=TOPIC)["sequenceNumber"]
        if number != done:
            raise Broken(f"{done} publishes were acknowledged, the topic has {number}")
    finally:
        daemon.stop()
    lines = ["| events | seconds | resident memory, MiB |", "|--:|--:|--:|"]
    lines += [f"| {s['events']:.0f} | {s['seconds']:.0f} | {s['rss']:.1f} |" for s in samples]
    return "\n".join(lines), samples
