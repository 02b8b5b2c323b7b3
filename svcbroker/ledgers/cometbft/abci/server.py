"""
The one module of ABCI that touches a transport: the server that an engine connects to.
"""

from __future__ import annotations

import stat
from collections.abc import Callable
from errno import EAGAIN
from inspect import iscoroutine
from pathlib import Path
from socket import AF_UNIX, SOCK_STREAM, socket
from typing import Any, Final

from twisted.internet.defer import Deferred, DeferredLock, succeed
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import (
    IAddress,
    IDelayedCall,
    IListeningPort,
    IPushProducer,
    IReactorTime,
    IReactorUNIX,
)
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from ....proofs.cometbft.wire import Malformed
from .._home import MAX_SOCKET_PATH
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

MAX_CONNECTIONS: Final = 16
"""An engine has four. Those of one that has just ended may still be there."""

READ_AHEAD: Final = 1024 * 1024
"""Bytes after which nothing more is read, while a request before them is not yet answered."""

READ_SIZE: Final = 256 * 1024
"""Bytes that are read at once: what a UNIX socket holds. The engine busily waits for room in it."""

TURN: Final = 64
"""Requests that a connection has answered before it is the turn of others."""

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
# These wait for none but those of their own connection.
_FREE: Final = frozenset({"query", "checkTx", "listSnapshots", "loadSnapshotChunk"})

_FLUSHED: Final = encodeFrame(FlushResponse())

_log = Logger()


class Closed(Exception):
    """The server calls nothing any more."""


class AbciFactory(Factory):
    """
    Answers an engine's four connections from an application.

    @ivar connections: how many are open.
    @ivar failure: why the application cannot go on; C{None} where it can.
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
        @param clock: gives others their turn.
        @param failed: told once, with the reason, that the application cannot go on. Nothing is
            called any more then, nobody is let in, and the process should end.
        @param changed: told how many connections are open, whenever one has come or gone.
        @param maxFrame: bytes that a request has at most.
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
        """How many connections are open."""
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
        End all connections, and call nothing any more.

        @return: fires when the application has answered what it was called for.
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
        End all connections. An engine ends then, and makes new ones when it is started again.
        """
        for connection in list(self._open):
            connection.end()

    def opened(self, connection: AbciConnection) -> None:
        """A connection has come."""
        self._open.add(connection)
        self._changed(len(self._open))

    def ended(self, connection: AbciConnection) -> None:
        """A connection has gone."""
        self._open.discard(connection)
        self._changed(len(self._open))

    def fail(self, failure: Failure) -> None:
        """The application cannot go on."""
        if self.failure is not None:
            return
        self.failure = failure
        try:
            self.close()
        finally:
            self._failed(failure)

    def call(self, request: Request, connection: AbciConnection) -> bytes | Deferred[bytes]:
        """
        Have the application answer.

        @return: the frame to answer with.
        @raise Closed: it is not called any more.
        """
        if isinstance(request, FlushRequest):
            return _FLUSHED
        if isinstance(request, EchoRequest):
            return encodeFrame(EchoResponse(message=request.message))
        name = _CALLS[type(request)]
        if name not in _FREE:
            return Deferred.fromCoroutine(self._callInTurn(name, request, connection))
        return self._call(name, request)

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
            # At once: somebody else may have the next turn before the owner hears of it.
            self._isClosed = True
            raise
        self._running += 1
        return answer.addCallback(encodeFrame).addBoth(self._returned)

    async def _callInTurn(self, name: str, request: Request, connection: AbciConnection) -> bytes:
        await self._lock.acquire()
        try:
            if not connection.isOpen:
                # An engine that is gone does not want it any more.
                raise Closed
            answer = self._call(name, request)
            return await answer if isinstance(answer, Deferred) else answer
        finally:
            self._lock.release()

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
        self._isHeld = False
        self._isInside = False
        self._isEnding = False
        self._next: IDelayedCall | None = None

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
        self._server.opened(self)

    def dataReceived(self, data: bytes) -> None:
        """See C{IProtocol}."""
        if self._isEnding:
            return
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
        """Answer nothing more."""
        if not self._isEnding:
            self._isEnding = True
            if self._next is not None:
                self._next.cancel()
                self._next = None
            self._transport.unregisterProducer()
            self._transport.loseConnection()

    # What the engine does not read stays with the transport, which says when that is too much.

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
        """Answer what has come, as far as it is its turn."""
        self._isInside = True
        for _ in range(TURN):
            if self._isWaiting or self._isFull or self._isEnding or self._next is not None:
                break
            if not self._answerNext():
                break
        else:
            self._goOnSoon()
        self._isInside = False
        self._hold()

    def _takeTurn(self) -> None:
        self._next = None
        self._goOn()

    def _hold(self) -> None:
        """Read no further where there is too much to answer."""
        isStuck = self._isWaiting or self._isFull or self._next is not None
        wanted = isStuck and self._parser.buffered > READ_AHEAD
        if wanted is not self._isHeld and not self._isEnding:
            self._isHeld = wanted
            if wanted:
                self._transport.pauseProducing()
            else:
                self._transport.resumeProducing()

    def _answerNext(self) -> bool:
        """Answer one request; whether there was one."""
        try:
            frame = self._parser.nextFrame()
            if frame is None:
                return False
            request = decodeRequest(frame)
        except Malformed as error:
            # The engine, or who pretends to be it, is at fault; the application is sound.
            _log.error("An engine sent what is no request: {error}", error=str(error))
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
            self._transport.write(answer)
        return True

    def _answered(self, answer: bytes) -> None:
        self._isWaiting = False
        if self._isEnding:
            return
        self._transport.write(answer)
        if not self._isInside:
            # Not at once: who has just answered is not to be called from inside.
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
        self._refuse(f"the application cannot go on: {type(failure.value).__name__}")
        self._server.fail(failure)

    def _refuse(self, text: str) -> None:
        if not self._isEnding:
            self._transport.write(encodeFrame(ExceptionResponse(error=text)))
            self.end()


def listenUnix(reactor: IReactorUNIX, path: Path, factory: AbciFactory) -> IListeningPort:
    """
    Listen where only this user can connect.

    @param path: of the socket. What is left there by a process that was killed is removed.
    @raise ValueError: the path is too long, something else than a socket is there, or another
        process listens there.
    @raise OSError: the operating system refuses.
    """
    size = len(bytes(path))
    if size > MAX_SOCKET_PATH:
        raise ValueError(f"the path of a socket has at most {MAX_SOCKET_PATH} bytes, not {size}")
    if _isAlive(path):
        raise ValueError(f"another process listens on {path}: is it the broker of this engine?")
    removeSocket(path)
    try:
        return reactor.listenUNIX(str(path), factory, mode=0o600)
    except CannotListenError as error:
        raise OSError(f"cannot listen on {path}: {error.socketError}") from error


def _isAlive(path: Path) -> bool:
    """
    Whether somebody listens on a socket. Its directory is an engine's, so no lock of ours tells.
    """
    with socket(AF_UNIX, SOCK_STREAM) as probe:
        probe.setblocking(False)
        # Where too many wait to be let in it says so, and does not block.
        return probe.connect_ex(str(path)) in (0, EAGAIN)


def removeSocket(path: Path) -> None:
    """
    Remove the socket that a process left which was killed: nobody can listen there before.

    @raise ValueError: something else than a socket is there.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ValueError(f"{path} is no socket")
    path.unlink()
