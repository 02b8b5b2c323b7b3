"""
A broker that is far behind an EVM chain: what reading blocks with batches takes, and a start with
what it has read. C{python -m benchmarks.behind}.

An own command, as it runs the ledger in its own reactor, and not as a daemon.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater, react
from twisted.internet.threads import deferToThread

from svcbroker.daemon.process import collectYoungOnly
from svcbroker.ledgers._jsonrpc import RpcCall
from svcbroker.ledgers._views import TransactionMaker
from svcbroker.ledgers.evm._contract import submitCall
from svcbroker.ledgers.evm._evmbatch import packBatch, senderOf
from svcbroker.ledgers.evm._evmrpc import (
    DIALECTS,
    EvmRpc,
    blockCall,
    connectChain,
    nonceCall,
    sendCall,
)
from svcbroker.ledgers.evm._sender import gasOf
from svcbroker.ledgers.evm.operating import EvmAccount
from svcbroker.ledgers.testnet.daemons import ANVIL, RunningChain, TestChain, findProgram, makeChain
from svcbroker.model import OpenTopic, PublishEvent

from .chains import content, openLedger, publish

TOGETHER: Final = 2000
"""The events of a request, as anvil takes two MiB. Each of its transactions becomes a block."""

DIFFERENT: Final = 5_000
"""The different contents of events."""

BEAT: Final = 0.005
"""Seconds between two looks at how long the turns are."""


class _QuickChain(TestChain):
    """One anvil, whose chain is not written to a file, and which keeps the last state alone."""

    def command(self, node: Any) -> Sequence[str]:
        words = list(super().command(node))
        return [*words[: words.index("--state")], "--prune-history"]


class Asked:
    """
    Counts the calls of nodes, and measures the longest turn of the reactor.
    """

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self.calls: Counter[str] = Counter()
        self.requests = 0
        self.held = 0.0
        self._last = time.thread_time()
        tryAll, post = EvmRpc.tryAll, EvmRpc._post

        def counting(rpc: EvmRpc, calls: Any, *maxAnswer: int) -> Any:
            self.calls.update(call.method for call in calls)
            return tryAll(rpc, calls, *maxAnswer)

        def posting(rpc: EvmRpc, body: bytes, maxAnswer: int) -> Any:
            self.requests += 1
            return post(rpc, body, maxAnswer)

        EvmRpc.tryAll = counting  # type: ignore[method-assign]
        EvmRpc._post = posting  # type: ignore[method-assign]
        self._beat()

    def _beat(self) -> None:
        # Of the processor, so that what else runs on this machine is not counted.
        now = time.thread_time()
        self.held = max(self.held, now - self._last)
        self._last = now
        self._call = self._reactor.callLater(BEAT, self._beat)

    def stop(self) -> None:
        """Look no more."""
        self._call.cancel()

    def tell(self, what: str, seconds: float) -> None:
        """Print a line."""
        print(
            f"{what}: {seconds:.1f} s, {memory():.0f} MiB, {self.requests} requests with "
            f"{self.calls['eth_getLogs']} calls for logs, turns of "
            f"{self.held * 1000:.0f} ms at most",
            flush=True,
        )


class Flooded:
    """
    A chain with many batches, which were handed in by no ledger that follows it.
    """

    def __init__(self, reactor: Any, options: Namespace, home: Path) -> None:
        self._reactor = reactor
        self._options = options
        self.home = home

    async def start(self) -> None:
        """Start the node, and open the topic."""
        chain = makeChain(
            self.home,
            2,
            None,
            kind=ANVIL,
            program=findProgram(ANVIL, None, os.environ),
            entropy=os.urandom,
        )
        self._chain = chain = _QuickChain(network=chain.network, program=chain.program)
        self._running = RunningChain(chain, self._reactor, lambda name, end: print(name, end))
        await self._running.start()
        self.rpc = connectChain(
            self._reactor, [f"http://127.0.0.1:{chain.nodes[0].ports['rpc']}"], DIALECTS["geth"]
        )
        self.description = self._describe(0)
        # Each transaction becomes a block at once.
        for method, value in (("evm_setIntervalMining", 0), ("evm_setAutomine", True)):
            await self.rpc.ask(RpcCall(method, (value,), bytes))
        ledger = await openLedger(self._reactor, self._describe(1), self.home / "first")
        await publish(ledger, OpenTopic(topic="t"))
        self._id = ledger.chain
        await ledger.stop()

    def _describe(self, number: int) -> str:
        node = self._chain.network.nodes[number]
        [text] = [
            line.partition('"')[2][:-1].replace("\\\\", "\\")
            for line in node.config.read_text().splitlines()
            if line.startswith("ledger =")
        ]
        return text.replace("dialect=geth", f"dialect={self._options.dialect}")

    async def flood(self) -> None:
        """Add blocks; some have a batch."""
        options = self._options
        account = EvmAccount.load(self._chain.keyOf(self._chain.network.nodes[1]))
        sender = senderOf(self._id, account.address)
        maker = TransactionMaker(self._id, sender, time.time, os.urandom)
        maker.resume(int(time.time() * 1_000_000))
        contents = cycle([content(number) for number in range(DIFFERENT)])
        nonce = await self.rpc.ask(nonceCall(account.address))
        empty = options.blocks // options.batches - 1
        together = max(1, TOGETHER // options.each)
        for begin in range(0, options.batches, together):
            calls = []
            for number in range(begin, min(begin + together, options.batches)):
                requests = [
                    PublishEvent(topic="t", content=next(contents)) for _ in range(options.each)
                ]
                data = submitCall(packBatch(self._id, maker.makeMany(requests)))
                signed = account.sign(
                    chainId=self._chain.id,
                    nonce=nonce + number,
                    gasPrice=0,
                    gas=gasOf(data),
                    to=self._chain.contract,
                    data=data,
                )
                calls.append(sendCall(signed.raw))
            # anvil loses some that come together.
            while await self.rpc.ask(nonceCall(account.address)) < nonce + begin + len(calls):
                await self.rpc.tryAll(calls)
            await self._mine(empty * len(calls))
        # Some blocks have got more than one.
        await self._mine(options.blocks - (await self.rpc.ask(blockCall("latest"))).height)

    async def _mine(self, count: int) -> None:
        if count > 0:
            await self.rpc.ask(RpcCall("anvil_mine", (hex(count),), bytes))

    async def stop(self) -> None:
        """End the node."""
        await self._running.stop()
        await self.rpc.close()


def memory() -> float:
    """MiB that this process has now."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


async def follow(reactor: Any, description: str, directory: Path, count: int) -> None:
    """Read what a chain has, in a process of its own, and say what it took."""
    # As in the daemon.
    collectYoungOnly()
    asked = Asked(reactor)
    begun = time.monotonic()
    ledger = await openLedger(reactor, description, directory)
    told = 0
    while True:
        topic: Any = ledger.topicState("t")
        sequence = topic.sequence if topic else 0
        if sequence >= count:
            break
        if sequence >= told + count / 5:
            told = sequence
            asked.tell(f"{sequence} events", time.monotonic() - begun)
        await deferLater(reactor, 0.05)
    asked.tell(f"{count} events", time.monotonic() - begun)
    # What a broker asks that has nothing to read.
    await deferLater(reactor, 2.0)
    print((await ledger.getHealth()).reason or "ready", flush=True)
    asked.stop()
    await ledger.stop()


async def measure(reactor: Any, options: Namespace, home: Path) -> None:
    """Make a chain, read it, and start again."""
    flooded = Flooded(reactor, options, home)
    await flooded.start()
    try:
        begun = time.monotonic()
        await flooded.flood()
        print(
            f"{options.blocks} blocks, of which {options.batches} have {options.each} events "
            f"each, made in {time.monotonic() - begun:.0f} s",
            flush=True,
        )
        words = [sys.executable, "-m", "benchmarks.behind", "--follow", flooded.description]
        words += ["--batches", str(options.batches), "--each", str(options.each)]
        words += ["--dialect", options.dialect]
        for what in ("all to be read", "started again"):
            print(f"{what}:", flush=True)
            await deferToThread(subprocess.run, [*words, str(home / "log")], check=True)
    finally:
        await flooded.stop()


def main() -> None:
    """Measure, and print lines."""
    parser = ArgumentParser(prog="python -m benchmarks.behind", description=__doc__)
    parser.add_argument("--blocks", type=int, default=100_000, help="the blocks of the chain")
    parser.add_argument("--batches", type=int, default=10_000, help="how many have a batch")
    parser.add_argument("--each", type=int, default=100, help="the events of each batch")
    parser.add_argument("--dialect", default="geth", help="that of the ledger's description")
    parser.add_argument("--follow", metavar="DESCRIPTION", help="used by the other options")
    parser.add_argument("directory", nargs="?", type=Path)
    options = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="behind-"))

    async def run(reactor: Any) -> None:
        if options.follow:
            count = options.batches * options.each
            await follow(reactor, options.follow, options.directory, count)
        else:
            await measure(reactor, options, home)

    try:
        react(lambda reactor: Deferred.fromCoroutine(run(reactor)))
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
