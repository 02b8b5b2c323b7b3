"""
The process of the embedded ledger, which can be killed, and replicas that report their effects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from twisted.internet.interfaces import IReactorTime
from twisted.logger import ILogObserver, LogEvent
from twisted.python.failure import Failure
from zope.interface import implementer

from svcbroker.ledgers.pbft._protocol import Effect, Message
from svcbroker.ledgers.pbft._replica import Replica

from .clock import Alarm, VirtualClock
from .crashingdisk import CrashingDisk

if TYPE_CHECKING:
    from .embedded import Embedded


@implementer(IReactorTime)
class ProcessClock:
    """
    The clock as seen by one process. Calls scheduled by a killed process are not made.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._isDead = False

    def die(self) -> None:
        """Kill the process."""
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
    Collects logged failures, such as those of Deferreds without an errback.
    """

    def __init__(self, seen: Callable[[Failure], None]) -> None:
        self._seen = seen

    def __call__(self, event: LogEvent) -> None:
        failure = event.get("log_failure")
        if isinstance(failure, Failure):
            self._seen(failure)


class EmbeddedMachine:
    """
    A replica of the embedded ledger, as seen by faults. All share a disk and a clock.
    """

    def __init__(self, embedded: Embedded, index: int) -> None:
        self._embedded = embedded
        self._index = index

    @property
    def disk(self) -> CrashingDisk:
        """The shared disk."""
        return self._embedded.disk

    def pause(self) -> None:
        """Stop the replica."""
        if self._isThere:
            self._embedded.ledger.replicaSet.stopReplica(self._index)

    def resume(self) -> None:
        """Start the replica."""
        if self._isThere:
            self._embedded.ledger.replicaSet.startReplica(self._index)

    def jumpClock(self, seconds: float) -> None:
        """Move the wall clock."""
        self._embedded.skew += seconds

    @property
    def _isThere(self) -> bool:
        return self._embedded.isUp and self._index < len(self._embedded.ledger.replicaSet.replicas)


def observed(kind: type[Replica], embedded: Embedded) -> type[Replica]:
    """
    A class of replicas whose messages pass the obstacles and whose effects are checked.
    """

    class Watched(kind):  # type: ignore[misc, valid-type]
        def receive(self, messages: Sequence[Message]) -> Sequence[Effect]:
            effects: Sequence[Effect] = super().receive(
                [each for each in messages if not embedded.isBlocked(each.sender, self.index, each)]
            )
            return effects

        def _finish(self) -> Sequence[Effect]:
            effects: Sequence[Effect] = super()._finish()
            embedded.observe(self, effects)
            return effects

    return Watched
