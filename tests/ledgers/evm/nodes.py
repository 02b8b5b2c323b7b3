"""
Real nodes of a chain, with one contract and accounts that may use it: anvil, geth,
and validators of polygon-edge.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred, DeferredLock
from twisted.internet.error import ProcessDone
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.internet.utils import getProcessOutputAndValue
from twisted.python.failure import Failure
from twisted.trial.unittest import SkipTest, TestCase

from svcbroker.interfaces import ILedger, LedgerContext
from svcbroker.ledgers._jsonrpc import RpcCall
from svcbroker.ledgers.evm import EvmLedger
from svcbroker.ledgers.evm._ethereum import EvmAccount
from svcbroker.ledgers.evm._evmrpc import (
    DIALECTS,
    EvmError,
    EvmRpc,
    balanceCall,
    blockCall,
    connectChain,
    gasPriceCall,
    todata,
)
from svcbroker.ledgers.evm._evmsettings import EvmSettings
from svcbroker.ledgers.evm.operating import ContractOwner
from svcbroker.testing import FaultyDisk
from svcbroker.testing._fixtures import MAX_CONTENT
from tests.ledgers.cometbft.network import freeAddresses
from tests.waiting import until

reactor: Any = _reactor

STEP = 0.01
MONEY = 10**21
"""The wei of each account, where gas costs something."""


def programOf(name: str, source: str) -> str:
    """
    The path of a node.

    @param source: where it is to be had.
    @raise SkipTest: there is none.
    """
    variable = f"SVCBROKER_{name.upper().replace('-', '_')}"
    path = os.environ.get(variable) or shutil.which(name)
    if not path or not os.access(path, os.X_OK):
        raise SkipTest(f"{variable} names no {name} ({source})")
    return path


class _Process(ProcessProtocol):
    """The output of a node, up to the port that it listens on."""

    def __init__(self, listening: bytes) -> None:
        self._pattern = listening
        self.listening: Deferred[int] = Deferred()
        self.ended: Deferred[None] = Deferred()
        self._text = b""

    def outReceived(self, data: bytes) -> None:
        if self.listening.called:
            return
        self._text += data
        found = re.search(self._pattern, self._text)
        if found:
            self.listening.callback(int(found[1]))

    errReceived = outReceived

    def processEnded(self, reason: Failure) -> None:
        if not self.listening.called:
            self.listening.errback(reason)
        reason.trap(ProcessDone, Exception)
        self.ended.callback(None)


class Chain:
    """
    A running node: anvil, where gas costs nothing. Each transaction gets a block at once.

    @cvar id: the chain's id.
    @ivar url: its JSON-RPC.
    @ivar rpc: a client of it.
    @ivar gasPrice: what gas costs.
    """

    id = 31337
    url: str
    rpc: EvmRpc
    contract: bytes
    owner: EvmAccount
    gasPrice = 0

    @classmethod
    def program(cls) -> str:
        """
        The path of its program.

        @raise SkipTest: there is none.
        """
        return programOf("anvil", "npm: @foundry-rs/anvil-linux-amd64")

    def __init__(self, test: TestCase) -> None:
        self._test = test
        self._process = _Process(rb"Listening on 127\.0\.0\.1:(\d+)")
        self._program = self.program()

    async def start(self, *options: str) -> None:
        """Start it."""
        arguments = [
            *("anvil", "--host", "127.0.0.1", "--port", "0", "--chain-id", str(self.id)),
            *("--hardfork", "istanbul", "--gas-price", "0", "--gas-limit", "30000000"),
            *("--accounts", "1", *options),
        ]
        directory = Path(self._test.mktemp())
        directory.mkdir()
        environment = {"TMPDIR": str(directory.absolute())}
        transport = reactor.spawnProcess(self._process, self._program, arguments, env=environment)
        self._test.addCleanup(self._end, transport)
        port = await self._process.listening
        self.url = f"http://127.0.0.1:{port}"
        self.rpc = connectChain(reactor, [self.url], DIALECTS["geth"])
        self._test.addCleanup(self.rpc.close)

    def _end(self, transport: Any) -> Deferred[None]:
        if transport.pid:
            transport.signalProcess("KILL")
        return self._process.ended

    async def deploy(self, accounts: Sequence[EvmAccount]) -> None:
        """Make a contract that allows some accounts."""
        self.owner = EvmAccount(os.urandom(32))
        await self.fund([self.owner, *accounts])
        owner = ContractOwner(clock=reactor, rpc=self.rpc, account=self.owner)
        self.contract = await owner.deploy([each.address for each in accounts])

    async def fund(self, accounts: Sequence[EvmAccount]) -> None:
        """Give accounts what they pay gas with."""

    def give(self, account: EvmAccount, wei: int) -> Deferred[Any]:
        """Give an account of anvil all the money that it has then."""
        return self.ask("anvil_setBalance", todata(account.address), hex(wei))

    def ask(self, method: str, *parameters: object) -> Deferred[Any]:
        """Make a call of the node itself; the JSON of its answer."""
        return self.rpc.ask(RpcCall(method, parameters, bytes))

    def settings(self, key: Path, **changes: Any) -> EvmSettings:
        """The settings of a ledger on it."""
        return EvmSettings(
            **{
                "endpoint": (self.url,),
                "contract": self.contract,
                "key": key,
                "chainId": self.id,
                "finality": 0,
                "interval": 0.005,
                **changes,
            }
        )


@cache
def _geth(program: str) -> str:
    """
    The JSON-RPC of the geth of all tests of this process, with which it ends. Each test has a
    contract of its own there: a start takes longer than most tests.
    """
    directory = tempfile.mkdtemp(prefix="svcbroker-geth-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    # Without a directory of its own all is in memory.
    arguments = (
        *(program, "--dev", "--dev.gaslimit", "30000000"),
        *("--http", "--http.addr", "127.0.0.1", "--http.port", "0", "--http.api", "eth"),
        *("--authrpc.port", "0", "--port", "0", "--nodiscover", "--maxpeers", "0"),
        *("--nat", "none", "--ipcdisable"),
    )
    process = subprocess.Popen(
        arguments,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={"TMPDIR": directory},
    )
    atexit.register(process.kill)
    assert process.stderr is not None
    for line in process.stderr:
        found = re.search(rb"HTTP server started +endpoint=127\.0\.0\.1:(\d+)", line)
        if found:
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return f"http://127.0.0.1:{int(found[1])}"
    raise AssertionError(f"geth has ended: {process.wait()}")


class Geth(Chain):
    """
    A running node: geth, with the newest forks, where gas costs something.
    """

    id = 1337

    @classmethod
    def program(cls) -> str:
        return programOf("geth", "tools/engines/build geth")

    async def start(self, *options: str) -> None:
        """Start it, if it does not run."""
        self.url = _geth(self._program)
        self.rpc = connectChain(reactor, [self.url], DIALECTS["geth"])
        self._test.addCleanup(self.rpc.close)

    async def fund(self, accounts: Sequence[EvmAccount]) -> None:
        [rich] = json.loads(await self.ask("eth_accounts"))
        for each in accounts:
            transfer = {"from": rich, "to": todata(each.address), "value": hex(MONEY)}
            await self.ask("eth_sendTransaction", transfer)
            # geth gives the account the next nonce only after this transaction is in its pool.
            await until(lambda each=each: self._isRich(each))  # type: ignore[misc]
        self.gasPrice = await self.rpc.ask(gasPriceCall())

    async def _isRich(self, account: EvmAccount) -> bool:
        return await self.rpc.ask(balanceCall(account.address)) > 0


class Validators(Chain):
    """
    Four validators of polygon-edge with IBFT, whose blocks come each second; gas costs nothing.

    @ivar urls: the JSON-RPC of each.
    """

    id = 20545

    def __init__(self, test: TestCase) -> None:
        super().__init__(test)
        self._running: dict[int, tuple[Any, _Process]] = {}

    @classmethod
    def program(cls) -> str:
        return programOf("polygon-edge", "tools/engines/build polygon-edge")

    async def start(self, *options: str) -> None:
        """Lay them out, start all, and wait until they have a block."""
        self._directory = Path(self._test.mktemp()).absolute()
        self._directory.mkdir()
        self._links, self._ports = freeAddresses(4), freeAddresses(8)
        made = await self._run("secrets", "init", "--data-dir", "n", *_SECRETS)
        nodes = re.findall(r'"node_id":"(\w+)"', made)
        peers = [
            f"/ip4/{link.host}/tcp/{link.port}/p2p/{node}"
            for link, node in zip(self._links, nodes, strict=True)
        ]
        bootnodes = [word for each in peers for word in ("--bootnode", each)]
        await self._run("genesis", *_GENESIS, "--chain-id", str(self.id), *bootnodes)
        self.urls = [f"http://{each}" for each in self._ports[:4]]
        self.url = self.urls[0]
        for index in range(4):
            self.run(index)
            self._test.addCleanup(self.kill, index)
        self.rpc = connectChain(reactor, [self.url], DIALECTS["edge"])
        self._test.addCleanup(self.rpc.close)
        await until(self._hasBlock)

    async def _run(self, *arguments: str) -> str:
        output, errors, code = await getProcessOutputAndValue(
            self._program, arguments, env={}, path=str(self._directory)
        )
        self._test.assertEqual(code, 0, errors)
        return str(output, "utf-8")

    def settings(self, key: Path, **changes: Any) -> EvmSettings:
        endpoints = (self.urls[0], self.urls[2], self.urls[3])
        return super().settings(key, **{"endpoint": endpoints, **changes})

    async def _hasBlock(self) -> bool:
        try:
            return (await self.rpc.ask(blockCall("latest"))).height > 0
        except EvmError:
            return False

    def run(self, index: int) -> None:
        """Start one."""
        process = _Process(rb"(?!)")
        process.listening.addErrback(lambda reason: None)
        arguments = [
            *("polygon-edge", "server", "--data-dir", f"n{index + 1}", "--chain", "genesis.json"),
            *("--libp2p", str(self._links[index]), "--jsonrpc", str(self._ports[index])),
            *("--grpc-address", str(self._ports[4 + index]), "--seal", "--log-level", "ERROR"),
        ]
        transport = reactor.spawnProcess(
            process, self._program, arguments, env={}, path=str(self._directory)
        )
        self._running[index] = transport, process

    async def kill(self, index: int) -> None:
        """Kill one, if it runs."""
        transport, process = self._running[index]
        if transport.pid:
            transport.signalProcess("KILL")
        await process.ended


_SECRETS: Final = ("--insecure", "--num", "4", "--json")
_GENESIS: Final = (
    *("--consensus", "ibft", "--ibft-validator-type", "bls", "--validators-path", "."),
    *("--validators-prefix", "n", "--block-gas-limit", "20000000", "--block-time", "1s"),
    *("--base-fee-config", "1"),
)


def contextOf(directory: Path, group: str = "1") -> LedgerContext:
    """What a ledger lives on, in real time."""
    lock = DeferredLock()
    return LedgerContext(
        group=group,
        directory=directory,
        reactor=reactor,
        now=time.time,
        entropy=os.urandom,
        runInThread=lambda call, *args: lock.run(deferToThread, call, *args),
        maxContent=MAX_CONTENT,
    )


class ChainFixture:
    """
    Ledgers on a node that starts with the first of them. See
    L{LedgerFixture<svcbroker.testing.LedgerFixture>}.
    """

    isDurable = True
    disk: FaultyDisk | None = None
    bound: int | None = None

    chain = Chain

    def __init__(self, test: TestCase) -> None:
        self._test = test
        self.chain.program()

    def makeLedger(self, directory: Path) -> ILedger:
        """A ledger, which waits for the node when it starts."""
        return _WaitingLedger(self._test, directory, self.chain)

    def pass_(self) -> Deferred[None]:
        """Let some milliseconds pass."""
        return deferLater(reactor, STEP)


class GethFixture(ChainFixture):
    """
    Ledgers on geth.
    """

    chain = Geth


class ValidatorsFixture(ChainFixture):
    """
    Ledgers on four validators.

    Each test has validators of its own and waits for blocks of a second, so that all of the
    contract takes a quarter of an hour: it is tested where C{SVCBROKER_LONG} is set.
    """

    chain = Validators

    def __init__(self, test: TestCase) -> None:
        if not os.environ.get("SVCBROKER_LONG"):
            raise SkipTest("SVCBROKER_LONG is not set: nox -s chains runs what takes long")
        super().__init__(test)


_chains: dict[Path, Chain] = {}


class _WaitingLedger(EvmLedger):
    """A ledger whose chain starts before it."""

    def __init__(self, test: TestCase, directory: Path, chain: type[Chain]) -> None:
        self._test = test
        self._place = directory
        self._chain = chain

    def start(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self._begin())

    async def _begin(self) -> None:
        chain = _chains.get(self._place)
        path = self._place.with_name(f"{self._place.name}.key")
        if chain is None:
            chain = _chains[self._place] = self._chain(self._test)
            self._test.addCleanup(_chains.pop, self._place)
            await chain.start()
            path.parent.mkdir(exist_ok=True)
            await chain.deploy([EvmAccount.create(path, os.urandom)])
        super().__init__(contextOf(self._place), chain.settings(path))
        await super().start()
