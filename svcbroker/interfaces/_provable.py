"""
The contract of ledgers whose events can be proved.
"""

# ruff: noqa: N805

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred

from ..model import EventId
from ._ledger import ILedger

if TYPE_CHECKING:
    # Whoever lists the plugins imports the interfaces, but no chain.
    from ..proofs import Checkpoint, ConsistencyProof, EventProof, GenesisFields


class IProvableLedger(ILedger):
    """
    A ledger that can prove what it holds to somebody who trusts neither it nor the broker.

    The broker calls it for the operations C{proof}, C{checkpoint}, C{consistency} and
    C{genesis}. What it answers is checked with L{svcbroker.proofs}, without the ledger. All of
    it may fail with L{LedgerUnavailable<svcbroker.errors.LedgerUnavailable>}.
    """

    def getGenesis() -> Deferred[GenesisFields]:
        """
        The beginning of the chain, which every proof starts from.
        """

    def getCheckpoint(height: int | None) -> Deferred[Checkpoint]:
        """
        A final block, named so that there can be no other in its place: that of the height, or
        where it has no certificate of its own, the last one below that has. (Where an engine
        decides, only blocks with transactions have.)

        @param height: the block's height, from 0; C{None} for the latest one.
        @raise svcbroker.errors.HeightUnknown: there is no such block (yet).
        """

    def prove(eventId: EventId, checkpoint: int | None) -> Deferred[EventProof]:
        """
        Prove an event.

        @param checkpoint: the height of a later block that is to vouch for it too, or the
            checkpoint of that height; C{None} where the event's own is enough.
        @raise svcbroker.errors.HeightUnknown: its block, or the checkpoint's, is above the
            chain's height.
        @raise svcbroker.errors.EventNotFound: there is no such event.
        @raise svcbroker.errors.ParameterInvalid: the checkpoint is not after the event's block.
        """

    def proveConsistency(older: int, newer: int) -> Deferred[ConsistencyProof]:
        """
        Prove that the chain up to one block is the beginning of the chain up to another.

        @param older: a height, from 0.
        @param newer: a height above it.
        @raise svcbroker.errors.HeightUnknown: the newer block is above the chain's height.
        @raise svcbroker.errors.ParameterInvalid: the heights are not in that order.
        """
