"""
The ABCI server that an engine connects to: the one module of ABCI that touches a transport.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutine
from typing import Any, Final, TypeVar

from twisted.internet.defer import Deferred, DeferredLock, succeed
from twisted.internet.interfaces import (
    IAddress,
    IDelayedCall,
    IPushProducer,
    IReactorTime,
)
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from ....net.deferreds import asDeferred
from ....net.transports import sender
from ....proofs.cometbft.wire import WireMalformed
from . import messages
from .application import Application
from .codec import MAX_FRAME, FrameParser, decodeRequest, encodeFrame
from .messages import (
    EchoRequest,
    EchoResponse,
    ExceptionResponse,
    FlushRequest,
    FlushResponse,
    Request,
)

T = TypeVar("T")

MAX_CONNECTIONS: Final = 16
"""The most connections: an engine has four, and those of one that has just ended may be open."""

READ_AHEAD: Final = 1024 * 1024
"""Bytes of requests that are buffered while an earlier request is not yet answered."""

READ_SIZE: Final = 32 * 1024
"""Bytes read at once. Allocating more for each read takes longer than reading a small block."""

LARGE_READ_SIZE: Final = 256 * 1024
"""
Bytes read at once after a read that was full: the capacity of a Unix socket, for room in which the
engine spins.
"""

TURN: Final = 64
"""Requests of one connection that are answered in a row before others get their turn."""

SEND_SIZE: Final = 64 * 1024
"""Bytes of answers that are sent at once, although more requests follow in the same turn."""

_CALLS: Final[dict[type[Request], str]] = {
    messages.InfoRequest: "info",
    messages.InitChainRequest: "initChain",
    messages.QueryRequest: "query",
    messages.CheckTxRequest: "checkTx",
    messages.CommitRequest: "commit",
    messages.ListSnapshotsRequest: "listSnapshots",
    messages.OfferSnapshotRequest: "offerSnapshot",
    messages.LoadSnapshotChunkRequest: "loadSnapshotChunk",
    messages.ApplySnapshotChunkRequest: "applySnapshotChunk",
    messages.PrepareProposalRequest: "prepareProposal",
    messages.ProcessProposalRequest: "processProposal",
    messages.FinalizeBlockRequest: "finalizeBlock",
}
# These are ordered within their own connection only.
_FREE: Final = frozenset({"query", "checkTx", "listSnapshots", "loadSnapshotChunk"})

_FLUSHED: Final = encodeFrame(FlushResponse())

_log = Logger()


class Closed(Exception):
    """The server does not call the application any more."""


class AbciFactory(Factory):
    """
    Answers the requests on an engine's four connections from an application.

    @ivar failure: the failure of the application, once there was one.
    """

    noisy = False

    def __init__(
        self,
        application: Application,
        *,
        clock: IReactorTime,
        failed: Callable[[Failure], object],
        changed: Callable[[int], object] = lambda count: None,
        maxFrame: int = MAX_FRAME,
    ) -> None:
        """
        @param clock: schedules the turns of connections.
        @param failed: called once, with the failure, when the application has failed. From then
            on the application is not called, and connections are refused.
        @param changed: called with the number of open connections, whenever it changes.
        @param maxFrame: the most bytes of a request.
        """
        self._application = application
        self.clock = clock
        self._failed = failed
        self._changed = changed
        self.maxFrame = maxFrame
        self.failure: Failure | None = None
        self._open: set[AbciConnection] = set()
        self._lock = DeferredLock()
        self._isClosed = False
        self._running = 0
        self._quiet: list[Deferred[None]] = []

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._open)

    def buildProtocol(self, addr: IAddress | None) -> AbciConnection | None:
        """See C{IProtocolFactory}."""
        if self._isClosed or len(self._open) >= MAX_CONNECTIONS:
            _log.warn("A connection of an engine was refused")
            return None
        protocol = AbciConnection(self)
        protocol.factory = self
        return protocol

    def close(self) -> Deferred[None]:
        """
        Close all connections, and stop calling the application.

        @return: fires when the application has answered all calls.
        """
        self._isClosed = True
        self.disconnect()
        if not self._running:
            return succeed(None)
        quiet: Deferred[None] = Deferred()
        self._quiet.append(quiet)
        return quiet

    def disconnect(self) -> None:
        """
        Close all connections. The engine exits then, and reconnects when it is restarted.
        """
        for connection in list(self._open):
            connection.end()

    def opened(self, connection: AbciConnection) -> None:
        """A connection was made."""
        self._open.add(connection)
        self._changed(len(self._open))

    def ended(self, connection: AbciConnection) -> None:
        """A connection was lost."""
        self._open.discard(connection)
        self._changed(len(self._open))

    def fail(self, failure: Failure) -> None:
        """The application has failed."""
        if self.failure is not None:
            return
        self.failure = failure
        try:
            self.close()
        finally:
            self._failed(failure)

    def call(self, request: Request, connection: AbciConnection) -> bytes | Deferred[bytes]:
        """
        Answer a request from the application.

        @return: the frame of the answer.
        @raise Closed: the application is not called any more.
        """
        if isinstance(request, FlushRequest):
            return _FLUSHED
        if isinstance(request, EchoRequest):
            return encodeFrame(EchoResponse(message=request.message))
        name = _CALLS[type(request)]
        if name in _FREE:
            return self._call(name, request)
        if self._lock.locked:
            return self._callInTurn(name, request, connection)
        answer = self._call(name, request)
        if isinstance(answer, Deferred):
            # Nothing waits for the lock, so this has it at once.
            self._lock.acquire()
            answer.addBoth(self._release)
        return answer

    def _call(self, name: str, request: Request) -> bytes | Deferred[bytes]:
        if self._isClosed:
            raise Closed
        try:
            answer = getattr(self._application, name)(request)
            if iscoroutine(answer):
                answer = Deferred.fromCoroutine(answer)
            if not isinstance(answer, Deferred):
                return encodeFrame(answer)
        except Exception:
            # At once: another connection may have its turn before C{failed} is called.
            self._isClosed = True
            raise
        self._running += 1
        return answer.addCallback(encodeFrame).addBoth(self._returned)

    @asDeferred
    async def _callInTurn(self, name: str, request: Request, connection: AbciConnection) -> bytes:
        await self._lock.acquire()
        try:
            if not connection.isOpen:
                # The engine that sent it is gone.
                raise Closed
            answer = self._call(name, request)
            return await answer if isinstance(answer, Deferred) else answer
        finally:
            self._lock.release()

    def _release(self, result: T) -> T:
        self._lock.release()
        return result

    def _returned(self, result: Any) -> Any:
        if isinstance(result, Failure):
            self._isClosed = True
        self._running -= 1
        if not self._running:
            quiet, self._quiet = self._quiet, []
            for waiting in quiet:
                waiting.callback(None)
        return result


@implementer(IPushProducer)
class AbciConnection(Protocol):
    """
    One connection: requests are answered in order, one after the other.
    """

    def __init__(self, factory: AbciFactory) -> None:
        self._server = factory
        self._parser = FrameParser(factory.maxFrame)
        self._isWaiting = False
        self._isFull = False
        self._isReadingPaused = False
        self._isInside = False
        self._isEnding = False
        self._next: IDelayedCall | None = None
        self._answers: list[bytes] = []
        self._answersSize = 0

    @property
    def _transport(self) -> Any:
        # A byte stream that is consumer and push producer as well, which no interface says.
        return self.transport

    @property
    def isOpen(self) -> bool:
        """Whether answers can still be sent."""
        return not self._isEnding

    def connectionMade(self) -> None:
        """See C{IProtocol}."""
        self._transport.bufferSize = READ_SIZE
        self._transport.registerProducer(self, True)
        self._write = sender(self._transport)
        self._server.opened(self)

    def dataReceived(self, data: bytes) -> None:
        """See C{IProtocol}."""
        if self._isEnding:
            return
        isLarge = len(data) >= READ_SIZE
        self._transport.bufferSize = LARGE_READ_SIZE if isLarge else READ_SIZE
        self._parser.feed(data)
        self._goOn()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """See C{IProtocol}."""
        self._isEnding = True
        if self._next is not None:
            self._next.cancel()
            self._next = None
        self._server.ended(self)

    def end(self) -> None:
        """Close the connection without further answers."""
        if not self._isEnding:
            self._isEnding = True
            if self._next is not None:
                self._next.cancel()
                self._next = None
            self._flush()
            self._transport.unregisterProducer()
            self._transport.loseConnection()

    # The transport buffers answers that the engine does not read, and pauses this producer.

    def pauseProducing(self) -> None:
        """See C{IPushProducer}."""
        self._isFull = True

    def resumeProducing(self) -> None:
        """See C{IPushProducer}."""
        self._isFull = False
        self._goOn()

    def stopProducing(self) -> None:
        """See C{IProducer}. The connection ends."""

    def _goOn(self) -> None:
        """Answer buffered requests, up to the end of this turn."""
        self._isInside = True
        for _ in range(TURN):
            if self._isWaiting or self._isFull or self._isEnding or self._next is not None:
                break
            if not self._answerNext():
                break
        else:
            self._goOnSoon()
        self._isInside = False
        self._flush()
        self._limitReading()

    def _takeTurn(self) -> None:
        self._next = None
        self._goOn()

    def _limitReading(self) -> None:
        """Pause reading while too many requests are buffered."""
        isStuck = self._isWaiting or self._isFull or self._next is not None
        wanted = isStuck and self._parser.buffered > READ_AHEAD
        if wanted is not self._isReadingPaused and not self._isEnding:
            self._isReadingPaused = wanted
            if wanted:
                self._transport.pauseProducing()
            else:
                self._transport.resumeProducing()

    def _answerNext(self) -> bool:
        """Answer one request. Return whether there was one."""
        try:
            frame = self._parser.nextFrame()
            if frame is None:
                return False
            request = decodeRequest(frame)
        except WireMalformed as error:
            # A fault of the client; the application has not failed.
            _log.error("An engine sent a malformed request: {error}", error=str(error))
            self._refuse(f"no request of ABCI 2.0: {error}")
            return False
        try:
            answer = self._server.call(request, self)
        except Exception:
            self._fail(Failure())
            return False
        if isinstance(answer, Deferred):
            self._isWaiting = True
            answer.addCallbacks(self._answered, self._failedLater)
        else:
            self._send(answer)
        return True

    def _send(self, answer: bytes) -> None:
        """Send an answer together with the others of this turn."""
        self._answers.append(answer)
        self._answersSize += len(answer)
        if self._answersSize >= SEND_SIZE:
            self._flush()

    def _flush(self) -> None:
        """Hand the answers of this turn to the transport."""
        if self._answers:
            answers, self._answers, self._answersSize = self._answers, [], 0
            self._write(b"".join(answers))

    def _answered(self, answer: bytes) -> None:
        self._isWaiting = False
        if self._isEnding:
            return
        self._send(answer)
        if not self._isInside:
            self._flush()
            # Not at once: the application must not be called from within its own answer.
            self._goOnSoon()

    def _failedLater(self, failure: Failure) -> None:
        self._isWaiting = False
        self._fail(failure)

    def _goOnSoon(self) -> None:
        if self._next is None:
            self._next = self._server.clock.callLater(0, self._takeTurn)

    def _fail(self, failure: Failure) -> None:
        if failure.check(Closed):
            return
        self._refuse(f"the application has failed: {type(failure.value).__name__}")
        self._server.fail(failure)

    def _refuse(self, text: str) -> None:
        if not self._isEnding:
            self._send(encodeFrame(ExceptionResponse(error=text)))
            self.end()
