"""
How many clients there are.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from attrs import frozen

from ._asking import Speed, measure, openTopics, publishOne, stateOf
from ._daemon import Daemon

COUNTS = (1, 10, 100, 1_000, 10_000)
CONTENT = 300


@frozen(kw_only=True)
class Connections:
    """
    What was measured with some number of clients, each with one request under way.

    @ivar publish: how they published.
    @ivar state: how they asked for a topic's state.
    @ivar memory: the most bytes of memory that the daemon has had with up to as many.
    """

    count: int
    publish: Speed
    state: Speed
    memory: int


def measureConnections(
    home: Path, cores: set[int], counts: Sequence[int], seconds: float
) -> Sequence[Connections]:
    """
    Have one daemon serve more and more clients at once.

    @param home: an empty directory.
    @raise Broken: an answer was wrong.
    """
    found = []
    with Daemon(home, cores) as daemon:
        daemon.start()
        openTopics(daemon, ["bench"])
        for count in counts:
            publish = measure(daemon, publishOne(["bench"], CONTENT), count, seconds)
            print(f"{count} clients: {publish.rate:.0f} publishes a second", file=sys.stderr)
            state = measure(daemon, stateOf("bench"), count, seconds)
            memory = daemon.peakMemory()
            found.append(Connections(count=count, publish=publish, state=state, memory=memory))
        daemon.stop()
    return found
