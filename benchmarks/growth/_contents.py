"""
How large what is published is.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

from attrs import frozen

from ._asking import Speed, getEvents, measure, openTopics, publishOne
from ._daemon import Daemon

SIZES = (100, 1_024, 10_240, 102_400, 1_048_576)
_CLIENTS = 8
_SEED = 22


@frozen(kw_only=True)
class Contents:
    """
    What was measured with contents of some size.

    @ivar size: their size in bytes.
    @ivar publish: how they were published, each in a request of its own.
    @ivar getEvent: how they were read.
    @ivar disk: bytes on disk for each event.
    @ivar memory: the most bytes of memory that the daemon had.
    """

    size: int
    publish: Speed
    getEvent: Speed
    disk: float
    memory: int


def measureContents(
    home: Path, cores: set[int], sizes: Sequence[int], seconds: float
) -> Sequence[Contents]:
    """
    Publish and read contents of each size, on a new chain each.

    @param home: an empty directory.
    @raise Broken: an answer was wrong.
    """
    return [_measure(home / str(size), cores, size, seconds) for size in sizes]


def _measure(home: Path, cores: set[int], size: int, seconds: float) -> Contents:
    with Daemon(home, cores, ["--max-content", str(max(SIZES))]) as daemon:
        daemon.start()
        openTopics(daemon, ["bench"])
        publish = measure(daemon, publishOne(["bench"], size), _CLIENTS, seconds)
        print(f"{size} bytes: {publish.rate:.0f} publishes a second", file=sys.stderr)
        reads = getEvents(daemon.chain, Random(_SEED), size, _CLIENTS)
        found = Contents(
            size=size,
            publish=publish,
            getEvent=measure(daemon, reads, _CLIENTS, seconds),
            disk=daemon.diskBytes() / daemon.events(),
            memory=daemon.peakMemory(),
        )
        daemon.stop()
    return found
