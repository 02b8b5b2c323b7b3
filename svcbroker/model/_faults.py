"""
Faults that an operator makes on purpose, and what they do to a set of nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from attrs import frozen

MAX_DELAY: Final = 60.0
"""The longest that a message between nodes may be held up, in seconds."""


@frozen(kw_only=True)
class NodeCondition:
    """
    How a node is.

    @ivar index: its index in its set.
    @ivar isRunning: whether it runs.
    @ivar isLeader: whether it leads at the height that it is about to decide, as it sees it.
    @ivar view: the view that it is in.
    @ivar height: the height of the latest block that it knows.
    """

    index: int
    isRunning: bool
    isLeader: bool
    view: int
    height: int


@frozen(kw_only=True)
class Contradiction:
    """
    A node has signed two things of which it may sign only one.

    @ivar node: its index.
    @ivar height: the height that they were about.
    @ivar round: the round of that height.
    """

    node: int
    height: int
    round: int


@frozen(kw_only=True)
class FaultReport:
    """
    A set of nodes and its network, as they are now.

    @ivar nodes: the nodes by index.
    @ivar quorum: how many of them must work together.
    @ivar delay: the shortest and the longest time that a message takes, in seconds.
    @ivar loss: the share of messages that are lost, 0 to 1.
    @ivar duplication: the share of messages that arrive twice, 0 to 1.
    @ivar cut: pairs (from, to) of nodes between which nothing passes, in that direction.
    @ivar evidence: the latest contradictions, oldest first.
    """

    nodes: Sequence[NodeCondition]
    quorum: int
    delay: tuple[float, float]
    loss: float
    duplication: float
    cut: Collection[tuple[int, int]]
    evidence: Sequence[Contradiction]
