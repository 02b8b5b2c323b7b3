"""
Sending without a turn of the reactor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.tcp import Connection


def sender(transport: Any) -> Callable[[bytes], None]:
    """
    What sends bytes over a transport. Where that is plain TCP or a UNIX socket, and nothing waits
    to be sent, they are handed to the kernel at once: to be told first by the reactor that the
    socket can be written costs two system calls and a turn.
    """
    write: Callable[[bytes], None] = transport.write
    if not isinstance(transport, Connection) or transport.TLS:
        return write
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

    return sendNow
