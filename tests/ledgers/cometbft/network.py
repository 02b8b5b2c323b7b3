"""
A network of real engines, each with a ledger beside it, in this process.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from attrs import define, field
from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred, DeferredLock, gatherResults
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.python.components import proxyForInterface
from twisted.trial.unittest import TestCase
from zope.interface import implementer

from svcbroker.interfaces import IHoldLedger, ILedger, IProvableLedger, LedgerContext, Submission
from svcbroker.ledgers.cometbft._cometledger import CometLedger
from svcbroker.ledgers.cometbft._cometsettings import CometSettings
from svcbroker.ledgers.cometbft._engine import Engine
from svcbroker.ledgers.cometbft._networkwatch import EnginePorts
from svcbroker.ledgers.cometbft.provisioning import (
    Address,
    NetworkPlan,
    NodePlan,
    Tuning,
    layOutNetwork,
)
from svcbroker.model import HeldRange, HoldRecord, Page, Receipt, ReleasedPage, Request, Statistics
from svcbroker.proofs.cometbft import Instant
from svcbroker.testing import FaultyDisk
from svcbroker.testing._fixtures import MAX_CONTENT
from tests.directories import shortDirectory
from tests.waiting import TIMEOUT as TIMEOUT
from tests.waiting import until as until

from .realengine import cometbft

T = TypeVar("T")

STEP = 0.01
"""Seconds between two looks at something that will come."""

TUNING = Tuning(commit=0.02, gossip=0.005)

reactor: Any = _reactor


def freeAddresses(count: int) -> Sequence[Address]:
    """
    Addresses of this machine that nobody else takes.

    Engines must know each other's ports before any of them listens. On Linux all of 127/8 is
    this machine, while connections go out from 127.0.0.1 and tests listen there: an address that
    was drawn from the rest meets nobody. Elsewhere it is a port that was free just now.
    """
    addresses = []
    for _ in range(count):
        host = ".".join(
            str(each) for each in (127, *random.SystemRandom().choices(range(1, 255), k=3))
        )
        with socket.socket() as probe:
            try:
                probe.bind((host, 0))
            except OSError:
                host = "127.0.0.1"
                probe.bind((host, 0))
            addresses.append(Address(host=host, port=probe.getsockname()[1]))
    return addresses


@define(eq=False)
class Node:
    """
    One engine, and the ledger beside it.

    @ivar ledger: it, once it is made.
    @ivar parts: what of it touches the network.
    @ivar isRunning: whether it was started and not stopped.
    """

    plan: NodePlan
    directory: Path
    program: Path
    settings: CometSettings
    ledger: CometLedger = field(init=False)
    parts: EnginePorts = field(init=False)
    isRunning: bool = field(init=False, default=False)
    _lock: DeferredLock = field(factory=DeferredLock)

    def make(self) -> CometLedger:
        """Another ledger in the same place."""
        context = LedgerContext(
            group="1",
            directory=self.directory,
            reactor=reactor,
            now=time.time,
            entropy=os.urandom,
            runInThread=lambda call, *args: self._lock.run(deferToThread, call, *args),
            maxContent=MAX_CONTENT,
        )
        self.parts = EnginePorts.real(context, self.settings)
        self.ledger = CometLedger(context, self.settings, self.parts)
        return self.ledger

    def start(self) -> Deferred[None]:
        """Start another ledger in the same place."""
        self.isRunning = True
        return self.make().start()

    def stop(self) -> Deferred[None]:
        """Stop the ledger, and its engine."""
        self.isRunning = False
        return self.ledger.stop()

    @property
    def engine(self) -> Engine:
        """The object that keeps its engine running."""
        engine = self.parts.engine
        assert isinstance(engine, Engine)
        return engine

    def signal(self, number: int) -> None:
        """Send a signal to the engine's process."""
        assert self.engine.pid is not None
        os.kill(self.engine.pid, number)

    def kill(self) -> Deferred[None]:
        """Kill the engine, and do not start it again. Fires when it is gone."""
        self.signal(signal.SIGKILL)
        return self.engine.stop()

    async def height(self) -> int:
        """The height of the ledger; observers were told of all up to there."""
        return self.ledger._application.height

    async def isQuiet(self) -> bool:
        """Whether nothing is to come by itself: the engine has proved the last state."""
        machine = self.ledger._application.machine
        return (
            machine is not None
            and bool(machine.head.height)
            and not (machine.head.transactionCount)
        )


class Network:
    """
    As many nodes as a test wants.

    @ivar nodes: they.
    """

    def __init__(
        self,
        test: TestCase,
        count: int,
        *,
        hasPorts: bool = False,
        blockBytes: int = 8 * 1024 * 1024,
        tuning: Tuning = TUNING,
    ) -> None:
        """
        @param test: whose network it is: what is on the disk is removed when it has ended.
        @param hasPorts: whether the engines' RPC is at ports, where other engines reach it.
        @param blockBytes: the most bytes of a block.
        @param tuning: how fast the engines are.
        @raise twisted.trial.unittest.SkipTest: there is no engine.
        """
        program = Path(cometbft())
        self.root = shortDirectory(test)
        self.nodes: list[Node] = []
        for number in range(count):
            (port,) = freeAddresses(1) if hasPorts else (None,)
            self.nodes.append(self.newNode(f"node{number}", program, port))
        layOutNetwork(
            NetworkPlan(
                chainId=self.root.name,
                created=Instant(int(time.time()) * 10**9),
                nodes=[node.plan for node in self.nodes],
                tuning=tuning,
                blockBytes=blockBytes,
            ),
            os.urandom,
        )

    def newNode(self, name: str, program: Path, port: Address | None = None) -> Node:
        """
        One more node, which is not laid out.

        @param port: where its RPC is; C{None}: at a socket.
        """
        home = self.root / name
        (address,) = freeAddresses(1)
        rpc = home / "rpc.sock" if port is None else port
        plan = NodePlan(home=home, name=name, rpc=rpc, p2p=address)
        place = rpc if isinstance(rpc, Path) else f"http://{rpc}"
        settings = CometSettings(home=home, rpc=place, engine=program)
        return Node(
            plan=plan, directory=self.root / f"ledger-{name}", program=program, settings=settings
        )

    def start(self) -> Deferred[None]:
        """Start new ledgers on all nodes. Fires when all see each other."""
        return Deferred.fromCoroutine(self._start())

    async def _start(self) -> None:
        await gatherResults([node.start() for node in self.nodes], consumeErrors=True)
        for node in self.nodes:
            await until(partial(self._seesAll, node))

    async def _seesAll(self, node: Node) -> bool:
        if not (await node.ledger.getHealth()).isReady or not await node.isQuiet():
            return False
        records = (await node.ledger.listNodes(0, 99)).items
        return len(records) == len(self.nodes) and all(each.isActive for each in records)

    def stop(self) -> Deferred[Any]:
        """Stop all ledgers, and their engines."""
        return gatherResults(
            [node.stop() for node in self.nodes if node.isRunning], consumeErrors=True
        )

    async def level(self) -> None:
        """Wait until all nodes have the same blocks, and none is to come."""

        async def isLevel() -> bool:
            heights = {await node.height() for node in self.nodes}
            return len(heights) == 1 and await self.nodes[0].isQuiet()

        await until(isLevel)


@implementer(IHoldLedger)
class NetworkLedger(proxyForInterface(IProvableLedger, "_reader")):  # type: ignore[misc]
    """
    A network as one ledger, for its contract: what is submitted goes to the first node, and what
    is read comes from the last one.

    Receipts are given when the last node has their blocks as well, and nothing is to come that
    nobody submitted: the engines make a block without transactions after each one that has some.
    """

    def __init__(self, network: Network) -> None:
        self._network = network
        self._isStopping = False

    @property
    def _reader(self) -> ILedger:
        ledger: ILedger = self._network.nodes[-1].ledger
        return ledger

    @property
    def latestRelease(self) -> int:
        """See L{IHoldLedger}."""
        return IHoldLedger(self._reader).latestRelease

    def heldRanges(
        self, topic: str, ranges: Sequence[tuple[int, int]]
    ) -> Sequence[Iterator[HeldRange]]:
        """See L{IHoldLedger.heldRanges}."""
        return IHoldLedger(self._reader).heldRanges(topic, ranges)

    def listHolds(
        self, offset: int, limit: int, *, case: str | None = None
    ) -> Deferred[Page[HoldRecord]]:
        """See L{IHoldLedger.listHolds}."""
        return IHoldLedger(self._reader).listHolds(offset, limit, case=case)

    def listReleased(
        self, limit: int, *, before: tuple[int, int] | None = None, case: str | None = None
    ) -> Deferred[ReleasedPage]:
        """See L{IHoldLedger.listReleased}."""
        return IHoldLedger(self._reader).listReleased(limit, before=before, case=case)

    def start(self) -> Deferred[None]:
        """See L{ILedger.start}."""
        return self._network.start()

    def submitMany(self, requests: Sequence[Request]) -> Submission:
        """See L{ILedger.submitMany}."""
        seen = Submission(len(requests))
        submitted = self._network.nodes[0].ledger.submitMany(requests)
        submitted.done.addCallback(lambda _: Deferred.fromCoroutine(self._see(submitted, seen)))
        return seen

    async def _see(self, submitted: Submission, seen: Submission) -> None:
        outcomes = [each for each in submitted.outcomes if each is not None]
        last = max((each.height for each in outcomes if isinstance(each, Receipt)), default=0)
        reader = self._network.nodes[-1]

        async def isSeen() -> bool:
            if self._isStopping or not last:
                return True
            return await reader.height() > last and await reader.isQuiet()

        await until(isSeen)
        seen.settle(0, outcomes)

    def getStatistics(self) -> Deferred[Statistics]:
        """See L{ILedger.getStatistics}."""
        return Deferred.fromCoroutine(self._getStatistics())

    async def _getStatistics(self) -> Statistics:
        # Two engines that dial each other at once may end both connections, and try again.
        while True:
            statistics: Statistics = await self._reader.getStatistics()
            if statistics.nodeCount == len(self._network.nodes):
                return statistics
            await deferLater(reactor, STEP)

    def stop(self) -> Deferred[None]:
        """See L{ILedger.stop}."""
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        self._isStopping = True
        # The others help the first one to finish what it accepted.
        await self._network.nodes[0].stop()
        await self._network.stop()


class NetworkFixture:
    """
    A network for L{svcbroker.testing.makeLedgerTests}.
    """

    isDurable = True
    disk: FaultyDisk | None = None
    bound: int | None = None

    def __init__(self, network: Network) -> None:
        self._network = network

    def makeLedger(self, directory: Path) -> ILedger:
        """See L{LedgerFixture<svcbroker.testing.LedgerFixture>}."""
        ledger: ILedger = NetworkLedger(self._network)
        return ledger

    def pass_(self) -> Deferred[None]:
        """See L{LedgerFixture<svcbroker.testing.LedgerFixture>}."""
        return deferLater(reactor, STEP)
