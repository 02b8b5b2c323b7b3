"""
What can go wrong with an embedded ledger, on top of what goes wrong with any set of nodes.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, cast

from attrs import define
from twisted.python.failure import Failure

from svcbroker.chain import ValidatorSet, faultsTolerated
from svcbroker.errors import BrokerError

from .faults import FAULTS, BasicFault, Fault, Faults, World

if TYPE_CHECKING:
    from .embedded import Embedded


@define
class UncertainDisk(BasicFault):
    """Writes fail in the middle of the sync, and nobody knows whether they left a trace."""

    def begin(self, world: World) -> None:
        cast("Embedded", world).platter.trouble = True

    def end(self, world: World) -> None:
        cast("Embedded", world).platter.trouble = None


@define
class Restart(BasicFault):
    """The process is told to end, and started again."""

    def begin(self, world: World) -> None:
        embedded = cast("Embedded", world)
        if embedded.isUp:
            embedded.restart()


@define
class NodesChanged(BasicFault):
    """Nodes get new keys, or become more or fewer, by a transaction."""

    rotated: int | None
    count: int | None

    def begin(self, world: World) -> None:
        embedded = cast("Embedded", world)
        if not embedded.isUp:
            return
        now = len(embedded.ledger._state.validators.keys)
        count = now if self.count is None else self.count
        rotate = [self.rotated] if self.rotated is not None and self.rotated < count else []
        # Not more traitors than the smaller set stands.
        worst = faultsTolerated(count)
        if max([len(embedded.traitors), *embedded.traitors], default=0) and not (
            len(embedded.traitors) <= worst and max(embedded.traitors) < count
        ):
            return
        if not rotate and count == now:
            return
        changing = embedded.ledger.changeNodes(rotate, self.count)
        changing.addCallbacks(
            lambda validators: self._changed(embedded, validators), self._notChanged
        )

    def _changed(self, world: Embedded, validators: ValidatorSet) -> None:
        world.note(f"{len(validators.keys)} nodes, generation {validators.generation}")

    def _notChanged(self, failure: Failure) -> None:
        failure.trap(BrokerError)


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
    ("disk that is not sure", 1, _uncertain),
    ("restart", 2, _restart),
    ("rotated key", 2, _rotated),
    ("resized set", 1, _resized),
)
"""What can go wrong at any time."""
