"""
The ledger on EVM chains: events a second, gas, and the latency of a lone publish.
C{python -m benchmarks.chains}.

An own command, as it runs the ledger in its own reactor, and not as a daemon.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from attrs import frozen
from twisted.internet.defer import Deferred, DeferredLock
from twisted.internet.task import deferLater, react
from twisted.internet.threads import deferToThread

from svcbroker.interfaces import LedgerContext
from svcbroker.ledgers import readDescription
from svcbroker.ledgers._jsonrpc import RpcCall
from svcbroker.ledgers.evm import EvmLedger, configure
from svcbroker.ledgers.evm._evmrpc import balanceCall, connectChain, todata
from svcbroker.ledgers.evm.operating import EvmAccount
from svcbroker.ledgers.testnet.daemons import (
    ANVIL,
    IBFT,
    RunningChain,
    TestChain,
    findProgram,
    makeChain,
)
from svcbroker.model import OpenTopic, PublishEvent, Receipt

BATCH: Final = 50
"""The events of a submission."""

SIZE: Final = 300
"""The bytes of an event."""

AHEAD: Final = 400
"""The submissions that wait for their blocks."""

LONE: Final = 12
"""The lone publishes that are measured."""

FACTS: Final = {"anvil 30M": 2015, "anvil 300M": 8359, "4 IBFT validators": 1094}
"""The best events/s that were known of each chain, in batches of 50."""

MONEY: Final = hex(10**21)


class GethChain(TestChain):
    """One geth, whose blocks come each second."""

    @property
    def isReplicated(self) -> bool:
        return False

    @property
    def id(self) -> int:
        return 1337

    def command(self, node: Any) -> Sequence[str]:
        return [
            *(str(self.program), "--dev", "--dev.period", "1", "--dev.gaslimit", "30000000"),
            *("--http", "--http.addr", "127.0.0.1", "--http.port", str(node.ports["rpc"])),
            *("--http.api", "eth", "--authrpc.port", "0", "--port", "0", "--nodiscover"),
            *("--maxpeers", "0", "--nat", "none", "--ipcdisable", "--verbosity", "1"),
        ]


class AnvilChain(TestChain):
    """One anvil with more gas in a block."""

    def command(self, node: Any) -> Sequence[str]:
        words = list(super().command(node))
        words[words.index("--gas-limit") + 1] = "300000000"
        return words


@frozen(kw_only=True)
class ChainCase:
    """
    A chain that is measured.

    @ivar program: the name of the program, and the variable that names it.
    """

    title: str
    kind: str
    make: type[TestChain] = TestChain
    nodes: int = 1


CASES: Final = (
    ChainCase(title="anvil 30M", kind=ANVIL),
    ChainCase(title="anvil 300M", kind=ANVIL, make=AnvilChain),
    ChainCase(title="geth 30M", kind=ANVIL, make=GethChain),
    ChainCase(title="4 IBFT validators", kind=IBFT, nodes=4),
)


def content(number: int) -> bytes:
    """A reading of a sensor in JSON, of L{SIZE} bytes, with random values."""
    dice = random.Random(number)
    fields = {
        "id": f"{dice.getrandbits(128):032x}",
        "sensor": f"line-{dice.randrange(40)}/station-{dice.randrange(200)}",
        "time": 1_700_000_000_000 + number,
        "temperature": round(dice.uniform(15, 90), 3),
        "pressure": round(dice.uniform(0.9, 6), 4),
        "state": dice.choice(["running", "idle", "fault", "service"]),
        "order": f"PO-{dice.getrandbits(40):010x}",
        "note": "",
    }
    left = SIZE - len(json.dumps(fields))
    fields["note"] = f"{dice.getrandbits(4 * left):0{left}x}"
    return json.dumps(fields).encode()


class Measured:
    """
    One chain with a ledger on it.
    """

    def __init__(self, reactor: Any, case: ChainCase, home: Path) -> None:
        self._reactor = reactor
        self._case = case
        self._home = home

    async def start(self) -> None:
        """Start the chain and the ledger."""
        case = self._case
        isGeth = case.make is GethChain
        given = os.environ.get("SVCBROKER_GETH", "geth") if isGeth else None
        program = findProgram(case.kind, given, os.environ)
        self._home.mkdir()
        laidOut = makeChain(
            self._home,
            case.nodes,
            None,
            kind=case.kind,
            program=findProgram(case.kind, None, os.environ),
            entropy=os.urandom,
        )
        chain = case.make(network=laidOut.network, program=program)
        node = chain.nodes[0]
        url = f"http://127.0.0.1:{node.ports['rpc']}"
        self.rpc = connectChain(self._reactor, [url], _dialect())
        self._running = RunningChain(
            chain,
            self._reactor,
            lambda name, end: print(name, end),
            *([lambda rpc: self._fund(chain)] if isGeth else []),
        )
        await self._running.start()
        [text] = [
            line.partition('"')[2][:-1]
            for line in node.config.read_text().splitlines()
            if line.startswith("ledger =")
        ]
        text = text.replace("\\\\", "\\").replace("chain-id=31337", f"chain-id={chain.id}")
        self.description = text
        self.ledger = await openLedger(self._reactor, text, self._home / "log")
        await publish(self.ledger, OpenTopic(topic="t"))

    async def _fund(self, chain: TestChain) -> None:
        [rich] = json.loads(await self.rpc.ask(RpcCall("eth_accounts", (), bytes)))
        keys = [chain.ownerKey, *(chain.keyOf(node) for node in chain.network.nodes)]
        for key in keys:
            address = todata(EvmAccount.load(key).address)
            transfer = {"from": rich, "to": address, "value": MONEY}
            await self.rpc.ask(RpcCall("eth_sendTransaction", (transfer,), bytes))
            while not await self.rpc.ask(balanceCall(EvmAccount.load(key).address)):
                await deferLater(self._reactor, 0.1)

    async def stop(self) -> None:
        """Stop both."""
        await self.ledger.stop()
        await self._running.stop()
        await self.rpc.close()

    async def rate(self, seconds: float) -> dict[str, float]:
        """Publish as fast as it goes."""
        first = await self._block()
        begun, cpu, end = time.monotonic(), _cpu(), time.monotonic() + seconds
        flying: list[Any] = []
        count, serial = 0, 0
        while True:
            while len(flying) < AHEAD and time.monotonic() < end:
                requests = [
                    PublishEvent(topic="t", content=content(serial + each)) for each in range(BATCH)
                ]
                serial += BATCH
                flying.append(self.ledger.submitMany(requests))
            if not flying:
                break
            submission = flying.pop(0)
            await submission.done
            count += sum(isinstance(each, Receipt) for each in submission.outcomes)
        took, used = time.monotonic() - begun, _cpu() - cpu
        assert count == serial, (count, serial)
        gas, size = await self._gas(first)
        return {
            "events/s": count / took,
            "cpu us": used / count * 1e6,
            "gas": gas / count,
            "bytes": size / count,
        }

    async def _block(self) -> int:
        call: RpcCall[Any] = RpcCall("eth_blockNumber", (), bytes)
        return int(json.loads(await self.rpc.ask(call)), 16)

    async def _gas(self, first: int) -> tuple[int, int]:
        """The gas and the bytes of calls of the blocks after one."""
        gas = size = 0
        for number in range(first + 1, await self._block() + 1):
            call: RpcCall[Any] = RpcCall("eth_getBlockByNumber", (hex(number), True), bytes)
            block = json.loads(await self.rpc.ask(call))
            gas += int(block["gasUsed"], 16)
            size += sum(len(each["input"]) // 2 - 1 for each in block["transactions"])
        return gas, size

    async def lone(self) -> list[float]:
        """The seconds of lone publishes, each at another time between two blocks."""
        found = []
        for number in range(LONE):
            await deferLater(self._reactor, 0.3 + 0.07 * number)
            begun = time.monotonic()
            await publish(self.ledger, PublishEvent(topic="t", content=content(number)))
            found.append(time.monotonic() - begun)
        return sorted(found)


def _dialect() -> Any:
    from svcbroker.ledgers.evm.operating import DIALECTS

    return DIALECTS["auto"]


def _cpu() -> float:
    return sum(os.times()[:2])


async def publish(ledger: EvmLedger, request: Any) -> None:
    """Make one request."""
    submission = ledger.submitMany([request])
    await submission.done
    [outcome] = submission.outcomes
    if not isinstance(outcome, Receipt):
        raise RuntimeError(f"it was refused: {outcome}")


async def openLedger(reactor: Any, description: str, directory: Path) -> EvmLedger:
    """Start the ledger of a description."""
    lock = DeferredLock()
    context = LedgerContext(
        group="1",
        directory=directory,
        reactor=reactor,
        now=time.time,
        entropy=os.urandom,
        runInThread=lambda call, *args: lock.run(deferToThread, call, *args),
        maxContent=1024 * 1024,
    )
    ledger: Any = configure(readDescription(description).settings)(context)
    await ledger.start()
    found: EvmLedger = ledger
    return found


async def measureRates(reactor: Any, options: Namespace, home: Path) -> None:
    """Print a row for each chain."""
    print(
        "| chain | events/s | known best | times | gas an event | bytes of call an event "
        "| CPU µs an event | lone publish, s: least, median, most |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|---|")
    for case in CASES:
        if options.only and case.title not in options.only:
            continue
        measured = Measured(reactor, case, home / case.title.replace(" ", "-"))
        await measured.start()
        try:
            rounds = [await measured.rate(options.seconds) for _ in range(options.rounds)]
            lone = await measured.lone()
        finally:
            await measured.stop()
        one = {key: median(each[key] for each in rounds) for key in rounds[0]}
        known = FACTS.get(case.title)
        times = f"{one['events/s'] / known:.2f}" if known else ""
        print(
            f"| {case.title} | {one['events/s']:.0f} | {known or ''} | {times} "
            f"| {one['gas']:.0f} | {one['bytes']:.0f} | {one['cpu us']:.0f} "
            f"| {lone[0]:.2f}, {median(lone):.2f}, {lone[-1]:.2f} |",
            flush=True,
        )


def main() -> None:
    """Measure, and print Markdown."""
    parser = ArgumentParser(prog="python -m benchmarks.chains", description=__doc__)
    parser.add_argument("--only", nargs="+", default=(), help="only these chains")
    parser.add_argument("--seconds", type=float, default=15.0, help="how long each time")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="chains-"))

    try:
        react(lambda reactor: Deferred.fromCoroutine(measureRates(reactor, options, home)))
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
