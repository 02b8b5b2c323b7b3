"""
What goes to a client, in as few writes as it can.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from ...broker import Keeper

if TYPE_CHECKING:
    from .connection import IWire
    from .delivery import Delivery
    from .session import Session

_AT_ONCE: Final = 64 * 1024
"""What is more than this does not wait for the end of the turn."""

_UNREAD: Final = 64 * 1024
"""So much is answered to a client that does not read; then it is not read from either."""


class Outputs:
    """
    Has every connection write once at the end of a turn, whatever was sent in it. One for all
    connections: receipts of one block answer many of them.
    """

    def __init__(self, clock: IReactorTime, keeper: Keeper) -> None:
        self.keeper = keeper
        self._clock = clock
        self._waiting: dict[Output, None] = {}
        self._call: IDelayedCall | None = None

    def flushLater(self, output: Output) -> None:
        """Flush it when this turn is over."""
        self._waiting[output] = None
        if self._call is None:
            self._call = self._clock.callLater(0, self._flush)

    def _flush(self) -> None:
        self._call = None
        waiting, self._waiting = self._waiting, {}
        for output in waiting:
            output.flush()

    def stop(self) -> None:
        """Let go of the clock."""
        if self._call is not None:
            self._call.cancel()
            self._call = None


class Output:
    """
    Gathers what is sent to one client.

    Before anything is written after a change that the session must not forget, that change is
    on stable storage: an exchange with QoS 2 is exactly once only if both sides remember it.
    """

    _log = Logger()

    def __init__(self, outputs: Outputs, wire: IWire) -> None:
        self._outputs = outputs
        self._wire = wire
        self._session: Session | None = None
        self._delivery: Delivery | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._isKeeping = False
        self._isBlocked = False
        self._unread = 0
        self._isHolding = False
        self._isStopped = False
        self._isFinishing = False
        self._hasEnded = False

    def useSession(self, session: Session, delivery: Delivery) -> None:
        """The client is connected."""
        self._session = session
        self._delivery = delivery

    def send(self, data: bytes) -> None:
        """Send something, soon."""
        if self._hasEnded or self._isFinishing:
            return
        if not self._parts and not self._isKeeping:
            self._outputs.flushLater(self)
        self._parts.append(data)
        self._size += len(data)
        if self._size > _AT_ONCE:
            self.flush()
            self._hold()

    def flush(self) -> None:
        """Send it now, unless the disk is waited for."""
        if self._isKeeping or self._hasEnded:
            return
        if self._session is not None and self._session.takeChange():
            self._isKeeping = True
            # What waits still counts.
            parts, self._parts, size = self._parts, [], self._size
            kept = self._outputs.keeper.flush()
            kept.addCallback(self._kept, parts, size)
            kept.addErrback(self._failed)
        elif self._parts:
            parts, self._parts, self._size = self._parts, [], 0
            self._write(parts)

    def _kept(self, _: object, parts: list[bytes], size: int) -> None:
        self._isKeeping = False
        self._size -= size
        if self._hasEnded:
            return
        if parts:
            self._write(parts)
        self.flush()
        self._hold()
        if self._isFinishing and not self._isKeeping:
            self._wire.close()

    def block(self) -> None:
        """The transport takes no more for now."""
        self._isBlocked = True
        self._hold()

    def unblock(self) -> None:
        """The transport takes more."""
        self._isBlocked = False
        self._unread = 0
        self._hold()

    def _hold(self) -> None:
        """Let deliveries come, and the client ask, or not."""
        isFull = self._size > _AT_ONCE
        isStopped = isFull or self._unread > _UNREAD
        if isStopped != self._isStopped:
            self._isStopped = isStopped
            if isStopped:
                self._wire.pauseReading()
            else:
                self._wire.resumeReading()
        isHolding = self._isBlocked or isFull
        if isHolding != self._isHolding and self._delivery is not None:
            self._isHolding = isHolding
            if isHolding:
                self._delivery.hold()
            else:
                self._delivery.release()

    def _failed(self, failure: Failure) -> None:
        self._log.failure("What a session must not forget could not be kept", failure)
        self._wire.close()

    def _write(self, parts: list[bytes]) -> None:
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        if self._isBlocked:
            # Deliveries are held back by now, so these are answers to what the client asks.
            self._unread += len(data)
            self._hold()
        self._wire.write(data)

    def finish(self) -> None:
        """Send what there is, then close."""
        self.flush()
        self._isFinishing = True
        if not self._isKeeping:
            self._wire.close()

    def end(self) -> None:
        """The connection is gone."""
        self._hasEnded = True
        self._parts.clear()
