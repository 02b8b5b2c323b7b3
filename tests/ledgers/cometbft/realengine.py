"""
A real engine with one validator, and an application for it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from attrs import evolve
from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import UNIXClientEndpoint
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.task import deferLater
from twisted.internet.utils import getProcessOutputAndValue
from twisted.python.failure import Failure
from twisted.trial.unittest import SkipTest, TestCase
from twisted.web.client import URI, Agent, readBody
from twisted.web.iweb import IAgentEndpointFactory
from zope.interface import implementer

from svcbroker.ledgers._jsonrpc import RpcCall
from svcbroker.ledgers.cometbft._engine import LIMITS, Engine, EngineState
from svcbroker.ledgers.cometbft.abci import AbciFactory, listenUnix, messages
from svcbroker.ledgers.cometbft.abci.messages import ExecutedTransaction
from tests.directories import shortDirectory
from tests.waiting import TIMEOUT as TIMEOUT

from .applications import BaseApplication

reactor: Any = _reactor


def cometbft() -> str:
    """
    The path of the engine.

    @raise SkipTest: there is none.
    """
    path = os.environ.get("SVCBROKER_COMETBFT") or shutil.which("cometbft")
    if not path or not os.access(path, os.X_OK):
        raise SkipTest(
            "there is no engine: build it with tools/engines/build, and set "
            "SVCBROKER_COMETBFT to its path"
        )
    return path


def raw(method: str, **parameters: object) -> RpcCall[Any]:
    """A call that no broker makes, for L{EngineRpc.ask}; its result is what JSON has."""
    return RpcCall(method, parameters, json.loads)


class Counter(BaseApplication):
    """
    Counts transactions, and keeps everything in memory.
    """

    def __init__(self) -> None:
        self.height = 0
        self.hash = b""
        self.count = 0
        self.begun = 0
        self.asked = 0
        self.txs: list[bytes] = []
        self._next: tuple[int, bytes, tuple[bytes, ...]] = (0, b"", ())
        self._waiters: list[tuple[Callable[[], bool], Deferred[None]]] = []

    def when(self, isTrue: Callable[[], bool]) -> Deferred[None]:
        """Fires after the first commit after which something is true."""
        waiting: Deferred[None] = Deferred()
        self._waiters.append((isTrue, waiting))
        return waiting.addTimeout(TIMEOUT, reactor)

    def info(self, request: messages.InfoRequest) -> messages.InfoResponse:
        """See L{Application}."""
        self.asked += 1
        return messages.InfoResponse(lastBlockHeight=self.height, lastBlockAppHash=self.hash)

    def initChain(self, request: messages.InitChainRequest) -> messages.InitChainResponse:
        """See L{Application}."""
        self.begun += 1
        return messages.InitChainResponse()

    def checkTx(self, request: messages.CheckTxRequest) -> messages.CheckTxResponse:
        """See L{Application}."""
        if request.tx == b"break":
            raise RuntimeError("broken by a transaction")
        return messages.CheckTxResponse(code=int(request.tx == b"bad"), log="checked")

    def finalizeBlock(
        self, request: messages.FinalizeBlockRequest
    ) -> messages.FinalizeBlockResponse:
        """See L{Application}."""
        state = self.hash
        for tx in request.txs:
            state = sha256(state + tx).digest()
        self._next = (request.height, state, request.txs)
        return messages.FinalizeBlockResponse(
            txResults=tuple(ExecutedTransaction(data=tx[::-1]) for tx in request.txs),
            appHash=state,
        )

    async def commit(self, request: messages.CommitRequest) -> messages.CommitResponse:
        """See L{Application}."""
        # As one that writes to a disk in a thread.
        await deferLater(reactor, 0)
        self.height, self.hash, txs = self._next
        self.txs += txs
        for waiter in list(self._waiters):
            if waiter[0]():
                self._waiters.remove(waiter)
                waiter[1].callback(None)
        return messages.CommitResponse()


@implementer(IAgentEndpointFactory)
class _Unix:
    def __init__(self, path: Path) -> None:
        self._path = path

    def endpointForURI(self, uri: URI) -> IStreamClientEndpoint:
        """See C{IAgentEndpointFactory}."""
        return UNIXClientEndpoint(reactor, str(self._path))


class RealEngineTestCase(TestCase):
    """
    One validator, its application in this process, and no port that others could have.
    """

    timeout = 2 * TIMEOUT

    def setUp(self) -> Deferred[None]:  # type: ignore[override]
        return Deferred.fromCoroutine(self._setUp())

    async def _setUp(self) -> None:
        program = cometbft()
        self.home = shortDirectory(self)
        _, errors, status = await getProcessOutputAndValue(
            program, ["init", "--home", str(self.home)], env={}
        )
        self.assertEqual(status, 0, errors)
        config = self.home / "config" / "config.toml"
        text = re.sub(
            "^timeout_commit = .*", 'timeout_commit = "20ms"', config.read_text(), flags=re.M
        )
        config.write_text(text)
        self.application = Counter()
        self.failures: list[Failure] = []
        self._inState: list[tuple[EngineState, Deferred[None]]] = []
        self.engine = Engine(
            [
                program,
                "start",
                f"--home={self.home}",
                f"--proxy_app=unix://{self.home}/abci.sock",
                f"--rpc.laddr=unix://{self.home}/rpc.sock",
                "--p2p.laddr=tcp://127.0.0.1:0",
            ],
            reactor=reactor,
            entropy=lambda: 0.0,
            limits=evolve(LIMITS, firstDelay=0.05),
            sockets=[self.home / "rpc.sock"],
            changed=self._changed,
        )
        self.factory = AbciFactory(
            self.application,
            clock=reactor,
            failed=self.failures.append,
            changed=self.engine.connectionsChanged,
        )
        port = listenUnix(reactor, self.home / "abci.sock", self.factory)
        self.addCleanup(port.stopListening)
        self.addCleanup(self.factory.close)
        self.addCleanup(self.engine.stop)

    def _changed(self, state: EngineState) -> None:
        for waiter in list(self._inState):
            if waiter[0] is state:
                self._inState.remove(waiter)
                waiter[1].callback(None)

    def inState(self, state: EngineState) -> Deferred[None]:
        """Fires when the engine is in a state the next time."""
        waiting: Deferred[None] = Deferred()
        self._inState.append((state, waiting))
        return waiting.addTimeout(TIMEOUT, reactor)

    async def ask(self, call: str) -> bytes:
        """An answer of the engine's RPC."""
        agent = Agent.usingEndpointFactory(reactor, _Unix(self.home / "rpc.sock"))
        answer: Any = await agent.request(b"GET", f"http://engine/{call}".encode())
        body: bytes = await readBody(answer)
        return body
