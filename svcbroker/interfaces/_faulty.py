"""
The contract of ledgers that can be given faults on purpose.
"""

# Methods of a zope.interface take no "self".
# ruff: noqa: N805

from __future__ import annotations

from collections.abc import Collection

from twisted.internet.defer import Deferred
from zope.interface import Interface

from ..model import FaultReport


class IFaultyLedger(Interface):
    """
    A ledger whose nodes and whose network an operator can break and mend, to see what becomes
    of an application meanwhile. A ledger may provide it beside
    L{ILedger<svcbroker.interfaces.ILedger>}; one whose nodes are not its own to stop does not.

    The broker calls it in the reactor thread, after the ledger's start and before its stop, and
    only where the daemon was started with C{--faults}. No fault may endanger what is final;
    with too many of them nothing new becomes final until they are mended.

    Any Deferred may fail with L{LedgerUnavailable<svcbroker.errors.LedgerUnavailable>}.
    """

    def stopNode(index: int) -> Deferred[None]:
        """
        Stop a node. Stopping a stopped one changes nothing.

        @raise svcbroker.errors.ParameterInvalid: there is no node of this index.
        """

    def startNode(index: int) -> Deferred[None]:
        """
        Let a stopped node go on. Starting a running one changes nothing.

        @raise svcbroker.errors.ParameterInvalid: there is no node of this index.
        """

    def setNetwork(
        *,
        delay: tuple[float, float] | None = None,
        loss: float | None = None,
        duplication: float | None = None,
        cut: Collection[tuple[int, int]] | None = None,
    ) -> Deferred[None]:
        """
        Change the network between the nodes. What is C{None} stays as it is.

        @param delay: the shortest and the longest time that a message takes, in seconds, at
            most L{MAX_DELAY<svcbroker.model.MAX_DELAY>}.
        @param loss: the share of messages that are lost, 0 to 1.
        @param duplication: the share of messages that arrive twice, 0 to 1.
        @param cut: pairs (from, to) of nodes between which nothing passes, in that direction.
        @raise svcbroker.errors.ParameterInvalid: there is no node of one of the indexes.
        """

    def heal() -> Deferred[None]:
        """
        Let every node run, and make the network what it was when the ledger started.
        """

    def describeFaults() -> Deferred[FaultReport]:
        """
        How the nodes and the network are now.
        """
