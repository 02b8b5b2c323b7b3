"""
Connections: writing to their transports without waiting for a turn of the reactor, ending that at
once, finding out that the other side has ended, and closing all of them when the daemon stops.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, TypeVar

from twisted.internet.abstract import FileDescriptor
from twisted.internet.defer import Deferred
from twisted.internet.tcp import Connection

from .turns import MakeAll, makeAtOnce

CLOSE_AT_STOP: Final = 2.0
"""Seconds that a client has to close its end of a connection, or to read on, when the daemon stops.
"""


T = TypeVar("T")

_ENDED: Final = getattr(select, "POLLRDHUP", 0)
"""The events of a connection whose other side sends no more, as the kernel tells them. That it is
lost is told anyway."""


def isDirect(transport: Any) -> bool:
    """Whether what L{sender} gives hands bytes to the kernel itself."""
    return isinstance(transport, Connection) and not transport.TLS


def unsentOf(transport: Any) -> int:
    """
    The number of bytes that a transport keeps in memory because its client has not read them: TCP,
    a UNIX socket, TLS or a WebSocket over one of them. A transport of another kind says nothing: 0.
    """
    size = 0
    while transport is not None and not isinstance(transport, FileDescriptor):
        # What TLS keeps until its handshake is over.
        size += sum(map(len, getattr(transport, "_appSendBuffer", ())))
        transport = getattr(transport, "transport", None)
    if transport is not None:
        size += len(transport.dataBuffer) - transport.offset + transport._tempDataLen
    return size


def hasEnded(transport: Any) -> bool:
    """
    Whether the other side of a connection sends nothing more, or the connection is lost.

    @param transport: as for L{unsentOf}. Of another kind it is not known.
    """
    return bool(_stateOf(transport))


def isLost(transport: Any) -> bool:
    """
    Whether a connection is lost. A reactor does not find out while it is neither read from nor
    written to.

    @param transport: as for L{unsentOf}. Of another kind it is not known.
    """
    return bool(_stateOf(transport) & ~_ENDED)


def _stateOf(transport: Any) -> int:
    while transport is not None and not isinstance(transport, FileDescriptor):
        transport = getattr(transport, "transport", None)
    if transport is None:
        return 0
    poller = select.poll()
    poller.register(transport.fileno(), _ENDED)
    return sum(state for _, state in poller.poll(0))


def sendNow(transport: Any, data: bytes) -> bool:
    """
    Write bytes to a transport that L{isDirect}. Where its buffers are empty, they are handed to the
    kernel at once: waiting until the reactor finds the socket writable costs two system calls and
    a turn. Hot path.

    @return: whether the transport may have kept some of them.
    """
    # Twisted keeps what is unsent in these two.
    isFull = transport.dataBuffer or transport._tempDataBuffer
    if not isFull and transport.connected and not transport.disconnecting:
        try:
            sent: int = transport.socket.send(data)
        except OSError:
            # The socket is full, or broken: the transport finds out, and knows what to do.
            sent = 0
        if sent == len(data):
            return False
        data = data[sent:]
    transport.write(data)
    return True


def endSending(transport: Any) -> None:
    """
    End the own direction of a connection after what was written: with FIN, with the close_notify of
    TLS, or with the Close of a WebSocket. Reading goes on until the client closes, too: a
    connection that is closed with unread bytes is reset, and its client may never see what was
    written last, nor finish its write. The caller unregisters its producer before, discards what it
    reads, and bounds the time.
    """
    transport.resumeProducing()
    if isDirect(transport):
        transport.loseWriteConnection()
    else:
        transport.loseConnection()


class ClosingAtStop:
    """
    A connection that closes while the daemon stops. It is aborted when its client has read nothing
    for L{CLOSE_AT_STOP} seconds, or everything and has not closed its end: neither holds the stop.
    """

    def __init__(
        self,
        transport: Any,
        after: Callable[[float, Callable[[], object]], Any],
        *,
        wasClosing: bool = False,
    ) -> None:
        """
        @param transport: was told to close.
        @param after: makes a call after some seconds, in a turn that has time for it:
            L{WorkBudget.after<svcbroker.net.budgets.WorkBudget.after>}.
        @param wasClosing: whether it was so before the stop. Its client has had time to close.
        """
        self._transport = transport
        self._after = after
        self._unsent = 0
        self._call: Any = None
        self._wait(0.0 if wasClosing else CLOSE_AT_STOP)

    def cancel(self) -> None:
        """The connection is closed."""
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def _look(self) -> None:
        self._call = None
        unsent = unsentOf(self._transport)
        if unsent and unsent != self._unsent:
            self._unsent = unsent
            self._wait(CLOSE_AT_STOP)
        else:
            self._transport.abortConnection()

    def _wait(self, seconds: float) -> None:
        self._call = self._after(seconds, self._look)


class OpenConnections(dict[T, None]):
    """
    The open connections of a carrier, which adds and discards them, in the order of their coming:
    that of a set of objects differs from run to run, and what takes several turns with it. In an
    orderly stop it drains them: no new one is accepted, and it waits until the last one is
    discarded.
    """

    _drained: Deferred[None] | None = None

    def __init__(self, makeAll: MakeAll = makeAtOnce) -> None:
        """
        @param makeAll: makes the calls that close connections.
        """
        super().__init__()
        self._makeAll = makeAll

    @property
    def isDraining(self) -> bool:
        """Whether connections are being closed, and new ones are refused."""
        return self._drained is not None

    def drain(
        self, close: Callable[[T], object], abort: Callable[[T], object] = lambda each: None
    ) -> Deferred[None]:
        """
        Close all connections. Called once, by a caller that bounds how long it may take.

        @param close: closes a connection after what has arrived on it is answered.
        @param abort: closes a connection at once. Called where the wait is cancelled.
        @return: fires when the last connection is closed.
        """

        def cancel(drained: Deferred[None]) -> None:
            self.endAll(abort)

        drained: Deferred[None] = Deferred(cancel)
        self._drained = drained
        self.endAll(close)
        self._finish()
        return drained

    def endAll(self, end: Callable[[T], object]) -> Deferred[None]:
        """
        End all connections, in as many turns as that takes. The end of one may be that of others.

        @param end: ends a connection.
        @return: fires when it was called for the last one.
        """
        return self._makeAll(partial(end, each) for each in self.inTurns())

    def inTurns(self) -> Iterator[T]:
        """
        Yield the connections to a caller that takes several turns. Those that were closed meanwhile
        are left out, and new ones are.
        """
        return (each for each in tuple(self) if each in self)

    def add(self, connection: T) -> None:
        """Add an open connection."""
        self[connection] = None

    def discard(self, connection: T) -> None:
        """Remove a closed connection."""
        self.pop(connection, None)
        self._finish()

    def _finish(self) -> None:
        if self._drained is not None and not self and not self._drained.called:
            self._drained.callback(None)
