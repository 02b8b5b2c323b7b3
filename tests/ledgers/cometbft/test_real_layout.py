"""
A real engine in a home that was laid out here, asked by our client, its blocks verified.
"""

from __future__ import annotations

import json
import os
from base64 import b64decode
from pathlib import Path
from typing import Any

from attrs import evolve
from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.utils import getProcessOutputAndValue
from twisted.trial.unittest import TestCase

from svcbroker.ledgers.cometbft._engine import Engine
from svcbroker.ledgers.cometbft._home import decodeGenesis, namesOf, readGenesis
from svcbroker.ledgers.cometbft._networkwatch import healthOf, nodeRecords, takePicture
from svcbroker.ledgers.cometbft._rpc import EngineError, EngineRpc, Reason, connectEngine
from svcbroker.ledgers.cometbft.abci import AbciFactory, listenUnix
from svcbroker.ledgers.cometbft.provisioning import (
    Address,
    NetworkPlan,
    NodePlan,
    Peer,
    StateSync,
    Tuning,
    layOutJoining,
    layOutNetwork,
)
from svcbroker.model import NodeType
from svcbroker.proofs.cometbft import Instant, LightBlock
from tests.directories import shortDirectory

from .realengine import TIMEOUT, Counter, cometbft, raw
from .support import dataHash, trustOf

reactor: Any = _reactor

NOWHERE = Address(host="127.0.0.1", port=0)


class RealLayoutTests(TestCase):
    """
    Homes that a real engine reads.
    """

    timeout = 2 * TIMEOUT

    def setUp(self) -> None:
        self.program = cometbft()
        self.root = shortDirectory(self)
        home = self.root / "node0"
        self.node = NodePlan(home=home, name="node0", rpc=home / "rpc.sock", p2p=NOWHERE)
        self.plan = NetworkPlan(
            chainId="real-1",
            # Engines wait for it to come.
            created=Instant(reactor.seconds() * 10**9),
            nodes=[self.node],
            tuning=Tuning(commit=0.02),
        )

    async def run_(self, home: Path, command: str) -> str:
        """The output of the engine's program; its configuration was read and checked before."""
        output, errors, status = await getProcessOutputAndValue(
            self.program, [command, "--home", str(home)], env={}
        )
        self.assertEqual(status, 0, errors)
        text: str = output.decode().strip()
        return text

    def test_engineReadsOurKeys(self) -> Deferred[None]:
        """The engine has the ids and keys that we say it has."""
        return Deferred.fromCoroutine(self._keys())

    async def _keys(self) -> None:
        nodes = [evolve(self.node, home=self.root / f"n{i}", name=f"n{i}") for i in range(3)]
        keys = layOutNetwork(evolve(self.plan, nodes=nodes), os.urandom)
        for node, each in zip(nodes, keys, strict=True):
            self.assertEqual(await self.run_(node.home, "show-node-id"), each.nodeId)
            shown = json.loads(await self.run_(node.home, "show-validator"))
            self.assertEqual(b64decode(shown["value"]), each.validator)

    def test_engineReadsStateSyncConfig(self) -> Deferred[None]:
        """The engine takes the configuration of one that begins with a snapshot."""
        return Deferred.fromCoroutine(self._joining())

    async def _joining(self) -> None:
        (keys,) = layOutNetwork(self.plan, os.urandom)
        genesis = (self.node.home / "config/genesis.json").read_bytes()
        there = Address(host="127.0.0.1", port=1)
        node = evolve(self.node, home=self.root / "new", name="new")
        joined = layOutJoining(
            node,
            genesis,
            [Peer(nodeId=keys.nodeId, address=there)],
            os.urandom,
            stateSync=StateSync(servers=[there, there], height=5, hash=bytes(32)),
        )
        self.assertEqual(await self.run_(node.home, "show-node-id"), joined.nodeId)

    def test_engineDecidesProvableBlocks(self) -> Deferred[None]:
        """
        The engine starts in its home and decides; what it answers is read, and what it decides
        follows from the genesis.
        """
        return Deferred.fromCoroutine(self._decides())

    async def start(self) -> tuple[Counter, EngineRpc]:
        """The engine, its application, and a client."""
        home = self.node.home
        application = Counter()
        engine = Engine(
            [self.program, "start", f"--home={home}"],
            reactor=reactor,
            entropy=lambda: 0.0,
            sockets=[home / "rpc.sock"],
        )
        factory = AbciFactory(
            application,
            clock=reactor,
            failed=lambda failure: None,
            changed=engine.connectionsChanged,
        )
        port = listenUnix(reactor, home / "abci.sock", factory)
        rpc = connectEngine(reactor, home / "rpc.sock")
        self.addCleanup(port.stopListening)
        self.addCleanup(factory.close)
        self.addCleanup(engine.stop)
        self.addCleanup(rpc.close)
        begun = application.when(lambda: application.height >= 1)
        engine.start()
        await begun
        return application, rpc

    async def _decides(self) -> None:
        (keys,) = layOutNetwork(self.plan, os.urandom)
        application, rpc = await self.start()
        genesis = readGenesis(self.node.home)
        told = (await rpc.ask(raw("genesis")))["genesis"]
        self.assertEqual(decodeGenesis(json.dumps(told).encode()), genesis)
        # Those of the next block it stores only after the application has committed.
        params = (await rpc.ask(raw("consensus_params", height="1")))["consensus_params"]
        self.assertEqual(int(params["block"]["max_bytes"]), self.plan.blockBytes)

        transactions = [b"transaction %d" % index for index in range(5)]
        done = application.when(lambda: len(application.txs) == 5)
        for transaction in transactions:
            self.assertEqual((await rpc.broadcast(transaction)).code, 0)
        await self.refused(rpc.broadcast(transactions[0]), Reason.KNOWN)
        await self.refused(rpc.broadcast(bytes(5 * 2**20)), Reason.TOO_LARGE)
        await self.refused(rpc.broadcast(bytes(10 * 2**20)), Reason.TOO_LARGE)
        await self.refused(rpc.commit(10**6), Reason.NO_SUCH_HEIGHT)
        self.assertEqual((await rpc.broadcast(b"bad")).code, 1)
        await done
        # Before the first transaction the hash is empty, and of such a block it tells no results.
        # So there is one more block with a transaction after those.
        last = application.when(lambda: len(application.txs) == 6)
        transactions.append(b"last")
        self.assertEqual((await rpc.broadcast(transactions[-1])).code, 0)
        await last

        picture = await takePicture(rpc)
        (record,) = nodeRecords(picture, reactor.seconds(), namesOf(genesis))
        self.assertEqual((record.nodeId, record.nodeType), (keys.validator, NodeType.SEALER))
        self.assertEqual((record.name, record.isActive), ("node0", True))
        self.assertTrue(healthOf(picture, [record]).isReady)

        height = picture.height
        trust = trustOf(genesis)
        found: list[bytes] = []
        for each in range(1, height + 1):
            block = LightBlock.fromJson((await rpc.lightBlock(each)).toJson())
            trust = trust.follow(block)
            data = (await rpc.ask(raw("block", height=str(each))))["block"]["data"]
            inside = [b64decode(transaction) for transaction in data["txs"] or ()]
            found.extend(inside)
            self.assertEqual(dataHash(inside), block.header.dataHash)
        self.assertEqual(trust.height, height)
        self.assertEqual(found, transactions[: len(found)])
        results = await rpc.ask(raw("block_results", height=str(height - 1)))
        newest = (await rpc.commit(height)).signedHeader.header
        self.assertEqual(b64decode(results["app_hash"]), newest.appHash)

    async def refused(self, asked: Deferred[Any], reason: Reason) -> None:
        """The engine says no, for this reason."""
        try:
            await asked
        except EngineError as error:
            self.assertIs(error.reason, reason, error)
        else:
            self.fail(f"it was not refused: {reason}")
