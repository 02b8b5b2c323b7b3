"""
What it costs to make the tree of statements of SCITT from the log: C{python -m
benchmarks.statementtrees [COUNT [TOGETHER]]}.

A child makes a chain of so many statements, with so many in each block; others make the tree of it,
without its file, and begin with the file that is there. What is shown is the time, the processor
time of the longest turn of the reactor's thread, and how the memory has grown.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import msgspec
from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall, react

from svcbroker.carriers.scitt.statementtree import StatementTree
from svcbroker.daemon.dependencies import LedgerThread
from svcbroker.interfaces import LedgerContext
from svcbroker.ledgers import pbft
from svcbroker.model import OpenTopic, PublishEvent
from svcbroker.net.budgets import WorkBudget
from svcbroker.proofs.scitt import (
    KEY_TOPIC,
    Claims,
    Issuer,
    KeyRecord,
    RegistrationPolicy,
    ServiceKey,
)
from svcbroker.storage import TreeFile

from .children import household

COUNT: Final = 10_000
TOGETHER: Final = 2
TOPIC: Final = "statements"
SERVICE: Final = ServiceKey.derive(b"service".ljust(32))
ISSUER: Final = ServiceKey.derive(b"issuer".ljust(32), "EdDSA")
CLAIMS: Final = Claims(issuer="https://acme.example", subject="urn:thing")
POLICY: Final = RegistrationPolicy.of([Issuer(name=CLAIMS.issuer, key=ISSUER.public)])


def statement(number: int) -> bytes:
    """A statement with a payload of 300 bytes."""
    claims = Claims(issuer=CLAIMS.issuer, subject=f"urn:{number}")
    return ISSUER.statement(claims, "text/plain", b"x" * 300)


class Chain:
    """
    A chain of the embedded ledger in a directory, in this process.
    """

    def __init__(self, reactor: Any, root: Path) -> None:
        self.reactor = reactor
        self.root = root
        self._threads = [LedgerThread(reactor, name) for name in ("ledger", "scitt")]
        self.thread = self._threads[1]
        context = LedgerContext(
            group="1",
            directory=root / "1",
            reactor=reactor,
            now=time.time,
            entropy=os.urandom,
            runInThread=self._threads[0].run,
            runBriefly=self._threads[0].runBriefly,
            maxContent=1 << 20,
        )
        self.ledger: Any = pbft.configure({})(context)

    async def stop(self) -> None:
        """Close it."""
        await self.ledger.stop()
        for each in self._threads:
            each.stop()

    async def publish(self, topic: str, *contents: bytes) -> None:
        """Publish events in one block."""
        requests = [PublishEvent(topic=topic, content=each, extensions={}) for each in contents]
        await self.ledger.submitMany(requests).done

    async def make(self, count: int, together: int) -> None:
        """Make a chain with statements."""
        await self.ledger.submitMany([OpenTopic(topic=each) for each in (KEY_TOPIC, TOPIC)]).done
        await self.publish(KEY_TOPIC, msgspec.json.encode(KeyRecord.of("x", SERVICE.public)))
        documents = POLICY.documents()
        await self.publish(TOPIC, *(SERVICE.statement(CLAIMS, *each) for each in documents))
        for first in range(0, count, together):
            last = min(count, first + together)
            await self.publish(TOPIC, *map(statement, range(first, last)))


class Turns:
    """
    The processor time of the longest turn.
    """

    def __init__(self) -> None:
        self.longest = 0.0
        self._last = time.thread_time()

    def tick(self) -> None:
        """Called in each turn."""
        now = time.thread_time()
        self.longest = max(self.longest, now - self._last)
        self._last = now


async def measure(chain: Chain, count: int) -> None:
    """Make the tree, and print what it costs."""
    path = chain.root / "1" / "scitt" / "tree.sqlite"
    tree = StatementTree(
        *(chain.ledger, TOPIC, lambda: TreeFile(path, b"owner"), None, chain.reactor),
        *(chain.thread.run, chain.thread.runBriefly, WorkBudget(chain.reactor)),
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began, cpu, turns = time.monotonic(), time.process_time(), Turns()
    ticking = LoopingCall(turns.tick)
    ticking.start(0.0005)
    await tree.start()
    await tree.reach(1)
    took, used = time.monotonic() - began, time.process_time() - cpu
    ticking.stop()
    assert tree.state.size == count + 2, tree.state.size
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    size = sum(each.stat().st_size for each in path.parent.iterdir()) / count
    print(
        f"{took:8.2f} s, {used:8.2f} s of processor time, longest turn "
        f"{1000 * turns.longest:.0f} ms, {grown:.0f} MiB more memory, {size:.0f} bytes a statement",
        flush=True,
    )
    await tree.stop()


def child(root: Path, what: str, count: int, together: int) -> None:
    """One of the children."""

    def run(reactor: Any) -> Deferred[None]:
        async def act() -> None:
            chain = Chain(reactor, root)
            await chain.ledger.start()
            if what == "make":
                await chain.make(count, together)
            else:
                await measure(chain, count)
            await chain.stop()

        return Deferred.fromCoroutine(act())

    react(run)


def main() -> None:
    """Measure, and print the figures."""
    words = sys.argv[1:]
    if len(words) == 4:
        child(Path(words[0]), words[1], int(words[2]), int(words[3]))
        return
    count, together = [*map(int, words), *(COUNT, TOGETHER)[len(words) :]]
    with household(), tempfile.TemporaryDirectory() as root:
        for what in ("make", "from the log", "from its file"):
            print(f"{what}: {count} statements, {together} in a block: ", end="", flush=True)
            command = [sys.executable, "-m", "benchmarks.statementtrees", root, what]
            began = time.monotonic()
            subprocess.run([*command, str(count), str(together)], check=True)
            if what == "make":
                print(f"{time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main()
