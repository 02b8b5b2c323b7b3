"""
How long the chain is.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from statistics import median

from attrs import frozen

from svcbroker.commands.bench import Broken

from ..loader import drive
from ._asking import (
    CLIENTS,
    Speed,
    blockLists,
    getEvents,
    measure,
    openTopics,
    publishMany,
    publishOne,
    states,
    topicLists,
    transactionLists,
)
from ._daemon import Daemon, Run

SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
TOPICS = tuple(f"bench/{number}" for number in range(100))
CONTENT = 300
"""The size of what is published where nothing else is wanted, in bytes."""
SAMPLES = 40
"""How often memory is looked at while one process makes the chain longer."""

_BUILDING_BATCH = 1000
_BUILDERS = 4
_PUBLISHERS = 32
_STARTS = 3
_SEED = 20


@frozen(kw_only=True)
class Length:
    """
    What was measured on a chain of some length.

    @ivar events: how many transactions it had when it was looked at.
    @ivar blocks: in how many blocks.
    @ivar disk: bytes on disk for each event.
    @ivar start: a start after an orderly stop.
    @ivar crashed: a start after a crash.
    @ivar speeds: of each thing that was asked.
    @ivar commands: what each command took that reads all of it, with its daemon beside it.
    """

    events: int
    blocks: int
    disk: float
    start: Run
    crashed: Run
    speeds: dict[str, Speed]
    commands: dict[str, Run]


@frozen(kw_only=True)
class Sample:
    """
    @ivar events: how many events one process had published.
    @ivar memory: bytes of memory that it had then.
    """

    events: int
    memory: int


def sizesUpTo(events: int) -> Sequence[int]:
    """The lengths at which a chain is looked at that is to become so long."""
    return [*(size for size in SIZES if size < events), events]


def measureChain(
    home: Path, cores: set[int], events: int, seconds: float, content: int
) -> tuple[Sequence[Length], Sequence[Sample]]:
    """
    Make a chain longer and longer, and look at it now and then.

    @param home: an empty directory.
    @param cores: the processors that the daemon may use.
    @param events: how long it is to become.
    @param seconds: how long each thing is asked.
    @param content: the size of each event's content, in bytes.
    @return: what was seen at each length, and the memory of the process that made the last, and
        longest, piece of the chain.
    @raise Broken: an answer was wrong, or events are missing.
    """
    lengths = []
    samples: Sequence[Sample] = ()
    with Daemon(home, cores) as daemon:
        daemon.start()
        openTopics(daemon, TOPICS)
        for size in sizesUpTo(events):
            samples = list(_build(daemon, size, content))
            daemon.kill()
            lengths.append(_look(daemon, seconds, content))
        daemon.stop()
    return lengths, samples


def measureExisting(
    home: Path, cores: set[int], data: Path, seconds: float, content: int
) -> Length:
    """
    Look at a chain that is there. What is published meanwhile stays in it.

    @param data: its data directory. It has topics and contents as L{measureChain} makes them.
    @raise Broken: an answer was wrong.
    """
    with Daemon(home, cores, data=data) as daemon:
        daemon.start()
        daemon.kill()
        found = _look(daemon, seconds, content)
        daemon.stop()
    return found


def _build(daemon: Daemon, size: int, content: int) -> Iterator[Sample]:
    """Publish until the chain is so long."""
    there, done = daemon.events(), 0
    missing = max(0, size - there)
    load = publishMany(TOPICS, content, _BUILDING_BATCH)
    while done < missing:
        batches = max(1, min(missing - done, -(-missing // SAMPLES)) // _BUILDING_BATCH)
        done += drive(daemon.port, load, _BUILDERS, 3600, batches).events
        yield Sample(events=done, memory=daemon.memory())
    if daemon.events() != there + done:
        raise Broken(f"{done} events were acknowledged, and {daemon.events() - there} are there")


def _look(daemon: Daemon, seconds: float, content: int) -> Length:
    """Look at a chain whose daemon has crashed. It runs when this returns."""
    crashed = daemon.start()
    starts = []
    for _ in range(_STARTS):
        daemon.stop()
        starts.append(daemon.start())
    found = daemon.call("/admin/group/general", groupId="1")["data"]
    events, blocks = int(found["transactionCount"]), int(found["latestBlock"])
    print(f"a chain of {events} events: {starts[-1].seconds:.2f} s to ready", file=sys.stderr)
    disk = daemon.diskBytes() / events
    random = Random(_SEED)
    reads = {
        "getEvent": getEvents(daemon.chain, random, content),
        "state": states(TOPICS, random),
        "list": topicLists(len(TOPICS), random),
        "blockList": blockLists(blocks, random),
        "transList": transactionLists(events, random),
    }
    speeds = {name: measure(daemon, load, CLIENTS, seconds) for name, load in reads.items()}
    copy = daemon.data.with_name("copy")
    commands = {
        "audit": daemon.command("chain", "audit", daemon.data),
        "backup": daemon.command("chain", "backup", daemon.data, copy),
    }
    shutil.rmtree(copy)
    # Last, since it makes the chain longer.
    one, many = publishOne(TOPICS[:1], content), publishMany(TOPICS, content)
    speeds["publish"] = measure(daemon, one, _PUBLISHERS, seconds)
    speeds["publish, batches of 100"] = measure(daemon, many, _BUILDERS, seconds)
    return Length(
        events=events,
        blocks=blocks,
        disk=disk,
        start=Run(
            seconds=median(each.seconds for each in starts),
            cpu=median(each.cpu for each in starts),
            memory=int(median(each.memory for each in starts)),
        ),
        crashed=crashed,
        speeds=speeds,
        commands=commands,
    )
