"""
Request bodies while they are received: bounded together, and each with a deadline.
"""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Final

from twisted.internet.interfaces import IReactorTime

from ...errors import BrokerError, ContentTooLarge, Overloaded

MAX_RECEIVED: Final = 128 * 1024 * 1024
"""How many bytes of incomplete bodies a site holds."""
MIN_COUNT: Final = 4
"""How many bodies of the largest size it holds at least, whatever their size."""
GRACE: Final = 60.0
"""How long a body may take to arrive, however slowly, in seconds."""
MIN_RATE: Final = 16 * 1024
"""How many bytes a second have to arrive on average of a body that takes longer than that."""


class IncompleteBodies:
    """
    All request bodies of a site that are being received. The bound is for clients that send many
    large bodies slowly, or do not send them to their end.

    @ivar maxBody: the largest body, in bytes.
    @ivar total: how many bytes of all bodies have arrived.
    @ivar maximum: the most that may have arrived.
    @ivar tooLarge: the error for a body that is too large.
    @ivar overloaded: the error for a body for which there is no room.
    """

    def __init__(self, clock: IReactorTime, maxBody: int) -> None:
        self.clock = clock
        self.maxBody = maxBody
        self.total = 0
        self.maximum = max(MAX_RECEIVED, MIN_COUNT * maxBody)
        self.tooLarge = ContentTooLarge(f"a request has at most {maxBody} bytes")
        self.overloaded = Overloaded("too many bodies of requests are being received; try later")


class IncompleteBody:
    """
    One request body that is being received.

    @ivar content: what has arrived of it.
    """

    def __init__(self, bodies: IncompleteBodies, timeOut: Callable[[], object]) -> None:
        """
        @param timeOut: called when the body arrives too slowly.
        """
        self.content = BytesIO()
        self._bodies = bodies
        self._timeOut = timeOut
        self._size = 0
        self._started = bodies.clock.seconds()
        self._timer = bodies.clock.callLater(GRACE, self._check)

    def write(self, data: bytes) -> BrokerError | None:
        """
        Add a piece that has arrived.

        @return: why there is no room for it; C{None} where there is.
        """
        size, bodies = len(data), self._bodies
        if self._size + size > bodies.maxBody:
            return bodies.tooLarge
        if bodies.total + size > bodies.maximum:
            return bodies.overloaded
        bodies.total += size
        self._size += size
        self.content.write(data)
        return None

    def end(self) -> None:
        """The body is complete, refused or abandoned. Called once or more."""
        self._bodies.total -= self._size
        self._size = 0
        if self._timer.active():
            self._timer.cancel()

    def _check(self) -> None:
        clock = self._bodies.clock
        left = self._started + GRACE + self._size / MIN_RATE - clock.seconds()
        if left > 0:
            self._timer = clock.callLater(left, self._check)
        else:
            self._timeOut()
