"""
The simulated network between the replicas of one process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeAlias

from attrs import evolve, frozen
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from ._messages import Message

Letter: TypeAlias = tuple[int, Message]
"""Who sends a message, and the message."""

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

    @property
    def arePerfect(self) -> bool:
        """Whether every message arrives once and at once."""
        return not (self.delay[1] or self.loss or self.duplication or self.cut)


class SimulatedNetwork:
    """
    Carries messages from replica to replica, with L{flush} where the conditions are perfect, and
    otherwise as badly as they say.

    What has arrived for one replica is delivered together, in the order of arrival. So a replica
    knows before it answers what others have said meanwhile; and who heard first is served first.

    Links are authenticated, as links between real nodes are: who a message is from is known.
    """

    def __init__(
        self,
        reactor: IReactorTime,
        random: Random,
        deliver: Callable[[int, Sequence[Letter]], None],
        conditions: Conditions | None = None,
    ) -> None:
        """
        @param random: decides what happens to each message.
        @param deliver: C{deliver(target, letters)} is called with what has arrived.
        """
        self.conditions = Conditions() if conditions is None else conditions
        self._reactor = reactor
        self._random = random
        self._deliver = deliver
        # What has arrived, by target. The order of the keys is the order of the first arrivals.
        self._arrived: dict[int, list[Letter]] = {}
        self._arrivedCount = 0
        self._isDelivering = False
        self._inFlight: set[IDelayedCall] = set()
        self._nextTurn: IDelayedCall | None = None

    @property
    def conditions(self) -> Conditions:
        """How bad it is; may be set at any time."""
        return self._conditions

    @conditions.setter
    def conditions(self, conditions: Conditions) -> None:
        self._conditions = conditions
        # Looked at for each message.
        self._isPerfect = conditions.arePerfect

    def sendToAll(self, sender: int, count: int, message: Message) -> None:
        """
        Send a message to all others.

        @param count: how many replicas there are.
        """
        for target in range(count):
            if target != sender:
                self.send(sender, target, message)

    def send(self, sender: int, target: int, message: Message) -> None:
        """
        Send a message. It is not delivered before L{flush}.
        """
        if self._isPerfect:
            self._keep(sender, target, message)
            return
        conditions = self._conditions
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
        shortest, longest = self._conditions.delay
        if not longest:
            self._keep(sender, target, message)
        elif self._hasRoom():
            delay = self._random.uniform(shortest, longest)
            arrival = self._reactor.callLater(
                delay, lambda: self._arrive(arrival, sender, target, message)
            )
            self._inFlight.add(arrival)

    def _keep(self, sender: int, target: int, message: Message) -> None:
        if not self._hasRoom():
            return
        self._arrivedCount += 1
        letters = self._arrived.get(target)
        if letters is None:
            self._arrived[target] = [(sender, message)]
        else:
            letters.append((sender, message))

    def _hasRoom(self) -> bool:
        return self._arrivedCount + len(self._inFlight) < MAX_IN_FLIGHT

    def _arrive(self, arrival: IDelayedCall, sender: int, target: int, message: Message) -> None:
        self._inFlight.discard(arrival)
        if (sender, target) not in self._conditions.cut:
            self._keep(sender, target, message)
            self.flush()

    def stop(self) -> None:
        """
        Lose whatever is under way.
        """
        self._arrived.clear()
        self._arrivedCount = 0
        for arrival in self._inFlight:
            arrival.cancel()
        self._inFlight.clear()
        if self._nextTurn is not None:
            self._nextTurn.cancel()
            self._nextTurn = None

    def flush(self) -> None:
        """
        Deliver what was sent and is not delayed. What is sent during a delivery waits for its
        target's turn.
        """
        if self._isDelivering or self._nextTurn is not None:
            return
        self._isDelivering = True
        try:
            left = DELIVERIES_PER_TURN
            while left > 0:
                if not self._arrived:
                    return
                target = next(iter(self._arrived))
                letters = self._arrived.pop(target)
                if len(letters) > left:
                    self._arrived[target] = letters[left:]
                    del letters[left:]
                self._arrivedCount -= len(letters)
                left -= len(letters)
                self._deliver(target, letters)
        finally:
            self._isDelivering = False
        # A replica that was away for long must not hold everybody up while it catches up.
        self._nextTurn = self._reactor.callLater(0, self._goOn)

    def _goOn(self) -> None:
        self._nextTurn = None
        self.flush()
