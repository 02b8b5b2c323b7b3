"""
What the calls about faults take, and what they answer.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from .. import model
from ..errors import ParameterInvalid
from ._parameters import Kind

MAX_NODES: Final = 1000
"""The most nodes and links that a call may name."""


def _number(value: object, highest: float) -> float:
    isNumber = isinstance(value, int | float) and not isinstance(value, bool)
    # Not a number (NaN) is in no range.
    if not isNumber or not 0 <= value <= highest:  # type: ignore[operator]
        raise ParameterInvalid(f"is not a number from 0 to {highest:g}")
    return float(value)  # type: ignore[arg-type]


def nodeIndex(value: object) -> int:
    """
    Read the index of a node.

    @raise ParameterInvalid: it is none.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < MAX_NODES:
        raise ParameterInvalid("is not the index of a node")
    return value


def _list(value: object, what: str) -> list[Any]:
    if not isinstance(value, list) or len(value) > MAX_NODES:
        raise ParameterInvalid(f"is not a list of {what}")
    return value


class NodeKind(Kind):
    """The index of a node."""

    def fromJSON(self, value: object) -> int:
        return nodeIndex(value)


class NodesKind(Kind):
    """Lists of indexes of nodes."""

    def fromJSON(self, value: object) -> list[list[int]]:
        what = "lists of nodes"
        islands = [[nodeIndex(node) for node in _list(each, what)] for each in _list(value, what)]
        if sum(map(len, islands)) > MAX_NODES:
            raise ParameterInvalid("names too many nodes")
        return islands


class LinksKind(Kind):
    """Pairs of indexes of nodes."""

    def fromJSON(self, value: object) -> list[tuple[int, int]]:
        links = []
        for link in _list(value, "pairs of nodes"):
            if not isinstance(link, list) or len(link) != 2:
                raise ParameterInvalid("is not a list of pairs of nodes")
            links.append((nodeIndex(link[0]), nodeIndex(link[1])))
        return links


class ShareKind(Kind):
    """A share, 0 to 1."""

    def fromJSON(self, value: object) -> float:
        return _number(value, 1)


class DelayKind(Kind):
    """A shortest and a longest time in seconds."""

    def fromJSON(self, value: object) -> tuple[float, float]:
        if not isinstance(value, list) or len(value) != 2:
            raise ParameterInvalid("is not a shortest and a longest time")
        shortest, longest = (_number(each, model.MAX_DELAY) for each in value)
        if shortest > longest:
            raise ParameterInvalid("has a shortest time above the longest")
        return shortest, longest


class FaultyNode(Struct, frozen=True):
    """
    One node: whether it runs, whether it leads next as it sees it, the view that it is in, and the
    latest block that it knows.
    """

    index: int
    running: bool
    leader: bool
    pbftView: int
    blockNumber: int


class Evidence(Struct, frozen=True):
    """A node that has signed two things at a height and round of which it may sign only one."""

    node: int
    blockNumber: int
    round: int


class Faults(Struct, frozen=True):
    """
    A group's nodes and the network between them. A quorum of the nodes must work together. The
    delay is the shortest and the longest, in seconds; loss and duplication are shares, 0 to 1;
    nothing passes over the links in cut, which are pairs: from, to.
    """

    nodes: list[FaultyNode]
    quorum: int
    delay: list[float]
    loss: float
    duplication: float
    cut: list[list[int]]
    evidence: list[Evidence]


def faultsOf(report: model.FaultReport) -> Faults:
    """What is on the wire."""
    return Faults(
        nodes=[
            FaultyNode(each.index, each.isRunning, each.isLeader, each.view, each.height)
            for each in report.nodes
        ],
        quorum=report.quorum,
        delay=list(report.delay),
        loss=report.loss,
        duplication=report.duplication,
        cut=sorted(list(link) for link in report.cut),
        evidence=[Evidence(each.node, each.height, each.round) for each in report.evidence],
    )
