"""
Commands about engines, on real networks: founded, grown, shrunk.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from .daemon import RUN, Daemon, reactor, until
from .network import NetworkTestCase

PAUSE = 0.5
"""Seconds between two publishes."""


class GovernTests(NetworkTestCase):
    """
    A network whose validators change while it is used.
    """

    async def isReady(self, base: str) -> bool:
        """Whether the broker of a base address can be given work."""
        root = evolve(self.network, base=base.removesuffix("/svcbroker"))
        try:
            return bool((await root.call("/readyz"))["status"] == "ready")
        except OSError:
            return False
        except Exception as error:
            # What treq raises while nobody listens yet.
            if type(error).__name__ in {"ConnectionRefusedError", "ResponseNeverReceived"}:
                return False
            raise

    async def publishing(self) -> None:
        """Publish until it is over, one after the other, each with success."""
        while not self.isOver:
            sent = await self.network.call("/rest/publish", topic="t", content=str(self.count))
            self.assertEqual(sent["status"], "SUCCESS")
            self.count += 1
            self.assertEqual(int(sent["eventId"].split("-")[1]), self.count)
            # Each block costs four engines a vote: the rest of the test needs the processors, too.
            await deferLater(reactor, PAUSE)

    async def nodes(self, number: int, kind: str) -> list[Any]:
        """The ids of the nodes of a kind, as a broker tells them."""
        broker = evolve(self.network, base=self.base(number))
        answer = await broker.call("/admin/node/nodeList")
        return [node["nodeId"] for node in answer["data"]["pageData"] if node["nodeType"] == kind]

    async def join(self) -> Daemon:
        """A fifth node, which follows; a validator vouches for its broker."""
        fifth, port = self.node(4), self.port(4)
        self.home = fifth / "engine"
        genesis = self.node(0) / "engine" / "config" / "genesis.json"
        requests = [self.node(number) / "engine" / "join-request.json" for number in (0, 1)]
        sync = [f"--state-sync=127.0.0.1:{self.port(number, 4)}" for number in (0, 1)]
        common = [
            *(f"--genesis={genesis}", "--name=node4", f"--p2p=127.0.0.1:{port + 3}"),
            *(f"--listen=127.0.0.1:{port + 3}", f"--rpc=127.0.0.1:{port + 4}"),
        ]
        # What is trusted of a network that runs follows from its genesis.
        trial = self.directory / "trial"
        output = await self.command(
            *("engine", "join", *common, f"--data-dir={trial}/broker", *sync, trial, *requests)
        )
        self.assertIn("trusts     block 1, ", output)
        self.assertIn("trust_height = 1", (trial / "config" / "config.toml").read_text())
        data = f"--data-dir={fifth}/broker"
        await self.command("engine", "join", *common, data, self.home, *requests)
        attestation = fifth / "broker" / "1" / "broker.voucher"
        daemon = self.spawn(
            sys.executable,
            *("-c", RUN, "-n", "--pidfile=", "svcbroker", "--stomp=", "--mqtt=", data),
            f"--http=tcp:{port}:interface=127.0.0.1",
            f"--ledger=cometbft:home={self.home}:rpc={port + 4}:engine={self.engine}",
        )
        await daemon.serves()
        # Nobody vouches for it: it follows, and says whom to ask for what.
        sent = await daemon.call("/rest/publish", topic="t", content="x")
        self.assertNotEqual(sent.get("status"), "SUCCESS")
        request = json.loads((self.home / "join-request.json").read_text())
        ready = await evolve(daemon, base=daemon.base.removesuffix("/svcbroker")).call("/readyz")
        self.assertIn(f"have one sign {request['broker']}", ready["groups"]["1"]["reason"])
        self.assertEqual(await daemon.stop(), 0)
        home = self.node(0) / "engine"
        request = self.home / "join-request.json"
        await self.command("engine", "attest", f"--output={attestation}", home, request)
        daemon = self.spawn(
            sys.executable,
            *("-c", RUN, "-n", "--pidfile=", "svcbroker", "--stomp=", "--mqtt=", data),
            f"--http=tcp:{port}:interface=127.0.0.1",
            f"--ledger=cometbft:home={self.home}:rpc={port + 4}:engine={self.engine}",
        )
        await daemon.serves()
        await until(lambda: self.isReady(daemon.base))
        return daemon

    async def change(self, name: str, *what: str, signers: list[Any]) -> str:
        """Propose a change, have it signed in two copies, merge and submit it."""
        first, second, whole = (self.directory / f"{name}{part}.json" for part in ("1", "2", ""))
        home, data = self.node(0) / "engine", self.node(0) / "broker"
        await self.command("engine", "propose", f"--output={first}", *what, home, data)
        second.write_bytes(first.read_bytes())
        for number, signer in enumerate(signers):
            await self.command("engine", "sign", signer, (first, second)[number % 2])
        line = await self.command("engine", "submit", data, first, code=1)
        self.assertIn("it is not complete", line)
        merged = await self.command("engine", "merge", f"--output={whole}", first, second)
        self.assertIn("complete: it can be submitted", merged)
        output = await self.command("engine", "submit", data, whole)
        # Again, by another broker: it is executed once.
        other = self.node(1) / "broker"
        self.assertEqual(await self.command("engine", "submit", other, whole), output)
        return output

    async def test_setGrowsAndShrinksUnderLoad(self) -> None:
        """From four validators to five and back, with publishes all the time."""
        self.network = await self.startNetwork()
        await self.network.call("/rest/open", topic="t")
        self.count, self.isOver = 0, False
        publishing = Deferred.fromCoroutine(self.publishing())
        fifth = await self.join()
        homes = [self.node(number) / "engine" for number in range(4)]
        key = json.loads((self.home / "join-request.json").read_text())["validator"]
        output = await self.change(
            "grow", f"--add={self.home}/join-request.json", signers=[*homes, self.home]
        )
        self.assertTrue(output.startswith("5 validators, after 1 change\n"), output)
        count = self.count
        await until(lambda: self.count > count + 5)
        for number in (0, 4):
            self.assertIn(key, await self.nodes(number, "sealer"))
            self.assertEqual(len(await self.nodes(number, "sealer")), 5)

        async def hasAll() -> bool:
            state = await fifth.call("/rest/state", topic="t")
            return bool(state["sequenceNumber"] >= count)

        await until(hasAll)
        # The engine itself decides with five.
        home = self.node(0) / "engine"
        line = await self.command(
            *("engine", "propose", f"--output={self.directory}/x", f"--add={key}", home),
            *(self.node(0) / "broker",),
            code=1,
        )
        self.assertIn("is in the set already", line)
        output = await self.change("shrink", f"--remove={key[:12]}", signers=homes)
        self.assertTrue(output.startswith("4 validators, after 2 changes"), output)
        count = self.count
        await until(lambda: self.count > count + 5)
        self.assertEqual(len(await self.nodes(0, "sealer")), 4)
        self.assertNotIn(key, await self.nodes(0, "sealer"))
        # An old change does not come back.
        line = await self.command(
            *("engine", "submit", self.node(0) / "broker", self.directory / "grow.json"), code=1
        )
        self.assertIn("the daemon refused: change: set 1 does not follow set 2", line)
        self.isOver = True
        await publishing
        self.assertEqual(await fifth.stop(), 0)
        self.assertEqual(await self.network.stop(), 0)
        await self.gone()


class FoundTests(NetworkTestCase):
    """
    A network of one organisation, its engine run by somebody else.
    """

    async def test_readyzReportsForeignEngine(self) -> None:
        """The engine is not the broker's child; what becomes of it is told by readyz."""
        home, data = self.directory / "engine", self.directory / "broker"
        p2p = "127.0.0.1:1"
        await self.command(
            *("engine", "init", "--chain=acme", "--name=a", f"--p2p={p2p}", f"--data-dir={data}"),
            home,
        )
        rpc = self.directory / "rpc.sock"
        request = home / "join-request.json"
        await self.command("engine", "genesis", "--listen=127.0.0.1:1", home, request)
        start = [
            *(self.engine, "start", f"--home={home}", "--p2p.laddr=tcp://127.0.0.1:0"),
            f"--rpc.laddr=unix://{rpc}",
        ]
        engine = self.spawn(*start)
        daemon = self.spawn(
            sys.executable,
            *("-c", RUN, "-n", "--pidfile=", "svcbroker", "--stomp=", "--mqtt="),
            *(f"--data-dir={data}", "--http=tcp:0:interface=127.0.0.1"),
            f"--ledger=cometbft:home={home}:rpc={rpc}",
        )
        await daemon.serves()
        root = evolve(daemon, base=daemon.base.removesuffix("/svcbroker"))
        self.ready: Any = {}

        async def isReady() -> bool:
            self.ready = await root.call("/readyz")
            return bool(self.ready["status"] == "ready")

        async def isNot() -> bool:
            return not await isReady()

        await until(isReady)
        await daemon.call("/rest/open", topic="t")
        sent = await daemon.call("/rest/publish", topic="t", content="x")
        self.assertEqual(sent["status"], "SUCCESS")
        await engine.stop()
        await until(isNot)
        self.assertIn("no engine is connected to", self.ready["groups"]["1"]["reason"])
        rpc.unlink(missing_ok=True)
        engine = self.spawn(*start)
        await until(isReady)
        sent = await daemon.call("/rest/publish", topic="t", content="x")
        self.assertEqual(int(sent["eventId"].split("-")[1]), 2)
        self.assertEqual(await daemon.stop(), 0)
