"""
Faults made on purpose: what operators do to the nodes and to their network.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from attrs import evolve
from twisted.logger import Logger

from ...chain import quorum
from ...errors import ParameterInvalid
from ...model import Contradiction, FaultReport, NodeCondition
from ._network import Conditions
from ._nodeset import NodeSet


class FaultControls:
    """
    Stops and starts the nodes of a set, and changes their network; see
    L{IFaultyLedger<svcbroker.interfaces.IFaultyLedger>}.
    """

    _log = Logger()

    def __init__(self, group: str, nodes: NodeSet, calm: Conditions) -> None:
        """
        @param group: the group, for the log.
        @param calm: the network without faults.
        """
        self._group = group
        self._nodes = nodes
        self._calm = calm

    def stopNode(self, index: int) -> None:
        """Stop a node."""
        self._check(index)
        self._nodes.stopNode(index)
        self._tell(f"node {index} was stopped")

    def startNode(self, index: int) -> None:
        """Let a node go on."""
        self._check(index)
        self._nodes.startNode(index)
        self._tell(f"node {index} was started")

    def setNetwork(
        self,
        delay: tuple[float, float] | None,
        loss: float | None,
        duplication: float | None,
        cut: Collection[tuple[int, int]] | None,
    ) -> None:
        """Change the network."""
        for index in {index for link in cut or () for index in link}:
            self._check(index)
        given: dict[str, Any] = {
            "delay": delay,
            "loss": loss,
            "duplication": duplication,
            "cut": None if cut is None else frozenset(cut),
        }
        changes = {name: value for name, value in given.items() if value is not None}
        network = self._nodes.network
        network.conditions = evolve(network.conditions, **changes)
        told = ", ".join(f"{name} {_text(value)}" for name, value in changes.items())
        self._tell(f"the network has {told}")

    def heal(self) -> None:
        """End all faults."""
        self._nodes.network.conditions = self._calm
        for index in range(len(self._nodes.replicas)):
            self._nodes.startNode(index)
        self._tell("all is well again")

    def describe(self) -> FaultReport:
        """How it is now."""
        running = set(self._nodes.running)
        replicas = self._nodes.replicas
        conditions = self._nodes.network.conditions
        return FaultReport(
            nodes=[
                NodeCondition(
                    index=index,
                    isRunning=index in running,
                    isLeader=replica.isLeader,
                    view=replica.view,
                    height=replica.head.height,
                )
                for index, replica in enumerate(replicas)
            ],
            quorum=quorum(len(replicas)),
            delay=conditions.delay,
            loss=conditions.loss,
            duplication=conditions.duplication,
            cut=conditions.cut,
            evidence=[
                Contradiction(
                    node=each.first.sender, height=each.first.height, round=each.first.round
                )
                for each in self._nodes.evidence
            ],
        )

    def isolation(self) -> str:
        """
        In words, that the network is cut so that nothing can be decided; otherwise empty.
        """
        running, cut = self._nodes.running, self._nodes.network.conditions.cut
        needed = quorum(len(self._nodes.replicas))
        # A node hears itself.
        hearing = [
            target
            for target in running
            if sum((sender, target) not in cut for sender in running) >= needed
        ]
        if len(hearing) >= needed:
            return ""
        return f"the network is cut: {len(hearing)} nodes hear a quorum, {needed} must"

    def _check(self, index: int) -> None:
        count = len(self._nodes.replicas)
        if not 0 <= index < count:
            raise ParameterInvalid(f"there is no node {index}, only 0 to {count - 1}")

    def _tell(self, what: str) -> None:
        self._log.warn(
            "a fault made on purpose in group {group}: {what}", group=self._group, what=what
        )


def _text(value: Any) -> str:
    return str(sorted(value)) if isinstance(value, frozenset) else str(value)
