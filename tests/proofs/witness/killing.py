"""
Kills a witness many times while a log offers it two histories: C{python -m
tests.proofs.witness.killing
DIRECTORY KILLS}. It exits with 1 where cosignatures contradict each other.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

from svcbroker.proofs.tlog import CheckpointRefused, VerifierKey
from svcbroker.proofs.witness import Witness

from ..tlog.support import MemoryLog

COMMON = 5
"""Up to this size, both histories are the same."""
LONGEST = 0.02
"""The longest life of a witness, in seconds, after it has given the cosignatures waited for."""
AWAITED = 3
"""Fewer cosignatures than this are waited for: on a slow disk there are no more."""


def main(directory: Path, kills: int) -> int:
    """Run and kill."""
    logs = [MemoryLog(20_000)]
    logs.append(logs[0].forked(COMMON))
    keys = {logs[0].key.verifier.name: [logs[0].key.verifier]}
    lines: list[bytes] = []
    for number in range(kills):
        reading, writing = os.pipe()
        process = os.fork()
        if not process:
            os.close(reading)
            runWitness(directory, keys, logs, writing, random.Random(number))
        os.close(writing)
        with open(reading, "rb") as pipe:
            # The first byte says that the files are open.
            pipe.read(1)
            lines += [pipe.readline().rstrip(b"\n") for _ in range(random.randrange(AWAITED))]
            time.sleep(random.random() * LONGEST)
            os.kill(process, signal.SIGKILL)
            lines += pipe.read().split(b"\n")[:-1]
        os.waitpid(process, 0)
    roots: set[int] = set()
    sizes: list[int] = []
    for line in lines:
        size, branch = map(int, line.split())
        sizes.append(size)
        if size > COMMON:
            roots.add(branch)
    witness = Witness.open(directory, keys, time.time)
    seen = next(iter(witness.seen.values()))
    isKnown = seen.head.size >= max(sizes)
    sys.stdout.write(
        f"{kills} kills, {len(lines)} cosignatures, branches {sorted(roots)}, up to size "
        f"{max(sizes)}, on disk {seen.head.size}\n"
    )
    return 0 if len(roots) == 1 and sizes == sorted(sizes) and isKnown else 1


def runWitness(
    directory: Path,
    keys: dict[str, list[VerifierKey]],
    logs: list[MemoryLog],
    writing: int,
    dice: random.Random,
) -> None:
    """A witness that is asked until it is killed."""
    witness = Witness.open(directory, keys, time.time)
    os.write(writing, b".")
    origin = next(iter(keys))
    while True:
        older = witness.seen[origin].head.size if witness.seen else 0
        newer = older + dice.randrange(0, 3)
        branch = dice.randrange(2)
        try:
            witness.addCheckpoint(logs[branch].request(older, newer).encode())
        except CheckpointRefused:
            continue
        os.write(writing, b"%d %d\n" % (newer, branch))


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), int(sys.argv[2])))
