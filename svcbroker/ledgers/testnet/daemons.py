"""
The daemons of a test network, and the EVM chain of one: validators of polygon-edge with IBFT, or
one anvil; their files, their processes with logs, from start to stop, and the contract of the
group.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
from attrs import frozen
from msgspec import Struct
from twisted.internet.defer import CancelledError, Deferred, gatherResults
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.task import deferLater, react
from twisted.python.failure import Failure

from ...commands.terminal import CommandError, Console, Exit, progressBar, showRecord
from ...model import TopicRule
from ...net.deferreds import asDeferred
from ...net.http import HttpError, makeClient, readBody
from ...net.processes import ProcessEnd, ProcessLimits, Supervisor
from ...storage import writeFile
from ..evm import checkInstalled, operating
from ..evm.operating import ContractOwner, EvmAccount, EvmError
from .blueprint import (
    CARRIERS,
    ENGINES,
    HOST,
    TestNetwork,
    TestNode,
    escaped,
    planNetwork,
    writeNode,
    writeRecord,
)

LIMITS: Final = ProcessLimits(firstDelay=1.0, maxDelay=30.0, endTimeout=45.0)

_MAX_LINE = 4096


@frozen(kw_only=True)
class BrokerEnd:
    """
    The end of a broker.

    @ivar how: with which status, or by which signal.
    @ivar lastWords: the last line of its standard error; where it has none and no signal ended
        it, of its log.
    """

    how: ProcessEnd
    lastWords: str

    def __str__(self) -> str:
        return str(self.how) + (f": {self.lastWords}" if self.lastWords else "")


class BrokerProcess:
    """
    Keeps one broker running, and its output in a file.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        reactor: Any,
        ended: Callable[[BrokerEnd], object],
    ) -> None:
        """
        @param name: what it is called.
        @param command: what starts it.
        @param log: the file that its output is appended to.
        @param reactor: starts processes and keeps time.
        @param ended: told when it has ended without being stopped, before it is started again.
        """
        self._process = Supervisor(
            name,
            command,
            clock=reactor,
            limits=LIMITS,
            launch=self._launch,
            output=self._outputReceived,
            ended=self._processEnded,
        )
        self._log = log
        self._reactor = reactor
        self._tell = ended
        self._errors = b""

    def start(self) -> None:
        """Start it, and start it again whenever it ends."""
        self._process.start()

    def settle(self) -> None:
        """It serves: its next end counts as the first."""
        self._process.settle()

    def stop(self) -> Deferred[None]:
        """
        End it, and do not start it again.

        @return: fires when there is no process any more.
        """
        return self._process.stop()

    def _launch(self, child: ProcessProtocol, program: str, arguments: Sequence[str]) -> None:
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        try:
            log = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                self._reactor.spawnProcess(
                    child,
                    program,
                    arguments,
                    env=os.environ,
                    path=str(self._log.parent),
                    childFDs={0: nothing, 1: log, 2: "r"},
                )
            finally:
                os.close(log)
        finally:
            os.close(nothing)

    def _outputReceived(self, data: bytes, isError: bool) -> None:
        with self._log.open("ab") as file:
            file.write(data)
        self._errors = (self._errors + data)[-_MAX_LINE:]

    def _processEnded(self, end: ProcessEnd) -> None:
        words = _lastLine(self._errors)
        self._errors = b""
        if not words and end.status is not None:
            with self._log.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _MAX_LINE))
                words = _lastLine(file.read())
        if self._process.isWanted:
            self._tell(BrokerEnd(how=end, lastWords=words))


def _lastLine(data: bytes) -> str:
    lines = data.decode("utf-8", "replace").split("\n")
    words = [line.strip() for line in lines if line.strip()]
    return words[-1] if words else ""


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
        return operating.contractAddress(EvmAccount.load(self.ownerKey).address, 0)

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
            EvmAccount.create(self.keyOf(node), entropy)
        EvmAccount.create(self.ownerKey, entropy)
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
        Start the nodes, wait until they make blocks, and make the contract if it is not there.

        Validators that were stopped have their old blocks at once. The first new one may take them
        half a minute, since a round that they begin before they have found each other waits for
        its end.

        @raise CommandError: the contract cannot be made.
        """
        for process in self._processes:
            process.start()
        chain = self._chain
        url = f"http://{HOST}:{chain.nodes[0].ports['rpc']}"
        rpc = operating.connectChain(self._reactor, [url], operating.DIALECTS["auto"], chain.id)
        try:
            await self._height(rpc, 1 + await self._height(rpc, 0))
            await self._prepare(rpc)
            if not await rpc.ask(operating.codeCall(chain.contract)):
                owner = EvmAccount.load(chain.ownerKey)
                accounts = [EvmAccount.load(chain.keyOf(node)) for node in chain.network.nodes]
                making = ContractOwner(clock=self._reactor, rpc=rpc, account=owner)
                await making.deploy([each.address for each in accounts])
        except EvmError as error:
            raise CommandError(f"the contract cannot be made: {error}", Exit.BAD) from None
        finally:
            await rpc.close()
        for process in self._processes:
            process.settle()

    async def _height(self, rpc: Any, atLeast: int) -> int:
        """The chain's height, once a node tells that it is so high."""
        while True:
            with suppress(EvmError):
                height: int = (await rpc.ask(operating.blockCall("latest"))).height
                if height >= atLeast:
                    return height
            await deferLater(self._reactor, _POLL)

    async def stop(self) -> None:
        """End all nodes. Fires when no process is left."""
        await gatherResults([process.stop() for process in self._processes])


POLL: Final = 0.2
"""Seconds from one look at a broker that is not ready to the next."""

ANSWER: Final = 10.0
"""Seconds that a broker may take to tell whether it is ready."""

_MAX_ANSWER = 64 * 1024


class RunningNetwork:
    """
    The brokers of a test network, each with its engine.
    """

    def __init__(
        self,
        network: TestNetwork,
        ledgers: Sequence[str | None],
        *,
        reactor: Any,
        console: Console,
        timeout: float,
        asJson: bool,
        chain: TestChain | None = None,
    ) -> None:
        """
        @param ledgers: the ledger of each broker, where it differs from its configuration.
        @param timeout: how many seconds the start may take.
        @param chain: the EVM chain that the ledgers are on.
        @param asJson: show the network as JSON, and all else on standard error.
        """
        self._asJson = asJson
        self._network = network
        self._reactor = reactor
        self._console = console
        self._timeout = timeout
        self._client = makeClient(reactor, maxBody=_MAX_ANSWER)
        self._reasons = {node.number: "it has not answered" for node in network.nodes}
        self._begun: Deferred[None] = Deferred()
        self._chain = None if chain is None else RunningChain(chain, reactor, self._chainEnded)
        self._returning: dict[int, Deferred[None]] = {}
        self._brokers = [
            BrokerProcess(
                node.name,
                node.command(ledger),
                node.log,
                reactor=reactor,
                ended=partial(self._brokerEnded, node),
            )
            for node, ledger in zip(network.nodes, ledgers, strict=True)
        ]

    async def run(self) -> None:
        """
        Start all of it, tell where it is, and keep it running until it is cancelled.

        @raise CommandError: it does not start.
        """
        nodes = self._network.nodes
        with progressBar(self._console, "starting", "nodes") as report:

            async def ready(node: TestNode) -> None:
                await self._ready(node)
                report(len(nodes) - len(self._reasons), len(nodes))

            async def begin() -> None:
                if self._chain is not None:
                    await self._chain.start()
                for broker in self._brokers:
                    broker.start()
                await gatherResults(
                    [Deferred.fromCoroutine(ready(node)) for node in nodes], consumeErrors=True
                )

            report(0, len(nodes))
            looking = Deferred.fromCoroutine(begin())
            looking.addCallbacks(lambda _: self._begun.callback(None), self._notReady)
            self._begun.addTimeout(self._timeout, self._reactor, self._tooLate)
            try:
                await self._begun
            finally:
                looking.cancel()
        for broker in self._brokers:
            broker.settle()
        showRecord(self._console, recordOf(self._network), describe(self._network), self._asJson)
        self._console.output.flush()
        await Deferred()

    async def stop(self) -> None:
        """End all of it. Fires when no process is left."""
        self.say("Stopping.")
        for returning in self._returning.values():
            returning.cancel()
        await gatherResults([broker.stop() for broker in self._brokers])
        if self._chain is not None:
            await self._chain.stop()
        self.say("Stopped.")

    def say(self, *lines: str) -> None:
        """Write lines about what happens, at once."""
        for line in lines:
            (self._console.warn if self._asJson else self._console.say)(line)
        self._console.output.flush()

    def _chainEnded(self, name: str, end: BrokerEnd) -> None:
        if self._begun.called:
            self.say(f"{name} has ended {end}; it is started again")
        else:
            self._begun.errback(CommandError(f"{name} has ended {end}", Exit.BAD))

    def _brokerEnded(self, node: TestNode, end: BrokerEnd) -> None:
        if not self._begun.called:
            self._begun.errback(
                CommandError(f"{node.name} has ended {end} (its log is {node.log})", Exit.BAD)
            )
            return
        self.say(f"{node.name} has ended {end}; it is started again")
        before = self._returning.pop(node.number, None)
        if before is not None:
            before.cancel()
        returning = self._return(node)
        self._returning[node.number] = returning
        returning.addErrback(lambda failure: failure.trap(CancelledError))

    @asDeferred
    async def _return(self, node: TestNode) -> None:
        await self._ready(node)
        self._brokers[node.number].settle()
        self.say(f"{node.name} is ready again")

    def _notReady(self, failure: Failure) -> None:
        # Cancelled with the start, which knows why.
        if not self._begun.called:
            self._begun.errback(failure)

    def _tooLate(self, result: object, seconds: float) -> Failure:
        node, reason = next(iter(self._reasons.items()))
        return Failure(
            CommandError(
                f"node{node} is not ready after {seconds:g} seconds: {reason} (its log is "
                f"{self._network.nodes[node].log})",
                Exit.BAD,
            )
        )

    async def _ready(self, node: TestNode) -> None:
        """Fires when the broker of a node can be given work."""
        while True:
            reason = await self._look(node)
            if not reason:
                self._reasons.pop(node.number, None)
                return
            self._reasons[node.number] = reason
            await deferLater(self._reactor, POLL)

    async def _look(self, node: TestNode) -> str:
        """The reason for which a broker is not ready; empty where it is."""
        try:
            response = await self._client.request(
                "GET", f"{node.root}/readyz", timeout=ANSWER, maxBody=_MAX_ANSWER
            )
            answer = json.loads(await readBody(response))
            if answer["status"] == "ready":
                return ""
            return "; ".join(group["reason"] for group in answer["groups"].values())
        except HttpError:
            return "it does not answer"
        except (ValueError, LookupError, TypeError, AttributeError):
            return f"what answers at {node.root} is no svcbroker"


def recordOf(network: TestNetwork, chain: TestChain | None = None) -> Mapping[str, Any]:
    """
    Addresses of the nodes of a network, and the commands that start them, for JSON.

    @param chain: the EVM chain that it is on, which has nodes of its own.
    """
    return {
        "directory": str(network.directory),
        "nodes": [
            {
                "name": node.name,
                "url": node.url,
                "ports": node.ports,
                "log": str(node.log),
                "command": node.command(),
            }
            for node in network.nodes
        ],
        **({} if chain is None else {"chain": _chainRecord(chain)}),
    }


def _chainRecord(chain: TestChain) -> Mapping[str, Any]:
    return {
        "id": chain.id,
        "ownerKey": str(chain.ownerKey),
        "nodes": [
            {
                "genesis": str(chain.genesisOf(node)),
                "log": str(chain.logOf(node)),
                "command": chain.command(node),
            }
            for node in chain.nodes
        ],
    }


_ENGINE_PORTS: Final[Mapping[str, Mapping[str, str]]] = {
    ENGINES: {"p2p": "engine's P2P", "rpc": "engine's RPC"},
    IBFT: {"p2p": "validator's P2P", "rpc": "validator's RPC"},
}


def describe(network: TestNetwork) -> Sequence[str]:
    """Addresses of the nodes of a network, in lines for people."""
    ofEngines = _ENGINE_PORTS.get(network.kind, {})
    shown = (*CARRIERS[1:], *ofEngines)
    rows: list[tuple[str, ...]] = [
        ("node", *(name.upper() for name in CARRIERS), *ofEngines.values())
    ]
    for node in network.nodes:
        rows.append((node.name, node.url, *(f":{node.ports[name]}" for name in shown)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    table = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    lines = [
        *table,
        "",
        f"{len(network.nodes)} nodes are ready. Their logs: "
        f"{network.directory}/node*/broker.log. Ctrl-C stops all of them.",
    ]
    if not ofEngines:
        port = network.nodes[0].ports["rpc"]
        lines.insert(-1, f"The chain is one node, at http://{HOST}:{port}.")
    return lines


def runNetwork(
    network: TestNetwork,
    ledgers: Sequence[str | None],
    console: Console,
    timeout: float,
    *,
    asJson: bool,
    chain: TestChain | None = None,
) -> None:
    """
    Run a network until somebody interrupts this process. Runs the reactor, so it may be called
    once in a process.

    @raise CommandError: it does not start; nothing of it runs then.
    """
    failures: list[Failure] = []

    def main(reactor: Any) -> Deferred[None]:
        running = RunningNetwork(
            network,
            ledgers,
            reactor=reactor,
            console=console,
            timeout=timeout,
            asJson=asJson,
            chain=chain,
        )
        work = Deferred.fromCoroutine(running.run())

        def stop() -> Deferred[None]:
            isOver.append(True)
            work.cancel()
            return Deferred.fromCoroutine(running.stop())

        def over(failure: Failure) -> None:
            if not isOver:
                failures.append(failure)

        isOver: list[bool] = []
        reactor.addSystemEventTrigger("before", "shutdown", stop)
        return work.addErrback(over)

    # It always ends so; what came of it is known by then.
    with suppress(SystemExit):
        react(main)
    for failure in failures[:1]:
        failure.raiseException()
