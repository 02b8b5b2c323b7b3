"""
The network of the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from attrs import define, frozen

from svcbroker.ledgers.pbft._messages import Message
from svcbroker.ledgers.pbft._network import Envelope

from .clock import VirtualClock
from .trace import Trace, kindOf, roundOf

MAX_ROUND = 2**64
"""Above all rounds."""


class Obstacle(Protocol):
    """Blocks messages."""

    def blocks(self, sender: int, target: int, kind: str, round: int) -> bool:
        """Whether it blocks a message of this kind and round."""


@frozen
class Partition:
    """
    Blocks all messages between islands.

    @ivar islands: the island of each replica, by index.
    """

    islands: tuple[int, ...]

    def blocks(self, sender: int, target: int, kind: str, round: int) -> bool:
        return self.islands[sender] != self.islands[target]


@frozen
class Cut:
    """
    Blocks all messages on some links.

    @ivar links: pairs (from, to).
    """

    links: Sequence[tuple[int, int]]

    def blocks(self, sender: int, target: int, kind: str, round: int) -> bool:
        return (sender, target) in self.links


@frozen
class Isolation:
    """Blocks all messages from and to one replica."""

    node: int

    def blocks(self, sender: int, target: int, kind: str, round: int) -> bool:
        return self.node in (sender, target)


@frozen
class Starvation:
    """
    Lets messages of some kinds reach one replica only.

    @ivar kinds: the kinds of messages.
    @ivar fed: the replica that receives them; C{-1} for none.
    @ivar first: the first round of messages that it blocks.
    @ivar last: the last round of messages that it blocks.
    """

    kinds: Sequence[str]
    fed: int
    first: int = 0
    last: int = MAX_ROUND

    def blocks(self, sender: int, target: int, kind: str, round: int) -> bool:
        return target != self.fed and kind in self.kinds and self.first <= round <= self.last


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

    Messages that arrive for one host within C{window} seconds are delivered together, as those are
    that arrive in one turn of an event loop.

    @ivar conditions: the conditions of all links; may be replaced at any time.
    @ivar obstacles: the current obstacles.
    @ivar carried: how many messages have arrived.
    """

    def __init__(
        self,
        clock: VirtualClock,
        random: Random,
        trace: Trace,
        deliver: Callable[[int, Sequence[Envelope]], None],
        window: float = 0.0,
    ) -> None:
        """
        @param deliver: C{deliver(target, envelopes)} is called with the messages that have arrived.
        """
        self.conditions = LinkConditions()
        self.obstacles: list[Obstacle] = []
        self.carried = 0
        self._clock = clock
        self._random = random
        self._trace = trace
        self._deliver = deliver
        self._window = window
        self._arrived: dict[int, list[Envelope]] = {}

    def send(self, sender: int, targets: Sequence[int], message: Message) -> None:
        """Send a message to some hosts."""
        random, loss, duplication = (
            self._random.random,
            self.conditions.loss,
            self.conditions.duplication,
        )
        shortest, longest = self.conditions.delay
        kind, round = kindOf(message), roundOf(message)
        fates = []
        for target in targets:
            if self._isBlocked(sender, target, kind, round):
                fates.append(f"{target} cut off")
                continue
            if loss and random() < loss:
                fates.append(f"{target} lost")
                continue
            for _ in range(2 if duplication and random() < duplication else 1):
                delay = shortest + (longest - shortest) * random()
                fates.append(f"{target} +{delay:.4f}")
                self._clock.callLater(delay, self._arrive, sender, target, message, kind, round)
        self._trace.sent(self._clock.seconds(), sender, message, ", ".join(fates))

    def _arrive(self, sender: int, target: int, message: Message, kind: str, round: int) -> None:
        # Obstacles also block messages that are already in flight.
        if self._isBlocked(sender, target, kind, round):
            return
        self.carried += 1
        envelope = (sender, message)
        if not self._window:
            self._deliver(target, [envelope])
        elif target in self._arrived:
            self._arrived[target].append(envelope)
        else:
            self._arrived[target] = [envelope]
            self._clock.callLater(self._window, self._handOver, target)

    def _handOver(self, target: int) -> None:
        self._deliver(target, self._arrived.pop(target))

    def _isBlocked(self, sender: int, target: int, kind: str, round: int) -> bool:
        if not self.obstacles:
            return False
        return any(obstacle.blocks(sender, target, kind, round) for obstacle in self.obstacles)
