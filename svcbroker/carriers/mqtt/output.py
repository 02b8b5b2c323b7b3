"""
Joins the frames for a client into few writes, and waits for the disk where it must.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from ...access import Admission
from ...broker import MetadataStore
from ...net.turns import EndOfTurn

if TYPE_CHECKING:
    from .delivery import Delivery
    from .mqttsession import Session

_AT_ONCE: Final = 64 * 1024
"""More bytes than this are written before the end of the turn."""

_UNREAD: Final = 64 * 1024
"""Bytes of answers to a client that does not read, before it is not read from either."""


class IWire(Protocol):
    """The transport, as a connection sees it."""

    def write(self, data: bytes) -> None:
        """Send."""

    def close(self) -> None:
        """Send the rest, then close."""

    def admit(
        self, name: bytes | None, password: bytes | None, clientId: str, ended: Callable[[], object]
    ) -> Deferred[Admission]:
        """
        Log the client in.

        @param ended: called when its account is gone.
        @raise NotAuthenticated, QuotaExceeded, Overloaded: it is refused.
        """

    def mayWork(self, events: int = 1, *, isWrite: bool = True) -> bool:
        """
        Ask whether this turn of the reactor has time for more packets.

        @param events: how many events of this client would wait for their answers.
        @param isWrite: whether they publish, or acknowledge: such packets come before others.
        """

    def turn(self, events: int = 1, *, isWrite: bool = True) -> Deferred[None]:
        """Fires when a later turn has. Cancelling gives it up."""

    def pauseReading(self) -> None:
        """Stop reading from the client. Calls nest."""

    def resumeReading(self) -> None:
        """Undo one L{pauseReading}."""


class Output:
    """
    Joins and writes the frames for one client.

    A change of the session is on stable storage before any later frame is written: QoS 2 is
    exactly once only if both sides remember the exchange.
    """

    _log = Logger()

    def __init__(self, endOfTurn: EndOfTurn, store: MetadataStore, wire: IWire) -> None:
        self._endOfTurn = endOfTurn
        self._store = store
        self._wire = wire
        self._session: Session | None = None
        self._delivery: Delivery | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._isStoring = False
        self._isBlocked = False
        self._unread = 0
        self._pausesDelivery = False
        self._pausesReading = False
        self._isFinishing = False
        self._hasEnded = False

    def useSession(self, session: Session, delivery: Delivery) -> None:
        """Use the session of a client that has connected."""
        self._session = session
        self._delivery = delivery

    def send(self, data: bytes) -> None:
        """Send a frame, at the end of the turn at the latest."""
        if self._hasEnded or self._isFinishing:
            return
        if not self._parts and not self._isStoring:
            self._endOfTurn.add(self.flush)
        self._parts.append(data)
        self._size += len(data)
        if self._size > _AT_ONCE:
            self.flush()
            self._updateFlow()

    def flush(self) -> None:
        """Write the frames, after the disk where the session has changed."""
        if self._isStoring or self._hasEnded:
            return
        session = self._session
        # Hot path: for most sessions there is no call.
        if (
            session is not None
            and (session.hasChanged or session.wantsDisk)
            and session.takeChange()
        ):
            self._isStoring = True
            # Frames that wait for the disk still count.
            parts, self._parts, size = self._parts, [], self._size
            stored = self._store.flush()
            stored.addCallback(self._stored, parts, size)
            stored.addErrback(self._failed)
        elif self._parts:
            parts, self._parts, self._size = self._parts, [], 0
            self._write(parts)

    def _stored(self, _: object, parts: list[bytes], size: int) -> None:
        self._isStoring = False
        self._size -= size
        if self._hasEnded:
            return
        if parts:
            self._write(parts)
        self.flush()
        self._updateFlow()
        if self._isFinishing and not self._isStoring:
            self._wire.close()

    def pauseProducing(self) -> None:
        """The client does not read."""
        self._isBlocked = True
        self._updateFlow()

    def resumeProducing(self) -> None:
        """The client reads again."""
        self._isBlocked = False
        self._unread = 0
        self._updateFlow()

    def _updateFlow(self) -> None:
        """Pause or resume deliveries, and reading from the client."""
        isFull = self._size > _AT_ONCE
        pausesReading = isFull or self._unread > _UNREAD
        if pausesReading != self._pausesReading:
            self._pausesReading = pausesReading
            if pausesReading:
                self._wire.pauseReading()
            else:
                self._wire.resumeReading()
        pausesDelivery = self._isBlocked or isFull
        if pausesDelivery != self._pausesDelivery and self._delivery is not None:
            self._pausesDelivery = pausesDelivery
            if pausesDelivery:
                self._delivery.pauseProducing()
            else:
                self._delivery.resumeProducing()

    def _failed(self, failure: Failure) -> None:
        self._log.failure("The changes of a session could not be stored", failure)
        self._wire.close()

    def _write(self, parts: list[bytes]) -> None:
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        if self._isBlocked:
            # Deliveries are paused by now, so these bytes are answers.
            self._unread += len(data)
            self._updateFlow()
        self._wire.write(data)

    def finish(self) -> None:
        """Write the rest, then close."""
        self.flush()
        self._isFinishing = True
        if not self._isStoring:
            self._wire.close()

    def end(self) -> None:
        """Drop the rest: the connection is closed."""
        self._hasEnded = True
        self._parts.clear()
        self._session = self._delivery = None
