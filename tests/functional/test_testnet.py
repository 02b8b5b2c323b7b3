"""
C{svcbroker net testnet} with real engines.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from pathlib import Path

import treq
from attrs import evolve
from twisted.trial.unittest import SkipTest

from svcbroker.ledgers.evm import checkInstalled
from tests.ledgers.evm.nodes import Chain, Validators

from .daemon import Daemon, until
from .network import NetworkTestCase, commandLines, processesOf


class TestnetTests(NetworkTestCase):
    """
    A whole network by one command.
    """

    areBrokersForked = False

    def setUp(self) -> None:
        super().setUp()
        if not Path("/proc/self/cmdline").exists():
            raise SkipTest("what is left of processes is seen in /proc only")

    def at(self, network: Daemon, number: int) -> Daemon:
        """Another broker of the network."""
        return evolve(network, base=self.base(number))

    async def test_networkReplicatesAndRestarts(self) -> None:
        """What one broker takes the others have; a second start goes on; nothing is left."""
        network = await self.startNetwork()
        self.assertEqual(len(processesOf(self.directory / "net" / "node")), 8)
        for number in range(4):
            self.assertIn(self.base(number), network.protocol.output)
        await network.call("/rest/open", topic="t")
        sent = await network.call("/rest/publish", topic="t", content="first")
        self.assertEqual(sent["status"], "SUCCESS")
        other = self.at(network, 3)

        async def isThere() -> bool:
            state = await other.call("/rest/state", topic="t")
            return bool(state.get("sequenceNumber") == 1)

        await until(isThere)
        event = await other.call("/rest/getEvent", topic="t", eventId=sent["eventId"])
        self.assertEqual(event["eventId"], sent["eventId"])

        async def areActive() -> bool:
            nodes = (await other.call("/admin/node/nodeList"))["data"]["pageData"]
            return [node["nodeActive"] for node in nodes] == [1] * 4

        await until(areActive)
        # One log, signed by the key of each broker, which the chain certifies.
        keys = [await each.call("/log/1/keys") for each in (network, other)]
        self.assertEqual(keys[0]["origin"], keys[1]["origin"])
        self.assertNotEqual(keys[0]["key"], keys[1]["key"])
        paths = [f"{each.base}/log/1/tile/0/000.p/3" for each in (network, other)]
        tiles = [await (await treq.get(path, pool=network.pool)).content() for path in paths]
        self.assertEqual((len(tiles[0]), tiles[0]), (96, tiles[1]))
        self.assertEqual(await network.stop(signal.SIGINT), 0)
        self.assertEqual(network.protocol.errors, "")
        self.assertEqual(processesOf(self.directory), [])

        network = await self.startNetwork()
        await until(isThere)
        sent = await network.call("/rest/publish", topic="t", content="second")
        self.assertEqual(int(sent["eventId"].split("-")[1]), 2)
        # A broker that is killed comes back, with its engine.
        lines = network.protocol.output
        os.kill(self.brokerOf(2), signal.SIGKILL)
        await network.protocol.waitFor("node2 has ended by signal 9; it is started again")
        await network.protocol.waitFor("node2 is ready again")
        self.assertNotIn("again", lines)
        # No orphans, whatever becomes of the command.
        self.assertEqual(await network.stop(signal.SIGKILL), -signal.SIGKILL)
        await self.gone()

    async def test_printedCommandStartsNode(self) -> None:
        """The line that is told for a node starts it; a network of one needs no other."""
        net = self.directory / "net"
        output = await self.command("testnet", "--lay-out-only", "--nodes=1", net)
        self.assertEqual(processesOf(self.directory), [])
        line, _ = output.splitlines()
        name, _, command = line.partition(": ")
        self.assertEqual(name, "node0")
        told = json.loads(await self.command("testnet", "--lay-out-only", "--json", net))
        self.assertEqual(told["directory"], str(net))
        [node] = told["nodes"]
        self.assertEqual((node["name"], shlex.join(node["command"])), (name, command))
        self.addCleanup(self.gone)
        daemon = self.spawn("/bin/sh", "-c", f"exec {command}")
        await daemon.serves()
        root = evolve(daemon, base=daemon.base.removesuffix("/svcbroker"))

        async def isReady() -> bool:
            return bool((await root.call("/readyz"))["status"] == "ready")

        await until(isReady)
        [engine] = [words for words in processesOf(net) if words.startswith(self.engine)]
        self.assertIn("engine", engine)
        # What the supervisor sees, readyz says.
        for process, words in commandLines():
            if words.startswith(self.engine.encode() + b"\0") and str(net).encode() in words:
                os.kill(process, signal.SIGKILL)
        reasons: list[str] = []

        async def hasEnded() -> bool:
            reasons.append((await root.call("/readyz"))["groups"]["1"]["reason"])
            return "the engine has ended once, at last by signal 9" in reasons[-1]

        await until(hasEnded)
        await until(isReady)
        self.assertEqual(await daemon.stop(), 0)

    async def test_refusalsAreOneLine(self) -> None:
        """What cannot be is told in a line, and leaves nothing running."""
        net = self.directory / "net"
        await self.command("testnet", "--lay-out-only", "--nodes=2", net)
        line = await self.command("testnet", "--nodes=3", net, code=2)
        self.assertIn("is a network of 2 nodes, not 3", line)
        line = await self.command("testnet", "--base-port=2000", net, code=2)
        self.assertIn("is a network with ports from", line)
        self.assertIn("is not empty", await self.command("testnet", self.directory, code=2))
        net.rename(self.directory / "moved")
        line = await self.command("testnet", self.directory / "moved", code=2)
        self.assertIn("move it back", line)
        long = self.directory / ("long" * 25)
        line = await self.command("testnet", long, code=2)
        self.assertIn("longer than 107 bytes", line)
        line = await self.command("testnet", f"--engine={sys.executable}", net, code=2)
        self.assertIn("does not tell its version", line)
        old = self.directory / "old"
        old.write_text("#!/bin/sh\necho 0.37.18\n")
        old.chmod(0o755)
        line = await self.command("testnet", f"--engine={old}", net, code=2)
        self.assertIn("is of version '0.37.18', not 0.38.x: build it", line)
        self.environment |= {"SVCBROKER_COMETBFT": "", "PATH": str(self.root)}
        line = await self.command("testnet", net, code=2)
        self.assertIn("there is no cometbft on the PATH: build it", line)
        line = await self.command("testnet", "--engine=/nowhere", net, code=2)
        self.assertIn("/nowhere is no program", line)

    async def test_failingNodeStopsAll(self) -> None:
        """One node that cannot start ends all of them, and its words are told."""
        net = self.directory / "net"
        await self.command("testnet", "--lay-out-only", "--nodes=2", net)
        with (net / "node1" / "broker.toml").open("a") as file:
            file.write("nonsense = 1\n")
        line = await self.command("testnet", net, code=1)
        self.assertIn("node1 has ended with status 2", line)
        self.assertIn("nonsense", line)
        self.assertEqual(processesOf(self.directory), [])


class EvmNetworkTests(NetworkTestCase):
    """
    A network on an EVM chain by one command.
    """

    skip = checkInstalled() or None

    async def startsAndRestarts(self, count: int, *options: str) -> None:
        """What one broker takes the last one has; a second start goes on; nothing is left."""
        network = await self.startNetwork(*options)
        other = evolve(network, base=self.base(count - 1))
        await network.call("/rest/open", topic="t")
        for number in (1, 2):
            sent = await network.call("/rest/publish", topic="t", content=f"{number}")
            self.assertEqual(sent["status"], "SUCCESS")

            async def isThere(number: int = number) -> bool:
                state = await other.call("/rest/state", topic="t")
                return bool(state.get("sequenceNumber") == number)

            await until(isThere)
            event = await other.call("/rest/getEvent", eventId=sent["eventId"])
            self.assertEqual(event["eventId"], sent["eventId"])
            self.assertEqual(await network.stop(signal.SIGINT), 0)
            self.assertEqual(network.protocol.errors, "")
            self.assertEqual(processesOf(self.directory), [])
            if number == 1:
                network = await self.startNetwork()

    async def test_validatorsHaveBrokersBesideThem(self) -> None:
        """Two validators with IBFT have a broker each."""
        self.environment["SVCBROKER_POLYGON_EDGE"] = Validators.program()
        await self.startsAndRestarts(2, "--evm", "--nodes=2")

    async def test_brokersShareOneNode(self) -> None:
        """Two brokers are on one node, whose state outlives it."""
        self.environment["SVCBROKER_ANVIL"] = Chain.program()
        await self.startsAndRestarts(2, "--anvil", "--nodes=2")
        refused = await self.command("testnet", "--evm", self.directory / "net", code=2)
        self.assertIn("a network on anvil, not on ibft", refused)
