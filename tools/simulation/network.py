"""
The network of the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from attrs import define, frozen

from svcbroker.ledgers.pbft._messages import Message

from .clock import VirtualClock
from .trace import Trace, kindOf


class Obstacle(Protocol):
    """Blocks messages."""

    def blocks(self, sender: int, target: int, kind: str) -> bool:
        """Whether it blocks a message of this kind."""


@frozen
class Partition:
    """
    Blocks all messages between islands.

    @ivar islands: the island of each replica, by index.
    """

    islands: tuple[int, ...]

    def blocks(self, sender: int, target: int, kind: str) -> bool:
        return self.islands[sender] != self.islands[target]


@frozen
class Cut:
    """
    Blocks all messages on some links.

    @ivar links: pairs (from, to).
    """

    links: Sequence[tuple[int, int]]

    def blocks(self, sender: int, target: int, kind: str) -> bool:
        return (sender, target) in self.links


@frozen
class Isolation:
    """Blocks all messages from and to one replica."""

    node: int

    def blocks(self, sender: int, target: int, kind: str) -> bool:
        return self.node in (sender, target)


@frozen
class Starvation:
    """
    Lets messages of some kinds reach one replica only.

    @ivar kinds: the kinds of messages.
    @ivar fed: the replica that receives them; C{-1} for none.
    """

    kinds: Sequence[str]
    fed: int

    def blocks(self, sender: int, target: int, kind: str) -> bool:
        return target != self.fed and kind in self.kinds


@define(kw_only=True)
class LinkConditions:
    """
    The conditions of all links.

    @ivar delay: the minimum and maximum time that a message takes. If they differ, messages
        overtake each other.
    @ivar loss: the share of messages that are lost.
    @ivar duplication: the share of messages that arrive twice.
    """

    delay: tuple[float, float] = (0.001, 0.01)
    loss: float = 0.0
    duplication: float = 0.0


class Network:
    """
    Carries messages between hosts. Links are authenticated: the sender of a message is known.

    @ivar conditions: the conditions of all links; may be replaced at any time.
    @ivar obstacles: the current obstacles.
    @ivar carried: how many messages have arrived.
    """

    def __init__(
        self,
        clock: VirtualClock,
        random: Random,
        trace: Trace,
        deliver: Callable[[int, int, Message], None],
    ) -> None:
        """
        @param deliver: C{deliver(sender, target, message)} is called for each arrival.
        """
        self.conditions = LinkConditions()
        self.obstacles: list[Obstacle] = []
        self.carried = 0
        self._clock = clock
        self._random = random
        self._trace = trace
        self._deliver = deliver

    def send(self, sender: int, target: int, message: Message) -> None:
        """Send a message."""
        conditions, now, random = self.conditions, self._clock.seconds(), self._random
        if self._isBlocked(sender, target, message):
            self._trace.sent(now, sender, target, message, "cut off")
            return
        if conditions.loss and random.random() < conditions.loss:
            self._trace.sent(now, sender, target, message, "lost")
            return
        copies = 2 if conditions.duplication and random.random() < conditions.duplication else 1
        for _ in range(copies):
            delay = random.uniform(*conditions.delay)
            self._trace.sent(now, sender, target, message, f"arrives after {delay:.4f}")
            self._clock.callLater(delay, self._arrive, sender, target, message)

    def _arrive(self, sender: int, target: int, message: Message) -> None:
        # Obstacles also block messages that are already in flight.
        if not self._isBlocked(sender, target, message):
            self.carried += 1
            self._deliver(sender, target, message)

    def _isBlocked(self, sender: int, target: int, message: Message) -> bool:
        if not self.obstacles:
            return False
        kind = kindOf(message)
        return any(obstacle.blocks(sender, target, kind) for obstacle in self.obstacles)
