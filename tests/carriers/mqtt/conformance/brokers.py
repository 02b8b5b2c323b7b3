"""
The brokers that conformance tests run against.
"""

from __future__ import annotations

import socket
import time
from typing import Any, Protocol

from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure

from ..support import Server, Transport


class IConnection(Protocol):
    """The part of a socket that L{MqttClient<.client.MqttClient>} uses."""

    def sendall(self, data: bytes) -> None:
        """Send bytes."""

    def recv(self, size: int) -> bytes:
        """Receive bytes; none where the connection is closed."""

    def settimeout(self, seconds: float) -> None:
        """Set how long L{recv} waits before it raises C{TimeoutError}."""

    def fileno(self) -> int:
        """Less than 0 once this end is closed."""

    def close(self) -> None:
        """Close this end."""


class IBroker(Protocol):
    """
    A broker under test.

    @ivar isForeign: whether known deviations are forgiven.
    """

    isForeign: bool

    def connect(self, timeout: float) -> IConnection:
        """Open a connection."""

    def seconds(self) -> float:
        """The time."""

    def sleep(self, seconds: float) -> None:
        """Let time pass."""

    def errors(self) -> str:
        """What it has logged as an error since the last call."""


class SocketBroker:
    """
    A broker that listens on a TCP port.
    """

    def __init__(self, address: tuple[str, int], *, isForeign: bool = False) -> None:
        self.isForeign = isForeign
        self._address = address
        self.seconds = time.monotonic
        self.sleep = time.sleep

    def connect(self, timeout: float) -> IConnection:
        """See L{IBroker}."""
        connection = socket.create_connection(self._address, timeout)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def errors(self) -> str:
        """See L{IBroker}."""
        return ""


class MemoryBroker:
    """
    The carrier over memory transports. Time passes while a client waits for bytes.
    """

    isForeign = False

    def __init__(self, server: Server | None = None) -> None:
        self.server = Server() if server is None else server
        self._connections: list[_MemoryConnection] = []

    def connect(self, timeout: float) -> IConnection:
        """See L{IBroker}."""
        connection = _MemoryConnection(self.server, timeout)
        self._connections.append(connection)
        return connection

    def restart(self, *, isCrash: bool) -> None:
        """End, in order or not, and start again on the same disk and ledgers."""
        if not isCrash:
            self.server.stop()
        for connection in self._connections:
            connection.vanish()
        self._connections.clear()
        self.server = self.server.restarted()

    def seconds(self) -> float:
        """See L{IBroker}."""
        return self.server.clock.seconds()

    def sleep(self, seconds: float) -> None:
        """See L{IBroker}."""
        end = self.seconds() + seconds
        while _passTime(self.server, end):
            pass

    def errors(self) -> str:
        """See L{IBroker}: trial fails a test by itself where something is logged."""
        return ""


def _passTime(server: Server, end: float) -> bool:
    """Have the next delayed call made; whether there was one before C{end}, which it is else."""
    clock = server.clock
    due = min((call.getTime() for call in clock.getDelayedCalls()), default=end)
    clock.advance(max(0.0, min(due, end) - clock.seconds()))
    return due < end


class _MemoryTransport(Transport):
    """
    The server's end of a connection. It closes by itself, and hands on nothing while it is paused.
    """

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._server = server
        self._received: list[bytes] = []
        self.isLost = False

    def receive(self, data: bytes) -> None:
        """Bytes have arrived."""
        self._received.append(data)
        self._handOn()

    def resumeProducing(self) -> None:
        super().resumeProducing()
        self._server.clock.callLater(0, self._handOn)

    def _handOn(self) -> None:
        while self._received and self.producerState == "producing" and not self.isLost:
            self.protocol.dataReceived(self._received.pop(0))

    def loseConnection(self) -> None:
        super().loseConnection()
        self._server.clock.callLater(0, self.lose)

    def abortConnection(self) -> None:
        super().abortConnection()
        self._server.clock.callLater(0, self.lose)

    def lose(self) -> None:
        """The connection is closed, by either end."""
        if not self.isLost:
            self.isLost = True
            self.protocol.connectionLost(Failure(ConnectionDone()))


class _MemoryConnection:
    """
    The client's end of a connection, as a blocking socket.
    """

    def __init__(self, server: Server, timeout: float) -> None:
        self._server = server
        self._timeout = timeout
        self._isClosed = False
        self._transport = _MemoryTransport(server)
        protocol: Any = server.factory.buildProtocol(None)
        if protocol is None:
            raise ConnectionRefusedError
        self._transport.protocol = protocol
        protocol.makeConnection(self._transport)

    def sendall(self, data: bytes) -> None:
        """See L{IConnection}."""
        if not self._transport.isLost:
            self._transport.receive(data)

    def recv(self, size: int) -> bytes:
        """See L{IConnection}."""
        end = self._server.clock.seconds() + self._timeout
        while not (data := self._transport.value()):
            if self._transport.isLost:
                return b""
            if not _passTime(self._server, end):
                raise TimeoutError("nothing arrives")
        self._transport.clear()
        return bytes(data)

    def settimeout(self, seconds: float) -> None:
        """See L{IConnection}."""
        self._timeout = seconds

    def fileno(self) -> int:
        """See L{IConnection}."""
        return -1 if self._isClosed else 0

    def vanish(self) -> None:
        """The server is gone, and does nothing more."""
        self._transport.isLost = True

    def close(self) -> None:
        """See L{IConnection}."""
        self._isClosed = True
        self._transport.lose()
