"""
What all brokers have in common.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from attrs import define

from svcbroker.commands.bench import Broken

from ..children import START_SECONDS, Missing, cpuOf, familyOf, memoryOf, stop
from ..servers import Server

TOPIC = "bench"
"""What is published to; a queue or a stream of this name gets it."""


@define(eq=False, kw_only=True)
class Broker:
    """
    A broker that runs.

    @ivar name: how it is called in tables.
    @ivar version: as it says.
    @ivar processes: the children; all that descends from them belongs to it.
    @ivar ports: where it speaks what: C{http}, C{mqtt}, C{stomp}, C{amqp}, C{resp}, C{nats}.
    @ivar destination: what a STOMP client sends to.
    @ivar count: how many events it has of a topic; C{None} where it keeps none.
    @ivar refresh: called before a measurement: forgets what earlier ones have left.
    @ivar daemon: svcbroker's REST interface, where it is one.
    """

    name: str
    version: str
    processes: Sequence[subprocess.Popen[str]]
    ports: Mapping[str, int]
    destination: str = TOPIC
    count: Callable[[str], int | None] = lambda topic: None
    refresh: Callable[[], None] = lambda: None
    daemon: Server | None = None

    def cpu(self) -> float:
        """Seconds of processor time that all its processes have used."""
        return sum(map(cpuOf, self._pids()))

    def memory(self) -> int:
        """Bytes of memory that are its own now."""
        return sum(map(memoryOf, self._pids()))

    def _pids(self) -> Sequence[int]:
        if any(process.poll() is not None for process in self.processes):
            raise Broken(f"{self.name} has ended")
        return familyOf([process.pid for process in self.processes])

    def stop(self) -> None:
        """End it."""
        stop(self.processes)


def versionOf(command: Sequence[str | Path], pattern: str = r"(\d+(?:\.\d+)+)") -> str:
    """
    What a program says of its version.

    @raise Missing: it says nothing of the kind.
    """
    done = subprocess.run(command, capture_output=True, timeout=START_SECONDS)
    found = re.search(pattern, (done.stdout + done.stderr).decode("utf-8", "replace"))
    if found is None:
        raise Missing(f"{command[0]} does not say its version")
    return found[1]
