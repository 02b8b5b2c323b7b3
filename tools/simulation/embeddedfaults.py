"""
Faults of the embedded ledger, in addition to those of any replica set.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, cast

from attrs import define
from twisted.python.failure import Failure

from svcbroker.chain import ValidatorSet, faultsTolerated
from svcbroker.errors import BrokerError

from .faults import FAULTS, BasicFault, Fault, Faults, FaultTarget, FullDisk

if TYPE_CHECKING:
    from .embedded import Embedded


@define
class UncertainDisk(BasicFault):
    """Syncs fail, and it is uncertain whether what was written left a trace."""

    def begin(self, target: FaultTarget) -> None:
        cast("Embedded", target).disk.files.isFailing = True

    def end(self, target: FaultTarget) -> None:
        cast("Embedded", target).disk.files.isFailing = False


@define
class Restart(BasicFault):
    """The process is stopped in an orderly way and started again."""

    def begin(self, target: FaultTarget) -> None:
        embedded = cast("Embedded", target)
        if embedded.isUp:
            embedded.restart()


@define
class NodesChanged(BasicFault):
    """Replicas get new keys, or their number changes, by a transaction."""

    rotated: int | None
    count: int | None

    def begin(self, target: FaultTarget) -> None:
        embedded = cast("Embedded", target)
        if not embedded.isUp:
            return
        now = len(embedded.ledger._state.validators.keys)
        count = now if self.count is None else self.count
        rotate = [self.rotated] if self.rotated is not None and self.rotated < count else []
        # No more Byzantine replicas than the smaller set tolerates.
        worst = faultsTolerated(count)
        if max([len(embedded.byzantine), *embedded.byzantine], default=0) and not (
            len(embedded.byzantine) <= worst and max(embedded.byzantine) < count
        ):
            return
        if not rotate and count == now:
            return
        changing = embedded.ledger.changeNodes(rotate, self.count)
        changing.addCallbacks(
            lambda validators: self._changed(embedded, validators), self._notChanged
        )

    def _changed(self, target: Embedded, validators: ValidatorSet) -> None:
        target.note(f"{len(validators.keys)} nodes, generation {validators.generation}")

    def _notChanged(self, failure: Failure) -> None:
        failure.trap(BrokerError)


def _fullDisk(random: Random, nodes: int, lasts: float) -> Fault:
    return FullDisk(0)  # all share a disk


def _uncertain(random: Random, nodes: int, lasts: float) -> Fault:
    return UncertainDisk()


def _restart(random: Random, nodes: int, lasts: float) -> Fault:
    return Restart()


def _rotated(random: Random, nodes: int, lasts: float) -> Fault:
    return NodesChanged(random.randrange(nodes), None)


def _resized(random: Random, nodes: int, lasts: float) -> Fault:
    return NodesChanged(None, random.choice((4, 5, 6, 7)))


EMBEDDED_FAULTS: Faults = (
    *FAULTS,
    ("full disk", 1, _fullDisk),
    ("uncertain disk", 3, _uncertain),
    ("restart", 3, _restart),
    ("rotated key", 2, _rotated),
    ("resized set", 1, _resized),
)
"""All faults of the embedded ledger, with their weights. Its disk fails more often."""
