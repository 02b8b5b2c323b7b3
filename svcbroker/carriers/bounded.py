"""
Connections to others that cost no more than they are meant to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from twisted.internet.interfaces import IDelayedCall, IProtocolFactory, IReactorTime
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.python.failure import Failure

LINGER: Final = 5.0
"""How long the other side may take to agree that a connection ends, in seconds."""


class BoundedProtocol(ProtocolWrapper):
    """
    A connection that ends when the other side answers more than it may, or does not let it end.
    """

    factory: BoundedFactory
    transport: Any
    _received = 0
    _lingering: IDelayedCall | None = None

    def write(self, data: bytes) -> None:
        self._received = 0
        super().write(data)

    def writeSequence(self, data: Sequence[bytes]) -> None:
        self._received = 0
        super().writeSequence(data)

    def dataReceived(self, data: bytes) -> None:
        self._received += len(data)
        if self._received > self.factory.maxAnswer:
            self.transport.abortConnection()
        else:
            super().dataReceived(data)

    def loseConnection(self) -> None:
        # TLS waits for the other side's goodbye, which may never come.
        if self._lingering is None:
            self._lingering = self.factory.clock.callLater(LINGER, self._abort)
        super().loseConnection()

    def _abort(self) -> None:
        self._lingering = None
        self.transport.abortConnection()

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]
        lingering, self._lingering = self._lingering, None
        if lingering is not None:
            lingering.cancel()
        super().connectionLost(reason)


class BoundedFactory(WrappingFactory[BoundedProtocol]):
    """
    Makes such connections.

    @ivar maxAnswer: the most that may be answered to what is written, headers included, in bytes.
    """

    protocol = BoundedProtocol
    noisy = False

    def __init__(self, factory: IProtocolFactory, clock: IReactorTime, maxAnswer: int) -> None:
        super().__init__(factory)
        self.clock = clock
        self.maxAnswer = maxAnswer

    def doStart(self) -> None:
        """Nothing to say of each connection."""

    def doStop(self) -> None:
        """Nothing to say of each connection."""
