"""
The production replica, with what a host of its own needs on top.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import frozen

from svcbroker.ledgers.pbft._effects import Effect
from svcbroker.ledgers.pbft._messages import PreparedCertificate, ProposedBlock
from svcbroker.ledgers.pbft._replica import Replica
from svcbroker.ledgers.pbft._rounds import Rules

from .chain import HostChain
from .disk import Disk


@frozen(kw_only=True)
class Promise:
    """
    What a replica must not forget: it is on disk before any message that follows from it leaves
    the host.

    @ivar height: the height that it is deciding.
    @ivar round: the highest round in which it may have signed something.
    @ivar prepared: what it is bound to.
    @ivar block: the block of that.
    """

    height: int
    round: int
    prepared: PreparedCertificate | None
    block: ProposedBlock | None


class HostReplica(Replica):
    """
    A replica that can be begun anew from what its host has on disk. The embedded ledger needs
    none of this: there, all replicas share one fate (docs/decisions/reserved-rounds.rst).
    """

    @property
    def promise(self) -> Promise:
        """What it is bound to now."""
        return Promise(
            height=self.height,
            round=self.round,
            prepared=self._prepared,
            block=self._preparedBlock,
        )

    def recall(self, promise: Promise) -> Sequence[Effect]:
        """
        Begin as somebody who has promised something: in the next round, bound as before.
        """
        self._prepared, self._preparedBlock = promise.prepared, promise.block
        return self.start(promise.round + 1)


@frozen(kw_only=True)
class Parts:
    """
    What a node set is built of. A mutation is a set of worse parts.

    @ivar replica: the class of correct replicas.
    @ivar rules: the class of their rules.
    @ivar chain: the class of their applications.
    @ivar disk: the class of their disks.
    @ivar keep: what of a promise goes to the disk.
    @ivar wipedVotes: whether a host that has lost its disk votes at once.
    @ivar longest: seconds of the longest round; C{None}: what the schedule says.
    """

    replica: type[HostReplica] = HostReplica
    rules: type[Rules] = Rules
    chain: type[HostChain] = HostChain
    disk: type[Disk] = Disk
    keep: Callable[[Promise], Promise] = lambda promise: promise
    wipedVotes: bool = False
    longest: float | None = None


SOUND = Parts()
"""The parts as they should be."""
