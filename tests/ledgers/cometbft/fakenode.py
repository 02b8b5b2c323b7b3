"""
An engine beside a ledger, without a process or a network.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from svcbroker.ledgers.cometbft._engine import CONNECTIONS
from svcbroker.ledgers.cometbft._rpc import Broadcast, EngineError, Reason
from svcbroker.ledgers.cometbft.abci import (
    AbciFactory,
    AbciFrameParser,
    decodeResponse,
    encodeFrame,
    messages,
)
from svcbroker.proofs.cometbft import Hex

from .fakeconsensus import FakeConsensus


class Gone(Exception):
    """The application does not answer any more, so the engine ends."""


class FakePort:
    """
    The port where the application listens.

    @ivar isOpen: whether it does.
    """

    def __init__(self, factory: AbciFactory) -> None:
        self.factory = factory
        self.isOpen = True

    def stopListening(self) -> Deferred[None]:
        """See C{IListeningPort}."""
        self.isOpen = False
        return succeed(None)


@define(eq=False)
class FakeNode:
    """
    An engine with its mempool. It runs while it is wanted and somebody listens; a test says when
    it connects, decides and ends.

    @ivar pool: what waits for a block.
    @ivar lastError: while it is set, every broadcast fails with it.
    @ivar isWanted: whether it was started and not stopped.
    @ivar broken: why it does not come back, if it does not.
    @ivar isUp: whether it has played what the application lacks, and its RPC answers.
    """

    clock: Clock
    consensus: FakeConsensus = field(factory=FakeConsensus)
    pool: list[bytes] = field(factory=list)
    lastError: Reason | None = None
    isWanted: bool = False
    connections: int = 0
    isUp: bool = False
    broken: str = ""
    ports: list[FakePort] = field(factory=list)
    _open: list[tuple[Any, StringTransport, AbciFrameParser]] = field(factory=list)

    # What keeps it running.

    @property
    def reason(self) -> str:
        """See L{EngineSupervisor}."""
        return "" if self.connections >= CONNECTIONS else "the engine is away"

    @property
    def failure(self) -> str:
        """See L{EngineSupervisor}."""
        return self.broken

    def start(self) -> None:
        """See L{EngineSupervisor}."""
        self.isWanted = True

    def stop(self) -> Deferred[None]:
        """See L{EngineSupervisor}."""
        self.isWanted = False
        self.end()
        return succeed(None)

    def connectionsChanged(self, count: int) -> None:
        """See L{EngineSupervisor}."""
        self.connections = count

    def listen(self, factory: AbciFactory) -> Any:
        """Somebody listens."""
        self.ports.append(FakePort(factory))
        return self.ports[-1]

    def close(self) -> Deferred[None]:
        """See L{EngineRpc.close<svcbroker.ledgers.cometbft._rpc.EngineRpc.close>}."""
        return succeed(None)

    # What it does.

    def connect(self) -> Sequence[int]:
        """It starts, and plays what the application lacks."""
        assert self.isWanted and self.ports[-1].isOpen, "it would wait"
        for _ in range(CONNECTIONS):
            protocol = self.ports[-1].factory.buildProtocol(None)
            assert protocol is not None
            transport = StringTransport()
            self._open.append((protocol, transport, AbciFrameParser()))
            protocol.makeConnection(transport)
        application: Any = self
        played = self.consensus.connect(application)
        self.isUp = True
        self.clock.advance(0)
        return played

    def end(self) -> None:
        """It ends, and has lost what waited."""
        ending, self._open = self._open, []
        self.isUp = False
        self.pool.clear()
        for protocol, _, _ in ending:
            protocol.connectionLost(Failure(ConnectionError("the engine has ended")))

    def decide(self) -> None:
        """A block with everything that waits and may be in it; then it is checked again."""
        prepared = self._ask(
            messages.PrepareProposalRequest(
                txs=tuple(self.pool), maxTxBytes=10**7, time=int(self.clock.seconds()) * 10**9
            )
        )
        application: Any = self
        self.consensus.run(application, *prepared.txs)
        waiting = [data for data in self.pool if data not in prepared.txs]
        self.pool[:] = [
            data for data in waiting if not self._check(data, messages.CheckTxType.RECHECK).code
        ]
        self.clock.advance(0)

    def info(self, request: messages.InfoRequest) -> Any:
        """Ask the application, as its own method."""
        return self._ask(request)

    initChain = finalizeBlock = commit = info

    def _check(self, data: bytes, kind: messages.CheckTxType = messages.CheckTxType.NEW) -> Any:
        return self._ask(messages.CheckTxRequest(tx=data, type=kind), 1)

    def _ask(self, request: messages.Request, connection: int = 0) -> Any:
        if not self._open:
            raise Gone("it does not run")
        protocol, transport, parser = self._open[connection]
        protocol.dataReceived(encodeFrame(request))
        self.clock.advance(0)
        parser.feed(transport.value())
        transport.clear()
        frame = parser.nextFrame()
        answer = None if frame is None else decodeResponse(frame)
        if answer is None or isinstance(answer, messages.ExceptionResponse):
            self.end()
            raise Gone("no answer" if answer is None else answer.error)
        return answer

    # Its RPC.

    def broadcast(self, data: bytes) -> Deferred[Broadcast]:
        """See L{EngineRpc}."""
        if self.lastError is not None or not self.isUp:
            return fail(EngineError(self.lastError or Reason.UNREACHABLE, "as the test wants it"))
        if data in self.pool:
            return fail(EngineError(Reason.KNOWN, "it waits"))
        try:
            answer = self._check(data)
        except Gone as error:
            return fail(EngineError(Reason.UNREACHABLE, str(error)))
        if not answer.code:
            self.pool.append(data)
        return succeed(Broadcast(code=answer.code, log=answer.log, hash=Hex(bytes(32))))

    def __getattr__(self, name: str) -> Any:
        """Everything else of L{EngineRpc} is not answered."""
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args: fail(EngineError(Reason.UNREACHABLE, name))
