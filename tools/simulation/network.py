"""
The network of the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from random import Random
from typing import Protocol, TypeAlias

from attrs import define, frozen

from svcbroker.ledgers.pbft._protocol import Message

from .clock import VirtualClock
from .trace import CUT_OFF, LOST, Trace, kindOf, roundOf

MAX_ROUND = 2**64
"""Above all rounds."""
MAX_HOSTS = 16
"""An upper bound of the number of hosts."""

Envelope: TypeAlias = tuple[int, Message]
"""The index of the host that sends a message, and the message."""

_Flight: TypeAlias = tuple[int, Message, str, int]
"""A sender, its message, and the message's kind and round."""


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


@frozen
class Deprivation:
    """
    Keeps messages of some kinds from one replica.

    @ivar kinds: the kinds of messages.
    """

    kinds: Sequence[str]
    node: int

    def blocks(self, sender: int, target: int, kind: str, round: int) -> bool:
        return target == self.node and kind in self.kinds


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

    Messages that arrive for one host in the same turn of its event loop are delivered together.

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
        turn: float = 0.0,
    ) -> None:
        """
        @param deliver: C{deliver(target, envelopes)} is called with the messages that have arrived.
        @param turn: seconds of a turn of a host's event loop; 0 if each message has its own.
        """
        self.conditions = LinkConditions()
        self.obstacles: list[Obstacle] = []
        self.carried = 0
        self._clock = clock
        self._random = random
        self._trace = trace
        self._deliver = deliver
        self._turn = turn
        # When a host's turns start, in turns.
        self._phase = [random.random() for _ in range(MAX_HOSTS)]
        # Messages in flight by target and the time of their delivery, with their arrivals.
        self._inFlight: dict[tuple[int, float], list[tuple[float, _Flight]]] = {}

    def send(self, sender: int, targets: Sequence[int], message: Message) -> None:
        """Send a message to some hosts."""
        conditions, random, now = self.conditions, self._random.random, self._clock.seconds()
        shortest, longest = conditions.delay
        loss, duplication = conditions.loss, conditions.duplication
        flight = (sender, message, kindOf(message), roundOf(message))
        obstacles = self.obstacles
        fates: list[tuple[int, float]] = []
        for target in targets:
            if obstacles and self._isBlocked(target, flight):
                fates.append((target, CUT_OFF))
                continue
            if loss and random() < loss:
                fates.append((target, LOST))
                continue
            for _ in range(2 if duplication and random() < duplication else 1):
                delay = shortest + (longest - shortest) * random()
                fates.append((target, delay))
                self._schedule(target, now + delay, flight)
        self._trace.sent(now, sender, message, fates)

    def _schedule(self, target: int, arrival: float, flight: _Flight) -> None:
        delivery = arrival
        if self._turn:
            phase = self._phase[target]
            delivery = self._turn * (phase + 1 + (arrival / self._turn - phase) // 1)
        arrivals = self._inFlight.get((target, delivery))
        if arrivals is not None:
            arrivals.append((arrival, flight))
            return
        self._inFlight[target, delivery] = [(arrival, flight)]
        delay = delivery - self._clock.seconds()
        self._clock.callLater(delay, self._deliverTurn, target, delivery)

    def _deliverTurn(self, target: int, delivery: float) -> None:
        arrivals = self._inFlight.pop((target, delivery))
        if len(arrivals) > 1:
            arrivals.sort(key=itemgetter(0))
        # Obstacles also block messages that are already in flight.
        envelopes = [
            (flight[0], flight[1])
            for _, flight in arrivals
            if not (self.obstacles and self._isBlocked(target, flight))
        ]
        if envelopes:
            self.carried += len(envelopes)
            self._deliver(target, envelopes)

    def _isBlocked(self, target: int, flight: _Flight) -> bool:
        sender, _, kind, round = flight
        return any(obstacle.blocks(sender, target, kind, round) for obstacle in self.obstacles)
