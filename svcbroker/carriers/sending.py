"""
Sending without a turn of the reactor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from twisted.internet.interfaces import IReactorTime
from twisted.internet.tcp import Connection

TRY_EVERY: Final = 32
"""How many are not made to wait, after a turn in which there was only one."""


def isDirect(transport: Any) -> bool:
    """Whether what L{sender} gives hands bytes to the kernel by itself."""
    return isinstance(transport, Connection) and not transport.TLS


def sender(transport: Any) -> Callable[[bytes], None]:
    """
    What sends bytes over a transport. Where that is plain TCP or a UNIX socket, and nothing waits
    to be sent, they are handed to the kernel at once: to be told first by the reactor that the
    socket can be written costs two system calls and a turn.
    """
    write: Callable[[bytes], None] = transport.write
    if not isDirect(transport):
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


class TurnEnd:
    """
    What is done when everybody was heard who has sent something in this turn of the reactor.

    A client that waits is woken by what it is sent, and to wake a processor costs more than to
    send. Who answers many clients in a row does it once. Where a turn seldom has more than one
    answer, the wait is a loss, so it is only tried from time to time.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._calls: list[Callable[[], None]] = []
        self._untilTry = TRY_EVERY

    def add(self, call: Callable[[], None]) -> None:
        """
        Have something called then, or at once. It does not fail.
        """
        if self._untilTry:
            self._untilTry -= 1
            call()
            return
        if not self._calls:
            self._clock.callLater(0, self._end)
        self._calls.append(call)

    def _end(self) -> None:
        calls, self._calls = self._calls, []
        if len(calls) == 1:
            self._untilTry = TRY_EVERY
        for call in calls:
            call()
