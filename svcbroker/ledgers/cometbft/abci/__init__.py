"""
ABCI 2.0, the protocol by which CometBFT drives an application over a socket: its frames, the socket
and the contract of an application.

C{protobuf} and C{messages} are its encoding; only this module touches a transport.
L{AbciApplication} is the contract of an application.
"""

from __future__ import annotations

import stat
import typing
from collections.abc import Callable, Coroutine
from errno import EAGAIN
from functools import partial
from inspect import iscoroutine
from pathlib import Path
from socket import AF_UNIX, SOCK_STREAM, socket
from typing import Any, Final, TypeAlias, TypeVar

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

from ....net.deferreds import asDeferred
from ....net.transports import isDirect, sendNow
from ....proofs.cometbft.wire import (
    DELIMITED,
    WireMalformed,
    checkTag,
    encodeTag,
    encodeVarint,
    readLength,
    readVarint,
    skipField,
)
from .._home import MAX_SOCKET_PATH
from . import messages
from .messages import (
    EchoRequest,
    EchoResponse,
    ExceptionResponse,
    FlushRequest,
    FlushResponse,
    Request,
    Response,
)
from .protobuf import decode, encode

MAX_FRAME: Final = 128 * 1024 * 1024
"""The default bound of a frame's size in bytes: a block has at most 100 MiB."""

_MAX_PREFIX: Final = 10

REQUESTS: Final[dict[int, type[Request]]] = {
    1: messages.EchoRequest,
    2: messages.FlushRequest,
    3: messages.InfoRequest,
    5: messages.InitChainRequest,
    6: messages.QueryRequest,
    8: messages.CheckTxRequest,
    11: messages.CommitRequest,
    12: messages.ListSnapshotsRequest,
    13: messages.OfferSnapshotRequest,
    14: messages.LoadSnapshotChunkRequest,
    15: messages.ApplySnapshotChunkRequest,
    16: messages.PrepareProposalRequest,
    17: messages.ProcessProposalRequest,
    20: messages.FinalizeBlockRequest,
}
"""Requests by their field number in C{Request}."""

RESPONSES: Final[dict[int, type[Response]]] = {
    1: messages.ExceptionResponse,
    2: messages.EchoResponse,
    3: messages.FlushResponse,
    4: messages.InfoResponse,
    6: messages.InitChainResponse,
    7: messages.QueryResponse,
    9: messages.CheckTxResponse,
    12: messages.CommitResponse,
    13: messages.ListSnapshotsResponse,
    14: messages.OfferSnapshotResponse,
    15: messages.LoadSnapshotChunkResponse,
    16: messages.ApplySnapshotChunkResponse,
    17: messages.PrepareProposalResponse,
    18: messages.ProcessProposalResponse,
    21: messages.FinalizeBlockResponse,
}
"""Responses by their field number in C{Response}: the request's plus one."""

_TAGS: Final[dict[type, bytes]] = {
    kind: encodeTag(number, DELIMITED)
    for table in (REQUESTS, RESPONSES)
    for number, kind in table.items()
}


def encodeFrame(value: Request | Response) -> bytes:
    """
    A request or a response as a frame.

    @raise ValueError: a field has a value that cannot be written.
    """
    content = encode(value)
    head = _TAGS[type(value)] + encodeVarint(len(content))
    return b"".join((encodeVarint(len(head) + len(content)), head, content))


_FLUSH: Final = messages.FlushRequest()
_FLUSH_CONTENT: Final = _TAGS[messages.FlushRequest] + b"\x00"


def decodeRequest(data: bytes) -> Request:
    """
    Decode a request from the content of a frame.

    @raise WireMalformed: it is no request, or an unknown one.
    """
    if data == _FLUSH_CONTENT:
        # A flush follows each call.
        return _FLUSH
    number, start, end = _envelope(data, REQUESTS)
    return decode(REQUESTS[number], data, start, end)


def decodeResponse(data: bytes) -> Response:
    """
    Decode a response from the content of a frame.

    @raise WireMalformed: it is no response, or an unknown one.
    """
    number, start, end = _envelope(data, RESPONSES)
    return decode(RESPONSES[number], data, start, end)


def _envelope(data: bytes, table: dict[int, type]) -> tuple[int, int, int]:
    """The number of the last known message, and where its content begins and ends."""
    position, size = 0, len(data)
    found: tuple[int, int, int] | None = None
    unknown = 0
    while position < size:
        tag, position = readVarint(data, position, size)
        number, kind = checkTag(tag)
        if number not in table:
            unknown = number
            position = skipField(data, tag, position, size)
            continue
        if kind != DELIMITED:
            raise WireMalformed(f"message {number} has wire type {kind}")
        start, position = readLength(data, position, size)
        found = number, start, position
    if found is None:
        raise WireMalformed(f"message {unknown} is not known" if unknown else "there is no message")
    return found


class AbciFrameParser:
    """
    Cuts a stream of bytes into frames.
    """

    def __init__(self, maxFrame: int = MAX_FRAME) -> None:
        """
        @param maxFrame: the most bytes of a frame's content.
        """
        self._maxFrame = maxFrame
        self._buffer = bytearray()
        self._start = 0

    def feed(self, data: bytes) -> None:
        """Take bytes."""
        if self._start:
            # What was read goes in one piece, not a frame at a time.
            del self._buffer[: self._start]
            self._start = 0
        self._buffer += data

    @property
    def buffered(self) -> int:
        """The number of bytes that are buffered."""
        return len(self._buffer) - self._start

    def nextFrame(self) -> bytes | None:
        """
        The content of the next frame; C{None} while it is incomplete.

        @raise WireMalformed: the frame is malformed or too large. The stream cannot be read
            further.
        """
        buffer, start = self._buffer, self._start
        if start == len(buffer):
            return None
        prefix = bytes(buffer[start : start + _MAX_PREFIX])
        if len(prefix) < _MAX_PREFIX and all(byte >= 0x80 for byte in prefix):
            # The length has come in part, or not at all.
            return None
        length, used = readVarint(prefix, 0, len(prefix))
        if length > self._maxFrame:
            raise WireMalformed(f"a frame has at most {self._maxFrame} bytes, not {length}")
        begin = start + used
        end = begin + length
        if end > len(buffer):
            return None
        frame = bytes(memoryview(buffer)[begin:end])
        self._start = end
        return frame


Answer: TypeAlias = "T | Deferred[T] | Coroutine[Any, Any, T]"
"""The result of a method: the answer, or a Deferred or coroutine of it."""


class AbciApplication(typing.Protocol):
    """
    A replicated state machine, called by
    L{AbciFactory<svcbroker.ledgers.cometbft.abci.AbciFactory>}.

    C{info}, C{initChain}, C{prepareProposal}, C{processProposal}, C{finalizeBlock}, C{commit},
    C{offerSnapshot} and C{applySnapshotChunk} are called one at a time, each after the answer to
    the call before, also across a restart of the engine. C{checkTx}, C{query}, C{listSnapshots}
    and C{loadSnapshotChunk} may be called at any time, while any other call is not yet answered.

    An exception from any method means that the application has failed: the engine is told and
    exits, and no method is called again. An invalid transaction, query or snapshot is refused in
    the answer instead.
    """

    def info(self, request: messages.InfoRequest) -> Answer[messages.InfoResponse]:
        """Report the last height. Called when the engine starts, and for clients of its RPC."""

    def initChain(self, request: messages.InitChainRequest) -> Answer[messages.InitChainResponse]:
        """Begin a chain. Called again if the engine ended before the first commit."""

    def query(self, request: messages.QueryRequest) -> Answer[messages.QueryResponse]:
        """Answer a client of the engine's RPC."""

    def checkTx(self, request: messages.CheckTxRequest) -> Answer[messages.CheckTxResponse]:
        """Decide whether a transaction may wait for a block."""

    def prepareProposal(
        self, request: messages.PrepareProposalRequest
    ) -> Answer[messages.PrepareProposalResponse]:
        """Choose the transactions of a block, of at most C{maxTxBytes}. Only the proposer."""

    def processProposal(
        self, request: messages.ProcessProposalRequest
    ) -> Answer[messages.ProcessProposalResponse]:
        """Decide whether to vote for a block. Deterministic: every node decides the same."""

    def finalizeBlock(
        self, request: messages.FinalizeBlockRequest
    ) -> Answer[messages.FinalizeBlockResponse]:
        """
        Execute a decided block without persisting it. Called again if the engine ended before
        C{commit}.
        """

    def commit(self, request: messages.CommitRequest) -> Answer[messages.CommitResponse]:
        """Persist the block that was executed last. The answer means that it is on disk."""

    def listSnapshots(
        self, request: messages.ListSnapshotsRequest
    ) -> Answer[messages.ListSnapshotsResponse]:
        """List the snapshots that other nodes can fetch."""

    def offerSnapshot(
        self, request: messages.OfferSnapshotRequest
    ) -> Answer[messages.OfferSnapshotResponse]:
        """Decide whether to start from a snapshot. Called only before there is any block."""

    def loadSnapshotChunk(
        self, request: messages.LoadSnapshotChunkRequest
    ) -> Answer[messages.LoadSnapshotChunkResponse]:
        """Return one chunk of a snapshot of this node."""

    def applySnapshotChunk(
        self, request: messages.ApplySnapshotChunkRequest
    ) -> Answer[messages.ApplySnapshotChunkResponse]:
        """Take one chunk of the snapshot that was accepted last."""


def framedSize(tx: bytes) -> int:
    """The bytes that the engine counts for a transaction: a field of the block's data."""
    size = len(tx)
    return 1 + (max(size.bit_length(), 1) + 6) // 7 + size


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
        application: AbciApplication,
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
        self._parser = AbciFrameParser(factory.maxFrame)
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
        transport = self._transport
        self._write = partial(sendNow, transport) if isDirect(transport) else transport.write
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


def listenUnix(reactor: IReactorUNIX, path: Path, factory: AbciFactory) -> IListeningPort:
    """
    Listen on a Unix socket that only this user can connect to.

    @param path: the socket's path. A socket that a killed process has left is removed.
    @raise ValueError: the path is too long, is no socket, or another process listens there.
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
    Whether a process listens on a socket. A lock would not tell: the directory is the engine's.
    """
    with socket(AF_UNIX, SOCK_STREAM) as probe:
        probe.setblocking(False)
        # A full backlog is EAGAIN, because the probe does not block.
        return probe.connect_ex(str(path)) in (0, EAGAIN)


def removeSocket(path: Path) -> None:
    """
    Remove a socket that a killed process has left, so that the path can be listened on again.

    @raise ValueError: the path is no socket.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ValueError(f"{path} is no socket")
    path.unlink()
