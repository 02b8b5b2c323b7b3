"""
Four brokers, each beside its own engine, of which one is killed.
"""

from __future__ import annotations

import signal
from base64 import b64decode
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from attrs import define, evolve, field
from twisted.internet.defer import Deferred, gatherResults

from tests.ledgers.cometbft.network import Network

from .daemon import LOCAL, TIMEOUT, Daemon, DaemonTestCase, until
from .network import processesOf
from .test_durability import GONE


@define(eq=False)
class Publishers:
    """
    Publishers at several brokers, each with one request at a time, until they are told to end or
    their broker is gone.

    @ivar answered: the content of each event that was answered SUCCESS, by its id.
    @ivar counts: how many each broker has answered.
    @ivar asked: how many were to be published.
    """

    answered: dict[str, str] = field(factory=dict)
    counts: Counter[int] = field(factory=Counter)
    asked: int = 0
    isOver: bool = False

    async def publish(self, daemon: Daemon, number: int, publisher: int) -> None:
        """What one of them does."""
        turn = 0
        while not self.isOver:
            turn += 1
            self.asked += 1
            content = f"{number}-{publisher}-{turn}"
            try:
                sent = await daemon.call("/rest/publish", topic="t", content=content)
            except GONE:
                return
            if sent.get("status") == "SUCCESS":
                self.answered[sent["eventId"]] = content
                self.counts[number] += 1


class BrokerTests(DaemonTestCase):
    """
    Real daemons, real engines.
    """

    timeout = 4 * TIMEOUT

    def setUp(self) -> None:
        super().setUp()
        self.network = Network(self, 4)
        # The engines end when their brokers are killed, but not at once.
        self.addCleanup(self.gone)

    def gone(self) -> Deferred[None]:
        """Fires when no process of the network is left."""
        return Deferred.fromCoroutine(until(lambda: processesOf(self.network.root) == []))

    async def broker(self, number: int) -> Daemon:
        """The broker of a node, started or started again."""
        node = self.network.nodes[number]
        ledger = f"cometbft:home={node.plan.home}:rpc={node.plan.rpc}:engine={node.program}"
        data = self.root / f"data{number}"
        return await self.run_(
            [f"--http={LOCAL}", f"--ledger={ledger}", f"--data-dir={data}"]
        ).serves()

    async def isReady(self, daemon: Daemon) -> bool:
        """Whether a broker is."""
        root = evolve(daemon, base=daemon.base.removesuffix("/svcbroker"))
        return bool((await root.call("/readyz"))["status"] == "ready")

    async def blocks(self, daemon: Daemon) -> int:
        """How many blocks a broker has."""
        general = (await daemon.call("/admin/group/general"))["data"]
        return int(general["latestBlock"])

    async def test_killedBrokerCatchesUpWithOthers(self) -> None:
        """
        A broker is killed under load: its engine ends with it, the others continue. Restarted,
        it has what the others have; no answered event is lost or duplicated.
        """
        daemons = list(
            await gatherResults(
                [Deferred.fromCoroutine(self.broker(number)) for number in range(4)]
            )
        )
        for daemon in daemons:
            await until(partial(self.isReady, daemon))
        self.assertTrue(await daemons[1].call("/rest/open", topic="t"))
        load = Publishers()
        running = [
            Deferred.fromCoroutine(load.publish(daemon, number, publisher))
            for number, daemon in enumerate(daemons)
            for publisher in range(3)
        ]
        await until(lambda: all(load.counts[number] > 3 for number in range(4)))
        await daemons[0].stop(signal.SIGKILL)
        others = load.counts.total()
        await until(lambda: load.counts.total() > others + 30)

        daemons[0] = await self.broker(0)
        running.append(Deferred.fromCoroutine(load.publish(daemons[0], 4, 0)))
        await until(lambda: load.counts[4] > 3)
        load.isOver = True
        await gatherResults(running, consumeErrors=True)
        await self.checkSame(daemons, load)
        codes = await gatherResults([Deferred.fromCoroutine(each.stop()) for each in daemons])
        self.assertEqual(codes, [0] * 4)

    async def checkSame(self, daemons: Sequence[Daemon], load: Publishers) -> None:
        """All brokers have the same blocks, and all that was answered is in them."""

        async def isLevel() -> bool:
            return len({await self.blocks(daemon) for daemon in daemons}) == 1

        await until(isLevel)
        height = await self.blocks(daemons[0])
        told: list[Any] = [
            await daemon.call("/rest/checkpoint", height=height - 1) for daemon in daemons
        ]
        self.assertEqual(told[1:], told[:1] * 3)
        # It is of the last block with transactions: the engines may make several without any.
        blocks = await daemons[0].call("/admin/block/blockList", pageSize=100)
        filled = [
            each["blockNumber"]
            for each in blocks["data"]["pageData"]
            if each["transCount"] and each["blockNumber"] < height
        ]
        self.assertEqual(int(told[0]["height"]), max(filled))
        for number, (eventId, content) in enumerate(load.answered.items()):
            event = await daemons[number % 4].call("/rest/getEvent", eventId=eventId)
            self.assertEqual(event["eventId"], eventId)
            self.assertEqual(b64decode(event["content"]).decode(), content)
        self.assertEqual(len(set(load.answered.values())), len(load.answered))
        sequence = int((await daemons[0].call("/rest/state", topic="t"))["sequenceNumber"])
        # An event that was not answered may be in the log, once.
        self.assertIn(sequence, range(len(load.answered), load.asked + 1))
