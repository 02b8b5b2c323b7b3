"""
A process that can die at any moment, and replicas that are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from twisted.internet.interfaces import IReactorTime
from twisted.logger import ILogObserver, LogEvent
from twisted.python.failure import Failure
from zope.interface import implementer

from svcbroker.ledgers.pbft._effects import Effect
from svcbroker.ledgers.pbft._messages import Message
from svcbroker.ledgers.pbft._replica import Replica

from .clock import Alarm, VirtualClock
from .platter import Platter

if TYPE_CHECKING:
    from .embedded import Embedded


@implementer(IReactorTime)
class ProcessClock:
    """
    The clock as one process sees it. What it had asked for does not happen once it is dead.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._isDead = False

    def die(self) -> None:
        """The process is gone."""
        self._isDead = True

    def seconds(self) -> float:
        return self._clock.seconds()

    def callLater(self, delay: float, callable: Callable[..., Any], *args: Any, **kw: Any) -> Alarm:
        def ring() -> None:
            if not self._isDead:
                callable(*args, **kw)

        return self._clock.callLater(delay, ring)

    def getDelayedCalls(self) -> Sequence[Alarm]:
        return [] if self._isDead else self._clock.getDelayedCalls()


@implementer(ILogObserver)
class LogWatch:
    """
    Sees the failures that are logged: a Deferred that nobody waits for ends there.
    """

    def __init__(self, seen: Callable[[Failure], None]) -> None:
        self._seen = seen

    def __call__(self, event: LogEvent) -> None:
        failure = event.get("log_failure")
        if isinstance(failure, Failure):
            self._seen(failure)


class Node:
    """
    One node of the embedded ledger, as faults see it. All nodes share a disk and a clock.
    """

    def __init__(self, world: Embedded, index: int) -> None:
        self._world = world
        self._index = index

    @property
    def disk(self) -> Platter:
        """The one disk."""
        return self._world.platter

    def pause(self) -> None:
        """Stop it."""
        if self._isThere:
            self._world.ledger.nodes.stopNode(self._index)

    def resume(self) -> None:
        """Start it."""
        if self._isThere:
            self._world.ledger.nodes.startNode(self._index)

    def leap(self, seconds: float) -> None:
        """Have the wall clock jump."""
        self._world.skew += seconds

    @property
    def _isThere(self) -> bool:
        return self._world.isUp and self._index < len(self._world.ledger.nodes.replicas)


def watched(kind: type[Replica], world: Embedded) -> type[Replica]:
    """
    A class of replicas that hear what the world lets through, and are looked at.
    """

    class Watched(kind):  # type: ignore[misc, valid-type]
        def receive(self, message: Message, isLast: bool = True) -> Sequence[Effect]:
            if world.isBlocked(message.sender, self.index, message):
                return ()
            effects: Sequence[Effect] = super().receive(message, isLast)
            return effects

        def _finish(self, mayVote: bool = True) -> Sequence[Effect]:
            effects: Sequence[Effect] = super()._finish(mayVote)
            world.saw(self, effects)
            return effects

    return Watched
