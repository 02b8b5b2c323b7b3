"""
The contract of ledgers whose nodes can be changed.
"""

# Methods of a zope.interface take no "self".
# ruff: noqa: N805

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from zope.interface import Interface

if TYPE_CHECKING:
    # Whoever lists the plugins imports the interfaces, but no chain.
    from ..chain import ValidatorChange, ValidatorSet


class IDecidedLedger(Interface):
    """
    A ledger whose blocks a set of nodes decides. A ledger may provide it beside
    L{ILedger<svcbroker.interfaces.ILedger>}, by one of the interfaces below.

    The broker calls it in the reactor thread, after the ledger's start and before its stop, for
    operator calls. Any Deferred may fail with
    L{LedgerUnavailable<svcbroker.errors.LedgerUnavailable>}.
    """

    def getNodes() -> Deferred[ValidatorSet]:
        """
        The nodes that decide the next block.
        """


class IChangeableLedger(IDecidedLedger):
    """
    A ledger that holds the keys of its nodes, and can give them new ones or have other nodes, by
    a transaction, for the operator call C{validators}. One whose nodes belong to others does
    not provide it, but L{IGovernedLedger}.
    """

    def changeNodes(rotate: Sequence[int] = (), count: int | None = None) -> Deferred[ValidatorSet]:
        """
        Give nodes new keys, or change how many there are. What was proved before still is.

        @param rotate: the indexes of the nodes that get new keys.
        @param count: how many nodes there are to be; C{None} for as many as there are.
        @return: fires with the new set, which decides from the next block on, when the change
            is final.
        @raise svcbroker.errors.ParameterInvalid: there is no such node, nothing would change,
            or the number of nodes is out of range.
        """


class IGovernedLedger(IDecidedLedger):
    """
    A ledger whose nodes belong to several. A change of them is signed where the keys are, and
    handed in whole, for the operator call C{validators/submit}.
    """

    def submitChange(change: ValidatorChange) -> Deferred[ValidatorSet]:
        """
        Have a change of the nodes executed. One that was executed already changes nothing.

        @param change: with its signatures.
        @return: fires with the new set when the change is final.
        @raise svcbroker.errors.ParameterInvalid: it does not hold; the text says why.
        """
