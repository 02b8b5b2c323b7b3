"""
How many topics there are.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

from attrs import frozen

from ._asking import CLIENTS, Speed, measure, openTopics, publishMany, states, topicLists
from ._daemon import Daemon, Run

COUNTS = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
CONTENT = 300
_PUBLISHERS = 4
_PUBLISHED = 100_000
"""To so many topics one publishes at most."""
_SEED = 21


@frozen(kw_only=True)
class Topics:
    """
    What was measured with some number of topics.

    @ivar opened: how they were opened.
    @ivar start: a start with them after an orderly stop.
    @ivar memory: bytes of memory after all of it.
    @ivar disk: bytes on disk after all of it.
    @ivar speeds: of each thing that was asked.
    """

    count: int
    opened: Speed
    start: Run
    memory: int
    disk: int
    speeds: dict[str, Speed]


def measureTopics(
    home: Path, cores: set[int], counts: Sequence[int], seconds: float
) -> Sequence[Topics]:
    """
    Open topics on a new chain, publish to all of them in turn, and start again.

    @param home: an empty directory.
    @param counts: how many topics; for each there is a new chain.
    @raise Broken: an answer was wrong.
    """
    return [_measure(home / str(count), cores, count, seconds) for count in counts]


def _measure(home: Path, cores: set[int], count: int, seconds: float) -> Topics:
    names = [f"bench/{number}" for number in range(count)]
    random = Random(_SEED)
    sampled = names if count <= _PUBLISHED else random.sample(names, _PUBLISHED)
    with Daemon(home, cores) as daemon:
        daemon.start()
        opened = openTopics(daemon, names)
        daemon.stop()
        start = daemon.start()
        print(f"{count} topics: {start.seconds:.2f} s to ready", file=sys.stderr)
        speeds = {
            "list": measure(daemon, topicLists(count, random), CLIENTS, seconds),
            "state": measure(daemon, states(names, random), CLIENTS, seconds),
            "publish, batches of 100": measure(
                daemon,
                publishMany(sampled, CONTENT, clients=_PUBLISHERS),
                _PUBLISHERS,
                seconds,
            ),
        }
        found = Topics(
            count=count,
            opened=opened,
            start=start,
            memory=daemon.memory(),
            disk=daemon.diskBytes(),
            speeds=speeds,
        )
        daemon.stop()
    return found
