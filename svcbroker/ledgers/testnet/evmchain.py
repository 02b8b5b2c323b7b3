"""
The EVM chain of a test network: validators of polygon-edge with IBFT, or one anvil; their files,
their processes, and the contract of the group.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from attrs import frozen
from msgspec import Struct
from twisted.internet.defer import gatherResults
from twisted.internet.task import deferLater

from ...commands.terminal import CommandError, Exit
from ...model import TopicRule
from ...storage import writeFile
from ..evm import checkInstalled, operating
from ..evm.operating import Account, ContractOwner, EvmError
from .blueprint import HOST, TestNetwork, TestNode, escaped, planNetwork, writeNode, writeRecord
from .processes import BrokerEnd, BrokerProcess

IBFT: Final = "ibft"
"""The kind of a chain of validators that decide by IBFT."""

ANVIL: Final = "anvil"
"""The kind of a chain of one node, without consensus."""

_PROGRAMS: Final[Mapping[str, tuple[str, str]]] = {
    IBFT: ("polygon-edge", "SVCBROKER_POLYGON_EDGE"),
    ANVIL: ("anvil", "SVCBROKER_ANVIL"),
}
_CHAIN_IDS: Final[Mapping[str, int]] = {IBFT: 20545, ANVIL: 31337}
_GAS_LIMIT: Final = {IBFT: "20000000", ANVIL: "30000000"}
_POLL: Final = 0.2
_TIMEOUT: Final = 60.0


class _Secrets(Struct):
    """The keys of a validator, as polygon-edge tells them."""

    node_id: str


def findProgram(kind: str, given: str | None, environment: Mapping[str, str]) -> Path:
    """
    The program of the chain's nodes: what was given, what the environment names, or that on the
    path.

    @param given: what stands on the command line.
    @raise CommandError: there is none, or the extra is not installed.
    """
    missing = checkInstalled()
    if missing:
        raise CommandError(missing)
    name, variable = _PROGRAMS[kind]
    path = shutil.which(
        given or environment.get(variable) or name, path=environment.get("PATH", os.defpath)
    )
    if path is None:
        raise CommandError(
            f"there is no {name} on the PATH: give the program with --engine, or in ${variable} "
            "(docs/evm.rst says where to get it)"
        )
    return Path(path).absolute()


@frozen(kw_only=True)
class TestChain:
    """
    The chain of a test network.

    @ivar program: that of its nodes.
    """

    network: TestNetwork
    program: Path

    @property
    def directory(self) -> Path:
        """The files of the nodes."""
        return self.network.directory / "chain"

    @property
    def isReplicated(self) -> bool:
        """Whether each broker has a validator beside it."""
        return self.network.kind == IBFT

    @property
    def nodes(self) -> Sequence[TestNode]:
        """The nodes of the test network that have one of the chain."""
        return self.network.nodes if self.isReplicated else self.network.nodes[:1]

    @property
    def id(self) -> int:
        """The chain's id."""
        return _CHAIN_IDS[self.network.kind]

    @property
    def ownerKey(self) -> Path:
        """The key of the contract's owner."""
        return self.directory / "owner.key"

    @property
    def contract(self) -> bytes:
        """The contract's address: the owner makes it with its first transaction."""
        return operating.contractAddress(Account.load(self.ownerKey).address, 0)

    def keyOf(self, node: TestNode) -> Path:
        """The key of a broker's account."""
        return node.directory / "account.key"

    def logOf(self, node: TestNode) -> Path:
        """The log of a node of the chain."""
        return node.directory / "chain.log"

    def _describeLedger(self, node: TestNode, topics: TopicRule) -> str:
        """The ledger of a broker, which asks its own node first."""
        ports = [each.ports["rpc"] for each in self.nodes]
        first = node.number % len(ports)
        endpoints = ",".join(map(str, [*ports[first:], *ports[:first]]))
        settings = {
            "endpoint": endpoints,
            "chain-id": str(self.id),
            "contract": operating.showAddress(self.contract),
            "key": escaped(self.keyOf(node)),
            "finality": "instant",
            "dialect": "edge" if self.isReplicated else "geth",
        }
        if topics is not TopicRule.PUBLISHED:
            settings["topics"] = topics.value
        return ":".join(["evm", *(f"{name}={value}" for name, value in settings.items())])

    def command(self, node: TestNode) -> Sequence[str]:
        """The command line that starts a node of the chain."""
        ports = node.ports
        if not self.isReplicated:
            return [
                *(str(self.program), "--host", HOST, "--port", str(ports["rpc"]), "--quiet"),
                *("--chain-id", str(self.id), "--hardfork", "istanbul", "--gas-price", "0"),
                *("--gas-limit", _GAS_LIMIT[ANVIL], "--accounts", "1", "--block-time", "1"),
                *("--state", str(self.directory / "state.json"), "--preserve-historical-states"),
            ]
        return [
            *(str(self.program), "server", "--data-dir", str(self._data(node)), "--seal"),
            *("--chain", str(self.genesisOf(node)), "--log-level", "ERROR"),
            *("--libp2p", f"{HOST}:{ports['p2p']}", "--jsonrpc", f"{HOST}:{ports['rpc']}"),
            *("--grpc-address", f"{HOST}:{ports['grpc']}", "--max-enqueued", "20000"),
            *("--json-rpc-batch-request-limit", "200", "--json-rpc-block-range-limit", "2000"),
        ]

    def _data(self, node: TestNode) -> Path:
        return self.directory / f"n{node.number}"

    def genesisOf(self, node: TestNode) -> Path:
        """The genesis of the chain as a node reads it."""
        return node.directory / "genesis.json"

    def layOut(self, topics: TopicRule, entropy: Callable[[int], bytes]) -> None:
        """
        Write all files: keys, genesis, configurations.

        @param topics: the rule of topics' names.
        @raise CommandError: the program refuses.
        """
        self.directory.mkdir(mode=0o700)
        for node in self.network.nodes:
            node.directory.mkdir(mode=0o700)
            Account.create(self.keyOf(node), entropy)
        Account.create(self.ownerKey, entropy)
        if self.isReplicated:
            self._makeGenesis()
        for node in self.network.nodes:
            writeNode(self.network, node, self._describeLedger(node, topics))
        writeRecord(self.network)

    def _makeGenesis(self) -> None:
        peers = []
        for node in self.nodes:
            told = self._run(
                "secrets", "init", "--data-dir", str(self._data(node)), "--insecure", "--json"
            )
            [secrets] = msgspec.json.decode(told, type=list[_Secrets])
            peers.append(f"/ip4/{HOST}/tcp/{node.ports['p2p']}/p2p/{secrets.node_id}")
        genesis = self.directory / "genesis.json"
        self._run(
            *("genesis", "--dir", str(genesis), "--consensus", "ibft"),
            *("--ibft-validator-type", "bls", "--validators-path", str(self.directory)),
            *("--validators-prefix", "n", "--block-gas-limit", _GAS_LIMIT[IBFT]),
            *("--block-time", "1s", "--base-fee-config", "1", "--chain-id", str(self.id)),
            *(word for each in peers for word in ("--bootnode", each)),
        )
        for node in self.nodes:
            writeFile(self.genesisOf(node), genesis.read_bytes())

    def _run(self, *arguments: str) -> bytes:
        try:
            done = subprocess.run(
                [self.program, *arguments], capture_output=True, timeout=_TIMEOUT, check=True
            )
        except (OSError, subprocess.SubprocessError) as error:
            said = getattr(error, "stderr", None) or b""
            words = said.decode("utf-8", "replace").strip() or str(error)
            raise CommandError(f"{self.program} {arguments[0]}: {words}", Exit.BAD) from None
        return done.stdout


def makeChain(
    directory: Path,
    nodes: int,
    basePort: int | None,
    *,
    kind: str,
    program: Path,
    topics: TopicRule = TopicRule.PUBLISHED,
    entropy: Callable[[int], bytes],
) -> TestChain:
    """
    Lay out a new network on an EVM chain.

    @param directory: its directory, which is empty.
    @param basePort: the first port; C{None}: free ports.
    @param topics: the rule of topics' names.
    @raise CommandError: it cannot be laid out.
    """
    network = planNetwork(directory, nodes, basePort, kind, entropy)
    chain = TestChain(network=network, program=program)
    chain.layOut(topics, entropy)
    return chain


async def _nothing(rpc: Any) -> None:
    """Prepare nothing."""


class RunningChain:
    """
    The nodes of a chain, as children of this process.
    """

    def __init__(
        self,
        chain: TestChain,
        reactor: Any,
        ended: Callable[[str, BrokerEnd], object],
        prepare: Callable[[Any], Awaitable[None]] = _nothing,
    ) -> None:
        """
        @param ended: told the name of a node that has ended without being stopped.
        @param prepare: called with a client of the chain before the contract is made.
        """
        self._prepare = prepare
        self._chain = chain
        self._reactor = reactor
        self._processes = [
            BrokerProcess(
                f"the chain's {node.name}",
                chain.command(node),
                chain.logOf(node),
                reactor=reactor,
                ended=lambda end, node=node: ended(f"the chain's {node.name}", end),  # type: ignore[misc]
            )
            for node in chain.nodes
        ]

    async def start(self) -> None:
        """
        Start the nodes, wait until they have blocks, and make the contract if it is not there.

        @raise CommandError: the contract cannot be made.
        """
        for process in self._processes:
            process.start()
        chain = self._chain
        url = f"http://{HOST}:{chain.nodes[0].ports['rpc']}"
        rpc = operating.connectChain(self._reactor, [url], operating.DIALECTS["auto"], chain.id)
        try:
            while not await self._hasBlock(rpc):
                await deferLater(self._reactor, _POLL)
            await self._prepare(rpc)
            if not await rpc.ask(operating.codeCall(chain.contract)):
                owner = Account.load(chain.ownerKey)
                accounts = [Account.load(chain.keyOf(node)) for node in chain.network.nodes]
                making = ContractOwner(clock=self._reactor, rpc=rpc, account=owner)
                await making.deploy([each.address for each in accounts])
        except EvmError as error:
            raise CommandError(f"the contract cannot be made: {error}", Exit.BAD) from None
        finally:
            await rpc.close()
        for process in self._processes:
            process.settle()

    async def _hasBlock(self, rpc: Any) -> bool:
        try:
            found: bool = (await rpc.ask(operating.blockCall("latest"))).height > 0
        except EvmError:
            return False
        return found

    async def stop(self) -> None:
        """End all nodes. Fires when no process is left."""
        await gatherResults([process.stop() for process in self._processes])
