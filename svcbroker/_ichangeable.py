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
    from .chain import ValidatorSet


class IChangeableLedger(Interface):
    """
    A ledger that holds the keys of its nodes, and can give them new ones or have other nodes, by
    a transaction. A ledger may provide it beside L{ILedger<svcbroker.interfaces.ILedger>}; one
    whose nodes belong to others does not.

    The broker calls it in the reactor thread, after the ledger's start and before its stop, for
    the operator call C{validators}.

    Any Deferred may fail with L{LedgerUnavailable<svcbroker.errors.LedgerUnavailable>}.
    """

    def getNodes() -> Deferred[ValidatorSet]:
        """
        The nodes that decide the next block.
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
