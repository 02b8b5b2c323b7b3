"""
Request bodies, bounded together until they are answered, each with a deadline to arrive.
"""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Final

from twisted.internet.interfaces import IReactorTime

from ...errors import BrokerError, ContentTooLarge, Overloaded
from ...net.budgets import ByteBudget

GRACE: Final = 60.0
"""The time that a body may take to arrive, however slowly, in seconds."""
MIN_RATE: Final = 16 * 1024
"""The least average rate of a body that takes longer than that, in bytes a second."""


class IncompleteBodies:
    """
    All request bodies of a site that came in more than one piece and are not answered yet. The
    bound is for clients that send many large bodies slowly, do not send them to their end, or send
    what takes long.

    @ivar maxBody: the largest body, in bytes.
    @ivar budget: what bounds their bytes, together with those of other carriers.
    @ivar tooLarge: the error for a body that is too large.
    @ivar overloaded: the error for a body for which there is no room.
    """

    def __init__(self, clock: IReactorTime, maxBody: int, budget: ByteBudget) -> None:
        self.clock = clock
        self.maxBody = maxBody
        self.budget = budget
        self.tooLarge = ContentTooLarge(f"a request has at most {maxBody} bytes")
        self.overloaded = Overloaded("too many bodies of requests are being received; try later")


class IncompleteBody:
    """
    One request body that is being received, or was.

    @ivar content: what has arrived of it.
    """

    def __init__(self, bodies: IncompleteBodies, owner: str, timeOut: Callable[[], object]) -> None:
        """
        @param owner: whose it is: see L{ownerKey<svcbroker.net.addresses.ownerKey>}.
        @param timeOut: called when the body arrives too slowly.
        """
        self.content = BytesIO()
        self._bodies = bodies
        self._count = bodies.budget.count(owner)
        self._timeOut: Callable[[], object] | None = timeOut
        self._started = bodies.clock.seconds()
        self._timer = bodies.clock.callLater(GRACE, self._check)

    def write(self, data: bytes) -> BrokerError | None:
        """
        Add a piece that has arrived.

        @return: why there is no room for it; C{None} where there is.
        """
        size, bodies = self._count.size + len(data), self._bodies
        if size > bodies.maxBody:
            return bodies.tooLarge
        if not self._count.set(size):
            return bodies.overloaded
        self.content.write(data)
        return None

    def received(self) -> None:
        """All of it has arrived. It counts until L{end}."""
        self._timeOut = None
        if self._timer.active():
            self._timer.cancel()

    def end(self) -> None:
        """The body is answered, refused or abandoned. Called once or more."""
        self._count.close()
        self.received()

    def _check(self) -> None:
        clock = self._bodies.clock
        left = self._started + GRACE + self._count.size / MIN_RATE - clock.seconds()
        if left > 0:
            self._timer = clock.callLater(left, self._check)
        elif self._timeOut is not None:
            self._timeOut()
