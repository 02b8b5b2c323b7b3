"""
Fault injection: the controls with which operators stop replicas and disturb their network.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from attrs import evolve
from twisted.logger import Logger

from ...chain import quorum
from ...errors import ParameterInvalid
from ...model import DoubleVote, FaultReport, NodeCondition
from ._network import Conditions
from ._replicaset import ReplicaSet


class FaultControls:
    """
    Stops and starts the replicas of a set and changes their network; see
    L{IFaultyLedger<svcbroker.interfaces.IFaultyLedger>}.
    """

    _log = Logger()

    def __init__(
        self,
        group: str,
        replicaSet: ReplicaSet,
        calm: Conditions,
        earlier: Sequence[DoubleVote] = (),
    ) -> None:
        """
        @param group: the group's name, for the log.
        @param replicaSet: the replicas.
        @param calm: the network's conditions without injected faults.
        @param earlier: the evidence of double signing that was on disk when the ledger started.
        """
        self._group = group
        self._replicaSet = replicaSet
        self._calm = calm
        self._earlier = earlier

    def stopNode(self, index: int) -> None:
        """Stop a replica."""
        self._check(index)
        self._replicaSet.stopReplica(index)
        self._warn(f"node {index} was stopped")

    def startNode(self, index: int) -> None:
        """Start a stopped replica."""
        self._check(index)
        self._replicaSet.startReplica(index)
        self._warn(f"node {index} was started")

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
        network = self._replicaSet.network
        network.conditions = evolve(network.conditions, **changes)
        text = ", ".join(f"{name} {_text(value)}" for name, value in changes.items())
        self._warn(f"the network has {text}")

    def heal(self) -> None:
        """End all injected faults."""
        self._replicaSet.network.conditions = self._calm
        for index in range(len(self._replicaSet.replicas)):
            self._replicaSet.startReplica(index)
        self._warn("all is well again")

    def describe(self) -> FaultReport:
        """The current faults, and the state of each replica."""
        running = set(self._replicaSet.running)
        replicas = self._replicaSet.replicas
        conditions = self._replicaSet.network.conditions
        return FaultReport(
            nodes=[
                NodeCondition(
                    index=index,
                    isRunning=index in running,
                    isLeader=replica.leader == replica.index,
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
                *self._earlier,
                *(
                    DoubleVote(
                        node=each.first.sender, height=each.first.height, round=each.first.round
                    )
                    for each in self._replicaSet.evidence
                ),
            ],
        )

    def isolation(self) -> str:
        """
        The reason why nothing can be decided, if cut links leave no quorum; otherwise empty.
        """
        running, cut = self._replicaSet.running, self._replicaSet.network.conditions.cut
        needed = quorum(len(self._replicaSet.replicas))
        # Each replica also counts itself.
        connected = [
            target
            for target in running
            if sum((sender, target) not in cut for sender in running) >= needed
        ]
        if len(connected) >= needed:
            return ""
        return f"the network is cut: {len(connected)} nodes hear a quorum, {needed} must"

    def _check(self, index: int) -> None:
        count = len(self._replicaSet.replicas)
        if not 0 <= index < count:
            raise ParameterInvalid(f"there is no node {index}, only 0 to {count - 1}")

    def _warn(self, what: str) -> None:
        self._log.warn(
            "a fault made on purpose in group {group}: {what}", group=self._group, what=what
        )


def _text(value: Any) -> str:
    return str(sorted(value)) if isinstance(value, frozenset) else str(value)
