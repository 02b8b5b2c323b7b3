"""
Byte streams over WebSockets (RFC 6455), for protocols that do not care where messages end.

C{twisted.web.websocket} chooses no subprotocol, and gathers a message of any size before it hands
it on. Here a protocol is given the bytes as they arrive, and sees a transport like TCP's.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha1
from typing import Any, Final

from attrs import define, field
from twisted.internet.interfaces import (
    IAddress,
    IConsumer,
    IHalfCloseableProtocol,
    IProtocol,
    IProtocolFactory,
    IPushProducer,
    ITransport,
)
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure
from twisted.web import http
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET
from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Message, Ping, TextMessage
from zope.interface import implementer

from ..errors import BrokerError, NoSuchCall, ParameterInvalid
from ..net.budgets import FEW, LARGE, ByteCount, TimedWork, WorkBudget
from ..net.transports import endSending
from .http.connection import BrokerRequest
from .http.logins import Credentials
from .http.routes import Route, encodeError, respond

__all__ = [
    "MESSAGE_BYTES",
    "Route",
    "WebSocketResource",
    "WebSocketTransport",
    "WebSocketWire",
    "routeTo",
]

CLOSE_TIMEOUT: Final = 5.0
"""The time that the other side may take to close, in seconds."""

MESSAGE_BYTES: Final = 4096
"""The most bytes of frames or packets that share a message. Spring's client of STOMP takes messages
of 8,192 characters by default, and closes the connection at a longer one."""

_KEY_SUFFIX: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_KEY_SIZE: Final = 16
_VERSION: Final = b"13"
_CLOSE_CODE: Final = 1000
_UNSUPPORTED_DATA: Final = 1003
_TRY_AGAIN_LATER: Final = 1013
_UPGRADE_REQUIRED: Final = 426


@implementer(IProtocol, IHalfCloseableProtocol, IPushProducer)
class WebSocketWire:
    """
    The WebSocket as HTTP's transport sees it: bytes of frames in and out.
    """

    def __init__(
        self,
        protocol: IProtocol,
        work: WorkBudget,
        counted: ByteCount,
        *,
        isBinary: bool = False,
    ) -> None:
        """
        @param protocol: is given the bytes that messages hold.
        @param work: has the time in which frames are read, and measures how long a close takes.
        @param counted: counts the bytes of frames that wait for a turn, or until the protocol above
            takes more.
        @param isBinary: whether text is neither sent nor taken.
        """
        self.producer: Any = None
        self._protocol = protocol
        self._after = work.after
        self._lane = work.lane()
        self._counted = counted
        # The bytes that have arrived since all was read.
        self._unread = 0
        # The events that were handled since then.
        self._handled = 0
        self._waitsForTurn = False
        self._isReadingPaused = False
        self._isHandling = False
        self._isAllRead = True
        self._isInputEnded = False
        self._connection = Connection(ConnectionType.SERVER)
        self._isBinary = isBinary
        self._sendsText = not isBinary
        self._isStalled = False
        self._isFailed = False
        self._closing: TimedWork | None = None

    def makeConnection(self, transport: Any) -> None:
        """See C{IProtocol}. The handshake is over."""
        self._transport = transport
        # HTTP's channel was registered before.
        transport.unregisterProducer()
        transport.registerProducer(self, True)
        self._protocol.makeConnection(WebSocketTransport(self, transport))

    def connectionMade(self) -> None:
        """See C{IProtocol}."""

    def dataReceived(self, data: bytes) -> None:
        """See C{IProtocol}."""
        isReading = self._connection.state in (ConnectionState.OPEN, ConnectionState.LOCAL_CLOSING)
        if self._isFailed or not isReading:
            return
        self._connection.receive_data(data)
        self._isAllRead = False
        self._unread += len(data)
        self._readEvents()

    def _readEvents(self) -> None:
        """
        Handle what has arrived, as far as there is time in this turn of the reactor, and as the
        protocol above takes it.
        """
        if self._isHandling or self._waitsForTurn:
            return
        self._isHandling = True
        try:
            ping = self._handleEvents()
        finally:
            self._isHandling = False
        self._lane.end()
        # RFC 6455, 5.5.3: of several pings only the latest needs an answer. Who does not read
        # gets none, or these would pile up.
        if ping is not None and not self._isStalled and self._isOpen:
            self._transport.write(self._connection.send(ping.response()))
        if self._isAllRead:
            self._unread = self._handled = 0
        if self._unread != self._counted.size and not self._counted.set(self._unread):
            self._refuse()
        self._tellEnd()

    def _refuse(self) -> None:
        """Close: all connections together have no room for what waits here. Nothing is kept."""
        if self._isOpen:
            self._transport.write(self._connection.send(CloseConnection(_TRY_AGAIN_LATER)))
        self._lane.stop()
        self._counted.close()
        _release(self._connection)
        # It may have much of a frame.
        self._connection = Connection(ConnectionType.SERVER)
        self._connection.receive_data(None)
        self._isFailed = self._isAllRead = True
        self._unread = 0
        self._awaitClose()
        # A transport with a producer waits for it. The Close of the client is the end that is read.
        self._transport.unregisterProducer()
        self._transport.resumeProducing()
        endSending(self._transport)

    def _handleEvents(self) -> Ping | None:
        """
        Handle events.

        @return: the last ping of them.
        """
        ping = None
        for event in self._events():
            if isinstance(event, Message):
                self._messageReceived(event)
            elif isinstance(event, Ping):
                ping = event
            elif isinstance(event, CloseConnection):
                self._closeReceived(event)
                break
        return ping

    def _events(self) -> Iterator[Event]:
        """
        Yield what has arrived, until the protocol above takes no more, or this turn's time is over.
        """
        events = self._connection.events()
        while not (self._isReadingPaused and self._isOpen):
            # One of many frames is not told from the publishes among them.
            published = 1 if self._handled < FEW else LARGE + 1
            if not self._lane.begin(isWrite=True, events=published):
                self._waitsForTurn = True
                self._transport.pauseProducing()
                self._lane.wait(self._readOn, isWrite=True, events=published)
                break
            self._handled += 1
            event = next(events, None)
            if event is None:
                self._isAllRead = True
                break
            yield event

    def readConnectionLost(self) -> None:
        """The client sends nothing more: no Close either."""
        self._isInputEnded = True
        self._tellEnd()

    def writeConnectionLost(self) -> None:
        """See C{IHalfCloseableProtocol}."""

    def _tellEnd(self) -> None:
        """Once everything is read, have the protocol answer it and close."""
        isPaused = self._isReadingPaused and self._isOpen
        if not self._isInputEnded or not self._isAllRead or isPaused:
            return
        protocol = IHalfCloseableProtocol(self._protocol, None)
        if self._isOpen and protocol is not None:
            protocol.readConnectionLost()
        else:
            self._end()

    def _end(self) -> None:
        # A transport with a producer waits for it.
        self._transport.unregisterProducer()
        self._transport.loseConnection()

    def _readOn(self) -> None:
        self._waitsForTurn = False
        if not self._isReadingPaused:
            self._transport.resumeProducing()
        self._readEvents()

    def pauseReading(self) -> None:
        """Read no more from the client for now."""
        self._isReadingPaused = True
        self._transport.pauseProducing()

    def resumeReading(self) -> None:
        """Read from the client again."""
        self._isReadingPaused = False
        if not self._waitsForTurn:
            self._transport.resumeProducing()
        self._readEvents()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """See C{IProtocol}."""
        self._lane.stop()
        self._counted.close()
        _release(self._connection)
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None
        self._protocol.connectionLost(reason)
        # Otherwise each of these would be a cycle with this.
        self.producer = None
        del self._protocol, self._transport

    def pauseProducing(self) -> None:
        """See C{IPushProducer}: the client does not read."""
        self._isStalled = True
        if self.producer is not None:
            self.producer.pauseProducing()

    def resumeProducing(self) -> None:
        """See C{IPushProducer}: the client reads again."""
        self._isStalled = False
        if self.producer is not None:
            self.producer.resumeProducing()

    def stopProducing(self) -> None:
        """See C{IPushProducer}."""
        if self.producer is not None:
            self.producer.stopProducing()

    def send(self, data: bytes) -> None:
        """
        Send a message of the kind that the client sent last, since some know only one; what is
        not text goes as bytes.
        """
        if not self._isOpen:
            return
        message: Message[Any] = BytesMessage(data)
        if self._sendsText:
            try:
                message = TextMessage(data.decode("utf-8"))
            except UnicodeDecodeError:
                message = BytesMessage(data)
        self._transport.write(self._connection.send(message))

    def close(self) -> None:
        """
        Close in order: say so, and wait a bounded time for the other side to agree.
        """
        if self._isOpen:
            self._close(_CLOSE_CODE)

    def _close(self, code: int) -> None:
        self._transport.write(self._connection.send(CloseConnection(code)))
        if self._isInputEnded:
            self._end()
            return
        # The Close of the client comes behind all that it has sent.
        self._transport.resumeProducing()
        self._awaitClose()

    @property
    def _isOpen(self) -> bool:
        return self._connection.state is ConnectionState.OPEN

    def _messageReceived(self, event: Message[Any]) -> None:
        if self._isOpen and self._isBinary and isinstance(event, TextMessage):
            self._close(_UNSUPPORTED_DATA)
        elif self._isOpen:
            self._sendsText = isinstance(event, TextMessage)
            self._protocol.dataReceived(
                event.data.encode("utf-8") if self._sendsText else bytes(event.data)
            )

    def _closeReceived(self, event: CloseConnection) -> None:
        state = self._connection.state
        # What comes behind it does not count.
        self._isAllRead = True
        self._awaitClose()
        # A transport with a producer waits for it.
        self._transport.unregisterProducer()
        if state in (ConnectionState.OPEN, ConnectionState.LOCAL_CLOSING):
            # The client breaks the protocol, and is told how (RFC 6455, 7.1.7).
            self._isFailed = True
            if state is ConnectionState.OPEN:
                self._transport.write(self._connection.send(event))
            endSending(self._transport)
            return
        if state is ConnectionState.REMOTE_CLOSING:
            self._transport.write(self._connection.send(event.response()))
        # Both have said Close: the server closes first (RFC 6455, 7.1.1).
        self._transport.loseConnection()

    def _awaitClose(self) -> None:
        if self._closing is None:
            self._closing = self._after(CLOSE_TIMEOUT, self._giveUp)

    def _giveUp(self) -> None:
        self._closing = None
        self._transport.abortConnection()


def _release(connection: Connection) -> None:
    """Read no more of a connection. wsproto's reader of frames would be a cycle with it."""
    connection.receive_data(None)
    # A generator that is only closed keeps its variables in Python 3.13.
    connection._proto._parse_more = iter(())  # type: ignore[assignment]


@implementer(ITransport, IConsumer, IPushProducer)
@define(eq=False)
class WebSocketTransport:
    """
    The WebSocket as the protocol above sees it.

    @ivar transport: the one below.
    """

    _wire: WebSocketWire
    transport: Any

    def write(self, data: bytes) -> None:
        """See C{ITransport}."""
        self._wire.send(data)

    def writeSequence(self, data: Iterable[bytes]) -> None:
        """See C{ITransport}."""
        self._wire.send(b"".join(data))

    def loseConnection(self) -> None:
        """See C{ITransport}."""
        self._wire.close()

    def abortConnection(self) -> None:
        """Close at once, without sending what is pending."""
        self.transport.abortConnection()

    def getPeer(self) -> IAddress:
        """See C{ITransport}."""
        peer: IAddress = self.transport.getPeer()
        return peer

    def getHost(self) -> IAddress:
        """See C{ITransport}."""
        host: IAddress = self.transport.getHost()
        return host

    def getHandle(self) -> Any:
        """
        The handle of the transport below: L{svcbroker.net.tls.peerCertificate} asks for it.
        """
        getHandle = getattr(self.transport, "getHandle", None)
        return None if getHandle is None else getHandle()

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """See C{IConsumer}. Push producers only."""
        self._wire.producer = producer

    def unregisterProducer(self) -> None:
        """See C{IConsumer}."""
        self._wire.producer = None

    def pauseProducing(self) -> None:
        """Read no more from the client for now."""
        self._wire.pauseReading()

    def resumeProducing(self) -> None:
        """Read from the client again."""
        self._wire.resumeReading()

    def stopProducing(self) -> None:
        """See C{IPushProducer}."""
        self.transport.stopProducing()


def _tokens(request: BrokerRequest, name: bytes) -> list[str]:
    """The elements of a header that is a list."""
    values = request.requestHeaders.getRawHeaders(name, [])
    return [each.strip() for value in values for each in value.decode("latin-1").split(",")]


def _acceptKey(key: bytes) -> bytes | None:
    """The value of C{Sec-WebSocket-Accept} for a key; C{None} where the key is invalid."""
    try:
        if len(b64decode(key, validate=True)) != _KEY_SIZE:
            return None
    except ValueError:
        return None
    return b64encode(sha1(key + _KEY_SUFFIX).digest())


@define(eq=False)
class _Handshake:
    """
    The opening handshake of RFC 6455, 4.2.

    @ivar code: the HTTP status where it is refused.
    @ivar error: what is wrong with it.
    @ivar headers: those of the answer.
    """

    code: int = http.SWITCHING
    error: BrokerError | None = None
    headers: dict[bytes, bytes] = field(factory=dict)


class WebSocketResource(Resource):
    """
    The resource at which clients open WebSockets to speak a protocol.

    Browsers let any page open a WebSocket to any server, and leave the decision to the server
    (RFC 6455, 10.2): the site refuses pages of other origins before this is reached.
    """

    isLeaf = True

    def __init__(
        self,
        factory: IProtocolFactory,
        subprotocols: Sequence[str],
        *,
        isRequired: bool = False,
        isBinary: bool = False,
    ) -> None:
        """
        @param factory: makes the protocol above, which is given a L{WebSocketTransport}.
        @param subprotocols: those that may be spoken; the client's first choice is taken.
        @param isRequired: whether a client that names no subprotocol is refused.
        @param isBinary: whether messages of text are neither sent nor taken.
        """
        super().__init__()
        self._factory = factory
        self._subprotocols = subprotocols
        self._isRequired = isRequired
        self._isBinary = isBinary

    def render_GET(self, request: BrokerRequest) -> bytes | int:
        """Open a WebSocket, or refuse it with the reason."""
        handshake = self._answer(request)
        protocol = None
        if handshake.error is None:
            protocol = self._factory.buildProtocol(request.getClientAddress())
            if protocol is None:
                handshake.code = http.SERVICE_UNAVAILABLE
                handshake.error = NoSuchCall("the broker stops")
        if handshake.error is not None or protocol is None:
            for name, value in handshake.headers.items():
                request.setHeader(name, value)
            assert handshake.error is not None
            return respond(request, encodeError(handshake.error), handshake.code)
        transport: Any = request.channel.transport
        lines = b"".join(b"%b: %b\r\n" % each for each in handshake.headers.items())
        transport.write(b"HTTP/1.1 101 Switching Protocols\r\n%b\r\n" % lines)
        channel, budgets = request.channel, request.channel.site.budgets
        counted = budgets.input.count(channel.owner)
        wire = WebSocketWire(protocol, budgets.work, counted, isBinary=self._isBinary)
        # Clients log in by the protocol inside.
        inner: Any = protocol
        inner.stranger, channel.stranger = channel.stranger, None
        channel.upgrade(wire)
        return NOT_DONE_YET

    def _answer(self, request: BrokerRequest) -> _Handshake:
        upgrade = [each.lower() for each in _tokens(request, b"upgrade")]
        connection = [each.lower() for each in _tokens(request, b"connection")]
        if "websocket" not in upgrade or "upgrade" not in connection:
            return _Handshake(
                _UPGRADE_REQUIRED,
                NoSuchCall("this path speaks WebSocket"),
                {b"Upgrade": b"websocket", b"Connection": b"Upgrade"},
            )
        if request.requestHeaders.getRawHeaders(b"sec-websocket-version") != [_VERSION]:
            return _Handshake(
                _UPGRADE_REQUIRED,
                ParameterInvalid("only version 13 of WebSocket is spoken"),
                {b"Sec-WebSocket-Version": _VERSION},
            )
        keys = request.requestHeaders.getRawHeaders(b"sec-websocket-key", [])
        accept = _acceptKey(keys[0]) if len(keys) == 1 else None
        if accept is None:
            return _Handshake(http.BAD_REQUEST, ParameterInvalid("there is no WebSocket key"))
        headers = {
            b"Upgrade": b"websocket",
            b"Connection": b"Upgrade",
            b"Sec-WebSocket-Accept": accept,
        }
        offered = _tokens(request, b"sec-websocket-protocol")
        chosen = next((each for each in offered if each in self._subprotocols), None)
        if chosen is not None:
            headers[b"Sec-WebSocket-Protocol"] = chosen.encode("ascii")
        elif offered or self._isRequired:
            spoken = ", ".join(self._subprotocols)
            return _Handshake(
                http.BAD_REQUEST, ParameterInvalid(f"the subprotocols spoken here are {spoken}")
            )
        return _Handshake(headers=headers)


def routeTo(path: str, resource: WebSocketResource) -> Route:
    """
    The route of an HTTP site at which clients open WebSockets. Clients log in by the protocol
    inside; credentials of the handshake that are wrong are refused all the same.
    """
    return Route(
        path=path,
        methods=("GET",),
        handler=lambda request: resource,
        credentials=Credentials.OPTIONAL,
    )
