"""
The production replica with what a separate host needs in addition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import frozen

from svcbroker.ledgers.pbft._protocol import Effect, PreparedCertificate, ProposedBlock
from svcbroker.ledgers.pbft._replica import Replica
from svcbroker.ledgers.pbft._votes import Rules

from .chain import HostChain
from .disk import Disk


@frozen(kw_only=True)
class Promise:
    """
    What a replica must not forget. It is on disk before any message that follows from it is sent.

    @ivar height: the height that is being decided.
    @ivar round: the highest round in which the replica may have signed something.
    @ivar prepared: its lock.
    @ivar block: the block of the lock.
    """

    height: int
    round: int
    prepared: PreparedCertificate | None
    block: ProposedBlock | None


class HostReplica(Replica):
    """
    A replica that can be restarted from its host's disk. The embedded ledger does not need this,
    since its replicas crash together (docs/decisions/reserved-rounds.rst).
    """

    @property
    def promise(self) -> Promise:
        """What the replica must not forget now."""
        return Promise(
            height=self.height,
            round=self.round,
            prepared=self._prepared,
            block=self._preparedBlock,
        )

    def recall(self, promise: Promise) -> Sequence[Effect]:
        """
        Restart after a promise: in the next round, with the same lock.
        """
        self._prepared, self._preparedBlock = promise.prepared, promise.block
        return self.start(promise.round + 1)


@frozen(kw_only=True)
class Components:
    """
    The components of a replica set. A mutation replaces some of them.

    @ivar replica: the class of correct replicas.
    @ivar rules: the class of their rules.
    @ivar chain: the class of their applications.
    @ivar disk: the class of their disks.
    @ivar keep: the part of a promise that is written to disk.
    @ivar wipedVotes: whether a host that has lost its disk votes at once.
    @ivar longest: the maximum timeout of a round in seconds; C{None} for the default.
    """

    replica: type[HostReplica] = HostReplica
    rules: type[Rules] = Rules
    chain: type[HostChain] = HostChain
    disk: type[Disk] = Disk
    keep: Callable[[Promise], Promise] = lambda promise: promise
    wipedVotes: bool = False
    longest: float | None = None


CORRECT = Components()
"""The correct components."""
