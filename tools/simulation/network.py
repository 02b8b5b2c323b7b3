"""
A network that is as bad as a run's schedule wants it.
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
    """Something that holds messages up for good."""

    def blocks(self, sender: int, target: int, kind: str) -> bool:
        """Whether a message of a kind does not get through."""


@frozen
class Partition:
    """
    Nothing passes between islands.

    @ivar islands: the island that each node is on, by the node's index.
    """

    islands: tuple[int, ...]

    def blocks(self, sender: int, target: int, kind: str) -> bool:
        return self.islands[sender] != self.islands[target]


@frozen
class Cut:
    """
    Nothing passes on some links, each in one direction.

    @ivar links: pairs (from, to).
    """

    links: Sequence[tuple[int, int]]

    def blocks(self, sender: int, target: int, kind: str) -> bool:
        return (sender, target) in self.links


@frozen
class Isolation:
    """Nothing passes to and from one node."""

    node: int

    def blocks(self, sender: int, target: int, kind: str) -> bool:
        return self.node in (sender, target)


@frozen
class Starvation:
    """
    Messages of some kinds get through to one node only.

    @ivar kinds: the kinds of messages.
    @ivar fed: the node that gets them; C{-1} for none.
    """

    kinds: Sequence[str]
    fed: int

    def blocks(self, sender: int, target: int, kind: str) -> bool:
        return target != self.fed and kind in self.kinds


@define(kw_only=True)
class Weather:
    """
    How bad the network is everywhere.

    @ivar delay: the shortest and the longest time that a message takes. Where they differ,
        messages overtake each other.
    @ivar loss: the share of messages that get lost.
    @ivar duplication: the share of messages that arrive twice.
    """

    delay: tuple[float, float] = (0.001, 0.01)
    loss: float = 0.0
    duplication: float = 0.0


class Network:
    """
    Carries messages between hosts. Who a message is from is known, as over authenticated links.

    @ivar weather: may be exchanged at any time.
    @ivar obstacles: those of now.
    @ivar carried: how many messages arrived.
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
        self.weather = Weather()
        self.obstacles: list[Obstacle] = []
        self.carried = 0
        self._clock = clock
        self._random = random
        self._trace = trace
        self._deliver = deliver

    def send(self, sender: int, target: int, message: Message) -> None:
        """Send a message."""
        weather, now, random = self.weather, self._clock.seconds(), self._random
        if self._isBlocked(sender, target, message):
            self._trace.sent(now, sender, target, message, "cut off")
            return
        if weather.loss and random.random() < weather.loss:
            self._trace.sent(now, sender, target, message, "lost")
            return
        copies = 2 if weather.duplication and random.random() < weather.duplication else 1
        for _ in range(copies):
            delay = random.uniform(*weather.delay)
            self._trace.sent(now, sender, target, message, f"arrives after {delay:.4f}")
            self._clock.callLater(delay, self._arrive, sender, target, message)

    def _arrive(self, sender: int, target: int, message: Message) -> None:
        # What is under way when a cable is cut does not arrive either.
        if not self._isBlocked(sender, target, message):
            self.carried += 1
            self._deliver(sender, target, message)

    def _isBlocked(self, sender: int, target: int, message: Message) -> bool:
        if not self.obstacles:
            return False
        kind = kindOf(message)
        return any(obstacle.blocks(sender, target, kind) for obstacle in self.obstacles)
