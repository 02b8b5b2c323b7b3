"""
The simulated network between the replicas of one process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random

from attrs import evolve, frozen
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from ._messages import Message

MAX_IN_FLIGHT = 100_000
"""How many messages may be under way; further ones are lost, as on a real network."""

DELIVERIES_PER_TURN = 500
"""How many messages are delivered before the reactor gets its turn."""


@frozen(kw_only=True)
class Conditions:
    """
    How bad the network is. By default it is perfect.

    @ivar delay: the shortest and the longest time that a message takes, in seconds. Where they
        differ, messages overtake each other.
    @ivar loss: the share of messages that are lost, 0 to 1.
    @ivar duplication: the share of messages that arrive twice, 0 to 1.
    @ivar cut: pairs (from, to) of replicas between which nothing passes, in that direction.
    """

    delay: tuple[float, float] = (0.0, 0.0)
    loss: float = 0.0
    duplication: float = 0.0
    cut: frozenset[tuple[int, int]] = frozenset()

    def partition(self, *islands: set[int]) -> Conditions:
        """These conditions, with nothing passing between replicas on different islands."""
        cut = {
            (sender, target)
            for island in islands
            for other in islands
            if other is not island
            for sender in island
            for target in other
        }
        return evolve(self, cut=self.cut | cut)


class SimulatedNetwork:
    """
    Carries messages from replica to replica, in the order of sending and with L{flush} where
    the conditions are perfect, and otherwise as badly as they say.

    Links are authenticated, as links between real nodes are: who a message is from is known.

    @ivar conditions: how bad it is; may be set at any time.
    """

    def __init__(
        self,
        reactor: IReactorTime,
        random: Random,
        deliver: Callable[[int, int, Message], None],
        conditions: Conditions | None = None,
    ) -> None:
        """
        @param random: decides what happens to each message.
        @param deliver: C{deliver(sender, target, message)} is called for each arrival.
        """
        self.conditions = Conditions() if conditions is None else conditions
        self._reactor = reactor
        self._random = random
        self._deliver = deliver
        self._ready: deque[tuple[int, int, Message]] = deque()
        self._isDelivering = False
        self._inFlight: set[IDelayedCall] = set()
        self._nextTurn: IDelayedCall | None = None

    def send(self, sender: int, target: int, message: Message) -> None:
        """
        Send a message. It is not delivered before L{flush}.
        """
        conditions = self.conditions
        if (sender, target) in conditions.cut:
            return
        if conditions.loss and self._random.random() < conditions.loss:
            return
        copies = 1
        if conditions.duplication and self._random.random() < conditions.duplication:
            copies = 2
        for _ in range(copies):
            self._carry(sender, target, message)

    def _carry(self, sender: int, target: int, message: Message) -> None:
        shortest, longest = self.conditions.delay
        if len(self._ready) + len(self._inFlight) >= MAX_IN_FLIGHT:
            return
        if not longest:
            self._ready.append((sender, target, message))
        else:
            delay = self._random.uniform(shortest, longest)
            arrival = self._reactor.callLater(
                delay, lambda: self._arrive(arrival, sender, target, message)
            )
            self._inFlight.add(arrival)

    def _arrive(self, arrival: IDelayedCall, sender: int, target: int, message: Message) -> None:
        self._inFlight.discard(arrival)
        if (sender, target) not in self.conditions.cut:
            self._ready.append((sender, target, message))
            self.flush()

    def stop(self) -> None:
        """
        Lose whatever is under way.
        """
        self._ready.clear()
        for arrival in self._inFlight:
            arrival.cancel()
        self._inFlight.clear()
        if self._nextTurn is not None:
            self._nextTurn.cancel()
            self._nextTurn = None

    def flush(self) -> None:
        """
        Deliver what was sent and is not delayed. What is sent while a message is being delivered
        waits for those sent before.
        """
        if self._isDelivering or self._nextTurn is not None:
            return
        self._isDelivering = True
        try:
            for _ in range(DELIVERIES_PER_TURN):
                if not self._ready:
                    return
                self._deliver(*self._ready.popleft())
        finally:
            self._isDelivering = False
        # A replica that was away for long must not hold everybody up while it catches up.
        self._nextTurn = self._reactor.callLater(0, self._goOn)

    def _goOn(self) -> None:
        self._nextTurn = None
        self.flush()
