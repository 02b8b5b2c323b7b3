"""
Writing to transports without waiting for a turn of the reactor, ending that at once, and finding
out that the other side has ended.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import Any, Final

from twisted.internet.abstract import FileDescriptor
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.tcp import Connection

CLOSE_AT_STOP: Final = 2.0
"""Seconds that a client has to close its end of a connection, or to read on, when the daemon stops.
"""


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


def sender(transport: Any, kept: Callable[[], object] = lambda: None) -> Callable[[bytes], None]:
    """
    A function that writes bytes to a transport. Where that is plain TCP or a UNIX socket, and its
    buffers are empty, the bytes are handed to the kernel at once: waiting until the reactor finds
    the socket writable costs two system calls and a turn.

    @param kept: called where the transport may have kept some of them.
    """
    write: Callable[[bytes], None] = transport.write
    if not isDirect(transport):

        def writeThen(data: bytes) -> None:
            write(data)
            kept()

        return writeThen
    send = transport.socket.send

    def sendNow(data: bytes) -> None:
        # Twisted keeps what is unsent in these two.
        isClear = not transport.dataBuffer and not transport._tempDataBuffer
        if isClear and transport.connected and not transport.disconnecting:
            try:
                sent = send(data)
            except OSError:
                # The socket is full, or broken: the transport finds out, and knows what to do.
                sent = 0
            if sent == len(data):
                return
            data = data[sent:]
        write(data)
        kept()

    return sendNow


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

    def __init__(self, transport: Any, clock: IReactorTime, *, wasClosing: bool = False) -> None:
        """
        @param transport: was told to close.
        @param wasClosing: whether it was so before the stop. Its client has had time to close.
        """
        self._transport = transport
        self._clock = clock
        self._unsent = 0
        delay = 0.0 if wasClosing else CLOSE_AT_STOP
        self._call: IDelayedCall | None = clock.callLater(delay, self._look)

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
            self._call = self._clock.callLater(CLOSE_AT_STOP, self._look)
        else:
            self._transport.abortConnection()
