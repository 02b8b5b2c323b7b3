"""
A real node of a chain: anvil, with one contract and accounts that may use it.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred, DeferredLock
from twisted.internet.error import ProcessDone
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.python.failure import Failure
from twisted.trial.unittest import SkipTest, TestCase

from svcbroker.interfaces import ILedger, LedgerContext
from svcbroker.ledgers._jsonrpc import RpcCall
from svcbroker.ledgers.evm import EvmLedger, EvmSettings
from svcbroker.ledgers.evm._ethereum import Account
from svcbroker.ledgers.evm._evmrpc import DIALECTS, EvmRpc, connectChain
from svcbroker.ledgers.evm.operating import ContractOwner
from svcbroker.testing import FaultyDisk
from svcbroker.testing._fixtures import MAX_CONTENT

reactor: Any = _reactor

CHAIN_ID = 31337
STEP = 0.01


def anvil() -> str:
    """
    The path of the node.

    @raise SkipTest: there is none.
    """
    path = os.environ.get("SVCBROKER_ANVIL") or shutil.which("anvil")
    if not path or not os.access(path, os.X_OK):
        raise SkipTest("SVCBROKER_ANVIL names no anvil (npm: @foundry-rs/anvil-linux-amd64)")
    return path


class _Process(ProcessProtocol):
    """The output of a node, up to the port that it listens on."""

    def __init__(self) -> None:
        self.listening: Deferred[int] = Deferred()
        self.ended: Deferred[None] = Deferred()
        self._text = b""

    def outReceived(self, data: bytes) -> None:
        if self.listening.called:
            return
        self._text += data
        found = re.search(rb"Listening on 127\.0\.0\.1:(\d+)", self._text)
        if found:
            self.listening.callback(int(found[1]))

    def processEnded(self, reason: Failure) -> None:
        if not self.listening.called:
            self.listening.errback(reason)
        reason.trap(ProcessDone, Exception)
        self.ended.callback(None)


class Chain:
    """
    A running node.

    @ivar url: its JSON-RPC.
    @ivar rpc: a client of it.
    """

    url: str
    rpc: EvmRpc
    contract: bytes
    owner: Account

    def __init__(self, test: TestCase) -> None:
        self._test = test
        self._process = _Process()
        self._program = anvil()

    async def start(self, *options: str) -> None:
        """Start it; by default each transaction gets a block at once."""
        arguments = [
            *("anvil", "--host", "127.0.0.1", "--port", "0", "--chain-id", str(CHAIN_ID)),
            *("--hardfork", "istanbul", "--gas-price", "0", "--gas-limit", "30000000"),
            *("--accounts", "1", *options),
        ]
        transport = reactor.spawnProcess(self._process, self._program, arguments, env={})
        self._test.addCleanup(self._end, transport)
        port = await self._process.listening
        self.url = f"http://127.0.0.1:{port}"
        self.rpc = connectChain(reactor, [self.url], DIALECTS["geth"])
        self._test.addCleanup(self.rpc.close)

    def _end(self, transport: Any) -> Deferred[None]:
        if transport.pid:
            transport.signalProcess("KILL")
        return self._process.ended

    async def deploy(self, accounts: Sequence[Account]) -> None:
        """Make a contract that allows some accounts."""
        self.owner = Account(os.urandom(32))
        owner = ContractOwner(clock=reactor, rpc=self.rpc, account=self.owner)
        self.contract = await owner.deploy([each.address for each in accounts])

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
                "chainId": CHAIN_ID,
                "finality": 0,
                "interval": 0.005,
                **changes,
            }
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

    def __init__(self, test: TestCase) -> None:
        self._test = test
        anvil()

    def makeLedger(self, directory: Path) -> ILedger:
        """A ledger, which waits for the node when it starts."""
        return _WaitingLedger(self._test, directory)

    def pass_(self) -> Deferred[None]:
        """Let some milliseconds pass."""
        return deferLater(reactor, STEP)


_chains: dict[Path, Chain] = {}


class _WaitingLedger(EvmLedger):
    """A ledger whose chain starts before it."""

    def __init__(self, test: TestCase, directory: Path) -> None:
        self._test = test
        self._place = directory

    def start(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self._begin())

    async def _begin(self) -> None:
        chain = _chains.get(self._place)
        path = self._place.with_name(f"{self._place.name}.key")
        if chain is None:
            chain = _chains[self._place] = Chain(self._test)
            self._test.addCleanup(_chains.pop, self._place)
            await chain.start()
            path.parent.mkdir(exist_ok=True)
            await chain.deploy([Account.create(path, os.urandom)])
        super().__init__(contextOf(self._place), chain.settings(path))
        await super().start()
