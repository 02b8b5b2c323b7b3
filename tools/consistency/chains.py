"""
Deployments on EVM chains: four validators with a broker each, and brokers on one node that can be
made to reorganize its chain.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from attrs import define, field
from twisted.internet.task import deferLater

from svcbroker.ledgers._jsonrpc import RpcCall
from svcbroker.ledgers.evm import operating
from svcbroker.ledgers.evm.operating import ContractOwner, EvmAccount, EvmError
from svcbroker.ledgers.testnet.daemons import ANVIL, IBFT, TestChain, findProgram, makeChain

from .deployments import STEP, TWISTD, Deployment, Node, Process
from .links import HOST

FINALITY: Final = 6
"""The blocks that make one final on the chain that is reorganized."""

BLOCK_TIME: Final = "0.5"
"""The seconds between two of its blocks."""


@define(eq=False, kw_only=True)
class ChainNode:
    """
    A node of the chain.

    @ivar command: the words by which it is started.
    @ivar url: its JSON-RPC.
    """

    reactor: Any
    command: Sequence[str]
    log: Path
    url: str
    _process: Process | None = field(default=None, init=False)

    def start(self) -> None:
        """Start it."""
        process = self._process = Process(self.log)
        program = self.command[0]
        self.reactor.spawnProcess(
            process, program, self.command, env=os.environ, path=str(self.log.parent)
        )

    def signal(self, number: int) -> None:
        """Send it a signal, if it runs."""
        if self._process is not None and not self._process.ended.called:
            self._process.transport.signalProcess(number)

    async def end(self) -> None:
        """Kill it, and wait until it has ended. A suspended one as well."""
        if self._process is not None:
            self.signal(signal.SIGKILL)
            await self._process.ended


class Chained(Deployment):
    """
    Brokers on an EVM chain.

    @ivar chain: the nodes of the chain.
    """

    kind: str
    brokers: int
    finality: str

    async def layOut(self) -> None:
        directory = self.root / "net"
        directory.mkdir(parents=True)
        program = findProgram(self.kind, None, os.environ)
        made = makeChain(
            directory, self.brokers, None, kind=self.kind, program=program, entropy=os.urandom
        )
        self.chain = [
            ChainNode(
                reactor=self.reactor,
                command=self._command(made, number),
                log=made.logOf(node),
                url=f"http://{HOST}:{node.ports['rpc']}",
            )
            for number, node in enumerate(made.nodes)
        ]
        await self._link(made)
        for each in self.chain:
            each.start()
        await self._deploy(made)
        for node in made.network.nodes:
            options = ["-n", "--pidfile=", "svcbroker", f"--config={node.config}"]
            [ledger] = [
                line.partition('"')[2][:-1].replace("instant", self.finality)
                for line in node.config.read_text().splitlines()
                if line.startswith("ledger =")
            ]
            self.nodes.append(
                Node(
                    reactor=self.reactor,
                    name=node.name,
                    url=node.url,
                    command=[*TWISTD, *options, f"--ledger={ledger}"],
                    directory=node.directory,
                    data=node.directory / "broker",
                )
            )

    def _command(self, made: TestChain, number: int) -> Sequence[str]:
        return made.command(made.nodes[number])

    async def _link(self, made: TestChain) -> None:
        """Have the nodes of the chain reach each other by links."""

    async def _deploy(self, made: TestChain) -> None:
        rpc = operating.connectChain(
            self.reactor, [self.chain[0].url], operating.DIALECTS["auto"], made.id
        )
        try:
            while not await self._hasBlock(rpc):
                await deferLater(self.reactor, STEP)
            owner = EvmAccount.load(made.ownerKey)
            making = ContractOwner(clock=self.reactor, rpc=rpc, account=owner)
            accounts = [EvmAccount.load(made.keyOf(node)) for node in made.network.nodes]
            await making.deploy([each.address for each in accounts])
        finally:
            await rpc.close()

    async def _hasBlock(self, rpc: Any) -> bool:
        try:
            found: bool = (await rpc.ask(operating.blockCall("latest"))).height > 0
        except EvmError:
            return False
        return found

    async def stop(self) -> list[str]:
        found = await super().stop()
        for each in self.chain:
            await each.end()
        return found


class Validated(Chained):
    """
    Four validators with IBFT, and a broker beside each.
    """

    kind = IBFT
    brokers = 4
    finality = "instant"

    async def _link(self, made: TestChain) -> None:
        for source, node in enumerate(made.nodes):
            genesis = made.genesisOf(node)
            text = genesis.read_text()
            for target, other in enumerate(made.nodes):
                port = other.ports["p2p"]
                if target != source:
                    link = await self.links.relay(source, target, port)
                    text = text.replace(f"/tcp/{port}/", f"/tcp/{link}/")
            genesis.write_text(text)


class Reorganized(Chained):
    """
    Three brokers on one node, whose last blocks are replaced again and again.
    """

    kind = ANVIL
    brokers = 3
    # Blocks are final after some others, so that what is replaced is not.
    finality = str(FINALITY)

    def _command(self, made: TestChain, number: int) -> Sequence[str]:
        words = list(super()._command(made, number))
        words[words.index("--block-time") + 1] = BLOCK_TIME
        return words

    async def reorganize(self, depth: int) -> None:
        """Replace the last blocks by empty ones; their transactions are gone."""
        await self._ask("anvil_reorg", depth, [])

    async def dropAll(self) -> None:
        """Forget all transactions that are in no block."""
        await self._ask("anvil_dropAllTransactions")

    async def _ask(self, method: str, *parameters: object) -> None:
        rpc = operating.connectChain(self.reactor, [self.chain[0].url], operating.DIALECTS["auto"])
        try:
            await rpc.ask(RpcCall(method, parameters, bytes))
        finally:
            await rpc.close()
